/* buf.c - growable bytes with a hard maximum. */
#include "base/buf.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void *buf_reserve(struct buf *b, size_t n, struct err *err)
{
    size_t max = b->max != 0 ? b->max : BUF_MAX_DEFAULT;
    if (n > max || b->len > max - n) {
        err_set(err, ERR_LIMIT, "buffer: %zu more bytes would pass its limit of %zu", n, max);
        return NULL;
    }
    size_t need = b->len + n + 1;               /* the uncounted NUL */
    if (need > b->cap) {
        size_t cap = b->cap < 256 ? 256 : b->cap;
        while (cap < need)
            cap += cap / 2;
        uint8_t *p = realloc(b->data, cap);
        if (p == NULL) {
            err_set(err, ERR_LIMIT, "buffer: out of memory at %zu bytes", cap);
            return NULL;
        }
        b->data = p;
        b->cap = cap;
        b->data[b->len] = '\0';
    }
    return b->data + b->len;
}

int buf_add(struct buf *b, const void *bytes, size_t n, struct err *err)
{
    uint8_t *p = buf_reserve(b, n, err);
    if (p == NULL)
        return err->code;
    if (n > 0)
        memcpy(p, bytes, n);
    b->len += n;
    b->data[b->len] = '\0';
    return 0;
}

int buf_addf(struct buf *b, struct err *err, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    char *p = n < 0 ? NULL : buf_reserve(b, (size_t)n, err);
    if (p != NULL) {
        vsnprintf(p, (size_t)n + 1, fmt, again);
        b->len += (size_t)n;
    } else if (n < 0) {
        err_set(err, ERR_INTERNAL, "buffer: bad format");
    }
    va_end(again);
    return p != NULL ? 0 : err->code;
}

int buf_read_fd(struct buf *b, int fd, struct err *err)
{
    for (;;) {
        uint8_t *p = buf_reserve(b, 1, err);
        if (p == NULL)
            return err->code;
        size_t room = b->cap - b->len - 1, max = b->max != 0 ? b->max : BUF_MAX_DEFAULT;
        if (room > max - b->len)
            room = max - b->len;
        ssize_t n = read(fd, p, room);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_sys(err, ERR_SYS, "read");
        b->len += (size_t)n;
        b->data[b->len] = '\0';
        if (n == 0)
            return 0;
        if (b->len == max)                      /* full: only the end of the file may follow */
            switch (read(fd, &(char){ 0 }, 1)) {
            case 0:  return 0;
            case 1:  return err_set(err, ERR_LIMIT, "input is larger than %zu bytes", max);
            default: return err_sys(err, ERR_SYS, "read");
            }
        if (b->cap - b->len <= 1 && buf_reserve(b, b->len < max / 2 ? b->len : 1, err) == NULL)
            return err->code;
    }
}

void buf_reset(struct buf *b)
{
    b->len = 0;
    if (b->data != NULL)
        b->data[0] = '\0';
}

void buf_done(struct buf *b)
{
    free(b->data);
    *b = (struct buf){ .max = b->max };
}
