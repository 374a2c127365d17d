#include "tests/attack/attack.h"

static int attack(void)
{
    static const char *const places[] = { "/tmp", "/dev/shm", ".", "/assay/report" };
    int n = 0;
    for (size_t k = 0; k < 4; k++)
        for (int i = 0; i < 4000; i++) {
            char path[64];
            snprintf(path, sizeof path, "%s/%d", places[k], i);
            int fd = open(path, O_CREAT | O_WRONLY, 0600);
            if (fd < 0)
                break;
            close(fd);
            n++;
        }
    judged("files", n >= 4000);
    return 0;
}

static int twin(void) { return says_ok(open("/tmp/one", O_CREAT | O_WRONLY, 0600) >= 0); }

ATTACK(.tries = "files without end, in every place that can be written", .attack = attack, .twin = twin, .bare = "files", .hits = SANDBOX_HIT_DISK,
       .must = { "files refused" }, .limits = { .disk_inodes = 1500 });
