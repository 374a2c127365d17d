/* worker_job.c - see worker_job.h. */
#include "rollout/worker_job.h"
#include "base/frame.h"
#include "base/own.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define ANSWER_MEMORY ((size_t)256 << 20)

struct job *job_new(enum worker_kind kind, void *arg, const struct task *task, const struct run_facts *run,
                    struct err *err)
{
    struct job *j = calloc(1, sizeof *j);
    if (j == NULL) {
        (void)err_set(err, ERR_LIMIT, "worker: out of memory");
        return NULL;
    }
    *j = (struct job){ .kind = kind, .arg = arg, .output_fd = -1, .report_fd = -1, .record.max = WORKER_BODY_MAX,
                       .patch.max = WORKER_PATCH_MAX };
    int rc = wire_put_task(&j->record, task, err);
    if (rc >= 0 && run != NULL)
        rc = wire_put_run(&j->record, run, err);
    if (rc < 0) {
        job_free(j);
        return NULL;
    }
    return j;
}

int job_keep_fd(int *out, int fd, struct err *err)
{
    if (fd < 0)
        return 0;
    *out = fcntl(fd, F_DUPFD_CLOEXEC, WORKER_FD + 1);
    return *out < 0 ? err_sys(err, ERR_SYS, "worker: duplicate a descriptor") : 0;
}

void job_free(struct job *j)
{
    buf_done(&j->record);
    buf_done(&j->patch);
    own_fd_done(&j->output_fd);
    own_fd_done(&j->report_fd);
    free(j);
}

static int memfd_of(const char *name, const struct buf *b, struct err *err)
{
    return frame_memfd(name, b->len > 0 ? b->data : (const uint8_t *)"", b->len, err);
}

int job_send(int sock, const struct job *j, bool *built, struct err *err)
{
    struct worker_request rq = { .kind = j->kind, .has_report = j->report_fd >= 0, .job = j->id };
    own_fd record = memfd_of("task", &j->record, err);
    own_fd second = record < 0 ? record : j->output_fd >= 0 ? fcntl(j->output_fd, F_DUPFD_CLOEXEC, 0)
                  : memfd_of(j->kind == WORKER_PATCH ? "patch" : "output", &j->patch, err);
    *built = record >= 0 && second >= 0;
    if (!*built)
        return record < 0 || j->output_fd < 0 ? err->code : err_sys(err, ERR_SYS, "worker: duplicate a descriptor");
    const int fds[3] = { record, second, j->report_fd };
    return frame_send(sock, &rq, sizeof rq, fds, j->report_fd >= 0 ? 3 : 2, err);
}

/* --- answers --- */

void job_fail(struct job *j, int rc, const struct err *err)
{
    if (j->kind == WORKER_PATCH) {
        struct patch_answer ans = { .edits_fd = -1, .reason = "" };
        j->on_patch(j->arg, rc, &ans, err);
    } else {
        struct report_answer ans = { .report = { .reader = "", .note = "" } };
        j->on_report(j->arg, rc, &ans, err);
    }
    job_free(j);
}

void job_unreadable(struct job *j)
{
    struct err err = { 0 };
    if (j->kind == WORKER_PATCH) {
        struct patch_answer ans = { .outcome = PATCH_UNREADABLE, .edits_fd = -1,
                                    .reason = "the patch ended its parser twice; its bytes cannot be read" };
        j->on_patch(j->arg, 0, &ans, &err);
    } else {
        struct report_answer ans = { .unreadable = true, .report = { .reader = "" } };
        ans.report.note = "the report ended its parser twice; its bytes cannot be read";
        j->on_report(j->arg, 0, &ans, &err);
    }
    job_free(j);
}

/* Copy a sealed memfd that a worker made. */
static int body_read(struct buf *out, int fd, struct err *err)
{
    struct stat st;
    int seals = fcntl(fd, F_GET_SEALS);
    out->max = WORKER_BODY_MAX;
    if (seals < 0 || (seals & (F_SEAL_SHRINK | F_SEAL_WRITE)) != (F_SEAL_SHRINK | F_SEAL_WRITE))
        return err_set(err, ERR_PROTOCOL, "worker: an answer that is not sealed");
    if (fstat(fd, &st) != 0)
        return err_sys(err, ERR_SYS, "worker: answer");
    if (st.st_size < 0 || (uint64_t)st.st_size > WORKER_BODY_MAX)
        return err_set(err, ERR_PROTOCOL, "worker: an answer of %lld bytes", (long long)st.st_size);
    uint8_t *p = buf_reserve(out, (size_t)st.st_size + 1, err);
    if (p == NULL)
        return err->code;
    while (out->len < (size_t)st.st_size) {
        ssize_t n = pread(fd, p + out->len, (size_t)st.st_size - out->len, (off_t)out->len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return err_sys(err, ERR_SYS, "worker: read answer");
        out->len += (size_t)n;
    }
    return 0;
}

static bool edits_ok(int fd)
{
    struct stat st;
    int seals = fcntl(fd, F_GET_SEALS), want = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
    return seals >= 0 && (seals & want) == want && fstat(fd, &st) == 0 && (uint64_t)st.st_size <= WORKER_EDITS_MAX;
}

static bool tree_ok(const char *hex)
{
    return strspn(hex, "0123456789abcdef") == 40 && hex[40] == '\0';
}

/* Is this an answer that a worker of ours gives to this job? */
static bool answer_fits(const struct worker_answer *ans, const struct job *j, int nfds)
{
    if (ans->kind != (uint32_t)j->kind || ans->job != j->id || ans->rc > 0)
        return false;
    if (nfds != (ans->has_body != 0) + (ans->has_edits != 0) || (ans->has_edits && !ans->has_body))
        return false;
    if (ans->rc < 0 || ans->unreadable)
        return nfds == 0;
    if (!ans->has_body)
        return false;
    if (j->kind == WORKER_REPORT)
        return !ans->has_edits;
    return ans->outcome <= PATCH_FAILED && (ans->outcome != PATCH_APPLIED || (ans->has_edits && tree_ok(ans->tree)));
}

bool job_deliver(struct job *j, struct worker_answer *ans, int *fds, int nfds)
{
    struct err err = { 0 };
    own_arena a = { .budget = ANSWER_MEMORY };
    own_buf body = { 0 };
    ans->message[sizeof ans->message - 1] = '\0';
    ans->tree[40] = '\0';
    if (!answer_fits(ans, j, nfds))
        return false;
    if (ans->rc < 0) {
        int rc = err_set(&err, ans->rc, "%s", ans->message);
        job_fail(j, rc, &err);
        return true;
    }
    if (ans->unreadable) {
        job_unreadable(j);
        return true;
    }
    if (body_read(&body, fds[0], &err) < 0 || (ans->has_edits && !edits_ok(fds[1])))
        return false;
    struct wire_in in = { body.data, body.data + body.len, &a, false };
    if (j->kind == WORKER_PATCH) {
        struct patch_answer out = { .outcome = (enum patch_outcome)ans->outcome, .edits_fd = -1 };
        if (wire_get_patch(&in, &out.reason, &out.findings, &err) < 0)
            return false;
        if (ans->outcome != PATCH_FAILED && ans->has_edits) {
            memcpy(out.tree, ans->tree, sizeof out.tree);
            out.edits_fd = give_fd(&fds[1]);
        }
        j->on_patch(j->arg, 0, &out, &err);
    } else {
        struct report_answer out = { 0 };
        if (wire_get_report(&in, &out.report, &err) < 0)
            return false;
        j->on_report(j->arg, 0, &out, &err);
    }
    job_free(j);
    return true;
}
