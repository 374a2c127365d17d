/* digest.c - SHA-256 by OpenSSL's libcrypto. */
#include "base/digest.h"
#include <errno.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void digest_start(struct digest_ctx *c)
{
    EVP_MD_CTX *m = EVP_MD_CTX_new();
    if (m == NULL || EVP_DigestInit_ex(m, EVP_sha256(), NULL) != 1)
        abort();                    /* out of memory for 200 bytes, or a libcrypto without SHA-256 */
    c->impl = m;
}

void digest_add(struct digest_ctx *c, const void *bytes, size_t n)
{
    if (n > 0 && EVP_DigestUpdate(c->impl, bytes, n) != 1)
        abort();
}

void digest_add_u64(struct digest_ctx *c, uint64_t v)
{
    uint8_t b[8];
    for (int i = 0; i < 8; i++)
        b[i] = (uint8_t)(v >> (8 * i));
    digest_add(c, b, sizeof b);
}

void digest_add_str(struct digest_ctx *c, const char *s)
{
    size_t n = strlen(s);
    digest_add_u64(c, n);
    digest_add(c, s, n);
}

void digest_finish(struct digest_ctx *c, struct digest *out)
{
    if (EVP_DigestFinal_ex(c->impl, out->bytes, NULL) != 1)
        abort();
    EVP_MD_CTX_free(c->impl);
    c->impl = NULL;
}

void digest_of(struct digest *out, const void *bytes, size_t n)
{
    struct digest_ctx c;
    digest_start(&c);
    digest_add(&c, bytes, n);
    digest_finish(&c, out);
}

int digest_of_fd(struct digest *out, uint64_t *out_size, int fd, struct err *err)
{
    struct digest_ctx c;
    uint8_t block[65536];
    uint64_t at = 0;
    digest_start(&c);
    for (;;) {
        ssize_t n = pread(fd, block, sizeof block, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            int sys = errno;
            digest_finish(&c, &(struct digest){ { 0 } });
            errno = sys;
            return err_sys(err, ERR_SYS, "read at %llu", (unsigned long long)at);
        }
        if (n == 0)
            break;
        digest_add(&c, block, (size_t)n);
        at += (uint64_t)n;
    }
    digest_finish(&c, out);
    if (out_size != NULL)
        *out_size = at;
    return 0;
}

bool digest_equal(const struct digest *a, const struct digest *b)
{
    return memcmp(a->bytes, b->bytes, sizeof a->bytes) == 0;
}

void digest_hex(char out[DIGEST_HEX_SIZE], const struct digest *d)
{
    static const char hex[] = "0123456789abcdef";
    for (size_t i = 0; i < sizeof d->bytes; i++) {
        out[2 * i] = hex[d->bytes[i] >> 4];
        out[2 * i + 1] = hex[d->bytes[i] & 15];
    }
    out[64] = '\0';
}

int digest_parse(struct digest *out, const char *hex, struct err *err)
{
    struct digest d;
    if (strlen(hex) != 64)
        return err_set(err, ERR_BAD_INPUT, "digest: want 64 hex digits, got %zu characters", strlen(hex));
    for (size_t i = 0; i < 64; i++) {
        char c = hex[i];
        int v = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
        if (v < 0)
            return err_set(err, ERR_BAD_INPUT, "digest: character %zu is not a lower-case hex digit", i);
        d.bytes[i / 2] = (uint8_t)(i % 2 == 0 ? v << 4 : d.bytes[i / 2] | v);
    }
    *out = d;
    return 0;
}
