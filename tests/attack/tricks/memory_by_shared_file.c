#include "tests/attack/attack.h"

#define SIZE ((size_t)192 << 20)

static int attack(void)
{
    int fd = open("/dev/shm/f", O_CREAT | O_RDWR, 0600), failed = 0;
    if (ftruncate(fd, SIZE) < 0)
        return 1;
    char *p = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    pid_t pids[8];
    for (int i = 0; i < 8; i++)
        if ((pids[i] = fork()) == 0) {
            memset(p + i * (SIZE / 8), 1, SIZE / 8);
            _exit(0);
        }
    for (int i = 0; i < 8; i++)
        failed += child_status(pids[i]) != 0;
    judged("memory", failed == 0);
    return 0;
}

static int twin(void)
{
    char *p = malloc(1 << 20);
    memset(p, 1, 1 << 20);
    return says_ok(p[4096] == 1);
}

ATTACK(.tries = "memory by a shared file mapping, filled by many children", .attack = attack, .twin = twin, .bare = "memory", .end = SANDBOX_END_COUNT, .value = -1,
       .hits = SANDBOX_HIT_MEMORY, .limits = { .memory_bytes = 64 * MIB, .disk_bytes = 4096 * MIB, .file_bytes = 4096 * MIB, .wall_ns = 20 * SECOND });
