/*
 * tar_make.h - tar archives by hand, byte by byte, so that a test can say what no honest writer would; and a tree as text.
 *
 * An archive is lines "TYPE NAME [TEXT]": f file with TEXT, d directory, l symbolic link to TEXT, h hard link to TEXT, c character
 * device 5:1, 0 character device 0:0, b block device, p FIFO. "\\xHH" in names is that byte. Line "--" begins the next layer.
 */
#pragma once
#include "repos/archive.h"
#include "tests/repos/repos_test.h"

#define TAR_BLOCK 512u

static inline void tar_bytes(struct buf *b, const void *p, size_t n)
{
    struct err err;
    assert_int_equal(buf_add(b, p, n, &err), 0);
}

static inline void file_bytes(struct buf *out, const char *dir, const char *name)
{
    size_t n = 0;
    char *s = slurp(dir, name, &n);
    assert_non_null(s);
    tar_bytes(out, s, n);
    free(s);
}

static inline void tar_pad(struct buf *b)
{
    static const uint8_t zeros[TAR_BLOCK];
    tar_bytes(b, zeros, (TAR_BLOCK - b->len % TAR_BLOCK) % TAR_BLOCK);
}

struct tar_header { char type; const char *name, *link; uint32_t mode, uid, gid, major, minor; uint64_t mtime, size; };

/* A ustar header; name and link are cut at 100 bytes. */
static inline void tar_head(struct buf *b, const struct tar_header *h)
{
    char raw[TAR_BLOCK] = { 0 };
    memcpy(raw, h->name, strnlen(h->name, 100));
    snprintf(raw + 100, 8, "%07o", h->mode);
    snprintf(raw + 108, 8, "%07o", h->uid);
    snprintf(raw + 116, 8, "%07o", h->gid);
    snprintf(raw + 124, 12, "%011llo", (unsigned long long)h->size);
    snprintf(raw + 136, 12, "%011llo", (unsigned long long)h->mtime);
    memset(raw + 148, ' ', 8);
    raw[156] = h->type;
    if (h->link != NULL)
        memcpy(raw + 157, h->link, strnlen(h->link, 100));
    memcpy(raw + 257, "ustar\00000", 8);
    snprintf(raw + 329, 8, "%07o", h->major);
    snprintf(raw + 337, 8, "%07o", h->minor);
    unsigned sum = 0;
    for (size_t i = 0; i < sizeof raw; i++)
        sum += (uint8_t)raw[i];
    snprintf(raw + 148, 8, "%06o", sum);
    tar_bytes(b, raw, sizeof raw);
}

/* One PAX record "LEN KEY=VALUE\n", LEN counting itself. */
static inline void pax_record(struct buf *b, const char *key, const void *value, size_t n)
{
    char head[400];
    size_t rest = strlen(key) + n + 3, len = rest + 1;
    while (len != rest + (size_t)snprintf(NULL, 0, "%zu", len))
        len = rest + (size_t)snprintf(NULL, 0, "%zu", len);
    tar_bytes(b, head, (size_t)snprintf(head, sizeof head, "%zu %s=", len, key));
    tar_bytes(b, value, n);
    tar_bytes(b, "\n", 1);
}

static inline void tar_pax(struct buf *b, const struct buf *records)
{
    tar_head(b, &(struct tar_header){ .type = 'x', .name = "PaxHeaders/x", .mode = 0644, .size = records->len });
    tar_bytes(b, records->data, records->len);
    tar_pad(b);
}

/* Header, with PAX records for what has no room in it, and content. */
static inline void tar_add(struct buf *b, struct tar_header h, const char *content)
{
    own_buf pax = { 0 };
    if (strlen(h.name) > 100)
        pax_record(&pax, "path", h.name, strlen(h.name));
    if (h.link != NULL && strlen(h.link) > 100)
        pax_record(&pax, "linkpath", h.link, strlen(h.link));
    if (pax.len > 0)
        tar_pax(b, &pax);
    h.size = content != NULL ? strlen(content) : h.size;
    tar_head(b, &h);
    if (content != NULL) {
        tar_bytes(b, content, strlen(content));
        tar_pad(b);
    }
}

static inline void tar_end(struct buf *b)
{
    static const uint8_t zeros[2 * TAR_BLOCK];
    tar_bytes(b, zeros, sizeof zeros);
}

static inline char *unescape(char *s)
{
    char *o = s;
    for (char *p = s; *p != '\0'; p++)
        if (p[0] == '\\' && p[1] == 'x') {
            char hex[3] = { p[2], p[3], 0 };
            *o++ = (char)strtoul(hex, NULL, 16);
            p += 3;
        } else {
            *o++ = *p;
        }
    *o = '\0';
    return s;
}

static inline void tar_line(struct buf *b, char *line)
{
    static const struct { char word, type; uint32_t mode, major, minor; } types[] = {
        { 'f', '0', 0644, 0, 0 }, { 'd', '5', 0755, 0, 0 }, { 'l', '2', 0777, 0, 0 }, { 'h', '1', 0644, 0, 0 },
        { 'c', '3', 0644, 5, 1 }, { '0', '3', 0644, 0, 0 }, { 'b', '4', 0644, 8, 0 }, { 'p', '6', 0644, 0, 0 },
    };
    char *name = line + 2, *text = strchr(name, ' ');
    if (text != NULL)
        *text++ = '\0';
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (types[i].word == line[0])
            tar_add(b, (struct tar_header){ .type = types[i].type, .name = unescape(name), .link = text != NULL ? unescape(text) : "",
                                            .mode = types[i].mode, .major = types[i].major, .minor = types[i].minor, .mtime = 1 },
                    line[0] == 'f' ? text != NULL ? text : "" : NULL);
}

/* The next layer of the text, "--" ends it; NULL behind the last. */
static inline const char *tar_layer(struct buf *out, const char *text)
{
    if (text == NULL)
        return NULL;
    for (const char *eol; *text != '\0'; text = eol + 1) {
        char line[8192];
        eol = strchr(text, '\n');
        assert_non_null(eol);
        snprintf(line, sizeof line, "%.*s", (int)(eol - text), text);
        if (strcmp(line, "--") == 0) {
            text = eol + 1;
            tar_end(out);
            return text;
        }
        tar_line(out, line);
    }
    tar_end(out);
    return text;
}

/* --- a sink in memory, a source in memory --- */

struct kept { struct buf bytes; size_t from; int files; };

static inline int kept_put(void *arg, const void *p, uint64_t n, struct err *err)
{
    struct kept *k = arg;
    void *to = buf_reserve(&k->bytes, (size_t)n, err);
    if (to == NULL)
        return err->code;
    if (p != NULL)
        memcpy(to, p, (size_t)n);
    else
        memset(to, 0, (size_t)n);
    k->bytes.len += (size_t)n;
    return 0;
}

static inline int kept_end(void *arg, uint32_t *out_data, uint64_t *out_offset, struct err *err)
{
    struct kept *k = arg;
    (void)err;
    *out_data = 0;
    *out_offset = k->from;
    k->from = k->bytes.len;
    k->files++;
    return 0;
}

struct piece { const uint8_t *p; size_t left, step; };

static inline int piece_read(void *arg, const void **out, size_t *out_n, struct err *err)
{
    struct piece *s = arg;
    size_t n = s->left < s->step ? s->left : s->step;
    (void)err;
    *out = s->p;
    *out_n = n;
    s->p += n;
    s->left -= n;
    return 0;
}

static inline int apply_bytes(struct archive_tree *t, const struct buf *layer, size_t step, struct err *err)
{
    struct piece piece = { layer->data, layer->len, step };
    struct digest diff_id;
    return archive_tree_apply(t, &(struct tar_source){ piece_read, &piece }, &diff_id, err);
}

/* --- a tree as text --- */

static inline void tree_text(struct buf *out, const struct image_node *dir, const char *above, const struct buf *bytes)
{
    struct err err;
    for (uint32_t i = 0; i < dir->entry_count; i++) {
        const struct image_node *n = dir->entries[i].node;
        char path[9000], q[9000];
        snprintf(path, sizeof path, "%s%s", above, dir->entries[i].name);
        err_quote(q, sizeof q, path, strlen(path));
        if (i > 0)
            assert_true(strcmp(dir->entries[i - 1].name, dir->entries[i].name) < 0);
        if (n->kind == IMAGE_DIR)
            assert_int_equal(buf_addf(out, &err, "d %s\n", q), 0);
        else if (n->kind == IMAGE_LINK)
            assert_int_equal(buf_addf(out, &err, "l %s %s\n", q, n->target), 0);
        else
            assert_int_equal(buf_addf(out, &err, "f %s %.*s\n", q, (int)n->size, n->size > 0 ? (const char *)bytes->data + n->offset : ""), 0);
        strcat(path, "/");
        if (n->kind == IMAGE_DIR)
            tree_text(out, n, path, bytes);
    }
}
