/*
 * image.h - an immutable file tree, and the erofs image that shows it.
 *
 * Theory: a tree is two things. What its files hold lies in data files (data.h), each content once for a family of trees (a
 * repository with all its revisions, an environment), and zeros behind its end to the next block. How it is named, owned and
 * ordered is an erofs image of a few bytes a file, whose files are extents of those data files ("devices" to erofs, mounted
 * from the files themselves). So one more revision of a known repository costs its changed contents and an image, and to mount
 * it nothing is unpacked.
 *
 * An image is a function of the tree and of where the contents lie: the same tree over the same data gives the same bytes.
 * Format: the kernel's Documentation/filesystems/erofs.rst and fs/erofs/erofs_fs.h (device table, 4 KiB blocks, no
 * compression; flat files, chunk-based ones above 8 TiB of data). Linux 5.16 and newer; from files, without loop devices, 6.12.
 */
#pragma once
#include "base/err.h"
#include <stdint.h>

#define IMAGE_BLOCK 4096u
#define IMAGE_NAME_MAX 255u
#define IMAGE_DATA_MAX 64u              /* data files of one image */

enum image_kind { IMAGE_FILE, IMAGE_DIR, IMAGE_LINK };

struct image_xattr { const char *name; const void *value; uint32_t size; };     /* name with its prefix: "user.x" */

struct image_node {
    enum image_kind kind;
    uint32_t mode;                      /* permission bits, 07777 */
    uint32_t uid, gid;
    int64_t  mtime_s;
    uint32_t mtime_ns;
    const struct image_xattr *xattrs;   /* sorted by name */
    uint32_t xattr_count;
    uint64_t size;                      /* file: bytes */
    uint32_t data;                      /* file with bytes: in which data file of the image they lie, from where on */
    uint64_t offset;                    /* multiple of IMAGE_BLOCK */
    const char *target;                 /* link */
    struct image_entry *entries;        /* directory: sorted by the bytes of their names */
    uint32_t entry_count;
    uint64_t number;                    /* image_write()'s own */
};
/* The same node may stand under several names: hard links. A directory stands under one. Names are 1 to 255 bytes, without '/'
 * and NUL, not "." or "..". */
struct image_entry { const char *name; struct image_node *node; };

/* Write the image of `root` to empty file `fd`. data_blocks[i]: length of data file i in blocks, as far as the image may refer
 * to it. Errors: ERR_BAD_INPUT names the path and what is wrong with it; ERR_LIMIT; ERR_SYS. */
MUST_CHECK int image_write(int fd, struct image_node *root, const uint64_t *data_blocks, uint32_t data_count, struct err *err);
