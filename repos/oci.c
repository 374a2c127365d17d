/*
 * oci.c - from an index to layers.
 *
 * Documents come from outside: each is read whole up to a limit, by its digest where it has one, and a field of the wrong kind is
 * named. A document that is both an index and a manifest, or that says another media type than its descriptor, is refused: two
 * readers could take it for two images (CVE-2021-41190).
 */
#include "repos/oci.h"
#include "base/buf.h"
#include "base/fault.h"
#include "base/own.h"
#include "repos/layout.h"
#include <jansson.h>
#include <string.h>

#define JSON_SIZE_MAX    ((uint64_t)4 << 20)    /* what registries accept for a manifest */
#define DESCRIPTORS_MAX  4096u
#define STRINGS_MAX      4096u
#define INDEX_DEPTH_MAX  4u
#define LISTED_MAX       8u
#define PIECE            65536u
#define QUOTE_SIZE       120u
#define UNKNOWN_SIZE     UINT64_MAX

static void own_json_done(json_t **j) { json_decref(*j); }
#define own_json __attribute__((cleanup(own_json_done))) json_t

struct oci {
    struct layout *files;
    bool docker;                /* manifest.json of an old docker save, no index.json */
};

/* A descriptor; its strings are the document's. */
struct desc {
    const char *media, *ref, *image, *os, *arch;
    struct digest digest;
    char hex[DIGEST_HEX_SIZE];
    uint64_t size;
};

enum media_kind { MEDIA_INDEX, MEDIA_MANIFEST, MEDIA_CONFIG, MEDIA_LAYER };
static const struct { const char *name; enum media_kind kind; } medias[] = {
    { "application/vnd.oci.image.index.v1+json", MEDIA_INDEX },
    { "application/vnd.docker.distribution.manifest.list.v2+json", MEDIA_INDEX },
    { "application/vnd.oci.image.manifest.v1+json", MEDIA_MANIFEST },
    { "application/vnd.docker.distribution.manifest.v2+json", MEDIA_MANIFEST },
    { "application/vnd.oci.image.config.v1+json", MEDIA_CONFIG },
    { "application/vnd.docker.container.image.v1+json", MEDIA_CONFIG },
    { "application/vnd.oci.image.layer.v1.tar", MEDIA_LAYER },
    { "application/vnd.oci.image.layer.v1.tar+gzip", MEDIA_LAYER },
    { "application/vnd.oci.image.layer.v1.tar+zstd", MEDIA_LAYER },
    { "application/vnd.oci.image.layer.nondistributable.v1.tar", MEDIA_LAYER },
    { "application/vnd.oci.image.layer.nondistributable.v1.tar+gzip", MEDIA_LAYER },
    { "application/vnd.oci.image.layer.nondistributable.v1.tar+zstd", MEDIA_LAYER },
    { "application/vnd.docker.image.rootfs.diff.tar", MEDIA_LAYER },
    { "application/vnd.docker.image.rootfs.diff.tar.gzip", MEDIA_LAYER },
    { "application/vnd.docker.image.rootfs.diff.tar.zstd", MEDIA_LAYER },
    { "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip", MEDIA_LAYER },
};

static bool media_is(const char *name, enum media_kind kind)
{
    for (size_t i = 0; i < sizeof medias / sizeof medias[0]; i++)
        if (strcmp(medias[i].name, name) == 0)
            return medias[i].kind == kind;
    return false;
}

static const char *quote(char out[QUOTE_SIZE], const char *s)
{
    err_quote(out, QUOTE_SIZE, s, strlen(s));
    return out;
}

/* --- blobs --- */

/* A file on its way through, compared with what it should be when its end is reached. */
struct blob {
    struct layout_file file;
    const struct digest *want;  /* NULL: nothing states it */
    struct digest_ctx digest;
    bool    whole;
    uint8_t piece[PIECE];
};

static int blob_read(void *arg, const void **out, size_t *out_n, struct err *err)
{
    struct blob *b = arg;
    struct digest seen;
    *out = b->piece;
    int rc = b->whole ? 0 : layout_file_read(&b->file, b->piece, sizeof b->piece, out_n, err);
    if (rc < 0 || b->whole) {
        *out_n = 0;
        return rc;
    }
    digest_add(&b->digest, b->piece, *out_n);
    if (*out_n > 0)
        return 0;
    b->whole = true;
    digest_finish(&b->digest, &seen);
    if (b->want != NULL && !digest_equal(&seen, b->want))
        return err_set(err, ERR_BAD_INPUT, "the content does not match its digest");
    return 0;
}

static int blob_open(struct oci *o, struct blob **out, const char *name, uint64_t size, const struct digest *want, struct err *err)
{
    struct layout_file f = { .fd = -1 };
    int rc = layout_file_open(o->files, &f, name, err);
    if (rc < 0)
        return rc;
    struct blob *b = fault_hit("oci.blob") ? NULL : malloc(sizeof *b);
    if (size != UNKNOWN_SIZE && f.size != size)
        rc = err_set(err, ERR_BAD_INPUT, "it has %llu bytes, its descriptor says %llu", (unsigned long long)f.size,
                     (unsigned long long)size);
    else if (b == NULL)
        rc = err_set(err, ERR_LIMIT, "out of memory");
    if (rc < 0) {
        free(b);
        layout_file_done(&f);
        return rc;
    }
    b->file = f;
    b->want = want;
    b->whole = false;
    digest_start(&b->digest);
    *out = b;
    return 0;
}

static void blob_close(struct blob *b)
{
    if (b == NULL)
        return;
    if (!b->whole)
        digest_finish(&b->digest, &(struct digest){ { 0 } });
    layout_file_done(&b->file);
    free(b);
}

/* A layer that cannot be read because it was damaged on its way is better told so than by what the tar reader met. */
static int blob_settle(struct blob *b, int rc, struct err *err)
{
    const void *p;
    size_t n = 1;
    struct err other;
    while (rc == ERR_BAD_INPUT && n > 0)
        if (blob_read(b, &p, &n, &other) < 0) {
            *err = other;
            return other.code;
        }
    return rc;
}

static int blob_text(struct oci *o, struct buf *out, const char *name, uint64_t size, const struct digest *want, struct err *err)
{
    struct blob *b = NULL;
    const void *p;
    size_t n = 1;
    int rc = blob_open(o, &b, name, size, want, err);
    if (rc == 0 && b->file.size > JSON_SIZE_MAX)
        rc = err_set(err, ERR_LIMIT, "it has %llu bytes, more than %llu", (unsigned long long)b->file.size,
                     (unsigned long long)JSON_SIZE_MAX);
    while (rc == 0 && n > 0 && (rc = blob_read(b, &p, &n, err)) == 0)
        rc = buf_add(out, p, n, err);
    blob_close(b);
    return rc;
}

static int read_json(struct oci *o, json_t **out, const char *name, uint64_t size, const struct digest *want, struct err *err)
{
    own_buf text = { .max = JSON_SIZE_MAX };
    char q[QUOTE_SIZE];
    int rc = blob_text(o, &text, name, size, want, err);
    if (rc < 0)
        return rc == ERR_NOT_FOUND ? rc : err_in(err, "%s", quote(q, name));
    json_error_t je;
    *out = json_loadb((const char *)text.data, text.len, JSON_REJECT_DUPLICATES, &je);
    if (*out != NULL)
        return 0;
    char why[QUOTE_SIZE];
    return err_set(err, ERR_BAD_INPUT, "%s is not JSON: line %d: %s", quote(q, name), je.line, quote(why, je.text));
}

static int read_blob_json(struct oci *o, json_t **out, const struct desc *d, struct err *err)
{
    char name[32 + DIGEST_HEX_SIZE];
    snprintf(name, sizeof name, "blobs/sha256/%s", d->hex);
    int rc = read_json(o, out, name, d->size, &d->digest, err);
    if (rc == 0 && !json_is_object(*out)) {
        json_decref(*out);
        *out = NULL;
        return err_set(err, ERR_BAD_INPUT, "%s: want an object", name);
    }
    return rc;
}

/* --- fields --- */

/* A string field, "" where it is absent or null. */
static int string_at(const char **out, const json_t *object, const char *field, struct err *err)
{
    const json_t *j = json_object_get(object, field);
    *out = "";
    if (j == NULL || json_is_null(j))
        return 0;
    if (!json_is_string(j))
        return err_set(err, ERR_BAD_INPUT, "field %s: want a string", field);
    *out = json_string_value(j);
    return 0;
}

static int array_at(const json_t **out, const json_t *object, const char *field, size_t max, struct err *err)
{
    *out = json_object_get(object, field);
    if (!json_is_array(*out))
        return err_set(err, ERR_BAD_INPUT, "field %s: want a list", field);
    if (json_array_size(*out) > max)
        return err_set(err, ERR_LIMIT, "field %s: %zu entries, more than %zu", field, json_array_size(*out), max);
    return 0;
}

static int digest_at(struct digest *out, const char *text, struct err *err)
{
    char q[QUOTE_SIZE];
    if (strncmp(text, "sha256:", 7) != 0)
        return err_set(err, strchr(text, ':') != NULL ? ERR_UNSUPPORTED : ERR_BAD_INPUT, "digest \"%s\": want sha256:...",
                       quote(q, text));
    return digest_parse(out, text + 7, err);
}

static int read_desc(struct desc *out, const json_t *j, struct err *err)
{
    const char *digest;
    const json_t *size = json_object_get(j, "size"), *notes = json_object_get(j, "annotations");
    const json_t *platform = json_object_get(j, "platform");
    if (!json_is_object(j))
        return err_set(err, ERR_BAD_INPUT, "descriptor: want an object");
    int rc = string_at(&digest, j, "digest", err);
    if (rc == 0) rc = string_at(&out->media, j, "mediaType", err);
    if (rc == 0) rc = string_at(&out->ref, notes, "org.opencontainers.image.ref.name", err);
    if (rc == 0) rc = string_at(&out->image, notes, "io.containerd.image.name", err);
    if (rc == 0) rc = string_at(&out->os, platform, "os", err);
    if (rc == 0) rc = string_at(&out->arch, platform, "architecture", err);
    if (rc == 0) rc = digest_at(&out->digest, digest, err);
    if (rc < 0)
        return err_in(err, "descriptor");
    if (!json_is_integer(size) || json_integer_value(size) < 0)
        return err_set(err, ERR_BAD_INPUT, "descriptor %s: field size: want a number of bytes", digest);
    out->size = (uint64_t)json_integer_value(size);
    digest_hex(out->hex, &out->digest);
    return 0;
}

/* The document is what its descriptor says, and not something else besides. */
static int check_media(const json_t *doc, const struct desc *d, enum media_kind kind, struct err *err)
{
    const char *media;
    char q[QUOTE_SIZE];
    int rc = string_at(&media, doc, "mediaType", err);
    if (rc < 0)
        return rc;
    if (media[0] != '\0' && strcmp(media, d->media) != 0)
        return err_set(err, ERR_BAD_INPUT, "it says to be \"%s\", its descriptor says otherwise", quote(q, media));
    if (json_object_get(doc, kind == MEDIA_INDEX ? "layers" : "manifests") != NULL)
        return err_set(err, ERR_BAD_INPUT, "it is an index and a manifest at once");
    return 0;
}

static int copy_string(const char **out, struct arena *a, const char *s, struct err *err)
{
    *out = arena_strdup(a, s);
    return *out != NULL ? 0 : err_set(err, ERR_LIMIT, "the image's config is larger than its memory budget");
}

static int copy_field(const char **out, struct arena *a, const json_t *object, const char *field, struct err *err)
{
    const char *s;
    int rc = string_at(&s, object, field, err);
    return rc < 0 ? rc : copy_string(out, a, s, err);
}

static int copy_list(struct str_list *out, struct arena *a, const json_t *object, const char *field, struct err *err)
{
    const json_t *list = json_object_get(object, field);
    *out = (struct str_list){ 0 };
    if (list == NULL || json_is_null(list))
        return 0;
    int rc = array_at(&list, object, field, STRINGS_MAX, err);
    size_t n = rc == 0 ? json_array_size(list) : 0;
    if (rc < 0 || n == 0)
        return rc;
    if ((out->items = arena_alloc(a, n * sizeof out->items[0])) == NULL)
        return err_set(err, ERR_LIMIT, "the image's config is larger than its memory budget");
    for (size_t i = 0; i < n; i++) {
        const char *s = json_string_value(json_array_get(list, i));
        if (s == NULL)
            return err_set(err, ERR_BAD_INPUT, "field %s: entry %zu is no string", field, i);
        if ((rc = copy_string(&out->items[i], a, s, err)) < 0)
            return rc;
    }
    out->count = (uint32_t)n;
    return 0;
}

/* --- which image --- */

/* Do both name the same image, as Docker completes names? */
static bool same_name(const char *stated, const char *want)
{
    static const char *const homes[] = { "", "docker.io/", "docker.io/library/" };
    for (size_t i = 0; i < sizeof homes / sizeof homes[0]; i++) {
        size_t n = strlen(homes[i]);
        if (strncmp(stated, homes[i], n) == 0 && strcmp(stated + n, want) == 0)
            return true;
        if (strncmp(want, homes[i], n) == 0 && strcmp(want + n, stated) == 0)
            return true;
    }
    return false;
}

static bool goes_by(const struct desc *d, const char *want)
{
    if (want[0] == '\0' || (strncmp(want, "sha256:", 7) == 0 && strcmp(want + 7, d->hex) == 0))
        return true;
    return (d->ref[0] != '\0' && same_name(d->ref, want)) || (d->image[0] != '\0' && same_name(d->image, want));
}

static bool fits(const struct desc *d)
{
    return d->os[0] == '\0' || (strcmp(d->os, "linux") == 0 && strcmp(d->arch, "amd64") == 0);
}

static const char *name_of(const struct desc *d) { return d->image[0] != '\0' ? d->image : d->ref; }

static void list_add(struct buf *list, uint32_t n, const char *name, const struct desc *d)
{
    struct err full;
    char q[QUOTE_SIZE];
    if (n >= LISTED_MAX)
        return;                         /* list_end() says how many more */
    int rc = buf_addf(list, &full, "%s%s", n > 0 ? ", " : "", quote(q, name));
    if (rc == 0 && d != NULL && name[0] == '\0')
        rc = buf_addf(list, &full, "sha256:%s", d->hex);
    if (rc == 0 && d != NULL && d->os[0] != '\0')
        rc = buf_addf(list, &full, " (%s/", quote(q, d->os)) < 0 ? -1 : buf_addf(list, &full, "%s)", quote(q, d->arch));
    (void)rc;                           /* a list for people: what fits */
}

static int list_end(struct buf *list, uint32_t n, const char *want, uint32_t found, struct err *err)
{
    char q[QUOTE_SIZE], more[40] = "";
    if (n > LISTED_MAX)
        snprintf(more, sizeof more, " and %u more", n - LISTED_MAX);
    const char *what = found == 0 ? "no image for linux/amd64" : "more than one image for linux/amd64";
    return err_set(err, found == 0 ? ERR_NOT_FOUND : ERR_USAGE, "%s%s%s%s; there is: %s%s", what, want[0] != '\0' ? " of name \"" : "",
                   quote(q, want), want[0] != '\0' ? "\"" : found > 1 ? ", say which" : "",
                   n > 0 ? (const char *)list->data : "nothing", more);
}

/* The entry of `index` that is wanted. At the top two that differ are a question to the caller; in an index behind a name the
 * first counts, as image-index.md says. */
static int pick(struct desc *out, const json_t *index, const char *want, bool top, struct err *err)
{
    own_buf list = { .max = 16384 };
    const json_t *all;
    struct desc d;
    uint32_t found = 0, n = 0;
    int rc = array_at(&all, index, "manifests", DESCRIPTORS_MAX, err);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < json_array_size(all); i++) {
        if ((rc = read_desc(&d, json_array_get(all, i), err)) < 0)
            return rc;
        if (strcmp(d.os, "unknown") == 0)
            continue;                   /* an attestation, which BuildKit lists as one more platform */
        list_add(&list, n++, name_of(&d), &d);
        if (!fits(&d) || !goes_by(&d, want) || (found > 0 && (!top || digest_equal(&d.digest, &out->digest))))
            continue;
        if (found++ == 0)
            *out = d;
    }
    return found == 1 ? 0 : list_end(&list, n, want, found, err);
}

/* --- from a descriptor to an image --- */

static int read_config(struct oci_image *out, struct arena *a, const json_t *doc, const json_t **out_diff_ids, struct err *err)
{
    const char *os, *arch;
    char q[QUOTE_SIZE], r[QUOTE_SIZE];
    const json_t *run = json_object_get(doc, "config");
    int rc = string_at(&os, doc, "os", err);
    if (rc == 0) rc = string_at(&arch, doc, "architecture", err);
    if (rc < 0)
        return rc;
    if (strcmp(os, "linux") != 0 || strcmp(arch, "amd64") != 0)
        return err_set(err, ERR_UNSUPPORTED, "the image is for %s/%s, want linux/amd64", quote(q, os), quote(r, arch));
    rc = copy_list(&out->env, a, run, "Env", err);
    for (uint32_t i = 0; rc == 0 && i < out->env.count; i++)
        if (strcspn(out->env.items[i], "=") == 0 || strchr(out->env.items[i], '=') == NULL)
            return err_set(err, ERR_BAD_INPUT, "field Env: \"%s\": want NAME=VALUE", quote(q, out->env.items[i]));
    if (rc == 0) rc = copy_list(&out->entrypoint, a, run, "Entrypoint", err);
    if (rc == 0) rc = copy_list(&out->cmd, a, run, "Cmd", err);
    if (rc == 0) rc = copy_field(&out->working_dir, a, run, "WorkingDir", err);
    if (rc == 0) rc = copy_field(&out->user, a, run, "User", err);
    return rc < 0 ? rc : array_at(out_diff_ids, json_object_get(doc, "rootfs"), "diff_ids", OCI_LAYERS_MAX, err);
}

/* Room for `n` layers with the config's diff_ids, of which there must be as many. */
static int layers_alloc(struct oci_image *out, struct arena *a, size_t n, const json_t *diff_ids, struct err *err)
{
    if (json_array_size(diff_ids) != n)
        return err_set(err, ERR_BAD_INPUT, "the manifest has %zu layers, the config %zu diff_ids", n, json_array_size(diff_ids));
    out->layers = n > 0 ? arena_alloc(a, n * sizeof out->layers[0]) : NULL;
    if (n > 0 && out->layers == NULL)
        return err_set(err, ERR_LIMIT, "the image's config is larger than its memory budget");
    out->layer_count = (uint32_t)n;
    for (size_t i = 0; i < n; i++) {
        const char *text = json_string_value(json_array_get(diff_ids, i));
        int rc = text == NULL ? err_set(err, ERR_BAD_INPUT, "no string") : digest_at(&out->layers[i].diff_id, text, err);
        if (rc < 0)
            return err_in(err, "field diff_ids: entry %zu", i);
    }
    return 0;
}

static int read_layer(struct oci_layer *out, struct arena *a, const json_t *j, struct err *err)
{
    struct desc d;
    char q[QUOTE_SIZE];
    int rc = read_desc(&d, j, err);
    if (rc < 0)
        return rc;
    if (!media_is(d.media, MEDIA_LAYER))
        return err_set(err, ERR_UNSUPPORTED, "\"%s\" is no kind of layer that is known here", quote(q, d.media));
    out->size = d.size;
    out->name = arena_printf(a, "sha256:%s", d.hex);
    return out->name != NULL ? 0 : err_set(err, ERR_LIMIT, "the image's config is larger than its memory budget");
}

static int read_manifest(struct oci *o, struct oci_image *out, struct arena *a, const json_t *doc, struct err *err)
{
    own_json *config = NULL;
    const json_t *layers, *diff_ids;
    struct desc d;
    char q[QUOTE_SIZE];
    int rc = array_at(&layers, doc, "layers", OCI_LAYERS_MAX, err);
    if (rc == 0) rc = read_desc(&d, json_object_get(doc, "config"), err);
    if (rc < 0)
        return rc;
    if (!media_is(d.media, MEDIA_CONFIG))
        return err_set(err, ERR_UNSUPPORTED, "its config is \"%s\": not an image that can be run", quote(q, d.media));
    memcpy(out->config, d.hex, sizeof out->config);
    if ((rc = read_blob_json(o, &config, &d, err)) < 0)
        return rc;
    rc = read_config(out, a, config, &diff_ids, err);
    if (rc == 0) rc = layers_alloc(out, a, json_array_size(layers), diff_ids, err);
    if (rc < 0)
        return err_in(err, "config sha256:%s", d.hex);
    for (uint32_t i = 0; i < out->layer_count; i++)
        if ((rc = read_layer(&out->layers[i], a, json_array_get(layers, i), err)) < 0)
            return err_in(err, "layer %u", i + 1);
    return 0;
}

static int choose_oci(struct oci *o, struct oci_image *out, struct arena *a, const char *want, struct err *err)
{
    own_json *doc = NULL;
    struct desc d;
    char q[QUOTE_SIZE];
    int rc = read_json(o, &doc, "index.json", UNKNOWN_SIZE, NULL, err);
    if (rc == 0) rc = pick(&d, doc, want, true, err);
    if (rc == 0) rc = copy_string(&out->name, a, name_of(&d), err);
    for (uint32_t depth = 0; rc == 0; depth++) {
        bool index = media_is(d.media, MEDIA_INDEX);
        if (!index && !media_is(d.media, MEDIA_MANIFEST))
            return err_set(err, ERR_UNSUPPORTED, "sha256:%s is \"%s\": neither an index nor a manifest", d.hex, quote(q, d.media));
        if (depth == INDEX_DEPTH_MAX)
            return err_set(err, ERR_LIMIT, "more than %u indexes, one in the other", INDEX_DEPTH_MAX);
        json_t *next = NULL;
        if ((rc = read_blob_json(o, &next, &d, err)) < 0)
            break;
        struct desc at = d;             /* its strings go with the document before */
        rc = check_media(next, &d, index ? MEDIA_INDEX : MEDIA_MANIFEST, err);
        json_decref(doc);
        doc = next;
        if (rc == 0 && index) {
            rc = pick(&d, doc, "", false, err);
        } else if (rc == 0) {
            memcpy(out->manifest, at.hex, sizeof out->manifest);
            rc = read_manifest(o, out, a, doc, err);
            return rc < 0 ? err_in(err, "manifest sha256:%s", at.hex) : 0;
        }
        if (rc < 0)
            return err_in(err, "sha256:%s", at.hex);
    }
    return rc;
}

/* --- an old docker save --- */

static bool docker_goes_by(const json_t *image, const char *want)
{
    const json_t *tags = json_object_get(image, "RepoTags");
    bool named = want[0] == '\0';
    for (size_t i = 0; !named && i < json_array_size(tags); i++) {
        const char *tag = json_string_value(json_array_get(tags, i));
        named = tag != NULL && same_name(tag, want);
    }
    return named;
}

static const char *docker_name(const json_t *image)
{
    const char *tag = json_string_value(json_array_get(json_object_get(image, "RepoTags"), 0));
    const char *config = json_string_value(json_object_get(image, "Config"));
    return tag != NULL ? tag : config != NULL ? config : "";
}

static int docker_pick(const json_t **out, const json_t *images, const char *want, struct err *err)
{
    own_buf list = { .max = 16384 };
    uint32_t found = 0, n = 0;
    if (!json_is_array(images) || json_array_size(images) > DESCRIPTORS_MAX)
        return err_set(err, ERR_BAD_INPUT, "manifest.json: want a list of at most %u images", DESCRIPTORS_MAX);
    for (size_t i = 0; i < json_array_size(images); i++) {
        const json_t *image = json_array_get(images, i);
        list_add(&list, n++, docker_name(image), NULL);
        if (docker_goes_by(image, want) && found++ == 0)
            *out = image;
    }
    return found == 1 ? 0 : list_end(&list, n, want, found, err);
}

/* Docker names a config by its digest: HEX.json, or blobs/sha256/HEX. */
static int docker_config(struct oci *o, json_t **out, struct oci_image *image, const char *name, struct err *err)
{
    const char *slash = strrchr(name, '/'), *base = slash != NULL ? slash + 1 : name;
    char hex[DIGEST_HEX_SIZE] = "", q[QUOTE_SIZE];
    struct digest digest;
    if (strlen(base) >= 64)
        memcpy(hex, base, 64);
    if (digest_parse(&digest, hex, err) < 0 || (base[64] != '\0' && strcmp(base + 64, ".json") != 0))
        return err_set(err, ERR_BAD_INPUT, "field Config: \"%s\" has no digest for its name", quote(q, name));
    memcpy(image->config, hex, sizeof hex);
    return read_json(o, out, name, UNKNOWN_SIZE, &digest, err);
}

static int choose_docker(struct oci *o, struct oci_image *out, struct arena *a, const char *want, struct err *err)
{
    own_json *images = NULL, *config = NULL;
    const json_t *image = NULL, *layers, *diff_ids;
    const char *name;
    int rc = read_json(o, &images, "manifest.json", UNKNOWN_SIZE, NULL, err);
    if (rc == 0) rc = docker_pick(&image, images, want, err);
    if (rc == 0) rc = copy_string(&out->name, a, docker_name(image), err);
    if (rc == 0) rc = string_at(&name, image, "Config", err);
    if (rc == 0) rc = array_at(&layers, image, "Layers", OCI_LAYERS_MAX, err);
    if (rc == 0) rc = docker_config(o, &config, out, name, err);
    if (rc == 0) rc = read_config(out, a, config, &diff_ids, err);
    if (rc == 0) rc = layers_alloc(out, a, json_array_size(layers), diff_ids, err);
    for (uint32_t i = 0; rc == 0 && i < out->layer_count; i++) {
        const char *file = json_string_value(json_array_get(layers, i));
        out->layers[i].size = UNKNOWN_SIZE;
        rc = file == NULL ? err_set(err, ERR_BAD_INPUT, "field Layers: entry %u is no string", i)
             : copy_string(&out->layers[i].name, a, file, err);
    }
    return rc;
}

/* --- the door --- */

static int check_version(struct oci *o, struct err *err)
{
    own_json *doc = NULL;
    const char *version;
    char q[QUOTE_SIZE];
    int rc = read_json(o, &doc, "oci-layout", UNKNOWN_SIZE, NULL, err);
    if (rc == 0) rc = string_at(&version, doc, "imageLayoutVersion", err);
    if (rc == 0 && strncmp(version, "1.", 2) != 0)
        rc = err_set(err, ERR_UNSUPPORTED, "oci-layout: version \"%s\", want 1", quote(q, version));
    return rc;
}

static int has_file(struct oci *o, const char *name, struct err *err)
{
    own_layout_file f = { .fd = -1 };
    int rc = layout_file_open(o->files, &f, name, err);
    return rc == ERR_NOT_FOUND ? 0 : rc < 0 ? rc : 1;
}

/* A new docker save has both forms; the index comes first, because it leads to digests of all. */
static int find_form(struct oci *o, struct err *err)
{
    int index = has_file(o, "index.json", err);
    int docker = index == 0 ? has_file(o, "manifest.json", err) : 0;
    if (index < 0 || docker < 0)
        return index < 0 ? index : docker;
    if (index == 0 && docker == 0)
        return err_set(err, ERR_BAD_INPUT, "neither index.json (an OCI layout) nor manifest.json (docker save) is there");
    o->docker = docker > 0;
    return o->docker ? 0 : check_version(o, err);
}

int oci_open(struct oci **out, const char *path, struct err *err)
{
    struct oci *o = fault_hit("oci.alloc") ? NULL : calloc(1, sizeof *o);
    if (o == NULL)
        return err_set(err, ERR_LIMIT, "out of memory");
    int rc = layout_open(&o->files, path, err);
    if (rc == 0 && (rc = find_form(o, err)) < 0) {
        char q[QUOTE_SIZE];
        err_in(err, "image %s", quote(q, path));
    }
    if (rc < 0)
        oci_close(o);
    else
        *out = o;
    return rc;
}

int oci_choose(struct oci *o, struct oci_image *out, struct arena *a, const char *want, struct err *err)
{
    struct oci_image image = { .name = "" };
    int rc = o->docker ? choose_docker(o, &image, a, want, err) : choose_oci(o, &image, a, want, err);
    if (rc == 0)
        *out = image;
    return rc;
}

static int apply_layer(struct oci *o, const struct oci_layer *layer, struct archive_tree *tree, struct err *err)
{
    char path[32 + DIGEST_HEX_SIZE];
    struct digest want, seen;
    struct blob *b = NULL;
    bool named = !o->docker;
    int rc = named ? digest_at(&want, layer->name, err) : 0;
    if (named)
        snprintf(path, sizeof path, "blobs/sha256/%s", layer->name + strlen("sha256:"));
    if (rc == 0) rc = blob_open(o, &b, named ? path : layer->name, layer->size, named ? &want : NULL, err);
    if (rc < 0)
        return rc;
    rc = archive_tree_apply(tree, &(struct tar_source){ blob_read, b }, &seen, err);
    rc = blob_settle(b, rc, err);
    blob_close(b);
    if (rc == 0 && !digest_equal(&seen, &layer->diff_id))
        rc = err_set(err, ERR_BAD_INPUT, "decompressed it does not match its diff_id of the config");
    return rc;
}

int oci_apply(struct oci *o, const struct oci_image *image, struct archive_tree *tree, struct err *err)
{
    for (uint32_t i = 0; i < image->layer_count; i++) {
        int rc = apply_layer(o, &image->layers[i], tree, err);
        char q[QUOTE_SIZE];
        if (rc < 0)
            return err_in(err, "layer %u of %u (%s)", i + 1, image->layer_count, quote(q, image->layers[i].name));
    }
    return 0;
}

void oci_close(struct oci *o)
{
    if (o == NULL)
        return;
    layout_close(o->files);
    free(o);
}
