/* eval.h - what `eval`, `mine` and `replay` share: one patch through the server. */
#pragma once
#include "rollout/cli/cli.h"
#include "rollout/cli/view.h"

#define PATCH_MAX ((size_t)1 << 20)     /* the server's limit */

/* Fills a missing request id. The answer lies in the command's arena. */
MUST_CHECK int evaluate_patch(struct cli *c, struct evaluate_ask *q, struct evaluate_view *out, struct err *err);
MUST_CHECK int fetch_task(struct cli *c, const char *id, bool with_fix, struct task *out, struct err *err);
/* An episode id, or a cursor: the whole trajectory. */
MUST_CHECK int fetch_trajectory(struct cli *c, const char *name, struct trajectory_view *out, struct err *err);
/* The exit status that a verdict stands for: 0 when something was learnt about the patch. */
int verdict_exit_status(const struct verdict_view *v);
/* What is wrong with a record, without the "task ID: " that names it where it stands alone. */
const char *record_fault(const char *message, const char *id);
/* Bring one task in; its failure becomes the error. */
MUST_CHECK int import_task(struct cli *c, const struct task *t, const char *repos_dir, struct err *err);
