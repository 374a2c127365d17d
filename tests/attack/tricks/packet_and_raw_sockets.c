#include "tests/attack/attack.h"

static int attack(void)
{
    tried("packet", socket(AF_PACKET, SOCK_RAW, 0));
    tried("packet-dgram", socket(AF_PACKET, SOCK_DGRAM, 0));
    tried("raw", socket(AF_INET, SOCK_RAW, 255));
    tried("raw-icmp", socket(AF_INET, SOCK_RAW, 1));
    tried("raw-icmp6", socket(AF_INET6, SOCK_RAW, 58));
    int one = 1, s = socket(AF_INET, SOCK_STREAM, 0);
    tried("transparent", setsockopt(s, 0, 19, &one, sizeof one));
    tried("mark", setsockopt(s, SOL_SOCKET, 36, &one, sizeof one));
    return 0;
}

static int twin(void) { return says_ok(socket(AF_INET, SOCK_DGRAM, 0) >= 0 && socket(AF_INET6, SOCK_STREAM, 0) >= 0); }

ATTACK(.tries = "packet and raw sockets (CVE-2020-14386), marks, transparent proxying", .attack = attack, .twin = twin, .bare = "raw",
       .must = { "packet refused", "raw refused" });
