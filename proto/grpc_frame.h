/*
 * grpc_frame.h - what both ends of gRPC share: the 5-byte prefix, byte queues, statuses, text in headers.
 *
 * Theory: a message travels as flag(1) + length(4, big endian) + bytes, cut anywhere by HTTP/2 frames.
 * A queue holds such bytes in order; the reading side looks at its front until one message is whole.
 * A declared length is checked against the maximum before it counts, and memory follows the bytes that
 * came, never the length that was claimed. Private to proto/grpc_*.c.
 */
#pragma once
#include "base/buf.h"
#include "base/err.h"
#include <stdint.h>

#define GRPC_PREFIX_SIZE 5

/* Bytes in order: added at the end, taken from the front. Zeroed is empty. */
struct grpc_queue {
    struct buf b;
    size_t     off;             /* where the front is */
};

static inline size_t grpc_queue_len(const struct grpc_queue *q) { return q->b.len - q->off; }
static inline const uint8_t *grpc_queue_front(const struct grpc_queue *q) { return q->b.data + q->off; }
MUST_CHECK int grpc_queue_add(struct grpc_queue *q, const void *bytes, size_t n, struct err *err);
void grpc_queue_take(struct grpc_queue *q, size_t n);       /* n <= grpc_queue_len() */
void grpc_queue_done(struct grpc_queue *q);

/* Append prefix and message. ERR_LIMIT when the queue's maximum would be passed: then nothing is added. */
MUST_CHECK int grpc_message_put(struct grpc_queue *q, const void *bytes, size_t n, struct err *err);

/*
 * One whole message at the front of bytes[n]? 1: *message_n is its length, it starts after the prefix.
 * 0: more bytes are needed. ERR_LIMIT: longer than max. ERR_UNSUPPORTED: compressed. ERR_PROTOCOL: a flag
 * that means nothing.
 */
MUST_CHECK int grpc_message_at(const void *bytes, size_t n, uint32_t max, uint32_t *message_n, struct err *err);

/* grpc-message: all but printable ASCII and '%' as %XX. Returns the length; cut to fit, always terminated. */
size_t grpc_percent_encode(char *out, size_t size, const char *text);
/* The reverse; what is no %XX is kept as it stands. NUL bytes become '?'. */
size_t grpc_percent_decode(char *out, size_t size, const void *bytes, size_t n);

/* grpc-timeout: 1 to 8 digits and a unit of HMSmun. False when malformed. Saturates. */
bool grpc_timeout_parse(uint64_t *out_ns, const void *bytes, size_t n);
/* Written rounded up, so that the far end never gives up before us. out needs 10 bytes. */
void grpc_timeout_format(char out[16], uint64_t ns);

/* Our code for a foreign status number, for the name in `assay-code` (0 when it names none), for an HTTP status. */
int grpc_code_of_status(uint32_t status);
int grpc_code_of_name(const void *name, size_t n);
int grpc_code_of_http(uint32_t http_status);
bool grpc_number(uint32_t *out, const void *bytes, size_t n);   /* decimal, at most 9 digits */

/* "application/grpc", alone or followed by '+' or ';'. */
bool grpc_content_type_ok(const void *bytes, size_t n);
