#include "tests/attack/attack.h"
#include <dirent.h>
#include <sys/resource.h>

static int holder(void) { hold(); return 0; }

static int attack(void)
{
    int listed = 0, signalled = 0, opened = 0;
    DIR *d = opendir("/proc");
    for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL; )
        listed += e->d_name[0] >= '1' && e->d_name[0] <= '9' && atoi(e->d_name) != getpid() && atoi(e->d_name) != 1 && atoi(e->d_name) != getppid();
    for (pid_t pid = 2; pid < 33000; pid++)
        if (pid != getpid() && pid != getppid()) {
            signalled += kill(pid, 0) == 0 || errno == EPERM;
            long fd = syscall(SYS_pidfd_open, pid, 0);
            opened += fd >= 0;
            if (fd >= 0)
                close((int)fd);
        }
    judged("listed", listed > 0);
    judged("signalled", signalled > 0);
    judged("pidfd", opened > 0);
    return 0;
}

static int twin(void)
{
    pid_t pid = idle_child();
    bool sees = kill(pid, 0) == 0;
    kill(pid, SIGKILL);
    child_status(pid);
    return says_ok(sees);
}

ATTACK(.tries = "find and signal the processes of host and neighbours", .attack = attack, .twin = twin, .holder = holder, .bare = "signalled",
       .must = { "listed refused", "signalled refused" });
