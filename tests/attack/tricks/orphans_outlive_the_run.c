#include "tests/attack/attack.h"

/* Double fork, new session, signals ignored; the harness looks for them after the run. */
static int attack(void)
{
    for (int i = 0; i < 1000; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            if (fork() == 0 && i < 10) {
                setsid();
                for (int sig = 1; sig < 32; sig++)
                    signal(sig, SIG_IGN);
                for (;;)
                    pause();
            }
            _exit(0);
        }
        child_status(pid);
    }
    judged("ended", false);
    return 0;
}

static int twin(void)
{
    pid_t pid = fork();
    if (pid == 0)
        _exit(setsid() < 0);
    return says_ok(child_status(pid) == 0);
}

ATTACK(.tries = "daemons that outlive the run, and a thousand zombies", .attack = attack, .twin = twin,
       .not_bare = "the harness's own census after the run is the check", .limits = { .pids = 50 });
