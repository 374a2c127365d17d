/*
 * world.h - the engine's world in the simulation: jail, workers, catalog and log that answer late, out of order,
 * wrongly or not at all, and what is true about every patch.
 */
#pragma once
#include "rollout/engine.h"
#include "tests/sim/disk.h"
#include "tests/sim/rng.h"

/* Stop with the invariant's name, the seed and the step unless `ok`. */
void sim_require(bool ok, const char *invariant, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* What a patch does, by its first byte: the only truth the model needs. */
enum patch_kind {
    KIND_GOOD,
    KIND_BAD,
    KIND_NO_APPLY,
    KIND_EMPTY,
    KIND_CRASHER,
    KIND_HANGS,
    KIND_NO_TESTS,
    KIND_FLOOD,
    KIND_COUNT
};
enum outcome kind_outcome(enum patch_kind kind, bool control_before);
enum patch_kind kind_of(const struct evaluate_request *r);

/* One record as the simulation's log keeps it: what wire.c would say, without protobuf. */
struct sim_record {
    uint8_t episode_id[16], source[16];
    struct digest content;
    char request_id[32], task_id[32], fault[16], key[DIGEST_HEX_SIZE];
    uint32_t outcome, limits_hit, our_faults;
    bool has_reward, retryable, cached;
    double reward;
};

enum op_kind { OP_TASK, OP_PATCH, OP_RECALL, OP_ACQUIRE, OP_RUN, OP_CLOSE, OP_READ, OP_COUNT };
struct op { enum op_kind kind; struct episode *e; bool stuck; };
#define OPS_MAX 1024
#define LIVE_MAX 512

struct sim_episode { struct episode *e; uint32_t our_faults; bool acquiring, open; uint32_t closing; };

struct world {
    struct rng *rng;
    struct engine *engine;
    struct trajlog *log;
    struct disk *disk;
    bool faults;
    uint32_t fault_permille;
    uint64_t unix_ns, fault_count, run_count;
    struct op ops[OPS_MAX]; uint32_t op_count;
    struct sim_episode *live[LIVE_MAX]; uint32_t live_count;
    struct trajlog_batch *batch; bool batch_synced;
    bool (*on_run)(void *arg, const struct episode *e);     /* may this episode run? */
    void *arg;
};

void world_vtable(struct world *w, struct engine_world *out);
void world_complete(struct world *w, uint32_t op);          /* answer one pending effect */
bool world_commit(struct world *w);                         /* one of begin, sync, end; false: nothing to do */
void world_lose_jail(struct world *w);
void world_lose_workers(struct world *w);
void world_forget(struct world *w);                         /* the process died: drop pending effects */
MUST_CHECK int world_read(struct world *w, struct trajlog_place *place, struct sim_record *out, struct err *err);
void world_head(const struct sim_record *r, struct trajectory_head *out);
