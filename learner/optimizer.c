/* optimizer.c - see optimizer.h. */
#include "learner/optimizer.h"
#include "learner/backend.h"
#include <math.h>

int optimizer_init(struct optimizer *o, const struct optimizer_config *c, size_t n, struct err *err)
{
    *o = (struct optimizer){ .config = *c, .n = n };
    o->m = backend_alloc(n * sizeof(real));
    o->v = backend_alloc(n * sizeof(real));
    if (o->m == NULL || o->v == NULL) {
        optimizer_done(o);
        return err_set(err, ERR_LIMIT, "optimizer: no memory for the moments of %zu weights", n);
    }
    return 0;
}

void optimizer_done(struct optimizer *o)
{
    backend_free(o->m);
    backend_free(o->v);
    o->m = o->v = NULL;
}

int optimizer_step(struct optimizer *o, real *weights, const real *grads, double *out_norm, struct err *err)
{
    const struct optimizer_config *c = &o->config;
    double norm = sqrt(backend_sumsq(grads, o->n));
    *out_norm = norm;
    if (!isfinite(norm))
        return err_set(err, ERR_BAD_INPUT, "optimizer: step %llu: the gradient is not finite; the weights were left alone",
                       (unsigned long long)o->step + 1);
    double t = (double)++o->step;
    double warm = c->warmup > 0 && t < c->warmup ? t / c->warmup : 1;
    backend_adamw(weights, grads, o->m, o->v, o->n, &(struct backend_adamw){
        .lr = (real)(c->lr * warm), .beta1 = (real)c->beta1, .beta2 = (real)c->beta2, .eps = (real)c->eps,
        .decay = (real)c->decay, .fix1 = (real)(1 - pow(c->beta1, t)), .fix2 = (real)(1 - pow(c->beta2, t)),
        .scale = (real)(c->clip_norm > 0 && norm > c->clip_norm ? c->clip_norm / norm : 1) });
    return backend_sync(err);
}
