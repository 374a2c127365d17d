/* image_test.c - trees that lie in erofs images, mounted by the jail. */
#include "tests/sandbox/box.h"
#include "tests/sandbox/census.h"
#include "base/own.h"
#include "repos/image.h"

static const struct sandbox_limits usual = { .wall_ns = 20 * NS_PER_S, .memory_bytes = (uint64_t)256 << 20 };
static struct sandbox_client *client;

static int start(void **state)
{
    (void)state;
    client = box_start(2);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    sandbox_client_close(client);
    return 0;
}

struct mounted { bool come; int rc, dir; struct err err; };

static void on_mounted(void *arg, int rc, int dir, const struct err *err)
{
    struct mounted *m = arg;
    m->come = true;
    m->rc = rc;
    m->dir = dir;
    if (err != NULL)
        m->err = *err;
}

static struct mounted mount_files(const int *files, int count)
{
    struct mounted m = { .dir = -1 };
    struct err err = { 0 };
    if (sandbox_image_mount(client, files, count, on_mounted, &m, &err) < 0)
        fail_msg("image: %s", err.msg);
    assert_int_equal(box_wait(client, &m.come, 10000), 0);
    return m;
}

/* A file opened for reading alone, of which nothing else is left. */
static int file_of(const void *bytes, size_t n)
{
    char path[] = "/tmp/assay-image.XXXXXX";
    own_fd out = mkstemp(path);
    assert_true(out >= 0 && write(out, bytes, n) == (ssize_t)n);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    unlink(path);
    return fd;
}

enum { CONTENT = 5000 };

/* An image of two files, a link and a directory; [1] is its data. */
static void image_files(int out[2])
{
    static char content[2 * IMAGE_BLOCK];
    memset(content, 'x', CONTENT);
    struct image_node run = { .kind = IMAGE_FILE, .mode = 0755, .size = CONTENT }, none = { .kind = IMAGE_FILE, .mode = 0644 };
    struct image_node link = { .kind = IMAGE_LINK, .mode = 0777, .target = "d/f" };
    struct image_entry in_dir[] = { { "f", &run } }, in_root[] = { { "d", NULL }, { "e", &none }, { "l", &link } };
    struct image_node dir = { .kind = IMAGE_DIR, .mode = 0755, .entries = in_dir, .entry_count = 1 };
    struct image_node root = { .kind = IMAGE_DIR, .mode = 0755, .entries = in_root, .entry_count = 3 };
    const uint64_t blocks = sizeof content / IMAGE_BLOCK;
    char path[] = "/tmp/assay-image.XXXXXX";
    struct err err = { 0 };
    in_root[0].node = &dir;
    own_fd fd = mkstemp(path);
    if (fd < 0 || image_write(fd, &root, &blocks, 1, &err) < 0)
        fail_msg("image: %s", err.msg);
    out[0] = open(path, O_RDONLY | O_CLOEXEC);
    out[1] = file_of(content, sizeof content);
    unlink(path);
}

static void close_both(const int files[2])
{
    close(files[0]);
    close(files[1]);
}

static bool skipped(const struct mounted *m)
{
    if (m->rc == ERR_DENIED)
        print_message("SKIPPED: %s\n", m->err.msg);
    return m->rc == ERR_DENIED;
}

static void a_tree_lies_in_an_image(void **state)
{
    static const char look[] = "stat -c '%a %U %s' d/f; wc -c <l; ls; echo more >>d/f; echo new >n; wc -c <d/f; rm e; ls";
    static const char says[] = "755 root 5000\n5000\nd\ne\nl\n5005\nd\nl\nn\n";
    (void)state;
    int files[2];
    image_files(files);
    struct mounted m = mount_files(files, 2);
    close_both(files);
    if (skipped(&m))
        return;
    assert_int_equal(m.rc, 0);
    for (int i = 0; i < 6; i++) {               /* nobody's changes are the next one's */
        struct outcome o = box_once(client, (struct sandbox_spec){ m.dir, -1, -1, SANDBOX_STRICT, NULL }, usual, look);
        assert_string_equal(o.output, says);
        outcome_done(&o);
    }
    sandbox_image_unmount(client, m.dir);
}

static void who_has_it_keeps_it(void **state)
{
    (void)state;
    int files[2];
    image_files(files);
    struct mounted m = mount_files(files, 2);
    if (skipped(&m)) {
        close_both(files);
        return;
    }
    struct sandbox *s = box_acquire(client, (struct sandbox_spec){ m.dir, -1, -1, SANDBOX_STRICT, NULL }, usual);
    sandbox_image_unmount(client, m.dir);
    m = mount_files(files, 2);                  /* another at the same time */
    close_both(files);
    assert_int_equal(m.rc, 0);
    struct outcome o = box_run(client, s, "wc -c <d/f");
    assert_string_equal(o.output, "5000\n");
    outcome_done(&o);
    sandbox_close(s);
    sandbox_image_unmount(client, m.dir);
}

static void what_is_no_image_is_refused(void **state)
{
    (void)state;
    static char junk[3 * IMAGE_BLOCK];
    int files[2];
    struct mounted m;
    struct err err = { 0 };
    image_files(files);
    for (int k = 0; k < 3; k++) {               /* zeros; noise; an image cut off in its superblock */
        for (size_t i = 0; k == 1 && i < sizeof junk; i++)
            junk[i] = (char)rand();
        if (k == 2)
            assert_true(pread(files[0], junk, 1100, 0) == 1100);
        own_fd bad = file_of(junk, k == 2 ? 1100 : sizeof junk);
        m = mount_files((int[]){ bad, files[1] }, 2);
        assert_true(m.rc == ERR_BAD_INPUT || m.rc == ERR_DENIED);
        assert_int_equal(m.dir, -1);
    }
    own_fd writable = open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600), dir = open("/tmp", O_RDONLY | O_CLOEXEC);
    assert_int_equal(sandbox_image_mount(client, (int[]){ writable }, 1, on_mounted, &m, &err), ERR_USAGE);
    assert_int_equal(sandbox_image_mount(client, (int[]){ dir }, 1, on_mounted, &m, &err), ERR_USAGE);
    assert_int_equal(sandbox_image_mount(client, files, 0, on_mounted, &m, &err), ERR_USAGE);
    m = mount_files(files, 2);
    close_both(files);
    if (skipped(&m))
        return;
    assert_int_equal(m.rc, 0);
    sandbox_image_unmount(client, m.dir);
}

/* Mounts of images in whatever mount namespace there is. */
static int images_mounted(void)
{
    int count = -1;
    FILE *f = popen("cat /proc/[0-9]*/mountinfo 2>/dev/null | grep -c ' - erofs '", "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%d", &count), 1);
    pclose(f);
    return count;
}

/* Descriptors of client and jail, when no slot is being made ready any more. */
static long fds_at_rest(void)
{
    long guardian = 0, fds = 0;
    for (int same = 0; same < 10; ) {
        const struct census now = census_take(&guardian);
        same = now.client_fds + now.jail_fds == fds ? same + 1 : 0;
        fds = now.client_fds + now.jail_fds;
        usleep(10000);
    }
    return fds;
}

static void nothing_is_left(void **state)
{
    (void)state;
    enum { MANY = 300, AT_ONCE = 20 };
    int files[2];
    image_files(files);
    struct mounted m[AT_ONCE] = { mount_files(files, 2) };
    if (skipped(&m[0])) {
        close_both(files);
        return;
    }
    struct outcome o = box_once(client, BOX_EMPTY, usual, "true");
    outcome_done(&o);
    sandbox_image_unmount(client, m[0].dir);
    const long before = fds_at_rest();
    for (int i = 0; i < MANY; i += AT_ONCE) {
        for (int k = 0; k < AT_ONCE; k++)
            m[k] = mount_files(files, 2);
        if (i == 0)
            assert_true(images_mounted() >= AT_ONCE);
        for (int k = 0; k < AT_ONCE; k++) {
            assert_int_equal(m[k].rc, 0);
            sandbox_image_unmount(client, m[k].dir);
        }
    }
    o = box_once(client, BOX_EMPTY, usual, "true");         /* and the jail has seen to the last of them */
    outcome_done(&o);
    assert_int_equal(images_mounted(), 0);
    assert_int_equal(fds_at_rest(), before);
    close_both(files);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_tree_lies_in_an_image), cmocka_unit_test(who_has_it_keeps_it),
        cmocka_unit_test(what_is_no_image_is_refused), cmocka_unit_test(nothing_is_left),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
