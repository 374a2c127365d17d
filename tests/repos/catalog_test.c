/* catalog_test.c - rows put, found, paged, and a file that is not a catalog. */
#include "tests/repos/repos_test.h"
#include "repos/catalog.h"

static struct task make_task(struct arena *a, const char *id, const char *repo)
{
    struct task t;
    struct err err = { 0 };
    char *s = arena_printf(a, "{\"instance_id\":\"%s\",\"repo\":\"%s\",\"base_commit\":\"0123456789012345678901234567890123456789\","
                           "\"patch\":\"p\",\"x\":1," RECORD_TAIL, id, repo);
    assert_int_equal(task_read_json(&t, a, s, strlen(s), &err), 0);
    t.base_tree = "89abcdef89abcdef89abcdef89abcdef89abcdef";
    digest_of(&t.snapshot, "s", 1);
    digest_of(&t.definition, id, strlen(id));
    return t;
}

#define OLD_ROWS 40

/* A catalog as the builds of version 1 (no profiles) and 2 made it, with OLD_ROWS tasks of id django-K. */
static void make_old(const char *dir, int version)
{
    char path[4200], sql[4096];
    sqlite3 *db = NULL;
    snprintf(path, sizeof path, "%s/catalog.db", dir);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    snprintf(sql, sizeof sql, "PRAGMA journal_mode=WAL; BEGIN;"
             "CREATE TABLE tasks(id TEXT NOT NULL, repo TEXT NOT NULL, base_commit TEXT NOT NULL, test_cmd TEXT NOT NULL,"
             " reader TEXT NOT NULL, environment TEXT NOT NULL, split TEXT NOT NULL, timeout_s REAL NOT NULL, memory_mb INTEGER NOT NULL,"
             " base_tree TEXT NOT NULL, snapshot BLOB NOT NULL, definition BLOB NOT NULL, record BLOB NOT NULL,"
             " fail_to_pass TEXT NOT NULL, pass_to_pass TEXT NOT NULL, extra TEXT NOT NULL, %s"
             " problem_statement TEXT NOT NULL, patch TEXT NOT NULL, test_patch TEXT NOT NULL, PRIMARY KEY(id));"
             "CREATE INDEX tasks_by_repo ON tasks(repo, id);"
             "WITH RECURSIVE n(k) AS (SELECT 1 UNION ALL SELECT k+1 FROM n WHERE k<%d)"
             " INSERT INTO tasks SELECT 'django-'||k,'django','0123456789012345678901234567890123456789','run','auto','host','',300.0,2048,"
             " '89abcdef89abcdef89abcdef89abcdef89abcdef',zeroblob(32),zeroblob(32),zeroblob(32),'a::b'||char(10),'c::d'||char(10),"
             " '{\"x\":1}',%s 'word'||k||' of the problem','--- a/x.c'||char(10)||'+++ b/x.c'||char(10),'t'||(k/2) FROM n;"
             "PRAGMA application_id=%d; PRAGMA user_version=%d; COMMIT",
             version == 1 ? "" : "profile TEXT NOT NULL,", OLD_ROWS, version == 1 ? "" : "'compatible',", 0x41535359, version);
    char *why = NULL;
    if (sqlite3_exec(db, sql, NULL, NULL, &why) != SQLITE_OK)
        fail_msg("%s", why);
    sqlite3_close(db);
}

static int edit(const char *dir, const char *sql)
{
    char path[4200];
    sqlite3 *db = NULL;
    snprintf(path, sizeof path, "%s/catalog.db", dir);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    int rc = sqlite3_exec(db, sql, NULL, NULL, NULL);
    sqlite3_close(db);
    return rc;
}

/* All tasks that a filter has, over pages of `limit`; the ids joined by spaces. */
static char *list_ids(struct catalog *c, struct arena *a, const struct catalog_filter *f, uint32_t limit)
{
    struct err err = { 0 };
    char *all = arena_strdup(a, "");
    const char *after = "";
    do {
        struct task *page = NULL;
        uint32_t count = 0;
        const char *next = NULL;
        if (catalog_list(c, &page, &count, &next, a, after, f, limit, &err) != 0)
            fail_msg("%s", err.msg);
        assert_true(count <= limit);
        for (uint32_t k = 0; k < count; k++)
            all = arena_printf(a, "%s%s%s", all, all[0] != '\0' ? " " : "", page[k].id);
        after = next;
    } while (after[0] != '\0');
    return all;
}

static void catalog_open__migrates_every_older_version(void **state)
{
    (void)state;
    for (int version = 1; version <= 2; version++) {
        char *d = temp_dir();
        own_arena a = { 0 };
        struct catalog *c = NULL;
        struct err err = { 0 };
        struct task t;
        bool has = true;
        make_old(d, version);
        assert_int_equal(catalog_open(&c, d, false, &err), ERR_UNSUPPORTED);        /* who may only read leaves it as it is */
        assert_non_null(strstr(err.msg, "start assayd on it once"));
        assert_int_equal(catalog_open(&c, d, true, &err), 0);
        assert_int_equal(catalog_get(c, &t, &a, "django-7", &err), 0);
        assert_string_equal(t.profile, version == 1 ? "strict" : "compatible");
        assert_string_equal(t.state, "imported");
        assert_string_equal(t.language, "c");
        assert_string_equal(t.problem_statement, "word7 of the problem");
        assert_string_equal(t.test_patch, "t3");
        assert_string_equal(t.pass_to_pass.items[0], "c::d");
        assert_int_equal(catalog_has(c, &has, &t, &err), 0);
        assert_true(has);                                                           /* record digests are made anew */
        assert_int_equal(catalog_index(c, &err), 0);
        catalog_close(c);
        assert_int_equal(catalog_open(&c, d, false, &err), 0);
        assert_string_equal(list_ids(c, &a, &(struct catalog_filter){ .text = "WORD7 problem" }, 9), "django-7");
        assert_int_equal(strlen(list_ids(c, &a, &(struct catalog_filter){ .repo = "django" }, 7)), 9 * 9 + 31 * 10 - 1);
        struct catalog_twins *groups;
        uint32_t count;
        const char *next;
        assert_int_equal(catalog_duplicates(c, &groups, &count, &next, &a, "", 100, &err), 0);
        assert_string_equal(next, "");
        assert_int_equal(count, OLD_ROWS / 2 - 1);                                  /* 2+3, 4+5, ...; 1 and 40 are alone */
        catalog_close(c);
        drop_dir(d);
    }
}

/* One transaction: where it cannot be finished, the old catalog is there as it was. */
static void catalog_open__migrates_wholly_or_not_at_all(void **state)
{
    (void)state;
    char *d = temp_dir();
    struct catalog *c = NULL;
    struct err err = { 0 };
    make_old(d, 2);
    assert_int_equal(edit(d, "UPDATE tasks SET definition=zeroblob(5) WHERE id='django-33'"), SQLITE_OK);
    assert_int_equal(catalog_open(&c, d, true, &err), ERR_CORRUPT);
    assert_non_null(strstr(err.msg, "django-33"));
    assert_int_equal(edit(d, "SELECT profile,rowid FROM tasks; CREATE TABLE search(x); DROP TABLE search;"
                          "UPDATE tasks SET definition=zeroblob(32)"), SQLITE_OK);
    assert_int_equal(catalog_open(&c, d, true, &err), 0);
    catalog_close(c);
    assert_int_equal(edit(d, "PRAGMA user_version=99"), SQLITE_OK);
    for (int writable = 0; writable <= 1; writable++) {
        assert_int_equal(catalog_open(&c, d, writable, &err), ERR_UNSUPPORTED);
        assert_non_null(strstr(err.msg, "version 99 is newer than version"));
        assert_non_null(strstr(err.msg, "use the build that made it"));
    }
    drop_dir(d);
}

/*
 * No statement reads more than it must: a plan has no scan but that of the one row there is, the words' own index, or the
 * constants of an INSERT, and never sorts.
 */
static void catalog_sql__never_scans_or_sorts(void **state)
{
    (void)state;
    char *d = temp_dir();
    struct catalog *c = NULL;
    struct err err = { 0 };
    assert_int_equal(catalog_open(&c, d, true, &err), 0);
    for (int i = 0; i < STMT_BEGIN; i++) {
        char sql[4096];
        sqlite3_stmt *s = NULL;
        snprintf(sql, sizeof sql, "EXPLAIN QUERY PLAN %s", catalog_sql[i]);
        assert_int_equal(sqlite3_prepare_v2(c->db, sql, -1, &s, NULL), SQLITE_OK);
        while (sqlite3_step(s) == SQLITE_ROW) {
            const char *step = (const char *)sqlite3_column_text(s, 3);
            const char *index = strstr(step, " VIRTUAL TABLE INDEX ");          /* 0 with no key would be all of it */
            bool words = index != NULL && (i == STMT_TWINS ? strncmp(index + 21, "6:", 2) == 0 : index[21] != '\0' && strstr(index, "M") != NULL);
            if ((strncmp(step, "SCAN", 4) == 0 && !words) || strstr(step, "TEMP B-TREE") != NULL)
                fail_msg("%s\n  %s", catalog_sql[i], step);
        }
        sqlite3_finalize(s);
    }
    catalog_close(c);
    drop_dir(d);
}

static void catalog_put__tells_added_unchanged_replaced(void **state)
{
    (void)state;
    char *d = temp_dir();
    own_arena a = { 0 };
    struct catalog *c = NULL, *reader = NULL;
    struct err err = { 0 };
    assert_int_equal(catalog_open(&reader, d, false, &err), ERR_NOT_FOUND);
    assert_int_equal(catalog_open(&c, d, true, &err), 0);
    assert_int_equal(catalog_open(&reader, d, false, &err), 0);
    enum catalog_put what;
    struct task t = make_task(&a, "django-1", "django"), got;
    assert_int_equal(catalog_put(c, &t, &what, &err), 0);
    assert_int_equal(what, CATALOG_ADDED);
    assert_int_equal(catalog_put(c, &t, &what, &err), 0);
    assert_int_equal(what, CATALOG_UNCHANGED);
    t.extra_json = "{\"x\":2}";         /* the definition is as before, the record is not */
    assert_int_equal(catalog_put(c, &t, &what, &err), 0);
    assert_int_equal(what, CATALOG_REPLACED);
    digest_of(&t.definition, "new", 3);
    t.profile = "compatible";
    assert_int_equal(catalog_put(c, &t, &what, &err), 0);
    assert_int_equal(what, CATALOG_REPLACED);

    assert_int_equal(catalog_get(reader, &got, &a, "django-1", &err), 0);    /* opened before the row was there */
    assert_string_equal(got.patch, "p");
    assert_string_equal(got.extra_json, "{\"x\":2}");
    assert_string_equal(got.base_tree, t.base_tree);
    assert_string_equal(got.profile, "compatible");
    assert_string_equal(got.fail_to_pass.items[0], "a::b");
    assert_true(digest_equal(&got.definition, &t.definition));
    assert_int_equal(catalog_put(reader, &t, &what, &err), 0);               /* unchanged: nothing to write */
    t.split = "other";
    assert_int_equal(catalog_put(reader, &t, &what, &err), ERR_DENIED);
    assert_int_equal(catalog_get(reader, &got, &a, "djagno-1", &err), ERR_NOT_FOUND);
    assert_non_null(strstr(err.msg, "did you mean django-1?"));
    assert_int_equal(catalog_get(reader, &got, &a, "something quite else", &err), ERR_NOT_FOUND);
    assert_null(strstr(err.msg, "did you mean"));
    catalog_close(reader);
    catalog_close(c);
    assert_int_equal(catalog_open(&reader, d, false, &err), 0);              /* after the writer is gone */
    assert_string_equal(list_ids(reader, &a, &(struct catalog_filter){ 0 }, 5), "django-1");
    catalog_close(reader);
    drop_dir(d);
}

static void catalog_list__pages_by_id_and_filters(void **state)
{
    (void)state;
    char *d = temp_dir();
    own_arena a = { 0 };
    struct catalog *c = NULL;
    struct err err = { 0 };
    assert_int_equal(catalog_open(&c, d, true, &err), 0);
    assert_int_equal(catalog_begin(c, &err), 0);
    for (int i = 99; i >= 0; i--) {
        enum catalog_put what;
        struct task t = make_task(&a, arena_printf(&a, "%s-%03d", i % 3 == 0 ? "b" : "a", i), i % 2 == 0 ? "even" : "odd");
        assert_int_equal(catalog_put(c, &t, &what, &err), 0);
    }
    assert_int_equal(catalog_commit(c, &err), 0);
    static const struct { const char *repo, *prefix; uint32_t limit, want; } rows[] = {
        { "", "", 7, 100 }, { "even", "", 7, 50 }, { "", "b-", 5, 34 }, { "odd", "b-", 50, 17 }, { "", "zz", 5, 0 }, { "none", "", 5, 0 },
        { "", "", 100, 100 }, { "", "b-09", 2, 4 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint32_t seen = 0, count = 0;
        const char *after = "", *next = NULL;
        do {
            struct task *page = NULL;
            struct catalog_filter f = { .repo = rows[i].repo, .prefix = rows[i].prefix };
            assert_int_equal(catalog_list(c, &page, &count, &next, &a, after, &f, rows[i].limit, &err), 0);
            for (uint32_t k = 0; k < count; k++) {
                assert_true(strcmp(page[k].id, after) > 0);
                assert_string_equal(page[k].patch, "");
                assert_int_equal(page[k].fail_to_pass.count, 1);
                after = page[k].id;
            }
            seen += count;
            assert_true(count <= rows[i].limit);
        } while (next[0] != '\0');
        assert_int_equal(seen, rows[i].want);
    }
    catalog_close(c);
    drop_dir(d);
}

static struct catalog *some_tasks(const char *dir, struct arena *a)
{
    static const struct { const char *id, *repo, *split, *language, *problem; enum task_state state; } rows[] = {
        { "z-1", "zoo/animals", "train", "python", "The lion's cage: unlock() raises KeyError", TASK_IMPORTED },
        { "b-2", "birds", "train", "c", "Owl lands twice; lion looks on", TASK_VALIDATED },
        { "a-3", "zoo/animals", "test", "python", "lions are many", TASK_VALIDATED },
        { "b-4", "birds", "test", "c", "gr\xc3\xbc\xc3\x9f" "e of the owl", TASK_QUARANTINED },
        { "a-5", "birds", "train", "python", "nothing", TASK_REFUSED },
    };
    struct catalog *c = NULL;
    struct err err = { 0 };
    enum catalog_put what;
    assert_int_equal(catalog_open(&c, dir, true, &err), 0);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct task t = make_task(a, rows[i].id, rows[i].repo);
        t.split = rows[i].split;
        t.language = rows[i].language;
        t.problem_statement = rows[i].problem;
        t.base_tree = arena_printf(a, "%040zx", i);
        assert_int_equal(catalog_put(c, &t, &what, &err), 0);
        assert_int_equal(catalog_set_state(c, rows[i].id, rows[i].state, &err), 0);
    }
    return c;
}

static void catalog_list__filters_and_searches(void **state)
{
    (void)state;
    char *d = temp_dir();
    own_arena a = { 0 };
    struct catalog *c = some_tasks(d, &a);
    struct err err = { 0 };
    assert_string_equal(list_ids(c, &a, &(struct catalog_filter){ .text = "lion" }, 9), "");     /* not indexed yet */
    assert_int_equal(catalog_index(c, &err), 0);
    static const struct { struct catalog_filter f; const char *want; } cases[] = {
        { { .text = NULL }, "a-3 a-5 b-2 b-4 z-1" },
        { { .language = "python" }, "z-1 a-3 a-5" },                        /* in the order of import */
        { { .split = "train", .language = "python" }, "z-1 a-5" },
        { { .state = "validated" }, "b-2 a-3" },
        { { .state = "validated", .split = "test" }, "a-3" },
        { { .state = "imported" }, "z-1" },
        { { .repo = "birds", .language = "c" }, "b-2 b-4" },
        { { .repo = "birds", .state = "refused", .split = "train" }, "a-5" },
        { { .prefix = "a-", .split = "train" }, "a-5" },
        { { .language = "cobol" }, "" },
        { { .text = "lion" }, "z-1 b-2" },
        { { .text = "LION owl" }, "b-2" },
        { { .text = "lion*" }, "z-1 b-2 a-3" },
        { { .text = "lion*", .split = "test" }, "a-3" },
        { { .text = "lion*", .repo = "zoo/animals" }, "z-1 a-3" },
        { { .text = "lion", .prefix = "b" }, "b-2" },
        { { .text = "zoo animals" }, "z-1 a-3" },
        { { .text = "b-4" }, "b-4" },                                       /* an id's parts are words */
        { { .text = "gr\xc3\xbc\xc3\x9f" "e" }, "b-4" },
        { { .text = "unlock() OR \"KeyError\" NEAR(" }, "" },               /* operators are words */
        { { .text = "unlock() \"KeyError\"" }, "z-1" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (uint32_t limit = 1; limit <= 9; limit++)
            assert_string_equal(list_ids(c, &a, &cases[i].f, limit), cases[i].want);
    struct task *page;
    uint32_t count;
    const char *next;
    assert_int_equal(catalog_list(c, &page, &count, &next, &a, "", &(struct catalog_filter){ .text = "(!)" }, 9, &err), ERR_BAD_INPUT);
    assert_int_equal(catalog_list(c, &page, &count, &next, &a, "q", &(struct catalog_filter){ .text = "owl" }, 9, &err), ERR_BAD_INPUT);
    catalog_close(c);
    drop_dir(d);
}

/* A page looks at a bounded number of rows: where few of many fit, it is short or empty, and the next ones find the rest. */
static void catalog_list__goes_on_after_a_page_that_found_nothing(void **state)
{
    (void)state;
    char *d = temp_dir();
    own_arena a = { 0 };
    struct catalog *c = NULL;
    struct err err = { 0 };
    enum catalog_put what;
    assert_int_equal(catalog_open(&c, d, true, &err), 0);
    assert_int_equal(catalog_begin(c, &err), 0);
    struct task t = make_task(&a, "x", "r");
    for (int i = 0; i < 6000; i++) {
        t.id = arena_printf(&a, "t-%05d", i);
        t.split = i == 5990 ? "rare" : "common";
        t.language = i == 5990 ? "b" : "a";
        assert_int_equal(catalog_put(c, &t, &what, &err), 0);
    }
    assert_int_equal(catalog_commit(c, &err), 0);
    assert_int_equal(catalog_index(c, &err), 0);
    static const struct catalog_filter filters[] = { { .state = "imported", .split = "rare" }, { .repo = "r", .language = "b" },
                                                     { .prefix = "t-", .split = "rare" }, { .text = "r", .split = "rare" } };
    for (size_t i = 0; i < sizeof filters / sizeof filters[0]; i++) {
        struct task *page;
        uint32_t count;
        const char *next;
        assert_int_equal(catalog_list(c, &page, &count, &next, &a, "", &filters[i], 100, &err), 0);
        assert_int_equal(count, 0);
        assert_string_not_equal(next, "");
        assert_string_equal(list_ids(c, &a, &filters[i], 100), "t-05990");
    }
    catalog_close(c);
    drop_dir(d);
}

static void catalog_set_state__holds_while_the_definition_does(void **state)
{
    (void)state;
    char *d = temp_dir();
    own_arena a = { 0 };
    struct catalog *c = some_tasks(d, &a);
    struct err err = { 0 };
    struct task t;
    enum catalog_put what;
    bool has;
    assert_int_equal(catalog_index(c, &err), 0);
    assert_int_equal(catalog_get(c, &t, &a, "b-2", &err), 0);
    assert_string_equal(t.state, "validated");
    assert_int_equal(catalog_has(c, &has, &t, &err), 0);
    assert_true(has);
    t.problem_statement = "now about a heron";
    assert_int_equal(catalog_has(c, &has, &t, &err), 0);
    assert_false(has);
    assert_int_equal(catalog_put(c, &t, &what, &err), 0);
    assert_int_equal(what, CATALOG_REPLACED);
    assert_string_equal(list_ids(c, &a, &(struct catalog_filter){ .text = "heron" }, 9), "b-2");
    assert_string_equal(list_ids(c, &a, &(struct catalog_filter){ .text = "lion" }, 9), "z-1");
    assert_string_equal(list_ids(c, &a, &(struct catalog_filter){ .state = "validated" }, 9), "b-2 a-3");
    digest_of(&t.definition, "other", 5);
    assert_int_equal(catalog_put(c, &t, &what, &err), 0);
    assert_string_equal(list_ids(c, &a, &(struct catalog_filter){ .state = "validated" }, 9), "a-3");
    assert_int_equal(catalog_set_language(c, "b-2", "zig", &err), 0);
    assert_string_equal(list_ids(c, &a, &(struct catalog_filter){ .language = "zig" }, 9), "b-2");
    assert_int_equal(catalog_set_state(c, "b-22", TASK_REFUSED, &err), ERR_NOT_FOUND);
    assert_int_equal(edit(d, "INSERT INTO search(search) VALUES('integrity-check')"), SQLITE_OK);      /* index and rows agree */
    catalog_close(c);
    drop_dir(d);
}

static void catalog_twin__is_the_same_tree_tests_and_hidden_tests(void **state)
{
    (void)state;
    char *d = temp_dir();
    own_arena a = { 0 };
    struct catalog *c = NULL;
    struct err err = { 0 };
    enum catalog_put what;
    const char *one[] = { "t::a", "t::b" }, *other[] = { "t::b", "t::a" }, *twin;
    assert_int_equal(catalog_open(&c, d, true, &err), 0);
    struct task t = make_task(&a, "first", "r");
    t.fail_to_pass = (struct str_list){ one, 2 };
    assert_int_equal(catalog_put(c, &t, &what, &err), 0);
    assert_int_equal(catalog_index(c, &err), 0);
    assert_int_equal(catalog_twin(c, &twin, &a, &t, &err), 0);
    assert_null(twin);                                                      /* it is none of itself */
    t.id = "second";
    t.fail_to_pass = (struct str_list){ other, 2 };
    t.problem_statement = "told otherwise";
    assert_int_equal(catalog_put(c, &t, &what, &err), 0);
    assert_int_equal(catalog_index(c, &err), 0);
    assert_int_equal(catalog_twin(c, &twin, &a, &t, &err), 0);
    assert_string_equal(twin, "first");
    t.id = "third";
    t.test_patch = "hidden otherwise";
    assert_int_equal(catalog_put(c, &t, &what, &err), 0);
    assert_int_equal(catalog_index(c, &err), 0);
    assert_int_equal(catalog_twin(c, &twin, &a, &t, &err), 0);
    assert_null(twin);
    t.id = "fourth";
    t.pass_to_pass = t.fail_to_pass;
    t.fail_to_pass.count = 0;
    assert_int_equal(catalog_put(c, &t, &what, &err), 0);
    for (int i = 0; i < 150; i++) {
        t.id = arena_printf(&a, "many-%03d", i);
        t.test_patch = "of many";
        assert_int_equal(catalog_put(c, &t, &what, &err), 0);
    }
    assert_int_equal(catalog_index(c, &err), 0);
    const char *after = "";
    bool two = false, many = false;
    do {
        struct catalog_twins *groups;
        uint32_t count;
        assert_int_equal(catalog_duplicates(c, &groups, &count, &after, &a, after, 1, &err), 0);
        assert_true(count <= 1);
        for (uint32_t i = 0; i < count; i++) {
            two = two || (groups[i].count == 2 && strcmp(groups[i].ids.items[0], "first") == 0
                          && strcmp(groups[i].ids.items[1], "second") == 0);
            many = many || (groups[i].count == 150 && groups[i].ids.count == 100);
        }
    } while (after[0] != '\0');
    assert_true(two && many);
    catalog_close(c);
    drop_dir(d);
}

static void catalog_open__tells_a_corrupt_file(void **state)
{
    (void)state;
    char *d = temp_dir();
    struct catalog *c = NULL;
    struct err err = { 0 };
    assert_int_equal(sh(d, "seq 1 5000 > catalog.db"), 0);
    assert_int_equal(catalog_open(&c, d, false, &err), ERR_CORRUPT);
    assert_int_equal(catalog_open(&c, d, true, &err), ERR_CORRUPT);
    assert_null(c);
    assert_int_equal(sh(d, "rm -f catalog.db*"), 0);
    assert_int_equal(catalog_open(&c, d, true, &err), 0);
    catalog_close(c);
    assert_int_equal(sh(d, "rm -f catalog.db-*; head -c 4096 /dev/zero | tr '\\0' '\\377' | dd of=catalog.db bs=1 seek=200 conv=notrunc 2>/dev/null"), 0);
    assert_int_equal(catalog_open(&c, d, false, &err), ERR_CORRUPT);
    drop_dir(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(catalog_open__migrates_every_older_version),
        cmocka_unit_test(catalog_open__migrates_wholly_or_not_at_all),
        cmocka_unit_test(catalog_sql__never_scans_or_sorts),
        cmocka_unit_test(catalog_put__tells_added_unchanged_replaced),
        cmocka_unit_test(catalog_list__pages_by_id_and_filters),
        cmocka_unit_test(catalog_list__filters_and_searches),
        cmocka_unit_test(catalog_list__goes_on_after_a_page_that_found_nothing),
        cmocka_unit_test(catalog_set_state__holds_while_the_definition_does),
        cmocka_unit_test(catalog_twin__is_the_same_tree_tests_and_hidden_tests),
        cmocka_unit_test(catalog_open__tells_a_corrupt_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
