/*
 * cgroup.h - limits and usage of a slot by control groups, version 1 or 2, whichever this host has.
 *
 * Theory: below the group the jail was started in (v1), or the best place where controllers can be passed on (v2: see
 * open_v2()), lies one directory "assay-jail.<pid>.n<pid namespace>.<start time>", and in it one per slot.
 * v1: a launcher, which has one thread, joins. v2: every launcher is
 * born into the slot's directory (CLONE_INTO_CGROUP). Where the kernel cannot begin a new memory peak (before 6.12), each
 * sandbox has a launcher and a directory of its own.
 * All files are opened once; no foreign name is used. Directories whose jail is dead are removed by
 * the next jail of the namespace; a directory with a living process cannot be removed at all.
 * Without usable groups `version` is 0 and limits fall to rlimits.
 */
#pragma once
#include "sandbox/sandbox.h"
#include <stdbool.h>

#define CGROUP_OWN_TASKS 3u     /* launcher, zygote, reaper */

enum cgroup_controller { CGROUP_MEMORY, CGROUP_PIDS, CGROUP_CPU, CGROUP_CPUACCT, CGROUP_BLKIO, CGROUP_CONTROLLER_COUNT };

struct cgroup_host {
    int version;                            /* 0: none */
    bool cpu_share;                         /* sandbox_limits.cpu_percent can be enforced */
    char base[CGROUP_CONTROLLER_COUNT][320];/* directory of this jail per controller; "" where absent; v2: first only */
    char aside[320];                        /* v2: group whose processes were moved to a leaf of it; "": none */
};

struct cgroup_slot {
    const struct cgroup_host *host;
    uint32_t slot;
    int dir;                                /* v2: the directory, else -1 */
    int memory_limit, memsw_limit, memory_peak, oom, pids_max, pids_events, cpu_quota, cpu_usage;
    int memory_now;
    bool guest;                             /* a process of ours may live there beside the usual: the next limit is for one more */
    bool peak_stays;                        /* v2: the directory's memory peak can only grow */
    uint64_t memory_bytes;                  /* limits in force; 0: wide open, or not known */
    uint32_t pids, cpu_percent;
};

struct cgroup_usage { uint64_t cpu_ns, memory_peak, oom_kills, pids_hits; };
struct cgroup_detail {
    uint32_t known;                         /* SANDBOX_KNOWN_* */
    uint64_t user, system;                  /* only their proportion means something */
    uint64_t faults, faults_major, io_read, io_written;
};

/* Find out what this host has, remove what dead jails left, make this jail's directories. Never fails: see version.
 * v2: may move the calling process, its client and others into a leaf of their group; cgroup_close() moves them back. */
void cgroup_open(struct cgroup_host *h);
/* Remove this jail's directories. Waits up to 2 s for the last processes to go. */
void cgroup_close(const struct cgroup_host *h);

MUST_CHECK int cgroup_slot_make(struct cgroup_slot *s, const struct cgroup_host *h, uint32_t slot, struct err *err);
void cgroup_slot_drop(struct cgroup_slot *s);       /* close the files; v2: remove the directory too */
/* Before the next launcher, when the last is gone: limits wide open, and what cannot serve again made anew. */
MUST_CHECK int cgroup_slot_renew(struct cgroup_slot *s, struct err *err);
/* v1: the calling process joins. *out_pids_now: file for cgroup_only_ours(), owned; -1: none. */
MUST_CHECK int cgroup_slot_enter(const struct cgroup_slot *s, int *out_pids_now, struct err *err);
/* Set limits, those that are not in force already; NULL: wide open, for making the next sandbox. */
MUST_CHECK int cgroup_limit(struct cgroup_slot *s, const struct sandbox_limits *limits, struct err *err);
/* Between two sandboxes: room enough for what is ours. False: the group cannot serve another one. */
bool cgroup_settle(struct cgroup_slot *s);
/* Are `ours` tasks all that lives in the slot? `pids_now`: its file of that name; -1: never known. */
bool cgroup_only_ours(int pids_now, uint32_t ours);
/* Begin a new peak measurement, where the kernel can. */
void cgroup_peak_reset(struct cgroup_slot *s);
void cgroup_usage(const struct cgroup_slot *s, struct cgroup_usage *out);
/* What costs more to read; opened by name each time, because few runs want it. */
void cgroup_detail(const struct cgroup_slot *s, struct cgroup_detail *out);
