/* image_git.c - see image_git.h. */
#include "repos/image_git.h"
#include "base/own.h"
#include "repos/store.h"
#include "repos/tree.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

_Static_assert(IMAGE_BLOCK == DATA_BLOCK, "what a data file aligns, an image refers to");

struct open_dir {
    struct image_node *node;
    uint32_t cap;
    size_t   end;                       /* length of its path */
};

struct building {
    struct arena *a;
    git_odb      *odb;
    struct data  *d;
    uint64_t      blocks;
    struct open_dir open[TREE_DEPTH_MAX + 1];   /* from the root down to the one that is being filled */
    int           depth;
    char          path[TREE_PATH_MAX + 1];
};

static int add(struct building *b, const char *name, size_t n, struct image_node **out, const struct image_node *node,
               struct err *err)
{
    struct open_dir *o = &b->open[b->depth];
    struct image_node *dir = o->node;
    if (dir->entry_count == o->cap) {
        o->cap = o->cap != 0 ? o->cap * 2 : 8;
        struct image_entry *more = arena_alloc(b->a, sizeof *more * o->cap);
        if (more == NULL)
            return err_set(err, ERR_LIMIT, "image: out of memory");
        if (dir->entry_count > 0)
            memcpy(more, dir->entries, sizeof *more * dir->entry_count);
        dir->entries = more;
    }
    struct image_node *kept = arena_alloc(b->a, sizeof *kept);
    char *copy = arena_strndup(b->a, name, n);
    if (kept == NULL || copy == NULL)
        return err_set(err, ERR_LIMIT, "image: out of memory");
    *kept = *node;
    kept->mtime_s = TREE_TIME;
    dir->entries[dir->entry_count++] = (struct image_entry){ .name = copy, .node = kept };
    if (out != NULL)
        *out = kept;
    return 0;
}

static const struct image_node plain_dir = { .kind = IMAGE_DIR, .mode = 0755, .mtime_s = TREE_TIME };

/* Open the directories that lead to `path`; leaves come in path order. */
static int dir_enter(struct building *b, const char *path, struct err *err)
{
    const char *slash = strrchr(path, '/');
    size_t want = slash != NULL ? (size_t)(slash - path) : 0;
    while (b->depth > 0 && (b->open[b->depth].end > want || memcmp(b->path, path, b->open[b->depth].end) != 0
                            || path[b->open[b->depth].end] != '/'))
        b->depth--;
    while (b->open[b->depth].end < want) {
        size_t from = b->open[b->depth].end + (b->depth > 0), len = strcspn(path + from, "/");
        if (b->depth == TREE_DEPTH_MAX)
            return err_set(err, ERR_LIMIT, "image: directory %.200s is too deep", path);
        struct image_node *dir = NULL;
        int rc = add(b, path + from, len, &dir, &plain_dir, err);
        if (rc < 0)
            return rc;
        b->open[++b->depth] = (struct open_dir){ .node = dir, .end = from + len };
        memcpy(b->path, path, from + len);
    }
    return 0;
}

static int read_blob(struct building *b, git_odb_object **out, const git_oid *id, struct err *err)
{
    return git_odb_read(out, b->odb, id) == 0 ? 0 : git_err(err, ERR_CORRUPT, "object store: read");
}

static int file_place(struct building *b, struct data_place *out, const git_oid *id, struct err *err)
{
    struct err none = { 0 };
    int rc = data_find_alias(b->d, out, id->id, sizeof id->id, &none);
    if (rc != ERR_NOT_FOUND) {
        if (rc < 0)
            *err = none;
        return rc;
    }
    git_odb_object *o = NULL;           /* one file at a time is in memory */
    rc = read_blob(b, &o, id, err);
    if (rc == 0)
        rc = data_put(b->d, out, git_odb_object_data(o), git_odb_object_size(o), err);
    if (rc == 0)
        rc = data_put_alias(b->d, id->id, sizeof id->id, out, err);
    git_odb_object_free(o);
    return rc;
}

static int link_target(struct building *b, const char **out, const char *path, const git_oid *id, struct err *err)
{
    git_odb_object *o = NULL;
    int rc = read_blob(b, &o, id, err);
    if (rc < 0)
        return rc;
    const char *bytes = git_odb_object_data(o);
    size_t n = git_odb_object_size(o);
    if (n == 0 || n > TREE_PATH_MAX || memchr(bytes, '\0', n) != NULL)
        rc = err_set(err, ERR_BAD_INPUT, "tree: link %.200s has no usable target", path);
    else if ((*out = arena_strndup(b->a, bytes, n)) == NULL)
        rc = err_set(err, ERR_LIMIT, "image: out of memory");
    git_odb_object_free(o);
    return rc;
}

static int leaf(const char *path, const struct entry *e, void *arg, struct err *err)
{
    struct building *b = arg;
    int rc = dir_enter(b, path, err);
    if (rc < 0)
        return rc;
    const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path;
    struct image_node node = plain_dir;         /* a submodule */
    if (e->kind == ENTRY_FILE) {
        struct data_place place = { 0 };
        rc = file_place(b, &place, &e->id, err);
        node = (struct image_node){ .kind = IMAGE_FILE, .mode = e->executable ? 0755 : 0644, .size = place.size,
                                    .offset = place.offset };
        uint64_t end = (place.offset + place.size + IMAGE_BLOCK - 1) / IMAGE_BLOCK;
        b->blocks = end > b->blocks ? end : b->blocks;
    } else if (e->kind == ENTRY_LINK) {
        node = (struct image_node){ .kind = IMAGE_LINK, .mode = 0777 };
        rc = link_target(b, &node.target, path, &e->id, err);
    }
    return rc < 0 ? rc : add(b, name, strlen(name), NULL, &node, err);
}

int image_git_nodes(struct image_node **out, uint64_t *out_blocks, struct arena *a, git_odb *odb, const git_oid *tree,
                    struct data *d, struct err *err)
{
    struct building b = { .a = a, .odb = odb, .d = d };
    struct tree *t;
    int rc = tree_open(&t, a, odb, tree, err);
    if (rc < 0)
        return rc;
    struct image_node *root = b.open[0].node = arena_alloc(a, sizeof *root);
    if (root == NULL)
        return err_set(err, ERR_LIMIT, "image: out of memory");
    *root = plain_dir;
    rc = tree_walk(t, "", leaf, &b, err);
    if (rc < 0)
        return rc;
    *out = root;
    *out_blocks = b.blocks;
    return 0;
}

/* The image gets its name when all its bytes are on the disk. It has none before: a killed import leaves nothing behind. */
static int image_name(struct digest *out, int images_fd, int fd, struct err *err)
{
    uint64_t size;
    int rc = digest_of_fd(out, &size, fd, err);
    if (rc < 0)
        return rc;
    char hex[DIGEST_HEX_SIZE], name[DIGEST_HEX_SIZE + 8], self[64];
    digest_hex(hex, out);
    snprintf(name, sizeof name, "%s.erofs", hex);
    snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
    if (fchmod(fd, 0444) != 0 || fsync(fd) != 0)
        return err_sys(err, ERR_SYS, "image: sync");
    if (linkat(AT_FDCWD, self, images_fd, name, AT_SYMLINK_FOLLOW) != 0 && errno != EEXIST)
        return err_sys(err, ERR_SYS, "image: name %s", name);
    return fsync(images_fd) == 0 ? 0 : err_sys(err, ERR_SYS, "image: sync its directory");
}

int image_git_import(struct digest *out, int images_fd, git_odb *odb, const git_oid *tree, struct data *d, struct err *err)
{
    own_arena a = { 0 };
    struct image_node *root = NULL;
    uint64_t blocks = 0;
    int rc = data_begin(d, err);
    if (rc == 0)
        rc = image_git_nodes(&root, &blocks, &a, odb, tree, d, err);
    if (rc == 0)
        rc = data_commit(d, err);
    data_drop(d);
    if (rc < 0)
        return rc;
    own_fd fd = openat(images_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_sys(err, ERR_SYS, "image: a file without a name");
    rc = image_write(fd, root, &blocks, 1, err);
    return rc == 0 ? image_name(out, images_fd, fd, err) : rc;
}
