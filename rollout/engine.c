/* engine.c - who waits for what; the machine's effects carried to the world, its events taken from the ring. */
#include "base/fault.h"
#include "rollout/engine_state.h"
#include <assert.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define TURN_ROUNDS_MAX 64     /* then the loop's other work has its turn; engine_has_events() says that there is more */

static struct episode *of_item(struct queue_item *item)
{
    return (struct episode *)(void *)((char *)item - offsetof(struct episode, item));
}

static void step(struct engine *g, struct episode *e, const struct episode_event *ev);

/* ---- life ---- */

static void defaults(struct engine_config *c)
{
    if (c->slots == 0) c->slots = 4;
    if (c->active_max == 0) c->active_max = c->slots * 2 + 4;
    if (c->queue_max == 0) c->queue_max = 4096;
    if (c->waiters_max == 0) c->waiters_max = c->queue_max * 2 + 64;
    if (c->arena_bytes_max == 0) c->arena_bytes_max = (size_t)1 << 30;
    if (c->episode_bytes == 0) c->episode_bytes = (size_t)4 << 20;
    if (c->attempts_max == 0) c->attempts_max = 3;
    if (c->backoff_ns == 0) c->backoff_ns = UINT64_C(100000000);
    if (c->run_grace_ns == 0) c->run_grace_ns = UINT64_C(30000000000);
    if (c->cache_entries_max == 0) c->cache_entries_max = 65536;
    if (c->request_ids_max == 0) c->request_ids_max = 262144;
    if (c->preempt_max == 0) c->preempt_max = 2;
    if (c->preempt_max == ENGINE_PREEMPT_NEVER) c->preempt_max = 0;
    if (!(c->run_timeout_s_default > 0)) c->run_timeout_s_default = 1800;
    if (c->readers_version == NULL) c->readers_version = "readers/1";
}

static int build(struct engine *g, struct err *err)
{
    const struct engine_config *c = &g->config;
    g->place_count = c->queue_max + c->active_max + c->waiters_max;
    g->ring_size = g->place_count * RING_PER_EPISODE + c->slots;
    if (fault_hit("engine.tables"))
        return err_set(err, ERR_LIMIT, "engine: out of memory");
    g->places = calloc(g->place_count, sizeof *g->places);
    g->place_free = calloc(g->place_count, sizeof *g->place_free);
    g->waiters = calloc(c->waiters_max, sizeof *g->waiters);
    g->ring = calloc(g->ring_size, sizeof *g->ring);
    g->left = calloc(g->place_count, sizeof *g->left);
    g->slot_table = calloc(c->slots, sizeof *g->slot_table);
    if (g->places == NULL || g->place_free == NULL || g->waiters == NULL || g->ring == NULL ||
        g->left == NULL || g->slot_table == NULL)
        return err_set(err, ERR_LIMIT, "engine: out of memory for a queue of %u", c->queue_max);
    g->place_free_count = g->place_count;
    for (uint32_t i = 0; i < g->place_count; i++)
        g->place_free[i] = g->place_count - 1 - i;
    g->waiter_free = ENGINE_NONE;
    for (uint32_t i = c->waiters_max; i-- > 0; ) {
        g->waiters[i].next = g->waiter_free;
        g->waiter_free = i;
    }
    int rc = cache_new(&g->verdicts, c->cache_entries_max, err);
    if (rc == 0) rc = cache_new(&g->requests, c->request_ids_max, err);
    if (rc == 0) rc = cache_new(&g->keys_in_flight, g->place_count, err);
    if (rc == 0) rc = cache_new(&g->requests_in_flight, g->place_count, err);
    return rc;
}

int engine_new(struct engine **out, const struct engine_config *config, const struct engine_world *world, struct err *err)
{
    struct engine *g = fault_hit("engine.alloc") ? NULL : calloc(1, sizeof *g);
    if (g == NULL)
        return err_set(err, ERR_LIMIT, "engine: out of memory");
    g->config = *config;
    defaults(&g->config);
    g->world = *world;
    g->deadline_ns = UINT64_MAX;
    g->rules = (struct episode_rules){ .attempts_max = g->config.attempts_max, .backoff_ns = g->config.backoff_ns,
                                       .run_grace_ns = g->config.run_grace_ns, .readers_version = g->config.readers_version };
    g->admission = (struct admission){ .queue_max = g->config.queue_max, .slots = g->config.slots,
                                       .arena_bytes_max = g->config.arena_bytes_max, .episode_bytes = g->config.episode_bytes };
    int rc = build(g, err);
    if (rc < 0) {
        engine_free(g);
        return rc;
    }
    *out = g;
    return 0;
}

static void destroy(struct engine *g, struct episode *e)
{
    g->world.release(g->world.world, e);
    arena_done(&e->arena);
    admission_leave(&g->admission, e->request_bytes, e->started);
    g->places[e->place] = NULL;
    g->place_free[g->place_free_count++] = e->place;
    g->counts.episodes--;
    free(e);
}

static void tell(struct engine *g, struct episode *e, const struct engine_reply *reply)
{
    while (e->waiter != ENGINE_NONE) {             /* the callback may submit and cancel: take each out before it is called */
        struct waiter *w = &g->waiters[e->waiter];
        uint32_t i = e->waiter;
        engine_reply_cb cb = w->cb;
        void *arg = w->arg;
        e->waiter = w->next;
        w->used = false;
        w->generation++;
        w->next = g->waiter_free;
        g->waiter_free = i;
        cb(arg, reply);
    }
}

void engine_free(struct engine *g)
{
    if (g == NULL)
        return;
    g->draining = true;                     /* what a callback submits now is refused */
    struct err over = { 0 };
    err_set(&over, ERR_CANCELLED, "the server is stopping");
    for (uint32_t i = 0; g->places != NULL && i < g->place_count; i++)
        if (g->places[i] != NULL) {
            struct episode *e = g->places[i];
            tell(g, e, &(struct engine_reply){ .rc = over.code, .err = &over, .request_id = e->request.request_id,
                                               .task_id = e->request.task_id });
            destroy(g, e);
        }
    cache_free(g->verdicts);
    cache_free(g->requests);
    cache_free(g->keys_in_flight);
    cache_free(g->requests_in_flight);
    free(g->slot_table);
    free(g->left);
    free(g->ring);
    free(g->waiters);
    free(g->place_free);
    free(g->places);
    free(g);
}

static void remember(struct engine *g, const char *request_id, const struct digest *content, const struct digest *verdict_key,
                     const struct verdict *v, uint64_t cursor)
{
    if (request_id[0] != '\0') {
        struct digest key;
        engine_request_key(&key, request_id);
        cache_put(g->requests, &key, cursor, content);
    }
    /* A cached answer's record is as good as its source's, but says less about the run: keep the source. */
    if (verdict_key != NULL && episode_shareable(v) && (!v->cached || cache_get(g->verdicts, verdict_key) == NULL))
        cache_put(g->verdicts, verdict_key, cursor, verdict_key);
}

void engine_restore(struct engine *g, const struct trajectory_head *head, uint64_t cursor)
{
    struct digest key;
    struct err err = { 0 };
    bool keyed = head->verdict_key[0] != '\0' && digest_parse(&key, head->verdict_key, &err) == 0;
    remember(g, head->request_id, &head->content, keyed ? &key : NULL, &head->verdict, cursor);
}

/* ---- effects ---- */

static void set_active(struct engine *g, struct episode *e, bool active)
{
    if (e->active == active)
        return;
    e->active = active;
    g->active += active ? 1 : -1u;
    if (e->request.priority == 2)
        g->active_urgent += active ? 1 : -1u;
}

static void unjoin(struct engine *g, struct episode *e)
{
    if (e->joined_to == NULL)
        return;
    *(e->prev_joined != NULL ? &e->prev_joined->next_joined : &e->joined_to->first_joined) = e->next_joined;
    if (e->next_joined != NULL)
        e->next_joined->prev_joined = e->prev_joined;
    e->joined_to = e->next_joined = e->prev_joined = NULL;
    g->counts.joined--;
}

/* Work that an urgent one waits for is urgent itself. */
static void raise_class(struct episode *e, uint32_t klass)
{
    if (e->klass >= klass)
        return;
    e->klass = klass;
    struct queue *q = e->item.in;
    if (q == NULL)
        return;
    queue_remove(&e->item);
    queue_push(q, &e->item, klass);
}

static void join(struct engine *g, struct episode *e, struct episode *leader)
{
    e->joined_to = leader;
    e->next_joined = leader->first_joined;
    e->prev_joined = NULL;
    if (e->next_joined != NULL)
        e->next_joined->prev_joined = e;
    leader->first_joined = e;
    g->counts.joined++;
    g->counts.cache_joins++;
    set_active(g, e, false);
    raise_class(leader, e->klass);
}

static void lookup(struct engine *g, struct episode *e)
{
    struct episode_event ev = { .kind = EPISODE_EV_MISS };
    const struct cache_entry *hit = cache_get(g->verdicts, &e->key);
    const struct cache_entry *flying = hit == NULL ? cache_get(g->keys_in_flight, &e->key) : NULL;
    if (hit != NULL) {
        ev.kind = EPISODE_EV_HIT;
        ev.cursor = hit->cursor;
        g->counts.cache_hits++;
    } else if (flying != NULL) {
        ev.kind = EPISODE_EV_JOIN;
        join(g, e, g->places[flying->cursor]);
    } else {
        e->leader = true;
        cache_put(g->keys_in_flight, &e->key, e->place, &e->key);
    }
    step(g, e, &ev);
}

/*
 * The leader of a key has ended. A verdict that may be shared answers all who joined. If it was cancelled they
 * look again: the first leads, the others join it. Else (our failure, a limit) each runs by itself: a second
 * try one after the other would make the last of a group wait for all before it.
 */
static void share(struct engine *g, struct episode *leader)
{
    cache_remove(g->keys_in_flight, &leader->key);
    leader->leader = false;
    bool good = leader->state == EPISODE_REPLIED && episode_shareable(&leader->verdict);
    struct episode *list = leader->first_joined;
    leader->first_joined = NULL;
    for (struct episode *e = list, *next; e != NULL; e = next) {
        next = e->next_joined;
        e->joined_to = e->next_joined = e->prev_joined = NULL;
        g->counts.joined--;
        set_active(g, e, true);
        if (leader->state == EPISODE_CANCELLED) {
            lookup(g, e);
            continue;
        }
        struct episode_event ev = { .kind = good ? EPISODE_EV_SHARED : EPISODE_EV_MISS, .verdict = &leader->verdict };
        memcpy(ev.source, leader->id, sizeof ev.source);
        step(g, e, &ev);
    }
}

static void log_append(struct engine *g, struct episode *e)
{
    char snapshot[DIGEST_HEX_SIZE] = "";
    if (e->task != NULL)
        digest_hex(snapshot, &e->task->snapshot);
    struct trajectory_facts facts = { .request = &e->request, .verdict = &e->verdict, .snapshot = snapshot,
                                      .patched_tree = e->tree, .verdict_key = e->key_hex,
                                      .accepted_unix_ns = e->accepted_unix_ns,
                                      .finished_unix_ns = g->world.unix_ns(g->world.world) };
    memcpy(facts.episode_id, e->id, sizeof facts.episode_id);
    g->counts.infra_errors += e->verdict.outcome == OUTCOME_INFRA_ERROR;
    set_active(g, e, false);                /* waiting for the disk takes no place from who can work */
    g->world.log_append(g->world.world, e, &facts);
}

static void reply(struct engine *g, struct episode *e)
{
    struct engine_reply r = { .request_id = e->request.request_id, .task_id = e->request.task_id };
    cache_remove(g->requests_in_flight, &e->request_key);
    if (e->state == EPISODE_FAILED) {
        r.rc = e->failure.code;
        r.err = &e->failure;
        g->counts.failed++;
    } else {
        memcpy(r.episode_id, e->id, sizeof r.episode_id);
        r.verdict = &e->verdict;
        r.cursor = e->cursor;
        g->counts.replied++;
    }
    tell(g, e, &r);
}

static void drop_slot(struct engine *g, struct episode *e)
{
    g->slot_table[e->slot] = NULL;
    e->slot = ENGINE_NONE;
    e->slot_held = false;
    g->held--;
    admission_served(&g->admission, g->now_ns - e->slot_since_ns);
}

static void close_sandbox(struct engine *g, struct episode *e)
{
    e->awaiting = 0;                        /* of a run that was under way; its answer, if already in the ring, is stale */
    e->op++;
    assert(e->slot_held);
    drop_slot(g, e);
    g->scrubbing++;
    e->closing++;
    g->world.sandbox_close(g->world.world, e);
}

static void ask(struct engine *g, struct episode *e, enum episode_event_kind kind, void (*call)(void *, struct episode *))
{
    e->awaiting = (uint32_t)kind + 1;
    call(g->world.world, e);
}

static void effect(struct engine *g, struct episode *e, enum episode_effect what)
{
    const struct engine_world *w = &g->world;
    switch (what) {
    case EPISODE_DO_TASK:    ask(g, e, EPISODE_EV_TASK, w->task_get); break;
    case EPISODE_DO_PATCH:   ask(g, e, EPISODE_EV_PATCH, w->patch_merge); break;
    case EPISODE_DO_RECALL:  ask(g, e, EPISODE_EV_RECALLED, w->log_recall); break;
    case EPISODE_DO_ACQUIRE: ask(g, e, EPISODE_EV_ACQUIRED, w->sandbox_acquire); break;
    case EPISODE_DO_RUN:     ask(g, e, EPISODE_EV_RAN, w->sandbox_run); break;
    case EPISODE_DO_READ:    ask(g, e, EPISODE_EV_REPORT, w->report_read); break;
    case EPISODE_DO_LOG:
        e->awaiting = EPISODE_EV_LOGGED + 1;
        log_append(g, e);
        break;
    case EPISODE_DO_LOOKUP:
        lookup(g, e);
        break;
    case EPISODE_DO_WAIT_SLOT:
        (e->preempted > 0 ? queue_push_front : queue_push)(&g->slot_queue, &e->item, e->klass);
        break;
    case EPISODE_DO_CLOSE:
        close_sandbox(g, e);
        break;
    case EPISODE_DO_ENQUEUE:
        g->counts.preemptions++;            /* it keeps its place and its memory: all is prepared, only the slot is gone */
        engine_push(g, e, RING_START);
        break;
    case EPISODE_DO_SHARE:
        if (e->state == EPISODE_REPLIED)    /* before the others are told, so that new ones find it */
            remember(g, "", &e->key, &e->key, &e->verdict, e->cursor);
        share(g, e);
        break;
    case EPISODE_DO_REPLY:
        if (e->state == EPISODE_REPLIED && !e->recall_only)
            remember(g, e->request.request_id, &e->request.content, e->key_hex[0] != '\0' ? &e->key : NULL, &e->verdict,
                     e->cursor);
        reply(g, e);
        break;
    case EPISODE_DO_LEAVE:
        g->counts.cancelled += e->state == EPISODE_CANCELLED;
        set_active(g, e, false);
        unjoin(g, e);
        queue_remove(&e->item);
        e->left = true;
        g->left[g->left_count++] = e;
        break;
    }
}

static void step(struct engine *g, struct episode *e, const struct episode_event *ev)
{
    struct episode_effects todo;
    struct err err = { 0 };
    int rc = episode_step(e, ev, g->now_ns, &todo, &err);
    assert(rc == 0);                        /* events come from here and from checked answers only */
    (void)rc;
    if (e->deadline_ns != 0 && e->deadline_ns < g->deadline_ns)
        g->deadline_ns = e->deadline_ns;
    bool retry = e->state == EPISODE_BACKOFF;
    g->counts.retries += retry;
    for (uint32_t i = 0; i < todo.count; i++)
        effect(g, e, todo.items[i]);
    if (e->slot_held && e->state != EPISODE_STARTING && e->state != EPISODE_RUNNING)
        drop_slot(g, e);                    /* its sandbox never came to be: nothing to scrub */
}

/* ---- the turn ---- */

static void drain_ring(struct engine *g)
{
    /* Only what is there now: effects answered at once come in the next round. */
    for (uint32_t n = g->ring_len; n > 0; n--) {
        struct ring_item item = g->ring[g->ring_head];
        g->ring_head = (g->ring_head + 1) % g->ring_size;
        g->ring_len--;
        struct episode *e = item.e;
        e->ringed--;
        struct episode_event ev = { .kind = item.kind == RING_START ? EPISODE_EV_START : EPISODE_EV_CANCEL };
        switch (item.kind) {
        case RING_ANSWER:
            if (item.op != e->op)
                continue;
            e->awaiting = 0;
            ev = e->answer;
            break;
        case RING_CLOSED:
            e->closing--;
            g->scrubbing--;
            continue;
        case RING_START: case RING_CANCEL:
            break;
        }
        if (!e->left)
            step(g, e, &ev);
    }
}

static void fire_timers(struct engine *g)
{
    if (g->now_ns < g->deadline_ns)
        return;
    g->deadline_ns = UINT64_MAX;
    for (uint32_t i = 0; i < g->place_count; i++) {
        struct episode *e = g->places[i];
        if (e != NULL && e->deadline_ns != 0 && e->deadline_ns <= g->now_ns)
            step(g, e, &(struct episode_event){ .kind = EPISODE_EV_TIMER });
        if (e != NULL && e->deadline_ns != 0 && e->deadline_ns < g->deadline_ns)
            g->deadline_ns = e->deadline_ns;
    }
}

static void grant_slot(struct engine *g, struct episode *e)
{
    uint32_t i = 0;
    while (g->slot_table[i] != NULL)
        i++;
    g->slot_table[i] = e;
    e->slot = i;
    e->slot_held = true;
    e->slot_since_ns = g->now_ns;
    g->held++;
    step(g, e, &(struct episode_event){ .kind = EPISODE_EV_SLOT });
}

void engine_begin(struct engine *g, struct episode *e)
{
    admission_start(&g->admission);
    e->started = true;
    e->arena.budget += g->config.episode_bytes;
}

static void start(struct engine *g, struct episode *e)
{
    engine_begin(g, e);
    set_active(g, e, true);
    step(g, e, &(struct episode_event){ .kind = EPISODE_EV_START });
}

/* Urgent work waits for a slot and none is coming free: take back the batch run that has lost least so far. */
static void preempt(struct engine *g)
{
    uint32_t coming = g->config.slots - g->held;    /* free or being scrubbed */
    for (uint32_t want = g->slot_queue.len[2]; want > coming; want--) {
        struct episode *victim = NULL;
        for (uint32_t i = 0; i < g->config.slots; i++) {
            struct episode *e = g->slot_table[i];
            if (e != NULL && e->state == EPISODE_RUNNING && e->klass == 0 && e->preempted < g->config.preempt_max &&
                (victim == NULL || e->entered_ns > victim->entered_ns))
                victim = e;
        }
        if (victim == NULL)
            return;
        step(g, victim, &(struct episode_event){ .kind = EPISODE_EV_PREEMPT });
    }
}

static void dispatch(struct engine *g)
{
    while (g->held + g->scrubbing < g->config.slots && g->slot_queue.total > 0)
        grant_slot(g, of_item(queue_take(&g->slot_queue)));
    while (g->active < g->config.active_max && g->start_queue.total > 0 && admission_has_room(&g->admission))
        start(g, of_item(queue_take(&g->start_queue)));
    /* Batch work that waits for slots must not keep urgent work from being prepared, else preemption comes too late. */
    while (g->start_queue.len[2] > 0 && g->active_urgent < g->config.slots && admission_has_room(&g->admission))
        start(g, of_item(queue_take_class(&g->start_queue, 2)));
    if (g->config.preempt_max > 0)
        preempt(g);
}

static void reap(struct engine *g)
{
    for (uint32_t i = 0; i < g->left_count; ) {
        struct episode *e = g->left[i];
        if (e->closing > 0 || e->ringed > 0) {
            i++;
            continue;
        }
        g->left[i] = g->left[--g->left_count];
        destroy(g, e);
    }
}

void engine_turn(struct engine *g, uint64_t now_ns)
{
    if (now_ns > g->now_ns)
        g->now_ns = now_ns;
    for (struct episode *e; (e = g->newcomers) != NULL; ) {
        g->newcomers = e->next_joined;
        e->next_joined = NULL;
        e->accepted_ns = e->entered_ns = g->now_ns;
    }
    g->turning = true;
    int rounds = 0;
    do {
        drain_ring(g);
        fire_timers(g);
        dispatch(g);
        reap(g);
    } while (g->ring_len > 0 && ++rounds < TURN_ROUNDS_MAX);
    g->turning = false;
}

uint64_t engine_deadline_ns(const struct engine *g) { return g->deadline_ns; }
bool engine_has_events(const struct engine *g)
{
    bool place = g->active < g->config.active_max || (g->start_queue.len[2] > 0 && g->active_urgent < g->config.slots);
    return g->ring_len > 0 || (g->start_queue.total > 0 && place && admission_has_room(&g->admission)) ||
           (g->slot_queue.total > 0 && g->held + g->scrubbing < g->config.slots);
}

void engine_status(const struct engine *g, struct engine_status *out)
{
    *out = g->counts;
    out->slots = g->config.slots;
    out->slots_held = g->held;
    out->slots_scrubbing = g->scrubbing;
    out->active = g->active;
    out->active_max = g->config.active_max;
    out->queue_len = g->start_queue.total;
    out->queue_max = g->config.queue_max;
    for (uint32_t k = 0; k < QUEUE_CLASSES; k++) {
        out->class_len[k] = g->start_queue.len[k];
        out->passed[0][k] = g->start_queue.len[k] > 0 ? g->start_queue.passed[k] : 0;
        out->passed[1][k] = g->slot_queue.len[k] > 0 ? g->slot_queue.passed[k] : 0;
    }
    out->arena_bytes = g->admission.request_bytes + g->admission.work_bytes;
    out->arena_bytes_max = g->config.arena_bytes_max;
    out->cache_entries = cache_count(g->verdicts);
    out->request_ids = cache_count(g->requests);
}
