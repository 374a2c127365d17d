#include "tests/attack/attack.h"

static int attack(void)
{
    int n = 0;
    struct sigevent e = { .sigev_notify = SIGEV_NONE };
    for (timer_t t; n < 20000 && timer_create(CLOCK_MONOTONIC, &e, &t) == 0; n++)
        ;
    judged("timers", n >= 20000);
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    for (n = 0; n < 100000 && sigqueue(getpid(), SIGRTMIN + 1, (union sigval){ 0 }) == 0; n++)
        ;
    judged("queued-signals", n >= 100000);
    return 0;
}

static int twin(void)
{
    timer_t t;
    struct sigevent e = { .sigev_notify = SIGEV_NONE };
    return says_ok(timer_create(CLOCK_MONOTONIC, &e, &t) == 0);
}

ATTACK(.tries = "timers and queued signals without end", .attack = attack, .twin = twin, .bare = "timers", .not_bare = "",
       .must = { "timers refused", "queued-signals refused" });
