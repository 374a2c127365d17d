/* loss.c - see loss.h. */
#include "learner/loss.h"
#include <math.h>

/* exp() of a log ratio beyond this is no ratio any more but a broken record; also keeps it finite. */
#define LOG_RATIO_MAX 20.0

struct loss_out loss_policy(const struct loss_config *c, const struct loss_token *t)
{
    if (t->masked)
        return (struct loss_out){ .ratio = 1 };
    double log_ratio = t->lp - t->behaviour;
    bool held = log_ratio > LOG_RATIO_MAX || log_ratio < -LOG_RATIO_MAX;    /* a held ratio passes no gradient */
    double ratio = exp(fmin(fmax(log_ratio, -LOG_RATIO_MAX), LOG_RATIO_MAX));
    double bounded = fmin(fmax(ratio, 1 - c->clip_low), 1 + c->clip_high);
    double free_term = ratio * t->advantage, clip_term = bounded * t->advantage;
    struct loss_out out = { .ratio = ratio, .clipped = clip_term < free_term };
    out.loss = -(out.clipped ? clip_term : free_term);
    out.dlp = out.clipped || held ? 0 : -free_term;
    if (c->kl > 0) {
        double d = t->reference - t->lp;
        bool far = d > LOG_RATIO_MAX || d < -LOG_RATIO_MAX;
        d = fmin(fmax(d, -LOG_RATIO_MAX), LOG_RATIO_MAX);
        out.loss += c->kl * (exp(d) - 1 - d);
        out.dlp += far ? 0 : c->kl * (1 - exp(d));
    }
    out.loss -= c->entropy * t->entropy;
    out.dentropy = -c->entropy;
    return out;
}

struct loss_out loss_sft(double lp)
{
    return (struct loss_out){ .loss = -lp, .dlp = -1, .ratio = 1 };
}
