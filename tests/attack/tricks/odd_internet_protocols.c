#include "tests/attack/attack.h"

static int attack(void)
{
    static const struct { const char *name; int type, protocol; } kinds[] = {
        { "mptcp", SOCK_STREAM, 262 }, { "sctp", SOCK_SEQPACKET, 132 }, { "sctp-stream", SOCK_STREAM, 132 }, { "dccp", 6, 33 },
        { "udplite", SOCK_DGRAM, 136 }, { "smc", SOCK_STREAM, 256 }, { "l2tp", SOCK_DGRAM, 115 }, { "igmp", SOCK_DGRAM, 2 },
    };
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        tried(kinds[i].name, socket(AF_INET, kinds[i].type, kinds[i].protocol));
        tried(kinds[i].name, socket(AF_INET6, kinds[i].type, kinds[i].protocol));
    }
    return 0;
}

static int twin(void) { return says_ok(socket(AF_INET, SOCK_STREAM, 6) >= 0 && socket(AF_INET6, SOCK_DGRAM, 17) >= 0 && socket(AF_INET, SOCK_STREAM, 0) >= 0); }

ATTACK(.tries = "protocols beside TCP and UDP: MPTCP, SCTP, DCCP, UDP-Lite (CVE-2021-23133)", .attack = attack, .twin = twin, .bare = "mptcp",
       .must = { "mptcp refused", "sctp refused", "udplite refused" });
