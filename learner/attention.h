/*
 * attention.h - causal attention with grouped key/value heads, for one sequence.
 *
 * Made of batched matrix products and one softmax, so that every backend runs the same steps.
 * Query head h reads key/value head h / (heads / kv_heads). The probabilities are made again on
 * the way back instead of being kept: memory is one heads x n x n buffer, whatever the depth.
 */
#pragma once
#include "learner/real.h"
#include <stddef.h>

struct attention {
    size_t heads, kv_heads, head_dim;
    real *prob, *dprob;     /* heads * n * n each, backend memory; dprob only for the way back */
};

/* q, out: nq rows of heads * head_dim; k, v: nk >= nq rows of kv_heads * head_dim; query i stands at key i + nk - nq. */
void attention_forward(const struct attention *a, real *out, const real *q, const real *k, const real *v, size_t nq, size_t nk);
/* dq, dk, dv are overwritten. */
void attention_backward(const struct attention *a, real *dq, real *dk, real *dv, const real *dout, const real *q, const real *k,
                        const real *v, size_t n);
