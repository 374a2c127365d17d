/* grpc_frame.c - prefixes, queues and header texts of gRPC. */
#include "proto/grpc_frame.h"
#include <stdio.h>
#include <string.h>

#define KEEP_BYTES ((size_t)64 << 10)       /* an empty queue keeps no more memory than this */

int grpc_queue_add(struct grpc_queue *q, const void *bytes, size_t n, struct err *err)
{
    /* Move to the front once half of it is gone: each byte moves at most once per doubling. */
    if (q->off > 0 && q->off >= q->b.len - q->off) {
        memmove(q->b.data, q->b.data + q->off, q->b.len - q->off);
        q->b.len -= q->off;
        q->off = 0;
    }
    return buf_add(&q->b, bytes, n, err);
}

void grpc_queue_take(struct grpc_queue *q, size_t n)
{
    q->off += n;
    if (q->off < q->b.len)
        return;
    q->off = 0;
    size_t max = q->b.max;
    if (q->b.cap > KEEP_BYTES)
        buf_done(&q->b);
    else
        buf_reset(&q->b);
    q->b.max = max;
}

void grpc_queue_done(struct grpc_queue *q)
{
    size_t max = q->b.max;
    buf_done(&q->b);
    q->b.max = max;
    q->off = 0;
}

int grpc_message_put(struct grpc_queue *q, const void *bytes, size_t n, struct err *err)
{
    if (n > UINT32_MAX)
        return err_set(err, ERR_LIMIT, "message of %zu bytes: gRPC counts in 32 bits", n);
    const uint8_t prefix[GRPC_PREFIX_SIZE] = { 0, (uint8_t)(n >> 24), (uint8_t)(n >> 16), (uint8_t)(n >> 8), (uint8_t)n };
    int rc = grpc_queue_add(q, prefix, sizeof prefix, err);
    if (rc < 0)
        return rc;
    rc = buf_add(&q->b, bytes, n, err);
    if (rc < 0)
        q->b.len -= sizeof prefix;
    return rc;
}

int grpc_message_at(const void *bytes, size_t n, uint32_t max, uint32_t *message_n, struct err *err)
{
    const uint8_t *p = bytes;
    if (n == 0)
        return 0;
    if (p[0] == 1)
        return err_set(err, ERR_UNSUPPORTED, "compressed message: only identity is accepted; send it uncompressed");
    if (p[0] != 0)
        return err_set(err, ERR_PROTOCOL, "message flag %u: not gRPC", (unsigned)p[0]);
    if (n < GRPC_PREFIX_SIZE)
        return 0;
    uint32_t len = (uint32_t)p[1] << 24 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 8 | (uint32_t)p[4];
    if (len > max)
        return err_set(err, ERR_LIMIT, "message of %u bytes: the limit is %u", len, max);
    if (n - GRPC_PREFIX_SIZE < len)
        return 0;
    *message_n = len;
    return 1;
}

size_t grpc_percent_encode(char *out, size_t size, const char *text)
{
    static const char hex[] = "0123456789ABCDEF";
    size_t o = 0;
    if (size == 0)
        return 0;
    for (const char *s = text; *s != '\0'; s++) {
        uint8_t c = (uint8_t)*s;
        /* A space at either end would be stripped as white space around a header value. */
        bool plain = c >= 0x20 && c < 0x7f && c != '%' && !(c == ' ' && (s == text || s[1] == '\0'));
        if (o + (plain ? 1 : 3) >= size)
            break;
        if (plain) {
            out[o++] = (char)c;
        } else {
            out[o++] = '%';
            out[o++] = hex[c >> 4];
            out[o++] = hex[c & 15];
        }
    }
    out[o] = '\0';
    return o;
}

static int hex_digit(uint8_t c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

size_t grpc_percent_decode(char *out, size_t size, const void *bytes, size_t n)
{
    const uint8_t *p = bytes;
    size_t o = 0;
    if (size == 0)
        return 0;
    for (size_t i = 0; i < n && o + 1 < size; i++) {
        uint8_t c = p[i];
        if (c == '%' && n - i > 2 && hex_digit(p[i + 1]) >= 0 && hex_digit(p[i + 2]) >= 0) {
            c = (uint8_t)(hex_digit(p[i + 1]) << 4 | hex_digit(p[i + 2]));
            i += 2;
        }
        out[o++] = c == 0 ? '?' : (char)c;
    }
    out[o] = '\0';
    return o;
}

static const struct { char unit; uint64_t ns; } units[] = {     /* from fine to coarse */
    { 'n', 1 }, { 'u', 1000 }, { 'm', 1000000 }, { 'S', 1000000000 },
    { 'M', UINT64_C(60) * 1000000000 }, { 'H', UINT64_C(3600) * 1000000000 },
};
#define UNIT_COUNT (sizeof units / sizeof units[0])

bool grpc_timeout_parse(uint64_t *out_ns, const void *bytes, size_t n)
{
    const uint8_t *p = bytes;
    if (n < 2 || n > 9)
        return false;
    uint64_t v = 0;
    for (size_t i = 0; i < n - 1; i++) {
        if (p[i] < '0' || p[i] > '9')
            return false;
        v = v * 10 + (uint64_t)(p[i] - '0');
    }
    for (size_t i = 0; i < UNIT_COUNT; i++)
        if (units[i].unit == (char)p[n - 1]) {
            if (__builtin_mul_overflow(v, units[i].ns, out_ns))
                *out_ns = UINT64_MAX;
            return true;
        }
    return false;
}

void grpc_timeout_format(char out[16], uint64_t ns)
{
    size_t i = 0;
    uint64_t v = ns;
    while (v > 99999999 && i + 1 < UNIT_COUNT) {
        i++;
        v = ns / units[i].ns + (ns % units[i].ns != 0);
    }
    if (v > 99999999)
        v = 99999999;
    snprintf(out, 16, "%u%c", (unsigned)v, units[i].unit);
}

int grpc_code_of_status(uint32_t status)
{
    static const int codes[] = {
        ERR_NONE, ERR_CANCELLED, ERR_INTERNAL, ERR_USAGE, ERR_DEADLINE, ERR_NOT_FOUND, ERR_EXISTS, ERR_DENIED,
        ERR_LIMIT, ERR_CONFLICT, ERR_BUSY, ERR_BAD_INPUT, ERR_UNSUPPORTED, ERR_INTERNAL, ERR_UNAVAILABLE,
        ERR_CORRUPT, ERR_DENIED,
    };
    return status < sizeof codes / sizeof codes[0] ? codes[status] : ERR_INTERNAL;
}

int grpc_code_of_name(const void *name, size_t n)
{
    for (int code = -1; err_info(code)->code == code; code--)
        if (strlen(err_info(code)->name) == n && memcmp(err_info(code)->name, name, n) == 0)
            return code;
    return 0;
}

int grpc_code_of_http(uint32_t http_status)
{
    switch (http_status) {
    case 400: return ERR_PROTOCOL;
    case 401: case 403: return ERR_DENIED;
    case 404: case 405: case 415: return ERR_UNSUPPORTED;
    case 429: case 502: case 503: case 504: return ERR_UNAVAILABLE;
    default: return ERR_PROTOCOL;
    }
}

bool grpc_number(uint32_t *out, const void *bytes, size_t n)
{
    const uint8_t *p = bytes;
    uint32_t v = 0;
    if (n == 0 || n > 9)
        return false;
    for (size_t i = 0; i < n; i++) {
        if (p[i] < '0' || p[i] > '9')
            return false;
        v = v * 10 + (uint32_t)(p[i] - '0');
    }
    *out = v;
    return true;
}

bool grpc_content_type_ok(const void *bytes, size_t n)
{
    static const char want[] = "application/grpc";
    const size_t len = sizeof want - 1;
    if (n < len || memcmp(bytes, want, len) != 0)
        return false;
    return n == len || ((const char *)bytes)[len] == '+' || ((const char *)bytes)[len] == ';';
}
