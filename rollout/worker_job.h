/*
 * worker_job.h - one job of the worker pool: its bytes, its way to a worker, its answer's way to the caller.
 *
 * Whoever holds a job either answers it, which ends it, or frees it. Answers are checked here as if the worker were
 * hostile: lengths, seals, ids, ranges.
 */
#pragma once
#include "base/buf.h"
#include "rollout/worker.h"
#include "rollout/worker_wire.h"

struct job {
    struct job *next;
    enum worker_kind kind;
    uint64_t id;
    struct buf record, patch;   /* PATCH: both; REPORT: the record, with ... */
    int      output_fd, report_fd;      /* ... duplicates of what came with it; -1: none */
    int      crashes;
    patch_cb  on_patch;
    report_cb on_report;
    void     *arg;
};

/* NULL: err says why. The callbacks are set by the caller. */
struct job *job_new(enum worker_kind kind, void *arg, const struct task *task, const struct run_facts *run,
                    struct err *err);
/* Keep a duplicate of fd in *out (output_fd or report_fd); -1 is none. */
MUST_CHECK int job_keep_fd(int *out, int fd, struct err *err);
void job_free(struct job *j);
/* *built false: our own descriptors or memory are short; else an error is the worker's socket. */
MUST_CHECK int job_send(int sock, const struct job *j, bool *built, struct err *err);

/* Call back and end the job. */
void job_fail(struct job *j, int rc, const struct err *err);
void job_unreadable(struct job *j);
/* Check an answer and call back. False: it was no answer, and the job is still the caller's. Taken descriptors become -1. */
bool job_deliver(struct job *j, struct worker_answer *ans, int *fds, int nfds);
