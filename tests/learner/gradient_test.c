/*
 * Every hand-written derivative against finite differences, in double precision.
 *
 * Method: a scalar f = sum(weight * output) with seeded weights; each input in turn is moved by
 * +-h and +-2h (fourth order, error ~h^4) and the slope compared with the hand-written one. The
 * bound is 1e-6 relative, per element, with the tensor's largest slope as the floor's scale.
 */
#include "learner/attention.h"
#include "learner/backend.h"
#include "learner/loss.h"
#include "learner/model.h"
#include "learner/rng.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define REL 1e-6
typedef double (*scalar_fn)(void *arg);

static double *fill(size_t n, uint64_t seed, double scale)
{
    double *p = backend_alloc(n * sizeof *p);
    struct rng r = rng_of(seed, 1, 2, 3);
    for (size_t i = 0; i < n; i++)
        p[i] = scale * rng_normal(&r);
    return p;
}

static double dot(const double *a, const double *b, size_t n)
{
    double s = 0;
    for (size_t i = 0; i < n; i++)
        s += a[i] * b[i];
    return s;
}

static void check(const char *what, double *x, const double *slope, size_t n, scalar_fn f, void *arg)
{
    double top = 0, worst = 0, size = sqrt(dot(x, x, n) / (double)n);      /* the step follows the tensor's own scale */
    for (size_t i = 0; i < n; i++)
        top = fmax(top, fabs(slope[i]));
    assert_true(top > 0);                       /* a gradient that is all zero checks nothing */
    for (size_t i = 0; i < n; i++) {
        double keep = x[i], h = 1e-3 * fmax(size, fabs(keep)), v[4];
        const double at[4] = { 1, -1, 2, -2 };
        for (int k = 0; k < 4; k++) {
            x[i] = keep + at[k] * h;
            v[k] = f(arg);
        }
        x[i] = keep;
        double num = (8 * (v[0] - v[1]) - (v[2] - v[3])) / (12 * h);
        double err = fabs(num - slope[i]) / fmax(fmax(fabs(num), fabs(slope[i])), 1e-3 * top);
        worst = fmax(worst, err);
        if (!(err <= REL)) {
            fprintf(stderr, "%s[%zu]: hand-written %.12g, differences %.12g, relative %.3g\n", what, i, slope[i], num, err);
            fail();
        }
    }
    fprintf(stderr, "%-24s %6zu slopes, worst relative error %.2g\n", what, n, worst);
}

/* --- single operations; `o` holds all that any of them needs --- */
struct op {
    size_t rows, dim, heads, vocab;
    double *x, *w, *y, *out, *c, *inv;
    double *c2;
    uint32_t *ids;
    struct backend_pick *picks;
    struct attention att;
    double *v;
};

static double f_gather(void *p)
{
    struct op *o = p;
    backend_gather(o->out, o->w, o->ids, o->rows, o->dim);
    return dot(o->out, o->c, o->rows * o->dim);
}

static void embedding__gradient(void **state)
{
    (void)state;
    uint32_t ids[5] = { 2, 0, 2, 3, 2 };        /* repeats must add up */
    struct op o = { .rows = 5, .dim = 4, .ids = ids, .w = fill(16, 1, 1), .out = fill(20, 2, 1), .c = fill(20, 3, 1) };
    double *dw = backend_alloc(16 * sizeof *dw);
    f_gather(&o);
    backend_gather_back(dw, o.c, ids, 5, 4);
    check("embedding", o.w, dw, 16, f_gather, &o);
    backend_free(o.w); backend_free(o.out); backend_free(o.c); backend_free(dw);
}

static double f_linear(void *p)
{
    struct op *o = p;                           /* out[rows, vocab] = x[rows, dim] w[vocab, dim]^T */
    backend_gemm(&(struct backend_gemm){ .tb = true, .m = o->rows, .n = o->vocab, .k = o->dim, .alpha = 1, .a = o->x,
                 .lda = o->dim, .b = o->w, .ldb = o->dim, .c = o->out, .ldc = o->vocab, .batch = 1 });
    return dot(o->out, o->c, o->rows * o->vocab);
}

static void linear__gradient(void **state)
{
    (void)state;
    struct op o = { .rows = 5, .dim = 6, .vocab = 3, .x = fill(30, 1, 1), .w = fill(18, 2, 1), .out = fill(15, 3, 1),
                    .c = fill(15, 4, 1) };
    double *dx = backend_alloc(30 * sizeof *dx), *dw = backend_alloc(18 * sizeof *dw);
    backend_gemm(&(struct backend_gemm){ .m = 5, .n = 6, .k = 3, .alpha = 1, .a = o.c, .lda = 3, .b = o.w, .ldb = 6, .c = dx,
                 .ldc = 6, .batch = 1 });
    backend_gemm(&(struct backend_gemm){ .ta = true, .m = 3, .n = 6, .k = 5, .alpha = 1, .beta = 1, .a = o.c, .lda = 3, .b = o.x,
                 .ldb = 6, .c = dw, .ldc = 6, .batch = 1 });
    check("linear x", o.x, dx, 30, f_linear, &o);
    check("linear w", o.w, dw, 18, f_linear, &o);
    backend_free(o.x); backend_free(o.w); backend_free(o.out); backend_free(o.c); backend_free(dx); backend_free(dw);
}

static double f_rmsnorm(void *p)
{
    struct op *o = p;
    backend_rmsnorm(o->out, o->inv, o->x, o->w, o->rows, o->dim, 1e-5);
    return dot(o->out, o->c, o->rows * o->dim);
}

static void rmsnorm__gradient(void **state)
{
    (void)state;
    struct op o = { .rows = 4, .dim = 6, .x = fill(24, 1, 2), .w = fill(6, 2, 1), .out = fill(24, 3, 1), .c = fill(24, 4, 1),
                    .inv = fill(4, 5, 1) };
    double *dx = backend_alloc(24 * sizeof *dx), *dw = backend_alloc(6 * sizeof *dw);
    f_rmsnorm(&o);
    backend_rmsnorm_back(dx, dw, o.c, o.x, o.w, o.inv, 4, 6);
    check("rmsnorm x", o.x, dx, 24, f_rmsnorm, &o);
    check("rmsnorm w", o.w, dw, 6, f_rmsnorm, &o);
    backend_free(o.x); backend_free(o.w); backend_free(o.out); backend_free(o.c); backend_free(o.inv);
    backend_free(dx); backend_free(dw);
}

static double f_rope(void *p)
{
    struct op *o = p;
    backend_copy(o->out, o->x, o->rows * o->dim);
    backend_rope(o->out, o->ids, o->rows, o->heads, o->dim / o->heads, 10000, false);
    return dot(o->out, o->c, o->rows * o->dim);
}

static void rope__gradient(void **state)
{
    (void)state;
    uint32_t pos[4] = { 0, 1, 7, 300 };
    struct op o = { .rows = 4, .dim = 12, .heads = 2, .ids = pos, .x = fill(48, 1, 1), .out = fill(48, 2, 1),
                    .c = fill(48, 3, 1) };
    double *dx = backend_alloc(48 * sizeof *dx);
    backend_copy(dx, o.c, 48);
    backend_rope(dx, pos, 4, 2, 6, 10000, true);
    check("rope", o.x, dx, 48, f_rope, &o);
    backend_free(o.x); backend_free(o.out); backend_free(o.c); backend_free(dx);
}

static double f_swiglu(void *p)
{
    struct op *o = p;
    backend_swiglu(o->out, o->x, o->y, o->dim);
    return dot(o->out, o->c, o->dim);
}

static void swiglu__gradient(void **state)
{
    (void)state;
    struct op o = { .dim = 20, .x = fill(20, 1, 2), .y = fill(20, 2, 1), .out = fill(20, 3, 1), .c = fill(20, 4, 1) };
    double *dg = backend_alloc(20 * sizeof *dg), *du = backend_alloc(20 * sizeof *du);
    backend_swiglu_back(dg, du, o.c, o.x, o.y, 20);
    check("swiglu gate", o.x, dg, 20, f_swiglu, &o);
    check("swiglu up", o.y, du, 20, f_swiglu, &o);
    backend_free(o.x); backend_free(o.y); backend_free(o.out); backend_free(o.c); backend_free(dg); backend_free(du);
}

static double f_softmax(void *p)
{
    struct op *o = p;                           /* 2 matrices of 3 x 5 */
    backend_copy(o->out, o->x, 30);
    backend_softmax(o->out, 2, 3, 5, 0.7);
    return dot(o->out, o->c, 30);
}

static void softmax__gradient(void **state)
{
    (void)state;
    struct op o = { .x = fill(30, 1, 2), .out = fill(30, 2, 1), .c = fill(30, 3, 1) };
    double *d = backend_alloc(30 * sizeof *d);
    f_softmax(&o);
    backend_copy(d, o.c, 30);
    backend_softmax_back(d, o.out, 2, 3, 5, 0.7);
    assert_true(o.out[3] == 0 && o.out[4] == 0);        /* query 0 of 3 sees keys 0..2 of 5 */
    check("softmax", o.x, d, 30, f_softmax, &o);
    backend_free(o.x); backend_free(o.out); backend_free(o.c); backend_free(d);
}

static double f_attention(void *p)
{
    struct op *o = p;
    attention_forward(&o->att, o->out, o->x, o->w, o->v, o->rows, o->rows);
    return dot(o->out, o->c, o->rows * o->att.heads * o->att.head_dim);
}

static void attention__gradient(void **state)
{
    (void)state;
    size_t n = 5, q_n = n * 4 * 6, k_n = n * 2 * 6;     /* 4 heads over 2 key/value heads of 6 */
    struct op o = { .rows = n, .x = fill(q_n, 1, 1), .w = fill(k_n, 2, 1), .v = fill(k_n, 3, 1), .out = fill(q_n, 4, 1),
                    .c = fill(q_n, 5, 1),
                    .att = { 4, 2, 6, backend_alloc(4 * n * n * sizeof(double)), backend_alloc(4 * n * n * sizeof(double)) } };
    double *dq = fill(q_n, 6, 1), *dk = fill(k_n, 7, 1), *dv = fill(k_n, 8, 1);     /* overwritten */
    attention_backward(&o.att, dq, dk, dv, o.c, o.x, o.w, o.v, n);
    check("attention v", o.v, dv, k_n, f_attention, &o);
    check("attention k", o.w, dk, k_n, f_attention, &o);
    check("attention q", o.x, dq, q_n, f_attention, &o);
    backend_free(o.x); backend_free(o.w); backend_free(o.v); backend_free(o.out); backend_free(o.c);
    backend_free(o.att.prob); backend_free(o.att.dprob); backend_free(dq); backend_free(dk); backend_free(dv);
}

static double f_logprob(void *p)
{
    struct op *o = p;
    backend_logprob(o->out, o->inv, o->x, o->picks, o->rows, o->vocab, 0.8);
    return dot(o->out, o->c, o->rows) + dot(o->inv, o->c2, o->rows);
}

static void logprob__gradient_over_the_whole_vocabulary_and_over_a_range(void **state)
{
    (void)state;
    struct backend_pick picks[3] = { { 1, 0, 7 }, { 4, 2, 3 }, { 6, 6, 1 } };
    struct op o = { .rows = 3, .vocab = 7, .picks = picks, .x = fill(21, 1, 2), .out = fill(3, 2, 1), .inv = fill(3, 3, 1),
                    .c = fill(3, 4, 1), .c2 = fill(3, 5, 1) };
    double *d = fill(21, 6, 1);
    f_logprob(&o);
    backend_logprob_back(d, o.c, o.c2, o.x, picks, 3, 7, 0.8);
    for (int j = 0; j < 7; j++)
        assert_true((j >= 2 && j < 5) || d[7 + j] == 0);    /* nothing outside the range */
    check("logprob and entropy", o.x, d, 21, f_logprob, &o);
    o.c2[0] = o.c2[1] = o.c2[2] = 0;                        /* cross-entropy alone */
    backend_logprob_back(d, o.c, o.c2, o.x, picks, 3, 7, 0.8);
    check("cross-entropy", o.x, d, 21, f_logprob, &o);
    backend_free(o.x); backend_free(o.out); backend_free(o.inv); backend_free(o.c); backend_free(o.c2); backend_free(d);
}

/* --- losses of one token: two inputs, lp and entropy --- */
struct token_loss { struct loss_config config; struct loss_token token; bool sft; double in[2]; };

static double f_loss(void *p)
{
    struct token_loss *t = p;
    t->token.lp = t->in[0];
    t->token.entropy = t->in[1];
    return t->sft ? loss_sft(t->in[0]).loss : loss_policy(&t->config, &t->token).loss;
}

static void loss__gradient(void **state)
{
    (void)state;
    const double ratios[] = { 0.5, 0.9, 1.0, 1.1, 1.5 }, advantages[] = { -2, -1, 1, 2 };
    for (size_t i = 0; i < 5; i++)
        for (size_t j = 0; j < 4; j++)
            for (int with = 0; with < 2; with++) {
                struct token_loss t = { .config = { 0.2, 0.28, with ? 0.3 : 0, with ? 0.05 : 0 }, .in = { -1.2, 0.9 } };
                t.token.advantage = advantages[j];
                t.token.behaviour = -1.2 - log(ratios[i]);
                t.token.reference = -1.7;
                f_loss(&t);
                struct loss_out o = loss_policy(&t.config, &t.token);
                double slope[2] = { o.dlp, o.dentropy };
                if (o.clipped && !with)
                    assert_true(o.dlp == 0);
                else
                    check("policy loss", t.in, slope, 2, f_loss, &t);
            }
    struct token_loss s = { .sft = true, .in = { -1.2, 0 } };
    check("sft loss", s.in, (double[]){ loss_sft(-1.2).dlp }, 1, f_loss, &s);
}

/* --- the whole net: packed sequences, grouped heads, tied and untied, through loss and softmax --- */
struct net { struct model *m; struct model_input in; struct backend_pick picks[4]; double lp[4], h[4], dlp[4], dh[4]; };

static double f_net(void *p)
{
    struct net *n = p;
    struct err err = { 0 };
    assert_int_equal(model_forward(n->m, &n->in, &err), 0);
    backend_logprob(n->lp, n->h, n->m->logits, n->picks, 4, n->m->config.vocab, 1);
    return dot(n->lp, n->dlp, 4) + dot(n->h, n->dh, 4);
}

static void model__gradient(void **state)
{
    (void)state;
    const uint32_t tokens[] = { 1, 5, 2, 2, 7, 0, 3, 4, 6 }, starts[] = { 0, 5, 9 }, rows[] = { 4, 4, 2, 8 };
    for (int tied = 0; tied < 2; tied++) {
        struct model_config c = { .vocab = 9, .dim = 8, .hidden = 10, .layers = 2, .heads = 4, .kv_heads = 2, .context = 8,
                                  .eps = 1e-5, .theta = 100, .tied = tied };
        struct net n = { .in = { tokens, 9, starts, 2, rows, 4 }, .picks = { { 3, 0, 9 }, { 5, 4, 3 }, { 1, 0, 9 }, { 8, 2, 7 } },
                         .dlp = { 1, -0.5, 0.7, 0.3 }, .dh = { 0.1, 0, -0.2, 0.3 } };
        struct err err = { 0 };
        assert_int_equal(model_new(&n.m, &c, 9, 4, &err), 0);
        assert_int_equal(model_init_weights(n.m, 5, &err), 0);
        f_net(&n);
        backend_logprob_back(n.m->dlogits, n.dlp, n.dh, n.m->logits, n.picks, 4, 9, 1);
        model_backward(n.m, &n.in);
        for (size_t i = 0; i < model_tensor_count(&c); i++) {
            struct model_tensor t = model_tensor_at(&c, i);
            check(t.name, n.m->weights + t.offset, n.m->grads + t.offset, t.rows * t.cols, f_net, &n);
        }
        model_free(n.m);
    }
}

static void model__packed_sequences_do_not_see_each_other(void **state)
{
    (void)state;
    uint32_t tokens[] = { 1, 5, 2, 2, 7, 0, 3, 4, 6 };
    const uint32_t starts[] = { 0, 5, 9 }, rows[] = { 4 };
    struct model_config c = { .vocab = 9, .dim = 8, .hidden = 10, .layers = 2, .heads = 4, .kv_heads = 2, .context = 8,
                              .eps = 1e-5, .theta = 100 };
    struct model *m;
    struct err err = { 0 };
    double first[9];
    assert_int_equal(model_new(&m, &c, 9, 4, &err), 0);
    assert_int_equal(model_init_weights(m, 5, &err), 0);
    assert_int_equal(model_forward(m, &(struct model_input){ tokens, 9, starts, 2, rows, 1 }, &err), 0);
    memcpy(first, m->logits, sizeof first);
    tokens[6] = 8;
    assert_int_equal(model_forward(m, &(struct model_input){ tokens, 9, starts, 2, rows, 1 }, &err), 0);
    assert_memory_equal(first, m->logits, sizeof first);
    tokens[2] = 8;
    assert_int_equal(model_forward(m, &(struct model_input){ tokens, 9, starts, 2, rows, 1 }, &err), 0);
    assert_memory_not_equal(first, m->logits, sizeof first);
    tokens[0] = 9;                                          /* malformed batches are refused by name */
    assert_int_equal(model_forward(m, &(struct model_input){ tokens, 9, starts, 2, rows, 1 }, &err), ERR_BAD_INPUT);
    assert_non_null(strstr(err.msg, "token 9"));
    model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(embedding__gradient), cmocka_unit_test(linear__gradient), cmocka_unit_test(rmsnorm__gradient),
        cmocka_unit_test(rope__gradient), cmocka_unit_test(swiglu__gradient), cmocka_unit_test(softmax__gradient),
        cmocka_unit_test(attention__gradient), cmocka_unit_test(logprob__gradient_over_the_whole_vocabulary_and_over_a_range),
        cmocka_unit_test(loss__gradient), cmocka_unit_test(model__gradient),
        cmocka_unit_test(model__packed_sequences_do_not_see_each_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
