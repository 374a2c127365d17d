/*
 * collective_shm.c - ranks as processes of one machine over shared memory.
 *
 * One anonymous shared mapping, made before the forks: a cache line of state per rank, one staging
 * area per rank and one for the sum. All-reduce goes chunk by chunk: copy in, barrier, each rank adds
 * up its share of the chunk over all ranks in rank order, barrier, copy out, barrier.
 *
 * A barrier is one counter per rank that only its owner raises; the others sleep on it (futex). The
 * sleep is cut into slices to look at two things: the peer's pidfd (it died) and its beat (it stands
 * still). No spinning: a stopped peer costs nothing but the limit.
 */
#include "base/clock.h"
#include "base/own.h"
#include "learner/backend.h"
#include "learner/collective.h"
#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#define CHUNK ((size_t)1 << 18)         /* elements: 1 MiB of float stays in the second-level cache */
#define SLICE_NS (20 * NS_PER_MS)       /* how late a death is noticed */
#define SHM_RANKS_MAX 64

struct slot {
    _Alignas(64) _Atomic uint32_t arrived;      /* barriers this rank has reached; a futex */
    _Atomic uint32_t beat;
    _Atomic int32_t pid;
};

struct shared {
    struct slot slot[SHM_RANKS_MAX];
    _Alignas(64) real area[];           /* size staging areas of CHUNK, then the sum */
};

struct shm {
    struct collective base;
    struct shared *mem;
    size_t mem_size;
    uint64_t limit_ns;
    uint32_t barriers;
    int pidfd[SHM_RANKS_MAX];
    uint32_t seen_beat[SHM_RANKS_MAX];
    uint64_t seen_ns[SHM_RANKS_MAX];
};

static struct shm *of(struct collective *c) { return (struct shm *)(void *)c; }

static void futex(_Atomic uint32_t *word, int op, uint32_t value, const struct timespec *timeout)
{
    /* Failures are all "look again": a changed word, a signal, the timeout. */
    (void)syscall(SYS_futex, word, op, value, timeout, NULL, 0);
}

static void shm_beat(struct collective *c)
{
    atomic_fetch_add(&of(c)->mem->slot[c->rank].beat, 1);
}

static int lost(struct shm *s, int peer, const char *how, struct err *err)
{
    return err_set(err, ERR_LOST, "rank %d, step %llu: rank %d (pid %d) %s", s->base.rank, (unsigned long long)s->base.step, peer,
                   atomic_load(&s->mem->slot[peer].pid), how);
}

/* Is the peer there and moving? */
static int look_at(struct shm *s, int peer, struct err *err)
{
    struct slot *p = &s->mem->slot[peer];
    int pid = atomic_load(&p->pid);
    if (s->pidfd[peer] < 0 && pid > 0) {
        s->pidfd[peer] = (int)syscall(SYS_pidfd_open, pid, 0);
        if (s->pidfd[peer] < 0 && errno == ESRCH)
            return lost(s, peer, "is gone", err);
    }
    struct pollfd dead = { .fd = s->pidfd[peer], .events = POLLIN };
    if (s->pidfd[peer] >= 0 && poll(&dead, 1, 0) == 1)
        return lost(s, peer, "is gone", err);
    uint32_t beat = atomic_load(&p->beat);
    uint64_t now = clock_mono_ns();
    if (beat != s->seen_beat[peer] || s->seen_ns[peer] == 0) {
        s->seen_beat[peer] = beat;
        s->seen_ns[peer] = now;
    } else if (now - s->seen_ns[peer] > s->limit_ns) {
        char how[96];
        snprintf(how, sizeof how, "has not moved for %.1f s: it is stopped or stuck", (double)(now - s->seen_ns[peer]) / 1e9);
        return lost(s, peer, how, err);
    }
    return 0;
}

static int shm_check(struct collective *c, struct err *err)
{
    for (int p = 0, rc; p < c->size; p++)
        if (p != c->rank && (rc = look_at(of(c), p, err)) < 0)
            return rc;
    return 0;
}

static int barrier(struct shm *s, struct err *err)
{
    uint32_t target = ++s->barriers;
    struct slot *own = &s->mem->slot[s->base.rank];
    atomic_store(&own->arrived, target);
    futex(&own->arrived, FUTEX_WAKE, INT32_MAX, NULL);
    const struct timespec slice = { .tv_nsec = SLICE_NS };
    for (int p = 0; p < s->base.size; p++) {
        s->seen_ns[p] = 0;              /* the limit counts from when the wait for this peer began */
        for (;;) {
            uint32_t at = atomic_load(&s->mem->slot[p].arrived);
            if ((int32_t)(at - target) >= 0)
                break;
            shm_beat(&s->base);         /* waiting is being alive */
            int rc = look_at(s, p, err);
            if (rc < 0)
                return rc;
            futex(&s->mem->slot[p].arrived, FUTEX_WAIT, at, &slice);
        }
    }
    shm_beat(&s->base);
    return 0;
}

static int shm_all_reduce(struct collective *c, real *x, size_t n, struct err *err)
{
    struct shm *s = of(c);
    int rc;
    real *own = s->mem->area + (size_t)c->rank * CHUNK, *sum = s->mem->area + (size_t)c->size * CHUNK;
    for (size_t at = 0; at < n; at += CHUNK) {
        size_t m = n - at < CHUNK ? n - at : CHUNK;
        size_t from = m * (size_t)c->rank / (size_t)c->size, to = m * ((size_t)c->rank + 1) / (size_t)c->size;
        backend_download(own, x + at, m * sizeof *x);
        if ((rc = barrier(s, err)) < 0)
            return rc;
        for (size_t i = from; i < to; i++)
            sum[i] = s->mem->area[i];
        for (int p = 1; p < c->size; p++)
            for (size_t i = from; i < to; i++)
                sum[i] += s->mem->area[(size_t)p * CHUNK + i];
        if ((rc = barrier(s, err)) < 0)
            return rc;
        backend_upload(x + at, sum, m * sizeof *x);
        if ((rc = barrier(s, err)) < 0)         /* nobody overwrites what another still reads */
            return rc;
    }
    return 0;
}

static int shm_broadcast(struct collective *c, void *bytes, size_t n, int root, struct err *err)
{
    struct shm *s = of(c);
    const size_t most = CHUNK * sizeof(real);
    for (size_t at = 0; at < n; at += most) {
        size_t m = n - at < most ? n - at : most;
        int rc;
        if (c->rank == root)
            memcpy(s->mem->area, (uint8_t *)bytes + at, m);
        if ((rc = barrier(s, err)) < 0)
            return rc;
        if (c->rank != root)
            memcpy((uint8_t *)bytes + at, s->mem->area, m);
        if ((rc = barrier(s, err)) < 0)
            return rc;
    }
    return 0;
}

/* Rank 0's end of the children: a second of grace for those that are on their way out, then the axe. */
static int reap(struct shm *s, struct err *err)
{
    int rc = 0;
    uint64_t until = clock_mono_ns() + NS_PER_S;
    for (int p = 1; p < s->base.size; p++) {
        int pid = atomic_load(&s->mem->slot[p].pid), status = 0;
        if (pid <= 0)
            continue;
        while (waitpid(pid, &status, WNOHANG) == 0) {
            if (clock_mono_ns() > until) {
                kill(pid, SIGKILL);
                waitpid(pid, &status, 0);
                break;
            }
            nanosleep(&(struct timespec){ .tv_nsec = (long)NS_PER_MS }, NULL);
        }
        if (status != 0 && rc == 0)
            rc = err_set(err, ERR_LOST, "rank %d (pid %d) ended with %s %d", p, pid, WIFSIGNALED(status) ? "signal" : "status",
                         WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    }
    return rc;
}

static int shm_close(struct collective *c, struct err *err)
{
    struct shm *s = of(c);
    int rc = c->rank == 0 ? reap(s, err) : 0;
    for (int p = 0; p < c->size; p++)
        if (s->pidfd[p] >= 0)
            close(s->pidfd[p]);
    munmap(s->mem, s->mem_size);
    free(s);
    return rc;
}

static const struct collective_ops ops = { "shm", shm_all_reduce, shm_broadcast, shm_beat, shm_check, shm_close };

int collective_shm_pid(const struct collective *c, int rank)
{
    if (c->ops != &ops || rank < 0 || rank >= c->size)
        return 0;
    return atomic_load(&((const struct shm *)(const void *)c)->mem->slot[rank].pid);
}

int collective_shm_spawn(struct collective **out, int size, uint64_t limit_ns, struct err *err)
{
    if (size < 1 || size > SHM_RANKS_MAX)
        return err_set(err, ERR_USAGE, "ranks: %d, want 1 to %d", size, SHM_RANKS_MAX);
    own_mem struct shm *s = calloc(1, sizeof *s);
    if (s == NULL)
        return err_set(err, ERR_LIMIT, "collective: out of memory");
    s->mem_size = sizeof *s->mem + ((size_t)size + 1) * CHUNK * sizeof(real);
    s->mem = mmap(NULL, s->mem_size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (s->mem == MAP_FAILED)
        return err_sys(err, ERR_SYS, "collective: %zu bytes of shared memory", s->mem_size);
    s->base = (struct collective){ .ops = &ops, .size = size };
    s->limit_ns = limit_ns;
    for (int p = 0; p < SHM_RANKS_MAX; p++)
        s->pidfd[p] = -1;
    int parent = getpid();
    atomic_store(&s->mem->slot[0].pid, parent);
    for (int p = 1; p < size; p++) {
        int pid = fork();
        if (pid < 0) {
            err_sys(err, ERR_SYS, "collective: fork of rank %d", p);
            for (int q = 1; q < p; q++)
                kill(atomic_load(&s->mem->slot[q].pid), SIGKILL);
            struct err ignored;
            (void)reap(s, &ignored);
            munmap(s->mem, s->mem_size);
            return err->code;
        }
        if (pid == 0) {
            /* A rank without its rank 0 has no one to tell; also ends a stopped one. */
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (getppid() != parent)
                _exit(70);
            s->base.rank = p;
            atomic_store(&s->mem->slot[p].pid, getpid());
            break;
        }
        atomic_store(&s->mem->slot[p].pid, pid);
    }
    *out = &give_ptr(&s)->base;
    return 0;
}
