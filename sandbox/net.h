/*
 * net.h - the network namespace of a slot: loopback and nothing else.
 *
 * Theory: making and unmaking one costs more than the rest of a sandbox, so the keeper lives in one
 * and its launchers are born there, one at a time: two sandboxes never share one while they run. It
 * belongs to the host's user namespace, so nothing inside may change its addresses, routes or
 * settings; what a sandbox can leave behind are sockets and what traffic leaves (TIME_WAIT,
 * conntrack, route and TCP metrics, counters, by which one sandbox could write to the next). So it
 * is used again only when it was never used: no socket counted, no flow label, and every counter of
 * the kernel as it was when the namespace was new. Otherwise the next sandbox gets a new one.
 */
#pragma once
#include "base/err.h"
#include <stdbool.h>

#define NET_SEEN_MAX 16384
struct net {
    int proc;                   /* directory /proc/self/net of the process that uses this */
    char seen[NET_SEEN_MAX];    /* the counters of the new namespace */
    size_t seen_len;            /* 0: never taken, never clean */
};

/* To be called while /proc is there; keeps a descriptor. */
MUST_CHECK int net_init(struct net *n, struct err *err);
/* Move the calling process into a new network namespace, loopback up. */
MUST_CHECK int net_fresh(struct net *n, struct err *err);
/* True when nothing was done with the namespace since net_fresh(), and no process but the caller is in it. */
bool net_unused(const struct net *n);
