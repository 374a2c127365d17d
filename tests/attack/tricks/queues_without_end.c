#include "tests/attack/attack.h"
#include <mqueue.h>

static int attack(void)
{
    int n = 0;
    struct mq_attr a = { .mq_maxmsg = 10, .mq_msgsize = 8192 };
    for (; n < 200; n++) {
        char name[32];
        snprintf(name, sizeof name, "q%d", n);
        if (syscall(SYS_mq_open, name, O_CREAT | O_RDWR, 0600, &a) < 0)
            break;
    }
    judged("queues", n >= 200);
    for (int i = 0; i < 200; i++) {
        char name[32];
        snprintf(name, sizeof name, "q%d", i);
        syscall(SYS_mq_unlink, name);
    }
    return 0;
}

static int twin(void) { return says_ok(syscall(SYS_mq_open, "q", O_CREAT | O_RDWR, 0600, NULL) >= 0 && syscall(SYS_mq_unlink, "q") == 0); }

ATTACK(.tries = "message queues without end", .attack = attack, .twin = twin, .not_bare = "the kernel's own default for everyone is the limit", .must = { "queues refused" });
