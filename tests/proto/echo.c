/* echo.c - the echo service. Each call has its own state, freed in on_closed: leaks and double frees show under ASan. */
#include "tests/proto/echo.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROOM ((size_t)256 << 10)        /* Repeat stops above this and goes on when told */

struct echo_call {
    struct echo *echo;
    struct grpc_stream *stream;         /* NULL when the call is over */
    uint64_t left, size;
    uv_timer_t timer;
    bool timed;
    char *late;
    size_t late_n;
};

static struct echo_call *call_of(struct echo *e, struct grpc_stream *s)
{
    struct echo_call *k = grpc_stream_data(s);
    if (k == NULL) {
        k = calloc(1, sizeof *k);
        assert(k != NULL);
        k->echo = e;
        k->stream = s;
        grpc_stream_set_data(s, k);
        __atomic_add_fetch(&e->opened, 1, __ATOMIC_RELAXED);
    }
    return k;
}

static void timer_closed(uv_handle_t *h)
{
    struct echo_call *k = h->data;
    free(k->late);
    free(k);
}

static void on_closed(void *arg, struct grpc_stream *s)
{
    struct echo *e = arg;
    struct echo_call *k = call_of(e, s);
    __atomic_add_fetch(&e->closed, 1, __ATOMIC_RELAXED);
    k->stream = NULL;
    struct err err = { 0 };
    assert(grpc_stream_send(s, "x", 1, &err) == ERR_CANCELLED);     /* over is over */
    grpc_stream_finish(s, NULL);
    if (k->timed)
        uv_close((uv_handle_t *)&k->timer, timer_closed);
    else
        free(k);
}

static void send_or_end(struct grpc_stream *s, const void *bytes, size_t n, bool end)
{
    struct err err = { 0 };
    int rc = grpc_stream_send(s, bytes, n, &err);
    if (rc < 0)
        grpc_stream_finish(s, &err);
    else if (end)
        grpc_stream_finish(s, NULL);
}

static void on_late(uv_timer_t *t)
{
    struct echo_call *k = t->data;
    if (k->stream != NULL)
        send_or_end(k->stream, k->late, k->late_n, true);
}

static void unary(void *arg, struct grpc_stream *s, const void *bytes, size_t n)
{
    struct echo_call *k = call_of(arg, s);
    const char *text = bytes;
    if (n > 4 && memcmp(text, "err:", 4) == 0) {
        char name[32] = "", msg[400] = "", line[512];
        snprintf(line, sizeof line, "%.*s", (int)(n - 4 < 500 ? n - 4 : 500), text + 4);
        sscanf(line, "%31[^:]:%399[^\x01]", name, msg);
        struct err err = { 0 };
        int code = ERR_INTERNAL;
        for (int c = -1; err_info(c)->code == c; c--)
            if (strcmp(err_info(c)->name, name) == 0)
                code = c;
        err_set(&err, code, "%s", msg);
        grpc_stream_finish(s, &err);
        return;
    }
    if (n > 6 && memcmp(text, "sleep:", 6) == 0) {
        k->late = malloc(n);
        assert(k->late != NULL);
        memcpy(k->late, bytes, n);
        k->late_n = n;
        k->timed = true;
        char ms[16] = "";
        memcpy(ms, text + 6, n - 6 < 15 ? n - 6 : 15);
        uv_timer_init(k->echo->loop, &k->timer);
        k->timer.data = k;
        uv_timer_start(&k->timer, on_late, strtoul(ms, NULL, 10), 0);
        return;
    }
    if (n == 5 && memcmp(text, "close", 5) == 0) {
        grpc_server_close(k->echo->server);
        k->echo->server = NULL;
        return;
    }
    send_or_end(s, bytes, n, true);
}

static void repeat_more(void *arg, struct grpc_stream *s)
{
    struct echo_call *k = call_of(arg, s);
    static const char zeroes[1 << 20];
    while (k->left > 0 && grpc_stream_queued(s) < ROOM) {
        struct err err = { 0 };
        if (grpc_stream_send(s, zeroes, k->size, &err) < 0) {
            grpc_stream_finish(s, &err);
            return;
        }
        k->left--;
        __atomic_add_fetch(&k->echo->sent, 1, __ATOMIC_RELAXED);
        if (grpc_stream_queued(s) > k->echo->queued_max)
            k->echo->queued_max = grpc_stream_queued(s);
    }
    if (k->left == 0)
        grpc_stream_finish(s, NULL);
}

static void repeat(void *arg, struct grpc_stream *s, const void *bytes, size_t n)
{
    struct echo_call *k = call_of(arg, s);
    char text[64] = "";
    memcpy(text, bytes, n < sizeof text - 1 ? n : sizeof text - 1);
    sscanf(text, "%lu %lu", &k->left, &k->size);
    if (k->size > 1 << 20)
        k->size = 1 << 20;
    repeat_more(arg, s);
}

static void bidi(void *arg, struct grpc_stream *s, const void *bytes, size_t n)
{
    (void)call_of(arg, s);
    send_or_end(s, bytes, n, n == 4 && memcmp(bytes, "last", 4) == 0);      /* "last": ended from within the callback */
}

static void bidi_end(void *arg, struct grpc_stream *s)
{
    (void)call_of(arg, s);
    grpc_stream_finish(s, NULL);
}

static void hold(void *arg, struct grpc_stream *s, const void *bytes, size_t n)
{
    (void)call_of(arg, s);
    (void)bytes; (void)n;
}

static const struct grpc_method methods[] = {
    { .path = "/test.Echo/Unary", .on_message = unary, .on_closed = on_closed },
    { .path = "/test.Echo/Repeat", .on_message = repeat, .on_writable = repeat_more, .on_closed = on_closed },
    { .path = "/test.Echo/Bidi", .on_message = bidi, .on_half_close = bidi_end, .on_closed = on_closed, .client_streams = true },
    { .path = "/test.Echo/Hold", .on_message = hold, .on_closed = on_closed },
};

int echo_start(struct echo *e, uv_loop_t *loop, struct grpc_server_config config, struct err *err)
{
    e->loop = loop;
    config.methods = methods;
    config.method_count = sizeof methods / sizeof methods[0];
    config.arg = e;
    return grpc_server_new(&e->server, loop, &config, err);
}
