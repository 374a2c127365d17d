/* grpc_timer.c - the heap of deadlines. */
#include "proto/grpc_timer.h"
#include <stdlib.h>

static void put(struct grpc_timers *q, size_t i, struct grpc_timer *t)
{
    q->heap[i] = t;
    t->pos = i + 1;
}

static void rise(struct grpc_timers *q, size_t i)
{
    struct grpc_timer *t = q->heap[i];
    while (i > 0 && q->heap[(i - 1) / 2]->at_ns > t->at_ns) {
        put(q, i, q->heap[(i - 1) / 2]);
        i = (i - 1) / 2;
    }
    put(q, i, t);
}

static void sink(struct grpc_timers *q, size_t i)
{
    struct grpc_timer *t = q->heap[i];
    for (size_t kid; (kid = 2 * i + 1) < q->len; i = kid) {
        if (kid + 1 < q->len && q->heap[kid + 1]->at_ns < q->heap[kid]->at_ns)
            kid++;
        if (q->heap[kid]->at_ns >= t->at_ns)
            break;
        put(q, i, q->heap[kid]);
    }
    put(q, i, t);
}

int grpc_timer_start(struct grpc_timers *q, struct grpc_timer *t, uint64_t at_ns, struct err *err)
{
    grpc_timer_stop(q, t);
    if (q->len == q->cap) {
        size_t cap = q->cap == 0 ? 64 : 2 * q->cap;
        struct grpc_timer **heap = realloc(q->heap, cap * sizeof heap[0]);
        if (heap == NULL)
            return err_set(err, ERR_LIMIT, "deadlines: out of memory at %zu", cap);
        q->heap = heap;
        q->cap = cap;
    }
    t->at_ns = at_ns;
    put(q, q->len, t);
    rise(q, q->len++);
    return 0;
}

void grpc_timer_stop(struct grpc_timers *q, struct grpc_timer *t)
{
    if (t->pos == 0)
        return;
    size_t i = t->pos - 1;
    t->pos = 0;
    struct grpc_timer *last = q->heap[--q->len];
    if (last == t)
        return;
    put(q, i, last);
    sink(q, i);
    rise(q, last->pos - 1);
}

uint64_t grpc_timers_next(const struct grpc_timers *q)
{
    return q->len == 0 ? UINT64_MAX : q->heap[0]->at_ns;
}

void grpc_timers_run(struct grpc_timers *q, uint64_t now_ns)
{
    while (q->len > 0 && q->heap[0]->at_ns <= now_ns) {
        struct grpc_timer *t = q->heap[0];
        grpc_timer_stop(q, t);
        t->fire(t);
    }
}

void grpc_timers_done(struct grpc_timers *q)
{
    free(q->heap);
    *q = (struct grpc_timers){ 0 };
}
