/*
 * The linked backend (float) against plain double loops, one operation after another, and the whole
 * net's slope along its own gradient. The CPU's backend runs in `make test`; `make cuda` links the same
 * file with the CUDA backend, `make cuda-test` runs it where there is a GPU.
 */
#include "learner/backend.h"
#include "learner/model.h"
#include "learner/rng.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { N_MAX = 4096 };
struct vec { float host[N_MAX]; float *dev; size_t n; };

static struct vec vec(size_t n, uint64_t seed)
{
    struct vec v = { .dev = backend_alloc(n * sizeof(float)), .n = n };
    struct rng r = rng_of(seed, 3, 1, 4);
    assert_true(n <= N_MAX && v.dev != NULL);
    for (size_t i = 0; i < n && seed != 0; i++)
        v.host[i] = (float)rng_normal(&r);
    backend_upload(v.dev, v.host, n * sizeof(float));
    return v;
}

static void fetch(struct vec *v)
{
    struct err err = { 0 };
    backend_download(v->host, v->dev, v->n * sizeof(float));
    if (backend_sync(&err) < 0)
        fail_msg("%s", err.msg);
}

static void near(const char *what, const float *got, const double *want, size_t n)
{
    double size = 1e-30;
    for (size_t i = 0; i < n; i++)
        size = fmax(size, fabs(want[i]));
    for (size_t i = 0; i < n; i++)
        if (!(fabs((double)got[i] - want[i]) <= 2e-5 * size))
            fail_msg("%s[%zu] on %s: %.9g, want %.9g", what, i, backend_name(), (double)got[i], want[i]);
}

static void gemm__all_forms(void **state)
{
    (void)state;
    enum { M = 5, N = 7, K = 11, BATCH = 3 };
    for (int form = 0; form < 8; form++) {
        bool ta = form & 1, tb = form & 2, add = form & 4;
        struct vec a = vec(M * K * BATCH, 1), b = vec(K * N * BATCH, 2), c = vec(M * N * BATCH, 3);
        double want[M * N * BATCH];
        for (size_t g = 0; g < BATCH; g++)
            for (size_t i = 0; i < M; i++)
                for (size_t j = 0; j < N; j++) {
                    double s = 0;
                    for (size_t k = 0; k < K; k++)
                        s += (double)a.host[g * M * K + (ta ? k * M + i : i * K + k)] *
                             (double)b.host[g * K * N + (tb ? j * K + k : k * N + j)];
                    want[(g * M + i) * N + j] = 0.5 * s + (add ? 2 * (double)c.host[(g * M + i) * N + j] : 0);
                }
        backend_gemm(&(struct backend_gemm){ .ta = ta, .tb = tb, .m = M, .n = N, .k = K, .alpha = 0.5f, .beta = add ? 2 : 0,
            .a = a.dev,
                     .lda = ta ? M : K, .stride_a = M * K, .b = b.dev, .ldb = tb ? K : N, .stride_b = K * N, .c = c.dev, .ldc = N,
                     .stride_c = M * N, .batch = BATCH });
        fetch(&c);
        near("gemm", c.host, want, c.n);
        backend_free(a.dev);
        backend_free(b.dev);
        backend_free(c.dev);
    }
}

static void rows__gather_and_rmsnorm(void **state)
{
    (void)state;
    enum { ROWS = 6, DIM = 300 };                       /* more than one block's threads, and not a multiple */
    struct vec x = vec(ROWS * DIM, 1), w = vec(DIM, 2), out = vec(ROWS * DIM, 0), inv = vec(ROWS, 0), dout = vec(ROWS * DIM, 3),
               dx = vec(ROWS * DIM, 0), dw = vec(DIM, 0);
    static double want[ROWS * DIM], want_dx[ROWS * DIM], want_dw[DIM];
    const uint32_t ids[4] = { 5, 0, 5, 2 };
    memset(want_dw, 0, sizeof want_dw);
    for (size_t r = 0; r < ROWS; r++) {
        double sum = 0, dot = 0;
        for (size_t d = 0; d < DIM; d++)
            sum += (double)x.host[r * DIM + d] * (double)x.host[r * DIM + d];
        double s = 1 / sqrt(sum / DIM + 1e-5);
        for (size_t d = 0; d < DIM; d++) {
            want[r * DIM + d] = (double)x.host[r * DIM + d] * s * (double)w.host[d];
            dot += (double)dout.host[r * DIM + d] * (double)w.host[d] * (double)x.host[r * DIM + d];
            want_dw[d] += (double)dout.host[r * DIM + d] * (double)x.host[r * DIM + d] * s;
        }
        for (size_t d = 0; d < DIM; d++)
            want_dx[r * DIM + d] = (double)dout.host[r * DIM + d] * (double)w.host[d] * s -
                                    dot * s * s * s / DIM * (double)x.host[r * DIM + d];
    }
    backend_rmsnorm(out.dev, inv.dev, x.dev, w.dev, ROWS, DIM, 1e-5f);
    backend_rmsnorm_back(dx.dev, dw.dev, dout.dev, x.dev, w.dev, inv.dev, ROWS, DIM);
    fetch(&out);
    fetch(&dx);
    fetch(&dw);
    near("rmsnorm", out.host, want, ROWS * DIM);
    near("rmsnorm dx", dx.host, want_dx, ROWS * DIM);
    near("rmsnorm dw", dw.host, want_dw, DIM);

    uint32_t *ids_dev = backend_alloc(sizeof ids);
    backend_upload(ids_dev, ids, sizeof ids);
    backend_gather(out.dev, x.dev, ids_dev, 4, DIM);
    backend_zero(dx.dev, ROWS * DIM * sizeof(float));
    backend_gather_back(dx.dev, dout.dev, ids_dev, 4, DIM);
    fetch(&out);
    fetch(&dx);
    memset(want_dx, 0, sizeof want_dx);
    for (size_t i = 0; i < 4; i++)
        for (size_t d = 0; d < DIM; d++) {
            assert_true(out.host[i * DIM + d] == x.host[ids[i] * DIM + d]);
            want_dx[ids[i] * DIM + d] += (double)dout.host[i * DIM + d];
        }
    near("gather back", dx.host, want_dx, ROWS * DIM);
    struct vec *all[] = { &x, &w, &out, &inv, &dout, &dx, &dw };
    for (size_t i = 0; i < 7; i++)
        backend_free(all[i]->dev);
    backend_free(ids_dev);
}

static void softmax__and_logprob(void **state)
{
    (void)state;
    enum { BATCH = 2, NQ = 3, NK = 270, VOCAB = 300, ROWS = 3 };
    struct vec s = vec(BATCH * NQ * NK, 1), p = vec(BATCH * NQ * NK, 0), d = vec(BATCH * NQ * NK, 2);
    static double want[BATCH * NQ * NK], want_d[BATCH * NQ * NK];
    for (size_t r = 0; r < BATCH * NQ; r++) {
        size_t seen = r % NQ + NK - NQ + 1;
        double sum = 0, dot = 0;
        for (size_t j = 0; j < seen; j++)
            sum += exp(0.7 * (double)s.host[r * NK + j]);
        for (size_t j = 0; j < NK; j++) {
            want[r * NK + j] = j < seen ? exp(0.7 * (double)s.host[r * NK + j]) / sum : 0;
            dot += want[r * NK + j] * (double)d.host[r * NK + j];
        }
        for (size_t j = 0; j < NK; j++)
            want_d[r * NK + j] = 0.7 * want[r * NK + j] * ((double)d.host[r * NK + j] - dot);
    }
    backend_copy(p.dev, s.dev, p.n);
    backend_softmax(p.dev, BATCH, NQ, NK, 0.7f);
    backend_softmax_back(d.dev, p.dev, BATCH, NQ, NK, 0.7f);
    fetch(&p);
    fetch(&d);
    near("softmax", p.host, want, p.n);
    near("softmax back", d.host, want_d, d.n);

    const struct backend_pick picks[ROWS] = { { 7, 0, VOCAB }, { 20, 16, 8 }, { 299, 299, 1 } };
    struct vec z = vec(ROWS * VOCAB, 3), dz = vec(ROWS * VOCAB, 4), lp = vec(ROWS, 0), h = vec(ROWS, 0), dlp = vec(ROWS, 5),
        dh = vec(ROWS, 6);
    struct backend_pick *picks_dev = backend_alloc(sizeof picks);
    double want_lp[ROWS], want_h[ROWS];
    static double want_dz[ROWS * VOCAB];
    memset(want_dz, 0, sizeof want_dz);
    for (size_t r = 0; r < ROWS; r++) {
        const float *row = z.host + r * VOCAB + picks[r].first;
        double sum = 0;
        want_h[r] = 0;
        for (size_t j = 0; j < picks[r].count; j++)
            sum += exp(0.8 * (double)row[j]);
        for (size_t j = 0; j < picks[r].count; j++) {
            double l = 0.8 * (double)row[j] - log(sum);
            want_h[r] -= exp(l) * l;
        }
        want_lp[r] = 0.8 * (double)row[picks[r].target - picks[r].first] - log(sum);
        for (size_t j = 0; j < picks[r].count; j++) {
            double l = 0.8 * (double)row[j] - log(sum), one = j == picks[r].target - picks[r].first;
            want_dz[r * VOCAB + picks[r].first + j] = 0.8 * ((double)dlp.host[r] * (one - exp(l)) -
                                                             (double)dh.host[r] * exp(l) * (l + want_h[r]));
        }
    }
    backend_upload(picks_dev, picks, sizeof picks);
    backend_logprob(lp.dev, h.dev, z.dev, picks_dev, ROWS, VOCAB, 0.8f);
    backend_logprob_back(dz.dev, dlp.dev, dh.dev, z.dev, picks_dev, ROWS, VOCAB, 0.8f);
    fetch(&lp);
    fetch(&h);
    fetch(&dz);
    near("logprob", lp.host, want_lp, ROWS);
    near("entropy", h.host, want_h, ROWS);
    near("logprob back", dz.host, want_dz, dz.n);
    struct vec *all[] = { &s, &p, &d, &z, &dz, &lp, &h, &dlp, &dh };
    for (size_t i = 0; i < 9; i++)
        backend_free(all[i]->dev);
    backend_free(picks_dev);
}

static void elements__swiglu_rope_adamw_sums(void **state)
{
    (void)state;
    enum { N = 1000, ROWS = 4, HEADS = 3, HD = 8 };
    struct vec g = vec(N, 1), u = vec(N, 2), o = vec(N, 0), dg = vec(N, 0), du = vec(N, 0), w = vec(N, 3), m = vec(N, 4),
        v = vec(N, 0);
    static double want[N], want_g[N], want_u[N];
    for (size_t i = 0; i < N; i++) {
        double x = (double)g.host[i], sig = 1 / (1 + exp(-x)), d = (double)w.host[i];
        want[i] = x * sig * (double)u.host[i];
        want_g[i] = d * (double)u.host[i] * (sig + x * sig * (1 - sig));
        want_u[i] = d * x * sig;
    }
    backend_swiglu(o.dev, g.dev, u.dev, N);
    backend_swiglu_back(dg.dev, du.dev, w.dev, g.dev, u.dev, N);
    fetch(&o);
    fetch(&dg);
    fetch(&du);
    near("swiglu", o.host, want, N);
    near("swiglu gate", dg.host, want_g, N);
    near("swiglu up", du.host, want_u, N);

    double sum = 0;
    for (size_t i = 0; i < N; i++)
        sum += (double)g.host[i] * (double)g.host[i];
    assert_true(fabs(backend_sumsq(g.dev, N) - sum) < 1e-9 * sum);

    const struct backend_adamw h = { .lr = 0.01f, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .decay = 0.1f, .fix1 = 0.1f,
        .fix2 = 0.05f, .scale = 0.5f };
    for (size_t i = 0; i < N; i++) {
        double x = 0.5 * (double)g.host[i], mm = 0.9 * (double)m.host[i] + 0.1 * x, vv = 0.05 * x * x;
        want[i] = (double)w.host[i] - 0.01 * (mm / 0.1 / (sqrt(vv / 0.05) + 1e-8) + 0.1 * (double)w.host[i]);
    }
    backend_adamw(w.dev, g.dev, m.dev, v.dev, N, &h);
    backend_add(u.dev, g.dev, N);
    fetch(&w);
    near("adamw", w.host, want, N);
    for (size_t i = 0; i < N; i++)
        want[i] = (double)u.host[i] + (double)g.host[i];
    fetch(&u);
    near("add", u.host, want, N);

    const uint32_t pos[ROWS] = { 0, 1, 77, 500 };
    uint32_t *pos_dev = backend_alloc(sizeof pos);
    struct vec x = vec(ROWS * HEADS * HD, 7);
    backend_upload(pos_dev, pos, sizeof pos);
    for (size_t r = 0; r < ROWS; r++)
        for (size_t k = 0; k < HEADS; k++)
            for (size_t i = 0; i < HD / 2; i++) {
                size_t at = (r * HEADS + k) * HD + i;
                double angle = pos[r] * pow(10000, -2.0 * (double)i / HD), a = (double)x.host[at],
                    b = (double)x.host[at + HD / 2];
                want[at] = a * cos(angle) - b * sin(angle);
                want[at + HD / 2] = a * sin(angle) + b * cos(angle);
            }
    struct vec was = x;
    backend_rope(x.dev, pos_dev, ROWS, HEADS, HD, 10000, false);
    fetch(&x);
    near("rope", x.host, want, x.n);
    backend_rope(x.dev, pos_dev, ROWS, HEADS, HD, 10000, true);
    fetch(&x);
    for (size_t i = 0; i < x.n; i++)
        want[i] = (double)was.host[i];
    near("rope there and back", x.host, want, x.n);
    struct vec *all[] = { &g, &u, &o, &dg, &du, &w, &m, &v, &x };
    for (size_t i = 0; i < 9; i++)
        backend_free(all[i]->dev);
    backend_free(pos_dev);
}

enum { TOKENS = 9 };
static double likelihood(struct model *m, struct backend_pick *picks_dev, bool back)
{
    const uint32_t tokens[TOKENS] = { 1, 5, 2, 2, 7, 0, 3, 4, 6 }, starts[3] = { 0, 5, TOKENS }, rows[3] = { 4, 2, 8 };
    const struct model_input in = { tokens, TOKENS, starts, 2, rows, 3 };
    const float one[3] = { 1, 1, 1 };
    float host[3], *lp = backend_alloc(sizeof one), *h = backend_alloc(sizeof one), *dlp = backend_alloc(sizeof one),
        *dh = backend_alloc(sizeof one);
    struct err err = { 0 };
    assert_int_equal(model_forward(m, &in, &err), 0);
    backend_logprob(lp, h, m->logits, picks_dev, 3, m->config.vocab, 1);
    backend_download(host, lp, sizeof host);
    if (back) {
        backend_upload(dlp, one, sizeof one);
        backend_logprob_back(m->dlogits, dlp, dh, m->logits, picks_dev, 3, m->config.vocab, 1);
        model_backward(m, &in);
    }
    backend_free(lp);
    backend_free(h);
    backend_free(dlp);
    backend_free(dh);
    return (double)host[0] + (double)host[1] + (double)host[2];
}

static void model__slope_along_its_gradient(void **state)
{
    (void)state;
    const struct model_config c = { .vocab = 9, .dim = 16, .hidden = 24, .layers = 2, .heads = 4, .kv_heads = 2, .context = 8,
                                    .eps = 1e-5, .theta = 100 };
    const struct backend_pick picks[3] = { { 3, 0, 9 }, { 5, 4, 3 }, { 8, 2, 7 } };
    struct backend_pick *picks_dev = backend_alloc(sizeof picks);
    struct model *m;
    struct err err = { 0 };
    backend_upload(picks_dev, picks, sizeof picks);
    assert_int_equal(model_new(&m, &c, TOKENS, 4, &err), 0);
    assert_int_equal(model_init_weights(m, 5, &err), 0);
    likelihood(m, picks_dev, true);
    size_t bytes = m->n_params * sizeof(float);
    float *w = malloc(bytes), *g = malloc(bytes), *moved = malloc(bytes);
    backend_download(w, m->weights, bytes);
    backend_download(g, m->grads, bytes);
    double square = backend_sumsq(m->grads, m->n_params), h = 0.02 / sqrt(square), at[2];
    for (int side = 0; side < 2; side++) {
        for (size_t i = 0; i < m->n_params; i++)
            moved[i] = w[i] + (float)(side == 0 ? h : -h) * g[i];
        backend_upload(m->weights, moved, bytes);
        at[side] = likelihood(m, picks_dev, false);
    }
    double slope = (at[0] - at[1]) / (2 * h);
    fprintf(stderr, "%s: slope %.6g along a gradient of square %.6g\n", backend_name(), slope, square);
    assert_true(fabs(slope / square - 1) < 5e-3);
    assert_int_equal(backend_sync(&err), 0);
    free(w);
    free(g);
    free(moved);
    model_free(m);
    backend_free(picks_dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gemm__all_forms), cmocka_unit_test(rows__gather_and_rmsnorm), cmocka_unit_test(softmax__and_logprob),
        cmocka_unit_test(elements__swiglu_rope_adamw_sums), cmocka_unit_test(model__slope_along_its_gradient),
    };
    struct err err = { 0 };
    if (backend_open(0, 1, &err) < 0) {
        fprintf(stderr, "backend_test: %s\n", err.msg);
        return 69;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
