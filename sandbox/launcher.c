/*
 * launcher.c - a sandbox from its making to its death, and the next ones in the same world while that is as new.
 *
 *   world built, crew ready -> NOTE_CREW, NOTE_READY        crew = reaper + agent of the coming run
 *   ORDER_ACQUIRE: tree, size, edits -> NOTE_ACQUIRED
 *   the jail sends the command to the agent, which becomes it -> NOTE_ENDED
 *   ORDER_COLLECT: a fresh agent reads the report files -> NOTE_COLLECTED
 *   ORDER_CREW: for the next run
 *   ORDER_RUN: a command with streams goes to the agent through here, and its bytes (relay.h)
 *   ORDER_RESET: run killed, world as new, crew ready -> NOTE_CREW, NOTE_READY, or the launcher ends
 *
 * A run ends when the command (the agent's process) ends: then the reaper is killed, and with it all
 * that is left in its pid namespace; only after its death is the rest of the output read and the
 * end told. Where nothing was left the reaper may serve again, otherwise a fresh crew is made when
 * one is needed.
 */
#include "base/clock.h"
#include "base/frame.h"
#include "base/own.h"
#include "sandbox/cell.h"
#include "sandbox/cgroup.h"
#include "sandbox/etc.h"
#include "sandbox/keeper.h"
#include "sandbox/mount.h"
#include "sandbox/relay.h"
#include "sandbox/ring.h"
#include "sandbox/warm.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define WARM_ANSWER_MS_MAX 5000

struct launcher {
    struct kit *kit;                /* our own copy since the fork */
    struct net *net;
    struct world world;
    int self;                       /* pidfd of the launcher: the way back to its own pid namespace */
    int procs;                      /* /proc of that, in sight of nobody else */
    struct sandbox_limits limits;
    pid_t reaper;                   /* 0: none */
    int reaper_fd, agent_fd;        /* pidfds; -1: no agent */
    int sock;                       /* to the agent */
    uint32_t crew;                  /* number of the crew */
    int output[2];                  /* read ends of its output, and of standard error if apart; -1: all have closed it */
    struct ring *rings[2];          /* where that is kept; the second only with standard error apart */
    bool over;                      /* more output than allowed: killed for it */
    bool within;                    /* the crew's pid namespace was made for a warm start: it serves one run */
    struct warm warm;
    int declared;                   /* the warm command of this sandbox, or the last; -1: none */
    bool missed;                    /* the last sandbox that declared one declared another than there is */
    char start[sizeof ((struct sandbox_result){ 0 }).start];    /* how this sandbox's next run begins */
};

static struct relay relays[3];      /* output and errors of a run to the caller, input to the run */
enum { RELAY_IN = 2 };

static int await_cell(int sock, struct cell_answer *out, struct err *err)
{
    struct cell_answer a;
    struct err bad = { 0 };
    int fds[FRAME_FDS_MAX], nfds;
    int n = frame_recv(sock, &a, sizeof a, fds, &nfds, &bad);
    for (int i = 0; i < nfds; i++)
        close(fds[i]);
    *out = a;
    if (n != (int)sizeof a)
        return err_set(err, ERR_LOST, "the sandbox's own process died%s%s", n < 0 ? ": " : "", n < 0 ? bad.msg : "");
    if (a.rc < 0) {
        err_set(err, a.rc, "%.*s", (int)sizeof a.msg - 1, a.msg);
        err->sys = a.sys;
    }
    return a.rc;
}

static int await_answer(int sock, struct err *err)
{
    struct cell_answer a;
    return await_cell(sock, &a, err);
}

/* The agent is dead or dying: how it ended, and what it used, into *out (NULL: nobody asks). */
static void agent_reap(struct launcher *l, struct note *out)
{
    siginfo_t how = { 0 };
    struct rusage used = { 0 };
    while (syscall(SYS_waitid, P_PIDFD, l->agent_fd, &how, WEXITED, &used) < 0 && errno == EINTR)
        ;
    close(l->agent_fd);
    l->agent_fd = -1;
    if (out == NULL)
        return;
    out->status = how.si_code == CLD_EXITED ? W_EXITCODE(how.si_status, 0)
                : how.si_status | (how.si_code == CLD_DUMPED ? WCOREFLAG : 0);
    out->cpu_ns = (uint64_t)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * NS_PER_S +
                  (uint64_t)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1000;
    out->rss_bytes = (uint64_t)used.ru_maxrss << 10;
}

/* Kill and reap what the last run left. The agent goes first: the namespace cannot end before it is reaped. */
static void crew_end(struct launcher *l)
{
    if (l->reaper > 0)
        pidfd_send_signal(l->reaper_fd, SIGKILL, NULL, 0);
    else if (l->agent_fd >= 0)
        pidfd_send_signal(l->agent_fd, SIGKILL, NULL, 0);
    if (l->agent_fd >= 0)
        agent_reap(l, NULL);
    if (l->reaper > 0) {
        /* Whoever has us as parent by CLONE_PARENT holds up the end of the namespace until reaped: take what comes. */
        for (pid_t pid; (pid = waitpid(-1, NULL, 0)) != l->reaper && (pid > 0 || errno == EINTR); )
            if (pid == l->warm.pid)
                l->warm.pid = -1;
        close(l->reaper_fd);
    }
    if (l->sock >= 0)
        close(l->sock);
    for (int i = 0; i < 2; i++)
        if (l->output[i] >= 0)
            close(l->output[i]);
    l->reaper = 0;
    l->within = false;
    l->sock = l->output[0] = l->output[1] = -1;
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

/* Let go of the last run's /proc and pid namespace: children are born into our own again. */
static int namespace_leave(struct launcher *l, struct err *err)
{
    if (l->world.proc_mounted && umount2("/proc", MNT_DETACH | UMOUNT_NOFOLLOW) < 0)
        return err_sys(err, ERR_SYS, "old /proc");
    l->world.proc_mounted = false;
    return setns(l->self, CLONE_NEWPID) < 0 ? err_sys(err, ERR_SYS, "pid namespace") : 0;
}

/* A new pid namespace with its reaper and its /proc. */
static int reaper_start(struct launcher *l, struct err *err)
{
    int pair[2];
    if (namespace_leave(l, err) < 0)
        return err->code;
    if (unshare(CLONE_NEWPID) < 0)
        return err_sys(err, ERR_SYS, "pid namespace");
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_sys(err, ERR_SYS, "socket");
    l->reaper = fork();
    if (l->reaper == 0)
        cell_reaper(l->kit, &l->world, pair[1]);
    int rc = l->reaper < 0 ? err_sys(err, ERR_SYS, "fork") : 0;
    close(pair[1]);
    if (rc == 0) {
        l->reaper_fd = pidfd_open(l->reaper, 0);
        rc = await_answer(pair[0], err);
    }
    close(pair[0]);
    l->world.proc_mounted = true;
    return rc;
}

/* The second process of the namespace, also where others had that number before; it is not counted there. */
static pid_t fork_second(int *out_pidfd)
{
    pid_t number = 2;
    struct clone_args args = { .flags = CLONE_PIDFD, .pidfd = (uint64_t)(uintptr_t)out_pidfd, .exit_signal = SIGCHLD,
                               .set_tid = (uint64_t)(uintptr_t)&number, .set_tid_size = 1 };
    return (pid_t)syscall(SYS_clone3, &args, sizeof args);
}

/* How far the numbers of the run's pid namespace have come shows in the next one given out there. Where the run was killed
 * none is, and there is no count. */
static void count_tasks(const struct launcher *l)
{
    pid_t pid = fork();
    if (pid == 0) {
        l->kit->ring->tasks = (uint32_t)getpid() - 1;
        _exit(0);
    }
    while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
}

/* Socket and output of the coming agent: our ends in `l`, its own to be handed over. */
static int lines_open(struct launcher *l, int *out_sock, int *out_print, struct err *err)
{
    int pair[2], pipe[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_sys(err, ERR_SYS, "socket");
    if (stream_pipe(l, pipe, 0, err) < 0) {
        close_both(pair);
        return err->code;
    }
    l->over = false;
    l->sock = pair[0];
    l->output[0] = pipe[0];
    *out_sock = pair[1];
    *out_print = pipe[1];
    return 0;
}

static int agent_start(struct launcher *l, bool again, struct err *err)
{
    own_fd theirs = -1, print = -1;
    int rc = lines_open(l, &theirs, &print, err);
    if (rc < 0)
        return rc;
    pid_t agent = fork_second(&l->agent_fd);
    if (agent == 0)
        cell_agent(l->kit, &l->world, theirs, print, again);
    if (agent < 0) {
        l->agent_fd = -1;
        return err_sys(err, ERR_SYS, "fork");
    }
    close(give_fd(&theirs));
    return await_answer(l->sock, err);
}

/* The crew is there, if rc is 0. */
static int crew_tell(struct launcher *l, int rc)
{
    struct note crew = { .kind = NOTE_CREW, .crew = ++l->crew };
    if (rc < 0)
        crew_end(l);
    else
        tell(l, &crew, 0, NULL, (int[]){ l->reaper_fd, l->sock }, 2);
    return rc;
}

/* The reaper of the last run serves again when it is all that lives of it, and when nobody but agents ever lived there: the
 * agent finds out, for the namespace tells the next number to its own only. */
static int crew_start(struct launcher *l, struct err *err)
{
    int rc = l->reaper > 0 ? agent_start(l, true, err) : ERR_BUSY;
    if (rc < 0) {
        crew_end(l);
        rc = reaper_start(l, err);
        if (rc == 0)
            rc = agent_start(l, false, err);
    }
    return crew_tell(l, rc);
}

/* ---- a crew whose agent is a warm host's fork ---- */

/* The reaper of a pid namespace that belongs to the slot's user namespace: begun by a process that entered that, as our child. */
static pid_t reaper_within(const struct launcher *l, int sock)
{
    volatile pid_t made = -1;
    pid_t between = vfork();
    if (between == 0) {
        if (setns(l->kit->userns, CLONE_NEWUSER) == 0 && unshare(CLONE_NEWPID) == 0) {
            made = (pid_t)syscall(SYS_clone, CLONE_PARENT | SIGCHLD, NULL, NULL, NULL, NULL);
            if (made == 0)
                cell_reaper_within(l->kit, sock);
        }
        _exit(0);
    }
    while (between > 0 && waitpid(between, NULL, 0) < 0 && errno == EINTR)
        ;
    return made;
}

static int mount_there(const struct launcher *l)
{
    struct err err;
    return mount_proc(&l->world, &err) < 0 ? -1 : 0;
}

static int open_second(const struct launcher *l)
{
    (void)l;
    return pidfd_open(2, 0);
}

/* Have `job` done by a process of ours in the crew's pid namespace; what it opens is ours too. It takes a number that the
 * namespace does not count, so 2 is left to the agent. Returns what the job returned, if that is less than 255. */
static int do_within(const struct launcher *l, int (*job)(const struct launcher *))
{
    pid_t number = 3;
    struct clone_args args = { .flags = CLONE_FILES, .exit_signal = SIGCHLD, .set_tid = (uintptr_t)&number, .set_tid_size = 1 };
    int status = -1;
    if (setns(l->reaper_fd, CLONE_NEWPID) < 0)
        return -1;
    pid_t pid = (pid_t)syscall(SYS_clone3, &args, sizeof args);
    if (pid == 0)
        _exit(job(l) & 255);
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (setns(l->self, CLONE_NEWPID) < 0 || pid < 0 || !WIFEXITED(status) || WEXITSTATUS(status) == 255)
        return -1;
    return WEXITSTATUS(status);
}

/* Pid namespace, reaper and /proc; *out is a descriptor of that, *out_ns of the namespace. */
static int room_within(struct launcher *l, int *out, int *out_ns, struct err *err)
{
    int pair[2];
    if (namespace_leave(l, err) < 0)
        return err->code;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_sys(err, ERR_SYS, "socket");
    own_fd ours = pair[0], theirs = pair[1];
    pid_t reaper = reaper_within(l, theirs);
    if (reaper < 0)
        return err_sys(err, ERR_SYS, "fork");
    l->reaper = reaper;
    l->reaper_fd = pidfd_open(reaper, 0);
    l->within = true;
    close(give_fd(&theirs));
    int rc = await_answer(ours, err);
    if (rc == 0 && do_within(l, mount_there) < 0)
        rc = err_sys(err, ERR_SYS, "/proc of a run");
    l->world.proc_mounted = rc == 0;
    if (rc == 0 && ((*out = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW)) < 0 ||
                    (*out_ns = openat(*out, "1/ns/pid", O_RDONLY | O_CLOEXEC)) < 0))
        rc = err_sys(err, ERR_SYS, "/proc");
    return rc;
}

static bool answers_soon(int sock)
{
    struct pollfd p = { .fd = sock, .events = POLLIN };
    return poll(&p, 1, WARM_ANSWER_MS_MAX) > 0;
}

static int crew_start_warm(struct launcher *l, struct err *err)
{
    own_fd proc = -1, ns = -1, theirs = -1, print = -1;
    siginfo_t ours;
    crew_end(l);
    int rc = room_within(l, &proc, &ns, err);
    if (rc == 0)
        rc = lines_open(l, &theirs, &print, err);
    if (rc == 0)
        rc = warm_fork(&l->warm, ns, CLONE_NEWIPC | (l->warm.net != l->net->count ? CLONE_NEWNET : 0u), theirs, print, err);
    if (theirs >= 0)
        close(give_fd(&theirs));
    if (rc == 0)
        rc = answers_soon(l->sock) ? await_answer(l->sock, err)
           : err_set(err, ERR_DEADLINE, "the fork of the warm process is silent");
    if (rc == 0)
        rc = warm_verify(proc, l->kit->uid, err);
    if (rc == 0 && (l->agent_fd = do_within(l, open_second)) < 0)
        rc = err_sys(err, ERR_SYS, "the fork of the warm process");
    /* Ours to wait for? If not, its end would never be told. */
    if (rc == 0 && waitid(P_PIDFD, (id_t)l->agent_fd, &ours, WEXITED | WNOHANG | WNOWAIT) < 0) {
        rc = err_sys(err, ERR_SYS, "the fork of the warm process");
        close(l->agent_fd);
        l->agent_fd = -1;
    }
    if (rc < 0)
        warm_end(&l->warm);
    return crew_tell(l, rc);
}

static void cold(struct launcher *l, const char *why)
{
    snprintf(l->start, sizeof l->start, "cold: %.*s", (int)sizeof l->start - 7, why);
}

static int ask_agent(struct launcher *l, const struct cell_order *o, const int *fds, int nfds, struct err *err)
{
    if (l->within && l->agent_fd >= 0) {        /* that one can only become the command */
        crew_end(l);
        cold(l, "files were asked for before the command");
    }
    int rc = l->agent_fd >= 0 ? 0 : crew_start(l, err);
    if (rc == 0)
        rc = frame_send(l->sock, o, sizeof *o, fds, nfds, err);
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
        if (setns(l->self, CLONE_NEWPID) < 0 || warm_start(&l->warm, l->kit, l->declared, l->net->count, &err) < 0)
            l->warm.pid = 0;                    /* none: the next sandbox is cold, and we try again after it */
        if (l->reaper > 0 && setns(l->reaper_fd, CLONE_NEWPID) < 0)
            crew_end(l);                        /* agents are born where we say */
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
            rc = ask_agent(l, &c, (int[]){ dir }, 1, err);
        if (rc == 0)
            rc = await_answer(l->sock, err);
        mount_lend_end(&l->world);
    }
    l->start[0] = '\0';
    if (l->limits.memory_bytes < WARM_MEMORY_MIN)
        warm_end(&l->warm);
    if (rc == 0 && declared >= 0)
        warm_up(l, declared);
    if (rc == 0 && edits >= 0) {
        struct cell_order c = { .kind = CELL_EDITS };
        rc = ask_agent(l, &c, &edits, 1, err);
        if (rc == 0)
            rc = await_answer(l->sock, err);
    }
    if (rc == 0 && declared >= 0 && l->start[0] == '\0') {
        struct err why = { 0 };
        if (crew_start_warm(l, &why) < 0) {
            cold(l, why.msg);
            rc = crew_start(l, err);
        }
    }
    return rc;
}

static void streams_end(struct launcher *l)
{
    for (int i = 0; i < 3; i++)
        relay_close(&relays[i]);
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
        relay_open(&relays[RELAY_IN], mine[0], in[1]);
    else if (mine[0] >= 0)
        close(mine[0]);
    for (int i = 0; i < 2; i++)
        if (mine[i + 1] >= 0)
            relay_open(&relays[i], -1, mine[i + 1]);
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
    struct relay *r = &relays[i];
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
    struct relay *r = &relays[i];
    own_fd rest = pipe, copy = rest >= 0 && r->live && r->to >= 0 && !l->over ? pipe_copy(rest) : -1;
    uint64_t kept = 0;
    for (ssize_t n = 1; rest >= 0 && n > 0; kept += n > 0 ? (uint64_t)n : 0)
        n = ring_take(l->rings[i], copy >= 0 ? copy : rest, allowed(l), chunk, sizeof chunk);
    if (r->live)
        relay_finish(r, copy >= 0 ? give_fd(&rest) : -1, kept);
}

/* The agent is dead, as the command or before it became that. */
static void ended(struct launcher *l)
{
    struct note n = { .kind = NOTE_ENDED, .ended_ns = clock_mono_ns() };
    struct err err = { 0 };
    /* The agent's socket closes at exec; an answer there means that there was none. A warm one tells first which it was. */
    struct pollfd said = { .fd = l->sock, .events = POLLIN };
    int rc = 0;
    while (rc == 0 && poll(&said, 1, 0) > 0 && (said.revents & POLLIN)) {
        struct err why = { 0 };
        struct cell_answer a;
        if (await_cell(l->sock, &a, &why) == 0) {
            snprintf(l->start, sizeof l->start, "%.*s", (int)sizeof l->start - 1, a.msg);
        } else if (why.code != ERR_LOST) {
            err = why;
            rc = why.code;
        } else {
            break;
        }
    }
    struct statfs fs;
    n.disk_full = fstatfs(l->world.store, &fs) == 0 && (fs.f_bavail == 0 || fs.f_ffree == 0);
    const int rest[2] = { l->output[0], l->output[1] };
    l->output[0] = l->output[1] = -1;
    agent_reap(l, &n);
    close(l->sock);
    l->sock = -1;
    if (l->kit->ring->measure && !l->within)
        count_tasks(l);
    if (l->over || l->within || !cgroup_only_ours(l->kit->pids_now, l->kit->pids_ours + warm_alive(&l->warm)))
        crew_end(l);                            /* as a rule the command was the last of its kind */
    drain(l, 0, rest[0]);
    relay_close(&relays[RELAY_IN]);
    if (l->rings[1] != NULL) {
        drain(l, 1, rest[1]);
        munmap(l->rings[1], sizeof(struct ring));
        l->rings[1] = NULL;
    }
    struct stat st;
    const struct part *report = &l->world.parts[WORLD_REPORT];
    n.report = fstat(report->dir, &st) == 0 && st.st_size != (off_t)report->was.stx_size;
    memcpy(n.msg, l->start, sizeof l->start);
    if (l->start[0] != '\0')
        cold(l, "not the first command of its sandbox");
    tell(l, &n, rc, &err, NULL, 0);
}

/* The sandbox is closed. False: what it left cannot be taken away. */
static bool reset(struct launcher *l)
{
    struct note ready = { .kind = NOTE_READY };
    struct err err = { 0 };
    if (l->agent_fd >= 0 || l->within)
        crew_end(l);
    streams_end(l);
    if (l->kit->profile != SANDBOX_STRICT || !world_reset(&l->world, l->kit) || net_renew(l->net, &err) < 0 ||
        unshare(CLONE_NEWIPC) < 0 ||
        (l->kit->landlock >= 2 && mount_queues(&l->world, &err) < 0) || mount_cpus(&l->world, l->kit->cpus, &err) < 0)
        return false;
    l->start[0] = '\0';
    int rc = crew_start(l, &err);
    tell(l, &ready, rc, &err, NULL, 0);
    if (rc == 0)
        warm_next(l);
    return rc == 0;
}

/* One order of the jail. False: it is gone, or this launcher is of no more use. */
static bool obey(struct launcher *l)
{
    struct order o;
    struct note n = { 0 };
    struct err err = { 0 };
    int fds[FRAME_FDS_MAX], nfds, done;
    own_fd proxy = -1;
    if (frame_recv(l->kit->sock, &o, sizeof o, fds, &nfds, &err) != (int)sizeof o)
        return false;
    if (o.killed && l->agent_fd < 0)
        crew_end(l);                            /* it may be dying still */
    if (o.kind == ORDER_ACQUIRE && nfds == __builtin_popcount(o.fds)) {
        n.kind = NOTE_ACQUIRED;
        done = acquire(l, &o, fds, &proxy, &err);
    } else if (o.kind == ORDER_CREW && nfds == 0) {
        n.kind = NOTE_ENDED;
        done = l->agent_fd >= 0 ? 0 : crew_start(l, &err);
        if (done == 0)
            return true;                        /* NOTE_CREW is told */
    } else if (o.kind == ORDER_RESET && nfds == 0) {
        return reset(l);
    } else if (o.kind == ORDER_RUN && nfds == 1 + __builtin_popcount(o.fds) + (int)o.apart) {
        n.kind = NOTE_ENDED;
        /* Another crew than it was for: the run was killed before it began. */
        done = l->agent_fd >= 0 && o.crew == l->crew ? streams_start(l, &o, fds, &err) : 0;
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
            done = ask_agent(l, &o.cell, fds, nfds, &err);
        if (done == 0)
            done = await_answer(l->sock, &err);
        if (lent)
            mount_lend_end(&l->world);
        if (done == ERR_LOST)
            crew_end(l);                        /* no run is to be told of its death */
    } else if (o.kind == ORDER_COLLECT && nfds == 1) {
        struct cell_order c = { .kind = CELL_COLLECT };
        n.kind = NOTE_COLLECTED;
        done = ask_agent(l, &c, (int[]){ l->world.parts[WORLD_REPORT].dir, fds[0] }, 2, &err);
        if (done == 0)
            done = await_answer(l->sock, &err);
    } else {
        return false;
    }
    tell(l, &n, done, &err, (int[]){ proxy }, done == 0 && proxy >= 0);
    for (int i = 0; i < nfds; i++)              /* the last descriptor of a detached mount waits for a grace period: told first */
        close(fds[i]);
    return true;
}

static bool relays_idle(void)
{
    return relays[0].to < 0 && relays[1].to < 0 && relays[RELAY_IN].to < 0;
}

void launcher_main(struct kit *kit, struct net *net, int proc)
{
    struct launcher l = { .kit = kit, .net = net, .reaper_fd = -1, .agent_fd = -1, .sock = -1, .output = { -1, -1 },
                          .rings = { kit->ring }, .declared = -1 };
    struct err err = { 0 };
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_NAME, "launcher");
    signal(SIGPIPE, SIG_IGN);
    l.self = pidfd_open(getpid(), 0);
    int rc = l.self < 0 ? err_sys(&err, ERR_SYS, "pidfd") : 0;
    if (rc == 0 && sethostname(ETC_HOSTNAME, sizeof ETC_HOSTNAME - 1) < 0)
        rc = err_sys(&err, ERR_SYS, "host name");
    if (rc == 0)
        rc = net_watch(net, proc, &err);
    close(proc);
    if (rc == 0 && (l.procs = kit->rootless ? -1 : mount_proc_hidden(&err)) < 0)
        err.code = 0;                           /* then no warm process is found fit */
    if (rc == 0)
        rc = mount_world(&l.world, kit, &err);
    if (rc == 0 && kit->landlock >= 2)
        rc = mount_queues(&l.world, &err);
    if (rc == 0)
        rc = crew_start(&l, &err);
    struct note ready = { .kind = NOTE_READY };
    tell(&l, &ready, rc, &err, NULL, 0);
    for (int i = 0; i < 3; i++)
        relays[i].from = relays[i].to = -1;
    while (rc == 0) {
        struct pollfd p[7] = {
            { .fd = kit->sock, .events = POLLIN },
            { .fd = l.agent_fd >= 0 ? l.agent_fd : l.reaper > 0 ? l.reaper_fd : -1, .events = POLLIN },
        };
        for (int i = 0; i < 2; i++)             /* where the reader of a stream is behind, the writer waits */
            p[2 + i] = (struct pollfd){
                .fd = l.over || (relays[i].live && relays[i].at < relays[i].len) ? -1 : l.output[i], .events = POLLIN };
        for (int i = 0; i < 3; i++)
            p[4 + i] = relay_poll(&relays[i]);
        if (poll(p, l.output[1] < 0 && relays_idle() ? 3 : 7, -1) < 0 && errno != EINTR)
            break;
        for (int i = 0; i < 3; i++)
            if (p[4 + i].revents != 0)
                relay_step(&relays[i]);
        if (p[1].revents != 0 && l.agent_fd < 0)
            crew_end(&l);
        else if (p[1].revents != 0)
            ended(&l);
        else if (p[2].revents != 0)
            output(&l, 0);
        else if (p[3].revents != 0)
            output(&l, 1);
        else if (p[0].revents != 0 && !obey(&l))
            break;
    }
    _exit(1);
}
