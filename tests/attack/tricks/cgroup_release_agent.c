#include "tests/attack/attack.h"
#include <sys/mount.h>

static int attack(void)
{
    static const char *const controllers[] = { "rdma", "memory", "pids", "cpu", "freezer", "devices" };
    mkdir("/tmp/cg", 0755);
    for (size_t i = 0; i < sizeof controllers / sizeof controllers[0]; i++) {
        char path[128];
        snprintf(path, sizeof path, "/sys/fs/cgroup/%s/release_agent", controllers[i]);
        tried("release_agent", open(path, O_WRONLY));
        snprintf(path, sizeof path, "/sys/fs/cgroup/%s/cgroup.procs", controllers[i]);
        tried("cgroup.procs", open(path, O_WRONLY));
        tried("mount-cgroup", mount("cgroup", "/tmp/cg", "cgroup", 0, controllers[i]));
    }
    tried("mount-cgroup2", mount("cgroup2", "/tmp/cg", "cgroup2", 0, NULL));
    tried("own-limit", open("/sys/fs/cgroup/memory/memory.limit_in_bytes", O_WRONLY));
    tried("own-limit-2", open("/sys/fs/cgroup/memory.max", O_WRONLY));
    tried("freeze-oneself", open("/sys/fs/cgroup/freezer/freezer.state", O_WRONLY));
    return 0;
}

static int twin(void) { return says_ok(open("/proc/self/cgroup", O_RDONLY) >= 0); }

ATTACK(.tries = "release_agent, moving out of one's group, freezing oneself (CVE-2022-0492)", .attack = attack, .twin = twin,
       .bare = "cgroup.procs", .must = { "release_agent refused ENOENT", "mount-cgroup refused ENOSYS" },
       .compatible = { .must = { "release_agent refused ENOENT", "mount-cgroup refused EPERM" } });
