#include "tests/attack/attack.h"

static long bytes_of(const char *path)
{
    char b[16];
    int fd = open(path, O_RDONLY | O_NONBLOCK);
    if (fd < 0)
        return -1;
    ssize_t n = read(fd, b, sizeof b);
    errno = n == 0 ? ENODATA : errno;
    return n > 0 ? n : -1;
}

static int attack(void)
{
    static const char *const files[] = {
        "/proc/kcore", "/proc/kmsg", "/proc/keys", "/proc/key-users", "/proc/kallsyms", "/proc/config.gz", "/proc/cmdline",
        "/proc/modules", "/proc/interrupts", "/proc/timer_list", "/proc/sched_debug", "/proc/slabinfo", "/proc/vmallocinfo",
        "/proc/pagetypeinfo", "/proc/kpageflags", "/proc/kpagecount", "/proc/kpagecgroup", "/proc/diskstats", "/proc/partitions",
        "/proc/fs/ext4", "/proc/scsi/scsi", "/proc/bus/pci/devices", "/proc/driver/rtc", "/proc/ioports_",
    };
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        tried(files[i], bytes_of(files[i]));
    char line[128] = "";
    FILE *f = fopen("/proc/iomem", "r");
    bool addresses = false;
    while (f != NULL && fgets(line, sizeof line, f) != NULL)
        addresses |= strncmp(line, "00000000-00000000", 17) != 0 && strstr(line, "00000000-00000000") == NULL;
    judged("iomem-addresses", addresses);
    return 0;
}

static int twin(void) { return says_ok(bytes_of("/proc/meminfo") > 0 && bytes_of("/proc/self/status") > 0 && bytes_of("/proc/cpuinfo") > 0); }

ATTACK(.tries = "kernel memory, keys, addresses and the host's hardware by /proc", .attack = attack, .twin = twin, .bare = "/proc/kallsyms",
       .must = { "/proc/kcore refused", "/proc/keys refused", "/proc/kallsyms refused" });
