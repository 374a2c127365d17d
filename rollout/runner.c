/* runner.c - see runner.h. No decisions here: a second scheduler in this file would be a fault. */
#include "rollout/runner.h"
#include "base/clock.h"
#include "base/digest.h"
#include "base/log.h"
#include "base/own.h"
#include "repos/repos.h"
#include "rollout/commit.h"
#include "rollout/stream.h"
#include "rollout/trajlog.h"
#include "sandbox/sandbox.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/random.h>

#define JAIL_RESTART_MS 200         /* between two tries to start a jail that does not start */

/* What one episode holds in the world: episode->world. */
struct work {
    struct runner  *runner;
    struct episode *episode;
    int edits_fd, report_fd, output_fd;
    struct sandbox *sandbox;
    struct arena arena;             /* the run's environment */
};

struct runner {
    struct server *server;
    struct sandbox_client *jail;    /* NULL between the loss of one and the start of the next */
    uv_poll_t *jail_poll;
    uv_timer_t jail_timer;
    struct worker_pool *workers;
    uv_poll_t *workers_poll;
    struct commit *commit;
    bool closing;
};

static void on_closed_free(uv_handle_t *h)
{
    free(h);
}

/* --- the jail --- */

static void jail_watch(struct runner *r, struct err *err);

static void jail_stop(struct runner *r)
{
    if (r->jail_poll != NULL)
        uv_close((uv_handle_t *)r->jail_poll, on_closed_free);
    r->jail_poll = NULL;
    sandbox_client_close(r->jail);
    r->jail = NULL;
}

static int jail_start(struct runner *r, struct err *err)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/assay-jail", r->server->config.bin_dir);
    int rc = sandbox_client_start(&r->jail, path, r->server->config.slots, err);
    if (rc < 0)
        return rc;
    jail_watch(r, err);
    return r->jail != NULL ? 0 : err->code;
}

static void on_jail_timer(uv_timer_t *t)
{
    struct runner *r = t->data;
    struct err err = { 0 };
    if (r->jail != NULL || jail_start(r, &err) == 0)
        return;
    log_err(LOG_ERROR, &err, "the jail does not start; trying again");
    uv_timer_start(&r->jail_timer, on_jail_timer, JAIL_RESTART_MS, 0);
}

static void on_jail_readable(uv_poll_t *p, int status, int events)
{
    (void)status, (void)events;
    struct runner *r = p->data;
    struct err err = { 0 };
    if (sandbox_client_dispatch(r->jail, &err) == 0 || r->closing)
        return;
    /* Its callbacks have failed every sandbox it held, so the engine knows; a new one is needed. */
    log_err(LOG_WARN, &err, "the jail is gone; starting another");
    jail_stop(r);
    on_jail_timer(&r->jail_timer);
}

static void jail_watch(struct runner *r, struct err *err)
{
    r->jail_poll = malloc(sizeof *r->jail_poll);
    int rc = r->jail_poll == NULL ? UV_ENOMEM : uv_poll_init(&r->server->loop, r->jail_poll, sandbox_client_fd(r->jail));
    if (rc < 0) {
        free(r->jail_poll);
        r->jail_poll = NULL;
        err_set(err, ERR_SYS, "watching the jail: %s", uv_strerror(rc));
        jail_stop(r);
        return;
    }
    r->jail_poll->data = r;
    uv_poll_start(r->jail_poll, UV_READABLE, on_jail_readable);
}

/* --- what an episode holds --- */

static struct work *work_of(struct runner *r, struct episode *e, struct err *err)
{
    if (e->world != NULL)
        return e->world;
    struct work *w = calloc(1, sizeof *w);
    if (w == NULL) {
        err_set(err, ERR_LIMIT, "episode: out of memory");
        return NULL;
    }
    *w = (struct work){ .runner = r, .episode = e, .edits_fd = -1, .report_fd = -1, .output_fd = -1,
                        .arena = { .budget = (size_t)1 << 20 } };
    e->world = w;
    return w;
}

static void world_release(void *world, struct episode *e)
{
    (void)world;
    struct work *w = e->world;
    if (w == NULL)
        return;
    e->world = NULL;
    sandbox_close(w->sandbox);
    drop_fd(&w->edits_fd);
    drop_fd(&w->report_fd);
    drop_fd(&w->output_fd);
    arena_done(&w->arena);
    free(w);
}

static void world_episode_id(void *world, uint8_t out[16])
{
    (void)world;
    if (getrandom(out, 16, 0) != 16)
        abort();                    /* never fails for 16 bytes once the pool is ready; a repeated id would corrupt the log */
}

static uint64_t world_unix_ns(void *world)
{
    (void)world;
    return clock_wall_ns();
}

/* --- task and patch --- */

static void world_task_get(void *world, struct episode *e)
{
    struct runner *r = world;
    own_arena a = { .budget = (size_t)64 << 20 };
    struct err err = { 0 };
    struct task task;
    int rc = catalog_get(r->server->catalog, &task, &a, e->request.task_id, &err);
    if (rc == 0)
        rc = task_warm(&task, &a, &err);
    engine_on_task(r->server->engine, e, rc, rc == 0 ? &task : NULL, &err);
}

static void on_patch(void *arg, int rc, struct patch_answer *ans, const struct err *err)
{
    struct work *w = arg;
    if (rc == 0) {
        drop_fd(&w->edits_fd);
        w->edits_fd = ans->edits_fd;
    }
    engine_on_patch(w->runner->server->engine, w->episode, rc, ans, err);
}

static void world_patch_merge(void *world, struct episode *e)
{
    struct runner *r = world;
    struct err err = { 0 };
    struct work *w = work_of(r, e, &err);
    int rc = w == NULL ? err.code : worker_patch(r->workers, e->task, e->request.patch, e->request.patch_len, on_patch, w, &err);
    if (rc < 0)
        engine_on_patch(r->server->engine, e, rc, NULL, &err);
}

/* --- sandbox --- */

static void on_acquired(void *arg, int rc, struct sandbox *s, const struct err *err)
{
    struct work *w = arg;
    if (rc == 0)
        w->sandbox = s;
    engine_on_acquired(w->runner->server->engine, w->episode, rc, err);
}

/* The environment's root: the host's own, or a directory below the store's images, named by its digest. */
static int environment_fd(struct runner *r, const char *environment, int *out, struct err *err)
{
    *out = -1;
    if (strcmp(environment, "host") == 0)
        return 0;
    struct digest d;
    char path[4300], hex[DIGEST_HEX_SIZE];
    int rc = digest_parse(&d, strncmp(environment, "sha256:", 7) == 0 ? environment + 7 : environment, err);
    if (rc < 0)
        return err_in(err, "environment image");
    digest_hex(hex, &d);
    snprintf(path, sizeof path, "%s/images/%s", r->server->store_dir, hex);
    *out = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    return *out >= 0 ? 0 : err_sys(err, errno == ENOENT ? ERR_NOT_FOUND : ERR_SYS, "environment image %s is not in the store", hex);
}

/* NULL-terminated, in the work's arena. */
static const char **words(struct work *w, const struct str_list *list)
{
    const char **out = arena_alloc(&w->arena, (list->count + 1) * sizeof *out);
    if (out == NULL)
        return NULL;
    memcpy(out, list->items, list->count * sizeof *out);
    out[list->count] = NULL;
    return out;
}

/* The task's command, and how it begins (argv NULL: not declared). */
static int command_of(struct work *w, const struct episode *e, struct sandbox_command *out, struct sandbox_command *out_warm,
                      struct err *err)
{
    const char *const *env;
    int rc = reader_environment(&env, &w->arena, e->task, err);
    if (rc < 0)
        return rc;
    *out = *out_warm = (struct sandbox_command){ .env = env };
    if (e->task->warm.count == 0) {
        out->shell = e->task->test_cmd;
        return 0;
    }
    out->argv = words(w, &e->task->argv);
    out_warm->argv = words(w, &e->task->warm);
    return out->argv != NULL && out_warm->argv != NULL ? 0 : err_set(err, ERR_LIMIT, "command: out of memory");
}

static void describe_run(struct run_facts *out, char text[32], const struct sandbox_result *s)
{
    *out = (struct run_facts){ .run_end = text, .limits_hit = s->limits_hit, .wall_ns = s->wall_ns, .cpu_ns = s->cpu_ns,
                               .memory_bytes_peak = s->memory_bytes_peak, .output_bytes = s->output_bytes,
                               .start = s->start };
    switch (s->end) {
    case SANDBOX_END_EXIT:
        snprintf(text, 32, "exit %d", s->value);
        out->exited = true;
        out->exit_code = s->value;
        break;
    case SANDBOX_END_SIGNAL:
        snprintf(text, 32, "signal %d", s->value);
        break;
    case SANDBOX_END_TIME_LIMIT:
        snprintf(text, 32, "time_limit");
        out->ended_by_limit = SANDBOX_HIT_TIME;
        break;
    case SANDBOX_END_MEMORY_LIMIT:
        snprintf(text, 32, "memory_limit");
        out->ended_by_limit = SANDBOX_HIT_MEMORY;
        break;
    case SANDBOX_END_OUTPUT_LIMIT:
        snprintf(text, 32, "output_limit");
        out->ended_by_limit = SANDBOX_HIT_OUTPUT;
        break;
    case SANDBOX_END_DISK_LIMIT:
        snprintf(text, 32, "disk_limit");
        out->ended_by_limit = SANDBOX_HIT_DISK;
        break;
    case SANDBOX_END_KILLED:
    case SANDBOX_END_COUNT:
        snprintf(text, 32, "killed");
        break;
    }
}

static void on_run(void *arg, int rc, struct sandbox_result *s, const struct err *err)
{
    struct work *w = arg;
    struct engine *engine = w->runner->server->engine;
    struct run_facts run = { 0 };
    char text[32];
    if (rc < 0) {
        engine_on_run(engine, w->episode, rc, NULL, NULL, 0, err);
        return;
    }
    w->output_fd = s->output_fd;
    w->report_fd = s->report_fd;
    describe_run(&run, text, s);
    own_buf output = { .max = 2 * SANDBOX_OUTPUT_KEEP + 256 };
    struct err why = { 0 };
    if (lseek(w->output_fd, 0, SEEK_SET) < 0 || buf_read_fd(&output, w->output_fd, &why) < 0)
        buf_reset(&output);         /* the reader says what it finds; the copy for people may be missing */
    engine_on_run(engine, w->episode, 0, &run, output.data, output.len, err);
}

static int acquire(struct runner *r, struct episode *e, struct err *err)
{
    struct work *w = work_of(r, e, err);
    if (w == NULL)
        return err->code;
    if (r->jail == NULL)
        return err_set(err, ERR_LOST, "the jail is being started again");
    own_fd tree = store_tree_fd(r->server->store, e->task->base_tree, err);
    if (tree < 0)
        return tree;
    own_fd root = -1;
    int rc = environment_fd(r, e->task->environment, &root, err);
    if (rc < 0)
        return rc;
    const bool compatible = strcmp(e->task->profile, "compatible") == 0;
    struct sandbox_spec spec = { .tree_fd = tree, .edits_fd = w->edits_fd, .root_fd = root,
                                 .profile = compatible ? SANDBOX_COMPATIBLE : SANDBOX_STRICT };
    struct sandbox_command command, warm;
    rc = command_of(w, e, &command, &warm, err);
    if (rc < 0)
        return rc;
    if (warm.argv != NULL)
        spec.warm = &warm;
    struct sandbox_limits limits = { .wall_ns = e->run_wall_ns, .memory_bytes = e->task->memory_mb << 20 };
    return sandbox_acquire_run(r->jail, &spec, &limits, &command, on_acquired, on_run, w, err);
}

static void world_sandbox_acquire(void *world, struct episode *e)
{
    struct runner *r = world;
    struct err err = { 0 };
    int rc = acquire(r, e, &err);
    if (rc < 0)
        engine_on_acquired(r->server->engine, e, rc, &err);
}

/* The command went with the acquire: its answer is on the way. */
static void world_sandbox_run(void *world, struct episode *e)
{
    struct runner *r = world;
    const struct work *w = e->world;
    struct err err = { 0 };
    if (r->jail != NULL && w->sandbox != NULL)
        return;
    int rc = err_set(&err, ERR_LOST, "the jail went away before the command could start");
    engine_on_run(r->server->engine, e, rc, NULL, NULL, 0, &err);
}

static void world_sandbox_close(void *world, struct episode *e)
{
    struct runner *r = world;
    struct work *w = e->world;
    if (w != NULL) {
        sandbox_close(w->sandbox);
        w->sandbox = NULL;
    }
    engine_on_closed(r->server->engine, e);
}

/* --- report --- */

static void on_report(void *arg, int rc, struct report_answer *ans, const struct err *err)
{
    struct work *w = arg;
    drop_fd(&w->report_fd);
    drop_fd(&w->output_fd);
    engine_on_report(w->runner->server->engine, w->episode, rc, ans, err);
}

static void world_report_read(void *world, struct episode *e)
{
    struct runner *r = world;
    struct work *w = e->world;
    struct err err = { 0 };
    int rc = worker_report(r->workers, e->task, w->report_fd, w->output_fd, &e->run, on_report, w, &err);
    if (rc < 0)
        engine_on_report(r->server->engine, e, rc, NULL, &err);
}

/* --- log --- */

static void on_episode_logged(void *arg, int rc, uint64_t cursor, const struct err *err)
{
    struct episode *e = arg;
    engine_on_logged(e->engine, e, rc, cursor, err);
}

static void world_log_append(void *world, struct episode *e, const struct trajectory_facts *facts)
{
    struct runner *r = world;
    own_buf record = { 0 };
    struct err err = { 0 };
    int rc = wire_write_trajectory(&record, facts, &err);
    if (rc < 0)
        engine_on_logged(r->server->engine, e, rc, 0, &err);
    else
        commit_add(r->commit, TRAJFRAME_EPISODE, record.data, record.len, on_episode_logged, e);
}

static void world_log_recall(void *world, struct episode *e)
{
    struct runner *r = world;
    own_buf record = { 0 };
    own_arena a = { .budget = (size_t)64 << 20 };
    struct err err = { 0 };
    struct trajectory_head head;
    uint8_t kind;
    struct trajlog_place place = { .cursor = e->recall_cursor };
    int rc = trajlog_read(r->server->log, &place, &kind, &record, &err);
    if (rc == 0)
        rc = err_set(&err, ERR_NOT_FOUND, "record %llu is not in the log", (unsigned long long)e->recall_cursor);
    if (rc > 0)
        rc = wire_read_trajectory_head(&head, &a, record.data, record.len, &err);
    engine_on_recalled(r->server->engine, e, rc < 0 ? rc : 0, rc < 0 ? NULL : &head, &err);
}

void runner_append(struct runner *r, const void *record, size_t n, runner_logged_cb cb, void *arg)
{
    commit_add(r->commit, TRAJFRAME_APPENDED, record, n, cb, arg);
}

bool runner_log_idle(const struct runner *r)
{
    return commit_idle(r->commit);
}

/* --- life --- */

static void on_workers_readable(uv_poll_t *p, int status, int events)
{
    (void)status, (void)events;
    struct runner *r = p->data;
    struct err err = { 0 };
    if (worker_pool_dispatch(r->workers, &err) < 0)
        log_err(LOG_ERROR, &err, "workers");
}

static int workers_start(struct runner *r, struct err *err)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/assay-worker", r->server->config.bin_dir);
    uint32_t count = r->server->config.slots < 2 ? 2 : r->server->config.slots;
    int rc = worker_pool_start(&r->workers, path, r->server->store_dir, count, err);
    if (rc < 0)
        return rc;
    r->workers_poll = malloc(sizeof *r->workers_poll);
    if (r->workers_poll == NULL)
        return err_set(err, ERR_LIMIT, "workers: out of memory");
    rc = uv_poll_init(&r->server->loop, r->workers_poll, worker_pool_fd(r->workers));
    if (rc < 0) {
        free(r->workers_poll);
        r->workers_poll = NULL;
        return err_set(err, ERR_SYS, "watching the workers: %s", uv_strerror(rc));
    }
    r->workers_poll->data = r;
    uv_poll_start(r->workers_poll, UV_READABLE, on_workers_readable);
    return 0;
}

static void on_durable(void *arg)
{
    struct server *server = arg;
    stream_advanced(server->stream);
}

int runner_open(struct runner **out, struct server *server, struct engine_world *world, struct err *err)
{
    struct runner *r = calloc(1, sizeof *r);
    if (r == NULL)
        return err_set(err, ERR_LIMIT, "runner: out of memory");
    r->server = server;
    uv_timer_init(&server->loop, &r->jail_timer);
    r->jail_timer.data = r;
    *out = r;                       /* from here on runner_close() undoes what was done, on failure too */
    int rc = commit_open(&r->commit, &server->loop, server->log, err);
    if (rc == 0)
        commit_on_durable(r->commit, on_durable, server);
    if (rc == 0)
        rc = jail_start(r, err);
    if (rc == 0)
        rc = workers_start(r, err);
    if (rc < 0)
        return rc;
    *world = (struct engine_world){
        .world = r, .episode_id = world_episode_id, .unix_ns = world_unix_ns, .task_get = world_task_get,
        .patch_merge = world_patch_merge, .log_recall = world_log_recall, .sandbox_acquire = world_sandbox_acquire,
        .sandbox_run = world_sandbox_run, .sandbox_close = world_sandbox_close, .report_read = world_report_read,
        .log_append = world_log_append, .release = world_release,
    };
    return 0;
}

static void on_timer_closed(uv_handle_t *h)
{
    free(h->data);
}

void runner_close(struct runner *r)
{
    if (r == NULL || r->closing)
        return;
    r->closing = true;
    jail_stop(r);
    if (r->workers_poll != NULL)
        uv_close((uv_handle_t *)r->workers_poll, on_closed_free);
    worker_pool_close(r->workers);
    commit_close(r->commit);
    uv_close((uv_handle_t *)&r->jail_timer, on_timer_closed);
}
