/* image_test.h - trees made at random or by hand, and an image of them as the kernel shows it, compared node by node. */
#pragma once
#include "base/own.h"
#include "repos/image.h"
#include "tests/repos/repos_test.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#define DATA_FILES 3
#define DATA_BYTES (6u << 20)
#define GIANT      ((uint64_t)5 << 30)  /* length of data file 2: nothing but holes, and a mark here and there */

struct images {
    char *top;
    int data_fd[DATA_FILES];
    uint64_t data_blocks[DATA_FILES];   /* as images are told */
    uint64_t seed;
};

static inline uint32_t below(struct images *im, uint32_t n)
{
    im->seed ^= im->seed << 13;
    im->seed ^= im->seed >> 7;
    im->seed ^= im->seed << 17;
    return (uint32_t)((im->seed * 0x2545F4914F6CDD1Du) >> 33) % n;
}

static inline void images_open(struct images *im)
{
    *im = (struct images){ .top = temp_dir(), .seed = 88172645463325252u };
    uint8_t *bytes = malloc(DATA_BYTES);
    assert_non_null(bytes);
    for (int i = 0; i < DATA_FILES; i++) {
        char path[4200];
        snprintf(path, sizeof path, "%s/data%d", im->top, i);
        im->data_fd[i] = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
        assert_true(im->data_fd[i] >= 0);
        for (uint32_t k = 0; k < DATA_BYTES; k += 4) {
            uint32_t v = below(im, UINT32_MAX);
            memcpy(bytes + k, &v, 4);
        }
        uint64_t size = i == 2 ? GIANT : DATA_BYTES;
        for (uint64_t at = 0; at < size; at += (uint64_t)1 << 30)
            assert_int_equal(pwrite(im->data_fd[i], bytes, i == 2 ? 8192 : DATA_BYTES, (off_t)at), i == 2 ? 8192 : DATA_BYTES);
        assert_int_equal(ftruncate(im->data_fd[i], (off_t)size), 0);
        im->data_blocks[i] = size / IMAGE_BLOCK;
    }
    free(bytes);
}

static inline void images_close(struct images *im)
{
    for (int i = 0; i < DATA_FILES; i++)
        close(im->data_fd[i]);
    drop_dir(im->top);
}

/* --- making trees --- */

static inline struct image_node *node_new(struct arena *a, enum image_kind kind)
{
    struct image_node *n = arena_alloc(a, sizeof *n);
    assert_non_null(n);
    *n = (struct image_node){ .kind = kind, .mode = kind == IMAGE_DIR ? 0755 : 0644, .mtime_s = 946684800 };
    return n;
}

static inline int entry_cmp(const void *a, const void *b)
{
    return strcmp(((const struct image_entry *)a)->name, ((const struct image_entry *)b)->name);
}

/* At its place among the names; false: the name is taken. */
static inline bool dir_add(struct arena *a, struct image_node *dir, const char *name, struct image_node *node)
{
    uint32_t at = 0, n = dir->entry_count;
    for (uint32_t end = n; at < end; ) {
        uint32_t mid = (at + end) / 2;
        if (strcmp(dir->entries[mid].name, name) < 0)
            at = mid + 1;
        else
            end = mid;
    }
    if (at < n && strcmp(dir->entries[at].name, name) == 0)
        return false;
    if ((n & (n - 1)) == 0) {           /* full at each power of two */
        struct image_entry *more = arena_alloc(a, sizeof *more * (n == 0 ? 1 : 2 * (size_t)n));
        assert_non_null(more);
        if (n > 0)
            memcpy(more, dir->entries, sizeof *more * n);
        dir->entries = more;
    }
    memmove(dir->entries + at + 1, dir->entries + at, sizeof *dir->entries * (n - at));
    dir->entries[at] = (struct image_entry){ .name = arena_strdup(a, name), .node = node };
    dir->entry_count++;
    return true;
}

static inline void random_name(struct images *im, char out[256])
{
    uint32_t n = below(im, 8) == 0 ? 255 : 1 + below(im, below(im, 3) == 0 ? 255 : 12);
    for (uint32_t i = 0; i < n; i++)
        do
            out[i] = (char)(below(im, 3) == 0 ? 1 + below(im, 255) : below(im, 4) == 0 ? '.' : 'a' + below(im, 3));
        while (out[i] == '/');
    out[n] = '\0';
    if (strcmp(out, ".") == 0 || strcmp(out, "..") == 0)
        out[0] = '-';
}

static inline void random_owner(struct images *im, struct image_node *n)
{
    static const uint32_t ids[] = { 0, 0, 0, 1000, 65535, 65536, 4294967294u };
    static const int64_t times[] = { 946684800, 946684800, 946684800, 0, -1, -2147483649, 4294967296, 253402300799 };
    n->uid = ids[below(im, 7)];
    n->gid = ids[below(im, 7)];
    n->mtime_s = times[below(im, 8)];
    n->mtime_ns = below(im, 3) == 0 ? below(im, 1000000000) : 0;
    n->mode = n->kind == IMAGE_LINK ? 0777 : below(im, 010000);
}

static inline uint64_t random_size(struct images *im, uint64_t max)
{
    uint64_t size = below(im, 4) == 0 ? below(im, 20000) : ((uint64_t)IMAGE_BLOCK << below(im, 10)) + below(im, 3) - 1;
    return below(im, 6) == 0 ? below(im, 2) : size > max ? max : size;
}

static inline void random_extent(struct images *im, struct image_node *n)
{
    n->data = below(im, 2);
    n->size = random_size(im, DATA_BYTES);
    n->offset = (uint64_t)IMAGE_BLOCK * below(im, (uint32_t)((DATA_BYTES - n->size) / IMAGE_BLOCK) + 1);
}

static inline char *random_target(struct images *im, struct arena *a)
{
    uint32_t n = below(im, 3) == 0 ? 4000 + below(im, 96) : 1 + below(im, 80);
    char *s = arena_alloc(a, n + 1);
    assert_non_null(s);
    for (uint32_t i = 0; i < n; i++)
        s[i] = (char)(1 + below(im, 255));
    return s;
}

static inline int xattr_cmp(const void *a, const void *b)
{
    return strcmp(((const struct image_xattr *)a)->name, ((const struct image_xattr *)b)->name);
}

/* An access list as getxattr() gives it: owner, one user, group, mask, others. */
static inline const void *acl_value(struct arena *a, uint32_t user, uint32_t *out_size)
{
    const uint16_t tags[] = { 0x01, 0x02, 0x04, 0x10, 0x20 };
    uint8_t *v = arena_alloc(a, 4 + sizeof tags / 2 * 8);
    assert_non_null(v);
    v[0] = 2;
    for (size_t i = 0; i < 5; i++) {
        uint8_t *e = v + 4 + i * 8;
        e[0] = (uint8_t)tags[i];
        e[2] = 5;
        memset(e + 4, 0xff, 4);
        if (tags[i] == 0x02)
            memcpy(e + 4, &user, 4);
    }
    *out_size = 44;
    return v;
}

static inline void random_xattrs(struct images *im, struct arena *a, struct image_node *n)
{
    static const char *const prefixes[] = { "trusted.", "security.", "user." };
    uint32_t count = below(im, 5);
    struct image_xattr *x = arena_alloc(a, sizeof *x * (count + 2));
    assert_non_null(x);
    for (uint32_t i = 0; i < count; i++) {
        /* The kernel lets no one read user attributes of links, and security modules own some names. */
        const char *prefix = prefixes[below(im, n->kind == IMAGE_LINK ? 2 : 3)];
        uint32_t size = below(im, 10) == 0 ? below(im, 65536) : below(im, 3) == 0 ? 0 : below(im, 300);
        uint8_t *value = arena_alloc(a, size + 1);
        assert_non_null(value);
        for (uint32_t k = 0; k < size; k++)
            value[k] = (uint8_t)below(im, 256);
        char rest[251];
        uint32_t len = below(im, 5) == 0 ? 230 : 1;
        memset(rest, 'x', len);
        rest[len] = '\0';
        x[i] = (struct image_xattr){ .name = arena_printf(a, "%s%u%s", prefix, i, rest), .value = value, .size = size };
    }
    if (n->kind != IMAGE_LINK && below(im, 3) == 0) {
        x[count].name = "system.posix_acl_access";
        x[count].value = acl_value(a, 7, &x[count].size);
        count++;
    }
    if (n->kind == IMAGE_DIR && below(im, 3) == 0) {
        x[count].name = "system.posix_acl_default";
        x[count].value = acl_value(a, 70000, &x[count].size);
        count++;
    }
    qsort(x, count, sizeof *x, xattr_cmp);
    n->xattrs = x;
    n->xattr_count = count;
}

static inline struct image_node *random_tree(struct images *im, struct arena *a, uint32_t nodes)
{
    struct image_node *root = node_new(a, IMAGE_DIR), **all = arena_alloc(a, sizeof *all * (nodes + 1));
    uint32_t count = 0;
    assert_non_null(all);
    random_owner(im, root);
    all[count++] = root;
    while (count < nodes) {
        struct image_node *dir = all[below(im, below(im, 2) == 0 ? count : 1 + count / 8)];
        if (dir->kind != IMAGE_DIR)
            continue;
        char name[256];
        random_name(im, name);
        struct image_node *old = all[below(im, count)];
        if (below(im, 8) == 0 && old->kind != IMAGE_DIR) {
            dir_add(a, dir, name, old);         /* a hard link */
            continue;
        }
        struct image_node *n = node_new(a, below(im, 4) == 0 ? IMAGE_DIR : below(im, 6) == 0 ? IMAGE_LINK : IMAGE_FILE);
        random_owner(im, n);
        if (below(im, 4) == 0)
            random_xattrs(im, a, n);
        if (n->kind == IMAGE_FILE)
            random_extent(im, n);
        if (n->kind == IMAGE_LINK)
            n->target = random_target(im, a);
        if (dir_add(a, dir, name, n))
            all[count++] = n;
    }
    return root;
}

/* --- mounting and comparing --- */

static inline int image_file(struct images *im, const char *name, struct image_node *root)
{
    char path[4200];
    struct err err = { 0 };
    snprintf(path, sizeof path, "%s/%s", im->top, name);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    if (image_write(fd, root, im->data_blocks, DATA_FILES, &err) != 0)
        fail_msg("%s", err.msg);
    return fd;
}

/* A mount that has no place in the tree: it goes with its descriptor. */
static inline int mount_image(const char *image, const char *const *data, int data_count)
{
    int fs = fsopen("erofs", FSOPEN_CLOEXEC);
    assert_true(fs >= 0);
    assert_int_equal(fsconfig(fs, FSCONFIG_SET_STRING, "source", image, 0), 0);
    for (int i = 0; i < data_count; i++)
        assert_int_equal(fsconfig(fs, FSCONFIG_SET_STRING, "device", data[i], 0), 0);
    if (fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) != 0) {
        char said[1000] = "";
        ssize_t n = read(fs, said, sizeof said - 1);
        fail_msg("mount %s: %s; %.*s", image, strerror(errno), (int)(n > 0 ? n : 0), said);
    }
    int m = fsmount(fs, FSMOUNT_CLOEXEC, MOUNT_ATTR_RDONLY);
    assert_true(m >= 0);
    close(fs);
    return m;
}

static inline int images_mount(struct images *im, const char *name)
{
    char image[4200], data[DATA_FILES][4200];
    const char *paths[DATA_FILES];
    snprintf(image, sizeof image, "%s/%s", im->top, name);
    for (int i = 0; i < DATA_FILES; i++) {
        snprintf(data[i], sizeof data[i], "%s/data%d", im->top, i);
        paths[i] = data[i];
    }
    return mount_image(image, paths, DATA_FILES);
}

static inline void compare_bytes(struct images *im, int fd, const struct image_node *n)
{
    static uint8_t got[1 << 16], want[1 << 16];
    uint64_t step = sizeof got;
    for (uint64_t at = 0; at < n->size; at += step) {
        uint64_t len = n->size - at < sizeof got ? n->size - at : sizeof got;
        assert_int_equal(pread(fd, got, len, (off_t)at), len);
        assert_int_equal(pread(im->data_fd[n->data], want, len, (off_t)(n->offset + at)), len);
        assert_memory_equal(got, want, len);
        if (n->size > (1u << 30))               /* the marks, and what lies around 4 GiB and the end */
            step = n->size - at > (1u << 20) ? ((uint64_t)1 << 30) - ((at + sizeof got) % (1u << 30) == 0 ? 0 : sizeof got / 2) : sizeof got;
    }
    assert_int_equal(pread(fd, got, sizeof got, (off_t)n->size), 0);
    uint64_t last = n->size > sizeof got ? n->size - sizeof got : 0;
    ssize_t k = pread(fd, got, sizeof got, (off_t)last);
    assert_int_equal(k, n->size - last);
    assert_int_equal(pread(im->data_fd[n->data], want, (size_t)k, (off_t)(n->offset + last)), k);
    assert_memory_equal(got, want, (size_t)k);
}

/* By path, as links cannot be opened for it. */
static inline void compare_xattrs(int dir, const char *name, const struct image_node *n)
{
    static char names[1 << 16], value[1 << 16];
    char path[400];
    snprintf(path, sizeof path, "/proc/self/fd/%d/%s", dir, name);
    ssize_t len = llistxattr(path, names, sizeof names);
    assert_true(len >= 0);
    uint32_t count = 0;
    for (ssize_t i = 0; i < len; i += (ssize_t)strlen(names + i) + 1)
        count++;
    assert_int_equal(count, n->xattr_count);
    for (uint32_t i = 0; i < n->xattr_count; i++) {
        ssize_t k = lgetxattr(path, n->xattrs[i].name, value, sizeof value);
        if (k != (ssize_t)n->xattrs[i].size)
            fail_msg("%s of %s: %zd bytes, not %u", n->xattrs[i].name, path, k, n->xattrs[i].size);
        assert_memory_equal(value, n->xattrs[i].value, n->xattrs[i].size);
    }
}

static inline unsigned char type_of(enum image_kind kind) { return kind == IMAGE_DIR ? DT_DIR : kind == IMAGE_LINK ? DT_LNK : DT_REG; }

/* How many names a node has in the whole tree, and the inode number that all of them must show. */
struct seen { uint64_t names; ino_t inode; };

static inline void count_names(struct image_node *n, struct seen *seen)
{
    seen[n->number].names++;
    for (uint32_t i = 0; n->kind == IMAGE_DIR && i < n->entry_count; i++)
        count_names(n->entries[i].node, seen);
}

static inline void compare_node(struct images *im, int dir, const char *name, struct image_node *n, struct seen *seen)
{
    struct stat st;
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        fail_msg("%s: %s", name, strerror(errno));
    uint64_t links = seen[n->number].names, size = n->size;
    for (uint32_t i = 0; n->kind == IMAGE_DIR && i < n->entry_count; i++)
        links += n->entries[i].node->kind == IMAGE_DIR;
    if (n->kind == IMAGE_LINK)
        size = strlen(n->target);
    assert_int_equal(st.st_mode, (n->kind == IMAGE_DIR ? S_IFDIR : n->kind == IMAGE_LINK ? S_IFLNK : S_IFREG) | n->mode);
    assert_int_equal(st.st_uid, n->uid);
    assert_int_equal(st.st_gid, n->gid);
    assert_int_equal(st.st_mtim.tv_sec, n->mtime_s);
    assert_int_equal(st.st_mtim.tv_nsec, n->mtime_ns);
    assert_int_equal(st.st_nlink, links + (n->kind == IMAGE_DIR));
    if (n->kind != IMAGE_DIR)
        assert_int_equal(st.st_size, size);
    if (seen[n->number].inode == 0)
        seen[n->number].inode = st.st_ino;
    assert_int_equal(st.st_ino, seen[n->number].inode);
    compare_xattrs(dir, name, n);
    if (n->kind == IMAGE_LINK) {
        char target[5000];
        ssize_t k = readlinkat(dir, name, target, sizeof target);
        assert_int_equal(k, size);
        assert_memory_equal(target, n->target, size);
        return;
    }
    int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    assert_true(fd >= 0);
    if (n->kind == IMAGE_FILE) {
        compare_bytes(im, fd, n);
        close(fd);
        return;
    }
    DIR *d = fdopendir(fd);
    assert_non_null(d);
    uint32_t at = 0, dots = 0;
    for (struct dirent *e; (e = readdir(d)) != NULL; ) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) {
            assert_int_equal(e->d_type, DT_DIR);
            dots++;
            continue;
        }
        assert_true(at < n->entry_count);
        assert_string_equal(e->d_name, n->entries[at].name);
        assert_int_equal(e->d_type, type_of(n->entries[at].node->kind));
        at++;
    }
    assert_int_equal(at, n->entry_count);
    assert_int_equal(dots, 2);
    for (uint32_t i = 0; i < n->entry_count; i++)
        compare_node(im, dirfd(d), n->entries[i].name, n->entries[i].node, seen);
    char absent[256] = "";
    random_name(im, absent);
    struct image_entry key = { .name = absent };
    if (n->entry_count == 0 || bsearch(&key, n->entries, n->entry_count, sizeof key, entry_cmp) == NULL)
        assert_true(faccessat(dirfd(d), absent, F_OK, AT_SYMLINK_NOFOLLOW) != 0 && errno == ENOENT);
    assert_int_equal(fstatat(dirfd(d), "..", &st, 0), 0);
    closedir(d);
}

static inline void compare_tree(struct images *im, int mount, struct image_node *root, uint32_t nodes)
{
    struct seen *seen = calloc(nodes, sizeof *seen);
    assert_non_null(seen);
    count_names(root, seen);
    compare_node(im, mount, ".", root, seen);
    free(seen);
}

/* A second opinion, where erofs-utils is there. It reads contents only where a chunk index names their device: the kernel's way
 * from a flat file's block number to a device is not in it. */
static inline void ask_fsck(struct images *im, const char *name, bool contents)
{
    char cmd[400];
    snprintf(cmd, sizeof cmd, "PATH=$PATH:/usr/sbin:/sbin; if command -v fsck.erofs >/dev/null; then "
             "fsck.erofs --device=data0 --device=data1 --device=data2 %s %s >fsck.log 2>&1 || { cat fsck.log; exit 1; }; fi",
             contents ? "--extract" : "", name);
    assert_int_equal(sh(im->top, cmd), 0);
}
