#include "tests/attack/attack.h"
#include <arpa/inet.h>

static int attack(void)
{
    static char bytes[32768];
    size_t total = 0;
    for (int i = 0; i < 1900 && total < (size_t)192 << 20; i++) {
        struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
        socklen_t len = sizeof a;
        int s = socket(AF_INET, SOCK_DGRAM, 0), size = 1 << 22;
        setsockopt(s, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
        if (s < 0 || bind(s, (void *)&a, sizeof a) < 0 || getsockname(s, (void *)&a, &len) < 0)
            break;
        for (int k = 0; k < 6; k++) {
            ssize_t n = sendto(s, bytes, sizeof bytes, MSG_DONTWAIT, (void *)&a, sizeof a);
            total += n > 0 ? (size_t)n : 0;
        }
        int waiting = 0;
        socklen_t got = sizeof(int[9]);
        int info[9] = { 0 };
        if (getsockopt(s, SOL_SOCKET, 55 /* SO_MEMINFO */, info, &got) == 0)
            waiting = info[0];
        if (waiting == 0)
            break;                          /* nothing is kept any more */
    }
    printf("bytes %zu\n", total);
    judged("memory", total >= (size_t)160 << 20);
    return 0;
}

static int twin(void)
{
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof a;
    int s = socket(AF_INET, SOCK_DGRAM, 0);
    char b[2];
    return says_ok(bind(s, (void *)&a, sizeof a) == 0 && getsockname(s, (void *)&a, &len) == 0 && sendto(s, "hi", 2, 0, (void *)&a, sizeof a) == 2 &&
                   recv(s, b, 2, 0) == 2);
}

ATTACK(.tries = "memory by unread UDP datagrams, from a budget that the machine shares", .attack = attack, .twin = twin, .bare = "memory", .value = -1,
       .must = { "memory refused" }, .limits = { .memory_bytes = 64 * MIB, .wall_ns = 20 * SECOND });
