/*
 * image_git.h - a git tree as an image: the same names, modes and times that materialise() gives the tree as files, all owned
 * by root. Submodules are empty directories.
 */
#pragma once
#include "base/arena.h"
#include "repos/data.h"
#include "repos/image.h"
#include <git2.h>

/* The tree's nodes (arena), its contents put into `d`, where a batch must be under way. *out_blocks: how far they reach, for
 * image_write(). Blobs that `d` knows by their ids are not read. */
MUST_CHECK int image_git_nodes(struct image_node **out, uint64_t *out_blocks, struct arena *a, git_odb *odb, const git_oid *tree,
                               struct data *d, struct err *err);
/*
 * Bring the tree in: contents into `d` by a batch of its own, then the image, whose one device is that data file, as
 * <digest of the image>.erofs into directory images_fd: a name that is there has all its bytes, and theirs.
 */
MUST_CHECK int image_git_import(struct digest *out, int images_fd, git_odb *odb, const git_oid *tree, struct data *d,
                                struct err *err);
