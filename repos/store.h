/* store.h - the store's inside, for the other files of this room. */
#pragma once
#include "repos/repos.h"
#include <git2.h>

git_odb *store_odb(const struct store *s);      /* borrowed until store_close() */
/* libgit2 for this process: no configuration of the machine is read, no owner is checked. Once per user; never shut down. */
MUST_CHECK int store_git_init(struct err *err);
/*
 * Open the repository that repos_dir/name is, or lies in. The path may not leave repos_dir: "..", absolute names and links out
 * are ERR_BAD_INPUT. *out_prefix (arena) is the path inside the repository, "" at its root.
 */
MUST_CHECK int store_source_open(git_repository **out, const char **out_prefix, struct arena *a, const char *repos_dir,
                                 const char *name, struct err *err);

/*
 * merge.c: do the task's own patches apply to base_hex? ERR_BAD_INPUT when test_patch does not;
 * *out_fix_fault (arena) says why the true fix does not, or is NULL.
 */
MUST_CHECK int merge_check(const char **out_fix_fault, struct arena *a, const struct store *s, const struct task *t,
                           const char *base_hex, struct err *err);

/* The time of all that a tree holds, as files and as an image: 1 Jan 2000, as zip and old tools want a year after 1980. */
#define TREE_TIME 946684800

/* materialise.c: write the tree as files into trees_fd/<hex>; one that is there already is left alone. */
MUST_CHECK int materialise(int trees_fd, const char *hex, git_odb *odb, struct arena *a, struct err *err);
/* Remove what killed imports left in trees_fd. */
void materialise_clean(int trees_fd);
