/*
 * buf.h - growable bytes with a hard maximum.
 *
 * A zeroed struct buf with `max` set is an empty buffer. Appending beyond max fails with
 * ERR_LIMIT and leaves the content as it was. `data` is always NUL-terminated once non-NULL
 * (the NUL is not counted), so text may be read as a C string.
 */
#pragma once
#include "base/err.h"
#include <stdint.h>

struct buf {
    uint8_t *data;          /* owned by the buffer; moves when it grows */
    size_t   len, cap;
    size_t   max;           /* bytes; 0 means BUF_MAX_DEFAULT */
};

#define BUF_MAX_DEFAULT ((size_t)64 << 20)

MUST_CHECK int buf_add(struct buf *b, const void *bytes, size_t n, struct err *err);
MUST_CHECK int buf_addf(struct buf *b, struct err *err, const char *fmt, ...) PRINTF_LIKE(3, 4);
/* Make room for n more bytes and return where they go; the caller then raises len. NULL: limit. */
MUST_CHECK void *buf_reserve(struct buf *b, size_t n, struct err *err);
/* Read the whole of fd from its current offset, up to max. */
MUST_CHECK int buf_read_fd(struct buf *b, int fd, struct err *err);
void buf_reset(struct buf *b);      /* empty, memory kept */
void buf_done(struct buf *b);       /* empty, memory freed; zeroed buffer is fine */
#define own_buf __attribute__((cleanup(buf_done))) struct buf
