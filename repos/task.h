/*
 * task.h - one task: a snapshot, a problem, a command and the ids that must pass.
 *
 * Plain data. Every pointer lies in the arena the task was read into and lives as long as it.
 */
#pragma once
#include "base/arena.h"
#include "base/digest.h"
#include "base/err.h"
#include <stdint.h>

struct str_list { const char **items; uint32_t count; };

/* What is known about a task; mining, validation and quarantine set it. */
enum task_state { TASK_IMPORTED, TASK_VALIDATED, TASK_QUARANTINED, TASK_REFUSED, TASK_STATE_COUNT };
extern const char *const task_state_names[TASK_STATE_COUNT];

struct task {
    const char *id;                 /* instance_id: 1..256 bytes, no control characters, no '/' at its ends */
    const char *repo;               /* name below the repos root at import */
    const char *base_commit;        /* 40 hex */
    const char *problem_statement;
    const char *patch;              /* true fix; "" when none. Never shown to a policy */
    const char *test_patch;         /* diff whose result is the hidden test overlay; "" when none */
    struct str_list fail_to_pass, pass_to_pass;
    const char *test_cmd;
    const char *reader;             /* "auto", "pytest", "tap", "exit" */
    const char *environment;        /* "host" or an image digest */
    const char *split;
    const char *profile;            /* of the sandbox: "strict" or "compatible" */
    double   timeout_s;
    uint64_t memory_mb;
    const char *extra_json;         /* unknown fields, one JSON object; "{}" when none */
    struct str_list argv, warm;     /* set by task_warm(): its command as words, and those of them that a warm process begins with */
    const char *language;           /* set by task_language(): "python", "c", ...; "" when not known */
    /* set at import */
    const char *state;              /* a name of enum task_state; the catalog's, not the record's */
    const char *base_tree;          /* 40 hex: git tree id of the base tree incl. set-up layer, in our object store */
    struct digest snapshot;         /* environment + base tree */
    struct digest definition;       /* everything a verdict depends on beside the patched tree */
};
