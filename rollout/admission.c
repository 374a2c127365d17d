/* admission.c - see admission.h. */
#include "rollout/admission.h"
#include "base/clock.h"

/* Room kept for the more urgent: the last 1/16 of the queue is urgent's, 1/8 urgent's and normal's. */
static uint32_t class_queue_max(const struct admission *a, uint32_t klass)
{
    return klass == 0 ? a->queue_max - a->queue_max / 8 : klass == 1 ? a->queue_max - a->queue_max / 16 : a->queue_max;
}

uint64_t admission_retry_hint_ns(const struct admission *a, uint32_t queue_len)
{
    uint64_t each = a->service_ns / (a->slots > 0 ? a->slots : 1);
    if (each > 60 * NS_PER_S)
        each = 60 * NS_PER_S;
    uint64_t hint = each * (queue_len / 2 + 1);     /* half the queue: then there is room again */
    return hint < 50 * NS_PER_MS ? 50 * NS_PER_MS : hint > 60 * NS_PER_S ? 60 * NS_PER_S : hint;
}

int admission_enter(struct admission *a, uint32_t klass, uint32_t queue_len, size_t request_bytes, struct err *err)
{
    double hint_s = (double)admission_retry_hint_ns(a, queue_len) / (double)NS_PER_S;
    size_t half = a->arena_bytes_max / 2;
    if (request_bytes > half || a->episode_bytes > half)
        return err_set(err, ERR_LIMIT, "request of %zu bytes: the memory budget for all requests is %zu", request_bytes, half);
    if (queue_len >= class_queue_max(a, klass))
        return err_set(err, ERR_BUSY, "queue full: %u episodes wait; try again in %.1f s", queue_len, hint_s);
    if (request_bytes > half - a->request_bytes)
        return err_set(err, ERR_BUSY, "memory for requests is in use: %zu of %zu bytes; try again in %.1f s", a->request_bytes,
                       half, hint_s);
    a->request_bytes += request_bytes;
    return 0;
}

bool admission_has_room(const struct admission *a) { return a->arena_bytes_max / 2 - a->work_bytes >= a->episode_bytes; }
void admission_start(struct admission *a) { a->work_bytes += a->episode_bytes; }

void admission_leave(struct admission *a, size_t request_bytes, bool started)
{
    a->request_bytes -= request_bytes;
    if (started)
        a->work_bytes -= a->episode_bytes;
}

void admission_served(struct admission *a, uint64_t service_ns)
{
    a->service_ns = a->service_ns == 0 ? service_ns : a->service_ns - a->service_ns / 8 + service_ns / 8;
}
