/* world.c - see world.h. */
#include "tests/sim/world.h"
#include "base/clock.h"
#include "rollout/trajlog.h"
#include "sandbox/sandbox.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum patch_kind kind_of(const struct evaluate_request *r)
{
    return r->patch_len == 0 ? KIND_EMPTY : (enum patch_kind)(r->patch[0] - 'A');
}

enum outcome kind_outcome(enum patch_kind kind, bool control_before)
{
    switch (kind) {
    case KIND_GOOD:     return OUTCOME_RESOLVED;
    case KIND_BAD:      return OUTCOME_UNRESOLVED;
    case KIND_NO_APPLY: return OUTCOME_PATCH_FAILED;
    case KIND_EMPTY:    return control_before ? OUTCOME_UNRESOLVED : OUTCOME_PATCH_EMPTY;
    case KIND_CRASHER:  case KIND_FLOOD: return OUTCOME_UNREADABLE;
    case KIND_HANGS:    return OUTCOME_TIME_LIMIT;
    case KIND_NO_TESTS: return OUTCOME_NO_TESTS_RAN;
    case KIND_COUNT:    break;
    }
    return OUTCOME_COUNT;
}

static struct sim_episode *of(struct world *w, struct episode *e)
{
    if (e->world == NULL) {
        struct sim_episode *s = calloc(1, sizeof *s);
        s->e = e;
        e->world = s;
        sim_require(w->live_count < LIVE_MAX, "sim", "more than %d episodes", LIVE_MAX);
        w->live[w->live_count++] = s;
    }
    return e->world;
}

static void pend(struct world *w, struct episode *e, enum op_kind kind)
{
    of(w, e);
    for (uint32_t i = 0; i < w->op_count; i++)
        sim_require(w->ops[i].e != e || w->ops[i].kind == OP_CLOSE || kind == OP_CLOSE, "engine",
                    "two effects at once for one episode");
    sim_require(w->op_count < OPS_MAX, "sim", "more than %d effects", OPS_MAX);
    /* A jail that hangs: no answer at all until the sandbox is closed. */
    bool stuck = kind == OP_RUN && w->faults && rng_permille(w->rng, 20);
    w->fault_count += stuck;
    if (stuck)
        of(w, e)->our_faults++;
    w->ops[w->op_count++] = (struct op){ kind, e, stuck };
}

static void w_id(void *world, uint8_t out[16])
{
    struct world *w = world;
    for (int i = 0; i < 2; i++) {
        uint64_t v = rng_next(w->rng);
        memcpy(out + 8 * i, &v, 8);
    }
}

static uint64_t w_unix(void *world) { return ((struct world *)world)->unix_ns; }
static void w_task(void *world, struct episode *e) { pend(world, e, OP_TASK); }
static void w_patch(void *world, struct episode *e) { pend(world, e, OP_PATCH); }
static void w_recall(void *world, struct episode *e) { pend(world, e, OP_RECALL); }
static void w_read(void *world, struct episode *e) { pend(world, e, OP_READ); }

static void w_acquire(void *world, struct episode *e)
{
    struct world *w = world;
    sim_require(!of(w, e)->acquiring && !of(w, e)->open, "I5", "an episode asks for a second sandbox");
    of(w, e)->acquiring = true;
    pend(w, e, OP_ACQUIRE);
}

static void w_run(void *world, struct episode *e)
{
    struct world *w = world;
    sim_require(of(w, e)->open, "I5", "a run without a sandbox");
    sim_require(w->on_run(w->arg, e), "H20", "request %s is run although it was answered", e->request.request_id);
    w->run_count++;
    pend(w, e, OP_RUN);
}

static void w_close(void *world, struct episode *e)
{
    struct world *w = world;
    sim_require(of(w, e)->open, "I5", "a sandbox is closed that is not open");
    for (uint32_t i = 0; i < w->op_count; i++)
        if (w->ops[i].e == e && w->ops[i].kind == OP_RUN)
            w->ops[i--] = w->ops[--w->op_count];    /* no answer after close */
    of(w, e)->open = false;
    of(w, e)->closing++;
    pend(w, e, OP_CLOSE);
}

static void w_log(void *world, struct episode *e, const struct trajectory_facts *f)
{
    struct world *w = world;
    struct err err = { 0 };
    const struct verdict *v = f->verdict;
    uint8_t bytes[sizeof(struct sim_record) + 3000];
    struct sim_record r;
    memset(&r, 0, sizeof r);
    r.content = f->request->content;
    r.outcome = v->outcome;
    r.limits_hit = v->limits_hit;
    r.has_reward = v->has_reward;
    r.retryable = v->retryable;
    r.cached = v->cached;
    r.reward = v->reward;
    r.our_faults = of(w, e)->our_faults;
    snprintf(r.fault, sizeof r.fault, "%s", v->fault);
    memcpy(r.episode_id, f->episode_id, 16);
    memcpy(r.source, v->source_episode, 16);
    snprintf(r.request_id, sizeof r.request_id, "%s", f->request->request_id);
    snprintf(r.task_id, sizeof r.task_id, "%s", f->request->task_id);
    snprintf(r.key, sizeof r.key, "%s", f->verdict_key);
    sim_require(outcome_has_reward(v->outcome) == v->has_reward, "I4", "outcome %s is logged with reward %d",
                outcome_name(v->outcome), v->has_reward);
    size_t n = sizeof r + rng_below(w->rng, 3000);
    memset(bytes, 0x5a, sizeof bytes);
    memcpy(bytes, &r, sizeof r);
    int rc = trajlog_add(w->log, TRAJFRAME_EPISODE, bytes, n, e, &err);
    if (rc < 0)
        engine_on_logged(w->engine, e, rc, 0, &err);
}

static void w_release(void *world, struct episode *e)
{
    struct world *w = world;
    for (uint32_t i = 0; i < w->op_count; i++)
        sim_require(w->ops[i].e != e, "engine", "an episode is released while an effect is under way");
    for (uint32_t i = 0; i < w->live_count; i++)
        if (w->live[i]->e == e) {
            sim_require(!w->live[i]->open && !w->live[i]->acquiring, "I5", "an episode leaves with its sandbox");
            free(w->live[i]);
            w->live[i] = w->live[--w->live_count];
            return;
        }
}

void world_vtable(struct world *w, struct engine_world *out)
{
    *out = (struct engine_world){ .world = w, .episode_id = w_id, .unix_ns = w_unix, .task_get = w_task,
                                  .patch_merge = w_patch, .log_recall = w_recall, .sandbox_acquire = w_acquire,
                                  .sandbox_run = w_run, .sandbox_close = w_close, .report_read = w_read,
                                  .log_append = w_log, .release = w_release };
}

/* ---- answers ---- */

static void answer_task(struct world *w, struct episode *e, int rc, const struct err *err)
{
    static const char *f2p[] = { "t::one" }, *p2p[] = { "t::two" };
    struct err own = { 0 };
    struct task t = { .id = e->request.task_id, .repo = "r", .base_commit = "c", .problem_statement = "p", .patch = "x",
                      .test_patch = "", .fail_to_pass = { f2p, 1 }, .pass_to_pass = { p2p, 1 }, .test_cmd = "true",
                      .reader = "auto", .environment = "host", .profile = "strict", .split = "", .timeout_s = 5, .extra_json = "{}",
                      .base_tree = "0123456789012345678901234567890123456789" };
    digest_of(&t.definition, e->request.task_id, strlen(e->request.task_id));
    t.snapshot = t.definition;
    if (rc == 0 && strcmp(e->request.task_id, "missing") == 0) {
        rc = err_set(&own, ERR_NOT_FOUND, "no task missing");
        err = &own;
    }
    engine_on_task(w->engine, e, rc, &t, err);
}

static void answer_patch(struct world *w, struct episode *e, int rc, const struct err *err)
{
    static const char *remarks[] = { "hunk 1 applied with an offset" };
    struct patch_answer a = { .outcome = PATCH_APPLIED, .edits_fd = -1, .reason = "", .findings = { remarks, 1 } };
    struct digest d;
    char hex[DIGEST_HEX_SIZE];
    switch (kind_of(&e->request)) {
    case KIND_NO_APPLY: a.outcome = PATCH_FAILED; a.reason = "a.py:1: hunk 1 does not match"; break;
    case KIND_EMPTY:    a.outcome = PATCH_EMPTY; break;
    case KIND_CRASHER:  a.outcome = PATCH_UNREADABLE; a.reason = "the patch ended its reader twice"; break;
    case KIND_GOOD: case KIND_BAD: case KIND_HANGS: case KIND_NO_TESTS: case KIND_FLOOD: case KIND_COUNT: break;
    }
    if (a.outcome == PATCH_APPLIED || e->request.control_before) {
        digest_of(&d, e->request.patch, e->request.patch_len);
        digest_hex(hex, &d);
        memcpy(a.tree, hex, 40);
    }
    engine_on_patch(w->engine, e, rc, rc == 0 ? &a : NULL, err);
}

static void answer_run(struct world *w, struct episode *e, int rc, const struct err *err)
{
    enum patch_kind k = kind_of(&e->request);
    struct run_facts run = { .run_end = "exit 0", .exited = true, .wall_ns = 1000, .output_bytes = 5 };
    if (k == KIND_BAD || k == KIND_EMPTY) {
        run.run_end = "exit 1";
        run.exit_code = 1;
    } else if (k == KIND_HANGS) {
        run.run_end = "time_limit";
        run.exited = false;
        run.ended_by_limit = run.limits_hit = SANDBOX_HIT_TIME;
    } else if (k == KIND_NO_TESTS) {
        run.run_end = "exit 5";
        run.exit_code = 5;
    }
    engine_on_run(w->engine, e, rc, &run, "hello", 5, err);
}

static void answer_report(struct world *w, struct episode *e, int rc, const struct err *err)
{
    enum patch_kind k = kind_of(&e->request);
    struct test_result tests[2] = {
        { .id = "t::one", .message = "", .evidence = "report_file", .status = TEST_PASSED },
        { .id = "t::two", .message = "", .evidence = "report_file", .status = TEST_PASSED },
    };
    struct report_answer a = { .report = {
                                   .reader = "pytest/1", .tests = tests, .test_count = 2, .complete = true, .note = "" } };
    struct test_result *flood = NULL;
    if (k == KIND_BAD || k == KIND_EMPTY) {
        tests[0].status = TEST_FAILED;
    } else if (k == KIND_HANGS) {
        a.report.complete = false;
        a.report.test_count = 1;
    } else if (k == KIND_NO_TESTS) {
        a.report.test_count = 0;
        a.report.collected_nothing = true;
    } else if (k == KIND_FLOOD) {
        a.report.test_count = 8000;
        flood = calloc(a.report.test_count, sizeof *flood);
        for (uint32_t i = 0; i < a.report.test_count; i++)
            flood[i] = tests[i % 2];
        a.report.tests = flood;
    }
    engine_on_report(w->engine, e, rc, &a, err);
    free(flood);
}

void world_head(const struct sim_record *r, struct trajectory_head *out)
{
    *out = (struct trajectory_head){ .request_id = r->request_id, .task_id = r->task_id, .verdict_key = r->key,
                                     .content = r->content };
    memcpy(out->episode_id, r->episode_id, 16);
    verdict_without_run(&out->verdict, (enum outcome)r->outcome, "as recorded", r->fault);
    out->verdict.has_reward = r->has_reward;
    out->verdict.retryable = r->retryable;
    out->verdict.reward = r->reward;
    out->verdict.cached = r->cached;
    out->verdict.limits_hit = r->limits_hit;
    memcpy(out->verdict.source_episode, r->source, 16);
}

int world_read(struct world *w, struct trajlog_place *place, struct sim_record *out, struct err *err)
{
    struct buf bytes = { 0 };
    uint8_t kind;
    int rc = trajlog_read(w->log, place, &kind, &bytes, err);
    if (rc > 0) {
        sim_require(bytes.len >= sizeof *out && kind == TRAJFRAME_EPISODE, "I2", "record %llu is not what was written",
                    (unsigned long long)place->cursor - 1);
        memcpy(out, bytes.data, sizeof *out);
        for (size_t i = sizeof *out; i < bytes.len; i++)
            sim_require(bytes.data[i] == 0x5a, "I2", "record %llu has foreign bytes", (unsigned long long)place->cursor - 1);
    }
    buf_done(&bytes);
    return rc;
}

static void answer_recall(struct world *w, struct episode *e, int rc, struct err *err)
{
    struct sim_record r;
    struct trajectory_head head;
    struct trajlog_place place = { .cursor = e->recall_cursor };
    if (rc == 0) {
        rc = world_read(w, &place, &r, err);
        sim_require(rc == 1, "I2", "record %llu cannot be recalled: %s", (unsigned long long)e->recall_cursor, err->msg);
        world_head(&r, &head);
        rc = 0;
    }
    engine_on_recalled(w->engine, e, rc, &head, err);
}

static void answer(struct world *w, struct op o, int rc, struct err *err)
{
    struct sim_episode *s = of(w, o.e);
    s->our_faults += rc < 0 && o.kind != OP_RECALL;
    switch (o.kind) {
    case OP_TASK:   answer_task(w, o.e, rc, err); break;
    case OP_PATCH:  answer_patch(w, o.e, rc, err); break;
    case OP_RECALL: answer_recall(w, o.e, rc, err); break;
    case OP_ACQUIRE:
        s->acquiring = false;
        s->open = rc == 0;
        engine_on_acquired(w->engine, o.e, rc, err);
        break;
    case OP_RUN:    answer_run(w, o.e, rc, err); break;
    case OP_READ:   answer_report(w, o.e, rc, err); break;
    case OP_CLOSE:
        s->closing--;
        engine_on_closed(w->engine, o.e);
        break;
    case OP_COUNT:  break;
    }
}

void world_complete(struct world *w, uint32_t i)
{
    static const int codes[] = { ERR_LOST, ERR_SYS, ERR_UNAVAILABLE, ERR_PROTOCOL, ERR_CORRUPT };
    struct op o = w->ops[i];
    struct err err = { 0 };
    int rc = 0;
    if (o.stuck && w->faults)
        return;                             /* when the faults are over a late answer does come */
    w->ops[i] = w->ops[--w->op_count];
    if (w->faults && o.kind != OP_CLOSE && rng_permille(w->rng, w->fault_permille)) {
        w->fault_count++;
        rc = err_set(&err, codes[rng_below(w->rng, sizeof codes / sizeof codes[0])], "simulated failure of effect %d",
                     (int)o.kind);
    }
    answer(w, o, rc, &err);
}

static void lose(struct world *w, const bool kinds[OP_COUNT], const char *what)
{
    struct err err = { 0 };
    err_set(&err, ERR_LOST, "%s died", what);
    for (uint32_t i = 0; i < w->op_count; )
        if (kinds[w->ops[i].kind]) {
            struct op o = w->ops[i];
            w->ops[i] = w->ops[--w->op_count];
            w->fault_count++;
            answer(w, o, ERR_LOST, &err);
        } else {
            i++;
        }
}

void world_lose_jail(struct world *w) { lose(w, (const bool[OP_COUNT]){ [OP_ACQUIRE] = true, [OP_RUN] = true }, "the jail"); }
void world_lose_workers(struct world *w) { lose(w, (const bool[OP_COUNT]){ [OP_PATCH] = true, [OP_READ] = true }, "a worker"); }

static void on_logged(void *arg, void *token, int rc, uint64_t cursor, const struct err *err)
{
    struct world *w = arg;
    engine_on_logged(w->engine, token, rc, cursor, err);
}

bool world_commit(struct world *w)
{
    if (w->batch == NULL) {
        w->batch = trajlog_commit_begin(w->log);
        w->batch_synced = false;
        return w->batch != NULL;
    }
    if (!w->batch_synced) {
        trajlog_commit_sync(w->batch);
        w->batch_synced = true;
        return true;
    }
    trajlog_commit_end(w->batch, on_logged, w);
    w->batch = NULL;
    return true;
}

static void ignore(void *arg, void *token, int rc, uint64_t cursor, const struct err *err)
{
    (void)arg, (void)token, (void)rc, (void)cursor, (void)err;
}

void world_forget(struct world *w)
{
    if (w->batch != NULL)
        trajlog_commit_end(w->batch, ignore, NULL);
    w->batch = NULL;
    w->op_count = 0;
    for (uint32_t i = 0; i < w->live_count; i++)
        w->live[i]->open = w->live[i]->acquiring = false;
}
