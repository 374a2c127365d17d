/*
 * engine_state.h - private to engine*.c: everything an engine holds.
 *
 * Everything has a fixed size from the start: `places` for episodes, `waiters` for callers, the ring, the slot
 * table, the maps. engine.c acts, engine_door.c takes in requests and answers, engine_copy.c copies them.
 */
#pragma once
#include "rollout/admission.h"
#include "rollout/cache.h"
#include "rollout/engine.h"

#define ENGINE_NONE UINT32_MAX
#define ENGINE_ANSWERED UINT32_C(0x100)

enum ring_kind { RING_START, RING_ANSWER, RING_CLOSED, RING_CANCEL };
struct ring_item { struct episode *e; uint32_t op; enum ring_kind kind; };
/* At once in the ring for one episode: a start or an answer, one stale answer, a cancel; and `closed` once a slot. */
#define RING_PER_EPISODE 3

struct waiter { engine_reply_cb cb; void *arg; uint32_t place, next, generation; bool used; };

struct engine {
    struct engine_config config;
    struct engine_world  world;
    struct episode_rules rules;
    struct admission admission;
    struct episode **places; uint32_t place_count, place_free_count, *place_free;
    struct waiter *waiters; uint32_t waiter_free;       /* chain by next */
    struct ring_item *ring; uint32_t ring_size, ring_head, ring_len;
    struct queue start_queue, slot_queue;
    struct episode *newcomers;      /* submitted since the last turn, by next_joined: their time begins with the next one */
    struct episode **left; uint32_t left_count;         /* ended, but the world still owes an answer */
    struct episode **slot_table; uint32_t held, scrubbing;
    uint32_t active, active_urgent;
    struct cache *verdicts;         /* verdict key -> cursor */
    struct cache *requests;         /* digest of a request id -> cursor, content beside */
    struct cache *keys_in_flight;   /* verdict key -> place of its leader */
    struct cache *requests_in_flight;   /* digest of a request id -> place, content beside */
    uint64_t now_ns, deadline_ns;
    bool draining, turning;
    struct engine_status counts;
};

/* Put one event into the ring. Never full: its size is what all places can have at once. */
void engine_push(struct engine *g, struct episode *e, enum ring_kind kind);
/* Room for more than its request, from now on to its end. */
void engine_begin(struct engine *g, struct episode *e);
void engine_request_key(struct digest *out, const char *request_id);
