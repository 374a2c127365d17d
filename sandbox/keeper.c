/* keeper.c - one slot's permanent process: forks launchers and reports their deaths. */
#include "sandbox/keeper.h"
#include "base/frame.h"
#include "base/own.h"
#include "sandbox/mount.h"
#include "sandbox/net.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

/* Keep kit's descriptors as 3, 4 and 5, standard error as it is, and nothing else. */
static int keep_fds(struct kit *kit)
{
    int *keep[] = { &kit->sock, &kit->userns, &kit->pids_now };
    for (int i = 0; i < 3; i++)
        if (*keep[i] >= 0 && (*keep[i] = fcntl(*keep[i], F_DUPFD_CLOEXEC, 16)) < 0)
            return -1;
    for (int i = 0; i < 3; i++)
        if (*keep[i] >= 0 && (*keep[i] = dup2(*keep[i], 3 + i)) < 0)
            return -1;
    return close_range(kit->pids_now >= 0 ? 6 : 5, ~0u, 0);
}

static void tell(int sock, uint32_t kind, int fd, int rc, const struct err *why)
{
    struct note n = { .kind = kind, .rc = rc };
    struct err err;
    if (rc < 0) {
        n.sys = why->sys;
        memcpy(n.msg, why->msg, sizeof n.msg);
    }
    if (frame_send(sock, &n, sizeof n, &fd, fd >= 0, &err) < 0)
        _exit(1);
}

static pid_t spawn(int cgroup, int *out_pidfd)
{
    struct clone_args args = {
        .flags = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP | CLONE_PIDFD |
                 (cgroup >= 0 ? CLONE_INTO_CGROUP : 0),
        .pidfd = (uint64_t)(uintptr_t)out_pidfd, .exit_signal = SIGCHLD, .cgroup = (uint64_t)(cgroup >= 0 ? cgroup : 0),
    };
    return (pid_t)syscall(SYS_clone3, &args, sizeof args);
}

void keeper_main(struct kit *kit, int cgroup_entered, const struct err *why)
{
    static struct net net;
    struct err err = { 0 };
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_NAME, "keeper");
    setpriority(PRIO_PROCESS, 0, 0);
    int rc = cgroup_entered;
    if (rc < 0)
        err = *why;
    else if (keep_fds(kit) < 0)
        rc = err_sys(&err, ERR_SYS, "keeper: descriptors");
    else if ((kit->proc = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC)) < 0)
        rc = err_sys(&err, ERR_SYS, "keeper: /proc");
    else if ((rc = net_watch(&net, kit->proc, &err)) == 0)
        rc = mount_keeper(kit, &err);
    for (;;) {
        struct order o;
        struct err bad;
        int fds[FRAME_FDS_MAX], nfds;
        if (frame_recv(kit->sock, &o, sizeof o, fds, &nfds, &bad) != (int)sizeof o || o.kind != ORDER_MAKE || nfds > 1)
            _exit(0);                           /* the jail is gone */
        own_fd cgroup = nfds == 1 ? fds[0] : -1;
        if (rc < 0) {                           /* this slot cannot work: say so each time it is asked */
            tell(kit->sock, NOTE_READY, -1, rc, &err);
            continue;
        }
        if (net_renew(&net, 0, &bad) < 0) {
            tell(kit->sock, NOTE_READY, -1, bad.code, &bad);
            continue;
        }
        int pidfd = -1;
        pid_t pid = spawn(cgroup, &pidfd);
        if (pid == 0) {
            if (cgroup >= 0)
                close(give_fd(&cgroup));
            close(net.proc);
            launcher_main(kit, &net);
        }
        if (pid < 0) {
            err_sys(&bad, ERR_DENIED, "new namespaces");
            tell(kit->sock, NOTE_READY, -1, bad.code, &bad);
            continue;
        }
        tell(kit->sock, NOTE_BORN, pidfd, 0, NULL);
        close(pidfd);
        while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
            ;
        tell(kit->sock, NOTE_GONE, -1, 0, NULL);
    }
}
