/*
 * repos.h - the door to tasks and snapshots: a catalog, a store of trees, patches onto trees.
 *
 * A store is a directory: catalog.db (SQLite), objects.git (bare git object store: trees and blobs, no refs),
 * trees/<tree hex>/ (materialised read-only trees, the lower layers of sandboxes; made aside, renamed in).
 * Import writes; everything else opens read-only and may do so from many processes at once.
 *
 * Threads: a handle belongs to one thread at a time.
 */
#pragma once
#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "repos/task.h"

/* --- tasks as text: task.c --- */
/* One JSONL record (a line without its newline). Every wrong field is named; unknown ones go to extra_json. */
MUST_CHECK int task_read_json(struct task *out, struct arena *a, const char *json, size_t n, struct err *err);
MUST_CHECK int task_write_json(struct buf *out, const struct task *t, struct err *err);    /* no newline */
/*
 * How the task's runs begin: fills t->argv and t->warm, in `a`. Both stay empty where a shell must run the command, or where no
 * warm process is declared: by the field "warm" ([] for none) among extra_json, or, where that is absent, by a command that
 * begins with python3 -m pytest or pytest.
 */
MUST_CHECK int task_warm(struct task *t, struct arena *a, struct err *err);

/*
 * Fills t->language, in `a`: the field "language" among extra_json in lower case, or, where that is absent, by the endings of the
 * files that its patch changes: that of the most; "" when none is known.
 */
MUST_CHECK int task_language(struct task *t, struct arena *a, struct err *err);

/* --- catalog: catalog.c, catalog_row.c, catalog_list.c --- */
struct catalog;
/* `writable` creates, and migrates an older catalog in one transaction. ERR_UNSUPPORTED: it is newer, or older and not writable. */
MUST_CHECK int  catalog_open(struct catalog **out, const char *store_dir, bool writable, struct err *err);
void catalog_close(struct catalog *c);
enum catalog_put { CATALOG_ADDED, CATALOG_UNCHANGED, CATALOG_REPLACED };
/* A new task is TASK_IMPORTED; so is a replaced one again when its definition is another one. */
MUST_CHECK int catalog_put(struct catalog *c, const struct task *t, enum catalog_put *out, struct err *err);
MUST_CHECK int catalog_begin(struct catalog *c, struct err *err);       /* batch of puts: one transaction */
MUST_CHECK int catalog_commit(struct catalog *c, struct err *err);
/* Is there a task of this id and just this record? What the store adds at import (base tree, digests) is not looked at. */
MUST_CHECK int catalog_has(struct catalog *c, bool *out, const struct task *t, struct err *err);
/* Take what was put since the last call into the text index; until then no search finds it. Transactions of its own. */
MUST_CHECK int catalog_index(struct catalog *c, struct err *err);
MUST_CHECK int catalog_set_state(struct catalog *c, const char *id, enum task_state state, struct err *err);
MUST_CHECK int catalog_set_language(struct catalog *c, const char *id, const char *language, struct err *err);
MUST_CHECK int catalog_get(struct catalog *c, struct task *out, struct arena *a, const char *id, struct err *err);  /* ERR_NOT_FOUND names near ids */
/* NULL or "" = any. `text`: words that must all be in id, repo or problem statement; `word*` is a beginning. ASCII case is not counted. */
struct catalog_filter { const char *repo, *prefix, *split, *language, *state, *text; };
/*
 * Up to `limit` tasks after the one with id `after`, long texts left "". In id order; with text, or with state, split or language but
 * neither repo nor prefix, in the order in which they came in. A page may be short, even empty, and not the last: *out_next is ""
 * at the end and nowhere else.
 */
MUST_CHECK int catalog_list(struct catalog *c, struct task **out, uint32_t *out_count, const char **out_next, struct arena *a,
                            const char *after, const struct catalog_filter *f, uint32_t limit, struct err *err);
/*
 * Twins have the same base tree, required tests and hidden tests. The first of t's that is not t itself, or NULL where t is the
 * first; among what catalog_index() has taken in.
 */
MUST_CHECK int catalog_twin(struct catalog *c, const char **out, struct arena *a, const struct task *t, struct err *err);
/* Groups of them, after the key `after`; *out_next as above. */
struct catalog_twins { struct str_list ids; uint64_t count; };          /* of many, only the first are named */
MUST_CHECK int catalog_duplicates(struct catalog *c, struct catalog_twins **out, uint32_t *out_count, const char **out_next,
                                  struct arena *a, const char *after, uint32_t limit, struct err *err);

/* --- store: store.c --- */
struct store;
MUST_CHECK int  store_open(struct store **out, const char *store_dir, bool writable, struct err *err);
void store_close(struct store *s);
/* Bring the task's base tree in from repos_dir/<task->repo>: fills base_tree, snapshot, definition. Notes (e.g. "1 uncommitted
 * change taken as set-up layer") go to *notes. Materialises trees/<hex>. ERR_BAD_INPUT names the task and what is missing. */
MUST_CHECK int store_import(struct store *s, struct arena *a, struct task *t, const char *repos_dir, struct str_list *notes, struct err *err);
/* O_PATH directory of the materialised tree, owned by the caller. ERR_NOT_FOUND / ERR_CORRUPT. */
MUST_CHECK int store_tree_fd(const struct store *s, const char *tree_hex, struct err *err);

/* --- patches: patch.c, merge.c (used by workers only: they parse foreign bytes) --- */
enum merge_outcome { MERGE_APPLIED, MERGE_EMPTY, MERGE_FAILED };
struct merge {
    enum merge_outcome outcome;
    char tree[41];              /* MERGE_APPLIED: id of base + patch + hidden tests */
    struct buf edits;           /* MERGE_APPLIED or MERGE_EMPTY: repos/edits.h relative to the base tree; owned, buf_done() */
    const char *reason;         /* MERGE_FAILED: "path/file.py:118: hunk 3 does not match" in the arena; else "" */
    struct str_list findings;
};
/* REWARD.md, Patches and Order of things. Never writes to the store. rc < 0: our own failure. */
MUST_CHECK int merge_task_patch(struct merge *out, struct arena *a, const struct store *s, const struct task *t,
                                const void *patch, size_t n, struct err *err);

/* --- mining: mine.c --- */
/* Does this path belong to the tests, by the conventions of the common runners? */
bool path_is_test(const char *path);
/* Split base..head of the repository at repo_dir into a source change and a test change (unified diffs, git format). */
struct change_split { const char *base_commit, *patch, *test_patch; struct str_list test_files, source_files; };
MUST_CHECK int mine_split(struct change_split *out, struct arena *a, const char *repo_dir, const char *base_rev,
                          const char *head_rev, struct err *err);
