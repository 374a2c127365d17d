#include "tests/attack/attack.h"
#include <mqueue.h>

static int holder(void)
{
    if (syscall(SYS_mq_open, "assay-attack", O_CREAT | O_RDWR, 0666, NULL) < 0)
        return 1;
    hold();
    return 0;
}

static int attack(void)
{
    tried("mq_open", syscall(SYS_mq_open, "assay-attack", O_RDWR, 0, NULL));
    tried("mq_unlink", syscall(SYS_mq_unlink, "assay-attack"));
    return 0;
}

static int twin(void) { return says_ok(syscall(SYS_mq_open, "own", O_CREAT | O_RDWR, 0600, NULL) >= 0 && syscall(SYS_mq_unlink, "own") == 0); }

ATTACK(.tries = "POSIX message queues of a neighbour", .attack = attack, .twin = twin, .holder = holder, .bare = "mq_open",
       .must = { "mq_open refused ENOENT", "mq_unlink refused ENOENT" });
