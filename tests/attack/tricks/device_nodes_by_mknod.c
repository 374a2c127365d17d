#include "tests/attack/attack.h"
#include <sys/sysmacros.h>

static int attack(void)
{
    static const struct { const char *name; mode_t kind; unsigned major, minor; } nodes[] = {
        { "disk", S_IFBLK, 254, 0 }, { "disk-scsi", S_IFBLK, 8, 0 }, { "mem", S_IFCHR, 1, 1 }, { "kmsg", S_IFCHR, 1, 11 }, { "null", S_IFCHR, 1, 3 },
        { "kvm", S_IFCHR, 10, 232 }, { "fuse", S_IFCHR, 10, 229 }, { "tun", S_IFCHR, 10, 200 }, { "console", S_IFCHR, 5, 1 },
    };
    static const char *const places[] = { "/tmp", "/dev", "/dev/shm", "/assay/report", "." };
    for (size_t i = 0; i < sizeof nodes / sizeof nodes[0]; i++)
        for (size_t k = 0; k < sizeof places / sizeof places[0]; k++) {
            char path[64];
            if (access(places[k], W_OK) < 0)
                continue;
            snprintf(path, sizeof path, "%s/n-%s", places[k], nodes[i].name);
            tried(nodes[i].name, mknod(path, nodes[i].kind | 0666, makedev(nodes[i].major, nodes[i].minor)));
            unlink(path);
        }
    return 0;
}

static int twin(void) { return says_ok(mkfifo("/tmp/p", 0666) == 0); }

ATTACK(.tries = "device nodes by mknod, on each file system that can be written", .attack = attack, .twin = twin, .bare = "mem",
       .must = { "disk refused E", "mem refused E" });
