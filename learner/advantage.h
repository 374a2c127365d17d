/*
 * advantage.h - what a sample is worth beside its group (GRPO): (r - mean) / (std + eps).
 *
 * Mean and population standard deviation run over the *scored* samples only. A sample without a
 * reward (our failure, not the policy's) takes no part: it is in no mean, no count and no loss.
 * A group without spread, up to rounding, says nothing: its advantages are exactly 0, so that
 * noise of the sum cannot become a full-size advantage and a batch of such groups leaves the
 * weights bit-identical.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#define ADVANTAGE_EPS 1e-6

struct advantage_group {
    size_t scored;          /* samples with a reward */
    double mean, std;       /* over them; 0 when there are none */
    bool has_spread;
};

/* has_reward[i] false: out[i] is 0 and must be masked. with_std false: r - mean only. */
struct advantage_group advantage_grpo(double *out, const double *rewards, const bool *has_reward, size_t n, bool with_std);
