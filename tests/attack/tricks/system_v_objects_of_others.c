#include "tests/attack/attack.h"
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>

#define KEY 0x41737361

static int holder(void)
{
    if (shmget(KEY, 4096, IPC_CREAT | 0666) < 0 || msgget(KEY, IPC_CREAT | 0666) < 0 || semget(KEY, 1, IPC_CREAT | 0666) < 0)
        return 1;
    hold();
    return 0;
}

static int attack(void)
{
    tried("shm", shmget(KEY, 4096, 0666));
    tried("msg", msgget(KEY, 0666));
    tried("sem", semget(KEY, 1, 0666));
    char line[256];
    FILE *f = fopen("/proc/sysvipc/shm", "r");
    int n = 0;
    while (f != NULL && fgets(line, sizeof line, f) != NULL)
        n++;
    judged("listed", n > 1);
    return 0;
}

static int twin(void) { return says_ok(shmget(KEY, 4096, IPC_CREAT | 0666) >= 0 && shmget(KEY, 4096, 0666) >= 0); }

ATTACK(.tries = "System V segments, queues and semaphores of a neighbour or left behind", .attack = attack, .twin = twin, .holder = holder, .earlier = holder,
       .bare = "shm", .must = { "shm refused ENOENT", "msg refused ENOENT", "listed refused" });
