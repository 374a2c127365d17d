#include "tests/attack/attack.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>

static int attack(void)
{
    struct sock_filter code[] = { BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF) };
    struct sock_filter allow[] = { BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW) };
    struct sock_fprog stall = { 1, code }, open = { 1, allow };
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    pid_t pid = fork();
    if (pid == 0)       /* a filter that answers by a listener that is not there: each further call fails with ENOSYS */
        _exit(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &stall) == 0 && syscall(SYS_getuid) == 0);
    judged("filter-loosened", WIFEXITED(child_status(pid)) && 0);
    tried("listener", syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &open));
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &open);
    long rc = syscall(SYS_unshare, CLONE_NEWUSER);
    tried("unshare-after-allow-all", rc);
    return 0;
}

static int twin(void)
{
    struct sock_filter allow[] = { BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW) };
    struct sock_fprog open = { 1, allow };
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    return says_ok(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &open) == 0);
}

ATTACK(.tries = "seccomp itself: a listener that stalls, a second filter that allows", .attack = attack, .twin = twin, .bare = "listener",
       .must = { "listener refused ENOSYS", "unshare-after-allow-all refused ENOSYS" },
       .compatible = { .grants = "unshare-after-allow-all", .must = { "listener refused ENOSYS" } });
