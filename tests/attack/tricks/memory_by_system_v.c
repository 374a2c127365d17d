#include "tests/attack/attack.h"
#include <sys/shm.h>

#define SIZE ((size_t)192 << 20)

static int attack(void)
{
    int id = shmget(IPC_PRIVATE, SIZE, 0600);
    void *p = shmat(id, NULL, 0);
    shmctl(id, IPC_RMID, NULL);
    if (p != (void *)-1)
        memset(p, 1, SIZE);
    judged("memory", p != (void *)-1);
    return 0;
}

static int twin(void)
{
    char *p = malloc(1 << 20);
    memset(p, 1, 1 << 20);
    return says_ok(p[4096] == 1);
}

ATTACK(.tries = "memory by System V segments", .attack = attack, .twin = twin, .bare = "memory", .end = SANDBOX_END_MEMORY_LIMIT, .value = -1,
       .hits = SANDBOX_HIT_MEMORY, .limits = { .memory_bytes = 64 * MIB, .disk_bytes = 4096 * MIB, .file_bytes = 4096 * MIB, .wall_ns = 20 * SECOND });
