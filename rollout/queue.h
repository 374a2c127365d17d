/*
 * queue.h - a queue of priority classes in which no class starves.
 *
 * Each class has a weight; a choice goes to the waiting class with the most credit (smooth weighted round
 * robin), within a class first come first served. Urgent work is chosen most often, but a class that waits is
 * served at least once in any QUEUE_BOUND(class) consecutive choices (I7), whatever the others do: a class
 * passed by QUEUE_PATIENCE(class) times is due and goes first.
 *
 * Items are intrusive: `struct queue_item` is a member of what is queued; nothing is allocated.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#define QUEUE_CLASSES 3                     /* 0 batch, 1 normal, 2 urgent */
#define QUEUE_WEIGHTS { 1, 4, 16 }
/* About what the weights give by themselves (sum / weight); and the other two classes may be due at the same time. */
#define QUEUE_PATIENCE(klass) ((klass) == 2 ? 2u : (klass) == 1 ? 6u : 21u)
#define QUEUE_BOUND(klass) (QUEUE_PATIENCE(klass) + QUEUE_CLASSES)

struct queue;
struct queue_item { struct queue_item *next, *prev; struct queue *in; uint32_t klass; };  /* in: NULL when not queued */
struct queue {
    struct queue_item *head[QUEUE_CLASSES], *tail[QUEUE_CLASSES];
    uint32_t len[QUEUE_CLASSES], total;
    int32_t  credit[QUEUE_CLASSES];
    uint32_t passed[QUEUE_CLASSES];         /* choices made since the class was last served while it waited */
};

void queue_push(struct queue *q, struct queue_item *item, uint32_t klass);          /* at the end of its class */
void queue_push_front(struct queue *q, struct queue_item *item, uint32_t klass);    /* for what was taken back */
struct queue_item *queue_peek(const struct queue *q);   /* what queue_take would give; NULL when empty */
struct queue_item *queue_take(struct queue *q);         /* NULL when empty */
struct queue_item *queue_take_class(struct queue *q, uint32_t klass);   /* beside the order, when the others lose nothing */
void queue_remove(struct queue_item *item);             /* from whichever it is in; harmless when in none */
