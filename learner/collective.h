/*
 * collective.h - ranks that train one model: what they do together, whoever carries the bytes.
 *
 * Backends: self (one process), shm (processes of one machine), nccl (GPUs; control stays with shm).
 * Every rank calls the same operations in the same order. Sums run in rank order, so all ranks get
 * the same bits, and the same run gives the same bits again.
 *
 * A rank that dies or stops must not leave the others waiting for ever: each rank counts up its
 * `beat` while it works or waits; a peer that is gone, or whose beat stands still for the limit,
 * ends the call with ERR_LOST and a message with own rank, step and the missing rank. After an
 * error a collective can only be closed.
 */
#pragma once
#include "base/err.h"
#include "learner/real.h"
#include <stdint.h>

struct collective;
struct collective_ops {
    const char *name;
    int (*all_reduce)(struct collective *c, real *x, size_t n, struct err *err);
    int (*broadcast)(struct collective *c, void *bytes, size_t n, int root, struct err *err);
    void (*beat)(struct collective *c);
    int (*check)(struct collective *c, struct err *err);
    int (*close)(struct collective *c, struct err *err);
};

/* Backends embed this as their first member. */
struct collective {
    const struct collective_ops *ops;
    int rank, size;
    uint64_t step;                      /* the caller's, for messages */
};

/* x[i] = sum over ranks, x in backend memory. */
MUST_CHECK static inline int collective_all_reduce(struct collective *c, real *x, size_t n, struct err *err)
{
    return c->ops->all_reduce(c, x, n, err);
}
/* bytes in host memory; every rank passes the same n. */
MUST_CHECK static inline int collective_broadcast(struct collective *c, void *bytes, size_t n, int root, struct err *err)
{
    return c->ops->broadcast(c, bytes, n, root, err);
}
/* "I am alive": call it at least a few times within the limit while working outside of collectives. */
static inline void collective_beat(struct collective *c) { c->ops->beat(c); }
/* Are all peers there and moving? Does not wait. */
MUST_CHECK static inline int collective_check(struct collective *c, struct err *err) { return c->ops->check(c, err); }
/* Frees c. On rank 0 of shm: waits for the other ranks to end, ends those that do not, and fails when one failed. */
MUST_CHECK static inline int collective_close(struct collective *c, struct err *err) { return c->ops->close(c, err); }

MUST_CHECK int collective_self_open(struct collective **out, struct err *err);

/*
 * Fork size - 1 processes over shared memory made before. Returns in every one of them, each with its
 * rank. Call it with one thread and before the backend is opened. limit_ns: see above. The others die
 * with rank 0, and are killed when it closes.
 */
MUST_CHECK int collective_shm_spawn(struct collective **out, int size, uint64_t limit_ns, struct err *err);
/* Process id of a rank, for messages and tests; 0 when there is none. */
int collective_shm_pid(const struct collective *c, int rank);

/*
 * What carries the gradients of this build: the CPU build gives `control` back, the CUDA build wraps
 * it with NCCL. `control` is taken in either case; on failure it is still the caller's.
 */
MUST_CHECK int collective_device_open(struct collective **out, struct collective *control, struct err *err);
