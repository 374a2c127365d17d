#include "tests/attack/attack.h"

static int attack(void)
{
    static const char *const names[] = { "mnt", "pid", "net", "user", "uts", "ipc", "cgroup", "time" };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[64], what[32];
        snprintf(path, sizeof path, "/proc/1/ns/%s", names[i]);
        tried(path, open(path, O_RDONLY));
        snprintf(path, sizeof path, "/proc/self/ns/%s", names[i]);
        snprintf(what, sizeof what, "setns-%s", names[i]);
        tried(what, syscall(SYS_setns, open(path, O_RDONLY), 0));
    }
    tried("setns-pidfd", syscall(SYS_setns, syscall(SYS_pidfd_open, 1, 0), CLONE_NEWNS));
    return 0;
}

static int twin(void)
{
    char a[64] = "", b[64] = "";
    return says_ok(readlink("/proc/self/ns/net", a, sizeof a - 1) > 0 && readlink("/proc/thread-self/ns/net", b, sizeof b - 1) > 0 && strcmp(a, b) == 0);
}

ATTACK(.tries = "setns to the namespaces of pid 1, by file and by pidfd", .attack = attack, .twin = twin, .bare = "/proc/1/ns/mnt",
       .must = { "setns-net refused ENOSYS", "setns-pidfd refused ENOSYS", "/proc/1/ns/mnt refused ENOENT" },
       .compatible = { .must = { "setns-net refused EPERM", "setns-pidfd refused EPERM", "/proc/1/ns/mnt refused ENOENT" } });
