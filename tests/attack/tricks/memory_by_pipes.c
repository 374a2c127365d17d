#include "tests/attack/attack.h"

/* Kernel memory: pipes filled to the brim, each a megabyte. */
static int attack(void)
{
    static char bytes[1 << 20];
    size_t total = 0;
    for (int i = 0; i < 3000 && total < (size_t)192 << 20; i++) {
        int p[2];
        if (pipe2(p, O_NONBLOCK) < 0)
            break;
        fcntl(p[1], F_SETPIPE_SZ, 1 << 20);
        ssize_t n = write(p[1], bytes, sizeof bytes);
        total += n > 0 ? (size_t)n : 0;
    }
    judged("memory", total >= (size_t)128 << 20);
    return 0;
}

static int twin(void)
{
    int p[2];
    return says_ok(pipe(p) == 0 && write(p[1], "x", 1) == 1);
}

ATTACK(.tries = "memory by full pipes", .attack = attack, .twin = twin, .bare = "memory", .end = SANDBOX_END_MEMORY_LIMIT, .value = -1,
       .hits = SANDBOX_HIT_MEMORY, .limits = { .memory_bytes = 64 * MIB, .wall_ns = 20 * SECOND });
