/*
 * episode.h - one evaluation as a pure state machine: event in, effects out (HOUSE: the episode).
 *
 * No system call, no clock, no allocation beyond the episode's own arena: the world answers only through
 * later events, and time is an argument. engine.c carries effects to the world and events back.
 *
 * Also the record that the world sees: fields above the line "machine" may be read by whoever carries out
 * effects, `world` may be written by it; the rest belongs to episode.c and engine.c.
 */
#pragma once
#include "base/arena.h"
#include "base/err.h"
#include "repos/task.h"
#include "rollout/queue.h"
#include "rollout/verdict.h"
#include "rollout/wire.h"
#include "rollout/worker.h"
#include <stdint.h>

enum episode_state {
    EPISODE_QUEUED,             /* admitted, waiting for its class's turn */
    EPISODE_PREPARING_TASK,     /* the catalog is asked */
    EPISODE_PREPARING_PATCH,    /* a worker merges the patch */
    EPISODE_JOINED,             /* another episode with the same verdict key runs: wait for it */
    EPISODE_CACHED,             /* the verdict is known: its record is read from the log */
    EPISODE_WAITING_SLOT,
    EPISODE_STARTING,           /* holds a slot; the sandbox is being made */
    EPISODE_RUNNING,
    EPISODE_READING,            /* slot given back; a worker reads the report */
    EPISODE_BACKOFF,            /* our failure; waits before the next attempt */
    EPISODE_JUDGED,             /* verdict fixed; its record is being made durable */
    EPISODE_LOGGED,
    EPISODE_RECALLING,          /* repeat of a finished request: its record is read from the log */
    EPISODE_REPLIED,            /* the four ends: */
    EPISODE_CANCELLED,
    EPISODE_FAILED,             /* ended with an error and no record: unknown task, log not writable */
    EPISODE_STATE_COUNT
};
const char *episode_state_name(enum episode_state s);

enum episode_event_kind {
    EPISODE_EV_START,           /* its turn came */
    EPISODE_EV_TASK,            /* rc */
    EPISODE_EV_PATCH,           /* rc, patch */
    EPISODE_EV_MISS,            /* key unknown, or the episode joined came to nothing that can be shared: run */
    EPISODE_EV_HIT,             /* key known; cursor of its record */
    EPISODE_EV_JOIN,            /* key in flight elsewhere */
    EPISODE_EV_SHARED,          /* the episode joined ended well: `verdict`, and `source` */
    EPISODE_EV_RECALLED,        /* rc, verdict, source */
    EPISODE_EV_SLOT,            /* a slot is ours */
    EPISODE_EV_ACQUIRED,        /* rc */
    EPISODE_EV_RAN,             /* rc, run */
    EPISODE_EV_REPORT,          /* rc, report, unreadable */
    EPISODE_EV_LOGGED,          /* rc, cursor */
    EPISODE_EV_TIMER,           /* e->deadline_ns has passed */
    EPISODE_EV_PREEMPT,
    EPISODE_EV_CANCEL,
};

struct episode_event {
    enum episode_event_kind kind;
    int rc;                     /* < 0: failed, `err` says why */
    uint64_t cursor;
    const struct verdict *verdict;  /* HIT/SHARED/RECALLED: copied by the machine */
    uint8_t source[16];
    const struct report *report;    /* in the episode's arena */
    bool unreadable;
    struct err err;
};

enum episode_effect {           /* those above the line answer with exactly one event */
    EPISODE_DO_TASK, EPISODE_DO_PATCH, EPISODE_DO_LOOKUP, EPISODE_DO_RECALL, EPISODE_DO_WAIT_SLOT,
    EPISODE_DO_ACQUIRE, EPISODE_DO_RUN, EPISODE_DO_READ, EPISODE_DO_LOG,
    /* no event */
    EPISODE_DO_CLOSE,           /* give the sandbox back; an unanswered run will not be answered */
    EPISODE_DO_ENQUEUE,         /* back into the queue: EV_START follows some day */
    EPISODE_DO_SHARE,           /* the key is no longer in flight: tell the joined ones */
    EPISODE_DO_REPLY,
    EPISODE_DO_LEAVE,           /* last one: nothing of it stays but what is in the log */
};
#define EPISODE_EFFECTS_MAX 4
struct episode_effects { enum episode_effect items[EPISODE_EFFECTS_MAX]; uint32_t count; };

struct episode_rules { uint32_t attempts_max; uint64_t backoff_ns, run_grace_ns; const char *readers_version; };

struct episode {
    uint8_t  id[16];
    struct evaluate_request request;    /* in the arena */
    const struct task *task;            /* in the arena; NULL before EV_TASK */
    uint32_t attempt;                   /* 1 ... attempts_max */
    uint64_t run_wall_ns;               /* the run's wall limit: the request's, else the task's */
    enum patch_outcome patch_outcome;
    char     tree[41];                  /* patched tree; "" before EV_PATCH */
    struct run_facts run;               /* of the last finished run */
    uint64_t recall_cursor;             /* EPISODE_DO_RECALL: which record is wanted */
    void    *world;                     /* the world's own; NULL at first */

    /* machine */
    enum episode_state state;
    struct arena arena;
    const struct episode_rules *rules;
    bool     recall_only;               /* a repeat: only the record is wanted */
    bool     leader;                    /* its key is in flight by it: others may have joined */
    bool     cancelled;                 /* nobody wants it any more; ends at its next answer */
    bool     sandbox_open;
    uint32_t preempted;
    char     key_hex[DIGEST_HEX_SIZE];  /* verdict key; "" before EV_PATCH */
    struct digest key;
    const char *patch_reason;           /* why it does not apply, or "" */
    struct str_list findings;           /* the patch's */
    const uint8_t *output; uint32_t output_len;
    struct verdict verdict;
    uint64_t cursor;                    /* of its record; 0 before EV_LOGGED */
    enum episode_state retry_state;     /* where BACKOFF goes on */
    uint64_t deadline_ns;               /* EV_TIMER wanted at; 0: none */
    uint64_t entered_ns, accepted_ns, accepted_unix_ns;
    struct err failure;                 /* EPISODE_FAILED: why */

    /* engine.c */
    struct engine *engine;
    struct episode_event answer;        /* of the effect under way, until it is taken from the ring */
    uint32_t awaiting;                  /* 1 + event kind under way, or 0; ENGINE_ANSWERED beside it: it lies in the ring */
    uint32_t ringed;                    /* entries of the ring that name it */
    uint32_t op;                        /* answers of an older one are stale */
    uint32_t place, waiter, klass, slot;
    uint32_t closing;                   /* sandboxes given back and not yet confirmed: of earlier attempts too */
    bool     slot_held, active, left;
    size_t   request_bytes;             /* reserved at admission; episode_bytes more once started */
    bool     started;
    uint64_t slot_since_ns;
    uint8_t *output_room;
    struct queue_item item;             /* in one of the two queues */
    struct episode *joined_to, *first_joined, *next_joined, *prev_joined;
    struct digest request_key;
};

/* Decide what follows from one event. rc < 0 (ERR_INTERNAL): the event does not fit the state, nothing changed. */
MUST_CHECK int episode_step(struct episode *e, const struct episode_event *ev, uint64_t now_ns,
                            struct episode_effects *out, struct err *err);
/* May this verdict answer other requests with the same key? Only runs that no limit touched. */
bool episode_shareable(const struct verdict *v);
