/*
 * grpc_server.h - gRPC over HTTP/2 (nghttp2) on a libuv loop: framing, flow control, deadlines, trailers.
 *
 * Knows no service: a handler table gives the method names. Messages are packed protobuf bytes.
 * Every limit is explicit: message size, calls per connection, bytes queued towards a slow reader.
 * Unmodified clients (grpcio, grpc-go) can call it: HTTP/2 with prior knowledge, te: trailers, percent-encoded
 * grpc-message, `grpc-timeout`, compression refused by UNIMPLEMENTED with grpc-accept-encoding: identity.
 * On an error the trailer `assay-code` carries err_info()->name beside grpc-status and grpc-message.
 *
 * Threads: everything on the loop's thread. SIGPIPE, when it has its default action, is ignored from grpc_server_new() on.
 */
#pragma once
#include "base/err.h"
#include <stdint.h>
#include <uv.h>

struct grpc_server;
struct grpc_stream;             /* one call as the server sees it */

/* What a method does. All are called from the loop; a handler may answer at once or later. */
struct grpc_method {
    const char *path;           /* "/assay.v1.Rollout/Evaluate" */
    /* A whole request message; bytes valid during the call. `arg` is grpc_server_config.arg. May be called
     * several times when the client streams. */
    void (*on_message)(void *arg, struct grpc_stream *s, const void *bytes, size_t n);
    /* The client will send no more (after the last on_message). NULL: nothing to do. */
    void (*on_half_close)(void *arg, struct grpc_stream *s);
    /* The call is over: finished, cancelled, deadline passed or connection lost. `s` is freed after this.
     * Called exactly once for each stream that saw on_open or on_message. NULL: nothing to do. */
    void (*on_closed)(void *arg, struct grpc_stream *s);
    /* Bytes queued for the client fell below the low mark after having been above (see grpc_stream_queued). */
    void (*on_writable)(void *arg, struct grpc_stream *s);
    bool client_streams;        /* false: exactly one request; a second or none is an error made here */
};

struct grpc_server_config {
    const struct grpc_method *methods; uint32_t method_count;
    void    *arg;
    uint32_t message_bytes_max;         /* 0: 4 MiB */
    uint32_t streams_max;               /* calls at once per connection; 0: 1000 */
    uint32_t connections_max;           /* 0: 1000 */
};

MUST_CHECK int grpc_server_new(struct grpc_server **out, uv_loop_t *loop, const struct grpc_server_config *config,
                               struct err *err);
/* "unix:/path" (mode 0600; a stale socket is replaced, a live one is ERR_EXISTS) or "host:port" (port 0: any). */
MUST_CHECK int grpc_server_listen(struct grpc_server *g, const char *address, struct err *err);
uint32_t grpc_server_port(const struct grpc_server *g);                 /* last TCP port bound, 0 when none */
uint32_t grpc_server_connections(const struct grpc_server *g);          /* open now */
/* Stop listening, finish open calls with UNAVAILABLE, close; the memory is freed once the loop has closed the handles. NULL is fine. */
void grpc_server_close(struct grpc_server *g);

/* Queue one answer message (bytes copied). ERR_CANCELLED when the call is already over. */
MUST_CHECK int grpc_stream_send(struct grpc_stream *s, const void *bytes, size_t n, struct err *err);
/* End the call: err NULL means OK, else its code gives the status. Unary: send, then finish(NULL). */
void   grpc_stream_finish(struct grpc_stream *s, const struct err *err);
size_t grpc_stream_queued(const struct grpc_stream *s);                 /* bytes not yet taken by the client */
void   grpc_stream_set_data(struct grpc_stream *s, void *data);         /* the handler's own state */
void  *grpc_stream_data(const struct grpc_stream *s);
uint64_t grpc_stream_deadline_ns(const struct grpc_stream *s);          /* on clock_mono_ns(); 0: none */
