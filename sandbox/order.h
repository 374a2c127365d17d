/*
 * order.h - what the jail says to the launcher of a slot, and what it answers.
 *
 * One socket per launcher. The jail never sends to one that it has begun to kill. With each crew the jail gets a socket to
 * its zygote: commands go there straight, and the launcher learns of a run by its output and its end.
 */
#pragma once
#include "sandbox/grant.h"
#include <linux/filter.h>
#include <sys/types.h>

enum order_kind {
    ORDER_ACQUIRE = 1,      /* limits; fds as in `fds`: tree and root are detached mounts, edits and warm sealed memfds, last the
                             * user namespace of the compatible profile */
    ORDER_CREW,             /* have a crew ready: the run before took the last one, or used it */
    ORDER_COLLECT,          /* fd: empty memfd for the report files */
    ORDER_RUN,              /* a command with streams: it, then of `fds` the streams, and with `apart` a memfd for a ring */
    ORDER_FILES,            /* `cell` and the descriptors are for the agent */
    ORDER_RESET,            /* the sandbox is closed: kill its run, be ready for the next one */
};

enum note_kind {
    NOTE_READY = 1,         /* world built, or made clean; rc; a crew is ready, and if its number is told, that of before */
    NOTE_ACQUIRED,          /* rc; with a proxy, fd = its listening socket */
    NOTE_CREW,              /* one is ready; fds = pidfd of pid 1 of the coming run (killing it ends the run), socket
                             * for its command. None: the crew of the run before */
    NOTE_ENDED,             /* every process of the run is dead and reaped but the crew, if that lives; or there can be
                             * no run: rc */
    NOTE_COLLECTED,         /* rc */
    NOTE_FILES,             /* rc; ERR_LOST: the crew is gone with it */
};

enum { CELL_IN = 1, CELL_ERR = 2 };         /* bits of cell_order.fds */

/* To the agent. */
struct cell_order {
    uint32_t kind, fds;                     /* enum cell_kind; run: descriptors that follow the command */
    uint64_t file_bytes, memory_bytes, cpu_s;   /* 0: no such rlimit */
    uint32_t pids, mode;                    /* mode: write */
    uint32_t cpus;                          /* run: on so many processors; 0: on all */
};

/* The one user inside. Who is uid 0 without capabilities may not map itself into a user namespace nested in its own
 * (CAP_SETFCAP is asked for that): the compatible profile needs another number. */
#define COMPATIBLE_UID 1000u

#define ORDER_FD_USERNS 0x80000000u  /* bit of order.fds beside those of grant.h: if and only if the profile is compatible */
struct order {
    uint32_t kind, fds;
    uint32_t tree_own;          /* acquire: the tree is idmapped, its files belong to uid 0 inside */
    uint32_t cpus;              /* acquire: as many processors to show inside */
    uint32_t killed;            /* the jail has killed the last crew that it was told of */
    uint32_t apart, crew;       /* run: standard error is apart; the crew it is for */
    struct sandbox_limits limits;   /* acquire */
    struct cell_order cell;     /* run, files: the order to the agent */
};

struct note {
    uint32_t kind;
    int32_t  rc, sys;
    int32_t  status;            /* ended: wait status of the command */
    uint32_t crew;              /* crew: its number, another for each run; ended: 0 if the crew has ended too */
    uint32_t report, disk_full; /* ended: report directory not empty; writable layer used up */
    uint64_t ended_ns;
    uint64_t cpu_ns, rss_bytes;     /* ended: of the command and the children it waited for; of the largest of these */
    char msg[ERR_MSG_SIZE];     /* rc < 0: why; ended, rc 0: how it had begun (sandbox_result.start) */
};

/* Output of the current run, and the count of its tasks; shared by the jail (reads after the end) and the launcher (writes).
 * The jail sets all numbers before the run. With standard error apart that has a ring of its own. */
struct ring {
    uint32_t measure;           /* the tasks made are to be counted */
    uint32_t tasks;             /* last number given in the run's pid namespace; 0: not counted */
    uint32_t over;              /* a byte came that was too many */
    uint64_t max;               /* so many may be printed, on all streams of the run; one more ends it */
    uint64_t total;             /* so many were */
    uint8_t  head[SANDBOX_OUTPUT_KEEP];
    uint8_t  tail[SANDBOX_OUTPUT_KEEP];     /* byte n >= KEEP of the output lies at (n - KEEP) % KEEP */
};

#define PLAN_NAMES_MAX 8
struct plan {                   /* what the top of the host's root looks like, read once at start */
    struct { char name[8], target[64]; } links[PLAN_NAMES_MAX];     /* /bin -> usr/bin ... */
    char     layers[PLAN_NAMES_MAX][8];                             /* real directories, one overlay each */
    uint32_t link_count, layer_count;
    uint32_t own;               /* bit i: layer i belongs to uid 0 inside and can be written over */
    uint32_t bare;              /* bit i: nothing is in it, so that it needs no overlay */
};

#define RING_STRIDE ((sizeof(struct ring) + 4095) & ~(size_t)4095)       /* of several in one file */

struct kit {                    /* what the processes of a slot inherit; fixed before the fork */
    uint32_t slot;
    uid_t    uid;               /* uid and gid behind uid 0 inside, as the jail sees them */
    bool     rootless;          /* the jail was started by an ordinary user: see jail.c */
    int      sock;              /* to the jail */
    enum sandbox_profile profile;       /* every launcher begins as strict; a compatible acquire changes both in its copy */
    int      userns;
    int      proc;              /* a /proc in which the slot's processes are seen */
    int      pids_now;          /* cgroup file with the number of tasks in the slot; -1: cannot be had */
    uint32_t pids_ours;         /* how many of them are no run's */
    struct ring *ring;
    struct sock_fprog filters[SANDBOX_PROFILE_COUNT], host_filter;       /* of agents, and of warm hosts */
    int      landlock;                  /* landlock_version() */
    struct plan plan;
    uint64_t disk_bytes, disk_inodes;   /* size of the writable layer until an acquire wants another */
    uint32_t cpus;                      /* the jail may run on so many; what is shown inside until an acquire wants fewer */
};
