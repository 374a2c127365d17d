/*
 * grpc_test.c - our server and our client against each other, and the server against bad peers.
 * The server runs the echo service on a thread of its own; every test ends with all its calls closed
 * and the loop empty (uv_loop_close succeeds), so that a leaked handle or call fails the test.
 */
#include "base/clock.h"
#include "base/own.h"
#include "proto/grpc_client.h"
#include "proto/grpc_frame.h"
#include "tests/proto/echo.h"
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <cmocka.h>

#define LONG (60 * NS_PER_S)     /* ends a test that hangs; no test waits for it */
#define S(x) (x), (sizeof (x) - 1)

struct fixture {
    uv_loop_t loop;
    uv_async_t stop;
    pthread_t thread;
    struct echo echo;
    struct grpc_server_config config;
    char dir[32], address[64];
    struct grpc_client *client;
};

static void on_stop(uv_async_t *a)
{
    struct fixture *f = a->data;
    if (f->echo.server != NULL)
        grpc_server_close(f->echo.server);
    uv_close((uv_handle_t *)a, NULL);
}

static void *serve(void *arg)
{
    struct fixture *f = arg;
    uv_run(&f->loop, UV_RUN_DEFAULT);
    return NULL;
}

static void start_with(struct fixture *f, struct grpc_server_config config)
{
    struct err err = { 0 };
    memset(f, 0, sizeof *f);
    strcpy(f->dir, "/tmp/grpc-test-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    snprintf(f->address, sizeof f->address, "unix:%s/s", f->dir);
    assert_int_equal(uv_loop_init(&f->loop), 0);
    uv_async_init(&f->loop, &f->stop, on_stop);
    f->stop.data = f;
    assert_int_equal(echo_start(&f->echo, &f->loop, config, &err), 0);
    assert_int_equal(grpc_server_listen(f->echo.server, f->address, &err), 0);
    assert_int_equal(pthread_create(&f->thread, NULL, serve, f), 0);
    if (grpc_client_open(&f->client, f->address, LONG, &err) < 0)
        fail_msg("%s", err.msg);
}

static void start(struct fixture *f) { start_with(f, (struct grpc_server_config){ 0 }); }

static void stop(struct fixture *f)
{
    grpc_client_close(f->client);
    uv_async_send(&f->stop);
    pthread_join(f->thread, NULL);
    assert_int_equal(uv_loop_close(&f->loop), 0);
    assert_int_equal(f->echo.opened, f->echo.closed);
    assert_int_equal(access(f->address + 5, F_OK), -1);
    rmdir(f->dir);
}

#define OK(expr) do { if ((expr) < 0) fail_msg("%s: %s", #expr, err.msg); } while (0)

static void unary_echoes(void **state)
{
    struct fixture f;
    struct err err = { 0 };
    own_buf a = { 0 };
    (void)state;
    start(&f);
    struct stat st;
    assert_int_equal(stat(f.address + 5, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    for (int i = 0; i < 100; i++) {
        OK(grpc_client_unary(f.client, "/test.Echo/Unary", S("hello"), &a, LONG, &err));
        assert_int_equal(a.len, 5);
        assert_memory_equal(a.data, "hello", 5);
    }
    OK(grpc_client_unary(f.client, "/test.Echo/Unary", "", 0, &a, 0, &err));
    assert_int_equal(a.len, 0);
    OK(grpc_client_unary(f.client, "/test.Echo/Unary", S("sleep:20"), &a, LONG, &err));
    assert_int_equal(a.len, 8);
    stop(&f);
}

static void errors_keep_their_code(void **state)
{
    struct fixture f;
    own_buf a = { 0 };
    (void)state;
    start(&f);
    for (int code = -1; err_info(code)->code == code; code--) {
        char req[128];
        struct err err = { 0 };
        snprintf(req, sizeof req, "err:%s: 100%% f\xc3\xbcr %d\n", err_info(code)->name, code);
        assert_int_equal(grpc_client_unary(f.client, "/test.Echo/Unary", req, strlen(req), &a, LONG, &err), code);
        assert_string_equal(err.msg, strchr(req + 4, ':') + 1);
    }
    struct err err = { 0 };
    assert_int_equal(grpc_client_unary(f.client, "/test.Echo/Nothing", S("x"), &a, LONG, &err), ERR_UNSUPPORTED);
    stop(&f);
}

static void big_messages(void **state)
{
    struct fixture f;
    struct err err = { 0 };
    const size_t n = 3 << 20;
    own_mem uint8_t *big = malloc(2 * n);
    own_buf a = { 0 };
    (void)state;
    for (size_t i = 0; i < 2 * n; i++)
        big[i] = (uint8_t)(i * 2654435761u >> 13);
    start(&f);
    OK(grpc_client_unary(f.client, "/test.Echo/Unary", big, n, &a, 0, &err));
    assert_int_equal(a.len, n);
    assert_memory_equal(a.data, big, n);
    assert_int_equal(grpc_client_unary(f.client, "/test.Echo/Unary", big, 2 * n, &a, 0, &err), ERR_LIMIT);
    OK(grpc_client_unary(f.client, "/test.Echo/Unary", big, n, &a, 0, &err));      /* the connection lives on */
    OK(grpc_client_unary(f.client, "/test.Echo/Unary", big, 4 << 20, &a, 0, &err));
    assert_int_equal(a.len, 4 << 20);
    stop(&f);
}

static void stream_comes_whole(void **state)
{
    struct fixture f;
    struct err err = { 0 };
    own_buf a = { 0 };
    struct grpc_call *k;
    (void)state;
    start(&f);
    OK(grpc_call_start(&k, f.client, "/test.Echo/Repeat", 0, &err));
    OK(grpc_call_send(k, S("2000 5000"), &err));
    OK(grpc_call_send_end(k, &err));
    int rc, n = 0;
    while ((rc = grpc_call_recv(k, &a, LONG, &err)) == 1) {
        assert_int_equal(a.len, 5000);
        n++;
    }
    OK(rc);
    assert_int_equal(n, 2000);
    grpc_call_end(k);
    OK(grpc_call_start(&k, f.client, "/test.Echo/Repeat", 0, &err));       /* none at all is a stream too */
    OK(grpc_call_send(k, S("0 0"), &err));
    OK(grpc_call_send_end(k, &err));
    assert_int_equal(grpc_call_recv(k, &a, LONG, &err), 0);
    grpc_call_end(k);
    stop(&f);
}

static void bidi_64_in_flight(void **state)
{
    enum { CALLS = 64, EACH = 20 };
    struct fixture f;
    struct err err = { 0 };
    own_buf a = { 0 };
    struct grpc_call *k[CALLS];
    char text[64];
    (void)state;
    start(&f);
    for (int i = 0; i < CALLS; i++)
        OK(grpc_call_start(&k[i], f.client, "/test.Echo/Bidi", 0, &err));
    for (int j = 0; j < EACH; j++)
        for (int i = 0; i < CALLS; i++) {
            int n = snprintf(text, sizeof text, "call %d message %d", i, j);
            OK(grpc_call_send(k[i], text, (size_t)n, &err));
        }
    for (int i = CALLS - 1; i >= 0; i--) {
        for (int j = 0; j < EACH; j++) {
            snprintf(text, sizeof text, "call %d message %d", i, j);
            OK(grpc_call_recv(k[i], &a, LONG, &err));
            assert_string_equal((char *)a.data, text);
        }
        assert_int_equal(grpc_call_recv(k[i], &a, 0, &err), ERR_DEADLINE);      /* nothing more, and still open */
        if (i % 2 == 0) {
            OK(grpc_call_send_end(k[i], &err));
        } else {
            OK(grpc_call_send(k[i], S("last"), &err));
            assert_int_equal(grpc_call_recv(k[i], &a, LONG, &err), 1);
        }
        assert_int_equal(grpc_call_recv(k[i], &a, LONG, &err), 0);
        grpc_call_end(k[i]);
    }
    stop(&f);
}

static void deadline_ends_the_call(void **state)
{
    struct fixture f;
    struct err err = { 0 };
    own_buf a = { 0 };
    (void)state;
    start(&f);
    uint64_t t = clock_mono_ns();
    assert_int_equal(grpc_client_unary(f.client, "/test.Echo/Hold", S("x"), &a, 50 * NS_PER_MS, &err), ERR_DEADLINE);
    assert_true(clock_mono_ns() - t >= 50 * NS_PER_MS);
    OK(grpc_client_unary(f.client, "/test.Echo/Unary", S("x"), &a, LONG, &err));
    for (int i = 0; i < 6000 && __atomic_load_n(&f.echo.closed, __ATOMIC_RELAXED) != 2; i++)
        poll(NULL, 0, 10);
    assert_int_equal(__atomic_load_n(&f.echo.closed, __ATOMIC_RELAXED), 2);
    stop(&f);
}

/* A server must end the call by itself: this peer sets the header and then only listens. */
static void server_enforces_the_deadline(void **state)
{
    struct fixture f;
    struct err err = { 0 };
    own_buf a = { 0 };
    struct grpc_call *k[3];
    (void)state;
    start(&f);
    for (int i = 0; i < 3; i++) {       /* several deadlines, the last first */
        OK(grpc_call_start(&k[i], f.client, i == 1 ? "/test.Echo/Repeat" : "/test.Echo/Hold", (uint64_t)(90 - 30 * i) * NS_PER_MS,
                           &err));
        OK(grpc_call_send(k[i], S("1000 1000000"), &err));
        OK(grpc_call_send_end(k[i], &err));
    }
    for (int i = 0; i < 6000 && __atomic_load_n(&f.echo.closed, __ATOMIC_RELAXED) != 3; i++)
        poll(NULL, 0, 10);              /* the client does nothing: the server's own clock */
    assert_int_equal(__atomic_load_n(&f.echo.closed, __ATOMIC_RELAXED), 3);
    for (int i = 0; i < 3; i++) {
        int rc;
        while ((rc = grpc_call_recv(k[i], &a, LONG, &err)) == 1) {}
        assert_int_equal(rc, ERR_DEADLINE);
        grpc_call_end(k[i]);
    }
    OK(grpc_client_unary(f.client, "/test.Echo/Unary", S("x"), &a, LONG, &err));
    stop(&f);
}

static void cancel_reaches_the_handler(void **state)
{
    struct fixture f;
    struct err err = { 0 };
    struct grpc_call *k;
    (void)state;
    start(&f);
    for (int i = 0; i < 50; i++) {
        OK(grpc_call_start(&k, f.client, i % 2 ? "/test.Echo/Hold" : "/test.Echo/Bidi", 0, &err));
        OK(grpc_call_send(k, S("x"), &err));
        if (i % 3 == 0)
            OK(grpc_call_send_end(k, &err));
        grpc_call_end(k);
    }
    OK(grpc_call_start(&k, f.client, "/test.Echo/Hold", 0, &err));      /* never sent */
    grpc_call_end(k);
    OK(grpc_call_start(&k, f.client, "/test.Echo/Hold", 0, &err));      /* open when the client closes */
    OK(grpc_call_send(k, S("x"), &err));
    stop(&f);                           /* checks opened == closed */
}

static void slow_reader_is_not_buffered(void **state)
{
    struct fixture f;
    struct err err = { 0 };
    own_buf a = { 0 };
    struct grpc_call *k;
    (void)state;
    start(&f);
    OK(grpc_call_start(&k, f.client, "/test.Echo/Repeat", 0, &err));
    OK(grpc_call_send(k, S("2000 100000"), &err));
    OK(grpc_call_send_end(k, &err));
    for (int i = 0; i < 20; i++) {      /* others on the same connection go on meanwhile */
        OK(grpc_client_unary(f.client, "/test.Echo/Unary", S("x"), &a, LONG, &err));
        poll(NULL, 0, 5);
    }
    uint64_t sent = __atomic_load_n(&f.echo.sent, __ATOMIC_RELAXED);
    assert_in_range(sent, 5, 40);       /* 1 MiB window, 256 KiB queue, what lies in the socket: of 200 MB */
    int n = 0;
    while (grpc_call_recv(k, &a, LONG, &err) == 1)
        n++;
    assert_int_equal(n, 2000);
    assert_true(f.echo.queued_max <= (256 << 10) + 100005);
    grpc_call_end(k);
    stop(&f);
}

static void limits_hold(void **state)
{
    struct fixture f;
    struct err err = { 0 };
    own_buf a = { 0 };
    struct grpc_call *k[8];
    (void)state;
    start_with(&f, (struct grpc_server_config){ .message_bytes_max = 1000, .streams_max = 4, .connections_max = 2 });
    char big[1001] = { 0 };
    OK(grpc_client_unary(f.client, "/test.Echo/Unary", big, 1000, &a, 0, &err));
    assert_int_equal(grpc_client_unary(f.client, "/test.Echo/Unary", big, 1001, &a, 0, &err), ERR_LIMIT);
    for (int i = 0; i < 8; i++) {       /* the client knows streams_max by now: the rest waits its turn */
        OK(grpc_call_start(&k[i], f.client, "/test.Echo/Bidi", 0, &err));
        OK(grpc_call_send(k[i], S("x"), &err));
    }
    for (int i = 0; i < 6000 && __atomic_load_n(&f.echo.opened, __ATOMIC_RELAXED) < 5; i++)
        poll(NULL, 0, 10);
    poll(NULL, 0, 20);
    assert_int_equal(__atomic_load_n(&f.echo.opened, __ATOMIC_RELAXED), 5);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(grpc_call_recv(k[i], &a, LONG, &err), 1);
        grpc_call_end(k[i]);
    }
    struct grpc_client *more[2] = { NULL, NULL };
    for (int i = 0; i < 2; i++)
        OK(grpc_client_open(&more[i], f.address, LONG, &err));
    OK(grpc_client_unary(more[0], "/test.Echo/Unary", S("x"), &a, LONG, &err));
    assert_int_equal(grpc_client_unary(more[1], "/test.Echo/Unary", S("x"), &a, LONG, &err), ERR_UNAVAILABLE);
    grpc_client_close(more[0]);
    grpc_client_close(more[1]);
    stop(&f);
}

static void wrong_number_of_requests(void **state)
{
    struct fixture f;
    struct err err = { 0 };
    own_buf a = { 0 };
    struct grpc_call *k;
    (void)state;
    start(&f);
    OK(grpc_call_start(&k, f.client, "/test.Echo/Unary", 0, &err));
    OK(grpc_call_send_end(k, &err));
    assert_int_equal(grpc_call_recv(k, &a, LONG, &err), ERR_UNSUPPORTED);
    grpc_call_end(k);
    OK(grpc_call_start(&k, f.client, "/test.Echo/Unary", 0, &err));
    OK(grpc_call_send(k, S("one"), &err));
    OK(grpc_call_send(k, S("two"), &err));
    assert_int_equal(grpc_call_recv(k, &a, LONG, &err), ERR_UNSUPPORTED);
    grpc_call_end(k);
    OK(grpc_call_start(&k, f.client, "/test.Echo/Bidi", 0, &err));      /* none is fine when the client streams */
    OK(grpc_call_send_end(k, &err));
    assert_int_equal(grpc_call_recv(k, &a, LONG, &err), 0);
    grpc_call_end(k);
    assert_int_equal(grpc_client_unary(f.client, "/test.Echo/Repeat", S("2 10"), &a, LONG, &err), ERR_PROTOCOL);
    assert_int_equal(grpc_client_unary(f.client, "/test.Echo/Repeat", S("0 10"), &a, LONG, &err), ERR_PROTOCOL);
    stop(&f);
}

static void server_closes_in_mid_call(void **state)
{
    struct fixture f;
    struct err err = { 0 };
    own_buf a = { 0 };
    struct grpc_call *k[3];
    static const char *const methods[] = { "/test.Echo/Hold", "/test.Echo/Bidi", "/test.Echo/Repeat" };
    (void)state;
    start(&f);
    for (int i = 0; i < 3; i++) {
        OK(grpc_call_start(&k[i], f.client, methods[i], 0, &err));
        OK(grpc_call_send(k[i], S("1000 100000"), &err));
    }
    OK(grpc_call_send_end(k[0], &err));
    OK(grpc_call_send_end(k[2], &err));
    OK(grpc_call_recv(k[2], &a, LONG, &err));
    assert_int_equal(grpc_client_unary(f.client, "/test.Echo/Unary", S("close"), &a, LONG, &err), ERR_UNAVAILABLE);
    for (int i = 0; i < 3; i++) {
        int rc;
        while ((rc = grpc_call_recv(k[i], &a, LONG, &err)) == 1) {}
        assert_int_equal(rc, ERR_UNAVAILABLE);
        grpc_call_end(k[i]);
    }
    assert_int_equal(grpc_client_unary(f.client, "/test.Echo/Unary", S("x"), &a, LONG, &err), ERR_UNAVAILABLE);
    stop(&f);
}

static void nobody_listens(void **state)
{
    struct err err = { 0 };
    struct grpc_client *c = NULL;
    (void)state;
    assert_int_equal(grpc_client_open(&c, "unix:/tmp/grpc-test-nobody", LONG, &err), ERR_UNAVAILABLE);
    assert_int_equal(grpc_client_open(&c, "127.0.0.1:1", LONG, &err), ERR_UNAVAILABLE);
    assert_int_equal(grpc_client_open(&c, "nonsense", LONG, &err), ERR_USAGE);
    assert_int_equal(grpc_client_open(&c, "host:99999", LONG, &err), ERR_USAGE);
    assert_int_equal(grpc_client_open(&c, "::1:80", LONG, &err), ERR_USAGE);
    assert_null(c);
}

static void sockets_are_replaced_when_stale(void **state)
{
    struct fixture f;
    struct err err = { 0 };
    (void)state;
    start(&f);
    uv_loop_t loop;
    assert_int_equal(uv_loop_init(&loop), 0);
    struct echo e = { 0 };
    OK(echo_start(&e, &loop, (struct grpc_server_config){ 0 }, &err));
    assert_int_equal(grpc_server_listen(e.server, f.address, &err), ERR_EXISTS);        /* live */
    char stale[80], file[80];
    snprintf(stale, sizeof stale, "unix:%s/stale", f.dir);
    snprintf(file, sizeof file, "unix:%s/file", f.dir);
    struct sockaddr_un un = { .sun_family = AF_UNIX };
    snprintf(un.sun_path, sizeof un.sun_path, "%s", stale + 5);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&un, sizeof un), 0);
    close(fd);
    OK(grpc_server_listen(e.server, stale, &err));
    fclose(fopen(file + 5, "w"));
    assert_int_equal(grpc_server_listen(e.server, file, &err), ERR_EXISTS);             /* no socket: left alone */
    assert_int_equal(unlink(file + 5), 0);
    OK(grpc_server_listen(e.server, "127.0.0.1:0", &err));
    assert_int_not_equal(grpc_server_port(e.server), 0);
    grpc_server_close(e.server);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
    assert_int_equal(access(stale + 5, F_OK), -1);
    stop(&f);
}

/* ---- peers that are not ours: raw bytes ---- */

static int raw(const struct fixture *f)
{
    struct sockaddr_un un = { .sun_family = AF_UNIX };
    snprintf(un.sun_path, sizeof un.sun_path, "%s", f->address + 5);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&un, sizeof un), 0);
    return fd;
}

/* Read until the end of the connection or until `until` bytes came. Returns how many; *ended says which. */
static size_t drain(int fd, uint8_t *to, size_t room, size_t until, bool *ended)
{
    size_t n = 0;
    *ended = false;
    while (n < until) {
        struct pollfd p = { .fd = fd, .events = POLLIN };
        if (poll(&p, 1, 60000) != 1)
            fail_msg("the server neither answers nor hangs up");
        ssize_t got = read(fd, to + n, room - n);
        if (got <= 0) {
            *ended = true;
            break;
        }
        n += (size_t)got;
    }
    return n;
}

static const char magic[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

static void garbage_is_hung_up_on(void **state)
{
    static const char *const junk[] = { "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
                                        "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 tls hello....",
                                        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nno frames follow here, only text" };
    struct fixture f;
    struct err err = { 0 };
    own_buf a = { 0 };
    uint8_t got[4096];
    bool ended;
    (void)state;
    start(&f);
    for (size_t i = 0; i < sizeof junk / sizeof junk[0]; i++) {
        own_fd fd = raw(&f);
        assert_int_equal(write(fd, junk[i], strlen(junk[i])), strlen(junk[i]));
        drain(fd, got, sizeof got, sizeof got, &ended);
        assert_true(ended);
    }
    OK(grpc_client_unary(f.client, "/test.Echo/Unary", S("x"), &a, LONG, &err));
    stop(&f);
}

/* A frame: length(3) type flags stream(4) payload. */
static size_t frame(uint8_t *to, uint8_t type, uint8_t flags, uint32_t stream, const void *payload, size_t n)
{
    const uint8_t head[9] = { (uint8_t)(n >> 16), (uint8_t)(n >> 8), (uint8_t)n, type, flags,
                              0, 0, (uint8_t)(stream >> 8), (uint8_t)stream };
    memcpy(to, head, 9);
    if (n > 0)
        memcpy(to + 9, payload, n);
    return 9 + n;
}

/* Header fields as HPACK literals without indexing. */
static size_t field(uint8_t *to, const char *name, const char *value)
{
    size_t a = strlen(name), b = strlen(value);
    to[0] = 0;
    to[1] = (uint8_t)a;
    memcpy(to + 2, name, a);
    to[2 + a] = (uint8_t)b;
    memcpy(to + 3 + a, value, b);
    return 3 + a + b;
}

static size_t request(uint8_t *to, uint32_t stream, const char *method, const char *path, const char *type, const char *extra,
                      const char *extra_value, const void *message, size_t n)
{
    uint8_t block[512];
    size_t b = 0, at;
    b += field(block + b, ":method", method);
    b += field(block + b, ":scheme", "http");
    b += field(block + b, ":path", path);
    b += field(block + b, ":authority", "x");
    b += field(block + b, "te", "trailers");
    if (type != NULL)
        b += field(block + b, "content-type", type);
    if (extra != NULL && extra_value != NULL)
        b += field(block + b, extra, extra_value);
    at = frame(to, 1, 4, stream, block, b);
    return at + frame(to + at, 0, 1, stream, message, n);
}

static bool holds(const uint8_t *bytes, size_t n, const char *text)
{
    return memmem(bytes, n, text, strlen(text)) != NULL;
}

static void one_byte_at_a_time(void **state)
{
    struct fixture f;
    uint8_t out[1024], got[8192];
    bool ended;
    (void)state;
    start(&f);
    own_fd fd = raw(&f);
    size_t n = sizeof magic - 1;
    memcpy(out, magic, n);
    n += frame(out + n, 4, 0, 0, NULL, 0);
    n += request(out + n, 1, "POST", "/test.Echo/Unary", "application/grpc+proto", "grpc-timeout", "5S", S("\0\0\0\0\5slow!"));
    n += frame(out + n, 7, 0, 0, "\0\0\0\0\0\0\0\0", 8);                /* goodbye: the server hangs up when done */
    for (size_t i = 0; i < n; i++)
        assert_int_equal(write(fd, out + i, 1), 1);
    shutdown(fd, SHUT_WR);
    n = drain(fd, got, sizeof got, sizeof got, &ended);
    assert_true(ended);
    assert_true(holds(got, n, "slow!"));
    stop(&f);
}

/* The answer to one raw request, as bytes: literal header text is found in it when HPACK left it plain. */
static size_t ask(const struct fixture *f, uint8_t *got, size_t room, const char *method, const char *type, const char *extra,
                  const char *value, const void *message, size_t message_n)
{
    uint8_t out[1024];
    bool ended;
    own_fd fd = raw(f);
    size_t n = sizeof magic - 1;
    memcpy(out, magic, n);
    uint8_t no_table[] = { 0, 1, 0, 0, 0, 0 };          /* SETTINGS_HEADER_TABLE_SIZE 0 */
    n += frame(out + n, 4, 0, 0, no_table, sizeof no_table);
    n += request(out + n, 1, method, "/test.Echo/Unary", type, extra, value, message, message_n);
    n += frame(out + n, 7, 0, 0, "\0\0\0\0\0\0\0\0", 8);
    assert_int_equal(write(fd, out, n), n);
    n = drain(fd, got, room, room, &ended);
    assert_true(ended);
    return n;
}

/* The HEADERS of stream 1, its first byte being :status: 0x88 is 200 in HPACK's table. */
static const uint8_t *first_headers(const uint8_t *got, size_t n)
{
    for (size_t at = 0; at + 9 <= n; ) {
        size_t len = (size_t)got[at] << 16 | (size_t)got[at + 1] << 8 | got[at + 2];
        if (got[at + 3] == 1)
            return got + at + 9;
        at += 9 + len;
    }
    fail_msg("no HEADERS in the answer");
    return NULL;
}

static void requests_that_are_no_grpc(void **state)
{
    struct fixture f;
    uint8_t got[8192];
    static const char message[] = "\0\0\0\0\1x";
    (void)state;
    start(&f);
    size_t n = ask(&f, got, sizeof got, "POST", "application/grpc", NULL, NULL, message, 6);
    const uint8_t *h = first_headers(got, n);
    assert_true(h[0] == 0x88 || h[1] == 0x88);          /* behind a table size update */
    n = ask(&f, got, sizeof got, "POST", "text/html", NULL, NULL, message, 6);
    h = first_headers(got, n);
    assert_false(h[0] == 0x88 || h[1] == 0x88);
    n = ask(&f, got, sizeof got, "POST", NULL, NULL, NULL, message, 6);
    h = first_headers(got, n);
    assert_false(h[0] == 0x88 || h[1] == 0x88);
    n = ask(&f, got, sizeof got, "GET", "application/grpc", NULL, NULL, message, 6);
    h = first_headers(got, n);
    assert_false(h[0] == 0x88 || h[1] == 0x88);
    stop(&f);
}

/* A good conversation with a few bytes changed, many times over: the server may hang up, and nothing else. */
static void mutated_bytes_do_no_harm(void **state)
{
    struct fixture f;
    struct err err = { 0 };
    own_buf a = { 0 };
    uint8_t good[4096], out[4096], got[65536];
    uint32_t seed = 20240501;
    bool ended;
    (void)state;
    start(&f);
    size_t n = sizeof magic - 1;
    memcpy(good, magic, n);
    n += frame(good + n, 4, 0, 0, NULL, 0);
    n += request(good + n, 1, "POST", "/test.Echo/Unary", "application/grpc", "grpc-timeout", "5S", S("\0\0\0\0\5slow!"));
    n += request(good + n, 3, "POST", "/test.Echo/Bidi", "application/grpc", NULL, NULL, S("\0\0\0\0\1x\0\0\0\0\2yz"));
    n += request(good + n, 5, "POST", "/test.Echo/Repeat", "application/grpc", NULL, NULL, S("\0\0\0\0\5" "20 99"));
    n += request(good + n, 7, "POST", "/test.Echo/Hold", "application/grpc", "grpc-timeout", "9m", S("\0\0\0\0\1x"));
    n += frame(good + n, 3, 0, 7, "\0\0\0\x8", 4);                       /* cancel */
    n += frame(good + n, 6, 0, 0, "pingpong", 8);
    n += frame(good + n, 7, 0, 0, "\0\0\0\0\0\0\0\0", 8);
    for (int round = 0; round < 400; round++) {
        memcpy(out, good, n);
        for (int i = 0; i < 1 + round % 4; i++) {
            seed = seed * 1664525 + 1013904223;
            out[24 + (seed >> 8) % (n - 24)] ^= (uint8_t)(1 << (seed >> 29));
        }
        own_fd fd = raw(&f);
        assert_int_equal(write(fd, out, n), n);
        shutdown(fd, SHUT_WR);
        drain(fd, got, sizeof got, sizeof got, &ended);
    }
    OK(grpc_client_unary(f.client, "/test.Echo/Unary", S("x"), &a, LONG, &err));
    stop(&f);
}

static void frame_texts(void **state)
{
    char out[64], timeout[16];
    uint64_t ns;
    (void)state;
    grpc_percent_encode(out, sizeof out, " a%\xc3\xbc\n~ ");
    assert_string_equal(out, "%20a%25%C3%BC%0A~%20");
    assert_int_equal(grpc_percent_encode(out, 5, "aa%%"), 2);           /* never half an escape */
    grpc_percent_decode(out, sizeof out, S("%20a%25%c3%BC%0A~%2%zz%00"));
    assert_string_equal(out, " a%\xc3\xbc\n~%2%zz?");
    assert_true(grpc_timeout_parse(&ns, S("99999999H")));
    assert_true(ns == UINT64_C(99999999) * 3600 * 1000000000 || ns == UINT64_MAX);
    assert_true(grpc_timeout_parse(&ns, S("15m")));
    assert_int_equal(ns, 15 * NS_PER_MS);
    assert_false(grpc_timeout_parse(&ns, S("123456789S")));
    assert_false(grpc_timeout_parse(&ns, S("S")));
    assert_false(grpc_timeout_parse(&ns, S("1s")));
    assert_false(grpc_timeout_parse(&ns, S("-1S")));
    for (uint64_t v = 1; v < UINT64_C(1) << 62; v = v * 3 + 1) {
        grpc_timeout_format(timeout, v);
        assert_true(grpc_timeout_parse(&ns, timeout, strlen(timeout)));
        assert_true(ns >= v && ns - v <= v / 1000);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frame_texts),
        cmocka_unit_test(unary_echoes),
        cmocka_unit_test(errors_keep_their_code),
        cmocka_unit_test(big_messages),
        cmocka_unit_test(stream_comes_whole),
        cmocka_unit_test(bidi_64_in_flight),
        cmocka_unit_test(deadline_ends_the_call),
        cmocka_unit_test(server_enforces_the_deadline),
        cmocka_unit_test(cancel_reaches_the_handler),
        cmocka_unit_test(slow_reader_is_not_buffered),
        cmocka_unit_test(limits_hold),
        cmocka_unit_test(wrong_number_of_requests),
        cmocka_unit_test(server_closes_in_mid_call),
        cmocka_unit_test(nobody_listens),
        cmocka_unit_test(sockets_are_replaced_when_stale),
        cmocka_unit_test(garbage_is_hung_up_on),
        cmocka_unit_test(one_byte_at_a_time),
        cmocka_unit_test(requests_that_are_no_grpc),
        cmocka_unit_test(mutated_bytes_do_no_harm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
