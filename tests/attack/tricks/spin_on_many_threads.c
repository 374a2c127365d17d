#include "tests/attack/attack.h"
#include <sys/resource.h>

static int attack(void)
{
    for (int i = 0; i < 8; i++)
        if (fork() == 0)
            for (;;)
                ;
    double began = seconds();
    while (seconds() - began < 6)           /* a busy machine gives little of it */
        ;
    judged("spun", true);
    return 0;
}

static int twin(void)
{
    double began = seconds();
    while (seconds() - began < 0.05)
        ;
    return says_ok(true);
}

ATTACK(.tries = "CPU spin on more processes than cores", .attack = attack, .twin = twin, .bare = "spun", .end = SANDBOX_END_TIME_LIMIT, .value = -1,
       .hits = SANDBOX_HIT_CPU, .limits = { .wall_ns = 20 * SECOND, .cpu_ns = SECOND / 2, .cpu_percent = 50 });
