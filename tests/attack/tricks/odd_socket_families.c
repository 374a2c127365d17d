#include "tests/attack/attack.h"

static int attack(void)
{
    static const struct { const char *name; int family, type, protocol; } kinds[] = {
        { "vsock", AF_VSOCK, SOCK_STREAM, 0 }, { "vsock-dgram", AF_VSOCK, SOCK_DGRAM, 0 }, { "alg", AF_ALG, SOCK_SEQPACKET, 0 },
        { "key", AF_KEY, SOCK_RAW, 2 }, { "bluetooth", AF_BLUETOOTH, SOCK_RAW, 1 }, { "can", AF_CAN, SOCK_RAW, 1 },
        { "rds", AF_RDS, SOCK_SEQPACKET, 0 }, { "tipc", AF_TIPC, SOCK_STREAM, 0 }, { "xdp", AF_XDP, SOCK_RAW, 0 },
        { "smc", AF_SMC, SOCK_STREAM, 0 }, { "kcm", AF_KCM, SOCK_DGRAM, 0 }, { "qipcrtr", AF_QIPCRTR, SOCK_DGRAM, 0 },
        { "netrom", AF_NETROM, SOCK_SEQPACKET, 0 }, { "x25", AF_X25, SOCK_SEQPACKET, 0 }, { "ax25", AF_AX25, SOCK_DGRAM, 0 },
        { "nfc", AF_NFC, SOCK_RAW, 1 }, { "phonet", AF_PHONET, SOCK_DGRAM, 0 }, { "llc", AF_LLC, SOCK_STREAM, 0 },
        { "family-high-bits", AF_VSOCK, SOCK_STREAM, 0 },
    };
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        tried(kinds[i].name, socket(kinds[i].family, kinds[i].type, kinds[i].protocol));
    int pair[2];
    tried("pair-vsock", socketpair(AF_VSOCK, SOCK_STREAM, 0, pair));
    tried("pair-tipc", socketpair(AF_TIPC, SOCK_SEQPACKET, 0, pair));
    return 0;
}

static int twin(void)
{
    int pair[2];
    return says_ok(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) == 0);
}

ATTACK(.tries = "socket families beside UNIX and INET: vsock, alg, can, rds, tipc ... (isolate 2.6)", .attack = attack, .twin = twin,
       .bare = "vsock", .must = { "vsock refused ENOSYS", "alg refused ENOSYS", "tipc refused ENOSYS" });
