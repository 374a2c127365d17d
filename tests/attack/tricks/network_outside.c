#include "tests/attack/attack.h"
#include <arpa/inet.h>

static long out(int family, int type, const char *to, int port)
{
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
    struct sockaddr_in6 b = { .sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port), .sin6_scope_id = 1 };
    inet_pton(AF_INET, to, &a.sin_addr);
    inet_pton(AF_INET6, to, &b.sin6_addr);
    void *p = family == AF_INET ? (void *)&a : (void *)&b;
    return connect(socket(family, type | SOCK_NONBLOCK, 0), p, family == AF_INET ? sizeof a : sizeof b) < 0 && errno != EINPROGRESS ? -1 : 0;
}

static int attack(void)
{
    double began = seconds();
    tried("metadata", out(AF_INET, SOCK_STREAM, "169.254.169.254", 80));
    tried("test-net", out(AF_INET, SOCK_STREAM, "192.0.2.1", 443));
    tried("private", out(AF_INET, SOCK_STREAM, "10.0.0.1", 22));
    tried("dns-udp", out(AF_INET, SOCK_DGRAM, "192.0.2.53", 53));
    tried("dns-tcp", out(AF_INET, SOCK_STREAM, "192.0.2.53", 53));
    tried("documentation-6", out(AF_INET6, SOCK_STREAM, "2001:db8::1", 443));
    tried("unique-local-6", out(AF_INET6, SOCK_DGRAM, "fd00::1", 53));
    judged("interfaces", access("/proc/self/net/dev_mcast", F_OK) == 0 && system("grep -qE '(eth|ens|enp|veth)' /proc/self/net/dev") == 0);
    judged("slow-refusal", seconds() - began > 5);
    return 0;
}

static int twin(void) { return says_ok(out(AF_INET, SOCK_DGRAM, "127.0.0.1", 9) == 0 && out(AF_INET6, SOCK_DGRAM, "::1", 9) == 0); }

ATTACK(.tries = "metadata service, private networks, DNS and IPv6, refused at once", .attack = attack, .twin = twin,
       .not_bare = "the host that tests run on may have no network either",
       .must = { "metadata refused ENETUNREACH", "dns-udp refused ENETUNREACH", "unique-local-6 refused" });
