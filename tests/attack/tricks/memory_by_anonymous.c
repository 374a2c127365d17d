#include "tests/attack/attack.h"

#define SIZE ((size_t)192 << 20)

static int attack(void)
{
    char *p = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p != MAP_FAILED)
        memset(p, 1, SIZE);
    judged("memory", p != MAP_FAILED);
    return 0;
}

static int twin(void)
{
    char *p = malloc(1 << 20);
    memset(p, 1, 1 << 20);
    return says_ok(p[4096] == 1);
}

ATTACK(.tries = "memory by anonymous pages", .attack = attack, .twin = twin, .bare = "memory", .end = SANDBOX_END_MEMORY_LIMIT, .value = -1,
       .hits = SANDBOX_HIT_MEMORY, .limits = { .memory_bytes = 64 * MIB, .disk_bytes = 4096 * MIB, .file_bytes = 4096 * MIB, .wall_ns = 20 * SECOND });
