#include "tests/attack/attack.h"

/* clone3 takes its flags by pointer, where no filter can read them. */
static int attack(void)
{
    static const uint64_t flags[] = { CLONE_NEWUSER, CLONE_NEWNS, CLONE_NEWNET, 0x80 /* time */, 0x200000000ull /* into cgroup */ };
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) {
        uint64_t args[11] = { flags[i], 0, 0, 0, SIGCHLD };
        long pid = syscall(SYS_clone3, args, sizeof args);
        if (pid == 0)
            _exit(0);
        tried("clone3", pid);
    }
    tried("clone-high-bits", syscall(SYS_clone, (1ul << 40) | CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0) == 0 ? (_exit(0), 0) : -1);
    return 0;
}

static int thread(void *arg) { *(volatile int *)arg = 5; return 0; }

static int twin(void)
{
    static char stack[65536] __attribute__((aligned(16)));
    int v = 0;
    pid_t pid = clone(thread, stack + sizeof stack, CLONE_VM | SIGCHLD, &v);
    child_status(pid);
    return says_ok(v == 5);
}

ATTACK(.tries = "clone3, whose flags a filter cannot see", .attack = attack, .twin = twin, .bare = "clone3", .must = { "clone3 refused ENOSYS" });
