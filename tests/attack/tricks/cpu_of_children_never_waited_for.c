#include "tests/attack/attack.h"

/* Time of children that nobody waits for is missing in rusage of the parent. */
static int attack(void)
{
    double began = seconds();
    while (seconds() - began < 3) {
        if (fork() == 0) {
            double from = seconds();
            while (seconds() - from < 0.05)
                ;
            _exit(0);
        }
        usleep(60000);
    }
    judged("spun", true);
    return 0;
}

static int twin(void) { return says_ok(true); }

ATTACK(.tries = "CPU time hidden in children that are never waited for", .attack = attack, .twin = twin, .bare = "spun", .end = SANDBOX_END_TIME_LIMIT,
       .value = -1, .hits = SANDBOX_HIT_CPU, .limits = { .wall_ns = 20 * SECOND, .cpu_ns = SECOND / 2 });
