/*
 * bench_sandbox.c - what isolation costs, beside bubblewrap with the same isolation, in one run on one machine.
 *
 *   sandbox-overhead-vs-bwrap   (ours - bare) / (bwrap - bare), medians of one command; ours is acquire + run + close
 *   sandbox-p99-vs-bwrap-min    our 99th percentile / bubblewrap's fastest
 *   sandbox-rate-vs-bwrap       sandboxes per second, four at once, ours / bubblewrap's
 *   ...-shell-on-our-side       the same two, with /bin/true started directly in bare and bubblewrap
 *
 * The command is the same in all three: /bin/sh -c 'exec /bin/true', because a command of ours is a shell's. The start of
 * that shell costs several times what the sandbox adds; the last two figures say how it looks with it counted as ours.
 * Ours has limits, an own /etc and a writable layer over all, bubblewrap none of them. Measured in rounds, all taking
 * turns; the value is the median round, (min ... max) the rounds' spread. Work that one leaves for later (making the next
 * sandbox, unmaking a network) falls into a pause before the next measurement in the first two figures and counts in the
 * third.
 */
#include "tests/sandbox/box.h"
#include "base/own.h"
#include <spawn.h>
#include <sys/wait.h>

enum { ROUNDS = 5, RUNS = 40, WIDTH = 4, RATE_RUNS = 120, SETTLE_US = 10000 };

#define COMMAND "exec /bin/true"
#define BY_SHELL (char[]){ "/bin/sh" }, (char[]){ "-c" }, (char[]){ COMMAND }, NULL
#define DIRECT (char[]){ "/bin/true" }, NULL
#define BWRAP (char[]){ "bwrap" }, (char[]){ "--unshare-all" }, (char[]){ "--ro-bind" }, (char[]){ "/" }, (char[]){ "/" }, \
    (char[]){ "--proc" }, (char[]){ "/proc" }, (char[]){ "--dev" }, (char[]){ "/dev" }, (char[]){ "--tmpfs" }, (char[]){ "/tmp" }

static char *const bare[] = { BY_SHELL }, *const bare_direct[] = { DIRECT };
static char *const bwrap[] = { BWRAP, BY_SHELL }, *const bwrap_direct[] = { BWRAP, DIRECT };
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

/* The next sandbox being made, the last network being unmade: neither falls on who comes next. */
static void settle(void) { usleep(SETTLE_US); }

static const struct sandbox_limits limits = { .wall_ns = 30 * NS_PER_S, .memory_bytes = (uint64_t)512 << 20, .pids = 64 };

static double us_of_sandbox(struct sandbox_client *c)
{
    uint64_t began = clock_mono_ns();
    struct outcome o = box_once(c, BOX_EMPTY, limits, COMMAND);
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

static double rate_bwrap(char *const *argv)
{
    uint64_t began = clock_mono_ns();
    int started = 0, ended = 0;
    for (; started < WIDTH; started++)
        spawned(argv);
    for (; ended < RATE_RUNS; ended++) {
        wait(NULL);
        if (started < RATE_RUNS) {
            spawned(argv);
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
                if (started < RATE_RUNS && ++started &&
                    sandbox_acquire(c, &BOX_EMPTY, &limits, box_acquired, &l->acquired, &err) < 0)
                    exit(1);
            } else if (l->acquired.come) {
                l->acquired.come = false;
                if (l->acquired.rc < 0 || sandbox_run(l->acquired.sandbox, &(struct sandbox_command){ .shell = COMMAND },
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
    static double overhead[ROUNDS], p99[ROUNDS], rate[ROUNDS], overhead_direct[ROUNDS], rate_direct[ROUNDS];
    static double b[RUNS], w[RUNS], s[RUNS], bd[RUNS], wd[RUNS];
    const struct { char *const *argv; double *us; } peers[] = {
        { bare, b }, { bwrap, w }, { bare_direct, bd }, { bwrap_direct, wd },
    };
    enum { PEERS = sizeof peers / sizeof peers[0] };
    double sum_b[ROUNDS], sum_w[ROUNDS], sum_s[ROUNDS];
    for (int r = 0; r < ROUNDS; r++) {
        for (int i = 0; i < RUNS; i++) {
            for (int k = 0; k < PEERS; k++) {
                settle();
                peers[k].us[i] = us_of(peers[k].argv);
            }
            settle();
            s[i] = us_of_sandbox(c);
        }
        sum_b[r] = at(b, RUNS, 50);
        sum_w[r] = at(w, RUNS, 50);
        sum_s[r] = at(s, RUNS, 50);
        overhead[r] = (sum_s[r] - sum_b[r]) / (sum_w[r] - sum_b[r]);
        overhead_direct[r] = (sum_s[r] - at(bd, RUNS, 50)) / (at(wd, RUNS, 50) - at(bd, RUNS, 50));
        p99[r] = at(s, RUNS, 99) / w[0];
        double theirs = rate_bwrap(bwrap), ours = rate_sandbox(c);
        rate[r] = ours / theirs;
        rate_direct[r] = ours / rate_bwrap(bwrap_direct);
    }
    sandbox_client_close(c);
    show("sandbox-overhead-vs-bwrap", overhead, "ratio");
    show("sandbox-p99-vs-bwrap-min", p99, "ratio");
    show("sandbox-rate-vs-bwrap", rate, "ratio");
    show("sandbox-overhead-shell-on-our-side", overhead_direct, "ratio");
    show("sandbox-rate-shell-on-our-side", rate_direct, "ratio");
    show("sandbox-bare-true", sum_b, "us");
    show("sandbox-bwrap-true", sum_w, "us");
    show("sandbox-ours-true", sum_s, "us");
    return 0;
}
