/* sampler.c - see sampler.h. The layer's steps are those of model.c's way there. */
#include "learner/sampler.h"
#include "base/own.h"
#include "learner/attention.h"
#include "learner/backend.h"
#include <math.h>
#include <string.h>

struct sampler {
    const struct model *m;
    size_t fed;
    real *block;                /* one allocation; the pointers below lie in it */
    real *k_cache, *v_cache;    /* [layers][context][kv] */
    real *x, *n, *q, *att, *gate, *up, *inv, *prob, *logits;
    uint32_t *ids, *pos;        /* backend memory, [context] */
    uint32_t *pos_host;
    real *logits_host;
};

static size_t kv_dim(const struct model_config *c) { return (size_t)c->dim / c->heads * c->kv_heads; }

static size_t place(struct sampler *s, real *block)
{
    const struct model_config *c = &s->m->config;
    size_t at = 0, t = c->context, d = c->dim, kv = kv_dim(c);
    struct { real **p; size_t n; } part[] = {
        { &s->k_cache, c->layers * t * kv }, { &s->v_cache, c->layers * t * kv }, { &s->x, t * d }, { &s->n, t * d },
        { &s->q, t * d }, { &s->att, t * d }, { &s->gate, t * c->hidden }, { &s->up, t * c->hidden }, { &s->inv, t },
        { &s->prob, c->heads * t * t }, { &s->logits, c->vocab } };
    for (size_t i = 0; i < sizeof part / sizeof part[0]; i++) {
        *part[i].p = block == NULL ? NULL : block + at;
        at += (part[i].n + 15) / 16 * 16;
    }
    return at;
}

void sampler_free(struct sampler *s)
{
    if (s == NULL)
        return;
    backend_free(s->block);
    backend_free(s->ids);
    backend_free(s->pos);
    free(s->pos_host);
    free(s->logits_host);
    free(s);
}

int sampler_new(struct sampler **out, const struct model *m, struct err *err)
{
    struct sampler *s = calloc(1, sizeof *s);
    if (s == NULL)
        return err_set(err, ERR_LIMIT, "sampler: out of memory");
    s->m = m;
    size_t n = place(s, NULL);
    s->block = backend_alloc(n * sizeof(real));
    s->ids = backend_alloc(m->config.context * sizeof(uint32_t));
    s->pos = backend_alloc(m->config.context * sizeof(uint32_t));
    s->pos_host = calloc(m->config.context, sizeof(uint32_t));
    s->logits_host = calloc(m->config.vocab, sizeof(real));
    if (s->block == NULL || s->ids == NULL || s->pos == NULL || s->pos_host == NULL || s->logits_host == NULL) {
        sampler_free(s);
        return err_set(err, ERR_LIMIT, "sampler: no memory for a context of %u", m->config.context);
    }
    place(s, s->block);
    *out = s;
    return 0;
}

void sampler_reset(struct sampler *s) { s->fed = 0; }
const real *sampler_logits(const struct sampler *s) { return s->logits_host; }

static void linear(real *out, const real *in, const real *w, size_t rows, size_t n_out, size_t n_in, bool add)
{
    backend_gemm(&(struct backend_gemm){ .tb = true, .m = rows, .n = n_out, .k = n_in, .alpha = 1, .beta = add, .a = in,
                 .lda = n_in, .b = w, .ldb = n_in, .c = out, .ldc = n_out, .batch = 1 });
}

int sampler_feed(struct sampler *s, const uint32_t *tokens, size_t n, struct err *err)
{
    const struct model_config *c = &s->m->config;
    const real *w = s->m->weights;
    size_t d = c->dim, kv = kv_dim(c), h = c->hidden, total = s->fed + n;
    if (n == 0 || total > c->context)
        return err_set(err, ERR_LIMIT, "sampler: %zu tokens after %zu, the context is %u", n, s->fed, c->context);
    for (size_t i = 0; i < n; i++) {
        if (tokens[i] >= c->vocab)
            return err_set(err, ERR_BAD_INPUT, "sampler: token %u is outside the vocabulary of %u", tokens[i], c->vocab);
        s->pos_host[i] = (uint32_t)(s->fed + i);
    }
    const struct attention att = { c->heads, c->kv_heads, d / c->heads, s->prob, NULL };
    backend_upload(s->ids, tokens, n * sizeof *tokens);
    backend_upload(s->pos, s->pos_host, n * sizeof *tokens);
    backend_gather(s->x, w, s->ids, n, d);
    for (size_t i = 0; i < c->layers; i++) {
        struct model_layer o = model_layer_at(c, i);
        real *keys = s->k_cache + i * c->context * kv, *values = s->v_cache + i * c->context * kv;
        backend_rmsnorm(s->n, s->inv, s->x, w + o.norm1, n, d, (real)c->eps);
        linear(s->q, s->n, w + o.q, n, d, d, false);
        linear(keys + s->fed * kv, s->n, w + o.k, n, kv, d, false);
        linear(values + s->fed * kv, s->n, w + o.v, n, kv, d, false);
        backend_rope(s->q, s->pos, n, c->heads, att.head_dim, (real)c->theta, false);
        backend_rope(keys + s->fed * kv, s->pos, n, c->kv_heads, att.head_dim, (real)c->theta, false);
        attention_forward(&att, s->att, s->q, keys, values, n, total);
        linear(s->x, s->att, w + o.o, n, d, d, true);
        backend_rmsnorm(s->n, s->inv, s->x, w + o.norm2, n, d, (real)c->eps);
        linear(s->gate, s->n, w + o.gate, n, h, d, false);
        linear(s->up, s->n, w + o.up, n, h, d, false);
        backend_swiglu(s->gate, s->gate, s->up, n * h);
        linear(s->x, s->gate, w + o.down, n, d, h, true);
    }
    backend_rmsnorm(s->n, s->inv, s->x + (n - 1) * d, w + model_final_norm(c), 1, d, (real)c->eps);
    linear(s->logits, s->n, w + model_head(c), 1, c->vocab, d, false);
    backend_download(s->logits_host, s->logits, c->vocab * sizeof(real));
    s->fed = total;
    return backend_sync(err);
}

int sampler_pick(struct sampler *s, struct sampler_range range, double temperature, struct rng *r, uint32_t *out_token,
                 float *out_logprob, struct err *err)
{
    uint32_t vocab = s->m->config.vocab, first = range.count == 0 ? 0 : range.first, n = range.count == 0 ? vocab : range.count;
    if (s->fed == 0 || first >= vocab || n > vocab - first)
        return err_set(err, ERR_USAGE, "sampler: nothing was fed, or tokens %u + %u pass the vocabulary of %u", first, n, vocab);
    const real *z = s->logits_host + first;
    double scale = temperature > 0 ? 1 / temperature : 1, sum = 0;
    uint32_t best = 0, pick = n - 1;
    for (uint32_t i = 1; i < n; i++)
        if (z[i] > z[best])
            best = i;
    if (!isfinite(z[best]))
        return err_set(err, ERR_INTERNAL, "sampler: the logits are not finite: the weights have diverged");
    for (uint32_t i = 0; i < n; i++)
        sum += exp((double)(z[i] - z[best]) * scale);
    if (temperature > 0) {
        double at = rng_unit(r) * sum, seen = 0;
        for (uint32_t i = 0; i < n; i++)
            if ((seen += exp((double)(z[i] - z[best]) * scale)) > at) {
                pick = i;
                break;
            }
    } else {
        pick = best;
    }
    double lp = (double)(z[pick] - z[best]) * scale - log(sum);
    *out_token = first + pick;
    *out_logprob = (float)fmin(lp, 0);
    return 0;
}
