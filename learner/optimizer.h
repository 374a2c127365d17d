/*
 * optimizer.h - AdamW with decoupled decay (Loshchilov and Hutter 2019) and clipping by the global norm.
 *
 * The learning rate is constant; a warm-up of the first steps keeps Adam's young second moment
 * from taking full-size steps on noise. A step whose gradient is not finite is refused: weights
 * and moments stay as they are.
 */
#pragma once
#include "base/err.h"
#include "learner/real.h"
#include <stdint.h>

struct optimizer_config { double lr, beta1, beta2, eps, decay, clip_norm; uint32_t warmup; };
#define OPTIMIZER_DEFAULT { .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .decay = 0, .clip_norm = 1.0, .warmup = 0 }

struct optimizer {
    struct optimizer_config config;
    uint64_t step;          /* steps taken */
    size_t n;
    real *m, *v;            /* backend memory */
};

MUST_CHECK int optimizer_init(struct optimizer *o, const struct optimizer_config *c, size_t n, struct err *err);
void optimizer_done(struct optimizer *o);       /* zeroed memory is fine */
/* One step; *out_norm is the gradient's norm before clipping. ERR_BAD_INPUT when it is not finite. */
MUST_CHECK int optimizer_step(struct optimizer *o, real *weights, const real *grads, double *out_norm, struct err *err);
