#include "tests/attack/attack.h"

/* CLONE_PARENT makes siblings: children of the process outside that started the command, which knows nothing of them. */
static int attack(void)
{
    int got = 0;
    for (int i = 0; i < 30; i++) {
        long pid = syscall(SYS_clone, CLONE_PARENT | SIGCHLD, 0, 0, 0, 0);
        if (pid == 0) {
            if (i % 3 == 0)
                _exit(i);
            if (i % 3 == 1)
                raise(SIGSTOP);
            for (;;)
                pause();
        }
        got += pid > 0;
    }
    printf("siblings made %d\nrefused by the end of the run\n", got);
    fflush(stdout);
    _exit(7);
}

static int twin(void)
{
    pid_t pid = fork();
    if (pid == 0)
        _exit(3);
    return says_ok(WEXITSTATUS(child_status(pid)) == 3);
}

ATTACK(.tries = "siblings by CLONE_PARENT, to confuse or to block the runner's wait", .attack = attack, .twin = twin,
       .not_bare = "the harness sees the right exit status, in time", .value = 7, .must = { "siblings made 30" }, .limits = { .wall_ns = 5 * SECOND });
