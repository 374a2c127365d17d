#include "tests/attack/attack.h"

static int attack(void)
{
    tried("unshare-user", syscall(SYS_unshare, CLONE_NEWUSER));
    tried("unshare-mount", syscall(SYS_unshare, CLONE_NEWNS));
    tried("unshare-net", syscall(SYS_unshare, CLONE_NEWNET));
    long pid = syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0);
    if (pid == 0)
        _exit(0);
    tried("clone-user", pid);
    pid = syscall(SYS_clone, CLONE_NEWUSER | CLONE_NEWNET | CLONE_NEWNS | SIGCHLD, 0, 0, 0, 0);
    if (pid == 0)
        _exit(0);
    tried("clone-user-net", pid);
    int map = open("/proc/self/uid_map", O_WRONLY);
    tried("uid_map", map < 0 ? -1 : write(map, "0 0 4294967295\n", 15));
    return 0;
}

static int twin(void)
{
    pid_t pid = fork();
    if (pid == 0)
        _exit(4);
    return says_ok(WEXITSTATUS(child_status(pid)) == 4);
}

ATTACK(.tries = "a nested user namespace, door to most kernel bugs (CVE-2022-0185, CVE-2023-2640)", .attack = attack, .twin = twin,
       .bare = "unshare-user", .must = { "unshare-user refused ENOSYS", "clone-user refused ENOSYS", "uid_map refused" },
       .compatible = { .grants = "unshare-user unshare-mount unshare-net", .must = { "uid_map refused EPERM" } });
