#include "tests/attack/attack.h"

static int attack(void)
{
    int n = 0;
    for (double end = seconds() + 5; n < 400 && seconds() < end; ) {
        pid_t pid = fork();
        if (pid == 0)
            for (;;)
                pause();
        n += pid > 0;
        if (pid < 0)
            sched_yield();
    }
    judged("processes", n >= 400);
    return 0;
}

static int twin(void)
{
    pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    return says_ok(child_status(pid) == 0);
}

ATTACK(.tries = "processes without end", .attack = attack, .twin = twin, .bare = "processes", .end = SANDBOX_END_TIME_LIMIT, .value = -1,
       .hits = SANDBOX_HIT_PIDS | SANDBOX_HIT_TIME, .limits = { .wall_ns = SECOND, .pids = 50 });
