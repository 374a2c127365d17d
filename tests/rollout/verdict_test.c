/* verdict_test.c - what a run comes to: tables of reports and ends of runs. */
#include "rollout/verdict.h"
#include "sandbox/sandbox.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

struct row { const char *id; enum test_status status; };

struct setup {
    struct row rows[6];
    const char *f2p, *p2p;              /* one id each, or NULL */
    struct run_facts run;
    bool incomplete, collected_nothing, has_counts;
    uint32_t count_passed, count_failed;
    const char *reader;
};

static struct verdict judge(struct arena *a, const struct setup *s)
{
    struct verdict v = { 0 };
    struct err err;
    struct test_result *tests = arena_alloc(a, 6 * sizeof *tests);
    struct report r = {
        .reader = s->reader != NULL ? s->reader : "pytest/1", .tests = tests, .complete = !s->incomplete, .note = "",
        .collected_nothing = s->collected_nothing, .has_counts = s->has_counts, .count_passed = s->count_passed,
        .count_failed = s->count_failed,
    };
    const char **f2p = arena_alloc(a, sizeof *f2p), **p2p = arena_alloc(a, sizeof *p2p);
    *f2p = s->f2p;
    *p2p = s->p2p;
    struct task t = { .id = "t", .fail_to_pass = { f2p, s->f2p != NULL }, .pass_to_pass = { p2p, s->p2p != NULL } };
    for (; r.test_count < 6 && s->rows[r.test_count].id != NULL; r.test_count++)
        tests[r.test_count] = (struct test_result){ .id = s->rows[r.test_count].id, .message = "", .evidence = "report_file",
                                                    .status = s->rows[r.test_count].status };
    assert_int_equal(verdict_judge(&v, a, &t, &r, &s->run, &err), 0);
    assert_non_null(v.reason);
    assert_null(strchr(v.reason, '\n'));
    assert_int_equal(v.has_reward, outcome_has_reward(v.outcome));
    assert_true(v.reward == (v.outcome == OUTCOME_RESOLVED ? 1.0 : 0.0));
    assert_int_equal(v.maskable, outcome_maskable(v.outcome));
    return v;
}

#define EXIT(n) .run = { .run_end = "exit", .exited = true, .exit_code = n }
#define ENDED(bit) .run = { .run_end = "limit", .ended_by_limit = bit, .limits_hit = bit }

static void judge__outcomes(void **state)
{
    (void)state;
    static const struct { struct setup s; enum outcome want; const char *reason; } table[] = {
        { { { { "a", TEST_PASSED }, { "b", TEST_PASSED } }, "a", "b", EXIT(0) }, OUTCOME_RESOLVED, "all 2" },
        { { { { "a", TEST_PASSED }, { "b", TEST_FAILED } }, "a", "b", EXIT(1) }, OUTCOME_UNRESOLVED, "b FAILED" },
        { { { { "a", TEST_PASSED } }, "a", "b", EXIT(0) }, OUTCOME_UNRESOLVED, "b MISSING" },
        /* a failure that nobody asked about: exit 1 is explained by it */
        { { { { "a", TEST_PASSED }, { "x", TEST_FAILED } }, "a", NULL, EXIT(1) }, OUTCOME_RESOLVED, NULL },
        { { { { "a", TEST_PASSED }, { "x", TEST_FAILED } }, "a", NULL, EXIT(0) }, OUTCOME_RESOLVED, NULL },
        /* exit status that nothing explains */
        { { { { "a", TEST_PASSED } }, "a", NULL, EXIT(1) }, OUTCOME_UNRESOLVED, "exit status 1 although" },
        { { { { "a", TEST_PASSED }, { "x", TEST_FAILED } }, "a", NULL, EXIT(139) }, OUTCOME_UNRESOLVED, "139" },
        { { { { "a", TEST_PASSED } }, "a", NULL, .run = { .run_end = "signal 9" } }, OUTCOME_UNRESOLVED, "signal 9" },
        { { { { "a", TEST_PASSED }, { "b", TEST_FAILED } }, "a", NULL, EXIT(3), .reader = "tap/1" }, OUTCOME_RESOLVED, NULL },
        /* two results for one id, either order */
        { { { { "a", TEST_PASSED }, { "a", TEST_FAILED } }, "a", NULL, EXIT(1) }, OUTCOME_UNRESOLVED, "a FAILED" },
        { { { { "a", TEST_ERROR }, { "a", TEST_PASSED } }, "a", NULL, EXIT(1) }, OUTCOME_UNRESOLVED, "a ERROR" },
        /* what satisfies */
        { { { { "a", TEST_XFAIL } }, "a", NULL, EXIT(0) }, OUTCOME_UNRESOLVED, "a XFAIL" },
        { { { { "a", TEST_XFAIL } }, NULL, "a", EXIT(0) }, OUTCOME_RESOLVED, NULL },
        { { { { "a", TEST_XFAIL } }, "a", "a", EXIT(0) }, OUTCOME_UNRESOLVED, "1 of 1" },
        { { { { "a", TEST_XPASS } }, "a", NULL, EXIT(0) }, OUTCOME_RESOLVED, NULL },
        { { { { "a", TEST_SKIPPED } }, "a", NULL, EXIT(0) }, OUTCOME_UNRESOLVED, "a SKIPPED" },
        { { { { "a", TEST_SKIPPED } }, NULL, "a", EXIT(0) }, OUTCOME_UNRESOLVED, "a SKIPPED" },
        { { { { "a", TEST_FLAKY } }, NULL, "a", EXIT(0) }, OUTCOME_UNRESOLVED, "a FLAKY" },
        /* no required ids */
        { { { { "a", TEST_PASSED }, { "b", TEST_XFAIL } }, NULL, NULL, EXIT(0) }, OUTCOME_RESOLVED, "all 2" },
        { { { { "a", TEST_PASSED }, { "b", TEST_FAILED } }, NULL, NULL, EXIT(1) }, OUTCOME_UNRESOLVED, "b FAILED" },
        { { { { "a", TEST_PASSED }, { "b", TEST_SKIPPED } }, NULL, NULL, EXIT(0) }, OUTCOME_UNRESOLVED, "b SKIPPED" },
        { { { { NULL, 0 } }, NULL, NULL, EXIT(0) }, OUTCOME_UNRESOLVED, "no test was seen" },
        /* counts */
        { { { { "a", TEST_PASSED } }, "a", NULL, EXIT(0), .has_counts = true, .count_passed = 1 }, OUTCOME_RESOLVED, NULL },
        { { { { "a", TEST_PASSED } }, "a", NULL, EXIT(0), .has_counts = true, .count_passed = 0 }, OUTCOME_UNRESOLVED,
          "summary only 0" },
        { { { { "a", TEST_PASSED } }, "a", NULL, EXIT(1), .has_counts = true, .count_passed = 1, .count_failed = 1 },
          OUTCOME_UNRESOLVED, "own summary 1" },
        /* cut off */
        { { { { "a", TEST_PASSED } }, "a", NULL, EXIT(0), .incomplete = true }, OUTCOME_UNRESOLVED, "incomplete" },
        { { { { NULL, 0 } }, "a", NULL, EXIT(0), .incomplete = true }, OUTCOME_UNRESOLVED, "a MISSING" },
        { { { { NULL, 0 } }, "a", NULL, EXIT(5), .collected_nothing = true }, OUTCOME_NO_TESTS_RAN, NULL },
        { { { { NULL, 0 } }, NULL, NULL, EXIT(5), .collected_nothing = true }, OUTCOME_NO_TESTS_RAN, NULL },
        /* limits */
        { { { { NULL, 0 } }, "a", NULL, ENDED(SANDBOX_HIT_TIME), .incomplete = true }, OUTCOME_TIME_LIMIT, "time limit" },
        { { { { NULL, 0 } }, "a", NULL, ENDED(SANDBOX_HIT_CPU), .incomplete = true }, OUTCOME_TIME_LIMIT, "CPU time" },
        { { { { NULL, 0 } }, "a", NULL, ENDED(SANDBOX_HIT_MEMORY), .incomplete = true }, OUTCOME_MEMORY_LIMIT, "memory" },
        { { { { NULL, 0 } }, "a", NULL, ENDED(SANDBOX_HIT_OUTPUT), .incomplete = true }, OUTCOME_OUTPUT_LIMIT, NULL },
        { { { { NULL, 0 } }, "a", NULL, ENDED(SANDBOX_HIT_PIDS), .incomplete = true }, OUTCOME_PIDS_LIMIT, NULL },
        { { { { NULL, 0 } }, "a", NULL, ENDED(SANDBOX_HIT_DISK), .incomplete = true }, OUTCOME_DISK_LIMIT, NULL },
        { { { { "a", TEST_PASSED } }, "a", NULL, ENDED(SANDBOX_HIT_TIME) }, OUTCOME_TIME_LIMIT, NULL },
        /* failing and then hanging buys no mask */
        { { { { "a", TEST_FAILED } }, "a", NULL, ENDED(SANDBOX_HIT_TIME) }, OUTCOME_UNRESOLVED, "a FAILED" },
        /* H16 (b): memory was hit, the run ended by itself, the tests speak */
        { { { { "a", TEST_PASSED } }, "a", NULL, .run = { "exit 0", true, 0, .limits_hit = SANDBOX_HIT_MEMORY } },
          OUTCOME_RESOLVED, NULL },
        { { { { "a", TEST_FAILED } }, "a", NULL, .run = { "exit 1", true, 1, .limits_hit = SANDBOX_HIT_MEMORY } },
          OUTCOME_UNRESOLVED, NULL },
        { { { { NULL, 0 } }, "a", NULL, .run = { "exit 137", true, 137, .limits_hit = SANDBOX_HIT_MEMORY }, .incomplete = true },
          OUTCOME_MEMORY_LIMIT, "memory limit was hit" },
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct arena a = { 0 };
        struct verdict v = judge(&a, &table[i].s);
        if (v.outcome != table[i].want || (table[i].reason != NULL && strstr(v.reason, table[i].reason) == NULL))
            fail_msg("row %zu: %s (%s), want %s", i, outcome_name(v.outcome), v.reason, outcome_name(table[i].want));
        arena_done(&a);
    }
}

static void judge__missing_ids_are_listed_and_marked(void **state)
{
    (void)state;
    struct arena a = { 0 };
    struct setup s = { { { "x", TEST_PASSED }, { "a", TEST_PASSED } }, "a", "b", EXIT(0) };
    struct verdict v = judge(&a, &s);
    assert_int_equal(v.test_count, 3);
    assert_false(v.tests[0].required);
    assert_true(v.tests[1].required);
    assert_string_equal(v.tests[2].id, "b");
    assert_int_equal(v.tests[2].status, TEST_MISSING);
    assert_true(v.tests[2].required);
    arena_done(&a);
}

static void judge__limit_stays_flagged(void **state)
{
    (void)state;
    struct arena a = { 0 };
    struct setup s = { { { "a", TEST_PASSED } }, "a", NULL, .run = { "exit 0", true, 0, .limits_hit = SANDBOX_HIT_MEMORY } };
    struct verdict v = judge(&a, &s);
    assert_int_equal(v.limits_hit, SANDBOX_HIT_MEMORY);
    assert_int_equal(v.findings.count, 1);
    arena_done(&a);
}

static void judge__many_ids_name_only_the_first(void **state)
{
    (void)state;
    enum { N = 5000 };
    struct arena a = { 0 };
    struct err err;
    const char **ids = arena_alloc(&a, N * sizeof *ids);
    for (int i = 0; i < N; i++)
        ids[i] = arena_printf(&a, "tests/test_%d.py::test\nline", i);
    struct task t = { .id = "t", .pass_to_pass = { ids, N } };
    struct report r = { .reader = "pytest/1", .note = "", .complete = true };
    struct run_facts run = { .run_end = "exit 0", .exited = true };
    struct verdict v = { 0 };
    assert_int_equal(verdict_judge(&v, &a, &t, &r, &run, &err), 0);
    assert_int_equal(v.test_count, N);
    assert_true(strlen(v.reason) < 1200);
    assert_non_null(strstr(v.reason, "tests/test_0.py"));
    arena_done(&a);
}

static void judge__a_small_arena_is_an_error(void **state)
{
    (void)state;
    struct setup s = { { { "a", TEST_PASSED } }, "a", "b", EXIT(0) };
    const char *id = "a";
    struct task t = { .id = "t", .fail_to_pass = { &id, 1 } };
    struct test_result tests[1] = { { .id = "a", .status = TEST_PASSED } };
    struct report r = { .tests = tests, .test_count = 1, .complete = true };
    (void)s;
    for (size_t budget = 1; budget < 600; budget += 16) {
        struct arena a = { .budget = budget };
        struct run_facts run = { .run_end = "exit 0", .exited = true };
        struct verdict v = { 0 };
        struct err err = { 0 };
        int rc = verdict_judge(&v, &a, &t, &r, &run, &err);
        assert_true(rc == 0 || rc == ERR_LIMIT);
        if (rc == 0)
            assert_int_equal(v.outcome, OUTCOME_RESOLVED);
        arena_done(&a);
    }
}

/* H19: ours is absent, never 0 */
static void without_run__our_failure_has_no_reward(void **state)
{
    (void)state;
    static const struct { enum outcome o; bool reward; const char *patch; } table[] = {
        { OUTCOME_INFRA_ERROR, false, "not_tried" }, { OUTCOME_CANCELLED, false, "not_tried" },
        { OUTCOME_TASK_INVALID, false, "not_tried" },
        { OUTCOME_PATCH_FAILED, true, "failed" }, { OUTCOME_PATCH_EMPTY, true, "empty" }, { OUTCOME_UNREADABLE, true, "failed" },
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct verdict v;
        verdict_without_run(&v, table[i].o, "why", "worker_lost");
        assert_int_equal(v.has_reward, table[i].reward);
        assert_true(v.reward == 0.0);
        assert_string_equal(v.patch_status, table[i].patch);
        assert_string_equal(v.fault, "worker_lost");
        assert_int_equal(v.retryable, table[i].o == OUTCOME_INFRA_ERROR);
        assert_non_null(v.run_end);
        assert_non_null(v.reader);
    }
}

static void copy__is_deep(void **state)
{
    (void)state;
    struct arena a = { 0 }, b = { 0 };
    struct err err;
    struct setup s = { { { "a", TEST_PASSED } }, "a", "b", EXIT(0) };
    struct verdict v = judge(&a, &s), c;
    v.output = (const uint8_t *)arena_strdup(&a, "out");
    v.output_len = 3;
    v.patch_status = "applied";
    assert_int_equal(verdict_copy(&c, &b, &v, &err), 0);
    memset(v.tests, 0xFF, v.test_count * sizeof *v.tests);
    arena_done(&a);
    assert_string_equal(c.tests[0].id, "a");
    assert_string_equal(c.tests[1].id, "b");
    assert_string_equal(c.patch_status, "applied");
    assert_memory_equal(c.output, "out", 3);
    assert_non_null(strstr(c.reason, "b MISSING"));
    arena_done(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(judge__outcomes),
        cmocka_unit_test(judge__missing_ids_are_listed_and_marked),
        cmocka_unit_test(judge__limit_stays_flagged),
        cmocka_unit_test(judge__many_ids_name_only_the_first),
        cmocka_unit_test(judge__a_small_arena_is_an_error),
        cmocka_unit_test(without_run__our_failure_has_no_reward),
        cmocka_unit_test(copy__is_deep),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
