/* net.c - see net.h. What cannot be read counts as used. */
#include "sandbox/net.h"
#include "base/own.h"
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/socket.h>

/*
 * Per network namespace all of them, and constant while nothing happens there; without IPv6 some are absent, and fib_triestat,
 * which counts every look for a route, is in few kernels (Debian's have it). None is
 * implied by the others: a datagram without a route is in snmp or snmp6 alone, an MPTCP connection to no address in
 * netstat, a label in ip6_flowlabel, a route that was only looked up in rt6_stats, and a packet of yet another protocol
 * would be in dev. The cheap ones come first. They stay open with the namespace: an open one shows that in which it was
 * opened, and keeps it alive.
 */
static const char *const counters[NET_COUNTERS] = { "dev", "rt6_stats", "ip6_flowlabel", "fib_triestat", "snmp", "snmp6", "netstat" };
#define TEXT_MAX 1024           /* so much at once: what a process has touched of its stack it keeps */

/* Of the text of `fd` from `at` on as much as there is room for; less is the end. */
static ssize_t fill(int fd, char *out, size_t size, uint64_t at)
{
    size_t len = 0;
    ssize_t n = 1;
    while (len < size && (n = pread(fd, out + len, size - len, (off_t)(at + len))) > 0)
        len += (size_t)n;
    return n < 0 ? -1 : (ssize_t)len;
}

/*
 * 64 bits stand for the text: a sandbox may count up what it likes, but it never learns key or digest (its agent's memory,
 * where copies are, is closed to it), so all it can do is guess, with a namespace for each guess and a chance of 1 in 2^64
 * that another text passes for the first.
 */
static bool look(struct net_counter *c, const struct siphash_key *key)
{
    struct siphash hash;
    char text[TEXT_MAX];
    ssize_t n;
    siphash_start(&hash, key);
    do {
        if ((n = fill(c->fd, text, sizeof text, hash.len)) < 0)
            return false;
        siphash_add(&hash, text, (size_t)n);
    } while (n == sizeof text);
    c->len = hash.len;
    c->digest = siphash_finish(&hash);
    return c->len > 0;
}

/* Are there no sockets but `ours`, of any family, and no TIME_WAIT entries and fragments? "mem", "orphan", "alloc" are the host's. */
static bool no_sockets(const struct net *n, unsigned long ours_count)
{
    static const char *const ours[] = { "used", "inuse", "tw", "memory" };
    char text[TEXT_MAX];
    ssize_t len = fill(n->sockstat, text, sizeof text, 0);
    bool counted = false;
    if (len <= 0 || len == sizeof text)
        return false;
    text[len] = '\0';
    char *save = NULL;
    for (char *word = strtok_r(text, " \n", &save); word != NULL; word = strtok_r(NULL, " \n", &save))
        for (size_t i = 0; i < sizeof ours / sizeof ours[0]; i++)
            if (strcmp(word, ours[i]) == 0) {
                char *value = strtok_r(NULL, " \n", &save);
                if (value == NULL || strtoul(value, NULL, 10) != (i == 0 ? ours_count : 0))
                    return false;
                counted |= i == 0;              /* "sockets: used": sockets of every family */
                break;
            }
    return counted;
}

int net_watch(struct net *n, int proc, struct err *err)
{
    n->proc = openat(proc, "self/net", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return n->proc < 0 ? err_sys(err, ERR_SYS, "/proc/self/net") : 0;
}

/* Let the namespace go, with all that was seen of it. */
static void forget(struct net *n)
{
    if (!n->seen)
        return;
    n->seen = false;
    if (n->sockstat >= 0)
        close(n->sockstat);
    if (n->flush >= 0)
        close(n->flush);
    for (int i = 0; i < NET_COUNTERS; i++)
        if (n->counters[i].fd >= 0)
            close(n->counters[i].fd);
}

static void net_look(struct net *n)
{
    bool all = getrandom(&n->key, sizeof n->key, 0) == (ssize_t)sizeof n->key;
    n->seen = true;
    n->sockstat = openat(n->proc, "sockstat", O_RDONLY | O_CLOEXEC);
    n->flush = openat(n->proc, "../../sys/net/ipv4/route/flush", O_WRONLY | O_CLOEXEC);
    for (int i = 0; i < NET_COUNTERS; i++) {
        struct net_counter *c = &n->counters[i];
        c->fd = openat(n->proc, counters[i], O_RDONLY | O_CLOEXEC);
        all &= c->fd < 0 ? errno == ENOENT : look(c, &n->key);
    }
    if (!all || n->sockstat < 0 || n->flush < 0)
        forget(n);
}

static bool net_unused(const struct net *n, unsigned long ours)
{
    if (!n->seen || !no_sockets(n, ours))
        return false;
    for (int i = 0; i < NET_COUNTERS; i++) {
        const struct net_counter *was = &n->counters[i];
        struct net_counter now = { .fd = was->fd };
        if (was->fd < 0 ? faccessat(n->proc, counters[i], F_OK, 0) == 0 || errno != ENOENT
                        : !look(&now, &n->key) || now.len != was->len || now.digest != was->digest)
            return false;
    }
    return pwrite(n->flush, "1", 1, 0) == 1;
}

int net_renew(struct net *n, unsigned long ours, struct err *err)
{
    if (net_unused(n, ours))
        return 0;
    forget(n);
    n->count++;
    if (unshare(CLONE_NEWNET) < 0)
        return err_sys(err, ERR_DENIED, "new network namespace");
    /* Raising lo gives it 127.0.0.1 and ::1; there is no other device in the namespace. */
    own_fd s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct ifreq r = { .ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING };
    if (s < 0 || ioctl(s, SIOCSIFFLAGS, &r) < 0)
        return err_sys(err, ERR_SYS, "loopback");
    net_look(n);
    return 0;
}

int net_none(struct net *n, struct err *err)
{
    forget(n);
    return unshare(CLONE_NEWNET) == 0 ? 0 : err_sys(err, ERR_DENIED, "new network namespace");
}

int net_listen(uint16_t port, struct err *err)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    own_fd s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (s < 0 || bind(s, (struct sockaddr *)&at, sizeof at) < 0 || listen(s, 128) < 0)
        return err_sys(err, ERR_SYS, "port %u of the sandbox", port);
    return give_fd(&s);
}
