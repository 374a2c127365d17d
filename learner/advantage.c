/* advantage.c - see advantage.h. */
#include "learner/advantage.h"
#include <math.h>

struct advantage_group advantage_grpo(double *out, const double *rewards, const bool *has_reward, size_t n, bool with_std)
{
    struct advantage_group g = { 0 };
    double sum = 0, low = INFINITY, high = -INFINITY, square = 0;
    for (size_t i = 0; i < n; i++) {
        out[i] = 0;
        if (!has_reward[i])
            continue;
        g.scored++;
        sum += rewards[i];
        low = fmin(low, rewards[i]);
        high = fmax(high, rewards[i]);
    }
    if (g.scored == 0)
        return g;
    g.mean = sum / (double)g.scored;
    for (size_t i = 0; i < n; i++)
        if (has_reward[i])
            square += (rewards[i] - g.mean) * (rewards[i] - g.mean);
    g.std = sqrt(square / (double)g.scored);
    /* 1e-6: rewards may have been 32-bit floats on their way, whose rounding is 6e-8 of their size. */
    g.has_spread = high - low > 1e-6 * fmax(1, fmax(fabs(low), fabs(high)));
    for (size_t i = 0; i < n && g.has_spread; i++)
        if (has_reward[i])
            out[i] = (rewards[i] - g.mean) / (with_std ? g.std + ADVANTAGE_EPS : 1);
    return g;
}
