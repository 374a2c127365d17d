/*
 * launcher.c - a sandbox from its making to its death, and the next ones in the same world while that is as new.
 *
 *   world built, crew ready -> NOTE_CREW, NOTE_READY        crew = zygote + reaper (cell.h)
 *   ORDER_ACQUIRE: tree, size, edits -> NOTE_ACQUIRED
 *   the jail sends the command to the zygote, whose child becomes it -> NOTE_ENDED
 *   ORDER_COLLECT: an agent reads the report files -> NOTE_COLLECTED
 *   ORDER_CREW: be ready for the next run -> NOTE_CREW
 *   ORDER_RUN: a command with streams goes to the zygote through here, and its bytes (relay.h)
 *   ORDER_RESET: run killed, world as new, crew ready -> NOTE_READY, or the launcher ends
 *
 * A run ends when the command ends. Where nobody else is left its end is told, and the crew may serve again: if the command
 * was the only process that ever lived in the pid namespace. Otherwise the reaper is killed, and with it all that is left in
 * there; only after its death is the rest of the output read and the end told.
 */
#include "base/clock.h"
#include "base/frame.h"
#include "base/own.h"
#include "sandbox/cell.h"
#include "sandbox/cgroup.h"
#include "sandbox/etc.h"
#include "sandbox/ipc.h"
#include "sandbox/maker.h"
#include "sandbox/mount.h"
#include "sandbox/pid1.h"
#include "sandbox/relay.h"
#include "sandbox/ring.h"
#include "sandbox/warm.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/pidfd.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define WARM_ANSWER_MS_MAX 5000
#define WITHIN_STACK 16384
#define APART __attribute__((noinline))     /* what it puts on the stack is gone when the launcher is at rest */

enum { RELAY_IN = 2, RELAY_COUNT };

struct launcher {
    struct kit *kit;                /* our own copy since the fork */
    struct net *net;
    int lower;                      /* mount namespace of the lower layers */
    int userns;                     /* the slot's, whatever the kit has now */
    struct ipc ipc;
    struct world world;
    int self;                       /* pidfd of the launcher: the way back to its own pid namespace */
    int procs;                      /* /proc of that, in sight of nobody else; -1: no warm process has been begun yet */
    int last_pid;                   /* ns_last_pid of whoever reads or writes it; -1: cannot be had */
    int children;                   /* tells that one of ours has ended */
    struct sandbox_limits limits;
    pid_t zygote, reaper;           /* 0: none */
    int zygote_sock, reaper_fd;
    struct pid1 pid1;               /* the reaper, before anything foreign was there */
    int room;                       /* the run's pid namespace */
    int last;                       /* number that was given out last in the run's pid namespace, when it was asked for */
    bool ready;                     /* for a command: it may have begun */
    int sock;                       /* where that goes: the zygote's or its own; -1: not ready */
    int command_fd;                 /* pidfd of it; -1: it has not been born, as far as we know */
    bool told;                      /* of its birth, or that it comes to nothing */
    uint32_t crew;                  /* number of the run */
    int output[2];                  /* read ends of its output, and of standard error if apart; -1: all have closed it */
    struct ring *rings[2];          /* where that is kept; the second only with standard error apart */
    struct relay relays[RELAY_COUNT];   /* output and errors of a run to the caller, input to the run */
    bool over;                      /* more output than allowed: killed for it */
    bool forked;                    /* the command is the fork of a warm host: its crew serves one run */
    struct warm warm;
    bool hosted;                    /* this world has seen a warm host, which may have left processes we know nothing of */
    int declared;                   /* the warm command of this sandbox, or the last; -1: none */
    bool missed;                    /* the last sandbox that declared one declared another than there is */
    char start[sizeof ((struct sandbox_result){ 0 }).start];    /* how this sandbox's next run begins */
};

/* An answer of a process of the sandbox's, which one it is, and what came with it (owned; -1: nothing). */
struct heard { struct cell_answer answer; pid_t pid; int fd; };

/* ERR_BUSY: there is none (with MSG_DONTWAIT). */
static int hear(int sock, int flags, struct heard *out, struct err *err)
{
    union { struct cmsghdr head; char space[CMSG_SPACE(sizeof(struct ucred)) + CMSG_SPACE(sizeof(int))]; } c;
    struct cell_answer *a = &out->answer;
    struct iovec iov = { .iov_base = a, .iov_len = sizeof *a };
    struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = c.space, .msg_controllen = sizeof c.space };
    ssize_t n;
    do
        n = recvmsg(sock, &m, MSG_CMSG_CLOEXEC | flags);
    while (n < 0 && errno == EINTR);
    if (n < 0 && errno == EAGAIN)
        return err_set(err, ERR_BUSY, "no answer yet");
    out->pid = 0;
    out->fd = -1;
    for (struct cmsghdr *h = n < 0 ? NULL : CMSG_FIRSTHDR(&m); h != NULL; h = CMSG_NXTHDR(&m, h))
        if (h->cmsg_level == SOL_SOCKET && h->cmsg_type == SCM_CREDENTIALS) {
            struct ucred who;
            memcpy(&who, CMSG_DATA(h), sizeof who);
            out->pid = who.pid;
        } else if (h->cmsg_level == SOL_SOCKET && h->cmsg_type == SCM_RIGHTS) {
            for (size_t at = CMSG_LEN(0); at < h->cmsg_len; at += sizeof out->fd) {     /* nobody of ours sends more than one */
                drop_fd(&out->fd);
                memcpy(&out->fd, (char *)h + at, sizeof out->fd);
            }
        }
    if (n != (ssize_t)sizeof *a) {
        drop_fd(&out->fd);
        return err_set(err, ERR_LOST, "the sandbox's own process died");
    }
    if (a->rc < 0) {
        err_set(err, a->rc, "%.*s", (int)sizeof a->msg - 1, a->msg);
        err->sys = a->sys;
    }
    return a->rc;
}

static int await_answer(int sock, struct err *err)
{
    struct heard h = { .fd = -1 };
    int rc = hear(sock, 0, &h, err);
    drop_fd(&h.fd);
    return rc;
}

static bool has_ended(int pidfd)
{
    siginfo_t how = { 0 };
    return waitid(P_PIDFD, (id_t)pidfd, &how, WEXITED | WNOHANG | WNOWAIT) == 0 && how.si_pid != 0;
}

/* The command is dead or dying: how it ended, and what it used. */
static void command_reap(struct launcher *l, struct note *out)
{
    siginfo_t how = { 0 };
    struct rusage used = { 0 };
    while (syscall(SYS_waitid, P_PIDFD, l->command_fd, &how, WEXITED, &used) < 0 && errno == EINTR)
        ;
    close(l->command_fd);
    l->command_fd = -1;
    out->status = how.si_code == CLD_EXITED ? W_EXITCODE(how.si_status, 0)
                : how.si_status | (how.si_code == CLD_DUMPED ? WCOREFLAG : 0);
    out->cpu_ns = (uint64_t)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * NS_PER_S +
                  (uint64_t)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1000;
    out->rss_bytes = (uint64_t)used.ru_maxrss << 10;
}

/* No command is to come, or none is left. */
static void disarm(struct launcher *l)
{
    drop_fd(&l->output[0]);
    drop_fd(&l->output[1]);
    if (l->forked)
        drop_fd(&l->sock);
    l->sock = -1;
    l->ready = false;
}

static void crew_kill(const struct launcher *l)
{
    if (l->reaper > 0)
        pidfd_send_signal(l->reaper_fd, SIGKILL, NULL, 0);
    if (l->zygote > 0)
        kill(l->zygote, SIGKILL);
}

/* Wait for the death of these two, and of what was left in their pid namespace: whoever has us as parent by CLONE_PARENT
 * holds up its end until reaped. */
static void crew_reap(struct launcher *l, pid_t zygote, pid_t reaper)
{
    while (zygote > 0 || reaper > 0) {
        pid_t pid = waitpid(-1, NULL, 0);
        if (pid < 0 && errno != EINTR)
            break;
        if (pid > 0 && pid == l->warm.pid)
            warm_died(&l->warm);
        if (pid == l->zygote)
            l->zygote = 0;
        if (pid == l->reaper)
            l->reaper = 0;
        if (pid == zygote)
            zygote = 0;
        if (pid == reaper)
            reaper = 0;
    }
}

/* It has been killed. */
static void crew_forget(struct launcher *l)
{
    l->reaper = l->zygote = 0;
    disarm(l);
    drop_fd(&l->command_fd);
    drop_fd(&l->reaper_fd);
    pid1_forget(&l->pid1);
    drop_fd(&l->room);
    drop_fd(&l->zygote_sock);
    l->forked = false;
}

/* Kill and reap what the last run left, and the crew. */
static void crew_end(struct launcher *l)
{
    crew_kill(l);
    crew_reap(l, l->zygote, l->reaper);
    crew_forget(l);
}

static void tell(struct launcher *l, struct note *n, int rc, const struct err *why, const int *fds, int nfds)
{
    struct err err;
    n->rc = rc;
    if (rc < 0) {
        n->sys = why->sys;
        memcpy(n->msg, why->msg, sizeof n->msg);
    }
    if (frame_send(l->kit->sock, n, sizeof *n, fds, nfds, &err) < 0)
        _exit(1);
}

static void close_both(const int pair[2])
{
    close(pair[0]);
    close(pair[1]);
}

/* A pipe of the command's, whose `ours` end is ours. It can be opened again through /dev/stdout, whose owner is asked. */
static int stream_pipe(const struct launcher *l, int pipe[2], int ours, struct err *err)
{
    if (pipe2(pipe, O_CLOEXEC) < 0)
        return err_sys(err, ERR_SYS, "pipe");
    if (fchown(pipe[1], l->kit->uid, l->kit->uid) == 0 && fcntl(pipe[ours], F_SETFL, O_NONBLOCK) == 0)
        return 0;
    err_sys(err, ERR_SYS, "pipe");
    close_both(pipe);
    return err->code;
}

typedef void (*job_fn)(struct launcher *);

/* A process that shares our memory and ends after `job`. On return it has. */
static pid_t clone_call(struct clone_args *args, job_fn job, struct launcher *l)
{
    long pid = SYS_clone3;
    __asm__ volatile("syscall\n\t"
                     "test %%rax, %%rax\n\t"
                     "jnz 1f\n\t"
                     "mov %[l], %%rdi\n\t"
                     "call *%[job]\n\t"
                     "xor %%edi, %%edi\n\t"
                     "mov %[quit], %%eax\n\t"
                     "syscall\n"
                     "1:"
                     : "+a"(pid) : "D"(args), "S"(sizeof *args), [l] "r"(l), [job] "r"(job), [quit] "i"(SYS_exit_group)
                     : "rcx", "r11", "memory");
    return (pid_t)pid;
}

/* Have `job` done by a process of ours in the crew's pid namespace, while we wait. It takes a number there that is not counted
 * and not in use, unless the run was wild. What it opens is ours. */
static bool within(struct launcher *l, job_fn job)
{
    pid_t number = 32767;
    int status = -1;
    __attribute__((aligned(16))) char stack[WITHIN_STACK];
    /* Without SIGCHLD, for which we would look whether a command has ended. */
    struct clone_args args = { .flags = CLONE_VM | CLONE_VFORK | CLONE_FILES, .stack = (uintptr_t)stack, .stack_size = sizeof stack,
                               .set_tid = (uintptr_t)&number, .set_tid_size = 1 };
    if (setns(l->room, CLONE_NEWPID) < 0)
        return false;
    pid_t pid = clone_call(&args, job, l);
    while (pid > 0 && waitpid(pid, &status, __WALL) < 0 && errno == EINTR)
        ;
    cell_stack_forget(stack, sizeof stack);
    if (setns(l->self, CLONE_NEWPID) < 0)
        _exit(1);                               /* whom we start next must not be born there */
    return pid > 0 && status == 0;
}

/* The jobs: no more than system calls, for what they share with us is not theirs. */

static void see_proc(struct launcher *l)
{
    struct err err;
    l->world.proc_mounted = mount_proc(&l->world, -1, &err) == 0;
}

static void see_last(struct launcher *l)
{
    char text[16];
    ssize_t n = pread(l->last_pid, text, sizeof text - 1, 0);
    text[n > 0 ? n : 0] = '\0';
    l->last = n > 0 ? atoi(text) : -1;
}

/* The next process there is the second again, as in a new namespace. */
static void renumber(struct launcher *l)
{
    see_last(l);
    if (pwrite(l->last_pid, "1", 1, 0) != 1)
        l->last = -1;
}

static void see_second(struct launcher *l) { l->command_fd = pidfd_open(2, 0); }

/* How many numbers of the run's pid namespace have been given out. Where the run was killed there is no count. */
static void count_tasks(struct launcher *l)
{
    if (l->reaper > 0 && within(l, see_last) && l->last > 0)
        l->kit->ring->tasks = (uint32_t)l->last;
}

/* A zygote; what it does before it needs the world takes about as long as making that. */
static int zygote_begin(struct launcher *l, struct err *err)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_sys(err, ERR_SYS, "socket");
    l->zygote_sock = pair[0];
    l->zygote = cell_fork();
    if (l->zygote == 0)
        cell_zygote(l->kit, pair[1]);
    close(pair[1]);
    if (l->zygote > 0)
        return 0;
    l->zygote = 0;
    return err_sys(err, ERR_SYS, "fork");
}

/* The world is there: the zygote that was begun goes on. */
static int zygote_go(struct launcher *l, struct err *err)
{
    const struct cell_order o = { .kind = CELL_WORLD };
    return frame_send(l->zygote_sock, &o, sizeof o, &l->world.queues, l->world.queues >= 0, err);
}

/* The crew of the zygote that goes on: its reaper, and the pid namespace with its /proc. */
static int crew_make(struct launcher *l, struct err *err)
{
    struct heard h;
    /* It waits for a grace period: meanwhile the zygote gets ready. */
    if (l->world.proc_mounted && umount2("/proc", MNT_DETACH | UMOUNT_NOFOLLOW) < 0)
        return err_sys(err, ERR_SYS, "old /proc");
    l->world.proc_mounted = false;
    int rc = hear(l->zygote_sock, 0, &h, err);
    if (rc < 0)
        return rc;
    l->reaper = h.answer.pid;
    l->reaper_fd = pidfd_open(l->reaper, 0);
    l->room = h.fd;
    pid1_watch(&l->pid1, l->kit->proc, l->reaper, l->reaper_fd);
    struct err refused;
    l->world.proc_mounted = mount_proc(&l->world, l->room, &refused) == 0;
    if (!l->world.proc_mounted && !(within(l, see_proc) && l->world.proc_mounted))      /* before Linux 6.17 */
        return err_sys(err, ERR_SYS, "/proc of a run");
    return 0;
}

static int crew_new(struct launcher *l, struct err *err)
{
    int rc = zygote_begin(l, err);
    if (rc == 0)
        rc = zygote_go(l, err);
    return rc < 0 ? rc : crew_make(l, err);
}

/* The output of the coming command: our end, and its own to be handed over. */
static int output_open(struct launcher *l, int *out_print, struct err *err)
{
    int pipe[2];
    if (stream_pipe(l, pipe, 0, err) < 0)
        return err->code;
    l->over = false;
    l->output[0] = pipe[0];
    *out_print = pipe[1];
    return 0;
}

static int arm(struct launcher *l, struct err *err)
{
    const struct cell_order o = { .kind = CELL_ARM };
    own_fd print = -1;
    int rc = output_open(l, &print, err);
    if (rc == 0)
        rc = frame_send(l->zygote_sock, &o, sizeof o, (int[]){ print }, 1, err);
    l->sock = l->zygote_sock;
    l->told = false;
    l->ready = rc == 0;
    return rc;
}

/* Has nobody lived in the run's pid namespace but the crew and one process after another of its making, which left pid 1 alone? */
static bool among_ourselves(struct launcher *l)
{
    return l->zygote > 0 && l->reaper > 0 && l->last_pid >= 0 && within(l, renumber) && l->last >= 1 && l->last <= 2 &&
           pid1_unchanged(&l->pid1);
}

/* Be ready for a command: with the crew of the last run, if it may serve again, or with a new one (*out_new). */
static int crew_start(struct launcher *l, bool *out_new, struct err *err)
{
    int rc = among_ourselves(l) ? arm(l, err) : ERR_BUSY;
    *out_new = rc < 0;
    if (rc < 0) {
        crew_end(l);
        if ((rc = crew_new(l, err)) == 0)
            rc = arm(l, err);
    }
    if (rc < 0)
        crew_end(l);
    else
        l->crew++;
    return rc;
}

static void crew_tell(struct launcher *l, bool is_new)
{
    struct note crew = { .kind = NOTE_CREW, .crew = l->crew };
    tell(l, &crew, 0, NULL, (int[]){ l->reaper_fd, l->sock }, is_new ? 2 : 0);
}

static int crew_ready(struct launcher *l, struct err *err)
{
    bool is_new = true;
    int rc = l->ready ? 0 : crew_start(l, &is_new, err);
    if (rc == 0)
        crew_tell(l, is_new);
    return rc;
}

/* ---- a crew whose command is a warm host's fork ---- */

static bool answers_soon(int sock)
{
    struct pollfd p = { .fd = sock, .events = POLLIN };
    return poll(&p, 1, WARM_ANSWER_MS_MAX) > 0;
}

/* The fork in the crew's pid namespace, as its second process; its socket is l->sock. */
static int fork_warm(struct launcher *l, struct err *err)
{
    int pair[2];
    siginfo_t ours;
    own_fd proc = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    own_fd print = -1;
    if (proc < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_sys(err, ERR_SYS, "/proc");
    own_fd theirs = pair[1];
    l->sock = pair[0];
    l->forked = true;
    int rc = output_open(l, &print, err);
    if (rc == 0)
        rc = warm_fork(&l->warm, l->room, CLONE_NEWIPC | (l->warm.net != l->net->count ? CLONE_NEWNET : 0u), theirs, print, err);
    close(give_fd(&theirs));
    if (rc == 0)
        rc = answers_soon(l->sock) ? await_answer(l->sock, err)
           : err_set(err, ERR_DEADLINE, "the fork of the warm process is silent");
    if (rc == 0)
        rc = warm_verify(proc, l->kit->uid, err);
    /* Ours to wait for? If not, its end would never be told. */
    if (rc == 0 && (!within(l, see_second) || l->command_fd < 0 ||
                    waitid(P_PIDFD, (id_t)l->command_fd, &ours, WEXITED | WNOHANG | WNOWAIT) < 0)) {
        drop_fd(&l->command_fd);
        rc = err_sys(err, ERR_SYS, "the fork of the warm process");
    }
    l->ready = rc == 0;
    return rc;
}

static int crew_start_warm(struct launcher *l, struct err *err)
{
    crew_end(l);
    int rc = crew_new(l, err);
    if (rc == 0)
        rc = fork_warm(l, err);
    if (rc < 0) {
        warm_end(&l->warm);
        crew_end(l);
        return rc;
    }
    l->crew++;
    crew_tell(l, true);
    return 0;
}

static void cold(struct launcher *l, const char *why)
{
    snprintf(l->start, sizeof l->start, "cold: %.*s", (int)sizeof l->start - 7, why);
}

/* Have an agent do `o`. */
static int have_done(struct launcher *l, const struct cell_order *o, const int *fds, int nfds, struct err *err)
{
    if (l->forked) {
        crew_end(l);
        cold(l, "files were asked for before the command");
    }
    int rc = l->ready ? 0 : crew_ready(l, err);
    if (rc == 0)
        rc = frame_send(l->zygote_sock, o, sizeof *o, fds, nfds, err);
    if (rc == 0)
        rc = await_answer(l->zygote_sock, err);
    /* It was alone, and is gone. */
    if (rc != ERR_LOST && l->last_pid >= 0 && (!within(l, renumber) || l->last > 2))
        rc = err_set(err, ERR_LOST, "the sandbox's own process has left another");
    return rc;
}

/* Before anything foreign is in the world: is there a warm process for this sandbox? If not, l->start says why. */
static void warm_up(struct launcher *l, int declared)
{
    struct err err = { 0 };
    if (l->declared >= 0)
        close(l->declared);
    l->declared = fcntl(declared, F_DUPFD_CLOEXEC, 0);
    if (l->world.image)
        cold(l, "an environment root of its own");      /* no world of one is kept from sandbox to sandbox */
    else if (l->kit->rootless)
        cold(l, "a jail without root");
    else if (l->kit->profile != SANDBOX_STRICT)
        cold(l, "another profile");
    else if (l->limits.network != SANDBOX_NET_LOOPBACK)
        cold(l, "another network");
    else if (l->limits.memory_bytes < WARM_MEMORY_MIN)
        cold(l, "too little memory for a warm process beside it");
    else if (!warm_is(&l->warm, declared))
        cold(l, "the first of its kind here");
    else if (warm_ready(&l->warm, l->procs, &err) < 0)
        cold(l, err.msg);
}

/* The world is as new again: begin a warm process for the sandboxes to come, if the last one declared it and none is there
 * that the one before may want still. */
static void warm_next(struct launcher *l)
{
    struct err err = { 0 };
    if (l->declared < 0 || l->kit->rootless || l->limits.memory_bytes < WARM_MEMORY_MIN || warm_is(&l->warm, l->declared)) {
        l->missed = false;
        return;
    }
    if (l->warm.pid <= 0 || l->missed) {
        warm_end(&l->warm);
        l->hosted = true;
        if (warm_start(&l->warm, l->kit, l->declared, l->net->count, &err) < 0)
            l->warm.pid = 0;                    /* none: the next sandbox is cold, and we try again after it */
        if (l->procs < 0)
            l->procs = mount_proc_hidden(&err); /* where it fails, no warm process is found fit */
    }
    l->missed = !l->missed;
}

static int acquire(struct launcher *l, const struct order *o, const int *fds, int *out_proxy, struct err *err)
{
    int next = 0, rc = 0;
    l->limits = o->limits;
    int tree = o->fds & GRANT_FD_TREE ? fds[next++] : -1;
    int edits = o->fds & GRANT_FD_EDITS ? fds[next++] : -1;
    int root = o->fds & GRANT_FD_ROOT ? fds[next++] : -1;
    int declared = o->fds & GRANT_FD_WARM ? fds[next++] : -1;
    int userns = o->fds & ORDER_FD_USERNS ? fds[next++] : -1;
    if (root >= 0 || userns >= 0 || l->limits.network == SANDBOX_NET_NONE)
        crew_end(l);                  /* made for another root, profile or network */
    if (l->limits.network == SANDBOX_NET_NONE)
        rc = net_none(l->net, err);
    if (l->limits.network == SANDBOX_NET_PROXY)
        rc = (*out_proxy = net_listen(SANDBOX_PROXY_PORT, err)) < 0 ? err->code : 0;
    if (rc == 0 && root >= 0)
        rc = mount_root(&l->world, l->kit, root, err);
    if (rc == 0 && userns >= 0) {
        l->kit->profile = SANDBOX_COMPATIBLE;
        l->kit->userns = fcntl(userns, F_DUPFD_CLOEXEC, 0);
        rc = l->kit->userns < 0 ? err_sys(err, ERR_SYS, "user namespace") : mount_nested_proc(&l->world, err);
    }
    if (rc == 0)
        rc = mount_store_size(&l->world, l->limits.disk_bytes, l->limits.disk_inodes, err);
    if (rc == 0)
        rc = mount_cpus(&l->world, o->cpus, err);
    const bool over = o->tree_own && l->world.marks;
    if (rc == 0 && tree >= 0 && over)
        rc = mount_tree(&l->world, l->kit, tree, err);
    if (rc == 0 && tree >= 0 && !over) {
        struct cell_order c = { .kind = CELL_COPY };
        own_fd dir = openat(tree, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        rc = dir < 0 ? err_sys(err, ERR_SYS, "snapshot tree") : mount_lend(&l->world, tree, err);
        if (rc == 0)
            rc = have_done(l, &c, (int[]){ dir }, 1, err);
        mount_lend_end(&l->world);
    }
    l->start[0] = '\0';
    if (l->limits.memory_bytes < WARM_MEMORY_MIN)
        warm_end(&l->warm);
    if (rc == 0 && declared >= 0)
        warm_up(l, declared);
    if (rc == 0 && edits >= 0) {
        struct cell_order c = { .kind = CELL_EDITS };
        rc = have_done(l, &c, &edits, 1, err);
    }
    if (rc == 0 && declared >= 0 && l->start[0] == '\0') {
        struct err why = { 0 };
        if (crew_start_warm(l, &why) < 0) {
            cold(l, why.msg);
            rc = crew_ready(l, err);
        }
    }
    return rc;
}

static void streams_end(struct launcher *l)
{
    for (int i = 0; i < 3; i++)
        relay_close(&l->relays[i]);
    if (l->rings[1] != NULL)
        munmap(l->rings[1], sizeof(struct ring));
    l->rings[1] = NULL;
}

/* Pipes for a command with streams, and the order to the agent to become it. `fds` stay the caller's. */
static int streams_start(struct launcher *l, const struct order *o, const int *fds, struct err *err)
{
    struct cell_order c = o->cell;
    int given[3] = { fds[0] }, n = 1, next = 1, in[2] = { -1, -1 }, errors[2] = { -1, -1 }, rc = 0;
    int mine[3] = { -1, -1, -1 };               /* the caller's ends: in, out, err */
    for (int i = 0; i < 3; i++)
        if ((o->fds & (GRANT_FD_IN << i)) && (mine[i] = fcntl(fds[next++], F_DUPFD_CLOEXEC, 0)) < 0)
            rc = err_sys(err, ERR_SYS, "streams");
    streams_end(l);
    if (rc == 0 && o->apart) {
        void *ring = mmap(NULL, sizeof(struct ring), PROT_READ | PROT_WRITE, MAP_SHARED, fds[next], 0);
        l->rings[1] = ring == MAP_FAILED ? NULL : ring;
        rc = ring == MAP_FAILED ? err_sys(err, ERR_SYS, "errors") : stream_pipe(l, errors, 0, err);
    }
    if (rc == 0 && mine[0] >= 0)
        rc = stream_pipe(l, in, 1, err);
    if (rc == 0) {
        if (in[0] >= 0)
            given[n++] = in[0];
        if (errors[1] >= 0)
            given[n++] = errors[1];
        c.fds = (in[0] >= 0 ? CELL_IN : 0u) | (errors[1] >= 0 ? CELL_ERR : 0u);
        rc = frame_send(l->sock, &c, sizeof c, given, n, err);
        if (rc == ERR_LOST)
            rc = 0;                             /* the agent is dead: its end tells more */
    }
    if (in[0] >= 0)
        close(in[0]);
    if (errors[1] >= 0)
        close(errors[1]);
    l->output[1] = errors[0];
    if (mine[0] >= 0 && in[1] >= 0)
        relay_open(&l->relays[RELAY_IN], mine[0], in[1]);
    else if (mine[0] >= 0)
        close(mine[0]);
    for (int i = 0; i < 2; i++)
        if (mine[i + 1] >= 0)
            relay_open(&l->relays[i], -1, mine[i + 1]);
    return rc;
}

static uint64_t allowed(const struct launcher *l)
{
    const struct ring *out = l->rings[0], *errors = l->rings[1];
    uint64_t so_far = out->total + (errors != NULL ? errors->total : 0);
    return so_far < out->max ? out->max - so_far : 0;
}

static uint8_t chunk[RELAY_BYTES];

/* Some output of the command, or its end. */
static void output(struct launcher *l, int i)
{
    struct relay *r = &l->relays[i];
    bool relayed = r->live && r->to >= 0;
    ssize_t n = ring_take(l->rings[i], l->output[i], allowed(l), relayed ? r->bytes : chunk, sizeof chunk);
    if (n < 0) {
        close(l->output[i]);                    /* everyone closed it: the end comes by the pidfd */
        l->output[i] = -1;
    } else if (relayed) {
        r->at = 0;
        r->len = (size_t)n;
    }
    if (!l->over && l->rings[i]->over) {
        l->over = true;
        pidfd_send_signal(l->reaper_fd, SIGKILL, NULL, 0);
    }
}

/* A pipe with what is in `from`, which keeps it. */
static int pipe_copy(int from)
{
    int pipe[2], size = fcntl(from, F_GETPIPE_SZ);
    if (size < 0 || pipe2(pipe, O_CLOEXEC | O_NONBLOCK) < 0)
        return -1;
    bool copied = fcntl(pipe[1], F_SETPIPE_SZ, size) >= 0 &&
                  (tee(from, pipe[1], (size_t)size, SPLICE_F_NONBLOCK) >= 0 || errno == EAGAIN);
    close(pipe[1]);
    if (copied)
        return pipe[0];
    close(pipe[0]);
    return -1;
}

/* All writers are dead: keep what is left in the pipe (owned), and let the reader of the stream have it at his pace. */
static void drain(struct launcher *l, int i, int pipe)
{
    struct relay *r = &l->relays[i];
    own_fd rest = pipe, copy = rest >= 0 && r->live && r->to >= 0 && !l->over ? pipe_copy(rest) : -1;
    uint64_t kept = 0;
    for (ssize_t n = 1; rest >= 0 && n > 0; kept += n > 0 ? (uint64_t)n : 0)
        n = ring_take(l->rings[i], copy >= 0 ? copy : rest, allowed(l), chunk, sizeof chunk);
    if (r->live)
        relay_finish(r, copy >= 0 ? give_fd(&rest) : -1, kept);
}

/* Has the command been born? It is the zygote's only child that says so itself. We could hear it when it has ended, but to be
 * woken up by it now has us where it runs: at its end no processor that sleeps needs to be woken up for us. */
static void hear_birth(struct launcher *l)
{
    const int on = 1, off = 0;
    struct heard h = { .fd = -1 };
    struct err err;
    const int rc = hear(l->sock, MSG_DONTWAIT | MSG_PEEK, &h, &err);
    drop_fd(&h.fd);
    if (rc == ERR_BUSY)
        return;
    l->told = true;
    /* While it is on, whatever is sent from here, as by the jail to begin a run, would give the socket a name that shows in the
     * sandbox. */
    if (setsockopt(l->sock, SOL_SOCKET, SO_PASSCRED, &on, sizeof on) == 0 &&
        hear(l->sock, MSG_DONTWAIT | MSG_PEEK, &h, &err) == 0 && h.pid > 0)
        l->command_fd = pidfd_open(h.pid, 0);
    setsockopt(l->sock, SOL_SOCKET, SO_PASSCRED, &off, sizeof off);
}

/* The command is dead, or there will be none. */
static void ended(struct launcher *l)
{
    struct note n = { .kind = NOTE_ENDED, .status = SIGKILL, .ended_ns = clock_mono_ns() };
    struct err err = { 0 };
    struct heard h = { .fd = -1 };
    int rc = 0;
    /* What it said before it was the command: why it is none, or, as a fork, how it began. */
    while (hear(l->sock, MSG_DONTWAIT, &h, &err) == 0) {
        drop_fd(&h.fd);
        if (h.answer.msg[0] != '\0')
            snprintf(l->start, sizeof l->start, "%.*s", (int)sizeof l->start - 1, h.answer.msg);
    }
    drop_fd(&h.fd);
    if (err.code != ERR_BUSY && err.code != ERR_LOST)
        rc = err.code;
    struct statfs fs;
    n.disk_full = fstatfs(l->world.store, &fs) == 0 && (fs.f_bavail == 0 || fs.f_ffree == 0);
    const int rest[2] = { l->output[0], l->output[1] };
    l->output[0] = l->output[1] = -1;
    const bool born = l->command_fd >= 0;
    if (born)
        command_reap(l, &n);
    if (l->kit->ring->measure && !l->forked)
        count_tasks(l);
    if (!born || l->over || l->forked || l->zygote == 0 ||
        !cgroup_only_ours(l->kit->pids_now, l->kit->pids_ours + warm_alive(&l->warm)))
        crew_end(l);                            /* as a rule the command was the last of its kind */
    disarm(l);
    n.crew = l->reaper > 0 ? l->crew : 0;
    drain(l, 0, rest[0]);
    relay_close(&l->relays[RELAY_IN]);
    if (l->rings[1] != NULL) {
        drain(l, 1, rest[1]);
        munmap(l->rings[1], sizeof(struct ring));
        l->rings[1] = NULL;
    }
    struct stat st;
    const struct part *report = &l->world.parts[WORLD_REPORT];
    n.report = fstat(report->dir, &st) == 0 && st.st_size != (off_t)report->size;
    memcpy(n.msg, l->start, sizeof l->start);
    if (l->start[0] != '\0')
        cold(l, "not the first command of its sandbox");
    tell(l, &n, rc, &err, NULL, 0);
}

/* One of ours has ended. Foreign code can make itself such a child too: those are left until the crew ends. */
static APART void child_ended(struct launcher *l)
{
    struct signalfd_siginfo one;                /* however many have ended */
    siginfo_t how = { 0 };
    if (read(l->children, &one, sizeof one) < 0 && errno != EINTR)
        _exit(1);
    if (l->warm.pid > 0 && waitpid(l->warm.pid, NULL, WNOHANG) == l->warm.pid)
        warm_died(&l->warm);
    if (l->zygote > 0 && waitpid(l->zygote, NULL, WNOHANG) == l->zygote)
        l->zygote = 0;
    if (l->ready && l->command_fd < 0) {
        /* Killed before it could speak? Whoever was dead before we heard nothing is no child of the command's. What a warm host
         * has left has a session of the host's. */
        const bool dead = l->zygote > 0 && waitid(P_ALL, 0, &how, WEXITED | WNOHANG | WNOWAIT) == 0 && how.si_pid != 0;
        hear_birth(l);
        if (l->command_fd < 0 && dead && how.si_pid != l->reaper && getsid(how.si_pid) == getsid(0))
            l->command_fd = pidfd_open(how.si_pid, 0);
    }
    const bool crew_over = l->zygote == 0 || (l->reaper > 0 && has_ended(l->reaper_fd));
    if (l->ready && (l->command_fd >= 0 ? has_ended(l->command_fd) : crew_over))
        ended(l);
    else if (!l->ready && crew_over)
        crew_end(l);
}

/* How many ends of our own lines, to zygote and warm host, were made in the network namespace. */
static unsigned long lines(const struct launcher *l)
{
    const bool warm = l->warm.pid != 0 && l->warm.net == l->net->count;
    return (l->zygote > 0 ? 2 : 0) + (warm ? 1ul + warm_alive(&l->warm) : 0);
}

/* New namespaces where the last sandbox has used the old ones; the crew must have been born in them. */
static int namespaces_renew(struct launcher *l, struct err *err)
{
    const uint32_t net = l->net->count;
    if (net_renew(l->net, lines(l), err) < 0)
        return err->code;
    const bool used = !ipc_unused(&l->ipc, &l->world);
    if (used && ipc_renew(&l->ipc, l->kit, &l->world, err) < 0)
        return err->code;
    if (used || net != l->net->count)
        crew_end(l);
    return 0;
}

/* A world, and its first crew. */
static int world_begin(struct launcher *l, struct err *err)
{
    int rc = zygote_begin(l, err);
    if (rc == 0)
        rc = mount_world(&l->world, l->kit, err);
    if (rc == 0)
        rc = ipc_watch(&l->ipc, l->kit, &l->world, err);
    if (rc == 0)
        rc = zygote_go(l, err);
    if (rc == 0)
        rc = crew_make(l, err);
    if (rc == 0 && (rc = arm(l, err)) == 0)
        l->crew++;
    return rc;
}

/* Crew and whatever else there is: we are their init. */
static void end_all(struct launcher *l)
{
    kill(-1, SIGKILL);
    while (waitpid(-1, NULL, 0) > 0 || errno == EINTR)
        ;
    l->zygote = l->reaper = 0;
    l->hosted = false;
}

/* Are there no processes but ours? A host that is not ready yet may have a child, in which it tries what it is to import. */
static bool alone(const struct launcher *l)
{
    const uint32_t crew = 1u + (l->zygote > 0) + (l->reaper > 0), host = warm_alive(&l->warm);
    return cgroup_only_ours(l->kit->pids_now, crew + host) ||
           (host > 0 && !l->warm.ready && cgroup_only_ours(l->kit->pids_now, crew + host + 1));
}

/* Another world, in place of one that cannot be made as new. In that nobody is left but us, warm host and crew: it is unmade
 * by whoever of the dying leaves it last, while we make the other. */
static int world_anew(struct launcher *l, struct err *err)
{
    warm_end(&l->warm);
    if (l->hosted)
        end_all(l);
    const pid_t zygote = l->zygote, reaper = l->reaper;
    crew_kill(l);
    crew_forget(l);
    ipc_end(&l->ipc);
    world_end(&l->world);
    if (l->kit->profile != SANDBOX_STRICT)
        close(l->kit->userns);
    l->kit->profile = SANDBOX_STRICT;
    l->kit->userns = l->userns;
    if (setns(l->lower, CLONE_NEWNS) < 0 || unshare(CLONE_NEWNS) < 0)
        return err_sys(err, ERR_SYS, "new mount namespace");
    int rc = world_begin(l, err);
    crew_reap(l, zygote, reaper);               /* what they hold counts for the next sandbox */
    return rc;
}

/* The sandbox is closed. False: there can be no other here. */
static bool reset(struct launcher *l, bool killed)
{
    struct note ready = { .kind = NOTE_READY };
    struct err err = { 0 };
    if (killed || l->forked || l->command_fd >= 0)
        crew_end(l);
    streams_end(l);
    l->start[0] = '\0';
    const bool as_new = l->kit->profile == SANDBOX_STRICT && (!l->hosted || alone(l)) && world_reset(&l->world, l->kit) &&
                        mount_cpus(&l->world, l->kit->cpus, &err) == 0;
    bool is_new = !as_new;
    int rc = namespaces_renew(l, &err);
    if (rc == 0)
        rc = !as_new ? world_anew(l, &err) : l->ready ? 0 : crew_start(l, &is_new, &err);
    if (rc < 0)
        return false;                           /* another launcher fares better, or tells why not */
    if (is_new)
        crew_tell(l, true);
    ready.crew = is_new ? 0 : l->crew;
    tell(l, &ready, 0, NULL, NULL, 0);
    warm_next(l);
    cell_stack_trim();
    return true;
}

/* One order of the jail. False: it is gone, or this launcher is of no more use. */
static APART bool obey(struct launcher *l)
{
    struct order o;
    struct note n = { 0 };
    struct err err = { 0 };
    int fds[FRAME_FDS_MAX], nfds, done;
    own_fd proxy = -1;
    if (frame_recv(l->kit->sock, &o, sizeof o, fds, &nfds, &err) != (int)sizeof o)
        return false;
    if (o.killed && !l->ready)
        crew_end(l);                            /* it may be dying still */
    if (o.kind == ORDER_ACQUIRE && nfds == __builtin_popcount(o.fds)) {
        n.kind = NOTE_ACQUIRED;
        done = acquire(l, &o, fds, &proxy, &err);
    } else if (o.kind == ORDER_CREW && nfds == 0) {
        n.kind = NOTE_ENDED;
        done = crew_ready(l, &err);
        if (done == 0)
            return true;                        /* NOTE_CREW is told */
    } else if (o.kind == ORDER_RESET && nfds == 0) {
        return reset(l, o.killed);
    } else if (o.kind == ORDER_RUN && nfds == 1 + __builtin_popcount(o.fds) + (int)o.apart) {
        n.kind = NOTE_ENDED;
        /* Another crew than it was for: the run was killed before it began. */
        done = l->ready && o.crew == l->crew ? streams_start(l, &o, fds, &err) : 0;
        for (int i = 0; done == 0 && i < nfds; i++)
            close(fds[i]);
        if (done == 0)
            return true;                        /* its end is told */
        crew_end(l);
        streams_end(l);
    } else if (o.kind == ORDER_FILES && nfds >= 1) {
        n.kind = NOTE_FILES;
        done = 0;
        const bool lent = o.cell.kind == CELL_DIFF && nfds == 2;
        if (lent) {                             /* the agent needs it open, and below the root */
            done = mount_lend(&l->world, fds[1], &err);
            int dir = done < 0 ? -1 : openat(fds[1], ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
            if (done == 0 && dir < 0)
                done = err_sys(&err, ERR_SYS, "tree");
            if (dir >= 0) {
                close(fds[1]);
                fds[1] = dir;
            }
        }
        if (done == 0)
            done = have_done(l, &o.cell, fds, nfds, &err);
        if (lent)
            mount_lend_end(&l->world);
        if (done == ERR_LOST)
            crew_end(l);                        /* no run is to be told of its death */
    } else if (o.kind == ORDER_COLLECT && nfds == 1) {
        struct cell_order c = { .kind = CELL_COLLECT };
        n.kind = NOTE_COLLECTED;
        done = have_done(l, &c, (int[]){ l->world.parts[WORLD_REPORT].dir, fds[0] }, 2, &err);
    } else {
        return false;
    }
    tell(l, &n, done, &err, (int[]){ proxy }, done == 0 && proxy >= 0);
    for (int i = 0; i < nfds; i++)              /* the last descriptor of a detached mount waits for a grace period: told first */
        close(fds[i]);
    return true;
}

static bool relays_idle(const struct launcher *l)
{
    return l->relays[0].to < 0 && l->relays[1].to < 0 && l->relays[RELAY_IN].to < 0;
}

/* Where SIGCHLD comes to. */
static int children_watch(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    return sigprocmask(SIG_BLOCK, &set, NULL) < 0 ? -1 : signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* The world and the first crew. Tells the jail. */
static APART int begin(struct launcher *l)
{
    struct note ready = { .kind = NOTE_READY };
    struct err err = { 0 };
    struct kit *kit = l->kit;
    l->self = pidfd_open(getpid(), 0);
    l->children = children_watch();
    l->last_pid = openat(kit->proc, "sys/kernel/ns_last_pid", O_RDWR | O_CLOEXEC);
    int rc = l->self < 0 || l->children < 0 ? err_sys(&err, ERR_SYS, "pidfd") : 0;
    if (rc == 0 && sethostname(ETC_HOSTNAME, sizeof ETC_HOSTNAME - 1) < 0)
        rc = err_sys(&err, ERR_SYS, "host name");
    if (rc == 0)
        rc = world_begin(l, &err);
    if (rc == 0)
        crew_tell(l, true);
    tell(l, &ready, rc, &err, NULL, 0);
    return rc;
}

struct beginning { struct kit kit; struct net net; int lower; };

static void launcher(void *beginning)
{
    static uint8_t bytes[RELAY_COUNT][RELAY_BYTES];
    struct beginning *b = beginning;
    struct launcher l = { .kit = &b->kit, .net = &b->net, .lower = b->lower, .userns = b->kit.userns, .procs = -1,
                          .zygote_sock = -1, .reaper_fd = -1, .room = -1, .pid1.limits = -1, .command_fd = -1, .sock = -1, .output = { -1, -1 },
                          .rings = { b->kit.ring }, .declared = -1 };
    for (int i = 0; i < RELAY_COUNT; i++)
        l.relays[i] = (struct relay){ .from = -1, .to = -1, .bytes = bytes[i] };
    if (begin(&l) < 0)
        _exit(1);
    cell_stack_trim();
    for (;;) {
        struct pollfd p[8] = {
            { .fd = l.kit->sock, .events = POLLIN },
            { .fd = l.children, .events = POLLIN },
            { .fd = l.ready && l.command_fd < 0 && !l.told ? l.sock : -1, .events = POLLIN },
        };
        for (int i = 0; i < 2; i++)             /* where the reader of a stream is behind, the writer waits */
            p[3 + i] = (struct pollfd){
                .fd = l.over || (l.relays[i].live && l.relays[i].at < l.relays[i].len) ? -1 : l.output[i], .events = POLLIN };
        for (int i = 0; i < RELAY_COUNT; i++)
            p[5 + i] = relay_poll(&l.relays[i]);
        if (poll(p, l.output[1] < 0 && relays_idle(&l) ? 4 : 8, -1) < 0 && errno != EINTR)
            break;
        for (int i = 0; i < RELAY_COUNT; i++)
            if (p[5 + i].revents != 0)
                relay_step(&l.relays[i]);
        if (p[1].revents != 0)
            child_ended(&l);
        else if (p[2].revents != 0)
            hear_birth(&l);
        else if (p[3].revents != 0)
            output(&l, 0);
        else if (p[4].revents != 0)
            output(&l, 1);
        else if (p[0].revents != 0 && !obey(&l))
            break;
    }
    _exit(1);
}

void launcher_main(struct kit *kit, struct net *net, int lower)
{
    const struct beginning b = { *kit, *net, lower };
    cell_rseq_end();                            /* each of ours would have a page of its own for it */
    cell_restart(launcher, &b, sizeof b, 0);    /* all that we write at rest lies in few pages then */
}
