/* store_test.c - import: plain, dirty, from a subdirectory, with submodules, twice at once; and what is refused. */
#include "tests/repos/repos_test.h"
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>

static char *top;           /* top/repos/..., top/store */
static struct store *store;
static const char *test_patch = "";

static int setup(void **state)
{
    (void)state;
    struct err err = { 0 };
    top = temp_dir();
    char dir[4200];
    snprintf(dir, sizeof dir, "%s/store", top);
    assert_int_equal(sh(top, "mkdir repos"), 0);
    assert_int_equal(store_open(&store, dir, true, &err), 0);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    store_close(store);
    drop_dir(top);
    return 0;
}

static int import(struct arena *a, struct task *t, const char *repo, struct str_list *notes, struct err *err)
{
    char *head = slurp(top, "head", NULL), dir[4200];
    *t = (struct task){ .id = "t-1", .repo = repo, .base_commit = head != NULL ? arena_strndup(a, head, 40) : "", .patch = "", .test_patch = test_patch,
                        .test_cmd = "true", .reader = "auto", .environment = "host", .profile = "strict", .timeout_s = 1, .memory_mb = 64,
                            .base_tree = "" };
    free(head);
    snprintf(dir, sizeof dir, "%s/repos", top);
    return store_import(store, a, t, dir, notes, err);
}

/* The files of the tree as `find` shows them must be `want`. */
static void expect_tree(const struct task *t, const char *script)
{
    char cmd[8400];
    snprintf(cmd, sizeof cmd, "cd store/trees/%s; %s", t->base_tree, script);
    assert_int_equal(sh(top, cmd), 0);
}

#define MAKE_REPO "mkdir repos/r; cd repos/r; git init -q; mkdir -p src/deep; echo one >src/deep/a.txt; printf '#!/bin/sh\\n' >run; chmod 755 run; " \
                  "ln -s ../../etc/passwd out; ln -s src/deep d; git add -A; git commit -qm base; git rev-parse HEAD >../../head; "

static void store_import__gives_the_commits_tree(void **state)
{
    (void)state;
    own_arena a = { 0 };
    struct task t;
    struct str_list notes;
    struct err err = { 0 };
    assert_int_equal(sh(top, MAKE_REPO "git rev-parse 'HEAD^{tree}' >../../tree; echo later >later; git add -A; git commit -qm later; echo dirty >>run"), 0);
    assert_int_equal(import(&a, &t, "r", &notes, &err), 0);
    char *tree = slurp(top, "tree", NULL);
    assert_memory_equal(tree, t.base_tree, 40);
    free(tree);
    assert_int_equal(notes.count, 0);       /* HEAD is another commit: what is dirty belongs to that one */
    expect_tree(&t, "test \"$(find . | sort | tr '\\n' ' ')\" = '. ./d ./out ./run ./src ./src/deep ./src/deep/a.txt '; "
                    "test \"$(readlink out)\" = ../../etc/passwd; test -x run; test \"$(stat -c %a src/deep/a.txt run src | tr '\\n' ' ')\" = '644 755 755 '");
    int fd = store_tree_fd(store, t.base_tree, &err);
    assert_true(fd >= 0);
    assert_int_equal(faccessat(fd, "src/deep/a.txt", F_OK, 0), 0);
    close(fd);
    assert_int_equal(store_tree_fd(store, "0123456789012345678901234567890123456789", &err), ERR_NOT_FOUND);
    assert_int_equal(store_tree_fd(store, "../objects.git", &err), ERR_NOT_FOUND);
    struct task u;
    assert_int_equal(import(&a, &u, "r", &notes, &err), 0);
    assert_true(digest_equal(&t.definition, &u.definition));
    u.profile = "compatible";               /* the same tests in another sandbox: another verdict */
    char dir[4200];
    snprintf(dir, sizeof dir, "%s/repos", top);
    assert_int_equal(store_import(store, &a, &u, dir, &notes, &err), 0);
    assert_true(digest_equal(&t.snapshot, &u.snapshot) && !digest_equal(&t.definition, &u.definition));
    assert_int_equal(sh(top, "test \"$(ls store/trees | wc -l)\" = 1; git --git-dir=store/objects.git fsck --no-dangling; "
                             "test -z \"$(git --git-dir=store/objects.git for-each-ref)\""), 0);
}

static void store_import__takes_what_tracked_files_hold_beyond_the_commit(void **state)
{
    (void)state;
    own_arena a = { 0 };
    struct task t, clean;
    struct str_list notes;
    struct err err = { 0 };
    assert_int_equal(sh(top, MAKE_REPO), 0);
    assert_int_equal(import(&a, &clean, "r", &notes, &err), 0);
    assert_int_equal(sh(top, "cd repos/r; echo two >>src/deep/a.txt; rm run; ln -s x run; rm d; echo new >staged; git add staged; echo no >untracked"), 0);
    assert_int_equal(import(&a, &t, "r", &notes, &err), 0);
    assert_int_equal(notes.count, 2);
    assert_string_equal(notes.items[0], "4 uncommitted changes taken as set-up layer");
    assert_string_equal(notes.items[1], "1 untracked path left out");
    assert_false(digest_equal(&t.snapshot, &clean.snapshot));
    assert_false(digest_equal(&t.definition, &clean.definition));
    expect_tree(&t, "test \"$(find . | sort | tr '\\n' ' ')\" = '. ./out ./run ./src ./src/deep ./src/deep/a.txt ./staged '; "
                    "test \"$(cat src/deep/a.txt | tr '\\n' ' ')\" = 'one two '; test \"$(readlink run)\" = x");
}

/* H07: the work directory lies below another repository's root. */
static void store_import__takes_a_directory_inside_a_repository(void **state)
{
    (void)state;
    own_arena a = { 0 };
    struct task t;
    struct str_list notes;
    struct err err = { 0 };
    assert_int_equal(sh(top, "mkdir repos/o; cd repos/o; git init -q; mkdir -p pool/job1; echo v=1 >pool/job1/app.cfg; echo x >top.txt; git add -A; "
                             "git commit -qm base; git rev-parse HEAD >../../head; echo y >>top.txt"), 0);
    assert_int_equal(import(&a, &t, "o/pool/job1", &notes, &err), 0);
    assert_int_equal(notes.count, 0);
    expect_tree(&t, "test \"$(find . | sort | tr '\\n' ' ')\" = '. ./app.cfg '");
    assert_int_equal(sh(top, "cd repos/o; echo 1 >>pool/job1/app.cfg"), 0);
    assert_int_equal(import(&a, &t, "o/pool/job1", &notes, &err), 0);
    assert_string_equal(notes.items[0], "1 uncommitted change taken as set-up layer");
    expect_tree(&t, "test \"$(tr '\\n' ' ' <app.cfg)\" = 'v=1 1 '");
    assert_int_equal(import(&a, &t, "o/pool", &notes, &err), 0);
    expect_tree(&t, "test -f job1/app.cfg");
}

static void store_import__drops_submodules_and_says_so(void **state)
{
    (void)state;
    own_arena a = { 0 };
    struct task t;
    struct str_list notes;
    struct err err = { 0 };
    assert_int_equal(sh(top, MAKE_REPO "git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),ext/lib; git commit -qm sub; "
                             "git rev-parse HEAD >../../head; cd ..; git clone -q --bare r bare.git"), 0);
    assert_int_equal(import(&a, &t, "bare.git", &notes, &err), 0);
    assert_int_equal(notes.count, 1);
    assert_string_equal(notes.items[0], "submodule ext/lib left out");
    expect_tree(&t, "test ! -e ext; test -f src/deep/a.txt");
}

static void store_import__refuses_what_lies_elsewhere(void **state)
{
    (void)state;
    assert_int_equal(sh(top, MAKE_REPO "cd ../..; mkdir other; cp -r repos/r other/r; ln -s ../other/r repos/link; ln -s r repos/fine; mkdir repos/none"), 0);
    static const struct { const char *repo, *named; } rows[] = {
        { "../other/r", ".." }, { "/etc", "absolute" }, { "link", "leaves" }, { "none", "no git repository" },
            { "missing", "missing" },
        { "r/../r", ".." }, { "r/.git", ".git" }, { "r/run", "Not a directory" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        own_arena a = { 0 };
        struct task t;
        struct str_list notes;
        struct err err = { 0 };
        assert_int_equal(import(&a, &t, rows[i].repo, &notes, &err), ERR_BAD_INPUT);
        if (strstr(err.msg, rows[i].named) == NULL || strstr(err.msg, "task t-1") == NULL)
            fail_msg("%s: \"%s\"", rows[i].repo, err.msg);
    }
    own_arena a = { 0 };
    struct task t;
    struct str_list notes;
    struct err err = { 0 };
    assert_int_equal(import(&a, &t, "fine", &notes, &err), 0);
    assert_int_equal(sh(top, "echo 0123456789012345678901234567890123456789 >head"), 0);
    assert_int_equal(import(&a, &t, "r", &notes, &err), ERR_BAD_INPUT);
    assert_non_null(strstr(err.msg, "0123456789012345678901234567890123456789"));
}

static void store_import__refuses_hidden_tests_that_do_not_apply(void **state)
{
    (void)state;
    own_arena a = { 0 };
    struct task t;
    struct str_list notes;
    struct err err = { 0 };
    assert_int_equal(sh(top, MAKE_REPO), 0);
    test_patch = "--- a/run\n+++ b/run\n@@ -1 +1 @@\n-other\n+x\n";
    assert_int_equal(import(&a, &t, "r", &notes, &err), ERR_BAD_INPUT);
    assert_non_null(strstr(err.msg, "task t-1: its test_patch does not apply: run:1: hunk 1"));
    test_patch = "";
}

static void store_import__may_run_twice_at_once(void **state)
{
    (void)state;
    assert_int_equal(sh(top, MAKE_REPO "for i in $(seq 1 300); do echo $i >f$i; done; git add -A; git commit -qm more; git rev-parse HEAD >../../head; "
                             "mkdir -p ../../store/trees/.new-left/over"), 0);
    pid_t kids[4];
    for (int i = 0; i < 4; i++)
        if ((kids[i] = fork()) == 0) {
            own_arena a = { 0 };
            struct task t;
            struct str_list notes;
            struct err err = { 0 };
            struct store *mine = NULL;
            char dir[4200];
            snprintf(dir, sizeof dir, "%s/store", top);
            int rc = store_open(&mine, dir, true, &err);
            store = mine;
            if (rc == 0)
                rc = import(&a, &t, "r", &notes, &err);
            if (rc != 0)
                fprintf(stderr, "%s\n", err.msg);
            _exit(rc != 0);
        }
    for (int i = 0; i < 4; i++) {
        int st = -1;
        assert_int_equal(waitpid(kids[i], &st, 0), kids[i]);
        assert_int_equal(st, 0);
    }
    assert_int_equal(sh(top, "test \"$(ls -A store/trees | wc -l)\" = 1; test \"$(ls store/trees/* | wc -l)\" = 304"), 0);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(store_import__gives_the_commits_tree),
        TEST(store_import__takes_what_tracked_files_hold_beyond_the_commit),
        TEST(store_import__takes_a_directory_inside_a_repository),
        TEST(store_import__drops_submodules_and_says_so),
        TEST(store_import__refuses_what_lies_elsewhere),
        TEST(store_import__refuses_hidden_tests_that_do_not_apply),
        TEST(store_import__may_run_twice_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
