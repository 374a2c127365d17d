#include "tests/attack/attack.h"

/* A call that gets as far as the kernel's own checks has passed the fence, whatever they say. */
static void reached(const char *what, long rc)
{
    judged(what, rc >= 0 || (errno != ENOSYS && errno != EPERM));
}

static int attack(void)
{
    char params[120] = { 0 };
    tried("io_uring_setup", syscall(SYS_io_uring_setup, 4, params));
    reached("io_uring_enter", syscall(SYS_io_uring_enter, -1, 0, 0, 0, NULL, 0));
    reached("io_uring_register", syscall(SYS_io_uring_register, -1, 0, NULL, 0));
    return 0;
}

static int twin(void)
{
    unsigned long ctx = 0;
    return says_ok(syscall(SYS_io_setup, 4, &ctx) == 0 && syscall(SYS_io_destroy, ctx) == 0);
}

ATTACK(.tries = "io_uring, whose calls no filter sees (isolate 2.6; CVE-2022-29582)", .attack = attack, .twin = twin, .bare = "io_uring_setup",
       .must = { "io_uring_setup refused ENOSYS", "io_uring_enter refused" });
