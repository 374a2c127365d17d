/*
 * archive.h - tar layers (OCI image-spec, layer.md), one on top of the other, as a file tree in memory.
 *
 * Theory: nothing is unpacked. A layer's entries change names in a tree (image.h); what files hold streams to a sink, which says
 * where it lies. So there is no file system that an entry could escape into: a path, a symbolic link or a hard link only ever
 * names something of the tree, and what is left to refuse is what would mean something else once the tree is mounted.
 *
 * Names and links are read as containerd and umoci read them, where those two agree:
 * - "./a", "a//b" and "a/../b" are cleaned as text first. A name that is absolute or leaves the root so is refused.
 * - Symbolic links among a name's parents are followed inside the tree ("/" and ".." at the root are the root), as both do
 *   (fs.RootPath, securejoin): on a system whose /lib is a link, a later layer's lib/x belongs in usr/lib. The last component is
 *   never followed. Parents that no entry stated are made, 0755 root:root at time 0.
 * - A whiteout hides what lower layers brought, never what its own layer does, whatever the order (layer.md, Whiteouts). So its
 *   path does not go through links of its own layer (umoci's does, containerd's too: there the order of entries decides).
 * - ".wh..wh.*" other than the opaque mark are what AUFS kept for itself, and are skipped.
 * - What has no place in a tree (devices, FIFOs) is refused, and so is a character device 0:0: overlayfs reads one as a whiteout,
 *   a layer must say it by name.
 * Extended attributes: user.*, security.capability and the POSIX ACLs are kept. The others are the unpacking machine's (SELinux,
 * IMA) or speak to overlayfs (trusted.*, user.overlay.*: a layer could redirect names of the layers below); they are dropped.
 *
 * A layer that fails leaves the tree good for nothing but archive_tree_close().
 */
#pragma once
#include "base/arena.h"
#include "repos/image.h"
#include "repos/tar.h"

#define ARCHIVE_DEPTH_MAX 128u
#define ARCHIVE_PATH_MAX  4095u         /* what a kernel takes at once */

/* What all layers of one tree may come to. */
struct archive_limits {
    uint64_t entries;                   /* entries of archives, also those that later ones replace */
    uint64_t file_bytes;                /* one file, holes counted */
    uint64_t bytes;                     /* all layers decompressed, holes counted */
    uint64_t ratio;                     /* of a layer's decompressed bytes to its compressed ones, above TAR_RATIO_FLOOR */
};
/* The largest public task environments are 30 GB and a million files. Zeros compress 1000 times, whole layers 2 to 10 times. */
#define ARCHIVE_LIMITS { .entries = 4000000, .file_bytes = (uint64_t)32 << 30, .bytes = (uint64_t)128 << 30, .ratio = 200 }

/* Where contents go: one file at a time, piece by piece, never an empty one; also of files that later entries replace. */
struct archive_sink {
    int (*put)(void *arg, const void *bytes, uint64_t n, struct err *err);      /* the next n bytes; NULL: n zeros (a hole) */
    int (*end)(void *arg, uint32_t *out_data, uint64_t *out_offset, struct err *err);   /* it is whole: where it lies, as in image.h */
    void *arg;
};

struct archive_tree;
/* An empty tree in `a`. The sink's arg and the arena are borrowed until archive_tree_close(). */
MUST_CHECK int archive_tree_open(struct archive_tree **out, struct arena *a, const struct archive_limits *limits,
                            const struct archive_sink *sink, struct err *err);
/*
 * One more layer: tar (ustar, PAX, GNU), plain or in gzip, xz or zstd, told apart by its first bytes. The source is read to its
 * end. *out_diff_id: digest of the tar without its compression, as image configs have it.
 * Errors: ERR_BAD_INPUT and ERR_LIMIT name the entry; those of source and sink as they are.
 */
MUST_CHECK int archive_tree_apply(struct archive_tree *t, const struct tar_source *source, struct digest *out_diff_id, struct err *err);
/* The tree, in the arena: it stays when the archive is closed. */
MUST_CHECK int archive_tree_finish(struct archive_tree *t, struct image_node **out, struct err *err);
uint64_t archive_tree_entries(const struct archive_tree *t);
uint64_t archive_tree_xattrs_dropped(const struct archive_tree *t);
void archive_tree_close(struct archive_tree *t);  /* NULL is fine */

/* A path of an archive without ".", ".." and needless '/', as text, into ARCHIVE_PATH_MAX + 1 bytes; "" is the root. ERR_BAD_INPUT: it
 * is absolute, leaves the root, or is beyond a limit. */
MUST_CHECK int archive_path_clean(char *out, const char *path, struct err *err);
