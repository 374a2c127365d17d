/*
 * trajlog_fuzz.c - the bytes are the log's only segment: opening it must not crash, must read back every record it counts,
 * and must take a new record after whatever it kept.
 */
#include "base/buf.h"
#include "rollout/trajlog.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

/* One growing file in memory, named as the first segment; a second one may be begun, it starts empty. */
#define FILES_MAX 4
struct disk { struct { char name[64]; struct buf bytes; } files[FILES_MAX]; int count; };

static int disk_lock(void *ctx, struct err *err) { (void)ctx, (void)err; return 0; }
static int disk_sync(void *ctx, int h, struct err *err) { (void)ctx, (void)h, (void)err; return 0; }
static int disk_sync_dir(void *ctx, struct err *err) { (void)ctx, (void)err; return 0; }
static void disk_close(void *ctx, int h) { (void)ctx, (void)h; }
static void disk_done(void *ctx) { (void)ctx; }

static int disk_open(void *ctx, const char *name, bool create, struct err *err)
{
    struct disk *d = ctx;
    for (int i = 0; i < d->count; i++)
        if (strcmp(d->files[i].name, name) == 0)
            return i;
    if (!create || d->count == FILES_MAX)
        return err_set(err, ERR_NOT_FOUND, "%s", name);
    snprintf(d->files[d->count].name, sizeof d->files[0].name, "%s", name);
    return d->count++;
}

static int disk_size(void *ctx, int h, uint64_t *out, struct err *err)
{
    (void)err;
    *out = ((struct disk *)ctx)->files[h].bytes.len;
    return 0;
}

static int disk_read(void *ctx, int h, uint64_t offset, void *to, size_t n, size_t *out_n, struct err *err)
{
    (void)err;
    const struct buf *b = &((struct disk *)ctx)->files[h].bytes;
    *out_n = offset >= b->len ? 0 : b->len - offset < n ? b->len - offset : n;
    if (*out_n > 0)
        memcpy(to, b->data + offset, *out_n);
    return 0;
}

static int disk_write(void *ctx, int h, uint64_t offset, const void *from, size_t n, struct err *err)
{
    struct buf *b = &((struct disk *)ctx)->files[h].bytes;
    if (offset != b->len)
        abort();                    /* an append-only log writes at its end */
    return buf_add(b, from, n, err);
}

static int disk_truncate(void *ctx, int h, uint64_t size, struct err *err)
{
    (void)err;
    struct buf *b = &((struct disk *)ctx)->files[h].bytes;
    if (size > b->len)
        abort();
    b->len = size;
    return 0;
}

static int disk_list(void *ctx, int (*each)(void *arg, const char *name, struct err *err), void *arg, struct err *err)
{
    struct disk *d = ctx;
    int rc = 0;
    for (int i = 0; rc >= 0 && i < d->count; i++)
        rc = each(arg, d->files[i].name, err);
    return rc < 0 ? rc : 0;
}

static void on_done(void *arg, void *token, int rc, uint64_t cursor, const struct err *err)
{
    (void)token, (void)err;
    if (rc < 0)
        abort();
    *(uint64_t *)arg = cursor;
}

static void read_all(struct trajlog *log)
{
    struct trajlog_facts facts;
    trajlog_facts(log, &facts);
    struct trajlog_place place = { .cursor = facts.first_cursor };
    own_buf record = { 0 };
    struct err err = { 0 };
    uint8_t kind;
    for (uint64_t c = facts.first_cursor; c < facts.next_cursor; c++)
        if (trajlog_read(log, &place, &kind, &record, &err) != 1)
            abort();                /* counted, but not readable */
    if (facts.next_cursor > 0 && trajlog_read(log, &place, &kind, &record, &err) > 0)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct disk d = { .count = 1 };
    struct trajlog_io io = { &d, disk_lock, disk_open, disk_size, disk_read, disk_write, disk_sync, disk_truncate, disk_sync_dir,
                             disk_list, disk_close, disk_done };
    struct err err = { 0 };
    struct trajlog *log;
    struct trajlog_config config = { .segment_bytes = 4096, .record_bytes_max = 65536 };
    snprintf(d.files[0].name, sizeof d.files[0].name, "%020d.seg", 1);
    if (n > 0 && buf_add(&d.files[0].bytes, bytes, n, &err) < 0)
        abort();
    int rc = trajlog_open(&log, &io, &config, &err);
    if (rc == 0) {
        read_all(log);
        uint64_t want = trajlog_next_cursor(log), got = 0;
        if (trajlog_add(log, TRAJFRAME_EPISODE, "new", 3, NULL, &err) < 0)
            abort();
        trajlog_commit(log, on_done, &got);
        if (got != want)
            abort();
        read_all(log);
        trajlog_close(log);
    } else if (err.msg[0] == '\0') {
        abort();
    }
    for (int i = 0; i < d.count; i++)
        buf_done(&d.files[i].bytes);
    return 0;
}
