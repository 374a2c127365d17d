/* Units of rollout/cache.c. */
#include "base/fault.h"
#include "rollout/cache.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

static struct digest key_of(uint32_t n)
{
    struct digest d;
    digest_of(&d, &n, sizeof n);
    return d;
}

static void put(struct cache *c, uint32_t n, uint64_t cursor)
{
    struct digest k = key_of(n);
    cache_put(c, &k, cursor, &k);
}

static uint64_t get(struct cache *c, uint32_t n)
{
    struct digest k = key_of(n);
    const struct cache_entry *e = cache_get(c, &k);
    if (e != NULL)
        assert_true(digest_equal(&e->key, &k) && digest_equal(&e->beside, &k));
    return e != NULL ? e->cursor : 0;
}

static void cache_put__drops_what_was_used_longest_ago(void **state)
{
    (void)state;
    struct cache *c;
    struct err err = { 0 };
    assert_int_equal(cache_new(&c, 3, &err), 0);
    put(c, 1, 11);
    put(c, 2, 12);
    put(c, 3, 13);
    assert_int_equal(get(c, 1), 11);        /* 2 is the oldest now */
    put(c, 4, 14);
    assert_int_equal(get(c, 2), 0);
    assert_int_equal(get(c, 1), 11);
    assert_int_equal(get(c, 3), 13);
    assert_int_equal(get(c, 4), 14);
    put(c, 3, 33);                          /* replaced, not doubled */
    assert_int_equal(get(c, 3), 33);
    assert_int_equal(cache_count(c), 3);
    cache_free(c);
}

/* Against a plain table: thousands of random operations give the same answers. */
static void cache__agrees_with_a_plain_table(void **state)
{
    (void)state;
    enum { KEYS = 300, ROOM = 300 };
    uint64_t plain[KEYS] = { 0 }, chance = 88172645463325252u;
    struct cache *c;
    struct err err = { 0 };
    assert_int_equal(cache_new(&c, ROOM, &err), 0);
    for (uint64_t i = 1; i < 50000; i++) {
        chance ^= chance << 13, chance ^= chance >> 7, chance ^= chance << 17;
        uint32_t n = (uint32_t)(chance >> 8) % KEYS;
        struct digest k = key_of(n);
        switch (chance % 3) {
        case 0: put(c, n, i); plain[n] = i; break;
        case 1: cache_remove(c, &k); plain[n] = 0; break;
        default: assert_int_equal(get(c, n), plain[n]); break;
        }
    }
    uint32_t count = 0;
    for (uint32_t n = 0; n < KEYS; n++)
        count += plain[n] != 0;
    assert_int_equal(cache_count(c), count);
    cache_free(c);
}

static void cache_new__survives_want_of_memory(void **state)
{
    (void)state;
    struct cache *c = NULL;
    struct err err = { 0 };
    fault_arm(1);
    assert_int_equal(cache_new(&c, 10, &err), ERR_LIMIT);
    assert_null(c);
    fault_arm(0);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(cache_put__drops_what_was_used_longest_ago),
        cmocka_unit_test(cache__agrees_with_a_plain_table),
        cmocka_unit_test(cache_new__survives_want_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
