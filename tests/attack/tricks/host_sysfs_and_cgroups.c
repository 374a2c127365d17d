#include "tests/attack/attack.h"

static int attack(void)
{
    static const char *const paths[] = {
        "/sys/kernel", "/sys/class", "/sys/class/net", "/sys/firmware", "/sys/kernel/debug", "/sys/kernel/security", "/sys/power/state",
        "/sys/fs/cgroup", "/sys/fs/cgroup/memory/release_agent", "/sys/kernel/uevent_helper", "/sys/module", "/sys/block/vda",
    };
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++)
        tried(paths[i], access(paths[i], F_OK));
    return 0;
}

static int twin(void)
{
    struct stat st;
    return says_ok(stat("/sys", &st) == 0 && S_ISDIR(st.st_mode));
}

ATTACK(.tries = "the host's /sys", .attack = attack, .twin = twin, .bare = "/sys/kernel", .must = { "/sys/kernel refused ENOENT", "/sys/fs/cgroup refused ENOENT" });
