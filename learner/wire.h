/*
 * wire.h - where protobuf ends in the learner: messages to and from plain structs.
 *
 * wire.c alone includes generated headers. What is read is copied into the caller's arena or buffer,
 * with lengths and ranges checked; writing appends to a buffer that was reset.
 */
#pragma once
#include "base/arena.h"
#include "base/buf.h"
#include <stdint.h>

#define WIRE_ID_MAX 256

struct wire_evaluate {
    const char *request_id, *task_id, *run, *model;
    const void *patch;
    size_t patch_len;
    const uint32_t *tokens;
    const float *logprobs;
    const uint8_t *mask;
    size_t n;
    uint64_t version, seed;
    uint32_t choice_count;              /* of the range that begins at 0 */
    uint8_t group_id[16];
    uint32_t group_want, group_index;
};
MUST_CHECK int wire_write_evaluate(struct buf *out, const struct wire_evaluate *e, struct err *err);

struct wire_answer {
    char request_id[WIRE_ID_MAX + 1];
    uint64_t cursor;                    /* 0: not in the log, the request was refused */
    bool retryable;
    char fault[64], reason[256];        /* of a refusal; foreign text, escaped */
};
MUST_CHECK int wire_read_answer(struct wire_answer *out, const struct buf *bytes, struct err *err);

struct wire_trajectory {                /* lies in the arena */
    const char *request_id;
    uint64_t cursor;
    const uint32_t *tokens;
    const float *logprobs;
    const uint8_t *mask;
    size_t n;
    uint32_t choice_first, choice_count;
    uint64_t version;                   /* of the span that holds the last chosen token; 0: none */
    bool has_reward;
    double reward;                      /* finite */
};
MUST_CHECK int wire_read_trajectory(struct wire_trajectory *out, struct arena *a, const struct buf *bytes, struct err *err);
MUST_CHECK int wire_write_subscribe(struct buf *out, uint64_t cursor, const char *task_prefix, struct err *err);

struct wire_policy {
    uint64_t version, cursor;
    const char *manifest_path, *manifest_sha256, *made_by;
    double loss, grad_norm, reward_mean, entropy;
};
MUST_CHECK int wire_write_publish(struct buf *out, const struct wire_policy *p, struct err *err);
MUST_CHECK int wire_read_publish(uint64_t *out_version, const struct buf *bytes, struct err *err);
MUST_CHECK int wire_write_current(struct buf *out, const char *made_by, struct err *err);
MUST_CHECK int wire_read_current(uint64_t *out_version, const struct buf *bytes, struct err *err);
MUST_CHECK int wire_read_status(uint64_t *out_next_cursor, const struct buf *bytes, struct err *err);

struct wire_task { const char *id, *extra_json; };     /* extra_json "": the list left it out, ask for the task */
MUST_CHECK int wire_write_list(struct buf *out, const char *prefix, const char *after, struct err *err);
/* tasks and *out_next lie in the arena; *out_next is "" at the end. */
MUST_CHECK int wire_read_list(struct wire_task **out, size_t *out_n, const char **out_next, struct arena *a,
    const struct buf *bytes, struct err *err);
MUST_CHECK int wire_write_get(struct buf *out, const char *task_id, struct err *err);
MUST_CHECK int wire_read_task(struct wire_task *out, struct arena *a, const struct buf *bytes, struct err *err);
