#include "tests/attack/attack.h"
#include <linux/perf_event.h>

/* A call that gets as far as the kernel's own checks has passed the fence, whatever they say. */
static void reached(const char *what, long rc)
{
    judged(what, rc >= 0 || (errno != ENOSYS && errno != EPERM));
}

static int attack(void)
{
    struct perf_event_attr a = { .type = PERF_TYPE_SOFTWARE, .size = sizeof a, .config = PERF_COUNT_SW_CPU_CLOCK };
    tried("perf-self", syscall(SYS_perf_event_open, &a, 0, -1, -1, 0));
    tried("perf-system", syscall(SYS_perf_event_open, &a, -1, 0, -1, 0));
    reached("perf", syscall(SYS_perf_event_open, NULL, 0, -1, -1, 0));
    return 0;
}

static int twin(void) { return says_ok(seconds() > 0); }

ATTACK(.tries = "perf_event_open, of oneself and of the machine (CVE-2013-2094)", .attack = attack, .twin = twin, .bare = "perf-self", .must = { "perf refused" });
