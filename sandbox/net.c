/* net.c - see net.h. What cannot be read counts as used. */
#include "sandbox/net.h"
#include "base/own.h"
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

/* Per network namespace all of them, and constant while nothing happens there. Without IPv6 some are absent. */
static const char *const counters[] = { "dev", "snmp", "snmp6", "netstat", "ip6_flowlabel" };

static ssize_t slurp(int dir, const char *name, char *out, size_t size)
{
    own_fd fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    size_t len = 0;
    ssize_t n;
    while (len < size && (n = read(fd, out + len, size - len)) > 0)
        len += (size_t)n;
    return len < size ? (ssize_t)len : -1;
}

/* Length of all counters as text; 0 when they cannot be had. */
static size_t look(const struct net *n, char *out)
{
    size_t len = 0;
    for (size_t i = 0; i < sizeof counters / sizeof counters[0]; i++) {
        ssize_t got = slurp(n->proc, counters[i], out + len, NET_SEEN_MAX - len);
        if (got < 0 || (got == 0 && i == 0))
            return 0;
        len += (size_t)got;
    }
    return len;
}

/* Are there no sockets but `ours`, of any family, and no TIME_WAIT entries and fragments? "mem", "orphan", "alloc" are the host's. */
static bool no_sockets(const struct net *n, unsigned long ours_count)
{
    static const char *const ours[] = { "used", "inuse", "tw", "memory" };
    char text[2048];
    ssize_t len = slurp(n->proc, "sockstat", text, sizeof text - 1);
    bool counted = false;
    if (len <= 0)
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

static bool unused(const struct net *n, unsigned long ours)
{
    static char now[NET_SEEN_MAX];
    return n->seen_len > 0 && no_sockets(n, ours) && look(n, now) == n->seen_len && memcmp(now, n->seen, n->seen_len) == 0;
}

int net_renew(struct net *n, unsigned long ours, struct err *err)
{
    if (unused(n, ours))
        return 0;
    n->seen_len = 0;
    n->count++;
    if (unshare(CLONE_NEWNET) < 0)
        return err_sys(err, ERR_DENIED, "new network namespace");
    /* Raising lo gives it 127.0.0.1 and ::1; there is no other device in the namespace. */
    own_fd s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct ifreq r = { .ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING };
    if (s < 0 || ioctl(s, SIOCSIFFLAGS, &r) < 0)
        return err_sys(err, ERR_SYS, "loopback");
    n->seen_len = look(n, n->seen);
    return 0;
}

int net_none(struct net *n, struct err *err)
{
    n->seen_len = 0;
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
