/*
 * bench_warm.c - what a warm start saves.
 * figures: warm-pytest-vs-cold warm-suite-h11 warm-suite-parse warm-suite-boltons warm-suite-markdown warm-suite-sqlparse
 *
 *   warm-pytest-vs-cold   one trivial test under `python3 -m pytest`, in sandboxes that differ in nothing else: acquire + run +
 *                         close, median of the warm ones / median of the cold ones, taking turns; (min ... max) of the rounds
 *   warm-suite-PROJECT    tests of a real project (make upstream), after a change to one of its files: plain pytest in a
 *                         directory / acquire + edits + run + close, taking turns; their medians, (min ... max) of the pairs.
 *                         Plain pytest keeps its bytecode from run to run, a sandbox has none. Ends with an error where the two
 *                         do not print the same result for every test.
 */
#include "tests/sandbox/box.h"
#include "base/buf.h"
#include "base/frame.h"
#include "base/own.h"
#include "repos/edits.h"
#include <sys/stat.h>
#include <sys/wait.h>

enum { ROUNDS = 5, RUNS = 15, SUITE_RUNS = 15 };

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
    struct sandbox *s = box_acquire(c, (struct sandbox_spec){ tree, -1, -1, 0, declared ? &warm : NULL }, limits);
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
    fprintf(stderr, "bench_warm: warm %.1f ms, cold %.1f\n", median(ms[0], ROUNDS), median(ms[1], ROUNDS));
    sandbox_client_close(c);
    close(tree);
    assert_int_equal(system(clean), 0);
}

/* ---- real suites ---- */

struct suite { const char *name, *edited, *argv[8]; };
static const struct suite suites[] = {
    { "h11", "h11/_events.py", { "python3", "-m", "pytest", "-rA", "h11/tests/test_io.py", NULL } },
    { "parse", "parse.py", { "python3", "-m", "pytest", "-rA", "tests/test_parse.py", NULL } },
    { "boltons", "boltons/dictutils.py", { "python3", "-m", "pytest", "-rA", "tests/test_dictutils.py", NULL } },
    { "markdown", "markdown/util.py", { "python3", "-m", "pytest", "-rA", "tests/test_apis.py", NULL } },
    { "sqlparse", "sqlparse/utils.py", { "python3", "-m", "pytest", "-rA", "tests/test_format.py", NULL } },
};

static char *file_read(const char *dir, const char *name, size_t *out_len)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return box_slurp(open(path, O_RDONLY | O_CLOEXEC), out_len);
}

/* The lines by which -rA names each test and its result, as they come. */
static char *results_of(const char *output)
{
    char *lines = calloc(1, strlen(output) + 1), *at = lines;
    for (const char *l = output; *l != '\0'; l += strcspn(l, "\n"), l += *l == '\n') {
        size_t n = strcspn(l, "\n"), word = strspn(l, "ABCDEFGHIJKLMNOPQRSTUVWXYZ");
        if (word >= 5 && l[word] == ' ' && n > word) {
            memcpy(at, l, n);
            at += n;
            *at++ = '\n';
        }
    }
    return lines;
}

/* As a harness without us would: the edited file written into a directory, pytest started there. */
static double ms_plain(const char *dir, const struct suite *u, const char *text, char **out_results)
{
    char path[256];
    uint64_t began = clock_mono_ns();
    snprintf(path, sizeof path, "%s/%s", dir, u->edited);
    FILE *f = fopen(path, "w");
    fputs(text, f);
    fclose(f);
    int pipe_fds[2];
    assert_int_equal(pipe(pipe_fds), 0);
    pid_t pid = fork();
    if (pid == 0) {
        int null = open("/dev/null", O_RDONLY);
        if (chdir(dir) < 0 || dup2(null, 0) < 0 || dup2(pipe_fds[1], 1) < 0)
            _exit(1);
        close(pipe_fds[0]);
        execv("/usr/bin/python3", (char *const *)(uintptr_t)u->argv);
        _exit(127);
    }
    close(pipe_fds[1]);
    size_t len = 0, room = 1 << 20;
    char *output = calloc(1, room);
    for (ssize_t n; (n = read(pipe_fds[0], output + len, room - 1 - len)) > 0; )
        len += (size_t)n;
    close(pipe_fds[0]);
    int status;
    waitpid(pid, &status, 0);
    double ms = (double)(clock_mono_ns() - began) / 1e6;
    *out_results = results_of(output);
    free(output);
    return ms;
}

/* The same as edits in a sandbox; *out_results NULL when it was cold. */
static double ms_ours(struct sandbox_client *c, int tree, const struct suite *u, const char *text, char **out_results)
{
    struct record { uint32_t kind, mode, path_len, reserved; uint64_t size; } r = {
        EDIT_WRITE, 0644, (uint32_t)strlen(u->edited), 0, strlen(text) };
    uint64_t began = clock_mono_ns(), count = 1;
    struct buf b = { .max = (size_t)4 << 20 };
    struct err err;
    if (buf_add(&b, EDITS_MAGIC, sizeof EDITS_MAGIC - 1, &err) < 0 || buf_add(&b, &count, sizeof count, &err) < 0 ||
        buf_add(&b, &r, sizeof r, &err) < 0 || buf_add(&b, u->edited, r.path_len, &err) < 0 ||
        buf_add(&b, text, (size_t)r.size, &err) < 0)
        fail_msg("%s", err.msg);
    own_fd edits = frame_memfd("edits", b.data, b.len, &err);
    buf_done(&b);
    struct sandbox *s = box_acquire(c, (struct sandbox_spec){ tree, edits, -1, 0, &warm }, limits);
    struct outcome o = box_command(c, s, (struct sandbox_command){ .argv = u->argv });
    sandbox_close(s);
    double ms = (double)(clock_mono_ns() - began) / 1e6;
    *out_results = strcmp(o.result.start, "warm") == 0 ? results_of(o.output) : NULL;
    if (*out_results == NULL && strstr(o.result.start, "first of its kind") == NULL)
        fprintf(stderr, "bench_warm: %s: %s\n", u->name, o.result.start);
    outcome_done(&o);
    return ms;
}

static void suite_ratio(struct sandbox_client *c, const struct suite *u)
{
    char base[] = "/tmp/bench-warm.XXXXXX", line[512], plain[64], ours[64];
    assert_non_null(mkdtemp(base));
    snprintf(line, sizeof line, "for d in plain ours; do mkdir %s/$d && git -C build/upstream/repos/%s archive HEAD | "
             "tar -x -C %s/$d; done", base, u->name, base);
    assert_int_equal(system(line), 0);
    snprintf(plain, sizeof plain, "%s/plain", base);
    snprintf(ours, sizeof ours, "%s/ours", base);
    int tree = open(ours, O_PATH | O_DIRECTORY | O_CLOEXEC);
    size_t len;
    char *was = file_read(ours, u->edited, &len), *text = calloc(1, len + 64);
    double p[SUITE_RUNS], w[SUITE_RUNS], ratio[SUITE_RUNS];
    for (int i = -1; i < SUITE_RUNS; i++) {
        char *theirs, *mine;
        sprintf(text, "%s\n# change %d\n", was, i);
        double a = ms_plain(plain, u, text, &theirs), b;
        while (b = ms_ours(c, tree, u, text, &mine), mine == NULL)
            ;
        if (theirs[0] == '\0' || strcmp(theirs, mine) != 0)
            fail_msg("%s: results differ\n--- plain\n%s--- ours\n%s", u->name, theirs, mine);
        free(theirs);
        free(mine);
        if (i >= 0) {
            p[i] = a;
            w[i] = b;
            ratio[i] = a / b;
        }
    }
    free(was);
    free(text);
    close(tree);
    snprintf(line, sizeof line, "rm -r %s", base);
    assert_int_equal(system(line), 0);
    double theirs = median(p, SUITE_RUNS), mine = median(w, SUITE_RUNS);
    qsort(ratio, SUITE_RUNS, sizeof *ratio, by_size);
    printf("warm-suite-%s %.2f ratio (%.2f … %.2f)\n", u->name, theirs / mine, ratio[0], ratio[SUITE_RUNS - 1]);
    fprintf(stderr, "bench_warm: %s: plain %.0f ms, ours %.0f; fastest %.0f, %.0f\n", u->name, theirs, mine, p[0], w[0]);
    fflush(stdout);
}

int main(void)
{
    void *none = NULL;
    trivial(&none);
    if (access("build/upstream/repos", R_OK) < 0) {
        fprintf(stderr, "bench_warm: no suites (make upstream)\n");
        return 0;
    }
    struct sandbox_client *c = box_start(1);
    for (size_t i = 0; i < sizeof suites / sizeof suites[0]; i++)
        suite_ratio(c, &suites[i]);
    sandbox_client_close(c);
    return 0;
}
