/*
 * worker.c - main of assay-worker: parse what a model or a sandbox made, in a process that can do nothing else.
 *
 *   assay-worker pool STORE            jobs over descriptor 3 (worker_wire.h), started by assayd's worker pool
 *   assay-worker import STORE ...      the importer, a process of its own with other rights (importer.h)
 *
 * One job at a time, each in an arena of its own. A crash is the pool's to notice.
 */
#include "base/frame.h"
#include "base/own.h"
#include "repos/repos.h"
#include "rollout/report.h"
#include "rollout/worker.h"
#include "rollout/worker_confine.h"
#include "rollout/worker_wire.h"
#ifdef ASSAY_WITH_IMPORTER
#include "rollout/importer.h"
#endif
#include <fcntl.h>
#include <git2.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

/* An arena's budget: below RLIMIT_DATA, so that running out is an answer and no crash. */
#define JOB_MEMORY ((size_t)768 << 20)

/* A memfd's whole content, mapped for reading. */
struct view { const uint8_t *bytes; size_t len; };

static void view_done(struct view *v)
{
    if (v->len > 0)
        munmap((void *)(uintptr_t)v->bytes, v->len);
}
#define own_view __attribute__((cleanup(view_done))) struct view

/* Sealed, so that nothing is cut off under our feet (SIGBUS), nor changed between a check and its use. */
static int view_open(struct view *out, int fd, size_t max, const char *what, struct err *err)
{
    struct stat st;
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & (F_SEAL_SHRINK | F_SEAL_WRITE)) != (F_SEAL_SHRINK | F_SEAL_WRITE))
        return err_set(err, ERR_PROTOCOL, "worker: %s is not a sealed memfd", what);
    if (fstat(fd, &st) != 0)
        return err_sys(err, ERR_SYS, "worker: %s", what);
    if ((uint64_t)st.st_size > max)
        return err_set(err, ERR_LIMIT, "worker: %s of %lld bytes, at most %zu", what, (long long)st.st_size, max);
    if (st.st_size == 0) {
        *out = (struct view){ (const uint8_t *)"", 0 };
        return 0;
    }
    void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED)
        return err_sys(err, ERR_SYS, "worker: map %s", what);
    *out = (struct view){ p, (size_t)st.st_size };
    /* cppcheck-suppress memleak ; the view ends the mapping */
    return 0;
}

static int do_patch(struct worker_answer *ans, struct buf *body, int *edits_fd, const struct store *store, const int *fds,
                    struct err *err)
{
    own_arena a = { .budget = JOB_MEMORY };
    own_view record = { 0 }, patch = { 0 };
    struct task task;
    struct merge m = { 0 };
    int rc = view_open(&record, fds[0], WORKER_BODY_MAX, "task record", err);
    if (rc == 0)
        rc = view_open(&patch, fds[1], WORKER_PATCH_MAX, "patch", err);
    struct wire_in in = { record.bytes, record.bytes + record.len, &a, false };
    if (rc == 0)
        rc = wire_get_task(&in, &task, err);
    bool merging = rc == 0;
    if (merging)
        rc = merge_task_patch(&m, &a, store, &task, patch.bytes, patch.len, err);
    if (merging && rc == ERR_LIMIT) {       /* nothing of ours broke: this patch asks for too much */
        m.outcome = MERGE_FAILED;
        m.reason = err->msg;
        m.findings.count = 0;
        rc = 0;
    }
    if (rc == 0 && m.outcome != MERGE_FAILED && m.edits.len > 0) {
        *edits_fd = frame_memfd("edits", m.edits.data, m.edits.len, err);
        rc = *edits_fd < 0 ? *edits_fd : 0;
    }
    if (rc == 0)
        rc = wire_put_patch(body, m.outcome == MERGE_FAILED ? m.reason : "", &m.findings, err);
    ans->outcome = m.outcome == MERGE_APPLIED ? PATCH_APPLIED : m.outcome == MERGE_EMPTY ? PATCH_EMPTY : PATCH_FAILED;
    if (m.outcome != MERGE_FAILED)
        snprintf(ans->tree, sizeof ans->tree, "%s", m.tree);
    buf_done(&m.edits);
    return rc;
}

static int do_report(struct worker_answer *ans, struct buf *body, const int *fds, int nfds, struct err *err)
{
    own_arena a = { .budget = JOB_MEMORY };
    own_view record = { 0 }, output = { 0 }, files = { 0 };
    struct task task;
    struct run_facts run;
    struct report report;
    struct report_file *list = NULL;
    uint32_t count = 0;
    int rc = view_open(&record, fds[0], WORKER_BODY_MAX, "task record", err);
    if (rc == 0)
        rc = view_open(&output, fds[1], WORKER_INPUT_MAX, "output", err);
    if (rc == 0 && nfds > 2)
        rc = view_open(&files, fds[2], WORKER_INPUT_MAX, "report files", err);
    struct wire_in in = { record.bytes, record.bytes + record.len, &a, false };
    if (rc == 0)
        rc = wire_get_task(&in, &task, err);
    if (rc == 0)
        rc = wire_get_run(&in, &run, err);
    if (rc < 0)
        return rc;
    if (files.len > 0)
        rc = report_files_parse(&list, &count, &a, files.bytes, files.len, err);
    struct report_input input = {
        .task = &task, .run = &run, .files = list, .file_count = count, .output = output.bytes, .output_len = output.len,
        .output_cut = run.output_bytes > output.len,
    };
    if (rc == 0)
        rc = report_read(&report, &a, &input, err);
    if (rc == 0)
        rc = wire_put_report(body, &report, err);
    if (rc == ERR_LIMIT) {              /* the same bytes would do it again: the report's fault */
        ans->unreadable = 1;
        buf_reset(body);
        rc = 0;
    }
    return rc;
}

static int answer(int sock, const struct worker_request *rq, const struct store *store, const int *fds, int nfds)
{
    struct err err = { 0 };
    struct worker_answer ans = { .kind = rq->kind, .job = rq->job };
    own_buf body = { .max = WORKER_BODY_MAX };
    own_fd edits = -1, body_fd = -1;
    int rc, want = rq->kind == WORKER_PATCH ? 2 : 2 + (rq->has_report != 0), out[2], nout = 0;
    worker_bound_job(WORKER_JOB_CPU_S);
    if ((rq->kind != WORKER_PATCH && rq->kind != WORKER_REPORT) || nfds != want)
        rc = err_set(&err, ERR_PROTOCOL, "worker: request %u with %d descriptors", rq->kind, nfds);
    else if (rq->kind == WORKER_PATCH)
        rc = do_patch(&ans, &body, &edits, store, fds, &err);
    else
        rc = do_report(&ans, &body, fds, nfds, &err);
    if (rc >= 0 && !ans.unreadable) {
        body_fd = frame_memfd("answer", body.data != NULL ? body.data : (const uint8_t *)"", body.len, &err);
        rc = body_fd < 0 ? body_fd : 0;
    }
    ans.rc = rc < 0 ? rc : 0;
    if (rc < 0)
        memcpy(ans.message, err.msg, sizeof ans.message - 1);
    if (rc >= 0 && body_fd >= 0) {
        ans.has_body = 1;
        out[nout++] = body_fd;
    }
    if (rc >= 0 && edits >= 0) {
        ans.has_edits = 1;
        out[nout++] = edits;
    }
    return frame_send(sock, &ans, sizeof ans, out, nout, &err);
}

static int serve(const char *store_dir)
{
    struct err err = { 0 };
    struct store *store = NULL;
    const char *dir = NULL;
    struct worker_hello hello = { .magic = WORKER_MAGIC, .layout = WORKER_LAYOUT };
    struct stat st;
    signal(SIGPIPE, SIG_IGN);
    if (fstat(WORKER_FD, &st) != 0 || !S_ISSOCK(st.st_mode)) {
        fprintf(stderr, "assay-worker pool STORE: descriptor %d is no socket (this program is started by assayd)\n", WORKER_FD);
        return 64;
    }
    (void)git_libgit2_init();           /* before worker_enter(): TLS and random sources read files of the system */
    int rc = worker_enter(&dir, store_dir, &err);
    if (rc == 0)
        rc = store_open(&store, dir, false, &err);
    if (rc == 0)
        rc = worker_confine(&hello.confined, dir, &err);
    hello.rc = rc;
    if (rc < 0)
        memcpy(hello.message, err.msg, sizeof hello.message - 1);
    if (frame_send(WORKER_FD, &hello, sizeof hello, NULL, 0, &err) < 0 || rc < 0)
        return 70;
    for (;;) {
        struct worker_request rq;
        int fds[FRAME_FDS_MAX], nfds = 0;
        int n = frame_recv(WORKER_FD, &rq, sizeof rq, fds, &nfds, &err);
        if (n == 0)
            break;                      /* the pool let go: recycled, or gone */
        rc = n == (int)sizeof rq ? answer(WORKER_FD, &rq, store, fds, nfds) : ERR_PROTOCOL;
        for (int i = 0; i < nfds; i++)
            close(fds[i]);
        if (rc < 0)
            return 70;
    }
    store_close(store);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "pool") == 0)
        return serve(argv[2]);
#ifdef ASSAY_WITH_IMPORTER
    if (argc >= 2 && strcmp(argv[1], "import") == 0)
        return importer_main(argc - 1, argv + 1);
#endif
    fprintf(stderr, "usage: assay-worker pool STORE | assay-worker import STORE REPOS_DIR SOURCE FIRST_LINE\n");
    return 64;
}
