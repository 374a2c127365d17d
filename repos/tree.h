/*
 * tree.h - a git tree in memory: read lazily from an object store, changed without writing to it.
 *
 * Directories are parsed when a path first leads through them; files stay ids until somebody reads
 * them. Changes live in the arena, so a tree that turns out wrong is just forgotten: all or nothing
 * costs nothing. The id of the changed tree is computed in memory.
 *
 * Paths are relative, '/'-separated and checked with tree_path_fault() by whoever takes them from outside.
 */
#pragma once
#include "base/arena.h"
#include "base/err.h"
#include <git2.h>

#define TREE_PATH_MAX  4095
#define TREE_DEPTH_MAX 128

enum entry_kind { ENTRY_NONE, ENTRY_FILE, ENTRY_LINK, ENTRY_DIR, ENTRY_SUBMODULE };
struct entry {
    enum entry_kind kind;
    bool        executable;
    bool        fresh;          /* put by us; bytes are there */
    git_oid     id;             /* of the stored object; of a fresh one only after tree_entry_id() */
    const void *bytes;          /* content or link target; NULL until tree_read() */
    size_t      size;
    /* ENTRY_NONE because a parent is a file, a link or a submodule: which one. Else NULL. */
    const char     *blocked_by;
    enum entry_kind blocked_kind;
};

struct tree;
/* The tree `root` of `odb`; both are borrowed for the tree's life, which is the arena's. */
MUST_CHECK int tree_open(struct tree **out, struct arena *a, git_odb *odb, const git_oid *root, struct err *err);
/* What lies at path; ENTRY_NONE when nothing does. */
MUST_CHECK int tree_look(struct tree *t, struct entry *out, const char *path, struct err *err);
/* Bring a file's or link's bytes in. ERR_LIMIT above size_max. */
MUST_CHECK int tree_read(struct tree *t, struct entry *e, size_t size_max, struct err *err);
/* Bytes are borrowed for the arena's life. Whatever stands at the path is replaced, parents that are no directories too. */
MUST_CHECK int tree_put(struct tree *t, const char *path, enum entry_kind kind, bool executable, const void *bytes, size_t n,
                        struct err *err);
/* As tree_put, with an object that the odb holds already. */
MUST_CHECK int tree_put_id(struct tree *t, const char *path, const struct entry *e, struct err *err);
/* Remove a file, link, submodule or whole directory; parents left empty go too. Nothing there: nothing done. */
MUST_CHECK int tree_delete(struct tree *t, const char *path, struct err *err);
MUST_CHECK int tree_id(struct tree *t, git_oid *out, struct err *err);

/* Called for every leaf below the directory `below` ("": all) in path order; `path` is whole and valid for
 * the call. Negative ends the walk with that value. */
typedef int (*tree_leaf_fn)(const char *path, const struct entry *e, void *arg, struct err *err);
MUST_CHECK int tree_walk(struct tree *t, const char *below, tree_leaf_fn fn, void *arg, struct err *err);
/* Leaves that differ between two trees over one odb: `was` or `is` may be ENTRY_NONE. Equal directories are not entered. */
typedef int (*tree_diff_fn)(const char *path, const struct entry *was, const struct entry *is, void *arg, struct err *err);
MUST_CHECK int tree_diff(struct tree *was, struct tree *is, tree_diff_fn fn, void *arg, struct err *err);
/* Write every object of the tree to `to`, children first. Objects that are there already are not written again. */
MUST_CHECK int tree_store(struct tree *t, git_odb *to, struct err *err);

/* Why a path may not be used ("holds \"..\""), or NULL when it may. */
const char *tree_path_fault(const char *path, size_t n);
/* libgit2's last message as an error of ours. */
int git_err(struct err *err, int code, const char *what);
