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

# What a Debian 12 machine needs: to build, to test, and inside sandboxes (the default environment is the host).
DEPS_BUILD := build-essential pkg-config libuv1-dev libseccomp-dev libcap-dev libgit2-dev libprotobuf-c-dev \
              protobuf-c-compiler protobuf-compiler libnghttp2-dev libsqlite3-dev libjansson-dev libssl-dev \
              libexpat1-dev libopenblas-dev libcmocka-dev zlib1g-dev
DEPS_RUN   := git ca-certificates python3 python3-venv python3-pip python3-pytest perl
DEPS_TEST  := bubblewrap cppcheck
CHECKED    := libuv:libuv1-dev libseccomp:libseccomp-dev libcap:libcap-dev libgit2:libgit2-dev \
              libprotobuf-c:libprotobuf-c-dev libnghttp2:libnghttp2-dev sqlite3:libsqlite3-dev \
              jansson:libjansson-dev libcrypto:libssl-dev expat:libexpat1-dev openblas:libopenblas-dev \
              cmocka:libcmocka-dev zlib:zlib1g-dev
# Goals that need no libraries; every other goal first names what is missing and what brings it.
ifneq ($(filter-out deps clean demo help,$(or $(MAKECMDGOALS),all)),)
ifeq ($(shell command -v pkg-config),)
$(error pkg-config not found: run `make deps`, or apt-get install pkg-config)
endif
MISSING := $(strip $(foreach c,$(CHECKED),$(shell pkg-config --exists $(firstword $(subst :, ,$c)) || echo $(lastword $(subst :, ,$c)))))
ifneq ($(MISSING),)
$(error libraries not found: run `make deps`, or apt-get install $(MISSING))
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

include $(wildcard base/room.mk proto/room.mk sandbox/room.mk repos/room.mk rollout/room.mk learner/room.mk tests/room.mk)

bins: $(BINS)
units: $(UNIT_TESTS)

deps:
	@missing=; for p in $(DEPS_BUILD) $(DEPS_RUN) $(DEPS_TEST); do \
	  dpkg-query -W -f='$${Status}\n' $$p 2>/dev/null | grep -q 'ok installed' || missing="$$missing $$p"; done; \
	if [ -n "$$missing" ]; then echo "installing:$$missing"; \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing; \
	else echo "all packages are there"; fi

clean:
	rm -rf build
