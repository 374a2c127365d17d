# sandbox: the door is a client library; behind it stands assay-jail, a separate privileged program.
LIBS_sandbox :=
SANDBOX_OBJS := $(addprefix $(B)/sandbox/,client.o)
JAIL_OBJS    := $(addprefix $(B)/sandbox/,jail.o slot.o cgroup.o maker.o launcher.o mount.o net.o ipc.o pid1.o siphash.o etc.o cell.o ring.o relay.o edits.o collect.o files.o diff.o copy.o rights.o landlock.o seccomp.o warm.o)

# The warm host's native half, loaded inside by whatever interpreter is there: it links nothing. The jail carries both halves.
$(B)/sandbox/warm/fork.so: sandbox/warm/fork.c
	@mkdir -p $(@D)
	@$(if $(V),,echo "CC $<")
	$(Q)$(CC) -std=gnu17 -D_GNU_SOURCE -I. $(WARN) -O2 -fPIC -fno-stack-protector -U_FORTIFY_SOURCE -MMD -MP -MF $(@:.so=.d) \
	  -shared -nostdlib -s -Wl,-z,relro,-z,now,-z,noexecstack -o $@ $<
$(B)/sandbox/warm.o: CFLAGS += -Wa,-I$(B)
$(B)/sandbox/warm.o: $(B)/sandbox/warm/fork.so sandbox/warm/sitecustomize.py
-include $(B)/sandbox/warm/fork.d

$(B)/libsandbox.a: $(SANDBOX_OBJS)
	@rm -f $@; $(AR) rcs $@ $^

# The jail links base and libseccomp and nothing else; tests/sandbox/life_test.c holds it to that.
# Static, because the jail forks for each sandbox and a fork pays for every mapping (sanitizers cannot be linked so).
JAIL_STATIC := $(if $(SAN),,-static-pie)
BINS += $(BIN)/assay-jail
$(BIN)/assay-jail: $(JAIL_OBJS) $(B)/libbase.a
	@mkdir -p $(@D)
	@$(if $(V),,echo "LD $@")
	$(Q)$(CC) $(LDFLAGS) $(JAIL_STATIC) -Wl,--as-needed -o $@ $^ -lseccomp

-include $(SANDBOX_OBJS:.o=.d) $(JAIL_OBJS:.o=.d)

SANDBOX_TESTS := $(addprefix $(B)/tests/sandbox/,run_test exact_test stream_test files_test tree_test life_test net_test warm_test \
                   profile_test seccomp_test landlock_test isolation_test cgroup_test soak_test pool_test image_test rootless_test)
UNIT_TESTS += $(SANDBOX_TESTS)
$(SANDBOX_TESTS): $(B)/%: $(B)/%.o $(B)/libsandbox.a $(B)/libbase.a | $(BIN)/assay-jail
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS) -Wl,--as-needed -o $@ $(filter %.o,$^) $(filter %.a,$^) -lcmocka -lseccomp $(LIBS_base)
$(B)/tests/sandbox/image_test: $(B)/repos/image.o
$(B)/tests/sandbox/landlock_test: $(B)/sandbox/landlock.o
$(B)/tests/sandbox/seccomp_test: $(B)/sandbox/seccomp.o
$(B)/tests/sandbox/net_test: $(B)/sandbox/net.o $(B)/sandbox/siphash.o

# It runs the others.
$(B)/tests/sandbox/rootless_test: | $(filter-out %/rootless_test,$(SANDBOX_TESTS)) $(B)/tests/attack/attack_test

-include $(SANDBOX_TESTS:=.d)

# `make soak N=20000 K=32`: so many sandboxes of every kind, so many at once; fails on growth or a stall.
N ?= $(if $(filter pool,$(MAKECMDGOALS)),1000,20000)
K ?= 32
.PHONY: soak
soak: $(B)/tests/sandbox/soak_test
	@ASSAY_BIN=$(BIN) $< $(N) $(K)

# `make pool N=1000`: so many members of one jail come up, idle, run and go; prints what one costs.
.PHONY: pool
pool: $(B)/tests/sandbox/pool_test
	@ASSAY_BIN=$(BIN) $< $(N)

# The attack suite: tricks in one static program without sanitizers, because it must run in any root; and what drives them.
ATTACK_OBJS := $(patsubst tests/attack/%.c,build/attack/%.o,$(wildcard tests/attack/tricks/*.c) tests/attack/attacker.c)
$(ATTACK_OBJS): build/attack/%.o: tests/attack/%.c
	@mkdir -p $(@D)
	$(Q)$(CC) -std=gnu17 -D_GNU_SOURCE -I. -O1 -Wall -Wextra -Wno-missing-field-initializers -Werror -MMD -MP -c -o $@ $<
build/attack/attacker: $(ATTACK_OBJS)
	@$(if $(V),,echo "LD $@")
	$(Q)$(CC) -static -o $@ $^

ATTACK_TESTS := $(addprefix $(B)/tests/attack/,attack_test table)
UNIT_TESTS += $(B)/tests/attack/attack_test
$(ATTACK_TESTS): $(B)/%: $(B)/%.o $(B)/tests/attack/harness.o $(B)/libsandbox.a $(B)/libbase.a | $(BIN)/assay-jail build/attack/attacker
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS) -Wl,--as-needed -o $@ $^ -lcmocka $(LIBS_base)

-include $(ATTACK_OBJS:.o=.d) $(ATTACK_TESTS:=.d) $(B)/tests/attack/harness.d

BENCHES += $(addprefix $(B)/tests/bench/,bench_sandbox bench_warm)
$(addprefix $(B)/tests/bench/,bench_sandbox bench_warm): $(B)/%: $(B)/%.o $(B)/libsandbox.a $(B)/libbase.a | $(BIN)/assay-jail
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS) -Wl,--as-needed -o $@ $^ -lcmocka $(LIBS_base)

# What it starts: without libc, and carried in it.
$(B)/tests/bench/true: tests/bench/true.c
	@mkdir -p $(@D)
	$(Q)$(CC) -static -nostdlib -s -Wl,-z,noexecstack,--build-id=none -o $@ $<
$(B)/tests/bench/bench_sandbox.o: CFLAGS += -Wa,-I$(B)
$(B)/tests/bench/bench_sandbox.o: $(B)/tests/bench/true

-include $(addprefix $(B)/tests/bench/,bench_sandbox.d bench_warm.d)
