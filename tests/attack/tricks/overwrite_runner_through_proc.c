#include "tests/attack/attack.h"

/* /proc/1/exe is the runner's own file: CVE-2019-5736 wrote over it. */
static int attack(void)
{
    static const char *const parts[] = { "exe", "mem", "environ", "root/etc/shadow", "cwd/etc", "fd/0", "fd/3", "map_files" };
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        char path[64];
        snprintf(path, sizeof path, "/proc/1/%s", parts[i]);
        tried_open(path, O_RDONLY);
        tried_open(path, O_RDWR);
    }
    return 0;
}

static int twin(void) { return says_ok(open("/proc/self/exe", O_RDONLY) >= 0 && open("/proc/self/mem", O_RDWR) >= 0); }

ATTACK(.tries = "write over the runner by /proc/1/exe, or read it (runc CVE-2019-5736)", .attack = attack, .twin = twin,
       .bare = "/proc/1/exe", .must = { "/proc/1/exe refused ENOENT", "/proc/1/mem refused ENOENT" });
