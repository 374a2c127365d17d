/*
 * image_test.c - images against the kernel that mounts them: random trees and borders, what is refused, equal bytes for equal
 * trees; data files against crashes, full disks and each other; a git tree as an image against the same tree as files.
 */
#include "base/digest.h"
#include "base/fault.h"
#include "repos/data.h"
#include "repos/image_git.h"
#include "repos/store.h"
#include "tests/repos/image_test.h"
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>

static bool may_mount(void)
{
    int fs = geteuid() == 0 ? fsopen("erofs", FSOPEN_CLOEXEC) : -1;
    if (fs < 0) {
        print_message("image_test: no root, or a kernel without erofs: images are not mounted and compared\n");
        return false;
    }
    close(fs);
    return true;
}

static void check_form(struct images *im, struct image_node *root, uint32_t nodes, bool fsck_reads)
{
    int fd = image_file(im, "image", root);
    close(fd);
    ask_fsck(im, "image", fsck_reads);
    int m = images_mount(im, "image");
    compare_tree(im, m, root, nodes);
    close(m);
}

/* Flat, and in chunks, to which a data file that is said to be long leads. */
static void check_tree(struct images *im, struct image_node *root, uint32_t nodes, bool has_giants)
{
    uint64_t blocks = im->data_blocks[1];
    check_form(im, root, nodes, false);
    im->data_blocks[1] = (uint64_t)1 << 31;
    check_form(im, root, nodes, !has_giants);
    im->data_blocks[1] = blocks;
}

static void image_write__gives_the_kernel_every_random_tree(void **state)
{
    (void)state;
    if (!may_mount())
        skip();
    struct images im;
    images_open(&im);
    const char *rounds = getenv("IMAGE_ROUNDS");
    for (int i = 0; i < (rounds != NULL ? atoi(rounds) : 12); i++) {
        own_arena a = { 0 };
        im.seed = 0x9E3779B97F4A7C15u * (uint64_t)(i + 1);
        uint32_t nodes = 1 + below(&im, i % 4 == 3 ? 2000 : 150);
        check_tree(&im, random_tree(&im, &a, nodes), nodes, false);
    }
    images_close(&im);
}

/* 5,000 names in one directory, 300 directories in each other, every length of a name and of a link, names around the dots. */
static struct image_node *tree_of_borders(struct arena *a, uint32_t *out_nodes)
{
    struct image_node *root = node_new(a, IMAGE_DIR), *wide = node_new(a, IMAGE_DIR), *names = node_new(a, IMAGE_DIR);
    uint32_t nodes = 3;
    char name[300];
    dir_add(a, root, "wide", wide);
    dir_add(a, root, "names", names);
    for (int i = 0; i < 5000; i++, nodes++) {
        struct image_node *n = node_new(a, IMAGE_FILE);
        n->size = (uint64_t)i % 3;
        n->offset = (uint64_t)(i % 1000) * IMAGE_BLOCK;
        snprintf(name, sizeof name, "entry %d", i);
        dir_add(a, wide, name, n);
    }
    for (int i = 1; i < 256; i++) {
        name[0] = (char)i;
        name[1] = '\0';
        if (i != '/' && i != '.')
            nodes += dir_add(a, names, name, node_new(a, IMAGE_FILE));
        memset(name, 'a' + i % 20, (size_t)i);
        name[i] = '\0';
        nodes += dir_add(a, names, name, node_new(a, IMAGE_DIR));
    }
    static const char *const dots[] = { ".-", ".!", "...", "..a", ".a", "..-", ". " };
    for (size_t i = 0; i < sizeof dots / sizeof dots[0]; i++)
        nodes += dir_add(a, names, dots[i], node_new(a, IMAGE_FILE));
    struct image_node *dir = root;
    for (int i = 0; i < 300; i++, nodes++) {
        struct image_node *in = node_new(a, IMAGE_DIR);
        dir_add(a, dir, "deep", in);
        dir = in;
    }
    for (uint32_t n = 1; n <= 4095; n += n < 10 || (n > 3960 && n < 4095) ? 1 : 37, nodes++) {
        struct image_node *link = node_new(a, IMAGE_LINK);
        char *target = arena_alloc(a, n + 1);
        memset(target, 't', n);
        link->target = target;
        link->mode = 0777;
        link->uid = n % 2 != 0 ? 70000 : 0;
        snprintf(name, sizeof name, "link %u", n);
        dir_add(a, root, name, link);
    }
    for (uint32_t n = 1; n < 80; n++) {         /* directories whose last block comes near a block */
        struct image_node *d = node_new(a, IMAGE_DIR);
        for (uint32_t i = 0; i < n % 17 + 14; i++, nodes++) {
            memset(name, 'a', 255);
            snprintf(name, sizeof name, "%u", i);
            name[strlen(name)] = '-';
            name[i == 0 ? 10 + n * 3 : 255] = '\0';
            dir_add(a, d, name, node_new(a, IMAGE_FILE));
        }
        snprintf(name, sizeof name, "dir %u", n);
        nodes += dir_add(a, root, name, d);
    }
    static const uint64_t giants[] = { GIANT, GIANT - 1, ((uint64_t)4 << 30) - 1, (uint64_t)4 << 30, ((uint64_t)4 << 30) + 1 };
    for (size_t i = 0; i < sizeof giants / sizeof giants[0]; i++, nodes++) {
        struct image_node *n = node_new(a, IMAGE_FILE);
        n->data = 2;
        n->size = giants[i];
        snprintf(name, sizeof name, "giant %zu", i);
        dir_add(a, root, name, n);
    }
    struct image_node *many = node_new(a, IMAGE_FILE);          /* more names than 16 bits count */
    nodes++;
    struct image_node *linked = node_new(a, IMAGE_DIR);
    nodes += dir_add(a, root, "linked", linked);
    linked->entry_count = 66000;
    linked->entries = arena_alloc(a, sizeof *linked->entries * linked->entry_count);
    for (uint32_t i = 0; i < linked->entry_count; i++)
        linked->entries[i] = (struct image_entry){ .name = arena_printf(a, "%06u", i), .node = many };
    *out_nodes = nodes;
    return root;
}

static void image_write__gives_the_kernel_what_lies_at_a_border(void **state)
{
    (void)state;
    if (!may_mount())
        skip();
    struct images im;
    own_arena a = { 0 };
    images_open(&im);
    uint32_t nodes = 0;
    struct image_node *root = tree_of_borders(&a, &nodes);
    check_tree(&im, root, nodes, true);
    struct image_node *bare = node_new(&a, IMAGE_DIR);
    check_tree(&im, bare, 1, false);
    images_close(&im);
}

static char *image_bytes(struct images *im, struct image_node *root, size_t *out_n)
{
    close(image_file(im, "again", root));
    return slurp(im->top, "again", out_n);
}

/* The same tree made twice, and once more with rubbish where the writer keeps its numbers. */
static void image_write__gives_equal_trees_equal_bytes(void **state)
{
    (void)state;
    struct images im;
    images_open(&im);
    own_arena a = { 0 }, b = { 0 };
    im.seed = 77;
    struct image_node *one = random_tree(&im, &a, 500);
    im.seed = 77;
    struct image_node *two = random_tree(&im, &b, 500);
    size_t n1 = 0, n2 = 0, n3 = 0;
    char *b1 = image_bytes(&im, one, &n1), *b2 = image_bytes(&im, two, &n2);
    two->number = 3;
    if (two->entry_count > 0)
        two->entries[0].node->number = 0;
    char *b3 = image_bytes(&im, two, &n3);
    assert_true(n1 == n2 && n2 == n3 && n1 % IMAGE_BLOCK == 0);
    assert_memory_equal(b1, b2, n1);
    assert_memory_equal(b1, b3, n1);
    two->mode ^= 1;
    free(b3);
    b3 = image_bytes(&im, two, &n3);
    assert_true(n3 != n1 || memcmp(b1, b3, n1) != 0);
    free(b1);
    free(b2);
    free(b3);
    images_close(&im);
}

/* root/dir/{bad,z}: `bad` is broken in one way, the message must name dir/bad and that way. */
struct bad { const char *what, *said; struct image_node node; const char *name; };

static void expect_refusal(struct images *im, const struct bad *bad)
{
    own_arena a = { 0 };
    struct image_node *root = node_new(&a, IMAGE_DIR), *dir = node_new(&a, IMAGE_DIR), *n = node_new(&a, IMAGE_FILE);
    int64_t time = n->mtime_s;
    *n = bad->node;
    n->mtime_s = time;
    struct image_entry entries[] = { { bad->name != NULL ? bad->name : "b\xff""d", n }, { "z", node_new(&a, IMAGE_FILE) } };
    dir->entries = entries;
    dir->entry_count = 2;
    dir_add(&a, root, "dir", dir);
    struct err err = { 0 };
    char path[4200];
    snprintf(path, sizeof path, "%s/refused", im->top);
    own_fd fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    assert_int_equal(image_write(fd, root, im->data_blocks, DATA_FILES, &err), ERR_BAD_INPUT);
    if (strstr(err.msg, bad->said) == NULL || strstr(err.msg, bad->name != NULL ? "dir/" : "dir/b\\xffd") == NULL)
        fail_msg("%s: \"%s\"", bad->what, err.msg);
    assert_int_equal(lseek(fd, 0, SEEK_END), 0);
}

static void image_write__refuses_bad_trees_by_path(void **state)
{
    (void)state;
    struct images im;
    images_open(&im);
    static char long_text[70000], long_name[300];
    memset(long_text, 'x', 4096);
    memset(long_name, 'n', 256);
    char *long_attr = long_text + 10000;
    memset(long_attr, 'y', 260);
    memcpy(long_attr, "user.", 5);
    static const struct image_xattr foreign[] = { { "btrfs.x", "", 0 } }, bare[] = { { "user.", "", 0 } },
        twice[] = { { "user.a", "", 0 }, { "user.a", "", 0 } }, unsorted[] = { { "user.b", "", 0 }, { "user.a", "", 0 } },
        huge[] = { { "user.a", long_text, 65536 } }, acl[] = { { "system.posix_acl_access2", "", 0 } };
    struct image_xattr long_named[] = { { long_attr, "", 0 } };
    struct image_xattr many[] = { { "user.a", long_text, 65535 }, { "user.b", long_text, 65535 }, { "user.c", long_text, 65535 },
                                  { "user.d", long_text, 65535 }, { "user.e", long_text, 65535 } };
    const struct bad rows[] = {
        { "mode", "permissions", { .mode = 010000 }, NULL },
        { "kind", "neither", { .kind = (enum image_kind)9 }, NULL },
        { "time", "nanoseconds", { .mtime_ns = 1000000000 }, NULL },
        { "data", "does not have", { .size = 1, .data = DATA_FILES }, NULL },
        { "offset", "block", { .size = 1, .offset = 100 }, NULL },
        { "end", "beyond", { .size = DATA_BYTES, .offset = IMAGE_BLOCK }, NULL },
        { "far", "beyond", { .size = 1, .offset = UINT64_MAX / IMAGE_BLOCK * IMAGE_BLOCK }, NULL },
        { "size", "larger", { .size = UINT64_MAX }, NULL },
        { "no target", "target", { .kind = IMAGE_LINK }, NULL },
        { "empty target", "target", { .kind = IMAGE_LINK, .target = "" }, NULL },
        { "long target", "target", { .kind = IMAGE_LINK, .target = long_text }, NULL },
        { "foreign xattr", "extended attribute", { .xattrs = foreign, .xattr_count = 1 }, NULL },
        { "bare xattr", "extended attribute", { .xattrs = bare, .xattr_count = 1 }, NULL },
        { "near acl", "extended attribute", { .xattrs = acl, .xattr_count = 1 }, NULL },
        { "xattr twice", "sorted", { .xattrs = twice, .xattr_count = 2 }, NULL },
        { "xattr order", "sorted", { .xattrs = unsorted, .xattr_count = 2 }, NULL },
        { "xattr size", "too long", { .xattrs = huge, .xattr_count = 1 }, NULL },
        { "xattr name", "too long", { .xattrs = long_named, .xattr_count = 1 }, NULL },
        { "xattr bytes", "too many bytes", { .xattrs = many, .xattr_count = 5 }, NULL },
        { "empty name", "1 to 255", { 0 }, "" },
        { "long name", "1 to 255", { 0 }, long_name },
        { "slash", "'/'", { 0 }, "a/b" },
        { "dot", "kernel's own", { 0 }, "." },
        { "dotdot", "kernel's own", { 0 }, ".." },
        { "order", "sorted", { 0 }, "zz" },
        { "twice", "sorted", { 0 }, "z" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        expect_refusal(&im, &rows[i]);

    own_arena a = { 0 };
    struct err err = { 0 };
    struct image_node *root = node_new(&a, IMAGE_DIR), *dir = node_new(&a, IMAGE_DIR);
    dir_add(&a, root, "one", dir);
    dir_add(&a, root, "two", dir);
    assert_int_equal(image_write(-1, root, NULL, 0, &err), ERR_BAD_INPUT);
    assert_non_null(strstr(err.msg, "two is a directory under a second name"));
    dir_add(&a, dir, "round", root);
    assert_int_equal(image_write(-1, root, NULL, 0, &err), ERR_BAD_INPUT);
    assert_int_equal(image_write(-1, node_new(&a, IMAGE_FILE), NULL, 0, &err), ERR_BAD_INPUT);
    assert_non_null(strstr(err.msg, "root is no directory"));
    uint64_t blocks[IMAGE_DATA_MAX + 1] = { UINT32_MAX };
    assert_int_equal(image_write(-1, node_new(&a, IMAGE_DIR), blocks, IMAGE_DATA_MAX + 1, &err), ERR_LIMIT);
    assert_int_equal(image_write(-1, node_new(&a, IMAGE_DIR), blocks, 1, &err), ERR_LIMIT);
    images_close(&im);
}

/* --- data files --- */

static struct data *data_at(const char *top, const char *name)
{
    struct data *d = NULL;
    struct err err = { 0 };
    char dir[4200];
    snprintf(dir, sizeof dir, "%s/data", top);
    if (data_open(&d, dir, name, true, &err) != 0)
        fail_msg("%s", err.msg);
    return d;
}

static uint64_t verified(struct data *d)
{
    struct err err = { 0 };
    uint64_t count = 0;
    if (data_verify_all(d, &count, &err) != 0)
        fail_msg("%s", err.msg);
    return count;
}

static void put_number(struct data *d, struct data_place *out, uint32_t number, uint32_t n)
{
    struct err err = { 0 };
    uint8_t bytes[20000];
    memset(bytes, (int)number, n);
    memcpy(bytes, &number, sizeof number);
    if (data_put(d, out, bytes, n, &err) != 0)
        fail_msg("%s", err.msg);
}

static void data_put__keeps_each_content_once(void **state)
{
    (void)state;
    char *top = temp_dir();
    struct err err = { 0 };
    struct data *d = data_at(top, "r");
    struct data_place a, b, c, none;
    struct digest digest;
    assert_int_equal(data_begin(d, &err), 0);
    put_number(d, &a, 1, 5000);
    put_number(d, &b, 2, 4096);
    put_number(d, &c, 1, 5000);
    assert_int_equal(data_put(d, &none, NULL, 0, &err), 0);
    assert_true(a.offset == 0 && a.size == 5000 && b.offset == 8192 && c.offset == a.offset && none.size == 0);
    assert_int_equal(data_put_alias(d, "alias", 5, &b, &err), 0);
    assert_int_equal(data_commit(d, &err), 0);
    assert_int_equal(data_find_alias(d, &c, "alias", 5, &err), 0);
    assert_true(c.offset == b.offset && c.size == b.size);
    assert_int_equal(data_find_alias(d, &c, "other", 5, &err), ERR_NOT_FOUND);
    data_close(d);

    assert_int_equal(sh(top, "head -c 9000 /dev/urandom >f"), 0);
    d = data_at(top, "r");
    char path[4200];
    snprintf(path, sizeof path, "%s/f", top);
    own_fd f = open(path, O_RDONLY | O_CLOEXEC);
    assert_int_equal(data_begin(d, &err), 0);
    put_number(d, &c, 2, 4096);
    assert_true(c.offset == b.offset);
    assert_int_equal(data_put_fd(d, &a, f, &err), 0);
    assert_int_equal(data_put_fd(d, &b, f, &err), 0);
    assert_true(a.offset == 12288 && a.size == 9000 && b.offset == a.offset);
    assert_int_equal(data_commit(d, &err), 0);
    assert_int_equal(verified(d), 3);
    uint64_t size;
    assert_int_equal(digest_of_fd(&digest, &size, f, &err), 0);
    assert_int_equal(data_find(d, &c, &digest, &err), 0);
    assert_true(c.offset == a.offset && c.size == 9000);
    assert_int_equal(sh(top, "test $(stat -c %s data/r.data) = 24576; tail -c +12289 data/r.data | head -c 9000 | cmp - f; "
                             "tail -c 3288 data/r.data | tr -d '\\0' | cmp - /dev/null"), 0);
    data_close(d);
    drop_dir(top);
}

static void data_verify__finds_one_wrong_byte(void **state)
{
    (void)state;
    char *top = temp_dir();
    struct err err = { 0 };
    struct data *d = data_at(top, "r");
    struct data_place p[50];
    assert_int_equal(data_begin(d, &err), 0);
    for (uint32_t i = 0; i < 50; i++)
        put_number(d, &p[i], i, 100 + i * 300);
    assert_int_equal(data_commit(d, &err), 0);
    assert_int_equal(verified(d), 50);
    struct digest digest;
    uint8_t bytes[20000];
    memset(bytes, 30, p[30].size);
    memcpy(bytes, &(uint32_t){ 30 }, 4);
    digest_of(&digest, bytes, p[30].size);
    assert_int_equal(data_verify(d, &digest, &err), 0);
    uint8_t wrong = 31;
    uint64_t count = 0;
    assert_int_equal(pwrite(data_fd(d), &wrong, 1, (off_t)(p[30].offset + p[30].size - 1)), 1);
    assert_int_equal(data_verify_all(d, &count, &err), ERR_CORRUPT);
    assert_int_equal(count, 50);
    char hex[DIGEST_HEX_SIZE];
    digest_hex(hex, &digest);
    assert_true(strstr(err.msg, hex) != NULL && strstr(err.msg, "1 such") != NULL);
    assert_int_equal(data_verify(d, &digest, &err), ERR_CORRUPT);
    digest.bytes[0] ^= 1;
    assert_int_equal(data_verify(d, &digest, &err), ERR_NOT_FOUND);
    assert_int_equal(ftruncate(data_fd(d), 8192), 0);
    data_close(d);
    d = NULL;
    char dir[4200];
    snprintf(dir, sizeof dir, "%s/data", top);
    assert_int_equal(data_open(&d, dir, "r", true, &err), ERR_CORRUPT);
    assert_non_null(strstr(err.msg, "8192 bytes"));
    assert_int_equal(data_open(&d, dir, "../r", true, &err), ERR_BAD_INPUT);
    assert_int_equal(data_open(&d, dir, "absent", false, &err), ERR_NOT_FOUND);
    drop_dir(top);
}

/* A full disk or a failing index at each step: nothing of the batch stays, and the next one goes well. */
static void data_put__leaves_nothing_of_a_failed_batch(void **state)
{
    (void)state;
    char *top = temp_dir();
    struct err err = { 0 };
    struct data *d = data_at(top, "r");
    struct data_place p;
    assert_int_equal(data_begin(d, &err), 0);
    put_number(d, &p, 1, 5000);
    assert_int_equal(data_commit(d, &err), 0);
    for (int nth = 1; ; nth++) {
        int rc = data_begin(d, &err);
        assert_int_equal(rc, 0);
        fault_arm(nth);
        uint8_t bytes[6000] = { 7, (uint8_t)nth };
        rc = data_put(d, &p, bytes, sizeof bytes, &err);
        if (rc == 0)
            rc = data_put(d, &p, bytes, 77, &err);
        if (rc == 0)
            rc = data_put_alias(d, bytes, 2, &p, &err);
        if (rc == 0)
            rc = data_commit(d, &err);
        else
            assert_int_equal(data_commit(d, &err), ERR_INTERNAL);
        int seen = fault_seen();
        fault_arm(0);
        if (seen < nth) {
            assert_int_equal(rc, 0);
            assert_true(nth > 5);
            break;
        }
        assert_true(rc < 0);
        assert_int_equal(lseek(data_fd(d), 0, SEEK_END), 8192);
        assert_int_equal(verified(d), 1);
    }
    assert_int_equal(verified(d), 3);
    data_close(d);
    drop_dir(top);
}

static void data_put__says_that_a_real_disk_is_full(void **state)
{
    (void)state;
    if (!may_mount())
        skip();
    struct err err = { 0 };
    char *dir = temp_dir();
    assert_int_equal(unshare(CLONE_NEWNS), 0);
    assert_int_equal(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
    assert_int_equal(mount("tmpfs", dir, "tmpfs", 0, "size=1m"), 0);
    struct data *d = NULL;
    struct data_place p;
    assert_int_equal(data_open(&d, dir, "r", true, &err), 0);
    assert_int_equal(data_begin(d, &err), 0);
    put_number(d, &p, 9, 9000);
    assert_int_equal(data_commit(d, &err), 0);
    assert_int_equal(data_begin(d, &err), 0);
    static uint8_t big[2 << 20] = { 1 };
    assert_int_equal(data_put(d, &p, big, 10000, &err), 0);
    big[1] = 2;
    assert_int_equal(data_put(d, &p, big, sizeof big, &err), ERR_SYS);
    assert_int_equal(err.sys, ENOSPC);
    data_drop(d);
    assert_int_equal(lseek(data_fd(d), 0, SEEK_END), 12288);
    assert_int_equal(verified(d), 1);
    struct image_node *root;
    own_arena a = { 0 };
    root = node_new(&a, IMAGE_DIR);
    for (int i = 0; i < 40000; i++)
        dir_add(&a, root, arena_printf(&a, "%d", i), node_new(&a, IMAGE_FILE));
    own_fd f = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    assert_int_equal(image_write(f, root, NULL, 0, &err), ERR_SYS);
    assert_int_equal(err.sys, ENOSPC);
    data_close(d);
    drop_fd(&f);
    assert_int_equal(umount2(dir, MNT_DETACH), 0);
    drop_dir(dir);
}

/* Importers that are killed at any moment, several at once: every row has its bytes. */
static void data_put__survives_kills_and_company(void **state)
{
    (void)state;
    char *top = temp_dir();
    data_close(data_at(top, "r"));
    for (int round = 0; round < 6; round++) {
        pid_t kids[4];
        for (uint32_t k = 0; k < 4; k++)
            if ((kids[k] = fork()) == 0) {
                struct data *d = data_at(top, "r");
                struct data_place p;
                struct err err = { 0 };
                for (uint32_t i = 0; i < (k == 3 ? 4u : 100000u); i++) {
                    if (data_begin(d, &err) != 0)
                        _exit(1);
                    for (uint32_t j = 0; j < 40; j++)
                        put_number(d, &p, (k == 3 ? 0 : k * 1000003 + (uint32_t)round) * 4096 + i * 40 + j,
                                   4 + (i * 40 + j) * 97 % 19000);
                    if (data_commit(d, &err) != 0)
                        _exit(1);
                    usleep(1000);       /* an importer has its image to write */
                }
                data_close(d);
                _exit(0);
            }
        int st = 0;
        assert_int_equal(waitpid(kids[3], &st, 0), kids[3]);
        assert_int_equal(st, 0);
        for (int k = 0; k < 3; k++) {
            kill(kids[k], SIGKILL);
            assert_int_equal(waitpid(kids[k], &st, 0), kids[k]);
        }
    }
    struct data *d = data_at(top, "r");
    assert_true(verified(d) >= 160);
    data_close(d);
    drop_dir(top);
}

/* What a killed importer wrote behind the last content is not seen behind the next one's end. */
static void data_begin__cuts_what_has_no_row(void **state)
{
    (void)state;
    char *top = temp_dir();
    struct err err = { 0 };
    struct data *d = data_at(top, "r");
    struct data_place p;
    assert_int_equal(data_begin(d, &err), 0);
    put_number(d, &p, 1, 5000);
    assert_int_equal(data_commit(d, &err), 0);
    data_close(d);
    assert_int_equal(sh(top, "yes | head -c 20000 >>data/r.data"), 0);
    d = data_at(top, "r");
    assert_int_equal(data_begin(d, &err), 0);
    put_number(d, &p, 0, 100);
    assert_int_equal(data_commit(d, &err), 0);
    assert_int_equal(p.offset, 8192);
    assert_int_equal(sh(top, "test $(stat -c %s data/r.data) = 12288; tail -c 4096 data/r.data | tr -d '\\0' | cmp - /dev/null"), 0);
    data_close(d);
    drop_dir(top);
}

/* --- git --- */

static const char git_script[] =
    "mkdir -p r store; cd r; git init -q; mkdir -p src/deep a.d; printf '#!/bin/sh\\n' >run; chmod 755 run; : >empty; "
    "echo same >a.txt; echo same >src/b; ln -s ../../etc/passwd out; ln -s src/deep d; head -c 100000 /dev/urandom >src/deep/big; "
    "for i in $(seq 400); do echo $i >src/f$i; done; echo x >a.d/x; echo y >'a d'; echo z >a-d; git add -A; "
    "git update-index --add --cacheinfo 160000,$(git hash-object -w --stdin </dev/null),src/sub; git commit -qm base; "
    "git rev-parse 'HEAD^{tree}' >../tree; echo changed >src/f7; git commit -qam next; git rev-parse 'HEAD^{tree}' >../next";

static void tree_of(git_oid *out, const char *top, const char *name)
{
    char *hex = slurp(top, name, NULL);
    assert_non_null(hex);
    hex[40] = '\0';
    assert_int_equal(git_oid_fromstr(out, hex), 0);
    free(hex);
}

static void image_git__is_the_tree_that_materialise_makes(void **state)
{
    (void)state;
    char *top = temp_dir(), path[4200], hex[41], name[DIGEST_HEX_SIZE + 8] = "";
    own_arena a = { 0 };
    struct err err = { 0 };
    assert_int_equal(sh(top, git_script), 0);
    assert_int_equal(store_git_init(&err), 0);
    snprintf(path, sizeof path, "%s/r/.git/objects", top);
    git_odb *odb = NULL;
    assert_int_equal(git_odb_open(&odb, path), 0);
    git_oid tree, next;
    tree_of(&tree, top, "tree");
    tree_of(&next, top, "next");
    git_oid_tostr(hex, sizeof hex, &tree);
    snprintf(path, sizeof path, "%s/store", top);
    own_fd store = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(materialise(store, hex, odb, &a, &err), 0);

    struct data *d = data_at(top, "r");
    struct digest one, again, other;
    assert_int_equal(image_git_import(&one, store, odb, &tree, d, &err), 0);
    uint64_t contents = verified(d);
    assert_int_equal(contents, 406);                /* 400 numbers, "same" once, run, big, x, y, z; and none of nothing */
    assert_int_equal(image_git_import(&other, store, odb, &next, d, &err), 0);
    assert_int_equal(image_git_import(&again, store, odb, &tree, d, &err), 0);
    assert_true(digest_equal(&one, &again) && !digest_equal(&one, &other));
    assert_int_equal(verified(d), contents + 1);
    digest_hex(name, &one);
    snprintf(path, sizeof path, "test \"$(ls store | wc -l)\" = 3; sha256sum <store/%s.erofs | grep -q ^%s", name, name);
    assert_int_equal(sh(top, path), 0);
    if (may_mount()) {
        char image[4200];
        snprintf(image, sizeof image, "%s/store/%s.erofs", top, name);
        const char *device = data_path(d);
        own_fd m = mount_image(image, &device, 1);
        char cmd[4200];
        snprintf(cmd, sizeof cmd, "list() { find . -printf '%%P %%y %%m %%U %%G %%T@ %%l\\n' | LC_ALL=C sort; "
                 "find . -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum; }; (cd store/%s; list) >want; "
                 "(cd /proc/%d/fd/%d; list) >got; cmp want got; test $(wc -l <want) -gt 800", hex, getpid(), m);
        assert_int_equal(sh(top, cmd), 0);
    }
    data_close(d);
    git_odb_free(odb);
    drop_dir(top);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(image_write__gives_the_kernel_every_random_tree),
        cmocka_unit_test(image_write__gives_the_kernel_what_lies_at_a_border),
        cmocka_unit_test(image_write__gives_equal_trees_equal_bytes),
        cmocka_unit_test(image_write__refuses_bad_trees_by_path),
        cmocka_unit_test(data_put__keeps_each_content_once),
        cmocka_unit_test(data_verify__finds_one_wrong_byte),
        cmocka_unit_test(data_put__leaves_nothing_of_a_failed_batch),
        cmocka_unit_test(data_put__says_that_a_real_disk_is_full),
        cmocka_unit_test(data_put__survives_kills_and_company),
        cmocka_unit_test(data_begin__cuts_what_has_no_row),
        cmocka_unit_test(image_git__is_the_tree_that_materialise_makes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
