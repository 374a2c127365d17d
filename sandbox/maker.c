/* maker.c - see maker.h. */
#include "sandbox/maker.h"
#include "base/frame.h"
#include "base/own.h"
#include "sandbox/mount.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

/* A launcher to be. */
struct child {
    struct kit kit;
    struct net net;
    int lower;                  /* mount namespace of the lower layers */
};

static void tell(int sock, int rc, const struct err *why)
{
    struct note n = { .kind = NOTE_READY, .rc = rc, .sys = why->sys };
    struct err err;
    memcpy(n.msg, why->msg, sizeof n.msg);
    if (frame_send(sock, &n, sizeof n, NULL, 0, &err) < 0)
        _exit(1);                               /* the jail has given it up */
}

/* Groups first: what is made from here on counts as the slot's. */
static int join(struct child *c, const struct cgroup_host *groups, struct err *err)
{
    const struct cgroup_slot slot = { .host = groups, .slot = c->kit.slot };
    int rc = cgroup_slot_enter(&slot, &c->kit.pids_now, err);
    if (rc == 0 && unshare(CLONE_NEWCGROUP) < 0)
        rc = err_sys(err, ERR_DENIED, "new namespaces");
    return rc;
}

/* The lower layers, in a mount namespace of which the world's is a copy. */
static int lower(struct child *c, struct err *err)
{
    int rc = mount_lower(&c->kit, err);
    if (rc < 0)
        return rc;
    if ((c->lower = openat(c->kit.proc, "self/ns/mnt", O_RDONLY | O_CLOEXEC)) < 0)
        return err_sys(err, ERR_SYS, "lower layers");
    return unshare(CLONE_NEWNS) < 0 ? err_sys(err, ERR_DENIED, "new mount namespace") : 0;
}

_Noreturn static void begin(struct child *c, const struct cgroup_host *groups, int rings)
{
    struct err err = { 0 };
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_NAME, "launcher");
    signal(SIGCHLD, SIG_DFL);
    c->kit.ring = mmap(NULL, sizeof(struct ring), PROT_READ | PROT_WRITE, MAP_SHARED, rings, (off_t)c->kit.slot * RING_STRIDE);
    close(rings);
    /* None of a zygote's or its agents' business. */
    int rc = c->kit.ring == MAP_FAILED || madvise(c->kit.ring, sizeof(struct ring), MADV_DONTFORK) < 0
           ? err_sys(&err, ERR_SYS, "output buffer") : join(c, groups, &err);
    if (rc == 0)
        rc = lower(c, &err);
    if (rc == 0)
        rc = net_watch(&c->net, c->kit.proc, &err);
    if (rc == 0)
        rc = net_renew(&c->net, 0, &err);
    if (rc == 0)
        launcher_main(&c->kit, &c->net, c->lower);
    tell(c->kit.sock, rc, &err);
    _exit(1);
}

static pid_t spawn(int cgroup, int *out_pidfd)
{
    struct clone_args args = {
        .flags = CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_PIDFD | (cgroup >= 0 ? CLONE_INTO_CGROUP : 0),
        .pidfd = (uint64_t)(uintptr_t)out_pidfd, .exit_signal = SIGCHLD, .cgroup = (uint64_t)(cgroup >= 0 ? cgroup : 0),
    };
    return (pid_t)syscall(SYS_clone3, &args, sizeof args);
}

void maker_main(int sock, const struct kit *common, const struct cgroup_host *groups, int rings)
{
    struct err err;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_NAME, "maker");
    setpriority(PRIO_PROCESS, 0, 0);
    umask(0);                                   /* what launchers make has the mode they say */
    signal(SIGCHLD, SIG_IGN);                   /* the kernel reaps launchers; the jail has a pidfd of each */
    const int proc = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
    for (;;) {
        struct birth b;
        int fds[FRAME_FDS_MAX], nfds, pidfd = -1;
        if (frame_recv(sock, &b, sizeof b, fds, &nfds, &err) != (int)sizeof b || (nfds != 2 && nfds != 3))
            _exit(0);                           /* the jail is gone */
        /* On the stack, which a launcher gives back: what we write elsewhere the last one would keep its own copy of. */
        struct child child = { .kit = *common };
        child.kit.slot = b.slot;
        child.kit.uid = b.uid;
        child.kit.sock = fds[0];
        child.kit.userns = fds[1];
        child.kit.proc = proc;
        pid_t pid = spawn(nfds == 3 ? fds[2] : -1, &pidfd);
        if (pid == 0) {
            if (nfds == 3)
                close(fds[2]);
            close(sock);
            begin(&child, groups, rings);
        }
        struct born a = { .slot = b.slot, .serial = b.serial, .rc = pid < 0 ? ERR_DENIED : 0, .sys = pid < 0 ? errno : 0 };
        for (int i = 0; i < nfds; i++)
            close(fds[i]);
        if (frame_send(sock, &a, sizeof a, &pidfd, pidfd >= 0, &err) < 0)
            _exit(0);
        if (pidfd >= 0)
            close(pidfd);
    }
}
