# sandbox: the door is a client library; behind it stands assay-jail, a separate privileged program.
LIBS_sandbox :=
SANDBOX_OBJS := $(addprefix $(B)/sandbox/,client.o)
JAIL_OBJS    := $(addprefix $(B)/sandbox/,jail.o slot.o cgroup.o keeper.o launcher.o mount.o etc.o cell.o edits.o collect.o rights.o seccomp.o)

$(B)/libsandbox.a: $(SANDBOX_OBJS)
	@rm -f $@; $(AR) rcs $@ $^

# The jail links base and libseccomp and nothing else; tests/sandbox/jail_links_test.sh holds it to that.
BINS += $(BIN)/assay-jail
$(BIN)/assay-jail: $(JAIL_OBJS) $(B)/libbase.a
	@mkdir -p $(@D)
	@$(if $(V),,echo "LD $@")
	$(Q)$(CC) $(LDFLAGS) -Wl,--as-needed -o $@ $^ -lseccomp

-include $(SANDBOX_OBJS:.o=.d) $(JAIL_OBJS:.o=.d)
