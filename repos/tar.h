/*
 * tar.h - one tar stream, decompressed, counted and digested on its way to libarchive's reader.
 *
 * Theory: two libarchive readers, one behind the other. The first knows one compression, chosen here by the first bytes, and no
 * format; the second knows tar and no compression. So a layer is decompressed once, never again because its content looks
 * compressed too, no other of libarchive's formats is reachable from outside, and between the two pass exactly the bytes whose
 * digest an image config states and whose number a bomb must raise.
 */
#pragma once
#include "base/digest.h"

/* Where an archive comes from. *out_n 0: its end. The bytes are borrowed until the next read. The first read brings 6 bytes or
 * more, where the source has that many. */
struct tar_source {
    int (*read)(void *arg, const void **out, size_t *out_n, struct err *err);
    void *arg;
};

/* Zeros compress 1000 times, layers of programs and sources 2 to 10 times; small ones may be anything. */
#define TAR_RATIO_FLOOR ((uint64_t)64 << 20)

struct archive_entry;           /* libarchive's */
struct tar;

/* bytes_max: decompressed; ratio_max: of decompressed to compressed bytes, above TAR_RATIO_FLOOR. The source is borrowed until
 * tar_close(). */
MUST_CHECK int tar_open(struct tar **out, const struct tar_source *source, uint64_t bytes_max, uint64_t ratio_max, struct err *err);
/* 1 and the next header, valid until the next call; 0 at the end. Names come as their bytes, whatever the locale. */
MUST_CHECK int tar_next(struct tar *t, struct archive_entry **out, struct err *err);
/* 1 and the next bytes of the entry, which stand at *out_offset of it (what is skipped is a hole); 0 at its end. */
MUST_CHECK int tar_read(struct tar *t, const void **out, size_t *out_n, uint64_t *out_offset, struct err *err);
/* Count n more bytes as if the archive had held them: holes are written out by whoever reads the tree. */
MUST_CHECK int tar_count(struct tar *t, uint64_t n, struct err *err);
/* Read what is behind the last entry to the source's end; the digest of all decompressed bytes, and their number. */
MUST_CHECK int tar_finish(struct tar *t, struct digest *out, uint64_t *out_bytes, struct err *err);
void tar_close(struct tar *t);  /* NULL is fine */
