#include "tests/attack/attack.h"

/* Where the host keeps its store, and which slot one sits in, is nobody's business inside. */
static int attack(void)
{
    static const char *const files[] = { "/proc/self/mountinfo", "/proc/self/mounts", "/proc/self/mountstats", "/proc/self/maps", "/proc/self/cgroup", "/proc/self/status",
                                         "/proc/self/stat", "/proc/1/cgroup", "/proc/self/uid_map_" };
    static char text[1 << 20];
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        int fd = open(files[i], O_RDONLY);
        size_t len = 0;
        for (ssize_t n; (n = read(fd, text + len, sizeof text - 1 - len)) > 0; )
            len += (size_t)n;
        text[len] = '\0';
        judged(files[i], strstr(text, given("HOST_DIR")) != NULL || strstr(text, "assay-jail") != NULL || strstr(text, "/slot-") != NULL ||
                         strstr(text, "/dev/vda") != NULL);
    }
    return 0;
}

static int twin(void) { return says_ok(access("/proc/self/mountinfo", R_OK) == 0); }

ATTACK(.tries = "the host's paths in mountinfo, maps and cgroup", .attack = attack, .twin = twin, .bare = "/proc/self/mountinfo",
       .must = { "/proc/self/maps refused", "/proc/self/cgroup refused" });
