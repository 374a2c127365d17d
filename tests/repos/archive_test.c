/* archive_test.c - layers onto a tree: what is taken, what is refused and how it is named, and against umoci. */
#include "tests/repos/tar_make.h"
#include "base/fault.h"
#include <locale.h>

static const struct archive_limits small = { .entries = 2000, .file_bytes = 1 << 20, .bytes = 8 << 20, .ratio = 200 };

struct fixture { struct arena a; struct kept kept; struct archive_tree *t; struct image_node *root; };

static void open_tree(struct fixture *f, const struct archive_limits *limits)
{
    struct err err = { 0 };
    *f = (struct fixture){ .a = { .budget = (size_t)64 << 20 } };
    int rc = archive_tree_open(&f->t, &f->a, limits, &(struct archive_sink){ kept_put, kept_end, &f->kept }, &err);
    assert_int_equal(rc, 0);
}

static void close_tree(struct fixture *f)
{
    archive_tree_close(f->t);
    buf_done(&f->kept.bytes);
    arena_done(&f->a);
}

static int apply_text(struct fixture *f, const char *layers, size_t step, struct err *err)
{
    int rc = 0;
    while (rc == 0 && layers != NULL && *layers != '\0') {
        own_buf layer = { 0 };
        layers = tar_layer(&layer, layers);
        rc = apply_bytes(f->t, &layer, step, err);
    }
    return rc < 0 ? rc : archive_tree_finish(f->t, &f->root, err);
}

static const struct image_node *look(const struct image_node *dir, const char *path)
{
    size_t n = strcspn(path, "/");
    for (uint32_t i = 0; i < dir->entry_count; i++)
        if (strlen(dir->entries[i].name) == n && memcmp(dir->entries[i].name, path, n) == 0)
            return path[n] == '\0' ? dir->entries[i].node : look(dir->entries[i].node, path + n + 1);
    return NULL;
}

#define X50 "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
#define X255 X50 X50 X50 X50 X50 "xxxxx"
#define D16 "d/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d/"
#define D127 D16 D16 D16 D16 D16 D16 D16 "d/d/d/d/d/d/d/d/d/d/d/d/d/d/d/"
#define HOME "d home\nd home/u\n"

/* becomes: the tree as text; or refused: "entry" and why, both of which the message must have. */
static const struct { const char *layers, *becomes, *entry, *why; } rows[] = {
    /* plain */
    { "d a\nf a/b one\nl a/c b\n", "d a\nf a/b one\nl a/c b\n", 0, 0 },
    { "f ./a 1\nf .//b 2\nf c/../d 3\nd ./\n", "f a 1\nf b 2\nf d 3\n", 0, 0 },
    { "f a/b/c 1\n", "d a\nd a/b\nf a/b/c 1\n", 0, 0 },
    { "f a 1\nf a 2\n", "f a 2\n", 0, 0 },
    { "f a\nf b\n", "f a \nf b \n", 0, 0 },
    { "f \\xff\\xfe\\x80 1\nf caf\\xc3\\xa9 2\nf cafe\\xcc\\x81 3\n", "f cafe\\xcc\\x81 3\nf caf\\xc3\\xa9 2\nf \\xff\\xfe\\x80 1\n", 0, 0 },
    { "f " X255 " 1\n", "f " X255 " 1\n", 0, 0 },
    { "f " X255 "/" X255 "/" X255 " 1\n", "d " X255 "\nd " X255 "/" X255 "\nf " X255 "/" X255 "/" X255 " 1\n", 0, 0 },
    { "f ... 1\nf ..a 2\nf a.. 3\n", "f ... 1\nf ..a 2\nf a.. 3\n", 0, 0 },
    { "f ._a 1\nf a 2\n", "f ._a 1\nf a 2\n", 0, 0 },           /* no AppleDouble */
    /* kinds that change, in one layer and over two */
    { "d a\nf a/b 1\n--\nf a 2\n", "f a 2\n", 0, 0 },
    { "f a 1\n--\nd a\nf a/b 2\n", "d a\nf a/b 2\n", 0, 0 },
    { "d a\nf a/b 1\nf a 2\nd a\n", "d a\n", 0, 0 },
    { "d a\nf a/b 1\n--\nd a\nf a/c 2\n", "d a\nf a/b 1\nf a/c 2\n", 0, 0 },
    { "l a b\n--\nd a\nf a/x 1\n", "d a\nf a/x 1\n", 0, 0 },    /* a directory over a link replaces the link */
    { "d b\nl a b\n--\nf a 1\n", "f a 1\nd b\n", 0, 0 },         /* the last component is not followed */
    { "f b keep\nl a b\nf a new\n", "f a new\nf b keep\n", 0, 0 },
    /* whiteouts */
    { "f a 1\nf b 2\n--\nf .wh.a\n", "f b 2\n", 0, 0 },
    { "d a\nf a/b 1\n--\nf .wh.a\n", "", 0, 0 },
    { "d a\nf a/b 1\n--\nf .wh.a\nd a\nf a/c 2\n", "d a\nf a/c 2\n", 0, 0 },
    { "d a\nf a/b 1\n--\nd a\nf a/c 2\nf .wh.a\n", "d a\nf a/c 2\n", 0, 0 },       /* the same, the other way round */
    { "d a\nf a/b 1\n--\nf a/c 2\nf .wh.a\n", "d a\nf a/c 2\n", 0, 0 },
    { "f a 1\nf .wh.a\n", "f a 1\n", 0, 0 },                    /* its own layer is not hidden */
    { "f a 1\n--\nf .wh.a\nf a 2\n", "f a 2\n", 0, 0 },
    { "f a 1\n--\nf a 2\nf .wh.a\n", "f a 2\n", 0, 0 },
    { "f a 1\n--\nf .wh.none\nf x/.wh.y\n", "f a 1\n", 0, 0 },
    { "d a\nf a/b 1\nd a/d\nf a/d/e 2\n--\nf a/.wh..wh..opq\nf a/c 3\n", "d a\nf a/c 3\n", 0, 0 },
    { "d a\nf a/b 1\nd a/d\nf a/d/e 2\n--\nd a\nd a/d\nf a/d/new 4\nf a/c 3\nf a/.wh..wh..opq\n", "d a\nf a/c 3\nd a/d\nf a/d/new 4\n", 0, 0 },
    { "f a 1\nd b\n--\nf .wh..wh..opq\nf c 2\n", "f c 2\n", 0, 0 },
    { "d a\nf a/b 1\n--\nf none/.wh..wh..opq\n", "d a\nf a/b 1\n", 0, 0 },
    { "d r\nf r/x 1\nl a r\n--\nf a/.wh.x\n", "l a r\nd r\n", 0, 0 },
    { "d r\nf r/x 1\nl a r\n--\nf .wh.a\n", "d r\nf r/x 1\n", 0, 0 },
    { "d d\nf d/a 1\n--\nf d/.wh.a\nf d 2\n", "f d 2\n", 0, 0 },
    { "d d\nf d/a 1\n--\nf d 2\nf d/.wh.a\n", "f d 2\n", 0, 0 },
    { "d d\nf d/a 1\nf a 2\n--\nl d .\nf d/.wh.a\n", "f a 2\nl d .\n", 0, 0 },  /* not through its own layer's link */
    { "f .wh..wh.plnk\nd .wh..wh.orph\nf .wh..wh.orph/x 1\nf a 1\n", "f a 1\n", 0, 0 },   /* AUFS's own */
    { "h .wh.a .wh..wh.aufs\n", "", 0, 0 },                     /* as AUFS wrote them */
    { "f a 1\n--\nf .wh. 1\n", 0, ".wh.", "whiteout of no name" },
    { "f a 1\n--\nf .wh.. 1\n", 0, ".wh..", "whiteout of no name" },
    { "f a 1\n--\nf b/.wh... 1\nf c 1\n", "f a 1\nf c 1\n", 0, 0 },     /* nothing there to hide */
    { "d b\nf a 1\n--\nf b/.wh...\n", 0, "b/.wh...", "whiteout of no name" },
    { "d b\n--\nf b/.wh../x\n", 0, "b/.wh../x", "whiteout's name" },
    { "d .wh.b/\nf .wh.b/x 1\n", 0, ".wh.b/x", "whiteout's name" },
    { "f a 1\n--\nf .wh...wh.a\n", "f a 1\n", 0, 0 },           /* hides a name ".wh.a" with a point in front: none */
    { "f a 1\n--\n0 a\n", 0, "a", "device" },
    /* symbolic links among parents */
    { "d usr/lib\nl lib usr/lib\n--\nf lib/x 1\n", "l lib usr/lib\nd usr\nd usr/lib\nf usr/lib/x 1\n", 0, 0 },
    { "l lib /usr/lib\n--\nf lib/x 1\n", "l lib /usr/lib\nd usr\nd usr/lib\nf usr/lib/x 1\n", 0, 0 },
    { "d a\nl a/l /usr\nf a/l/x 1\n", "d a\nl a/l /usr\nd usr\nf usr/x 1\n", 0, 0 },
    { "l a ../../../etc\nf a/passwd 1\n", "l a ../../../etc\nd etc\nf etc/passwd 1\n", 0, 0 },
    { "l a /\nl b a/..\nf b/etc/passwd 1\n", "l a /\nl b a/..\nd etc\nf etc/passwd 1\n", 0, 0 },
    { "l a b\nl b c\nd c\nf a/x 1\n", "l a b\nl b c\nd c\nf c/x 1\n", 0, 0 },
    { "d x\nl x/up ..\nf x/up/y 1\n", "d x\nl x/up ..\nf y 1\n", 0, 0 },
    { "l a b\nl b a\nf a/x 1\n", 0, "a/x", "loop" },
    { "l a a\nf a/x 1\n", 0, "a/x", "loop" },
    { "f a 1\nf a/b 2\n", 0, "a/b", "is a file" },
    { "f f 1\nl a f\nf a/b 2\n", 0, "a/b", "is a file" },
    /* out of the root */
    { "f ../x 1\n", 0, "../x", "leaves the root" },
    { "f a/../../x 1\n", 0, "a/../../x", "leaves the root" },
    { "f ./../x 1\n", 0, "./../x", "leaves the root" },
    { "d ..\n", 0, "..", "leaves the root" },
    { "f /etc/passwd 1\n", 0, "/etc/passwd", "absolute" },
    { "f //etc/passwd 1\n", 0, "//etc/passwd", "absolute" },
    { "f /../etc/passwd 1\n", 0, "/../etc/passwd", "absolute" },
    { "d /\nf a 1\n", "f a 1\n", 0, 0 },
    { "f . 1\n", 0, ".", "root is a directory" },
    { "l ./ /etc\n", 0, "./", "root is a directory" },
    { "f a 1\nh . a\n", 0, ".", "root is a directory" },
    /* hard links */
    { "f a 1\nh b a\n", "f a 1\nf b 1\n", 0, 0 },
    { "f a 1\n--\nh b a\n--\nf a 2\n", "f a 2\nf b 1\n", 0, 0 },
    { "f a 1\n--\nh b a\nf .wh.a\n", "f b 1\n", 0, 0 },
    { "f a 1\n--\nh b ./a\nh c b\n", "f a 1\nf b 1\nf c 1\n", 0, 0 },
    { "l a ../../etc/passwd\nh b a\n", "l a ../../etc/passwd\nl b ../../etc/passwd\n", 0, 0 },   /* the link itself, not followed */
    { "l a ../../etc/passwd\nh b a\nf b 1\n", "l a ../../etc/passwd\nf b 1\n", 0, 0 },
    { "d d\nf d/f 1\nl l d\nh b l/f\n", "f b 1\nd d\nf d/f 1\nl l d\n", 0, 0 },
    { "d a\nf a/f 1\nh a a/f\n", 0, "a", "below the directory that it replaces" },
    { "h b a\n", 0, "b", "not there" },
    { "h b a\nf a 1\n", 0, "b", "not there" },
    { "f a 1\n--\nf .wh.a\nh b a\n", 0, "b", "not there" },
    { "h b ../../etc/passwd\n", 0, "b", "leaves the root" },
    { "h b /etc/passwd\n", 0, "b", "absolute" },
    { "l e /etc\nh b e/passwd\n", 0, "b", "not there" },
    { "f a 1\nh b a/x\n", 0, "b", "not there" },
    { "f a 1\nh a a\n", 0, "a", "itself" },
    { "d a\nh b a\n", 0, "b", "directory" },
    { "h b .\n", 0, "b", "not there" },
    { "h b \n", 0, "b", "" },
    /* what a tree does not hold */
    { "c dev/tty\n", 0, "dev/tty", "device" },
    { "b dev/sda\n", 0, "dev/sda", "device" },
    { "0 a\n", 0, "a", ".wh.NAME" },
    { "p a\n", 0, "a", "FIFO" },
    { "l a \n", 0, "a", "symbolic link to 0 bytes" },
    /* limits of names */
    { "f " X255 "x 1\n", 0, X50, "256 bytes" },
    { "f a/" X255 "x/b 1\n", 0, "a/" X50, "256 bytes" },
    { "f " D127 "f 1\n", NULL, 0, 0 },
    { "f " D127 "d/f 1\n", 0, "d/d/", "deeper than 128" },
    { "d " D127 "\nl s " D127 "\nf s/x/y 1\n", 0, "s/x/y", "deeper than 128" },
    { "d " D127 "\nl s " D127 "\nf s/x 1\n", NULL, 0, 0 },
    { "l s " X255 "x/b\nf s/x 1\n", 0, "s/x", "256 bytes" },
};

static void archive_tree_apply__takes_or_refuses(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        for (size_t step = 100; step <= 65536; step += 65436) {
            struct fixture f;
            struct err err = { 0 };
            own_buf text = { 0 };
            open_tree(&f, &small);
            int rc = apply_text(&f, rows[i].layers, step, &err);
            char entry[512] = "";
            if (rows[i].entry != NULL)
                snprintf(entry, sizeof entry, "entry \"%s", rows[i].entry);
            if (rows[i].entry == NULL && rc != 0)
                fail_msg("row %zu (%.300s): %s", i, rows[i].layers, err.msg);
            if (rows[i].entry != NULL && (rc != ERR_BAD_INPUT || strstr(err.msg, entry) == NULL || strstr(err.msg, rows[i].why) == NULL))
                fail_msg("row %zu (%.300s): %d \"%s\"", i, rows[i].layers, rc, err.msg);
            if (rc == 0)
                tree_text(&text, f.root, "", &f.kept.bytes);
            if (rows[i].becomes != NULL && strcmp(text.data != NULL ? (const char *)text.data : "", rows[i].becomes) != 0)
                fail_msg("row %zu (%.300s): got\n%s", i, rows[i].layers, text.data);
            close_tree(&f);
        }
}

static void archive_tree_apply__keeps_what_an_entry_says(void **state)
{
    (void)state;
    struct fixture f;
    struct err err = { 0 };
    own_buf layer = { 0 }, pax = { 0 };
    open_tree(&f, &small);
    pax_record(&pax, "mtime", "1700000000.123456789", 20);
    pax_record(&pax, "uid", "4000000000", 10);
    pax_record(&pax, "SCHILY.xattr.user.b", "one", 3);
    pax_record(&pax, "SCHILY.xattr.user.a", "a\0b\n", 4);
    pax_record(&pax, "SCHILY.xattr.user.b", "two", 3);
    pax_record(&pax, "LIBARCHIVE.xattr.user.c%3d", "AAEC", 4);
    pax_record(&pax, "SCHILY.xattr.security.capability", "\1\0\0\2", 4);
    pax_record(&pax, "SCHILY.xattr.trusted.overlay.redirect", "/etc", 4);
    pax_record(&pax, "SCHILY.xattr.user.overlay.opaque", "y", 1);
    pax_record(&pax, "SCHILY.xattr.security.selinux", "s", 1);
    tar_pax(&layer, &pax);
    tar_add(&layer, (struct tar_header){ .type = '0', .name = "su", .mode = 0104755, .uid = 1, .gid = 7 }, "x");
    tar_add(&layer, (struct tar_header){ .type = '5', .name = "tmp", .mode = 01777, .gid = 5, .mtime = 9 }, NULL);
    tar_add(&layer, (struct tar_header){ .type = '1', .name = "su2", .link = "su" }, NULL);
    tar_end(&layer);
    if (apply_bytes(f.t, &layer, 65536, &err) != 0 || archive_tree_finish(f.t, &f.root, &err) != 0)
        fail_msg("%s", err.msg);
    const struct image_node *su = look(f.root, "su"), *tmp = look(f.root, "tmp");
    assert_ptr_equal(look(f.root, "su2"), su);
    assert_int_equal(su->mode, 04755);
    assert_int_equal(su->uid, 4000000000u);
    assert_int_equal(su->gid, 7);
    assert_int_equal(su->mtime_s, 1700000000);
    assert_int_equal(su->mtime_ns, 123456789);
    assert_int_equal(tmp->mode, 01777);
    assert_int_equal(tmp->mtime_s, 9);
    static const struct { const char *name, *value; uint32_t size; } xattrs[] = {
        { "security.capability", "\1\0\0\2", 4 }, { "user.a", "a\0b\n", 4 }, { "user.b", "two", 3 }, { "user.c=", "\0\1\2", 3 } };
    assert_int_equal(su->xattr_count, 4);
    for (size_t i = 0; i < 4; i++) {
        assert_string_equal(su->xattrs[i].name, xattrs[i].name);
        assert_int_equal(su->xattrs[i].size, xattrs[i].size);
        assert_memory_equal(su->xattrs[i].value, xattrs[i].value, xattrs[i].size);
    }
    assert_int_equal(archive_tree_xattrs_dropped(f.t), 3);
    close_tree(&f);
}

/* Names are bytes: a program that has set a locale gets the same tree, and no other normal form of its names. */
static void archive_tree_apply__does_not_depend_on_the_locale(void **state)
{
    (void)state;
    const char *was = setlocale(LC_ALL, NULL);
    if (setlocale(LC_ALL, "C.UTF-8") == NULL)
        skip();
    struct fixture f;
    struct err err = { 0 };
    own_buf layer = { 0 }, pax = { 0 };
    open_tree(&f, &small);
    pax_record(&pax, "path", "cafe\xcc\x81", 6);
    pax_record(&pax, "linkpath", "e\xcc\x81", 3);
    tar_pax(&layer, &pax);
    tar_add(&layer, (struct tar_header){ .type = '2', .name = "x", .link = "y" }, NULL);
    if (apply_bytes(f.t, &layer, 65536, &err) != 0 || archive_tree_finish(f.t, &f.root, &err) != 0)
        fail_msg("%s", err.msg);
    assert_string_equal(f.root->entries[0].name, "cafe\xcc\x81");
    assert_string_equal(f.root->entries[0].node->target, "e\xcc\x81");
    close_tree(&f);
    setlocale(LC_ALL, was);
}

/* Compressed by the usual programs, in every way that layers come. */
static void archive_tree_apply__knows_the_compressions(void **state)
{
    (void)state;
    static const struct { const char *make; int rc; const char *why; } ways[] = {
        { "cat in >out", 0, 0 }, { "gzip <in >out", 0, 0 }, { "xz <in >out", 0, 0 }, { "zstd -q <in >out", 0, 0 },
        { "head -c 700 in | gzip >out; tail -c +701 in | gzip >>out", 0, 0 },           /* members, as eStargz has them */
        { "zstd -q <in >out; printf '\\120\\052\\115\\030\\004\\0\\0\\0abcd' >>out", 0, 0 },  /* a skippable frame, as zstd:chunked has */
        { ": >out", 0, 0 }, { ": | gzip >out", 0, 0 }, { "head -c 1024 /dev/zero >out", 0, 0 },
        { "{ cat in; head -c 9000 /dev/zero; } >out", 0, 0 },
        { "gzip <in | gzip >out", ERR_BAD_INPUT, "Unrecognized" },                      /* once, as the config's digest is */
        { "gzip <in >g; head -c 60 g >out", ERR_BAD_INPUT, "truncated" },
        { "xz <in >g; head -c 100 g >out", ERR_BAD_INPUT, "truncated" },
        { "zstd -q <in >g; head -c 60 g >out", ERR_BAD_INPUT, "truncated" },
        { "head -c 600 in >out", ERR_BAD_INPUT, "entry \"first\"" },
        { "head -c 1700 in >out", ERR_BAD_INPUT, "entry \"second\"" },
        { "echo no tar at all >out", ERR_BAD_INPUT, "Unrecognized" },
        { "{ head -c 100 in; printf x; tail -c +102 in; } >out", ERR_BAD_INPUT, "" },
        { "bzip2 <in >out 2>/dev/null || echo BZh >out", ERR_BAD_INPUT, "Unrecognized" },
    };
    char *dir = temp_dir();
    own_buf layer = { 0 };
    struct err err = { 0 };
    char text[3000];
    memset(text, 'y', sizeof text);
    text[sizeof text - 1] = '\0';
    tar_add(&layer, (struct tar_header){ .type = '0', .name = "first", .mode = 0644 }, "1");
    tar_add(&layer, (struct tar_header){ .type = '0', .name = "second", .mode = 0644 }, text);
    tar_end(&layer);
    char path[200];
    snprintf(path, sizeof path, "%s/in", dir);
    FILE *in = fopen(path, "wb");
    assert_non_null(in);
    assert_int_equal(fwrite(layer.data, 1, layer.len, in), layer.len);
    fclose(in);
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        struct fixture f;
        own_buf bytes = { 0 };
        assert_int_equal(sh(dir, ways[i].make), 0);
        file_bytes(&bytes, dir, "out");
        open_tree(&f, &small);
        int rc = apply_bytes(f.t, &bytes, 4096, &err);
        if (rc != ways[i].rc || (rc < 0 && strstr(err.msg, ways[i].why) == NULL))
            fail_msg("%s: %d %s", ways[i].make, rc, rc < 0 ? err.msg : "");
        assert_true(rc < 0 || f.kept.files == (bytes.len > 100 && i != 8 ? 2 : 0));
        close_tree(&f);
    }
    drop_dir(dir);
}

/* Wherever a compressed layer is cut off, it is not taken for a whole one (a part of the 10 bytes that gzip begins with is one, of
 * no bytes; its digest says what it is worth). */
static void archive_tree_apply__misses_the_end_of_a_compressed_layer(void **state)
{
    (void)state;
    static const char *const tools[] = { "gzip", "xz", "zstd -q" };
    char *dir = temp_dir();
    struct err err = { 0 };
    for (size_t i = 0; i < sizeof tools / sizeof tools[0]; i++) {
        char cmd[200];
        own_buf bytes = { 0 };
        snprintf(cmd, sizeof cmd, "seq 2000 >a; tar cf - a | %s >out", tools[i]);
        assert_int_equal(sh(dir, cmd), 0);
        file_bytes(&bytes, dir, "out");
        for (size_t n = 10; n < bytes.len - 40; n += n < 64 ? 1 : 16) {    /* what checks the content may lack */
            struct fixture f;
            open_tree(&f, &small);
            int rc = apply_bytes(f.t, &(struct buf){ .data = bytes.data, .len = n }, 4096, &err);
            if (rc == 0)
                fail_msg("%s: %zu of %zu bytes are taken", tools[i], n, bytes.len);
            close_tree(&f);
        }
    }
    drop_dir(dir);
}

/* A sparse file by GNU tar's and PAX's means has its holes as zeros. */
static void archive_tree_apply__fills_holes(void **state)
{
    (void)state;
    static const char *const formats[] = { "gnu", "posix --sparse-version=0.0", "posix --sparse-version=0.1", "posix --sparse-version=1.0" };
    char *dir = temp_dir();
    struct err err = { 0 };
    assert_int_equal(sh(dir, "truncate -s 300000 sparse; printf abc | dd of=sparse bs=1 seek=150000 conv=notrunc status=none"), 0);
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        struct fixture f;
        own_buf bytes = { 0 };
        char cmd[200];
        snprintf(cmd, sizeof cmd, "tar --format=%s -S -cf out sparse", formats[i]);
        assert_int_equal(sh(dir, cmd), 0);
        file_bytes(&bytes, dir, "out");
        assert_true(bytes.len < 100000);
        open_tree(&f, &small);
        if (apply_bytes(f.t, &bytes, 65536, &err) != 0 || archive_tree_finish(f.t, &f.root, &err) != 0)
            fail_msg("%s: %s", formats[i], err.msg);
        assert_int_equal(look(f.root, "sparse")->size, 300000);
        assert_int_equal(f.kept.bytes.len, 300000);
        assert_memory_equal(f.kept.bytes.data + 149998, "\0\0abc\0", 6);
        close_tree(&f);
    }
    drop_dir(dir);
}

/* --- bombs --- */

struct endless { uint8_t block[65536]; uint64_t sent; };

static int endless_read(void *arg, const void **out, size_t *out_n, struct err *err)
{
    struct endless *e = arg;
    (void)err;
    *out = e->block;
    *out_n = sizeof e->block;
    e->sent += *out_n;
    return 0;
}

static void archive_tree_apply__stops_at_limits(void **state)
{
    (void)state;
    static const struct { const char *make; struct archive_limits limits; const char *why; } bombs[] = {
        { "truncate -s 2M f; tar cf out f", { 100, 1 << 20, 64 << 20, 200 }, "entry \"f\": it has 2097152 bytes" },
        { "for i in 1 2 3 4; do truncate -s 1M $i; done; tar cf out 1 2 3 4", { 100, 1 << 20, 3 << 20, 200 }, "\"3\": more than 3145728" },
        { "for i in 1 2 3 4; do truncate -s 1M $i; done; tar czf out 1 2 3 4", { 100, 1 << 20, 3 << 20, 200 }, "more than 3145728" },
        { "truncate -s 90M f; tar cf - f | gzip -1 >out", { 100, 1 << 30, 1 << 30, 100 }, "a bomb" },
        { "truncate -s 8T f; tar -S -cf out f", { 100, 1 << 30, 1 << 30, 200 }, "entry \"f\": it has" },
        { "truncate -s 900M f; tar -S -cf out f", { 100, 1 << 30, 2000000000, 200 }, "a bomb" },
        { "truncate -s 900M f; tar -S -cf out f", { 100, 1 << 30, 1 << 28, 200 }, "\"f\": more than 268435456" },
        { "mkdir d; touch d/1 d/2 d/3; tar cf out d", { 3, 1 << 20, 1 << 20, 200 }, "more than 3 entries" },
        { "head -c 20M /dev/zero >out", { 100, 1 << 20, 1 << 20, 200 }, "more than 1048576" },
        { "touch a; tar cf out a; head -c 20M /dev/zero >>out", { 100, 1 << 20, 1 << 20, 200 }, "more than 1048576" },
    };
    for (size_t i = 0; i < sizeof bombs / sizeof bombs[0]; i++) {
        char *dir = temp_dir();
        struct fixture f;
        own_buf bytes = { 0 };
        struct err err = { 0 };
        assert_int_equal(sh(dir, bombs[i].make), 0);
        file_bytes(&bytes, dir, "out");
        open_tree(&f, &bombs[i].limits);
        f.kept.bytes.max = (size_t)1 << 30;
        int rc = apply_bytes(f.t, &bytes, 65536, &err);
        if (rc != ERR_LIMIT || strstr(err.msg, bombs[i].why) == NULL)
            fail_msg("%s: %d %s", bombs[i].make, rc, rc < 0 ? err.msg : "");
        close_tree(&f);
        drop_dir(dir);
    }
}

/* An archive without an end is read no further than the limit. */
static void archive_tree_apply__ends_an_endless_source(void **state)
{
    (void)state;
    struct fixture f;
    struct err err = { 0 };
    struct digest diff_id;
    struct endless *e = calloc(1, sizeof *e);
    assert_non_null(e);
    open_tree(&f, &small);
    int rc = archive_tree_apply(f.t, &(struct tar_source){ endless_read, e }, &diff_id, &err);
    assert_int_equal(rc, ERR_LIMIT);
    assert_true(e->sent <= small.bytes + 2 * sizeof e->block);
    free(e);
    close_tree(&f);
}

/* Large directories, in the order that makes a plain search tree a list. */
static void archive_tree_apply__takes_many_names(void **state)
{
    (void)state;
    struct fixture f;
    struct err err = { 0 };
    own_buf layer = { 0 };
    enum { N = 20000 };
    open_tree(&f, &(struct archive_limits){ N + 10, 1, 64 << 20, 200 });
    for (int i = 0; i < N; i++) {
        char name[32];
        snprintf(name, sizeof name, "d/%06d", i);
        tar_head(&layer, &(struct tar_header){ .type = '0', .name = name, .mode = 0644 });
    }
    if (apply_bytes(f.t, &layer, 65536, &err) != 0 || archive_tree_finish(f.t, &f.root, &err) != 0)
        fail_msg("%s", err.msg);
    assert_int_equal(look(f.root, "d")->entry_count, N);
    assert_int_equal(archive_tree_entries(f.t), N);
    close_tree(&f);
}

static const char whole[] = "d a\nf a/b one\nl c a\nf c/d 2\nh e a/b\n--\nf a/.wh.b\nf x/y/z 1\n";

static void archive_tree_apply__keeps_to_the_arena_budget(void **state)
{
    (void)state;
    for (size_t budget = 64;; budget += 64) {
        struct fixture f = { .a = { .budget = budget } };
        struct err err = { 0 };
        int rc = archive_tree_open(&f.t, &f.a, &small, &(struct archive_sink){ kept_put, kept_end, &f.kept }, &err);
        if (rc == 0)
            rc = apply_text(&f, whole, 65536, &err);
        close_tree(&f);
        if (rc == 0)
            break;
        assert_int_equal(rc, ERR_LIMIT);
        assert_true(budget < 100000);
    }
}

static void archive_tree_apply__survives_a_fault_at_every_point(void **state)
{
    (void)state;
    for (int nth = 1;; nth++) {
        struct fixture f = { .a = { .budget = 1 << 20 } };
        struct err err = { 0 };
        fault_arm(nth);
        int rc = archive_tree_open(&f.t, &f.a, &small, &(struct archive_sink){ kept_put, kept_end, &f.kept }, &err);
        if (rc == 0)
            rc = apply_text(&f, whole, 65536, &err);
        bool clean = fault_seen() < nth;
        fault_arm(0);
        close_tree(&f);
        if (clean) {
            assert_int_equal(rc, 0);
            assert_true(nth > 3);
            break;
        }
        assert_true(rc < 0 && err.msg[0] != '\0');
    }
}

/* What the sink says is what the caller hears. */
static int full_put(void *arg, const void *p, uint64_t n, struct err *err)
{
    (void)arg, (void)p, (void)n;
    return err_set(err, ERR_SYS, "disk full");
}

static void archive_tree_apply__hands_on_what_the_sink_says(void **state)
{
    (void)state;
    struct fixture f = { .a = { .budget = 1 << 20 } };
    struct err err = { 0 };
    assert_int_equal(archive_tree_open(&f.t, &f.a, &small, &(struct archive_sink){ full_put, kept_end, &f.kept }, &err), 0);
    assert_int_equal(apply_text(&f, "f a 1\n", 65536, &err), ERR_SYS);
    assert_string_equal(err.msg, "entry \"a\": disk full");
    close_tree(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(archive_tree_apply__takes_or_refuses),
        cmocka_unit_test(archive_tree_apply__keeps_what_an_entry_says),
        cmocka_unit_test(archive_tree_apply__does_not_depend_on_the_locale),
        cmocka_unit_test(archive_tree_apply__knows_the_compressions),
        cmocka_unit_test(archive_tree_apply__misses_the_end_of_a_compressed_layer),
        cmocka_unit_test(archive_tree_apply__fills_holes),
        cmocka_unit_test(archive_tree_apply__stops_at_limits),
        cmocka_unit_test(archive_tree_apply__ends_an_endless_source),
        cmocka_unit_test(archive_tree_apply__takes_many_names),
        cmocka_unit_test(archive_tree_apply__keeps_to_the_arena_budget),
        cmocka_unit_test(archive_tree_apply__survives_a_fault_at_every_point),
        cmocka_unit_test(archive_tree_apply__hands_on_what_the_sink_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
