/*
 * assayd.c - the server: options, rights, start and stop. The work is in runner.c (the world) and rpc_*.c (the doors).
 *
 * Turn: libuv callbacks put answers into the engine's ring; the check handle, once per loop round, lets the engine act.
 * Stop: the first SIGTERM or SIGINT refuses new work and finishes what was admitted; the second ends at once, which is
 * safe at any moment: the log holds whatever was acknowledged, and everything in the kernel dies with the jail.
 */
#include "base/clock.h"
#include "base/log.h"
#include "base/own.h"
#include "proto/grpc_server.h"
#include "repos/repos.h"
#include "rollout/engine.h"
#include "rollout/runner.h"
#include "rollout/server.h"
#include "rollout/stream.h"
#include "rollout/trajlog.h"
#include "rollout/wire.h"
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <libgen.h>
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <sys/capability.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#define SOCKET_PATH_MAX (5 + 107)    /* "unix:" and what a socket address holds */
#define STREAM_RECORDS_PER_TURN 256 /* subscribers get their turn, and so does everything else */
#define IDLE_CHECK_MS 50            /* lifeline cut: how often to look whether all is quiet */

struct program {
    struct server server;
    uv_prepare_t prepare;
    uv_check_t   check;
    uv_idle_t    spin;              /* active while the engine has events: the loop must not sleep */
    uv_timer_t   timer, idle_timer;
    uv_signal_t  term, intr;
    uv_poll_t    lifeline;
    bool lifeline_open, lifeline_watched;
};

static const struct { const char *name; int letter; bool has_value; const char *help; } options[] = {
    { "state", 's', true, "DIR         where everything lives (made when missing)" },
    { "listen", 'l', true, "ADDRESS    unix:PATH or HOST:PORT beside that; may be given several times" },
    { "slots", 'n', true, "N           sandboxes at once; default: the number of CPUs" },
    { "queue", 'q', true, "N           evaluations waiting at most; default 4096" },
    { "ready-fd", 'r', true, "FD       write \"ready\" and a newline there once calls are answered" },
    { "lifeline-fd", 'f', true, "FD    stop when it is closed at the other end, nobody is connected and nothing runs" },
    { "help", 'h', false, "" },
    { "version", 'v', false, "" },
};
#define OPTION_COUNT (sizeof options / sizeof options[0])

static void usage(FILE *to)
{
    fprintf(to, "usage: assayd --state DIR [...]    (always answers on unix:DIR/assayd.sock)\n");
    for (size_t i = 0; i < OPTION_COUNT; i++)
        fprintf(to, "  --%s %s\n", options[i].name, options[i].help);
}

static int number_of(const char *name, const char *text, uint32_t least, uint32_t most, uint32_t *out, struct err *err)
{
    char *end;
    errno = 0;
    unsigned long v = strtoul(text, &end, 10);
    if (errno != 0 || *text < '0' || *text > '9' || *end != '\0' || v < least || v > most)
        return err_set(err, ERR_USAGE, "--%s %s: want a number from %u to %u", name, text, least, most);
    *out = (uint32_t)v;
    return 0;
}

/* 0, or 1 when the program has said all it was asked for. */
static int read_options(struct server_config *out, int argc, char **argv, struct err *err)
{
    struct option longs[OPTION_COUNT + 1] = { 0 };
    for (size_t i = 0; i < OPTION_COUNT; i++)
        longs[i] = (struct option){ options[i].name, options[i].has_value, NULL, options[i].letter };
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    *out = (struct server_config){ .slots = cpus > 0 ? (uint32_t)cpus : 1, .queue_max = 4096, .ready_fd = -1, .lifeline_fd = -1 };
    int letter, rc = 0;
    uint32_t fd;
    opterr = 0;
    while (rc == 0 && (letter = getopt_long(argc, argv, "", longs, NULL)) != -1)
        switch (letter) {
        case 's': out->state_dir = optarg; break;
        case 'l':
            if (out->listen_count == SERVER_LISTEN_MAX)
                return err_set(err, ERR_USAGE, "--listen: at most %d addresses", SERVER_LISTEN_MAX);
            out->listen[out->listen_count++] = optarg;
            break;
        case 'n': rc = number_of("slots", optarg, 1, 1024, &out->slots, err); break;
        case 'q': rc = number_of("queue", optarg, 1, 1000000, &out->queue_max, err); break;
        case 'r': rc = number_of("ready-fd", optarg, 3, INT_MAX, &fd, err); out->ready_fd = (int)fd; break;
        case 'f': rc = number_of("lifeline-fd", optarg, 3, INT_MAX, &fd, err); out->lifeline_fd = (int)fd; break;
        case 'h': usage(stdout); return 1;
        case 'v': printf("assayd " ASSAY_VERSION "\n"); return 1;
        default: return err_set(err, ERR_USAGE, "%s: unknown option, or its value is missing; see assayd --help", argv[optind - 1]);
        }
    if (rc < 0)
        return rc;
    if (optind < argc)
        return err_set(err, ERR_USAGE, "%s: assayd takes options only; see assayd --help", argv[optind]);
    if (out->state_dir == NULL)
        return err_set(err, ERR_USAGE, "--state is needed; see assayd --help");
    return 0;
}

/*
 * Give up acting as root. The jail and the workers take their rights anew when they are started (as children of a root
 * process do), so the permitted set stays: a lost jail can be replaced. Nothing started from here can gain more.
 */
static int drop_rights(struct err *err)
{
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return err_sys(err, ERR_SYS, "no_new_privs");
    if (geteuid() != 0)
        return 0;
    cap_t caps = cap_get_proc();
    int rc = caps == NULL || cap_clear_flag(caps, CAP_EFFECTIVE) < 0 || cap_clear_flag(caps, CAP_INHERITABLE) < 0 ||
             cap_set_proc(caps) < 0 ? err_sys(err, ERR_SYS, "dropping capabilities") : 0;
    cap_free(caps);
    return rc;
}

static int state_dir(const char *state, const char *name, int *out_fd, struct err *err)
{
    char path[4096];
    if (snprintf(path, sizeof path, "%s%s%s", state, name[0] != '\0' ? "/" : "", name) >= (int)sizeof path - 64)
        return err_set(err, ERR_USAGE, "--state: the path is too long");
    if (mkdir(path, 0711) < 0 && errno != EEXIST)
        return err_sys(err, ERR_DENIED, "state directory %s", path);
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return err_sys(err, ERR_DENIED, "state directory %s", path);
    if (out_fd != NULL)
        *out_fd = fd;
    else
        close(fd);
    return 0;
}

/* Read the whole log once: request ids and known verdicts for the engine. */
static int restore(struct server *s, struct err *err)
{
    struct trajlog_place place = { .cursor = 1 };
    own_buf record = { 0 };
    uint8_t kind;
    int rc;
    for (;;) {
        uint64_t cursor = place.cursor;
        rc = trajlog_read(s->log, &place, &kind, &record, err);
        if (rc <= 0)
            return rc;
        own_arena a = { .budget = (size_t)64 << 20 };
        struct trajectory_head head;
        if (kind != TRAJFRAME_EPISODE)
            continue;
        rc = wire_read_trajectory_head(&head, &a, record.data, record.len, err);
        if (rc < 0)
            return err_in(err, "log record %" PRIu64, cursor);
        engine_restore(s->engine, &head, cursor);
    }
}

/* Whoever knows the state finds its server. The directory's descriptor stands for a path too long for a socket address. */
static int listen_on_state(struct server *s, struct err *err)
{
    char address[128];
    if (snprintf(address, sizeof address, "unix:%s/assayd.sock", s->config.state_dir) > SOCKET_PATH_MAX)
        snprintf(address, sizeof address, "unix:/proc/self/fd/%d/assayd.sock", s->state_fd);
    return grpc_server_listen(s->grpc, address, err);
}

static int server_open(struct server *s, struct err *err)
{
    struct engine_world world;
    struct trajlog_io io;
    char log_dir[4096];
    int rc = state_dir(s->config.state_dir, "", &s->state_fd, err);
    if (rc == 0)
        rc = state_dir(s->config.state_dir, "store", NULL, err);
    if (rc == 0)
        rc = state_dir(s->config.state_dir, "policies", &s->policies_fd, err);
    if (rc < 0)
        return rc;
    snprintf(log_dir, sizeof log_dir, "%s/log", s->config.state_dir);
    snprintf(s->store_dir, sizeof s->store_dir, "%s/store", s->config.state_dir);
    /* The log's lock is what keeps a second server out of this state: take it first. */
    struct trajlog_config log_config = { 0 };
    if ((rc = trajlog_io_files(&io, log_dir, err)) < 0 || (rc = trajlog_open(&s->log, &io, &log_config, err)) < 0)
        return rc;
    if ((rc = stream_new(&s->stream, s->log, err)) < 0)
        return rc;
    struct trajlog_facts facts;
    trajlog_facts(s->log, &facts);
    if (facts.torn_bytes > 0)
        log_line(LOG_WARN, "log: %" PRIu64 " bytes of an unfinished commit were cut off; nothing acknowledged was in them", facts.torn_bytes);
    /* Writable once, so that a new state has its tables; from here on only importers write. */
    struct store *store = NULL;
    struct catalog *catalog = NULL;
    if ((rc = store_open(&store, s->store_dir, true, err)) == 0)
        rc = catalog_open(&catalog, s->store_dir, true, err);
    if (rc == 0)
        rc = catalog_index(catalog, err);       /* what an import that was killed, or a migration, has left to do */
    store_close(store);
    catalog_close(catalog);
    if (rc < 0 || (rc = store_open(&s->store, s->store_dir, false, err)) < 0 ||
        (rc = catalog_open(&s->catalog, s->store_dir, false, err)) < 0)
        return rc;
    if ((rc = runner_open(&s->runner, s, &world, err)) < 0 || (rc = imports_open(&s->imports, s, err)) < 0)
        return rc;
    struct engine_config config = { .slots = s->config.slots, .queue_max = s->config.queue_max };
    if ((rc = engine_new(&s->engine, &config, &world, err)) < 0 || (rc = restore(s, err)) < 0)
        return rc;
    struct grpc_server_config door = { .arg = s };
    door.methods = rpc_methods(&door.method_count);
    rc = grpc_server_new(&s->grpc, &s->loop, &door, err);
    if (rc == 0)
        rc = listen_on_state(s, err);
    for (uint32_t i = 0; rc == 0 && i < s->config.listen_count; i++)
        rc = grpc_server_listen(s->grpc, s->config.listen[i], err);
    return rc;
}

/* --- the loop --- */

static void on_spin(uv_idle_t *h)
{
    (void)h;                        /* its being active keeps the loop from sleeping */
}

static void on_timer(uv_timer_t *t)
{
    (void)t;                        /* the check handle of this round does the work */
}

static bool quiet(const struct server *s)
{
    struct engine_status status;
    engine_status(s->engine, &status);
    return status.episodes == 0 && !engine_has_events(s->engine) && runner_log_idle(s->runner) && imports_idle(s->imports);
}

static void server_turn(struct program *p)
{
    struct server *s = &p->server;
    uint64_t now = clock_mono_ns();
    engine_turn(s->engine, now);
    if (stream_turn(s->stream, STREAM_RECORDS_PER_TURN) || engine_has_events(s->engine))
        uv_idle_start(&p->spin, on_spin);
    else
        uv_idle_stop(&p->spin);
    uint64_t deadline = engine_deadline_ns(s->engine);
    if (deadline == UINT64_MAX)
        uv_timer_stop(&p->timer);
    else
        uv_timer_start(&p->timer, on_timer, deadline <= now ? 0 : (deadline - now) / NS_PER_MS + 1, 0);
    if (s->stopping && quiet(s))
        uv_stop(&s->loop);
}

/* Both before sleeping (work made by callbacks of this round) and after waking. */
static void on_prepare(uv_prepare_t *h)
{
    server_turn(h->data);
}

static void on_check(uv_check_t *h)
{
    server_turn(h->data);
}

static void server_stop(struct server *s, const char *why)
{
    if (s->stopping)
        uv_stop(&s->loop);
    else
        log_line(LOG_INFO, "stopping: %s", why);
    s->stopping = true;
    engine_drain(s->engine);
}

static void on_signal(uv_signal_t *h, int number)
{
    struct program *p = h->data;
    server_stop(&p->server, number == SIGTERM ? "SIGTERM" : "SIGINT");
}

static void on_idle_timer(uv_timer_t *t)
{
    struct program *p = t->data;
    if (!p->server.stopping && !p->lifeline_open && grpc_server_connections(p->server.grpc) == 0 && quiet(&p->server))
        server_stop(&p->server, "whoever started this server has gone");
}

static void on_lifeline(uv_poll_t *h, int status, int events)
{
    (void)status, (void)events;
    struct program *p = h->data;
    char byte;
    if (read(p->server.config.lifeline_fd, &byte, 1) != 0)
        return;
    p->lifeline_open = false;
    uv_poll_stop(&p->lifeline);
    uv_timer_start(&p->idle_timer, on_idle_timer, 0, IDLE_CHECK_MS);
}

static int program_watch(struct program *p, struct err *err)
{
    uv_loop_t *loop = &p->server.loop;
    uv_prepare_init(loop, &p->prepare);
    uv_check_init(loop, &p->check);
    uv_idle_init(loop, &p->spin);
    uv_timer_init(loop, &p->timer);
    uv_timer_init(loop, &p->idle_timer);
    uv_signal_init(loop, &p->term);
    uv_signal_init(loop, &p->intr);
    p->prepare.data = p->check.data = p->idle_timer.data = p->term.data = p->intr.data = p->lifeline.data = p;
    uv_prepare_start(&p->prepare, on_prepare);
    uv_check_start(&p->check, on_check);
    uv_signal_start(&p->term, on_signal, SIGTERM);
    uv_signal_start(&p->intr, on_signal, SIGINT);
    if (p->server.config.lifeline_fd < 0)
        return 0;
    int rc = uv_poll_init(loop, &p->lifeline, p->server.config.lifeline_fd);
    if (rc < 0)
        return err_set(err, ERR_USAGE, "--lifeline-fd %d: %s", p->server.config.lifeline_fd, uv_strerror(rc));
    p->lifeline_open = p->lifeline_watched = true;
    uv_poll_start(&p->lifeline, UV_READABLE | UV_DISCONNECT, on_lifeline);
    return 0;
}

static void program_close(struct program *p)
{
    struct server *s = &p->server;
    uv_handle_t *handles[] = { (uv_handle_t *)&p->prepare, (uv_handle_t *)&p->check, (uv_handle_t *)&p->spin, (uv_handle_t *)&p->timer,
                               (uv_handle_t *)&p->idle_timer, (uv_handle_t *)&p->term, (uv_handle_t *)&p->intr };
    for (size_t i = 0; i < sizeof handles / sizeof handles[0]; i++)
        if (handles[i]->loop != NULL)
            uv_close(handles[i], NULL);
    if (p->lifeline_watched)
        uv_close((uv_handle_t *)&p->lifeline, NULL);
    grpc_server_close(s->grpc);     /* ends open calls; their handlers still see the engine */
    imports_close(s->imports);
    engine_free(s->engine);
    runner_close(s->runner);
    uv_run(&s->loop, UV_RUN_DEFAULT);
    index_done(&s->index);
    stream_free(s->stream);
    trajlog_close(s->log);
    catalog_close(s->catalog);
    store_close(s->store);
    if (s->policies_fd >= 0)
        close(s->policies_fd);
    if (s->state_fd >= 0)
        close(s->state_fd);
    uv_loop_close(&s->loop);
}

static void say_ready(struct server_config *c)
{
    if (c->ready_fd < 0)
        return;
    if (write(c->ready_fd, "ready\n", 6) != 6)
        log_line(LOG_WARN, "--ready-fd %d: nobody listens", c->ready_fd);
    close(c->ready_fd);
}

int main(int argc, char **argv)
{
    static struct program p = { .server = { .state_fd = -1, .policies_fd = -1, .indexed.cursor = 1 } };
    static char self[PATH_MAX];
    struct err err = { 0 };
    log_open("assayd", LOG_INFO);
    signal(SIGPIPE, SIG_IGN);
    umask(022);                     /* workers read the store under another user id */
    int rc = read_options(&p.server.config, argc, argv, &err);
    if (rc == 1)
        return 0;
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    p.server.config.bin_dir = n > 0 ? dirname(self) : ".";
    for (int k = 0; k < 2; k++) {   /* ours alone: no child may keep them open */
        int fd = k == 0 ? p.server.config.ready_fd : p.server.config.lifeline_fd;
        if (rc == 0 && fd >= 0 && fcntl(fd, F_SETFD, FD_CLOEXEC) < 0)
            rc = err_sys(&err, ERR_USAGE, "descriptor %d", fd);
    }
    bool loop_open = rc == 0 && uv_loop_init(&p.server.loop) == 0;
    if (rc == 0)
        rc = drop_rights(&err);
    if (rc == 0)
        rc = server_open(&p.server, &err);
    if (rc == 0)
        rc = program_watch(&p, &err);
    if (rc == 0) {
        log_line(LOG_INFO, "ready: %u slots, %" PRIu64 " records in the log", p.server.config.slots, trajlog_next_cursor(p.server.log) - 1);
        say_ready(&p.server.config);
        uv_run(&p.server.loop, UV_RUN_DEFAULT);
    } else {
        log_err(LOG_ERROR, &err, "assayd does not start");
        if (p.server.config.ready_fd >= 0)      /* whoever waits there gets the reason */
            dprintf(p.server.config.ready_fd, "%s: %s\n", err_info(err.code)->name, err.msg);
    }
    if (loop_open)
        program_close(&p);
    return rc < 0 ? err_info(rc)->exit_status : 0;
}
