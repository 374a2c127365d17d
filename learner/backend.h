/*
 * backend.h - the arithmetic of training, behind one set of functions.
 *
 * A program links exactly one file that defines them: backend_cpu.c (OpenBLAS) or backend_cuda.cu
 * (cuBLAS and own kernels); callers have no #ifdef. Matrices are row-major. Every pointer to real
 * or index data given to an operation lies in the backend's memory (backend_alloc), the rows of
 * struct arguments on the host. Operations are queued in order and cannot fail one by one: a
 * device fault stays until backend_sync() reports it, once a step.
 *
 * Sums run in a fixed order (no float atomics), so that the same input gives the same bits.
 * Gradients are added to (+=) where the comment says so.
 *
 * Threads: one thread of a process is the sole caller.
 */
#pragma once
#include "base/err.h"
#include "learner/real.h"
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

int backend_device_count(void);         /* >= 1; before backend_open() */
/* One process, one device. threads: CPU threads, 0 for the library's own choice. */
MUST_CHECK int backend_open(int device, int threads, struct err *err);
void backend_close(void);
const char *backend_name(void);         /* "cpu", "cuda" */
bool backend_is_host(void);             /* true: backend memory may be read by the CPU directly */
MUST_CHECK int backend_sync(struct err *err);

void *backend_alloc(size_t bytes);      /* zeroed; NULL when memory is out; backend_free() it */
void backend_free(void *p);             /* NULL is fine */
void backend_upload(void *to, const void *host, size_t bytes);
void backend_download(void *host, const void *from, size_t bytes);
void backend_zero(void *p, size_t bytes);
void backend_copy(real *to, const real *from, size_t n);

/* c = alpha * op(a) op(b) + beta * c, `batch` times at the given distances (in elements); op(a) is m x k. */
struct backend_gemm {
    bool ta, tb;
    size_t m, n, k;
    real alpha, beta;
    const real *a, *b;
    real *c;
    size_t lda, ldb, ldc;
    size_t batch;                       /* >= 1 */
    size_t stride_a, stride_b, stride_c;
};
void backend_gemm(const struct backend_gemm *g);

/* out[i] = table[ids[i]], rows of `dim`; the embedding, and the picking of rows for the head. */
void backend_gather(real *out, const real *table, const uint32_t *ids, size_t n, size_t dim);
/* dtable[ids[i]] += dout[i], i in rising order; ids may repeat. */
void backend_gather_back(real *dtable, const real *dout, const uint32_t *ids, size_t n, size_t dim);

/* out = x / sqrt(mean(x^2) + eps) * w, per row; inv[row] keeps 1 / sqrt(...) for the way back. */
void backend_rmsnorm(real *out, real *inv, const real *x, const real *w, size_t rows, size_t dim, real eps);
/* dx += , dw += */
void backend_rmsnorm_back(real *dx, real *dw, const real *dout, const real *x, const real *w, const real *inv, size_t rows,
                          size_t dim);

/* Rotate the pairs (i, i + head_dim/2) of each head by pos * theta^(-2i/head_dim); back: by the negative angle. */
void backend_rope(real *x, const uint32_t *pos, size_t rows, size_t heads, size_t head_dim, real theta, bool back);

/* out = silu(gate) * up */
void backend_swiglu(real *out, const real *gate, const real *up, size_t n);
/* dgate =, dup = */
void backend_swiglu_back(real *dgate, real *dup, const real *dout, const real *gate, const real *up, size_t n);

void backend_add(real *x, const real *y, size_t n);     /* x += y */

/* In place, `batch` matrices nq x nk: row i becomes softmax(scale * row) over columns j <= i + nk - nq, 0 beyond. */
void backend_softmax(real *s, size_t batch, size_t nq, size_t nk, real scale);
/* dp (in place) = scale * p * (dp - sum_j p dp) */
void backend_softmax_back(real *dp, const real *p, size_t batch, size_t nq, size_t nk, real scale);

/* What one row of logits is asked for; the softmax runs over [first, first + count). Kept in backend memory. */
struct backend_pick { uint32_t target, first, count; };
/* Per row: lp = log p(target), entropy = -sum p log p, with p = softmax(logits * inv_temp over the range). */
void backend_logprob(real *lp, real *entropy, const real *logits, const struct backend_pick *picks, size_t rows, size_t vocab,
                     real inv_temp);
/* dlogits = dlp * d(lp)/d(logits) + dentropy * d(entropy)/d(logits); 0 outside the range. */
void backend_logprob_back(real *dlogits, const real *dlp, const real *dentropy, const real *logits,
                          const struct backend_pick *picks, size_t rows, size_t vocab, real inv_temp);

struct backend_adamw {
    real lr, beta1, beta2, eps, decay;
    real fix1, fix2;                    /* 1 - beta^step */
    real scale;                         /* gradients are multiplied by this first: clipping */
};
void backend_adamw(real *w, const real *g, real *m, real *v, size_t n, const struct backend_adamw *h);
double backend_sumsq(const real *x, size_t n);          /* waits for the device */

#ifdef __cplusplus
}
#endif
