/* binary.c - what a "GIT binary patch" carries: base85 lines around a zlib stream, and git's deltas. */
#include "base/buf.h"
#include "repos/patch.h"
#include <string.h>
#include <zlib.h>

/* git's alphabet; the value of a character is its place. */
static const char alphabet[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~";

const char *binary_lines_add(struct buf *z, const char *line, size_t n, struct err *err)
{
    unsigned want = line[0] >= 'A' && line[0] <= 'Z' ? (unsigned)(line[0] - 'A' + 1)
                  : line[0] >= 'a' && line[0] <= 'z' ? (unsigned)(line[0] - 'a' + 27) : 0;
    if (want == 0 || n != 1 + (want + 3) / 4 * 5)
        return "a line has the wrong length";
    uint8_t out[56];
    unsigned len = 0;
    for (size_t i = 1; i < n; i += 5) {
        uint64_t v = 0;
        for (size_t k = 0; k < 5; k++) {
            const char *at = line[i + k] != '\0' ? strchr(alphabet, line[i + k]) : NULL;
            if (at == NULL)
                return "a character that is not base85";
            v = v * 85 + (uint64_t)(at - alphabet);
        }
        if (v > UINT32_MAX)
            return "a group that is not base85";
        for (int shift = 24; shift >= 0 && len < want; shift -= 8)
            out[len++] = (uint8_t)(v >> shift);
    }
    return buf_add(z, out, len, err) < 0 ? "too large" : NULL;
}

/* The stream must give exactly the announced size and end with it. */
const char *binary_inflate(void **out, size_t *out_n, const struct binary_data *d, struct arena *a)
{
    uint8_t *bytes = arena_alloc(a, d->size + 1);
    if (bytes == NULL)
        return "binary data does not fit the memory budget";
    z_stream z = { .next_in = (Bytef *)(uintptr_t)d->z, .avail_in = (uInt)d->z_len, .next_out = bytes,
                   .avail_out = (uInt)(d->size + 1) };
    if (inflateInit(&z) != Z_OK)
        return "binary data cannot be unpacked";
    int rc = inflate(&z, Z_FINISH);
    bool whole = rc == Z_STREAM_END && z.avail_in == 0 && z.total_out == d->size;
    inflateEnd(&z);
    if (!whole)
        return "binary data is damaged or cut off";
    *out = bytes;
    *out_n = d->size;
    return NULL;
}

static bool delta_size(const uint8_t *d, size_t n, size_t *at, uint64_t *out)
{
    *out = 0;
    for (unsigned shift = 0; *at < n && shift < 63; shift += 7) {
        uint8_t c = d[(*at)++];
        *out |= (uint64_t)(c & 0x7f) << shift;
        if ((c & 0x80) == 0)
            return true;
    }
    return false;
}

/* Documentation/gitformat-pack: sizes of source and target, then copies from the source and inserted bytes. */
const char *binary_delta(void **out, size_t *out_n, const uint8_t *delta, size_t delta_n, const uint8_t *src, size_t src_n,
                         size_t out_max, struct arena *a)
{
    size_t at = 0, len = 0;
    uint64_t from = 0, to = 0;
    if (!delta_size(delta, delta_n, &at, &from) || !delta_size(delta, delta_n, &at, &to))
        return "a delta is damaged";
    if (from != src_n)
        return "a delta is for a file of another size";
    if (to > out_max)
        return "a delta makes too large a file";
    uint8_t *bytes = arena_alloc(a, to + 1);
    if (bytes == NULL)
        return "binary data does not fit the memory budget";
    while (at < delta_n) {
        uint8_t c = delta[at++];
        uint64_t offset = 0, n = c;
        const uint8_t *p = delta + at;
        if ((c & 0x80) != 0) {
            n = 0;
            for (unsigned k = 0; k < 7; k++)
                if ((c & (1u << k)) != 0) {
                    if (at == delta_n)
                        return "a delta is damaged";
                    if (k < 4)
                        offset |= (uint64_t)delta[at++] << (8 * k);
                    else
                        n |= (uint64_t)delta[at++] << (8 * (k - 4));
                }
            n = n != 0 ? n : 0x10000;
            if (offset > src_n || n > src_n - offset)
                return "a delta is damaged";
            p = src + offset;
        } else {
            if (n == 0 || n > delta_n - at)
                return "a delta is damaged";
            at += n;
        }
        if (n > to - len)
            return "a delta is damaged";
        memcpy(bytes + len, p, n);
        len += n;
    }
    if (len != to)
        return "a delta is damaged";
    *out = bytes;
    *out_n = len;
    return NULL;
}
