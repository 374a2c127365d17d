/*
 * loss.h - the losses, as functions of one token's log-probability.
 *
 * The backend gives log p and entropy of each token that the policy chose; a loss turns them into
 * a number and its two derivatives; the backend carries those back into the logits. So every loss
 * is scalar code on the host, in double, and its gradient is checked by finite differences.
 *
 * GRPO / PPO clip:  ratio = exp(lp - behaviour), loss = -min(ratio A, clip(ratio, 1 - lo, 1 + hi) A)
 *   `behaviour` is the log-probability as recorded in the trajectory: what the sampler really used.
 * KL (k3):          d = reference - lp, exp(d) - 1 - d >= 0, against a frozen policy
 * Entropy:          -coef * H
 * SFT:              -lp
 *
 * Aggregation: the mean over the *global* number of chosen tokens. The denominator is summed over
 * ranks before the first way back; gradients are then summed, never averaged.
 */
#pragma once
#include <stdbool.h>

struct loss_config {
    double clip_low, clip_high;     /* 0.2, 0.28: see rl.c */
    double kl, entropy;             /* coefficients, 0: off */
};

struct loss_token {                 /* one token that the policy chose */
    double lp, entropy;             /* now */
    double behaviour, reference;    /* then; of the frozen policy (read only when kl > 0) */
    double advantage;
    bool masked;                    /* no reward: takes no part in anything */
};

struct loss_out {
    double loss, dlp, dentropy;     /* not yet divided by the number of tokens */
    double ratio;
    bool clipped;
};

struct loss_out loss_policy(const struct loss_config *c, const struct loss_token *t);
struct loss_out loss_sft(double lp);
