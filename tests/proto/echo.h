/* echo.h - the service that the gRPC tests and benches call: echoes, streams, errors by name. */
#pragma once
#include "proto/grpc_server.h"

/*
 * /test.Echo/Unary      the request comes back; one that starts "err:NAME:TEXT" ends with that code and text,
 *                       "sleep:MS" is answered late, "close" closes the server
 * /test.Echo/Repeat     "COUNT SIZE": that many messages, produced as the client reads
 * /test.Echo/Bidi       each request comes back; OK when the client ends
 * /test.Echo/Hold       never answered
 */
struct echo {
    uv_loop_t *loop;
    struct grpc_server *server;
    uint64_t closed;                /* on_closed calls */
    uint64_t opened;                /* calls that were seen */
    size_t   queued_max;            /* highest grpc_stream_queued() */
    uint64_t sent;                  /* messages of Repeat */
};

/* The server on `loop`. config's limits are kept, methods and arg are set here. */
MUST_CHECK int echo_start(struct echo *e, uv_loop_t *loop, struct grpc_server_config config, struct err *err);
