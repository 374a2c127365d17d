#include "tests/attack/attack.h"

static int attack(void)
{
    static char bytes[1 << 16];
    size_t total = 0;
    int size = 1 << 22;
    for (int i = 0; i < 1900 && total < (size_t)192 << 20; i++) {
        int p[2];
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, p) < 0)
            break;
        setsockopt(p[0], SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
        for (ssize_t n; (n = write(p[0], bytes, sizeof bytes)) > 0; )
            total += (size_t)n;
    }
    judged("memory", total >= (size_t)128 << 20);
    return 0;
}

static int twin(void)
{
    int p[2];
    return says_ok(socketpair(AF_UNIX, SOCK_DGRAM, 0, p) == 0 && write(p[0], "x", 1) == 1);
}

ATTACK(.tries = "memory by unread Unix sockets", .attack = attack, .twin = twin, .bare = "memory", .end = SANDBOX_END_MEMORY_LIMIT, .value = -1,
       .hits = SANDBOX_HIT_MEMORY, .limits = { .memory_bytes = 64 * MIB, .wall_ns = 20 * SECOND });
