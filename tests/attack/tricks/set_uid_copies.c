#include "tests/attack/attack.h"

static int copy(const char *from, const char *to, mode_t mode)
{
    char bytes[65536];
    int in = open(from, O_RDONLY), out = open(to, O_CREAT | O_WRONLY, 0755);
    for (ssize_t n; (n = read(in, bytes, sizeof bytes)) > 0; )
        if (write(out, bytes, (size_t)n) != n)
            return -1;
    close(out);
    return in < 0 || out < 0 ? -1 : chmod(to, mode);
}

/* As a set-uid program of another user, or of our own. */
static int attack(void)
{
    static const char *const known[] = { "/usr/bin/su", "/usr/bin/mount", "/usr/bin/passwd", "/usr/bin/newgrp", "/usr/bin/chsh", "/usr/bin/sudo" };
    struct stat st;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        tried("mount-by-program", system("mount -t tmpfs x /mnt >/dev/null 2>&1") == 0 ? 0 : -1);
        if (stat(known[i], &st) == 0 && (st.st_mode & S_ISUID))
            judged("program-gains", system("su -c true >/dev/null 2>&1 </dev/null; grep -q 'CapEff:.*[1-9a-f]' /proc/self/status") == 0);
    }
    if (copy("/bin/dash", "/tmp/s", 06755) < 0)         /* allowed; it must gain nothing */
        return 1;
    judged("copy-gains", system("/tmp/s -pc 'grep -q \"CapEff:.*[1-9a-f]\" /proc/self/status'") == 0);
    return 0;
}

static int twin(void) { return says_ok(copy("/bin/true", "/tmp/t", 0755) == 0 && system("/tmp/t") == 0); }

ATTACK(.tries = "set-uid programs, the image's and one's own", .attack = attack, .twin = twin, .bare = "copy-gains", .value = -1,
       .must = { "copy-gains refused", "mount-by-program refused" });
