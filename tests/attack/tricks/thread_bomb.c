#include "tests/attack/attack.h"
#include <pthread.h>

static void *sleeper(void *arg) { pause(); return arg; }

static int attack(void)
{
    volatile int n = 0;
    pthread_attr_t a;
    pthread_attr_init(&a);
    pthread_attr_setstacksize(&a, 16384);
    for (pthread_t t; n < 400 && pthread_create(&t, &a, sleeper, NULL) == 0; n++)
        ;
    judged("threads", n >= 400);
    pid_t pid = vfork();
    if (pid == 0)
        _exit(0);
    judged("vfork-beyond", pid > 0 && n >= 49);
    return 0;
}

static int twin(void)
{
    pthread_t t;
    return says_ok(pthread_create(&t, NULL, sleeper, NULL) == 0);
}

ATTACK(.tries = "threads, and vfork beyond the limit of tasks", .attack = attack, .twin = twin, .bare = "threads",
       .hits = SANDBOX_HIT_PIDS, .must = { "threads refused" }, .limits = { .pids = 50 });
