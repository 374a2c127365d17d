#include "tests/attack/attack.h"

static int attack(void)
{
    static const char *const files[] = {
        "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/kernel/hostname", "/proc/sys/vm/drop_caches",
        "/proc/sys/fs/binfmt_misc/register", "/proc/sys/net/ipv4/ip_forward", "/proc/sys/kernel/pid_max", "/proc/sys/kernel/ns_last_pid",
        "/proc/sys/user/max_user_namespaces", "/proc/sys/vm/overcommit_memory", "/proc/sys/kernel/panic", "/proc/sysrq-trigger",
        "/proc/self/attr/current", "/proc/self/timens_offsets", "/proc/self/setgroups", "/proc/irq/0/smp_affinity", "/proc/mtrr",
        "/proc/acpi/wakeup", "/proc/latency_stats",
    };
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        if (strcmp(files[i], "/proc/self/attr/current") == 0 ||
            strcmp(files[i], "/proc/self/setgroups") == 0 || strcmp(files[i], "/proc/self/timens_offsets") == 0) {
            int fd = open(files[i], O_WRONLY);          /* anyone may open his own: it is the write that counts */
            tried(files[i], fd < 0 ? -1 : write(fd, "0\n", 2));
        } else {
            tried_open(files[i], O_WRONLY);
        }
    }
    tried("sethostname", sethostname("evil", 4));
    tried("setdomainname", setdomainname("evil", 4));
    return 0;
}

static int twin(void)
{
    char b[64];
    int fd = open("/proc/sys/kernel/ostype", O_RDONLY);
    return says_ok(read(fd, b, sizeof b) == 6);
}

ATTACK(.tries = "core_pattern, modprobe and other settings (runc CVE-2025-52881)", .attack = attack, .twin = twin,
       .bare = "/proc/sys/kernel/core_pattern", .must = { "/proc/sys/kernel/core_pattern refused", "sethostname refused ENOSYS" },
       .compatible = { .must = { "/proc/sys/kernel/core_pattern refused", "sethostname refused EPERM" } });
