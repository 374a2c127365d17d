/*
 * collective_nccl.c - gradients over NCCL, control over shared memory.
 *
 * NCCL's own error query may never say that a peer of the same host is gone, and its abort may hang. So
 * the communicator is non-blocking, every wait polls the stream and asks the control backend whether the
 * peers are there, and after a loss the communicator is left alone: the process ends with an error and
 * the driver takes back what it held.
 */
#include "base/clock.h"
#include "learner/backend.h"
#include "learner/collective.h"
#include <cuda_runtime.h>
#include <nccl.h>
#include <stdlib.h>
#include <time.h>

struct over_nccl {
    struct collective base;
    struct collective *control;         /* owned */
    ncclComm_t comm;
    bool broken;
};

static struct over_nccl *of(struct collective *c) { return (struct over_nccl *)(void *)c; }

static int fault(struct over_nccl *n, ncclResult_t r, const char *what, struct err *err)
{
    n->broken = true;
    return err_set(err, ERR_INTERNAL, "rank %d, step %llu: NCCL %s: %s", n->base.rank, (unsigned long long)n->base.step, what,
                   ncclGetErrorString(r));
}

/* One turn of a wait: are the others there, are we known to be here, and a short sleep. */
static int turn(struct over_nccl *n, struct err *err)
{
    n->control->step = n->base.step;
    collective_beat(n->control);
    int rc = collective_check(n->control, err);
    if (rc < 0)
        n->broken = true;
    else
        nanosleep(&(struct timespec){ .tv_nsec = 50000 }, NULL);        /* 50 us: far below a step, far above nothing */
    return rc;
}

static int settle(struct over_nccl *n, const char *what, struct err *err)
{
    for (;;) {
        ncclResult_t state = ncclSuccess, asked = ncclCommGetAsyncError(n->comm, &state);
        if (asked != ncclSuccess)
            return fault(n, asked, what, err);
        if (state == ncclSuccess)
            return 0;
        if (state != ncclInProgress)
            return fault(n, state, what, err);
        int rc = turn(n, err);
        if (rc < 0)
            return rc;
    }
}

static int nccl_all_reduce(struct collective *c, real *x, size_t count, struct err *err)
{
    struct over_nccl *n = of(c);
    ncclResult_t r = ncclAllReduce(x, x, count, ncclFloat32, ncclSum, n->comm, 0);
    if (r != ncclSuccess && r != ncclInProgress)
        return fault(n, r, "all-reduce", err);
    int rc = settle(n, "all-reduce", err);
    if (rc < 0)
        return rc;
    for (cudaError_t e; (e = cudaStreamQuery(0)) != cudaSuccess; ) {
        if (e != cudaErrorNotReady) {
            n->broken = true;
            return err_set(err, ERR_INTERNAL, "rank %d, step %llu: CUDA: %s", c->rank, (unsigned long long)c->step,
                cudaGetErrorString(e));
        }
        if ((rc = settle(n, "all-reduce", err)) < 0 || (rc = turn(n, err)) < 0)
            return rc;
    }
    return 0;
}

static int nccl_broadcast(struct collective *c, void *bytes, size_t n, int root, struct err *err)
{
    of(c)->control->step = c->step;
    return collective_broadcast(of(c)->control, bytes, n, root, err);   /* host bytes take the host's way */
}

static void nccl_beat(struct collective *c) { collective_beat(of(c)->control); }

static int nccl_check(struct collective *c, struct err *err)
{
    of(c)->control->step = c->step;
    return collective_check(of(c)->control, err);
}

static int nccl_close(struct collective *c, struct err *err)
{
    struct over_nccl *n = of(c);
    if (!n->broken && n->comm != NULL && ncclCommFinalize(n->comm) <= ncclInProgress && settle(n, "finalize", err) == 0)
        (void)ncclCommDestroy(n->comm);
    int rc = collective_close(n->control, err);
    free(n);
    return rc;
}

int collective_device_open(struct collective **out, struct collective *control, struct err *err)
{
    static const struct collective_ops ops = { "nccl", nccl_all_reduce, nccl_broadcast, nccl_beat, nccl_check, nccl_close };
    if (control->size == 1) {
        *out = control;
        return 0;
    }
    ncclUniqueId id;
    ncclResult_t r = control->rank == 0 ? ncclGetUniqueId(&id) : ncclSuccess;
    if (r != ncclSuccess)
        return err_set(err, ERR_UNAVAILABLE, "NCCL: %s", ncclGetErrorString(r));
    int rc = collective_broadcast(control, &id, sizeof id, 0, err);
    if (rc < 0)
        return rc;
    struct over_nccl *n = calloc(1, sizeof *n);
    if (n == NULL)
        return err_set(err, ERR_LIMIT, "collective: out of memory");
    *n = (struct over_nccl){ .base = { .ops = &ops, .rank = control->rank, .size = control->size }, .control = control };
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    r = ncclCommInitRankConfig(&n->comm, control->size, id, control->rank, &config);
    rc = r != ncclSuccess && r != ncclInProgress ? fault(n, r, "init", err) : settle(n, "init", err);
    if (rc < 0) {
        free(n);
        return rc;
    }
    *out = &n->base;
    return 0;
}
