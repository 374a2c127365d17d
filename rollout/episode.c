/*
 * episode.c - the machine of episode.h, one function per state's answer.
 *
 *                       on_start            on_task             on_patch
 *            QUEUED ------------> PREP_TASK --------> PREP_PATCH ---------------------> JUDGED (no run needed)
 *              ^                                        |  lookup:
 *   on_preempt |                                        |- hit --> CACHED --on_recalled-> JUDGED
 *              |                                        |- join -> JOINED --on_shared---> JUDGED
 *              |       on_ran        on_acquired        v             | on_miss
 *              +----- RUNNING <------- STARTING <--- WAITING_SLOT <---+
 *                        |  on_ran                on_slot
 *                        +---------> READING --on_report--> JUDGED --on_logged--> LOGGED -> REPLIED
 *
 *   our_failure: from any effect of ours, attempts left -> BACKOFF -> where it can go on; none left -> JUDGED as
 *   infra_error. on_cancel: at once where nothing is under way, else at the next answer -> CANCELLED. fail: the
 *   caller's error (unknown task), or a log that cannot be written -> FAILED. A repeat: QUEUED -> RECALLING -> REPLIED.
 *
 * What may be assumed: `task` is set from PREP_PATCH on; `tree` and `key` from the lookup on; a slot is held in
 * STARTING and RUNNING only; `verdict` is whole from JUDGED on and never changes after; `cursor` is set from LOGGED on.
 */
#include "rollout/episode.h"
#include <stdio.h>
#include <string.h>

const char *episode_state_name(enum episode_state s)
{
    static const char *const names[EPISODE_STATE_COUNT] = {
        [EPISODE_QUEUED] = "queued", [EPISODE_PREPARING_TASK] = "preparing_task",
        [EPISODE_PREPARING_PATCH] = "preparing_patch", [EPISODE_JOINED] = "joined", [EPISODE_CACHED] = "cached",
        [EPISODE_WAITING_SLOT] = "waiting_slot", [EPISODE_STARTING] = "starting", [EPISODE_RUNNING] = "running",
        [EPISODE_READING] = "reading", [EPISODE_BACKOFF] = "backoff", [EPISODE_JUDGED] = "judged",
        [EPISODE_LOGGED] = "logged", [EPISODE_RECALLING] = "recalling", [EPISODE_REPLIED] = "replied",
        [EPISODE_CANCELLED] = "cancelled", [EPISODE_FAILED] = "failed",
    };
    return s < EPISODE_STATE_COUNT ? names[s] : "unknown";
}

bool episode_shareable(const struct verdict *v)
{
    return (v->outcome == OUTCOME_RESOLVED || v->outcome == OUTCOME_UNRESOLVED) && v->limits_hit == 0;
}

static void add(struct episode_effects *out, enum episode_effect effect) { out->items[out->count++] = effect; }

/* Go to `state`; the time spent in the old one is booked to its part of the way. */
static void enter(struct episode *e, enum episode_state state, uint64_t now_ns)
{
    struct timings *t = &e->verdict.timings;
    uint64_t spent = now_ns - e->entered_ns, *part = NULL;
    switch (e->state) {
    case EPISODE_QUEUED: part = &t->queue_ns; break;
    case EPISODE_PREPARING_TASK: case EPISODE_PREPARING_PATCH: case EPISODE_JOINED: case EPISODE_CACHED:
        part = &t->prepare_ns; break;
    case EPISODE_WAITING_SLOT: case EPISODE_STARTING: part = &t->slot_ns; break;
    case EPISODE_RUNNING: part = &t->run_ns; break;
    case EPISODE_READING: part = &t->read_ns; break;
    case EPISODE_BACKOFF: case EPISODE_JUDGED: case EPISODE_LOGGED: case EPISODE_RECALLING: case EPISODE_REPLIED:
    case EPISODE_CANCELLED: case EPISODE_FAILED: case EPISODE_STATE_COUNT: break;
    }
    if (part != NULL)
        *part += spent;
    e->state = state;
    e->entered_ns = now_ns;
    e->deadline_ns = 0;
}

static void leave(struct episode *e, struct episode_effects *out)
{
    if (e->leader)
        add(out, EPISODE_DO_SHARE);
    add(out, EPISODE_DO_LEAVE);
}

static void cancel(struct episode *e, uint64_t now_ns, struct episode_effects *out)
{
    if (e->sandbox_open)
        add(out, EPISODE_DO_CLOSE);
    e->sandbox_open = false;
    enter(e, EPISODE_CANCELLED, now_ns);
    leave(e, out);
}

static void fail(struct episode *e, const struct err *why, uint64_t now_ns, struct episode_effects *out)
{
    e->failure = *why;
    enter(e, EPISODE_FAILED, now_ns);
    add(out, EPISODE_DO_REPLY);
    leave(e, out);
}

/* The verdict stands: fill what does not come from a judge and have it logged. */
static void judged(struct episode *e, struct verdict *v, uint64_t now_ns, struct episode_effects *out)
{
    enter(e, EPISODE_JUDGED, now_ns);
    struct timings t = e->verdict.timings;
    t.total_ns = now_ns - e->accepted_ns;
    v->timings = t;
    v->attempts = e->attempt;
    e->verdict = *v;
    add(out, EPISODE_DO_LOG);
}

static void judged_without_run(struct episode *e, enum outcome outcome, const char *reason, const char *fault,
                               uint64_t now_ns, struct episode_effects *out)
{
    struct verdict v;
    verdict_without_run(&v, outcome, reason, fault);
    v.findings = e->findings;
    judged(e, &v, now_ns, out);
}

static void our_failure(struct episode *e, const char *fault, const struct err *why, enum episode_state retry_state,
                        uint64_t now_ns, struct episode_effects *out)
{
    if (e->sandbox_open)
        add(out, EPISODE_DO_CLOSE);
    e->sandbox_open = false;
    /* What is missing or broken in the store stays so; memory may be there in a moment. */
    bool again = err_info(why->code)->retryable || why->code == ERR_LIMIT;
    if (again && e->attempt < e->rules->attempts_max) {
        e->attempt++;
        enter(e, EPISODE_BACKOFF, now_ns);
        e->retry_state = retry_state;
        e->deadline_ns = now_ns + (e->attempt - 1) * e->rules->backoff_ns;
        return;
    }
    e->failure = *why;                      /* keeps the text alive */
    if (why->code == ERR_LOST && retry_state == EPISODE_PREPARING_PATCH)
        fault = "worker_lost";
    judged_without_run(e, OUTCOME_INFRA_ERROR, e->failure.msg, fault, now_ns, out);
    e->verdict.retryable = again;
}

static void wait_slot(struct episode *e, uint64_t now_ns, struct episode_effects *out)
{
    enter(e, EPISODE_WAITING_SLOT, now_ns);
    add(out, EPISODE_DO_WAIT_SLOT);
}

static void merge(struct episode *e, uint64_t now_ns, struct episode_effects *out)
{
    enter(e, EPISODE_PREPARING_PATCH, now_ns);
    add(out, EPISODE_DO_PATCH);
}

static void get_task(struct episode *e, uint64_t now_ns, struct episode_effects *out)
{
    enter(e, EPISODE_PREPARING_TASK, now_ns);
    add(out, EPISODE_DO_TASK);
}

static void on_start(struct episode *e, uint64_t now_ns, struct episode_effects *out)
{
    if (e->recall_only) {
        enter(e, EPISODE_RECALLING, now_ns);
        add(out, EPISODE_DO_RECALL);
    } else if (e->key_hex[0] != '\0') {     /* was preempted: all is prepared */
        wait_slot(e, now_ns, out);
    } else {
        get_task(e, now_ns, out);
    }
}

static void on_task(struct episode *e, const struct episode_event *ev, uint64_t now_ns, struct episode_effects *out)
{
    if (ev->rc == 0)
        merge(e, now_ns, out);
    else if (err_info(ev->rc)->ours)
        our_failure(e, "store", &ev->err, EPISODE_PREPARING_TASK, now_ns, out);
    else
        fail(e, &ev->err, now_ns, out);
}

/* All that the result depends on. Limits are not in it: a verdict that a limit touched is never shared. */
static void make_key(struct episode *e)
{
    struct digest_ctx c;
    digest_start(&c);
    digest_add_str(&c, "assay verdict key 1");
    digest_add(&c, e->task->snapshot.bytes, sizeof e->task->snapshot.bytes);
    digest_add_str(&c, e->tree);
    digest_add(&c, e->task->definition.bytes, sizeof e->task->definition.bytes);
    digest_add_str(&c, e->rules->readers_version);
    digest_finish(&c, &e->key);
    digest_hex(e->key_hex, &e->key);
}

static void on_patch(struct episode *e, const struct episode_event *ev, uint64_t now_ns, struct episode_effects *out)
{
    if (ev->rc < 0) {
        our_failure(e, "worker", &ev->err, EPISODE_PREPARING_PATCH, now_ns, out);
        return;
    }
    switch (e->patch_outcome) {
    case PATCH_UNREADABLE:
        judged_without_run(e, OUTCOME_UNREADABLE, e->patch_reason, "", now_ns, out);
        return;
    case PATCH_FAILED:
        judged_without_run(e, OUTCOME_PATCH_FAILED, e->patch_reason, "", now_ns, out);
        return;
    case PATCH_EMPTY:
        if (!e->request.control_before) {
            judged_without_run(e, OUTCOME_PATCH_EMPTY,
                               "the patch changes nothing: it is empty, or its result is the base tree", "", now_ns, out);
            return;
        }
        break;
    case PATCH_APPLIED:
        break;
    }
    make_key(e);
    if (e->request.fresh)
        wait_slot(e, now_ns, out);
    else
        add(out, EPISODE_DO_LOOKUP);
}

/* A verdict that another episode's run came to. */
static void take_shared(struct episode *e, const struct episode_event *ev, uint64_t now_ns, struct episode_effects *out)
{
    struct verdict v;
    struct err err = { 0 };
    if (verdict_copy(&v, &e->arena, ev->verdict, &err) < 0) {
        wait_slot(e, now_ns, out);          /* no room for the copy: its own run needs no more */
        return;
    }
    v.cached = true;
    memcpy(v.source_episode, ev->source, sizeof v.source_episode);
    v.findings = e->findings.count > 0 ? e->findings : v.findings;
    judged(e, &v, now_ns, out);
}

static void on_recalled(struct episode *e, const struct episode_event *ev, uint64_t now_ns, struct episode_effects *out)
{
    if (e->state == EPISODE_CACHED) {
        if (ev->rc == 0)
            take_shared(e, ev, now_ns, out);
        else
            wait_slot(e, now_ns, out);      /* the record cannot be read: then find out again */
        return;
    }
    if (ev->rc < 0) {
        fail(e, &ev->err, now_ns, out);
        return;
    }
    e->verdict = *ev->verdict;              /* lies in the arena already */
    memcpy(e->id, ev->source, sizeof e->id);
    e->cursor = e->recall_cursor;
    enter(e, EPISODE_REPLIED, now_ns);
    add(out, EPISODE_DO_REPLY);
    leave(e, out);
}

static void on_acquired(struct episode *e, const struct episode_event *ev, uint64_t now_ns, struct episode_effects *out)
{
    if (ev->rc < 0) {
        our_failure(e, "sandbox", &ev->err, EPISODE_WAITING_SLOT, now_ns, out);
        return;
    }
    e->sandbox_open = true;
    enter(e, EPISODE_RUNNING, now_ns);
    e->deadline_ns = now_ns + e->run_wall_ns + e->rules->run_grace_ns;
    add(out, EPISODE_DO_RUN);
}

static void on_ran(struct episode *e, const struct episode_event *ev, uint64_t now_ns, struct episode_effects *out)
{
    if (ev->rc < 0) {
        our_failure(e, "sandbox", &ev->err, EPISODE_WAITING_SLOT, now_ns, out);
        return;
    }
    e->sandbox_open = false;
    enter(e, EPISODE_READING, now_ns);
    add(out, EPISODE_DO_CLOSE);             /* what it printed and wrote is in sealed memory: the slot is free to go */
    add(out, EPISODE_DO_READ);
}

static int add_findings(struct episode *e, struct verdict *v)
{
    if (e->findings.count == 0)
        return 0;
    uint32_t count = e->findings.count + v->findings.count;
    const char **items = arena_alloc(&e->arena, count * sizeof *items);
    if (items == NULL)
        return ERR_LIMIT;
    memcpy(items, e->findings.items, e->findings.count * sizeof *items);
    if (v->findings.count > 0)
        memcpy(items + e->findings.count, v->findings.items, v->findings.count * sizeof *items);
    v->findings = (struct str_list){ items, count };
    return 0;
}

static void on_report(struct episode *e, const struct episode_event *ev, uint64_t now_ns, struct episode_effects *out)
{
    struct verdict v = { 0 };
    struct err err = { 0 };
    if (ev->rc < 0) {
        our_failure(e, ev->rc == ERR_LOST ? "worker_lost" : "worker", &ev->err, EPISODE_WAITING_SLOT, now_ns, out);
        return;
    }
    if (ev->unreadable || ev->report == NULL ||
        verdict_judge(&v, &e->arena, e->task, ev->report, &e->run, &err) < 0 || add_findings(e, &v) < 0) {
        /* A report beyond its budget is the run's doing: it must not buy an absent reward. */
        verdict_without_run(&v, OUTCOME_UNREADABLE, ev->unreadable ? "the report cannot be read: it ended its reader twice"
                            : "the report does not fit its memory budget", "");
        v.run_end = e->run.run_end;
        v.start = e->run.start != NULL ? e->run.start : "";
        v.limits_hit = e->run.limits_hit | e->run.ended_by_limit;
        v.memory_bytes_peak = e->run.memory_bytes_peak;
        v.cpu_ns = e->run.cpu_ns;
        v.output_bytes = e->run.output_bytes;
        v.findings = e->findings;
    }
    v.patch_status = e->patch_outcome == PATCH_EMPTY ? "empty" : "applied";
    v.output = e->output;
    v.output_len = e->output_len;
    judged(e, &v, now_ns, out);
}

static void on_logged(struct episode *e, const struct episode_event *ev, uint64_t now_ns, struct episode_effects *out)
{
    if (ev->rc < 0) {
        fail(e, &ev->err, now_ns, out);     /* nothing is acknowledged that is not in the log (I3) */
        return;
    }
    e->cursor = ev->cursor;
    enter(e, EPISODE_LOGGED, now_ns);
    if (e->leader)
        add(out, EPISODE_DO_SHARE);
    enter(e, EPISODE_REPLIED, now_ns);
    add(out, EPISODE_DO_REPLY);
    add(out, EPISODE_DO_LEAVE);
}

static void on_timer(struct episode *e, uint64_t now_ns, struct episode_effects *out)
{
    if (e->state == EPISODE_RUNNING) {
        struct err late = { 0 };
        err_set(&late, ERR_LOST, "the sandbox did not answer within the run's wall limit of %.1f s and %.1f s more",
                (double)e->run_wall_ns / 1e9, (double)e->rules->run_grace_ns / 1e9);
        our_failure(e, "deadline", &late, EPISODE_WAITING_SLOT, now_ns, out);
        return;
    }
    switch (e->retry_state) {               /* BACKOFF is over */
    case EPISODE_PREPARING_TASK:  get_task(e, now_ns, out); break;
    case EPISODE_PREPARING_PATCH: merge(e, now_ns, out); break;
    case EPISODE_WAITING_SLOT: case EPISODE_QUEUED: case EPISODE_JOINED: case EPISODE_CACHED: case EPISODE_STARTING:
    case EPISODE_RUNNING: case EPISODE_READING: case EPISODE_BACKOFF: case EPISODE_JUDGED: case EPISODE_LOGGED:
    case EPISODE_RECALLING: case EPISODE_REPLIED: case EPISODE_CANCELLED: case EPISODE_FAILED: case EPISODE_STATE_COUNT:
        wait_slot(e, now_ns, out);
        break;
    }
}

static void on_preempt(struct episode *e, uint64_t now_ns, struct episode_effects *out)
{
    e->preempted++;
    e->sandbox_open = false;
    add(out, EPISODE_DO_CLOSE);
    enter(e, EPISODE_QUEUED, now_ns);
    add(out, EPISODE_DO_ENQUEUE);
}

static void on_cancel(struct episode *e, uint64_t now_ns, struct episode_effects *out)
{
    switch (e->state) {
    case EPISODE_QUEUED: case EPISODE_JOINED: case EPISODE_WAITING_SLOT: case EPISODE_BACKOFF: case EPISODE_RUNNING:
        cancel(e, now_ns, out);
        break;
    case EPISODE_PREPARING_TASK: case EPISODE_PREPARING_PATCH: case EPISODE_CACHED: case EPISODE_STARTING:
    case EPISODE_READING: case EPISODE_RECALLING:
        e->cancelled = true;                /* an effect is under way: end at its answer */
        break;
    case EPISODE_JUDGED: case EPISODE_LOGGED: case EPISODE_REPLIED: case EPISODE_CANCELLED: case EPISODE_FAILED:
    case EPISODE_STATE_COUNT:
        break;                              /* too late: its record is being written */
    }
}

#define IN(state) (UINT32_C(1) << (state))
static const uint32_t fits[] = {            /* in which states each event may come */
    [EPISODE_EV_START]    = IN(EPISODE_QUEUED),
    [EPISODE_EV_TASK]     = IN(EPISODE_PREPARING_TASK),
    [EPISODE_EV_PATCH]    = IN(EPISODE_PREPARING_PATCH),
    [EPISODE_EV_MISS]     = IN(EPISODE_PREPARING_PATCH) | IN(EPISODE_JOINED),
    [EPISODE_EV_HIT]      = IN(EPISODE_PREPARING_PATCH) | IN(EPISODE_JOINED),
    [EPISODE_EV_JOIN]     = IN(EPISODE_PREPARING_PATCH) | IN(EPISODE_JOINED),
    [EPISODE_EV_SHARED]   = IN(EPISODE_JOINED),
    [EPISODE_EV_RECALLED] = IN(EPISODE_CACHED) | IN(EPISODE_RECALLING),
    [EPISODE_EV_SLOT]     = IN(EPISODE_WAITING_SLOT),
    [EPISODE_EV_ACQUIRED] = IN(EPISODE_STARTING),
    [EPISODE_EV_RAN]      = IN(EPISODE_RUNNING),
    [EPISODE_EV_REPORT]   = IN(EPISODE_READING),
    [EPISODE_EV_LOGGED]   = IN(EPISODE_JUDGED),
    [EPISODE_EV_TIMER]    = IN(EPISODE_RUNNING) | IN(EPISODE_BACKOFF),
    [EPISODE_EV_PREEMPT]  = IN(EPISODE_RUNNING),
    [EPISODE_EV_CANCEL]   = IN(EPISODE_STATE_COUNT) - 1,
};

int episode_step(struct episode *e, const struct episode_event *ev, uint64_t now_ns, struct episode_effects *out,
                 struct err *err)
{
    out->count = 0;
    if ((fits[ev->kind] & IN(e->state)) == 0)
        return err_set(err, ERR_INTERNAL, "episode: event %d does not fit state %s", (int)ev->kind, episode_state_name(e->state));
    if (e->cancelled && ev->kind != EPISODE_EV_CANCEL) {
        e->sandbox_open = ev->kind == EPISODE_EV_ACQUIRED && ev->rc == 0;
        cancel(e, now_ns, out);
        return 0;
    }
    switch (ev->kind) {
    case EPISODE_EV_START:    on_start(e, now_ns, out); break;
    case EPISODE_EV_TASK:     on_task(e, ev, now_ns, out); break;
    case EPISODE_EV_PATCH:    on_patch(e, ev, now_ns, out); break;
    case EPISODE_EV_MISS:     wait_slot(e, now_ns, out); break;
    case EPISODE_EV_HIT:
        enter(e, EPISODE_CACHED, now_ns);
        e->recall_cursor = ev->cursor;
        add(out, EPISODE_DO_RECALL);
        break;
    case EPISODE_EV_JOIN:     enter(e, EPISODE_JOINED, now_ns); break;
    case EPISODE_EV_SHARED:   take_shared(e, ev, now_ns, out); break;
    case EPISODE_EV_RECALLED: on_recalled(e, ev, now_ns, out); break;
    case EPISODE_EV_SLOT:
        enter(e, EPISODE_STARTING, now_ns);
        add(out, EPISODE_DO_ACQUIRE);
        break;
    case EPISODE_EV_ACQUIRED: on_acquired(e, ev, now_ns, out); break;
    case EPISODE_EV_RAN:      on_ran(e, ev, now_ns, out); break;
    case EPISODE_EV_REPORT:   on_report(e, ev, now_ns, out); break;
    case EPISODE_EV_LOGGED:   on_logged(e, ev, now_ns, out); break;
    case EPISODE_EV_TIMER:    on_timer(e, now_ns, out); break;
    case EPISODE_EV_PREEMPT:  on_preempt(e, now_ns, out); break;
    case EPISODE_EV_CANCEL:   on_cancel(e, now_ns, out); break;
    }
    return 0;
}
