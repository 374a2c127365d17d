/* grpc_stream.c - one call on the server: nghttp2's callbacks in, messages and trailers out. */
#include "proto/grpc_conn.h"
#include "base/clock.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NV_STATIC (NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_COPY_VALUE)
#define NV(name, value) { (uint8_t *)(uintptr_t)(name), (uint8_t *)(uintptr_t)(value), sizeof name - 1, sizeof value - 1, \
                          NV_STATIC }

/* A header whose value nghttp2 copies. */
static nghttp2_nv nv_of(const char *name, const char *value)
{
    return (nghttp2_nv){ (uint8_t *)(uintptr_t)name, (uint8_t *)(uintptr_t)value, strlen(name), strlen(value),
                         NGHTTP2_NV_FLAG_NO_COPY_NAME };
}

static bool is(const uint8_t *bytes, size_t n, const char *text)
{
    return strlen(text) == n && memcmp(bytes, text, n) == 0;
}

/* ---- the way out ---- */

/* grpc-status, grpc-message, assay-code: as trailers, or with the headers when nothing else is sent. */
static size_t status_headers(const struct grpc_stream *s, nghttp2_nv *nv, char status[12])
{
    const struct err_info *info = err_info(s->code);
    size_t n = 0;
    snprintf(status, 12, "%d", info->grpc_status);
    nv[n++] = nv_of("grpc-status", status);
    if (s->code != ERR_NONE && s->message != NULL)
        nv[n++] = nv_of("grpc-message", s->message);
    if (s->code != ERR_NONE)
        nv[n++] = nv_of("assay-code", info->name);
    return n;
}

/* nghttp2 asks how much of the queue goes into the next DATA frame; the bytes follow in send_data(). */
static ssize_t read_queue(nghttp2_session *session, int32_t id, uint8_t *buf, size_t room, uint32_t *flags,
                          nghttp2_data_source *source, void *arg)
{
    struct grpc_stream *s = source->ptr;
    (void)buf; (void)arg;
    size_t n = grpc_queue_len(&s->out);
    if (n == 0 && !s->finished) {
        s->deferred = true;
        return NGHTTP2_ERR_DEFERRED;
    }
    if (n > room)
        n = room;
    s->promised = n;
    *flags |= NGHTTP2_DATA_FLAG_NO_COPY;
    if (s->finished && n == grpc_queue_len(&s->out)) {
        nghttp2_nv nv[3];
        char status[12];
        size_t count = status_headers(s, nv, status);
        *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
        s->trailed = true;
        if (nghttp2_submit_trailer(session, id, nv, count) != 0)
            return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    }
    return (ssize_t)n;
}

static int send_data(nghttp2_session *session, nghttp2_frame *frame, const uint8_t *head, size_t n,
                     nghttp2_data_source *source, void *arg)
{
    struct grpc_stream *s = source->ptr;
    struct grpc_conn *c = arg;
    (void)session; (void)frame;
    uint8_t *to = grpc_gather(c->server, 9 + n);        /* never padded: no padding callback is set */
    if (to == NULL)
        return NGHTTP2_ERR_WOULDBLOCK;                  /* asked again in the next write */
    s->promised = 0;
    memcpy(to, head, 9);
    if (n > 0) {
        memcpy(to + 9, grpc_queue_front(&s->out), n);
        grpc_queue_take(&s->out, n);
    }
    size_t left = grpc_queue_len(&s->out);
    if (!s->finished && !s->waking && s->method != NULL && s->method->on_writable != NULL
        && ((s->above && left <= GRPC_HIGH_BYTES) || left == 0)) {
        s->waking = true;
        s->wake_next = c->wake;
        c->wake = s;
    }
    if (left <= GRPC_HIGH_BYTES)
        s->above = false;
    return 0;
}

static ssize_t frame_room(nghttp2_session *session, uint8_t type, int32_t id, int32_t conn_window, int32_t stream_window,
                          uint32_t frame_max, void *arg)
{
    (void)session; (void)type; (void)id; (void)arg;
    ssize_t n = (ssize_t)GRPC_FRAME_BYTES;
    if (n > conn_window) n = conn_window;
    if (n > stream_window) n = stream_window;
    if (n > (ssize_t)frame_max) n = (ssize_t)frame_max;
    return n;
}

/* Start the response, or go on with it. Without messages and with a status: headers only. */
static void respond(struct grpc_stream *s)
{
    nghttp2_session *session = s->conn->session;
    int rc = 0;
    if (!s->responded) {
        nghttp2_nv nv[6] = { NV(":status", "200"), NV("content-type", "application/grpc"),
                             NV("grpc-accept-encoding", "identity") };
        size_t count = 3;
        char status[12], http[12];
        bool bare = s->finished && grpc_queue_len(&s->out) == 0;
        if (s->http_status != 200) {
            snprintf(http, sizeof http, "%u", s->http_status);
            nv[0] = nv_of(":status", http);
            count = 1;
        } else if (bare) {
            count += status_headers(s, nv + 3, status);
        }
        nghttp2_data_provider source = { .source.ptr = s, .read_callback = read_queue };
        s->responded = true;
        s->trailed = bare;
        rc = nghttp2_submit_response(session, s->id, nv, count, bare ? NULL : &source);
    } else if (s->deferred) {
        s->deferred = false;
        rc = nghttp2_session_resume_data(session, s->id);
    }
    if (rc != 0 && nghttp2_is_fatal(rc) == 0)
        nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, s->id, NGHTTP2_INTERNAL_ERROR);
    grpc_conn_dirty(s->conn);
}

static void end_with(struct grpc_stream *s, int code, const char *text)
{
    s->finished = true;
    s->code = code;
    if (code != ERR_NONE && text[0] != '\0') {
        char line[3 * ERR_MSG_SIZE];
        grpc_percent_encode(line, sizeof line, text);
        s->message = strdup(line);              /* without memory the status goes alone */
    }
    respond(s);
}

int grpc_stream_send(struct grpc_stream *s, const void *bytes, size_t n, struct err *err)
{
    if (s->finished || s->over)
        return err_set(err, ERR_CANCELLED, "the call is over: nothing more can be sent");
    if (grpc_queue_len(&s->out) >= GRPC_QUEUE_BYTES)
        return err_set(err, ERR_BUSY, "%zu bytes wait for a slow reader: wait for on_writable", grpc_queue_len(&s->out));
    int rc = grpc_message_put(&s->out, bytes, n, err);
    if (rc < 0)
        return rc;
    if (grpc_queue_len(&s->out) > GRPC_HIGH_BYTES)
        s->above = true;
    if (!s->responded || s->deferred)
        respond(s);
    return 0;
}

void grpc_stream_finish(struct grpc_stream *s, const struct err *err)
{
    if (s->finished || s->over)
        return;
    if (err == NULL || err->code == ERR_NONE)
        end_with(s, ERR_NONE, "");
    else
        end_with(s, err->code, err->msg);
}

void grpc_stream_fail(struct grpc_stream *s, int code, const char *text)
{
    if (s->trailed || s->over)
        return;
    s->out.b.len = s->out.off + s->promised;            /* a frame with that length may be half out */
    free(s->message);
    s->message = NULL;
    end_with(s, code, text);
}

size_t   grpc_stream_queued(const struct grpc_stream *s) { return grpc_queue_len(&s->out); }
void     grpc_stream_set_data(struct grpc_stream *s, void *data) { s->data = data; }
void    *grpc_stream_data(const struct grpc_stream *s) { return s->data; }
uint64_t grpc_stream_deadline_ns(const struct grpc_stream *s) { return s->deadline_ns; }

/* ---- its life ---- */

static void tell_closed(struct grpc_stream *s)
{
    struct grpc_server *g = s->conn->server;
    if (s->over)
        return;
    s->over = true;
    grpc_timer_stop(&g->timers, &s->timer);
    if (s->seen && s->method->on_closed != NULL)
        s->method->on_closed(g->config.arg, s);
}

static void deadline_passed(struct grpc_timer *t)
{
    struct grpc_stream *s = (struct grpc_stream *)((char *)t - offsetof(struct grpc_stream, timer));
    bool blocked = s->responded && !s->deferred;        /* the client's window may be shut: trailers would wait for it */
    grpc_stream_fail(s, ERR_DEADLINE, "the deadline of the call passed");
    if (blocked)
        nghttp2_submit_rst_stream(s->conn->session, NGHTTP2_FLAG_NONE, s->id, NGHTTP2_CANCEL);
    tell_closed(s);
}

void grpc_stream_drop(struct grpc_stream *s)
{
    struct grpc_conn *c = s->conn;
    tell_closed(s);
    for (struct grpc_stream **p = &c->wake; s->waking && *p != NULL; p = &(*p)->wake_next)
        if (*p == s) {
            *p = s->wake_next;
            break;
        }
    if (s->next != NULL) s->next->prev = s->prev;
    if (s->prev != NULL) s->prev->next = s->next;
    else c->streams = s->next;
    c->server->inbound_bytes -= grpc_queue_len(&s->in);
    grpc_queue_done(&s->in);
    grpc_queue_done(&s->out);
    free(s->message);
    free(s);
}

void grpc_stream_wake(struct grpc_conn *c)
{
    while (c->wake != NULL) {
        struct grpc_stream *s = c->wake;
        c->wake = s->wake_next;
        s->waking = false;
        if (!s->finished && !s->over)
            s->method->on_writable(c->server->config.arg, s);
    }
}

static struct grpc_stream *stream_of(nghttp2_session *session, int32_t id)
{
    return nghttp2_session_get_stream_user_data(session, id);
}

static int begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
    struct grpc_conn *c = arg;
    if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST)
        return 0;
    struct grpc_stream *s = calloc(1, sizeof *s);
    if (s == NULL || nghttp2_session_set_stream_user_data(session, frame->hd.stream_id, s) != 0) {
        free(s);
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    }
    s->conn = c;
    s->id = frame->hd.stream_id;
    s->http_status = 200;
    s->timer.fire = deadline_passed;
    s->in.b.max = (size_t)c->server->config.message_bytes_max + GRPC_PREFIX_SIZE + GRPC_FRAME_BYTES;
    s->out.b.max = GRPC_QUEUE_BYTES + UINT32_MAX;
    s->next = c->streams;
    if (c->streams != NULL)
        c->streams->prev = s;
    c->streams = s;
    return 0;
}

static int header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name, size_t name_n,
                  const uint8_t *value, size_t value_n, uint8_t flags, void *arg)
{
    struct grpc_conn *c = arg;
    struct grpc_stream *s = stream_of(session, frame->hd.stream_id);
    (void)flags;
    if (s == NULL || frame->hd.type != NGHTTP2_HEADERS)
        return 0;
    s->header_bytes += name_n + value_n + 32;
    if (s->header_bytes > GRPC_HEADERS_BYTES)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;       /* the stream is reset */
    if (frame->headers.cat != NGHTTP2_HCAT_REQUEST)
        return 0;
    if (is(name, name_n, ":path")) {
        for (uint32_t i = 0; i < c->server->config.method_count; i++)
            if (is(value, value_n, c->server->config.methods[i].path))
                s->method = &c->server->config.methods[i];
    } else if (is(name, name_n, ":method")) {
        s->post = is(value, value_n, "POST");
    } else if (is(name, name_n, "content-type")) {
        s->typed = grpc_content_type_ok(value, value_n);
    } else if (is(name, name_n, "grpc-encoding")) {
        s->compressed = !is(value, value_n, "identity");
    } else if (is(name, name_n, "grpc-timeout")) {
        uint64_t ns, now = clock_mono_ns();
        s->timeout_bad = !grpc_timeout_parse(&ns, value, value_n);
        if (!s->timeout_bad)
            s->deadline_ns = ns > UINT64_MAX - now ? 0 : now + ns;
    }
    return 0;
}

/* The headers are whole: may this be a call? */
static void opened(struct grpc_stream *s)
{
    struct grpc_server *g = s->conn->server;
    struct err err = { 0 };
    s->conn->greeted = true;
    if (!s->post || !s->typed) {
        s->http_status = !s->post ? 405 : 415;
        end_with(s, ERR_USAGE, "");
    } else if (g->closing) {
        end_with(s, ERR_UNAVAILABLE, "the server is closing");
    } else if (s->method == NULL) {
        end_with(s, ERR_UNSUPPORTED, "no such method here; compare the versions of client and server");
    } else if (s->compressed) {
        end_with(s, ERR_UNSUPPORTED, "grpc-encoding: only identity is accepted; send it uncompressed");
    } else if (s->timeout_bad) {
        end_with(s, ERR_USAGE, "grpc-timeout: want 1 to 8 digits and a unit of HMSmun");
    } else if (s->deadline_ns != 0) {
        if (grpc_timer_start(&g->timers, &s->timer, s->deadline_ns, &err) < 0)
            end_with(s, err.code, err.msg);
        grpc_server_arm(g);
    }
}

static void deliver(struct grpc_stream *s, const void *bytes, size_t n)
{
    s->seen = true;
    s->method->on_message(s->conn->server->config.arg, s, bytes, n);
}

/* Each whole message of bytes[n] to the handler. Returns how many bytes are used up; fails the call itself. */
static size_t deliver_all(struct grpc_stream *s, const uint8_t *bytes, size_t n)
{
    struct err err = { 0 };
    size_t at = 0;
    while (!s->finished && !s->over) {
        uint32_t len;
        int rc = grpc_message_at(bytes + at, n - at, s->conn->server->config.message_bytes_max, &len, &err);
        if (rc < 0)
            grpc_stream_fail(s, err.code, err.msg);
        if (rc <= 0)
            break;
        deliver(s, bytes + at + GRPC_PREFIX_SIZE, len);
        at += GRPC_PREFIX_SIZE + len;
    }
    return at;
}

static int data_chunk(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *bytes, size_t n, void *arg)
{
    struct grpc_conn *c = arg;
    struct grpc_server *g = c->server;
    struct grpc_stream *s = stream_of(session, id);
    struct err err = { 0 };
    (void)flags;
    if (s == NULL || s->finished || s->over)
        return 0;                               /* the answer is under way already */
    size_t was = grpc_queue_len(&s->in), used = 0;
    if (s->method->client_streams && was == 0) {
        used = deliver_all(s, bytes, n);        /* whole messages never pass the queue */
        if (s->finished || s->over)
            return 0;
    }
    uint32_t len;
    int rc = 0;
    if (!s->method->client_streams && was > 0
        && grpc_message_at(grpc_queue_front(&s->in), was, UINT32_MAX, &len, &err) == 1)
        rc = err_set(&err, ERR_UNSUPPORTED, "more than one request message; this method takes exactly one");
    else if (g->inbound_bytes + n - used > GRPC_INBOUND_BYTES)
        rc = err_set(&err, ERR_BUSY, "%zu bytes of unfinished requests are held already; come back later", g->inbound_bytes);
    else
        rc = grpc_queue_add(&s->in, bytes + used, n - used, &err);
    if (rc == 0 && s->method->client_streams && was > 0)
        grpc_queue_take(&s->in, deliver_all(s, grpc_queue_front(&s->in), grpc_queue_len(&s->in)));
    else if (rc == 0 && grpc_queue_len(&s->in) > 0)
        rc = grpc_message_at(grpc_queue_front(&s->in), grpc_queue_len(&s->in), g->config.message_bytes_max, &len, &err);
    g->inbound_bytes += grpc_queue_len(&s->in) - was;
    if (rc < 0)
        grpc_stream_fail(s, err.code, err.msg);
    return 0;
}

/* The client has sent all it will. */
static void half_closed(struct grpc_stream *s)
{
    s->half_closed = true;
    if (s->finished || s->over)
        return;
    size_t n = grpc_queue_len(&s->in);
    uint32_t len = 0;
    struct err err = { 0 };
    int whole = n == 0 ? 0 : grpc_message_at(grpc_queue_front(&s->in), n, s->conn->server->config.message_bytes_max, &len, &err);
    if (s->method->client_streams ? n != 0 : n != 0 && whole != 1) {
        grpc_stream_fail(s, ERR_USAGE, "the request ends inside a message");
        return;
    }
    if (!s->method->client_streams) {
        if (n != GRPC_PREFIX_SIZE + (size_t)len) {
            grpc_stream_fail(s, ERR_UNSUPPORTED, n == 0 ? "no request message; this method takes exactly one"
                                               : "more than one request message; this method takes exactly one");
            return;
        }
        deliver(s, grpc_queue_front(&s->in) + GRPC_PREFIX_SIZE, len);
        s->conn->server->inbound_bytes -= n;
        grpc_queue_done(&s->in);
    }
    if (!s->finished && !s->over && s->method->on_half_close != NULL) {
        s->seen = true;
        s->method->on_half_close(s->conn->server->config.arg, s);
    }
}

static int frame_recv(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
    struct grpc_conn *c = arg;
    if (frame->hd.type == NGHTTP2_SETTINGS)
        c->greeted = true;
    if (frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA)
        return 0;
    struct grpc_stream *s = stream_of(session, frame->hd.stream_id);
    if (s == NULL)
        return 0;
    if (frame->hd.type == NGHTTP2_HEADERS && frame->headers.cat == NGHTTP2_HCAT_REQUEST)
        opened(s);
    if (frame->hd.flags & NGHTTP2_FLAG_END_STREAM)
        half_closed(s);
    return 0;
}

/* The status is out while the client still sends: tell it to stop (RFC 9113, 8.1). */
static int frame_send(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
    (void)arg;
    if (frame->hd.type != NGHTTP2_HEADERS || !(frame->hd.flags & NGHTTP2_FLAG_END_STREAM))
        return 0;
    struct grpc_stream *s = stream_of(session, frame->hd.stream_id);
    if (s != NULL && !s->half_closed
        && nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, s->id, NGHTTP2_NO_ERROR) != 0)
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    return 0;
}

static int stream_close(nghttp2_session *session, int32_t id, uint32_t error_code, void *arg)
{
    struct grpc_stream *s = stream_of(session, id);
    (void)error_code; (void)arg;
    if (s != NULL)
        grpc_stream_drop(s);
    return 0;
}

int grpc_stream_callbacks(nghttp2_session_callbacks **out)
{
    int rc = nghttp2_session_callbacks_new(out);
    if (rc != 0)
        return rc;
    nghttp2_session_callbacks_set_on_begin_headers_callback(*out, begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(*out, header);
    nghttp2_session_callbacks_set_on_frame_recv_callback(*out, frame_recv);
    nghttp2_session_callbacks_set_on_frame_send_callback(*out, frame_send);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(*out, data_chunk);
    nghttp2_session_callbacks_set_on_stream_close_callback(*out, stream_close);
    nghttp2_session_callbacks_set_send_data_callback(*out, send_data);
    nghttp2_session_callbacks_set_data_source_read_length_callback(*out, frame_room);
    return 0;
}
