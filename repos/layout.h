/*
 * layout.h - the files of an image by name, in a directory or in a tar of one.
 *
 * A tar is read once for the places of its members; then its files are pieces of it, in any order and without a copy. That
 * needs a plain tar: a compressed one is refused with the command that makes it plain.
 */
#pragma once
#include "base/err.h"
#include <stdint.h>

struct layout;
struct layout_file {
    int      fd;                        /* owned: layout_file_done(); -1: closed */
    uint64_t at, left;                  /* of the file's bytes in fd */
    uint64_t size;
};

MUST_CHECK int layout_open(struct layout **out, const char *path, struct err *err);
/* A regular file by its path in the layout. In a directory no symbolic link is followed; in a tar those of its members are, as old
 * `docker save` has them. Of two members of one name the last counts. ERR_NOT_FOUND names it. */
MUST_CHECK int layout_file_open(struct layout *l, struct layout_file *out, const char *name, struct err *err);
/* Up to `max` bytes into `buf`; *out_n 0 at the end. ERR_BAD_INPUT when the file is shorter than it was. */
MUST_CHECK int layout_file_read(struct layout_file *f, void *buf, size_t max, size_t *out_n, struct err *err);
void layout_file_done(struct layout_file *f);
#define own_layout_file __attribute__((cleanup(layout_file_done))) struct layout_file
void layout_close(struct layout *l);    /* NULL is fine */
