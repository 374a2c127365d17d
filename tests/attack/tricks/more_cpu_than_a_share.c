#include "tests/attack/attack.h"
#include <sys/resource.h>

static int attack(void)
{
    struct sched_param p = { .sched_priority = 1 };
    struct { uint32_t size, policy; uint64_t flags; int32_t nice; uint32_t priority; uint64_t runtime, deadline, period; } dl =
        { 48, 6, 0, 0, 0, 10000000, 20000000, 20000000 };
    judged("nice-inherited", getpriority(PRIO_PROCESS, 0) < 0);
    tried("nice", setpriority(PRIO_PROCESS, 0, -10));
    tried("fifo", sched_setscheduler(0, SCHED_FIFO, &p));
    tried("rr", sched_setscheduler(0, SCHED_RR, &p));
    tried("deadline", syscall(SYS_sched_setattr, 0, &dl, 0));
    tried("io-realtime", syscall(SYS_ioprio_set, 1, 0, 1 << 13));
    tried("nice-of-init", setpriority(PRIO_PROCESS, 1, -20));
    return 0;
}

static int twin(void) { return says_ok(setpriority(PRIO_PROCESS, 0, 5) == 0 && sched_yield() == 0); }

ATTACK(.tries = "priorities above one's share: nice, FIFO, deadline, realtime I/O", .attack = attack, .twin = twin, .bare = "nice",
       .must = { "nice refused EACCES", "fifo refused EPERM", "nice-inherited refused" });
