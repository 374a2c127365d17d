#include "tests/attack/attack.h"
#include <sys/timex.h>
#include <sys/time.h>

/* A call that gets as far as the kernel's own checks has passed the fence, whatever they say. */
static void reached(const char *what, long rc)
{
    judged(what, rc >= 0 || (errno != ENOSYS && errno != EPERM));
}

static int attack(void)
{
    struct timespec t;
    struct timex x = { .modes = ADJ_STATUS, .status = -1 };
    clock_gettime(CLOCK_REALTIME, &t);
    tried("clock_settime", syscall(SYS_clock_settime, CLOCK_REALTIME, &t));
    reached("settimeofday", syscall(SYS_settimeofday, (void *)8, NULL));
    reached("adjtimex", syscall(SYS_adjtimex, (void *)8));
    reached("clock_adjtime", syscall(SYS_clock_adjtime, CLOCK_REALTIME, (void *)8));
    (void)x;
    return 0;
}

static int twin(void)
{
    struct timespec t;
    return says_ok(clock_gettime(CLOCK_REALTIME, &t) == 0 && t.tv_sec > 1600000000);
}

ATTACK(.tries = "set or bend the clock, to look fast", .attack = attack, .twin = twin, .bare = "settimeofday",
       .must = { "clock_settime refused ENOSYS", "adjtimex refused" });
