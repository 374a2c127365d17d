# Assay. `make demo` runs the main job, `make test` the tests; the README explains the rest.
MODE ?= release
SAN  ?=
ifeq ($(filter $(MODE),release debug),)
$(error MODE=$(MODE): release or debug)
endif
ifneq ($(filter-out address undefined thread,$(subst $(comma),$(empty) ,$(SAN))),)
endif
comma := ,
B := build/$(MODE)$(if $(SAN),-$(subst $(comma),-,$(SAN)))
BIN := $(if $(filter build/release,$(B)),build/bin,$(B)/bin)
CC ?= gcc
PY := build/venv/bin/python

# Each library is named with the Debian package that brings it.
need = $(if $(shell pkg-config --exists '$(1)' && echo y),,$(error $(1) not found: apt-get install $(2), or run `make deps`))
ifeq ($(filter deps clean,$(MAKECMDGOALS)),)
ifneq ($(shell command -v pkg-config),)
$(call need,libuv,libuv1-dev)
$(call need,libseccomp,libseccomp-dev)
$(call need,libcap,libcap-dev)
$(call need,libgit2,libgit2-dev)
$(call need,libprotobuf-c,libprotobuf-c-dev)
$(call need,libnghttp2,libnghttp2-dev)
$(call need,sqlite3,libsqlite3-dev)
$(call need,jansson,libjansson-dev)
$(call need,libcrypto,libssl-dev)
$(call need,expat,libexpat1-dev)
$(call need,openblas,libopenblas-dev)
$(call need,cmocka,libcmocka-dev)
endif
endif

WARN := -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion -Wstrict-prototypes -Wmissing-prototypes \
        -Wvla -Wswitch-enum -fno-common -Werror
CFLAGS_MODE := $(if $(filter release,$(MODE)),-O2 $(if $(SAN),,-D_FORTIFY_SOURCE=2) -fstack-protector-strong,-O0) -g
CFLAGS_SAN  := $(if $(SAN),-fsanitize=$(SAN) -fno-omit-frame-pointer -fno-sanitize-recover=all -DASSAY_ARENA_DEBUG)
CFLAGS += -std=gnu17 -D_GNU_SOURCE -I. -I$(B)/gen $(WARN) $(CFLAGS_MODE) $(CFLAGS_SAN) -fPIE -MMD -MP
LDFLAGS += $(CFLAGS_SAN) -pie -Wl,-z,relro,-z,now,-z,noexecstack
Q := $(if $(V),,@)

.PHONY: all
all: bins

-include */room.mk
