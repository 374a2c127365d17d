/*
 * learner_load DIR ROUNDS THREADS: times forward + backward of one net over 2048 tokens in 8 sequences.
 *
 * Leaves the weights in DIR (Hugging Face layout), so that a peer computes the same net, and prints one
 * JSON line: the loss and gradient norm, by which the two are compared first, and seconds per round.
 */
#include "base/clock.h"
#include "base/own.h"
#include "learner/backend.h"
#include "learner/checkpoint.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { SEQS = 8, LEN = 256, TOKENS = SEQS * LEN, VOCAB = 2048 };

static int run(const char *dir, int rounds, struct err *err)
{
    const struct model_config c = { .vocab = VOCAB, .dim = 256, .hidden = 688, .layers = 4, .heads = 8, .kv_heads = 4,
                                    .context = LEN, .eps = 1e-5, .theta = 10000 };
    static uint32_t tokens[TOKENS], starts[SEQS + 1], rows[TOKENS];
    static struct backend_pick picks[TOKENS];
    static real ones[TOKENS], zeros[TOKENS], lp_host[TOKENS];
    struct model *m = NULL;
    struct checkpoint_version v;
    int rc;
    if ((rc = model_new(&m, &c, TOKENS, TOKENS, err)) < 0 || (rc = model_init_weights(m, 1, err)) < 0 ||
        (rc = checkpoint_export(&v, dir, m, 1, "bench", err)) < 0) {
        model_free(m);
        return rc;
    }
    for (uint32_t i = 0; i < TOKENS; i++) {
        tokens[i] = i * 7919 % VOCAB;
        rows[i] = i;
        picks[i] = (struct backend_pick){ (i * 7919 + 1) % VOCAB, 0, VOCAB };
        ones[i] = (real)(-1.0 / TOKENS);                /* loss = mean of -log p */
    }
    for (uint32_t s = 0; s <= SEQS; s++)
        starts[s] = s * LEN;
    struct backend_pick *picks_dev = backend_alloc(sizeof picks);
    real *lp = backend_alloc(sizeof ones), *h = backend_alloc(sizeof ones), *dlp = backend_alloc(sizeof ones),
        *dh = backend_alloc(sizeof ones);
    backend_upload(picks_dev, picks, sizeof picks);
    backend_upload(dlp, ones, sizeof ones);
    backend_upload(dh, zeros, sizeof zeros);
    double loss = 0;
    own_mem double *seconds = calloc((size_t)rounds + 1, sizeof *seconds);
    for (int i = 0; i <= rounds && rc == 0; i++) {      /* the first round warms up */
        uint64_t from = clock_mono_ns();
        backend_zero(m->grads, m->n_params * sizeof(real));
        if ((rc = model_forward(m, &(struct model_input){ tokens, TOKENS, starts, SEQS, rows, TOKENS }, err)) < 0)
            break;
        backend_logprob(lp, h, m->logits, picks_dev, TOKENS, VOCAB, 1);
        backend_logprob_back(m->dlogits, dlp, dh, m->logits, picks_dev, TOKENS, VOCAB, 1);
        model_backward(m, &(struct model_input){ tokens, TOKENS, starts, SEQS, rows, TOKENS });
        rc = backend_sync(err);
        seconds[i] = (double)(clock_mono_ns() - from) / 1e9;
    }
    backend_download(lp_host, lp, sizeof lp_host);
    for (int i = 0; i < TOKENS; i++)
        loss -= (double)lp_host[i] / TOKENS;
    printf("{\"weights\": \"%s\", \"loss\": %.8f, \"grad_norm\": %.8f, \"tokens\": %d, \"seconds\": [", v.manifest_path, loss,
           sqrt(backend_sumsq(m->grads, m->n_params)), TOKENS);
    for (int i = 1; i <= rounds; i++)
        printf("%s%.6f", i > 1 ? ", " : "", seconds[i]);
    puts("]}");
    backend_free(picks_dev);
    backend_free(lp);
    backend_free(h);
    backend_free(dlp);
    backend_free(dh);
    model_free(m);
    return rc;
}

int main(int argc, char **argv)
{
    struct err err = { 0 };
    if (argc != 4) {
        fprintf(stderr, "usage: learner_load DIR ROUNDS THREADS\n");
        return 64;
    }
    if (backend_open(0, atoi(argv[3]), &err) < 0 || run(argv[1], atoi(argv[2]), &err) < 0) {
        fprintf(stderr, "learner_load: %s\n", err.msg);
        return 70;
    }
    backend_close();
    return 0;
}
