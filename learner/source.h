/*
 * source.h - the learner as a client of the server: tasks in, episodes out, trajectories back.
 *
 * Episodes are submitted on an EvaluateMany call; what is learned from comes from the trajectory
 * stream, which is the durable truth: an episode counts when its record arrives at the cursor. The
 * replies only tell what was refused (no record will come) and that is sent again or, after a while,
 * taken as "no reward".
 *
 * A lost connection is opened again, the stream resumed at the cursor, and what has not been answered
 * sent once more under the same request id: the server runs nothing twice.
 */
#pragma once
#include "learner/rl.h"

struct source_config {
    const char *address, *tasks, *run;  /* tasks: prefix of task ids */
    uint64_t patience_ns;               /* without any answer for this long the run gives up */
    struct collective *ranks;           /* borrowed: kept awake while waiting */
};

struct source;
MUST_CHECK int source_open(struct source **out, const struct source_config *c, struct err *err);
void source_close(struct source *s);        /* NULL is fine */
/* All tasks with the prefix that have a "choice", in id order; they lie in the arena. */
MUST_CHECK int source_tasks(struct source *s, struct rl_task **out, size_t *out_n, struct arena *a, uint32_t context,
    struct err *err);
/* The version that the server has for the run; 0: none. */
MUST_CHECK int source_current(struct source *s, uint64_t *out_version, struct err *err);
/* Where reading begins: the log's present end, or `cursor` when it is not 0. */
MUST_CHECK int source_begin(struct source *s, uint64_t cursor, struct err *err);
/* The world of rl.h, over this server. */
struct rl_world source_world(struct source *s);
