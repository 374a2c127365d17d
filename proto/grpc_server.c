/* grpc_server.c - listeners and connections on the loop: bytes to nghttp2 and back, one write per turn. */
#include "proto/grpc_address.h"
#include "proto/grpc_conn.h"
#include "base/clock.h"
#include "base/own.h"
#include <assert.h>
#include <errno.h>
#include <netdb.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

#define GATHER_CAP (GRPC_GATHER_BYTES + 2 * GRPC_FRAME_BYTES + 16)
#define FLUSH_ROUNDS 4                      /* writes to one connection before the others have their turn */

struct write_rest { uv_write_t req; struct grpc_conn *conn; char bytes[]; };

/* ---- connections ---- */

static void server_handle_closed(uv_handle_t *h);
static void on_idle(uv_idle_t *h) { (void)h; }

static void conn_closed(uv_handle_t *h)
{
    struct grpc_conn *c = h->data;
    struct grpc_server *g = c->server;
    free(c);
    server_handle_closed((uv_handle_t *)&g->idle);
}

static void dirty_remove(struct grpc_conn *c)
{
    struct grpc_server *g = c->server;
    if (!c->dirty)
        return;
    if (c->dirty_next != NULL) c->dirty_next->dirty_prev = c->dirty_prev;
    else g->dirty_last = c->dirty_prev;
    if (c->dirty_prev != NULL) c->dirty_prev->dirty_next = c->dirty_next;
    else g->dirty = c->dirty_next;
    c->dirty = false;
    g->dirty_count--;
}

/* Not from within nghttp2 or a handler: the session and the calls go at once, the struct with its handle. */
static void conn_close(struct grpc_conn *c)
{
    struct grpc_server *g = c->server;
    if (c->closing)
        return;
    c->closing = true;
    while (c->streams != NULL)
        grpc_stream_drop(c->streams);
    grpc_timer_stop(&g->timers, &c->timer);
    nghttp2_session_del(c->session);
    c->session = NULL;
    dirty_remove(c);
    if (c->next != NULL) c->next->prev = c->prev;
    if (c->prev != NULL) c->prev->next = c->next;
    else g->conns = c->next;
    g->conn_count--;
    uv_close(&c->uv.handle, conn_closed);
}

void grpc_conn_dirty(struct grpc_conn *c)
{
    struct grpc_server *g = c->server;
    if (c->dirty || c->closing)
        return;
    c->dirty = true;
    c->dirty_prev = g->dirty_last;
    c->dirty_next = NULL;
    if (g->dirty_last != NULL) {
        g->dirty_last->dirty_next = c;
    } else {
        g->dirty = c;
        uv_idle_start(&g->idle, on_idle);
    }
    g->dirty_last = c;
    g->dirty_count++;
}

uint8_t *grpc_gather(struct grpc_server *g, size_t n)
{
    if (g->gather_len >= GRPC_GATHER_BYTES || n > GATHER_CAP - g->gather_len)
        return NULL;
    uint8_t *p = g->gather + g->gather_len;
    g->gather_len += n;
    return p;
}

static void rest_written(uv_write_t *req, int status)
{
    struct write_rest *w = (struct write_rest *)req;
    struct grpc_conn *c = w->conn;
    free(w);
    c->writing = false;
    if (c->closing)
        return;
    if (status < 0)
        conn_close(c);
    else
        grpc_conn_dirty(c);
}

/* What the kernel does not take now is copied and waits there; until then nothing more is gathered for this one. */
static int conn_write(struct grpc_conn *c)
{
    struct grpc_server *g = c->server;
    uv_buf_t b = uv_buf_init((char *)g->gather, (unsigned)g->gather_len);
    int n = uv_try_write(&c->uv.stream, &b, 1);
    if (n < 0 && n != UV_EAGAIN)
        return n;
    size_t done = n > 0 ? (size_t)n : 0, left = g->gather_len - done;
    if (left == 0)
        return 0;
    struct write_rest *w = malloc(sizeof *w + left);
    if (w == NULL)
        return UV_ENOMEM;
    w->conn = c;
    memcpy(w->bytes, g->gather + done, left);
    b = uv_buf_init(w->bytes, (unsigned)left);
    int rc = uv_write(&w->req, &c->uv.stream, &b, 1, rest_written);
    if (rc < 0) {
        free(w);
        return rc;
    }
    c->writing = true;
    return 0;
}

static void shut_done(uv_shutdown_t *req, int status) { (void)req; (void)status; }

static void conn_flush(struct grpc_conn *c)
{
    struct grpc_server *g = c->server;
    bool told = false;
    int round = 0;
    while (!c->closing && !c->writing) {
        if (round++ == FLUSH_ROUNDS) {
            grpc_conn_dirty(c);
            return;
        }
        g->gather_len = 0;
        ssize_t n = 0;
        while (g->gather_len < GRPC_GATHER_BYTES) {
            const uint8_t *bytes;
            n = nghttp2_session_mem_send(c->session, &bytes);
            if (n <= 0)
                break;
            uint8_t *to = grpc_gather(g, (size_t)n);
            if (to == NULL) {
                /* The gather was filled by DATA within this call; the slack behind it takes any one frame of ours. */
                if ((size_t)n > GATHER_CAP - g->gather_len) {
                    conn_close(c);
                    return;
                }
                to = g->gather + g->gather_len;
                g->gather_len += (size_t)n;
            }
            memcpy(to, bytes, (size_t)n);
        }
        bool more = g->gather_len >= GRPC_GATHER_BYTES;
        if (n < 0 || (g->gather_len > 0 && conn_write(c) < 0)) {
            conn_close(c);
            return;
        }
        bool woke = c->wake != NULL;
        grpc_stream_wake(c);
        told |= woke;
        if (!woke && !more)
            break;
    }
    /* Who was told that there is room may do its work in a prepare or check of its own, which this turn may have passed. */
    if (told)
        grpc_conn_dirty(c);
    if (c->closing || c->writing)
        return;
    if (g->closing && c->streams == NULL && !c->shut) {
        /* Closing at once could reset the connection and lose the last trailers: the client hangs up, or the timer. */
        c->shut = true;
        if (uv_shutdown(&c->shut_req, &c->uv.stream, shut_done) < 0)
            conn_close(c);
        return;
    }
    if (!nghttp2_session_want_read(c->session) && !nghttp2_session_want_write(c->session))
        conn_close(c);
}

static void flush_dirty(struct grpc_server *g)
{
    /* Those that are marked while we work come in the next turn: no connection can hold the loop. */
    for (uint32_t n = g->dirty_count; n > 0 && g->dirty != NULL; n--) {
        struct grpc_conn *c = g->dirty;
        dirty_remove(c);
        conn_flush(c);
    }
    if (g->dirty == NULL)
        uv_idle_stop(&g->idle);
}

static void on_prepare(uv_prepare_t *h) { flush_dirty(h->data); }
static void on_check(uv_check_t *h) { flush_dirty(h->data); }

static void on_alloc(uv_handle_t *h, size_t hint, uv_buf_t *out)
{
    struct grpc_conn *c = h->data;
    (void)hint;
    *out = uv_buf_init((char *)c->server->read_bytes, sizeof c->server->read_bytes);
}

static void on_read(uv_stream_t *h, ssize_t n, const uv_buf_t *b)
{
    struct grpc_conn *c = h->data;
    if (c->closing || n == 0)
        return;
    if (n < 0) {
        conn_close(c);
        return;
    }
    bool was_greeted = c->greeted;
    ssize_t used = nghttp2_session_mem_recv(c->session, (const uint8_t *)b->base, (size_t)n);
    if (used < 0) {                             /* not HTTP/2, or no memory: nothing sensible can be answered */
        conn_close(c);
        return;
    }
    if (c->greeted && !was_greeted && !c->server->closing)
        grpc_timer_stop(&c->server->timers, &c->timer);
    grpc_conn_dirty(c);
}

static void conn_timer(struct grpc_timer *t)
{
    conn_close((struct grpc_conn *)((char *)t - offsetof(struct grpc_conn, timer)));
}

static void on_connection(uv_stream_t *h, int status)
{
    struct grpc_listener *l = h->data;
    struct grpc_server *g = l->server;
    struct err err = { 0 };
    if (status < 0 || g->closing)
        return;
    struct grpc_conn *c = calloc(1, sizeof *c);
    assert(c != NULL);                          /* libuv gives no way to refuse without a handle */
    c->server = g;
    bool tcp = l->path[0] == '\0';
    int rc = tcp ? uv_tcp_init(g->loop, &c->uv.tcp) : uv_pipe_init(g->loop, &c->uv.pipe, 0);
    if (rc < 0) {
        free(c);
        return;
    }
    c->uv.handle.data = c;
    g->handles++;
    const nghttp2_settings_entry settings[] = {
        { NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, g->config.streams_max },
        { NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 1 << 20 },
        { NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, GRPC_HEADERS_BYTES },
    };
    c->timer.fire = conn_timer;
    rc = uv_accept(h, &c->uv.stream);
    if (rc < 0 || g->conn_count >= g->config.connections_max
        || nghttp2_session_server_new2(&c->session, g->callbacks, c, g->option) != 0
        || nghttp2_submit_settings(c->session, NGHTTP2_FLAG_NONE, settings, sizeof settings / sizeof settings[0]) != 0
        || nghttp2_session_set_local_window_size(c->session, NGHTTP2_FLAG_NONE, 0, 8 << 20) != 0
        || grpc_timer_start(&g->timers, &c->timer, clock_mono_ns() + GRPC_HELLO_NS, &err) < 0
        || uv_read_start(&c->uv.stream, on_alloc, on_read) < 0) {
        grpc_timer_stop(&g->timers, &c->timer);
        nghttp2_session_del(c->session);
        c->closing = true;
        uv_close(&c->uv.handle, conn_closed);
        return;
    }
    if (tcp) {
        uv_tcp_nodelay(&c->uv.tcp, 1);
        uv_tcp_keepalive(&c->uv.tcp, 1, 60);
    }
    c->next = g->conns;
    if (g->conns != NULL)
        g->conns->prev = c;
    g->conns = c;
    g->conn_count++;
    grpc_server_arm(g);
    grpc_conn_dirty(c);
}

/* ---- timers ---- */

static void on_timer(uv_timer_t *h)
{
    struct grpc_server *g = h->data;
    g->timer_at_ns = UINT64_MAX;
    grpc_timers_run(&g->timers, clock_mono_ns());
    grpc_server_arm(g);
}

void grpc_server_arm(struct grpc_server *g)
{
    uint64_t at = grpc_timers_next(&g->timers);
    if (at >= g->timer_at_ns || uv_is_closing((uv_handle_t *)&g->timer))
        return;                                 /* firing too early is harmless, too late is not */
    uint64_t now = clock_mono_ns();
    g->timer_at_ns = at;
    uv_update_time(g->loop);
    uv_timer_start(&g->timer, on_timer, at <= now ? 0 : (at - now) / 1000000 + 1, 0);
}

/* ---- the server ---- */

int grpc_server_new(struct grpc_server **out, uv_loop_t *loop, const struct grpc_server_config *config, struct err *err)
{
    struct grpc_server *g = calloc(1, sizeof *g);
    if (g == NULL || (g->gather = malloc(GATHER_CAP)) == NULL || nghttp2_option_new(&g->option) != 0
        || grpc_stream_callbacks(&g->callbacks) != 0) {
        if (g != NULL) {
            nghttp2_option_del(g->option);
            free(g->gather);
        }
        free(g);
        return err_set(err, ERR_LIMIT, "gRPC server: out of memory");
    }
    /* libuv writes without MSG_NOSIGNAL: with the default action any client that hangs up would kill the program. */
    struct sigaction act;
    if (sigaction(SIGPIPE, NULL, &act) == 0 && act.sa_handler == SIG_DFL) {
        act.sa_handler = SIG_IGN;
        sigaction(SIGPIPE, &act, NULL);
    }
    g->loop = loop;
    g->config = *config;
    if (g->config.message_bytes_max == 0) g->config.message_bytes_max = 4 << 20;
    if (g->config.streams_max == 0) g->config.streams_max = 1000;
    if (g->config.connections_max == 0) g->config.connections_max = 1000;
    g->timer_at_ns = UINT64_MAX;
    nghttp2_option_set_no_closed_streams(g->option, 1);         /* priorities of dead streams are not kept */
    uv_prepare_init(loop, &g->prepare);
    uv_check_init(loop, &g->check);
    uv_idle_init(loop, &g->idle);
    uv_timer_init(loop, &g->timer);
    g->prepare.data = g->check.data = g->idle.data = g->timer.data = g;
    g->handles = 4;
    uv_prepare_start(&g->prepare, on_prepare);
    uv_check_start(&g->check, on_check);
    uv_unref((uv_handle_t *)&g->prepare);
    uv_unref((uv_handle_t *)&g->check);
    uv_unref((uv_handle_t *)&g->timer);
    *out = g;
    return 0;
}

static void server_free(struct grpc_server *g)
{
    grpc_timers_done(&g->timers);
    nghttp2_session_callbacks_del(g->callbacks);
    nghttp2_option_del(g->option);
    free(g->gather);
    while (g->listeners != NULL) {
        struct grpc_listener *l = g->listeners;
        g->listeners = l->next;
        free(l);
    }
    free(g);
}

/* When the last connection has gone the loop's hooks go too, and with the last of them the server. */
static void server_handle_closed(uv_handle_t *h)
{
    struct grpc_server *g = h->data;
    g->handles--;
    if (!g->closing)
        return;
    if (g->handles == 4 && !uv_is_closing((uv_handle_t *)&g->idle)) {
        uv_close((uv_handle_t *)&g->prepare, server_handle_closed);
        uv_close((uv_handle_t *)&g->check, server_handle_closed);
        uv_close((uv_handle_t *)&g->idle, server_handle_closed);
        uv_close((uv_handle_t *)&g->timer, server_handle_closed);
    } else if (g->handles == 0) {
        server_free(g);
    }
}

static void listener_closed(uv_handle_t *h)
{
    struct grpc_listener *l = h->data;
    server_handle_closed((uv_handle_t *)&l->server->idle);
}

/* A socket file that nobody serves is removed; one that answers, or what is no socket, stays. */
static int clear_stale(const struct sockaddr_un *un, struct err *err)
{
    struct stat st;
    if (lstat(un->sun_path, &st) < 0)
        return errno == ENOENT ? 0 : err_sys(err, ERR_SYS, "%s", un->sun_path);
    if (!S_ISSOCK(st.st_mode))
        return err_set(err, ERR_EXISTS, "%s: exists and is no socket; choose another path", un->sun_path);
    own_fd fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return err_sys(err, ERR_SYS, "socket");
    if (connect(fd, (const struct sockaddr *)un, sizeof *un) == 0 || errno == EAGAIN)
        return err_set(err, ERR_EXISTS, "%s: a server is listening there; stop it or choose another path", un->sun_path);
    if (errno != ECONNREFUSED)
        return err_sys(err, ERR_SYS, "%s", un->sun_path);
    if (unlink(un->sun_path) < 0 && errno != ENOENT)
        return err_sys(err, ERR_SYS, "%s: stale socket", un->sun_path);
    return 0;
}

static int bind_unix(struct grpc_listener *l, const struct grpc_address *a, struct err *err)
{
    int rc = clear_stale(&a->un, err);
    if (rc < 0)
        return rc;
    own_fd fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return err_sys(err, ERR_SYS, "socket");
    /* Linux gives the new file the mode of the socket, less the umask: there is no moment when others may connect. */
    if (fchmod(fd, 0600) < 0 || bind(fd, (const struct sockaddr *)&a->un, sizeof a->un) < 0)
        /* cppcheck-suppress resourceLeak ; own_fd closes it */
        return err_sys(err, errno == EADDRINUSE ? ERR_EXISTS : ERR_SYS, "%s", a->un.sun_path);
    rc = uv_pipe_open(&l->uv.pipe, fd);
    if (rc < 0) {
        unlink(a->un.sun_path);
        return err_set(err, ERR_SYS, "%s: %s", a->un.sun_path, uv_strerror(rc));
    }
    (void)give_fd(&fd);
    memcpy(l->path, a->un.sun_path, sizeof l->path);
    return 0;
}

static int bind_tcp(struct grpc_listener *l, const struct grpc_address *a, struct err *err)
{
    struct addrinfo *found = NULL;
    int rc = grpc_address_resolve(&found, a, true, err);
    if (rc < 0)
        return rc;
    rc = uv_tcp_bind(&l->uv.tcp, found->ai_addr, 0);
    freeaddrinfo(found);
    if (rc < 0)
        return err_set(err, ERR_SYS, "%s:%s: %s", a->host, a->port, uv_strerror(rc));
    return 0;
}

int grpc_server_listen(struct grpc_server *g, const char *address, struct err *err)
{
    struct grpc_address a;
    int rc = grpc_address_parse(&a, address, err);
    if (rc < 0)
        return rc;
    own_mem struct grpc_listener *l = calloc(1, sizeof *l);
    if (l == NULL)
        return err_set(err, ERR_LIMIT, "%s: out of memory", address);
    l->server = g;
    rc = a.is_unix ? uv_pipe_init(g->loop, &l->uv.pipe, 0) : uv_tcp_init(g->loop, &l->uv.tcp);
    if (rc < 0)
        return err_set(err, ERR_SYS, "%s: %s", address, uv_strerror(rc));
    struct grpc_listener *kept = give_ptr(&l);      /* from here its handle is in the loop */
    kept->uv.handle.data = kept;
    kept->next = g->listeners;
    g->listeners = kept;
    g->handles++;
    rc = a.is_unix ? bind_unix(kept, &a, err) : bind_tcp(kept, &a, err);
    if (rc == 0) {
        int uv_rc = uv_listen(&kept->uv.stream, 511, on_connection);
        if (uv_rc < 0)
            rc = err_set(err, uv_rc == UV_EADDRINUSE ? ERR_EXISTS : ERR_SYS, "%s: %s", address, uv_strerror(uv_rc));
    }
    if (rc < 0) {
        uv_close(&kept->uv.handle, listener_closed);
        return rc;
    }
    if (!a.is_unix) {
        struct sockaddr_storage ss;
        int n = sizeof ss;
        if (uv_tcp_getsockname(&kept->uv.tcp, (struct sockaddr *)&ss, &n) == 0)
            g->port = ntohs(ss.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&ss)->sin6_port
                                                     : ((struct sockaddr_in *)&ss)->sin_port);
    }
    return 0;
}

uint32_t grpc_server_port(const struct grpc_server *g) { return g->port; }
uint32_t grpc_server_connections(const struct grpc_server *g) { return g->conn_count; }

/* May be called by a handler: nothing is torn down here, only told to end. */
void grpc_server_close(struct grpc_server *g)
{
    struct err why = { 0 }, err = { 0 };
    if (g == NULL || g->closing)
        return;
    g->closing = true;
    err_set(&why, ERR_UNAVAILABLE, "the server is closing");
    for (struct grpc_listener *l = g->listeners; l != NULL; l = l->next) {
        if (l->path[0] != '\0')
            unlink(l->path);
        if (!uv_is_closing(&l->uv.handle))
            uv_close(&l->uv.handle, listener_closed);
    }
    for (struct grpc_conn *c = g->conns; c != NULL; c = c->next) {
        nghttp2_submit_goaway(c->session, NGHTTP2_FLAG_NONE, nghttp2_session_get_last_proc_stream_id(c->session),
                              NGHTTP2_NO_ERROR, NULL, 0);
        for (struct grpc_stream *s = c->streams; s != NULL; s = s->next)
            grpc_stream_finish(s, &why);
        if (grpc_timer_start(&g->timers, &c->timer, clock_mono_ns() + GRPC_CLOSE_NS, &err) < 0)
            c->greeted = true;                  /* without memory for the timer the client decides when it ends */
        grpc_conn_dirty(c);
    }
    grpc_server_arm(g);
    g->handles++;                               /* a server with no handle left but the hooks ends here as well */
    server_handle_closed((uv_handle_t *)&g->idle);
}
