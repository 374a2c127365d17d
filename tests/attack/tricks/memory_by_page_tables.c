#include "tests/attack/attack.h"

/* One page touched in each 2 MiB: a table of 4 KiB for a page of 4 KiB, and the zero page costs nothing but the table. */
static int attack(void)
{
    size_t count = 0;
    for (int i = 0; i < 64; i++) {
        char *p = mmap(NULL, (size_t)1 << 30, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED)
            break;
        madvise(p, (size_t)1 << 30, MADV_NOHUGEPAGE);
        for (size_t at = 0; at < (size_t)1 << 30; at += 2 << 20) {
            (void)*(volatile char *)(p + at);
            count++;
        }
    }
    judged("memory", count * 4096 >= (size_t)96 << 20);
    return 0;
}

static int twin(void)
{
    char *p = mmap(NULL, (size_t)1 << 30, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return says_ok(p != MAP_FAILED && *(volatile char *)p == 0);
}

ATTACK(.tries = "memory by page tables", .attack = attack, .twin = twin, .bare = "memory", .end = SANDBOX_END_MEMORY_LIMIT, .value = -1,
       .hits = SANDBOX_HIT_MEMORY, .limits = { .memory_bytes = 64 * MIB, .wall_ns = 20 * SECOND });
