#include "tests/attack/attack.h"
#include <sys/resource.h>

/* With core_pattern = |program the kernel runs that program as root outside, whatever the limit, except for a limit of 1. */
static int attack(void)
{
    struct rlimit r;
    getrlimit(RLIMIT_CORE, &r);
    judged("core-piped", r.rlim_cur != 1);
    judged("core-written", r.rlim_max > 1);
    pid_t pid = fork();
    if (pid == 0) {
        signal(SIGSEGV, SIG_DFL);
        raise(SIGSEGV);
    }
    int status = child_status(pid);
    judged("core-dumped", WCOREDUMP(status));
    return 0;
}

static int twin(void)
{
    pid_t pid = fork();
    if (pid == 0)
        raise(SIGABRT);
    return says_ok(WTERMSIG(child_status(pid)) == SIGABRT);
}

ATTACK(.tries = "crash into the host's core dump handler", .attack = attack, .twin = twin, .bare = "core-piped", .must = { "core-dumped refused" });
