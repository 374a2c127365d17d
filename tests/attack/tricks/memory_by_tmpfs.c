#include "tests/attack/attack.h"

#define SIZE ((size_t)192 << 20)

static int attack(void)
{
    static char bytes[1 << 20];
    size_t n = 0;
    int fd = open("/tmp/f", O_CREAT | O_WRONLY, 0600);
    memset(bytes, 1, sizeof bytes);
    while (n < SIZE && write(fd, bytes, sizeof bytes) == (ssize_t)sizeof bytes)
        n += sizeof bytes;
    judged("memory", n >= SIZE);
    return 0;
}

static int twin(void)
{
    char *p = malloc(1 << 20);
    memset(p, 1, 1 << 20);
    return says_ok(p[4096] == 1);
}

ATTACK(.tries = "memory by files in /tmp, which is memory", .attack = attack, .twin = twin, .bare = "memory", .end = SANDBOX_END_MEMORY_LIMIT, .value = -1,
       .hits = SANDBOX_HIT_MEMORY, .limits = { .memory_bytes = 64 * MIB, .disk_bytes = 4096 * MIB, .file_bytes = 4096 * MIB, .wall_ns = 20 * SECOND });
