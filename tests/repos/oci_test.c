/* oci_test.c - images from layouts and docker save: what is chosen, what is refused, and every entry against umoci's unpack. */
#include "repos/oci.h"
#include "base/fault.h"
#include "tests/repos/tar_make.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>

static const struct archive_limits limits = ARCHIVE_LIMITS;

/* --- layouts made by hand: documents with @ words, which stand for descriptors --- */

struct made { char *dir; struct arena a; const char *m, *c, *l, *n, *d; };

#define MANIFEST_TYPE "application/vnd.oci.image.manifest.v1+json"
#define INDEX_TYPE    "application/vnd.oci.image.index.v1+json"
#define CONFIG_TYPE   "application/vnd.oci.image.config.v1+json"
#define LAYER_TYPE    "application/vnd.oci.image.layer.v1.tar"
#define AMD64 "\"platform\":{\"os\":\"linux\",\"architecture\":\"amd64\"}"
#define ARM64 "\"platform\":{\"os\":\"linux\",\"architecture\":\"arm64\"}"
#define NONE  "\"platform\":{\"os\":\"unknown\",\"architecture\":\"unknown\"}"
#define TAG(t) "\"annotations\":{\"org.opencontainers.image.ref.name\":\"" t "\"}"
#define RUN "\"config\":{\"Env\":[\"PATH=/bin\",\"E=\"],\"WorkingDir\":\"/w\",\"User\":\"u:g\",\"Cmd\":[\"c\",\"d\"],\"Entrypoint\":[\"e\"]}"
#define PLATFORM "\"architecture\":\"amd64\",\"os\":\"linux\""
static const char layers[] = "d w\nf w/a 1\nf w/b 2\n";
static const char index_text[] = "{\"schemaVersion\":2,\"manifests\":[{@m," TAG("v1") "}]}";
static const char manifest_text[] = "{\"schemaVersion\":2,\"config\":{@c},\"layers\":[{@l}]}";
static const char config_text[] = "{" PLATFORM "," RUN ",\"rootfs\":{\"type\":\"layers\",\"diff_ids\":[@d]}}";

static void put_file(const char *dir, const char *name, const void *bytes, size_t n)
{
    char path[400];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
}

/* Put a blob; the fields of its descriptor. */
static const char *put_blob(struct made *m, const char *media, const void *bytes, size_t n)
{
    struct digest d;
    char hex[DIGEST_HEX_SIZE], name[100];
    digest_of(&d, bytes, n);
    digest_hex(hex, &d);
    snprintf(name, sizeof name, "blobs/sha256/%s", hex);
    put_file(m->dir, name, bytes, n);
    return arena_printf(&m->a, "\"mediaType\":\"%s\",\"digest\":\"sha256:%s\",\"size\":%zu", media, hex, n);
}

/* The template with every @ word in place. */
static const char *fill(struct made *m, const char *text)
{
    const char *out = "";
    for (const char *p = text; *p != '\0';) {
        size_t n = strcspn(p, "@");
        const char *word = p[n] == '\0' ? "" : p[n + 1] == 'm' ? m->m : p[n + 1] == 'c' ? m->c : p[n + 1] == 'l' ? m->l
                           : p[n + 1] == 'n' ? m->n : p[n + 1] == 'd' ? m->d : "@";
        out = arena_printf(&m->a, "%s%.*s%s", out, (int)n, p, word);
        p += n + (p[n] != '\0' ? 2 : 0);
    }
    return out;
}

static void make(struct made *m, const char *index, const char *nested, const char *manifest, const char *config)
{
    struct digest d;
    char hex[DIGEST_HEX_SIZE];
    own_buf layer = { 0 };
    *m = (struct made){ .dir = temp_dir() };
    assert_int_equal(sh(m->dir, "mkdir -p blobs/sha256"), 0);
    tar_layer(&layer, layers);
    digest_of(&d, layer.data, layer.len);
    digest_hex(hex, &d);
    m->d = arena_printf(&m->a, "\"sha256:%s\"", hex);
    m->l = put_blob(m, LAYER_TYPE, layer.data, layer.len);
    const char *text = fill(m, config != NULL ? config : config_text);
    m->c = put_blob(m, CONFIG_TYPE, text, strlen(text));
    text = fill(m, manifest != NULL ? manifest : manifest_text);
    m->m = put_blob(m, MANIFEST_TYPE, text, strlen(text));
    text = fill(m, nested != NULL ? nested : "{\"manifests\":[{@m}]}");
    m->n = put_blob(m, INDEX_TYPE, text, strlen(text));
    text = fill(m, index != NULL ? index : index_text);
    put_file(m->dir, "index.json", text, strlen(text));
    text = "{\"imageLayoutVersion\":\"1.0.0\"}";
    put_file(m->dir, "oci-layout", text, strlen(text));
}

static void made_done(struct made *m)
{
    arena_done(&m->a);
    drop_dir(m->dir);
}

/* Open, choose, apply: the tree as text. */
static int import(struct buf *out, struct oci_image *image, struct arena *a, const char *path, const char *want, struct err *err)
{
    struct kept kept = { .bytes = { .max = (size_t)256 << 20 } };
    struct archive_tree *t = NULL;
    struct image_node *root;
    struct oci *o = NULL;
    int rc = oci_open(&o, path, err);
    if (rc == 0) rc = oci_choose(o, image, a, want, err);
    if (rc == 0) rc = archive_tree_open(&t, a, &limits, &(struct archive_sink){ kept_put, kept_end, &kept }, err);
    if (rc == 0) rc = oci_apply(o, image, t, err);
    if (rc == 0) rc = archive_tree_finish(t, &root, err);
    if (rc == 0)
        tree_text(out, root, "", &kept.bytes);
    archive_tree_close(t);
    oci_close(o);
    buf_done(&kept.bytes);
    return rc;
}

static void check_image(const char *path, const char *want)
{
    own_arena a = { 0 };
    own_buf text = { 0 };
    struct oci_image image;
    struct err err = { 0 };
    if (import(&text, &image, &a, path, want, &err) != 0)
        fail_msg("%s \"%s\": %s", path, want, err.msg);
    assert_string_equal((const char *)text.data, layers);
    assert_int_equal(image.env.count, 2);
    assert_string_equal(image.env.items[1], "E=");
    assert_string_equal(image.working_dir, "/w");
    assert_string_equal(image.user, "u:g");
    assert_int_equal(image.cmd.count, 2);
    assert_string_equal(image.cmd.items[1], "d");
    assert_int_equal(image.entrypoint.count, 1);
    assert_int_equal(strlen(image.config), 64);
}

static void oci_apply__reads_every_form(void **state)
{
    (void)state;
    static const char *const forms[][2] = {
        { "true", "." }, { "tar cf t.tar index.json oci-layout blobs", "t.tar" }, { "tar cf t.tar ./index.json ./oci-layout ./blobs", "t.tar" },
        { "tar -cf t.tar --format=posix blobs oci-layout index.json", "t.tar" },
        /* docker save before 25: no index; the second of two equal layers is a link */
        { "mkdir -p o/x o/y; cp $C o/$(basename $C).json; cp $L o/y/layer.tar; ln -s ../y/layer.tar o/x/layer.tar; cd o; "
          "printf '[{\"Config\":\"%s.json\",\"RepoTags\":[\"app:v1\",\"app:latest\"],\"Layers\":[\"x/layer.tar\"]}]' $(basename $C) >manifest.json; "
          "tar cf ../t.tar .", "t.tar" },
        /* docker save since 25: both */
        { "printf '[{\"Config\":\"%s\",\"RepoTags\":[\"app:v1\"],\"Layers\":[\"%s\"]}]' $C $L >manifest.json; tar cf t.tar *", "t.tar" },
        { "printf '[{\"Config\":\"%s\",\"RepoTags\":null,\"Layers\":[\"%s\"]}]' $C $L >manifest.json; rm index.json oci-layout; tar cf t.tar *", "t.tar" },
    };
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        struct made m;
        make(&m, NULL, NULL, NULL, NULL);
        char path[300];
        const char *script = arena_printf(&m.a, "C=blobs/sha256/%.64s; L=blobs/sha256/%.64s; %s", strstr(m.c, "sha256:") + 7,
                                          strstr(m.l, "sha256:") + 7, forms[i][0]);
        assert_int_equal(sh(m.dir, script), 0);
        snprintf(path, sizeof path, "%s/%s", m.dir, forms[i][1]);
        check_image(path, "");
        if (i != 6)
            check_image(path, i == 4 ? "docker.io/library/app:v1" : "v1");
        made_done(&m);
    }
}

static void oci_choose__finds_the_image(void **state)
{
    (void)state;
    static const struct { const char *index, *nested, *want; int rc; const char *why; } rows[] = {
        { NULL, NULL, "", 0, 0 },
        { NULL, NULL, "v1", 0, 0 },
        { NULL, NULL, "v2", ERR_NOT_FOUND, "of name \"v2\"; there is: v1" },
        { "{\"manifests\":[{@m}]}", NULL, "", 0, 0 },
        { "{\"manifests\":[]}", NULL, "", ERR_NOT_FOUND, "there is: nothing" },
        { "{\"manifests\":[{@m," TAG("a") "},{@n," TAG("b") "}]}", NULL, "", ERR_USAGE, "say which; there is: a, b" },
        { "{\"manifests\":[{@m," TAG("a") "},{@n," TAG("b") "}]}", NULL, "b", 0, 0 },
        { "{\"manifests\":[{@m," TAG("a") "},{@m," TAG("b") "}]}", NULL, "", 0, 0 },
        { "{\"manifests\":[{@m," ARM64 "},{@n," AMD64 "}]}", NULL, "", 0, 0 },
        { "{\"manifests\":[{@m," ARM64 "," TAG("x") "}]}", NULL, "", ERR_NOT_FOUND, "linux/amd64; there is: x (linux/arm64)" },
        { "{\"manifests\":[{@n," TAG("a") "}]}", "{\"manifests\":[{@m," NONE "},{@m," ARM64 "},{@m," AMD64 "}]}", "a", 0, 0 },
        { "{\"manifests\":[{@n}]}", "{\"manifests\":[{@m," ARM64 "},{@m," NONE "}]}", "", ERR_NOT_FOUND, "(linux/arm64)" },
        { "{\"manifests\":[{@m,\"annotations\":{\"io.containerd.image.name\":\"docker.io/library/app:1\"}}]}", NULL, "app:1", 0, 0 },
        { "{\"manifests\":[{@m,\"annotations\":{\"io.containerd.image.name\":\"docker.io/org/app:1\"}}]}", NULL, "org/app:1", 0, 0 },
        { "{\"manifests\":[{@m,\"annotations\":{\"io.containerd.image.name\":\"docker.io/org/app:1\"}}]}", NULL, "app:1", ERR_NOT_FOUND, "org/app:1" },
        { "{\"manifests\":[{@m," TAG("\\u001b[31m\\n") "}]}", NULL, "no", ERR_NOT_FOUND, "there is: \\x1b[31m\\n" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct made m;
        own_arena a = { 0 };
        own_buf text = { 0 };
        struct oci_image image;
        struct err err = { 0 };
        make(&m, rows[i].index, rows[i].nested, NULL, NULL);
        int rc = import(&text, &image, &a, m.dir, rows[i].want, &err);
        if (rc != rows[i].rc || (rc < 0 && strstr(err.msg, rows[i].why) == NULL))
            fail_msg("row %zu: %d %s", i, rc, err.msg);
        made_done(&m);
    }
}

static void oci_choose__finds_a_digest(void **state)
{
    (void)state;
    struct made m;
    make(&m, "{\"manifests\":[{@m," TAG("a") "},{@n," TAG("b") "}]}", NULL, NULL, NULL);
    check_image(m.dir, arena_printf(&m.a, "%.71s", strstr(m.m, "sha256:")));
    made_done(&m);
}

#define ZEROS64 "0000000000000000000000000000000000000000000000000000000000000000"

/* Documents that are not what they should be, each alone; and blobs changed behind their digests. */
static void oci_apply__refuses(void **state)
{
    (void)state;
    static const struct { const char *index, *manifest, *config, *script; int rc; const char *why; } rows[] = {
        { "{", 0, 0, 0, ERR_BAD_INPUT, "index.json is not JSON" },
        { "[]", 0, 0, 0, ERR_BAD_INPUT, "field manifests: want a list" },
        { "{\"manifests\":{}}", 0, 0, 0, ERR_BAD_INPUT, "field manifests: want a list" },
        { "{\"manifests\":[1]}", 0, 0, 0, ERR_BAD_INPUT, "descriptor: want an object" },
        { "{\"manifests\":[{}]}", 0, 0, 0, ERR_BAD_INPUT, "digest \"\"" },
        { "{\"manifests\":[{\"digest\":\"sha256:../../../../etc/passwd\",\"size\":1}]}", 0, 0, 0, ERR_BAD_INPUT, "64 hex digits" },
        { "{\"manifests\":[{\"digest\":\"sha512:abc\",\"size\":1}]}", 0, 0, 0, ERR_UNSUPPORTED, "sha512:abc" },
        { "{\"manifests\":[{\"digest\":\"sha256:" ZEROS64 "\"}]}", 0, 0, 0, ERR_BAD_INPUT, "field size" },
        { "{\"manifests\":[{\"digest\":\"sha256:" ZEROS64 "\",\"size\":-1}]}", 0, 0, 0, ERR_BAD_INPUT, "field size" },
        { "{\"manifests\":[{\"digest\":\"sha256:" ZEROS64 "\",\"size\":1,\"mediaType\":\"" MANIFEST_TYPE "\"}]}", 0, 0, 0, ERR_NOT_FOUND, "blobs/sha256/000" },
        { "{\"manifests\":[{@c}]}", 0, 0, 0, ERR_UNSUPPORTED, "neither an index nor a manifest" },
        { "{\"manifests\":[],\"manifests\":[{@m}]}", 0, 0, 0, ERR_BAD_INPUT, "duplicate" },
        { 0, "[]", 0, 0, ERR_BAD_INPUT, "want an object" },
        { 0, "{\"config\":{@c},\"layers\":[{@l}],\"manifests\":[]}", 0, 0, ERR_BAD_INPUT, "an index and a manifest at once" },
        { 0, "{\"mediaType\":\"" INDEX_TYPE "\",\"config\":{@c},\"layers\":[{@l}]}", 0, 0, ERR_BAD_INPUT, "its descriptor says otherwise" },
        { 0, "{\"config\":{@l},\"layers\":[{@l}]}", 0, 0, ERR_UNSUPPORTED, "not an image that can be run" },
        { 0, "{\"config\":{@c},\"layers\":[{@c}]}", 0, 0, ERR_UNSUPPORTED, "no kind of layer" },
        { 0, "{\"config\":{@c},\"layers\":[{@l},{@l}]}", 0, 0, ERR_BAD_INPUT, "2 layers, the config 1 diff_ids" },
        { 0, "{\"config\":{@c}}", 0, 0, ERR_BAD_INPUT, "field layers" },
        { 0, 0, "{\"os\":\"linux\",\"architecture\":\"arm64\"}", 0, ERR_UNSUPPORTED, "linux/arm64, want linux/amd64" },
        { 0, 0, "{" PLATFORM ",\"rootfs\":{\"diff_ids\":[\"sha256:" ZEROS64 "\"]}}", 0, ERR_BAD_INPUT, "does not match its diff_id" },
        { 0, 0, "{" PLATFORM ",\"rootfs\":{\"diff_ids\":[1]}}", 0, ERR_BAD_INPUT, "diff_ids: entry 0" },
        { 0, 0, "{" PLATFORM "}", 0, ERR_BAD_INPUT, "field diff_ids" },
        { 0, 0, "{" PLATFORM ",\"config\":{\"Env\":[\"=x\"]},\"rootfs\":{\"diff_ids\":[@d]}}", 0, ERR_BAD_INPUT, "want NAME=VALUE" },
        { 0, 0, "{" PLATFORM ",\"config\":{\"Env\":\"A=b\"},\"rootfs\":{\"diff_ids\":[@d]}}", 0, ERR_BAD_INPUT, "field Env: want a list" },
        { 0, 0, "{" PLATFORM ",\"config\":{\"Cmd\":[1]},\"rootfs\":{\"diff_ids\":[@d]}}", 0, ERR_BAD_INPUT, "field Cmd: entry 0" },
        { 0, 0, "{" PLATFORM ",\"config\":{\"User\":1},\"rootfs\":{\"diff_ids\":[@d]}}", 0, ERR_BAD_INPUT, "field User" },
        { 0, 0, 0, "printf x | dd of=$L bs=1 seek=3000 conv=notrunc status=none", ERR_BAD_INPUT, "does not match its digest" },
        { 0, 0, 0, "printf x | dd of=$L bs=1 seek=10 conv=notrunc status=none", ERR_BAD_INPUT, "does not match its digest" },
        { 0, 0, 0, "truncate -s 1000 $L", ERR_BAD_INPUT, "it has 1000 bytes" },
        { 0, 0, 0, "printf x >>$L", ERR_BAD_INPUT, "its descriptor says" },
        { 0, 0, 0, "printf ' ' | dd of=$C bs=1 seek=1 conv=notrunc status=none", ERR_BAD_INPUT, "does not match its digest" },
        { 0, 0, 0, "rm $L", ERR_NOT_FOUND, "layer 1 of 1" },
        { 0, 0, 0, "cp $L x; ln -sf $PWD/x $L", ERR_BAD_INPUT, "symbolic links" },
        { 0, 0, 0, "rm $L; mkfifo $L", ERR_BAD_INPUT, "no regular file" },
        { 0, 0, 0, "mv blobs b; ln -s b blobs", ERR_NOT_FOUND, "blobs/sha256/" },
        { 0, 0, 0, "rm oci-layout", ERR_NOT_FOUND, "oci-layout" },
        { 0, 0, 0, "printf '{\"imageLayoutVersion\":\"2.0.0\"}' >oci-layout", ERR_UNSUPPORTED, "2.0.0" },
        { 0, 0, 0, "rm index.json", ERR_BAD_INPUT, "neither index.json" },
        { 0, 0, 0, "truncate -s 5M index.json", ERR_LIMIT, "5242880 bytes" },
        { 0, 0, 0, "head -c 100000 /dev/zero | tr '\\0' '[' >index.json", ERR_BAD_INPUT, "not JSON" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        for (int tar = 0; tar < 2; tar++) {
            struct made m;
            own_arena a = { 0 };
            own_buf text = { 0 };
            struct oci_image image;
            struct err err = { 0 };
            bool links = rows[i].script != NULL && (strstr(rows[i].script, "ln -s") != NULL || strstr(rows[i].script, "mkfifo") != NULL);
            if (tar && links)
                continue;               /* in a tar these are links from member to member, or none of its files */
            make(&m, rows[i].index, NULL, rows[i].manifest, rows[i].config);
            const char *script = arena_printf(&m.a, "C=blobs/sha256/%.64s; L=blobs/sha256/%.64s; %s; %s", strstr(m.c, "sha256:") + 7,
                                              strstr(m.l, "sha256:") + 7, rows[i].script != NULL ? rows[i].script : "true",
                                              tar ? "tar cf t.tar *" : "true");
            assert_int_equal(sh(m.dir, script), 0);
            int rc = import(&text, &image, &a, arena_printf(&m.a, "%s/%s", m.dir, tar ? "t.tar" : "."), "", &err);
            if (rc != rows[i].rc || strstr(err.msg, rows[i].why) == NULL)
                fail_msg("row %zu: %d %s", i, rc, err.msg);
            made_done(&m);
        }
}

static void oci_open__refuses_what_is_no_layout(void **state)
{
    (void)state;
    static const struct { const char *make; int rc; const char *why; } rows[] = {
        { "true", ERR_NOT_FOUND, "image" }, { "mkfifo in", ERR_BAD_INPUT, "neither a directory nor a file" }, { ": >in", ERR_BAD_INPUT, "" },
        { "echo text >in", ERR_BAD_INPUT, "Unrecognized" }, { "tar czf in /dev/null 2>/dev/null", ERR_BAD_INPUT, "gzip -d" },
        { "echo a >a; tar cf in a", ERR_BAD_INPUT, "neither index.json" },
        { "echo a >index.json; tar cPf in --transform 's,^,../,' index.json", ERR_BAD_INPUT, "leaves the root" },
        { "ln -s manifest.json index.json; ln -s index.json manifest.json; tar cf in index.json manifest.json", ERR_BAD_INPUT, "neither" },
        { "ln -s /etc/passwd index.json; tar cf in index.json", ERR_BAD_INPUT, "absolute" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char *dir = temp_dir(), path[200];
        struct oci *o = NULL;
        struct err err = { 0 };
        assert_int_equal(sh(dir, rows[i].make), 0);
        snprintf(path, sizeof path, "%s/in", dir);
        int rc = oci_open(&o, path, &err);
        if (rc != rows[i].rc || strstr(err.msg, rows[i].why) == NULL)
            fail_msg("%s: %d %s", rows[i].make, rc, err.msg);
        drop_dir(dir);
    }
}

static void oci_apply__survives_a_fault_at_every_point(void **state)
{
    (void)state;
    struct made m;
    make(&m, NULL, NULL, NULL, NULL);
    for (int nth = 1;; nth++) {
        own_arena a = { 0 };
        own_buf text = { 0 };
        struct oci_image image;
        struct err err = { 0 };
        fault_arm(nth);
        int rc = import(&text, &image, &a, m.dir, "", &err);
        bool clean = fault_seen() < nth;
        fault_arm(0);
        if (clean) {
            assert_int_equal(rc, 0);
            assert_true(nth > 5);
            break;
        }
        assert_true(rc < 0 && err.msg[0] != '\0');
    }
    made_done(&m);
}

/* --- against umoci --- */

/* What umoci unpacks and packs again, and layers that it only unpacks: those made by hand hold what no file system gives. */
static const char umoci_script[] =
    "exec >log 2>&1; umoci init --layout img; umoci new --image img:v0; umoci unpack --image img:v0 b0; cd b0/rootfs; "
    "mkdir -p turned usr/bin usr/lib etc/keep gone deep/a/b var/lib; ln -s usr/lib lib; printf l >usr/lib/l; "
    "printf one >usr/bin/one; ln usr/bin/one usr/bin/uno; printf su >usr/bin/su; chmod 4755 usr/bin/su; chmod 2755 usr/bin/one; "
    "printf x >gone/file; printf t >turned/su; printf t >turned/u; printf k >etc/keep/k; ln -s ../etc/keep var/lib/link; ln -s /nowhere dangling; "
    "mkdir -m 1777 tmp; chown 1000:1001 etc/keep/k; chown -h 7:8 dangling; "
    "printf n >$(printf 'caf\\303\\251'); printf n >$(printf 'bad\\377\\376'); "
    "long=$(printf 'l%.0s' $(seq 255)); mkdir $long; printf deep >$long/$long; "
    "touch -d '2001-02-03 04:05:06.789012345' etc/keep/k; : >empty; truncate -s 200000 sparse; printf end >>sparse; "
    "/usr/bin/python3 -c \"import os; os.setxattr('usr/bin/su', 'user.note', b'a\\0b'); os.setxattr('etc', 'user.dir', b'd')\"; "
    "cd ../..; umoci repack --image img:v1 b0; umoci unpack --image img:v1 b1; cd b1/rootfs; "
    "rm -r gone; rm etc/keep/k; ln usr/bin/su usr/bin/su2; printf new >etc/keep/new; rm dangling; mkdir dangling; "
    "printf d >dangling/x; rm -r deep; printf file >deep; rm -r turned; ln -s usr/bin turned; chmod 700 tmp; "
    "cd ../..; umoci repack --image img:v2 b1; "
    "umoci raw add-layer --image img:v2 --tag v3 layer.tar; umoci unpack --image img:v3 out";
static const char umoci_layer[] =
    "d lib2\nf lib/new 1\nd etc\nf etc/.wh..wh..opq\nf etc/fresh 2\nh usr/bin/tres usr/bin/one\nf .wh.empty\nf .wh.none\n"
    "l loop loop\nl up ../../..\nh up2 up\nf usr/bin/uno two\nf a 1\nf a 2\nd a\n";

struct pair { const struct image_node *node; ino_t ino; char path[600]; };
struct compare { int top; const struct buf *bytes; struct pair pairs[200]; int count; };

static void same_xattrs(const struct image_node *n, const char *proc, const char *path)
{
    char names[4096], value[4096];
    ssize_t size = llistxattr(proc, names, sizeof names);
    assert_true(size >= 0);
    uint32_t seen = 0;
    for (const char *p = names; p < names + size; p += strlen(p) + 1) {
        ssize_t len = lgetxattr(proc, p, value, sizeof value);
        if (strcmp(p, "security.selinux") == 0)
            continue;
        uint32_t i = 0;
        while (i < n->xattr_count && strcmp(n->xattrs[i].name, p) != 0)
            i++;
        if (i == n->xattr_count || n->xattrs[i].size != (size_t)len || memcmp(n->xattrs[i].value, value, (size_t)len) != 0)
            fail_msg("%s: attribute %s", path, p);
        seen++;
    }
    if (seen != n->xattr_count)
        fail_msg("%s: %u attributes, umoci has %u", path, n->xattr_count, seen);
}

static void same_content(struct compare *c, const struct image_node *n, const char *real, const char *path)
{
    own_buf b = { 0 };
    struct err err;
    int fd = open(real, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(buf_read_fd(&b, fd, &err), 0);
    close(fd);
    if (b.len != n->size || (b.len > 0 && memcmp(b.data, c->bytes->data + n->offset, b.len) != 0))
        fail_msg("%s: %zu bytes, we have %llu or others", path, b.len, (unsigned long long)n->size);
}

static void same_node(struct compare *c, const struct image_node *n, const char *real, const char *path)
{
    struct stat st;
    char target[4096] = "";
    if (lstat(real, &st) != 0)
        fail_msg("%s: umoci has not", path);
    mode_t type = n->kind == IMAGE_DIR ? S_IFDIR : n->kind == IMAGE_LINK ? S_IFLNK : S_IFREG;
    if (st.st_mode != (type | n->mode) || st.st_uid != n->uid || st.st_gid != n->gid)
        fail_msg("%s: umoci has %o %u:%u, we %o %u:%u", path, st.st_mode, st.st_uid, st.st_gid, type | n->mode, n->uid, n->gid);
    if (st.st_mtim.tv_sec != n->mtime_s || st.st_mtim.tv_nsec != n->mtime_ns)
        fail_msg("%s: umoci has time %lld.%09ld, we %lld.%09u", path, (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec,
                 (long long)n->mtime_s, n->mtime_ns);
    if (n->kind == IMAGE_LINK && (readlink(real, target, sizeof target - 1) < 0 || strcmp(target, n->target) != 0))
        fail_msg("%s: umoci has a link to %s, we to %s", path, target, n->target);
    if (n->kind == IMAGE_FILE)
        same_content(c, n, real, path);
    same_xattrs(n, real, path);
    struct pair *p = &c->pairs[c->count++];
    assert_true(c->count < 200);
    *p = (struct pair){ .node = n, .ino = st.st_ino };
    snprintf(p->path, sizeof p->path, "%.599s", path);
    for (int i = 0; i < c->count - 1; i++)
        if ((c->pairs[i].node == n) != (c->pairs[i].ino == st.st_ino))
            fail_msg("%s and %s are one file here or there only", c->pairs[i].path, path);
}

static void same_dir(struct compare *c, const struct image_node *dir, const char *real, const char *path)
{
    uint32_t there = 0;
    DIR *d = opendir(real);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d)) != NULL;)
        there += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    closedir(d);
    for (uint32_t i = 0; i < dir->entry_count; i++) {
        char next[4096], next_path[4096];
        snprintf(next, sizeof next, "%.2000s/%s", real, dir->entries[i].name);
        snprintf(next_path, sizeof next_path, "%.2000s/%s", path, dir->entries[i].name);
        same_node(c, dir->entries[i].node, next, next_path);
        if (dir->entries[i].node->kind == IMAGE_DIR)
            same_dir(c, dir->entries[i].node, next, next_path);
    }
    if (there != dir->entry_count)
        fail_msg("%s/: umoci has %u names, we %u", path, there, dir->entry_count);
}

static void oci_apply__equals_umoci(void **state)
{
    (void)state;
    if (system("command -v umoci >/dev/null") != 0 || geteuid() != 0) {
        print_message("skipped: wants umoci (apt-get install umoci) and root\n");
        skip();
    }
    char *dir = temp_dir(), path[300];
    own_buf layer = { 0 };
    own_arena a = { 0 };
    struct kept kept = { .bytes = { .max = (size_t)64 << 20 } };
    struct err err = { 0 };
    struct oci *o = NULL;
    struct oci_image image;
    struct archive_tree *t = NULL;
    struct image_node *root = NULL;
    tar_layer(&layer, umoci_layer);
    put_file(dir, "layer.tar", layer.data, layer.len);
    if (sh(dir, umoci_script) != 0)
        fail_msg("umoci failed:\n%s", slurp(dir, "log", NULL));
    snprintf(path, sizeof path, "%s/img", dir);
    int rc = oci_open(&o, path, &err);
    if (rc == 0) rc = oci_choose(o, &image, &a, "v3", &err);
    if (rc == 0) rc = archive_tree_open(&t, &a, &limits, &(struct archive_sink){ kept_put, kept_end, &kept }, &err);
    if (rc == 0) rc = oci_apply(o, &image, t, &err);
    if (rc == 0) rc = archive_tree_finish(t, &root, &err);
    if (rc != 0)
        fail_msg("%s", err.msg);
    assert_int_equal(image.layer_count, 3);
    struct compare c = { .bytes = &kept.bytes };
    snprintf(path, sizeof path, "%s/out/rootfs", dir);
    same_dir(&c, root, path, "");
    assert_true(c.count > 25);
    print_message("%d entries as umoci has them\n", c.count);
    archive_tree_close(t);
    oci_close(o);
    buf_done(&kept.bytes);
    drop_dir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(oci_apply__reads_every_form),
        cmocka_unit_test(oci_choose__finds_the_image),
        cmocka_unit_test(oci_choose__finds_a_digest),
        cmocka_unit_test(oci_apply__refuses),
        cmocka_unit_test(oci_open__refuses_what_is_no_layout),
        cmocka_unit_test(oci_apply__survives_a_fault_at_every_point),
        cmocka_unit_test(oci_apply__equals_umoci),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
