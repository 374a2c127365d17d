/*
 * backend_cuda.cu - the arithmetic on one NVIDIA GPU: cuBLAS for matrices, own kernels for the rest.
 *
 * Everything is queued on the default stream, so operations keep their order and host copies wait for
 * what came before. Sums have a fixed order: a row's sum is a tree within its block, a column's sum one
 * thread's loop; there are no float atomics. Errors stick to the context and come out of backend_sync().
 */
extern "C" {
#include "base/err.h"
}
#include "learner/backend.h"
#include <cublas_v2.h>
#include <cuda_runtime.h>

#define BLOCK 256
#define SUM_BLOCKS 256

static cublasHandle_t blas;
static double *partial;                 /* [SUM_BLOCKS], of backend_sumsq */
static cudaError_t first_fault;
static cublasStatus_t first_blas_fault;

static void note(cudaError_t e)
{
    if (e != cudaSuccess && first_fault == cudaSuccess)
        first_fault = e;
}

static unsigned blocks_for(size_t n) { return (unsigned)((n + BLOCK - 1) / BLOCK); }

extern "C" int backend_device_count(void)
{
    int n = 0;
    return cudaGetDeviceCount(&n) == cudaSuccess && n > 0 ? n : 1;
}

extern "C" int backend_open(int device, int threads, struct err *err)
{
    (void)threads;
    cudaError_t e = cudaSetDevice(device);
    if (e == cudaSuccess)
        e = cudaMalloc((void **)&partial, SUM_BLOCKS * sizeof *partial);
    if (e != cudaSuccess)
        return err_set(err, ERR_UNAVAILABLE, "CUDA device %d: %s", device, cudaGetErrorString(e));
    cublasStatus_t b = cublasCreate(&blas);
    if (b != CUBLAS_STATUS_SUCCESS)
        return err_set(err, ERR_UNAVAILABLE, "CUDA device %d: cuBLAS: %s", device, cublasGetStatusString(b));
    return 0;
}

extern "C" void backend_close(void)
{
    if (blas != NULL)
        cublasDestroy(blas);
    cudaFree(partial);
    blas = NULL;
    partial = NULL;
}

extern "C" const char *backend_name(void) { return "cuda"; }
extern "C" bool backend_is_host(void) { return false; }

extern "C" int backend_sync(struct err *err)
{
    note(cudaGetLastError());
    note(cudaDeviceSynchronize());
    if (first_fault != cudaSuccess)
        return err_set(err, ERR_INTERNAL, "CUDA: %s", cudaGetErrorString(first_fault));
    if (first_blas_fault != CUBLAS_STATUS_SUCCESS)
        return err_set(err, ERR_INTERNAL, "cuBLAS: %s", cublasGetStatusString(first_blas_fault));
    return 0;
}

extern "C" void *backend_alloc(size_t bytes)
{
    void *p = NULL;
    if (cudaMalloc(&p, bytes + 64) != cudaSuccess) {
        (void)cudaGetLastError();       /* reported by the NULL; must not stick */
        return NULL;
    }
    note(cudaMemset(p, 0, bytes + 64));
    return p;
}

extern "C" void backend_free(void *p) { note(cudaFree(p)); }
extern "C" void backend_upload(void *to, const void *host, size_t bytes)
{
    note(cudaMemcpy(to, host, bytes, cudaMemcpyHostToDevice));
}
extern "C" void backend_download(void *host, const void *from, size_t bytes)
{
    note(cudaMemcpy(host, from, bytes, cudaMemcpyDeviceToHost));
}
extern "C" void backend_zero(void *p, size_t bytes) { note(cudaMemsetAsync(p, 0, bytes)); }
extern "C" void backend_copy(real *to, const real *from, size_t n)
{
    note(cudaMemcpyAsync(to, from, n * sizeof *to, cudaMemcpyDeviceToDevice));
}

/* Row-major C = A B is column-major C^T = B^T A^T: the operands change places, no copy is made. */
extern "C" void backend_gemm(const struct backend_gemm *g)
{
    if (g->m == 0 || g->n == 0)
        return;
    cublasStatus_t s = cublasSgemmStridedBatched(blas, g->tb ? CUBLAS_OP_T : CUBLAS_OP_N, g->ta ? CUBLAS_OP_T : CUBLAS_OP_N,
        (int)g->n, (int)g->m, (int)g->k, &g->alpha, g->b, (int)g->ldb, (long long)g->stride_b, g->a, (int)g->lda,
        (long long)g->stride_a, &g->beta, g->c, (int)g->ldc, (long long)g->stride_c, (int)g->batch);
    if (s != CUBLAS_STATUS_SUCCESS && first_blas_fault == CUBLAS_STATUS_SUCCESS)
        first_blas_fault = s;
}

/* --- reductions within a block of BLOCK threads; the result is given to every thread --- */

__device__ static float block_sum(float v)
{
    __shared__ float s[BLOCK];
    s[threadIdx.x] = v;
    __syncthreads();
    for (unsigned half = BLOCK / 2; half > 0; half /= 2) {
        if (threadIdx.x < half)
            s[threadIdx.x] += s[threadIdx.x + half];
        __syncthreads();
    }
    float out = s[0];
    __syncthreads();                    /* the next sum uses the same memory */
    return out;
}

__device__ static float block_max(float v)
{
    __shared__ float s[BLOCK];
    s[threadIdx.x] = v;
    __syncthreads();
    for (unsigned half = BLOCK / 2; half > 0; half /= 2) {
        if (threadIdx.x < half)
            s[threadIdx.x] = fmaxf(s[threadIdx.x], s[threadIdx.x + half]);
        __syncthreads();
    }
    float out = s[0];
    __syncthreads();
    return out;
}

/* --- rows --- */

__global__ static void gather(float *out, const float *table, const uint32_t *ids, size_t dim)
{
    size_t r = blockIdx.x;
    for (size_t d = threadIdx.x; d < dim; d += BLOCK)
        out[r * dim + d] = table[ids[r] * dim + d];
}

extern "C" void backend_gather(real *out, const real *table, const uint32_t *ids, size_t n, size_t dim)
{
    if (n > 0)
        gather<<<(unsigned)n, BLOCK>>>(out, table, ids, dim);
}

/* One thread owns a column and takes the rows in order: repeated ids add up in a fixed order. */
__global__ static void gather_back(float *dtable, const float *dout, const uint32_t *ids, size_t n, size_t dim)
{
    size_t d = blockIdx.x * (size_t)BLOCK + threadIdx.x;
    for (size_t i = 0; d < dim && i < n; i++)
        dtable[ids[i] * dim + d] += dout[i * dim + d];
}

extern "C" void backend_gather_back(real *dtable, const real *dout, const uint32_t *ids, size_t n, size_t dim)
{
    if (n > 0)
        gather_back<<<blocks_for(dim), BLOCK>>>(dtable, dout, ids, n, dim);
}

__global__ static void rmsnorm(float *out, float *inv, const float *x, const float *w, size_t dim, float eps)
{
    const float *row = x + blockIdx.x * dim;
    float sum = 0;
    for (size_t d = threadIdx.x; d < dim; d += BLOCK)
        sum += row[d] * row[d];
    float s = 1 / sqrtf(block_sum(sum) / (float)dim + eps);
    for (size_t d = threadIdx.x; d < dim; d += BLOCK)
        out[blockIdx.x * dim + d] = row[d] * s * w[d];
    if (threadIdx.x == 0)
        inv[blockIdx.x] = s;
}

extern "C" void backend_rmsnorm(real *out, real *inv, const real *x, const real *w, size_t rows, size_t dim, real eps)
{
    if (rows > 0)
        rmsnorm<<<(unsigned)rows, BLOCK>>>(out, inv, x, w, dim, eps);
}

__global__ static void rmsnorm_back_x(float *dx, const float *dout, const float *x, const float *w, const float *inv, size_t dim)
{
    size_t at = blockIdx.x * dim;
    float dot = 0, s = inv[blockIdx.x];
    for (size_t d = threadIdx.x; d < dim; d += BLOCK)
        dot += dout[at + d] * w[d] * x[at + d];
    float c = block_sum(dot) * s * s * s / (float)dim;
    for (size_t d = threadIdx.x; d < dim; d += BLOCK)
        dx[at + d] += dout[at + d] * w[d] * s - c * x[at + d];
}

__global__ static void rmsnorm_back_w(float *dw, const float *dout, const float *x, const float *inv, size_t rows, size_t dim)
{
    size_t d = blockIdx.x * (size_t)BLOCK + threadIdx.x;
    float sum = 0;
    if (d >= dim)
        return;
    for (size_t r = 0; r < rows; r++)
        sum += dout[r * dim + d] * x[r * dim + d] * inv[r];
    dw[d] += sum;
}

extern "C" void backend_rmsnorm_back(real *dx, real *dw, const real *dout, const real *x, const real *w, const real *inv,
    size_t rows, size_t dim)
{
    if (rows == 0)
        return;
    rmsnorm_back_w<<<blocks_for(dim), BLOCK>>>(dw, dout, x, inv, rows, dim);
    rmsnorm_back_x<<<(unsigned)rows, BLOCK>>>(dx, dout, x, w, inv, dim);
}

__global__ static void rope(float *x, const uint32_t *pos, size_t rows, size_t heads, size_t head_dim, float theta, float sign)
{
    size_t half = head_dim / 2, t = blockIdx.x * (size_t)BLOCK + threadIdx.x;
    if (t >= rows * heads * half)
        return;
    size_t i = t % half, r = t / half / heads;
    double angle = (double)pos[r] * pow((double)theta, -2.0 * (double)i / (double)head_dim);
    float c = (float)cos(angle), s = sign * (float)sin(angle);
    float *p = x + t / half * head_dim + i, a = p[0], b = p[half];
    p[0] = a * c - b * s;
    p[half] = a * s + b * c;
}

extern "C" void backend_rope(real *x, const uint32_t *pos, size_t rows, size_t heads, size_t head_dim, real theta, bool back)
{
    if (rows > 0)
        rope<<<blocks_for(rows * heads * (head_dim / 2)), BLOCK>>>(x, pos, rows, heads, head_dim, theta, back ? -1.0f : 1.0f);
}

/* --- elements --- */

__global__ static void swiglu(float *out, const float *gate, const float *up, size_t n)
{
    size_t i = blockIdx.x * (size_t)BLOCK + threadIdx.x;
    if (i < n)
        out[i] = gate[i] / (1 + expf(-gate[i])) * up[i];
}

extern "C" void backend_swiglu(real *out, const real *gate, const real *up, size_t n)
{
    if (n > 0)
        swiglu<<<blocks_for(n), BLOCK>>>(out, gate, up, n);
}

__global__ static void swiglu_back(float *dgate, float *dup, const float *dout, const float *gate, const float *up, size_t n)
{
    size_t i = blockIdx.x * (size_t)BLOCK + threadIdx.x;
    if (i >= n)
        return;
    float sig = 1 / (1 + expf(-gate[i])), silu = gate[i] * sig;
    dgate[i] = dout[i] * up[i] * (sig + silu * (1 - sig));
    dup[i] = dout[i] * silu;
}

extern "C" void backend_swiglu_back(real *dgate, real *dup, const real *dout, const real *gate, const real *up, size_t n)
{
    if (n > 0)
        swiglu_back<<<blocks_for(n), BLOCK>>>(dgate, dup, dout, gate, up, n);
}

__global__ static void add(float *x, const float *y, size_t n)
{
    size_t i = blockIdx.x * (size_t)BLOCK + threadIdx.x;
    if (i < n)
        x[i] += y[i];
}

extern "C" void backend_add(real *x, const real *y, size_t n)
{
    if (n > 0)
        add<<<blocks_for(n), BLOCK>>>(x, y, n);
}

/* --- softmax of attention: one block a row --- */

__global__ static void softmax(float *s, size_t nq, size_t nk, float scale)
{
    float *row = s + blockIdx.x * nk, max = -INFINITY, sum = 0;
    size_t seen = blockIdx.x % nq + nk - nq + 1;
    for (size_t j = threadIdx.x; j < seen; j += BLOCK)
        max = fmaxf(max, row[j]);
    max = block_max(max);
    for (size_t j = threadIdx.x; j < seen; j += BLOCK)
        sum += row[j] = expf(scale * (row[j] - max));
    sum = block_sum(sum);
    for (size_t j = threadIdx.x; j < nk; j += BLOCK)
        row[j] = j < seen ? row[j] / sum : 0;
}

extern "C" void backend_softmax(real *s, size_t batch, size_t nq, size_t nk, real scale)
{
    if (batch * nq > 0)
        softmax<<<(unsigned)(batch * nq), BLOCK>>>(s, nq, nk, scale);
}

__global__ static void softmax_back(float *dp, const float *p, size_t nq, size_t nk, float scale)
{
    size_t at = blockIdx.x * nk, seen = blockIdx.x % nq + nk - nq + 1;
    float dot = 0;
    for (size_t j = threadIdx.x; j < seen; j += BLOCK)
        dot += p[at + j] * dp[at + j];
    dot = block_sum(dot);
    for (size_t j = threadIdx.x; j < nk; j += BLOCK)
        dp[at + j] = j < seen ? scale * p[at + j] * (dp[at + j] - dot) : 0;
}

extern "C" void backend_softmax_back(real *dp, const real *p, size_t batch, size_t nq, size_t nk, real scale)
{
    if (batch * nq > 0)
        softmax_back<<<(unsigned)(batch * nq), BLOCK>>>(dp, p, nq, nk, scale);
}

/* --- log-probabilities: one block a row --- */

__device__ static float log_sum(const float *z, size_t n, float inv_temp)
{
    float max = -INFINITY, sum = 0;
    for (size_t j = threadIdx.x; j < n; j += BLOCK)
        max = fmaxf(max, z[j]);
    max = block_max(max);
    for (size_t j = threadIdx.x; j < n; j += BLOCK)
        sum += expf((z[j] - max) * inv_temp);
    return max * inv_temp + logf(block_sum(sum));
}

__device__ static float row_entropy(const float *z, size_t n, float inv_temp, float ls)
{
    float h = 0;
    for (size_t j = threadIdx.x; j < n; j += BLOCK) {
        float l = z[j] * inv_temp - ls;
        h -= expf(l) * l;
    }
    return block_sum(h);
}

__global__ static void logprob(float *lp, float *entropy, const float *logits, const struct backend_pick *picks, size_t vocab,
    float inv_temp)
{
    struct backend_pick k = picks[blockIdx.x];
    const float *z = logits + blockIdx.x * vocab + k.first;
    float ls = log_sum(z, k.count, inv_temp), h = row_entropy(z, k.count, inv_temp, ls);
    if (threadIdx.x == 0) {
        lp[blockIdx.x] = fminf(z[k.target - k.first] * inv_temp - ls, 0);
        entropy[blockIdx.x] = h;
    }
}

extern "C" void backend_logprob(real *lp, real *entropy, const real *logits, const struct backend_pick *picks, size_t rows,
    size_t vocab, real inv_temp)
{
    if (rows > 0)
        logprob<<<(unsigned)rows, BLOCK>>>(lp, entropy, logits, picks, vocab, inv_temp);
}

__global__ static void logprob_back(float *dlogits, const float *dlp, const float *dentropy, const float *logits,
                                    const struct backend_pick *picks, size_t vocab, float inv_temp)
{
    struct backend_pick k = picks[blockIdx.x];
    const float *z = logits + blockIdx.x * vocab + k.first;
    float *d = dlogits + blockIdx.x * vocab, a = dlp[blockIdx.x], b = dentropy[blockIdx.x];
    float ls = log_sum(z, k.count, inv_temp), h = row_entropy(z, k.count, inv_temp, ls);
    for (size_t j = threadIdx.x; j < vocab; j += BLOCK) {
        bool inside = j >= k.first && j - k.first < k.count;
        float l = inside ? z[j - k.first] * inv_temp - ls : 0, p = expf(l);
        d[j] = inside ? inv_temp * ((j == k.target ? a : 0) - a * p - b * p * (l + h)) : 0;
    }
}

extern "C" void backend_logprob_back(real *dlogits, const real *dlp, const real *dentropy, const real *logits,
                                     const struct backend_pick *picks, size_t rows, size_t vocab, real inv_temp)
{
    if (rows > 0)
        logprob_back<<<(unsigned)rows, BLOCK>>>(dlogits, dlp, dentropy, logits, picks, vocab, inv_temp);
}

/* --- optimizer --- */

__global__ static void adamw(float *w, const float *g, float *m, float *v, size_t n, struct backend_adamw h)
{
    size_t i = blockIdx.x * (size_t)BLOCK + threadIdx.x;
    if (i >= n)
        return;
    float x = g[i] * h.scale;
    m[i] = h.beta1 * m[i] + (1 - h.beta1) * x;
    v[i] = h.beta2 * v[i] + (1 - h.beta2) * x * x;
    w[i] -= h.lr * (m[i] / h.fix1 / (sqrtf(v[i] / h.fix2) + h.eps) + h.decay * w[i]);
}

extern "C" void backend_adamw(real *w, const real *g, real *m, real *v, size_t n, const struct backend_adamw *h)
{
    if (n > 0)
        adamw<<<blocks_for(n), BLOCK>>>(w, g, m, v, n, *h);
}

__global__ static void sumsq(double *out, const float *x, size_t n)
{
    __shared__ double s[BLOCK];
    double sum = 0;
    for (size_t i = blockIdx.x * (size_t)BLOCK + threadIdx.x; i < n; i += (size_t)SUM_BLOCKS * BLOCK)
        sum += (double)x[i] * (double)x[i];
    s[threadIdx.x] = sum;
    __syncthreads();
    for (unsigned half = BLOCK / 2; half > 0; half /= 2) {
        if (threadIdx.x < half)
            s[threadIdx.x] += s[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        out[blockIdx.x] = s[0];
}

extern "C" double backend_sumsq(const real *x, size_t n)
{
    double host[SUM_BLOCKS], sum = 0;
    sumsq<<<SUM_BLOCKS, BLOCK>>>(partial, x, n);
    backend_download(host, partial, sizeof host);
    for (int i = 0; i < SUM_BLOCKS; i++)
        sum += host[i];
    return sum;
}
