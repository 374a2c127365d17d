# The pure core: episode machine, queue, cache, log, stream; their units and the simulation (`make sim SEED=n`).
CORE_OBJS := $(addprefix $(B)/rollout/,episode.o queue.o admission.o cache.o engine.o engine_door.o engine_copy.o trajlog.o trajlog_io.o stream.o) \
             $(B)/proto/trajframe.o
ROLLOUT_OBJS += $(CORE_OBJS)

CORE_TESTS := $(addprefix $(B)/tests/rollout/,episode_test queue_test cache_test trajlog_test stream_test)
UNIT_TESTS += $(CORE_TESTS)
# episode_test looks at the wire, too: an absent reward must be absent there.
$(B)/tests/rollout/episode_test.o: | $(PROTO_GEN_H)
$(B)/tests/rollout/episode_test: $(B)/rollout/wire.o
$(CORE_TESTS): %: %.o $(CORE_OBJS) $(B)/rollout/verdict.o $(B)/libproto.a $(B)/libbase.a
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS) -o $@ $(filter %.o,$^) $(filter %.a,$^) $(LIBS_base) $(LIBS_proto) -lm -lcmocka

SIM      := $(B)/tests/sim/sim
SIM_OBJS := $(addprefix $(B)/tests/sim/,sim.o world.o disk.o)
SEED     ?=
$(SIM): $(SIM_OBJS) $(CORE_OBJS) $(B)/rollout/verdict.o $(B)/libbase.a
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(LIBS_base)

.PHONY: sim sim-planted
sim: $(SIM)
	@$(SIM) $(SEED)

# Faults put into copies of the real sources, one at a time: the simulation must find every one.
sim-planted: $(SIM)
	@CC='$(CC)' CFLAGS='$(CFLAGS)' LDFLAGS='$(LDFLAGS)' LIBS='$(LIBS_base)' tests/sim/planted $(B) \
	  $(SIM_OBJS) $(CORE_OBJS) $(B)/rollout/verdict.o $(B)/libbase.a

BENCH_LOG := $(B)/tests/bench/bench_log
$(BENCH_LOG): $(BENCH_LOG).o $(CORE_OBJS) $(B)/rollout/verdict.o $(B)/libbase.a
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(LIBS_base)
BENCHES += $(BENCH_LOG)

-include $(CORE_OBJS:.o=.d) $(CORE_TESTS:=.d) $(SIM_OBJS:.o=.d) $(BENCH_LOG).d
