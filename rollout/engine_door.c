/* engine_door.c - what comes in: requests, and the world's answers. Both only copy and leave an event in the ring. */
#include "base/fault.h"
#include "rollout/engine_copy.h"
#include "rollout/engine_state.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define OUTPUT_ROOM ((size_t)64 << 10)

/* ---- the ring ---- */

void engine_push(struct engine *g, struct episode *e, enum ring_kind kind)
{
    assert(g->ring_len < g->ring_size);
    e->ringed++;
    g->ring[(g->ring_head + g->ring_len++) % g->ring_size] = (struct ring_item){ e, e->op, kind };
}

/* The answer under way has come. Its event is filled by the caller and read by engine_turn(). */
static struct episode_event *answered(struct engine *g, struct episode *e, enum episode_event_kind kind, int rc,
                                      const struct err *err)
{
    assert(e->awaiting == (uint32_t)kind + 1);      /* one answer to each effect, and only to what is under way */
    e->awaiting |= ENGINE_ANSWERED;
    e->answer = (struct episode_event){ .kind = kind, .rc = rc };
    if (rc < 0 && err != NULL)
        e->answer.err = *err;
    if (rc < 0 && e->answer.err.code == 0)
        err_set(&e->answer.err, rc, "%s", err_info(rc)->name);
    engine_push(g, e, RING_ANSWER);
    return &e->answer;
}

void engine_on_task(struct engine *g, struct episode *e, int rc, const struct task *task, const struct err *err)
{
    struct err own = { 0 };
    if (rc == 0) {
        rc = engine_copy_task(&e->task, &e->arena, task, &own);
        err = &own;
    }
    if (rc == 0) {
        double s = e->task->timeout_s > 0 ? e->task->timeout_s : g->config.run_timeout_s_default;
        s = s > 1e9 ? 1e9 : s;
        e->run_wall_ns = e->request.timeout_ns != 0 ? e->request.timeout_ns : (uint64_t)(s * 1e9);
    }
    answered(g, e, EPISODE_EV_TASK, rc, err);
}

void engine_on_patch(struct engine *g, struct episode *e, int rc, const struct patch_answer *ans, const struct err *err)
{
    struct err own = { 0 };
    if (rc == 0) {
        e->patch_outcome = ans->outcome;
        memcpy(e->tree, ans->tree, sizeof e->tree - 1);
        e->tree[sizeof e->tree - 1] = '\0';
        rc = engine_copy_patch(&e->patch_reason, &e->findings, &e->arena, ans, &own);
        err = &own;
    }
    answered(g, e, EPISODE_EV_PATCH, rc, err);
}

void engine_on_recalled(struct engine *g, struct episode *e, int rc, const struct trajectory_head *head, const struct err *err)
{
    struct err own = { 0 };
    struct verdict *v = NULL;
    if (rc == 0) {
        bool same = e->recall_only ? strcmp(head->request_id, e->request.request_id) == 0
                                   : strcmp(head->verdict_key, e->key_hex) == 0;
        v = arena_alloc(&e->arena, sizeof *v);
        err = &own;
        if (!same)
            rc = err_set(&own, ERR_CORRUPT, "record %llu of the log is not the one looked for",
                         (unsigned long long)e->recall_cursor);
        else if (v == NULL)
            rc = err_set(&own, ERR_LIMIT, "episode: no memory for the recorded verdict");
        else
            rc = verdict_copy(v, &e->arena, &head->verdict, &own);
    }
    struct episode_event *ev = answered(g, e, EPISODE_EV_RECALLED, rc, err);
    if (rc < 0) {
        if (!e->recall_only)
            cache_remove(g->verdicts, &e->key);     /* not to be found again */
        return;
    }
    ev->verdict = v;
    memcpy(ev->source, !e->recall_only && v->cached ? v->source_episode : head->episode_id, sizeof ev->source);
}

void engine_on_acquired(struct engine *g, struct episode *e, int rc, const struct err *err)
{
    answered(g, e, EPISODE_EV_ACQUIRED, rc, err);
}

void engine_on_run(struct engine *g, struct episode *e, int rc, const struct run_facts *run, const void *output,
                   size_t output_len, const struct err *err)
{
    if (rc == 0) {
        e->run = *run;
        const char *end = run->run_end == NULL ? "" : arena_strdup(&e->arena, run->run_end);
        e->run.run_end = end != NULL ? end : "";
        e->run.start = run->start == NULL ? NULL : arena_strdup(&e->arena, run->start);
        output_len = output_len < OUTPUT_ROOM ? output_len : OUTPUT_ROOM;
        if (e->output_room == NULL && output_len > 0)
            e->output_room = arena_alloc(&e->arena, OUTPUT_ROOM);
        e->output = e->output_room;
        e->output_len = e->output_room != NULL ? (uint32_t)output_len : 0;     /* for people: may be missing */
        if (e->output_len > 0)
            memcpy(e->output_room, output, e->output_len);
    }
    answered(g, e, EPISODE_EV_RAN, rc, err);
}

void engine_on_closed(struct engine *g, struct episode *e)
{
    assert(e->closing > 0);
    engine_push(g, e, RING_CLOSED);
}

void engine_on_report(struct engine *g, struct episode *e, int rc, const struct report_answer *ans, const struct err *err)
{
    const struct report *copy = NULL;
    bool unreadable = rc == 0 && ans->unreadable;
    struct err own = { 0 };
    if (rc == 0 && !unreadable && engine_copy_report(&copy, &e->arena, &ans->report, &own) < 0)
        copy = NULL;                        /* more results than an episode may hold: the machine judges that */
    struct episode_event *ev = answered(g, e, EPISODE_EV_REPORT, rc, err);
    ev->unreadable = unreadable;
    ev->report = copy;
}

void engine_on_logged(struct engine *g, struct episode *e, int rc, uint64_t cursor, const struct err *err)
{
    answered(g, e, EPISODE_EV_LOGGED, rc, err)->cursor = cursor;
}

/* ---- coming in ---- */

static bool has_request_id(const struct episode *e) { return e->request.request_id[0] != '\0'; }

static struct waiter *waiter_of(struct engine *g, uint64_t ticket, uint32_t *out_index)
{
    uint32_t i = (uint32_t)ticket - 1;
    *out_index = i;
    return i < g->config.waiters_max && g->waiters[i].used && g->waiters[i].generation == (uint32_t)(ticket >> 32)
               ? &g->waiters[i]
               : NULL;
}

static uint64_t add_waiter(struct engine *g, struct episode *e, engine_reply_cb cb, void *arg)
{
    uint32_t i = g->waiter_free;
    struct waiter *w = &g->waiters[i];
    g->waiter_free = w->next;
    *w = (struct waiter){ .cb = cb, .arg = arg, .place = e->place, .next = e->waiter, .generation = w->generation, .used = true };
    e->waiter = i;
    return (uint64_t)w->generation << 32 | (i + 1);
}

void engine_request_key(struct digest *out, const char *request_id)
{
    digest_of(out, request_id, strlen(request_id));
}

static int new_episode(struct engine *g, struct episode **out, const struct evaluate_request *request, struct err *err)
{
    uint32_t klass = request->priority < QUEUE_CLASSES ? request->priority : QUEUE_CLASSES - 1;
    uint64_t hint_ms = engine_retry_hint_ns(g) / 1000000;
    if (g->place_free_count == 0)
        return err_set(err, ERR_BUSY, "%u episodes are under way; try again in %llu ms", g->counts.episodes,
                       (unsigned long long)hint_ms);
    size_t weight = engine_request_bytes(request);
    int rc = admission_enter(&g->admission, klass, g->start_queue.total, weight, err);
    if (rc < 0)
        return rc;
    struct episode *e = fault_hit("engine.episode") ? NULL : calloc(1, sizeof *e);
    if (e == NULL) {
        admission_leave(&g->admission, weight, false);
        return err_set(err, ERR_LIMIT, "episode: out of memory");
    }
    *e = (struct episode){ .arena.budget = weight,
                           .request_bytes = weight,
                           .engine = g,
                           .rules = &g->rules,
                           .klass = klass,
                           .attempt = 1,
                           .waiter = ENGINE_NONE,
                           .slot = ENGINE_NONE,
                           .accepted_ns = g->now_ns,
                           .entered_ns = g->now_ns };
    rc = engine_copy_request(&e->request, &e->arena, request, err);
    if (rc < 0) {
        arena_done(&e->arena);
        admission_leave(&g->admission, weight, false);
        free(e);
        return rc;
    }
    g->world.episode_id(g->world.world, e->id);
    e->accepted_unix_ns = g->world.unix_ns(g->world.world);
    e->place = g->place_free[--g->place_free_count];
    g->places[e->place] = e;
    g->counts.episodes++;
    if (!g->turning) {                      /* between turns nobody knows the time */
        e->next_joined = g->newcomers;
        g->newcomers = e;
    }
    *out = e;
    return 0;
}

static int conflict(const struct evaluate_request *request, struct err *err)
{
    char id[128];
    err_quote(id, sizeof id, request->request_id, strlen(request->request_id));
    return err_set(err, ERR_CONFLICT, "request id \"%s\" was used for another request; nothing was run", id);
}

static int submit(struct engine *g, const struct evaluate_request *request, engine_reply_cb cb, void *arg,
                  uint64_t *out_ticket, struct err *err)
{
    if (g->draining)
        return err_set(err, ERR_UNAVAILABLE, "the server is stopping");
    if (g->waiter_free == ENGINE_NONE)
        return err_set(err, ERR_BUSY, "%u callers wait; try again in %llu ms", g->config.waiters_max,
                       (unsigned long long)(engine_retry_hint_ns(g) / 1000000));
    bool named = request->request_id[0] != '\0';
    struct digest key = { { 0 } };
    uint64_t recall = 0;
    if (named) {
        engine_request_key(&key, request->request_id);
        const struct cache_entry *same = cache_get(g->requests_in_flight, &key);
        if (same == NULL && (same = cache_get(g->requests, &key)) != NULL)
            recall = same->cursor;
        if (same != NULL && !digest_equal(&same->beside, &request->content))
            return conflict(request, err);
        if (same != NULL && recall == 0) {
            *out_ticket = add_waiter(g, g->places[same->cursor], cb, arg);
            return 0;
        }
    }
    if (recall != 0 && !admission_has_room(&g->admission))
        return err_set(err, ERR_BUSY, "memory for episodes is in use; try again in %llu ms",
                       (unsigned long long)(engine_retry_hint_ns(g) / 1000000));
    struct episode *e = NULL;
    int rc = new_episode(g, &e, request, err);
    if (rc < 0)
        return rc;
    *out_ticket = add_waiter(g, e, cb, arg);
    if (recall != 0) {                      /* needs neither queue nor slot */
        engine_begin(g, e);
        e->recall_only = true;
        e->recall_cursor = recall;
        engine_push(g, e, RING_START);
        return 0;
    }
    e->request_key = key;
    if (named)
        cache_put(g->requests_in_flight, &key, e->place, &request->content);
    queue_push(&g->start_queue, &e->item, e->klass);
    return 0;
}

int engine_submit(struct engine *g, const struct evaluate_request *request, engine_reply_cb cb, void *arg,
                  uint64_t *out_ticket, struct err *err)
{
    int rc = submit(g, request, cb, arg, out_ticket, err);
    *(rc == 0 ? &g->counts.admitted : &g->counts.refused) += 1;
    return rc;
}

void engine_cancel(struct engine *g, uint64_t ticket)
{
    uint32_t index;
    struct waiter *w = waiter_of(g, ticket, &index);
    if (w == NULL)
        return;
    struct episode *e = g->places[w->place];
    uint32_t *link = &e->waiter;
    while (*link != index)
        link = &g->waiters[*link].next;
    *link = w->next;
    w->used = false;
    w->generation++;
    w->next = g->waiter_free;
    g->waiter_free = index;
    if (e->waiter == ENGINE_NONE && (!has_request_id(e) || e->recall_only) && !e->left)
        engine_push(g, e, RING_CANCEL);
}

uint64_t engine_retry_hint_ns(const struct engine *g)
{
    return admission_retry_hint_ns(&g->admission, g->start_queue.total);
}

void engine_drain(struct engine *g) { g->draining = true; }
