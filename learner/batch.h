/*
 * batch.h - samples packed for one update.
 *
 * A sample is a sequence of tokens of which some were chosen by the policy. Packing drops what has
 * no reward, feeds each sequence without its last token (nothing follows it), and feeds a prompt
 * that neighbours share only once: the rows of a group then point into the same hidden states.
 *
 * The batch is one block of bytes, so that rank 0 can send it to the others as it is.
 */
#pragma once
#include "base/buf.h"
#include "learner/backend.h"

struct sample {
    const uint32_t *tokens;
    const float *logprobs;          /* as recorded by the sampler */
    const uint8_t *mask;            /* 1: chosen by the policy */
    size_t n;
    uint32_t choice_first, choice_count;    /* count 0: the whole vocabulary */
    double advantage;
    bool has_reward;
};

struct batch_row {
    uint32_t token;                 /* index of the fed token whose successor was chosen */
    struct backend_pick pick;
    double behaviour, advantage;
};

struct batch {                      /* a view into the bytes */
    size_t n_tokens, n_seqs, n_rows;
    const uint32_t *tokens;
    const uint32_t *starts;         /* [n_seqs + 1] */
    const uint32_t *row_starts;     /* [n_seqs + 1] rows of each sequence */
    const struct batch_row *rows;
};

/* Refuses a malformed sample by its index: token outside `vocab`, longer than `context`, a choice outside its range,
 * a recorded log-probability that is not a finite number <= 0. */
MUST_CHECK int batch_pack(struct buf *out, const struct sample *s, size_t n, uint32_t vocab, uint32_t context, struct err *err);
MUST_CHECK int batch_view(struct batch *out, const struct buf *bytes, struct err *err);
