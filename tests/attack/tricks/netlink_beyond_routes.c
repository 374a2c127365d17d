#include "tests/attack/attack.h"
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>

static int attack(void)
{
    static const struct { const char *name; int protocol; } kinds[] = {
        { "netlink-netfilter", 12 }, { "netlink-generic", 16 }, { "netlink-audit", 9 }, { "netlink-xfrm", 6 }, { "netlink-diag", 4 },
        { "netlink-uevent", 15 }, { "netlink-connector", 11 }, { "netlink-crypto", 21 }, { "netlink-selinux", 7 },
    };
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        tried(kinds[i].name, socket(AF_NETLINK, SOCK_RAW, kinds[i].protocol));
    struct { struct nlmsghdr h; struct ifinfomsg i; } m = {
        { sizeof m, RTM_NEWLINK, NLM_F_REQUEST | NLM_F_ACK, 1, 0 }, { .ifi_index = 1, .ifi_flags = 0, .ifi_change = 0 } };
    struct { struct nlmsghdr h; struct nlmsgerr e; char rest[256]; } a = { 0 };
    int s = socket(AF_NETLINK, SOCK_RAW, 0);
    if (s >= 0 && send(s, &m, sizeof m, 0) > 0 && recv(s, &a, sizeof a, 0) > 0) {
        errno = -a.e.error;
        tried("route-change", a.e.error == 0 ? 0 : -1);
    }
    return 0;
}

static int twin(void) { return says_ok(socket(AF_NETLINK, SOCK_RAW, 0) >= 0 && if_nametoindex("lo") == 1); }

ATTACK(.tries = "netfilter and others by netlink (CVE-2024-1086, CVE-2022-25636)", .attack = attack, .twin = twin, .bare = "netlink-uevent",
       .must = { "netlink-netfilter refused ENOSYS", "netlink-generic refused ENOSYS", "route-change refused EPERM" });
