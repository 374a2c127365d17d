/* train.c - see train.h. */
#include "learner/train.h"
#include "base/own.h"
#include <math.h>
#include <string.h>

/* What a pass over the batch adds up on one rank; all-reduced as reals. */
enum { SUM_LOSS, SUM_ENTROPY, SUM_CLIPPED, SUMS };
struct pass { double sum[SUMS], ratio_max; };

struct trainer_work {
    real *lp, *entropy, *dlp, *dentropy;            /* [rows_max], backend memory */
    struct backend_pick *picks;
    real *lp_host, *entropy_host, *dlp_host, *dentropy_host;
    struct backend_pick *picks_host;
    uint32_t *tokens, *starts, *rows;               /* one micro-batch */
};

static void work_free(struct trainer_work *w)
{
    if (w == NULL)
        return;
    backend_free(w->lp);
    backend_free(w->entropy);
    backend_free(w->dlp);
    backend_free(w->dentropy);
    backend_free(w->picks);
    free(w->lp_host);
    free(w->entropy_host);
    free(w->dlp_host);
    free(w->dentropy_host);
    free(w->picks_host);
    free(w->tokens);
    free(w->starts);
    free(w->rows);
    free(w);
}

void trainer_done(struct trainer *t)
{
    optimizer_done(&t->optimizer);
    work_free(t->work);
    t->work = NULL;
}

int trainer_init(struct trainer *t, struct model *m, const struct optimizer_config *o, struct collective *ranks, struct err *err)
{
    *t = (struct trainer){ .model = m, .ranks = ranks, .inv_temp = 1, .epochs = 1,
                           .loss = { .clip_low = 0.2, .clip_high = 0.2 } };
    int rc = optimizer_init(&t->optimizer, o, m->n_params, err);
    if (rc < 0)
        return rc;
    struct trainer_work *w = t->work = calloc(1, sizeof *w);
    size_t r = m->rows_max, n = m->tokens_max;
    if (w != NULL) {
        w->lp = backend_alloc((r + SUMS) * sizeof(real));     /* also carries the sums over ranks */
        w->entropy = backend_alloc(r * sizeof(real));
        w->dlp = backend_alloc(r * sizeof(real));
        w->dentropy = backend_alloc(r * sizeof(real));
        w->picks = backend_alloc(r * sizeof *w->picks);
        w->lp_host = calloc(r, sizeof(real));
        w->entropy_host = calloc(r, sizeof(real));
        w->dlp_host = calloc(r, sizeof(real));
        w->dentropy_host = calloc(r, sizeof(real));
        w->picks_host = calloc(r, sizeof *w->picks_host);
        w->tokens = calloc(n, sizeof *w->tokens);
        w->starts = calloc(n + 1, sizeof *w->starts);
        w->rows = calloc(r, sizeof *w->rows);
    }
    if (w == NULL || w->lp == NULL || w->entropy == NULL || w->dlp == NULL || w->dentropy == NULL || w->picks == NULL ||
        w->lp_host == NULL || w->entropy_host == NULL || w->dlp_host == NULL || w->dentropy_host == NULL ||
        w->picks_host == NULL || w->tokens == NULL || w->starts == NULL || w->rows == NULL) {
        trainer_done(t);
        return err_set(err, ERR_LIMIT, "trainer: no memory for %zu rows", r);
    }
    return 0;
}

/* Forward, loss and back for rows [from, to) that belong to the micro-batch `in`. */
static int micro_batch(struct trainer *t, const struct batch *b, const struct model_input *in, struct pass *p, struct err *err)
{
    struct trainer_work *w = t->work;
    struct model *m = t->model;
    size_t n = in->n_rows, bytes = n * sizeof(real);
    int rc = model_forward(m, in, err);
    if (rc < 0)
        return rc;
    backend_upload(w->picks, w->picks_host, n * sizeof *w->picks);
    backend_logprob(w->lp, w->entropy, m->logits, w->picks, n, m->config.vocab, (real)t->inv_temp);
    backend_download(w->lp_host, w->lp, bytes);
    backend_download(w->entropy_host, w->entropy, bytes);
    double scale = 1 / (double)b->n_rows;
    for (size_t i = 0; i < n; i++) {
        /* The loader left behaviour and advantage of row i in dlp_host and dentropy_host. */
        struct loss_token token = { .lp = w->lp_host[i], .entropy = w->entropy_host[i], .behaviour = w->dlp_host[i],
                                    .reference = w->dlp_host[i], .advantage = w->dentropy_host[i] };
        struct loss_out o = t->sft ? loss_sft(token.lp) : loss_policy(&t->loss, &token);
        p->sum[SUM_LOSS] += o.loss * scale;
        p->sum[SUM_ENTROPY] += token.entropy * scale;
        p->sum[SUM_CLIPPED] += o.clipped * scale;
        p->ratio_max = fmax(p->ratio_max, o.ratio);
        w->dlp_host[i] = (real)(o.dlp * scale);
        w->dentropy_host[i] = (real)(o.dentropy * scale);
    }
    backend_upload(w->dlp, w->dlp_host, bytes);
    backend_upload(w->dentropy, w->dentropy_host, bytes);
    backend_logprob_back(m->dlogits, w->dlp, w->dentropy, m->logits, w->picks, n, m->config.vocab, (real)t->inv_temp);
    model_backward(m, in);
    return 0;
}

/* This rank's share of the batch, in micro-batches that fit the model's memory. */
static int one_pass(struct trainer *t, const struct batch *b, struct pass *p, struct err *err)
{
    struct trainer_work *w = t->work;
    struct model *m = t->model;
    struct model_input in = { .tokens = w->tokens, .starts = w->starts, .rows = w->rows };
    backend_zero(m->grads, m->n_params * sizeof(real));
    for (size_t s = (size_t)t->ranks->rank; s < b->n_seqs; s += (size_t)t->ranks->size) {
        size_t n = b->starts[s + 1] - b->starts[s], rows = b->row_starts[s + 1] - b->row_starts[s];
        if (n > m->tokens_max || rows > m->rows_max)
            return err_set(err, ERR_LIMIT, "trainer: a sequence of %zu tokens and %zu choices, memory was made for %zu and %zu",
                n, rows, m->tokens_max, m->rows_max);
        if (in.n_seqs > 0 && (in.n_tokens + n > m->tokens_max || in.n_rows + rows > m->rows_max)) {
            int rc = micro_batch(t, b, &in, p, err);
            if (rc < 0)
                return rc;
            collective_beat(t->ranks);
            in.n_tokens = in.n_seqs = in.n_rows = 0;
        }
        memcpy(w->tokens + in.n_tokens, b->tokens + b->starts[s], n * sizeof *w->tokens);
        for (size_t i = 0; i < rows; i++) {
            const struct batch_row *r = &b->rows[b->row_starts[s] + i];
            w->rows[in.n_rows] = r->token - b->starts[s] + (uint32_t)in.n_tokens;
            w->picks_host[in.n_rows] = r->pick;
            w->dlp_host[in.n_rows] = (real)r->behaviour;
            w->dentropy_host[in.n_rows++] = (real)r->advantage;
        }
        w->starts[in.n_seqs++] = (uint32_t)in.n_tokens;
        in.n_tokens += n;
        w->starts[in.n_seqs] = (uint32_t)in.n_tokens;
    }
    return in.n_seqs > 0 ? micro_batch(t, b, &in, p, err) : 0;
}

static int sum_over_ranks(struct trainer *t, struct pass *p, struct err *err)
{
    real host[SUMS];
    for (int i = 0; i < SUMS; i++)
        host[i] = (real)p->sum[i];
    backend_upload(t->work->lp, host, sizeof host);
    int rc = collective_all_reduce(t->ranks, t->work->lp, SUMS, err);
    if (rc < 0)
        return rc;
    backend_download(host, t->work->lp, sizeof host);
    for (int i = 0; i < SUMS; i++)
        p->sum[i] = (double)host[i];
    return collective_all_reduce(t->ranks, t->model->grads, t->model->n_params, err);
}

static bool has_something_to_say(const struct trainer *t, const struct batch *b)
{
    if (t->sft || b->n_rows == 0)
        return b->n_rows > 0;
    for (size_t i = 0; i < b->n_rows; i++)
        if (b->rows[i].advantage != 0)
            return true;
    return false;
}

int train_batch(struct trainer *t, const struct batch *b, struct train_stats *out, struct err *err)
{
    *out = (struct train_stats){ .tokens = b->n_rows, .ratio_max = 1 };
    if (!has_something_to_say(t, b))
        return 0;
    for (uint32_t e = 0; e < t->epochs; e++) {
        struct pass p = { .ratio_max = 0 };
        double norm;
        int rc;
        if ((rc = one_pass(t, b, &p, err)) < 0 || (rc = sum_over_ranks(t, &p, err)) < 0)
            return rc;
        if ((rc = optimizer_step(&t->optimizer, t->model->weights, t->model->grads, &norm, err)) < 0)
            return rc;
        out->steps++;
        if (e == 0) {
            out->loss = p.sum[SUM_LOSS];
            out->entropy = p.sum[SUM_ENTROPY];
            out->grad_norm = norm;
        }
        out->clip_frac = p.sum[SUM_CLIPPED];
        out->ratio_max = p.ratio_max;
        collective_beat(t->ranks);
    }
    return 0;
}
