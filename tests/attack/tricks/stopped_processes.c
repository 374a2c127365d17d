#include "tests/attack/attack.h"

static int attack(void)
{
    if (*given("ATTACK_BARE")) {
        pid_t pid = fork();
        if (pid == 0)
            raise(SIGSTOP);
        judged("stopped", waitpid(pid, NULL, WUNTRACED) == pid);
        return 0;
    }
    for (int i = 0; i < 8; i++)
        if (fork() == 0)
            raise(SIGSTOP);
    if (vfork() == 0)
        raise(SIGSTOP);
    raise(SIGSTOP);
    return 0;
}

static int twin(void)
{
    pid_t pid = fork();
    if (pid == 0)
        for (;;)
            raise(SIGSTOP);
    waitpid(pid, NULL, WUNTRACED);
    kill(pid, SIGCONT);
    kill(pid, SIGKILL);
    return says_ok(WTERMSIG(child_status(pid)) == SIGKILL);
}

ATTACK(.tries = "stopped processes and a parent stuck in vfork", .attack = attack, .twin = twin, .bare = "stopped", .end = SANDBOX_END_TIME_LIMIT,
       .value = -1, .hits = SANDBOX_HIT_TIME, .limits = { .wall_ns = SECOND });
