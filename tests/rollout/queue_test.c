/* Units of rollout/queue.c and rollout/admission.c. */
#include "rollout/admission.h"
#include "rollout/queue.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

static void queue_take__is_first_come_first_served_in_a_class(void **state)
{
    (void)state;
    struct queue q = { 0 };
    struct queue_item items[5] = { 0 };
    for (int i = 0; i < 5; i++)
        queue_push(&q, &items[i], 1);
    queue_remove(&items[2]);
    queue_remove(&items[2]);                /* harmless */
    queue_push_front(&q, &items[2], 1);
    static const int order[] = { 2, 0, 1, 3, 4 };
    for (int i = 0; i < 5; i++) {
        assert_ptr_equal(queue_peek(&q), &items[order[i]]);
        assert_ptr_equal(queue_take(&q), &items[order[i]]);
    }
    assert_null(queue_take(&q));
    assert_int_equal(q.total, 0);
}

/* I7, the static case: all classes always wait. Shares follow the weights. */
static void queue_take__shares_follow_the_weights(void **state)
{
    (void)state;
    struct queue q = { 0 };
    struct queue_item items[3] = { 0 };
    int served[3] = { 0 };
    for (uint32_t k = 0; k < 3; k++)
        queue_push(&q, &items[k], k);
    /* Keep one more of each class behind, so that no class ever runs empty. */
    struct queue_item behind[3] = { 0 };
    for (uint32_t k = 0; k < 3; k++)
        queue_push(&q, &behind[k], k);
    for (int i = 0; i < 2100; i++) {
        struct queue_item *item = queue_take(&q);
        served[item->klass]++;
        queue_push(&q, item, item->klass);
    }
    assert_in_range(served[0], 90, 110);
    assert_in_range(served[1], 390, 410);
    assert_in_range(served[2], 1580, 1620);
}

/* I7, the hostile case: the others come and go so as to be passed over as little as possible. */
static void queue_take__serves_a_waiting_class_within_its_bound(void **state)
{
    (void)state;
    uint64_t chance = 88172645463325252u;
    for (uint32_t victim = 0; victim < 3; victim++) {
        struct queue q = { 0 };
        struct queue_item mine = { 0 }, others[3][4] = { { { 0 } } };
        uint32_t passed = 0, worst = 0;
        queue_push(&q, &mine, victim);
        for (int i = 0; i < 200000; i++) {
            for (uint32_t k = 0; k < 3; k++)
                for (int j = 0; j < 4; j++) {
                    chance ^= chance << 13, chance ^= chance >> 7, chance ^= chance << 17;
                    struct queue_item *item = &others[k][j];
                    if (k != victim && item->in == NULL && (chance & 3) != 0)
                        queue_push(&q, item, k);
                    else if (k != victim && item->in != NULL && (chance & 31) == 0)
                        queue_remove(item);
                }
            if (queue_take(&q) == &mine) {
                queue_push(&q, &mine, victim);
                passed = 0;
            } else if (++passed > worst) {
                worst = passed;
            }
            assert_true(passed < QUEUE_BOUND(victim));
        }
        assert_true(worst > 0 || victim == 2);
    }
}

static void admission_enter__keeps_room_for_the_more_urgent(void **state)
{
    (void)state;
    struct admission a = { .queue_max = 16, .slots = 2, .arena_bytes_max = 1000000, .episode_bytes = 1000 };
    struct err err = { 0 };
    assert_int_equal(admission_enter(&a, 0, 13, 10, &err), 0);
    assert_int_equal(admission_enter(&a, 0, 14, 10, &err), ERR_BUSY);
    assert_non_null(strstr(err.msg, "try again in"));
    assert_int_equal(admission_enter(&a, 1, 14, 10, &err), 0);
    assert_int_equal(admission_enter(&a, 1, 15, 10, &err), ERR_BUSY);
    assert_int_equal(admission_enter(&a, 2, 15, 10, &err), 0);
    assert_int_equal(admission_enter(&a, 2, 16, 10, &err), ERR_BUSY);
    assert_int_equal(a.request_bytes, 3 * 10);
}

static void admission_enter__never_promises_more_memory_than_there_is(void **state)
{
    (void)state;
    struct admission a = { .queue_max = 100, .slots = 2, .arena_bytes_max = 20000, .episode_bytes = 4000 };
    struct err err = { 0 };
    assert_int_equal(admission_enter(&a, 1, 0, 10001, &err), ERR_LIMIT);
    assert_int_equal(admission_enter(&a, 1, 0, SIZE_MAX, &err), ERR_LIMIT);
    assert_int_equal(admission_enter(&a, 1, 0, 10000, &err), 0);
    assert_int_equal(admission_enter(&a, 1, 0, 1, &err), ERR_BUSY);
    assert_true(admission_has_room(&a));    /* who waits cannot take the room of who is to start */
    admission_start(&a);
    assert_true(admission_has_room(&a));
    admission_start(&a);
    assert_false(admission_has_room(&a));
    admission_leave(&a, 10000, true);
    assert_true(admission_has_room(&a));
    assert_int_equal(admission_enter(&a, 1, 0, 1, &err), 0);
}

static void admission_retry_hint_ns__is_between_50_ms_and_a_minute(void **state)
{
    (void)state;
    struct admission a = { .slots = 4 };
    assert_int_equal(admission_retry_hint_ns(&a, 0), 50000000);
    admission_served(&a, 4000000000u);
    assert_int_equal(admission_retry_hint_ns(&a, 10), 6000000000u);
    assert_int_equal(admission_retry_hint_ns(&a, 1000000), 60000000000u);
    admission_served(&a, UINT64_MAX);
    assert_int_equal(admission_retry_hint_ns(&a, 1000000), 60000000000u);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(queue_take__is_first_come_first_served_in_a_class),
        cmocka_unit_test(queue_take__shares_follow_the_weights),
        cmocka_unit_test(queue_take__serves_a_waiting_class_within_its_bound),
        cmocka_unit_test(admission_enter__keeps_room_for_the_more_urgent),
        cmocka_unit_test(admission_enter__never_promises_more_memory_than_there_is),
        cmocka_unit_test(admission_retry_hint_ns__is_between_50_ms_and_a_minute),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
