/*
 * worker_confine.h - give up what a parser of foreign bytes has no use for.
 *
 * Theory: by the time a bug in a parser is found out, the worker has everything that its process has. So, before the
 * first foreign byte: root becomes the store (chroot) and the user becomes nobody where we are root; no new
 * privileges; Landlock leaves reading below the store; the system calls left are those that parse, map and answer
 * (no socket, no fork, no exec, no open for writing, no ptrace, no kill); memory, file size, descriptors and, per
 * job, CPU time are bounded. Each step is by itself enough to keep it from the network and from writing a file.
 */
#pragma once
#include "base/err.h"
#include <stdint.h>

/*
 * Enter the store directory: afterwards it is at *out_dir ("/" inside a chroot, else `store_dir` itself), still with our rights.
 * Libraries that read files of the system when they start must have started before.
 */
MUST_CHECK int worker_enter(const char **out_dir, const char *store_dir, struct err *err);
/* The rest, for good. `dir` as worker_enter() gave it. *out_steps: WORKER_CONFINED_* bits of what this kernel could do. */
MUST_CHECK int worker_confine(uint32_t *out_steps, const char *dir, struct err *err);
/* Bound the next job: CPU seconds from now. Beyond them the kernel ends the process (SIGXCPU). */
void worker_bound_job(uint32_t cpu_s);
