#include "tests/attack/attack.h"

/* A call that gets as far as the kernel's own checks has passed the fence, whatever they say. */
static void reached(const char *what, long rc)
{
    judged(what, rc >= 0 || (errno != ENOSYS && errno != EPERM));
}

static int attack(void)
{
    tried("userfaultfd", syscall(SYS_userfaultfd, O_CLOEXEC));
    tried("userfaultfd-user", syscall(SYS_userfaultfd, O_CLOEXEC | 1));
    tried_open("/dev/userfaultfd", O_RDWR);
    reached("flags", syscall(SYS_userfaultfd, 0x7fffffff));
    return 0;
}

static int twin(void)
{
    char *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    p[0] = 1;
    return says_ok(p[0] == 1);
}

ATTACK(.tries = "userfaultfd, which holds the kernel in the middle of a copy", .attack = attack, .twin = twin, .bare = "userfaultfd", .must = { "userfaultfd refused ENOSYS", "flags refused" });
