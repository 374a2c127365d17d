/*
 * sampler.h - the policy's choices, one token at a time, with a key/value cache.
 *
 * Log-probabilities are what the trainer later calls `behaviour`: normalised over exactly the range
 * and at the temperature that was sampled with, so the importance ratio starts at one.
 */
#pragma once
#include "learner/model.h"
#include "learner/rng.h"

struct sampler;

/* Reads the model's weights as they are at each call. The model is borrowed until sampler_free(). */
MUST_CHECK int sampler_new(struct sampler **out, const struct model *m, struct err *err);
void sampler_free(struct sampler *s);           /* NULL is fine */
void sampler_reset(struct sampler *s);          /* forget the sequence */
/* Append tokens to the sequence; the next pick follows the last of them. */
MUST_CHECK int sampler_feed(struct sampler *s, const uint32_t *tokens, size_t n, struct err *err);

struct sampler_range { uint32_t first, count; };        /* count 0: the whole vocabulary */
/* Choose a successor, without feeding it. *out_logprob <= 0, finite. temperature 0: the likeliest, logprob at temperature 1. */
MUST_CHECK int sampler_pick(struct sampler *s, struct sampler_range range, double temperature, struct rng *r, uint32_t *out_token,
                            float *out_logprob, struct err *err);
/* Logits after the last fed token, host memory, valid until the next feed. */
const real *sampler_logits(const struct sampler *s);
