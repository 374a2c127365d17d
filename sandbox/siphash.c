/* siphash.c - see siphash.h. For little-endian machines. */
#include "sandbox/siphash.h"
#include <string.h>

static uint64_t rotate(uint64_t x, int by) { return x << by | x >> (64 - by); }

static void rounds(uint64_t v[4], int count)
{
    for (int i = 0; i < count; i++) {
        v[0] += v[1];
        v[2] += v[3];
        v[1] = rotate(v[1], 13) ^ v[0];
        v[3] = rotate(v[3], 16) ^ v[2];
        v[0] = rotate(v[0], 32) + v[3];
        v[2] += v[1];
        v[1] = rotate(v[1], 17) ^ v[2];
        v[3] = rotate(v[3], 21) ^ v[0];
        v[2] = rotate(v[2], 32);
    }
}

static void word(uint64_t v[4], uint64_t m)
{
    v[3] ^= m;
    rounds(v, 2);
    v[0] ^= m;
}

void siphash_start(struct siphash *s, const struct siphash_key *key)
{
    *s = (struct siphash){ .v = {
        key->word[0] ^ 0x736f6d6570736575, key->word[1] ^ 0x646f72616e646f6d,
        key->word[0] ^ 0x6c7967656e657261, key->word[1] ^ 0x7465646279746573 } };
}

void siphash_add(struct siphash *s, const void *bytes, size_t n)
{
    const unsigned char *p = bytes, *end = p + n;
    while (p < end)
        if (s->len % 8 == 0 && end - p >= 8) {
            uint64_t m;
            memcpy(&m, p, 8);
            word(s->v, m);
            p += 8;
            s->len += 8;
        } else {
            s->tail |= (uint64_t)*p++ << s->len % 8 * 8;
            if (++s->len % 8 == 0) {
                word(s->v, s->tail);
                s->tail = 0;
            }
        }
}

uint64_t siphash_finish(struct siphash *s)
{
    word(s->v, s->tail | s->len << 56);
    s->v[2] ^= 0xff;
    rounds(s->v, 4);
    return s->v[0] ^ s->v[1] ^ s->v[2] ^ s->v[3];
}
