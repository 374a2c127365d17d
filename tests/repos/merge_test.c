/* merge_test.c - what models write around, into and instead of a diff; and what the merge protects. */
#include "tests/repos/fixture.h"

#define GIT(p) "diff --git a/" p " b/" p "\n"
#define HEADS(p) GIT(p) "--- a/" p "\n+++ b/" p "\n"
#define NEW(p) GIT(p) "new file mode 100644\n--- /dev/null\n+++ b/" p "\n"

struct row {
    const char *patch;
    enum merge_outcome outcome;
    const char *file, *want;        /* a file afterwards; want NULL: gone */
    const char *told;               /* part of a finding, or of the reason; NULL: no finding */
};

static void check_rows(struct fixture *f, const struct row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct row *r = &rows[i];
        fixture_merge(f, r->patch, strlen(r->patch));
        if (f->m.outcome != r->outcome)
            fail_msg("row %zu: outcome %d, reason \"%s\"", i, (int)f->m.outcome, f->m.reason);
        if (r->outcome == MERGE_FAILED ? strstr(f->m.reason, r->told) == NULL : r->told != NULL && !has_finding(f, r->told))
            fail_msg("row %zu: not told \"%s\"; reason \"%s\", first of %u findings \"%s\"", i, r->told, f->m.reason, f->m.findings.count,
                     f->m.findings.count > 0 ? f->m.findings.items[0] : "");
        if (r->outcome == MERGE_APPLIED && r->told == NULL && f->m.findings.count > 0)
            fail_msg("row %zu: a finding: %s", i, f->m.findings.items[0]);
        if (r->outcome != MERGE_FAILED && r->file != NULL) {
            char path[300];
            snprintf(path, sizeof path, "out/%s", r->file);
            char *got = slurp(f->top, path, NULL);
            if ((got == NULL) != (r->want == NULL) || (got != NULL && strcmp(got, r->want) != 0))
                fail_msg("row %zu: %s is \"%s\"", i, r->file, got != NULL ? got : "(gone)");
            free(got);
        }
    }
}
#define CHECK_ROWS(f, rows) check_rows(f, rows, sizeof rows / sizeof rows[0])

#define BODY "@@ -2,3 +2,3 @@\n two\n-three\n+THREE\n four\n"
#define AFTER "one\ntwo\nTHREE\nfour\nfive\nsix\nseven\neight\nnine\nten\n"
#define NUMBERS "one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\nten\n"

static void merge__takes_a_diff_out_of_what_is_around_it(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f, "printf 'one\\ntwo\\nthree\\nfour\\nfive\\nsix\\nseven\\neight\\nnine\\nten\\n' >n.txt; mkdir a b; cp n.txt a/same; cp n.txt same; cp n.txt a/only; echo x >b/x");
    static const struct row rows[] = {
        { "Here is the fix:\n\n```diff\n" HEADS("n.txt") BODY "```\nIt changes\n- one line\n+ nothing else\n", MERGE_APPLIED, "n.txt", AFTER, NULL },
        { "From 0123456789 Mon Sep 17 00:00:00 2001\nFrom: A <a@b>\nSubject: [PATCH] x\n\ntext\n---\n n.txt | 2 +-\n 1 file changed, 1 insertion(+), 1 deletion(-)\n\n"
          HEADS("n.txt") BODY "-- \n2.39.5\n\n", MERGE_APPLIED, "n.txt", AFTER, NULL },
        { "Index: n.txt\n===================================================================\n--- n.txt\t(revision 1)\n+++ n.txt\t(working copy)\n" BODY,
          MERGE_APPLIED, "n.txt", AFTER, NULL },
        { "--- n.txt.orig\t2026-01-01 00:00:00.000000000 +0000\n+++ n.txt\t2026-01-01 00:00:00.000000000 +0000\n" BODY, MERGE_APPLIED, "n.txt", AFTER, NULL },
        { "--- old/n.txt\n+++ new/n.txt\n" BODY, MERGE_APPLIED, "n.txt", AFTER, NULL },
        { "--- ./n.txt\n+++ ./n.txt\n" BODY, MERGE_APPLIED, "n.txt", AFTER, NULL },
        { "--- i/n.txt\n+++ w/n.txt\n" BODY, MERGE_APPLIED, "n.txt", AFTER, NULL },
        { "--- a/n.txt\r\n+++ b/n.txt\r\n" BODY, MERGE_APPLIED, "n.txt", AFTER, NULL },
        { HEADS("n.txt") BODY "\n\nThat is all.\n", MERGE_APPLIED, "n.txt", AFTER, NULL },
        { HEADS("n.txt") BODY "\n- a list\n- of notes\n", MERGE_APPLIED, "n.txt", AFTER, "taken for prose" },
        { HEADS("n.txt") "@@ -1,2 +1,2 @@\n-one\n+ONE\n two\n\nand further down\n\n@@ -9,2 +9,2 @@\n nine\n-ten\n+TEN\n", MERGE_APPLIED, "n.txt",
          "ONE\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\nTEN\n", NULL },
        /* names that can be read two ways: "a" and "b" are directories here */
        { "--- a/same\n+++ b/same\n" BODY, MERGE_APPLIED, "same", AFTER, NULL },
        { "--- a/same\n+++ a/same\n" BODY, MERGE_FAILED, NULL, NULL, "could be same as well" },
        { "--- a/only\n+++ a/only\n" BODY, MERGE_APPLIED, "a/only", AFTER, NULL },
        { "--- a/n.txt\n+++ a/n.txt\n" BODY, MERGE_APPLIED, "n.txt", AFTER, NULL },
        { "--- /dev/null\n+++ b/new\n@@ -0,0 +1 @@\n+x\n", MERGE_FAILED, NULL, NULL, "could be new as well" },
        { "--- /dev/null\n+++ b/new\n@@ -0,0 +1 @@\n+x\n" HEADS("n.txt") BODY, MERGE_APPLIED, "new", "x\n", NULL },
        { "--- /dev/null\n+++ b/new\n@@ -0,0 +1 @@\n+x\n--- n.txt\n+++ n.txt\n" BODY, MERGE_APPLIED, "b/new", "x\n", NULL },
        { "--- /dev/null\n+++ fresh/new\n@@ -0,0 +1 @@\n+x\n", MERGE_APPLIED, "fresh/new", "x\n", NULL },
        { GIT("n.txt") "--- a/same\n+++ b/same\n" BODY, MERGE_FAILED, NULL, NULL, "names n.txt" },
        /* no diff at all */
        { "I could not find the bug.\n", MERGE_FAILED, NULL, NULL, "no unified diff" },
        { "@@ -1 +1 @@\n-one\n+ONE\n", MERGE_FAILED, NULL, NULL, "without a file name" },
        { HEADS("n.txt") "@@ -x +y @@\n-one\n+ONE\n", MERGE_FAILED, NULL, NULL, "hunk header is malformed" },
        { HEADS("n.txt") "@@ def f @@\n-one\n+ONE\n", MERGE_FAILED, NULL, NULL, "hunk header is malformed" },
        { "diff --cc n.txt\n--- a/n.txt\n+++ b/n.txt\n@@@ -1,1 -1,1 +1,1 @@@\n  one\n", MERGE_FAILED, NULL, NULL, "combined diff" },
        { GIT("n.txt"), MERGE_EMPTY, "n.txt", NUMBERS, "holds no change" },
        { GIT("n.txt") "old mode 100644\nnew mode 100755\n", MERGE_APPLIED, "n.txt", NUMBERS, NULL },
    };
    CHECK_ROWS(&f, rows);
    fixture_close(&f);
}

static void merge__places_hunks_or_says_where_they_fail(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f, "printf 'one\\ntwo\\nthree\\nfour\\nfive\\nsix\\nseven\\neight\\nnine\\nten\\n' >n.txt; "
                     "printf 'x\\na\\nb\\nc\\ny\\na\\nb\\nc\\nz\\nw\\n' >twice; : >empty; printf 'no newline' >bare; yes '' | head -n 50 >blank");
    static const struct row rows[] = {
        /* counts */
        { HEADS("n.txt") "@@ -2,7 +2,9 @@\n two\n-three\n+THREE\n four\n" HEADS("empty") "@@ -0,0 +1 @@\n+x\n", MERGE_APPLIED, "n.txt", AFTER, "header counts" },
        { HEADS("n.txt") "@@ -2,2 +2,1 @@\n two\n-three\n+THREE\n four\n", MERGE_APPLIED, "n.txt", AFTER, "header counts" },
        { HEADS("n.txt") "@@ -2,7 +2,9 @@\n two\n-three\n+THREE\n four\n", MERGE_FAILED, NULL, NULL, "is cut off" },
        { HEADS("n.txt") "@@ -2,3 +2,4 @@\n two\n-three\n+THREE\n four\n", MERGE_FAILED, NULL, NULL, "is cut off" },
        { HEADS("n.txt") "@@ -2,3 +2,4 @@\n two\n-three\n+THREE\n four\n```\n", MERGE_APPLIED, "n.txt", AFTER, "header counts" },
        { HEADS("n.txt") "@@ -2,3 +2,3 @@\n two\n-three\n+THREE\n four\n-fife\n", MERGE_FAILED, NULL, NULL, "do not fit its header" },
        { NEW("new") "@@ -0,0 +1,5 @@\n+a\n+b\n", MERGE_FAILED, NULL, NULL, "is cut off" },
        { GIT("new") "new file mode 100644\nindex 0000000..7898192\n", MERGE_FAILED, NULL, NULL, "looks cut off" },
        /* places */
        { HEADS("n.txt") "@@ -5,3 +5,3 @@\n two\n-three\n+THREE\n four\n", MERGE_APPLIED, "n.txt", AFTER, "n.txt:2: hunk 1 applied 3 line(s) above" },
        { HEADS("n.txt") "@@ -1,3 +1,3 @@\n two\n-three\n+THREE\n four\n", MERGE_APPLIED, "n.txt", AFTER, "only place that matches" },
        { HEADS("n.txt") "@@ -2,2 +2,2 @@\n two\n-three\n+THREE\n", MERGE_APPLIED, "n.txt", AFTER, "placed by its line number" },
        { HEADS("n.txt") "@@ -3 +3 @@\n-three\n+THREE\n", MERGE_APPLIED, "n.txt", AFTER, "placed by its line number" },
        { HEADS("n.txt") "@@ -3,0 +4 @@\n+between\n", MERGE_FAILED, NULL, NULL, "hunk 1 has no context" },
        { HEADS("n.txt") "@@ -1,5 +1,5 @@\n eins\n two\n-three\n+THREE\n four\n five\n", MERGE_APPLIED, "n.txt", AFTER, "fuzz 1" },
        { HEADS("n.txt") "@@ -1,5 +1,5 @@\n eins\n zwei\n-three\n+THREE\n four\n five\n", MERGE_APPLIED, "n.txt", AFTER, "fuzz 2" },
        { HEADS("n.txt") "@@ -2,3 +2,3 @@\n two\n-drei\n+THREE\n four\n", MERGE_FAILED, NULL, NULL,
          "n.txt:3: hunk 1 does not match: expected \"drei\\n\", the file has \"three\\n\"" },
        { HEADS("n.txt") "@@ -2,3 +2,3 @@\n two\n-three \n+THREE\n four\n", MERGE_FAILED, NULL, NULL, "only white space differs" },
        { HEADS("twice") "@@ -4,3 +4,3 @@\n a\n-b\n+B\n c\n", MERGE_FAILED, NULL, NULL, "hunk 1" },     /* two lines above, two below */
        { HEADS("twice") "@@ -5,3 +5,3 @@\n a\n-b\n+B\n c\n", MERGE_APPLIED, "twice", "x\na\nb\nc\ny\na\nB\nc\nz\nw\n", "1 line(s) below" },
        { HEADS("twice") "@@ -2,4 +2,4 @@\n q\n a\n-b\n+B\n c\n", MERGE_FAILED, NULL, NULL, "hunk 1 does not match" },    /* fuzz is not unique */
        { HEADS("blank") "@@ -70,3 +70,4 @@\n \n \n+x\n \n", MERGE_FAILED, NULL, NULL, "hunk 1" },
        { HEADS("n.txt") "@@ -9,2 +9,2 @@\n nine\n-ten\n+TEN\n@@ -2,3 +2,3 @@\n two\n-three\n+THREE\n four\n", MERGE_FAILED, NULL, NULL, "hunk 2" },
        { HEADS("bare") "@@ -1 +1 @@\n-no newline\n+newline\n", MERGE_FAILED, NULL, NULL, "the newline at the end of the file differs" },
        { HEADS("bare") "@@ -1 +1 @@\n-no newline\n\\ No newline at end of file\n+newline\n", MERGE_APPLIED, "bare", "newline\n", NULL },
        { HEADS("bare") "@@ -1 +1,2 @@\n no newline\n\\ No newline at end of file\n+more\n", MERGE_FAILED, NULL, NULL, "inside the file" },
        /* again */
        { HEADS("n.txt") "@@ -2,3 +2,3 @@\n two\n-drei\n+three\n four\n", MERGE_FAILED, NULL, NULL, "looks already applied" },
        { HEADS("n.txt") "@@ -6,4 +6,5 @@\n two\n three\n+four\n five\n six\n", MERGE_FAILED, NULL, NULL, "looks already applied" },
        { HEADS("n.txt") "@@ -1,2 +1,3 @@\n one\n+two\n three\n", MERGE_FAILED, NULL, NULL, "looks already applied" },
        { NEW("empty") , MERGE_FAILED, NULL, NULL, "looks already applied" },
        { NEW("bare") "@@ -0,0 +1 @@\n+no newline\n\\ No newline at end of file\n", MERGE_FAILED, NULL, NULL, "looks already applied" },
        { NEW("bare") "@@ -0,0 +1 @@\n+other\n", MERGE_FAILED, NULL, NULL, "is there already" },
        { GIT("gone") "deleted file mode 100644\n--- a/gone\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n", MERGE_FAILED, NULL, NULL, "looks already applied" },
        { GIT("m") "similarity index 100%\nrename from gone\nrename to m\n", MERGE_FAILED, NULL, NULL, "looks already applied" },
        { GIT("bare") "similarity index 100%\nrename from n.txt\nrename to bare\n", MERGE_FAILED, NULL, NULL, "is there already" },
        { HEADS("gone") "@@ -1 +1 @@\n-x\n+y\n", MERGE_FAILED, NULL, NULL, "gone: line 1: no such file" },
        { GIT("bare") "deleted file mode 100644\n--- a/bare\n+++ /dev/null\n@@ -1,2 +1 @@\n-one\n two\n", MERGE_FAILED, NULL, NULL, "does not match" },
        /* all or nothing */
        { HEADS("n.txt") BODY HEADS("twice") "@@ -1 +1 @@\n-q\n+r\n", MERGE_FAILED, NULL, NULL, "twice:1: hunk 1" },
        /* several sections for one file */
        { HEADS("n.txt") BODY HEADS("n.txt") "@@ -2,3 +2,3 @@\n two\n-THREE\n+3\n four\n", MERGE_APPLIED, "n.txt",
          "one\ntwo\n3\nfour\nfive\nsix\nseven\neight\nnine\nten\n", NULL },
        { NEW("new") "@@ -0,0 +1 @@\n+x\n" HEADS("new") "@@ -1 +1 @@\n-x\n+y\n", MERGE_APPLIED, "new", "y\n", NULL },
        { GIT("m") "similarity index 100%\nrename from n.txt\nrename to m\n" HEADS("m") BODY, MERGE_APPLIED, "m", AFTER, NULL },
        { HEADS("n.txt") BODY HEADS("n.txt") "@@ -2,3 +2,3 @@\n two\n-THREE\n+three\n four\n", MERGE_EMPTY, "n.txt", NUMBERS, NULL },
    };
    CHECK_ROWS(&f, rows);
    fixture_close(&f);
}

static void merge__ends_early_on_costly_patches(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f, "yes same | head -n 300000 >same; echo end >>same");
    struct buf p = { .max = (size_t)32 << 20 };
    struct err err = { 0 };
    assert_int_equal(buf_addf(&p, &err, HEADS("same") "@@ -5,100000 +5,100000 @@\n"), 0);
    for (int i = 0; i < 99999; i++)
        assert_int_equal(buf_addf(&p, &err, " same\n"), 0);
    assert_int_equal(buf_addf(&p, &err, "-other\n+x\n"), 0);
    fixture_merge(&f, p.data, p.len);
    assert_int_equal(f.m.outcome, MERGE_FAILED);
    assert_non_null(strstr(f.m.reason, "takes too long"));
    buf_done(&p);
    /* a few bytes that unpack into more than they say */
    static const char bomb[] = GIT("x") "new file mode 100644\nindex 0000000000000000000000000000000000000000..5005dcb40305e2bf0f706c2e955732fdc4907ec2\n"
                               "GIT binary patch\nliteral 5\nNcmeBV_|L`b1ONxJ0pb7v\n\n";
    fixture_merge(&f, bomb, sizeof bomb - 1);
    assert_int_equal(f.m.outcome, MERGE_FAILED);
    assert_non_null(strstr(f.m.reason, "damaged"));
    /* copies of a large file: the sum counts */
    assert_int_equal(sh(f.top, "cd repos/r; head -c 60000000 /dev/zero >big; git add -A; git commit -qm big; git rev-parse HEAD >../../head"), 0);
    fixture_import(&f);
    struct buf q = { 0 };
    for (int i = 0; i < 10; i++)
        assert_int_equal(buf_addf(&q, &err, "diff --git a/big b/c%d\nsimilarity index 100%%\ncopy from big\ncopy to c%d\n", i, i), 0);
    fixture_merge(&f, q.data, q.len);
    assert_int_equal(f.m.outcome, MERGE_FAILED);
    assert_non_null(strstr(f.m.reason, "MiB together"));
    buf_done(&q);
    /* an arena with a budget: the patch's fault, not ours */
    own_arena small = { .budget = 200000 };
    struct merge m;
    struct buf r = { 0 };
    assert_int_equal(buf_addf(&r, &err, NEW("n") "@@ -0,0 +1,20000 @@\n"), 0);
    for (int i = 0; i < 20000; i++)
        assert_int_equal(buf_addf(&r, &err, "+line %d\n", i), 0);
    assert_int_equal(merge_task_patch(&m, &small, f.store, &f.t, r.data, r.len, &err), 0);
    assert_int_equal(m.outcome, MERGE_FAILED);
    assert_non_null(strstr(m.reason, "memory"));
    buf_done(&r);
    fixture_close(&f);
}

static void merge__keeps_runner_files_and_hidden_tests(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f, "mkdir -p tests/sub; echo base >tests/conftest.py; echo old >tests/test_a.py; echo gone >tests/test_gone.py; echo 1 >src.py; "
                     "echo cfg >setup.cfg; echo s >tests/sub/x.py; echo kept >tests/test_kept.py; echo free >tests/test_free.py; echo doc >doc.py; "
                     "mkdir pluggy; touch pluggy/__init__.py");
    static const char *fail_to_pass[] = { "tests/test_a.py::x", "tests/test_wanted.py::x", "doc.py::doc" };
    static const char *pass_to_pass[] = { "tests/test_kept.py::T::x[tests/test_free.py::]", "tests/test_free.pyx" };
    f.t.fail_to_pass = (struct str_list){ fail_to_pass, 3 };
    f.t.pass_to_pass = (struct str_list){ pass_to_pass, 2 };
    f.t.test_patch = HEADS("tests/test_a.py") "@@ -1 +1 @@\n-old\n+official\n"
                     GIT("tests/test_gone.py") "deleted file mode 100644\n--- a/tests/test_gone.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-gone\n"
                     NEW("tests/new/test_b.py") "@@ -0,0 +1 @@\n+official b\n" NEW("tests/new/conftest.py") "@@ -0,0 +1 @@\n+official conftest\n";
#define SRC HEADS("src.py") "@@ -1 +1 @@\n-1\n+2\n"
    static const struct row rows[] = {
        { SRC HEADS("tests/conftest.py") "@@ -1 +1 @@\n-base\n+evil\n", MERGE_APPLIED, "tests/conftest.py", "base\n", "tests/conftest.py: test runner configuration, put back" },
        { SRC GIT("tests/conftest.py") "deleted file mode 100644\n--- a/tests/conftest.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-base\n",
          MERGE_APPLIED, "tests/conftest.py", "base\n", "put back" },
        { GIT("x.py") "similarity index 100%\nrename from tests/conftest.py\nrename to x.py\n", MERGE_APPLIED, "tests/conftest.py", "base\n", "put back" },
        { SRC NEW("conftest.py") "@@ -0,0 +1 @@\n+evil\n", MERGE_APPLIED, "conftest.py", NULL, "conftest.py: test runner configuration, not taken" },
        { SRC NEW("pytest.ini") "@@ -0,0 +1 @@\n+evil\n", MERGE_APPLIED, "pytest.ini", NULL, "not taken" },
        { SRC NEW("a/b/sitecustomize/__init__.py") "@@ -0,0 +1 @@\n+evil\n", MERGE_APPLIED, "a", NULL, "not taken" },
        { SRC NEW("usercustomize.py") "@@ -0,0 +1 @@\n+evil\n", MERGE_APPLIED, "usercustomize.py", NULL, "not taken" },
        { SRC NEW("lib/evil.pth") "@@ -0,0 +1 @@\n+evil\n", MERGE_APPLIED, "lib/evil.pth", NULL, "not taken" },
        { SRC NEW("__pycache__/src.cpython-311.pyc") "@@ -0,0 +1 @@\n+evil\n", MERGE_APPLIED, "__pycache__", NULL, "not taken" },
        { SRC NEW("a/src.pyc") "@@ -0,0 +1 @@\n+evil\n", MERGE_APPLIED, "a", NULL, "not taken" },
        { SRC NEW("e.dist-info/entry_points.txt") "@@ -0,0 +1 @@\n+evil\n", MERGE_APPLIED, "e.dist-info", NULL, "not taken" },
        { SRC NEW("lib/E.EGG-INFO/Entry_Points.txt") "@@ -0,0 +1 @@\n+evil\n", MERGE_APPLIED, "lib", NULL, "not taken" },
        { SRC GIT("e.egg-info") "new file mode 120000\n--- /dev/null\n+++ b/e.egg-info\n@@ -0,0 +1 @@\n+src\n\\ No newline at end of file\n",
          MERGE_APPLIED, "e.egg-info", NULL, "not taken" },
        { SRC NEW("e.dist-info/METADATA") "@@ -0,0 +1 @@\n+fine\n", MERGE_APPLIED, "e.dist-info/METADATA", "fine\n", NULL },
        { SRC NEW("pytest.py") "@@ -0,0 +1 @@\n+evil\n", MERGE_APPLIED, "pytest.py", NULL, "not taken" },
        { SRC NEW("_pytest/__init__.py") "@@ -0,0 +1 @@\n+evil\n", MERGE_APPLIED, "_pytest", NULL, "not taken" },
        { SRC NEW("pluggy/new.py") "@@ -0,0 +1 @@\n+fine\n", MERGE_APPLIED, "pluggy/new.py", "fine\n", NULL },    /* the project itself */
        { SRC NEW("pytest_helpers.py") "@@ -0,0 +1 @@\n+fine\n", MERGE_APPLIED, "pytest_helpers.py", "fine\n", NULL },
        { SRC NEW("tox.ini") "@@ -0,0 +1 @@\n+evil\n", MERGE_APPLIED, "tox.ini", NULL, "not taken" },
        { SRC GIT("conftest.py") "new file mode 120000\n--- /dev/null\n+++ b/conftest.py\n@@ -0,0 +1 @@\n+src.py\n\\ No newline at end of file\n",
          MERGE_APPLIED, "conftest.py", NULL, "not taken" },
        { SRC NEW("tests/new/conftest.py") "@@ -0,0 +1 @@\n+evil\n", MERGE_APPLIED, "tests/new/conftest.py", "official conftest\n", NULL },
        { HEADS("setup.cfg") "@@ -1 +1 @@\n-cfg\n+other\n", MERGE_APPLIED, "setup.cfg", "other\n", "setup.cfg: changed by the patch" },
        { SRC NEW("myconftest.py") "@@ -0,0 +1 @@\n+fine\n", MERGE_APPLIED, "myconftest.py", "fine\n", NULL },
        /* test files with required ids */
        { SRC HEADS("tests/test_kept.py") "@@ -1 +1 @@\n-kept\n+mine\n", MERGE_APPLIED, "tests/test_kept.py", "kept\n", "test_kept.py: holds required tests, put back" },
        { SRC GIT("tests/test_kept.py") "deleted file mode 100644\n--- a/tests/test_kept.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-kept\n",
          MERGE_APPLIED, "tests/test_kept.py", "kept\n", "put back" },
        { SRC HEADS("tests/test_free.py") "@@ -1 +1 @@\n-free\n+mine\n", MERGE_APPLIED, "tests/test_free.py", "mine\n", NULL },
        { SRC HEADS("doc.py") "@@ -1 +1 @@\n-doc\n+better\n", MERGE_APPLIED, "doc.py", "better\n", NULL },      /* doctests: the source itself */
        { SRC NEW("tests/test_wanted.py") "@@ -0,0 +1 @@\n+mine\n", MERGE_APPLIED, "tests/test_wanted.py", "mine\n", NULL },
        /* hidden tests */
        { SRC, MERGE_APPLIED, "tests/test_a.py", "official\n", NULL },
        { SRC, MERGE_APPLIED, "tests/test_gone.py", NULL, NULL },
        { SRC HEADS("tests/test_a.py") "@@ -1 +1 @@\n-old\n+mine\n", MERGE_APPLIED, "tests/test_a.py", "official\n", "tests/test_a.py: changed by the patch, the hidden" },
        { SRC HEADS("tests/test_a.py") "@@ -1 +1 @@\n-old\n+official\n", MERGE_APPLIED, "tests/test_a.py", "official\n", NULL },
        { SRC HEADS("tests/test_gone.py") "@@ -1 +1 @@\n-gone\n+back\n", MERGE_APPLIED, "tests/test_gone.py", NULL, "hidden tests' version" },
        { SRC NEW("tests/new/test_b.py/file") "@@ -0,0 +1 @@\n+x\n", MERGE_APPLIED, "tests/new/test_b.py", "official b\n", "tests/new/test_b.py: changed" },
        { SRC NEW("tests/new") "@@ -0,0 +1 @@\n+a file where the hidden tests have a directory\n", MERGE_APPLIED, "tests/new/test_b.py", "official b\n", NULL },
        { SRC GIT("tests/new") "new file mode 120000\n--- /dev/null\n+++ b/tests/new\n@@ -0,0 +1 @@\n+/etc\n\\ No newline at end of file\n",
          MERGE_APPLIED, "tests/new/test_b.py", "official b\n", NULL },
        { "", MERGE_EMPTY, "tests/test_a.py", "official\n", NULL },
        { HEADS("src.py") "@@ -1 +1 @@\n-9\n+2\n", MERGE_FAILED, NULL, NULL, "src.py:1: hunk 1" },
    };
    CHECK_ROWS(&f, rows);
    f.t.test_patch = HEADS("tests/test_a.py") "@@ -1 +1 @@\n-new\n+official\n";
    struct err err = { 0 };
    struct merge m;
    assert_int_equal(merge_task_patch(&m, &f.a, f.store, &f.t, SRC, strlen(SRC), &err), ERR_CORRUPT);
    assert_non_null(strstr(err.msg, "task t-1: its test_patch does not apply: tests/test_a.py:1: hunk 1"));
    fixture_close(&f);
}

static void mine_split__gives_two_patches_that_apply_alone(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f, "mkdir -p src tests web; echo 1 >src/a.py; echo 1 >tests/test_a.py; echo 1 >src/moved.py; printf '\\000\\001' >src/icon");
    assert_int_equal(sh(f.top, "cd repos/r; echo 2 >src/a.py; echo 2 >tests/test_a.py; git mv src/moved.py tests/moved.py; printf '\\000\\002' >src/icon; "
                               "echo t >web/x.spec.ts; echo t >src/foo_test.go; echo t >src/FooTest.java; echo s >src/contest.py; echo s >src/latest; "
                               "git add -A; git commit -qm head"), 0);
    char dir[4200];
    snprintf(dir, sizeof dir, "%s/repos/r", f.top);
    struct change_split c;
    struct err err = { 0 };
    assert_int_equal(mine_split(&c, &f.a, dir, "HEAD~1", "HEAD", &err), 0);
    assert_string_equal(c.base_commit, f.t.base_commit);
    static const char *const tests[] = { "src/FooTest.java", "src/foo_test.go", "tests/moved.py", "tests/test_a.py", "web/x.spec.ts" };
    static const char *const sources[] = { "src/a.py", "src/contest.py", "src/icon", "src/latest", "src/moved.py" };
    assert_int_equal(c.test_files.count, 5);
    assert_int_equal(c.source_files.count, 5);
    for (uint32_t i = 0; i < 5; i++) {
        assert_string_equal(c.test_files.items[i], tests[i]);
        assert_string_equal(c.source_files.items[i], sources[i]);
    }
    f.t.test_patch = c.test_patch;
    fixture_merge(&f, c.patch, strlen(c.patch));
    assert_int_equal(f.m.outcome, MERGE_APPLIED);
    assert_int_equal(f.m.findings.count, 0);
    char *cmd = arena_printf(&f.a, "cd repos/r; test $(git rev-parse 'HEAD^{tree}') = %s", f.m.tree);
    assert_int_equal(sh(f.top, cmd), 0);
    assert_int_equal(mine_split(&c, &f.a, dir, "HEAD~9", "HEAD", &err), ERR_BAD_INPUT);
    assert_non_null(strstr(err.msg, "HEAD~9"));
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merge__takes_a_diff_out_of_what_is_around_it), cmocka_unit_test(merge__places_hunks_or_says_where_they_fail),
        cmocka_unit_test(merge__ends_early_on_costly_patches), cmocka_unit_test(merge__keeps_runner_files_and_hidden_tests),
        cmocka_unit_test(mine_split__gives_two_patches_that_apply_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
