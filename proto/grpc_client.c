/*
 * grpc_client.c - the blocking client: poll, nghttp2, and calls that wait for their own share.
 *
 * Every function that waits drives the whole connection: what arrives for other calls is kept in their
 * inboxes. The window of a call opens again only as its messages are taken, so a call that nobody reads
 * holds at most WINDOW_BYTES; while a call waits for the rest of a message its window opens at once.
 * A call that was ended early lives on unseen until nghttp2 lets go of its stream.
 */
#include "proto/grpc_client.h"
#include "proto/grpc_address.h"
#include "proto/grpc_frame.h"
#include "base/clock.h"
#include "base/own.h"
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <nghttp2/nghttp2.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WINDOW_BYTES  ((size_t)1 << 20)
#define MESSAGE_BYTES ((uint32_t)64 << 20)  /* an answer longer than this ends the call */
#define QUEUE_BYTES   ((size_t)256 << 10)   /* grpc_call_send() waits while more than this is unsent */

struct grpc_client {
    int fd;
    nghttp2_session *session;
    struct grpc_call *calls;
    char authority[280];
    struct err dead;            /* code != 0: the connection is gone, and why */
    struct grpc_queue out;      /* frames the kernel did not take yet */
    uint8_t read_bytes[64 << 10];
};

struct grpc_call {
    struct grpc_client *client;
    struct grpc_call *prev, *next;
    struct grpc_queue in, out;
    size_t unconsumed;          /* received bytes for which the window was not opened again */
    uint64_t deadline_ns;       /* 0: none */
    int32_t id;
    uint32_t http_status, status, reset;
    int named_code;             /* from assay-code, 0: none */
    bool has_status, typed, sent_end, deferred;
    bool answered;              /* the server will send no more */
    bool closed;                /* nghttp2 is done with the stream */
    bool ended;                 /* by our caller: freed when closed */
    struct err local;           /* code != 0: we gave the call up ourselves */
    char message[ERR_MSG_SIZE];
};

static uint64_t after(uint64_t now, uint64_t ns) { return ns > UINT64_MAX - now ? UINT64_MAX : now + ns; }

/* ---- nghttp2's callbacks ---- */

static void call_free(struct grpc_call *k)
{
    if (k->next != NULL) k->next->prev = k->prev;
    if (k->prev != NULL) k->prev->next = k->next;
    else k->client->calls = k->next;
    grpc_queue_done(&k->in);
    grpc_queue_done(&k->out);
    free(k);
}

static void call_closed(struct grpc_call *k, uint32_t error_code)
{
    k->closed = true;
    k->reset = error_code;
    if (k->ended)
        call_free(k);
}

static void give_up(struct grpc_call *k, uint32_t error_code)
{
    if (!k->closed)
        (void)nghttp2_submit_rst_stream(k->client->session, NGHTTP2_FLAG_NONE, k->id, error_code);
}

static ssize_t read_queue(nghttp2_session *session, int32_t id, uint8_t *to, size_t room, uint32_t *flags,
                          nghttp2_data_source *source, void *arg)
{
    struct grpc_call *k = source->ptr;
    (void)session; (void)id; (void)arg;
    size_t n = grpc_queue_len(&k->out);
    if (k->ended)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    if (n == 0 && !k->sent_end) {
        k->deferred = true;
        return NGHTTP2_ERR_DEFERRED;
    }
    if (n > room)
        n = room;
    if (n > 0) {
        memcpy(to, grpc_queue_front(&k->out), n);
        grpc_queue_take(&k->out, n);
    }
    if (k->sent_end && grpc_queue_len(&k->out) == 0)
        *flags |= NGHTTP2_DATA_FLAG_EOF;
    return (ssize_t)n;
}

static int header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name, size_t name_n,
                  const uint8_t *value, size_t n, uint8_t flags, void *arg)
{
    struct grpc_call *k = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
    (void)flags; (void)arg;
    if (k == NULL || frame->hd.type != NGHTTP2_HEADERS)
        return 0;
#define IS(text) (name_n == sizeof text - 1 && memcmp(name, text, name_n) == 0)
    if (IS(":status"))
        (void)grpc_number(&k->http_status, value, n);
    else if (IS("content-type"))
        k->typed = grpc_content_type_ok(value, n);
    else if (IS("grpc-status"))
        k->has_status = grpc_number(&k->status, value, n);
    else if (IS("grpc-message"))
        grpc_percent_decode(k->message, sizeof k->message, value, n);
    else if (IS("assay-code"))
        k->named_code = grpc_code_of_name(value, n);
#undef IS
    return 0;
}

static int data_chunk(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *bytes, size_t n, void *arg)
{
    struct grpc_call *k = nghttp2_session_get_stream_user_data(session, id);
    struct err err = { 0 };
    (void)flags; (void)arg;
    /* A call that is not being read must not stop the others: only its own window stays shut. */
    if (nghttp2_session_consume_connection(session, n) != 0)
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    if (k == NULL || k->ended || k->local.code != 0)
        return 0;
    k->unconsumed += n;
    if (grpc_queue_add(&k->in, bytes, n, &err) < 0) {
        k->local = err;
        give_up(k, NGHTTP2_CANCEL);
    }
    return 0;
}

static int stream_close(nghttp2_session *session, int32_t id, uint32_t error_code, void *arg)
{
    struct grpc_call *k = nghttp2_session_get_stream_user_data(session, id);
    (void)arg;
    if (k != NULL)
        call_closed(k, error_code);
    return 0;
}

static int frame_recv(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
    struct grpc_call *k = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
    (void)arg;
    if (k != NULL && (frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA)
        && (frame->hd.flags & NGHTTP2_FLAG_END_STREAM))
        k->answered = true;
    return 0;
}

/* A request that never went out, because the server said goodbye before: no stream_close follows. */
static int not_sent(nghttp2_session *session, const nghttp2_frame *frame, int lib_error, void *arg)
{
    struct grpc_client *c = arg;
    (void)session; (void)lib_error;
    if (frame->hd.type != NGHTTP2_HEADERS)
        return 0;
    for (struct grpc_call *k = c->calls; k != NULL; k = k->next)
        if (k->id == frame->hd.stream_id && !k->closed) {
            if (nghttp2_session_find_stream(session, k->id) == NULL)
                call_closed(k, NGHTTP2_REFUSED_STREAM);
            break;
        }
    return 0;
}

/* ---- the connection ---- */

/* Write what can be written without waiting. */
static int flush(struct grpc_client *c)
{
    if (c->dead.code != 0)
        return c->dead.code;
    for (;;) {
        while (grpc_queue_len(&c->out) < QUEUE_BYTES) {
            const uint8_t *bytes;
            ssize_t n = nghttp2_session_mem_send(c->session, &bytes);
            if (n == 0)
                break;
            if (n < 0) {
                err_set(&c->dead, ERR_PROTOCOL, "%s: HTTP/2: %s", c->authority, nghttp2_strerror((int)n));
                return c->dead.code;
            }
            if (grpc_queue_add(&c->out, bytes, (size_t)n, &c->dead) < 0)
                return c->dead.code;
        }
        size_t left = grpc_queue_len(&c->out);
        if (left == 0)
            return 0;
        ssize_t n = send(c->fd, grpc_queue_front(&c->out), left, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return 0;
        if (n < 0) {
            /* What the server said last may still lie in the socket; the reading side reports the end. */
            if (errno == EPIPE || errno == ECONNRESET) {
                grpc_queue_take(&c->out, left);
                return 0;
            }
            err_sys(&c->dead, ERR_UNAVAILABLE, "%s", c->authority);
            return c->dead.code;
        }
        grpc_queue_take(&c->out, (size_t)n);
    }
}

/* One round: write, wait until the socket or the time says so, read. Returns 0 when the time is up as well. */
static int step(struct grpc_client *c, uint64_t until_ns, struct err *err)
{
    if (flush(c) < 0) {
        *err = c->dead;
        return err->code;
    }
    struct pollfd p = { .fd = c->fd, .events = (short)(POLLIN | (grpc_queue_len(&c->out) > 0 ? POLLOUT : 0)) };
    uint64_t now = clock_mono_ns();
    uint64_t ns = until_ns > now ? until_ns - now : 0;
    struct timespec ts = { .tv_sec = (time_t)(ns / NS_PER_S), .tv_nsec = (long)(ns % NS_PER_S) };
    int rc = ppoll(&p, 1, until_ns == UINT64_MAX ? NULL : &ts, NULL);
    if (rc < 0 && errno != EINTR)
        return err_sys(err, ERR_SYS, "poll");
    if (rc <= 0 || !(p.revents & (POLLIN | POLLHUP | POLLERR)))
        return 0;
    for (int i = 0; i < 16; i++) {
        ssize_t n = recv(c->fd, c->read_bytes, sizeof c->read_bytes, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            break;
        if (n <= 0) {
            if (n == 0)
                err_set(&c->dead, ERR_UNAVAILABLE, "%s: the server closed the connection", c->authority);
            else
                err_sys(&c->dead, ERR_UNAVAILABLE, "%s", c->authority);
            break;
        }
        ssize_t used = nghttp2_session_mem_recv(c->session, c->read_bytes, (size_t)n);
        if (used < 0) {
            err_set(&c->dead, ERR_PROTOCOL, "%s: not HTTP/2: %s", c->authority, nghttp2_strerror((int)used));
            break;
        }
        if ((size_t)n < sizeof c->read_bytes)
            break;
    }
    if (c->dead.code == 0 && flush(c) == 0 && !nghttp2_session_want_read(c->session)
        && !nghttp2_session_want_write(c->session))
        err_set(&c->dead, ERR_UNAVAILABLE, "%s: the connection has ended", c->authority);
    return 0;
}

static int connect_one(int fd, const struct sockaddr *sa, socklen_t n, uint64_t until_ns)
{
    if (connect(fd, sa, n) == 0)
        return 0;
    if (errno != EINPROGRESS)
        return -1;
    uint64_t now = clock_mono_ns(), ns = until_ns > now ? until_ns - now : 0;
    struct pollfd p = { .fd = fd, .events = POLLOUT };
    int rc = poll(&p, 1, ns / NS_PER_MS > INT32_MAX - 1 ? -1 : (int)(ns / NS_PER_MS + 1));
    int sys = ETIMEDOUT;
    socklen_t len = sizeof sys;
    if (rc > 0)
        getsockopt(fd, SOL_SOCKET, SO_ERROR, &sys, &len);
    else if (rc < 0)
        sys = errno;
    errno = sys;
    return sys == 0 ? 0 : -1;
}

static int connect_any(int *out_fd, const struct grpc_address *a, uint64_t timeout_ns, struct err *err)
{
    uint64_t until = after(clock_mono_ns(), timeout_ns);
    const int flags = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK;
    if (a->is_unix) {
        own_fd fd = socket(AF_UNIX, flags, 0);
        if (fd < 0)
            return err_sys(err, ERR_SYS, "socket");
        if (connect_one(fd, (const struct sockaddr *)&a->un, sizeof a->un, until) < 0)
            return err_sys(err, errno == EACCES ? ERR_DENIED : ERR_UNAVAILABLE, "unix:%s", a->un.sun_path);
        *out_fd = give_fd(&fd);
        return 0;
    }
    struct addrinfo *found = NULL;
    int rc = grpc_address_resolve(&found, a, false, err);
    if (rc < 0)
        return rc;
    rc = err_set(err, ERR_UNAVAILABLE, "%s:%s: no address", a->host, a->port);
    for (struct addrinfo *i = found; i != NULL; i = i->ai_next) {
        own_fd fd = socket(i->ai_family, flags, 0);
        if (fd < 0 || connect_one(fd, i->ai_addr, i->ai_addrlen, until) < 0) {
            rc = err_sys(err, errno == ETIMEDOUT ? ERR_DEADLINE : ERR_UNAVAILABLE, "%s:%s", a->host, a->port);
            continue;
        }
        int on = 1;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        *out_fd = give_fd(&fd);
        rc = 0;
        break;
    }
    freeaddrinfo(found);
    return rc;
}

static int session_new(struct grpc_client *c)
{
    nghttp2_session_callbacks *cb = NULL;
    nghttp2_option *option = NULL;
    int rc = nghttp2_session_callbacks_new(&cb);
    if (rc == 0)
        rc = nghttp2_option_new(&option);
    if (rc == 0) {
        nghttp2_session_callbacks_set_on_header_callback(cb, header);
        nghttp2_session_callbacks_set_on_frame_recv_callback(cb, frame_recv);
        nghttp2_session_callbacks_set_on_data_chunk_recv_callback(cb, data_chunk);
        nghttp2_session_callbacks_set_on_stream_close_callback(cb, stream_close);
        nghttp2_session_callbacks_set_on_frame_not_send_callback(cb, not_sent);
        nghttp2_option_set_no_auto_window_update(option, 1);
        nghttp2_option_set_no_closed_streams(option, 1);
        rc = nghttp2_session_client_new2(&c->session, cb, c, option);
    }
    nghttp2_option_del(option);
    nghttp2_session_callbacks_del(cb);
    const nghttp2_settings_entry settings[] = {
        { NGHTTP2_SETTINGS_ENABLE_PUSH, 0 },
        { NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, WINDOW_BYTES },
        { NGHTTP2_SETTINGS_MAX_FRAME_SIZE, 64 << 10 },
        { NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, 16 << 10 },
    };
    if (rc == 0)
        rc = nghttp2_submit_settings(c->session, NGHTTP2_FLAG_NONE, settings, sizeof settings / sizeof settings[0]);
    if (rc == 0)
        rc = nghttp2_session_set_local_window_size(c->session, NGHTTP2_FLAG_NONE, 0, 8 << 20);
    return rc;
}

int grpc_client_open(struct grpc_client **out, const char *address, uint64_t timeout_ns, struct err *err)
{
    struct grpc_address a;
    int rc = grpc_address_parse(&a, address, err);
    if (rc < 0)
        return rc;
    own_fd fd = -1;
    rc = connect_any(&fd, &a, timeout_ns, err);
    if (rc < 0)
        return rc;
    struct grpc_client *c = calloc(1, sizeof *c);
    if (c == NULL)
        return err_set(err, ERR_LIMIT, "%s: out of memory", address);
    c->fd = give_fd(&fd);
    c->out.b.max = QUEUE_BYTES + (256 << 10);
    if (a.is_unix)
        snprintf(c->authority, sizeof c->authority, "localhost");
    else
        snprintf(c->authority, sizeof c->authority, strchr(a.host, ':') != NULL ? "[%s]:%s" : "%s:%s", a.host, a.port);
    if (session_new(c) != 0 || flush(c) < 0) {
        grpc_client_close(c);
        return err_set(err, ERR_LIMIT, "%s: no HTTP/2 session; out of memory", address);
    }
    *out = c;
    return 0;
}

void grpc_client_close(struct grpc_client *c)
{
    if (c == NULL)
        return;
    if (c->session != NULL && c->dead.code == 0) {
        (void)nghttp2_session_terminate_session(c->session, NGHTTP2_NO_ERROR);
        (void)flush(c);
    }
    nghttp2_session_del(c->session);
    while (c->calls != NULL)
        call_free(c->calls);
    grpc_queue_done(&c->out);
    close(c->fd);
    free(c);
}

/* ---- calls ---- */

static nghttp2_nv nv_of(const char *name, const char *value)
{
    return (nghttp2_nv){ (uint8_t *)(uintptr_t)name, (uint8_t *)(uintptr_t)value, strlen(name), strlen(value),
                         NGHTTP2_NV_FLAG_NONE };
}

int grpc_call_start(struct grpc_call **out, struct grpc_client *c, const char *method, uint64_t timeout_ns, struct err *err)
{
    char timeout[16];
    if (c->dead.code != 0) {
        *err = c->dead;
        return err->code;
    }
    own_mem struct grpc_call *k = calloc(1, sizeof *k);
    if (k == NULL)
        return err_set(err, ERR_LIMIT, "%s: out of memory", method);
    nghttp2_nv nv[8] = {
        nv_of(":method", "POST"), nv_of(":scheme", "http"), nv_of(":path", method), nv_of(":authority", c->authority),
        nv_of("te", "trailers"), nv_of("content-type", "application/grpc"), nv_of("user-agent", "assay-grpc/1"),
    };
    size_t count = 7;
    if (timeout_ns != 0) {
        grpc_timeout_format(timeout, timeout_ns);
        nv[count++] = nv_of("grpc-timeout", timeout);
        k->deadline_ns = after(clock_mono_ns(), timeout_ns);
    }
    k->client = c;
    k->out.b.max = (size_t)MESSAGE_BYTES + QUEUE_BYTES + GRPC_PREFIX_SIZE;
    k->in.b.max = (size_t)MESSAGE_BYTES + 2 * WINDOW_BYTES;
    nghttp2_data_provider source = { .source.ptr = k, .read_callback = read_queue };
    k->id = nghttp2_submit_request(c->session, NULL, nv, count, &source, k);
    if (k->id < 0)
        return err_set(err, ERR_UNAVAILABLE, "%s: %s", method, nghttp2_strerror(k->id));
    k->next = c->calls;
    if (c->calls != NULL)
        c->calls->prev = k;
    c->calls = k;
    *out = give_ptr(&k);
    return 0;
}

/* What the call came to, once nghttp2 has closed it: 0 for OK. */
static int outcome(const struct grpc_call *k, struct err *err)
{
    if (k->local.code != 0) {
        *err = k->local;
        return err->code;
    }
    if (k->has_status) {
        if (k->status == 0)
            return 0;
        int code = k->named_code != 0 ? k->named_code : grpc_code_of_status(k->status);
        return err_set(err, code, "%s", k->message[0] != '\0' ? k->message : err_info(code)->name);
    }
    if (k->reset == NGHTTP2_CANCEL && k->deadline_ns != 0 && clock_mono_ns() >= k->deadline_ns)
        return err_set(err, ERR_DEADLINE, "the deadline of the call passed");      /* the server's clock was faster */
    if (k->reset == NGHTTP2_CANCEL)
        return err_set(err, ERR_CANCELLED, "the server reset the call");
    if (k->reset == NGHTTP2_REFUSED_STREAM)
        return err_set(err, ERR_UNAVAILABLE, "the server takes no new calls on this connection");
    if (k->reset == NGHTTP2_ENHANCE_YOUR_CALM)
        return err_set(err, ERR_BUSY, "the server wants fewer calls");
    if (k->http_status != 0 && (k->http_status != 200 || !k->typed))
        return err_set(err, k->http_status == 200 ? ERR_PROTOCOL : grpc_code_of_http(k->http_status),
                       "the answer is no gRPC (HTTP status %u)", k->http_status);
    return err_set(err, ERR_PROTOCOL, "the call ended without a status (%s)", nghttp2_http2_strerror(k->reset));
}

/* The call as it stands: 1 when it is over (then err says why, code 0 for OK), 0 while it goes on. */
static int over(struct grpc_call *k, struct err *err)
{
    bool done = k->closed || k->answered;
    if (!done && k->local.code == 0) {
        if (k->client->dead.code != 0)
            k->local = k->client->dead;
        else if (k->deadline_ns != 0 && clock_mono_ns() >= k->deadline_ns) {
            err_set(&k->local, ERR_DEADLINE, "the deadline of the call passed");
            give_up(k, NGHTTP2_CANCEL);
        }
    }
    if (!done && k->local.code == 0)
        return 0;
    err->code = 0;
    (void)outcome(k, err);
    return 1;
}

static uint64_t sooner(const struct grpc_call *k, uint64_t until_ns)
{
    return k->deadline_ns != 0 && k->deadline_ns < until_ns ? k->deadline_ns : until_ns;
}

static void resume(struct grpc_call *k)
{
    if (k->deferred && !k->closed) {
        k->deferred = false;
        (void)nghttp2_session_resume_data(k->client->session, k->id);
    }
}

static int put(struct grpc_call *k, const void *message, size_t n, bool last, struct err *err)
{
    struct err why = { 0 };
    if (over(k, &why) && why.code != 0) {
        *err = why;
        return err->code;
    }
    if (k->closed || k->answered || k->sent_end)
        return err_set(err, ERR_CANCELLED, "the call takes no more messages: the server or this side has ended it");
    int rc = message == NULL ? 0 : n > MESSAGE_BYTES
           ? err_set(err, ERR_LIMIT, "message of %zu bytes: the limit is %u", n, MESSAGE_BYTES)
           : grpc_message_put(&k->out, message, n, err);
    if (rc < 0)
        return rc;
    k->sent_end = last;
    resume(k);
    if (flush(k->client) < 0)
        return over(k, err) ? err->code : 0;
    /* Flow control: the server decides how fast we go on. */
    while (grpc_queue_len(&k->out) > QUEUE_BYTES) {
        if (over(k, &why)) {
            if (why.code == 0)
                return err_set(err, ERR_CANCELLED, "the server ended the call before the whole message was sent");
            *err = why;
            return err->code;
        }
        rc = step(k->client, sooner(k, UINT64_MAX), err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

int grpc_call_send(struct grpc_call *k, const void *message, size_t n, struct err *err)
{
    return put(k, n == 0 ? "" : message, n, false, err);
}

int grpc_call_send_end(struct grpc_call *k, struct err *err)
{
    if (k->sent_end || k->closed || k->answered)
        return 0;
    return put(k, NULL, 0, true, err);
}

static void open_window(struct grpc_call *k)
{
    if (k->unconsumed > 0 && !k->closed)
        (void)nghttp2_session_consume_stream(k->client->session, k->id, k->unconsumed);
    k->unconsumed = 0;
}

int grpc_call_recv(struct grpc_call *k, struct buf *out, uint64_t wait_ns, struct err *err)
{
    uint64_t until = after(clock_mono_ns(), wait_ns);
    buf_reset(out);
    for (bool waited = false; ; waited = true) {
        uint32_t n = 0;
        size_t have = grpc_queue_len(&k->in);
        int rc = have == 0 ? 0 : grpc_message_at(grpc_queue_front(&k->in), have, MESSAGE_BYTES, &n, err);
        if (rc < 0) {
            if (k->local.code == 0)
                k->local = *err;
            give_up(k, NGHTTP2_CANCEL);
            (void)flush(k->client);
            return rc;
        }
        if (rc == 1) {
            rc = buf_add(out, grpc_queue_front(&k->in) + GRPC_PREFIX_SIZE, n, err);
            if (rc < 0)
                return rc;
            grpc_queue_take(&k->in, GRPC_PREFIX_SIZE + n);
            if (grpc_queue_len(&k->in) < WINDOW_BYTES / 2 && k->unconsumed >= WINDOW_BYTES / 2)
                open_window(k);
            return 1;
        }
        struct err why = { 0 };
        if (over(k, &why)) {
            (void)flush(k->client);
            if (why.code == 0 && have > 0)
                err_set(&why, ERR_PROTOCOL, "the server ended the call inside a message");
            if (why.code == 0)
                return 0;
            *err = why;
            return err->code;
        }
        if (waited && clock_mono_ns() >= until)
            return err_set(err, ERR_DEADLINE, "no message came in time");
        open_window(k);
        rc = step(k->client, sooner(k, until), err);
        if (rc < 0 && k->client->dead.code == 0)
            return rc;
    }
}

void grpc_call_end(struct grpc_call *k)
{
    if (k == NULL)
        return;
    struct grpc_client *c = k->client;
    if (k->closed || c->dead.code != 0) {
        call_free(k);
        return;
    }
    give_up(k, NGHTTP2_CANCEL);
    grpc_queue_done(&k->in);
    k->ended = true;
    (void)flush(c);
}

int grpc_client_unary(struct grpc_client *c, const char *method, const void *request, size_t n, struct buf *answer,
                      uint64_t timeout_ns, struct err *err)
{
    struct grpc_call *k = NULL;
    own_buf rest = { 0 };
    int rc = grpc_call_start(&k, c, method, timeout_ns, err);
    if (rc < 0)
        return rc;
    rc = put(k, n == 0 ? "" : request, n, true, err);
    if (rc == 0 || rc == ERR_CANCELLED)         /* ended while we sent: its status says why */
        rc = grpc_call_recv(k, answer, UINT64_MAX, err);
    if (rc == 1)
        rc = grpc_call_recv(k, &rest, UINT64_MAX, err);
    else if (rc == 0)
        rc = err_set(err, ERR_PROTOCOL, "%s: the server answered OK without a message", method);
    if (rc == 1)
        rc = err_set(err, ERR_PROTOCOL, "%s: more than one answer to a unary call", method);
    grpc_call_end(k);
    return rc;
}
