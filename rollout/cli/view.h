/*
 * view.h - what the server's answers come to, as plain structs for the commands.
 *
 * Everything lies in the arena it was read into: the message is unpacked into it and the structs
 * borrow from it. Strings are never NULL; they may hold any UTF-8, so they are printed through
 * print.h only.
 */
#pragma once
#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "repos/repos.h"
#include <stdint.h>

struct test_view {
    const char *id, *status, *message, *evidence;   /* status: "PASSED", "FAILED", ... */
    bool   required;
    double duration_s;
};

struct verdict_view {
    const char *outcome;                /* "resolved", ... */
    bool   has_reward;
    double reward;
    const char *reason, *patch_status, *run_end, *start, *reader, *fault;
    struct test_view *tests; uint32_t test_count;
    struct str_list limits_hit, findings;
    bool cached, retryable, maskable;
    uint32_t attempts;
    const char *source_episode;         /* hex or "" */
    uint64_t peak_memory_bytes, cpu_ns, output_bytes;
    const uint8_t *output; size_t output_len;
    struct { uint64_t queue_ns, prepare_ns, slot_ns, run_ns, read_ns, total_ns; } timings;
};

struct label_view { const char *key, *value; };
struct span_view { uint32_t start, end; uint64_t version; };

struct trajectory_view {
    const char *episode_id;             /* hex */
    const char *request_id, *task_id;
    bool has_group;
    const char *group_id; uint32_t group_want, group_index;
    bool has_sample;
    const uint32_t *tokens; size_t token_count;
    const float *logprobs; size_t logprob_count;
    const uint8_t *loss_mask; size_t loss_mask_len;
    struct span_view *spans; size_t span_count;
    const char *model; uint64_t seed; uint32_t choice_first, choice_count;
    struct verdict_view verdict;
    const uint8_t *patch; size_t patch_len;
    const char *snapshot, *patched_tree, *verdict_key;
    uint64_t accepted_unix_ns, finished_unix_ns, cursor;
    double timeout_s;                   /* the request's own; 0: the task's */
    struct label_view *labels; size_t label_count;
};

struct evaluate_ask {
    const char *request_id, *task_id;
    const uint8_t *patch; size_t patch_len;
    bool fresh;
    double timeout_s;                   /* 0: the task's own */
    struct label_view *labels; size_t label_count;
};
struct evaluate_view {
    const char *episode_id, *task_id, *request_id;
    uint64_t cursor;
    struct verdict_view verdict;
};

struct import_failure_view { uint64_t line; const char *id, *code, *message; };
struct import_view {
    uint64_t added, unchanged, replaced, skipped;
    struct import_failure_view *failures; size_t failure_count;
    struct str_list notes;
};
struct tasks_view { struct task *tasks; size_t count; const char *next; };
struct tasks_ask { const char *after; struct catalog_filter filter; uint32_t limit; };     /* NULL: any, from the first */
struct twins_view { struct str_list ids; uint64_t count; };
struct duplicates_view { struct twins_view *groups; size_t count; const char *next; };
struct trajectories_view { struct trajectory_view *items; size_t count; uint64_t next_cursor; };
struct status_view { uint32_t slots, slots_busy, queue_len, queue_max; uint64_t log_next_cursor; const char *version; };

#define METHOD_EVALUATE    "/assay.v1.Rollout/Evaluate"
#define METHOD_STATUS      "/assay.v1.Rollout/Status"
#define METHOD_SUBSCRIBE   "/assay.v1.Trajectories/Subscribe"
#define METHOD_GET         "/assay.v1.Trajectories/Get"
#define METHOD_LIST        "/assay.v1.Trajectories/List"
#define METHOD_IMPORT      "/assay.v1.Catalog/Import"
#define METHOD_TASK_GET    "/assay.v1.Catalog/Get"
#define METHOD_TASK_LIST   "/assay.v1.Catalog/List"
#define METHOD_DUPLICATES  "/assay.v1.Catalog/Duplicates"

MUST_CHECK int ask_evaluate(struct buf *out, const struct evaluate_ask *q, struct err *err);
MUST_CHECK int ask_status(struct buf *out, struct err *err);
MUST_CHECK int ask_subscribe(struct buf *out, uint64_t cursor, bool follow, const char *task_prefix, struct err *err);
MUST_CHECK int ask_trajectory(struct buf *out, const uint8_t episode_id[16], struct err *err);
MUST_CHECK int ask_trajectories(struct buf *out, uint64_t cursor, uint32_t limit, const char *task_id, struct err *err);
MUST_CHECK int ask_import(struct buf *out, const void *jsonl, size_t n, const char *repos_dir, const char *source,
                          uint64_t first_line, bool skip_known, struct err *err);
MUST_CHECK int ask_task(struct buf *out, const char *id, bool with_fix, struct err *err);
MUST_CHECK int ask_tasks(struct buf *out, const struct tasks_ask *q, struct err *err);
MUST_CHECK int ask_duplicates(struct buf *out, const char *after, uint32_t limit, struct err *err);

MUST_CHECK int view_evaluate(struct evaluate_view *out, struct arena *a, const struct buf *answer, struct err *err);
MUST_CHECK int view_status(struct status_view *out, struct arena *a, const struct buf *answer, struct err *err);
/* Ask the server at hand how it stands (cmd_status.c); *out's text lies in the command's arena. */
struct cli;
MUST_CHECK int status_ask(struct status_view *out, struct cli *c, struct err *err);
MUST_CHECK int view_trajectory(struct trajectory_view *out, struct arena *a, const struct buf *answer, struct err *err);
MUST_CHECK int view_trajectories(struct trajectories_view *out, struct arena *a, const struct buf *answer, struct err *err);
MUST_CHECK int view_import(struct import_view *out, struct arena *a, const struct buf *answer, struct err *err);
MUST_CHECK int view_task(struct task *out, struct arena *a, const struct buf *answer, struct err *err);
MUST_CHECK int view_tasks(struct tasks_view *out, struct arena *a, const struct buf *answer, struct err *err);
MUST_CHECK int view_duplicates(struct duplicates_view *out, struct arena *a, const struct buf *answer, struct err *err);

/* 32 hex digits to the 16 bytes of an episode id; false when it is something else. */
bool view_parse_episode_id(uint8_t out[16], const char *text);
