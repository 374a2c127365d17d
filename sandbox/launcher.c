/*
 * launcher.c - a sandbox from its making to its death, and the next ones in the same world while that is as new.
 *
 *   world built, crew ready -> NOTE_CREW, NOTE_READY        crew = reaper + agent of the coming run
 *   ORDER_ACQUIRE: tree, size, edits -> NOTE_ACQUIRED
 *   the jail sends the command to the agent, which becomes it -> NOTE_ENDED
 *   ORDER_COLLECT: a fresh agent reads the report files -> NOTE_COLLECTED
 *   ORDER_CREW: for the next run
 *   ORDER_RESET: run killed, world as new, crew ready -> NOTE_CREW, NOTE_READY, or the launcher ends
 *
 * A run ends when the command (the agent's process) ends: then the reaper ends, and with it all
 * that is left in its pid namespace; only after its death is the rest of the output read and the
 * end told. A fresh crew is made when one is needed again.
 */
#include "base/clock.h"
#include "base/frame.h"
#include "base/own.h"
#include "sandbox/cell.h"
#include "sandbox/cgroup.h"
#include "sandbox/etc.h"
#include "sandbox/keeper.h"
#include "sandbox/mount.h"
#include "sandbox/ring.h"
#include "sandbox/warm.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define WARM_ANSWER_MS_MAX 5000

struct launcher {
    const struct kit *kit;
    struct net *net;
    struct world world;
    int self;                       /* pidfd of the launcher: the way back to its own pid namespace */
    int procs;                      /* /proc of that, in sight of nobody else */
    struct sandbox_limits limits;
    pid_t reaper;                   /* 0: none */
    int reaper_fd, agent_fd;        /* pidfds; of the agent -1: none */
    int sock;                       /* to the agent */
    int output;                     /* read end of its output; -1: all have closed it */
    bool over;                      /* more output than allowed: killed for it */
    struct warm warm;
    int declared;                   /* the warm command of this sandbox, or the last; -1: none */
    bool missed;                    /* the last sandbox that declared one declared another than there is */
    char start[sizeof ((struct sandbox_result){ 0 }).start];    /* how this sandbox's next run begins */
};

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

/* The wait status of the agent, which is dead or dying. */
static int agent_reap(struct launcher *l)
{
    siginfo_t how = { 0 };
    while (waitid(P_PIDFD, (id_t)l->agent_fd, &how, WEXITED) < 0 && errno == EINTR)
        ;
    close(l->agent_fd);
    l->agent_fd = -1;
    return how.si_code == CLD_EXITED ? W_EXITCODE(how.si_status, 0)
         : how.si_status | (how.si_code == CLD_DUMPED ? WCOREFLAG : 0);
}

/* Kill and reap what the last run left. The agent goes first: the namespace cannot end before it is reaped. */
static void crew_end(struct launcher *l)
{
    if (l->reaper > 0)
        pidfd_send_signal(l->reaper_fd, SIGKILL, NULL, 0);
    else if (l->agent_fd >= 0)
        pidfd_send_signal(l->agent_fd, SIGKILL, NULL, 0);
    if (l->agent_fd >= 0)
        agent_reap(l);
    if (l->reaper > 0) {
        /* Whoever has us as parent by CLONE_PARENT holds up the end of the namespace until reaped: take what comes. */
        for (pid_t pid; (pid = waitpid(-1, NULL, 0)) != l->reaper && (pid > 0 || errno == EINTR); )
            if (pid == l->warm.pid)
                l->warm.pid = -1;
        close(l->reaper_fd);
    }
    if (l->sock >= 0)
        close(l->sock);
    if (l->output >= 0)
        close(l->output);
    l->reaper = 0;
    l->sock = l->output = -1;
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

/* A crew's sockets (reaper's and agent's, ours first) and output pipe. */
struct lines { int first[2], pair[2], pipe[2]; };

static int lines_open(struct lines *n, const struct kit *kit, struct err *err)
{
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, n->first) < 0)
        return err_sys(err, ERR_SYS, "socket");
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, n->pair) < 0) {
        close_both(n->first);
        return err_sys(err, ERR_SYS, "socket");
    }
    /* The pipe can be opened again through /dev/stdout, whose owner is asked. */
    int rc = pipe2(n->pipe, O_CLOEXEC);
    if (rc < 0 || fchown(n->pipe[1], kit->uid, kit->uid) < 0 || fcntl(n->pipe[0], F_SETFL, O_NONBLOCK) < 0) {
        err_sys(err, ERR_SYS, "output pipe");
        if (rc == 0)
            close_both(n->pipe);
        close_both(n->first);
        close_both(n->pair);
        return err->code;
    }
    return 0;
}

/* The agent's side goes to `l`; the rest of a crew's start is over, or failed. */
static int lines_close(struct launcher *l, const struct lines *n, int rc, const struct err *err)
{
    close(n->first[0]);
    struct note crew = { .kind = NOTE_CREW };
    if (rc < 0)
        crew_end(l);
    else
        tell(l, &crew, 0, err, (int[]){ l->reaper_fd, l->sock }, 2);
    return rc;
}

/* Back to our own pid namespace, and no /proc of another. */
static int crew_room(struct launcher *l, struct err *err)
{
    if (l->world.proc_mounted && umount2("/proc", MNT_DETACH | UMOUNT_NOFOLLOW) < 0)
        return err_sys(err, ERR_SYS, "old /proc");
    l->world.proc_mounted = false;
    return setns(l->self, CLONE_NEWPID) < 0 ? err_sys(err, ERR_SYS, "pid namespace") : 0;
}

static int crew_start(struct launcher *l, struct err *err)
{
    struct lines n;
    int rc = crew_room(l, err);
    if (rc == 0 && unshare(CLONE_NEWPID) < 0)
        rc = err_sys(err, ERR_SYS, "pid namespace");
    if (rc == 0)
        rc = lines_open(&n, l->kit, err);
    if (rc < 0)
        return rc;
    l->over = false;
    l->reaper = fork();
    if (l->reaper == 0)
        cell_reaper(l->kit, &l->world, n.first[1]);
    pid_t agent = -1;
    if (l->reaper > 0) {
        l->reaper_fd = pidfd_open(l->reaper, 0);
        agent = fork();
        if (agent == 0)
            cell_agent(l->kit, n.pair[1], n.pipe[1]);
        if (agent > 0)
            l->agent_fd = pidfd_open(agent, 0);
    }
    rc = l->reaper < 0 || agent < 0 ? err_sys(err, ERR_SYS, "fork") : 0;
    close(n.first[1]);
    close(n.pair[1]);
    close(n.pipe[1]);
    l->sock = n.pair[0];
    l->output = n.pipe[0];
    if (rc == 0)
        rc = await_answer(n.first[0], err);
    if (rc == 0)
        rc = frame_send(n.first[0], "", 1, &l->agent_fd, 1, err);
    if (rc == 0)
        rc = await_answer(l->sock, err);
    l->world.proc_mounted = true;
    return lines_close(l, &n, rc, err);
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
                cell_reaper_within(sock);
        }
        _exit(0);
    }
    while (between > 0 && waitpid(between, NULL, 0) < 0 && errno == EINTR)
        ;
    return made;
}

/* /proc of the reaper's namespace; *out is a descriptor of it, *out_ns of the namespace. Only a process in there can mount it,
 * and only we are let: one of us goes in, under a number that leaves 2 to the agent. */
static int proc_within(struct launcher *l, int *out, int *out_ns, struct err *err)
{
    pid_t number = 3;
    struct clone_args args = { .exit_signal = SIGCHLD, .set_tid = (uintptr_t)&number, .set_tid_size = 1 };
    int status = -1;
    if (setns(l->reaper_fd, CLONE_NEWPID) < 0)
        return err_sys(err, ERR_SYS, "pid namespace");
    pid_t pid = (pid_t)syscall(SYS_clone3, &args, sizeof args);
    if (pid == 0)
        _exit(mount_proc(&l->world, err) < 0);
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    l->world.proc_mounted = status == 0;
    int rc = status == 0 ? 0 : err_sys(err, ERR_SYS, "/proc of a run");
    if (rc == 0 && (*out = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW)) < 0)
        rc = err_sys(err, ERR_SYS, "/proc");
    if (rc == 0 && (*out_ns = openat(*out, "1/ns/pid", O_RDONLY | O_CLOEXEC)) < 0)
        rc = err_sys(err, ERR_SYS, "pid namespace");
    return setns(l->self, CLONE_NEWPID) < 0 ? err_sys(err, ERR_SYS, "pid namespace") : rc;
}

static bool answers_soon(int sock)
{
    struct pollfd p = { .fd = sock, .events = POLLIN };
    return poll(&p, 1, WARM_ANSWER_MS_MAX) > 0;
}

static int crew_start_warm(struct launcher *l, struct err *err)
{
    struct lines n;
    own_fd proc = -1, ns = -1;
    int fds[FRAME_FDS_MAX], nfds = 0;
    char byte;
    crew_end(l);
    int rc = crew_room(l, err);
    if (rc == 0)
        rc = lines_open(&n, l->kit, err);
    if (rc < 0)
        return rc;
    l->over = false;
    l->reaper = reaper_within(l, n.first[1]);
    if (l->reaper > 0)
        l->reaper_fd = pidfd_open(l->reaper, 0);
    else
        rc = err_sys(err, ERR_SYS, "fork");
    close(n.first[1]);
    l->sock = n.pair[0];
    l->output = n.pipe[0];
    if (rc == 0)
        rc = await_answer(n.first[0], err);
    if (rc == 0)
        rc = proc_within(l, &proc, &ns, err);
    if (rc == 0)
        rc = warm_fork(&l->warm, ns, CLONE_NEWIPC | (l->warm.net != l->net->count ? CLONE_NEWNET : 0u), n.pair[1], n.pipe[1], err);
    close(n.pair[1]);
    close(n.pipe[1]);
    if (rc == 0)
        rc = answers_soon(l->sock) ? await_answer(l->sock, err) : err_set(err, ERR_DEADLINE, "the fork of the warm process is silent");
    if (rc == 0)
        rc = warm_verify(proc, l->kit->uid, err);
    if (rc == 0)
        rc = frame_send(n.first[0], "", 1, NULL, 0, err);
    if (rc == 0 && (frame_recv(n.first[0], &byte, 1, fds, &nfds, err) != 1 || nfds != 1))
        rc = err_set(err, ERR_LOST, "reaper");
    if (rc == 0) {
        siginfo_t mine;
        l->agent_fd = fds[0];
        /* Ours to wait for? If not, its end would never be told. */
        if (waitid(P_PIDFD, (id_t)l->agent_fd, &mine, WEXITED | WNOHANG | WNOWAIT) < 0) {
            close(l->agent_fd);
            l->agent_fd = -1;
            rc = err_sys(err, ERR_SYS, "the fork of the warm process");
        }
    }
    if (rc < 0)
        warm_end(&l->warm);
    return lines_close(l, &n, rc, err);
}

static int ask_agent(struct launcher *l, const struct cell_order *o, const int *fds, int nfds, struct err *err)
{
    int rc = l->agent_fd >= 0 ? 0 : crew_start(l, err);
    if (rc == 0)
        rc = frame_send(l->sock, o, sizeof *o, fds, nfds, err);
    return rc;
}

static void cold(struct launcher *l, const char *why)
{
    snprintf(l->start, sizeof l->start, "cold: %.*s", (int)sizeof l->start - 7, why);
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
    if (l->declared < 0 || l->limits.memory_bytes < WARM_MEMORY_MIN || warm_is(&l->warm, l->declared)) {
        l->missed = false;
        return;
    }
    if (l->warm.pid <= 0 || l->missed) {
        warm_end(&l->warm);
        if (setns(l->self, CLONE_NEWPID) < 0 || warm_start(&l->warm, l->kit, l->declared, l->net->count, &err) < 0)
            l->warm.pid = 0;                    /* none: the next sandbox is cold, and we try again after it */
    }
    l->missed = !l->missed;
}

static int acquire(struct launcher *l, const struct order *o, const int *fds, struct err *err)
{
    int next = 0, rc = 0;
    l->limits = o->limits;
    int tree = o->fds & GRANT_FD_TREE ? fds[next++] : -1;
    int edits = o->fds & GRANT_FD_EDITS ? fds[next++] : -1;
    int root = o->fds & GRANT_FD_ROOT ? fds[next++] : -1;
    int declared = o->fds & GRANT_FD_WARM ? fds[next++] : -1;
    if (root >= 0) {
        crew_end(l);                  /* made for the other root */
        rc = mount_root(&l->world, l->kit, root, err);
    }
    if (rc == 0)
        rc = mount_store_size(&l->world, l->limits.disk_bytes, l->limits.disk_inodes, err);
    if (rc == 0 && tree >= 0 && o->tree_own)
        rc = mount_tree(&l->world, l->kit, tree, err);
    if (rc == 0 && tree >= 0 && !o->tree_own) {
        struct cell_order c = { .kind = CELL_COPY };
        own_fd dir = openat(tree, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        rc = dir < 0 ? err_sys(err, ERR_SYS, "snapshot tree") : ask_agent(l, &c, (int[]){ dir }, 1, err);
        if (rc == 0)
            rc = await_answer(l->sock, err);
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

/* Some output of the command, or its end. */
static void output(struct launcher *l)
{
    if (!ring_take(l->kit->ring, l->output)) {
        close(l->output);                       /* everyone closed it: the end comes by the pidfd */
        l->output = -1;
    }
    if (!l->over && l->kit->ring->total > l->kit->ring->max) {
        l->over = true;
        pidfd_send_signal(l->reaper_fd, SIGKILL, NULL, 0);
    }
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
    own_fd rest = l->output;
    l->output = -1;
    n.status = agent_reap(l);
    /* As a rule the command was the last of its kind; then the end of the crew can wait until the end of the run is told. */
    if (!cgroup_only_ours(l->kit->pids_now))
        crew_end(l);
    for (bool more = rest >= 0; more; ) {
        uint64_t was = l->kit->ring->total;
        more = ring_take(l->kit->ring, rest) && l->kit->ring->total != was;
    }
    struct stat st;
    struct statfs fs;
    const struct part *report = &l->world.parts[WORLD_REPORT];
    n.report = fstat(report->dir, &st) == 0 && st.st_size != (off_t)report->was.stx_size;
    n.disk_full = fstatfs(l->world.store, &fs) == 0 && (fs.f_bavail == 0 || fs.f_ffree == 0);
    memcpy(n.msg, l->start, sizeof l->start);
    if (l->start[0] != '\0')
        cold(l, "not the first command of its sandbox");
    tell(l, &n, rc, &err, NULL, 0);
    crew_end(l);
}

/* The sandbox is closed. False: what it left cannot be taken away. */
static bool reset(struct launcher *l)
{
    struct note ready = { .kind = NOTE_READY };
    struct err err = { 0 };
    crew_end(l);
    if (!world_reset(&l->world, l->kit) || net_renew(l->net, &err) < 0 || unshare(CLONE_NEWIPC) < 0)
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
    if (frame_recv(l->kit->sock, &o, sizeof o, fds, &nfds, &err) != (int)sizeof o)
        return false;
    if (o.kind == ORDER_ACQUIRE && nfds == __builtin_popcount(o.fds)) {
        n.kind = NOTE_ACQUIRED;
        done = acquire(l, &o, fds, &err);
    } else if (o.kind == ORDER_CREW && nfds == 0) {
        n.kind = NOTE_ENDED;
        done = l->agent_fd >= 0 ? 0 : crew_start(l, &err);
        if (done == 0)
            return true;                        /* NOTE_CREW is told */
    } else if (o.kind == ORDER_RESET && nfds == 0) {
        return reset(l);
    } else if (o.kind == ORDER_COLLECT && nfds == 1) {
        struct cell_order c = { .kind = CELL_COLLECT };
        n.kind = NOTE_COLLECTED;
        done = ask_agent(l, &c, (int[]){ l->world.parts[WORLD_REPORT].dir, fds[0] }, 2, &err);
        if (done == 0)
            done = await_answer(l->sock, &err);
    } else {
        return false;
    }
    tell(l, &n, done, &err, NULL, 0);
    for (int i = 0; i < nfds; i++)              /* the last descriptor of a detached mount waits for a grace period: told first */
        close(fds[i]);
    return true;
}

void launcher_main(const struct kit *kit, struct net *net, int proc)
{
    struct launcher l = { .kit = kit, .net = net, .reaper_fd = -1, .agent_fd = -1, .sock = -1, .output = -1,
                          .declared = -1 };
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
    if (rc == 0)
        rc = (l.procs = mount_proc_hidden(&err)) < 0 ? err.code : 0;
    if (rc == 0)
        rc = mount_world(&l.world, kit, &err);
    if (rc == 0)
        rc = crew_start(&l, &err);
    struct note ready = { .kind = NOTE_READY };
    tell(&l, &ready, rc, &err, NULL, 0);
    while (rc == 0) {
        struct pollfd p[3] = {
            { .fd = kit->sock, .events = POLLIN }, { .fd = l.agent_fd, .events = POLLIN },
            { .fd = l.output, .events = POLLIN },
        };
        if (poll(p, 3, -1) < 0 && errno != EINTR)
            break;
        if (p[1].revents != 0)
            ended(&l);
        else if (p[2].revents != 0)
            output(&l);
        else if (p[0].revents != 0 && !obey(&l))
            break;
    }
    _exit(1);
}
