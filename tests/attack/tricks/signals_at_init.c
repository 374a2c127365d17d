#include "tests/attack/attack.h"
#include <sys/resource.h>

static int attack(void)
{
    for (int sig = 1; sig < 65; sig++)
        kill(1, sig);
    syscall(SYS_pidfd_send_signal, syscall(SYS_pidfd_open, 1, 0), SIGKILL, NULL, 0);
    setpriority(PRIO_PROCESS, 1, 19);                   /* allowed, and of no use: init only sleeps */
    for (int sig = 1; sig < 32; sig++)
        if (sig != SIGKILL && sig != SIGSTOP)
            signal(sig, SIG_IGN);
    kill(-1, SIGTERM);
    kill(-1, SIGKILL);
    kill(-1, SIGSTOP);
    judged("init-gone", kill(1, 0) < 0 && errno == ESRCH);
    char line[256];
    FILE *f = fopen("/proc/1/status", "r");
    bool stopped = false;
    while (f != NULL && fgets(line, sizeof line, f) != NULL)
        stopped |= strncmp(line, "State:\tT", 8) == 0;
    judged("init-stopped", stopped);
    tried("group-outside", kill(-getpgrp() - 100000, SIGKILL));
    tried("parent-outside", getppid() == 0 ? (errno = ESRCH, -1) : kill(getppid(), 0));
    return 0;
}

static int holder(void) { hold(); return 0; }

static int twin(void)
{
    pid_t pid = idle_child();
    kill(pid, SIGKILL);
    return says_ok(WTERMSIG(child_status(pid)) == SIGKILL);
}

ATTACK(.tries = "kill, stop or signal init and everything else", .attack = attack, .twin = twin, .holder = holder,
       .not_bare = "an init without a handler is proof against signals from inside", .must = { "init-gone refused", "init-stopped refused" });
