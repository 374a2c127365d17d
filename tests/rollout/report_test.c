/* report_test.c - the readers, on recordings of real frameworks (data/record.py) and on hostile bytes. */
#include "rollout/report.h"
#include "base/buf.h"
#include "base/own.h"
#include "rollout/worker.h"
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

#define DATA "tests/rollout/data/"

struct world {
    struct arena a;
    struct buf output, junit;
    struct report_file file;
    struct run_facts run;
    struct task task;
    struct report_input in;
    struct report report;
};

static bool slurp(struct buf *b, const char *name, const char *part)
{
    char path[200];
    struct err err;
    snprintf(path, sizeof path, DATA "%s/%s", name, part);
    own_fd fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd >= 0 && buf_read_fd(b, fd, &err) >= 0;
}

static void use(struct world *w, const char *reader, const char *cmd, int exit_code)
{
    w->run = (struct run_facts){ .run_end = "exit", .exited = true, .exit_code = exit_code };
    w->task = (struct task){ .id = "t", .reader = reader, .test_cmd = cmd };
    w->in = (struct report_input){ .task = &w->task, .run = &w->run, .output = w->output.data, .output_len = w->output.len };
    if (w->junit.len > 0) {
        w->file = (struct report_file){ (const uint8_t *)REPORT_JUNIT_FILE, sizeof REPORT_JUNIT_FILE - 1, false,
                                       w->junit.data, w->junit.len };
        w->in.files = &w->file;
        w->in.file_count = 1;
    }
}

static void read_it(struct world *w)
{
    struct err err;
    assert_int_equal(report_read(&w->report, &w->a, &w->in, &err), 0);
}

static void recorded(struct world *w, const char *name, const char *cmd)
{
    struct buf exit_text = { 0 };
    assert_true(slurp(&w->output, name, "output"));
    (void)slurp(&w->junit, name, "junit.xml");
    assert_true(slurp(&exit_text, name, "exit"));
    use(w, "auto", cmd, atoi((const char *)exit_text.data));
    buf_done(&exit_text);
    read_it(w);
}

static void printed(struct world *w, const char *reader, const char *cmd, const char *text, int exit_code)
{
    struct err err;
    assert_int_equal(buf_add(&w->output, text, strlen(text), &err), 0);
    use(w, reader, cmd, exit_code);
    read_it(w);
}

static void done(struct world *w)
{
    buf_done(&w->output);
    buf_done(&w->junit);
    arena_done(&w->a);
}

static const char *status_of(const struct report *r, const char *id)
{
    for (uint32_t i = 0; i < r->test_count; i++)
        if (strcmp(r->tests[i].id, id) == 0)
            return test_status_name(r->tests[i].status);
    return "(absent)";
}

static uint32_t passes(const struct report *r)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->test_count; i++)
        n += r->tests[i].status == TEST_PASSED || r->tests[i].status == TEST_XPASS;
    return n;
}

#define assert_status(w, id, s) assert_string_equal(status_of(&(w)->report, id), s)

static const char *const echo_ids[] = {
    "test_ids.py::test_echo[2 + 2]", "test_ids.py::test_echo[[x]]", "test_ids.py::test_echo[na\\xefve \\u2713]",
    "test_ids.py::test_echo[tab\\there]", "test_ids.py::test_echo[line\\nbreak]", "test_ids.py::test_echo[FAILED y::z]",
};

/* H08 */
static void pytest__ids_are_exact(void **s)
{
    (void)s;
    struct world w = { 0 };
    recorded(&w, "ids", "pytest -q");
    assert_true(w.report.complete);
    assert_int_equal(w.report.test_count, 7);
    for (size_t i = 0; i < 6; i++)
        assert_status(&w, echo_ids[i], "PASSED");
    assert_status(&w, "test_ids.py::test_echo[a - b]", "FAILED");
    done(&w);
}

static void text__ids_survive_blanks_colours_and_crlf(void **s)
{
    (void)s;
    static const char head[] = "=========================== short test summary info ============================";
    for (int coloured = 0; coloured < 2; coloured++) {
        struct arena a = { 0 };
        struct err err;
        struct buf log = { 0 };
        struct pytest_text t;
        struct str_list none = { 0 };
        const char *nl = coloured ? "\r\n" : "\n";
        assert_int_equal(buf_addf(&log, &err, "%s%s", head, nl), 0);
        for (size_t i = 0; i < 6; i++)
            assert_int_equal(buf_addf(&log, &err, "%s %s%s", coloured ? "\033[32mPASSED\033[0m" : "PASSED", echo_ids[i], nl), 0);
        assert_int_equal(buf_addf(&log, &err, "%s test_ids.py::test_echo[a - b] - AssertionError: left - right%s",
                                  coloured ? "\033[31mFAILED\033[0m" : "FAILED", nl), 0);
        assert_int_equal(buf_addf(&log, &err, "%s1 failed, 6 passed in 0.01s%s", coloured ? "\033[31m" : "", nl), 0);
        assert_int_equal(pytest_text_read(&t, &a, log.data, log.len, &none, &err), 0);
        assert_int_equal(t.count, 7);
        for (uint32_t i = 0; i < 6; i++) {
            assert_string_equal(t.lines[i].id, echo_ids[i]);
            assert_int_equal(t.lines[i].status, TEST_PASSED);
        }
        assert_string_equal(t.lines[6].id, "test_ids.py::test_echo[a - b]");
        assert_string_equal(t.lines[6].message, "AssertionError: left - right");
        assert_true(t.has_totals);
        assert_int_equal(t.failed, 1);
        assert_int_equal(t.passed, 6);
        buf_done(&log);
        arena_done(&a);
    }
}

static void text__a_known_id_settles_where_it_ends(void **s)
{
    (void)s;
    static const char log[] = "== short test summary info ==\nFAILED t.py::f[a] - b] - boom\nFAILED t.py::g - x[1] - y\n";
    const char *ids[] = { "t.py::f[a] - b]" };
    struct str_list known = { ids, 1 };
    struct arena a = { 0 };
    struct err err;
    struct pytest_text t;
    assert_int_equal(pytest_text_read(&t, &a, (const uint8_t *)log, sizeof log - 1, &known, &err), 0);
    assert_int_equal(t.count, 2);
    assert_string_equal(t.lines[0].id, "t.py::f[a] - b]");
    assert_string_equal(t.lines[0].message, "boom");
    assert_string_equal(t.lines[1].id, "t.py::g");
    assert_string_equal(t.lines[1].message, "x[1] - y");
    arena_done(&a);
}

/* H09 */
static void pytest__marks_setup_and_teardown(void **s)
{
    (void)s;
    static const struct { const char *id, *status; } want[] = {
        { "test_marks.py::test_plain", "PASSED" }, { "test_marks.py::test_teardown", "ERROR" },
        { "test_marks.py::test_setup", "ERROR" }, { "test_marks.py::test_skipped", "SKIPPED" },
        { "test_marks.py::test_known_bad", "XFAIL" }, { "test_marks.py::test_not_run", "SKIPPED" },
        { "test_marks.py::test_now_good", "XPASS" }, { "test_marks.py::test_now_good_strict", "FAILED" },
        { "test_marks.py::test_twice", "ERROR" },
    };
    struct world w = { 0 };
    recorded(&w, "marks", "pytest");
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++)
        assert_status(&w, want[i].id, want[i].status);
    assert_int_equal(w.report.test_count, 9);
    assert_true(w.report.complete);
    done(&w);
}

static void pytest__a_collection_error_is_no_pass(void **s)
{
    (void)s;
    struct world w = { 0 };
    recorded(&w, "collection_error", "pytest");
    assert_status(&w, "test_import.py", "ERROR");
    assert_int_equal(w.report.test_count, 1);
    assert_false(w.report.collected_nothing);
    done(&w);
    /* the printed lines alone */
    struct world t = { 0 };
    printed(&t, "auto", "pytest", "== short test summary info ==\nERROR test_import.py\n"
            "!!! Interrupted: 1 error during collection !!!\n"
            "1 error in 0.04s\n", 2);
    assert_status(&t, "test_import.py", "ERROR");
    assert_int_equal(passes(&t.report), 0);
    assert_false(t.report.complete);
    done(&t);
}

static void pytest__inherited_tests_keep_their_own_file(void **s)
{
    (void)s;
    struct world w = { 0 };
    recorded(&w, "shapes", "python3 -m pytest");
    assert_status(&w, "pkg/test_sub.py::TestSub::test_inherited", "PASSED");
    assert_status(&w, "pkg/test_other.py::TestSub::test_inherited", "PASSED");
    assert_status(&w, "pkg/test_sub.py::TestSub::TestInner::test_in", "PASSED");
    assert_true(w.report.complete);
    assert_int_equal(w.report.test_count, 4);
    done(&w);
}

static void pytest__an_empty_collection_is_proved(void **s)
{
    (void)s;
    struct world w = { 0 };
    recorded(&w, "empty", "pytest");
    assert_true(w.report.collected_nothing);
    assert_int_equal(w.report.test_count, 0);
    done(&w);
}

/* H10 */
static void pytest__printed_results_never_pass(void **s)
{
    (void)s;
    static const char *const cases[] = { "forged_end", "forged_exit" };
    for (size_t i = 0; i < 2; i++)
        for (int with_report = 0; with_report < 2; with_report++) {
            struct world w = { 0 };
            recorded(&w, cases[i], "pytest -q");
            if (!with_report) {
                w.in.file_count = 0;
                read_it(&w);
            }
            assert_int_equal(passes(&w.report), 0);
            assert_false(w.report.complete && w.report.test_count == 0);
            done(&w);
        }
}

static void pytest__a_forged_report_without_an_orderly_end_is_incomplete(void **s)
{
    (void)s;
    struct world w = { 0 };
    recorded(&w, "forged_report", "pytest -q");
    assert_false(w.report.complete);
    assert_non_null(strstr(w.report.note, "summary is missing"));
    assert_int_equal(passes(&w.report), 0);
    done(&w);
}

static void pytest__a_printed_failure_takes_a_pass_away(void **s)
{
    (void)s;
    struct world w = { 0 };
    struct err err;
    static const char log[] = "== short test summary info ==\nPASSED t.py::a\nFAILED t.py::a - really\n1 failed in 0.1s\n";
    static const char xml[] = "<testsuite name='pytest' tests='1' failures='0' errors='0' skipped='0'>"
                              "<testcase classname='t' name='a' file='t.py'/></testsuite>";
    assert_int_equal(buf_add(&w.output, log, sizeof log - 1, &err), 0);
    assert_int_equal(buf_add(&w.junit, xml, sizeof xml - 1, &err), 0);
    use(&w, "pytest", "pytest", 0);
    read_it(&w);
    assert_status(&w, "t.py::a", "FAILED");
    assert_false(w.report.complete);
    done(&w);
}

/* A report written after the session, by code under test at exit, against what pytest printed itself. */
static void pytest__a_pass_is_also_a_printed_one(void **s)
{
    (void)s;
    static const char xml[] = "<testsuite name='pytest' tests='3' failures='0' errors='0' skipped='0'>"
                              "<testcase classname='t' name='a' file='t.py'/><testcase classname='t' name='b' file='t.py'/>"
                              "<testcase classname='t' name='b' file='t.py'/></testsuite>";     /* b was run again */
    static const struct { const char *log; uint32_t passes; } table[] = {
        { "== short test summary info ==\nPASSED t.py::a\nPASSED t.py::b\n== 2 passed, 1 rerun in 0.1s ==\n", 2 },
        { "== short test summary info ==\nPASSED t.py::a\nXPASS t.py::b\n== 1 passed, 1 xpassed in 0.1s ==\n", 2 },
        { "== short test summary info ==\nPASSED t.py::a\n== 1 passed, 6 subtests passed in 0.1s ==\n", 2 },
        { "== short test summary info ==\nPASSED t.py::a\nSKIPPED [1] t.py:3: x\n== 1 passed, 1 skipped in 0.1s ==\n", 0 },
        { "== short test summary info ==\nPASSED t.py::a\nXFAIL t.py::b - x\n== 1 passed, 1 xfailed in 0.1s ==\n", 1 },
        { "== 1 passed, 1 deselected in 0.1s ==\n", 0 },
        { "== no tests ran in 0.1s ==\n", 0 },
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct world w = { 0 };
        struct err err;
        assert_int_equal(buf_add(&w.output, table[i].log, strlen(table[i].log), &err), 0);
        assert_int_equal(buf_add(&w.junit, xml, sizeof xml - 1, &err), 0);
        use(&w, "pytest", "pytest", 0);
        read_it(&w);
        if (passes(&w.report) != table[i].passes)
            fail_msg("row %zu: %u passes, note \"%s\"", i, passes(&w.report), w.report.note);
        if (table[i].passes < 2)
            assert_string_not_equal(status_of(&w.report, "t.py::b"), "PASSED");
        done(&w);
    }
}

static void pytest__a_quiet_end_is_an_end(void **s)
{
    (void)s;
    static const char xml[] = "<testsuite name='pytest' tests='1' failures='0' errors='0' skipped='0'>"
                              "<testcase classname='t' name='a' file='t.py'/></testsuite>";
    static const struct { const char *cmd, *log; bool complete; } table[] = {
        { "pytest -q", ". [100%]\n1 passed in 0.04s\n", true },
        { "pytest -qq", "== short test summary info ==\nPASSED t.py::a\n", true },
        { "pytest -q -q -rf", ". [100%]\n----- generated xml file: /assay/report/junit.xml -----\n", true },
        { "pytest -q", ". [100%]\n", false },
        { "pytest -q > log.txt", "", true },
        { "make test", "", true },
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct world w = { 0 };
        struct err err;
        assert_int_equal(buf_add(&w.output, table[i].log, strlen(table[i].log), &err), 0);
        assert_int_equal(buf_add(&w.junit, xml, sizeof xml - 1, &err), 0);
        use(&w, "auto", table[i].cmd, 0);
        read_it(&w);
        assert_string_equal(w.report.reader, "pytest/1");
        assert_int_equal(w.report.complete, table[i].complete);
        assert_int_equal(passes(&w.report), table[i].complete);
        done(&w);
    }
}

static void pytest__no_report_never_falls_back_to_the_exit_status(void **s)
{
    (void)s;
    struct world w = { 0 };
    printed(&w, "auto", "cd src && python -m pytest tests || true", "", 0);
    assert_string_equal(w.report.reader, "pytest/1");
    assert_int_equal(w.report.test_count, 0);
    assert_false(w.report.complete);
    done(&w);
}

static void xml_case(struct world *w, const char *reader, const void *xml, size_t n)
{
    struct err err;
    assert_int_equal(buf_add(&w->junit, xml, n, &err), 0);
    use(w, reader, "npm test", 0);
    read_it(w);
}

/* H13 */
static void junit__forbidden_characters_do_not_hide_results(void **s)
{
    (void)s;
    static const char xml[] =
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
        "<testsuite name=\"lamp\" tests=\"3\" failures=\"1\" errors=\"0\" skipped=\"0\">\n"
        "  <testcase classname=\"lamp\" name=\"turns on\"/>\n  <testcase classname=\"lamp\" name=\"shows colour\">\n"
        "    <failure message=\"want red, got \033[31mblue\033[0m\">at lamp.js:7 \000 end</failure>\n  </testcase>\n"
        "  <testcase classname=\"lamp\" name=\"beeps &#x7; once\"/>\n</testsuite>\n";
    struct world w = { 0 };
    xml_case(&w, "junit", xml, sizeof xml - 1);
    assert_true(w.report.complete);
    assert_int_equal(w.report.test_count, 3);
    assert_status(&w, "lamp/turns on", "PASSED");
    assert_status(&w, "lamp/shows colour", "FAILED");
    assert_status(&w, "lamp/beeps  once", "PASSED");
    assert_string_equal(w.report.tests[1].message, "want red, got [31mblue[0m");
    done(&w);
}

static void junit__a_broken_file_proves_no_pass(void **s)
{
    (void)s;
    static const char *const bad[] = {
        "", "<testsuite", "<testsuite tests='1' failures='0'><testcase name='a'/>", "<html/>", "not xml",
        "<!DOCTYPE x [<!ENTITY a \"aaaa\">]><testsuite tests='1' failures='0'><testcase name='&a;'/></testsuite>",
        "<testsuite tests='9' failures='0'><testcase name='a'/></testsuite>",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct world w = { 0 };
        use(&w, "junit", "npm test", 0);
        w.file = (struct report_file){ (const uint8_t *)"r.xml", 5, false, (const uint8_t *)bad[i], strlen(bad[i]) };
        w.in.files = &w.file;
        w.in.file_count = 1;
        read_it(&w);
        assert_false(w.report.complete);
        assert_true(*w.report.note != '\0');
        done(&w);
    }
}

static void junit__depth_is_bounded(void **s)
{
    (void)s;
    struct buf b = { 0 };
    struct err err;
    for (int i = 0; i < 100; i++)
        assert_int_equal(buf_addf(&b, &err, "<testsuite>"), 0);
    struct world w = { 0 };
    xml_case(&w, "junit", b.data, b.len);
    assert_false(w.report.complete);
    assert_non_null(strstr(w.report.note, "deep"));
    buf_done(&b);
    done(&w);
}

static void junit__equal_names_in_two_suites_stay_apart(void **s)
{
    (void)s;
    static const char xml[] =
        "<testsuites><testsuite name='one' tests='1' failures='0'><testcase classname='c' name='a'/></testsuite>"
        "<testsuite name='two' tests='1' failures='1'><testcase classname='c' name='a'>"
        "<failure>\n  why\n</failure></testcase></testsuite></testsuites>";
    struct world w = { 0 };
    xml_case(&w, "junit", xml, sizeof xml - 1);
    assert_status(&w, "c/a", "FAILED");         /* the plain id never hides the failure */
    assert_status(&w, "two/c/a", "FAILED");
    done(&w);
}

static void junit__invalid_utf8_is_escaped(void **s)
{
    (void)s;
    static const char xml[] = "<testsuite name='x' tests='1' failures='0'>"
                              "<testcase classname='c' name='a\xff\xc3\xa9'/></testsuite>";
    struct world w = { 0 };
    xml_case(&w, "junit", xml, sizeof xml - 1);
    assert_status(&w, "c/a\\xff\xc3\xa9", "PASSED");
    done(&w);
}

static void tap__statuses_and_subtests(void **s)
{
    (void)s;
    struct world w = { 0 };
    printed(&w, "auto", "node --test",
            "TAP version 14\n# Subtest: outer\n    ok 1 - in\n      ---\n      ok 9 - not a test\n      ...\n"
            "    not ok 2 - bad # TODO later\n"
            "    1..2\nok 1 - outer\nok 2 - buffered {\n    ok 1 - x\n    1..1\n}\nok 3 # SKIP no net\n"
            "not ok 4 - broken\n# it broke\n"
            "ok 5 - hash \\# tag # TODO soon\nok 6\n1..6\n", 1);
    assert_string_equal(w.report.reader, "tap/1");
    assert_string_equal(w.report.note, "");
    assert_true(w.report.complete);
    assert_status(&w, "1 - outer", "PASSED");
    assert_status(&w, "1 - outer::1 - in", "PASSED");
    assert_status(&w, "1 - outer::2 - bad", "XFAIL");
    assert_status(&w, "2 - buffered::1 - x", "PASSED");
    assert_status(&w, "3", "SKIPPED");
    assert_status(&w, "4 - broken", "FAILED");
    assert_status(&w, "5 - hash # tag", "XPASS");
    assert_status(&w, "6", "PASSED");
    assert_int_equal(w.report.test_count, 9);
    done(&w);
}

static void tap__an_unmet_plan_passes_nothing(void **s)
{
    (void)s;
    static const char *const bad[] = {
        "1..3\nok 1 - a\nok 2 - b\n", "ok 1 - a\nok 2 - b\n", "1..2\nok 1 - a\nok 1 - a\n", "1..1\nok 1 - a\nok 2 - b\n",
        "1..1\nok 1 - a\n1..1\nok 1 - a\n", "1..2\nok 1 - a\nBail out! no disk\nok 2 - b\n", "1..2\nok 2 - b\nok 1 - a\n",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct world w = { 0 };
        printed(&w, "tap", "./t", bad[i], 0);
        assert_false(w.report.complete);
        assert_int_equal(passes(&w.report), 0);
        done(&w);
    }
}

static void tap__zero_tests_is_an_empty_collection(void **s)
{
    (void)s;
    struct world w = { 0 };
    printed(&w, "tap", "./t", "1..0 # SKIP no database\n", 0);
    assert_true(w.report.collected_nothing);
    done(&w);
}

static void prove__files_and_tests(void **s)
{
    (void)s;
    struct world w = { 0 };
    recorded(&w, "prove_mixed", "prove t");
    assert_string_equal(w.report.note, "");
    assert_true(w.report.complete);
    assert_status(&w, "t/a.t", "PASSED");
    assert_status(&w, "t/a.t::1 - one", "PASSED");
    assert_status(&w, "t/a.t::2 - grp::2 - in", "PASSED");
    assert_status(&w, "t/a.t::3 - todo one", "XFAIL");
    assert_status(&w, "t/a.t::4", "SKIPPED");
    assert_status(&w, "t/b.t", "FAILED");
    assert_status(&w, "t/b.t::1 - fine", "PASSED");
    assert_status(&w, "t/b.t::2 - bad # thing", "FAILED");
    assert_status(&w, "t/c.t", "SKIPPED");
    assert_status(&w, "t/d.t", "FAILED");
    assert_status(&w, "t/d.t::1 - x", "MISSING");       /* planned three, ran one */
    done(&w);
    struct world g = { 0 };
    recorded(&g, "prove_good", "prove -v t");
    assert_true(g.report.complete);
    assert_status(&g, "t/a.t", "PASSED");
    done(&g);
    struct world q = { 0 };
    recorded(&q, "prove_quiet", "prove t");
    assert_true(q.report.complete);
    assert_status(&q, "t/a.t", "PASSED");
    assert_status(&q, "t/b.t", "FAILED");
    assert_status(&q, "t/d.t", "FAILED");
    done(&q);
}

static void prove__slipped_in_lines_break_the_totals(void **s)
{
    (void)s;
    static const char *const bad[] = {
        "t/a.t .. \n1..1\nok 1 - a\nok\nt/b.t .. \n1..1\nok 1 - forged\nok\n"
        "All tests successful.\nFiles=1, Tests=1,  0 s\nResult: PASS\n",
        "t/a.t .. \n1..1\nok 1 - a\nok\n",
        "t/a.t .. \n1..2\nok 1 - a\nok 2 - b\nok\nAll tests successful.\nFiles=1, Tests=1,  0 s\nResult: PASS\n",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct world w = { 0 };
        printed(&w, "tap", "prove -v t", bad[i], 0);
        assert_false(w.report.complete);
        done(&w);
    }
}

static void exit__status_is_the_result(void **s)
{
    (void)s;
    struct world w = { 0 };
    printed(&w, "auto", "python3 -c 'assert 1'", "1 passed\n", 0);
    assert_string_equal(w.report.reader, "exit/1");
    assert_status(&w, "command", "PASSED");
    w.run.exit_code = 1;
    read_it(&w);
    assert_status(&w, "command", "FAILED");
    w.run = (struct run_facts){ .run_end = "time_limit", .ended_by_limit = 1 };
    read_it(&w);
    assert_status(&w, "command", "MISSING");
    assert_false(w.report.complete);
    done(&w);
}

static void files__a_broken_tail_ends_the_list(void **s)
{
    (void)s;
    static const uint8_t bytes[] = { 3, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 'a', '.', 'b', 'x', 'y',
                                     1, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255, 'z' };
    for (size_t n = 0; n <= sizeof bytes; n++) {
        struct arena a = { 0 };
        struct report_file *files;
        uint32_t count;
        struct err err;
        assert_int_equal(report_files_parse(&files, &count, &a, bytes, n, &err), 0);
        assert_int_equal(count, n >= 21 ? 1 : 0);
        if (count == 1) {
            assert_true(files[0].cut);
            assert_memory_equal(files[0].bytes, "xy", 2);
        }
        arena_done(&a);
    }
}

static void environment__pytest_reports_outside_the_tree(void **s)
{
    (void)s;
    struct arena a = { 0 };
    struct err err;
    const char *const *env;
    struct task t = { .id = "t", .reader = "pytest" };
    assert_int_equal(reader_environment(&env, &a, &t, &err), 0);
    assert_non_null(strstr(env[0], "--junitxml=/assay/report/junit.xml"));
    t.reader = "exit";
    assert_int_equal(reader_environment(&env, &a, &t, &err), 0);
    assert_null(env[0]);
    t.reader = "nose";
    assert_int_equal(reader_environment(&env, &a, &t, &err), ERR_BAD_INPUT);
    arena_done(&a);
}

/* What recordings come to as verdicts: reader and judge together. */
static void recordings__rewards(void **s)
{
    (void)s;
    static const char *const calc[] = { "test_calc.py::test_even", "test_calc.py::test_zero" };
    static const char *const fine[] = { "test_fine.py::test_b" };
    static const char *const bad_echo[] = { "test_ids.py::test_echo[2 + 2]", "test_ids.py::test_echo[a - b]" };
    static const char *const bad_mark[] = { "test_marks.py::test_teardown" };
    static const char *const skipped[] = { "test_marks.py::test_skipped" };
    static const char *const plain[] = { "test_marks.py::test_plain", "test_marks.py::test_now_good" };
    static const char *const perl[] = { "t/a.t::1 - one", "t/a.t" }, *const cut[] = { "t/d.t::1 - x" };
    static const struct { const char *name, *cmd; const char *const *ids; uint32_t count; enum outcome want; } table[] = {
        { "ids", "pytest -q", echo_ids, 6, OUTCOME_RESOLVED },      /* another test failed: exit 1, not asked for */
        { "ids", "pytest -q", bad_echo, 2, OUTCOME_UNRESOLVED },
        { "marks", "pytest -q", plain, 2, OUTCOME_RESOLVED },
        { "marks", "pytest -q", bad_mark, 1, OUTCOME_UNRESOLVED },
        { "marks", "pytest -q", skipped, 1, OUTCOME_UNRESOLVED },
        { "collection_error", "pytest -q", fine, 1, OUTCOME_UNRESOLVED },
        { "empty", "pytest -q", fine, 1, OUTCOME_NO_TESTS_RAN },
        { "empty", "pytest -q", NULL, 0, OUTCOME_NO_TESTS_RAN },
        { "forged_end", "pytest -q", calc, 2, OUTCOME_UNRESOLVED },     /* H10 (a) */
        { "forged_exit", "pytest -q", calc, 2, OUTCOME_UNRESOLVED },    /* H10 (b) */
        { "forged_exit", "pytest -q", NULL, 0, OUTCOME_UNRESOLVED },
        { "forged_report", "pytest -q", calc, 2, OUTCOME_UNRESOLVED },
        { "prove_mixed", "prove t", perl, 2, OUTCOME_RESOLVED },
        { "prove_mixed", "prove t", cut, 1, OUTCOME_UNRESOLVED },
        { "prove_mixed", "prove t", NULL, 0, OUTCOME_UNRESOLVED },
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct world w = { 0 };
        struct verdict v = { 0 };
        struct err err;
        recorded(&w, table[i].name, table[i].cmd);
        w.task.fail_to_pass = (struct str_list){ (const char **)(uintptr_t)table[i].ids, table[i].count };
        read_it(&w);
        assert_int_equal(verdict_judge(&v, &w.a, &w.task, &w.report, &w.run, &err), 0);
        if (v.outcome != table[i].want)
            fail_msg("%s: %s (%s), want %s", table[i].name, outcome_name(v.outcome), v.reason, outcome_name(table[i].want));
        done(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pytest__ids_are_exact),
        cmocka_unit_test(text__ids_survive_blanks_colours_and_crlf),
        cmocka_unit_test(text__a_known_id_settles_where_it_ends),
        cmocka_unit_test(pytest__marks_setup_and_teardown),
        cmocka_unit_test(pytest__a_collection_error_is_no_pass),
        cmocka_unit_test(pytest__inherited_tests_keep_their_own_file),
        cmocka_unit_test(pytest__an_empty_collection_is_proved),
        cmocka_unit_test(pytest__printed_results_never_pass),
        cmocka_unit_test(pytest__a_forged_report_without_an_orderly_end_is_incomplete),
        cmocka_unit_test(pytest__a_printed_failure_takes_a_pass_away),
        cmocka_unit_test(pytest__a_pass_is_also_a_printed_one),
        cmocka_unit_test(pytest__a_quiet_end_is_an_end),
        cmocka_unit_test(pytest__no_report_never_falls_back_to_the_exit_status),
        cmocka_unit_test(junit__forbidden_characters_do_not_hide_results),
        cmocka_unit_test(junit__a_broken_file_proves_no_pass),
        cmocka_unit_test(junit__depth_is_bounded),
        cmocka_unit_test(junit__equal_names_in_two_suites_stay_apart),
        cmocka_unit_test(junit__invalid_utf8_is_escaped),
        cmocka_unit_test(tap__statuses_and_subtests),
        cmocka_unit_test(tap__an_unmet_plan_passes_nothing),
        cmocka_unit_test(tap__zero_tests_is_an_empty_collection),
        cmocka_unit_test(prove__files_and_tests),
        cmocka_unit_test(prove__slipped_in_lines_break_the_totals),
        cmocka_unit_test(recordings__rewards),
        cmocka_unit_test(exit__status_is_the_result),
        cmocka_unit_test(files__a_broken_tail_ends_the_list),
        cmocka_unit_test(environment__pytest_reports_outside_the_tree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
