/*
 * admission.h - who may come in, who may start, and when to come back.
 *
 * Memory is reserved before anything is allocated, in two halves of one budget: a waiting episode takes what its
 * request weighs, one that starts takes a fixed room for task, results and output besides. An arena can use no
 * more than was reserved for it, so the sum stays within the budget (I6), nobody is stopped half way, and waiting
 * requests can never take the room that those before them need to finish.
 */
#pragma once
#include "base/err.h"
#include <stdint.h>

struct admission {
    uint32_t queue_max, slots;
    size_t   arena_bytes_max, episode_bytes;
    size_t   request_bytes, work_bytes;     /* reserved now; each at most half of arena_bytes_max */
    uint64_t service_ns;            /* moving mean of the time a slot is taken by one episode */
};
/* Reserve for one request. ERR_BUSY (the text says what is full and when to come back) or ERR_LIMIT (never fits). */
MUST_CHECK int admission_enter(struct admission *a, uint32_t klass, uint32_t queue_len, size_t request_bytes, struct err *err);
bool admission_has_room(const struct admission *a);     /* may one more start? */
void admission_start(struct admission *a);              /* it does: episode_bytes more */
void admission_leave(struct admission *a, size_t request_bytes, bool started);
void admission_served(struct admission *a, uint64_t service_ns);
/* How long until the present queue is worked off, between 50 ms and 60 s. */
uint64_t admission_retry_hint_ns(const struct admission *a, uint32_t queue_len);
