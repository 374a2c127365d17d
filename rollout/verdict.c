/*
 * verdict.c - from what a reader saw and how the run ended to one outcome and its reward.
 *
 * Theory: a pass needs everything to agree, a failure needs one witness. Every required id must have
 * been seen good in a report that the framework finished; the exit status must be one that this report
 * explains; the framework's own counts must fit. Any of them out of line leaves the run `unresolved`
 * and the reason says which. A limit takes the blame only where it hid results: a run that a limit ended,
 * or whose report was cut short while one was hit. A failure seen in a whole report stays a failure
 * whatever happened afterwards, so that hanging after failing buys no mask.
 *
 * What is good: PASSED and XPASS for any required id; XFAIL (it ran and failed as the project says it
 * does) for pass_to_pass only; SKIPPED for none. Without required ids XFAIL and XPASS are no objection,
 * a skip is: a policy could skip what it breaks.
 */
#include "rollout/verdict.h"
#include "sandbox/sandbox.h"
#include <stdlib.h>
#include <string.h>

#define REASON_IDS_MAX  3       /* failing ids named in a reason */
#define REASON_ID_BYTES 200
#define REASON_MSG_BYTES 160

static const struct { const char *name; int badness; } status_table[TEST_STATUS_COUNT] = {
    [TEST_PASSED]  = { "PASSED", 0 },
    [TEST_XPASS]   = { "XPASS", 1 },
    [TEST_XFAIL]   = { "XFAIL", 2 },
    [TEST_SKIPPED] = { "SKIPPED", 3 },
    [TEST_FLAKY]   = { "FLAKY", 4 },
    [TEST_MISSING] = { "MISSING", 5 },
    [TEST_FAILED]  = { "FAILED", 6 },
    [TEST_ERROR]   = { "ERROR", 7 },
};

static const struct { const char *name; bool has_reward, maskable; } outcome_table[OUTCOME_COUNT] = {
    [OUTCOME_RESOLVED]     = { "resolved", true, false },
    [OUTCOME_UNRESOLVED]   = { "unresolved", true, false },
    [OUTCOME_PATCH_FAILED] = { "patch_failed", true, false },
    [OUTCOME_PATCH_EMPTY]  = { "patch_empty", true, false },
    [OUTCOME_TIME_LIMIT]   = { "time_limit", true, true },
    [OUTCOME_MEMORY_LIMIT] = { "memory_limit", true, true },
    [OUTCOME_OUTPUT_LIMIT] = { "output_limit", true, true },
    [OUTCOME_PIDS_LIMIT]   = { "pids_limit", true, true },
    [OUTCOME_DISK_LIMIT]   = { "disk_limit", true, true },
    [OUTCOME_UNREADABLE]   = { "unreadable", true, false },
    [OUTCOME_NO_TESTS_RAN] = { "no_tests_ran", true, true },
    [OUTCOME_TASK_INVALID] = { "task_invalid", false, false },
    [OUTCOME_TAMPERED]     = { "tampered", true, false },
    [OUTCOME_INFRA_ERROR]  = { "infra_error", false, false },
    [OUTCOME_CANCELLED]    = { "cancelled", false, false },
};

static const struct { uint32_t bit; enum outcome outcome; const char *what; bool hides; } limit_table[] = {
    { SANDBOX_HIT_TIME,   OUTCOME_TIME_LIMIT,   "time", false },
    { SANDBOX_HIT_CPU,    OUTCOME_TIME_LIMIT,   "CPU time", false },
    { SANDBOX_HIT_MEMORY, OUTCOME_MEMORY_LIMIT, "memory", true },
    { SANDBOX_HIT_OUTPUT, OUTCOME_OUTPUT_LIMIT, "output", false },
    { SANDBOX_HIT_PIDS,   OUTCOME_PIDS_LIMIT,   "process", true },
    { SANDBOX_HIT_DISK,   OUTCOME_DISK_LIMIT,   "disk", true },
};
#define LIMIT_ROWS (sizeof limit_table / sizeof limit_table[0])

const char *test_status_name(enum test_status s)
{
    return s < TEST_STATUS_COUNT ? status_table[s].name : "MISSING";
}

enum test_status test_status_worse(enum test_status a, enum test_status b)
{
    return status_table[a].badness >= status_table[b].badness ? a : b;
}

const char *outcome_name(enum outcome o) { return o < OUTCOME_COUNT ? outcome_table[o].name : "infra_error"; }
bool outcome_has_reward(enum outcome o) { return o < OUTCOME_COUNT && outcome_table[o].has_reward; }
bool outcome_maskable(enum outcome o) { return o < OUTCOME_COUNT && outcome_table[o].maskable; }

/* --- one result per id, required ones marked --- */

/* An id with where it stands: sorted, so that ten thousand ids against ten thousand results stay cheap. */
struct id_ref { const char *id; uint32_t at; };

static int id_ref_cmp(const void *x, const void *y)
{
    const struct id_ref *a = x, *b = y;
    int c = strcmp(a->id, b->id);
    return c != 0 ? c : a->at < b->at ? -1 : a->at > b->at;
}

static struct id_ref *id_find(struct id_ref *refs, uint32_t count, const char *id)
{
    uint32_t low = 0, high = count;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (strcmp(refs[mid].id, id) < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return low < count && strcmp(refs[low].id, id) == 0 ? &refs[low] : NULL;
}

static const char *or_empty(const char *s) { return s != NULL ? s : ""; }

static int out_of_arena(struct err *err, const struct task *task)
{
    return err_set(err, ERR_LIMIT, "task %s: the verdict does not fit the episode's memory", or_empty(task->id));
}

struct tally { struct test_result *tests; uint32_t count; struct id_ref *refs; uint32_t ref_count; };

/* Copy the report's results, the worse of two for one id, and leave room for `extra` missing ones. */
static int tally_report(struct tally *out, struct arena *a, const struct task *task, const struct report *report,
                        uint32_t extra, struct err *err)
{
    uint32_t n = report->test_count;
    struct id_ref *refs = arena_alloc(a, ((size_t)n + 1) * sizeof *refs);
    struct test_result *tests = arena_alloc(a, ((size_t)n + extra + 1) * sizeof *tests);
    if (refs == NULL || tests == NULL)
        return out_of_arena(err, task);
    for (uint32_t i = 0; i < n; i++)
        refs[i] = (struct id_ref){ report->tests[i].id, i };
    if (n > 1)
        qsort(refs, n, sizeof *refs, id_ref_cmp);
    /* Place of each report row in the output: its id's first appearance, in report order. */
    uint32_t *first = arena_alloc(a, ((size_t)n + 1) * sizeof *first);
    uint32_t *place = arena_alloc(a, ((size_t)n + 1) * sizeof *place);
    if (first == NULL || place == NULL)
        return out_of_arena(err, task);
    uint32_t unique = 0;
    for (uint32_t i = 0; i < n; i++) {
        bool same = i > 0 && strcmp(refs[i].id, refs[i - 1].id) == 0;
        first[refs[i].at] = same ? first[refs[i - 1].at] : refs[i].at;
        if (!same)
            refs[unique++] = refs[i];
    }
    out->count = 0;
    for (uint32_t i = 0; i < n; i++) {
        const struct test_result *r = &report->tests[i];
        if (first[i] == i) {
            place[i] = out->count;
            tests[out->count] = *r;
            tests[out->count].message = or_empty(r->message);
            tests[out->count].evidence = or_empty(r->evidence);
            tests[out->count++].required = false;
            continue;
        }
        struct test_result *kept = &tests[place[first[i]]];
        if (test_status_worse(kept->status, r->status) != kept->status) {
            kept->status = r->status;
            kept->message = or_empty(r->message);
            kept->evidence = or_empty(r->evidence);
        }
    }
    for (uint32_t i = 0; i < unique; i++)
        refs[i].at = place[refs[i].at];
    out->tests = tests;
    out->refs = refs;
    out->ref_count = unique;
    return 0;
}

static bool satisfies(enum test_status s, bool fail_to_pass)
{
    return s == TEST_PASSED || s == TEST_XPASS || (s == TEST_XFAIL && !fail_to_pass);
}

/* --- texts --- */

/* Foreign text as a piece of one line: control characters become blanks, cut at a character's edge. */
static const char *one_line(struct arena *a, const char *s, size_t max)
{
    size_t n = strcspn(s, "\r\n");
    bool cut = n > max;
    if (cut) {
        n = max;
        while (n > 0 && ((unsigned char)s[n] & 0xC0) == 0x80)
            n--;
    }
    char *copy = arena_printf(a, "%.*s%s", (int)n, s, cut ? "..." : "");
    for (char *p = copy; p != NULL && *p != '\0'; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7F)
            *p = ' ';
    return copy != NULL ? copy : "";
}

struct shortfall { char *named; uint32_t count, missing, total; };

static void shortfall_add(struct shortfall *s, struct arena *a, const struct test_result *t)
{
    s->count++;
    s->missing += t->status == TEST_MISSING;
    if (s->count > REASON_IDS_MAX)
        return;
    const char *msg = one_line(a, t->message, REASON_MSG_BYTES);
    s->named = arena_printf(a, "%s%s%s %s%s%s%s", or_empty(s->named), s->named != NULL ? ", " : "",
                            one_line(a, t->id, REASON_ID_BYTES), test_status_name(t->status),
                            *msg != '\0' ? " (" : "", msg, *msg != '\0' ? ")" : "");
}

static int findings_add(struct verdict *v, struct arena *a, const char *text)
{
    const char **items = arena_alloc(a, (v->findings.count + (size_t)1) * sizeof *items);
    if (items == NULL || text == NULL)
        return ERR_LIMIT;
    if (v->findings.count > 0)
        memcpy(items, v->findings.items, v->findings.count * sizeof *items);
    items[v->findings.count++] = text;
    v->findings.items = items;
    return 0;
}

/* --- agreement of report, counts and exit status --- */

struct seen { uint32_t passed, bad; };

/* NULL when they agree, else what does not, for the reason line. */
static const char *disagreement(struct arena *a, const struct report *report, const struct run_facts *run,
                                struct seen seen)
{
    const char *reader = or_empty(report->reader);
    uint64_t counted_bad = (uint64_t)report->count_failed + report->count_error;
    if (!report->complete)
        return arena_printf(a, "the report is incomplete: %s",
                            one_line(a, *or_empty(report->note) != '\0' ? report->note : "the framework did not end in order",
                                     REASON_ID_BYTES));
    if (report->has_counts && (counted_bad == 0) != (seen.bad == 0))
        return arena_printf(a, "the report shows %u failed tests, the framework's own summary %llu", seen.bad,
                            (unsigned long long)counted_bad);
    if (report->has_counts && seen.passed > report->count_passed)
        return arena_printf(a, "the report shows %u passed tests, the framework's own summary only %u", seen.passed,
                            report->count_passed);
    if (!run->exited)
        return arena_printf(a, "the run did not end by itself (%s), so its report is not confirmed", or_empty(run->run_end));
    if (run->exit_code != 0 && seen.bad == 0)
        return arena_printf(a, "exit status %d although no test in the report failed", run->exit_code);
    /* pytest itself ends with 1 (failures) or 2 (interrupted, collection errors); other numbers mean that it broke. */
    if (strncmp(reader, "pytest", 6) == 0 && run->exit_code > 2)
        return arena_printf(a, "exit status %d is not how pytest ends a test run", run->exit_code);
    return NULL;
}

static const char *limit_reason(struct arena *a, uint32_t bit, const struct run_facts *run, bool ended)
{
    for (size_t i = 0; i < LIMIT_ROWS; i++)
        if (limit_table[i].bit == bit)
            return arena_printf(a, "the %s limit %s after %.1f s", limit_table[i].what,
                                ended ? "ended the run" : "was hit and the run ended", (double)run->wall_ns / 1e9);
    return "a limit ended the run";
}

static enum outcome limit_outcome(uint32_t bit)
{
    for (size_t i = 0; i < LIMIT_ROWS; i++)
        if (limit_table[i].bit == bit)
            return limit_table[i].outcome;
    return OUTCOME_TIME_LIMIT;
}

/* The limit that may have hidden results from a run that ended by itself: a child was killed or refused. */
static uint32_t hiding_limit(uint32_t hit)
{
    for (size_t i = 0; i < LIMIT_ROWS; i++)
        if (limit_table[i].hides && (hit & limit_table[i].bit) != 0)
            return limit_table[i].bit;
    return 0;
}

static void decide(struct verdict *out, struct arena *a, const struct report *report, const struct run_facts *run,
                   const struct shortfall *lack, struct seen seen, bool any_required)
{
    const char *odd = disagreement(a, report, run, seen);
    const char *note = one_line(a, or_empty(report->note), REASON_ID_BYTES);
    uint32_t hiding = run->ended_by_limit != 0 ? run->ended_by_limit : hiding_limit(run->limits_hit);
    bool failed = lack->count > lack->missing;      /* at least one required test was seen not good */

    if (run->ended_by_limit != 0 && (!report->complete || !failed)) {
        out->outcome = limit_outcome(hiding);
        out->reason = limit_reason(a, hiding, run, true);
        if (lack->named != NULL)
            out->reason = arena_printf(a, "%s; without a trustworthy pass: %s", out->reason, lack->named);
    } else if (hiding != 0 && !report->complete && lack->missing > 0) {
        out->outcome = limit_outcome(hiding);
        out->reason = arena_printf(a, "%s; without a result: %s", limit_reason(a, hiding, run, false), lack->named);
    } else if (report->collected_nothing && out->test_count == lack->missing) {
        out->outcome = OUTCOME_NO_TESTS_RAN;
        out->reason = *note != '\0' ? note : "the framework collected no tests";
    } else if (lack->count > 0) {
        out->outcome = OUTCOME_UNRESOLVED;
        out->reason = any_required
            ? arena_printf(a, "%u of %u required tests did not pass: %s%s", lack->count, lack->total, lack->named,
                           lack->count > REASON_IDS_MAX ? ", ..." : "")
            : arena_printf(a, "%u of %u tests did not pass (no required ids are named, so every test must): %s%s", lack->count,
                           lack->total, lack->named, lack->count > REASON_IDS_MAX ? ", ..." : "");
        if (!report->complete && odd != NULL)
            out->reason = arena_printf(a, "%s; %s", or_empty(out->reason), odd);
    } else if (odd != NULL) {
        out->outcome = OUTCOME_UNRESOLVED;
        out->reason = odd;
    } else if (lack->total == 0) {
        out->outcome = OUTCOME_UNRESOLVED;
        out->reason = "no test was seen to pass";
    } else {
        out->outcome = OUTCOME_RESOLVED;
        out->reason = arena_printf(a, "%s%u %stest%s passed", lack->total > 1 ? "all " : "", lack->total,
                                   any_required ? "required " : "", lack->total > 1 ? "s" : "");
    }
}

int verdict_judge(struct verdict *out, struct arena *a, const struct task *task, const struct report *report,
                  const struct run_facts *run, struct err *err)
{
    struct tally t = { 0 };
    struct shortfall lack = { 0 };
    struct seen seen = { 0 };
    const struct str_list *wanted[2] = { &task->fail_to_pass, &task->pass_to_pass };
    uint32_t required = task->fail_to_pass.count + task->pass_to_pass.count;
    int rc = tally_report(&t, a, task, report, required, err);
    if (rc < 0)
        return rc;
    struct id_ref *needed = arena_alloc(a, ((size_t)required + 1) * sizeof *needed);
    if (needed == NULL)
        return out_of_arena(err, task);

    /* `at` of a needed id: 0 = fail_to_pass, 1 = pass_to_pass; sorted so that the stricter one comes first. */
    uint32_t n = 0;
    for (uint32_t k = 0; k < 2; k++)
        for (uint32_t i = 0; i < wanted[k]->count; i++)
            needed[n++] = (struct id_ref){ wanted[k]->items[i], k };
    if (n > 1)
        qsort(needed, n, sizeof *needed, id_ref_cmp);

    for (uint32_t i = 0; i < t.count; i++) {
        seen.passed += t.tests[i].status == TEST_PASSED || t.tests[i].status == TEST_XPASS;
        seen.bad += t.tests[i].status == TEST_FAILED || t.tests[i].status == TEST_ERROR;
    }
    /* Walk the task's order, not the sorted one: the reason names the ids that a reader of the task meets first. */
    for (uint32_t k = 0; k < 2; k++)
        for (uint32_t i = 0; i < wanted[k]->count; i++) {
            const char *id = wanted[k]->items[i];
            struct id_ref *need = id_find(needed, n, id);
            if (need == NULL || need->at == UINT32_MAX)
                continue;                           /* named twice: counted once */
            bool fail_to_pass = need->at == 0;
            for (struct id_ref *same = need; same < needed + n && strcmp(same->id, id) == 0; same++)
                same->at = UINT32_MAX;
            struct id_ref *ref = id_find(t.refs, t.ref_count, id);
            struct test_result *r = ref != NULL ? &t.tests[ref->at] : &t.tests[t.count++];
            if (ref == NULL)
                *r = (struct test_result){ .id = id, .message = "", .evidence = "", .status = TEST_MISSING };
            r->required = true;
            lack.total++;
            if (!satisfies(r->status, fail_to_pass))
                shortfall_add(&lack, a, r);
        }
    if (required == 0)
        for (uint32_t i = 0; i < t.count; i++) {
            bool good = satisfies(t.tests[i].status, false);
            if (!good)
                shortfall_add(&lack, a, &t.tests[i]);
        }
    if (required == 0)
        lack.total = seen.passed > 0 || lack.count > 0 ? t.count : 0;

    out->tests = t.tests;
    out->test_count = t.count;
    out->findings = (struct str_list){ 0 };
    decide(out, a, report, run, &lack, seen, required > 0);
    if (out->reason == NULL)
        return out_of_arena(err, task);

    out->run_end = or_empty(run->run_end);
    out->start = or_empty(run->start);
    out->reader = or_empty(report->reader);
    out->fault = "";
    out->retryable = false;
    out->has_reward = outcome_has_reward(out->outcome);
    out->reward = out->outcome == OUTCOME_RESOLVED ? 1.0 : 0.0;
    out->maskable = outcome_maskable(out->outcome);
    out->limits_hit = run->limits_hit | run->ended_by_limit;
    out->memory_bytes_peak = run->memory_bytes_peak;
    out->cpu_ns = run->cpu_ns;
    out->output_bytes = run->output_bytes;

    rc = 0;
    for (size_t i = 0; i < LIMIT_ROWS && rc == 0; i++)
        if ((run->limits_hit & limit_table[i].bit) != 0 && run->ended_by_limit == 0)
            rc = findings_add(out, a, arena_printf(a, "the %s limit was hit; the run ended by itself", limit_table[i].what));
    if (rc == 0 && *or_empty(report->note) != '\0')
        rc = findings_add(out, a, one_line(a, report->note, REASON_ID_BYTES * 2));
    if (rc == 0 && run->exited && run->exit_code == 0 && seen.bad > 0)
        rc = findings_add(out, a, arena_printf(a, "exit status 0 although %u tests failed", seen.bad));
    const char *odd = rc == 0 && report->complete ? disagreement(a, report, run, seen) : NULL;
    if (odd != NULL && odd != out->reason)
        rc = findings_add(out, a, odd);
    return rc == 0 ? 0 : out_of_arena(err, task);
}

void verdict_without_run(struct verdict *out, enum outcome outcome, const char *reason, const char *fault)
{
    *out = (struct verdict){
        .outcome = outcome,
        .has_reward = outcome_has_reward(outcome),
        .reason = reason != NULL && *reason != '\0' ? reason : outcome_name(outcome),
        .patch_status = outcome == OUTCOME_PATCH_FAILED || outcome == OUTCOME_UNREADABLE ? "failed"
                      : outcome == OUTCOME_PATCH_EMPTY ? "empty" : "not_tried",
        .run_end = "", .reader = "", .start = "",
        .fault = or_empty(fault),
        .retryable = outcome == OUTCOME_INFRA_ERROR,
        .maskable = outcome_maskable(outcome),
    };
}

/* --- deep copy --- */

static const char *copy_str(struct arena *a, const char *s, bool *ok)
{
    if (s == NULL || *s == '\0')
        return "";
    const char *c = arena_strdup(a, s);
    *ok &= c != NULL;
    return c;
}

int verdict_copy(struct verdict *out, struct arena *a, const struct verdict *v, struct err *err)
{
    bool ok = true;
    struct verdict c = *v;
    c.reason = copy_str(a, v->reason, &ok);
    c.patch_status = copy_str(a, v->patch_status, &ok);
    c.run_end = copy_str(a, v->run_end, &ok);
    c.start = copy_str(a, v->start, &ok);
    c.reader = copy_str(a, v->reader, &ok);
    c.fault = copy_str(a, v->fault, &ok);
    c.tests = arena_alloc(a, ((size_t)v->test_count + 1) * sizeof *c.tests);
    c.findings.items = arena_alloc(a, ((size_t)v->findings.count + 1) * sizeof *c.findings.items);
    ok &= c.tests != NULL && c.findings.items != NULL;
    for (uint32_t i = 0; ok && i < v->test_count; i++) {
        c.tests[i] = v->tests[i];
        c.tests[i].id = copy_str(a, v->tests[i].id, &ok);
        c.tests[i].message = copy_str(a, v->tests[i].message, &ok);
        c.tests[i].evidence = copy_str(a, v->tests[i].evidence, &ok);
    }
    for (uint32_t i = 0; ok && i < v->findings.count; i++)
        c.findings.items[i] = copy_str(a, v->findings.items[i], &ok);
    if (ok && v->output_len > 0) {
        uint8_t *bytes = arena_alloc(a, v->output_len);
        if (bytes != NULL)
            memcpy(bytes, v->output, v->output_len);
        ok = bytes != NULL;
        c.output = bytes;
    } else {
        c.output = NULL;
        c.output_len = 0;
    }
    if (!ok)
        return err_set(err, ERR_LIMIT, "verdict: %u test results do not fit the memory budget", v->test_count);
    *out = c;
    return 0;
}
