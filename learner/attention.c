/* attention.c - see attention.h. */
#include "learner/attention.h"
#include "learner/backend.h"
#include <tgmath.h>

static void probabilities(const struct attention *a, const real *q, const real *k, size_t nq, size_t nk)
{
    size_t share = a->heads / a->kv_heads, dim = a->head_dim;
    for (size_t r = 0; r < share; r++)          /* one batch over the key/value heads for each place in a group */
        backend_gemm(&(struct backend_gemm){ .tb = true, .m = nq, .n = nk, .k = dim, .alpha = 1, .a = q + r * dim,
            .lda = a->heads * dim, .stride_a = share * dim, .b = k, .ldb = a->kv_heads * dim, .stride_b = dim,
            .c = a->prob + r * nq * nk, .ldc = nk, .stride_c = share * nq * nk, .batch = a->kv_heads });
    backend_softmax(a->prob, a->heads, nq, nk, 1 / sqrt((real)dim));
}

void attention_forward(const struct attention *a, real *out, const real *q, const real *k, const real *v, size_t nq, size_t nk)
{
    size_t share = a->heads / a->kv_heads, dim = a->head_dim;
    probabilities(a, q, k, nq, nk);
    for (size_t r = 0; r < share; r++)
        backend_gemm(&(struct backend_gemm){ .m = nq, .n = dim, .k = nk, .alpha = 1, .a = a->prob + r * nq * nk, .lda = nk,
            .stride_a = share * nq * nk, .b = v, .ldb = a->kv_heads * dim, .stride_b = dim, .c = out + r * dim,
            .ldc = a->heads * dim, .stride_c = share * dim, .batch = a->kv_heads });
}

void attention_backward(const struct attention *a, real *dq, real *dk, real *dv, const real *dout, const real *q, const real *k,
                        const real *v, size_t n)
{
    size_t share = a->heads / a->kv_heads, dim = a->head_dim, ld = a->heads * dim, kv_ld = a->kv_heads * dim, nn = n * n;
    probabilities(a, q, k, n, n);
    for (size_t r = 0; r < share; r++) {
        backend_gemm(&(struct backend_gemm){ .tb = true, .m = n, .n = n, .k = dim, .alpha = 1, .a = dout + r * dim, .lda = ld,
            .stride_a = share * dim, .b = v, .ldb = kv_ld, .stride_b = dim, .c = a->dprob + r * nn, .ldc = n,
            .stride_c = share * nn, .batch = a->kv_heads });
        backend_gemm(&(struct backend_gemm){ .ta = true, .m = n, .n = dim, .k = n, .alpha = 1, .beta = r > 0,
            .a = a->prob + r * nn, .lda = n, .stride_a = share * nn, .b = dout + r * dim, .ldb = ld, .stride_b = share * dim,
            .c = dv, .ldc = kv_ld, .stride_c = dim, .batch = a->kv_heads });
    }
    backend_softmax_back(a->dprob, a->prob, a->heads, n, n, 1 / sqrt((real)dim));
    for (size_t r = 0; r < share; r++) {
        backend_gemm(&(struct backend_gemm){ .m = n, .n = dim, .k = n, .alpha = 1, .a = a->dprob + r * nn, .lda = n,
            .stride_a = share * nn, .b = k, .ldb = kv_ld, .stride_b = dim, .c = dq + r * dim, .ldc = ld,
            .stride_c = share * dim, .batch = a->kv_heads });
        backend_gemm(&(struct backend_gemm){ .ta = true, .m = n, .n = dim, .k = n, .alpha = 1, .beta = r > 0,
            .a = a->dprob + r * nn, .lda = n, .stride_a = share * nn, .b = q + r * dim, .ldb = ld, .stride_b = share * dim,
            .c = dk, .ldc = kv_ld, .stride_c = dim, .batch = a->kv_heads });
    }
}
