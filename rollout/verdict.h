/*
 * verdict.h - what an evaluation came to, and the reward it is worth. Pure: no syscalls, no clock.
 *
 * A missing reward is not a number: `has_reward` stands beside `reward`, and our own failure never
 * has one (invariant I4).
 */
#pragma once
#include "base/arena.h"
#include "base/err.h"
#include "repos/task.h"
#include <stdint.h>

enum test_status {
    TEST_PASSED, TEST_FAILED, TEST_ERROR, TEST_SKIPPED, TEST_XFAIL, TEST_XPASS, TEST_MISSING, TEST_FLAKY,
    TEST_STATUS_COUNT
};
const char *test_status_name(enum test_status s);       /* "PASSED" ... never NULL */
enum test_status test_status_worse(enum test_status a, enum test_status b); /* what two results for one id come to */

struct test_result {
    const char *id;             /* exact, valid UTF-8 (foreign bytes that are not are escaped) */
    const char *message;        /* first line of the failure or "" */
    const char *evidence;       /* "report_file", "stdout" or "exit_status" */
    enum test_status status;
    bool   required;
    double duration_s;
};

enum outcome {
    OUTCOME_RESOLVED, OUTCOME_UNRESOLVED, OUTCOME_PATCH_FAILED, OUTCOME_PATCH_EMPTY, OUTCOME_TIME_LIMIT,
    OUTCOME_MEMORY_LIMIT, OUTCOME_OUTPUT_LIMIT, OUTCOME_PIDS_LIMIT, OUTCOME_DISK_LIMIT, OUTCOME_UNREADABLE,
    OUTCOME_NO_TESTS_RAN, OUTCOME_TASK_INVALID, OUTCOME_TAMPERED, OUTCOME_INFRA_ERROR, OUTCOME_CANCELLED,
    OUTCOME_COUNT
};
const char *outcome_name(enum outcome o);               /* "resolved" ... never NULL */
bool outcome_has_reward(enum outcome o);                /* false: task_invalid, infra_error, cancelled */
bool outcome_maskable(enum outcome o);                  /* limits and no_tests_ran */

/* What a reader made of one run's report and output. Plain data in the caller's arena. */
struct report {
    const char *reader;             /* "pytest/1", "tap/1", "exit/1" */
    struct test_result *tests;      /* each id once: the worse of two results was kept */
    uint32_t test_count;
    bool complete;                  /* the framework ended in order: nothing was cut off */
    bool collected_nothing;         /* the reader proved that collection was empty */
    bool has_counts;                /* the framework's own summary was seen ... */
    uint32_t count_passed, count_failed, count_error, count_skipped;  /* ... and said this */
    const char *note;               /* one line on anything odd, or "" */
};

/* How the run ended, in this room's words (sandbox_result mapped by runner.c; no syscalls needed here). */
struct run_facts {
    const char *run_end;            /* "exit 0", "signal 9", "time_limit", ... */
    bool exited; int exit_code;     /* exited: the command ended by itself */
    uint32_t limits_hit;            /* SANDBOX_HIT_* bits */
    uint32_t ended_by_limit;        /* one SANDBOX_HIT_* bit, or 0 */
    uint64_t wall_ns, cpu_ns, memory_bytes_peak, output_bytes;
    const char *start;              /* sandbox_result.start; NULL is "" */
};

struct timings { uint64_t queue_ns, prepare_ns, slot_ns, run_ns, read_ns, total_ns; };

struct verdict {
    enum outcome outcome;
    bool   has_reward;
    double reward;
    const char *reason;             /* one line, never NULL */
    const char *patch_status;       /* "applied", "failed", "empty", "not_tried" */
    const char *run_end, *reader;
    const char *start;              /* how the run began: "warm", "cold: " and why, or "" */
    const char *fault;              /* with an absent reward: "worker_lost", "sandbox", "store", ...; else "" */
    bool retryable, cached, maskable;
    uint32_t attempts;
    uint32_t limits_hit;            /* SANDBOX_HIT_* bits */
    struct test_result *tests; uint32_t test_count;
    struct str_list findings;
    uint64_t memory_bytes_peak, cpu_ns, output_bytes;
    const uint8_t *output; uint32_t output_len;     /* head and tail, <= 64 KiB */
    uint8_t source_episode[16];     /* of a cached answer */
    struct timings timings;
};

/*
 * Judge one finished run (REWARD.md): required ids = fail_to_pass + pass_to_pass, an unseen one is MISSING;
 * exit status, report and counts must agree; XFAIL and SKIPPED never satisfy fail_to_pass; empty required
 * set: every test seen must pass and at least one must be seen. Strings are borrowed from inputs or
 * allocated in `a`. Timings, attempts, output and patch fields of *out are left to the caller.
 */
MUST_CHECK int verdict_judge(struct verdict *out, struct arena *a, const struct task *task,
                             const struct report *report, const struct run_facts *run, struct err *err);

/* A verdict reached without a run: patch_failed, patch_empty, unreadable, infra_error, cancelled. */
void verdict_without_run(struct verdict *out, enum outcome outcome, const char *reason, const char *fault);
/* Deep copy into `a`. */
MUST_CHECK int verdict_copy(struct verdict *out, struct arena *a, const struct verdict *v, struct err *err);
