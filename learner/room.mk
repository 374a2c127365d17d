# learner: trajectories into a better policy. The CPU files and the CUDA files define the same functions
# (backend.h, collective_device_open); a program links one set of them.
LEARNER_OBJS := $(addprefix $(B)/learner/,attention.o model.o advantage.o loss.o optimizer.o sampler.o batch.o train.o choice.o \
                collective_self.o collective_shm.o safetensors.o checkpoint.o rl.o)
LEARNER_CPU  := $(addprefix $(B)/learner/,backend_cpu.o collective_cpu.o)
LEARNER_PROG := $(addprefix $(B)/learner/,learner.o cmd_rl.o cmd_sft.o options.o source.o wire.o)
LEARNER_F64  := $(patsubst %.o,%_f64.o,$(LEARNER_OBJS) $(LEARNER_CPU))

CFLAGS_learner := $(shell pkg-config --cflags openblas jansson libprotobuf-c)
LIBS_learner   := $(shell pkg-config --libs openblas jansson) -lm
# Sums may be taken in vector lanes and exp() from the vector library: a build's bits stay the same from run to run.
$(B)/learner/backend_cpu.o $(B)/learner/backend_cpu_f64.o: CFLAGS += $(if $(filter release,$(MODE)),-O3 -ffast-math)
# The client's part of gRPC needs no libuv.
LIBS_learner_prog := $(filter-out -luv,$(LIBS_proto)) $(LIBS_learner) $(LIBS_base)

$(B)/liblearner.a: $(LEARNER_OBJS)
	@rm -f $@; $(AR) rcs $@ $^

# Headers that protobuf-c makes come before the one file that includes them.
$(B)/learner/wire.o: | $(PROTO_GEN_H)

BINS += $(BIN)/assay-learner
$(BIN)/assay-learner: $(LEARNER_PROG) $(LEARNER_CPU) $(B)/liblearner.a $(B)/libproto.a $(B)/libbase.a
	@mkdir -p $(@D)
	@$(if $(V),,echo "LD $@")
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(LIBS_learner_prog)

# --- CUDA: compiled and linked where the toolkit is, skipped with one line where it is not ---
CUDA      ?= /usr/local/cuda
NVCC      := $(or $(shell command -v nvcc 2>/dev/null),$(wildcard $(CUDA)/bin/nvcc))
CUDA_LIB  := $(firstword $(wildcard $(CUDA)/lib64 $(CUDA)/lib))
NCCL_LIB  := $(firstword $(wildcard $(CUDA_LIB)/libnccl.so /usr/lib/x86_64-linux-gnu/libnccl.so))
NCCL_H    := $(firstword $(wildcard $(CUDA)/include/nccl.h /usr/include/nccl.h))
NCCL_USED := $(and $(NCCL_LIB),$(NCCL_H))
# Ampere and Hopper as machine code, what is newer from the intermediate form.
NVCCFLAGS := -std=c++17 -O3 -I. -Xcompiler -fPIE,-Wall -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=sm_90 \
             -gencode arch=compute_90,code=compute_90
CFLAGS_cuda := $(CFLAGS_learner) -isystem $(CUDA)/include
LIBS_cuda   := -L$(CUDA_LIB) -Wl,-rpath,$(CUDA_LIB) -lcublas -lcudart $(if $(NCCL_USED),$(NCCL_LIB)) -lstdc++
LEARNER_CUDA := $(B)/learner/backend_cuda.o $(B)/learner/$(if $(NCCL_USED),collective_nccl,collective_cpu).o

# The units that reach the numbers only through backend.h, linked with the CUDA backend; they run where a GPU is.
CUDA_UNITS := $(patsubst %,$(B)/tests/learner/cuda/%_test,backend sampler rl)

.PHONY: cuda cuda-test
ifeq ($(NVCC),)
cuda:
	@echo "cuda: skipped: nvcc not found; install the CUDA toolkit or pass CUDA=DIR (the CPU build does not need it)"
cuda-test: cuda
else
cuda: $(BIN)/assay-learner-cuda $(CUDA_UNITS) $(if $(NCCL_H),$(B)/learner/collective_nccl.o)
	@$(if $(NCCL_H),,echo "cuda: nccl.h not found: collective_nccl.c was not compiled";)\
	$(if $(NCCL_USED),,echo "cuda: linked without NCCL (libnccl.so or nccl.h is missing): gradients go through host memory";) \
	release=$$($(NVCC) --version | sed -n 's/.*release \([0-9.]*\).*/\1/p'); \
	echo "cuda: $(BIN)/assay-learner-cuda links with CUDA $$release$(if $(NCCL_USED), and NCCL)"
cuda-test: cuda
	@for t in $(CUDA_UNITS); do $$t || exit 1; done
endif
$(B)/learner/backend_cuda.o: learner/backend_cuda.cu learner/backend.h learner/real.h base/err.h
	@mkdir -p $(@D)
	@$(if $(V),,echo "NVCC $<")
	$(Q)$(NVCC) $(NVCCFLAGS) -c -o $@ $<
$(B)/learner/collective_nccl.o: CFLAGS_learner := $(CFLAGS_cuda)
$(BIN)/assay-learner-cuda: $(LEARNER_PROG) $(LEARNER_CUDA) $(B)/liblearner.a $(B)/libproto.a $(B)/libbase.a
	@mkdir -p $(@D)
	@$(if $(V),,echo "LD $@")
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(filter-out -lopenblas -L%,$(LIBS_learner_prog)) $(LIBS_cuda)
$(CUDA_UNITS): $(B)/tests/learner/cuda/%_test: tests/learner/%_test.c $(B)/liblearner.a $(LEARNER_CUDA) $(B)/libbase.a
	@mkdir -p $(@D)
	@$(if $(V),,echo "LD $@")
	$(Q)$(CC) $(CFLAGS) $(CFLAGS_learner) $(LDFLAGS) -o $@ $< $(LEARNER_CUDA) $(B)/liblearner.a $(B)/libbase.a -lcmocka \
	    $(filter-out -lopenblas -L%,$(LIBS_learner)) $(LIBS_base) $(LIBS_cuda)

# --- bench ---
BENCHES += tests/bench/bench_learner.py
bench: $(B)/tests/bench/learner_load
$(B)/tests/bench/learner_load: tests/bench/learner_load.c $(B)/liblearner.a $(LEARNER_CPU) $(B)/libbase.a
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) $(CFLAGS_learner) $(LDFLAGS) -o $@ $< $(LEARNER_CPU) $(B)/liblearner.a $(B)/libbase.a \
	    $(LIBS_learner) $(LIBS_base)

# --- tests. The same sources in double precision serve the finite differences. ---
$(B)/learner/%_f64.o: learner/%.c
	@mkdir -p $(@D)
	@$(if $(V),,echo "CC $< (double)")
	$(Q)$(CC) $(CFLAGS) $(CFLAGS_learner) -DLEARNER_F64 -c -o $@ $<

LEARNER_UNITS     := $(patsubst %,$(B)/tests/learner/%_test,advantage loss rl train collective checkpoint sampler batch backend)
LEARNER_UNITS_F64 := $(B)/tests/learner/gradient_test
UNIT_TESTS += $(LEARNER_UNITS) $(LEARNER_UNITS_F64)

$(LEARNER_UNITS_F64): $(B)/tests/learner/%_test: tests/learner/%_test.c $(LEARNER_F64) $(B)/libbase.a
	@mkdir -p $(@D)
	@$(if $(V),,echo "LD $@")
	$(Q)$(CC) $(CFLAGS) $(CFLAGS_learner) -DLEARNER_F64 $(LDFLAGS) -o $@ $(filter %.c %.o %.a,$^) \
	    -lcmocka $(LIBS_learner) $(LIBS_base)
$(LEARNER_UNITS): $(B)/tests/learner/%_test: tests/learner/%_test.c $(B)/liblearner.a $(LEARNER_CPU) $(B)/libbase.a
	@mkdir -p $(@D)
	@$(if $(V),,echo "LD $@")
	$(Q)$(CC) $(CFLAGS) $(CFLAGS_learner) $(LDFLAGS) -o $@ $< $(LEARNER_CPU) $(B)/liblearner.a $(B)/libbase.a \
	    -lcmocka $(LIBS_learner) $(LIBS_base)

-include $(LEARNER_OBJS:.o=.d) $(LEARNER_CPU:.o=.d) $(LEARNER_PROG:.o=.d) $(LEARNER_F64:.o=.d) $(B)/learner/collective_nccl.d
-include $(addsuffix .d,$(LEARNER_UNITS) $(LEARNER_UNITS_F64)) $(B)/tests/bench/learner_load.d
