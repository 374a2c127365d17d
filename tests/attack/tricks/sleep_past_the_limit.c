#include "tests/attack/attack.h"

static int attack(void)
{
    for (int sig = 1; sig < 65; sig++)
        signal(sig, SIG_IGN);
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    double began = seconds();
    while (seconds() - began < 2.5)
        usleep(10000);
    judged("slept", true);
    return 0;
}

static int twin(void) { return says_ok(usleep(100000) == 0); }

ATTACK(.tries = "sleep past the limit with every signal ignored and blocked", .attack = attack, .twin = twin, .bare = "slept",
       .end = SANDBOX_END_TIME_LIMIT, .value = -1, .hits = SANDBOX_HIT_TIME, .limits = { .wall_ns = SECOND });
