/*
 * pid1.h - what foreign code may change of pid 1 of its namespace, whose uid it has: how that is scheduled, and its limits.
 * Nobody else's doing shows there, so it is the sign of a pid namespace that is not to be used again.
 *
 * For limits that are not one's own prlimit(2) wants CAP_SYS_RESOURCE, which a root in a container may lack; /proc/PID/limits
 * wants nothing. What cannot be asked counts as changed.
 */
#pragma once
#include "sandbox/siphash.h"
#include <stdbool.h>
#include <sys/types.h>

struct pid1 {
    pid_t pid;
    int limits;                 /* its file; -1: cannot be had */
    struct siphash_key key;
    uint64_t was;               /* digest of all of it */
};

/* Of pid 1 `pid`, also known by `pidfd`, as it is now; `proc` as kit.proc. */
void pid1_watch(struct pid1 *p, int proc, pid_t pid, int pidfd);
bool pid1_unchanged(const struct pid1 *p);
void pid1_forget(struct pid1 *p);       /* one that was never watched, too, if its `limits` are -1 */
