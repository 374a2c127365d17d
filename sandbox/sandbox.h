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
 * uts and cgroup namespaces; loopback up and nothing else unless asked for; no capabilities;
 * no_new_privs. How much of the kernel is in reach beside that is the profile's matter.
 *
 * Life of a sandbox:  acquire -> (run | file)... -> close.  One thing at a time, as often as one
 * likes: the writable layer stays, processes do not. Everything inside is killed and reaped at the
 * end of each run, before its callback: results after the process tree's death only. A run that
 * was killed, or that met a limit, leaves the sandbox usable.
 *
 * What is whose fault: a callback with rc < 0 is a failure of ours or of the host (infra_error;
 * ERR_LOST: acquire another), except where a file is asked for; whatever foreign code does ends in
 * a result. Every byte, number and name that comes out of a sandbox is foreign.
 *
 * Threads: a client belongs to one thread.
 */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>

#define SANDBOX_WORK_DIR   "/testbed"
#define SANDBOX_REPORT_DIR "/assay/report"      /* empty writable directory; its files come out as report */
#define SANDBOX_REPORT_FILE_MAX 64              /* at most so many report files ... */
#define SANDBOX_OUTPUT_KEEP ((uint64_t)32 << 10)    /* bytes kept at each end of the output */
#define SANDBOX_FILE_MAX ((uint64_t)32 << 20)   /* bytes of a file, a list or a set of changes on its way in or out */

struct sandbox_client;
struct sandbox;
struct sandbox_command;

enum sandbox_profile {
    SANDBOX_STRICT,         /* no ptrace, no mounts, no namespaces: such calls are ENOSYS, as on a kernel without them */
    SANDBOX_COMPATIBLE,     /* debuggers, and nested namespaces with mounts and a fresh /proc of their own; the user is uid
                             * 1000, not 0. More of the kernel is in reach, and a nested /proc has no masks: what anyone may
                             * read there of the host shows */
    SANDBOX_PROFILE_COUNT
};

struct sandbox_spec {
    int tree_fd;            /* O_PATH directory of the snapshot's tree, borrowed; -1: empty work dir */
    int edits_fd;           /* sealed memfd of tree edits (repos/edits.h format), borrowed; -1: none */
    int root_fd;            /* O_PATH directory of the environment's root, borrowed; -1: the host's own root */
    enum sandbox_profile profile;
    /* How the sandbox's first command will begin (argv; env the same), borrowed; NULL: unknown. Then it can be a fork of a
     * process that has made its start and its imports already. A matter of speed only: see sandbox_result.start. */
    const struct sandbox_command *warm;
};

/*
 * What of a network a sandbox has. Loopback is the default: suites start servers and talk to themselves,
 * and it leads nowhere. With a proxy, the one way out is a socket that listens inside at
 * 127.0.0.1:SANDBOX_PROXY_PORT and is served outside, by the caller (sandbox_proxy_fd()): what passes is
 * what the caller lets pass. http_proxy and its kin are set for commands.
 */
enum sandbox_network {
    SANDBOX_NET_LOOPBACK,       /* 127.0.0.1 and ::1 and nothing else */
    SANDBOX_NET_NONE,           /* no interface is up, not even loopback */
    SANDBOX_NET_PROXY,          /* loopback, and the caller's HTTP proxy behind it */
    SANDBOX_NETWORK_COUNT
};
#define SANDBOX_PROXY_PORT 3128

struct sandbox_limits {     /* of each run; 0 anywhere: the jail's default (in brackets), never "no limit" */
    uint64_t wall_ns;       /* [600 s] */
    uint64_t cpu_ns;        /* CPU time of the whole tree [wall_ns on as many cores as cpu_percent says] */
    uint64_t memory_bytes;  /* memory + swap of the whole tree, page cache and tmpfs included [2 GiB, or a quarter] */
    uint64_t output_bytes;  /* stdout + stderr together; one more ends the run [64 MiB] */
    uint64_t file_bytes;    /* largest single file [1 GiB] */
    uint64_t disk_bytes;    /* private writable layer, over all runs [1 GiB] */
    uint32_t disk_inodes;   /* [200000] */
    uint32_t pids;          /* tasks (threads) at once [512] */
    uint32_t cpu_percent;   /* 100 = one core [all] */
    enum sandbox_network network;
};

/*
 * How a run ended, told apart by who ended it, as far as that can be known. A limit is named only where the jail or the
 * kernel killed for it. The pids limit and a full layer kill nobody: they refuse (EAGAIN, ENOSPC), and a command which
 * then gives up has ended by its own exit; limits_hit tells of the refusal beside it. So there is no end "pids limit".
 * A failure of ours is no end: the callback gets rc < 0 and no result.
 */
enum sandbox_end {
    SANDBOX_END_EXIT,           /* value = exit status of the command */
    SANDBOX_END_SIGNAL,         /* value = signal number */
    SANDBOX_END_TIME_LIMIT,     /* wall or CPU: limits_hit tells which */
    SANDBOX_END_MEMORY_LIMIT,   /* the command itself died of it */
    SANDBOX_END_OUTPUT_LIMIT,
    SANDBOX_END_KILLED,         /* sandbox_kill() */
    SANDBOX_END_DISK_LIMIT,     /* died of SIGXFSZ (a file beyond file_bytes), or of SIGBUS with the layer full */
    SANDBOX_END_COUNT
};

enum sandbox_limit {
    SANDBOX_LIMIT_TIME, SANDBOX_LIMIT_MEMORY, SANDBOX_LIMIT_OUTPUT, SANDBOX_LIMIT_PIDS, SANDBOX_LIMIT_DISK,
    SANDBOX_LIMIT_CPU, SANDBOX_LIMIT_FILE, SANDBOX_LIMIT_CPU_SHARE, SANDBOX_LIMIT_COUNT
};

enum {                      /* bits of sandbox_result.limits_hit: may stand beside any end */
    SANDBOX_HIT_TIME = 1u << SANDBOX_LIMIT_TIME,
    SANDBOX_HIT_MEMORY = 1u << SANDBOX_LIMIT_MEMORY,    /* somebody in the run was killed for memory */
    SANDBOX_HIT_OUTPUT = 1u << SANDBOX_LIMIT_OUTPUT,
    SANDBOX_HIT_PIDS = 1u << SANDBOX_LIMIT_PIDS,        /* a task was refused; unknown under rlimits */
    SANDBOX_HIT_DISK = 1u << SANDBOX_LIMIT_DISK,        /* the layer was full when the command ended, or SIGXFSZ ended it */
    SANDBOX_HIT_CPU = 1u << SANDBOX_LIMIT_CPU,
};

enum sandbox_enforcer {     /* who holds a limit on this host */
    SANDBOX_BY_NONE,        /* nobody: the host lacks what it takes */
    SANDBOX_BY_CGROUP_V1, SANDBOX_BY_CGROUP_V2,
    SANDBOX_BY_RLIMIT,      /* of each process by itself, not of the whole tree (pids: of the sandbox's uid) */
    SANDBOX_BY_JAIL,        /* our own clock and counting */
    SANDBOX_BY_MOUNT,       /* the size of the writable file system */
};

enum {                      /* bits of sandbox_usage.known: figures that could be had */
    SANDBOX_KNOWN_CPU = 1, SANDBOX_KNOWN_FAULTS = 2, SANDBOX_KNOWN_IO = 4, SANDBOX_KNOWN_TASKS = 8,
};

/* Of all processes of a run, those nobody waited for too; told where sandbox_command.measure asked for it. */
struct sandbox_usage {
    uint32_t known;                         /* a figure whose bit is missing is 0 and means nothing */
    uint64_t user_ns, system_ns;            /* their sum is cpu_ns; the kernel samples the split, in a short run not once */
    uint64_t faults_minor, faults_major;
    uint64_t io_read_bytes, io_written_bytes;   /* of block devices; the layer is memory, and so is the page cache */
    uint64_t tasks_made;                    /* processes and threads, the command included, refused ones counted as well;
                                             * numbers begin again at kernel.pid_max, and this with them */
};

struct sandbox_result {
    enum sandbox_end end;
    int      value;             /* beside a limit: what the command showed, an exit status or a signal */
    uint32_t limits_hit;
    uint32_t oom_kills;         /* processes killed for memory */
    uint32_t pids_refused;      /* tasks not made for the pids limit */
    uint64_t wall_ns;           /* from the start of the command to its end */
    uint64_t cpu_ns;            /* of all processes; without control groups of the command and children it waited for */
    uint64_t memory_bytes_peak; /* likewise, and then of the largest of these alone */
    uint64_t output_bytes;      /* how much was printed in all, on both streams; at the limit, that and one byte */
    int      output_fd;         /* sealed memfd: head, then (if cut) a marker line, then tail */
    int      report_fd;         /* sealed memfd: report files in the format of sandbox/report_files.h; -1: none */
    int      error_fd;          /* with streams.apart: the same of standard error, which output_fd lacks; else -1 */
    uint8_t  enforced_by[SANDBOX_LIMIT_COUNT];  /* enum sandbox_enforcer by enum sandbox_limit */
    struct sandbox_usage usage;
    char     start[120];        /* "" where the spec declared no warm process, "warm", or "cold: " and why */
};

/*
 * The streams of a running command. Descriptors are borrowed for the call (the jail gets its own) and of
 * these kinds: input from a pipe, a stream socket or a file; output to a pipe or a stream socket, which no
 * other process may fill meanwhile. The command itself never holds one of them: it has pipes of its own,
 * and the sandbox copies.
 *
 * Output comes in order and whole, as long as the output limit lasts. A reader that is slow makes the
 * command wait, and nobody else; one that closes is left alone, and the command goes on. The result keeps
 * head and tail either way. Time spent waiting is the command's. Its end may be told before its last output
 * is read: the stream ends when the reader has had all, and at the latest when the next command with
 * streams starts or the sandbox is closed.
 *
 * Standard error goes with standard output, in the order of writing, as on a terminal. With `apart`, as
 * tools for agents want it, each has a pipe, a stream and a record of its own, and the order between the
 * two is lost; the output limit is on both.
 */
struct sandbox_streams {
    int in;                     /* read to its end, ahead of the command; -1: the command's input is /dev/null */
    int out;                    /* -1: output is only in the result */
    int err;                    /* -1, or with `apart`: the same for standard error */
    bool apart;
};

struct sandbox_command {
    const char *shell;          /* run by /bin/sh -c, or NULL; borrowed */
    /* Without a shell, where that is NULL: argv[0] a path, or a name to be looked for in PATH; NULL-terminated, borrowed. */
    const char *const *argv;
    const char *const *env;     /* NULL-terminated NAME=value list added to the fixed environment */
    const struct sandbox_streams *streams;  /* NULL: none; borrowed */
    bool measure;               /* fill sandbox_result.usage, which costs the run some 100 us */
};

/*
 * Start `jail_path` and connect to it; `slots` sandboxes at most at once. Run by root it is what this header says; run by
 * an ordinary user, sandboxes live inside a user namespace of that user's, with weaker limits (see enforced_by), and the
 * jail says so on standard error.
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

/*
 * Ask for a sandbox; ERR_BUSY when as many as sandbox_client_start() said are held. What is borrowed is so
 * for the call. The callback may say ERR_BAD_INPUT or ERR_LIMIT (edits that do not apply, a root that is
 * none), which is not ours, or what went wrong on the host.
 */
MUST_CHECK int sandbox_acquire(struct sandbox_client *c, const struct sandbox_spec *spec,
                               const struct sandbox_limits *limits, sandbox_acquired_cb cb, void *arg,
                               struct err *err);
/* Acquire, and run a first command as soon as the sandbox is there, without a round trip in between: `acquired` comes
 * first; when that brought a sandbox, `done` follows, both with `arg`. */
MUST_CHECK int sandbox_acquire_run(struct sandbox_client *c, const struct sandbox_spec *spec,
                                   const struct sandbox_limits *limits, const struct sandbox_command *cmd,
                                   sandbox_acquired_cb acquired, sandbox_done_cb done, void *arg, struct err *err);
/*
 * With SANDBOX_NET_PROXY: a listening TCP socket, to be given to an HTTP proxy that accepts from it. Borrowed until
 * sandbox_close(). It is foreign code that connects, as often as it likes. -1 for other networks.
 */
int sandbox_proxy_fd(const struct sandbox *s);
/* Run a command. ERR_USAGE while another runs or a file is asked for, and for streams of another kind. */
MUST_CHECK int sandbox_run(struct sandbox *s, const struct sandbox_command *cmd,
                           sandbox_done_cb cb, void *arg, struct err *err);
/*
 * Files of a sandbox between its runs, when nothing foreign lives in it: one at a time, and not while a
 * command runs (ERR_USAGE). Done with the sandbox's own rights. Paths are absolute or relative to
 * SANDBOX_WORK_DIR and are resolved without following a symbolic link anywhere in them. The callback gets
 * rc 0 and a sealed memfd (owned by the receiver; -1 from write), or rc < 0 and the reason: ERR_NOT_FOUND;
 * ERR_BAD_INPUT where a link, a device, a FIFO, a directory, a part of /proc or closed rights are in the
 * way; ERR_LIMIT beyond SANDBOX_FILE_MAX, or for a full layer. The sandbox goes on all the same.
 */
typedef void (*sandbox_file_cb)(void *arg, int rc, int fd, const struct err *err);
MUST_CHECK int sandbox_read_file(struct sandbox *s, const char *path, sandbox_file_cb cb, void *arg, struct err *err);
/* `content`: sealed memfd (against write, grow and shrink), borrowed. Missing directories are made; what is
 * there, a link too, is replaced in one step. `mode`: at most 0777. */
MUST_CHECK int sandbox_write_file(struct sandbox *s, const char *path, int content, uint32_t mode,
                                  sandbox_file_cb cb, void *arg, struct err *err);
/* The memfd holds one record per entry, in no order: this, then the name, without a terminator. */
struct sandbox_entry { uint32_t name_len, mode; uint64_t size; };      /* mode as stat(2) has it, type included */
MUST_CHECK int sandbox_list(struct sandbox *s, const char *path, sandbox_file_cb cb, void *arg, struct err *err);
/*
 * What has become of SANDBOX_WORK_DIR, as edits (repos/edits.h) to `tree_fd`, the directory it was acquired
 * with (borrowed; -1: none): the memfd can be the edits of another sandbox on the same tree, which then has
 * the same files. Left out are changes below any ".git", empty directories, FIFOs and sockets, and of modes
 * all but the owner's right to execute. Takes a look at every file of the tree.
 */
MUST_CHECK int sandbox_diff(struct sandbox *s, int tree_fd, sandbox_file_cb cb, void *arg, struct err *err);
/* End a run early; its callback comes with SANDBOX_END_KILLED. Harmless when none is running. */
void sandbox_kill(struct sandbox *s);
/*
 * Have an erofs image mounted, read-only: files[0] is it, the others are its data files, in the order of its device table, all
 * opened for reading (borrowed), at most SANDBOX_IMAGE_FILES. The callback gets rc 0 and a directory (owned by the receiver) to be
 * given as tree_fd or root_fd, which costs less than another directory does; or rc < 0: ERR_DENIED where this kernel or a
 * jail without root cannot, ERR_BAD_INPUT for what is no image. From files before Linux 6.12 it takes loop devices.
 */
#define SANDBOX_IMAGE_FILES 8
MUST_CHECK int sandbox_image_mount(struct sandbox_client *c, const int *files, int count, sandbox_file_cb cb, void *arg,
                                   struct err *err);
/* It is not needed any more by those to come: `dir` is closed. Sandboxes that have it keep it. */
void sandbox_image_unmount(struct sandbox_client *c, int dir);
/* Give the sandbox back; no callback of it fires after this. NULL is fine. */
void sandbox_close(struct sandbox *s);
