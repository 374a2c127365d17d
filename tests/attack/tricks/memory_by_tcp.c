#include "tests/attack/attack.h"
#include <arpa/inet.h>

/* Socket buffers of TCP and UDP are counted apart on cgroup v1, and against a total that the whole machine shares. */
static int attack(void)
{
    static char bytes[1 << 16];
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof a;
    int s = socket(AF_INET, SOCK_STREAM, 0), size = 1 << 22;
    size_t total = 0;
    if (bind(s, (void *)&a, sizeof a) < 0 || listen(s, 100) < 0 || getsockname(s, (void *)&a, &len) < 0)
        return 1;
    for (int i = 0; i < 400 && total < (size_t)192 << 20; i++) {
        int c = socket(AF_INET, SOCK_STREAM, 0);
        setsockopt(c, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
        if (connect(c, (void *)&a, sizeof a) < 0 || accept(s, NULL, NULL) < 0)
            break;
        fcntl(c, F_SETFL, O_NONBLOCK);
        for (int tries = 0; tries < 20; tries++) {
            ssize_t n = write(c, bytes, sizeof bytes);
            total += n > 0 ? (size_t)n : 0;
            if (n < 0)
                usleep(200);
        }
    }
    printf("bytes %zu\n", total);
    judged("memory", total >= (size_t)128 << 20);
    return 0;
}

static int twin(void)
{
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof a;
    int s = socket(AF_INET, SOCK_STREAM, 0), c = socket(AF_INET, SOCK_STREAM, 0);
    char b[2];
    return says_ok(bind(s, (void *)&a, sizeof a) == 0 && listen(s, 1) == 0 && getsockname(s, (void *)&a, &len) == 0 &&
                   connect(c, (void *)&a, sizeof a) == 0 && write(c, "hi", 2) == 2 && read(accept(s, NULL, NULL), b, 2) == 2);
}

ATTACK(.tries = "memory by unread TCP connections, from a budget that the machine shares", .attack = attack, .twin = twin, .bare = "memory", .must = { "memory refused" }, .limits = { .memory_bytes = 64 * MIB, .wall_ns = 20 * SECOND });
