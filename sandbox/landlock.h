/*
 * landlock.h - a second fence around foreign code, of another make than namespaces and filter.
 *
 * Strict: nothing outside the sandbox's own root can be opened, whoever left a descriptor of it or found a way up (a host's
 * directory as cwd, /proc/1/root); no device node can be made and none but those of /dev be spoken to; and what may be
 * reached by signal, ptrace or abstract socket must have come from the same agent. Compatible: the last part only, because
 * the kernel forbids mounts to whoever has rules on files.
 * What lies below the root, as /proc and the covered store, it cannot close: rules only grant, and for all that is below.
 */
#pragma once
#include "sandbox/sandbox.h"

/* The kernel's version of Landlock; 0: none. */
int landlock_version(void);
/* Confine the caller and its children for good, as far as `version` goes. no_new_privs must be set, / be the sandbox's.
 * `queues` is the root of its message queues, borrowed; -1: none are to be had. */
MUST_CHECK int landlock_confine(int version, enum sandbox_profile profile, int queues, struct err *err);
