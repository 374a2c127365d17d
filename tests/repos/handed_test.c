/* handed_test.c - reported patch failures H01-H07 as tables: what applies, byte for byte, and what is refused. */
#include "tests/repos/fixture.h"

#define GIT(p) "diff --git a/" p " b/" p "\n"
#define HEADS(p) GIT(p) "--- a/" p "\n+++ b/" p "\n"
#define NEW(p) GIT(p) "new file mode 100644\n--- /dev/null\n+++ b/" p "\n"
#define MERGE(f, text) fixture_merge(f, text, sizeof(text) - 1)

/* H01 - the patch text lost its last newline */
static void h01__last_newline_lost(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f, "mkdir tank; printf 'def level(mm):\\n    return mm / 10\\n\\n\\nUNIT = \"cm\"\\n' >tank/gauge.py");
    MERGE(&f, HEADS("tank/gauge.py") "@@ -1,5 +1,5 @@\n def level(mm):\n-    return mm / 10\n+    return mm / 10.0 if mm > 0 else 0.0\n \n \n UNIT = \"cm\"");
    assert_int_equal(f.m.outcome, MERGE_APPLIED);
    assert_int_equal(f.m.findings.count, 0);
    EXPECT_FILE(&f, "tank/gauge.py", "def level(mm):\n    return mm / 10.0 if mm > 0 else 0.0\n\n\nUNIT = \"cm\"\n");
    MERGE(&f, HEADS("tank/gauge.py") "@@ -1,3 +1,3 @@\n def level(mm):\n-    return mm / 10\n+    return mm // 10\n \n");
    assert_int_equal(f.m.outcome, MERGE_APPLIED);
    EXPECT_FILE(&f, "tank/gauge.py", "def level(mm):\n    return mm // 10\n\n\nUNIT = \"cm\"\n");
    /* trimmed: the blank line that its header counts is in the file, so nothing but context was lost */
    MERGE(&f, HEADS("tank/gauge.py") "@@ -1,3 +1,3 @@\n def level(mm):\n-    return mm / 10\n+    return mm // 10");
    assert_int_equal(f.m.outcome, MERGE_APPLIED);
    assert_true(has_finding(&f, "header counts"));
    EXPECT_FILE(&f, "tank/gauge.py", "def level(mm):\n    return mm // 10\n\n\nUNIT = \"cm\"\n");
    fixture_close(&f);
}

/* H02 - CRLF file */
static void h02__crlf(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f, "printf '[pump]\\r\\nrate=3\\r\\nmode=auto\\r\\nunit=l\\r\\n' >cfg.ini");
    MERGE(&f, HEADS("cfg.ini") "@@ -1,4 +1,5 @@\n [pump]\r\n-rate=3\r\n+rate=4\r\n+burst=9\r\n mode=auto\r\n unit=l\r\n");
    assert_int_equal(f.m.outcome, MERGE_APPLIED);
    EXPECT_FILE(&f, "cfg.ini", "[pump]\r\nrate=4\r\nburst=9\r\nmode=auto\r\nunit=l\r\n");
    MERGE(&f, HEADS("cfg.ini") "@@ -1,4 +1,5 @@\n [pump]\n-rate=3\n+rate=4\n+burst=9\n mode=auto\n unit=l\n");
    assert_int_equal(f.m.outcome, MERGE_FAILED);
    assert_string_equal(f.m.reason, "cfg.ini:1: hunk 1 does not match (the line endings differ): expected \"[pump]\\n\", the file has \"[pump]\\x0d\\n\"");
    fixture_close(&f);
}

/* H03 - unquoted spaces, C-quoted non-ASCII, rename, new file in one patch */
static void h03__names(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f, "mkdir 'my docs'; printf 'one\\ntwo\\n' >'my docs/read me.txt'; printf 'x\\n' >\"$(printf 'gr\\303\\266\\303\\237e.txt')\"");
    MERGE(&f, "diff --git a/my docs/new page.txt b/my docs/new page.txt\nnew file mode 100644\n--- /dev/null\n+++ b/my docs/new page.txt\n"
              "@@ -0,0 +1 @@\n+hello\n"
              "diff --git a/my docs/read me.txt b/my docs/read it.txt\nsimilarity index 100%\nrename from my docs/read me.txt\nrename to my docs/read it.txt\n"
              "diff --git \"a/gr\\303\\266\\303\\237e.txt\" \"b/gr\\303\\266\\303\\237e.txt\"\n--- \"a/gr\\303\\266\\303\\237e.txt\"\n"
              "+++ \"b/gr\\303\\266\\303\\237e.txt\"\n@@ -1 +1 @@\n-x\n+y\n");
    assert_int_equal(f.m.outcome, MERGE_APPLIED);
    EXPECT_FILE(&f, "my docs/new page.txt", "hello\n");
    EXPECT_FILE(&f, "my docs/read it.txt", "one\ntwo\n");
    EXPECT_FILE(&f, "gr\303\266\303\237e.txt", "y\n");
    assert_int_equal(sh(f.top, "test $(find out -type f | wc -l) = 3"), 0);
    fixture_close(&f);
}

/* H04 - text fix plus a binary section */
#define SHAPE "diff --git a/shape.py b/shape.py\nindex 35e6ce2..a3c3c78 100644\n--- a/shape.py\n+++ b/shape.py\n@@ -1,2 +1,2 @@\n def area(w, h):\n-    return w + h\n+    return w * h\n"
static void h04__binary(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f, "printf 'def area(w, h):\\n    return w + h\\n' >shape.py; printf '\\000\\001\\002\\003' >icon.bin");
    MERGE(&f, "diff --git a/icon.bin b/icon.bin\nindex eaf36c1..5005dcb 100644\nBinary files a/icon.bin and b/icon.bin differ\n" SHAPE);
    assert_int_equal(f.m.outcome, MERGE_APPLIED);
    assert_true(has_finding(&f, "icon.bin: dropped"));
    EXPECT_FILE(&f, "icon.bin", "\0\1\2\3");
    EXPECT_FILE(&f, "shape.py", "def area(w, h):\n    return w * h\n");
#define ICON "diff --git a/icon.bin b/icon.bin\nindex eaf36c1daccfdf325514461cd1a2ffbc139b5464..5005dcb40305e2bf0f706c2e955732fdc4907ec2 100644\n" \
             "GIT binary patch\nliteral 6\nNcmeBV_|L`b1ONxJ0pb7v\n\nliteral 4\nLcmZQzWMT#Y01f~L\n\n"
    MERGE(&f, ICON SHAPE);
    assert_int_equal(f.m.outcome, MERGE_APPLIED);
    assert_int_equal(f.m.findings.count, 0);
    EXPECT_FILE(&f, "icon.bin", "\x89\0\xff\n\rB");
    EXPECT_FILE(&f, "shape.py", "def area(w, h):\n    return w * h\n");
    MERGE(&f, "diff --git a/icon.bin b/icon.bin\nindex eaf36c1daccfdf325514461cd1a2ffbc139b5464..5005dcb40305e2bf0f706c2e955732fdc4907ec2 100644\n"
              "GIT binary patch\nliteral 6\nNcmeBV_|L`b2ONxJ0pb7v\n\n" SHAPE);
    assert_int_equal(f.m.outcome, MERGE_FAILED);
    assert_non_null(strstr(f.m.reason, "icon.bin"));
    fixture_close(&f);
}

/* H05 - the patch brings its own version of the hidden test file */
#define BAD NEW("tests/test_slug_space.py") "@@ -0,0 +1,2 @@\n+def test_space():\n+    assert True\n"
#define FIX HEADS("slug.py") "@@ -1,2 +1,2 @@\n def slug(s):\n-    return s.lower()\n+    return s.lower().replace(\" \", \"-\")\n"
#define OFFICIAL "from slug import slug\n\ndef test_space():\n    assert slug(\"A B\") == \"a-b\"\n"
static void h05__hidden_tests_win(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f, "mkdir tests; printf 'def slug(s):\\n    return s.lower()\\n' >slug.py; "
                     "printf 'from slug import slug\\n\\ndef test_lower():\\n    assert slug(\"AB\") == \"ab\"\\n' >tests/test_slug.py; "
                     "printf '[tool:pytest]\\npythonpath = .\\n' >setup.cfg");
    assert_int_equal(sh(f.top, "echo 'addopts = -rA' >>repos/r/setup.cfg"), 0);
    fixture_import(&f);
    f.t.test_patch = NEW("tests/test_slug_space.py") "@@ -0,0 +1,4 @@\n+from slug import slug\n+\n+def test_space():\n+    assert slug(\"A B\") == \"a-b\"\n";
    static const struct { const char *patch; enum merge_outcome outcome; const char *slug; bool finding; } rows[] = {
        { BAD, MERGE_APPLIED, "def slug(s):\n    return s.lower()\n", true },
        { FIX BAD, MERGE_APPLIED, "def slug(s):\n    return s.lower().replace(\" \", \"-\")\n", true },
        { FIX, MERGE_APPLIED, "def slug(s):\n    return s.lower().replace(\" \", \"-\")\n", false },
        { "", MERGE_EMPTY, "def slug(s):\n    return s.lower()\n", false },
        { " \n\t\r\n", MERGE_EMPTY, "def slug(s):\n    return s.lower()\n", false },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        fixture_merge(&f, rows[i].patch, strlen(rows[i].patch));
        assert_int_equal(f.m.outcome, rows[i].outcome);
        EXPECT_FILE(&f, "tests/test_slug_space.py", OFFICIAL);
        EXPECT_FILE(&f, "setup.cfg", "[tool:pytest]\npythonpath = .\naddopts = -rA\n");
        expect_file(&f, "slug.py", rows[i].slug, strlen(rows[i].slug));
        assert_int_equal(has_finding(&f, "tests/test_slug_space.py: changed by the patch, the hidden tests' version is used"), rows[i].finding);
    }
    fixture_close(&f);
}

/* H06 - the patch reaches outside the work tree */
static void h06__reaching_out(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f, "printf 'ok\\n' >a.txt; ln -s /etc linked");
#define LINK_OUT "diff --git a/out b/out\nnew file mode 120000\n--- /dev/null\n+++ b/out\n@@ -0,0 +1 @@\n+../h06_outside\n\\ No newline at end of file\n"
    static const struct { const char *patch, *named; } rows[] = {
        { LINK_OUT NEW("out/note.txt") "@@ -0,0 +1 @@\n+written through a link\n", "out/note.txt: line 8: out is a symbolic link" },
        { "--- a/../h06_outside/note.txt\n+++ b/../h06_outside/note.txt\n@@ -0,0 +1 @@\n+dotdot\n", "../h06_outside/note.txt" },
        { "diff --git a/.git/hooks/post-checkout b/.git/hooks/post-checkout\nnew file mode 100755\n--- /dev/null\n+++ b/.git/hooks/post-checkout\n"
          "@@ -0,0 +1,2 @@\n+#!/bin/sh\n+echo hooked\n", ".git/hooks/post-checkout: line 1: the path lies in .git" },
        { NEW("sub/.GIT/config") "@@ -0,0 +1 @@\n+x\n", "sub/.GIT/config" },
        { "--- /dev/null\n+++ /etc/cron.d/x\n@@ -0,0 +1 @@\n+x\n", "is absolute" },
        { NEW("linked/x") "@@ -0,0 +1 @@\n+x\n", "linked is a symbolic link" },
        { HEADS("linked/passwd") "@@ -1 +1 @@\n-x\n+y\n", "linked is a symbolic link" },
        { HEADS("linked") "@@ -1 +1 @@\n-/etc\n\\ No newline at end of file\n+/tmp\n\\ No newline at end of file\n", "linked: line 1: is a symbolic link" },
        { GIT("linked/b") "similarity index 100%\nrename from a.txt\nrename to linked/b\n", "linked is a symbolic link" },
        { GIT("b") "similarity index 100%\ncopy from linked/passwd\ncopy to b\n", "linked is a symbolic link" },
        { GIT("b") "similarity index 100%\nrename from ../x\nrename to b\n", "holds" },
        { GIT("sub") "new file mode 160000\nindex 0000000..1234567\n--- /dev/null\n+++ b/sub\n@@ -0,0 +1 @@\n+Subproject commit 1234567\n", "submodule" },
        { GIT("dev") "new file mode 020644\n", "020644" + 1 },
        { GIT("a.txt") "old mode 100644\nnew mode 120000\n", "between file and link" },
        { "diff --git \"a/x\\000y\" \"b/x\\000y\"\nnew file mode 100644\n", "quoted file name" },
        { "--- \"a/..\\057x\"\n+++ \"b/..\\057x\"\n@@ -0,0 +1 @@\n+x\n", "holds" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        fixture_merge(&f, rows[i].patch, strlen(rows[i].patch));
        if (f.m.outcome != MERGE_FAILED)
            fail_msg("row %zu was not refused", i);
        if (strstr(f.m.reason, rows[i].named) == NULL)
            fail_msg("row %zu: \"%s\" does not name \"%s\"", i, f.m.reason, rows[i].named);
    }
    MERGE(&f, LINK_OUT);            /* a link alone is a file like another */
    assert_int_equal(f.m.outcome, MERGE_APPLIED);
    MERGE(&f, "diff --git a/linked b/linked\nindex 1..2 120000\n--- a/linked\n+++ b/linked\n@@ -1 +1 @@\n-/etc\n\\ No newline at end of file\n+/tmp\n\\ No newline at end of file\n");
    assert_int_equal(f.m.outcome, MERGE_APPLIED);
    assert_int_equal(sh(f.top, "test \"$(readlink out/linked)\" = /tmp"), 0);
    fixture_close(&f);
}

/* H07 - exit status 0, nothing changed: a work directory below another repository's root */
static void h07__subdirectory(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f, "mkdir -p pool/job1; echo v=1 >pool/job1/app.cfg");
    struct err err = { 0 };
    struct str_list notes;
    char dir[4200];
    snprintf(dir, sizeof dir, "%s/repos", f.top);
    f.t.repo = "r/pool/job1";
    assert_int_equal(store_import(f.store, &f.a, &f.t, dir, &notes, &err), 0);
    MERGE(&f, HEADS("app.cfg") "@@ -1 +1 @@\n-v=1\n+v=2\n");
    assert_int_equal(f.m.outcome, MERGE_APPLIED);
    EXPECT_FILE(&f, "app.cfg", "v=2\n");
    MERGE(&f, HEADS("pool/job1/app.cfg") "@@ -1 +1 @@\n-v=1\n+v=2\n");
    assert_int_equal(f.m.outcome, MERGE_FAILED);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(h01__last_newline_lost), cmocka_unit_test(h02__crlf), cmocka_unit_test(h03__names), cmocka_unit_test(h04__binary),
        cmocka_unit_test(h05__hidden_tests_win), cmocka_unit_test(h06__reaching_out), cmocka_unit_test(h07__subdirectory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
