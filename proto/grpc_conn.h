/*
 * grpc_conn.h - private to grpc_server.c and grpc_stream.c: server, connection and call, and who calls whom.
 *
 *   uv read -> grpc_conn_feed() -> nghttp2 callbacks (grpc_stream.c) -> handler -> grpc_stream_send/finish
 *           -> queue + grpc_conn_dirty()                              (nothing is written from here)
 *   end of the loop's turn -> flush of the dirty connections: frames are gathered and written at once
 *           -> wake: handlers whose queue drained                     (outside of nghttp2)
 *
 * A handler may do anything with its call at any time: send and finish only queue. A stream's memory goes
 * when nghttp2 closes the stream or the connection ends, both outside handler calls on it, after on_closed.
 */
#pragma once
#include "proto/grpc_frame.h"
#include "proto/grpc_server.h"
#include "proto/grpc_timer.h"
#include <nghttp2/nghttp2.h>
#include <sys/un.h>

#define GRPC_HIGH_BYTES     ((size_t)64 << 10)  /* queue above this, then at or below it: on_writable */
#define GRPC_QUEUE_BYTES    ((size_t)8 << 20)   /* a queue this long takes no more messages: ERR_BUSY */
#define GRPC_HEADERS_BYTES  ((size_t)16 << 10)  /* header block of one request, decoded */
#define GRPC_INBOUND_BYTES  ((size_t)256 << 20) /* unfinished request messages, all connections together */
#define GRPC_GATHER_BYTES   ((size_t)256 << 10) /* frames per write */
#define GRPC_FRAME_BYTES    ((size_t)64 << 10)  /* DATA payload at most, where the client allows it */
#define GRPC_HELLO_NS       (10 * UINT64_C(1000000000))     /* connect to first request or SETTINGS */
#define GRPC_CLOSE_NS       (1 * UINT64_C(1000000000))      /* grpc_server_close() to the hard end */

struct grpc_conn;

struct grpc_listener {
    union { uv_handle_t handle; uv_stream_t stream; uv_tcp_t tcp; uv_pipe_t pipe; } uv;
    struct grpc_server   *server;
    struct grpc_listener *next;
    char path[sizeof ((struct sockaddr_un *)0)->sun_path];  /* unlinked at the end; empty for TCP */
};

struct grpc_server {
    uv_loop_t *loop;
    struct grpc_server_config config;
    nghttp2_session_callbacks *callbacks;
    nghttp2_option *option;
    struct grpc_listener *listeners;
    struct grpc_conn *conns;
    struct grpc_conn *dirty, *dirty_last;   /* first come, first flushed */
    uint32_t dirty_count;
    struct grpc_timers timers;
    uv_prepare_t prepare;
    uv_check_t check;
    uv_idle_t idle;             /* active while something is dirty: the loop then does not sleep */
    uv_timer_t timer;
    uint64_t timer_at_ns;       /* what the uv timer is armed for */
    uint32_t handles;           /* uv handles not yet closed; the memory goes with the last */
    uint32_t conn_count, port;
    size_t inbound_bytes, gather_len;
    bool closing;
    uint8_t *gather;            /* frames of the connection being flushed */
    uint8_t read_bytes[64 << 10];
};

struct grpc_conn {
    union { uv_handle_t handle; uv_stream_t stream; uv_tcp_t tcp; uv_pipe_t pipe; } uv;
    struct grpc_server *server;
    struct grpc_conn *prev, *next, *dirty_prev, *dirty_next;
    nghttp2_session *session;
    struct grpc_stream *streams;
    struct grpc_stream *wake;   /* whose handler wants to know that its queue drained */
    struct grpc_timer timer;    /* hello, later the end */
    uv_shutdown_t shut_req;
    bool dirty, writing, closing, greeted, shut;
};

struct grpc_stream {
    struct grpc_conn *conn;     /* NULL never: a stream ends before its connection */
    struct grpc_stream *prev, *next, *wake_next;
    const struct grpc_method *method;
    struct grpc_queue in, out;
    struct grpc_timer timer;
    void *data;
    char *message;              /* grpc-message, encoded; NULL: none */
    size_t header_bytes;
    size_t promised;            /* bytes of `out` in a DATA frame whose header is decided */
    uint64_t deadline_ns;
    int code;                   /* of the end */
    int32_t id;
    uint16_t http_status;       /* 200, or why this is no gRPC at all */
    bool post, typed, compressed, timeout_bad;  /* what the headers said */
    bool seen;                  /* the handler knows this call: it gets on_closed */
    bool over;                  /* ... and got it */
    bool finished;              /* the status is decided */
    bool responded;             /* response headers are submitted */
    bool trailed;               /* trailers are submitted */
    bool deferred;              /* nghttp2 waits for bytes */
    bool half_closed;
    bool above, waking;
};

/* grpc_server.c */
void grpc_conn_dirty(struct grpc_conn *c);          /* there may be something to write */
void grpc_server_arm(struct grpc_server *g);        /* the heap's front may have changed */
uint8_t *grpc_gather(struct grpc_server *g, size_t n);  /* room in the write being put together; NULL: full */

/* grpc_stream.c */
MUST_CHECK int grpc_stream_callbacks(nghttp2_session_callbacks **out);      /* nghttp2's codes */
void grpc_stream_fail(struct grpc_stream *s, int code, const char *text);   /* what is queued is dropped */
void grpc_stream_drop(struct grpc_stream *s);       /* on_closed, then gone */
void grpc_stream_wake(struct grpc_conn *c);
