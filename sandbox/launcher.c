/*
 * launcher.c - one sandbox from its making to its death.
 *
 *   world built, crew ready -> NOTE_CREW, NOTE_READY        crew = reaper + agent of the coming run
 *   ORDER_ACQUIRE: tree, size, edits -> NOTE_ACQUIRED
 *   ORDER_RUN: agent becomes the command -> NOTE_ENDED
 *   ORDER_COLLECT: a fresh agent reads the report files -> NOTE_COLLECTED
 *
 * A run ends when the command (the agent's process) ends: then the reaper is killed, and with it
 * all that is left in its pid namespace; only after its death is the rest of the output read and
 * the end told. A fresh crew is made when one is needed again.
 */
#include "base/clock.h"
#include "base/frame.h"
#include "base/own.h"
#include "sandbox/cell.h"
#include "sandbox/etc.h"
#include "sandbox/keeper.h"
#include "sandbox/mount.h"
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/wait.h>

struct launcher {
    const struct kit *kit;
    struct world world;
    int self;                       /* pidfd of the launcher: the way back to its own pid namespace */
    struct sandbox_limits limits;
    pid_t reaper, agent;            /* 0: none */
    int reaper_fd, agent_fd;        /* pidfds */
    int sock;                       /* to the agent */
};

static int loopback_up(struct err *err)
{
    /* Raising lo gives it 127.0.0.1 and ::1; there is no other device in the namespace. */
    own_fd s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct ifreq r = { .ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING };
    if (s < 0 || ioctl(s, SIOCSIFFLAGS, &r) < 0)
        return err_sys(err, ERR_SYS, "loopback");
    return 0;
}

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
    l->reaper = l->agent = 0;
    l->sock = -1;
    if (out_status != NULL)
        *out_status = status;
}

static void tell(struct launcher *l, struct note *n, int rc, const struct err *why, int fd)
{
    struct err err;
    n->rc = rc;
    if (rc < 0) {
        n->sys = why->sys;
        memcpy(n->msg, why->msg, sizeof n->msg);
    }
    if (frame_send(l->kit->sock, n, sizeof *n, &fd, fd >= 0, &err) < 0)
        _exit(1);
}

static int crew_start(struct launcher *l, struct err *err)
{
    int pair[2], first[2];
    if (l->world.proc_mounted && umount2("/proc", MNT_DETACH | UMOUNT_NOFOLLOW) < 0)
        return err_sys(err, ERR_SYS, "old /proc");
    l->world.proc_mounted = false;
    if (setns(l->self, CLONE_NEWPID) < 0 || unshare(CLONE_NEWPID) < 0)
        return err_sys(err, ERR_SYS, "pid namespace");
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, first) < 0)
        return err_sys(err, ERR_SYS, "socket");
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) {
        close(first[0]);
        close(first[1]);
        return err_sys(err, ERR_SYS, "socket");
    }
    l->reaper = fork();
    if (l->reaper == 0)
        cell_reaper(l->kit, &l->world, first[1]);
    if (l->reaper > 0) {
        l->reaper_fd = pidfd_open(l->reaper, 0);
        l->agent = fork();
        if (l->agent == 0)
            cell_agent(l->kit, pair[1]);
        if (l->agent > 0)
            l->agent_fd = pidfd_open(l->agent, 0);
    }
    int rc = l->reaper < 0 || l->agent < 0 ? err_sys(err, ERR_SYS, "fork") : 0;
    close(first[1]);
    close(pair[1]);
    l->sock = pair[0];
    if (rc == 0)
        rc = await_answer(first[0], err);
    if (rc == 0)
        rc = await_answer(l->sock, err);
    close(first[0]);
    l->world.proc_mounted = true;
    struct note crew = { .kind = NOTE_CREW };
    if (rc < 0)
        crew_end(l, NULL);
    else
        tell(l, &crew, 0, NULL, l->reaper_fd);
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

/* Keep head and tail of what comes; false at the end of the stream. */
static bool take_output(struct ring *ring, int pipe_fd)
{
    static uint8_t chunk[65536];
    ssize_t n = read(pipe_fd, chunk, sizeof chunk);
    if (n <= 0)
        return n < 0 && (errno == EINTR || errno == EAGAIN);
    const uint8_t *p = chunk;
    size_t left = (size_t)n;
    if (ring->total < SANDBOX_OUTPUT_KEEP) {
        size_t room = (size_t)(SANDBOX_OUTPUT_KEEP - ring->total), k = left < room ? left : room;
        memcpy(ring->head + ring->total, p, k);
        ring->total += k;
        p += k;
        left -= k;
    }
    while (left > 0) {
        size_t at = (size_t)((ring->total - SANDBOX_OUTPUT_KEEP) % SANDBOX_OUTPUT_KEEP);
        size_t room = SANDBOX_OUTPUT_KEEP - at, k = left < room ? left : room;
        memcpy(ring->tail + at, p, k);
        ring->total += k;
        p += k;
        left -= k;
    }
    return true;
}

static int run(struct launcher *l, int command, struct note *n, struct err *err)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return err_sys(err, ERR_SYS, "output pipe");
    own_fd in = ends[0], out = ends[1];
    /* Readable and writable again through /dev/stdout, whose owner is asked. */
    if (fchown(out, l->kit->uid, l->kit->uid) < 0)
        return err_sys(err, ERR_SYS, "output pipe");
    fcntl(in, F_SETFL, O_NONBLOCK);
    l->kit->ring->total = 0;
    const bool bare = l->kit->enforced_by == 0;
    struct cell_order c = {
        .kind = CELL_RUN, .file_bytes = l->limits.file_bytes, .memory_bytes = bare ? l->limits.memory_bytes : 0,
        .cpu_s = bare ? (l->limits.cpu_ns + NS_PER_S - 1) / NS_PER_S : 0, .pids = bare ? l->limits.pids : 0,
    };
    int rc = l->agent > 0 ? 0 : crew_start(l, err);
    if (rc < 0)
        return rc;
    n->began_ns = clock_mono_ns();
    rc = ask_agent(l, &c, (int[]){ command, out }, 2, err);
    close(give_fd(&out));
    bool over = false, open = true;
    struct pollfd p[2] = { { .fd = l->agent_fd, .events = POLLIN }, { .fd = in, .events = POLLIN } };
    while (rc == 0) {
        if (poll(p, 2, -1) < 0 && errno != EINTR) {
            rc = err_sys(err, ERR_SYS, "wait for the command");
        } else if (p[0].revents != 0) {
            break;
        } else if (p[1].revents != 0) {
            open = take_output(l->kit->ring, in);
            if (!open)
                p[1].fd = -1;                   /* everyone closed it: the end comes by the pidfd */
            if (!over && l->kit->ring->total > l->limits.output_bytes) {
                over = true;
                pidfd_send_signal(l->reaper_fd, SIGKILL, NULL, 0);
            }
        }
    }
    n->ended_ns = clock_mono_ns();
    /* The agent's socket closes at exec; an answer there means that there was none. */
    struct pollfd said = { .fd = l->sock, .events = POLLIN };
    if (rc == 0 && poll(&said, 1, 0) > 0 && (said.revents & POLLIN)) {
        struct err why = { 0 };
        if (await_answer(l->sock, &why) < 0 && why.code != ERR_LOST) {
            *err = why;
            rc = why.code;
        }
    }
    crew_end(l, &n->status);
    /* Killed by the jail, or for its memory, before it had even become the command: that is an end like another. */
    if (rc == ERR_LOST && WIFSIGNALED(n->status) && WTERMSIG(n->status) == SIGKILL)
        rc = 0;
    while (open) {
        uint64_t was = l->kit->ring->total;
        open = take_output(l->kit->ring, in) && l->kit->ring->total != was;
    }
    struct stat st;
    struct statfs fs;
    n->report = fstat(l->world.report, &st) == 0 && st.st_size != l->world.report_empty;
    n->disk_full = fstatfs(l->world.store, &fs) == 0 && (fs.f_bavail == 0 || fs.f_ffree == 0);
    return rc;
}

void launcher_main(const struct kit *kit)
{
    struct launcher l = { .kit = kit, .reaper_fd = -1, .agent_fd = -1, .sock = -1 };
    struct err err = { 0 };
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_NAME, "launcher");
    signal(SIGPIPE, SIG_IGN);
    l.self = pidfd_open(getpid(), 0);
    int rc = l.self < 0 ? err_sys(&err, ERR_SYS, "pidfd") : loopback_up(&err);
    if (rc == 0 && sethostname(ETC_HOSTNAME, sizeof ETC_HOSTNAME - 1) < 0)
        rc = err_sys(&err, ERR_SYS, "host name");
    if (rc == 0)
        rc = mount_world(&l.world, kit, &err);
    if (rc == 0)
        rc = crew_start(&l, &err);
    struct note ready = { .kind = NOTE_READY };
    tell(&l, &ready, rc, &err, -1);
    while (rc == 0) {
        struct order o;
        struct note n = { 0 };
        int fds[FRAME_FDS_MAX], nfds;
        if (frame_recv(kit->sock, &o, sizeof o, fds, &nfds, &err) != (int)sizeof o)
            break;
        int done;
        if (o.kind == ORDER_ACQUIRE && nfds == __builtin_popcount(o.fds)) {
            n.kind = NOTE_ACQUIRED;
            done = acquire(&l, &o, fds, &err);
        } else if (o.kind == ORDER_RUN && nfds == 1) {
            n.kind = NOTE_ENDED;
            done = run(&l, fds[0], &n, &err);
        } else if (o.kind == ORDER_COLLECT && nfds == 1) {
            struct cell_order c = { .kind = CELL_COLLECT };
            n.kind = NOTE_COLLECTED;
            done = ask_agent(&l, &c, (int[]){ l.world.report, fds[0] }, 2, &err);
            if (done == 0)
                done = await_answer(l.sock, &err);
        } else {
            break;
        }
        for (int i = 0; i < nfds; i++)
            close(fds[i]);
        tell(&l, &n, done, &err, -1);
    }
    _exit(1);
}
