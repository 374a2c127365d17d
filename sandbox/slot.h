/*
 * slot.h - the life of one slot, as the jail sees it.
 *
 *   MAKING --ready--> READY --acquire--> ACQUIRING --acquired--> HELD --run--> RUNNING --ended--> HELD
 *      ^                                     |                    |  \           | kill, limit
 *      |                                     v                    v   +-- DRAIN <+   --ended--> HELD
 *      +----- launcher gone --------------- SCRUB <----close------+--------+
 *
 * From HELD, RUNNING and DRAIN a close leads straight to MAKING where the launcher can be told to reset its world.
 * A run that left report files passes through COLLECT on its way from ended to HELD.
 * FILES is HELD while an agent reads, writes or compares files for the client.
 * DEAD: the launcher died under a client (the kernel's memory killer may choose it): runs fail until
 * the client closes. Nothing here waits: each step is begun by a message, a pidfd or the timer.
 */
#pragma once
#include "sandbox/cgroup.h"
#include "sandbox/order.h"

enum slot_state {
    SLOT_MAKING, SLOT_READY, SLOT_ACQUIRING, SLOT_HELD, SLOT_RUNNING, SLOT_DRAIN, SLOT_COLLECT, SLOT_FILES, SLOT_DEAD, SLOT_SCRUB,
    SLOT_STATE_COUNT
};
enum slot_reason { SLOT_REASON_NONE, SLOT_REASON_KILLED, SLOT_REASON_TIME, SLOT_REASON_CPU };

struct slot {
    enum slot_state state;
    uint32_t generation;            /* of the sandbox: a number is used once */
    bool resetting;                 /* MAKING: by the launcher that is there, not by a new one */
    bool warm;                      /* the launcher may have a warm host */
    struct kit kit;
    struct cgroup_slot cgroup;
    int sock;                       /* to the launcher, and before it is born; -1: none */
    uint32_t serial;                /* of the launcher */
    int launcher_fd, run_fd;        /* pidfds of the launcher, and of pid 1 of the current or next run; -1: none */
    bool crew_killed;               /* that one, by us */
    int door, command;              /* socket that the crew takes a command from; command that waits for that; -1: none */
    bool ready;                     /* the crew is, for a command */
    bool late, untold;              /* that it is acquired need not be told at once; it is, and has not been told */
    uint32_t crew;                  /* the launcher's number of the coming run */
    int streams[3];                 /* of the waiting command, in the order of GRANT_FD_IN ...; -1: none */
    struct ring *errors;            /* of the run, with standard error apart; else NULL */
    int errors_fd;                  /* the same for the launcher, until the run starts; -1: none */
    struct sandbox_limits limits;
    enum slot_reason reason;        /* why the run is being killed */
    uint64_t deadline_ns;           /* next moment at which slot_tick() has work; 0: none */
    uint64_t began_ns, wall_end_ns;
    struct cgroup_usage before;     /* when the slot was last made ready for a run */
    bool measure;                   /* the client wants the detail of this run */
    struct cgroup_detail detail;    /* then: at its start */
    int owner_ns;                   /* user namespace for trees of an owner other than root, the last one asked for; -1: none */
    uid_t owner_uid;
    gid_t owner_gid;
    struct note end;                /* how it ended, kept while the report is collected */
    int report_fd;                  /* memfd that an agent fills for the client: report, file, changes; -1: none */
};

struct jail;                        /* what slots need of the jail (jail.c): */
/* Send an answer to the client with descriptors (borrowed). A client that does not read loses its jail. */
void jail_answer(struct jail *j, struct grant_answer *a, const int *fds, int nfds);
/* What slot `s` has of its own for good, its user namespace first: kit.userns is -1 until it has. */
MUST_CHECK int jail_found(struct jail *j, struct slot *s, struct err *err);
/* Have a launcher of slot `s` begun: slot_born() follows. */
MUST_CHECK int jail_birth(struct jail *j, struct slot *s, struct err *err);
/* Have slot_deaths() called when the process of this pidfd ends. */
MUST_CHECK int jail_watch(struct jail *j, const struct slot *s, int pidfd, struct err *err);

void slot_make(struct jail *j, struct slot *s);                 /* MAKING: have a launcher made */
MUST_CHECK int slot_acquire(struct jail *j, struct slot *s, uint32_t which, const int *fds, int nfds, bool tree_own,
                            const struct grant_request *r, struct err *err);
/* The command is `text`, or for len 0 in the first of `fds`, which are the slot's from now on (and -1 then). While
 * ACQUIRING, the run begins when that has come about. */
void slot_run(struct jail *j, struct slot *s, const struct grant_request *r, int *fds, const void *text, size_t len);
/* Have an agent do `cell` with `fds` (borrowed); `out`: it fills a memfd for the client, which is put first or last. */
void slot_files(struct jail *j, struct slot *s, const struct cell_order *cell, const int *fds, int nfds, bool out);
void slot_kill(struct slot *s, enum slot_reason why);
void slot_scrub(struct jail *j, struct slot *s);
MUST_CHECK int slot_note(struct jail *j, struct slot *s, const struct note *n, int *fds, int nfds, struct err *err);
/* The launcher with that serial is there (pidfd owned), or cannot be, for the reason in `errno`. */
void slot_born(struct jail *j, struct slot *s, uint32_t serial, int pidfd, int failed);
void slot_lost(struct slot *s);                                 /* nothing more will come from the launcher: it is to end */
void slot_deaths(struct jail *j, struct slot *s);               /* a launcher may have ended, and has no more to say */
void slot_tick(struct jail *j, struct slot *s, uint64_t now_ns);
