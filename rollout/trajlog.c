/* trajlog.c - segments, their sparse index, recovery, group commit. Theory in trajlog.h. */
#include "rollout/trajlog.h"
#include "base/fault.h"
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_SIZE     32
#define INDEX_STRIDE  32                    /* records between index entries: at most so many headers are read to seek */
#define BATCH_KEEP    ((size_t)8 << 20)     /* a batch buffer larger than this is not kept */

struct mark { uint64_t cursor, offset; };
struct segment {
    uint64_t first, end;                    /* cursors [first, end) are durable */
    uint64_t size;                          /* bytes up to the end of the last durable record */
    struct mark *marks; size_t mark_count, mark_cap;
};

struct entry { size_t offset; uint32_t length; void *token; };
struct trajlog_batch {
    struct trajlog *log;
    struct buf bytes;                       /* frames back to back; headers are filled by sync */
    struct entry *entries; size_t count, cap;
    bool failed;                            /* decided before anything was written: err says why */
    /* for sync: a copy of what it needs, and what came of it */
    struct trajlog_io io;
    int handle;                             /* of the active segment, -1: none yet */
    bool new_segment, sync_dir, dirty, made, sync_failed;
    uint64_t first, size;
    int rc;
    struct err err;
};

struct trajlog {
    struct trajlog_io io;
    struct trajlog_config config;
    struct segment *segments; size_t count, cap;
    uint64_t next;                          /* cursor of the next durable record */
    uint64_t torn;
    int  active;                            /* handle of the last segment, -1: none */
    bool dirty;                             /* the active file may hold bytes beyond its good end */
    bool seal;                              /* its last fdatasync failed: go on in a new file */
    bool sync_dir;                          /* its name may not be durable yet */
    int  reading; uint64_t reading_first;   /* one older segment kept open for readers; -1 */
    struct trajlog_batch batches[2], *adding, *flying;
};

static void segment_name(char out[NAME_SIZE], uint64_t first)
{
    snprintf(out, NAME_SIZE, "%020llu.seg", (unsigned long long)first);
}

/* A mark that finds no memory is left out: seeking reads more headers, nothing breaks. */
static void segment_mark(struct segment *s, uint64_t cursor, uint64_t offset)
{
    if ((cursor - s->first) % INDEX_STRIDE != 0)
        return;
    if (s->mark_count == s->mark_cap) {
        size_t cap = s->mark_cap == 0 ? 16 : s->mark_cap * 2;
        struct mark *m = realloc(s->marks, cap * sizeof *m);
        if (m == NULL)
            return;
        s->marks = m;
        s->mark_cap = cap;
    }
    s->marks[s->mark_count++] = (struct mark){ cursor, offset };
}

static int reserve_segment(struct trajlog *log, struct err *err)
{
    if (log->count < log->cap)
        return 0;
    size_t cap = log->cap == 0 ? 16 : log->cap * 2;
    struct segment *s = fault_hit("trajlog.segments") ? NULL : realloc(log->segments, cap * sizeof *s);
    if (s == NULL)
        return err_set(err, ERR_LIMIT, "trajectory log: out of memory for %zu segments", cap);
    log->segments = s;
    log->cap = cap;
    return 0;
}

/* ---- opening ---- */

static int note_segment(void *arg, const char *name, struct err *err)
{
    struct trajlog *log = arg;
    if (strlen(name) != 24 || strcmp(name + 20, ".seg") != 0 || strspn(name, "0123456789") != 20)
        return 0;
    errno = 0;
    unsigned long long first = strtoull(name, NULL, 10);
    if (errno != 0 || first == 0)
        return err_set(err, ERR_CORRUPT, "trajectory log: %s is no name of ours; move it away", name);
    int rc = reserve_segment(log, err);
    if (rc < 0)
        return rc;
    log->segments[log->count++] = (struct segment){ .first = first, .end = first };
    return 0;
}

static int by_first(const void *a, const void *b)
{
    uint64_t x = ((const struct segment *)a)->first, y = ((const struct segment *)b)->first;
    return x < y ? -1 : x > y;
}

/* Follow whole frames from the start; stop at the first that is not, or at cursor `limit`. */
static int scan_segment(struct trajlog *log, struct segment *s, int handle, uint64_t limit, struct err *err)
{
    own_buf payload = { .max = log->config.record_bytes_max };
    while (s->end < limit) {
        uint8_t header[TRAJFRAME_HEADER_SIZE];
        struct trajframe f;
        struct err bad = { 0 };
        size_t n;
        int rc = log->io.read(log->io.ctx, handle, s->size, header, sizeof header, &n, err);
        if (rc < 0)
            return rc;
        if (n < sizeof header || trajframe_read(&f, header, log->config.record_bytes_max, &bad) < 0 || f.cursor != s->end)
            return 0;
        buf_reset(&payload);
        uint8_t *p = buf_reserve(&payload, f.length, err);
        if (p == NULL)
            return err->code;
        rc = log->io.read(log->io.ctx, handle, s->size + sizeof header, p, f.length, &n, err);
        if (rc < 0)
            return rc;
        if (n < f.length || !trajframe_intact(&f, p))
            return 0;
        segment_mark(s, s->end, s->size);
        s->end++;
        s->size += sizeof header + f.length;
    }
    return 0;
}

/* What is kept may have been written and not synced by a process that died: it counts from now on, so sync it now. */
static int recover_last(struct trajlog *log, struct segment *s, int handle, struct err *err)
{
    uint64_t size;
    int rc = log->io.size(log->io.ctx, handle, &size, err);
    if (rc == 0 && size > s->size) {
        log->torn = size - s->size;
        rc = log->io.truncate(log->io.ctx, handle, s->size, err);
    }
    if (rc == 0)
        rc = log->io.sync(log->io.ctx, handle, err);
    return rc < 0 ? rc : log->io.sync_dir(log->io.ctx, err);
}

static int recover(struct trajlog *log, struct err *err)
{
    int rc = log->io.lock(log->io.ctx, err);
    if (rc == 0)
        rc = log->io.list(log->io.ctx, note_segment, log, err);
    if (rc < 0)
        return rc;
    if (log->count > 0)
        qsort(log->segments, log->count, sizeof *log->segments, by_first);
    for (size_t i = 0; i < log->count; i++) {
        struct segment *s = &log->segments[i];
        bool last = i + 1 == log->count;
        char name[NAME_SIZE];
        segment_name(name, s->first);
        int handle = log->io.open(log->io.ctx, name, false, err);
        if (handle < 0)
            return handle;
        /* A file that begins at a cursor was begun after all from that cursor on had been given up. */
        rc = scan_segment(log, s, handle, last ? UINT64_MAX : s[1].first, err);
        if (rc == 0 && !last && s->end != s[1].first)
            rc = err_set(err, ERR_CORRUPT, "trajectory log: %s is damaged at byte %llu: record %llu and those up to %llu are "
                         "lost; restore the file, or move the later ones away to go on without them", name,
                         (unsigned long long)s->size, (unsigned long long)s->end, (unsigned long long)s[1].first);
        if (rc == 0 && last)
            rc = recover_last(log, s, handle, err);
        if (rc < 0 || !last)
            log->io.close(log->io.ctx, handle);
        else
            log->active = handle;
        if (rc < 0)
            return rc;
        log->next = s->end;
    }
    return 0;
}

int trajlog_open(struct trajlog **out, const struct trajlog_io *io, const struct trajlog_config *config, struct err *err)
{
    struct trajlog *log = fault_hit("trajlog.alloc") ? NULL : calloc(1, sizeof *log);
    if (log == NULL) {
        io->done(io->ctx);
        return err_set(err, ERR_LIMIT, "trajectory log: out of memory");
    }
    *log = (struct trajlog){ .io = *io, .config = *config, .next = 1, .active = -1, .reading = -1 };
    if (log->config.segment_bytes == 0)
        log->config.segment_bytes = (uint64_t)64 << 20;
    if (log->config.record_bytes_max == 0)
        log->config.record_bytes_max = (uint32_t)32 << 20;
    if (log->config.pending_bytes_max == 0)
        log->config.pending_bytes_max = (size_t)256 << 20;
    for (int i = 0; i < 2; i++)
        log->batches[i] = (struct trajlog_batch){ .log = log, .bytes.max = log->config.pending_bytes_max };
    log->adding = &log->batches[0];
    int rc = recover(log, err);
    if (rc < 0) {
        trajlog_close(log);
        return rc;
    }
    *out = log;
    return 0;
}

void trajlog_close(struct trajlog *log)
{
    if (log == NULL)
        return;
    assert(log->flying == NULL);
    if (log->active >= 0)
        log->io.close(log->io.ctx, log->active);
    if (log->reading >= 0)
        log->io.close(log->io.ctx, log->reading);
    for (size_t i = 0; i < log->count; i++)
        free(log->segments[i].marks);
    free(log->segments);
    for (int i = 0; i < 2; i++) {
        buf_done(&log->batches[i].bytes);
        free(log->batches[i].entries);
    }
    log->io.done(log->io.ctx);
    free(log);
}

uint64_t trajlog_next_cursor(const struct trajlog *log) { return log->next; }

void trajlog_facts(const struct trajlog *log, struct trajlog_facts *out)
{
    *out = (struct trajlog_facts){ .first_cursor = log->count > 0 ? log->segments[0].first : 1, .next_cursor = log->next,
                                   .torn_bytes = log->torn, .segments = (uint32_t)log->count,
                                   .pending_bytes = log->adding->bytes.len };
    for (size_t i = 0; i < log->count; i++)
        out->bytes += log->segments[i].size;
}

/* ---- adding and committing ---- */

int trajlog_add(struct trajlog *log, uint8_t kind, const void *record, size_t n, void *token, struct err *err)
{
    struct trajlog_batch *b = log->adding;
    if (n > log->config.record_bytes_max)
        return err_set(err, ERR_LIMIT, "record of %zu bytes: the trajectory log takes at most %u", n,
                       log->config.record_bytes_max);
    if (b->count == b->cap) {
        size_t cap = b->cap == 0 ? 64 : b->cap * 2;
        struct entry *e = fault_hit("trajlog.entries") ? NULL : realloc(b->entries, cap * sizeof *e);
        if (e == NULL)
            return err_set(err, ERR_LIMIT, "trajectory log: out of memory");
        b->entries = e;
        b->cap = cap;
    }
    struct err full = { 0 };
    uint8_t *p = buf_reserve(&b->bytes, TRAJFRAME_HEADER_SIZE + n, &full);
    if (p == NULL)
        return err_set(err, ERR_BUSY, "trajectory log: %zu bytes wait to be written; come back later", b->bytes.len);
    memset(p, 0, TRAJFRAME_HEADER_SIZE);
    p[0] = kind;                            /* kept here until sync knows the cursor */
    if (n > 0)
        memcpy(p + TRAJFRAME_HEADER_SIZE, record, n);
    b->entries[b->count++] = (struct entry){ .offset = b->bytes.len, .length = (uint32_t)n, .token = token };
    b->bytes.len += TRAJFRAME_HEADER_SIZE + n;
    return 0;
}

struct trajlog_batch *trajlog_commit_begin(struct trajlog *log)
{
    struct trajlog_batch *b = log->adding;
    if (log->flying != NULL || b->count == 0)
        return NULL;
    const struct segment *last = log->count > 0 ? &log->segments[log->count - 1] : NULL;
    b->io = log->io;
    b->first = log->next;
    b->new_segment = last == NULL || (last->size > 0 && (log->seal || last->size >= log->config.segment_bytes));
    b->handle = b->new_segment ? -1 : log->active;
    b->size = b->new_segment ? 0 : last->size;
    b->dirty = !b->new_segment && log->dirty;
    b->sync_dir = b->new_segment || log->sync_dir;
    b->made = b->sync_failed = b->failed = false;
    b->rc = err_set(&b->err, ERR_CANCELLED, "trajectory log: closed before the record was written");
    if (b->new_segment && reserve_segment(log, &b->err) < 0) {
        b->failed = true;
        b->rc = b->err.code;
    }
    log->flying = b;
    log->adding = b == &log->batches[0] ? &log->batches[1] : &log->batches[0];
    return b;
}

static int write_batch(struct trajlog_batch *b)
{
    for (size_t i = 0; i < b->count; i++) {
        uint8_t *frame = b->bytes.data + b->entries[i].offset;
        trajframe_write(frame, frame[0], b->first + i, frame + TRAJFRAME_HEADER_SIZE, b->entries[i].length);
    }
    int rc = 0;
    if (b->new_segment) {
        char name[NAME_SIZE];
        segment_name(name, b->first);
        b->handle = b->io.open(b->io.ctx, name, true, &b->err);
        if (b->handle < 0)
            return b->handle;
        b->made = true;
        b->dirty = true;                    /* a file of that name may be left from a batch that failed */
    }
    if (b->sync_dir) {
        rc = b->io.sync_dir(b->io.ctx, &b->err);
        b->sync_dir = rc < 0;
    }
    if (rc == 0 && b->dirty)
        rc = b->io.truncate(b->io.ctx, b->handle, b->size, &b->err);
    if (rc < 0)
        return rc;
    b->dirty = true;
    rc = b->io.write(b->io.ctx, b->handle, b->size, b->bytes.data, b->bytes.len, &b->err);
    if (rc == 0) {
        rc = b->io.sync(b->io.ctx, b->handle, &b->err);
        b->sync_failed = rc < 0;
    }
    if (rc == 0) {
        b->dirty = false;
        return 0;
    }
    struct err again = { 0 };               /* the first failure is the one to report */
    if (b->io.truncate(b->io.ctx, b->handle, b->size, &again) == 0)
        b->dirty = false;                   /* else the next batch tries again before it writes */
    return rc;
}

void trajlog_commit_sync(struct trajlog_batch *b)
{
    if (!b->failed)
        b->rc = write_batch(b);
}

void trajlog_commit_end(struct trajlog_batch *b, trajlog_done_cb cb, void *arg)
{
    struct trajlog *log = b->log;
    assert(log->flying == b);
    if (b->made) {
        if (log->active >= 0)
            log->io.close(log->io.ctx, log->active);
        log->active = b->handle;
        log->segments[log->count++] = (struct segment){ .first = b->first, .end = b->first };
        log->seal = false;
    }
    if (!b->failed && b->handle >= 0) {
        log->dirty = b->dirty;
        log->sync_dir = b->sync_dir;
        log->seal = log->seal || b->sync_failed;
    }
    if (b->rc == 0) {
        struct segment *s = &log->segments[log->count - 1];
        for (size_t i = 0; i < b->count; i++)
            segment_mark(s, b->first + i, b->size + b->entries[i].offset);
        s->end = b->first + b->count;
        s->size = b->size + b->bytes.len;
        log->next = s->end;
    }
    for (size_t i = 0; i < b->count; i++)
        cb(arg, b->entries[i].token, b->rc, b->rc == 0 ? b->first + i : 0, &b->err);
    b->count = 0;
    if (b->bytes.cap > BATCH_KEEP)
        buf_done(&b->bytes);
    else
        buf_reset(&b->bytes);
    log->flying = NULL;
}

void trajlog_commit(struct trajlog *log, trajlog_done_cb cb, void *arg)
{
    struct trajlog_batch *b = trajlog_commit_begin(log);
    if (b == NULL)
        return;
    trajlog_commit_sync(b);
    trajlog_commit_end(b, cb, arg);
}

/* ---- reading ---- */

static const struct segment *find_segment(const struct trajlog *log, uint64_t cursor)
{
    size_t low = 0, high = log->count;      /* the last one whose first <= cursor */
    while (high - low > 1) {
        size_t mid = low + (high - low) / 2;
        if (log->segments[mid].first <= cursor)
            low = mid;
        else
            high = mid;
    }
    const struct segment *s = &log->segments[low];
    /* A failed first batch leaves an empty segment that the next one fills: only it can be empty. */
    return s->first <= cursor && cursor < s->end ? s : NULL;
}

static int segment_handle(struct trajlog *log, const struct segment *s, struct err *err)
{
    if (s == &log->segments[log->count - 1])
        return log->active;
    if (log->reading >= 0 && log->reading_first == s->first)
        return log->reading;
    char name[NAME_SIZE];
    segment_name(name, s->first);
    int handle = log->io.open(log->io.ctx, name, false, err);
    if (handle < 0)
        return handle;
    if (log->reading >= 0)
        log->io.close(log->io.ctx, log->reading);
    log->reading = handle;
    log->reading_first = s->first;
    return handle;
}

static int read_header(struct trajlog *log, const struct segment *s, int handle, uint64_t offset, uint64_t cursor,
                       struct trajframe *out, struct err *err)
{
    uint8_t header[TRAJFRAME_HEADER_SIZE];
    size_t n = 0;
    int rc = log->io.read(log->io.ctx, handle, offset, header, sizeof header, &n, err);
    if (rc == 0 && n < sizeof header)
        rc = err_set(err, ERR_CORRUPT, "file is shorter than it was");
    if (rc == 0)
        rc = trajframe_read(out, header, log->config.record_bytes_max, err);
    if (rc == 0 && out->cursor != cursor)
        rc = err_set(err, ERR_CORRUPT, "frame says record %llu", (unsigned long long)out->cursor);
    return rc < 0 ? err_in(err, "trajectory log: %020llu.seg, record %llu at byte %llu", (unsigned long long)s->first,
                           (unsigned long long)cursor, (unsigned long long)offset) : 0;
}

static int seek(struct trajlog *log, const struct segment *s, int handle, struct trajlog_place *place, struct err *err)
{
    uint64_t cursor = s->first, offset = 0;
    size_t low = 0, high = s->mark_count;   /* marks[low] is at or before the record, if there is any */
    while (high - low > 1) {
        size_t mid = low + (high - low) / 2;
        if (s->marks[mid].cursor <= place->cursor)
            low = mid;
        else
            high = mid;
    }
    if (s->mark_count > 0 && s->marks[low].cursor <= place->cursor) {
        cursor = s->marks[low].cursor;
        offset = s->marks[low].offset;
    }
    for (; cursor < place->cursor; cursor++) {
        struct trajframe f;
        int rc = read_header(log, s, handle, offset, cursor, &f, err);
        if (rc < 0)
            return rc;
        offset += TRAJFRAME_HEADER_SIZE + f.length;
    }
    place->segment = s->first;
    place->offset = offset;
    return 0;
}

int trajlog_read(struct trajlog *log, struct trajlog_place *place, uint8_t *out_kind, struct buf *out, struct err *err)
{
    if (place->cursor >= log->next)
        return 0;
    const struct segment *s = log->count > 0 ? find_segment(log, place->cursor) : NULL;
    if (s == NULL)
        return err_set(err, ERR_NOT_FOUND, "trajectory log: no record %llu; the first is %llu",
                       (unsigned long long)place->cursor,
                       (unsigned long long)(log->count > 0 ? log->segments[0].first : 1));
    int handle = segment_handle(log, s, err);
    if (handle < 0)
        return handle;
    if (place->segment != s->first) {
        int rc = seek(log, s, handle, place, err);
        if (rc < 0)
            return rc;
    }
    struct trajframe f;
    int rc = read_header(log, s, handle, place->offset, place->cursor, &f, err);
    if (rc < 0)
        return rc;
    buf_reset(out);
    uint8_t *p = buf_reserve(out, f.length, err);
    if (p == NULL)
        return err->code;
    size_t n = 0;
    rc = log->io.read(log->io.ctx, handle, place->offset + TRAJFRAME_HEADER_SIZE, p, f.length, &n, err);
    if (rc < 0)
        return rc;
    if (n < f.length || !trajframe_intact(&f, p))
        return err_set(err, ERR_CORRUPT, "trajectory log: %020llu.seg, record %llu at byte %llu fails its check",
                       (unsigned long long)s->first, (unsigned long long)place->cursor, (unsigned long long)place->offset);
    p[f.length] = '\0';
    out->len = f.length;
    *out_kind = f.kind;
    place->cursor++;
    place->offset += TRAJFRAME_HEADER_SIZE + f.length;
    return 1;
}
