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
#include "sandbox/etc.h"
#include "sandbox/keeper.h"
#include "sandbox/mount.h"
#include "sandbox/ring.h"
#include <errno.h>
#include <fcntl.h>
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
#include <sys/wait.h>

struct launcher {
    const struct kit *kit;
    struct net *net;
    struct world world;
    int self;                       /* pidfd of the launcher: the way back to its own pid namespace */
    struct sandbox_limits limits;
    pid_t reaper, agent;            /* 0: none */
    int reaper_fd, agent_fd;        /* pidfds */
    int sock;                       /* to the agent */
    int output;                     /* read end of its output; -1: all have closed it */
    bool over;                      /* more output than allowed: killed for it */
};

static int await_answer(int sock, struct err *err)
{
    struct cell_answer a;
    struct err bad = { 0 };
    int fds[FRAME_FDS_MAX], nfds;
    int n = frame_recv(sock, &a, sizeof a, fds, &nfds, &bad);
    for (int i = 0; i < nfds; i++)
        close(fds[i]);
    if (n != (int)sizeof a)
        return err_set(err, ERR_LOST, "the sandbox's own process died%s%s", n < 0 ? ": " : "", n < 0 ? bad.msg : "");
    if (a.rc < 0) {
        err_set(err, a.rc, "%.*s", (int)sizeof a.msg - 1, a.msg);
        err->sys = a.sys;
    }
    return a.rc;
}

/* Kill and reap what the last run left. The agent goes first: the namespace cannot end before it is reaped. */
static void crew_end(struct launcher *l, int *out_status)
{
    int status = 0;
    if (l->reaper > 0)
        pidfd_send_signal(l->reaper_fd, SIGKILL, NULL, 0);
    if (l->agent > 0) {
        if (l->reaper <= 0)
            pidfd_send_signal(l->agent_fd, SIGKILL, NULL, 0);
        while (waitpid(l->agent, &status, 0) < 0 && errno == EINTR)
            ;
        close(l->agent_fd);
    }
    if (l->reaper > 0) {
        /* Whoever has us as parent by CLONE_PARENT holds up the end of the namespace until reaped: take what comes. */
        for (pid_t pid; (pid = waitpid(-1, NULL, 0)) != l->reaper && (pid > 0 || errno == EINTR); )
            ;
        close(l->reaper_fd);
    }
    if (l->sock >= 0)
        close(l->sock);
    if (l->output >= 0)
        close(l->output);
    l->reaper = l->agent = 0;
    l->sock = l->output = -1;
    if (out_status != NULL)
        *out_status = status;
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

static int crew_start(struct launcher *l, struct err *err)
{
    int pair[2], first[2], pipe[2];
    if (l->world.proc_mounted && umount2("/proc", MNT_DETACH | UMOUNT_NOFOLLOW) < 0)
        return err_sys(err, ERR_SYS, "old /proc");
    l->world.proc_mounted = false;
    if (setns(l->self, CLONE_NEWPID) < 0 || unshare(CLONE_NEWPID) < 0)
        return err_sys(err, ERR_SYS, "pid namespace");
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, first) < 0)
        return err_sys(err, ERR_SYS, "socket");
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) {
        close_both(first);
        return err_sys(err, ERR_SYS, "socket");
    }
    /* The pipe can be opened again through /dev/stdout, whose owner is asked. */
    int rc = pipe2(pipe, O_CLOEXEC);
    if (rc < 0 || fchown(pipe[1], l->kit->uid, l->kit->uid) < 0 || fcntl(pipe[0], F_SETFL, O_NONBLOCK) < 0) {
        err_sys(err, ERR_SYS, "output pipe");
        if (rc == 0)
            close_both(pipe);
        close_both(first);
        close_both(pair);
        return err->code;
    }
    l->over = false;
    l->reaper = fork();
    if (l->reaper == 0)
        cell_reaper(l->kit, &l->world, first[1]);
    if (l->reaper > 0) {
        l->reaper_fd = pidfd_open(l->reaper, 0);
        l->agent = fork();
        if (l->agent == 0)
            cell_agent(l->kit, pair[1], pipe[1]);
        if (l->agent > 0)
            l->agent_fd = pidfd_open(l->agent, 0);
    }
    rc = l->reaper < 0 || l->agent < 0 ? err_sys(err, ERR_SYS, "fork") : 0;
    close(first[1]);
    close(pair[1]);
    close(pipe[1]);
    l->sock = pair[0];
    l->output = pipe[0];
    if (rc == 0)
        rc = await_answer(first[0], err);
    if (rc == 0)
        rc = frame_send(first[0], "", 1, &l->agent_fd, 1, err);
    if (rc == 0)
        rc = await_answer(l->sock, err);
    close(first[0]);
    l->world.proc_mounted = true;
    struct note crew = { .kind = NOTE_CREW };
    if (rc < 0)
        crew_end(l, NULL);
    else
        tell(l, &crew, 0, NULL, (int[]){ l->reaper_fd, l->sock }, 2);
    return rc;
}

static int ask_agent(struct launcher *l, const struct cell_order *o, const int *fds, int nfds, struct err *err)
{
    int rc = l->agent > 0 ? 0 : crew_start(l, err);
    if (rc == 0)
        rc = frame_send(l->sock, o, sizeof *o, fds, nfds, err);
    return rc;
}

static int acquire(struct launcher *l, const struct order *o, const int *fds, struct err *err)
{
    int next = 0, rc = 0;
    l->limits = o->limits;
    int tree = o->fds & GRANT_FD_TREE ? fds[next++] : -1;
    int edits = o->fds & GRANT_FD_EDITS ? fds[next++] : -1;
    int root = o->fds & GRANT_FD_ROOT ? fds[next++] : -1;
    if (root >= 0) {
        crew_end(l, NULL);                  /* made for the other root */
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
    if (rc == 0 && edits >= 0) {
        struct cell_order c = { .kind = CELL_EDITS };
        rc = ask_agent(l, &c, &edits, 1, err);
        if (rc == 0)
            rc = await_answer(l->sock, err);
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
    /* The agent's socket closes at exec; an answer there means that there was none. */
    struct pollfd said = { .fd = l->sock, .events = POLLIN };
    int rc = 0;
    if (poll(&said, 1, 0) > 0 && (said.revents & POLLIN)) {
        struct err why = { 0 };
        if (await_answer(l->sock, &why) < 0 && why.code != ERR_LOST) {
            err = why;
            rc = why.code;
        }
    }
    own_fd rest = l->output;
    l->output = -1;
    crew_end(l, &n.status);
    for (bool more = rest >= 0; more; ) {
        uint64_t was = l->kit->ring->total;
        more = ring_take(l->kit->ring, rest) && l->kit->ring->total != was;
    }
    struct stat st;
    struct statfs fs;
    const struct part *report = &l->world.parts[WORLD_REPORT];
    n.report = fstat(report->dir, &st) == 0 && st.st_size != (off_t)report->was.stx_size;
    n.disk_full = fstatfs(l->world.store, &fs) == 0 && (fs.f_bavail == 0 || fs.f_ffree == 0);
    tell(l, &n, rc, &err, NULL, 0);
}

/* The sandbox is closed. False: what it left cannot be taken away. */
static bool reset(struct launcher *l)
{
    struct note ready = { .kind = NOTE_READY };
    struct err err = { 0 };
    crew_end(l, NULL);
    if (!world_reset(&l->world, l->kit) || net_renew(l->net, &err) < 0 || unshare(CLONE_NEWIPC) < 0)
        return false;
    int rc = crew_start(l, &err);
    tell(l, &ready, rc, &err, NULL, 0);
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
        done = l->agent > 0 ? 0 : crew_start(l, &err);
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
    struct launcher l = { .kit = kit, .net = net, .reaper_fd = -1, .agent_fd = -1, .sock = -1, .output = -1 };
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
        rc = mount_world(&l.world, kit, &err);
    if (rc == 0)
        rc = crew_start(&l, &err);
    struct note ready = { .kind = NOTE_READY };
    tell(&l, &ready, rc, &err, NULL, 0);
    while (rc == 0) {
        struct pollfd p[3] = {
            { .fd = kit->sock, .events = POLLIN }, { .fd = l.agent > 0 ? l.agent_fd : -1, .events = POLLIN },
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
