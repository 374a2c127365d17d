/*
 * rpc_trajectories.c - the Trajectories service over the log: what is durable is what is seen.
 *
 * Subscribe pulls: a stream's next records are read when its client has taken the last ones, so a stalled subscriber
 * costs its place in the log and nothing else.
 */
#include "base/clock.h"
#include "base/own.h"
#include "proto/grpc_server.h"
#include "rollout/index.h"
#include "rollout/runner.h"
#include "rollout/server.h"
#include "rollout/stream.h"
#include "rollout/trajlog.h"
#include "rollout/wire.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* --- Append --- */

/* Lives from the call to the record's fate; `stream` is NULL once the client has gone. */
struct append { struct grpc_stream *stream; uint8_t episode_id[16]; };

static void on_appended(void *arg, int rc, uint64_t cursor, const struct err *why)
{
    struct append *p = arg;
    own_buf out = { 0 };
    struct err err = *why;
    if (p->stream != NULL) {
        grpc_stream_set_data(p->stream, NULL);
        if (rc >= 0)
            rc = wire_write_append_response(&out, cursor, p->episode_id, &err);
        rpc_answer(p->stream, rc, &out, &err);
    }
    free(p);
}

void rpc_append(void *arg, struct grpc_stream *s, const void *bytes, size_t n)
{
    struct server *server = arg;
    own_buf record = { 0 };
    struct err err = { 0 };
    struct append *p = calloc(1, sizeof *p);
    int rc = p == NULL ? err_set(&err, ERR_LIMIT, "append: out of memory") :
             getrandom(p->episode_id, sizeof p->episode_id, 0) != (ssize_t)sizeof p->episode_id ? err_sys(&err, ERR_SYS, "getrandom") :
             wire_read_append(&record, bytes, n, p->episode_id, clock_wall_ns(), &err);
    if (rc < 0) {
        free(p);
        rpc_fail(s, &err);
        return;
    }
    p->stream = s;
    grpc_stream_set_data(s, p);
    runner_append(server->runner, record.data, record.len, on_appended, p);
}

void rpc_append_closed(void *arg, struct grpc_stream *s)
{
    (void)arg;
    struct append *p = grpc_stream_data(s);
    if (p != NULL)
        p->stream = NULL;
}

/* --- Get and List --- */

static int read_record(struct server *server, uint64_t cursor, struct buf *record, struct err *err)
{
    uint8_t kind;
    struct trajlog_place place = { .cursor = cursor };
    int rc = trajlog_read(server->log, &place, &kind, record, err);
    return rc != 0 ? rc : err_set(err, ERR_NOT_FOUND, "record %" PRIu64 " is not written yet", cursor);
}

/* Add to the index what became durable since the last look. */
static int index_catch_up(struct server *server, struct err *err)
{
    own_buf record = { 0 };
    uint8_t kind;
    for (;;) {
        uint64_t cursor = server->indexed.cursor;
        int rc = trajlog_read(server->log, &server->indexed, &kind, &record, err);
        if (rc <= 0)
            return rc;
        own_arena a = { .budget = (size_t)64 << 20 };
        struct trajectory_head head;
        rc = wire_read_trajectory_head(&head, &a, record.data, record.len, err);
        if (rc == 0)
            rc = index_add(&server->index, index_key_of_id(head.episode_id), cursor, err);
        if (rc == 0 && head.request_id[0] != '\0')
            rc = index_add(&server->index, index_key_of_text(head.request_id), cursor, err);
        if (rc < 0) {
            server->indexed = (struct trajlog_place){ .cursor = cursor };
            return err_in(err, "log record %" PRIu64, cursor);
        }
    }
}

static int find_record(struct server *server, const struct get_trajectory_request *request, struct buf *record, uint64_t *out_cursor,
                       struct err *err)
{
    int rc = index_catch_up(server, err);
    if (rc < 0)
        return rc;
    uint64_t key = request->by_episode ? index_key_of_id(request->episode_id) : index_key_of_text(request->request_id);
    uint32_t state = 0;
    uint64_t cursor;
    while ((cursor = index_find(&server->index, key, &state)) != 0) {
        own_arena a = { .budget = (size_t)64 << 20 };
        struct trajectory_head head;
        if ((rc = read_record(server, cursor, record, err)) < 0 ||
            (rc = wire_read_trajectory_head(&head, &a, record->data, record->len, err)) < 0)
            return rc;
        if (request->by_episode ? memcmp(head.episode_id, request->episode_id, 16) == 0 : strcmp(head.request_id, request->request_id) == 0) {
            *out_cursor = cursor;
            return 0;
        }
    }
    if (!request->by_episode)
        return err_set(err, ERR_NOT_FOUND, "no record of request %s in the log", request->request_id);
    char hex[33];
    for (int i = 0; i < 16; i++)
        snprintf(hex + 2 * i, 3, "%02x", request->episode_id[i]);
    return err_set(err, ERR_NOT_FOUND, "no episode %s in the log", hex);
}

void rpc_get_trajectory(void *arg, struct grpc_stream *s, const void *bytes, size_t n)
{
    struct server *server = arg;
    own_arena a = { .budget = (size_t)1 << 20 };
    own_buf record = { 0 }, out = { 0 };
    struct err err = { 0 };
    struct get_trajectory_request request;
    uint64_t cursor = 0;
    int rc = wire_read_get_trajectory(&request, &a, bytes, n, &err);
    if (rc == 0)
        rc = find_record(server, &request, &record, &cursor, &err);
    if (rc == 0)
        rc = wire_write_stored(&out, record.data, record.len, cursor, &err);
    rpc_answer(s, rc, &out, &err);
}

/* One page: at most `limit` records of the task and LIST_LOOK_MAX looked at, so that a call never holds the loop for long. */
#define LIST_LOOK_MAX 4096

void rpc_list_trajectories(void *arg, struct grpc_stream *s, const void *bytes, size_t n)
{
    struct server *server = arg;
    own_arena a = { .budget = (size_t)1 << 20 };
    own_buf record = { 0 }, out = { 0 };
    struct err err = { 0 };
    struct list_request request;
    uint8_t kind;
    int rc = wire_read_list_trajectories(&request, &a, bytes, n, &err);
    struct trajlog_place place = { .cursor = rc == 0 && request.cursor != 0 ? request.cursor : 1 };
    bool more = true;
    for (uint32_t had = 0, seen = 0; rc >= 0 && had < request.limit && seen < LIST_LOOK_MAX; seen++) {
        uint64_t cursor = place.cursor;
        rc = trajlog_read(server->log, &place, &kind, &record, &err);
        if (rc == 0) {
            more = false;
            break;
        }
        if (rc > 0 && request.task_id[0] != '\0') {
            own_arena scratch = { .budget = (size_t)64 << 20 };
            struct trajectory_head head;
            rc = wire_read_trajectory_head(&head, &scratch, record.data, record.len, &err);
            if (rc == 0 && strcmp(head.task_id, request.task_id) != 0)
                continue;
        }
        if (rc >= 0)
            rc = wire_add_listed(&out, record.data, record.len, cursor, &err);
        had++;
    }
    if (rc >= 0)
        rc = wire_end_list(&out, more && place.cursor < trajlog_next_cursor(server->log) ? place.cursor : 0, &err);
    rpc_answer(s, rc, &out, &err);
}

/* --- Subscribe --- */

#define QUEUED_MAX ((size_t)128 << 10)       /* bytes on their way to one client before its stream pauses */

struct subscriber {
    struct grpc_stream *stream;
    struct stream_sub  *sub;                /* NULL once it has ended */
    struct arena arena;                     /* the request's strings */
    struct subscribe_request request;
};

static bool wanted(void *arg, uint8_t kind, const void *record, size_t n)
{
    (void)kind;
    struct subscriber *u = arg;
    own_arena a = { .budget = (size_t)64 << 20 };
    struct trajectory_head head;
    struct err err = { 0 };
    if (wire_read_trajectory_head(&head, &a, record, n, &err) < 0)
        return true;                        /* unreadable to us, intact by its checksum: the client may know better */
    return (!u->request.with_sample_only || head.has_sample) &&
           strncmp(head.task_id, u->request.task_prefix, strlen(u->request.task_prefix)) == 0;
}

static bool deliver(void *arg, uint64_t cursor, const void *record, size_t n)
{
    struct subscriber *u = arg;
    own_buf out = { 0 };
    struct err err = { 0 };
    if (wire_write_stored(&out, record, n, cursor, &err) < 0 || grpc_stream_send(u->stream, out.data, out.len, &err) < 0) {
        stream_unsubscribe(u->sub);
        u->sub = NULL;
        rpc_fail(u->stream, &err);
        return false;
    }
    return grpc_stream_queued(u->stream) < QUEUED_MAX;
}

static void on_ended(void *arg, int rc, const struct err *err)
{
    struct subscriber *u = arg;
    u->sub = NULL;
    if (rc < 0)
        rpc_fail(u->stream, err);
    else
        grpc_stream_finish(u->stream, NULL);
}

void rpc_subscribe(void *arg, struct grpc_stream *s, const void *bytes, size_t n)
{
    struct server *server = arg;
    struct err err = { 0 };
    struct subscriber *u = calloc(1, sizeof *u);
    int rc = u == NULL ? err_set(&err, ERR_LIMIT, "subscribe: out of memory") : wire_read_subscribe(&u->request, &u->arena, bytes, n, &err);
    if (rc == 0) {
        u->stream = s;
        struct stream_want want = { .cursor = u->request.cursor, .follow = u->request.follow, .credit = STREAM_UNLIMITED,
                                    .deliver = deliver, .ended = on_ended, .arg = u };
        if (u->request.with_sample_only || u->request.task_prefix[0] != '\0')
            want.filter = wanted;
        rc = stream_subscribe(&u->sub, server->stream, &want, &err);
    }
    if (rc < 0) {
        if (u != NULL)
            arena_done(&u->arena);
        free(u);
        rpc_fail(s, &err);
        return;
    }
    grpc_stream_set_data(s, u);
}

void rpc_subscribe_writable(void *arg, struct grpc_stream *s)
{
    (void)arg;
    struct subscriber *u = grpc_stream_data(s);
    if (u != NULL && u->sub != NULL)
        stream_resume(u->sub);
}

void rpc_subscribe_closed(void *arg, struct grpc_stream *s)
{
    (void)arg;
    struct subscriber *u = grpc_stream_data(s);
    if (u == NULL)
        return;
    stream_unsubscribe(u->sub);
    arena_done(&u->arena);
    free(u);
}
