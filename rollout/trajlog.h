/*
 * trajlog.h - the trajectory log: append-only segment files, group commit, recovery of the longest whole prefix.
 *
 * DIR/<cursor of the first record, 20 digits>.seg holds frames (proto/trajframe.h); DIR/lock keeps a second
 * server out. A record's cursor is its ordinal, from 1. trajlog_add() only buffers. A commit writes everything
 * buffered and calls fdatasync once; a record counts (has a cursor, is read, may be acknowledged) only after
 * that. A commit that fails leaves nothing behind: the file is cut back to its last good end, its records are
 * reported as not written, and later commits go on (a full disk that was emptied needs no restart).
 *
 * Opening reads every frame. The longest whole prefix stays, a torn tail is cut off. Damage before the last
 * segment cannot come from a crash: that is ERR_CORRUPT and the files are left alone.
 *
 * Threads: everything belongs to the loop's thread but trajlog_commit_sync(), which may run on another one:
 * it touches nothing but its batch. At most one batch is in flight.
 */
#pragma once
#include "base/buf.h"
#include "base/err.h"
#include "proto/trajframe.h"
#include <stdint.h>

struct trajlog;
struct trajlog_batch;

/* Files, so that a test may fill, fail and tear them. Handles are >= 0; messages name the file. */
struct trajlog_io {
    void *ctx;
    int  (*lock)(void *ctx, struct err *err);                               /* ERR_BUSY: another server has it */
    int  (*open)(void *ctx, const char *name, bool create, struct err *err);/* handle */
    int  (*size)(void *ctx, int handle, uint64_t *out, struct err *err);
    int  (*read)(void *ctx, int handle, uint64_t offset, void *bytes, size_t n, size_t *out_n, struct err *err);
    /* All, or an error after some. */
    int  (*write)(void *ctx, int handle, uint64_t offset, const void *bytes, size_t n, struct err *err);
    int  (*sync)(void *ctx, int handle, struct err *err);
    int  (*truncate)(void *ctx, int handle, uint64_t size, struct err *err);
    int  (*sync_dir)(void *ctx, struct err *err);
    int  (*list)(void *ctx, int (*each)(void *arg, const char *name, struct err *err), void *arg, struct err *err);
    void (*close)(void *ctx, int handle);
    void (*done)(void *ctx);                                                /* unlock, free ctx */
};
/* Real files in `dir`, which is made when missing. */
MUST_CHECK int trajlog_io_files(struct trajlog_io *out, const char *dir, struct err *err);

struct trajlog_config {         /* 0: the default */
    uint64_t segment_bytes;     /* a new segment begins beyond this; 64 MiB */
    uint32_t record_bytes_max;  /* 32 MiB */
    size_t   pending_bytes_max; /* added and not yet in a batch; 256 MiB, then ERR_BUSY */
};
/* Takes io in any case. On success *out is owned by the caller. */
MUST_CHECK int trajlog_open(struct trajlog **out, const struct trajlog_io *io, const struct trajlog_config *config,
                            struct err *err);
/* Buffered records that no commit took are dropped; no batch may be in flight. NULL is fine. */
void trajlog_close(struct trajlog *log);

struct trajlog_facts { uint64_t first_cursor, next_cursor, bytes, torn_bytes; uint32_t segments; size_t pending_bytes; };
void trajlog_facts(const struct trajlog *log, struct trajlog_facts *out);   /* torn_bytes: cut off when it was opened */
uint64_t trajlog_next_cursor(const struct trajlog *log);                    /* one beyond the last durable record */

/* Buffer one record (copied). `token` comes back with its fate. ERR_LIMIT: too large; ERR_BUSY: buffer full. */
MUST_CHECK int trajlog_add(struct trajlog *log, uint8_t kind, const void *record, size_t n, void *token, struct err *err);

/* One call per record, in the order of trajlog_add(). rc < 0: it is not in the log. */
typedef void (*trajlog_done_cb)(void *arg, void *token, int rc, uint64_t cursor, const struct err *err);
struct trajlog_batch *trajlog_commit_begin(struct trajlog *log);    /* NULL: nothing buffered, or a batch is in flight */
void trajlog_commit_sync(struct trajlog_batch *b);                  /* writes, fdatasync; any thread */
void trajlog_commit_end(struct trajlog_batch *b, trajlog_done_cb cb, void *arg);
void trajlog_commit(struct trajlog *log, trajlog_done_cb cb, void *arg);    /* all three */

/* Where a reader stands. { .cursor = c } is a place; the rest is filled by reading and saves the search. */
struct trajlog_place { uint64_t cursor, segment, offset; };
/*
 * Read the record at place->cursor into out (emptied first; its `max` is respected) and go on to the next.
 * 1: read; 0: not written yet; ERR_NOT_FOUND: before the log's first record; ERR_CORRUPT.
 */
MUST_CHECK int trajlog_read(struct trajlog *log, struct trajlog_place *place, uint8_t *out_kind, struct buf *out,
                            struct err *err);
