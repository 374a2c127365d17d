/*
 * wire_pb.h - private to rollout/wire*.c: unpacking foreign protobuf within a budget.
 *
 * protobuf-c's unpack allocates as the bytes tell it to; a packed field of zeroes costs up to eight
 * bytes of memory a byte. The allocator below refuses beyond 16 x the message + 64 KiB.
 */
#pragma once
#include "base/arena.h"
#include "base/buf.h"
#include <protobuf-c/protobuf-c.h>

struct wire_budget { size_t left; };
/* Unpack, or fill *err with ERR_BAD_INPUT. The message is freed by wire_free(). */
void *wire_unpack(const ProtobufCMessageDescriptor *d, const char *what, const void *bytes, size_t n, struct err *err);
void  wire_free(void *message);
MUST_CHECK int wire_pack(struct buf *out, const void *message, struct err *err);
/* Copy a foreign string: UTF-8, no control characters, at most max bytes. NULL on error. */
const char *wire_text(struct arena *a, const char *field, const char *s, size_t max, struct err *err);
bool wire_utf8(const char *s, size_t n);
