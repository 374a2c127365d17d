# rollout: the server. core.mk: the pure machine, the log, the simulation; readers.mk: verdicts, readers, workers; cli.mk: `assay`.
ROLLOUT_OBJS :=
CFLAGS_rollout := $(shell pkg-config --cflags libuv libnghttp2)
include $(wildcard rollout/core.mk rollout/readers.mk rollout/cli.mk)

WIRE_OBJS    := $(addprefix $(B)/rollout/,wire.o wire_catalog.o)
ASSAYD_OBJS  := $(addprefix $(B)/rollout/,assayd.o runner.o commit.o rpc.o rpc_catalog.o rpc_trajectories.o policy.o index.o)
LIBS_rollout := $(shell pkg-config --libs libuv libcap) -lm
$(WIRE_OBJS): | $(PROTO_GEN_H)

$(BIN)/assayd: $(ASSAYD_OBJS) $(WIRE_OBJS) $(ROLLOUT_OBJS) $(B)/libsandbox.a $(B)/librepos.a $(B)/libproto.a $(B)/libbase.a
	@mkdir -p $(@D)
	@$(if $(V),,echo "LD $@")
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(LIBS_sandbox) $(LIBS_repos) $(LIBS_proto) $(LIBS_base) $(LIBS_rollout)
BINS += $(BIN)/assayd

-include $(ASSAYD_OBJS:.o=.d) $(WIRE_OBJS:.o=.d)
