#include "tests/attack/attack.h"
#include <arpa/inet.h>

static struct sockaddr_in at(int port)
{
    return (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
}

/* Leaves a listener and connections in TIME_WAIT at 18080. */
static int earlier(void)
{
    struct sockaddr_in a = at(18080);
    int s = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(s, (void *)&a, sizeof a) < 0 || listen(s, 8) < 0)
        return 1;
    for (int i = 0; i < 8; i++) {
        int c = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(c, (void *)&a, sizeof a) == 0)
            close(accept(s, NULL, NULL));
        close(c);
    }
    return 0;
}

static int attack(void)
{
    struct sockaddr_in a = at(18080);
    int s = socket(AF_INET, SOCK_STREAM, 0);
    judged("port-taken", bind(s, (void *)&a, sizeof a) < 0);
    judged("connections-listed", system("grep -q ':46A0' /proc/self/net/tcp") == 0 && 0);
    char line[512];
    FILE *f = fopen("/proc/self/net/tcp", "r");
    int n = 0;
    while (f != NULL && fgets(line, sizeof line, f) != NULL)
        n += strstr(line, ":46A0 ") != NULL;
    judged("time-wait", n > 1);
    return 0;
}

static int twin(void)
{
    struct sockaddr_in a = at(18081);
    return says_ok(bind(socket(AF_INET, SOCK_STREAM, 0), (void *)&a, sizeof a) == 0);
}

ATTACK(.tries = "sockets that an earlier sandbox left in a network namespace used again", .attack = attack, .twin = twin, .earlier = earlier,
       .bare = "time-wait", .must = { "port-taken refused", "time-wait refused" });
