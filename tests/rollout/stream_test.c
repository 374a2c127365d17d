/* Units of rollout/stream.c over a log on real files. */
#include "base/fault.h"
#include "rollout/stream.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static char dir[64];
static struct trajlog *logs;
static struct stream *stream;

static void ignore(void *arg, void *token, int rc, uint64_t cursor, const struct err *err)
{
    (void)arg, (void)token, (void)cursor, (void)err;
    assert_int_equal(rc, 0);
}

static void append(int count)
{
    struct err err = { 0 };
    for (int i = 0; i < count; i++) {
        char text[32];
        snprintf(text, sizeof text, "%d", (int)trajlog_next_cursor(logs));
        assert_int_equal(trajlog_add(logs, TRAJFRAME_EPISODE, text, strlen(text), NULL, &err), 0);
        trajlog_commit(logs, ignore, NULL);
    }
    stream_advanced(stream);
}

static int setup(void **state)
{
    (void)state;
    struct trajlog_io io;
    struct err err = { 0 };
    struct trajlog_config config = { .segment_bytes = 200 };
    snprintf(dir, sizeof dir, "/tmp/stream_test.XXXXXX");
    if (mkdtemp(dir) == NULL || trajlog_io_files(&io, dir, &err) < 0 || trajlog_open(&logs, &io, &config, &err) < 0)
        return -1;
    return stream_new(&stream, logs, &err);
}

static int teardown(void **state)
{
    (void)state;
    stream_free(stream);
    trajlog_close(logs);
    DIR *d = opendir(dir);
    for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL; ) {
        char path[400];
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        unlink(path);
    }
    if (d != NULL)
        closedir(d);
    return rmdir(dir);
}

struct seen { uint64_t next; int count, stall_after, ended, rc; bool leave; struct stream_sub *sub; };

static bool deliver(void *arg, uint64_t cursor, const void *record, size_t n)
{
    struct seen *s = arg;
    char text[32];
    snprintf(text, sizeof text, "%.*s", (int)n, (const char *)record);
    assert_int_equal(atoi(text), cursor);
    assert_true(cursor >= s->next);
    s->next = cursor + 1;
    s->count++;
    if (s->leave)
        stream_unsubscribe(s->sub);
    return s->stall_after == 0 || s->count % s->stall_after != 0;
}

static void ended(void *arg, int rc, const struct err *err)
{
    (void)err;
    struct seen *s = arg;
    s->ended++;
    s->rc = rc;
}

static bool even(void *arg, uint8_t kind, const void *record, size_t n)
{
    (void)arg, (void)kind;
    return (((const char *)record)[n - 1] - '0') % 2 == 0;
}

static void subscribe(struct seen *s, struct stream_want want)
{
    struct err err = { 0 };
    want.deliver = deliver;
    want.ended = ended;
    want.arg = s;
    assert_int_equal(stream_subscribe(&s->sub, stream, &want, &err), 0);
}

static void run(void)
{
    while (stream_turn(stream, 7))
        ;
}

static void stream__gives_everything_in_order_and_ends(void **state)
{
    (void)state;
    append(100);
    struct seen all = { .next = 1 }, tail = { .next = 90 };
    subscribe(&all, (struct stream_want){ .credit = STREAM_UNLIMITED });
    subscribe(&tail, (struct stream_want){ .cursor = 90, .credit = STREAM_UNLIMITED });
    append(5);                              /* after the present end: not theirs */
    run();
    assert_int_equal(all.count, 100);
    assert_int_equal(all.ended, 1);
    assert_int_equal(all.rc, 0);
    assert_int_equal(tail.count, 11);
    assert_int_equal(stream_count(stream), 0);
}

static void stream__follows(void **state)
{
    (void)state;
    struct seen s = { .next = 1 };
    subscribe(&s, (struct stream_want){ .follow = true, .credit = STREAM_UNLIMITED });
    run();
    assert_int_equal(s.count, 0);
    append(10);
    run();
    assert_int_equal(s.count, 10);
    assert_false(stream_turn(stream, 100)); /* nothing to do: no work */
    append(1);
    run();
    assert_int_equal(s.count, 11);
    assert_int_equal(stream_cursor(s.sub), 12);
    assert_int_equal(s.ended, 0);
}

static void stream__stops_without_credit_and_on_a_full_consumer(void **state)
{
    (void)state;
    struct seen stalled = { .next = 1, .stall_after = 3 }, poor = { .next = 1 }, well = { .next = 1 };
    subscribe(&stalled, (struct stream_want){ .follow = true, .credit = STREAM_UNLIMITED });
    subscribe(&poor, (struct stream_want){ .follow = true, .credit = 4 });
    subscribe(&well, (struct stream_want){ .follow = true, .credit = STREAM_UNLIMITED });
    append(50);
    run();
    assert_int_equal(stalled.count, 3);
    assert_int_equal(poor.count, 4);
    assert_int_equal(well.count, 50);       /* the others cost it nothing */
    stream_resume(stalled.sub);
    stream_credit(poor.sub, 2);
    run();
    assert_int_equal(stalled.count, 6);
    assert_int_equal(poor.count, 6);
    append(1);
    run();
    assert_int_equal(stalled.count, 6);
    assert_int_equal(well.count, 51);
}

static void stream__filters_at_no_cost_of_credit(void **state)
{
    (void)state;
    append(50);
    struct seen s = { .next = 1 };
    subscribe(&s, (struct stream_want){ .credit = 25, .filter = even });
    run();
    assert_int_equal(s.count, 25);
    assert_int_equal(s.ended, 0);           /* credit is used up exactly */
    stream_credit(s.sub, 1);
    run();
    assert_int_equal(s.ended, 1);
}

static void stream__lets_a_subscriber_leave_from_its_callback(void **state)
{
    (void)state;
    append(10);
    struct seen s = { .next = 1, .leave = true }, other = { .next = 1 };
    subscribe(&s, (struct stream_want){ .credit = STREAM_UNLIMITED });
    subscribe(&other, (struct stream_want){ .credit = STREAM_UNLIMITED });
    run();
    assert_int_equal(s.count, 1);
    assert_int_equal(s.ended, 0);
    assert_int_equal(other.count, 10);
    assert_int_equal(stream_count(stream), 0);
    stream_unsubscribe(NULL);
}

static void stream_subscribe__survives_want_of_memory(void **state)
{
    (void)state;
    struct stream_sub *sub = NULL;
    struct err err = { 0 };
    fault_arm(1);
    assert_int_equal(stream_subscribe(&sub, stream, &(struct stream_want){ .deliver = deliver, .ended = ended }, &err),
                     ERR_LIMIT);
    fault_arm(0);
    assert_null(sub);
    assert_int_equal(stream_count(stream), 0);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    static const struct CMUnitTest tests[] = {
        TEST(stream__gives_everything_in_order_and_ends),
        TEST(stream__follows),
        TEST(stream__stops_without_credit_and_on_a_full_consumer),
        TEST(stream__filters_at_no_cost_of_credit),
        TEST(stream__lets_a_subscriber_leave_from_its_callback),
        TEST(stream_subscribe__survives_want_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
