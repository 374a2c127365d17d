/* tree.c - see tree.h. Nodes are sorted by name; git's own order (directories as "name/") is made when an object is built. */
#include "repos/tree.h"
#include "base/buf.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MODE_DIR       040000u
#define MODE_FILE      0100644u
#define MODE_EXEC      0100755u
#define MODE_LINK      0120000u
#define MODE_SUBMODULE 0160000u
#define OBJECT_SIZE_MAX ((size_t)1 << 30)   /* one blob at import; larger ones do not belong into a test tree */

struct node {
    const char   *name;
    struct node  *parent;
    uint32_t      mode;         /* as stored: old trees hold 0100664 */
    git_oid       id;           /* meaningless while `dirty` */
    bool          dirty;        /* content differs from id */
    bool          built;        /* directory changed here: its object may be in no store yet */
    bool          loaded;       /* directory: children are there */
    const void   *bytes;        /* fresh file or link */
    size_t        size;
    struct node **kids;
    uint32_t      count, cap;
};

struct tree { struct node root; struct arena *a; git_odb *odb; };

int git_err(struct err *err, int code, const char *what)
{
    const git_error *e = git_error_last();
    return err_set(err, code, "%s: %s", what, e != NULL && e->message != NULL ? e->message : "unknown git error");
}

const char *tree_path_fault(const char *path, size_t n)
{
    if (n == 0)
        return "is empty";
    if (n > TREE_PATH_MAX)
        return "is too long";
    if (memchr(path, '\0', n) != NULL)
        return "holds a NUL byte";
    if (path[0] == '/')
        return "is absolute";
    unsigned depth = 0;
    for (size_t i = 0; i <= n; depth++) {
        const char *c = path + i;
        const char *slash = memchr(c, '/', n - i);
        size_t len = slash != NULL ? (size_t)(slash - c) : n - i;
        if (len == 0)
            return "has an empty component";
        if (len > 255)
            return "has a component of more than 255 bytes";
        if ((len == 1 && c[0] == '.') || (len == 2 && c[0] == '.' && c[1] == '.'))
            return "holds \".\" or \"..\"";
        if ((len == 4 && strncasecmp(c, ".git", 4) == 0) || (len == 5 && strncasecmp(c, "git~1", 5) == 0))
            return "lies in .git";
        i += len + 1;
    }
    return depth > TREE_DEPTH_MAX ? "is too deep" : NULL;
}

static enum entry_kind kind_of(uint32_t mode)
{
    switch (mode & 0170000u) {
    case MODE_DIR: return ENTRY_DIR;
    case MODE_LINK: return ENTRY_LINK;
    case MODE_SUBMODULE: return ENTRY_SUBMODULE;
    default: return ENTRY_FILE;
    }
}

static void entry_of(struct entry *out, const struct node *n)
{
    *out = (struct entry){ .kind = kind_of(n->mode), .executable = kind_of(n->mode) == ENTRY_FILE && (n->mode & 0111) != 0,
                           .fresh = n->bytes != NULL, .id = n->id, .bytes = n->bytes, .size = n->size };
}

/* Index of the child, or where it would stand; *found tells which. */
static uint32_t kid_index(const struct node *dir, const char *name, size_t len, bool *found)
{
    uint32_t lo = 0, hi = dir->count;
    *found = false;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        const char *other = dir->kids[mid]->name;
        int d = strncmp(other, name, len);
        if (d == 0)
            d = other[len] != '\0';
        if (d == 0) {
            *found = true;
            return mid;
        }
        if (d < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static int no_memory(struct err *err) { return err_set(err, ERR_LIMIT, "tree: does not fit the memory budget"); }

static struct node *kid_insert(struct tree *t, struct node *dir, uint32_t at, const char *name, size_t len, uint32_t mode)
{
    if (dir->count == dir->cap) {
        uint32_t cap = dir->cap != 0 ? dir->cap * 2 : 8;
        struct node **kids = arena_alloc(t->a, sizeof *kids * cap);
        if (kids == NULL)
            return NULL;
        if (dir->count > 0)
            memcpy(kids, dir->kids, sizeof *kids * dir->count);
        dir->kids = kids;
        dir->cap = cap;
    }
    struct node *n = arena_alloc(t->a, sizeof *n);
    if (n == NULL || (n->name = arena_strndup(t->a, name, len)) == NULL)
        return NULL;
    n->parent = dir;
    n->mode = mode;
    memmove(dir->kids + at + 1, dir->kids + at, sizeof *dir->kids * (dir->count - at));
    dir->kids[at] = n;
    dir->count++;
    return n;
}

static int read_object(git_odb_object **out, git_odb *odb, const git_oid *id, git_object_t want, struct err *err)
{
    char hex[GIT_OID_HEXSZ + 1], what[80];
    git_oid_tostr(hex, sizeof hex, id);
    snprintf(what, sizeof what, "git object %s", hex);
    size_t size = 0;
    git_object_t type = GIT_OBJECT_INVALID;
    int rc = git_odb_read_header(&size, &type, odb, id);
    if (rc == 0 && size > OBJECT_SIZE_MAX)
        return err_set(err, ERR_LIMIT, "%s: %zu bytes, at most %zu", what, size, OBJECT_SIZE_MAX);
    if (rc == 0)
        rc = git_odb_read(out, odb, id);
    if (rc != 0)
        return git_err(err, ERR_CORRUPT, what);
    if (git_odb_object_type(*out) != want) {
        git_odb_object_free(*out);
        *out = NULL;
        return err_set(err, ERR_CORRUPT, "%s: is a %s, want a %s", what, git_object_type2string(type),
                       git_object_type2string(want));
    }
    return 0;
}

static int by_name(const void *a, const void *b)
{
    return strcmp((*(struct node *const *)a)->name, (*(struct node *const *)b)->name);
}

static int parse_dir(struct tree *t, struct node *dir, const uint8_t *p, size_t n, struct err *err)
{
    char hex[GIT_OID_HEXSZ + 1];
    git_oid_tostr(hex, sizeof hex, &dir->id);
    while (n > 0) {
        const uint8_t *space = memchr(p, ' ', n < 8 ? n : 8);
        const uint8_t *nul = space != NULL ? memchr(space, '\0', n - (size_t)(space - p)) : NULL;
        if (nul == NULL || n - (size_t)(nul + 1 - p) < GIT_OID_RAWSZ)
            return err_set(err, ERR_CORRUPT, "git tree %s is cut off", hex);
        uint32_t mode = 0;
        for (const uint8_t *q = p; q < space; q++) {
            if (*q < '0' || *q > '7')
                return err_set(err, ERR_CORRUPT, "git tree %s holds a wrong mode", hex);
            mode = mode * 8 + (uint32_t)(*q - '0');
        }
        const char *name = (const char *)space + 1;
        size_t len = (size_t)((const char *)nul - name);
        const char *fault = memchr(name, '/', len) != NULL ? "holds '/'" : tree_path_fault(name, len);
        if (fault != NULL) {
            char quoted[128];
            err_quote(quoted, sizeof quoted, name, len);
            return err_set(err, ERR_BAD_INPUT, "git tree %s: name \"%s\" %s", hex, quoted, fault);
        }
        struct node *kid = kid_insert(t, dir, dir->count, name, len, mode);
        if (kid == NULL)
            return no_memory(err);
        git_oid_fromraw(&kid->id, nul + 1);
        n -= (size_t)(nul + 1 + GIT_OID_RAWSZ - p);
        p = nul + 1 + GIT_OID_RAWSZ;
    }
    if (dir->count > 1)
        qsort(dir->kids, dir->count, sizeof *dir->kids, by_name);
    for (uint32_t i = 1; i < dir->count; i++)
        if (strcmp(dir->kids[i - 1]->name, dir->kids[i]->name) == 0)
            return err_set(err, ERR_CORRUPT, "git tree %s holds one name twice", hex);
    return 0;
}

static int load(struct tree *t, struct node *dir, struct err *err)
{
    if (dir->loaded)
        return 0;
    git_odb_object *o = NULL;
    int rc = read_object(&o, t->odb, &dir->id, GIT_OBJECT_TREE, err);
    if (rc < 0)
        return rc;
    rc = parse_dir(t, dir, git_odb_object_data(o), git_odb_object_size(o), err);
    git_odb_object_free(o);
    dir->loaded = rc == 0;
    return rc;
}

int tree_open(struct tree **out, struct arena *a, git_odb *odb, const git_oid *root, struct err *err)
{
    struct tree *t = arena_alloc(a, sizeof *t);
    if (t == NULL)
        return no_memory(err);
    t->a = a;
    t->odb = odb;
    t->root = (struct node){ .name = "", .mode = MODE_DIR, .id = *root };
    int rc = load(t, &t->root, err);
    if (rc < 0)
        return rc;
    *out = t;
    return 0;
}

int tree_look(struct tree *t, struct entry *out, const char *path, struct err *err)
{
    struct node *n = &t->root;
    for (const char *c = path; ; ) {
        int rc = load(t, n, err);
        if (rc < 0)
            return rc;
        size_t len = strcspn(c, "/");
        bool found;
        uint32_t at = kid_index(n, c, len, &found);
        if (!found) {
            *out = (struct entry){ .kind = ENTRY_NONE };
            return 0;
        }
        n = n->kids[at];
        if (c[len] == '\0') {
            entry_of(out, n);
            return 0;
        }
        if (kind_of(n->mode) != ENTRY_DIR) {
            const char *by = arena_strndup(t->a, path, (size_t)(c + len - path));
            if (by == NULL)
                return no_memory(err);
            *out = (struct entry){ .kind = ENTRY_NONE, .blocked_by = by, .blocked_kind = kind_of(n->mode) };
            return 0;
        }
        c += len + 1;
    }
}

int tree_read(struct tree *t, struct entry *e, size_t size_max, struct err *err)
{
    if (e->bytes != NULL)
        return 0;
    git_odb_object *o = NULL;
    int rc = read_object(&o, t->odb, &e->id, GIT_OBJECT_BLOB, err);
    if (rc < 0)
        return rc;
    size_t n = git_odb_object_size(o);
    void *copy = n <= size_max ? arena_strndup(t->a, git_odb_object_data(o), n) : NULL;
    git_odb_object_free(o);
    if (copy == NULL)
        return err_set(err, ERR_LIMIT, "tree: a file of %zu bytes does not fit the memory budget", n);
    e->bytes = copy;
    e->size = n;
    return 0;
}

static void mark_dirty(struct node *n)
{
    for (; n != NULL; n = n->parent)
        n->dirty = true;
}

/* The node at path, made if need be; parents become directories. */
static int node_make(struct tree *t, struct node **out, const char *path, struct err *err)
{
    struct node *n = &t->root;
    for (const char *c = path; ; ) {
        int rc = load(t, n, err);
        if (rc < 0)
            return rc;
        size_t len = strcspn(c, "/");
        bool found, last = c[len] == '\0';
        uint32_t at = kid_index(n, c, len, &found);
        struct node *kid = found ? n->kids[at] : kid_insert(t, n, at, c, len, MODE_DIR);
        if (kid == NULL)
            return no_memory(err);
        if (!found || (!last && kind_of(kid->mode) != ENTRY_DIR)) {
            const char *name = kid->name;
            *kid = (struct node){ .name = name, .parent = n, .mode = MODE_DIR, .loaded = true };
        }
        n = kid;
        if (last)
            break;
        c += len + 1;
    }
    *out = n;
    return 0;
}

int tree_put(struct tree *t, const char *path, enum entry_kind kind, bool executable, const void *bytes, size_t n,
             struct err *err)
{
    struct node *node;
    int rc = node_make(t, &node, path, err);
    if (rc < 0)
        return rc;
    *node = (struct node){ .name = node->name, .parent = node->parent, .bytes = n > 0 ? bytes : "", .size = n,
                           .mode = kind == ENTRY_LINK ? MODE_LINK : executable ? MODE_EXEC : MODE_FILE };
    mark_dirty(node);
    return 0;
}

int tree_put_id(struct tree *t, const char *path, const struct entry *e, struct err *err)
{
    if (e->bytes != NULL)
        return tree_put(t, path, e->kind, e->executable, e->bytes, e->size, err);
    struct node *node;
    int rc = node_make(t, &node, path, err);
    if (rc < 0)
        return rc;
    static const uint32_t modes[] = { [ENTRY_FILE] = MODE_FILE, [ENTRY_LINK] = MODE_LINK, [ENTRY_DIR] = MODE_DIR,
                                      [ENTRY_SUBMODULE] = MODE_SUBMODULE };
    *node = (struct node){ .name = node->name, .parent = node->parent, .id = e->id,
                           .mode = e->executable ? MODE_EXEC : modes[e->kind] };
    mark_dirty(node->parent);
    return 0;
}

int tree_delete(struct tree *t, const char *path, struct err *err)
{
    struct node *n = &t->root;
    for (const char *c = path; ; ) {
        int rc = load(t, n, err);
        if (rc < 0)
            return rc;
        size_t len = strcspn(c, "/");
        bool found;
        uint32_t at = kid_index(n, c, len, &found);
        if (!found || (c[len] != '\0' && kind_of(n->kids[at]->mode) != ENTRY_DIR))
            return 0;
        n = n->kids[at];
        if (c[len] == '\0')
            break;
        c += len + 1;
    }
    do {
        struct node *dir = n->parent;
        bool found;
        uint32_t at = kid_index(dir, n->name, strlen(n->name), &found);
        memmove(dir->kids + at, dir->kids + at + 1, sizeof *dir->kids * (dir->count - at - 1));
        dir->count--;
        mark_dirty(dir);
        n = dir;
    } while (n->count == 0 && n->parent != NULL);
    return 0;
}

/* git's order: a directory compares as if its name ended in '/'. */
static int by_git_name(const void *a, const void *b)
{
    const struct node *x = *(struct node *const *)a, *y = *(struct node *const *)b;
    size_t nx = strlen(x->name), ny = strlen(y->name), n = nx < ny ? nx : ny;
    int d = memcmp(x->name, y->name, n);
    if (d != 0)
        return d;
    int cx = nx > n ? (unsigned char)x->name[n] : kind_of(x->mode) == ENTRY_DIR ? '/' : 0;
    int cy = ny > n ? (unsigned char)y->name[n] : kind_of(y->mode) == ENTRY_DIR ? '/' : 0;
    return cx - cy;
}

static int dir_object(struct buf *out, const struct node *dir, struct err *err)
{
    struct node **sorted = malloc(sizeof *sorted * (dir->count + 1));
    if (sorted == NULL)
        return no_memory(err);
    if (dir->count > 0)
        memcpy(sorted, dir->kids, sizeof *sorted * dir->count);
    qsort(sorted, dir->count, sizeof *sorted, by_git_name);
    int rc = buf_add(out, "", 0, err);
    for (uint32_t i = 0; i < dir->count && rc == 0; i++)
        if ((rc = buf_addf(out, err, "%o %s", sorted[i]->mode, sorted[i]->name)) == 0 && (rc = buf_add(out, "", 1, err)) == 0)
            rc = buf_add(out, sorted[i]->id.id, GIT_OID_RAWSZ, err);
    free(sorted);
    return rc;
}

/* Fill the ids of what changed, children first. With `to`, also write every object that is not there. */
static int settle(struct tree *t, struct node *n, git_odb *to, unsigned depth, struct err *err)
{
    enum entry_kind kind = kind_of(n->mode);
    int rc = 0;
    if (depth > TREE_DEPTH_MAX)
        return err_set(err, ERR_LIMIT, "tree: more than %d levels", TREE_DEPTH_MAX);
    if (kind == ENTRY_SUBMODULE)
        return 0;
    if (kind != ENTRY_DIR) {
        if (n->dirty && (git_odb_hash(&n->id, n->bytes, n->size, GIT_OBJECT_BLOB)) != 0)
            return git_err(err, ERR_INTERNAL, "hash");
        n->dirty = false;
        if (to == NULL || git_odb_exists(to, &n->id))
            return 0;
        git_odb_object *o = NULL;
        if (n->bytes == NULL && (rc = read_object(&o, t->odb, &n->id, GIT_OBJECT_BLOB, err)) < 0)
            return rc;
        git_oid id;
        rc = o != NULL ? git_odb_write(&id, to, git_odb_object_data(o), git_odb_object_size(o), GIT_OBJECT_BLOB)
                       : git_odb_write(&id, to, n->bytes, n->size, GIT_OBJECT_BLOB);
        git_odb_object_free(o);
        return rc == 0 ? 0 : git_err(err, ERR_SYS, "object store: write");
    }
    if (!n->dirty && to == NULL)
        return 0;
    if ((rc = load(t, n, err)) < 0)
        return rc;
    for (uint32_t i = 0; i < n->count; i++)
        if ((rc = settle(t, n->kids[i], to, depth + 1, err)) < 0)
            return rc;
    if (to != NULL && !n->dirty && git_odb_exists(to, &n->id))
        return 0;
    git_oid id;
    if (!n->dirty && !n->built) {       /* as it is stored, byte for byte: old git wrote modes that we would not */
        git_odb_object *o = NULL;
        if ((rc = read_object(&o, t->odb, &n->id, GIT_OBJECT_TREE, err)) < 0)
            return rc;
        rc = git_odb_write(&id, to, git_odb_object_data(o), git_odb_object_size(o), GIT_OBJECT_TREE);
        git_odb_object_free(o);
        return rc == 0 ? 0 : git_err(err, ERR_SYS, "object store: write");
    }
    struct buf object = { .max = OBJECT_SIZE_MAX };
    if ((rc = dir_object(&object, n, err)) == 0) {
        if (git_odb_hash(&id, object.data, object.len, GIT_OBJECT_TREE) != 0)
            rc = git_err(err, ERR_INTERNAL, "hash");
        else if (to != NULL && git_odb_write(&id, to, object.data, object.len, GIT_OBJECT_TREE) != 0)
            rc = git_err(err, ERR_SYS, "object store: write");
        n->id = id;
        n->built = true;
        n->dirty = rc != 0;
    }
    buf_done(&object);
    return rc;
}

int tree_id(struct tree *t, git_oid *out, struct err *err)
{
    int rc = settle(t, &t->root, NULL, 0, err);
    if (rc == 0)
        *out = t->root.id;
    return rc;
}

int tree_store(struct tree *t, git_odb *to, struct err *err) { return settle(t, &t->root, to, 0, err); }

struct walking { struct tree *was, *is; tree_leaf_fn leaf; tree_diff_fn diff; void *arg; char path[TREE_PATH_MAX + 1]; };

/* Append "/name" to the first n bytes of the path; the new length, or 0 when it does not fit. */
static size_t path_push(struct walking *w, size_t n, const char *name)
{
    int more = snprintf(w->path + n, sizeof w->path - n, "%s%s", n > 0 ? "/" : "", name);
    return more > 0 && (size_t)more < sizeof w->path - n ? n + (size_t)more : 0;
}

static int path_too_long(struct walking *w, struct err *err)
{
    return err_set(err, ERR_LIMIT, "tree: a path below \"%.200s\" has more than %d bytes", w->path, TREE_PATH_MAX);
}

static int walk_dir(struct walking *w, struct node *dir, size_t n, struct err *err)
{
    int rc = load(w->is, dir, err);
    for (uint32_t i = 0; rc >= 0 && i < dir->count; i++) {
        struct node *kid = dir->kids[i];
        size_t len = path_push(w, n, kid->name);
        if (len == 0)
            return path_too_long(w, err);
        struct entry e;
        entry_of(&e, kid);
        rc = e.kind == ENTRY_DIR ? walk_dir(w, kid, len, err) : w->leaf(w->path, &e, w->arg, err);
        w->path[n] = '\0';
    }
    return rc;
}

int tree_walk(struct tree *t, const char *below, tree_leaf_fn fn, void *arg, struct err *err)
{
    struct walking w = { .is = t, .leaf = fn, .arg = arg };
    struct node *n = &t->root;
    for (const char *c = below; *c != '\0'; ) {
        int rc = load(t, n, err);
        if (rc < 0)
            return rc;
        size_t len = strcspn(c, "/");
        bool found;
        uint32_t at = kid_index(n, c, len, &found);
        if (!found || kind_of(n->kids[at]->mode) != ENTRY_DIR)
            return 0;
        n = n->kids[at];
        c += len + (c[len] == '/');
    }
    size_t len = strlen(below);
    if (len > TREE_PATH_MAX)
        return path_too_long(&w, err);
    memcpy(w.path, below, len + 1);
    return walk_dir(&w, n, len, err);
}

static bool same_node(const struct node *a, const struct node *b)
{
    return a->mode == b->mode && !a->dirty && !b->dirty && git_oid_equal(&a->id, &b->id);
}

/* Either may be NULL; neither is a pair of equals. */
static int diff_nodes(struct walking *w, struct node *was, struct node *is, size_t n, struct err *err)
{
    static struct node nothing = { .name = "", .mode = MODE_DIR, .loaded = true };
    bool was_dir = was != NULL && kind_of(was->mode) == ENTRY_DIR, is_dir = is != NULL && kind_of(is->mode) == ENTRY_DIR;
    int rc = 0;
    if ((was != NULL && !was_dir) || (is != NULL && !is_dir)) {
        struct entry a = { 0 }, b = { 0 };
        if (was != NULL && !was_dir)
            entry_of(&a, was);
        if (is != NULL && !is_dir)
            entry_of(&b, is);
        rc = w->diff(w->path, &a, &b, w->arg, err);
    }
    if (rc < 0 || (!was_dir && !is_dir))
        return rc;
    struct node *x = was_dir ? was : &nothing, *y = is_dir ? is : &nothing;
    if ((rc = load(w->was, x, err)) < 0 || (rc = load(w->is, y, err)) < 0)
        return rc;
    for (uint32_t i = 0, j = 0; rc >= 0 && (i < x->count || j < y->count); ) {
        int d = i == x->count ? 1 : j == y->count ? -1 : strcmp(x->kids[i]->name, y->kids[j]->name);
        struct node *a = d <= 0 ? x->kids[i++] : NULL, *b = d >= 0 ? y->kids[j++] : NULL;
        if (a != NULL && b != NULL && same_node(a, b))
            continue;
        size_t len = path_push(w, n, a != NULL ? a->name : b->name);
        if (len == 0)
            return path_too_long(w, err);
        rc = diff_nodes(w, a, b, len, err);
        w->path[n] = '\0';
    }
    return rc;
}

int tree_diff(struct tree *was, struct tree *is, tree_diff_fn fn, void *arg, struct err *err)
{
    git_oid id;
    int rc;
    if ((rc = tree_id(was, &id, err)) < 0 || (rc = tree_id(is, &id, err)) < 0)
        return rc;
    struct walking w = { .was = was, .is = is, .diff = fn, .arg = arg };
    return same_node(&was->root, &is->root) ? 0 : diff_nodes(&w, &was->root, &is->root, 0, err);
}
