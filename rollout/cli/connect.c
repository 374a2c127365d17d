/*
 * connect.c - find the server of a state directory, start one when there is none, and keep calling.
 *
 * Everyone who uses one state directory meets at STATE/assayd.sock. Whoever finds nobody there
 * takes STATE/start.lock (flock, held only while a server is being started), looks once more, and
 * starts assayd. The others wait for the lock by looking again. A server may go at any time - its
 * starter ended just as we came, or it crashed: the call is then repeated on the next server, and
 * since every request that changes something carries a request id, it is carried out once.
 *
 * assayd listens there by itself, so one that was started by hand is found in the same way. Only a
 * command that brings something in makes a state: for the others a missing one is a mistyped name.
 *
 * A socket's path holds at most 107 bytes (sun_path). A longer one is named through the open
 * directory as /proc/self/fd/N/assayd.sock; the server does the same, our children inherit the descriptor.
 */
#include "rollout/cli/cli.h"
#include "base/clock.h"
#include "base/own.h"
#include "proto/grpc_client.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>

#define OPEN_WAIT_NS   (5 * NS_PER_S)       /* one connection attempt */
#define FIND_WAIT_NS   (90 * NS_PER_S)      /* until some server answers: another may be recovering a long log */
#define HELD_WAIT_NS   (10 * NS_PER_S)      /* the last server may need so long to let go of the state */
#define BUSY_WAIT_NS   (600 * NS_PER_S)     /* a full queue is waited for so long */
#define STOP_WAIT_NS   (2 * NS_PER_S)       /* our server's end; longer means that others use it */
#define CALL_TRIES     6                    /* servers that may vanish under one call */

struct server {
    struct grpc_client *client;             /* NULL: not connected */
    const char *address;
    int state_fd;                           /* directory; -1 with --server */
    struct server_process process;
};

static void nap(uint64_t ns)
{
    nanosleep(&(struct timespec){ .tv_sec = (time_t)(ns / NS_PER_S), .tv_nsec = (long)(ns % NS_PER_S) }, NULL);
}

/* mkdir -p. As assayd makes it: others may pass through (its confined workers have to), not look. */
static int make_state(struct cli *c, struct err *err)
{
    struct stat st;
    if (stat(c->state, &st) == 0) {
        if (!S_ISDIR(st.st_mode))
            return err_set(err, ERR_BAD_INPUT, "%s: not a directory", c->state);
        return 0;
    }
    char *path = arena_strdup(&c->arena, c->state);
    if (path == NULL)
        return err_set(err, ERR_LIMIT, "out of memory");
    for (char *p = path + 1; ; p++) {
        if (*p != '/' && *p != '\0')
            continue;
        char was = *p;
        *p = '\0';
        if (mkdir(path, was == '\0' ? 0711 : 0755) < 0 && errno != EEXIST)
            return err_sys(err, ERR_UNAVAILABLE, "state directory %s", path);
        *p = was;
        if (was == '\0')
            break;
    }
    if (!c->state_chosen)
        cli_say(c, "state goes to %s (choose with --state DIR or ASSAY_STATE)", c->state);
    return 0;
}

/* The log is a server's first work in a state: a directory without one is something else, or not begun. */
static int open_state(struct cli *c, int *out, struct err *err)
{
    int fd = open(c->state, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 && errno != ENOENT)
        return err_sys(err, errno == ENOTDIR ? ERR_BAD_INPUT : ERR_UNAVAILABLE, "state directory %s", c->state);
    if (fd < 0 || (!c->command->creates && faccessat(fd, "log", F_OK, 0) < 0)) {
        if (fd >= 0)
            close(fd);
        return err_set(err, ERR_NOT_FOUND, "no state at %s: `assay tasks import` makes one%s", c->state,
                       c->state_chosen ? "" : " (--state DIR or ASSAY_STATE name another)");
    }
    *out = fd;
    return 0;
}

/* Does some server hold the state's log? The lock is shared for a moment and given back: nobody waits for it here. */
static bool state_held(int state_fd)
{
    own_fd lock = openat(state_fd, "log/lock", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    return lock >= 0 && flock(lock, LOCK_SH | LOCK_NB) < 0 && errno == EWOULDBLOCK;
}

static int refuse_held(const struct cli *c, struct err *err)
{
    return err_set(err, ERR_UNAVAILABLE, "a server holds the state %s but does not answer on its assayd.sock: it may still be "
                   "starting; if it listens elsewhere, name that with --server ADDR", c->state);
}

int cli_say_where(const struct cli *c, struct err *err)
{
    size_t n = strlen(err->msg);
    if (err->code == ERR_NOT_FOUND)
        snprintf(err->msg + n, sizeof err->msg - n, " (%s %s)", c->server != NULL ? "server" : "state",
                 c->server != NULL ? c->server : c->state);
    return err->code;
}

static int prepare(struct cli *c, bool may_create, struct err *err)
{
    if (c->conn != NULL)
        return 0;
    struct server *s = arena_alloc(&c->arena, sizeof *s);
    if (s == NULL)
        return err_set(err, ERR_LIMIT, "out of memory");
    *s = (struct server){ .state_fd = -1, .process = SERVER_PROCESS_NONE };
    if (c->server != NULL) {
        s->address = c->server;
    } else {
        int rc = may_create ? make_state(c, err) : 0;
        if (rc < 0)
            return rc;
        rc = open_state(c, &s->state_fd, err);
        if (rc < 0)
            return rc;
        s->address = arena_printf(&c->arena, "unix:%s/assayd.sock", c->state);
        if (s->address != NULL && strlen(s->address + 5) >= sizeof ((struct sockaddr_un *)0)->sun_path)
            s->address = arena_printf(&c->arena, "unix:/proc/self/fd/%d/assayd.sock", s->state_fd);
        if (s->address == NULL) {
            close(s->state_fd);
            return err_set(err, ERR_LIMIT, "out of memory");
        }
    }
    c->conn = s;
    return 0;
}

/*
 * One look. ERR_UNAVAILABLE: nobody is there, or somebody who is just leaving.
 * A grpc connection is made lazily by the peer, so "open" alone proves that somebody listens.
 */
static int try_open(struct server *s, struct err *err)
{
    return grpc_client_open(&s->client, s->address, OPEN_WAIT_NS, err);
}

/* With the lock held: look once more, else start. */
static int start_locked(struct cli *c, struct err *err)
{
    struct server *s = c->conn;
    if (try_open(s, err) == 0)
        return 0;
    server_stop(&s->process, STOP_WAIT_NS);     /* one that we started before and that is lost to us */
    if (state_held(s->state_fd))
        return err_set(err, ERR_BUSY, "the state is held");
    int rc = server_start(&s->process, c->state, s->state_fd, c->slots, err);
    if (rc < 0)
        return rc;
    return try_open(s, err);
}

int cli_connect(struct cli *c, struct err *err)
{
    int rc = prepare(c, c->command->creates, err);
    if (rc < 0)
        return rc;
    struct server *s = c->conn;
    if (s->client != NULL)
        return 0;
    uint64_t until = clock_mono_ns() + FIND_WAIT_NS;
    uint64_t held_until = 0;
    uint32_t failed_starts = 0;
    for (;;) {
        rc = try_open(s, err);
        if (rc == 0 || (rc != ERR_UNAVAILABLE && rc != ERR_LOST))
            return rc;
        if (c->server != NULL)
            return rc;
        own_fd lock = openat(s->state_fd, "start.lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (lock < 0)
            return err_sys(err, ERR_UNAVAILABLE, "%s/start.lock", c->state);
        if (flock(lock, LOCK_EX | LOCK_NB) == 0) {
            rc = start_locked(c, err);
            if (rc == 0)
                return 0;
            /* BUSY: perhaps the server before ours still holds the state. Another failure does not mend by itself. */
            if (held_until == 0)
                held_until = clock_mono_ns() + HELD_WAIT_NS;
            if (rc == ERR_BUSY && clock_mono_ns() > held_until)
                return refuse_held(c, err);
            if (rc != ERR_BUSY && ++failed_starts >= 2)
                return err->code = ERR_UNAVAILABLE;
        } else if (errno != EWOULDBLOCK && errno != EINTR) {
            return err_sys(err, ERR_UNAVAILABLE, "%s/start.lock", c->state);
        } else {
            rc = err_set(err, ERR_UNAVAILABLE, "another process is starting a server for %s and does not finish", c->state);
        }
        if (clock_mono_ns() > until)
            return rc;
        nap(50 * NS_PER_MS);
    }
}

int cli_connect_running(struct cli *c, struct err *err)
{
    int rc = prepare(c, false, err);
    if (rc < 0)
        return rc;
    if (c->conn->client != NULL)
        return 1;
    rc = try_open(c->conn, err);
    if (rc == 0)
        return 1;
    if (rc != ERR_UNAVAILABLE || c->server != NULL)
        return rc;
    return state_held(c->conn->state_fd) ? refuse_held(c, err) : 0;
}

static void drop(struct server *s)
{
    grpc_client_close(s->client);
    s->client = NULL;
}

/* After a failed call: 0 when it is worth another try (the connection may be gone), else its code. */
static int worth_again(struct cli *c, int rc, uint32_t *tries, uint64_t *busy_until, struct err *err)
{
    if (rc == ERR_BUSY) {
        uint64_t now = clock_mono_ns();
        if (*busy_until == 0)
            *busy_until = now + BUSY_WAIT_NS;
        if (now > *busy_until)
            return rc;
        nap(200 * NS_PER_MS);
        return 0;
    }
    if (rc != ERR_UNAVAILABLE && rc != ERR_LOST)
        return rc;
    drop(c->conn);
    if (++*tries >= CALL_TRIES)
        return err->code;
    nap(20 * NS_PER_MS * *tries);
    return 0;
}

int cli_call(struct cli *c, const char *method, const struct buf *request, struct buf *answer, struct err *err)
{
    uint32_t tries = 0;
    uint64_t busy_until = 0;
    for (;;) {
        int rc = cli_connect(c, err);
        if (rc < 0)
            return rc;
        buf_reset(answer);
        rc = grpc_client_unary(c->conn->client, method, request->data, request->len, answer, 0, err);
        if (rc == 0)
            return 0;
        rc = worth_again(c, rc, &tries, &busy_until, err);
        if (rc < 0)
            return cli_say_where(c, err);
    }
}

static void call_end_done(struct grpc_call **k) { grpc_call_end(*k); }

/* One subscription until it ends: 1 the reader has enough, 0 the server ended it, < 0. */
static int stream_once(struct cli *c, const struct cli_stream *s, uint32_t *tries, struct err *err)
{
    own_buf request = { 0 };
    own_buf message = { 0 };
    int rc = s->again(s->arg, &request, err);
    if (rc < 0)
        return rc;
    __attribute__((cleanup(call_end_done))) struct grpc_call *call = NULL;
    rc = grpc_call_start(&call, c->conn->client, s->method, 0, err);
    if (rc == 0)
        rc = grpc_call_send(call, request.data, request.len, err);
    if (rc == 0)
        rc = grpc_call_send_end(call, err);
    while (rc == 0) {
        rc = grpc_call_recv(call, &message, UINT64_MAX, err);
        if (rc <= 0)
            return rc;
        *tries = 0;                         /* it moves: a later loss starts counting anew */
        rc = s->next(s->arg, &message, err);
    }
    return rc;
}

int cli_stream(struct cli *c, const struct cli_stream *s, struct err *err)
{
    uint32_t tries = 0;
    uint64_t busy_until = 0;
    for (;;) {
        int rc = cli_connect(c, err);
        if (rc < 0)
            return rc;
        rc = stream_once(c, s, &tries, err);
        if (rc >= 0)
            return 0;
        rc = worth_again(c, rc, &tries, &busy_until, err);
        if (rc < 0)
            return rc;
    }
}

const char *cli_address(const struct cli *c)
{
    return c->conn->address;
}

void cli_disconnect(struct cli *c)
{
    if (c->conn == NULL)
        return;
    drop(c->conn);
    server_stop(&c->conn->process, STOP_WAIT_NS);
    if (c->conn->state_fd >= 0)
        close(c->conn->state_fd);
    c->conn = NULL;
}
