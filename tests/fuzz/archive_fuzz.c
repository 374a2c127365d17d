/*
 * archive_fuzz.c - any bytes as a layer, twice one over the other: what becomes a tree is one that image.h allows.
 *
 * Headers get their checksums right first, or every change would end at one.
 */
#include "repos/archive.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define BLOCK 512u
#define BYTES_MAX ((uint64_t)4 << 20)

struct source { const uint8_t *p; size_t left; };

static int source_read(void *arg, const void **out, size_t *out_n, struct err *err)
{
    struct source *s = arg;
    (void)err;
    *out = s->p;
    *out_n = s->left < 4000 ? s->left : 4000;
    s->p += *out_n;
    s->left -= *out_n;
    return 0;
}

struct sink { uint64_t open, end; };

static int sink_put(void *arg, const void *bytes, uint64_t n, struct err *err)
{
    struct sink *s = arg;
    static volatile uint8_t last;
    (void)err;
    if (n == 0)
        abort();
    if (bytes != NULL)
        last = ((const uint8_t *)bytes)[n - 1];     /* a sanitizer sees what is not there */
    (void)last;
    s->open += n;
    return 0;
}

static int sink_end(void *arg, uint32_t *out_data, uint64_t *out_offset, struct err *err)
{
    struct sink *s = arg;
    (void)err;
    *out_data = 0;
    *out_offset = s->end;
    s->end += (s->open + IMAGE_BLOCK - 1) / IMAGE_BLOCK * IMAGE_BLOCK;
    s->open = 0;
    return 0;
}

static void fix_checksums(uint8_t *p, size_t n)
{
    for (; n >= BLOCK; p += BLOCK, n -= BLOCK) {
        unsigned sum = 0;
        if (memcmp(p + 257, "ustar", 5) != 0)
            continue;
        memset(p + 148, ' ', 8);
        for (size_t i = 0; i < BLOCK; i++)
            sum += p[i];
        snprintf((char *)p + 148, 8, "%06o", sum);
    }
}

static void check_node(const struct image_node *n, const struct sink *s, unsigned depth)
{
    if (depth > ARCHIVE_DEPTH_MAX || n->mode > 07777 || n->mtime_ns > 999999999)
        abort();
    for (uint32_t i = 0; i < n->xattr_count; i++)
        if (i > 0 && strcmp(n->xattrs[i - 1].name, n->xattrs[i].name) >= 0)
            abort();
    if (n->kind == IMAGE_FILE && n->size > 0 && (n->offset % IMAGE_BLOCK != 0 || n->offset + n->size > s->end))
        abort();
    if (n->kind == IMAGE_LINK && (n->target[0] == '\0' || strlen(n->target) > ARCHIVE_PATH_MAX))
        abort();
    for (uint32_t i = 0; n->kind == IMAGE_DIR && i < n->entry_count; i++) {
        const char *name = n->entries[i].name;
        size_t len = strlen(name);
        if (len == 0 || len > IMAGE_NAME_MAX || strchr(name, '/') != NULL || strcmp(name, ".") == 0 || strcmp(name, "..") == 0
            || (i > 0 && strcmp(n->entries[i - 1].name, name) >= 0))
            abort();
        check_node(n->entries[i].node, s, depth + 1);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct archive_limits limits = { .entries = 2000, .file_bytes = 1 << 20, .bytes = BYTES_MAX, .ratio = 100 };
    own_arena a = { .budget = (size_t)32 << 20 };
    struct sink sink = { 0 };
    struct err err = { 0 };
    struct archive_tree *t = NULL;
    struct image_node *root;
    struct digest first, second;
    uint8_t *copy = malloc(size + 1);
    if (copy == NULL || archive_tree_open(&t, &a, &limits, &(struct archive_sink){ sink_put, sink_end, &sink }, &err) != 0)
        abort();
    memcpy(copy, data, size);
    fix_checksums(copy, size);
    struct source s = { copy, size }, again = s;
    int rc = archive_tree_apply(t, &(struct tar_source){ source_read, &s }, &first, &err);
    if (rc == 0)
        rc = archive_tree_apply(t, &(struct tar_source){ source_read, &again }, &second, &err);
    if (rc == 0 && (!digest_equal(&first, &second) || s.left != 0))
        abort();
    if (rc == 0 && (rc = archive_tree_finish(t, &root, &err)) == 0)
        check_node(root, &sink, 0);
    if (rc != 0 && ((rc != ERR_BAD_INPUT && rc != ERR_LIMIT) || err.msg[0] == '\0'))
        abort();
    archive_tree_close(t);
    free(copy);
    return 0;
}
