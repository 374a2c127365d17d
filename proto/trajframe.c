/* trajframe.c - frame headers, and CRC32C by instruction where the processor has it, by table elsewhere. */
#include "proto/trajframe.h"
#include <string.h>

#define MAGIC   UINT32_C(0x314A5441)
#define VERSION 1
#define POLY    UINT32_C(0x82F63B78)        /* Castagnoli, reflected */

static uint32_t crc_by_table(uint32_t crc, const uint8_t *p, size_t n)
{
    static uint32_t table[8][256];          /* slicing by 8; the same values whoever fills it */
    static bool filled;
    if (!__atomic_load_n(&filled, __ATOMIC_ACQUIRE)) {
        for (uint32_t i = 0; i < 256; i++) {
            uint32_t c = i;
            for (int k = 0; k < 8; k++)
                c = (c >> 1) ^ ((c & 1) != 0 ? POLY : 0);
            __atomic_store_n(&table[0][i], c, __ATOMIC_RELAXED);
        }
        for (uint32_t i = 0; i < 256; i++)
            for (int k = 1; k < 8; k++)
                __atomic_store_n(&table[k][i], (table[k - 1][i] >> 8) ^ table[0][table[k - 1][i] & 255], __ATOMIC_RELAXED);
        __atomic_store_n(&filled, true, __ATOMIC_RELEASE);
    }
    for (; n >= 8; n -= 8, p += 8) {
        uint32_t a = crc ^ ((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24);
        crc = table[7][a & 255] ^ table[6][(a >> 8) & 255] ^ table[5][(a >> 16) & 255] ^ table[4][a >> 24]
            ^ table[3][p[4]] ^ table[2][p[5]] ^ table[1][p[6]] ^ table[0][p[7]];
    }
    for (; n > 0; n--)
        crc = (crc >> 8) ^ table[0][(crc ^ *p++) & 255];
    return crc;
}

#ifdef __x86_64__
__attribute__((target("sse4.2"))) static uint32_t crc_by_instruction(uint32_t crc, const uint8_t *p, size_t n)
{
    uint64_t c = crc;
    for (; n >= 8; n -= 8, p += 8) {
        uint64_t word;
        memcpy(&word, p, sizeof word);
        c = __builtin_ia32_crc32di(c, word);
    }
    uint32_t c32 = (uint32_t)c;
    for (; n > 0; n--)
        c32 = __builtin_ia32_crc32qi(c32, *p++);
    return c32;
}
#endif

uint32_t trajframe_crc32c(uint32_t crc, const void *bytes, size_t n)
{
    crc = ~crc;
#ifdef __x86_64__
    if (__builtin_cpu_supports("sse4.2"))
        return ~crc_by_instruction(crc, bytes, n);
#endif
    return ~crc_by_table(crc, bytes, n);
}

static void put(uint8_t *p, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++)
        p[i] = (uint8_t)(v >> (8 * i));
}

static uint64_t get(const uint8_t *p, int bytes)
{
    uint64_t v = 0;
    for (int i = 0; i < bytes; i++)
        v |= (uint64_t)p[i] << (8 * i);
    return v;
}

static uint32_t frame_crc(const uint8_t header[TRAJFRAME_HEADER_SIZE], const void *payload, size_t n)
{
    return trajframe_crc32c(trajframe_crc32c(0, header, TRAJFRAME_HEADER_SIZE), payload, n);
}

static void write_fields(uint8_t out[TRAJFRAME_HEADER_SIZE], uint8_t kind, uint64_t cursor, uint32_t n)
{
    put(out, MAGIC, 4);
    out[4] = VERSION;
    out[5] = kind;
    put(out + 6, 0, 2);
    put(out + 8, n, 4);
    put(out + 12, 0, 4);
    put(out + 16, cursor, 8);
}

void trajframe_write(uint8_t out[TRAJFRAME_HEADER_SIZE], uint8_t kind, uint64_t cursor, const void *payload, uint32_t n)
{
    write_fields(out, kind, cursor, n);
    put(out + 12, frame_crc(out, payload, n), 4);
}

int trajframe_read(struct trajframe *out, const uint8_t header[TRAJFRAME_HEADER_SIZE], uint32_t length_max, struct err *err)
{
    struct trajframe f = { .kind = header[5], .length = (uint32_t)get(header + 8, 4), .crc = (uint32_t)get(header + 12, 4),
                           .cursor = get(header + 16, 8) };
    if (get(header, 4) != MAGIC)
        return err_set(err, ERR_CORRUPT, "not a trajectory frame");
    if (header[4] != VERSION)
        return err_set(err, ERR_CORRUPT, "trajectory frame version %u: this program reads 1", header[4]);
    if ((f.kind != TRAJFRAME_EPISODE && f.kind != TRAJFRAME_APPENDED) || get(header + 6, 2) != 0)
        return err_set(err, ERR_CORRUPT, "trajectory frame of unknown kind %u", f.kind);
    if (f.length > length_max)
        return err_set(err, ERR_CORRUPT, "trajectory frame of %u bytes: at most %u are written", f.length, length_max);
    *out = f;
    return 0;
}

bool trajframe_intact(const struct trajframe *f, const void *payload)
{
    uint8_t header[TRAJFRAME_HEADER_SIZE];
    write_fields(header, f->kind, f->cursor, f->length);
    return frame_crc(header, payload, f->length) == f->crc;
}
