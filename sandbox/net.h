/*
 * net.h - the network namespace of a slot: loopback and nothing else.
 *
 * Theory: making and unmaking one costs more than the rest of a sandbox, so a launcher keeps
 * its own for all its sandboxes, one at a time: no two share one while they run. It
 * belongs to the host's user namespace, so nothing inside may change its addresses, routes or
 * settings; what a sandbox can leave behind are sockets and what traffic leaves (TIME_WAIT,
 * conntrack, route and TCP metrics, counters, by which one sandbox could write to the next). So it
 * is used again only when it was never used: no socket counted, no flow label, no cached route of IPv6, and every counter
 * of the kernel as it was when the namespace was new. Otherwise the next sandbox gets a new one. What cannot be seen is
 * taken away: IPv4's cached routes, whose age anyone may ask for, though they come of a mere connect() of a datagram socket.
 */
#pragma once
#include "base/err.h"
#include "sandbox/siphash.h"
#include <stdbool.h>
#include <stdint.h>

#define NET_COUNTERS 7
struct net {
    int proc;                   /* directory /proc/PID/net of the process that uses this */
    bool seen;                  /* the new namespace was looked at, and what follows holds; if not, it is never clean */
    int sockstat;
    int flush;                  /* IPv4's cached routes: to be written to */
    struct net_counter {
        int fd;                 /* -1: this kernel has none */
        uint64_t digest, len;   /* of the text when the namespace was new */
    } counters[NET_COUNTERS];
    struct siphash_key key;     /* of the digests, another in each namespace */
    uint32_t count;             /* grows by each new one */
};

/* See the namespace with the eyes of the calling process; `proc` is a descriptor of /proc. Keeps one of its own. `n` is all
 * zeros. */
MUST_CHECK int net_watch(struct net *n, int proc, struct err *err);
/* Unless the one it is in is as new, but for `ours` sockets, move the calling process into a new one, loopback up. */
MUST_CHECK int net_renew(struct net *n, unsigned long ours, struct err *err);
/* Move the calling process into a new one in which nothing is up; net_renew() leaves it again. */
MUST_CHECK int net_none(struct net *n, struct err *err);
/* A socket that listens on the namespace's loopback; whoever has the descriptor, wherever, can accept. Returns it, owned. */
MUST_CHECK int net_listen(uint16_t port, struct err *err);
