# base: what two lower rooms need and that has no opinion.
BASE_OBJS := $(addprefix $(B)/base/,err.o buf.o arena.o digest.o clock.o log.o fault.o frame.o)
LIBS_base := -lcrypto

$(B)/libbase.a: $(BASE_OBJS)
	@rm -f $@; $(AR) rcs $@ $^

$(B)/%.o: %.c
	@mkdir -p $(@D)
	@$(if $(V),,echo "CC $<")
	$(Q)$(CC) $(CFLAGS) $(CFLAGS_$(firstword $(subst /, ,$*))) -c -o $@ $<

-include $(BASE_OBJS:.o=.d)
