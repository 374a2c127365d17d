/*
 * bench_sandbox.c - what isolation costs, beside bubblewrap with the same isolation, in one run on one machine.
 *
 *   sandbox-overhead-vs-bwrap   (ours - bare) / (bwrap - bare), medians of running /bin/true; ours is acquire + run + close
 *   sandbox-p99-vs-bwrap-min    our 99th percentile / bubblewrap's fastest
 *   sandbox-rate-vs-bwrap       sandboxes per second, four at once, ours / bubblewrap's
 *
 * Ours starts /bin/true by a shell, bare and bubblewrap directly; ours has limits, an own /etc and a writable layer over
 * all, bubblewrap none of them. Measured in rounds, the three taking turns; the value is the median round, (min ... max)
 * the rounds' spread. Work that a sandbox leaves for later (making the next one) falls between measurements in the first
 * two figures and counts in the third.
 */
#include "tests/sandbox/box.h"
#include "base/own.h"
#include <spawn.h>
#include <sys/wait.h>

enum { ROUNDS = 5, RUNS = 40, WIDTH = 4, RATE_RUNS = 120 };

static char *const bare[] = { (char[]){ "/bin/true" }, NULL };
static char *const bwrap[] = {
    (char[]){ "bwrap" }, (char[]){ "--unshare-all" }, (char[]){ "--ro-bind" }, (char[]){ "/" }, (char[]){ "/" },
    (char[]){ "--proc" }, (char[]){ "/proc" }, (char[]){ "--dev" }, (char[]){ "/dev" }, (char[]){ "--tmpfs" }, (char[]){ "/tmp" },
    (char[]){ "/bin/true" }, NULL,
};
extern char **environ;

static pid_t spawned(char *const *argv)
{
    pid_t pid;
    if (posix_spawnp(&pid, argv[0], NULL, NULL, argv, environ) != 0) {
        fprintf(stderr, "bench_sandbox: cannot start %s\n", argv[0]);
        exit(1);
    }
    return pid;
}

static double us_of(char *const *argv)
{
    uint64_t began = clock_mono_ns();
    int status;
    pid_t pid = spawned(argv);
    if (waitpid(pid, &status, 0) != pid || status != 0) {
        fprintf(stderr, "bench_sandbox: %s ended with %d\n", argv[0], status);
        exit(1);
    }
    return (double)(clock_mono_ns() - began) / 1e3;
}

static const struct sandbox_limits limits = { .wall_ns = 30 * NS_PER_S, .memory_bytes = (uint64_t)512 << 20, .pids = 64 };

static double us_of_sandbox(struct sandbox_client *c)
{
    uint64_t began = clock_mono_ns();
    struct outcome o = box_once(c, BOX_EMPTY, limits, "exec /bin/true");
    double us = (double)(clock_mono_ns() - began) / 1e3;
    if (o.result.end != SANDBOX_END_EXIT || o.result.value != 0)
        exit(1);
    outcome_done(&o);
    return us;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double at(double *v, int n, int percent)
{
    qsort(v, (size_t)n, sizeof *v, by_size);
    int i = n * percent / 100;
    return v[i < n ? i : n - 1];
}

static double rate_bwrap(void)
{
    uint64_t began = clock_mono_ns();
    int started = 0, ended = 0;
    for (; started < WIDTH; started++)
        spawned(bwrap);
    for (; ended < RATE_RUNS; ended++) {
        wait(NULL);
        if (started < RATE_RUNS) {
            spawned(bwrap);
            started++;
        }
    }
    return RATE_RUNS / ((double)(clock_mono_ns() - began) / 1e9);
}

struct lane { struct outcome acquired, done; };

static double rate_sandbox(struct sandbox_client *c)
{
    static struct lane lanes[WIDTH];
    uint64_t began = clock_mono_ns();
    int started = 0, ended = 0;
    struct err err = { 0 };
    for (; started < WIDTH; started++) {
        lanes[started] = (struct lane){ 0 };
        if (sandbox_acquire(c, &BOX_EMPTY, &limits, box_acquired, &lanes[started].acquired, &err) < 0)
            exit(1);
    }
    while (ended < RATE_RUNS) {
        struct pollfd p = { .fd = sandbox_client_fd(c), .events = POLLIN };
        poll(&p, 1, -1);
        if (sandbox_client_dispatch(c, &err) < 0)
            exit(1);
        for (int i = 0; i < WIDTH; i++) {
            struct lane *l = &lanes[i];
            if (l->done.come) {
                sandbox_close(l->acquired.sandbox);
                outcome_done(&l->done);
                *l = (struct lane){ 0 };
                ended++;
                if (started < RATE_RUNS && ++started && sandbox_acquire(c, &BOX_EMPTY, &limits, box_acquired, &l->acquired, &err) < 0)
                    exit(1);
            } else if (l->acquired.come) {
                l->acquired.come = false;
                if (l->acquired.rc < 0 || sandbox_run(l->acquired.sandbox, &(struct sandbox_command){ .shell = "exec /bin/true" },
                                                      box_done, &l->done, &err) < 0)
                    exit(1);
            }
        }
    }
    return RATE_RUNS / ((double)(clock_mono_ns() - began) / 1e9);
}

static void show(const char *name, double *v, const char *unit)
{
    double median = at(v, ROUNDS, 50);
    printf("%s %.3f %s (%.3f … %.3f)\n", name, median, unit, v[0], v[ROUNDS - 1]);
}

int main(void)
{
    struct sandbox_client *c;
    struct err err = { 0 };
    if (sandbox_client_start(&c, box_jail(), WIDTH, &err) < 0) {
        fprintf(stderr, "bench_sandbox: %s\n", err.msg);
        return 1;
    }
    static double overhead[ROUNDS], p99[ROUNDS], rate[ROUNDS], b[RUNS], w[RUNS], s[RUNS];
    double sum_b[ROUNDS], sum_w[ROUNDS], sum_s[ROUNDS];
    for (int r = 0; r < ROUNDS; r++) {
        for (int i = 0; i < RUNS; i++) {
            b[i] = us_of(bare);
            w[i] = us_of(bwrap);
            s[i] = us_of_sandbox(c);
        }
        sum_b[r] = at(b, RUNS, 50);
        sum_w[r] = at(w, RUNS, 50);
        sum_s[r] = at(s, RUNS, 50);
        overhead[r] = (sum_s[r] - sum_b[r]) / (sum_w[r] - sum_b[r]);
        p99[r] = at(s, RUNS, 99) / w[0];
        double theirs = rate_bwrap();
        rate[r] = rate_sandbox(c) / theirs;
    }
    sandbox_client_close(c);
    show("sandbox-overhead-vs-bwrap", overhead, "ratio");
    show("sandbox-p99-vs-bwrap-min", p99, "ratio");
    show("sandbox-rate-vs-bwrap", rate, "ratio");
    show("sandbox-bare-true", sum_b, "us");
    show("sandbox-bwrap-true", sum_w, "us");
    show("sandbox-ours-true", sum_s, "us");
    return 0;
}
