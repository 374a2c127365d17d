/*
 * worker.h - the pool of confined worker processes, seen from assayd.
 *
 * Workers parse what the model or the sandbox made: patches (libgit2 merge) and reports. A worker that
 * crashes costs that one job a retry; the same job crashing twice is the input's fault (ERR_BAD_INPUT
 * with `unreadable` set in the answer). Requests and answers are fixed structs plus sealed memfds.
 *
 * Asynchronous: callbacks come from worker_pool_dispatch() when one of the pool's descriptors is readable.
 */
#pragma once
#include "base/arena.h"
#include "base/err.h"
#include "rollout/verdict.h"

struct worker_pool;

/* Start `count` processes of `worker_path` over the store at `store_dir` (read-only to them). */
MUST_CHECK int worker_pool_start(struct worker_pool **out, const char *worker_path, const char *store_dir,
                                 uint32_t count, struct err *err);
int  worker_pool_fd(const struct worker_pool *p);          /* an epoll descriptor: poll it for reading */
MUST_CHECK int worker_pool_dispatch(struct worker_pool *p, struct err *err);
void worker_pool_close(struct worker_pool *p);

enum patch_outcome { PATCH_APPLIED, PATCH_EMPTY, PATCH_FAILED, PATCH_UNREADABLE };
struct patch_answer {
    enum patch_outcome outcome;
    char tree[41];              /* PATCH_APPLIED: git tree id (hex) with hidden tests and protected paths on top */
    int  edits_fd;              /* PATCH_APPLIED: sealed memfd (repos/edits.h), owned by the receiver; else -1 */
    const char *reason;         /* file, hunk, line; "" when applied. Valid during the callback */
    struct str_list findings;   /* remarks: dropped binary section, offset used, ... Valid during the callback */
};
/* rc < 0: our own failure, nothing is known about the patch. */
typedef void (*patch_cb)(void *arg, int rc, struct patch_answer *ans, const struct err *err);
/* Merge `patch` into the task's base tree, then force test_patch's files on top. Bytes are copied. */
MUST_CHECK int worker_patch(struct worker_pool *p, const struct task *task, const void *patch, size_t patch_len,
                            patch_cb cb, void *arg, struct err *err);

struct report_answer { struct report report; bool unreadable; };  /* valid during the callback: copy what stays */
typedef void (*report_cb)(void *arg, int rc, struct report_answer *ans, const struct err *err);
/* Read a finished run. report_fd may be -1; descriptors are borrowed for the call. */
MUST_CHECK int worker_report(struct worker_pool *p, const struct task *task, int report_fd, int output_fd,
                             const struct run_facts *run, report_cb cb, void *arg, struct err *err);
/*
 * How a task's command must be run so that its reader gets a structured report from outside the tree:
 * environment entries (e.g. PYTEST_ADDOPTS=--junitxml=... for pytest), in `a`, NULL-terminated.
 */
MUST_CHECK int reader_environment(const char *const **out, struct arena *a, const struct task *task,
                                  struct err *err);
