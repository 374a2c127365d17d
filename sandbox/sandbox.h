/*
 * sandbox.h - the one door to isolated execution.
 *
 * A sandbox is one isolated world over read-only lower layers with a private writable layer on
 * top. It is made and destroyed by assay-jail, a separate small privileged process; this header is
 * the unprivileged side. A client is one connection to a jail. Requests return at once; answers
 * arrive by callback from sandbox_client_dispatch(), never from inside a request.
 *
 * Inside: / is the environment root (read-only below, writable on top, host secrets masked), the
 * snapshot's tree lies at SANDBOX_WORK_DIR, cwd of every command. Own user, mount, pid, net, ipc,
 * uts and cgroup namespaces; loopback up and nothing else; no capabilities; no_new_privs.
 *
 * Life of a sandbox:  acquire -> run -> (run ...) -> close.  Everything inside is killed and reaped
 * at the end of each run, before its callback: results after the process tree's death only.
 *
 * Threads: a client belongs to one thread.
 */
#pragma once
#include "base/err.h"
#include <stdint.h>

#define SANDBOX_WORK_DIR   "/testbed"
#define SANDBOX_REPORT_DIR "/assay/report"   /* empty writable directory; its files come out as report */
#define SANDBOX_REPORT_FILE_MAX 64           /* at most so many report files ... */
#define SANDBOX_OUTPUT_KEEP ((uint64_t)32 << 10) /* bytes kept at each end of the output */

struct sandbox_client;
struct sandbox;
struct sandbox_command;

struct sandbox_spec {
    int tree_fd;            /* O_PATH directory of the snapshot's tree, borrowed; -1: empty work dir */
    int edits_fd;           /* sealed memfd of tree edits (repos/edits.h format), borrowed; -1: none */
    int root_fd;            /* O_PATH directory of the environment's root, borrowed; -1: the host's own root */
    /* How the sandbox's first command will begin (argv; env the same), borrowed; NULL: unknown. Then it can be a fork of a
     * process that has made its start and its imports already. A matter of speed only: see sandbox_result.start. */
    const struct sandbox_command *warm;
};

struct sandbox_limits {     /* 0 anywhere: the jail's default, never "no limit" */
    uint64_t wall_ns;
    uint64_t cpu_ns;        /* CPU seconds of the whole tree */
    uint64_t memory_bytes;  /* memory + swap of the whole tree, page cache and tmpfs included */
    uint64_t output_bytes;  /* stdout + stderr together; beyond it the run ends with output_limit */
    uint64_t file_bytes;    /* largest single file */
    uint64_t disk_bytes;    /* private writable layer */
    uint32_t disk_inodes;
    uint32_t pids;          /* tasks (threads) at once */
    uint32_t cpu_percent;   /* 100 = one core */
};

enum sandbox_end {          /* how the run ended, told apart by who ended it */
    SANDBOX_END_EXIT,           /* value = exit status of the command */
    SANDBOX_END_SIGNAL,         /* value = signal number */
    SANDBOX_END_TIME_LIMIT,
    SANDBOX_END_MEMORY_LIMIT,   /* the command itself died of it */
    SANDBOX_END_OUTPUT_LIMIT,
    SANDBOX_END_KILLED,         /* sandbox_kill() */
    SANDBOX_END_COUNT
};

enum {                      /* bits of sandbox_result.limits_hit: may stand beside any end */
    SANDBOX_HIT_TIME = 1, SANDBOX_HIT_MEMORY = 2, SANDBOX_HIT_OUTPUT = 4,
    SANDBOX_HIT_PIDS = 8, SANDBOX_HIT_DISK = 16, SANDBOX_HIT_CPU = 32,
};

struct sandbox_result {
    enum sandbox_end end;
    int      value;
    uint32_t limits_hit;
    uint64_t wall_ns, cpu_ns, memory_bytes_peak;
    uint64_t output_bytes;      /* how much was printed in all */
    int      output_fd;         /* sealed memfd: head, then (if cut) a marker line, then tail */
    int      report_fd;         /* sealed memfd: report files in the format of sandbox/report_files.h; -1: none */
    int      enforced_by;       /* 1 = cgroup v1, 2 = cgroup v2, 0 = rlimits only */
    char     start[120];        /* "" where the spec declared no warm process, "warm", or "cold: " and why */
};

struct sandbox_command {
    const char *shell;          /* run by /bin/sh -c, or NULL; borrowed */
    /* Without a shell, where that is NULL: argv[0] a path, or a name to be looked for in PATH; NULL-terminated, borrowed. */
    const char *const *argv;
    const char *const *env;     /* NULL-terminated NAME=value list added to the fixed environment */
};

/*
 * Start `jail_path` (a root process) and connect to it; `slots` sandboxes at most at once.
 * *out is owned: sandbox_client_close() ends the jail and everything in it.
 * ERR_DENIED when the kernel or our rights do not allow isolation: the text says what is missing.
 */
MUST_CHECK int sandbox_client_start(struct sandbox_client **out, const char *jail_path,
                                    uint32_t slots, struct err *err);
int  sandbox_client_fd(const struct sandbox_client *c);     /* poll for reading, then dispatch */
/* Deliver what has arrived. ERR_LOST when the jail is gone: every open sandbox has been failed. */
MUST_CHECK int sandbox_client_dispatch(struct sandbox_client *c, struct err *err);
void sandbox_client_close(struct sandbox_client *c);

/* rc 0 and a sandbox owned by the receiver, or rc < 0 with the reason in *err. */
typedef void (*sandbox_acquired_cb)(void *arg, int rc, struct sandbox *s, const struct err *err);
/* rc 0 with the result (its descriptors owned by the receiver), or rc < 0: our own failure. */
typedef void (*sandbox_done_cb)(void *arg, int rc, struct sandbox_result *r, const struct err *err);

MUST_CHECK int sandbox_acquire(struct sandbox_client *c, const struct sandbox_spec *spec,
                               const struct sandbox_limits *limits, sandbox_acquired_cb cb, void *arg,
                               struct err *err);
/* Acquire, and run a first command as soon as the sandbox is there, without a round trip in between: `acquired` comes
 * first; when that brought a sandbox, `done` follows, both with `arg`. */
MUST_CHECK int sandbox_acquire_run(struct sandbox_client *c, const struct sandbox_spec *spec,
                                   const struct sandbox_limits *limits, const struct sandbox_command *cmd,
                                   sandbox_acquired_cb acquired, sandbox_done_cb done, void *arg, struct err *err);
MUST_CHECK int sandbox_run(struct sandbox *s, const struct sandbox_command *cmd,
                           sandbox_done_cb cb, void *arg, struct err *err);
/* End a run early; its callback comes with SANDBOX_END_KILLED. Harmless when none is running. */
void sandbox_kill(struct sandbox *s);
/* Give the sandbox back; no callback of it fires after this. NULL is fine. */
void sandbox_close(struct sandbox *s);
