/*
 * choice.h - a task whose fix is one of a list: the policy's token chooses which.
 *
 * The task's extra JSON holds {"choice": {"prompt", "options", "prefix", "suffix"}}; the patch is
 * prefix + options[k] + suffix, a unified diff. The vocabulary is bytes and option tokens:
 *   0 .. 63     option k
 *   64 .. 319   byte b of the prompt is 64 + b
 *   320         beginning of sequence
 */
#pragma once
#include "base/arena.h"
#include <stdint.h>

enum { CHOICE_OPTIONS_MAX = 64, CHOICE_BYTE_FIRST = 64, CHOICE_BOS = 320, CHOICE_VOCAB = 321 };

struct choice {                         /* lies in the arena it was read into */
    uint32_t n_options;
    const char **options;               /* NUL-terminated, as are the others: JSON text has no NUL here */
    const char *prefix, *suffix;
    const uint32_t *prompt;             /* tokens, at most `context` of them */
    size_t n_prompt;
};

/* Returns 1 and *out, or 0 when the task has no "choice". A malformed one is ERR_BAD_INPUT naming the field. */
MUST_CHECK int choice_read(struct choice *out, struct arena *a, const char *extra_json, uint32_t context, struct err *err);
/* The patch of option k; NULL when the arena's budget is out. */
const char *choice_patch(const struct choice *c, uint32_t k, struct arena *a);
