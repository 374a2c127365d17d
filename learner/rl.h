/*
 * rl.h - the online loop: sample with version v, have it judged, learn, publish v + 1, go on with it.
 *
 * The loop knows no server: a `world` judges a round of episodes and takes new versions, so that
 * tests put a bandit in its place. Only rank 0 samples, talks to the world and writes files; the other
 * ranks wait for the packed batch and train on it.
 *
 * Randomness is a function of (seed, step, task, index). A step that is done again after a crash
 * therefore sends the same requests, which the server answers from what it has: nothing runs twice.
 * Order at the end of a step: weights on disk as a version, checkpoint, publish. So a checkpoint
 * never names a version whose files are missing, and a version that was not announced is announced
 * again at resume.
 */
#pragma once
#include "learner/batch.h"
#include "learner/choice.h"
#include "learner/collective.h"

struct rl_task { const char *id; struct choice choice; };

/* One episode: what goes out, and what came back on the trajectory stream. */
struct rl_episode {
    size_t task;                        /* index into the round's tasks */
    uint32_t index;                     /* in its group */
    uint32_t choice;
    const uint32_t *tokens;             /* prompt and choice */
    const float *logprobs;
    const uint8_t *mask;
    size_t n;
    uint64_t seed;
    /* the answer; sample's fields lie in the round's arena */
    bool answered;
    struct sample sample;
    bool has_reward;
    double reward;
};

struct rl_round {
    uint64_t step, version;
    uint32_t group;
    const struct rl_task *tasks;
    struct rl_episode *episodes;        /* [n], group by group */
    size_t n;
    struct arena *arena;                /* of this round */
};

struct rl_version {
    uint64_t version;
    const char *manifest_path, *manifest_sha256;
    uint64_t cursor;                    /* trajectories below it went in */
    double loss, reward_mean, grad_norm, entropy;
};

struct rl_world {
    void *arg;
    /* Submit and gather the whole round: every episode answered, those without a reward too. */
    int (*judge)(void *arg, struct rl_round *r, struct err *err);
    /* Announce a version that is on disk. NULL: nobody is told. */
    int (*publish)(void *arg, const struct rl_version *v, struct err *err);
    uint64_t (*cursor)(void *arg);      /* the next trajectory not yet gathered; NULL: 0 */
};

struct rl_config {
    const char *run, *out_dir;          /* out_dir NULL: nothing is written */
    uint64_t steps, seed;
    uint32_t group, tasks_per_step;     /* tasks_per_step 0: all, at most 64 a step */
    bool learning, resume;
    double lr, temperature, clip_low, clip_high, kl, entropy;
    uint32_t epochs, context, dim, layers, heads, kv_heads, hidden;
    uint64_t first_cursor;              /* where the caller's world began to read: 0 but for a resume */
};
/* See rl.c for where the numbers come from. */
struct rl_config rl_config_default(void);

struct rl_step_report { double reward_mean, loss; size_t scored, absent; };
struct rl_result {
    uint64_t version, steps;            /* steps done in all, those before a resume included */
    struct rl_step_report *reports;         /* [steps], owned: free(); of this run and, when resumed, of the ones before */
};

/* world is read on rank 0 only. `progress` gets one line a step (rank 0). */
MUST_CHECK int rl_run(struct rl_result *out, const struct rl_config *c, const struct rl_task *tasks, size_t n_tasks,
                      const struct rl_world *world, struct collective *ranks, void (*progress)(const char *line),
                      struct err *err);
