# tests: units (cmocka), the simulation, fuzz corpora, and the real binaries driven from Python.
VENV_OK := build/venv/.ok
PIP_TEST := grpcio grpcio-tools protobuf pytest
T ?=

.PHONY: test venv upstream bench check
venv: $(VENV_OK)
$(VENV_OK): tests/room.mk
	@test -x $(PY) || /usr/bin/python3 -m venv build/venv
	@$(PY) -m pip install -q --disable-pip-version-check $(PIP_TEST)
	@touch $@

# Real upstream projects, by package name; nothing of theirs is kept in the repository.
UPSTREAM_OK := build/upstream/.ok
upstream: $(UPSTREAM_OK)
	@:
$(UPSTREAM_OK): tests/upstream/fetch.py $(wildcard tests/upstream/*.json)
	/usr/bin/python3 tests/upstream/fetch.py --out build/upstream
	@touch $@

test:
	@$(MAKE) --no-print-directory $(JOBS) bins units venv pystubs upstream $(SIM) $(FUZZ_REPLAYS)
	@tests/run $(B) $(UNIT_TESTS) $(if $(T),-- $(T))

# One line a figure; ONLY=NAME runs one. Peers are what the machine has (bubblewrap, pytest, grpcio, torch).
BENCHES += tests/bench/bench_verdict.py
bench: bins venv pystubs upstream $(filter-out %.py,$(BENCHES))
	@BIN=$(BIN) B=$(B) ONLY="$(ONLY)" $(PY) tests/bench/run.py $(BENCHES)

# Fuzzers: the corpus is replayed in every test run (a plain main around the entry point); `make fuzz` searches with clang.
FUZZ_SRC := $(wildcard tests/fuzz/*_fuzz.c)
FUZZ_REPLAYS := $(patsubst tests/fuzz/%.c,$(B)/tests/fuzz/%,$(FUZZ_SRC))
FUZZ_OBJS := $(sort $(filter-out $(B)/rollout/worker.o,$(WORKER_OBJS)) $(WIRE_OBJS) $(CORE_OBJS) \
             $(addprefix $(B)/sandbox/,ring.o edits.o collect.o))
FUZZ_LIBS := $(B)/librepos.a $(B)/libproto.a $(B)/libbase.a
FUZZ_LINK := $(LIBS_repos) $(LIBS_proto) $(LIBS_base) -lexpat -lm
.PHONY: fuzz-replay fuzz
$(FUZZ_REPLAYS): $(B)/tests/fuzz/%: $(B)/tests/fuzz/%.o $(B)/tests/fuzz/replay.o $(FUZZ_OBJS) $(FUZZ_LIBS)
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(FUZZ_LINK)
fuzz-replay: $(FUZZ_REPLAYS)
	@for f in $(FUZZ_REPLAYS); do n=$$(basename $$f _fuzz); $$f tests/fuzz/corpus/$$n || exit 1; done

# `make fuzz FUZZ=patch SECONDS=60`: search with clang's libFuzzer; what it finds goes into the corpus with its fix.
FUZZ    ?= patch
SECONDS ?= 60
fuzz: $(PROTO_GEN_H)
	@command -v clang >/dev/null || { echo "make fuzz: clang not found: apt-get install clang libclang-rt-14-dev"; exit 69; }
	@mkdir -p build/fuzz/$(FUZZ)
	$(Q)clang -g -O1 -w -std=gnu17 -D_GNU_SOURCE -DASSAY_ARENA_DEBUG -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all \
	  -I. -I$(B)/gen $(CFLAGS_repos) $(CFLAGS_rollout) -o build/fuzz/$(FUZZ)_fuzz tests/fuzz/$(FUZZ)_fuzz.c \
	  $(patsubst $(B)/%.o,%.c,$(FUZZ_OBJS) $(REPOS_OBJS) $(filter-out %/trajframe.o,$(PROTO_OBJS)) $(BASE_OBJS)) $(PROTO_GEN_C) $(FUZZ_LINK)
	build/fuzz/$(FUZZ)_fuzz -max_total_time=$(SECONDS) -timeout=10 -rss_limit_mb=4096 build/fuzz/$(FUZZ) tests/fuzz/corpus/$(FUZZ)

# The sandbox on a kernel with control groups of version 2 only, in an emulated machine. KERNEL=FILE.deb: another kernel.
.PHONY: vm-check
vm-check: $(BIN)/assay-jail $(SANDBOX_TESTS) $(ATTACK_TESTS) build/attack/attacker
	@tests/vm/run $(B) $(BIN) $(KERNEL)

# What cppcheck cannot see: cleanup attributes (they free), sys/queue.h, mmap without a file, one-threaded readdir.
CPPCHECK_KNOW := $(addprefix --suppress=,unknownMacro missingIncludeSystem memleak resourceLeak readdirCalled invalidFunctionArg) \
  '-DLIST_HEAD(n,t)=struct{struct t*first;}' '-DLIST_ENTRY(t)=struct{struct t*next;}' \
  '-DSTAILQ_HEAD(n,t)=struct{struct t*first;}' '-DSTAILQ_ENTRY(t)=struct{struct t*next;}'

# Sanitizers over everything that parses, then static analysis.
check:
	@$(MAKE) --no-print-directory $(JOBS) SAN=address,undefined units fuzz-replay
	@tests/run build/release-address-undefined --units-only $(patsubst build/release/%,build/release-address-undefined/%,$(UNIT_TESTS))
	@cppcheck -j2 --quiet --error-exitcode=1 --enable=warning,portability --inline-suppr --std=c11 --library=posix -I. \
	  $(CPPCHECK_KNOW) base proto sandbox repos rollout learner

-include $(FUZZ_REPLAYS:=.d)
