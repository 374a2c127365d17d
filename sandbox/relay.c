/* relay.c - see relay.h. */
#include "sandbox/relay.h"
#include <errno.h>
#include <limits.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

void relay_open(struct relay *r, int from, int to)
{
    struct stat st;
    relay_close(r);
    r->from = from;
    r->to = to;
    r->socket = fstat(to, &st) == 0 && S_ISSOCK(st.st_mode);
    r->live = from < 0;
    r->left = UINT64_MAX;
}

void relay_close(struct relay *r)
{
    if (r->from >= 0)
        close(r->from);
    if (r->to >= 0)
        close(r->to);
    r->from = r->to = -1;
    r->at = r->len = 0;
    r->live = false;
}

struct pollfd relay_poll(const struct relay *r)
{
    if (r->at < r->len)
        return (struct pollfd){ .fd = r->to, .events = POLLOUT };
    return (struct pollfd){ .fd = r->from, .events = POLLIN };
}

static void end_if_done(struct relay *r)
{
    if (r->at == r->len && !r->live && (r->from < 0 || r->left == 0))
        relay_close(r);
}

void relay_step(struct relay *r)
{
    if (r->at == r->len) {
        ssize_t n = read(r->from, r->bytes, r->left < RELAY_BYTES ? (size_t)r->left : RELAY_BYTES);
        if (n < 0 && (errno == EINTR || errno == EAGAIN))
            return;
        if (n <= 0) {
            relay_close(r);
            return;
        }
        r->at = 0;
        r->len = (size_t)n;
        r->left -= (uint64_t)n;
        return;
    }
    /* A pipe with any room takes PIPE_BUF bytes; more could block. */
    size_t n = r->len - r->at;
    ssize_t done = r->socket ? send(r->to, r->bytes + r->at, n, MSG_DONTWAIT | MSG_NOSIGNAL)
                             : write(r->to, r->bytes + r->at, n < PIPE_BUF ? n : PIPE_BUF);
    if (done < 0 && errno != EINTR && errno != EAGAIN) {
        relay_close(r);                         /* nobody reads any more */
        return;
    }
    r->at += done > 0 ? (size_t)done : 0;
    end_if_done(r);
}

void relay_finish(struct relay *r, int from, uint64_t left)
{
    if (r->to < 0) {
        if (from >= 0)
            close(from);
        return;
    }
    r->from = from;
    r->left = left;
    r->live = false;
    end_if_done(r);
}
