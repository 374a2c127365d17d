#include "tests/attack/attack.h"
#include <dirent.h>

/* What of the host can still be read at the top of /proc is this reviewed list of counters and nothing else: a new name that
 * answers is a finding. */
static int attack(void)
{
    static const char *const reviewed[] = { "buddyinfo", "cgroups", "consoles", "cpuinfo", "crypto", "devices", "dma", "execdomains", "fb", "filesystems",
        "iomem", "ioports", "loadavg", "locks", "mdstat", "meminfo", "misc", "mtrr", "pressure", "schedstat", "softirqs", "stat", "swaps", "sysvipc", "tty",
        "uptime", "version", "vmstat", "zoneinfo", "net", "self", "thread-self", "mounts", "sys", "bootconfig", "dynamic_debug", "latency_stats" };
    DIR *d = opendir("/proc");
    int odd = 0;
    for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL; ) {
        char path[300], b[1];
        bool known = e->d_name[0] == '.' || (e->d_name[0] >= '0' && e->d_name[0] <= '9');
        for (size_t i = 0; !known && i < sizeof reviewed / sizeof reviewed[0]; i++)
            known = strcmp(e->d_name, reviewed[i]) == 0;
        if (known)
            continue;
        snprintf(path, sizeof path, "/proc/%s", e->d_name);
        int fd = open(path, O_RDONLY | O_NONBLOCK);
        struct stat st;
        bool says = false;
        if (fd >= 0 && fstat(fd, &st) == 0 && S_ISDIR(st.st_mode)) {
            DIR *sub = fdopendir(fd);
            int n = 0;
            while (sub != NULL && readdir(sub) != NULL)
                n++;
            says = n > 2;
        } else if (fd >= 0) {
            says = read(fd, b, 1) == 1;
        }
        judged(e->d_name, says);
        odd += says;
    }
    judged("unreviewed", odd > 0);
    return 0;
}

static int twin(void) { return says_ok(access("/proc/loadavg", R_OK) == 0 && access("/proc/uptime", R_OK) == 0); }

ATTACK(.tries = "parts of /proc that nobody has reviewed", .attack = attack, .twin = twin, .bare = "unreviewed", .must = { "unreviewed refused", "kallsyms refused" });
