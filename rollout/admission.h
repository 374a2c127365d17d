/*
 * admission.h - who may come in: room in the queue, memory for the whole way, and when to come back.
 *
 * Memory is reserved before anything is allocated: an episode takes what its request weighs plus a fixed room
 * for task, results and output, and its arena can never use more. So the sum of arenas stays within the budget
 * (I6) without anyone being stopped half way.
 */
#pragma once
#include "base/err.h"
#include <stdint.h>

struct admission {
    uint32_t queue_max, slots;
    size_t   arena_bytes_max, episode_bytes;
    size_t   arena_bytes;           /* reserved now */
    uint64_t service_ns;            /* moving mean of the time a slot is taken by one episode */
};
/* Reserve for one episode. ERR_BUSY (the text says what is full and when to come back) or ERR_LIMIT (never fits). */
MUST_CHECK int admission_enter(struct admission *a, uint32_t klass, uint32_t queue_len, size_t request_bytes,
                               size_t *out_reserved, struct err *err);
void admission_leave(struct admission *a, size_t reserved);
void admission_served(struct admission *a, uint64_t service_ns);
/* How long until the present queue is worked off, between 50 ms and 60 s. */
uint64_t admission_retry_hint_ns(const struct admission *a, uint32_t queue_len);
