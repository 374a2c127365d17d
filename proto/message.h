/*
 * message.h - protobuf messages at the door: unpacked within a memory budget, packed into a buf.
 *
 * protobuf-c's unpack allocates as the bytes tell it to; a packed field of zeroes costs up to eight bytes of memory a
 * byte. Unpacking refuses beyond 16 x the message + 64 KiB.
 */
#pragma once
#include "base/buf.h"
#include <protobuf-c/protobuf-c.h>
#include <string.h>

/* NULL: not a valid message of this type, or beyond the budget. Owned by the caller: message_free(). */
void *message_unpack(const ProtobufCMessageDescriptor *d, const void *bytes, size_t n);
void  message_free(void *message);                      /* NULL is fine */
/* Add the packed message to the buffer's end. */
MUST_CHECK int message_pack(struct buf *out, const void *message, struct err *err);

static inline void own_message_done(void *pp)
{
    void *m;
    memcpy(&m, pp, sizeof m);
    message_free(m);
}
#define own_message __attribute__((cleanup(own_message_done)))

/* protobuf-c's structs want char *, and packing only reads them. NULL becomes "". */
static inline char *message_text(const char *s) { return (char *)(uintptr_t)(s != NULL ? s : ""); }
