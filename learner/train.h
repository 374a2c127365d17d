/*
 * train.h - one update of the weights from one batch, over all ranks.
 *
 * Every rank holds the same weights and the same batch, and works on the sequences whose index is
 * its rank modulo the number of ranks. The loss of a token is divided by the number of tokens of the
 * *whole* batch before the way back; gradients are summed. So two ranks equal one, up to the order
 * of a sum.
 *
 * A batch in which no token has an advantage is no step, KL and entropy terms or not: the weights,
 * the moments and the step count stay bit-identical.
 */
#pragma once
#include "learner/batch.h"
#include "learner/collective.h"
#include "learner/loss.h"
#include "learner/model.h"
#include "learner/optimizer.h"

struct trainer {
    struct model *model;                /* borrowed */
    struct optimizer optimizer;
    struct collective *ranks;           /* borrowed */
    struct loss_config loss;
    bool sft;                           /* likelihood of the chosen tokens instead of the policy loss */
    double inv_temp;                    /* as sampled */
    uint32_t epochs;                    /* passes over a batch; the clip bounds how far they go */
    struct trainer_work *work;
};

struct train_stats {
    double loss, grad_norm, entropy;    /* of the first pass: what the batch said of the policy that made it */
    double clip_frac, ratio_max;        /* of the last pass */
    size_t tokens;
    uint32_t steps;                     /* optimizer steps taken; 0: the batch had nothing to say */
};

MUST_CHECK int trainer_init(struct trainer *t, struct model *m, const struct optimizer_config *o, struct collective *ranks,
                            struct err *err);
void trainer_done(struct trainer *t);
MUST_CHECK int train_batch(struct trainer *t, const struct batch *b, struct train_stats *out, struct err *err);
