/*
 * grpc_load.c - load on an echo service over TCP: the same client for every server that is compared.
 * Usage: grpc_load PORT unary|stream SIZE CONNECTIONS IN_FLIGHT SECONDS
 * Each connection keeps IN_FLIGHT calls open. Prints: COUNT_PER_S P50_US P99_US ERRORS; for a stream the count is of
 * messages (by their bytes) and the times are 0. A warm-up of a quarter of the time is not counted.
 */
#include "base/clock.h"
#include "proto/grpc_frame.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <nghttp2/nghttp2.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CONNS 64
#define TIMES 4000000
#define GATHER ((size_t)128 << 10)

struct conn { int fd; nghttp2_session *session; struct grpc_queue out; };
struct call { uint64_t start_ns; size_t at; bool failed; };

static struct conn conns[CONNS];
static uint8_t request[1 << 20];
static size_t request_n, size;
static bool streaming, counting;
static uint64_t done, errors, bytes_in;
static uint32_t *times;
static size_t time_n;

static ssize_t read_request(nghttp2_session *session, int32_t id, uint8_t *to, size_t room, uint32_t *flags,
                            nghttp2_data_source *source, void *arg)
{
    struct call *k = source->ptr;
    (void)session; (void)id; (void)arg;
    size_t n = request_n - k->at < room ? request_n - k->at : room;
    memcpy(to, request + k->at, n);
    k->at += n;
    if (k->at == request_n)
        *flags |= NGHTTP2_DATA_FLAG_EOF;
    return (ssize_t)n;
}

static void start_call(struct conn *c)
{
#define NV(a, b) { (uint8_t *)(uintptr_t)(a), (uint8_t *)(uintptr_t)(b), sizeof a - 1, sizeof b - 1, \
                   NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_COPY_VALUE }
    nghttp2_nv nv[] = { NV(":method", "POST"), NV(":scheme", "http"), NV(":path", "/test.Echo/Repeat"),
                        NV(":authority", "localhost"), NV("te", "trailers"), NV("content-type", "application/grpc") };
    if (!streaming)
        nv[2] = (nghttp2_nv)NV(":path", "/test.Echo/Unary");
    struct call *k = calloc(1, sizeof *k);
    if (k == NULL)
        abort();
    k->start_ns = clock_mono_ns();
    nghttp2_data_provider source = { .source.ptr = k, .read_callback = read_request };
    if (nghttp2_submit_request(c->session, NULL, nv, sizeof nv / sizeof nv[0], &source, k) < 0)
        abort();
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name, size_t name_n,
                     const uint8_t *value, size_t n, uint8_t flags, void *arg)
{
    (void)flags; (void)arg;
    if (name_n == 11 && memcmp(name, "grpc-status", 11) == 0 && !(n == 1 && value[0] == '0')) {
        struct call *k = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
        if (k != NULL)
            k->failed = true;
    }
    return 0;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *bytes, size_t n, void *arg)
{
    (void)session; (void)flags; (void)id; (void)bytes; (void)arg;
    if (counting)
        bytes_in += n;
    return 0;
}

static int on_close(nghttp2_session *session, int32_t id, uint32_t error_code, void *arg)
{
    struct call *k = nghttp2_session_get_stream_user_data(session, id);
    if (k->failed || error_code != 0)
        errors++;
    else if (counting) {
        done++;
        if (time_n < TIMES)
            times[time_n++] = (uint32_t)((clock_mono_ns() - k->start_ns) / 1000);
    }
    free(k);
    start_call(arg);
    return 0;
}

static void flush(struct conn *c)
{
    struct err err = { 0 };
    for (;;) {
        while (grpc_queue_len(&c->out) < GATHER) {
            const uint8_t *p;
            ssize_t n = nghttp2_session_mem_send(c->session, &p);
            if (n < 0)
                abort();
            if (n == 0)
                break;
            if (grpc_queue_add(&c->out, p, (size_t)n, &err) < 0)
                abort();
        }
        size_t left = grpc_queue_len(&c->out);
        if (left == 0)
            return;
        ssize_t n = send(c->fd, grpc_queue_front(&c->out), left, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno == EAGAIN)
            return;
        if (n < 0) {
            perror("grpc_load: send");
            exit(1);
        }
        grpc_queue_take(&c->out, (size_t)n);
    }
}

static void open_conn(struct conn *c, int port)
{
    struct sockaddr_in sa = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port),
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    nghttp2_session_callbacks *cb;
    int on = 1;
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(c->fd, (struct sockaddr *)&sa, sizeof sa) != 0) {
        perror("grpc_load: connect");
        exit(1);
    }
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    const nghttp2_settings_entry settings[] = { { NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 1 << 20 },
                                                { NGHTTP2_SETTINGS_MAX_FRAME_SIZE, 64 << 10 } };
    if (nghttp2_session_callbacks_new(&cb) != 0)
        abort();
    nghttp2_session_callbacks_set_on_header_callback(cb, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(cb, on_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(cb, on_close);
    if (nghttp2_session_client_new(&c->session, cb, c) != 0
        || nghttp2_submit_settings(c->session, 0, settings, 2) != 0
        || nghttp2_session_set_local_window_size(c->session, 0, 0, 8 << 20) != 0)
        abort();
    nghttp2_session_callbacks_del(cb);
}

static int by_value(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

int main(int argc, char **argv)
{
    if (argc != 7) {
        fprintf(stderr, "usage: grpc_load PORT unary|stream SIZE CONNECTIONS IN_FLIGHT SECONDS\n");
        return 64;
    }
    static uint8_t in[256 << 10];
    struct pollfd fds[CONNS];
    struct grpc_queue q = { 0 };
    struct err err = { 0 };
    char text[64];
    int count = atoi(argv[4]), in_flight = atoi(argv[5]);
    uint64_t ns = (uint64_t)(atof(argv[6]) * 1e9);
    streaming = strcmp(argv[2], "stream") == 0;
    size = strtoul(argv[3], NULL, 10);
    times = calloc(TIMES, sizeof *times);
    if (times == NULL || count < 1 || count > CONNS || size > sizeof request / 2)
        return 64;
    int n = snprintf(text, sizeof text, "1000000000 %zu", size);
    if (grpc_message_put(&q, streaming ? (void *)text : (void *)in, streaming ? (size_t)n : size, &err) < 0)
        return 1;
    request_n = grpc_queue_len(&q);
    memcpy(request, grpc_queue_front(&q), request_n);
    for (int i = 0; i < count; i++) {
        open_conn(&conns[i], atoi(argv[1]));
        for (int j = 0; j < in_flight; j++)
            start_call(&conns[i]);
        fds[i] = (struct pollfd){ .fd = conns[i].fd };
    }
    uint64_t begin = clock_mono_ns(), from = begin + ns / 4, now;
    while ((now = clock_mono_ns()) < from + ns) {
        counting = now >= from;
        for (int i = 0; i < count; i++) {
            flush(&conns[i]);
            fds[i].events = (short)(POLLIN | (grpc_queue_len(&conns[i].out) > 0 ? POLLOUT : 0));
        }
        if (poll(fds, (nfds_t)count, 100) <= 0)
            continue;
        for (int i = 0; i < count; i++) {
            if (!(fds[i].revents & (POLLIN | POLLHUP | POLLERR)))
                continue;
            ssize_t got = recv(conns[i].fd, in, sizeof in, MSG_DONTWAIT);
            if (got < 0 && errno == EAGAIN)
                continue;
            if (got <= 0 || nghttp2_session_mem_recv(conns[i].session, in, (size_t)got) < 0) {
                fprintf(stderr, "grpc_load: the server hung up\n");
                return 1;
            }
        }
    }
    double s = (double)(now - from) / 1e9;
    qsort(times, time_n, sizeof *times, by_value);
    double rate = streaming ? (double)bytes_in / (double)(size + GRPC_PREFIX_SIZE) / s : (double)done / s;
    printf("%.1f %u %u %lu\n", rate, time_n ? times[time_n / 2] : 0, time_n ? times[time_n * 99 / 100] : 0, errors);
    return errors > 0;
}
