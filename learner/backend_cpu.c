/* backend_cpu.c - the arithmetic on the CPU: OpenBLAS for matrices, plain loops for the rest. */
#include "learner/backend.h"
#include <cblas.h>
#include <stdlib.h>
#include <string.h>
#include <tgmath.h>

#ifdef LEARNER_F64
#define GEMM cblas_dgemm
#else
#define GEMM cblas_sgemm
#endif

int backend_device_count(void) { return 1; }

int backend_open(int device, int threads, struct err *err)
{
    if (device != 0)
        return err_set(err, ERR_USAGE, "device %d: this build computes on the CPU, which is device 0", device);
    if (threads > 0)
        openblas_set_num_threads(threads);
    return 0;
}

void backend_close(void) {}
const char *backend_name(void) { return "cpu"; }
bool backend_is_host(void) { return true; }
int backend_sync(struct err *err) { (void)err; return 0; }

void *backend_alloc(size_t bytes)
{
    void *p = NULL;
    if (posix_memalign(&p, 64, bytes + 64) != 0)    /* 64: a cache line, and the widest vector */
        return NULL;
    memset(p, 0, bytes + 64);
    return p;
}

void backend_free(void *p) { free(p); }

/* Zero lengths may come with a NULL pointer, which memcpy and memset do not allow. */
void backend_upload(void *to, const void *host, size_t bytes)
{
    if (bytes > 0)
        memcpy(to, host, bytes);
}

void backend_download(void *host, const void *from, size_t bytes)
{
    if (bytes > 0)
        memcpy(host, from, bytes);
}

void backend_zero(void *p, size_t bytes)
{
    if (bytes > 0)
        memset(p, 0, bytes);
}

void backend_copy(real *to, const real *from, size_t n)
{
    if (n > 0)
        memcpy(to, from, n * sizeof *to);
}

void backend_gemm(const struct backend_gemm *g)
{
    if (g->m == 0 || g->n == 0)
        return;
    for (size_t i = 0; i < g->batch; i++)
        GEMM(CblasRowMajor, g->ta ? CblasTrans : CblasNoTrans, g->tb ? CblasTrans : CblasNoTrans, (blasint)g->m, (blasint)g->n,
             (blasint)g->k, g->alpha, g->a + i * g->stride_a, (blasint)g->lda, g->b + i * g->stride_b, (blasint)g->ldb, g->beta,
             g->c + i * g->stride_c, (blasint)g->ldc);
}

void backend_gather(real *out, const real *table, const uint32_t *ids, size_t n, size_t dim)
{
    for (size_t i = 0; i < n; i++)
        memcpy(out + i * dim, table + ids[i] * dim, dim * sizeof *out);
}

void backend_gather_back(real *dtable, const real *dout, const uint32_t *ids, size_t n, size_t dim)
{
    for (size_t i = 0; i < n; i++) {
        real *to = dtable + ids[i] * dim;
        for (size_t d = 0; d < dim; d++)
            to[d] += dout[i * dim + d];
    }
}

void backend_rmsnorm(real *out, real *inv, const real *x, const real *w, size_t rows, size_t dim, real eps)
{
    for (size_t r = 0; r < rows; r++, x += dim, out += dim) {
        real sum = 0;
        for (size_t d = 0; d < dim; d++)
            sum += x[d] * x[d];
        real s = 1 / sqrt(sum / (real)dim + eps);
        for (size_t d = 0; d < dim; d++)
            out[d] = x[d] * s * w[d];
        inv[r] = s;
    }
}

void backend_rmsnorm_back(real *dx, real *dw, const real *dout, const real *x, const real *w, const real *inv, size_t rows,
                          size_t dim)
{
    for (size_t r = 0; r < rows; r++, x += dim, dx += dim, dout += dim) {
        real s = inv[r], dot = 0;
        for (size_t d = 0; d < dim; d++) {
            dot += dout[d] * w[d] * x[d];
            dw[d] += dout[d] * x[d] * s;
        }
        real c = dot * s * s * s / (real)dim;       /* through the norm itself */
        for (size_t d = 0; d < dim; d++)
            dx[d] += dout[d] * w[d] * s - c * x[d];
    }
}

void backend_rope(real *x, const uint32_t *pos, size_t rows, size_t heads, size_t head_dim, real theta, bool back)
{
    size_t half = head_dim / 2;
    for (size_t i = 0; i < half; i++) {
        double freq = pow((double)theta, -2.0 * (double)i / (double)head_dim);
        for (size_t r = 0; r < rows; r++) {
            double angle = (double)pos[r] * freq;
            real c = (real)cos(angle), s = (real)(back ? -sin(angle) : sin(angle));
            for (size_t h = 0; h < heads; h++) {
                real *p = x + (r * heads + h) * head_dim + i;
                real a = p[0], b = p[half];
                p[0] = a * c - b * s;
                p[half] = a * s + b * c;
            }
        }
    }
}

void backend_swiglu(real *out, const real *gate, const real *up, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = gate[i] / (1 + exp(-gate[i])) * up[i];
}

void backend_swiglu_back(real *dgate, real *dup, const real *dout, const real *gate, const real *up, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        real sig = 1 / (1 + exp(-gate[i])), silu = gate[i] * sig;
        dgate[i] = dout[i] * up[i] * (sig + silu * (1 - sig));
        dup[i] = dout[i] * silu;
    }
}

void backend_add(real *x, const real *y, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] += y[i];
}

void backend_softmax(real *s, size_t batch, size_t nq, size_t nk, real scale)
{
    for (size_t r = 0; r < batch * nq; r++) {
        real *row = s + r * nk;
        size_t seen = r % nq + nk - nq + 1;
        real max = row[0], sum = 0;
        for (size_t j = 1; j < seen; j++)
            max = row[j] > max ? row[j] : max;
        for (size_t j = 0; j < seen; j++) {
            row[j] = exp(scale * (row[j] - max));
            sum += row[j];
        }
        for (size_t j = 0; j < seen; j++)
            row[j] /= sum;
        for (size_t j = seen; j < nk; j++)
            row[j] = 0;
    }
}

void backend_softmax_back(real *dp, const real *p, size_t batch, size_t nq, size_t nk, real scale)
{
    for (size_t r = 0; r < batch * nq; r++, dp += nk, p += nk) {
        size_t seen = r % nq + nk - nq + 1;
        real dot = 0;
        for (size_t j = 0; j < seen; j++)
            dot += p[j] * dp[j];
        for (size_t j = 0; j < nk; j++)
            dp[j] = j < seen ? scale * p[j] * (dp[j] - dot) : 0;
    }
}

/* log of the range's partition function, with the maximum taken out so that exp cannot overflow. */
static real log_sum(const real *z, size_t n, real inv_temp)
{
    real max = z[0], sum = 0;
    for (size_t j = 1; j < n; j++)
        max = z[j] > max ? z[j] : max;
    for (size_t j = 0; j < n; j++)
        sum += exp((z[j] - max) * inv_temp);
    return max * inv_temp + log(sum);
}

void backend_logprob(real *lp, real *entropy, const real *logits, const struct backend_pick *picks, size_t rows, size_t vocab,
                     real inv_temp)
{
    for (size_t r = 0; r < rows; r++) {
        const struct backend_pick *k = &picks[r];
        const real *z = logits + r * vocab + k->first;
        real ls = log_sum(z, k->count, inv_temp), h = 0;
        for (size_t j = 0; j < k->count; j++) {
            real l = z[j] * inv_temp - ls;
            h -= exp(l) * l;
        }
        real l = z[k->target - k->first] * inv_temp - ls;
        lp[r] = l < 0 ? l : 0;                      /* rounding must not make a probability above one */
        entropy[r] = h;
    }
}

void backend_logprob_back(real *dlogits, const real *dlp, const real *dentropy, const real *logits,
                          const struct backend_pick *picks, size_t rows, size_t vocab, real inv_temp)
{
    memset(dlogits, 0, rows * vocab * sizeof *dlogits);
    for (size_t r = 0; r < rows; r++) {
        const struct backend_pick *k = &picks[r];
        const real *z = logits + r * vocab + k->first;
        real *d = dlogits + r * vocab + k->first;
        real ls = log_sum(z, k->count, inv_temp), h = 0;
        for (size_t j = 0; j < k->count; j++) {
            real l = z[j] * inv_temp - ls;
            h -= exp(l) * l;
        }
        for (size_t j = 0; j < k->count; j++) {
            real l = z[j] * inv_temp - ls, p = exp(l);
            d[j] = inv_temp * (-dlp[r] * p - dentropy[r] * p * (l + h));
        }
        d[k->target - k->first] += inv_temp * dlp[r];
    }
}

void backend_adamw(real *w, const real *g, real *m, real *v, size_t n, const struct backend_adamw *h)
{
    for (size_t i = 0; i < n; i++) {
        real x = g[i] * h->scale;
        m[i] = h->beta1 * m[i] + (1 - h->beta1) * x;
        v[i] = h->beta2 * v[i] + (1 - h->beta2) * x * x;
        w[i] -= h->lr * (m[i] / h->fix1 / (sqrt(v[i] / h->fix2) + h->eps) + h->decay * w[i]);
    }
}

double backend_sumsq(const real *x, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    return sum;
}
