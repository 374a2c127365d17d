# The command line `assay`: a client of the API; links repos for task records and for splitting a change (mine).
CLI_OBJS := $(patsubst %.c,$(B)/%.o,$(wildcard rollout/cli/*.c))
LIBS_cli := $(shell pkg-config --libs jansson) -lm
ASSAY_VERSION := $(shell sed -n 's/^\#define ASSAY_VERSION "\(.*\)"/\1/p' rollout/server.h)

$(B)/rollout/cli/wire_cli.o: | $(PROTO_GEN_H)
$(B)/rollout/cli/cmd_version.o: rollout/server.h
$(B)/rollout/cli/cmd_version.o: CFLAGS += -DASSAY_VERSION='"$(ASSAY_VERSION)"'

$(BIN)/assay: $(CLI_OBJS) $(B)/librepos.a $(B)/libproto.a $(B)/libbase.a
	@mkdir -p $(@D)
	@$(if $(V),,echo "LD $@")
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(LIBS_repos) $(LIBS_proto) $(LIBS_base) $(LIBS_cli)
BINS += $(BIN)/assay

-include $(CLI_OBJS:.o=.d)
