/*
 * grpc_frame_fuzz.c - gRPC framing and header texts on any bytes.
 *
 * First byte: how the rest is cut into chunks. Checked: the messages found do not depend on the cuts, a
 * message is never longer than the limit, encode and decode are inverse, and a timeout survives its own text.
 */
#include "proto/grpc_frame.h"
#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#define MAX_MESSAGE 1000

/* Messages found and a sum over their bytes, when the input arrives in pieces of `step`. */
static uint64_t read_all(const uint8_t *data, size_t n, size_t step, int *end)
{
    struct grpc_queue q = { .b.max = MAX_MESSAGE + GRPC_PREFIX_SIZE + 256 };
    struct err err = { 0 };
    uint64_t sum = 0;
    int rc = 0;
    for (size_t at = 0; at < n && rc >= 0; at += step) {
        size_t len = step < n - at ? step : n - at;
        rc = grpc_queue_add(&q, data + at, len, &err);
        assert(rc == 0);                        /* a whole message and one piece always fit */
        uint32_t m;
        while (grpc_queue_len(&q) > 0
               && (rc = grpc_message_at(grpc_queue_front(&q), grpc_queue_len(&q), MAX_MESSAGE, &m, &err)) == 1) {
            assert(m <= MAX_MESSAGE && m + GRPC_PREFIX_SIZE <= grpc_queue_len(&q));
            sum = sum * 31 + m + 1;
            for (uint32_t i = 0; i < m; i++)
                sum = sum * 31 + grpc_queue_front(&q)[GRPC_PREFIX_SIZE + i];
            grpc_queue_take(&q, GRPC_PREFIX_SIZE + m);
        }
    }
    *end = rc < 0 ? rc : (int)grpc_queue_len(&q);
    grpc_queue_done(&q);
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n < 1)
        return 0;
    size_t step = (size_t)data[0] + 1;
    data++;
    n--;
    int end_a, end_b;
    uint64_t a = read_all(data, n, step, &end_a), b = read_all(data, n, 1, &end_b);
    assert(a == b && end_a == end_b);

    char text[256], encoded[3 * sizeof text], again[sizeof text];
    size_t len = grpc_percent_decode(text, sizeof text, data, n);
    assert(len == strlen(text));
    size_t encoded_n = grpc_percent_encode(encoded, sizeof encoded, text);
    for (size_t i = 0; i < encoded_n; i++)
        assert(encoded[i] >= 0x20 && encoded[i] < 0x7f);
    grpc_percent_decode(again, sizeof again, encoded, encoded_n);
    assert(strcmp(text, again) == 0);
    grpc_percent_encode(encoded, 1 + step % 20, text);

    uint64_t ns, ns2;
    char timeout[16];
    if (grpc_timeout_parse(&ns, data, n)) {
        grpc_timeout_format(timeout, ns);
        assert(grpc_timeout_parse(&ns2, timeout, strlen(timeout)) && ns2 >= ns);
    }
    uint32_t number;
    (void)grpc_number(&number, data, n);
    (void)grpc_code_of_name(data, n);
    (void)grpc_content_type_ok(data, n);
    return 0;
}
