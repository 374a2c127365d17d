#include "tests/attack/attack.h"

static int attack(void)
{
    int fd = open("/proc/self/oom_score_adj", O_WRONLY);
    tried("oom-minus-1000", fd < 0 ? -1 : pwrite(fd, "-1000", 5, 0));
    tried("oom-minus-1", fd < 0 ? -1 : pwrite(fd, "-1", 2, 0));
    tried("oom-init-up", open("/proc/1/oom_score_adj", O_WRONLY));
    return 0;
}

static int twin(void)
{
    int fd = open("/proc/self/oom_score_adj", O_WRONLY);
    return says_ok(fd >= 0 && pwrite(fd, "1000", 4, 0) == 4);
}

ATTACK(.tries = "make others the victim when memory runs out", .attack = attack, .twin = twin, .bare = "oom-init-up",
       .must = { "oom-minus-1000 refused EACCES", "oom-init-up refused ENOENT" });
