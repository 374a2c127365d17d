/* Units of rollout/trajlog.c and proto/trajframe.c over real files, and over files that fill up (H21). */
#include "base/fault.h"
#include "base/own.h"
#include "rollout/trajlog.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>
#include <cmocka.h>

static char dir[64];

static int fresh_dir(void **state)
{
    (void)state;
    snprintf(dir, sizeof dir, "/tmp/trajlog_test.XXXXXX");
    return mkdtemp(dir) != NULL ? 0 : -1;
}

static int remove_dir(void **state)
{
    (void)state;
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

/* Files on a disk with `room` bytes left; the next `sync_fails` syncs fail. */
static struct small { struct trajlog_io io; uint64_t room; bool full; int sync_fails, truncate_fails; } small;

static int small_write(void *ctx, int handle, uint64_t offset, const void *bytes, size_t n, struct err *err)
{
    uint64_t now = 0;
    int rc = small.io.size(ctx, handle, &now, err);
    uint64_t part = offset + n > small.room ? (small.room > offset ? small.room - offset : 0) : n;
    if (rc == 0 && part > 0)
        rc = small.io.write(ctx, handle, offset, bytes, part, err);
    if (rc == 0 && small.full && part < n) {
        errno = ENOSPC;
        return err_sys(err, ERR_SYS, "write");
    }
    return rc == 0 && part < n ? small.io.write(ctx, handle, offset + part, (const char *)bytes + part, n - part, err) : rc;
}

static int small_sync(void *ctx, int handle, struct err *err)
{
    if (small.sync_fails > 0) {
        small.sync_fails--;
        errno = EIO;
        return err_sys(err, ERR_SYS, "fdatasync");
    }
    return small.io.sync(ctx, handle, err);
}

static int small_truncate(void *ctx, int handle, uint64_t size, struct err *err)
{
    if (small.truncate_fails > 0) {
        small.truncate_fails--;
        errno = EIO;
        return err_sys(err, ERR_SYS, "truncate");
    }
    return small.io.truncate(ctx, handle, size, err);
}

static struct trajlog *open_log(const struct trajlog_config *config)
{
    struct trajlog_io io;
    struct trajlog *log = NULL;
    struct err err = { 0 };
    assert_int_equal(trajlog_io_files(&io, dir, &err), 0);
    small.io = io;
    io.write = small_write;
    io.sync = small_sync;
    io.truncate = small_truncate;
    int rc = trajlog_open(&log, &io, config, &err);
    if (rc < 0)
        fail_msg("%s", err.msg);
    return log;
}

static const struct trajlog_config plain = { 0 };

struct fate { int calls, rc; uint64_t cursor; struct err err; };
static void note(void *arg, void *token, int rc, uint64_t cursor, const struct err *err)
{
    (void)arg;
    struct fate *f = token;
    f->calls++;
    f->rc = rc;
    f->cursor = cursor;
    if (rc < 0)
        f->err = *err;
}

static struct fate append(struct trajlog *log, const char *text)
{
    struct fate f = { 0 };
    struct err err = { 0 };
    assert_int_equal(trajlog_add(log, TRAJFRAME_EPISODE, text, strlen(text), &f, &err), 0);
    trajlog_commit(log, note, NULL);
    assert_int_equal(f.calls, 1);
    return f;
}

static void expect(struct trajlog *log, uint64_t cursor, const char *text)
{
    own_buf b = { 0 };
    struct err err = { 0 };
    struct trajlog_place place = { .cursor = cursor };
    uint8_t kind = 0;
    int rc = trajlog_read(log, &place, &kind, &b, &err);
    if (rc != 1)
        fail_msg("record %d: %d %s", (int)cursor, rc, err.msg);
    assert_int_equal(kind, TRAJFRAME_EPISODE);
    assert_string_equal((const char *)b.data, text);
    assert_int_equal(place.cursor, cursor + 1);
}

static void trajframe_crc32c__is_castagnoli(void **state)
{
    (void)state;
    assert_int_equal(trajframe_crc32c(0, "123456789", 9), 0xE3069283);      /* the check value of every CRC catalogue */
    uint8_t zeros[32] = { 0 };
    assert_int_equal(trajframe_crc32c(0, zeros, 32), 0x8A9136AA);           /* RFC 3720 B.4 */
    uint32_t whole = trajframe_crc32c(0, "hello, framed world", 19);
    for (size_t n = 0; n <= 19; n++)
        assert_int_equal(trajframe_crc32c(trajframe_crc32c(0, "hello, framed world", n), "hello, framed world" + n, 19 - n),
                         whole);
}

static void trajlog__gives_back_what_was_put_in_across_segments_and_restarts(void **state)
{
    (void)state;
    struct trajlog_config config = { .segment_bytes = 2000 };
    struct trajlog *log = open_log(&config);
    char text[32];
    for (int i = 1; i <= 500; i++) {
        snprintf(text, sizeof text, "record %d", i);
        assert_int_equal(append(log, text).cursor, i);
    }
    for (int round = 0; round < 2; round++) {
        struct trajlog_facts facts;
        trajlog_facts(log, &facts);
        assert_true(facts.segments > 5);
        assert_int_equal(facts.next_cursor, 501);
        assert_int_equal(facts.torn_bytes, 0);
        for (int i = 500; i >= 1; i -= 7) {
            snprintf(text, sizeof text, "record %d", i);
            expect(log, (uint64_t)i, text);
        }
        struct trajlog_place place = { .cursor = 1 };
        own_buf b = { 0 };
        struct err err = { 0 };
        uint8_t kind;
        for (int i = 1; i <= 500; i++) {
            assert_int_equal(trajlog_read(log, &place, &kind, &b, &err), 1);
            snprintf(text, sizeof text, "record %d", i);
            assert_string_equal((const char *)b.data, text);
        }
        assert_int_equal(trajlog_read(log, &place, &kind, &b, &err), 0);
        trajlog_close(log);
        log = open_log(&config);
    }
    assert_int_equal(append(log, "more").cursor, 501);
    trajlog_close(log);
}

static void trajlog_commit__is_one_for_all_that_waited(void **state)
{
    (void)state;
    struct trajlog *log = open_log(&plain);
    struct fate f[3] = { 0 };
    struct err err = { 0 };
    assert_int_equal(trajlog_add(log, TRAJFRAME_EPISODE, "a", 1, &f[0], &err), 0);
    assert_int_equal(trajlog_add(log, TRAJFRAME_APPENDED, "b", 1, &f[1], &err), 0);
    struct trajlog_batch *b = trajlog_commit_begin(log);
    assert_non_null(b);
    assert_int_equal(trajlog_add(log, TRAJFRAME_EPISODE, "c", 1, &f[2], &err), 0);      /* during the sync: the next batch */
    assert_null(trajlog_commit_begin(log));
    trajlog_commit_sync(b);
    assert_int_equal(trajlog_next_cursor(log), 1);              /* not before the end */
    trajlog_commit_end(b, note, NULL);
    assert_int_equal(trajlog_next_cursor(log), 3);
    assert_int_equal(f[0].cursor, 1);
    assert_int_equal(f[1].cursor, 2);
    assert_int_equal(f[2].calls, 0);
    trajlog_commit(log, note, NULL);
    assert_int_equal(f[2].cursor, 3);
    trajlog_close(log);
}

static size_t segment_bytes(uint8_t *out, size_t max)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%020d.seg", dir, 1);
    own_fd fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    ssize_t n = read(fd, out, max);
    assert_true(n > 0);
    return (size_t)n;
}

static void set_segment(const uint8_t *bytes, size_t n)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%020d.seg", dir, 1);
    own_fd fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, n), n);
}

/* H21, second part: cut a file of three records at every byte length. */
static void trajlog_open__returns_the_longest_whole_prefix_of_any_cut(void **state)
{
    (void)state;
    static const char *const texts[] = { "the first record", "2", "and a third one of more bytes" };
    struct trajlog *log = open_log(&plain);
    for (int i = 0; i < 3; i++)
        append(log, texts[i]);
    trajlog_close(log);
    uint8_t whole[512];
    size_t n = segment_bytes(whole, sizeof whole), ends[4] = { 0 };
    for (int i = 0; i < 3; i++)
        ends[i + 1] = ends[i] + TRAJFRAME_HEADER_SIZE + strlen(texts[i]);
    assert_int_equal(n, ends[3]);
    for (size_t cut = 0; cut <= n; cut++) {
        set_segment(whole, cut);
        log = open_log(&plain);
        uint64_t kept = cut >= ends[3] ? 3 : cut >= ends[2] ? 2 : cut >= ends[1] ? 1 : 0;
        struct trajlog_facts facts;
        trajlog_facts(log, &facts);
        assert_int_equal(facts.next_cursor, kept + 1);
        assert_int_equal(facts.torn_bytes, cut - ends[kept]);
        for (uint64_t i = 0; i < kept; i++)
            expect(log, i + 1, texts[i]);
        assert_int_equal(append(log, "after the cut").cursor, kept + 1);
        expect(log, kept + 1, "after the cut");
        trajlog_close(log);
        log = open_log(&plain);             /* and the append is whole for the next one, too */
        expect(log, kept + 1, "after the cut");
        trajlog_close(log);
    }
}

/* Any single byte damaged: what is before it stays, nothing foreign is ever read. */
static void trajlog_open__never_returns_a_damaged_record(void **state)
{
    (void)state;
    struct trajlog *log = open_log(&plain);
    for (int i = 0; i < 3; i++)
        append(log, "0123456789");
    trajlog_close(log);
    uint8_t whole[512], bad[512];
    size_t n = segment_bytes(whole, sizeof whole), each = TRAJFRAME_HEADER_SIZE + 10;
    for (size_t at = 0; at < n; at++) {
        memcpy(bad, whole, n);
        bad[at] ^= 0x41;
        set_segment(bad, n);
        log = open_log(&plain);
        assert_int_equal(trajlog_next_cursor(log), at / each + 1);
        for (uint64_t i = 1; i <= at / each; i++)
            expect(log, i, "0123456789");
        trajlog_close(log);
    }
}

/* H21, first part: 20 records of 10 KiB, a disk of 64 KiB, enlarged after the first "no space". */
static void trajlog__goes_on_after_a_full_disk(void **state)
{
    (void)state;
    small = (struct small){ .room = 65536, .full = true };
    struct trajlog *log = open_log(&plain);
    char text[10240 + 1];
    uint64_t cursors[21] = { 0 };
    int failed = 0;
    for (int i = 1; i <= 20; i++) {
        memset(text, 'a' + i, sizeof text - 1);
        text[sizeof text - 1] = '\0';
        struct fate f = append(log, text);
        if (f.rc < 0) {
            assert_int_equal(f.rc, ERR_SYS);
            assert_int_equal(f.err.sys, ENOSPC);
            assert_int_equal(f.cursor, 0);
            if (failed++ == 1)
                small.full = false;         /* remount,size=1m */
        } else {
            cursors[i] = f.cursor;
        }
    }
    assert_int_equal(failed, 2);
    for (int round = 0; round < 2; round++) {
        uint64_t next = 1;
        for (int i = 1; i <= 20; i++) {
            if (cursors[i] == 0)
                continue;
            assert_int_equal(cursors[i], next);
            memset(text, 'a' + i, sizeof text - 1);
            expect(log, next++, text);
        }
        assert_int_equal(trajlog_next_cursor(log), next);
        assert_int_equal(next, 19);
        trajlog_close(log);
        log = open_log(&plain);
    }
    trajlog_close(log);
}

/* After a failed sync the pages may be lost though they look written: the log goes on in a new file. */
static void trajlog__goes_on_after_a_failed_sync(void **state)
{
    (void)state;
    small = (struct small){ .room = UINT64_MAX / 2 };
    struct trajlog *log = open_log(&plain);
    append(log, "one");
    small.sync_fails = 1;
    small.truncate_fails = 1;               /* "lost" even stays in the file, whole */
    assert_int_equal(append(log, "lost").rc, ERR_SYS);
    assert_int_equal(append(log, "two").cursor, 2);
    for (int round = 0; round < 2; round++) {
        struct trajlog_facts facts;
        trajlog_facts(log, &facts);
        assert_int_equal(facts.segments, 2);
        assert_int_equal(facts.next_cursor, 3);
        expect(log, 1, "one");
        expect(log, 2, "two");
        trajlog_close(log);
        log = open_log(&plain);
    }
    trajlog_close(log);
}

static void trajlog_open__refuses_damage_that_no_crash_explains(void **state)
{
    (void)state;
    small = (struct small){ .room = UINT64_MAX / 2 };
    struct trajlog_config config = { .segment_bytes = 1 };
    struct trajlog *log = open_log(&config);
    append(log, "one");
    append(log, "two");
    trajlog_close(log);
    uint8_t bytes[256];
    size_t n = segment_bytes(bytes, sizeof bytes);
    bytes[n - 1] ^= 1;
    set_segment(bytes, n);
    struct trajlog_io io;
    struct err err = { 0 };
    assert_int_equal(trajlog_io_files(&io, dir, &err), 0);
    log = NULL;
    assert_int_equal(trajlog_open(&log, &io, &config, &err), ERR_CORRUPT);
    assert_null(log);
    assert_non_null(strstr(err.msg, "00000000000000000001.seg is damaged at byte 0"));
}

static void trajlog_open__keeps_a_second_server_out(void **state)
{
    (void)state;
    struct trajlog *log = open_log(&plain), *second = NULL;
    struct trajlog_io io;
    struct err err = { 0 };
    assert_int_equal(trajlog_io_files(&io, dir, &err), 0);
    assert_int_equal(trajlog_open(&second, &io, &plain, &err), ERR_BUSY);
    assert_null(second);
    trajlog_close(log);
    log = open_log(&plain);
    trajlog_close(log);
}

static void trajlog_add__has_limits(void **state)
{
    (void)state;
    struct trajlog_config config = { .record_bytes_max = 100, .pending_bytes_max = 300 };
    struct trajlog *log = open_log(&config);
    struct fate f = { 0 };
    struct err err = { 0 };
    char bytes[101] = { 0 };
    assert_int_equal(trajlog_add(log, TRAJFRAME_EPISODE, bytes, 101, &f, &err), ERR_LIMIT);
    assert_int_equal(trajlog_add(log, TRAJFRAME_EPISODE, bytes, 100, &f, &err), 0);
    assert_int_equal(trajlog_add(log, TRAJFRAME_EPISODE, bytes, 100, &f, &err), 0);
    assert_int_equal(trajlog_add(log, TRAJFRAME_EPISODE, bytes, 100, &f, &err), ERR_BUSY);
    trajlog_commit(log, note, NULL);
    assert_int_equal(f.calls, 2);
    assert_int_equal(trajlog_add(log, TRAJFRAME_EPISODE, bytes, 0, &f, &err), 0);
    trajlog_commit(log, note, NULL);
    assert_int_equal(f.cursor, 3);
    own_buf b = { 0 };
    struct trajlog_place place = { .cursor = 3 };
    uint8_t kind;
    assert_int_equal(trajlog_read(log, &place, &kind, &b, &err), 1);
    assert_int_equal(b.len, 0);
    place = (struct trajlog_place){ .cursor = 0 };
    assert_int_equal(trajlog_read(log, &place, &kind, &b, &err), ERR_NOT_FOUND);
    trajlog_close(log);
}

static void *sync_on_a_pool_thread(void *batch)
{
    trajlog_commit_sync(batch);
    return NULL;
}

/* The loop adds and reads while another thread writes and syncs: for the thread sanitizer (SAN=thread). */
static void trajlog_commit_sync__shares_nothing_with_the_loop(void **state)
{
    (void)state;
    struct trajlog_config config = { .segment_bytes = 3000 };
    struct trajlog *log = open_log(&config);
    struct err err = { 0 };
    struct fate fates[400] = { { 0 } };
    int added = 0;
    assert_int_equal(trajlog_add(log, TRAJFRAME_EPISODE, "0", 1, &fates[added++], &err), 0);
    while (added < 400) {
        pthread_t thread;
        struct trajlog_batch *b = trajlog_commit_begin(log);
        assert_non_null(b);
        assert_int_equal(pthread_create(&thread, NULL, sync_on_a_pool_thread, b), 0);
        for (int i = 0; i < 20 && added < 400; i++) {
            char text[16];
            snprintf(text, sizeof text, "%d", added);
            assert_int_equal(trajlog_add(log, TRAJFRAME_EPISODE, text, strlen(text), &fates[added++], &err), 0);
            uint64_t next = trajlog_next_cursor(log);
            if (next > 1) {
                snprintf(text, sizeof text, "%d", (int)(next - 2));
                expect(log, next - 1, text);
            }
        }
        assert_int_equal(pthread_join(thread, NULL), 0);
        trajlog_commit_end(b, note, NULL);
    }
    trajlog_commit(log, note, NULL);
    for (int i = 0; i < 400; i++)
        assert_int_equal(fates[i].cursor, i + 1);
    trajlog_close(log);
}

static void trajlog__survives_a_fault_at_every_point(void **state)
{
    (void)state;
    for (int nth = 1; ; nth++) {
        struct trajlog_io io;
        struct trajlog *log = NULL;
        struct err err = { 0 };
        struct fate f = { 0 };
        assert_int_equal(trajlog_io_files(&io, dir, &err), 0);
        fault_arm(nth);
        int rc = trajlog_open(&log, &io, &plain, &err);
        if (rc == 0)
            rc = trajlog_add(log, TRAJFRAME_EPISODE, "x", 1, &f, &err);
        if (rc == 0) {
            trajlog_commit(log, note, NULL);
            assert_int_equal(f.calls, 1);
            rc = f.rc;
        }
        bool clean = fault_seen() < nth;
        fault_arm(0);
        trajlog_close(log);
        if (clean) {
            assert_int_equal(rc, 0);
            assert_true(nth > 2);
            break;
        }
        assert_true(rc < 0);
    }
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, fresh_dir, remove_dir)
    small = (struct small){ .room = UINT64_MAX / 2 };
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(trajframe_crc32c__is_castagnoli),
        TEST(trajlog__gives_back_what_was_put_in_across_segments_and_restarts),
        TEST(trajlog_commit__is_one_for_all_that_waited),
        TEST(trajlog_open__returns_the_longest_whole_prefix_of_any_cut),
        TEST(trajlog_open__never_returns_a_damaged_record),
        TEST(trajlog__goes_on_after_a_full_disk),
        TEST(trajlog__goes_on_after_a_failed_sync),
        TEST(trajlog_open__refuses_damage_that_no_crash_explains),
        TEST(trajlog_open__keeps_a_second_server_out),
        TEST(trajlog_add__has_limits),
        TEST(trajlog_commit_sync__shares_nothing_with_the_loop),
        TEST(trajlog__survives_a_fault_at_every_point),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
