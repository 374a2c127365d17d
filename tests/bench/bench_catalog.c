/*
 * bench_catalog.c - how long a task's look-up and a snapshot's opening take. figures: catalog-lookup-p99-us snapshot-ready-ms
 *
 * ROWS synthetic tasks (200000 unless the environment says otherwise) in a catalog made for the run;
 * random ids are read with catalog_get(), every tenth as often store_tree_fd() opens a materialised tree.
 * Prints NAME VALUE UNIT (min min, median median, p99 p99).
 */
#include "base/clock.h"
#include "repos/repos.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOOKUPS 20000
#define OPENS   2000

static int fail(const struct err *err)
{
    fprintf(stderr, "bench_catalog: %s\n", err->msg);
    return 1;
}

static int by_ns(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* The p99 is the headline when `p99`, else the median. */
static void print_times(const char *name, const char *unit, double per, uint64_t *ns, size_t n, bool p99)
{
    qsort(ns, n, sizeof *ns, by_ns);
    double low = (double)ns[0] / per, mid = (double)ns[n / 2] / per, high = (double)ns[n * 99 / 100] / per;
    printf("%s %.3f %s (min %.3f, median %.3f, p99 %.3f)\n", name, p99 ? high : mid, unit, low, mid, high);
}

static int fill(struct catalog *c, uint32_t rows, struct err *err)
{
    static char statement[1500], patch[2500];
    memset(statement, 'p', sizeof statement - 1);
    memset(patch, '+', sizeof patch - 1);
    const char *ids[] = { "tests/test_one.py::test_a", "tests/test_one.py::test_b" };
    int rc = catalog_begin(c, err);
    for (uint32_t i = 0; rc == 0 && i < rows; i++) {
        char id[64], repo[32];
        snprintf(id, sizeof id, "project%u__task-%06u", i % 97, i);
        snprintf(repo, sizeof repo, "project%u", i % 97);
        struct task t = { .id = id, .repo = repo, .base_commit = "0123456789012345678901234567890123456789",
                          .problem_statement = statement,
                          .patch = patch, .test_patch = patch, .fail_to_pass = { ids, 1 }, .pass_to_pass = { ids + 1, 1 },
                          .test_cmd = "python3 -m pytest -q", .reader = "auto", .environment = "host", .profile = "strict", .split = "bench",
                              .timeout_s = 300,
                          .memory_mb = 2048, .extra_json = "{}", .base_tree = "0123456789012345678901234567890123456789" };
        digest_of(&t.definition, id, strlen(id));
        enum catalog_put what;
        rc = catalog_put(c, &t, &what, err);
    }
    return rc == 0 ? catalog_commit(c, err) : rc;
}

static int bench_lookups(const char *dir, uint32_t rows, struct err *err)
{
    struct catalog *c = NULL;
    uint64_t *ns = calloc(LOOKUPS, sizeof *ns), r = 88172645463325252u;
    int rc = ns != NULL ? catalog_open(&c, dir, false, err) : err_set(err, ERR_LIMIT, "out of memory");
    for (uint32_t i = 0; rc == 0 && i < LOOKUPS; i++) {
        r ^= r << 13, r ^= r >> 7, r ^= r << 17;
        uint32_t k = (uint32_t)(r % rows);
        char id[64];
        snprintf(id, sizeof id, "project%u__task-%06u", k % 97, k);
        own_arena a = { 0 };
        struct task t;
        uint64_t from = clock_mono_ns();
        rc = catalog_get(c, &t, &a, id, err);
        ns[i] = clock_mono_ns() - from;
    }
    if (rc == 0)
        print_times("catalog-lookup-p99-us", "us", 1e3, ns, LOOKUPS, true);
    catalog_close(c);
    free(ns);
    return rc;
}

static int bench_opens(const char *dir, struct err *err)
{
    static const char hex[] = "4b825dc642cb6eb9a060e54bf8d69288fbee4904";
    char path[400];
    struct store *s = NULL;
    uint64_t *ns = calloc(OPENS, sizeof *ns);
    int rc = ns != NULL ? store_open(&s, dir, true, err) : err_set(err, ERR_LIMIT, "out of memory");
    snprintf(path, sizeof path, "%s/trees/%s", dir, hex);
    if (rc == 0 && mkdir(path, 0755) != 0)
        rc = err_sys(err, ERR_SYS, "%s", path);
    for (uint32_t i = 0; rc == 0 && i < OPENS; i++) {
        uint64_t from = clock_mono_ns();
        int fd = store_tree_fd(s, hex, err);
        ns[i] = clock_mono_ns() - from;
        if (fd < 0)
            rc = fd;
        else
            close(fd);
    }
    if (rc == 0)
        print_times("snapshot-ready-ms", "ms", 1e6, ns, OPENS, false);
    store_close(s);
    free(ns);
    return rc;
}

int main(void)
{
    const char *want = getenv("ROWS"), *tmp = getenv("TMPDIR");
    uint32_t rows = want != NULL ? (uint32_t)strtoul(want, NULL, 10) : 200000;
    char dir[256], cmd[300];
    struct err err = { 0 };
    struct catalog *c = NULL;
    snprintf(dir, sizeof dir, "%s/assay-bench-XXXXXX", tmp != NULL ? tmp : "/tmp");
    if (rows == 0 || mkdtemp(dir) == NULL)
        return fprintf(stderr, "bench_catalog: ROWS must be above 0 and %s writable\n", dir), 1;
    int rc = catalog_open(&c, dir, true, &err);
    if (rc == 0)
        rc = fill(c, rows, &err);
    catalog_close(c);
    if (rc == 0)
        rc = bench_lookups(dir, rows, &err);
    if (rc == 0)
        rc = bench_opens(dir, &err);
    snprintf(cmd, sizeof cmd, "rm -rf '%s'", dir);
    if (system(cmd) != 0)
        fprintf(stderr, "bench_catalog: could not remove %s\n", dir);
    return rc == 0 ? 0 : fail(&err);
}
