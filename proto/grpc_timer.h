/*
 * grpc_timer.h - many deadlines on one clock: a binary heap, so that a call with a deadline costs no uv handle.
 *
 * The owner embeds struct grpc_timer and gets it back in fire(). A timer not in the heap has pos 0.
 */
#pragma once
#include "base/err.h"
#include <stdint.h>

struct grpc_timer {
    uint64_t at_ns;                         /* on clock_mono_ns() */
    size_t   pos;                           /* index in the heap + 1; 0: not armed */
    void   (*fire)(struct grpc_timer *t);   /* disarmed already when called */
};

struct grpc_timers {
    struct grpc_timer **heap;
    size_t len, cap;
};

MUST_CHECK int grpc_timer_start(struct grpc_timers *q, struct grpc_timer *t, uint64_t at_ns, struct err *err);
void grpc_timer_stop(struct grpc_timers *q, struct grpc_timer *t);      /* not armed is fine */
uint64_t grpc_timers_next(const struct grpc_timers *q);                 /* UINT64_MAX: none */
void grpc_timers_run(struct grpc_timers *q, uint64_t now_ns);           /* fires all that are due */
void grpc_timers_done(struct grpc_timers *q);
