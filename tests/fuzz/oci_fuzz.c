/*
 * oci_fuzz.c - any text as the documents of an image: refused, or an image whose every field is there.
 *
 * The input is index, nested index, manifest and config with a line "--" between them; "@m", "@n", "@c", "@l" in a text stand for
 * the descriptor of manifest, nested index, config and layer, "@d" for the layer's diff_id: else no digest would be right. An
 * input that begins with '[' is the manifest.json of an old docker save.
 */
#include "base/buf.h"
#include "repos/oci.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define BLOCK 512u
#define TEXTS 4

static void must(int rc)
{
    if (rc < 0)
        abort();
}

static void add_file(struct buf *tar, const char *name, const void *bytes, size_t n)
{
    static const uint8_t zeros[BLOCK];
    struct err err;
    char raw[BLOCK] = { 0 };
    unsigned sum = 0;
    snprintf(raw, 100, "%s", name);
    snprintf(raw + 100, 8, "0000644");
    snprintf(raw + 124, 12, "%011zo", n);
    memset(raw + 148, ' ', 8);
    raw[156] = '0';
    memcpy(raw + 257, "ustar\00000", 8);
    for (size_t i = 0; i < BLOCK; i++)
        sum += (uint8_t)raw[i];
    snprintf(raw + 148, 8, "%06o", sum);
    must(buf_add(tar, raw, BLOCK, &err));
    must(buf_add(tar, bytes, n, &err));
    must(buf_add(tar, zeros, (BLOCK - n % BLOCK) % BLOCK, &err));
}

/* The blob and, in `out`, the fields of its descriptor. */
static void add_blob(struct buf *tar, char out[300], const char *media, const void *bytes, size_t n)
{
    struct digest d;
    char hex[DIGEST_HEX_SIZE], name[100];
    digest_of(&d, bytes, n);
    digest_hex(hex, &d);
    snprintf(name, sizeof name, "blobs/sha256/%s", hex);
    add_file(tar, name, bytes, n);
    snprintf(out, 300, "\"mediaType\":\"application/vnd.oci.image.%s\",\"digest\":\"sha256:%s\",\"size\":%zu", media, hex, n);
}

struct words { char m[300], n[300], c[300], l[300], d[300]; };

static void fill(struct buf *out, const char *p, size_t left, const struct words *w)
{
    struct err err;
    for (size_t i = 0; i < left; i++) {
        char c = p[i] == '@' && i + 1 < left ? p[i + 1] : '\0';
        const char *word = c == 'm' ? w->m : c == 'n' ? w->n : c == 'c' ? w->c : c == 'l' ? w->l : c == 'd' ? w->d : NULL;
        must(word != NULL ? buf_add(out, word, strlen(word), &err) : buf_add(out, p + i, 1, &err));
        i += word != NULL;
    }
}

/* The documents from the innermost out, so that each finds the descriptors of what it names. */
static void make_layout(struct buf *tar, const char *texts[TEXTS], const size_t sizes[TEXTS])
{
    static const char *const medias[TEXTS] = { "", "index.v1+json", "manifest.v1+json", "config.v1+json" };
    static const uint8_t layer[2 * BLOCK];
    struct words w = { "", "", "", "", "" };
    struct digest d;
    char hex[DIGEST_HEX_SIZE];
    digest_of(&d, layer, sizeof layer);
    digest_hex(hex, &d);
    snprintf(w.d, sizeof w.d, "\"sha256:%s\"", hex);
    add_blob(tar, w.l, "layer.v1.tar", layer, sizeof layer);
    add_file(tar, "oci-layout", "{\"imageLayoutVersion\":\"1.0.0\"}", 30);
    for (int i = TEXTS - 1; i >= 0; i--) {
        own_buf text = { 0 };
        fill(&text, texts[i], sizes[i], &w);
        if (i == 0)
            add_file(tar, "index.json", text.data != NULL ? (const void *)text.data : "", text.len);
        else
            add_blob(tar, i == 1 ? w.n : i == 2 ? w.m : w.c, medias[i], text.data != NULL ? (const void *)text.data : "", text.len);
    }
}

static int put(void *arg, const void *bytes, uint64_t n, struct err *err) { (void)arg, (void)bytes, (void)n, (void)err; return 0; }

static int end(void *arg, uint32_t *out_data, uint64_t *out_offset, struct err *err)
{
    (void)arg, (void)err;
    *out_data = 0;
    *out_offset = 0;
    return 0;
}

static void check_list(const struct str_list *l)
{
    for (uint32_t i = 0; i < l->count; i++)
        if (l->items[i] == NULL)
            abort();
}

static int import(const char *path, struct err *err)
{
    static const struct archive_limits limits = { .entries = 100, .file_bytes = 1 << 16, .bytes = 1 << 20, .ratio = 100 };
    own_arena a = { .budget = (size_t)16 << 20 };
    struct oci_image image;
    struct archive_tree *t = NULL;
    struct oci *o = NULL;
    int rc = oci_open(&o, path, err);
    if (rc == 0) rc = oci_choose(o, &image, &a, "", err);
    if (rc == 0) {
        check_list(&image.env);
        check_list(&image.cmd);
        check_list(&image.entrypoint);
        if (image.working_dir == NULL || image.user == NULL || image.name == NULL || strlen(image.config) != 64)
            abort();
        must(archive_tree_open(&t, &a, &limits, &(struct archive_sink){ put, end, NULL }, err));
        rc = oci_apply(o, &image, t, err);
    }
    archive_tree_close(t);
    oci_close(o);
    return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *texts[TEXTS] = { "", "", "", "" }, *p = (const char *)data, *stop = p + size;
    size_t sizes[TEXTS] = { 0 };
    own_buf tar = { 0 };
    struct err err = { 0 };
    if (size > 65536)
        return 0;
    for (int i = 0; i < TEXTS && p < stop; i++) {
        const char *next = i < TEXTS - 1 ? memmem(p, (size_t)(stop - p), "\n--\n", 4) : NULL;
        texts[i] = p;
        sizes[i] = (size_t)((next != NULL ? next : stop) - p);
        p = next != NULL ? next + 4 : stop;
    }
    if (size > 0 && data[0] == '[')
        add_file(&tar, "manifest.json", data, size);
    else
        make_layout(&tar, texts, sizes);
    int fd = memfd_create("image", MFD_CLOEXEC);
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (fd < 0 || write(fd, tar.data, tar.len) != (ssize_t)tar.len)
        abort();
    int rc = import(path, &err);
    close(fd);
    if (rc != 0 && ((rc != ERR_BAD_INPUT && rc != ERR_LIMIT && rc != ERR_NOT_FOUND && rc != ERR_UNSUPPORTED && rc != ERR_USAGE)
                    || err.msg[0] == '\0'))
        abort();
    return 0;
}
