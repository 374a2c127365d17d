# learner: trajectories into a better policy. The CPU file and the CUDA file define the same functions
# (backend.h); a program links one of them.
LEARNER_MATH := attention.o model.o advantage.o loss.o optimizer.o sampler.o batch.o train.o choice.o \
                collective_self.o collective_shm.o safetensors.o checkpoint.o rl.o
LEARNER_OBJS := $(addprefix $(B)/learner/,$(LEARNER_MATH) backend_cpu.o collective_cpu.o)
LEARNER_PROG := $(addprefix $(B)/learner/,learner.o cmd_rl.o cmd_sft.o options.o source.o wire.o)
LEARNER_F64  := $(patsubst %.o,$(B)/learner/%_f64.o,$(LEARNER_MATH) backend_cpu.o collective_cpu.o)

# Only the -I part: the library path of the same package is for linking.
CFLAGS_learner := $(shell pkg-config --cflags openblas jansson libprotobuf-c)
LIBS_learner   := $(shell pkg-config --libs openblas jansson libprotobuf-c) -lm

$(B)/liblearner.a: $(LEARNER_OBJS)
	@rm -f $@; $(AR) rcs $@ $^

# Headers that protobuf-c makes come before the one file that includes them.
$(B)/learner/wire.o: | $(PROTO_GEN_H)
BINS += $(BIN)/assay-learner
$(BIN)/assay-learner: $(LEARNER_PROG) $(B)/liblearner.a $(B)/libproto.a $(B)/libbase.a
	@mkdir -p $(@D)
	@$(if $(V),,echo "LD $@")
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(filter-out -luv,$(LIBS_proto)) $(LIBS_learner) $(LIBS_base)

# The same sources in double precision, for the finite-difference tests.
$(B)/learner/%_f64.o: learner/%.c
	@mkdir -p $(@D)
	@$(if $(V),,echo "CC $< (double)")
	$(Q)$(CC) $(CFLAGS) $(CFLAGS_learner) -DLEARNER_F64 -c -o $@ $<
$(B)/liblearner_f64.a: $(LEARNER_F64)
	@rm -f $@; $(AR) rcs $@ $^

LEARNER_UNITS_F64 := $(patsubst %,$(B)/tests/learner/%_test_f64,gradient)
LEARNER_UNITS     := $(patsubst %,$(B)/tests/learner/%_test,advantage loss rl train collective checkpoint sampler batch)
UNIT_TESTS += $(LEARNER_UNITS) $(LEARNER_UNITS_F64)

$(LEARNER_UNITS_F64): $(B)/tests/learner/%_test_f64: tests/learner/%_test.c $(B)/liblearner_f64.a $(B)/libbase.a
	@mkdir -p $(@D)
	@$(if $(V),,echo "LD $@")
	$(Q)$(CC) $(CFLAGS) $(CFLAGS_learner) -DLEARNER_F64 $(LDFLAGS) -o $@ $(filter %.c %.a,$^) -lcmocka $(LIBS_base) $(LIBS_learner)
$(LEARNER_UNITS): $(B)/tests/learner/%_test: tests/learner/%_test.c $(B)/liblearner.a $(B)/libbase.a
	@mkdir -p $(@D)
	@$(if $(V),,echo "LD $@")
	$(Q)$(CC) $(CFLAGS) $(CFLAGS_learner) $(LDFLAGS) -o $@ $(filter %.c %.a,$^) -lcmocka $(LIBS_base) $(LIBS_learner)

-include $(LEARNER_OBJS:.o=.d) $(LEARNER_PROG:.o=.d) $(LEARNER_F64:.o=.d) $(addsuffix .d,$(LEARNER_UNITS) $(LEARNER_UNITS_F64))
