#include "tests/attack/attack.h"
#include <arpa/inet.h>

static long try_port(int port)
{
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    int s = socket(AF_INET, SOCK_STREAM, 0), rc = connect(s, (void *)&a, sizeof a);
    struct sockaddr_in own;
    socklen_t len = sizeof own;
    if (rc == 0 && getsockname(s, (void *)&own, &len) == 0 && own.sin_port == a.sin_port) {
        errno = ECONNREFUSED;           /* nobody is there but oneself: the kernel chose the very port to call from */
        rc = -1;
    }
    close(s);
    return rc;
}

static int attack(void)
{
    tried("host-loopback", try_port(atoi(given("HOST_PORT"))));
    int open = 0;
    if (*given("ATTACK_BARE"))          /* who else listens is left alone */
        return 0;
    for (int port = 1; port < 65536; port += port < 1024 ? 1 : 61)
        open += try_port(port) == 0;
    judged("open-ports", open > 0);
    return 0;
}

static int twin(void)
{
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof a;
    int s = socket(AF_INET, SOCK_STREAM, 0);
    return says_ok(bind(s, (void *)&a, sizeof a) == 0 && listen(s, 1) == 0 && getsockname(s, (void *)&a, &len) == 0 &&
                   try_port(ntohs(a.sin_port)) == 0);
}

ATTACK(.tries = "services on the host's loopback", .attack = attack, .twin = twin, .bare = "host-loopback",
       .must = { "host-loopback refused ECONNREFUSED" });
