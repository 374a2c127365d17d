/* stream.c - subscribers in lists by what they wait for: work, the log's growth, or their consumer. */
#include "rollout/stream.h"
#include "base/fault.h"
#include <stdlib.h>

#define QUANTUM 32                          /* records for one subscriber before the next has its turn */

enum wait { WAIT_TURN, WAIT_LOG, WAIT_CONSUMER, WAIT_COUNT };
struct stream_sub {
    struct stream *stream;
    struct stream_want want;
    struct trajlog_place place;
    uint64_t end;                           /* without follow: first cursor not wanted */
    bool stalled, gone;
    enum wait wait;
    struct stream_sub *next, *prev;
};
struct stream {
    struct trajlog *log;
    struct stream_sub *head[WAIT_COUNT], *tail[WAIT_COUNT];
    struct stream_sub *current;             /* being served: freed afterwards when it goes meanwhile */
    uint32_t count;
    struct buf record;                      /* the record read last: subscribers side by side share it */
    uint64_t record_cursor;
    uint8_t  record_kind;
    struct trajlog_place record_after;
};

static void unlist(struct stream_sub *u)
{
    struct stream *s = u->stream;
    *(u->prev != NULL ? &u->prev->next : &s->head[u->wait]) = u->next;
    *(u->next != NULL ? &u->next->prev : &s->tail[u->wait]) = u->prev;
    u->next = u->prev = NULL;
}

static void list(struct stream_sub *u, enum wait wait)
{
    struct stream *s = u->stream;
    u->wait = wait;
    u->prev = s->tail[wait];
    *(u->prev != NULL ? &u->prev->next : &s->head[wait]) = u;
    s->tail[wait] = u;
}

/* Where it belongs after something about it changed. The one being served is put back when it is done. */
static void relist(struct stream_sub *u)
{
    if (u->stream->current == u)
        return;
    unlist(u);
    bool more = u->place.cursor < (u->want.follow ? trajlog_next_cursor(u->stream->log) : u->end) || !u->want.follow;
    list(u, u->stalled || u->want.credit == 0 ? WAIT_CONSUMER : more ? WAIT_TURN : WAIT_LOG);
}

int stream_new(struct stream **out, struct trajlog *log, struct err *err)
{
    struct stream *s = fault_hit("stream.alloc") ? NULL : calloc(1, sizeof *s);
    if (s == NULL)
        return err_set(err, ERR_LIMIT, "stream: out of memory");
    s->log = log;
    *out = s;
    return 0;
}

void stream_free(struct stream *s)
{
    if (s == NULL)
        return;
    for (int w = 0; w < WAIT_COUNT; w++)
        while (s->head[w] != NULL)
            stream_unsubscribe(s->head[w]);
    buf_done(&s->record);
    free(s);
}

int stream_subscribe(struct stream_sub **out, struct stream *s, const struct stream_want *want, struct err *err)
{
    struct stream_sub *u = fault_hit("stream.subscribe") ? NULL : calloc(1, sizeof *u);
    if (u == NULL)
        return err_set(err, ERR_LIMIT, "subscription: out of memory");
    struct trajlog_facts facts;
    trajlog_facts(s->log, &facts);
    *u = (struct stream_sub){ .stream = s, .want = *want, .end = facts.next_cursor,
                              .place.cursor = want->cursor != 0 ? want->cursor : facts.first_cursor };
    list(u, WAIT_TURN);
    relist(u);
    s->count++;
    *out = u;
    return 0;
}

static void drop(struct stream_sub *u)
{
    if (u->stream->current != u)
        unlist(u);
    u->stream->count--;
    free(u);
}

void stream_unsubscribe(struct stream_sub *u)
{
    if (u == NULL)
        return;
    if (u->stream->current == u)
        u->gone = true;
    else
        drop(u);
}

void stream_credit(struct stream_sub *u, uint64_t records)
{
    u->want.credit = records > STREAM_UNLIMITED - u->want.credit ? STREAM_UNLIMITED : u->want.credit + records;
    relist(u);
}

void stream_resume(struct stream_sub *u)
{
    u->stalled = false;
    relist(u);
}

uint64_t stream_cursor(const struct stream_sub *u) { return u->place.cursor; }
uint32_t stream_count(const struct stream *s) { return s->count; }

void stream_advanced(struct stream *s)
{
    while (s->head[WAIT_LOG] != NULL) {
        struct stream_sub *u = s->head[WAIT_LOG];
        unlist(u);
        list(u, WAIT_TURN);
    }
}

/* 1: the record at its place is in s->record; 0: at the log's end. */
static int fetch(struct stream *s, struct stream_sub *u, struct err *err)
{
    if (s->record_cursor != 0 && s->record_cursor == u->place.cursor) {
        u->place = s->record_after;
        return 1;
    }
    uint64_t cursor = u->place.cursor;
    s->record_cursor = 0;
    int rc = trajlog_read(s->log, &u->place, &s->record_kind, &s->record, err);
    if (rc > 0) {
        s->record_cursor = cursor;
        s->record_after = u->place;
    }
    return rc;
}

/* Serve one for a quantum. True: it is over, `ended` was called. */
static bool serve(struct stream *s, struct stream_sub *u, uint32_t *budget)
{
    struct err err = { 0 };
    for (uint32_t n = 0; n < QUANTUM && *budget > 0 && u->want.credit > 0 && !u->stalled; n++) {
        uint64_t cursor = u->place.cursor;
        int rc = !u->want.follow && cursor >= u->end ? 0 : fetch(s, u, &err);
        if (rc < 0 || (rc == 0 && !u->want.follow)) {
            u->want.ended(u->want.arg, rc, &err);
            return true;
        }
        if (rc == 0)
            return false;
        (*budget)--;
        if (u->want.filter != NULL && !u->want.filter(u->want.arg, s->record_kind, s->record.data, s->record.len))
            continue;
        if (u->want.credit != STREAM_UNLIMITED)
            u->want.credit--;
        if (!u->want.deliver(u->want.arg, cursor, s->record.data, s->record.len))
            u->stalled = true;
        if (u->gone)
            return true;
    }
    return false;
}

bool stream_turn(struct stream *s, uint32_t records_max)
{
    uint32_t budget = records_max;
    while (budget > 0 && s->head[WAIT_TURN] != NULL) {
        struct stream_sub *u = s->head[WAIT_TURN];
        unlist(u);
        s->current = u;
        bool over = serve(s, u, &budget);
        if (over || u->gone) {
            drop(u);
            s->current = NULL;
            continue;
        }
        s->current = NULL;
        list(u, WAIT_TURN);
        relist(u);
    }
    return s->head[WAIT_TURN] != NULL;
}
