/*
 * stream.h - the log as a stream: subscribers with a cursor, a filter and credit.
 *
 * Pull only: a subscriber is a place in the log. Records are read for it when it has credit and its consumer
 * takes them; one that stalls costs its struct and nothing else, and never holds up the log or the others.
 * Everyone sees the records in the log's order, each once (I8). Only durable records are seen.
 *
 * stream_turn() does the work, a few records for each subscriber in turn. Callbacks may subscribe, resume and
 * unsubscribe anyone, themselves included. Threads: the loop's.
 */
#pragma once
#include "rollout/trajlog.h"

struct stream;
struct stream_sub;

struct stream_want {
    uint64_t cursor;            /* first record wanted; 0: the log's first */
    bool follow;                /* false: end at what is the log's end now */
    uint64_t credit;            /* records that may be delivered before stream_credit(); STREAM_UNLIMITED */
    /* NULL: everything. A record left out costs no credit. */
    bool (*filter)(void *arg, uint8_t kind, const void *record, size_t n);
    /* Take one record. false: it was taken, but no more until stream_resume(). */
    bool (*deliver)(void *arg, uint64_t cursor, const void *record, size_t n);
    /* The last call: rc 0 at the end of a stream that does not follow, else what failed. The subscription is gone. */
    void (*ended)(void *arg, int rc, const struct err *err);
    void *arg;
};
#define STREAM_UNLIMITED UINT64_MAX

MUST_CHECK int stream_new(struct stream **out, struct trajlog *log, struct err *err);   /* log is borrowed */
void stream_free(struct stream *s);             /* drops subscriptions without a call */
MUST_CHECK int stream_subscribe(struct stream_sub **out, struct stream *s, const struct stream_want *want, struct err *err);
void stream_unsubscribe(struct stream_sub *sub);    /* no call after this; NULL is fine */
void stream_credit(struct stream_sub *sub, uint64_t records);
void stream_resume(struct stream_sub *sub);         /* its consumer takes records again */
uint64_t stream_cursor(const struct stream_sub *sub);   /* next record it has not been given */
void stream_advanced(struct stream *s);             /* records have become durable */
/* Read and deliver up to about `records_max` records. true: there is more to do. */
bool stream_turn(struct stream *s, uint32_t records_max);
uint32_t stream_count(const struct stream *s);
