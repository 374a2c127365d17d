/* message.c - see message.h. */
#include "proto/message.h"
#include <stdlib.h>

static void *budget_alloc(void *left, size_t size)
{
    if (size > *(size_t *)left)
        return NULL;
    *(size_t *)left -= size;
    return malloc(size);
}

static void budget_free(void *left, void *p)
{
    (void)left;
    free(p);
}

void *message_unpack(const ProtobufCMessageDescriptor *d, const void *bytes, size_t n)
{
    size_t left = 16 * n + 65536;
    ProtobufCAllocator alloc = { budget_alloc, budget_free, &left };
    return protobuf_c_message_unpack(d, &alloc, n, n > 0 ? bytes : "");
}

void message_free(void *message)
{
    if (message != NULL)
        protobuf_c_message_free_unpacked(message, NULL);
}

int message_pack(struct buf *out, const void *message, struct err *err)
{
    size_t n = protobuf_c_message_get_packed_size(message);
    if (n == 0)
        return 0;
    uint8_t *p = buf_reserve(out, n, err);
    if (p == NULL)
        return err->code;
    protobuf_c_message_pack(message, p);
    out->len += n;
    return 0;
}
