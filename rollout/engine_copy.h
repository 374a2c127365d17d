/*
 * engine_copy.h - private to engine.c: deep copies of what comes through its door into an episode's arena.
 * Each fails with ERR_LIMIT when the arena's budget is out.
 */
#pragma once
#include "rollout/engine.h"

/* What engine_copy_request() takes from an arena at most. */
size_t engine_request_bytes(const struct evaluate_request *r);
MUST_CHECK int engine_copy_request(struct evaluate_request *out, struct arena *a, const struct evaluate_request *r,
                                   struct err *err);
MUST_CHECK int engine_copy_task(const struct task **out, struct arena *a, const struct task *t, struct err *err);
MUST_CHECK int engine_copy_patch(const char **out_reason, struct str_list *out_findings, struct arena *a,
                                 const struct patch_answer *p, struct err *err);
MUST_CHECK int engine_copy_report(const struct report **out, struct arena *a, const struct report *r, struct err *err);
