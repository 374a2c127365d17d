/*
 * engine.h - admission, queue, slots, cache and episodes behind one door; runner.c and the simulation build on it.
 *
 * The engine decides, the world acts. `struct engine_world` lists every effect; each effect (but those marked
 * "no answer") is answered by exactly one call of its engine_on_*(), at once or later, never twice. An answer
 * only copies what it was given and puts an event into a bounded ring: the engine never re-enters itself, so
 * effects, reply callbacks and answers may call engine_submit(), engine_cancel() and engine_on_*() at any time.
 * engine_turn() drains the ring, starts what can start and calls effects and reply callbacks.
 *
 * Life of an evaluation: engine_submit (refused at once, or admitted) -> task_get -> patch_merge -> known key?
 * (recall its record, or wait for the same key in flight) -> a slot -> sandbox_acquire -> sandbox_run ->
 * sandbox_close + report_read -> judged -> log_append -> reply -> release.
 *
 * Invariants kept here (the simulation checks them after every step): I1 every admitted request ends in exactly
 * one reply or a cancel; I2 an acknowledged trajectory is in the log once; I3 log before reply; I4 our failure
 * has no reward; I5 slots free + held + scrubbing = slots; I6 arena bytes <= budget; I7 a class that waits is
 * served at least once in QUEUE_BOUND(class) choices (queue.h).
 *
 * Our own failures (worker or jail lost, sandbox did not start, no answer in time) are tried again up to
 * `attempts_max` times and then become outcome infra_error: no reward, fault set, logged and replied like any
 * other. Failures that are the caller's (unknown task) are answered with their error and leave no record.
 *
 * Request ids: same id + same content = the same episode's answer, while it runs, after it ended and after a
 * restart (an infra_error too: who wants another try takes a new id); same id + other content = ERR_CONFLICT.
 * Ids are forgotten oldest first beyond request_ids_max. An admitted episode with an id is finished and logged
 * though its caller goes away; one without an id is cancelled then.
 *
 * Threads: an engine belongs to one thread.
 */
#pragma once
#include "rollout/episode.h"

struct engine;

struct engine_config {          /* 0 anywhere: the default */
    uint32_t slots;             /* sandboxes at once; 4 */
    uint32_t active_max;        /* episodes between queue and verdict; slots x 2 + 4 */
    uint32_t queue_max;         /* waiting episodes; 4096. The last 1/16 is kept for urgent, 1/8 for urgent and normal */
    uint32_t waiters_max;       /* callers waiting at once, repeats included; queue_max x 2 + 64 */
    size_t   arena_bytes_max;   /* all episodes together; 1 GiB: half for waiting requests, half for what has started */
    size_t   episode_bytes;     /* room for task, results and output of one that has started; 4 MiB */
    uint32_t attempts_max;      /* 3 */
    uint64_t backoff_ns;        /* before attempt n + 1: n x this; 100 ms */
    uint64_t run_grace_ns;      /* beyond the run's wall limit before the jail counts as lost; 30 s */
    uint32_t cache_entries_max; /* 65536; each about 100 bytes: verdicts stay in the log */
    uint32_t request_ids_max;   /* 262144; each about 100 bytes */
    uint32_t preempt_max;       /* how often one batch run may be taken for an urgent one; 2. ENGINE_PREEMPT_NEVER: 0 */
    double   run_timeout_s_default; /* for tasks without timeout_s; 1800 */
    const char *readers_version;/* part of the verdict key; "readers/1". Must outlive the engine */
};
#define ENGINE_PREEMPT_NEVER UINT32_MAX

/* Everything the engine wants done. `e` is valid until release(e); its `world` field is the world's to use. */
struct engine_world {
    void *world;                                                    /* first argument of each */
    void (*episode_id)(void *world, uint8_t out[16]);               /* at once: random, never repeated */
    uint64_t (*unix_ns)(void *world);                               /* at once: wall clock, for records */
    void (*task_get)(void *world, struct episode *e);               /* e->request.task_id  -> engine_on_task */
    void (*patch_merge)(void *world, struct episode *e);            /* e->task, e->request -> engine_on_patch */
    void (*log_recall)(void *world, struct episode *e);             /* e->recall_cursor    -> engine_on_recalled */
    void (*sandbox_acquire)(void *world, struct episode *e);        /* -> engine_on_acquired */
    void (*sandbox_run)(void *world, struct episode *e);            /* wall limit e->run_wall_ns -> engine_on_run */
    /* Give the sandbox back, running or not: after this no engine_on_run() comes for it. -> engine_on_closed
     * when its slot can be used again. */
    void (*sandbox_close)(void *world, struct episode *e);
    void (*report_read)(void *world, struct episode *e);            /* e->run; result kept by the world -> engine_on_report */
    /* `facts` is valid during the call. -> engine_on_logged, after the record is durable or has failed. */
    void (*log_append)(void *world, struct episode *e, const struct trajectory_facts *facts);
    void (*release)(void *world, struct episode *e);                /* no answer: free what e->world holds */
};

MUST_CHECK int engine_new(struct engine **out, const struct engine_config *config, const struct engine_world *world,
                          struct err *err);
/* Ends every episode: callers are told ERR_CANCELLED, release() is called for each, other effects are dropped.
 * No engine_on_*() may come afterwards. */
void engine_free(struct engine *g);

struct engine_reply {
    int rc;                             /* 0, or the code of *err and nothing below but request_id and task_id */
    const struct err *err;
    const char *request_id, *task_id;
    uint8_t episode_id[16];
    const struct verdict *verdict;      /* has_reward false: no reward. Valid during the callback, as all of this */
    uint64_t cursor;                    /* of the record, durable */
};
typedef void (*engine_reply_cb)(void *arg, const struct engine_reply *reply);

/*
 * Ask for an evaluation. The request is copied. 0: admitted, `cb` is called once from a later engine_turn(),
 * unless *out_ticket is cancelled before. < 0: refused, no callback: ERR_BUSY (queue or memory full: come back
 * after engine_retry_hint_ns()), ERR_CONFLICT, ERR_LIMIT (larger than any episode may be), ERR_UNAVAILABLE (draining).
 */
MUST_CHECK int engine_submit(struct engine *g, const struct evaluate_request *request, engine_reply_cb cb, void *arg,
                             uint64_t *out_ticket, struct err *err);
/* The caller is gone: its callback will not be called. Harmless when it already was. */
void engine_cancel(struct engine *g, uint64_t ticket);
uint64_t engine_retry_hint_ns(const struct engine *g);

/* --- answers of the world: arguments are copied --- */
/* The true fix, the problem statement and extra_json are left out of e->task: no episode needs them. */
void engine_on_task(struct engine *g, struct episode *e, int rc, const struct task *task, const struct err *err);
/* edits_fd stays the world's (keep it in e->world): ans->edits_fd is not looked at. For request.control_before a
 * PATCH_EMPTY answer must carry tree and edits of base + hidden tests. */
void engine_on_patch(struct engine *g, struct episode *e, int rc, const struct patch_answer *ans, const struct err *err);
void engine_on_recalled(struct engine *g, struct episode *e, int rc, const struct trajectory_head *head, const struct err *err);
void engine_on_acquired(struct engine *g, struct episode *e, int rc, const struct err *err);
/* output: what the run printed, head and tail, at most 64 KiB; NULL when none. */
void engine_on_run(struct engine *g, struct episode *e, int rc, const struct run_facts *run, const void *output,
                   size_t output_len, const struct err *err);
void engine_on_closed(struct engine *g, struct episode *e);
void engine_on_report(struct engine *g, struct episode *e, int rc, const struct report_answer *ans, const struct err *err);
void engine_on_logged(struct engine *g, struct episode *e, int rc, uint64_t cursor, const struct err *err);

/* Do all that can be done now; call it after each batch of events and when the deadline below has passed. */
void engine_turn(struct engine *g, uint64_t now_ns);
/* Monotonic time at which engine_turn() is wanted again; UINT64_MAX: not before the next event. */
uint64_t engine_deadline_ns(const struct engine *g);
bool engine_has_events(const struct engine *g);     /* answers lie in the ring: do not sleep */

/* At start, once per record of our own making, in cursor order: rebuilds request ids and the verdict cache. */
void engine_restore(struct engine *g, const struct trajectory_head *head, uint64_t cursor);
/* Refuse new work from now on (ERR_UNAVAILABLE); what is admitted is finished. */
void engine_drain(struct engine *g);

struct engine_status {
    uint32_t slots, slots_held, slots_scrubbing, active, active_max, queue_len, queue_max, class_len[3];
    uint32_t passed[2][3];          /* choices since a waiting class was served: queue, slots; below QUEUE_BOUND (I7) */
    uint32_t episodes, joined;
    size_t   arena_bytes, arena_bytes_max;      /* reserved */
    uint32_t cache_entries, request_ids;
    uint64_t admitted, refused, replied, failed, cancelled, cache_hits, cache_joins, retries, preemptions, infra_errors;
};
void engine_status(const struct engine *g, struct engine_status *out);
