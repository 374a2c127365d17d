/* commit.c - see commit.h. At most one batch is in flight; whatever came meanwhile is the next. */
#include "rollout/commit.h"
#include "rollout/trajlog.h"
#include <stdlib.h>

struct waiter { commit_cb cb; void *arg; struct waiter *next; int code; struct err err; };

struct commit {
    uv_loop_t *loop;
    struct trajlog *log;
    uv_idle_t  kick;                /* active while something waits and nothing is in flight: batches one loop round */
    uv_work_t  work;
    struct trajlog_batch *batch;    /* in flight */
    struct waiter *refused, **refused_end;     /* could not even be buffered: told from the loop like all others */
    uint32_t waiting;
    bool closing;
    void (*durable)(void *arg);
    void  *durable_arg;
};

static void on_fate(void *arg, void *token, int rc, uint64_t cursor, const struct err *err)
{
    struct commit *c = arg;
    struct waiter *w = token;
    c->waiting--;
    if (!c->closing)
        w->cb(w->arg, rc, cursor, err);
    free(w);
}

static void on_kick_closed(uv_handle_t *h)
{
    free(h->data);
}

static void commit_free(struct commit *c)
{
    uv_close((uv_handle_t *)&c->kick, on_kick_closed);
}

static void on_sync(uv_work_t *work)
{
    struct commit *c = work->data;
    trajlog_commit_sync(c->batch);
}

static void on_kick(uv_idle_t *idle);

static void on_synced(uv_work_t *work, int status)
{
    (void)status;
    struct commit *c = work->data;
    struct trajlog_batch *b = c->batch;
    c->batch = NULL;
    trajlog_commit_end(b, on_fate, c);
    if (c->closing) {
        commit_free(c);
        return;
    }
    if (c->durable != NULL)
        c->durable(c->durable_arg);
    if (c->waiting > 0)
        uv_idle_start(&c->kick, on_kick);
}

static void on_kick(uv_idle_t *idle)
{
    struct commit *c = idle->data;
    uv_idle_stop(idle);
    while (c->refused != NULL) {
        struct waiter *w = c->refused;
        c->refused = w->next;
        if (c->refused == NULL)
            c->refused_end = &c->refused;
        on_fate(c, w, w->code, 0, &w->err);
    }
    if (c->batch != NULL || (c->batch = trajlog_commit_begin(c->log)) == NULL)
        return;
    c->work.data = c;
    if (uv_queue_work(c->loop, &c->work, on_sync, on_synced) < 0) {     /* only without threads: wait here then */
        trajlog_commit_sync(c->batch);
        on_synced(&c->work, 0);
    }
}

int commit_open(struct commit **out, uv_loop_t *loop, struct trajlog *log, struct err *err)
{
    struct commit *c = calloc(1, sizeof *c);
    if (c == NULL)
        return err_set(err, ERR_LIMIT, "log commits: out of memory");
    c->loop = loop;
    c->log = log;
    c->refused_end = &c->refused;
    uv_idle_init(loop, &c->kick);
    c->kick.data = c;
    *out = c;
    return 0;
}

void commit_add(struct commit *c, uint8_t kind, const void *record, size_t n, commit_cb cb, void *arg)
{
    struct waiter *w = calloc(1, sizeof *w);
    if (w == NULL)
        abort();                    /* 600 bytes: no caller can be told without them */
    w->cb = cb;
    w->arg = arg;
    c->waiting++;
    w->code = trajlog_add(c->log, kind, record, n, w, &w->err);
    if (w->code < 0) {
        *c->refused_end = w;
        c->refused_end = &w->next;
    }
    if (c->batch == NULL || w->code < 0)
        uv_idle_start(&c->kick, on_kick);
}

bool commit_idle(const struct commit *c)
{
    return c == NULL || c->waiting == 0;
}

void commit_on_durable(struct commit *c, void (*cb)(void *arg), void *arg)
{
    c->durable = cb;
    c->durable_arg = arg;
}

void commit_close(struct commit *c)
{
    if (c == NULL)
        return;
    c->closing = true;
    if (c->batch == NULL)
        commit_free(c);
}
