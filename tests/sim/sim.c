/*
 * sim.c - the real queue, admission, episode, engine, cache, log and stream code under a seeded world of faults.
 *
 * sim [SEED [SEEDS]]: each seed is one server's life of some hundred requests with crashes in between; without
 * arguments enough seeds for 10,000 episodes. One random action a step, then every invariant is checked:
 * I1 one reply or a cancel, I2 an acknowledged record is in the log once, I3 log before reply, I4 our failure has
 * no reward, I5 slots add up, I6 memory within budget, I7 no class starves, I8 stream order = log order. A failure
 * prints the seed and the step, and the line that repeats it.
 */
#include "base/clock.h"
#include "rollout/stream.h"
#include "tests/sim/world.h"
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CLIENTS 320
#define RECORDS_MAX 2048
#define NAMES 40
#define SUBS 4
#define SLOTS 3
#define QUEUE_MAX 24
#define EPISODE_BYTES ((size_t)160 << 10)

enum client_state { C_WAITING, C_REPLIED, C_CANCELLED, C_CRASHED };
struct sim;
struct client {
    struct sim *sim;
    struct evaluate_request r;
    char request_id[32], task_id[32];
    uint8_t patch[4];
    uint64_t ticket, boot;                  /* a ticket is one server's: it means nothing to the next */
    enum client_state state;
};
/* What was answered under one request id: every other answer to it must be the same. */
struct name {
    bool used, answered, replied;
    struct client *first;
    uint8_t episode_id[16];
    uint64_t cursor;
    enum outcome outcome;
};
struct record { bool durable, acked; uint8_t id[16]; struct sim_record seen; };
struct sub { struct sim *sim; struct stream_sub *u; uint64_t next; bool odd_only, ended; uint32_t got; };

struct sim {
    struct rng rng;
    struct disk disk;
    struct world world;
    struct engine *engine;
    struct stream *stream;
    uint64_t now_ns, durable_next;
    struct client clients[CLIENTS]; uint32_t client_count, waiting;
    struct name names[NAMES];
    struct record records[RECORDS_MAX];
    struct sub subs[SUBS];
    size_t arena_bytes;                     /* scarce for every third seed */
    bool crashing;
};

static struct {
    uint64_t seed, step, episodes, steps, faults, restarts, replies, infra, cached, conflicts, busy, preempted, streamed;
} total;

void sim_require(bool ok, const char *invariant, const char *fmt, ...)
{
    if (ok)
        return;
    va_list ap;
    va_start(ap, fmt);
    printf("sim: %s broken at seed %" PRIu64 ", step %" PRIu64 ": ", invariant, total.seed, total.step);
    vprintf(fmt, ap);
    va_end(ap);
    printf("\nrepeat with: make sim SEED=%" PRIu64 "\n", total.seed);
    fflush(stdout);
    exit(1);
}

/* ---- the model ---- */

static void on_durable(void *arg, uint64_t cursor, const uint8_t *payload, size_t n)
{
    struct sim *s = arg;
    struct sim_record r;
    sim_require(cursor == s->durable_next, "I8", "record %" PRIu64 " became durable after %" PRIu64, cursor, s->durable_next - 1);
    sim_require(cursor < RECORDS_MAX && n >= sizeof r, "sim", "more than %d records", RECORDS_MAX);
    memcpy(&r, payload, sizeof r);
    for (uint64_t c = 1; c < cursor; c++) {
        sim_require(memcmp(s->records[c].id, r.episode_id, 16) != 0, "I2",
                    "one episode is in the log at %" PRIu64 " and %" PRIu64, c, cursor);
        sim_require(r.request_id[0] == '\0' || strcmp(s->records[c].seen.request_id, r.request_id) != 0, "H20",
                    "request %s is in the log twice", r.request_id);
    }
    s->records[cursor] = (struct record){ .durable = true, .seen = r };
    memcpy(s->records[cursor].id, r.episode_id, 16);
    s->durable_next = cursor + 1;
    total.episodes++;
}

static struct name *name_of(struct sim *s, const char *request_id)
{
    return request_id[0] == '\0' ? NULL : &s->names[atoi(request_id + 2)];
}

static void check_verdict(struct sim *s, struct client *c, const struct engine_reply *r)
{
    const struct verdict *v = r->verdict;
    enum outcome want = kind_outcome(kind_of(&c->r), c->r.control_before);
    sim_require(r->cursor < s->durable_next && s->records[r->cursor].durable &&
                    memcmp(s->records[r->cursor].id, r->episode_id, 16) == 0,
                "I3", "request \"%s\" is answered with record %" PRIu64 ", which is not in the log", r->request_id,
                r->cursor);
    struct record *rec = &s->records[r->cursor];
    rec->acked = true;
    sim_require(rec->seen.outcome == (uint32_t)v->outcome && rec->seen.has_reward == v->has_reward &&
                (!v->has_reward || rec->seen.reward == v->reward), "I2", "the reply differs from record %" PRIu64, r->cursor);
    sim_require(v->has_reward == outcome_has_reward(v->outcome), "I4", "outcome %s with has_reward %d",
                outcome_name(v->outcome), v->has_reward);
    if (v->outcome == OUTCOME_INFRA_ERROR) {
        sim_require(!v->has_reward && v->fault[0] != '\0', "I4", "our failure without a fault, or with a reward");
        sim_require(rec->seen.our_faults >= (v->retryable ? 3 : 1), "I4", "infra_error after %u failures of ours", rec->seen.our_faults);
        total.infra++;
    } else {
        sim_require(v->outcome == want, "I4", "a patch that is %s is judged %s (%s)", outcome_name(want),
                    outcome_name(v->outcome), v->reason);
        sim_require(v->reward == (want == OUTCOME_RESOLVED ? 1.0 : 0.0), "I4", "outcome %s with reward %g",
                    outcome_name(v->outcome), v->reward);
    }
    if (v->cached) {
        sim_require(v->limits_hit == 0 && (v->outcome == OUTCOME_RESOLVED || v->outcome == OUTCOME_UNRESOLVED), "cache",
                    "outcome %s is answered from another run", outcome_name(v->outcome));
        bool found = false;
        for (uint64_t k = 1; k < s->durable_next && !found; k++)
            found = memcmp(s->records[k].id, v->source_episode, 16) == 0 && !s->records[k].seen.cached &&
                    s->records[k].seen.outcome == (uint32_t)v->outcome;
        sim_require(found, "I2", "a cached answer names a run that is not in the log");
        sim_require(!c->r.fresh || rec->seen.request_id[0] != '\0', "cache",
                    "a fresh run was asked for and the answer is cached");
        total.cached++;
    }
}

static void on_reply(void *arg, const struct engine_reply *r)
{
    struct client *c = arg;
    struct sim *s = c->sim;
    sim_require(c->state == C_WAITING, "I1", "request \"%s\" of client %d is answered again", c->request_id,
                (int)(c - s->clients));
    s->waiting--;
    if (s->crashing) {
        c->state = C_CRASHED;
        return;
    }
    c->state = C_REPLIED;
    total.replies++;
    sim_require(strcmp(r->request_id, c->request_id) == 0 && strcmp(r->task_id, c->task_id) == 0, "I1",
                "an answer goes to another caller");
    struct name *n = name_of(s, c->request_id);
    if (r->rc < 0) {
        sim_require(r->err->code == r->rc && r->err->msg[0] != '\0', "engine", "a refusal without a reason");
        sim_require(err_info(r->rc)->ours || (strcmp(c->task_id, "missing") == 0 && r->rc == ERR_NOT_FOUND), "engine",
                    "request \"%s\" ended with %d %s", c->request_id, r->rc, r->err->msg);
        return;
    }
    sim_require(strcmp(c->task_id, "missing") != 0 || r->verdict->outcome == OUTCOME_INFRA_ERROR, "engine",
                "a task that is not there has a verdict");
    check_verdict(s, c, r);
    if (n == NULL)
        return;
    sim_require(!n->answered || (memcmp(n->episode_id, r->episode_id, 16) == 0 && n->cursor == r->cursor &&
                                 n->outcome == r->verdict->outcome),
                "H20", "request %s has two different answers", c->request_id);
    n->answered = true;
    memcpy(n->episode_id, r->episode_id, 16);
    n->cursor = r->cursor;
    n->outcome = r->verdict->outcome;
}

static bool may_run(void *arg, const struct episode *e)
{
    struct name *n = name_of(arg, e->request.request_id);
    return n == NULL || !n->answered;
}

/* ---- subscribers ---- */

static bool sub_filter(void *arg, uint8_t kind, const void *record, size_t n)
{
    struct sub *u = arg;
    (void)kind, (void)n;
    return !u->odd_only || (((const uint8_t *)record)[0] & 1) != 0;
}

static bool sub_deliver(void *arg, uint64_t cursor, const void *record, size_t n)
{
    struct sub *u = arg;
    struct sim *s = u->sim;
    (void)n;
    sim_require(cursor >= u->next, "I8", "a subscriber sees record %" PRIu64 " after %" PRIu64, cursor, u->next - 1);
    for (uint64_t c = u->next; c < cursor; c++)
        sim_require(u->odd_only && (s->records[c].id[0] & 1) == 0, "I8", "a subscriber was not given record %" PRIu64, c);
    sim_require(cursor < s->durable_next && memcmp(record, s->records[cursor].id, 16) == 0, "I3",
                "record %" PRIu64 " is streamed and not durable", cursor);
    u->next = cursor + 1;
    total.streamed++;
    return !rng_permille(&s->rng, 100);
}

static void sub_ended(void *arg, int rc, const struct err *err)
{
    struct sub *u = arg;
    sim_require(rc == 0, "I8", "a subscription ended: %s", err->msg);
    u->u = NULL;
}

static void subscribe(struct sim *s, struct sub *u)
{
    struct err err = { 0 };
    struct stream_want want = { .cursor = u->next,
                                .follow = u != &s->subs[SUBS - 1],
                                .credit = rng_below(&s->rng, 20),
                                .filter = sub_filter,
                                .deliver = sub_deliver,
                                .ended = sub_ended,
                                .arg = u };
    sim_require(stream_subscribe(&u->u, s->stream, &want, &err) == 0, "sim", "subscribe: %s", err.msg);
}

static void stream_action(struct sim *s)
{
    struct sub *u = &s->subs[rng_below(&s->rng, SUBS)];
    switch (rng_below(&s->rng, 5)) {
    case 0: if (u->u != NULL) stream_credit(u->u, 1 + rng_below(&s->rng, 30)); break;
    case 1: if (u->u != NULL) stream_resume(u->u); break;
    case 2:
        if (u->u == NULL) {
            subscribe(s, u);
        } else if (rng_permille(&s->rng, 50)) {
            stream_unsubscribe(u->u);
            u->u = NULL;
        }
        break;
    default: stream_turn(s->stream, 1 + rng_below(&s->rng, 50)); break;
    }
}

/* ---- a server's life ---- */

static void boot(struct sim *s)
{
    struct err err = { 0 };
    struct trajlog_io io;
    struct engine_world world;
    struct trajlog_config log_config = { .segment_bytes = 30000, .record_bytes_max = 8000 };
    struct engine_config config = { .slots = SLOTS,
                                    .queue_max = QUEUE_MAX,
                                    .arena_bytes_max = s->arena_bytes,
                                    .episode_bytes = EPISODE_BYTES,
                                    .waiters_max = 64,
                                    .cache_entries_max = 16,
                                    .run_grace_ns = NS_PER_S,
                                    .backoff_ns = 10 * NS_PER_MS };
    bool faults = s->disk.faults;
    s->disk.faults = false;                 /* a server that cannot read its disk does not start; nothing to see there */
    disk_io(&s->disk, &io);
    sim_require(trajlog_open(&s->world.log, &io, &log_config, &err) == 0, "I2", "the log does not open: %s", err.msg);
    world_vtable(&s->world, &world);
    sim_require(engine_new(&s->engine, &config, &world, &err) == 0, "sim", "engine: %s", err.msg);
    s->world.engine = s->engine;
    struct trajlog_place place = { .cursor = 1 };
    struct sim_record r;
    int rc;
    while ((rc = world_read(&s->world, &place, &r, &err)) > 0) {
        uint64_t cursor = place.cursor - 1;
        sim_require(cursor < s->durable_next && memcmp(s->records[cursor].id, r.episode_id, 16) == 0, "I3",
                    "record %" PRIu64 " counts after a restart and is not durable", cursor);
        struct trajectory_head head;
        world_head(&r, &head);
        engine_restore(s->engine, &head, cursor);
    }
    sim_require(rc == 0, "I2", "record %" PRIu64 " cannot be read: %s", place.cursor, err.msg);
    sim_require(place.cursor == s->durable_next, "I2", "records %" PRIu64 " to %" PRIu64 " are lost", place.cursor,
                s->durable_next - 1);
    sim_require(stream_new(&s->stream, s->world.log, &err) == 0, "sim", "stream: %s", err.msg);
    for (int i = 0; i < SUBS; i++)
        subscribe(s, &s->subs[i]);
    s->disk.faults = faults;
}

static void halt(struct sim *s)
{
    s->crashing = true;
    s->disk.dead = true;
    world_forget(&s->world);
    engine_free(s->engine);
    stream_free(s->stream);
    trajlog_close(s->world.log);
    s->disk.dead = s->crashing = false;
    sim_require(s->world.live_count == 0, "engine", "%u episodes were not released", s->world.live_count);
    for (uint32_t i = 0; i < s->client_count; i++)
        sim_require(s->clients[i].state != C_WAITING, "I1", "client %u was left without a word", i);
    for (int i = 0; i < SUBS; i++)
        s->subs[i].u = NULL;
}

static void crash(struct sim *s)
{
    halt(s);
    disk_crash(&s->disk);
    total.restarts++;
    boot(s);
}

static void fill_request(struct sim *s, struct client *c)
{
    struct rng *g = &s->rng;
    static const char *const tasks[] = { "alpha", "beta", "gamma", "missing" };
    uint32_t k = rng_below(g, 100), kind = k < 40 ? KIND_GOOD : k < 70 ? KIND_BAD : 2 + rng_below(g, KIND_COUNT - 2);
    snprintf(c->task_id, sizeof c->task_id, "%s", tasks[rng_permille(g, 30) ? 3 : rng_below(g, 3)]);
    c->patch[0] = (uint8_t)('A' + kind);
    c->patch[1] = (uint8_t)('0' + rng_below(g, 6));
    c->r = (struct evaluate_request){ .request_id = c->request_id,
                                      .task_id = c->task_id,
                                      .patch = c->patch,
                                      .patch_len = kind == KIND_EMPTY ? 0 : 2,
                                      .priority = rng_below(g, 10) < 5 ? 0 : 1 + rng_below(g, 2),
                                      .fresh = rng_permille(g, 80),
                                      .control_before = kind == KIND_EMPTY && rng_permille(g, 300) };
    char all[128];
    snprintf(all, sizeof all, "%s %c%c %d %d %u", c->task_id, c->patch[0], c->patch[1], c->r.fresh, c->r.control_before,
             c->r.priority);
    digest_of(&c->r.content, all, strlen(all));
}

static void submit(struct sim *s)
{
    if (s->client_count == CLIENTS)
        return;
    struct client *c = &s->clients[s->client_count];
    struct err err = { 0 };
    bool conflicting = false;
    *c = (struct client){ .sim = s, .boot = total.restarts };
    uint32_t name = rng_below(&s->rng, NAMES + NAMES / 2);
    fill_request(s, c);
    if (name < NAMES) {
        struct name *n = &s->names[name];
        snprintf(c->request_id, sizeof c->request_id, "r-%u", name);
        if (n->used && !rng_permille(&s->rng, 100)) {
            struct client *f = n->first;    /* a repeat: the same in all but the connection */
            memcpy(c->task_id, f->task_id, sizeof c->task_id);
            memcpy(c->patch, f->patch, sizeof c->patch);
            c->r = f->r;
            c->r.request_id = c->request_id;
            c->r.task_id = c->task_id;
            c->r.patch = c->patch;
        } else if (n->used) {
            conflicting = !digest_equal(&c->r.content, &n->first->r.content);
        }
    }
    int rc = engine_submit(s->engine, &c->r, on_reply, c, &c->ticket, &err);
    if (rc < 0) {
        sim_require(rc == ERR_BUSY || rc == ERR_CONFLICT, "engine", "refused with %s", err.msg);
        sim_require(rc != ERR_CONFLICT || conflicting, "H20", "a repeat of %s is called a conflict", c->request_id);
        sim_require(engine_retry_hint_ns(s->engine) > 0, "engine", "no retry hint");
        total.conflicts += rc == ERR_CONFLICT;
        total.busy += rc == ERR_BUSY;
        return;
    }
    if (name < NAMES) {
        struct name *n = &s->names[name];
        sim_require(!conflicting || !n->answered, "H20", "%s was answered and another request under that id is admitted",
                    c->request_id);
        if (!n->answered && (!n->used || conflicting))
            n->first = c;                   /* the first was refused or lost: this one has the name now */
        n->used = true;
    }
    s->client_count++;
    s->waiting++;
}

static void cancel(struct sim *s)
{
    if (s->client_count == 0)
        return;
    struct client *c = &s->clients[rng_below(&s->rng, s->client_count)];
    if (c->boot == total.restarts)
        engine_cancel(s->engine, c->ticket);    /* of a call that has ended: must be harmless */
    if (c->state == C_WAITING) {
        c->state = C_CANCELLED;
        s->waiting--;
    }
}

static void check(struct sim *s)
{
    struct engine_status st;
    engine_status(s->engine, &st);
    uint32_t held = 0, closing = 0;
    size_t used = 0;
    for (uint32_t i = 0; i < s->world.live_count; i++) {
        struct sim_episode *e = s->world.live[i];
        held += e->acquiring || e->open;
        closing += e->closing;
        used += e->e->arena.used;
        sim_require(e->e->arena.used <= e->e->arena.budget, "I6", "an episode uses more memory than it reserved");
    }
    sim_require(st.slots_held + st.slots_scrubbing <= st.slots, "I5", "%u slots held, %u scrubbing of %u", st.slots_held,
                st.slots_scrubbing, st.slots);
    /* An answer that lies in the ring is known to the world and not yet to the engine. */
    if (!engine_has_events(s->engine))
        sim_require(st.slots_held == held && st.slots_scrubbing == closing, "I5", "engine: %u held, %u scrubbing; world: %u, %u",
                    st.slots_held, st.slots_scrubbing, held, closing);
    sim_require(used <= st.arena_bytes && st.arena_bytes <= s->arena_bytes, "I6", "%zu bytes used, %zu reserved, budget %zu",
                used, st.arena_bytes, s->arena_bytes);
    sim_require(st.queue_len <= QUEUE_MAX + SLOTS, "queue", "%u wait", st.queue_len);
    for (int q = 0; q < 2; q++)
        for (uint32_t k = 0; k < 3; k++)
            sim_require(st.passed[q][k] < QUEUE_BOUND(k), "I7", "class %u was passed by %u times", k, st.passed[q][k]);
}

static void turn(struct sim *s)
{
    engine_turn(s->engine, s->now_ns);
    check(s);
}

static void step(struct sim *s)
{
    struct rng *g = &s->rng;
    uint32_t dice = rng_below(g, 1000);
    s->now_ns += rng_below(g, (uint32_t)(2 * NS_PER_MS));
    s->world.unix_ns = s->now_ns;
    if (dice < 200)
        submit(s);
    else if (dice < 650 && s->world.op_count > 0)
        world_complete(&s->world, rng_below(g, s->world.op_count));
    else if (dice < 850) {
        uint64_t before = trajlog_next_cursor(s->world.log);
        world_commit(&s->world);
        if (trajlog_next_cursor(s->world.log) != before)
            stream_advanced(s->stream);
    } else if (dice < 880)
        cancel(s);
    else if (dice < 960)
        stream_action(s);
    else if (dice < 970)
        s->now_ns += rng_below(g, (uint32_t)(2 * NS_PER_S));
    else if (dice < 978)
        world_lose_jail(&s->world);
    else if (dice < 984)
        world_lose_workers(&s->world);
    else if (dice < 988)
        s->disk.capacity = rng_permille(g, 400) ? disk_used(&s->disk) + rng_below(g, 4000) : SIZE_MAX / 2;
    else if (dice < 992)
        crash(s);
    if (s->disk.dead)
        crash(s);
    turn(s);
}

/* The world heals: whatever was admitted must come to its end, with nothing held and nothing lost. */
static void settle(struct sim *s)
{
    s->world.faults = s->disk.faults = false;
    s->disk.capacity = SIZE_MAX / 2;
    for (int rounds = 0; ; rounds++) {
        struct engine_status st;
        total.step++;
        turn(s);
        if (s->world.op_count > 0)
            world_complete(&s->world, rng_below(&s->rng, s->world.op_count));
        else if (!world_commit(&s->world) && engine_deadline_ns(s->engine) != UINT64_MAX && !engine_has_events(s->engine))
            s->now_ns = engine_deadline_ns(s->engine) > s->now_ns ? engine_deadline_ns(s->engine) : s->now_ns;
        engine_status(s->engine, &st);
        if (st.episodes == 0 && s->world.batch == NULL) {
            sim_require(st.slots_held == 0 && st.slots_scrubbing == 0 && st.arena_bytes == 0 && st.active == 0 &&
                            st.joined == 0,
                        "I5", "all is over: %u slots held, %u scrubbing, %zu bytes, %u active", st.slots_held,
                        st.slots_scrubbing, st.arena_bytes, st.active);
            break;
        }
        sim_require(rounds < 200000, "I1", "%u episodes never end", st.episodes);
    }
    sim_require(s->waiting == 0, "I1", "%u callers were never answered", s->waiting);
    stream_advanced(s->stream);
    for (int k = 0; k < 2 * SUBS; k++) {    /* twice: one that does not follow may have ended at an earlier end */
        int i = k % SUBS;
        if (s->subs[i].u == NULL)
            subscribe(s, &s->subs[i]);
        for (int rounds = 0; s->subs[i].u != NULL && rounds < RECORDS_MAX; rounds++) {
            stream_credit(s->subs[i].u, STREAM_UNLIMITED);
            stream_resume(s->subs[i].u);
            stream_turn(s->stream, RECORDS_MAX);
        }
    }
    for (int i = 0; i < SUBS; i++)
        for (uint64_t c = s->subs[i].next; c < s->durable_next; c++)
            sim_require(s->subs[i].odd_only && (s->records[c].id[0] & 1) == 0, "I8",
                        "subscriber %d was never given record %" PRIu64, i, c);
}

static void life(uint64_t seed)
{
    struct sim *s = calloc(1, sizeof *s);
    total.seed = seed;
    total.step = 0;
    s->rng.state = seed;
    s->durable_next = 1;
    s->arena_bytes = (size_t)(seed % 3 == 0 ? 2 : 6) << 20;
    s->now_ns = NS_PER_S;
    s->disk = (struct disk){
        .rng = &s->rng, .capacity = SIZE_MAX / 2, .faults = true, .fault_permille = 10, .on_durable = on_durable, .arg = s
    };
    s->world =
        (struct world){ .rng = &s->rng, .disk = &s->disk, .faults = true, .fault_permille = 60, .on_run = may_run, .arg = s };
    for (int i = 0; i < SUBS; i++)
        s->subs[i] = (struct sub){ .sim = s, .next = 1, .odd_only = i == 1 };
    boot(s);
    for (int i = 0; i < 6000 && s->client_count < CLIENTS; i++) {
        total.step++;
        step(s);
    }
    settle(s);
    struct engine_status st;
    engine_status(s->engine, &st);
    total.preempted += st.preemptions;
    crash(s);                               /* and all of it is there after one more restart */
    settle(s);
    for (uint64_t c = 1; c < s->durable_next; c++)
        sim_require(s->records[c].durable, "I2", "record %" PRIu64 " is lost", c);
    total.steps += total.step;
    total.faults += s->disk.fault_count + s->world.fault_count;
    halt(s);
    disk_done(&s->disk);
    free(s);
}

int main(int argc, char **argv)
{
    struct timespec a, b;
    clock_gettime(CLOCK_MONOTONIC, &a);
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 1, seeds = argc > 2   ? strtoull(argv[2], NULL, 0)
                                                                       : argc > 1 ? 1
                                                                                  : 1000;
    uint64_t done = 0;
    for (; done < seeds && (argc > 1 || total.episodes < 12000); done++)
        life(seed + done);
    clock_gettime(CLOCK_MONOTONIC, &b);
    printf("sim: %" PRIu64 " episodes, %" PRIu64 " steps, %" PRIu64 " faults injected, %" PRIu64 " restarts, %" PRIu64
           " seeds from %" PRIu64 "; %" PRIu64 " replies (%" PRIu64 " infra_error, %" PRIu64 " cached), %" PRIu64
           " busy, %" PRIu64 " conflicts, %" PRIu64 " preempted, %" PRIu64 " streamed; %.1f s\n",
           total.episodes, total.steps, total.faults, total.restarts, done, seed, total.replies, total.infra, total.cached,
           total.busy, total.conflicts, total.preempted, total.streamed,
           (double)(b.tv_sec - a.tv_sec) + (double)(b.tv_nsec - a.tv_nsec) / 1e9);
    return 0;
}
