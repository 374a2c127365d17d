#include "tests/attack/attack.h"
#include <sys/mount.h>

/* What lies under the masks of /proc and under the cover of the writable layer. */
static int attack(void)
{
    static const char *const masks[] = { "/proc/keys", "/proc/kallsyms", "/proc/fs", "/proc/sys", "/assay/store", "/proc" };
    for (size_t i = 0; i < sizeof masks / sizeof masks[0]; i++) {
        tried("umount", umount2(masks[i], MNT_DETACH));
        tried("rename-mask", rename(masks[i], "/tmp/gone"));
        tried("remove-mask", unlink(masks[i]) < 0 ? rmdir(masks[i]) : 0);
    }
    char bytes[8];
    int fd = open("/proc/kallsyms", O_RDONLY);
    judged("kallsyms", fd >= 0 && read(fd, bytes, sizeof bytes) > 0);
    tried_open("/assay/store/up", O_RDONLY);
    return 0;
}

static int twin(void) { return says_ok(open("/proc/meminfo", O_RDONLY) >= 0); }

ATTACK(.tries = "umount, rename or remove the masks of /proc", .attack = attack, .twin = twin, .bare = "kallsyms",
       .must = { "umount refused ENOSYS", "rename-mask refused" },
       .compatible = { .must = { "umount refused EPERM", "rename-mask refused" } });
