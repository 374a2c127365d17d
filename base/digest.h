/* digest.h - SHA-256 of content; every immutable thing is named by one (FIPS 180-4). */
#pragma once
#include "base/err.h"
#include <stdint.h>

#define DIGEST_HEX_SIZE 65

struct digest { uint8_t bytes[32]; };
struct digest_ctx { void *impl; };

void digest_of(struct digest *out, const void *bytes, size_t n);
/* Reads fd from offset 0 to its end with pread. */
MUST_CHECK int digest_of_fd(struct digest *out, uint64_t *out_size, int fd, struct err *err);
/* Streaming: start, add..., finish. finish also releases; digest_abort releases without result. */
void digest_start(struct digest_ctx *c);
void digest_add(struct digest_ctx *c, const void *bytes, size_t n);
void digest_add_str(struct digest_ctx *c, const char *s);   /* length-prefixed: no ambiguity */
void digest_add_u64(struct digest_ctx *c, uint64_t v);
void digest_finish(struct digest_ctx *c, struct digest *out);
bool digest_equal(const struct digest *a, const struct digest *b);
void digest_hex(char out[DIGEST_HEX_SIZE], const struct digest *d);
MUST_CHECK int digest_parse(struct digest *out, const char *hex, struct err *err);
