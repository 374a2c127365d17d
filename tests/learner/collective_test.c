/*
 * Ranks over shared memory: exact sums, and a rank that dies or stops ends the others in time, with
 * a message that names it, without spinning, and leaving no process behind.
 */
#include "base/clock.h"
#include "base/own.h"
#include "learner/collective.h"
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <cmocka.h>

/* Runs `fn` on every rank in a process tree of its own; returns rank 0's exit status, its words in `said`. */
static int with_ranks(int size, uint64_t limit_ns, int (*fn)(struct collective *c, struct err *err), char said[1024],
    double *cpu_s)
{
    int p[2], status;
    assert_int_equal(pipe(p), 0);
    int pid = fork();
    if (pid == 0) {
        struct collective *c;
        struct err err = { 0 }, late = { 0 };
        close(p[0]);
        if (collective_shm_spawn(&c, size, limit_ns, &err) < 0)
            _exit(1);
        int rank = c->rank, peer = collective_shm_pid(c, 1), rc = fn(c, &err);
        int end = collective_close(c, &late);
        if (rank == 0)
            dprintf(p[1], "%d %s", peer, rc < 0 ? err.msg : end < 0 ? late.msg : "fine");
        _exit(rc < 0 || end < 0 ? 70 : 0);
    }
    close(p[1]);
    size_t n = 0;
    for (ssize_t k; n < 1023 && (k = read(p[0], said + n, 1023 - n)) > 0; n += (size_t)k)
        ;
    said[n] = '\0';
    close(p[0]);
    struct rusage used;
    assert_int_equal(wait4(pid, &status, 0, &used), pid);
    if (cpu_s != NULL)
        *cpu_s = (double)used.ru_utime.tv_sec + (double)used.ru_utime.tv_usec / 1e6 + (double)used.ru_stime.tv_sec +
                 (double)used.ru_stime.tv_usec / 1e6;
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static int sum_exactly(struct collective *c, struct err *err)
{
    size_t n = 600001;                          /* three chunks, the last one ragged */
    own_mem real *x = malloc(n * sizeof *x);
    for (size_t i = 0; i < n; i++)
        x[i] = (real)((i * 7 + (size_t)c->rank * 13) % 1000);      /* small integers: their sums are exact */
    int rc = collective_all_reduce(c, x, n, err);
    for (size_t i = 0; i < n && rc == 0; i++) {
        size_t want = 0;
        for (size_t r = 0; r < (size_t)c->size; r++)
            want += (i * 7 + r * 13) % 1000;
        if (x[i] != (real)want)
            rc = err_set(err, ERR_INTERNAL, "rank %d: element %zu is %g, want %zu", c->rank, i, (double)x[i], want);
    }
    own_mem char *text = calloc(1, 3000000);
    if (rc == 0 && c->rank == 1)
        memset(text, 'x', 2999999);
    if (rc == 0 && (rc = collective_broadcast(c, text, 3000000, 1, err)) == 0 && strlen(text) != 2999999)
        rc = err_set(err, ERR_INTERNAL, "rank %d: the broadcast is not whole", c->rank);
    return rc;
}

static void collective_shm__sums_are_exact(void **state)
{
    (void)state;
    char said[1024];
    for (int size = 1; size <= 4; size++)
        if (size != 1 && with_ranks(size, 20 * NS_PER_S, sum_exactly, said, NULL) != 0)
            fail_msg("%d ranks: %s", size, said);
}

static int end_signal;

static int twenty_steps(struct collective *c, struct err *err)
{
    for (uint64_t step = 1; step <= 20; step++) {
        real x[4] = { 1, 1, 1, 1 };
        c->step = step;
        nanosleep(&(struct timespec){ .tv_nsec = 10 * (long)NS_PER_MS }, NULL);
        if (step == 5 && c->rank == 1 && end_signal != 0)
            raise(end_signal);
        int rc = collective_all_reduce(c, x, 4, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static void a_lost_rank(int signal_number, double within_s, const char *words)
{
    char said[1024];
    double cpu_s;
    end_signal = signal_number;
    uint64_t from = clock_mono_ns();
    int status = with_ranks(2, 2 * NS_PER_S, twenty_steps, said, &cpu_s);
    double took = (double)(clock_mono_ns() - from) / 1e9;
    assert_int_equal(status, 70);
    char *message;
    int peer = (int)strtol(said, &message, 10);
    if (strstr(message, "rank 0, step 5: rank 1") == NULL || strstr(message, words) == NULL)
        fail_msg("%s", said);
    assert_true(took < within_s);
    assert_true(cpu_s < 1);                     /* slept, not spun */
    assert_true(kill(peer, 0) < 0 && errno == ESRCH);       /* nothing is left, not even a stopped one */
}

static void collective_shm__a_killed_rank_is_named(void **state) { (void)state; a_lost_rank(SIGKILL, 2, "is gone"); }
static void collective_shm__a_stopped_rank_is_named(void **state) { (void)state; a_lost_rank(SIGSTOP, 7, "has not moved"); }

static void collective_shm__a_whole_run_ends_well(void **state)
{
    (void)state;
    char said[1024];
    end_signal = 0;
    assert_int_equal(with_ranks(2, 2 * NS_PER_S, twenty_steps, said, NULL), 0);
    assert_non_null(strstr(said, "fine"));
}

static int slow_leader(struct collective *c, struct err *err)
{
    real x[1] = { 1 };
    if (c->rank == 0)                           /* longer than the limit, but alive */
        for (int i = 0; i < 30; i++) {
            nanosleep(&(struct timespec){ .tv_nsec = 50 * (long)NS_PER_MS }, NULL);
            collective_beat(c);
        }
    return collective_all_reduce(c, x, 1, err);
}

static void collective_shm__a_beating_rank_is_waited_for(void **state)
{
    (void)state;
    char said[1024];
    if (with_ranks(2, NS_PER_S, slow_leader, said, NULL) != 0)
        fail_msg("%s", said);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(collective_shm__sums_are_exact), cmocka_unit_test(collective_shm__a_whole_run_ends_well),
        cmocka_unit_test(collective_shm__a_killed_rank_is_named), cmocka_unit_test(collective_shm__a_stopped_rank_is_named),
        cmocka_unit_test(collective_shm__a_beating_rank_is_waited_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
