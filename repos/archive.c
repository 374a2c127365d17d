/*
 * archive.c - layers onto a tree.
 *
 * While layers come, a directory's names stand in a treap (a search tree by name, a heap by random rank): every change costs the
 * logarithm of their number in whatever order an archive brings them, and none needs a name twice. archive_tree_finish() writes
 * the sorted lists that image.h wants. What is replaced stays in the arena: its budget bounds what an archive can make us hold.
 *
 * T1: a slot's layer is the last one that stated its name, or made it as a parent; a whiteout removes slots of lower layers only.
 * T2: a file's bytes have all gone to the sink before its name changes.
 */
#include "repos/archive.h"
#include "base/fault.h"
#include "base/own.h"
#include <archive_entry.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>

#define LINKS_MAX       40u             /* symbolic links on the way to one name: the kernel's limit */
#define XATTRS_MAX      256u
#define XATTR_BYTES_MAX 65536u          /* names and values of one entry: what one inode holds on common file systems */
#define QUOTE_SIZE      220u
#define WH              ".wh."
#define WH_AUFS         ".wh..wh."
#define WH_OPAQUE       ".wh..wh..opq"

struct slot {
    struct slot *left, *right;
    struct node *node;
    uint32_t     rank, layer;
    char         name[];
};
struct node {
    struct image_node pub;              /* first: entries of the finished tree point to it */
    struct slot *names;                 /* of a directory */
};

struct archive_tree {
    struct arena *a;
    struct archive_limits limits;
    struct archive_sink sink;
    struct node *root;
    uint32_t layer;
    uint64_t random;
    uint64_t entries, bytes, xattrs_dropped;
};

/* A name of the tree: the directories down to it, and its last component. */
struct place {
    struct node *dirs[ARCHIVE_DEPTH_MAX + 1];
    uint32_t     depth;                 /* dirs[depth] holds the name */
    const char  *name;                  /* "" is the root itself */
};

/* --- names of one directory --- */

static uint32_t rank_next(struct archive_tree *t)
{
    t->random ^= t->random << 13;
    t->random ^= t->random >> 7;
    t->random ^= t->random << 17;
    return (uint32_t)(t->random >> 32);
}

static struct slot *slot_find(struct node *dir, const char *name)
{
    struct slot *s = dir->names;
    for (int c; s != NULL && (c = strcmp(name, s->name)) != 0;)
        s = c < 0 ? s->left : s->right;
    return s;
}

/* All names of l are before all of r. */
static struct slot *slots_join(struct slot *l, struct slot *r)
{
    if (l == NULL || r == NULL)
        return l != NULL ? l : r;
    if (l->rank > r->rank) {
        l->right = slots_join(l->right, r);
        return l;
    }
    r->left = slots_join(l, r->left);
    return r;
}

static void slots_split(struct slot *s, const char *name, struct slot **l, struct slot **r)
{
    if (s == NULL) {
        *l = *r = NULL;
    } else if (strcmp(s->name, name) < 0) {
        slots_split(s->right, name, &s->right, r);
        *l = s;
    } else {
        slots_split(s->left, name, l, &s->left);
        *r = s;
    }
}

static struct slot *slot_remove(struct slot *s, const char *name)
{
    int c = s != NULL ? strcmp(name, s->name) : 0;
    if (s == NULL || c == 0)
        return s != NULL ? slots_join(s->left, s->right) : NULL;
    if (c < 0)
        s->left = slot_remove(s->left, name);
    else
        s->right = slot_remove(s->right, name);
    return s;
}

static int memory_out(struct err *err) { return err_set(err, ERR_LIMIT, "the tree is larger than its memory budget"); }

static int slot_add(struct archive_tree *t, struct node *dir, const char *name, struct node *node, struct err *err)
{
    size_t n = strlen(name) + 1;
    struct slot *s = arena_alloc(t->a, sizeof *s + n), *l, *r;
    if (s == NULL)
        return memory_out(err);
    memcpy(s->name, name, n);
    s->node = node;
    s->rank = rank_next(t);
    s->layer = t->layer;
    slots_split(dir->names, name, &l, &r);
    dir->names = slots_join(slots_join(l, s), r);
    return 0;
}

static struct node *node_new(struct archive_tree *t, enum image_kind kind)
{
    struct node *n = arena_alloc(t->a, sizeof *n);
    if (n != NULL)
        n->pub = (struct image_node){ .kind = kind, .mode = kind == IMAGE_DIR ? 0755 : 0 };
    return n;
}

/* What is left of `s` when lower layers' names go (T1). A directory of theirs that holds names of this layer stays as a parent
 * that nobody stated: as it would be made had the whiteout come first. */
static struct slot *slots_prune(struct archive_tree *t, struct slot *s)
{
    if (s == NULL)
        return NULL;
    struct slot *l = slots_prune(t, s->left), *r = slots_prune(t, s->right);
    struct node *n = s->node;
    if (n->pub.kind == IMAGE_DIR)
        n->names = slots_prune(t, n->names);
    if (s->layer != t->layer && (n->pub.kind != IMAGE_DIR || n->names == NULL))
        return slots_join(l, r);
    if (s->layer != t->layer) {
        n->pub = (struct image_node){ .kind = IMAGE_DIR, .mode = 0755 };
        s->layer = t->layer;
    }
    s->left = l;
    s->right = r;
    return s;
}

/* --- from a path to a place --- */

int archive_path_clean(char *out, const char *path, struct err *err)
{
    size_t n = 0, depth = 0;
    if (path[0] == '/' && path[strspn(path, "/.")] != '\0')
        return err_set(err, ERR_BAD_INPUT, "the path is absolute");
    for (const char *p = path; *p != '\0';) {
        size_t len = strcspn(p, "/");
        if (len == 2 && memcmp(p, "..", 2) == 0) {
            if (depth-- == 0)
                return err_set(err, ERR_BAD_INPUT, "the path leaves the root");
            while (n > 0 && out[--n] != '/')
                ;
        } else if (len > 1 || (len == 1 && *p != '.')) {
            if (len > IMAGE_NAME_MAX)
                return err_set(err, ERR_BAD_INPUT, "a name of the path has %zu bytes, more than %u", len, IMAGE_NAME_MAX);
            if (++depth > ARCHIVE_DEPTH_MAX)
                return err_set(err, ERR_BAD_INPUT, "the path is deeper than %u directories", ARCHIVE_DEPTH_MAX);
            if (n + 1 + len > ARCHIVE_PATH_MAX)
                return err_set(err, ERR_BAD_INPUT, "the path has more than %u bytes", ARCHIVE_PATH_MAX);
            if (n > 0)
                out[n++] = '/';
            memcpy(out + n, p, len);
            n += len;
        }
        p += len + (p[len] == '/');
    }
    out[n] = '\0';
    return 0;
}

static int refuse_parent(struct err *err, const char *name, const char *why)
{
    char q[QUOTE_SIZE];
    err_quote(q, sizeof q, name, strlen(name));
    return err_set(err, ERR_BAD_INPUT, "its parent \"%s\" %s", q, why);
}

/* Why a path is walked: parents are made for what is put. What is hidden was there before this layer: through a symbolic link that
 * this layer brings there is nothing to hide (umoci whites out the names of a directory that a link or a file replaces). */
enum purpose { TO_PUT, TO_HIDE, TO_LINK };

/* From pl->dirs[pl->depth] into directory `name`. ERR_NOT_FOUND without text when it is not there and not to be made;
 * 1: it is the symbolic link *out_link. */
static int step(struct archive_tree *t, struct place *pl, const char *name, enum purpose why, const char **out_link, struct err *err)
{
    struct node *dir = pl->dirs[pl->depth];
    struct slot *s = slot_find(dir, name);
    struct node *n = s != NULL ? s->node : NULL;
    if (why != TO_PUT && (n == NULL || n->pub.kind == IMAGE_FILE))
        return ERR_NOT_FOUND;
    if (n != NULL && n->pub.kind == IMAGE_LINK) {
        if (why == TO_HIDE && s->layer == t->layer)
            return ERR_NOT_FOUND;
        *out_link = n->pub.target;
        return 1;
    }
    if (n != NULL && n->pub.kind == IMAGE_FILE)
        return refuse_parent(err, name, "is a file");
    if (pl->depth == ARCHIVE_DEPTH_MAX)
        return refuse_parent(err, name, "lies deeper than 128 directories");
    if (n == NULL) {
        int rc = (n = node_new(t, IMAGE_DIR)) == NULL ? memory_out(err) : slot_add(t, dir, name, n, err);
        if (rc < 0)
            return rc;
    }
    pl->dirs[++pl->depth] = n;
    return 0;
}

/* Walk the directories that `path` names (it is written over), symbolic links followed inside the tree. */
static int walk(struct archive_tree *t, struct place *pl, char *path, enum purpose why, struct err *err)
{
    char next[2 * ARCHIVE_PATH_MAX + 2], name[IMAGE_NAME_MAX + 1];
    uint32_t links = 0;
    const char *p = path, *target = NULL;
    for (;;) {
        p += strspn(p, "/");
        size_t len = strcspn(p, "/");
        if (len == 0)
            return 0;
        if (len > IMAGE_NAME_MAX)
            return err_set(err, ERR_BAD_INPUT, "a symbolic link among its parents leads to a name of %zu bytes", len);
        memcpy(name, p, len);
        name[len] = '\0';
        p += len;
        if (strcmp(name, ".") == 0)
            continue;
        if (strcmp(name, "..") == 0) {
            pl->depth -= pl->depth > 0;
            continue;
        }
        int rc = step(t, pl, name, why, &target, err);
        if (rc < 0)
            return rc;
        if (rc == 0)
            continue;
        if (++links > LINKS_MAX)
            return refuse_parent(err, name, "is a loop of symbolic links");
        size_t n = strlen(target), rest = strlen(p);
        if (n + rest > ARCHIVE_PATH_MAX)
            return refuse_parent(err, name, "is a symbolic link that makes the path too long");
        memcpy(next, target, n);
        memcpy(next + n, p, rest + 1);
        memcpy(path, next, n + rest + 1);
        p = path;
        if (target[0] == '/')
            pl->depth = 0;
    }
}

/* The place of a cleaned path (kept: pl->name points into it). */
static int place_find(struct archive_tree *t, struct place *pl, const char *path, enum purpose why, struct err *err)
{
    char parents[ARCHIVE_PATH_MAX + 1];
    const char *slash = strrchr(path, '/');
    size_t n = slash != NULL ? (size_t)(slash - path) : 0;
    memcpy(parents, path, n);
    parents[n] = '\0';
    pl->depth = 0;
    pl->dirs[0] = t->root;
    pl->name = slash != NULL ? slash + 1 : path;
    int rc = walk(t, pl, parents, why, err);
    if (rc == 0 && pl->depth == ARCHIVE_DEPTH_MAX)
        return err_set(err, ERR_BAD_INPUT, "the path is deeper than %u directories", ARCHIVE_DEPTH_MAX);
    return rc;
}

/* `n` stands at the place from now on. A directory over a directory changes its attributes only. */
static int place_put(struct archive_tree *t, struct place *pl, struct node *n, struct err *err)
{
    struct node *dir = pl->dirs[pl->depth];
    struct slot *s = pl->name[0] != '\0' ? slot_find(dir, pl->name) : NULL;
    struct node *was = pl->name[0] == '\0' ? t->root : s != NULL ? s->node : NULL;
    if (was == t->root && n->pub.kind != IMAGE_DIR)
        return err_set(err, ERR_BAD_INPUT, "the root is a directory");
    if (s != NULL)
        s->layer = t->layer;
    if (was != NULL && was->pub.kind == IMAGE_DIR && n->pub.kind == IMAGE_DIR)
        was->pub = n->pub;
    else if (s != NULL)
        s->node = n;
    else
        return slot_add(t, dir, pl->name, n, err);
    return 0;
}

/* --- what an entry says --- */

/* Which attributes mean the same wherever the tree is mounted: archive.h. */
static bool xattr_kept(const char *name, enum image_kind kind)
{
    if (kind == IMAGE_LINK)             /* user.* and ACLs do not exist on links, capabilities do nothing there */
        return false;
    if (strncmp(name, "user.", 5) == 0)
        return name[5] != '\0' && strncmp(name, "user.overlay.", 13) != 0;
    return strcmp(name, "security.capability") == 0 || strcmp(name, "system.posix_acl_access") == 0
           || (strcmp(name, "system.posix_acl_default") == 0 && kind == IMAGE_DIR);
}

/* Where `name` stands or belongs in the sorted list. */
static uint32_t xattr_at(const struct image_xattr *list, uint32_t n, const char *name)
{
    uint32_t i = 0;
    while (i < n && strcmp(list[i].name, name) < 0)
        i++;
    return i;
}

/* libarchive gives the last stated first; of one name, stated as SCHILY.xattr and LIBARCHIVE.xattr, the first given counts. */
static int read_xattrs(struct archive_tree *t, struct image_node *out, struct archive_entry *e, struct err *err)
{
    struct image_xattr list[XATTRS_MAX + 1];
    uint32_t n = 0;
    size_t bytes = 0;
    const char *name;
    const void *value;
    size_t size;
    archive_entry_xattr_reset(e);
    while (archive_entry_xattr_next(e, &name, &value, &size) == 0) {
        if (name == NULL || !xattr_kept(name, out->kind)) {
            t->xattrs_dropped++;
            continue;
        }
        uint32_t at = xattr_at(list, n, name);
        if (at < n && strcmp(list[at].name, name) == 0)
            continue;
        bytes += strlen(name) + size;
        if (strlen(name) > 255 || bytes > XATTR_BYTES_MAX || n == XATTRS_MAX)
            return err_set(err, ERR_LIMIT, "extended attributes: more than %u, or over %u bytes", XATTRS_MAX, XATTR_BYTES_MAX);
        char *own_name = arena_strdup(t->a, name), *own_value = arena_strndup(t->a, value, size);
        if (own_name == NULL || own_value == NULL)
            return memory_out(err);
        memmove(&list[at + 1], &list[at], (n++ - at) * sizeof list[0]);
        list[at] = (struct image_xattr){ own_name, own_value, (uint32_t)size };
    }
    struct image_xattr *kept = n > 0 ? arena_alloc(t->a, n * sizeof list[0]) : NULL;
    if (n > 0 && kept == NULL)
        return memory_out(err);
    if (n > 0)
        memcpy(kept, list, n * sizeof list[0]);
    out->xattrs = kept;
    out->xattr_count = n;
    return 0;
}

static int read_attributes(struct archive_tree *t, struct image_node *out, struct archive_entry *e, struct err *err)
{
    la_int64_t uid = archive_entry_uid(e), gid = archive_entry_gid(e);
    long ns = archive_entry_mtime_nsec(e);
    if (uid < 0 || uid > UINT32_MAX || gid < 0 || gid > UINT32_MAX)
        return err_set(err, ERR_BAD_INPUT, "its owner is %lld:%lld", (long long)uid, (long long)gid);
    out->mode = out->kind == IMAGE_LINK ? 0777 : (uint32_t)archive_entry_perm(e) & 07777;
    out->uid = (uint32_t)uid;
    out->gid = (uint32_t)gid;
    out->mtime_s = archive_entry_mtime(e);
    out->mtime_ns = ns >= 0 && ns < 1000000000 ? (uint32_t)ns : 0;
    return read_xattrs(t, out, e, err);
}

static int put_hole(struct archive_tree *t, struct tar *tar, uint64_t n, struct err *err)
{
    int rc = n > 0 ? tar_count(tar, n, err) : 0;
    return rc < 0 || n == 0 ? rc : t->sink.put(t->sink.arg, NULL, n, err);
}

/* The entry's bytes to the sink. */
static int read_bytes(struct archive_tree *t, struct tar *tar, struct image_node *out, struct err *err)
{
    uint64_t done = 0, at = 0;
    const void *p;
    size_t n;
    int rc;
    while ((rc = tar_read(tar, &p, &n, &at, err)) > 0) {
        if (n == 0)
            continue;
        if (at < done || at > out->size || n > out->size - at)
            return err_set(err, ERR_BAD_INPUT, "its pieces overlap or are beyond its size");
        if ((rc = put_hole(t, tar, at - done, err)) < 0 || (rc = t->sink.put(t->sink.arg, p, n, err)) < 0)
            return rc;
        done = at + n;
    }
    if (rc == 0 && out->size > done)
        rc = put_hole(t, tar, out->size - done, err);
    return rc < 0 ? rc : t->sink.end(t->sink.arg, &out->data, &out->offset, err);
}

static int read_file(struct archive_tree *t, struct tar *tar, struct image_node *out, struct archive_entry *e, struct err *err)
{
    la_int64_t size = archive_entry_size(e);
    if (size < 0)
        return err_set(err, ERR_BAD_INPUT, "its size is negative");
    if ((uint64_t)size > t->limits.file_bytes)
        return err_set(err, ERR_LIMIT, "it has %lld bytes, more than %llu", (long long)size,
                       (unsigned long long)t->limits.file_bytes);
    out->size = (uint64_t)size;
    return size > 0 ? read_bytes(t, tar, out, err) : 0;
}

static int read_link(struct archive_tree *t, struct image_node *out, struct archive_entry *e, struct err *err)
{
    const char *target = archive_entry_symlink(e);
    size_t n = target != NULL ? strlen(target) : 0;
    if (n == 0 || n > ARCHIVE_PATH_MAX)
        return err_set(err, ERR_BAD_INPUT, "it is a symbolic link to %zu bytes of text", n);
    out->target = arena_strdup(t->a, target);
    return out->target != NULL ? 0 : memory_out(err);
}

/* --- one entry --- */

static int put_hard_link(struct archive_tree *t, struct place *pl, struct archive_entry *e, struct err *err)
{
    char path[ARCHIVE_PATH_MAX + 1];
    const char *stated = archive_entry_hardlink(e);
    struct place to;
    if (archive_entry_size_is_set(e) && archive_entry_size(e) != 0)
        return err_set(err, ERR_BAD_INPUT, "it is a hard link with contents of its own");
    int rc = archive_path_clean(path, stated, err);
    if (rc == 0)
        rc = place_find(t, &to, path, TO_LINK, err);
    if (rc < 0 && rc != ERR_NOT_FOUND)
        return err_in(err, "it is a hard link, and of what it links to");
    struct slot *s = rc == 0 ? slot_find(to.dirs[to.depth], to.name) : NULL;
    char q[QUOTE_SIZE];
    err_quote(q, sizeof q, stated, strlen(stated));
    struct slot *was = slot_find(pl->dirs[pl->depth], pl->name);
    if (s == NULL || s == was)
        return err_set(err, ERR_BAD_INPUT, "it is a hard link to %s \"%s\"", s == NULL ? "what is not there," : "itself,", q);
    if (s->node->pub.kind == IMAGE_DIR)
        return err_set(err, ERR_BAD_INPUT, "it is a hard link to directory \"%s\"", q);
    for (uint32_t i = 0; was != NULL && i <= to.depth; i++)
        if (to.dirs[i] == was->node)    /* on a file system the target would be gone before it is linked */
            return err_set(err, ERR_BAD_INPUT, "it is a hard link to \"%s\", below the directory that it replaces", q);
    return place_put(t, pl, s->node, err);
}

/* `name` begins with ".wh." and stands in the place's directory. */
static int put_whiteout(struct archive_tree *t, struct place *pl, struct err *err)
{
    struct node *dir = pl->dirs[pl->depth];
    const char *hidden = pl->name + strlen(WH);
    if (strcmp(pl->name, WH_OPAQUE) == 0) {
        dir->names = slots_prune(t, dir->names);
        return 0;
    }
    if (hidden[0] == '\0' || strcmp(hidden, ".") == 0 || strcmp(hidden, "..") == 0)
        return err_set(err, ERR_BAD_INPUT, "it is a whiteout of no name");
    struct slot *s = slot_find(dir, hidden);
    if (s == NULL)
        return 0;
    struct slot *l = s->left, *r = s->right;
    s->left = s->right = NULL;          /* prune this one alone; it is put back where it stood, or not */
    bool stays = slots_prune(t, s) != NULL;
    s->left = l;
    s->right = r;
    if (!stays)
        dir->names = slot_remove(dir->names, hidden);
    return 0;
}

static int put_node(struct archive_tree *t, struct tar *tar, struct place *pl, struct archive_entry *e, struct err *err)
{
    mode_t type = archive_entry_filetype(e);
    if (type != AE_IFREG && type != AE_IFDIR && type != AE_IFLNK)
        return err_set(err, ERR_BAD_INPUT, "it is a %s; a tree holds files, directories and links%s",
                       type == AE_IFCHR || type == AE_IFBLK ? "device" : type == AE_IFIFO ? "FIFO"
                       : type == AE_IFSOCK ? "socket" : "thing of an unknown type",
                       type == AE_IFCHR && archive_entry_rdev(e) == 0 ? " (a layer says by a name .wh.NAME what it hides)" : "");
    struct node *n = node_new(t, type == AE_IFREG ? IMAGE_FILE : type == AE_IFDIR ? IMAGE_DIR : IMAGE_LINK);
    if (n == NULL)
        return memory_out(err);
    int rc = read_attributes(t, &n->pub, e, err);
    if (rc == 0 && type == AE_IFREG)
        rc = read_file(t, tar, &n->pub, e, err);
    if (rc == 0 && type == AE_IFLNK)
        rc = read_link(t, &n->pub, e, err);
    return rc < 0 ? rc : place_put(t, pl, n, err);
}

/* Does a directory on the way have a whiteout's name? *out_aufs: one of those that AUFS kept for itself. */
static bool parent_whiteout(const char *path, bool *out_aufs)
{
    *out_aufs = false;
    for (const char *p = path, *slash; (slash = strchr(p, '/')) != NULL; p = slash + 1)
        if (strncmp(p, WH, strlen(WH)) == 0) {
            *out_aufs = strncmp(p, WH_AUFS, strlen(WH_AUFS)) == 0;
            return true;
        }
    return false;
}

static int put_entry(struct archive_tree *t, struct tar *tar, const char *stated, struct archive_entry *e, struct err *err)
{
    char path[ARCHIVE_PATH_MAX + 1];
    struct place pl;
    bool aufs;
    if (t->entries++ >= t->limits.entries)
        return err_set(err, ERR_LIMIT, "there are more than %llu entries", (unsigned long long)t->limits.entries);
    int rc = archive_path_clean(path, stated, err);
    if (rc < 0)
        return rc;
    if (parent_whiteout(path, &aufs))
        return aufs ? 0 : err_set(err, ERR_BAD_INPUT, "a directory has a whiteout's name");
    const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path;
    bool whiteout = strncmp(name, WH, strlen(WH)) == 0;
    if (strncmp(name, WH_AUFS, strlen(WH_AUFS)) == 0 && strcmp(name, WH_OPAQUE) != 0)
        return 0;
    rc = place_find(t, &pl, path, whiteout ? TO_HIDE : TO_PUT, err);
    if (rc == ERR_NOT_FOUND)            /* a whiteout where nothing is */
        return 0;
    if (rc < 0)
        return rc;
    if (whiteout)
        return put_whiteout(t, &pl, err);
    return archive_entry_hardlink(e) != NULL ? put_hard_link(t, &pl, e, err) : put_node(t, tar, &pl, e, err);
}

static int apply(struct archive_tree *t, struct tar *tar, struct err *err)
{
    struct archive_entry *e;
    char last[QUOTE_SIZE] = "";
    int rc;
    while ((rc = tar_next(tar, &e, err)) > 0) {
        const char *name = archive_entry_pathname(e);
        if (name == NULL || name[0] == '\0')
            return err_set(err, ERR_BAD_INPUT, "an entry after \"%s\" has no name", last);
        err_quote(last, sizeof last, name, strlen(name));
        if ((rc = put_entry(t, tar, name, e, err)) < 0)
            return err_in(err, "entry \"%s\"", last);
    }
    return rc == 0 ? 0 : err_in(err, "after entry \"%s\"", last);
}

/* --- the whole --- */

int archive_tree_open(struct archive_tree **out, struct arena *a, const struct archive_limits *limits,
                      const struct archive_sink *sink, struct err *err)
{
    own_mem struct archive_tree *t = fault_hit("archive.alloc") ? NULL : calloc(1, sizeof *t);
    if (t == NULL)
        return err_set(err, ERR_LIMIT, "out of memory");
    *t = (struct archive_tree){ .a = a, .limits = *limits, .sink = *sink };
    /* Unknown to who makes archives: ranks that can be foretold make a list of the tree. */
    if (getrandom(&t->random, sizeof t->random, 0) != (ssize_t)sizeof t->random)
        return err_sys(err, ERR_SYS, "random numbers");
    t->random |= 1;
    if ((t->root = node_new(t, IMAGE_DIR)) == NULL)
        return memory_out(err);
    *out = give_ptr(&t);
    return 0;
}

int archive_tree_apply(struct archive_tree *t, const struct tar_source *source, struct digest *out_diff_id, struct err *err)
{
    struct tar *tar = NULL;
    uint64_t bytes = 0;
    struct digest diff_id;
    t->layer++;
    int rc = tar_open(&tar, source, t->limits.bytes - t->bytes, t->limits.ratio, err);
    if (rc == 0)
        rc = apply(t, tar, err);
    if (rc == 0)
        rc = tar_finish(tar, &diff_id, &bytes, err);
    tar_close(tar);
    if (rc < 0)
        return rc;
    t->bytes += bytes;
    *out_diff_id = diff_id;
    return 0;
}

static uint32_t slots_count(const struct slot *s) { return s == NULL ? 0 : 1 + slots_count(s->left) + slots_count(s->right); }

static int list_dir(struct archive_tree *t, struct node *dir, struct err *err);

static int list_slots(struct archive_tree *t, struct image_node *dir, const struct slot *s, struct err *err)
{
    if (s == NULL)
        return 0;
    int rc = list_slots(t, dir, s->left, err);
    if (rc < 0)
        return rc;
    dir->entries[dir->entry_count++] = (struct image_entry){ s->name, &s->node->pub };
    if (s->node->pub.kind == IMAGE_DIR && (rc = list_dir(t, s->node, err)) < 0)
        return rc;
    return list_slots(t, dir, s->right, err);
}

static int list_dir(struct archive_tree *t, struct node *dir, struct err *err)
{
    uint32_t n = slots_count(dir->names);
    dir->pub.entry_count = 0;
    if (n == 0)
        return 0;
    if ((dir->pub.entries = arena_alloc(t->a, n * sizeof dir->pub.entries[0])) == NULL)
        return memory_out(err);
    return list_slots(t, &dir->pub, dir->names, err);
}

int archive_tree_finish(struct archive_tree *t, struct image_node **out, struct err *err)
{
    int rc = list_dir(t, t->root, err);
    if (rc == 0)
        *out = &t->root->pub;
    return rc;
}

uint64_t archive_tree_entries(const struct archive_tree *t) { return t->entries; }
uint64_t archive_tree_xattrs_dropped(const struct archive_tree *t) { return t->xattrs_dropped; }
void archive_tree_close(struct archive_tree *t) { free(t); }
