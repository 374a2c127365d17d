/* queue.c - smooth weighted round robin over classes, FIFO inside each. */
#include "rollout/queue.h"
#include <assert.h>
#include <stddef.h>

static const int32_t weights[QUEUE_CLASSES] = QUEUE_WEIGHTS;

static void enter(struct queue *q, struct queue_item *item, uint32_t klass)
{
    assert(item->in == NULL && klass < QUEUE_CLASSES);
    item->klass = klass;
    item->in = q;
    if (q->len[klass]++ == 0) {
        q->credit[klass] = 0;               /* no saving up while nothing waited */
        q->passed[klass] = 0;
    }
    q->total++;
}

void queue_push(struct queue *q, struct queue_item *item, uint32_t klass)
{
    enter(q, item, klass);
    item->next = NULL;
    item->prev = q->tail[klass];
    if (item->prev != NULL)
        item->prev->next = item;
    else
        q->head[klass] = item;
    q->tail[klass] = item;
}

void queue_push_front(struct queue *q, struct queue_item *item, uint32_t klass)
{
    enter(q, item, klass);
    item->prev = NULL;
    item->next = q->head[klass];
    if (item->next != NULL)
        item->next->prev = item;
    else
        q->tail[klass] = item;
    q->head[klass] = item;
}

void queue_remove(struct queue_item *item)
{
    struct queue *q = item->in;
    if (q == NULL)
        return;
    uint32_t k = item->klass;
    *(item->prev != NULL ? &item->prev->next : &q->head[k]) = item->next;
    *(item->next != NULL ? &item->next->prev : &q->tail[k]) = item->prev;
    item->next = item->prev = NULL;
    item->in = NULL;
    q->len[k]--;
    q->total--;
}

/* A class that is due; else the one with the most credit after each waiting one got its weight, ties to the more urgent. */
static uint32_t choose(const struct queue *q)
{
    uint32_t best = QUEUE_CLASSES;
    for (uint32_t k = 0; k < QUEUE_CLASSES; k++)
        if (q->len[k] > 0 && q->passed[k] >= QUEUE_PATIENCE(k))
            return k;
    for (uint32_t k = QUEUE_CLASSES; k-- > 0; )
        if (q->len[k] > 0 && (best == QUEUE_CLASSES || q->credit[k] + weights[k] > q->credit[best] + weights[best]))
            best = k;
    return best;
}

struct queue_item *queue_peek(const struct queue *q)
{
    uint32_t k = choose(q);
    return k < QUEUE_CLASSES ? q->head[k] : NULL;
}

struct queue_item *queue_take(struct queue *q)
{
    uint32_t best = choose(q);
    if (best == QUEUE_CLASSES)
        return NULL;
    int32_t sum = 0;
    for (uint32_t k = 0; k < QUEUE_CLASSES; k++)
        if (q->len[k] > 0) {
            q->credit[k] += weights[k];
            sum += weights[k];
            q->passed[k] = k == best ? 0 : q->passed[k] + 1;
        }
    q->credit[best] -= sum;
    struct queue_item *item = q->head[best];
    queue_remove(item);
    return item;
}

struct queue_item *queue_take_class(struct queue *q, uint32_t klass)
{
    struct queue_item *item = q->head[klass];
    if (item != NULL)
        queue_remove(item);
    return item;
}
