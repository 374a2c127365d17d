/*
 * worker_wire.h - what assayd's worker pool and assay-worker say to each other.
 *
 * One SOCK_SEQPACKET socket per worker; fixed structs (base/frame.h), all lengths in sealed memfds beside them.
 *
 *   worker -> pool   hello, once, after it has confined itself: its layout must be ours, else the pool refuses it
 *   pool -> worker   request PATCH   fds: task record, patch
 *                    request REPORT  fds: task record with run facts, output [, report files]
 *   worker -> pool   answer, to each request in turn  fds: body (wire_* below) [, edits]
 *
 * Both sides are one build; the pool still checks every length of an answer, because by the time it answers a worker
 * has parsed foreign bytes and may be theirs.
 */
#pragma once
#include "base/buf.h"
#include "rollout/report.h"
#include "rollout/verdict.h"
#include <stdint.h>

#define WORKER_FD 3                         /* the worker's end of its socket */
#define WORKER_MAGIC 0x524b5741u            /* "AWKR" */
#define WORKER_VERSION 1u
#define WORKER_BODY_MAX ((size_t)64 << 20)  /* task records and answer bodies */
#define WORKER_PATCH_MAX ((size_t)16 << 20)
#define WORKER_INPUT_MAX ((size_t)32 << 20) /* report files, output */
#define WORKER_EDITS_MAX ((uint64_t)256 << 20)
#define WORKER_JOB_CPU_S 20                 /* CPU seconds for one job: beyond it the bytes are at fault, as in a crash */

enum { WORKER_CONFINED_UID = 1, WORKER_CONFINED_LANDLOCK = 2, WORKER_CONFINED_SECCOMP = 4, WORKER_CONFINED_RLIMITS = 8 };

struct worker_hello {
    uint32_t magic, layout;
    int32_t  rc;                            /* 0, or why it cannot work */
    uint32_t confined;                      /* WORKER_CONFINED_* */
    char     message[256];
};

enum worker_kind { WORKER_PATCH = 1, WORKER_REPORT = 2 };
struct worker_request { uint32_t kind, has_report; uint64_t job; };

struct worker_answer {
    uint32_t kind;
    int32_t  rc;                            /* < 0: our own failure, text in message */
    uint64_t job;
    uint32_t outcome;                       /* enum patch_outcome */
    uint32_t unreadable, has_body, has_edits;
    char     tree[48];
    char     message[256];
};

/* Changes when a struct or the body format does. */
#define WORKER_LAYOUT ((uint32_t)(WORKER_VERSION * 1000003u + sizeof(struct worker_hello) * 10007u + \
                       sizeof(struct worker_request) * 257u + sizeof(struct worker_answer)))

/* --- bodies: worker_wire.c --- */
MUST_CHECK int wire_put_task(struct buf *out, const struct task *t, struct err *err);
MUST_CHECK int wire_put_run(struct buf *out, const struct run_facts *r, struct err *err);
MUST_CHECK int wire_put_report(struct buf *out, const struct report *r, struct err *err);
MUST_CHECK int wire_put_patch(struct buf *out, const char *reason, const struct str_list *findings, struct err *err);

/* Reading: everything is copied into `a`. Any length that does not fit is ERR_PROTOCOL. */
struct wire_in { const uint8_t *at, *end; struct arena *a; bool bad; };
MUST_CHECK int wire_get_task(struct wire_in *in, struct task *out, struct err *err);
MUST_CHECK int wire_get_run(struct wire_in *in, struct run_facts *out, struct err *err);
MUST_CHECK int wire_get_report(struct wire_in *in, struct report *out, struct err *err);
MUST_CHECK int wire_get_patch(struct wire_in *in, const char **reason, struct str_list *findings, struct err *err);
