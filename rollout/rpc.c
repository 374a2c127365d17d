/* rpc.c - the method table, and the services that need no file of their own: Rollout and Policy. */
#include "base/clock.h"
#include "base/log.h"
#include "proto/grpc_server.h"
#include "rollout/engine.h"
#include "rollout/policy.h"
#include "rollout/server.h"
#include "rollout/trajlog.h"
#include "rollout/wire.h"
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

void rpc_fail(struct grpc_stream *s, const struct err *err)
{
    if (err_info(err->code)->ours)
        log_err(LOG_WARN, err, "call");
    grpc_stream_finish(s, err);
}

void rpc_answer(struct grpc_stream *s, int rc, const struct buf *message, struct err *err)
{
    if (rc >= 0)
        rc = grpc_stream_send(s, message->data, message->len, err);
    if (rc < 0)
        rpc_fail(s, err);
    else
        grpc_stream_finish(s, NULL);
}

/* --- Rollout.Evaluate and EvaluateMany: the same but for how a call ends --- */

/* One request on its way through the engine. */
struct evaluation {
    LIST_ENTRY(evaluation) entry;
    struct evaluate_call *call;
    uint64_t ticket;
};

/* One gRPC call: one evaluation, or as many as the client sends. */
struct evaluate_call {
    struct server *server;
    struct grpc_stream *stream;
    LIST_HEAD(, evaluation) open;
    bool many, half_closed;
};

static struct evaluate_call *call_of(struct server *server, struct grpc_stream *s, bool many, struct err *err)
{
    struct evaluate_call *c = grpc_stream_data(s);
    if (c != NULL)
        return c;
    c = calloc(1, sizeof *c);
    if (c == NULL) {
        err_set(err, ERR_LIMIT, "call: out of memory");
        return NULL;
    }
    *c = (struct evaluate_call){ .server = server, .stream = s, .many = many };
    LIST_INIT(&c->open);
    grpc_stream_set_data(s, c);
    return c;
}

static void call_end_if_done(struct evaluate_call *c)
{
    if (c->many && c->half_closed && LIST_EMPTY(&c->open))
        grpc_stream_finish(c->stream, NULL);
}

/* Answer one request of a stream; the stream goes on. A request that was refused carries infra_error and no reward. */
static void answer_one(struct evaluate_call *c, const char *request_id, const char *task_id, const uint8_t *episode_id,
                       const struct verdict *v, uint64_t cursor, const struct err *refusal)
{
    own_buf out = { 0 };
    struct err err = { 0 };
    struct verdict refused;
    if (v == NULL) {
        verdict_without_run(&refused, OUTCOME_INFRA_ERROR, refusal->msg, err_info(refusal->code)->name);
        refused.retryable = err_info(refusal->code)->retryable;
        v = &refused;
    }
    int rc = wire_write_evaluate_response(&out, request_id, episode_id, task_id, v, cursor, &err);
    if (!c->many)
        rpc_answer(c->stream, rc, &out, &err);
    else if (rc < 0 || grpc_stream_send(c->stream, out.data, out.len, &err) < 0)
        rpc_fail(c->stream, &err);
}

static void on_reply(void *arg, const struct engine_reply *r)
{
    struct evaluation *ev = arg;
    struct evaluate_call *c = ev->call;
    LIST_REMOVE(ev, entry);
    free(ev);
    if (r->rc < 0 && !c->many)
        rpc_fail(c->stream, r->err);
    else
        answer_one(c, r->request_id, r->task_id, r->rc < 0 ? NULL : r->episode_id, r->rc < 0 ? NULL : r->verdict, r->cursor, r->err);
    call_end_if_done(c);
}

static int submit(struct evaluate_call *c, const struct evaluate_request *request, struct err *err)
{
    struct evaluation *ev = calloc(1, sizeof *ev);
    if (ev == NULL)
        return err_set(err, ERR_LIMIT, "evaluation: out of memory");
    ev->call = c;
    int rc = engine_submit(c->server->engine, request, on_reply, ev, &ev->ticket, err);
    if (rc < 0)
        free(ev);
    else
        LIST_INSERT_HEAD(&c->open, ev, entry);
    return rc;
}

static void evaluate(struct server *server, struct grpc_stream *s, const void *bytes, size_t n, bool many)
{
    own_arena a = { .budget = (size_t)32 << 20 };
    struct err err = { 0 };
    struct evaluate_request request = { .request_id = "", .task_id = "" };
    struct evaluate_call *c = call_of(server, s, many, &err);
    int rc = c == NULL ? err.code : wire_read_evaluate(&request, &a, bytes, n, &err);
    if (rc == 0)
        rc = submit(c, &request, &err);
    if (rc == 0)
        return;
    if (many && c != NULL)
        answer_one(c, request.request_id, request.task_id, NULL, NULL, 0, &err);
    else
        rpc_fail(s, &err);
}

static void rpc_evaluate(void *arg, struct grpc_stream *s, const void *bytes, size_t n)
{
    evaluate(arg, s, bytes, n, false);
}

static void rpc_evaluate_many(void *arg, struct grpc_stream *s, const void *bytes, size_t n)
{
    evaluate(arg, s, bytes, n, true);
}

static void rpc_evaluate_half_closed(void *arg, struct grpc_stream *s)
{
    struct err err = { 0 };
    struct evaluate_call *c = call_of(arg, s, true, &err);
    if (c == NULL) {
        rpc_fail(s, &err);
        return;
    }
    c->half_closed = true;
    call_end_if_done(c);
}

/* The client is gone or its deadline passed: whatever has no request id is cancelled, the rest is finished for its repeat. */
static void rpc_evaluate_closed(void *arg, struct grpc_stream *s)
{
    (void)arg;
    struct evaluate_call *c = grpc_stream_data(s);
    if (c == NULL)
        return;
    while (!LIST_EMPTY(&c->open)) {
        struct evaluation *ev = LIST_FIRST(&c->open);
        LIST_REMOVE(ev, entry);
        engine_cancel(c->server->engine, ev->ticket);
        free(ev);
    }
    free(c);
}

static void rpc_status(void *arg, struct grpc_stream *s, const void *bytes, size_t n)
{
    (void)bytes, (void)n;           /* StatusRequest has no fields */
    struct server *server = arg;
    own_buf out = { 0 };
    struct err err = { 0 };
    struct engine_status status;
    engine_status(server->engine, &status);
    struct server_status answer = { .slots = status.slots, .slots_busy = status.slots_held, .queue_len = status.queue_len,
                                    .queue_max = status.queue_max, .log_next_cursor = trajlog_next_cursor(server->log),
                                    .version = ASSAY_VERSION };
    rpc_answer(s, wire_write_status(&out, &answer, &err), &out, &err);
}

/* --- Policy --- */

static void rpc_publish(void *arg, struct grpc_stream *s, const void *bytes, size_t n)
{
    struct server *server = arg;
    own_buf out = { 0 };
    struct err err = { 0 };
    rpc_answer(s, policy_publish(server->policies_fd, &out, bytes, n, clock_wall_ns(), &err), &out, &err);
}

static void rpc_current(void *arg, struct grpc_stream *s, const void *bytes, size_t n)
{
    struct server *server = arg;
    own_buf out = { 0 };
    struct err err = { 0 };
    rpc_answer(s, policy_current(server->policies_fd, &out, bytes, n, &err), &out, &err);
}

static const struct grpc_method methods[] = {
    { "/assay.v1.Rollout/Evaluate", .on_message = rpc_evaluate, .on_closed = rpc_evaluate_closed },
    { "/assay.v1.Rollout/EvaluateMany", .on_message = rpc_evaluate_many, .on_half_close = rpc_evaluate_half_closed,
      .on_closed = rpc_evaluate_closed, .client_streams = true },
    { "/assay.v1.Rollout/Status", .on_message = rpc_status },
    { "/assay.v1.Trajectories/Append", .on_message = rpc_append, .on_closed = rpc_append_closed },
    { "/assay.v1.Trajectories/Subscribe", .on_message = rpc_subscribe, .on_writable = rpc_subscribe_writable,
      .on_closed = rpc_subscribe_closed },
    { "/assay.v1.Trajectories/Get", .on_message = rpc_get_trajectory },
    { "/assay.v1.Trajectories/List", .on_message = rpc_list_trajectories },
    { "/assay.v1.Catalog/Import", .on_message = rpc_import, .on_closed = rpc_import_closed },
    { "/assay.v1.Catalog/Get", .on_message = rpc_get_task },
    { "/assay.v1.Catalog/List", .on_message = rpc_list_tasks },
    { "/assay.v1.Catalog/Duplicates", .on_message = rpc_duplicates },
    { "/assay.v1.Policy/Publish", .on_message = rpc_publish },
    { "/assay.v1.Policy/Current", .on_message = rpc_current },
};

const struct grpc_method *rpc_methods(uint32_t *out_count)
{
    *out_count = sizeof methods / sizeof methods[0];
    return methods;
}
