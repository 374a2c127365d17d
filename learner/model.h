/*
 * model.h - a decoder of the Llama layout: forward, and the hand-written way back.
 *
 *   x = embed(tokens)
 *   per layer: x += Wo attention(rope(Wq n), rope(Wk n), Wv n), n = rmsnorm(x)
 *              x += Wdown (silu(Wgate n) * Wup n),             n = rmsnorm(x)
 *   logits = Whead rmsnorm(x), only for the rows that the loss asks for
 *
 * Memory: weights, gradients and activations are one allocation each, made once for the largest
 * batch; tensors are offsets. So all-reduce, clipping and the optimizer each see one flat array.
 * Sequences are packed one after another without padding; attention never crosses their borders.
 *
 * Shapes and names of tensors are those of Hugging Face's LlamaForCausalLM (linear weights are
 * [out, in]), so a checkpoint needs no conversion.
 */
#pragma once
#include "base/err.h"
#include "learner/real.h"
#include <stdint.h>

struct model_config {
    uint32_t vocab, dim, hidden, layers, heads, kv_heads, context;
    double eps, theta;      /* of RMSNorm, of RoPE */
    bool tied;              /* the head is the embedding */
};

/* The bounds that keep a foreign config.json from asking for absurd memory or a zero division. */
MUST_CHECK int model_config_check(const struct model_config *c, struct err *err);

#define MODEL_NAME_SIZE 64
struct model_tensor {
    char name[MODEL_NAME_SIZE];
    size_t offset, rows, cols;          /* in elements; a vector has cols 1 and is_vector */
    bool is_vector;
};

struct model_input {                    /* host memory, borrowed for the call */
    const uint32_t *tokens;             /* [n_tokens], each < vocab */
    size_t n_tokens;
    const uint32_t *starts;             /* [n_seqs + 1], rising; starts[0] = 0, starts[n_seqs] = n_tokens */
    size_t n_seqs;
    const uint32_t *rows;               /* [n_rows] tokens whose successor is asked for; may repeat */
    size_t n_rows;
};

struct model_acts;
struct model {
    struct model_config config;
    size_t n_params;
    real *weights, *grads;              /* [n_params], backend memory; grads NULL without training */
    real *logits, *dlogits;             /* [n_rows of the last input, vocab]; dlogits is the caller's to fill */
    struct model_acts *acts;            /* model.c's */
    size_t tokens_max, rows_max;
};

/* tokens_max 0: no activations (only sampling). On success *out is owned: model_free(). Weights are zero. */
MUST_CHECK int model_new(struct model **out, const struct model_config *c, size_t tokens_max, size_t rows_max, struct err *err);
void model_free(struct model *m);       /* NULL is fine */
/* Seeded weights: matrices normal with 1/sqrt(in), the two that write into the residual stream smaller by
 * sqrt(2 layers), the head small so that the first policy is near uniform, norms one. */
MUST_CHECK int model_init_weights(struct model *m, uint64_t seed, struct err *err);

size_t model_tensor_count(const struct model_config *c);
struct model_tensor model_tensor_at(const struct model_config *c, size_t i);
size_t model_param_count(const struct model_config *c);

/* Fill logits. Refuses an input that is malformed or larger than the maximum. */
MUST_CHECK int model_forward(struct model *m, const struct model_input *in, struct err *err);
/* Add to grads, from dlogits; right after model_forward() of the same input. */
void model_backward(struct model *m, const struct model_input *in);

/* Offsets of one layer's tensors, for the sampler. */
struct model_layer { size_t norm1, q, k, v, o, norm2, gate, up, down; };
struct model_layer model_layer_at(const struct model_config *c, size_t layer);
size_t model_final_norm(const struct model_config *c);
size_t model_head(const struct model_config *c);
