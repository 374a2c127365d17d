/* catalog_test.c - rows put, found, paged, and a file that is not a catalog. */
#include "tests/repos/repos_test.h"
#include <sqlite3.h>

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

/* A catalog of before there were profiles: its tasks are strict ones, and what is imported again is unchanged. */
static void catalog_open__takes_version_1(void **state)
{
    (void)state;
    char *d = temp_dir(), path[4200];
    own_arena a = { 0 };
    struct catalog *c = NULL;
    struct err err = { 0 };
    enum catalog_put what;
    struct task t = make_task(&a, "django-1", "django"), got;
    assert_int_equal(catalog_open(&c, d, true, &err), 0);
    assert_int_equal(catalog_put(c, &t, &what, &err), 0);
    catalog_close(c);
    snprintf(path, sizeof path, "%s/catalog.db", d);
    sqlite3 *db = NULL;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "ALTER TABLE tasks DROP COLUMN profile; PRAGMA user_version=1", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
    assert_int_equal(catalog_open(&c, d, false, &err), ERR_UNSUPPORTED);        /* who may only read leaves it as it is */
    assert_int_equal(catalog_open(&c, d, true, &err), 0);
    assert_int_equal(catalog_put(c, &t, &what, &err), 0);
    assert_int_equal(what, CATALOG_UNCHANGED);
    assert_int_equal(catalog_get(c, &got, &a, "django-1", &err), 0);
    assert_string_equal(got.profile, "strict");
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
    uint64_t n = 0;
    assert_int_equal(catalog_count(reader, &n, &err), 0);
    assert_int_equal(n, 1);
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
        { "", "", 7, 100 }, { "even", "", 7, 50 }, { "", "b-", 5, 34 }, { "odd", "b-", 50, 17 }, { "", "zz", 5, 0 },
            { "none", "", 5, 0 },
        { "", "", 100, 100 }, { "", "b-09", 2, 4 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint32_t seen = 0, count = 0;
        const char *after = "", *next = NULL;
        do {
            struct task *page = NULL;
            assert_int_equal(catalog_list(c, &page, &count, &next, &a, after, rows[i].repo, rows[i].prefix, rows[i].limit, &err),
                             0);
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
        cmocka_unit_test(catalog_open__takes_version_1),
        cmocka_unit_test(catalog_put__tells_added_unchanged_replaced),
        cmocka_unit_test(catalog_list__pages_by_id_and_filters),
        cmocka_unit_test(catalog_open__tells_a_corrupt_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
