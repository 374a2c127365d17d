/*
 * grpc_client.h - a blocking gRPC client for the command line and the learner.
 *
 * One connection, one thread. Several calls may be open at once on it; each grpc_call_* function
 * drives the whole connection (poll + nghttp2) until its own call has what it waits for.
 * Messages are packed protobuf bytes; framing (5-byte prefix), deadlines and trailers are done here.
 */
#pragma once
#include "base/buf.h"
#include "base/err.h"
#include <stdint.h>

struct grpc_client;
struct grpc_call;

/* `address`: "unix:/path" or "host:port". Connects within timeout_ns. ERR_UNAVAILABLE when nobody listens. */
MUST_CHECK int grpc_client_open(struct grpc_client **out, const char *address, uint64_t timeout_ns, struct err *err);
void grpc_client_close(struct grpc_client *c);          /* ends open calls; NULL is fine */

/*
 * One request, one answer. `method` is "/assay.v1.Rollout/Evaluate". timeout_ns 0: no deadline.
 * A gRPC status other than OK becomes an error code: the server sends ours by name in the trailer
 * `assay-code`, else the status is mapped; the message is the server's.
 */
MUST_CHECK int grpc_client_unary(struct grpc_client *c, const char *method, const void *request, size_t n,
                                 struct buf *answer, uint64_t timeout_ns, struct err *err);

/* A call of any shape. *out is owned: end it with grpc_call_end(). */
MUST_CHECK int grpc_call_start(struct grpc_call **out, struct grpc_client *c, const char *method,
                               uint64_t timeout_ns, struct err *err);
MUST_CHECK int grpc_call_send(struct grpc_call *k, const void *message, size_t n, struct err *err);
MUST_CHECK int grpc_call_send_end(struct grpc_call *k, struct err *err);    /* no more requests */
/* Next message into *out (reset first). Returns 1, or 0 when the server ended the call with OK.
 * wait_ns: how long to wait for it, UINT64_MAX for ever; ERR_DEADLINE when it did not come, the call stays open. */
MUST_CHECK int grpc_call_recv(struct grpc_call *k, struct buf *out, uint64_t wait_ns, struct err *err);
void grpc_call_end(struct grpc_call *k);                /* cancels when not ended; NULL is fine */
