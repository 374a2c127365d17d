/* tar.c - a tar stream through two libarchive readers. */
#include "repos/tar.h"
#include "base/fault.h"
#include "base/own.h"
#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <locale.h>
#include <string.h>

struct tar {
    struct tar_source source;
    const void *head;           /* the source's first piece, read to tell the compression */
    size_t   head_n;
    struct archive *unpack, *read;
    struct digest_ctx digest;
    uint64_t packed, bytes, counted;
    uint64_t bytes_max, ratio_max;
    locale_t c_locale;
    bool     ended;             /* the decompressor has no more */
    int      rc;                /* what ended the stream below libarchive, and why */
    struct err err;
};

static const struct { const char *magic; size_t n; int filter; const char *name; } packings[] = {
    { "\x1f\x8b", 2, ARCHIVE_FILTER_GZIP, "gzip" },                 /* RFC 1952 */
    { "\x28\xb5\x2f\xfd", 4, ARCHIVE_FILTER_ZSTD, "zstd" },         /* RFC 8878 */
    { "\xfd" "7zXZ", 6, ARCHIVE_FILTER_XZ, "xz" },                  /* with the NUL behind it; the .xz file format */
};

static int packing_of(const void *head, size_t n)
{
    for (size_t i = 0; i < sizeof packings / sizeof packings[0]; i++)
        if (n >= packings[i].n && memcmp(head, packings[i].magic, packings[i].n) == 0)
            return packings[i].filter;
    return ARCHIVE_FILTER_NONE;
}

static int limit_check(struct tar *t, struct err *err)
{
    uint64_t all = t->bytes + t->counted;
    if (all > t->bytes_max)
        return err_set(err, ERR_LIMIT, "more than %llu bytes decompressed", (unsigned long long)t->bytes_max);
    if (all > TAR_RATIO_FLOOR && all / t->ratio_max > t->packed)
        return err_set(err, ERR_LIMIT, "%llu bytes compressed hold more than %llu, over %llu times as many: a bomb",
                       (unsigned long long)t->packed, (unsigned long long)all, (unsigned long long)t->ratio_max);
    return 0;
}

static la_ssize_t packed_read(struct archive *a, void *arg, const void **out)
{
    struct tar *t = arg;
    size_t n = t->head_n;
    *out = t->head;
    t->head_n = 0;
    if (n == 0 && t->rc == 0)
        t->rc = t->source.read(t->source.arg, out, &n, &t->err);
    if (t->rc < 0) {
        archive_set_error(a, EIO, "source");
        return -1;
    }
    t->packed += n;
    return (la_ssize_t)n;
}

/* Decompressed bytes on their way to the tar reader. */
static la_ssize_t plain_read(struct archive *a, void *arg, const void **out)
{
    struct tar *t = arg;
    size_t n = 0;
    la_int64_t offset;
    int r = t->ended ? ARCHIVE_EOF : archive_read_data_block(t->unpack, out, &n, &offset);
    if (t->rc == 0 && r != ARCHIVE_OK && r != ARCHIVE_EOF)
        t->rc = err_set(&t->err, ERR_BAD_INPUT, "truncated or damaged: %s", archive_error_string(t->unpack));
    if (r == ARCHIVE_EOF) {
        t->ended = true;
        n = 0;
    }
    t->bytes += n;
    if (t->rc == 0)
        t->rc = limit_check(t, &t->err);
    if (t->rc < 0) {
        archive_set_error(a, EIO, "source");
        return -1;
    }
    if (n > 0)
        digest_add(&t->digest, *out, n);
    return (la_ssize_t)n;
}

static int broken(struct tar *t, struct archive *a, struct err *err)
{
    if (t->rc < 0) {
        *err = t->err;
        return t->rc;
    }
    const char *why = archive_error_string(a);
    return err_set(err, ERR_BAD_INPUT, "truncated or damaged: %s", why != NULL ? why : "no reason given");
}

static int unpack_open(struct tar *t, struct err *err)
{
    int rc = t->source.read(t->source.arg, &t->head, &t->head_n, err);
    if (rc < 0)
        return rc;
    int filter = packing_of(t->head, t->head_n);
    struct archive *u = t->unpack;
    struct archive_entry *whole;
    archive_read_support_format_raw(u);
    archive_read_support_format_empty(u);
    if ((filter != ARCHIVE_FILTER_NONE && archive_read_append_filter(u, filter) != ARCHIVE_OK)
        || archive_read_open(u, t, NULL, packed_read, NULL) != ARCHIVE_OK
        || archive_errno(u) != 0)       /* to libarchive's "empty" format a stream that fails at once is empty */
        return broken(t, u, err);
    int r = archive_read_next_header(u, &whole);
    t->ended = r == ARCHIVE_EOF;        /* an empty layer */
    return r == ARCHIVE_OK || r == ARCHIVE_EOF ? 0 : broken(t, u, err);
}

int tar_open(struct tar **out, const struct tar_source *source, uint64_t bytes_max, uint64_t ratio_max, struct err *err)
{
    struct tar *t = fault_hit("tar.alloc") ? NULL : calloc(1, sizeof *t);
    if (t == NULL)
        return err_set(err, ERR_LIMIT, "out of memory");
    *t = (struct tar){ .source = *source, .bytes_max = bytes_max, .ratio_max = ratio_max };
    digest_start(&t->digest);
    t->unpack = archive_read_new();
    t->read = archive_read_new();
    t->c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    int rc = t->unpack == NULL || t->read == NULL || t->c_locale == (locale_t)0 ? err_set(err, ERR_LIMIT, "out of memory")
             : unpack_open(t, err);
    if (rc == 0) {
        archive_read_support_format_tar(t->read);
        archive_read_support_format_empty(t->read);
        if (archive_read_open(t->read, t, NULL, plain_read, NULL) != ARCHIVE_OK || t->rc < 0)
            rc = broken(t, t->read, err);
    }
    if (rc < 0)
        tar_close(t);
    else
        *out = t;
    return rc;
}

/*
 * libarchive takes PAX names for UTF-8, turns them into the locale's characters (in a UTF-8 locale into another normal form) and
 * keeps the bytes where that fails. In the C locale it fails for all that is not ASCII, with a warning: that is the wanted case.
 * Other warnings are of fields that it could not read and left out, which another reader may have understood.
 */
static bool warning_harmless(struct archive *a)
{
    const char *why = archive_error_string(a);
    return why != NULL && strstr(why, "can't be converted") != NULL;
}

int tar_next(struct tar *t, struct archive_entry **out, struct err *err)
{
    locale_t was = uselocale(t->c_locale);
    int r = archive_read_next_header(t->read, out);
    uselocale(was);
    if (r == ARCHIVE_EOF && t->rc == 0)
        return 0;
    return r == ARCHIVE_OK || (r == ARCHIVE_WARN && warning_harmless(t->read)) ? 1 : broken(t, t->read, err);
}

int tar_read(struct tar *t, const void **out, size_t *out_n, uint64_t *out_offset, struct err *err)
{
    la_int64_t offset = 0;
    int r = archive_read_data_block(t->read, out, out_n, &offset);
    *out_offset = (uint64_t)offset;
    if (r == ARCHIVE_EOF && t->rc == 0)
        return 0;
    return r == ARCHIVE_OK ? 1 : broken(t, t->read, err);
}

int tar_count(struct tar *t, uint64_t n, struct err *err)
{
    if (n > t->bytes_max)
        n = t->bytes_max + 1 - t->counted;      /* past the limit either way, and the sum cannot wrap */
    t->counted += n;
    return limit_check(t, err);
}

int tar_finish(struct tar *t, struct digest *out, uint64_t *out_bytes, struct err *err)
{
    for (;;) {
        const void *p;
        la_ssize_t n = plain_read(t->read, t, &p);
        if (n < 0)
            return broken(t, t->read, err);
        if (n == 0)
            break;
    }
    /* Bytes behind the end of the compressed stream: the decompressor has no use for them, the blob's digest has. */
    for (size_t n = 1; n > 0;) {
        const void *p;
        int rc = t->source.read(t->source.arg, &p, &n, err);
        if (rc < 0)
            return rc;
    }
    digest_finish(&t->digest, out);
    *out_bytes = t->bytes + t->counted;
    return 0;
}

void tar_close(struct tar *t)
{
    if (t == NULL)
        return;
    archive_read_free(t->read);
    archive_read_free(t->unpack);
    if (t->c_locale != (locale_t)0)
        freelocale(t->c_locale);
    if (t->digest.impl != NULL)
        digest_finish(&t->digest, &(struct digest){ { 0 } });
    free(t);
}
