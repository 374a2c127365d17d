/* Units of the episode machine and of the engine around it, over a world that does what a test says. */
#include "assay/v1/rollout.pb-c.h"
#include "base/clock.h"
#include "base/fault.h"
#include "rollout/engine.h"
#include "sandbox/sandbox.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* A patch's first byte says what becomes of it. */
enum {
    GOOD = 'G',
    BAD = 'B',
    NO_APPLY = 'N',
    CRASHER = 'C',
    HANGS = 'H',
    NO_SANDBOX = 'S',
    WORKER_LOST = 'W',
    READER_LOST = 'R'
};

static struct {
    struct engine *engine;
    uint64_t now;
    struct arena arena;
    struct { struct trajectory_head head; } log[64];
    uint32_t log_len, runs, ids, acquires, closes;
    uint32_t fail_acquires, fail_logs;      /* the next so many */
    bool hold_runs, hold_logs, jail_silent;
    struct episode *held_runs[16], *held_logs[16]; uint32_t held_run_count, held_log_count;
    struct trajectory_head held_heads[16];
} w;

static void w_id(void *x, uint8_t out[16]) { (void)x; memset(out, 0, 16); out[0] = (uint8_t)++w.ids; }
static uint64_t w_unix(void *x) { (void)x; return 1; }

static void w_task(void *x, struct episode *e)
{
    (void)x;
    static const char *f2p[] = { "t::one" };
    struct task t = { .id = e->request.task_id, .repo = "r", .base_commit = "c", .problem_statement = "p", .patch = "the fix",
                      .test_patch = "", .fail_to_pass = { f2p, 1 }, .test_cmd = "true", .reader = "auto", .environment = "host", .profile = "strict",
                      .split = "", .timeout_s = 10, .extra_json = "{}", .base_tree = "" };
    struct err err = { 0 };
    int rc = strcmp(e->request.task_id, "missing") == 0 ? err_set(&err, ERR_NOT_FOUND, "no task missing") : 0;
    engine_on_task(w.engine, e, rc, &t, &err);
}

static int kind(const struct episode *e) { return e->request.patch_len > 0 ? e->request.patch[0] : 0; }

static void w_patch(void *x, struct episode *e)
{
    (void)x;
    struct patch_answer a = { .outcome = PATCH_APPLIED, .edits_fd = -1, .reason = "" };
    struct err err = { 0 };
    int rc = kind(e) == WORKER_LOST ? err_set(&err, ERR_LOST, "a worker died") : 0;
    if (kind(e) == 0)
        a.outcome = PATCH_EMPTY;
    if (kind(e) == NO_APPLY) {
        a.outcome = PATCH_FAILED;
        a.reason = "a.py:3: hunk 1 does not match";
    }
    if (kind(e) == CRASHER)
        a.outcome = PATCH_UNREADABLE;
    snprintf(a.tree, sizeof a.tree, "%.*s", (int)e->request.patch_len, (const char *)e->request.patch);
    engine_on_patch(w.engine, e, rc, &a, &err);
}

static void w_acquire(void *x, struct episode *e)
{
    (void)x;
    struct err err = { 0 };
    int rc = 0;
    w.acquires++;
    if (w.fail_acquires > 0) {
        w.fail_acquires--;
        rc = err_set(&err, ERR_LOST, "the jail went away");
    } else if (kind(e) == NO_SANDBOX) {
        rc = err_set(&err, ERR_NOT_FOUND, "environment image abc is not in the store");
    }
    engine_on_acquired(w.engine, e, rc, &err);
}

static void finish_run(struct episode *e)
{
    struct run_facts run = { .run_end = "exit 0", .exited = true };
    if (kind(e) == BAD || kind(e) == 0) {
        run.run_end = "exit 1";
        run.exit_code = 1;
    } else if (kind(e) == HANGS) {
        run = (struct run_facts){ .run_end = "time_limit", .ended_by_limit = SANDBOX_HIT_TIME, .limits_hit = SANDBOX_HIT_TIME };
    }
    struct err err = { 0 };
    engine_on_run(w.engine, e, 0, &run, "out", 3, &err);
}

static void w_run(void *x, struct episode *e)
{
    (void)x;
    w.runs++;
    if (w.hold_runs)
        w.held_runs[w.held_run_count++] = e;
    else if (!w.jail_silent)
        finish_run(e);
}

static void w_close(void *x, struct episode *e)
{
    (void)x;
    w.closes++;
    for (uint32_t i = 0; i < w.held_run_count; i++)
        if (w.held_runs[i] == e)
            w.held_runs[i--] = w.held_runs[--w.held_run_count];
    engine_on_closed(w.engine, e);
}

static void w_read(void *x, struct episode *e)
{
    (void)x;
    struct test_result t = { .id = "t::one", .message = "", .evidence = "report_file",
                             .status = kind(e) == BAD || kind(e) == 0 ? TEST_FAILED : TEST_PASSED };
    struct report_answer a = { .report = { .reader = "pytest/1",
                                           .tests = &t,
                                           .test_count = kind(e) != HANGS,
                                           .complete = kind(e) != HANGS,
                                           .note = "" } };
    struct err err = { 0 };
    int rc = kind(e) == READER_LOST ? err_set(&err, ERR_LOST, "a worker died") : 0;
    engine_on_report(w.engine, e, rc, &a, &err);
}

static struct trajectory_head keep(const struct trajectory_facts *f)
{
    struct trajectory_head h = { .request_id = arena_strdup(&w.arena, f->request->request_id),
                                 .task_id = arena_strdup(&w.arena, f->request->task_id),
                                 .verdict_key = arena_strdup(&w.arena, f->verdict_key), .content = f->request->content };
    struct err err = { 0 };
    memcpy(h.episode_id, f->episode_id, 16);
    assert_int_equal(verdict_copy(&h.verdict, &w.arena, f->verdict, &err), 0);
    return h;
}

static void w_log(void *x, struct episode *e, const struct trajectory_facts *f)
{
    (void)x;
    struct err err = { 0 };
    if (w.fail_logs > 0) {
        w.fail_logs--;
        engine_on_logged(w.engine, e, err_set(&err, ERR_SYS, "no space left"), 0, &err);
    } else if (w.hold_logs) {
        w.held_heads[w.held_log_count] = keep(f);
        w.held_logs[w.held_log_count++] = e;
    } else {
        w.log[w.log_len++].head = keep(f);
        engine_on_logged(w.engine, e, 0, w.log_len, &err);
    }
}

static void w_recall(void *x, struct episode *e)
{
    (void)x;
    struct err err = { 0 };
    engine_on_recalled(w.engine, e, 0, &w.log[e->recall_cursor - 1].head, &err);
}

static void w_release(void *x, struct episode *e) { (void)x, (void)e; }

static const struct engine_world world = { .episode_id = w_id, .unix_ns = w_unix, .task_get = w_task, .patch_merge = w_patch,
    .log_recall = w_recall, .sandbox_acquire = w_acquire, .sandbox_run = w_run, .sandbox_close = w_close, .report_read = w_read,
    .log_append = w_log, .release = w_release };

static int start_with(const struct engine_config *config)
{
    struct err err = { 0 };
    arena_done(&w.arena);
    memset(&w, 0, sizeof w);
    w.now = NS_PER_S;
    return engine_new(&w.engine, config, &world, &err);
}

static int setup(void **state)
{
    (void)state;
    return start_with(&(struct engine_config){ .slots = 2, .queue_max = 8 });
}

static int teardown(void **state)
{
    (void)state;
    engine_free(w.engine);
    arena_done(&w.arena);
    return 0;
}

static void turn(void)
{
    do
        engine_turn(w.engine, w.now);
    while (engine_has_events(w.engine));
}

/* Let backoffs and run deadlines pass. */
static void let_time_pass(void)
{
    turn();
    for (int i = 0; i < 20 && engine_deadline_ns(w.engine) != UINT64_MAX; i++) {
        w.now = engine_deadline_ns(w.engine);
        turn();
    }
}

struct answer { int calls, rc; uint64_t ticket, cursor; uint8_t id[16]; struct verdict v; char msg[ERR_MSG_SIZE]; };
static void on_reply(void *arg, const struct engine_reply *r)
{
    struct answer *a = arg;
    struct err err = { 0 };
    a->calls++;
    a->rc = r->rc;
    a->cursor = r->cursor;
    if (r->rc < 0) {
        snprintf(a->msg, sizeof a->msg, "%s", r->err->msg);
        return;
    }
    memcpy(a->id, r->episode_id, 16);
    assert_int_equal(verdict_copy(&a->v, &w.arena, r->verdict, &err), 0);
}

static struct evaluate_request request(const char *id, const char *patch)
{
    struct evaluate_request r = {
        .request_id = id, .task_id = "task", .patch = (const uint8_t *)patch, .patch_len = strlen(patch), .priority = 1
    };
    digest_of(&r.content, patch, strlen(patch));
    return r;
}

static int submit(struct answer *a, const struct evaluate_request *r)
{
    struct err err = { 0 };
    *a = (struct answer){ 0 };
    int rc = engine_submit(w.engine, r, on_reply, a, &a->ticket, &err);
    snprintf(a->msg, sizeof a->msg, "%s", err.msg);
    return rc;
}

static struct answer ask(const char *id, const char *patch)
{
    struct answer a;
    struct evaluate_request r = request(id, patch);
    assert_int_equal(submit(&a, &r), 0);
    let_time_pass();
    assert_int_equal(a.calls, 1);
    return a;
}

/* ---- the machine ---- */

static void episode_step__refuses_events_that_do_not_fit(void **state)
{
    (void)state;
    struct episode_rules rules = { .attempts_max = 3, .readers_version = "r" };
    int refused = 0;
    for (int s = 0; s < EPISODE_STATE_COUNT; s++) {
        assert_string_not_equal(episode_state_name((enum episode_state)s), "unknown");
        for (int k = EPISODE_EV_START; k < EPISODE_EV_CANCEL; k++) {
            struct episode e = { .state = (enum episode_state)s, .rules = &rules, .attempt = 1, .key_hex = "k" };
            struct episode before = e;
            struct episode_event ev = { .kind = (enum episode_event_kind)k, .rc = -1 };
            struct episode_effects out;
            struct err err = { 0 };
            bool plain = k == EPISODE_EV_SHARED || k == EPISODE_EV_RECALLED;     /* need a verdict to go through */
            if (!plain && episode_step(&e, &ev, 1, &out, &err) == ERR_INTERNAL) {
                assert_memory_equal(&e, &before, sizeof e);
                assert_int_equal(out.count, 0);
                refused++;
            }
        }
    }
    assert_true(refused > 100);
}

static void engine__runs_a_patch_and_says_what_it_is_worth(void **state)
{
    (void)state;
    struct answer good = ask("", "G1"), bad = ask("", "B1");
    assert_int_equal(good.v.outcome, OUTCOME_RESOLVED);
    assert_true(good.v.has_reward && good.v.reward == 1.0);
    assert_string_equal(good.v.patch_status, "applied");
    assert_string_equal(good.v.run_end, "exit 0");
    assert_int_equal(good.v.attempts, 1);
    assert_memory_equal(good.v.output, "out", 3);
    assert_int_equal(bad.v.outcome, OUTCOME_UNRESOLVED);
    assert_true(bad.v.has_reward && bad.v.reward == 0.0);
    assert_int_equal(bad.cursor, 2);
    assert_int_equal(w.runs, 2);
    assert_int_equal(w.closes, 2);
}

/* The loop may have slept long before a request came: that is not the request's waiting time. */
static void engine__counts_time_from_the_turn_after_the_request(void **state)
{
    (void)state;
    struct answer a;
    struct evaluate_request r = request("", "G1");
    turn();
    w.hold_runs = true;
    assert_int_equal(submit(&a, &r), 0);
    w.now += 3600 * NS_PER_S;
    turn();
    w.now += 7;
    finish_run(w.held_runs[0]);
    turn();
    assert_int_equal(a.v.timings.queue_ns, 0);
    assert_int_equal(a.v.timings.run_ns, 7);
    assert_int_equal(a.v.timings.total_ns, 7);
}

static void engine__needs_no_run_where_the_patch_says_it_all(void **state)
{
    (void)state;
    struct answer a = ask("", "N1");
    assert_int_equal(a.v.outcome, OUTCOME_PATCH_FAILED);
    assert_string_equal(a.v.reason, "a.py:3: hunk 1 does not match");
    a = ask("", "");
    assert_int_equal(a.v.outcome, OUTCOME_PATCH_EMPTY);
    assert_true(a.v.has_reward && a.v.reward == 0.0);
    a = ask("", "C1");
    assert_int_equal(a.v.outcome, OUTCOME_UNREADABLE);
    assert_true(a.v.has_reward && a.v.reward == 0.0);
    assert_int_equal(w.runs, 0);
    assert_int_equal(w.log_len, 3);         /* all are records none the less */
    struct evaluate_request r = request("", "");
    r.control_before = true;                /* the base tree must fail: a control of the task */
    assert_int_equal(submit(&a, &r), 0);
    turn();
    assert_int_equal(w.runs, 1);
    assert_int_equal(a.v.outcome, OUTCOME_UNRESOLVED);
    assert_string_equal(a.v.patch_status, "empty");
}

/* H19: a group of four; C's sandbox never starts. Its reward is absent: in the verdict, in the record, on the wire. */
static void engine__keeps_our_failure_out_of_a_group(void **state)
{
    (void)state;
    static const char *const patches[] = { "G1", "B1", "S1", "B2" };
    double sum = 0;
    int scored = 0;
    for (uint32_t i = 0; i < 4; i++) {
        struct answer a;
        struct evaluate_request r = request("", patches[i]);
        r.has_group = true;
        r.group_want = 4;
        r.group_index = i;
        assert_int_equal(submit(&a, &r), 0);
        let_time_pass();
        assert_int_equal(a.calls, 1);
        assert_int_equal(a.rc, 0);
        assert_int_equal(a.cursor, i + 1);
        bool ours = i == 2;
        assert_int_equal(a.v.outcome, ours ? OUTCOME_INFRA_ERROR : i == 0 ? OUTCOME_RESOLVED : OUTCOME_UNRESOLVED);
        assert_int_equal(a.v.has_reward, !ours);
        if (ours) {
            assert_string_equal(a.v.fault, "sandbox");
            assert_int_equal(a.v.attempts, 1);      /* an image that is not there will not be there in 100 ms */
            assert_false(a.v.retryable);
            assert_non_null(strstr(a.v.reason, "environment image abc"));
        } else {
            sum += a.v.reward;
            scored++;
        }
        assert_int_equal(w.log[i].head.verdict.has_reward, !ours);

        struct buf bytes = { 0 };
        struct err err = { 0 };
        assert_int_equal(wire_write_evaluate_response(&bytes, "", a.id, "task", &a.v, a.cursor, &err), 0);
        Assay__V1__EvaluateResponse *m = assay__v1__evaluate_response__unpack(NULL, bytes.len, bytes.data);
        assert_non_null(m);
        assert_int_equal(m->verdict->reward == NULL, ours);
        assert_int_equal(m->verdict->outcome == ASSAY__V1__OUTCOME__OUTCOME_INFRA_ERROR, ours);
        assay__v1__evaluate_response__free_unpacked(m, NULL);
        buf_reset(&bytes);
        struct trajectory_facts f = { .request = &r, .verdict = &a.v, .snapshot = "", .patched_tree = "", .verdict_key = "" };
        assert_int_equal(wire_write_trajectory(&bytes, &f, &err), 0);
        Assay__V1__Trajectory *t = assay__v1__trajectory__unpack(NULL, bytes.len, bytes.data);
        assert_non_null(t);
        assert_int_equal(t->verdict->reward == NULL, ours);
        assay__v1__trajectory__free_unpacked(t, NULL);
        buf_done(&bytes);
    }
    assert_int_equal(scored, 3);
    assert_true(sum / scored > 0.333 && sum / scored < 0.334);
}

static void engine__tries_again_after_our_failure(void **state)
{
    (void)state;
    w.fail_acquires = 2;
    struct answer a = ask("", "G1");
    assert_int_equal(a.v.outcome, OUTCOME_RESOLVED);
    assert_int_equal(a.v.attempts, 3);
    assert_int_equal(w.acquires, 3);
    a = ask("", "W1");
    assert_int_equal(a.v.outcome, OUTCOME_INFRA_ERROR);
    assert_int_equal(a.v.attempts, 3);
    assert_true(a.v.retryable);
    assert_string_equal(a.v.fault, "worker_lost");
    assert_false(a.v.has_reward);
    a = ask("", "R1");                      /* lost while the report is read: run again, never judged without it */
    assert_int_equal(a.v.outcome, OUTCOME_INFRA_ERROR);
    assert_string_equal(a.v.fault, "worker_lost");
    struct engine_status st;
    engine_status(w.engine, &st);
    assert_int_equal(st.slots_held + st.slots_scrubbing, 0);
    assert_int_equal(st.infra_errors, 2);
}

static void engine__does_not_wait_for_a_silent_jail_for_ever(void **state)
{
    (void)state;
    w.jail_silent = true;
    uint64_t before = w.now;
    struct answer a = ask("", "G1");
    assert_int_equal(a.v.outcome, OUTCOME_INFRA_ERROR);
    assert_string_equal(a.v.fault, "deadline");
    assert_int_equal(w.closes, 3);
    assert_true(w.now - before >= 3 * (10 + 30) * NS_PER_S);
}

static void engine__refuses_what_cannot_be_and_leaves_no_record(void **state)
{
    (void)state;
    struct answer a;
    struct evaluate_request r = request("r-1", "G1");
    r.task_id = "missing";
    assert_int_equal(submit(&a, &r), 0);
    turn();
    assert_int_equal(a.calls, 1);
    assert_int_equal(a.rc, ERR_NOT_FOUND);
    assert_string_equal(a.msg, "no task missing");
    assert_int_equal(w.log_len, 0);
}

/* ---- request ids: H20 ---- */

static void engine__runs_one_request_id_once(void **state)
{
    (void)state;
    struct answer first, second, third, other;
    struct evaluate_request r = request("r-77", "G1"), different = request("r-77", "G2");
    w.hold_runs = true;
    assert_int_equal(submit(&first, &r), 0);
    turn();
    assert_int_equal(w.held_run_count, 1);
    engine_cancel(w.engine, first.ticket);              /* the connection is cut */
    turn();
    assert_int_equal(submit(&second, &r), 0);           /* and the same sent again at once */
    turn();
    assert_int_equal(submit(&other, &different), ERR_CONFLICT);
    assert_non_null(strstr(other.msg, "r-77"));
    finish_run(w.held_runs[0]);
    turn();
    assert_int_equal(submit(&third, &r), 0);            /* and once more when all is over */
    turn();
    assert_int_equal(first.calls, 0);
    assert_int_equal(second.calls, 1);
    assert_int_equal(third.calls, 1);
    assert_memory_equal(second.id, third.id, 16);
    assert_int_equal(second.cursor, third.cursor);
    assert_int_equal(third.v.outcome, OUTCOME_RESOLVED);
    assert_int_equal(submit(&other, &different), ERR_CONFLICT);
    assert_int_equal(w.runs, 1);
    assert_int_equal(w.log_len, 1);
}

static void engine_restore__knows_ids_and_verdicts_of_an_earlier_life(void **state)
{
    (void)state;
    struct answer a = ask("r-1", "G1"), b;
    struct trajectory_head head = w.log[0].head;
    struct engine *old = w.engine;
    struct err err = { 0 };
    assert_int_equal(engine_new(&w.engine, &(struct engine_config){ .slots = 2, .queue_max = 8 }, &world, &err), 0);
    engine_restore(w.engine, &head, 1);
    struct evaluate_request r = request("r-1", "G1"), different = request("r-1", "G2");
    assert_int_equal(submit(&b, &different), ERR_CONFLICT);
    assert_int_equal(submit(&b, &r), 0);
    turn();
    assert_memory_equal(a.id, b.id, 16);
    assert_int_equal(b.cursor, 1);
    b = ask("r-2", "G1");                   /* another request with the same tree: known */
    assert_true(b.v.cached);
    assert_memory_equal(b.v.source_episode, a.id, 16);
    assert_int_equal(w.runs, 1);
    engine_free(old);
}

static void engine_cancel__ends_only_what_nobody_can_ask_for_again(void **state)
{
    (void)state;
    struct answer named, nameless;
    struct evaluate_request r = request("r-1", "G1"), s = request("", "G2");
    w.hold_runs = true;
    assert_int_equal(submit(&named, &r), 0);
    assert_int_equal(submit(&nameless, &s), 0);
    turn();
    assert_int_equal(w.held_run_count, 2);
    engine_cancel(w.engine, named.ticket);
    engine_cancel(w.engine, nameless.ticket);
    engine_cancel(w.engine, nameless.ticket);           /* harmless */
    turn();
    assert_int_equal(w.held_run_count, 1);              /* the nameless one's sandbox was closed under it */
    finish_run(w.held_runs[0]);
    turn();
    assert_int_equal(named.calls + nameless.calls, 0);
    assert_int_equal(w.log_len, 1);
    assert_string_equal(w.log[0].head.request_id, "r-1");
    struct engine_status st;
    engine_status(w.engine, &st);
    assert_int_equal(st.episodes, 0);
    assert_int_equal(st.cancelled, 1);
    assert_int_equal(st.arena_bytes, 0);
}

static void engine__acknowledges_nothing_that_is_not_in_the_log(void **state)
{
    (void)state;
    struct answer a, b;
    w.hold_logs = true;
    struct evaluate_request r = request("r-1", "G1");
    assert_int_equal(submit(&a, &r), 0);
    turn();
    assert_int_equal(w.held_log_count, 1);
    assert_int_equal(a.calls, 0);           /* I3 */
    struct err err = { 0 };
    err_set(&err, ERR_SYS, "no space left");
    engine_on_logged(w.engine, w.held_logs[0], ERR_SYS, 0, &err);
    turn();
    assert_int_equal(a.calls, 1);
    assert_int_equal(a.rc, ERR_SYS);
    w.hold_logs = false;
    b = ask("r-1", "G1");                   /* not remembered either: the repeat is run, and logged once */
    assert_int_equal(b.rc, 0);
    assert_int_equal(w.log_len, 1);
    assert_int_equal(w.runs, 2);
}

/* ---- known verdicts ---- */

static void engine__shares_verdicts_of_sound_runs_only(void **state)
{
    (void)state;
    struct answer a = ask("", "G1"), b = ask("", "G1");
    assert_false(a.v.cached);
    assert_true(b.v.cached);
    assert_memory_equal(b.v.source_episode, a.id, 16);
    assert_memory_not_equal(b.id, a.id, 16);
    assert_true(b.v.has_reward && b.v.reward == 1.0);
    assert_int_equal(w.log_len, 2);         /* a cached answer is an episode too */
    struct answer c;
    struct evaluate_request r = request("", "G1");
    r.fresh = true;
    assert_int_equal(submit(&c, &r), 0);
    turn();
    assert_false(c.v.cached);
    assert_int_equal(w.runs, 2);
    a = ask("", "H1");
    b = ask("", "H1");
    assert_int_equal(b.v.outcome, OUTCOME_TIME_LIMIT);
    assert_true(b.v.maskable);
    assert_false(b.v.cached);
    assert_int_equal(w.runs, 4);
}

static void engine__joins_what_is_in_flight(void **state)
{
    (void)state;
    struct answer a[3];
    struct evaluate_request r = request("", "G1");
    w.hold_runs = true;
    for (int i = 0; i < 3; i++)
        assert_int_equal(submit(&a[i], &r), 0);
    turn();
    assert_int_equal(w.runs, 1);
    finish_run(w.held_runs[0]);
    turn();
    assert_int_equal(w.runs, 1);
    assert_int_equal(w.log_len, 3);
    int cached = 0;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(a[i].calls, 1);
        assert_int_equal(a[i].v.outcome, OUTCOME_RESOLVED);
        cached += a[i].v.cached;
    }
    assert_int_equal(cached, 2);
}

static void engine__lets_joined_ones_go_when_their_leader_is_no_use(void **state)
{
    (void)state;
    struct answer a, b, c;
    struct evaluate_request r = request("", "G1");
    w.hold_runs = true;
    assert_int_equal(submit(&a, &r), 0);
    turn();
    assert_int_equal(submit(&b, &r), 0);
    assert_int_equal(submit(&c, &r), 0);
    turn();
    assert_int_equal(w.runs, 1);
    engine_cancel(w.engine, a.ticket);      /* the leader's caller goes: one of the others leads */
    turn();
    assert_int_equal(w.runs, 2);
    w.hold_runs = false;
    w.fail_acquires = 2;
    struct err err = { 0 };
    err_set(&err, ERR_LOST, "the jail died");
    struct episode *leader = w.held_runs[0];
    w.held_run_count = 0;
    engine_on_run(w.engine, leader, ERR_LOST, NULL, NULL, 0, &err);
    let_time_pass();                        /* three attempts fail: infra_error for the leader, a run for who had joined */
    assert_int_equal(b.calls + c.calls, 2);
    const struct answer *lost = b.v.outcome == OUTCOME_INFRA_ERROR ? &b : &c, *other = lost == &b ? &c : &b;
    assert_int_equal(lost->v.outcome, OUTCOME_INFRA_ERROR);
    assert_int_equal(other->v.outcome, OUTCOME_RESOLVED);
    assert_false(other->v.cached);
    assert_int_equal(a.calls, 0);
}

/* ---- limits ---- */

static void engine_submit__refuses_when_full_and_says_when_to_come_back(void **state)
{
    (void)state;
    struct answer a[16], b;
    char patch[4];
    w.hold_runs = true;
    int admitted = 0;
    for (int i = 0; i < 16; i++) {
        snprintf(patch, sizeof patch, "G%c", 'a' + i);
        struct evaluate_request r = request("", patch);
        r.priority = 0;
        admitted += submit(&a[i], &r) == 0;
    }
    assert_int_equal(admitted, 7);          /* queue of 8, the last 1/8 kept for urgent work */
    struct evaluate_request r = request("", "Gz");
    r.priority = 0;
    assert_int_equal(submit(&b, &r), ERR_BUSY);
    assert_non_null(strstr(b.msg, "try again in"));
    assert_true(engine_retry_hint_ns(w.engine) >= 50 * NS_PER_MS);
    r.priority = 2;
    assert_int_equal(submit(&b, &r), 0);
    turn();
    struct engine_status st;
    engine_status(w.engine, &st);
    assert_int_equal(st.slots_held, 2);
    assert_int_equal(w.held_run_count, 2);
    assert_int_equal(st.refused, 10);
}

static void engine__takes_a_slot_back_from_batch_work_for_urgent_work(void **state)
{
    (void)state;
    struct answer batch[2], urgent;
    w.hold_runs = true;
    for (int i = 0; i < 2; i++) {
        struct evaluate_request r = request("", i == 0 ? "G1" : "G2");
        r.priority = 0;
        assert_int_equal(submit(&batch[i], &r), 0);
        w.now += 1000;
        turn();
    }
    assert_int_equal(w.runs, 2);
    struct evaluate_request r = request("", "G3");
    r.priority = 2;
    assert_int_equal(submit(&urgent, &r), 0);
    turn();
    assert_int_equal(w.runs, 3);
    w.hold_runs = false;
    while (w.held_run_count > 0)
        finish_run(w.held_runs[--w.held_run_count]);
    turn();
    assert_int_equal(urgent.calls, 1);
    assert_int_equal(batch[0].calls, 1);
    assert_int_equal(batch[1].calls, 1);    /* run again and finished */
    assert_int_equal(batch[1].v.outcome, OUTCOME_RESOLVED);
    assert_int_equal(batch[1].v.attempts, 1);
    assert_int_equal(w.runs, 4);
    struct engine_status st;
    engine_status(w.engine, &st);
    assert_int_equal(st.preemptions, 1);
}

static void engine_free__leaves_no_caller_without_a_word(void **state)
{
    (void)state;
    struct answer a, b;
    struct evaluate_request r = request("r-1", "G1"), s = request("", "G2");
    w.hold_runs = true;
    assert_int_equal(submit(&a, &r), 0);
    turn();
    engine_drain(w.engine);
    assert_int_equal(submit(&b, &s), ERR_UNAVAILABLE);
    engine_free(w.engine);
    w.engine = NULL;
    assert_int_equal(a.calls, 1);
    assert_int_equal(a.rc, ERR_CANCELLED);
}

static void engine__survives_a_fault_at_every_point(void **state)
{
    (void)state;
    engine_free(w.engine);
    for (int nth = 1; ; nth++) {
        struct answer a = { 0 };
        w.engine = NULL;
        fault_arm(nth);
        int rc = start_with(&(struct engine_config){ .slots = 2, .queue_max = 8 });
        if (rc == 0) {
            struct evaluate_request r = request("r", "G1");
            rc = submit(&a, &r);
        }
        bool clean = fault_seen() < nth;
        fault_arm(0);
        if (clean) {
            assert_int_equal(rc, 0);
            turn();
            assert_int_equal(a.calls, 1);
            assert_true(nth > 5);
            return;
        }
        assert_int_equal(rc, ERR_LIMIT);
        engine_free(w.engine);
    }
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(episode_step__refuses_events_that_do_not_fit),
        TEST(engine__runs_a_patch_and_says_what_it_is_worth),
        TEST(engine__counts_time_from_the_turn_after_the_request),
        TEST(engine__needs_no_run_where_the_patch_says_it_all),
        TEST(engine__keeps_our_failure_out_of_a_group),
        TEST(engine__tries_again_after_our_failure),
        TEST(engine__does_not_wait_for_a_silent_jail_for_ever),
        TEST(engine__refuses_what_cannot_be_and_leaves_no_record),
        TEST(engine__runs_one_request_id_once),
        TEST(engine_restore__knows_ids_and_verdicts_of_an_earlier_life),
        TEST(engine_cancel__ends_only_what_nobody_can_ask_for_again),
        TEST(engine__acknowledges_nothing_that_is_not_in_the_log),
        TEST(engine__shares_verdicts_of_sound_runs_only),
        TEST(engine__joins_what_is_in_flight),
        TEST(engine__lets_joined_ones_go_when_their_leader_is_no_use),
        TEST(engine_submit__refuses_when_full_and_says_when_to_come_back),
        TEST(engine__takes_a_slot_back_from_batch_work_for_urgent_work),
        TEST(engine_free__leaves_no_caller_without_a_word),
        TEST(engine__survives_a_fault_at_every_point),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
