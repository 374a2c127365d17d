/* model.c - see model.h. Names of activations follow the formulas there. */
#include "learner/model.h"
#include "base/own.h"
#include "learner/attention.h"
#include "learner/backend.h"
#include "learner/rng.h"
#include <math.h>
#include <string.h>

/* --- layout of the weights --- */

enum { PER_LAYER = 9 };

static size_t kv_dim(const struct model_config *c) { return (size_t)c->dim / c->heads * c->kv_heads; }

int model_config_check(const struct model_config *c, struct err *err)
{
    /* Upper bounds: twice the largest open decoder of this layout, and offsets stay far below 2^63. */
    struct { const char *name; uint32_t value, max; } f[] = {
        { "vocab_size", c->vocab, 1u << 20 }, { "hidden_size", c->dim, 1u << 15 }, { "intermediate_size", c->hidden, 1u << 17 },
        { "num_hidden_layers", c->layers, 256 }, { "num_attention_heads", c->heads, 1024 },
        { "num_key_value_heads", c->kv_heads, 1024 }, { "max_position_embeddings", c->context, 1u << 20 },
    };
    for (size_t i = 0; i < sizeof f / sizeof f[0]; i++)
        if (f[i].value == 0 || f[i].value > f[i].max)
            return err_set(err, ERR_BAD_INPUT, "model: %s is %u, want 1 to %u", f[i].name, f[i].value, f[i].max);
    if (c->dim % c->heads != 0 || c->dim / c->heads % 2 != 0)
        return err_set(err, ERR_BAD_INPUT, "model: hidden_size %u does not divide into %u heads of an even size", c->dim,
            c->heads);
    if (c->heads % c->kv_heads != 0)
        return err_set(err, ERR_BAD_INPUT, "model: %u attention heads do not share %u key/value heads evenly", c->heads,
            c->kv_heads);
    if (!(c->eps > 0 && c->eps < 1) || !(c->theta >= 1 && c->theta < 1e12))
        return err_set(err, ERR_BAD_INPUT, "model: rms_norm_eps %g or rope_theta %g is out of range", c->eps, c->theta);
    return 0;
}

static size_t layer_size(const struct model_config *c)
{
    size_t d = c->dim;
    return 2 * d + 2 * d * d + 2 * d * kv_dim(c) + 3 * d * c->hidden;
}

struct model_layer model_layer_at(const struct model_config *c, size_t layer)
{
    size_t d = c->dim, kv = kv_dim(c), h = c->hidden, at = (size_t)c->vocab * d + layer * layer_size(c);
    struct model_layer l;
    l.norm1 = at;
    l.q = l.norm1 + d;
    l.k = l.q + d * d;
    l.v = l.k + kv * d;
    l.o = l.v + kv * d;
    l.norm2 = l.o + d * d;
    l.gate = l.norm2 + d;
    l.up = l.gate + h * d;
    l.down = l.up + h * d;
    return l;
}

size_t model_final_norm(const struct model_config *c) { return (size_t)c->vocab * c->dim + c->layers * layer_size(c); }
size_t model_head(const struct model_config *c) { return c->tied ? 0 : model_final_norm(c) + c->dim; }
size_t model_param_count(const struct model_config *c)
{
    return model_final_norm(c) + c->dim + (c->tied ? 0 : (size_t)c->vocab * c->dim);
}

size_t model_tensor_count(const struct model_config *c) { return 2 + (size_t)c->layers * PER_LAYER + !c->tied; }

struct model_tensor model_tensor_at(const struct model_config *c, size_t i)
{
    size_t d = c->dim, kv = kv_dim(c), h = c->hidden, last = 1 + (size_t)c->layers * PER_LAYER;
    struct model_tensor t = { .offset = 0, .rows = c->vocab, .cols = d };
    if (i == 0) {
        snprintf(t.name, sizeof t.name, "model.embed_tokens.weight");
    } else if (i < last) {
        struct model_layer l = model_layer_at(c, (i - 1) / PER_LAYER);
        const struct { const char *name; size_t offset, rows, cols; } part[PER_LAYER] = {
            { "input_layernorm", l.norm1, d, 1 }, { "self_attn.q_proj", l.q, d, d }, { "self_attn.k_proj", l.k, kv, d },
            { "self_attn.v_proj", l.v, kv, d }, { "self_attn.o_proj", l.o, d, d },
            { "post_attention_layernorm", l.norm2, d, 1 }, { "mlp.gate_proj", l.gate, h, d }, { "mlp.up_proj", l.up, h, d },
            { "mlp.down_proj", l.down, d, h },
        }, *p = &part[(i - 1) % PER_LAYER];
        snprintf(t.name, sizeof t.name, "model.layers.%zu.%s.weight", (i - 1) / PER_LAYER, p->name);
        t.offset = p->offset;
        t.rows = p->rows;
        t.cols = p->cols;
        t.is_vector = p->offset == l.norm1 || p->offset == l.norm2;
    } else if (i == last) {
        snprintf(t.name, sizeof t.name, "model.norm.weight");
        t.offset = model_final_norm(c);
        t.rows = d;
        t.cols = 1;
        t.is_vector = true;
    } else {
        snprintf(t.name, sizeof t.name, "lm_head.weight");
        t.offset = model_head(c);
    }
    return t;
}

/* --- memory --- */

struct layer_acts { real *x, *n1, *inv1, *q, *k, *v, *att, *mid, *n2, *inv2, *gate, *up, *act; };
struct model_acts {
    real *block;                        /* the one allocation the pointers below lie in */
    struct layer_acts *layer;
    real *last, *normed, *inv, *picked; /* stream after all layers; its norm; the rows asked for */
    real *dx, *dn, *dq, *dk, *dv, *datt, *dgate, *dup, *dact, *dpicked, *dnormed;
    real *prob, *dprob;
    uint32_t *ids, *pos, *rows;         /* backend memory */
    uint32_t *pos_host;
};

static void acts_free(struct model_acts *a)
{
    if (a == NULL)
        return;
    backend_free(a->block);
    backend_free(a->ids);
    backend_free(a->pos);
    backend_free(a->rows);
    free(a->layer);
    free(a->pos_host);
    free(a);
}

void model_free(struct model *m)
{
    if (m == NULL)
        return;
    acts_free(m->acts);
    backend_free(m->weights);
    backend_free(m->grads);
    free(m);
}

/* Called twice: with block NULL it only counts, then it hands out. Each piece starts on a cache line. */
static size_t acts_place(struct model *m, real *block)
{
    struct model_acts *a = m->acts;
    const struct model_config *c = &m->config;
    size_t at = 0, t = m->tokens_max, d = c->dim, kv = kv_dim(c), h = c->hidden, seq = t < c->context ? t : c->context;
#define PLACE(p, n) do { (p) = block == NULL ? NULL : block + at; at += ((size_t)(n) + 15) / 16 * 16; } while (0)
    for (size_t i = 0; i < c->layers; i++) {
        struct layer_acts *l = &a->layer[i];
        PLACE(l->x, t * d); PLACE(l->n1, t * d); PLACE(l->inv1, t); PLACE(l->q, t * d); PLACE(l->k, t * kv); PLACE(l->v, t * kv);
        PLACE(l->att, t * d); PLACE(l->mid, t * d); PLACE(l->n2, t * d); PLACE(l->inv2, t);
        PLACE(l->gate, t * h); PLACE(l->up, t * h); PLACE(l->act, t * h);
    }
    PLACE(a->last, t * d); PLACE(a->normed, t * d); PLACE(a->inv, t); PLACE(a->picked, m->rows_max * d);
    PLACE(a->dx, t * d); PLACE(a->dn, t * d); PLACE(a->dq, t * d); PLACE(a->dk, t * kv); PLACE(a->dv, t * kv);
    PLACE(a->datt, t * d); PLACE(a->dgate, t * h); PLACE(a->dup, t * h); PLACE(a->dact, t * h);
    PLACE(a->dpicked, m->rows_max * d); PLACE(a->dnormed, t * d);
    PLACE(a->prob, c->heads * seq * seq); PLACE(a->dprob, c->heads * seq * seq);
    PLACE(m->logits, m->rows_max * c->vocab); PLACE(m->dlogits, m->rows_max * c->vocab);
#undef PLACE
    return at;
}

static int acts_new(struct model *m, struct err *err)
{
    struct model_acts *a = m->acts = calloc(1, sizeof *a);
    if (a == NULL || (a->layer = calloc(m->config.layers, sizeof *a->layer)) == NULL)
        return err_set(err, ERR_LIMIT, "model: out of memory");
    size_t n = acts_place(m, NULL);
    a->block = backend_alloc(n * sizeof(real));
    a->ids = backend_alloc(m->tokens_max * sizeof(uint32_t));
    a->pos = backend_alloc(m->tokens_max * sizeof(uint32_t));
    a->rows = backend_alloc(m->rows_max * sizeof(uint32_t));
    a->pos_host = calloc(m->tokens_max, sizeof(uint32_t));
    if (a->block == NULL || a->ids == NULL || a->pos == NULL || a->rows == NULL || a->pos_host == NULL)
        return err_set(err, ERR_LIMIT, "model: no memory for the activations of %zu tokens (%zu MiB)", m->tokens_max,
                       n * sizeof(real) >> 20);
    acts_place(m, a->block);
    return 0;
}

static void model_done(struct model **m) { model_free(*m); }

int model_new(struct model **out, const struct model_config *c, size_t tokens_max, size_t rows_max, struct err *err)
{
    int rc = model_config_check(c, err);
    if (rc < 0)
        return rc;
    __attribute__((cleanup(model_done))) struct model *m = calloc(1, sizeof *m);
    if (m == NULL)
        return err_set(err, ERR_LIMIT, "model: out of memory");
    m->config = *c;
    m->tokens_max = tokens_max;
    m->rows_max = rows_max;
    m->n_params = model_param_count(c);
    m->weights = backend_alloc(m->n_params * sizeof(real));
    if (tokens_max > 0)
        m->grads = backend_alloc(m->n_params * sizeof(real));
    if (m->weights == NULL || (tokens_max > 0 && m->grads == NULL))
        return err_set(err, ERR_LIMIT, "model: no memory for %zu weights", m->n_params);
    if (tokens_max > 0 && (rc = acts_new(m, err)) < 0)
        return rc;
    *out = give_ptr(&m);
    return 0;
}

int model_init_weights(struct model *m, uint64_t seed, struct err *err)
{
    const struct model_config *c = &m->config;
    own_mem real *w = malloc(m->n_params * sizeof *w);
    if (w == NULL)
        return err_set(err, ERR_LIMIT, "model: out of memory");
    for (size_t i = 0; i < model_tensor_count(c); i++) {
        struct model_tensor t = model_tensor_at(c, i);
        struct rng r = rng_of(seed, 0x77, i, 0);
        double std = 1 / sqrt((double)t.cols);
        if (i == 0)
            std = c->tied ? 0.02 : 1;                   /* the first norm takes the scale out */
        else if (strstr(t.name, "o_proj") != NULL || strstr(t.name, "down_proj") != NULL)
            std /= sqrt(2.0 * c->layers);
        else if (strcmp(t.name, "lm_head.weight") == 0)
            std *= 0.1;
        for (size_t j = 0; j < t.rows * t.cols; j++)
            w[t.offset + j] = t.is_vector ? 1 : (real)(std * rng_normal(&r));
    }
    backend_upload(m->weights, w, m->n_params * sizeof *w);
    return 0;
}

/* --- the way there and back --- */

/* out[rows, n_out] = in[rows, n_in] W^T (+ out) */
static void linear(real *out, const real *in, const real *w, size_t rows, size_t n_out, size_t n_in, bool add)
{
    backend_gemm(&(struct backend_gemm){ .tb = true, .m = rows, .n = n_out, .k = n_in, .alpha = 1, .beta = add, .a = in,
                 .lda = n_in, .b = w, .ldb = n_in, .c = out, .ldc = n_out, .batch = 1 });
}

/* din = dout W (+ din when add), dw += dout^T in */
static void linear_back(real *din, bool add, real *dw, const real *dout, const real *in, const real *w, size_t rows, size_t n_out,
                        size_t n_in)
{
    backend_gemm(&(struct backend_gemm){ .m = rows, .n = n_in, .k = n_out, .alpha = 1, .beta = add, .a = dout, .lda = n_out,
                 .b = w, .ldb = n_in, .c = din, .ldc = n_in, .batch = 1 });
    backend_gemm(&(struct backend_gemm){ .ta = true, .m = n_out, .n = n_in, .k = rows, .alpha = 1, .beta = 1, .a = dout,
                 .lda = n_out, .b = in, .ldb = n_in, .c = dw, .ldc = n_in, .batch = 1 });
}

static int check_input(const struct model *m, const struct model_input *in, struct err *err)
{
    if (in->n_tokens > m->tokens_max || in->n_rows > m->rows_max)
        return err_set(err, ERR_LIMIT, "model: a batch of %zu tokens and %zu rows, memory was made for %zu and %zu", in->n_tokens,
                       in->n_rows, m->tokens_max, m->rows_max);
    for (size_t s = 0; s < in->n_seqs; s++) {
        if (in->starts[s + 1] <= in->starts[s] || in->starts[s + 1] - in->starts[s] > m->config.context)
            return err_set(err, ERR_BAD_INPUT, "model: sequence %zu is empty or longer than the context of %u", s,
                m->config.context);
        for (uint32_t i = in->starts[s]; i < in->starts[s + 1]; i++)
            m->acts->pos_host[i] = i - in->starts[s];
    }
    if (in->n_seqs == 0 || in->starts[0] != 0 || in->starts[in->n_seqs] != in->n_tokens)
        return err_set(err, ERR_BAD_INPUT, "model: the sequences do not cover the tokens");
    for (size_t i = 0; i < in->n_tokens; i++)
        if (in->tokens[i] >= m->config.vocab)
            return err_set(err, ERR_BAD_INPUT, "model: token %u at %zu is outside the vocabulary of %u", in->tokens[i], i,
                m->config.vocab);
    for (size_t i = 0; i < in->n_rows; i++)
        if (in->rows[i] >= in->n_tokens)
            return err_set(err, ERR_BAD_INPUT, "model: row %u is outside the batch of %zu tokens", in->rows[i], in->n_tokens);
    return 0;
}

int model_forward(struct model *m, const struct model_input *in, struct err *err)
{
    int rc = check_input(m, in, err);
    if (rc < 0)
        return rc;
    const struct model_config *c = &m->config;
    struct model_acts *a = m->acts;
    const real *w = m->weights;
    size_t t = in->n_tokens, d = c->dim, kv = kv_dim(c), h = c->hidden;
    const struct attention att = { c->heads, c->kv_heads, d / c->heads, a->prob, a->dprob };

    backend_upload(a->ids, in->tokens, t * sizeof(uint32_t));
    backend_upload(a->pos, a->pos_host, t * sizeof(uint32_t));
    backend_upload(a->rows, in->rows, in->n_rows * sizeof(uint32_t));
    backend_gather(c->layers > 0 ? a->layer[0].x : a->last, w, a->ids, t, d);
    for (size_t i = 0; i < c->layers; i++) {
        struct model_layer o = model_layer_at(c, i);
        struct layer_acts *l = &a->layer[i];
        real *next = i + 1 < c->layers ? a->layer[i + 1].x : a->last;
        backend_rmsnorm(l->n1, l->inv1, l->x, w + o.norm1, t, d, (real)c->eps);
        linear(l->q, l->n1, w + o.q, t, d, d, false);
        linear(l->k, l->n1, w + o.k, t, kv, d, false);
        linear(l->v, l->n1, w + o.v, t, kv, d, false);
        backend_rope(l->q, a->pos, t, c->heads, att.head_dim, (real)c->theta, false);
        backend_rope(l->k, a->pos, t, c->kv_heads, att.head_dim, (real)c->theta, false);
        for (size_t s = 0; s < in->n_seqs; s++) {
            size_t at = in->starts[s], n = in->starts[s + 1] - at;
            attention_forward(&att, l->att + at * d, l->q + at * d, l->k + at * kv, l->v + at * kv, n, n);
        }
        backend_copy(l->mid, l->x, t * d);
        linear(l->mid, l->att, w + o.o, t, d, d, true);
        backend_rmsnorm(l->n2, l->inv2, l->mid, w + o.norm2, t, d, (real)c->eps);
        linear(l->gate, l->n2, w + o.gate, t, h, d, false);
        linear(l->up, l->n2, w + o.up, t, h, d, false);
        backend_swiglu(l->act, l->gate, l->up, t * h);
        backend_copy(next, l->mid, t * d);
        linear(next, l->act, w + o.down, t, d, h, true);
    }
    backend_rmsnorm(a->normed, a->inv, a->last, w + model_final_norm(c), t, d, (real)c->eps);
    backend_gather(a->picked, a->normed, a->rows, in->n_rows, d);
    linear(m->logits, a->picked, w + model_head(c), in->n_rows, c->vocab, d, false);
    return 0;
}

void model_backward(struct model *m, const struct model_input *in)
{
    const struct model_config *c = &m->config;
    struct model_acts *a = m->acts;
    const real *w = m->weights;
    real *g = m->grads;
    size_t t = in->n_tokens, d = c->dim, kv = kv_dim(c), h = c->hidden;
    const struct attention att = { c->heads, c->kv_heads, d / c->heads, a->prob, a->dprob };

    linear_back(a->dpicked, false, g + model_head(c), m->dlogits, a->picked, w + model_head(c), in->n_rows, c->vocab, d);
    backend_zero(a->dnormed, t * d * sizeof(real));
    backend_gather_back(a->dnormed, a->dpicked, a->rows, in->n_rows, d);
    backend_zero(a->dx, t * d * sizeof(real));
    backend_rmsnorm_back(a->dx, g + model_final_norm(c), a->dnormed, a->last, w + model_final_norm(c), a->inv, t, d);
    for (size_t i = c->layers; i-- > 0; ) {
        struct model_layer o = model_layer_at(c, i);
        struct layer_acts *l = &a->layer[i];
        /* dx flows past the MLP unchanged and gains what comes through it; then the same for attention. */
        linear_back(a->dact, false, g + o.down, a->dx, l->act, w + o.down, t, d, h);
        backend_swiglu_back(a->dgate, a->dup, a->dact, l->gate, l->up, t * h);
        linear_back(a->dn, false, g + o.gate, a->dgate, l->n2, w + o.gate, t, h, d);
        linear_back(a->dn, true, g + o.up, a->dup, l->n2, w + o.up, t, h, d);
        backend_rmsnorm_back(a->dx, g + o.norm2, a->dn, l->mid, w + o.norm2, l->inv2, t, d);

        linear_back(a->datt, false, g + o.o, a->dx, l->att, w + o.o, t, d, d);
        for (size_t s = 0; s < in->n_seqs; s++) {
            size_t at = in->starts[s], n = in->starts[s + 1] - at;
            attention_backward(&att, a->dq + at * d, a->dk + at * kv, a->dv + at * kv, a->datt + at * d, l->q + at * d,
                               l->k + at * kv, l->v + at * kv, n);
        }
        backend_rope(a->dq, a->pos, t, c->heads, att.head_dim, (real)c->theta, true);
        backend_rope(a->dk, a->pos, t, c->kv_heads, att.head_dim, (real)c->theta, true);
        linear_back(a->dn, false, g + o.q, a->dq, l->n1, w + o.q, t, d, d);
        linear_back(a->dn, true, g + o.k, a->dk, l->n1, w + o.k, t, kv, d);
        linear_back(a->dn, true, g + o.v, a->dv, l->n1, w + o.v, t, kv, d);
        backend_rmsnorm_back(a->dx, g + o.norm1, a->dn, l->x, w + o.norm1, l->inv1, t, d);
    }
    backend_gather_back(g, a->dx, a->ids, t, d);
}
