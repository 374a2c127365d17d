/*
 * bench_warm.c - what a warm start saves. figures: warm warm-pytest-vs-cold
 *
 *   warm-pytest-vs-cold   one trivial test under `python3 -m pytest`, in sandboxes that differ in nothing else: acquire + run +
 *                         close, median of the warm ones / median of the cold ones, taking turns
 */
#include "tests/sandbox/box.h"
#include "base/own.h"
#include <sys/stat.h>

enum { ROUNDS = 5, RUNS = 15 };

static const struct sandbox_limits limits = { .wall_ns = 60 * NS_PER_S, .memory_bytes = (uint64_t)512 << 20, .pids = 64 };
static const char *const begins[] = { "python3", "-m", "pytest", NULL };
static const char *const one[] = { "python3", "-m", "pytest", "-q", "test_one.py", NULL };
static const struct sandbox_command warm = { .argv = begins }, command = { .argv = one };

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(double *v, int n)
{
    qsort(v, (size_t)n, sizeof *v, by_size);
    return v[n / 2];
}

static double ms_of(struct sandbox_client *c, int tree, bool declared)
{
    uint64_t began = clock_mono_ns();
    struct sandbox *s = box_acquire(c, (struct sandbox_spec){ tree, -1, -1, declared ? &warm : NULL }, limits);
    struct outcome o = box_command(c, s, command);
    sandbox_close(s);
    double ms = (double)(clock_mono_ns() - began) / 1e6;
    if (o.result.value != 0 || strstr(o.output, "1 passed") == NULL)
        fail_msg("%s: %s", o.result.start, o.output);
    if (declared && strcmp(o.result.start, "warm") != 0)
        ms = -1;
    outcome_done(&o);
    usleep(2000);
    return ms;
}

static void trivial(void **state)
{
    (void)state;
    char dir[] = "/tmp/bench-warm.XXXXXX", file[64], clean[64];
    assert_non_null(mkdtemp(dir));
    snprintf(file, sizeof file, "%s/test_one.py", dir);
    snprintf(clean, sizeof clean, "rm -r %s", dir);
    FILE *f = fopen(file, "w");
    fputs("def test_one():\n    assert 1 + 1 == 2\n", f);
    fclose(f);
    int tree = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    struct sandbox_client *c = box_start(1);
    double ratio[ROUNDS], w[RUNS], k[RUNS], ms[2][ROUNDS];
    for (int i = 0; i < 8; i++)
        ms_of(c, tree, true);
    for (int r = 0; r < ROUNDS; r++) {
        for (int i = 0; i < RUNS; i++) {
            k[i] = ms_of(c, tree, false);
            do
                w[i] = ms_of(c, tree, true);
            while (w[i] < 0);
        }
        ms[0][r] = median(w, RUNS);
        ms[1][r] = median(k, RUNS);
        ratio[r] = ms[0][r] / ms[1][r];
    }
    double m = median(ratio, ROUNDS);
    printf("warm-pytest-vs-cold %.3f ratio (%.3f … %.3f)\n", m, ratio[0], ratio[ROUNDS - 1]);
    printf("warm-pytest %.1f ms (cold %.1f)\n", median(ms[0], ROUNDS), median(ms[1], ROUNDS));
    sandbox_client_close(c);
    close(tree);
    assert_int_equal(system(clean), 0);
}

int main(void)
{
    void *none = NULL;
    trivial(&none);
    return 0;
}
