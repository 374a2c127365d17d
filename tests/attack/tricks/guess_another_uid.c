#include "tests/attack/attack.h"
#include <grp.h>

static int attack(void)
{
    static const uid_t ids[] = { 1, 1000, 65534, 0x60000000, 0x60000001, 0x60000802 };
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++) {
        if (ids[i] == getuid())             /* one's own, in the compatible profile */
            continue;
        pid_t pid = fork();
        if (pid == 0)
            _exit(setresuid(ids[i], ids[i], ids[i]) == 0 ? 0 : errno);
        errno = WEXITSTATUS(child_status(pid));
        tried("setresuid", errno == 0 ? 0 : -1);
        close(open("/tmp/f", O_CREAT | O_WRONLY, 0644));
        tried("chown", chown("/tmp/f", ids[i], ids[i]));
        gid_t g = ids[i];
        tried("setgroups", (long)syscall(SYS_setgroups, 1, &g));
    }
    return 0;
}

static int twin(void) { return says_ok(setresuid(getuid(), getuid(), getuid()) == 0 && open("/tmp/g", O_CREAT | O_WRONLY, 0644) >= 0 && chown("/tmp/g", getuid(), getgid()) == 0); }

ATTACK(.tries = "become or give files to another uid (crun CVE-2026-30892)", .attack = attack, .twin = twin, .bare = "setresuid",
       .must = { "setresuid refused EINVAL", "chown refused EINVAL" });
