#include "tests/attack/attack.h"
#include <sys/mount.h>

static int attack(void)
{
    mkdir("/tmp/m", 0755);
    tried("mount-tmpfs", mount("none", "/tmp/m", "tmpfs", 0, NULL));
    tried("mount-bind", mount("/", "/tmp/m", NULL, MS_BIND, NULL));
    tried("mount-proc", mount("proc", "/tmp/m", "proc", 0, NULL));
    tried("mount-sysfs", mount("sysfs", "/tmp/m", "sysfs", 0, NULL));
    tried("mount-cgroup", mount("cgroup", "/tmp/m", "cgroup", 0, "memory"));
    tried("mount-overlay", mount("overlay", "/tmp/m", "overlay", 0, "lowerdir=/usr:/etc"));
    tried("mount-shared", mount(NULL, "/", NULL, MS_SHARED | MS_REC, NULL));
    tried("remount", mount(NULL, "/proc/sys", NULL, MS_REMOUNT | MS_BIND, NULL));
    return 0;
}

static int twin(void) { return says_ok(mkdir("/tmp/a", 0755) == 0 && rename("/tmp/a", "/tmp/b") == 0 && rmdir("/tmp/b") == 0); }

ATTACK(.tries = "mount(2): tmpfs, bind, proc, sysfs, cgroup, overlay, propagation", .attack = attack, .twin = twin, .bare = "mount-tmpfs",
       .must = { "mount-bind refused ENOSYS", "remount refused ENOSYS" },
       .compatible = { .must = { "mount-bind refused EPERM", "remount refused EPERM" } });
