/*
 * bench_catalog.c - what a catalog of a million tasks costs: import, look-up, pages, search, memory, disk; and a snapshot's opening.
 * figures: catalog-import-rate catalog-index-rate catalog-file-mib catalog-lookup-p99-us catalog-page-p99-us
 * figures: catalog-filter-p99-us catalog-search-p99-us catalog-twins-page-p99-us catalog-rss-grown-mib snapshot-ready-ms
 *
 * ROWS tasks (1000000 unless the environment says otherwise) in a catalog made for the run. What is synthetic: all of it. No two
 * records are alike: ids count up within 97 repositories in turn; each problem statement (1.5 KiB) is drawn from a vocabulary
 * of 50,000 made-up words as often as words of a language are (the k-th as 1/k), each patch (2.5 KiB) and hidden test (1 KiB)
 * from the same; three languages (60, 30, 10 %), two splits (90, 10 %), every 1000th quarantined, every 500th a twin of the
 * one before. Base trees are names of trees that aren't there: reading repositories is the importer's work and not in these figures.
 * Texts are made outside of the time that is taken. 40,000 tasks a transaction.
 * Prints NAME VALUE UNIT (min min, median median, p99 p99), or what else there is to say in the parentheses.
 */
#include "base/clock.h"
#include "repos/repos.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LOOKUPS  20000
#define PAGES    1000
#define SEARCHES 1000
#define OPENS    2000
#define BATCH    10000                  /* made at a time */
#define BATCHES  4                      /* in a transaction */
#define WORDS    50000
#define POOL     (1 << 21)              /* drawn words: texts are cut from it */

static uint64_t draw_state = 88172645463325252u;
static uint64_t draw(void)
{
    uint64_t r = draw_state;
    r ^= r << 13, r ^= r >> 7, r ^= r << 17;
    return draw_state = r;
}

static char vocabulary[WORDS][12], pool[POOL];

/* The k-th word is drawn as often as 1/k: by the exponential of a uniform number. */
static uint32_t draw_word(void)
{
    double u = (double)(draw() >> 11) / 9007199254740992.0, k = 1;
    for (double p = u * 15.6096; p > 0; p -= 1)         /* log2(WORDS) */
        k *= p >= 1 ? 2 : 1 + p;
    return k >= WORDS ? WORDS - 1 : (uint32_t)k - 1;
}

static void make_words(void)
{
    for (uint32_t i = 0; i < WORDS; i++) {
        uint32_t n = 2 + (uint32_t)(draw() % 8);
        for (uint32_t k = 0; k < n; k++)
            vocabulary[i][k] = (char)('a' + draw() % 26);
    }
    for (size_t at = 0; at + 16 < sizeof pool;)
        at += (size_t)sprintf(pool + at, "%s%c", vocabulary[draw_word()], draw() % 10 == 0 ? '\n' : ' ');
}

static void cut_text(char *out, size_t n)
{
    memcpy(out, pool + draw() % (POOL - 8192), n - 1);
    out[n - 1] = '\0';
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

/* CPU time of this process: what is left of a figure that a busy machine has spoilt. */
static double cpu_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static double rss_mib(void)
{
    unsigned long all = 0, resident = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (f == NULL || fscanf(f, "%lu %lu", &all, &resident) != 2)
        resident = 0;
    if (f != NULL)
        fclose(f);
    return (double)resident * (double)sysconf(_SC_PAGESIZE) / 1048576;
}

static void name_task(char id[64], uint32_t i)
{
    snprintf(id, 64, "project%u__task-%07u", i % 97, i);
}

struct made {                           /* one synthetic task and what it points to */
    struct task t;
    char id[64], repo[32], tree[41], statement[1500], patch[2500], test_patch[1000];
};

static void make_task(struct made *m, uint32_t i)
{
    static const char *ids[] = { "tests/test_one.py::test_a", "tests/test_one.py::test_b" };
    name_task(m->id, i);
    snprintf(m->repo, sizeof m->repo, "project%u", i % 97);
    bool twin = i % 500 == 1;           /* of the one before, which lies in the same batch */
    snprintf(m->tree, sizeof m->tree, "%040x", twin ? i - 1 : i);
    cut_text(m->statement, sizeof m->statement);
    cut_text(m->patch, sizeof m->patch);
    if (!twin)
        cut_text(m->test_patch, sizeof m->test_patch);
    else
        strcpy(m->test_patch, (m - 1)->test_patch);
    m->t = (struct task){ .id = m->id, .repo = m->repo, .base_commit = m->tree, .problem_statement = m->statement, .patch = m->patch,
        .test_patch = m->test_patch, .fail_to_pass = { ids, 1 }, .pass_to_pass = { ids + 1, 1 }, .test_cmd = "python3 -m pytest -q",
        .reader = "auto", .environment = "host", .profile = "strict", .split = i % 10 == 0 ? "test" : "train",
        .language = i % 10 < 6 ? "python" : i % 10 < 9 ? "c" : "go", .timeout_s = 300, .memory_mb = 2048, .extra_json = "{}",
        .base_tree = m->tree };
    digest_of(&m->t.definition, m->id, strlen(m->id));
}

static int put_batch(struct catalog *c, const struct made *made, uint32_t n, uint32_t first, bool last, struct err *err)
{
    int rc = first / BATCH % BATCHES == 0 ? catalog_begin(c, err) : 0;
    for (uint32_t k = 0; rc == 0 && k < n; k++) {
        enum catalog_put what;
        rc = catalog_put(c, &made[k].t, &what, err);
        if (rc == 0 && (first + k) % 1000 == 0)
            rc = catalog_set_state(c, made[k].id, TASK_QUARANTINED, err);
    }
    return rc == 0 && (last || first / BATCH % BATCHES == BATCHES - 1) ? catalog_commit(c, err) : rc;
}

static int fill(struct catalog *c, uint32_t rows, struct err *err)
{
    struct made *made = calloc(BATCH, sizeof *made);
    if (made == NULL)
        return err_set(err, ERR_LIMIT, "out of memory");
    uint64_t put_ns = 0, slowest = 0, from;
    double put_cpu = 0, cpu;
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < rows; i += BATCH) {
        uint32_t n = rows - i < BATCH ? rows - i : BATCH;
        for (uint32_t k = 0; k < n; k++)
            make_task(&made[k], i + k);
        from = clock_mono_ns();
        cpu = cpu_s();
        rc = put_batch(c, made, n, i, i + n == rows, err);
        uint64_t took = clock_mono_ns() - from;
        put_cpu += cpu_s() - cpu;
        put_ns += took;
        slowest = took > slowest ? took : slowest;
    }
    free(made);
    if (rc == 0) {
        printf("catalog-import-rate %.0f tasks/s (%.0f a second of CPU; slowest %d: %.0f ms)\n", rows * 1e9 / (double)put_ns,
               rows / put_cpu, BATCH, (double)slowest / 1e6);
        fflush(stdout);
        from = clock_mono_ns();
        cpu = cpu_s();
        rc = catalog_index(c, err);
        uint64_t index_ns = clock_mono_ns() - from;
        printf("catalog-index-rate %.0f tasks/s (text index, behind the import: %.0f a second of CPU; both together %.0f)\n",
               rows * 1e9 / (double)index_ns, rows / (cpu_s() - cpu), rows * 1e9 / (double)(put_ns + index_ns));
    }
    return rc;
}

static int lookups(struct catalog *c, uint32_t rows, uint64_t *ns, struct err *err)
{
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < LOOKUPS; i++) {
        char id[64];
        name_task(id, (uint32_t)(draw() % rows));
        own_arena a = { 0 };
        struct task t;
        uint64_t from = clock_mono_ns();
        rc = catalog_get(c, &t, &a, id, err);
        ns[i] = clock_mono_ns() - from;
    }
    if (rc == 0)
        print_times("catalog-lookup-p99-us", "us", 1e3, ns, LOOKUPS, true);
    return rc;
}

static int one_page(struct catalog *c, uint64_t *ns, const char *after, const struct catalog_filter *f, uint64_t *found,
                    struct err *err)
{
    own_arena a = { 0 };
    struct task *tasks;
    uint32_t count = 0;
    const char *next;
    uint64_t from = clock_mono_ns();
    int rc = catalog_list(c, &tasks, &count, &next, &a, after, f, 100, err);
    *ns = clock_mono_ns() - from;
    *found += count;
    return rc;
}

static int pages(struct catalog *c, uint32_t rows, uint64_t *ns, struct err *err)
{
    static const struct catalog_filter filters[] = {
        { .repo = "project7", .language = "go" }, { .state = "quarantined" }, { .state = "quarantined", .split = "test", .language = "python" },
        { .split = "test" }, { .language = "go" }, { .language = "go", .split = "test" },   /* no task is both */
    };
    int rc = 0;
    uint64_t found = 0;
    char after[64];
    for (uint32_t i = 0; rc == 0 && i < PAGES; i++) {
        name_task(after, (uint32_t)(draw() % rows));
        rc = one_page(c, &ns[i], after, &(struct catalog_filter){ 0 }, &found, err);
    }
    if (rc == 0)
        print_times("catalog-page-p99-us", "us", 1e3, ns, PAGES, true);
    for (uint32_t i = 0; rc == 0 && i < PAGES; i++) {
        name_task(after, (uint32_t)(draw() % rows));
        rc = one_page(c, &ns[i], after, &filters[i % (sizeof filters / sizeof filters[0])], &found, err);
    }
    if (rc == 0)
        print_times("catalog-filter-p99-us", "us", 1e3, ns, PAGES, true);
    return rc;
}

/* Two words drawn as the texts were; every fourth time a rare one, the first four letters of one, or with filters. */
static int searches(struct catalog *c, uint64_t *ns, struct err *err)
{
    int rc = 0;
    uint64_t found = 0;
    for (uint32_t i = 0; rc == 0 && i < SEARCHES; i++) {
        char text[64];
        const char *one = vocabulary[draw_word()], *two = vocabulary[draw_word()], *rare;
        do
            rare = vocabulary[draw() % WORDS];
        while (strlen(rare) < 4);
        snprintf(text, sizeof text, i % 4 == 0 ? "%s" : i % 4 == 1 ? "%.4s*" : "%s %s", i % 4 <= 1 ? rare : one, two);
        struct catalog_filter f = { .text = text, .language = i % 4 == 3 ? "go" : "", .repo = i % 8 == 7 ? "project7" : "" };
        rc = one_page(c, &ns[i], "", &f, &found, err);
    }
    if (rc == 0)
        print_times("catalog-search-p99-us", "us", 1e3, ns, SEARCHES, true);
    return rc;
}

static int twins(struct catalog *c, uint64_t *ns, struct err *err)
{
    char after[64] = "", *more = after;
    int rc = 0;
    uint32_t n = 0;
    while (rc == 0 && more != NULL && n < PAGES) {
        own_arena a = { 0 };
        struct catalog_twins *groups;
        uint32_t count;
        const char *next = "";
        uint64_t from = clock_mono_ns();
        rc = catalog_duplicates(c, &groups, &count, &next, &a, after, 100, err);
        ns[n++] = clock_mono_ns() - from;
        snprintf(after, sizeof after, "%s", next);
        more = after[0] != '\0' ? after : NULL;
    }
    if (rc == 0)
        print_times("catalog-twins-page-p99-us", "us", 1e3, ns, n, true);
    return rc;
}

static int bench_reader(const char *dir, uint32_t rows, struct err *err)
{
    struct catalog *c = NULL;
    uint64_t *ns = calloc(LOOKUPS, sizeof *ns);
    int rc = ns != NULL ? catalog_open(&c, dir, false, err) : err_set(err, ERR_LIMIT, "out of memory");
    double before = rss_mib();
    if (rc == 0)
        rc = lookups(c, rows, ns, err);
    double looked = rss_mib();
    if (rc == 0)
        rc = pages(c, rows, ns, err);
    double listed = rss_mib();
    if (rc == 0)
        rc = searches(c, ns, err);
    if (rc == 0)
        printf("catalog-rss-grown-mib %.1f MiB (resident when opened %.1f, after %d look-ups %.1f, after %d pages %.1f, after %d searches "
               "%.1f)\n", rss_mib() - before, before, LOOKUPS, looked, 2 * PAGES, listed, SEARCHES, rss_mib());
    if (rc == 0)
        rc = twins(c, ns, err);
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

/* In a process of its own, so that the reader's memory is the reader's. */
static int fill_apart(const char *dir, uint32_t rows, struct err *err)
{
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        struct catalog *c = NULL;
        make_words();
        int rc = catalog_open(&c, dir, true, err);
        if (rc == 0)
            rc = fill(c, rows, err);
        catalog_close(c);
        if (rc < 0)
            fprintf(stderr, "bench_catalog: %s\n", err->msg);
        exit(rc < 0);
    }
    int status;
    if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0)
        return err_set(err, ERR_LOST, "the catalog was not filled");
    make_words();                       /* the same ones: the searches are for them */
    return 0;
}

static void print_size(const char *dir, uint32_t rows)
{
    char path[300];
    struct stat st;
    snprintf(path, sizeof path, "%s/catalog.db", dir);
    if (stat(path, &st) == 0)
        printf("catalog-file-mib %.0f MiB (%.2f KiB a task, its texts are 4.9)\n", (double)st.st_size / 1048576,
               (double)st.st_size / 1024 / rows);
}

int main(void)
{
    const char *want = getenv("ROWS"), *tmp = getenv("TMPDIR");
    uint32_t rows = want != NULL ? (uint32_t)strtoul(want, NULL, 10) : 1000000;
    char dir[256], cmd[300];
    struct err err = { 0 };
    snprintf(dir, sizeof dir, "%s/assay-bench-XXXXXX", tmp != NULL ? tmp : "/tmp");
    if (rows == 0 || mkdtemp(dir) == NULL)
        return fprintf(stderr, "bench_catalog: ROWS must be above 0 and %s writable\n", dir), 1;
    int rc = fill_apart(dir, rows, &err);
    if (rc == 0) {
        print_size(dir, rows);
        rc = bench_reader(dir, rows, &err);
    }
    if (rc == 0)
        rc = bench_opens(dir, &err);
    snprintf(cmd, sizeof cmd, "rm -rf '%s'", dir);
    if (system(cmd) != 0)
        fprintf(stderr, "bench_catalog: could not remove %s\n", dir);
    if (rc < 0)
        fprintf(stderr, "bench_catalog: %s\n", err.msg);
    return rc == 0 ? 0 : 1;
}
