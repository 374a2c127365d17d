/*
 * bench_log.c - how fast the trajectory log takes records with group commit: 10 KiB records, 64 a commit, each
 * commit written and synced. Prints MB a second of payload, the median of the rounds with their spread.
 *
 * LOG_BENCH_DIR chooses the file system; default: below build/, which is on a real disk where /tmp may not be.
 */
#include "base/clock.h"
#include "rollout/trajlog.h"
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ROUNDS  7
#define COMMITS 40
#define BATCH   64
#define RECORD  10240

static uint64_t failures;

static void done(void *arg, void *token, int rc, uint64_t cursor, const struct err *err)
{
    (void)arg, (void)token, (void)cursor, (void)err;
    failures += rc < 0;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static int fail(const struct err *err)
{
    fprintf(stderr, "bench_log: %s\n", err->msg);
    return 70;
}

static void empty_dir(const char *dir)
{
    DIR *d = opendir(dir);
    for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL; ) {
        char path[4400];
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        unlink(path);
    }
    if (d != NULL)
        closedir(d);
    rmdir(dir);
}

int main(void)
{
    const char *base = getenv("LOG_BENCH_DIR");
    char dir[4096];
    snprintf(dir, sizeof dir, "%s/bench_log.XXXXXX", base != NULL ? base : "build");
    if (mkdtemp(dir) == NULL) {
        perror("bench_log: temporary directory");
        return 70;
    }
    struct trajlog_io io;
    struct trajlog *log;
    struct err err = { 0 };
    if (trajlog_io_files(&io, dir, &err) < 0 || trajlog_open(&log, &io, &(struct trajlog_config){ 0 }, &err) < 0)
        return fail(&err);
    static char record[RECORD];
    for (size_t i = 0; i < sizeof record; i++)
        record[i] = (char)(i * 131);
    double rates[ROUNDS];
    for (int r = 0; r < ROUNDS; r++) {
        uint64_t start = clock_mono_ns();
        for (int c = 0; c < COMMITS; c++) {
            for (int i = 0; i < BATCH; i++)
                if (trajlog_add(log, TRAJFRAME_EPISODE, record, sizeof record, NULL, &err) < 0)
                    return fail(&err);
            trajlog_commit(log, done, NULL);
        }
        rates[r] = (double)COMMITS * BATCH * RECORD / 1e6 / ((double)(clock_mono_ns() - start) / 1e9);
    }
    trajlog_close(log);
    empty_dir(dir);
    if (failures > 0) {
        fprintf(stderr, "bench_log: %llu records were not written\n", (unsigned long long)failures);
        return 70;
    }
    qsort(rates, ROUNDS, sizeof rates[0], compare);
    printf("log-append-mb-per-s %.1f MB/s (%.1f … %.1f)\n", rates[ROUNDS / 2], rates[0], rates[ROUNDS - 1]);
    return 0;
}
