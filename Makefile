# Assay. `make demo` runs the main job, `make test` the tests; the README explains the rest.
# Each room has its own rules in <room>/room.mk; this page holds the flags and what spans rooms.
comma := ,
empty :=
MODE ?= release
SAN  ?=
V    ?=
ifeq ($(filter $(MODE),release debug),)
$(error MODE=$(MODE): want release or debug)
endif
ifneq ($(filter-out address undefined thread,$(subst $(comma),$(empty) $(empty),$(SAN))),)
$(error SAN=$(SAN): want a comma list of address, undefined, thread)
endif
B   := build/$(MODE)$(if $(SAN),-$(subst $(comma),-,$(SAN)))
BIN := $(if $(filter build/release,$(B)),build/bin,$(B)/bin)
CC  := gcc
PY  := build/venv/bin/python
Q   := $(if $(V),,@)
# `make test` and `make demo` use every core unless a -j says otherwise.
JOBS = $(if $(findstring -j,$(MAKEFLAGS)),,-j$(shell nproc))

# What a Debian 12 machine needs: to build, to test, and inside sandboxes (the default environment is the host).
DEPS_BUILD := build-essential pkg-config libuv1-dev libseccomp-dev libcap-dev libgit2-dev libprotobuf-c-dev \
              protobuf-c-compiler protobuf-compiler libnghttp2-dev libsqlite3-dev libjansson-dev libssl-dev \
              libexpat1-dev libopenblas-dev libcmocka-dev zlib1g-dev libarchive-dev
DEPS_RUN   := git ca-certificates python3 python3-venv python3-pip python3-pytest python3-yaml perl
DEPS_TEST  := bubblewrap crun cppcheck procps strace umoci
CHECKED    := libuv:libuv1-dev libseccomp:libseccomp-dev libcap:libcap-dev libgit2:libgit2-dev \
              libprotobuf-c:libprotobuf-c-dev libnghttp2:libnghttp2-dev sqlite3:libsqlite3-dev \
              jansson:libjansson-dev libcrypto:libssl-dev expat:libexpat1-dev openblas:libopenblas-dev \
              cmocka:libcmocka-dev zlib:zlib1g-dev libarchive:libarchive-dev
TOOLS      := gcc:build-essential protoc-c:protobuf-c-compiler
# Goals that need no libraries read no room's rules; every other goal first names what is missing and what brings it.
ROOMS := $(if $(filter-out deps clean demo help,$(or $(MAKECMDGOALS),all)),base proto sandbox repos rollout learner tests)
ifneq ($(ROOMS),)
ifeq ($(shell command -v pkg-config),)
$(error pkg-config not found: run `make deps`, or apt-get install $(DEPS_BUILD))
endif
pkg_of   = $(lastword $(subst :, ,$(1)))
name_of  = $(firstword $(subst :, ,$(1)))
MISSING := $(strip $(foreach c,$(TOOLS),$(if $(shell command -v $(call name_of,$(c))),,$(call pkg_of,$(c)))) \
             $(foreach c,$(CHECKED),$(shell pkg-config --exists $(call name_of,$(c)) || echo $(call pkg_of,$(c)))))
ifneq ($(MISSING),)
$(error not installed: run `make deps`, or apt-get install $(MISSING))
endif
endif

WARN := -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion -Wstrict-prototypes -Wmissing-prototypes \
        -Wvla -Wswitch-enum -fno-common -Werror
CFLAGS_MODE := $(if $(filter release,$(MODE)),-O2 $(if $(SAN),,-D_FORTIFY_SOURCE=2) -fstack-protector-strong,-O0) -g
CFLAGS_SAN  := $(if $(SAN),-fsanitize=$(SAN) -fno-omit-frame-pointer -fno-sanitize-recover=all -DASSAY_ARENA_DEBUG)
CFLAGS  += -std=gnu17 -D_GNU_SOURCE -I. -I$(B)/gen $(WARN) $(CFLAGS_MODE) $(CFLAGS_SAN) -fPIE -MMD -MP
LDFLAGS += $(CFLAGS_SAN) -pie -Wl,-z,relro,-z,now,-z,noexecstack

BINS :=
UNIT_TESTS :=

.PHONY: all bins deps clean test check bench demo help
all: bins

include $(addsuffix /room.mk,$(ROOMS))

bins: $(BINS)
	@:
units: $(UNIT_TESTS)

deps:
	@missing=; for p in $(DEPS_BUILD) $(DEPS_RUN) $(DEPS_TEST); do \
	  dpkg-query -W -f='$${Status}\n' $$p 2>/dev/null | grep -q 'ok installed' || missing="$$missing $$p"; done; \
	if [ -z "$$missing" ]; then echo "all packages are there"; exit 0; fi; \
	mkdir -p build; echo "installing$$missing (log: build/deps.log)"; \
	{ apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $$missing; } \
	  >build/deps.log 2>&1 </dev/null || { tail -n 20 build/deps.log; echo "make deps: apt-get failed; the whole log is build/deps.log"; exit 1; }

# The main job; each step is a make of its own, because the first one brings what the second needs.
demo:
	@$(MAKE) --no-print-directory deps
	@$(MAKE) --no-print-directory $(JOBS) bins upstream
	@/usr/bin/python3 tests/demo.py

clean:
	rm -rf build
	@find tests -name __pycache__ -prune -exec rm -rf {} +

help:
	@echo "make: build into build/bin    make demo: install, build, run the main job    make test    make check    make bench [ONLY=NAME]"
	@echo "make deps: install packages   make cuda: the GPU backend   make fuzz   make soak   make vm-check"
	@echo "make clean   (MODE=debug, SAN=address,undefined, V=1)"
