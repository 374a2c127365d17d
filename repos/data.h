/*
 * data.h - a data file: what the files of many trees hold, each content once.
 *
 * Theory: directory DIR has, for each family of trees (a repository, an environment), NAME.data and NAME.index. The data file is
 * contents one behind the other, each from a block on, zeros between them: what images (image.h) refer to and the kernel reads.
 * The index (SQLite) has a row for each: digest, place, size, and the names it goes by elsewhere (a git object's id), so that
 * what is known is not read again. Bytes that have a row never change or move.
 *
 * Why an index of its own for each: the two go, are copied and are lost together; importers of different families share no lock;
 * the catalog, which everybody reads, does not grow by ten rows a file. Contents that two families share lie in both, and in
 * return an image needs one data file for each family and not for each project that had a file first.
 *
 * Order: bytes, fdatasync, commit of the rows. So a crash at any point leaves rows whose bytes are there, and perhaps bytes
 * without rows behind the last one, which the next batch cuts off. A batch locks the data file: of two importers the second
 * waits, and a killed one holds nobody up.
 *
 * Threads: a handle belongs to one thread at a time.
 */
#pragma once
#include "base/digest.h"

#define DATA_BLOCK 4096u
#define DATA_NAME_MAX 200u
#define DATA_ALIAS_MAX 64u

struct data;
struct data_place { uint64_t offset, size; };       /* offset: multiple of DATA_BLOCK; both 0 for no bytes */

/* Names: 1 to DATA_NAME_MAX of A-Z a-z 0-9 . _ - and no '.' in front. Writable makes what is missing, DIR too.
 * ERR_NOT_FOUND, ERR_CORRUPT when the data file is shorter than its index says. */
MUST_CHECK int  data_open(struct data **out, const char *dir, const char *name, bool writable, struct err *err);
void data_close(struct data *d);                    /* a batch under way is dropped; NULL is fine */
int  data_fd(const struct data *d);                 /* borrowed until data_close() */
const char *data_path(const struct data *d);        /* of the data file; as fd */

/* A batch. After a failed put it can only be dropped. */
MUST_CHECK int  data_begin(struct data *d, struct err *err);
MUST_CHECK int  data_put(struct data *d, struct data_place *out, const void *bytes, size_t n, struct err *err);
/* The whole of a regular file. ERR_CORRUPT when it changes meanwhile. */
MUST_CHECK int  data_put_fd(struct data *d, struct data_place *out, int fd, struct err *err);
/* The content at a place got in this batch or before has this name too. */
MUST_CHECK int  data_put_alias(struct data *d, const void *alias, size_t n, const struct data_place *place, struct err *err);
MUST_CHECK int  data_commit(struct data *d, struct err *err);
void data_drop(struct data *d);

/* ERR_NOT_FOUND comes without text: it is the common answer to a new file. */
MUST_CHECK int  data_find(struct data *d, struct data_place *out, const struct digest *digest, struct err *err);
MUST_CHECK int  data_find_alias(struct data *d, struct data_place *out, const void *alias, size_t n, struct err *err);

/* Read contents back and compare them with their digests: one, or all. ERR_CORRUPT names the first that differs and how many do.
 * Clean pages are dropped first, so that the disk answers. *out_count: contents read, also on ERR_CORRUPT. */
MUST_CHECK int  data_verify(struct data *d, const struct digest *digest, struct err *err);
MUST_CHECK int  data_verify_all(struct data *d, uint64_t *out_count, struct err *err);
