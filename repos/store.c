/*
 * store.c - the object store and the trees of a store directory, and the import of a base tree.
 *
 * Import copies trees and blobs only: no commit, no ref, nothing from after the base. The base tree is
 * the commit's tree (or the subtree of the directory the task names), without submodules, and with
 * the set-up layer on top: what tracked files of the working directory hold beyond the commit when
 * HEAD is the base commit. Data sets prepare repositories that way, and a checkout that dropped it
 * would run another suite than the one that was validated.
 *
 * A task whose hidden tests do not apply to that tree is refused here: no patch could ever be judged by it.
 *
 * The order makes a crash harmless: objects, sync, trees/<hex> by rename, then the catalog's row.
 */
#include "repos/store.h"
#include "base/own.h"
#include "repos/tree.h"
#include <errno.h>
#include <fcntl.h>
#include <git2/sys/filter.h>
#include <git2/sys/odb_backend.h>
#include <limits.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#define SETUP_FILE_MAX ((size_t)256 << 20)

struct store {
    int      dir_fd, trees_fd;
    git_odb *odb;
    bool     writable;
    char     path[PATH_MAX];
};

int store_git_init(struct err *err)
{
    if (git_libgit2_init() < 0)
        return git_err(err, ERR_INTERNAL, "libgit2");
    static const int levels[] = { GIT_CONFIG_LEVEL_SYSTEM, GIT_CONFIG_LEVEL_XDG, GIT_CONFIG_LEVEL_GLOBAL,
                                  GIT_CONFIG_LEVEL_PROGRAMDATA };
    for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++)
        if (git_libgit2_opts(GIT_OPT_SET_SEARCH_PATH, levels[i], "") != 0)
            return git_err(err, ERR_INTERNAL, "libgit2");
    if (git_libgit2_opts(GIT_OPT_SET_OWNER_VALIDATION, 0) != 0)     /* we run nothing a repository says */
        return git_err(err, ERR_INTERNAL, "libgit2");
    return 0;
}

/* An object database over objects.git without git_repository: no configuration, no refs. */
static int odb_open(git_odb **out, const char *store_path, struct err *err)
{
    char objects[PATH_MAX + 32];
    snprintf(objects, sizeof objects, "%s/objects.git/objects", store_path);
    git_odb_backend *loose = NULL, *pack = NULL;
    git_odb *odb = NULL;
    if (git_odb_new(&odb) != 0)
        return git_err(err, ERR_INTERNAL, "object store");
    /* Compression 1: import is bound by it, and texts gain little above. Sync is done once, before a tree gets its name. */
    if (git_odb_backend_loose(&loose, objects, 1, 0, 0, 0) != 0 || git_odb_add_backend(odb, loose, 1) != 0) {
        if (loose != NULL)
            loose->free(loose);
        git_odb_free(odb);
        return git_err(err, ERR_CORRUPT, "object store");
    }
    if (git_odb_backend_pack(&pack, objects) != 0 || git_odb_add_backend(odb, pack, 2) != 0) {
        if (pack != NULL)
            pack->free(pack);
        git_odb_free(odb);
        return git_err(err, ERR_CORRUPT, "object store");
    }
    *out = odb;
    return 0;
}

static int make_dir(int at, const char *name, struct err *err)
{
    if (mkdirat(at, name, 0755) != 0 && errno != EEXIST)
        return err_sys(err, ERR_SYS, "store: make %s", name);
    return 0;
}

static int init_dirs(struct store *s, struct err *err)
{
    int rc = make_dir(s->dir_fd, "trees", err);
    if (rc < 0 || faccessat(s->dir_fd, "objects.git/HEAD", F_OK, 0) == 0)
        return rc;
    char bare[PATH_MAX + 16];
    snprintf(bare, sizeof bare, "%s/objects.git", s->path);
    git_repository *r = NULL;           /* its HEAD and config let `git --git-dir` look into it */
    if (git_repository_init(&r, bare, 1) != 0)
        return git_err(err, ERR_SYS, "store: make objects.git");
    git_repository_free(r);
    return 0;
}

int store_open(struct store **out, const char *store_dir, bool writable, struct err *err)
{
    int rc = store_git_init(err);
    if (rc < 0)
        return rc;
    if (writable && mkdir(store_dir, 0755) != 0 && errno != EEXIST)
        return err_sys(err, ERR_SYS, "store %s", store_dir);
    struct store *s = calloc(1, sizeof *s);
    if (s == NULL)
        return err_set(err, ERR_LIMIT, "store %s: out of memory", store_dir);
    s->writable = writable;
    s->trees_fd = -1;
    s->dir_fd = open(store_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (s->dir_fd < 0 || realpath(store_dir, s->path) == NULL)
        rc = err_sys(err, errno == ENOENT ? ERR_NOT_FOUND : ERR_SYS, "store %s", store_dir);
    if (rc == 0 && writable)
        rc = init_dirs(s, err);
    if (rc == 0 && (s->trees_fd = openat(s->dir_fd, "trees", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)) < 0)
        rc = err_sys(err, errno == ENOENT ? ERR_NOT_FOUND : ERR_SYS, "store %s: trees; import tasks first", store_dir);
    if (rc == 0)
        rc = odb_open(&s->odb, s->path, err);
    if (rc < 0) {
        store_close(s);
        return rc;
    }
    if (writable)
        materialise_clean(s->trees_fd);
    *out = s;
    return 0;
}

void store_close(struct store *s)
{
    if (s == NULL)
        return;
    git_odb_free(s->odb);
    if (s->trees_fd >= 0)
        close(s->trees_fd);
    if (s->dir_fd >= 0)
        close(s->dir_fd);
    git_libgit2_shutdown();             /* counted: the last one ends the library */
    free(s);
}

git_odb *store_odb(const struct store *s) { return s->odb; }

int store_tree_fd(const struct store *s, const char *tree_hex, struct err *err)
{
    if (strlen(tree_hex) != 40 || strspn(tree_hex, "0123456789abcdef") != 40)
        return err_set(err, ERR_NOT_FOUND, "store: \"%.60s\" is not a tree id; import the task first", tree_hex);
    int fd = openat(s->trees_fd, tree_hex, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && (errno == ENOTDIR || errno == ELOOP))
        return err_sys(err, ERR_CORRUPT, "store: trees/%s", tree_hex);
    if (fd < 0)
        return err_sys(err, errno == ENOENT ? ERR_NOT_FOUND : ERR_SYS, "store: trees/%s", tree_hex);
    return fd;
}

/* --- where a task's files come from --- */

static int real_path_of(char out[PATH_MAX], int fd, struct err *err)
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, out, PATH_MAX - 1);
    if (n < 0)
        return err_sys(err, ERR_SYS, "read %s", link);
    out[n] = '\0';
    return 0;
}

int store_source_open(git_repository **out, const char **out_prefix, struct arena *a, const char *repos_dir, const char *name,
                      struct err *err)
{
    char quoted[128];
    err_quote(quoted, sizeof quoted, name, strlen(name));
    const char *fault = tree_path_fault(name, strlen(name));
    if (fault != NULL)
        return err_set(err, ERR_BAD_INPUT, "repo \"%s\" %s", quoted, fault);
    own_fd top = open(repos_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (top < 0)
        return err_sys(err, ERR_BAD_INPUT, "repos directory %s", repos_dir);
    struct open_how how = { .flags = O_PATH | O_DIRECTORY | O_CLOEXEC, .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS };
    own_fd dir = (int)syscall(SYS_openat2, top, name, &how, sizeof how);
    if (dir < 0 && (errno == EXDEV || errno == ELOOP))
        return err_set(err, ERR_BAD_INPUT, "repo \"%s\" is a link that leaves %s", quoted, repos_dir);
    if (dir < 0)
        return err_sys(err, ERR_BAD_INPUT, "repo \"%s\" in %s", quoted, repos_dir);
    char path[PATH_MAX];
    int rc = real_path_of(path, dir, err);
    if (rc < 0)
        return rc;
    git_repository *r = NULL;
    if (git_repository_open_ext(&r, path, GIT_REPOSITORY_OPEN_CROSS_FS, NULL) != 0)
        return err_set(err, ERR_BAD_INPUT, "repo \"%s\": %s is no git repository and lies in none", quoted, path);
    const char *workdir = git_repository_workdir(r);
    char root[PATH_MAX];
    *out_prefix = "";
    if (workdir != NULL && realpath(workdir, root) != NULL) {
        size_t n = strlen(root);
        if (strncmp(path, root, n) != 0 || (path[n] != '\0' && path[n] != '/')) {
            git_repository_free(r);
            return err_set(err, ERR_BAD_INPUT, "repo \"%s\" has its working directory elsewhere: %s", quoted, root);
        }
        if (path[n] == '/' && (*out_prefix = arena_strdup(a, path + n + 1)) == NULL) {
            git_repository_free(r);
            return err_set(err, ERR_LIMIT, "repo \"%s\": out of memory", quoted);
        }
    }
    *out = r;
    return 0;
}

/* --- import --- */

struct importing {
    struct arena   *a;
    git_repository *repo;
    git_odb        *from;
    const char     *prefix;         /* "" or a directory inside the repository */
    struct tree    *t;
    const char    **gone;           /* submodules found by the walk */
    uint32_t        gone_count, gone_cap;
    uint32_t        layered;
};

static int find_submodules(const char *path, const struct entry *e, void *arg, struct err *err)
{
    struct importing *im = arg;
    if (e->kind != ENTRY_SUBMODULE)
        return 0;
    if (im->gone_count == im->gone_cap) {
        uint32_t cap = im->gone_cap != 0 ? im->gone_cap * 2 : 8;
        const char **more = arena_alloc(im->a, sizeof *more * cap);
        if (more == NULL)
            return err_set(err, ERR_LIMIT, "import: out of memory");
        if (im->gone_count > 0)
            memcpy(more, im->gone, sizeof *more * im->gone_count);
        im->gone = more;
        im->gone_cap = cap;
    }
    im->gone[im->gone_count] = arena_strdup(im->a, path);
    return im->gone[im->gone_count++] != NULL ? 0 : err_set(err, ERR_LIMIT, "import: out of memory");
}

/* The working file as git would store it (line-ending filters applied), read without following links. */
static int layer_file(struct importing *im, int workdir, const char *full, const char *path, struct err *err)
{
    struct open_how how = { .flags = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK,
                            .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS };
    own_fd fd = (int)syscall(SYS_openat2, workdir, full, &how, sizeof how);
    if (fd < 0 && errno == ELOOP) {
        struct open_how link_how = { .flags = O_PATH | O_NOFOLLOW | O_CLOEXEC, .resolve = RESOLVE_BENEATH };
        own_fd link = (int)syscall(SYS_openat2, workdir, full, &link_how, sizeof link_how);
        char target[TREE_PATH_MAX + 1];
        ssize_t n = link >= 0 ? readlinkat(link, "", target, sizeof target) : -1;
        if (n <= 0 || (size_t)n == sizeof target)
            return err_set(err, ERR_BAD_INPUT, "working file %.200s is a link that cannot be read", full);
        char *copy = arena_strndup(im->a, target, (size_t)n);
        return copy == NULL ? err_set(err, ERR_LIMIT, "import: out of memory")
                            : tree_put(im->t, path, ENTRY_LINK, false, copy, (size_t)n, err);
    }
    struct stat st;
    if (fd < 0 || fstat(fd, &st) != 0)
        return err_sys(err, ERR_BAD_INPUT, "working file %.200s", full);
    if (!S_ISREG(st.st_mode))
        return err_set(err, ERR_BAD_INPUT, "working file %.200s is no regular file", full);
    own_buf raw = { .max = SETUP_FILE_MAX };
    int rc = buf_read_fd(&raw, fd, err);
    if (rc < 0)
        return err_in(err, "working file %.200s", full);
    git_filter_list *filters = NULL;
    git_buf stored = { 0 };
    if (git_filter_list_load(&filters, im->repo, NULL, full, GIT_FILTER_TO_ODB, GIT_FILTER_ALLOW_UNSAFE) != 0)
        return git_err(err, ERR_BAD_INPUT, full);
    const char *bytes = raw.data != NULL ? (const char *)raw.data : "";
    size_t n = raw.len;
    if (filters != NULL) {
        if (git_filter_list_apply_to_buffer(&stored, filters, bytes, n) != 0)
            rc = git_err(err, ERR_BAD_INPUT, full);
        bytes = stored.ptr;
        n = stored.size;
    }
    if (rc == 0) {
        char *copy = arena_strndup(im->a, bytes, n);
        rc = copy == NULL ? err_set(err, ERR_LIMIT, "import: out of memory")
                          : tree_put(im->t, path, ENTRY_FILE, (st.st_mode & 0100) != 0, copy, n, err);
    }
    git_buf_dispose(&stored);
    git_filter_list_free(filters);
    return rc;
}

static int take_layer(struct importing *im, const git_tree *head_tree, uint32_t *out_untracked, struct err *err)
{
    git_diff_options opts;
    if (git_diff_options_init(&opts, GIT_DIFF_OPTIONS_VERSION) != 0)
        return git_err(err, ERR_INTERNAL, "diff");
    opts.flags = GIT_DIFF_INCLUDE_UNTRACKED | GIT_DIFF_INCLUDE_TYPECHANGE | GIT_DIFF_DISABLE_PATHSPEC_MATCH;
    opts.ignore_submodules = GIT_SUBMODULE_IGNORE_ALL;
    char *only[] = { (char *)(uintptr_t)im->prefix };
    if (im->prefix[0] != '\0')
        opts.pathspec = (git_strarray){ .strings = only, .count = 1 };
    git_diff *diff = NULL;
    if (git_diff_tree_to_workdir_with_index(&diff, im->repo, (git_tree *)(uintptr_t)head_tree, &opts) != 0)
        return git_err(err, ERR_BAD_INPUT, "working directory");
    own_fd workdir = open(git_repository_workdir(im->repo), O_PATH | O_DIRECTORY | O_CLOEXEC);
    int rc = workdir >= 0 ? 0 : err_sys(err, ERR_SYS, "working directory");
    size_t skip = im->prefix[0] != '\0' ? strlen(im->prefix) + 1 : 0;
    for (size_t i = 0; rc == 0 && i < git_diff_num_deltas(diff); i++) {
        const git_diff_delta *d = git_diff_get_delta(diff, i);
        const char *full = d->new_file.path != NULL ? d->new_file.path : d->old_file.path;
        if (strlen(full) <= skip || d->new_file.mode == GIT_FILEMODE_COMMIT || d->old_file.mode == GIT_FILEMODE_COMMIT)
            continue;
        if (d->status == GIT_DELTA_UNTRACKED) {
            ++*out_untracked;
            continue;
        }
        const char *fault = tree_path_fault(full, strlen(full));
        if (fault != NULL)
            rc = err_set(err, ERR_BAD_INPUT, "working file %.200s: its path %s", full, fault);
        else if (d->status == GIT_DELTA_DELETED)
            rc = tree_delete(im->t, full + skip, err);
        else
            rc = layer_file(im, workdir, full, full + skip, err);
        im->layered++;
    }
    git_diff_free(diff);
    return rc;
}

static bool head_is(git_repository *r, const git_oid *commit)
{
    git_oid head;
    return git_repository_is_bare(r) == 0 && git_reference_name_to_id(&head, r, "HEAD") == 0 && git_oid_equal(&head, commit);
}

/* The commit's tree, or the subtree at prefix. */
static int base_tree_of(struct importing *im, git_tree **out_root, git_oid *out_base, const char *base_commit, const char *name,
                        struct err *err)
{
    git_oid id;
    git_commit *commit = NULL;
    git_tree *root = NULL;
    if (git_oid_fromstr(&id, base_commit) != 0 || git_commit_lookup(&commit, im->repo, &id) != 0)
        return err_set(err, ERR_BAD_INPUT, "commit %s is not in repo \"%.200s\"; fetch it, or a fuller clone, first",
                       base_commit, name);
    int rc = git_commit_tree(&root, commit);
    git_commit_free(commit);
    if (rc != 0)
        return git_err(err, ERR_BAD_INPUT, base_commit);
    *out_base = *git_tree_id(root);
    if (im->prefix[0] != '\0') {
        git_tree_entry *sub = NULL;
        rc = git_tree_entry_bypath(&sub, root, im->prefix);
        if (rc == 0 && git_tree_entry_type(sub) == GIT_OBJECT_TREE)
            *out_base = *git_tree_entry_id(sub);
        else
            rc = -1;
        git_tree_entry_free(sub);
        if (rc != 0) {
            git_tree_free(root);
            return err_set(err, ERR_BAD_INPUT, "commit %s has no directory \"%.200s\"", base_commit, im->prefix);
        }
    }
    *out_root = root;
    return 0;
}

static int build_base(struct importing *im, const struct task *t, struct str_list *notes, struct err *err)
{
    git_tree *root = NULL;
    git_oid base;
    int rc = base_tree_of(im, &root, &base, t->base_commit, t->repo, err);
    if (rc < 0)
        return rc;
    uint32_t untracked = 0;
    git_oid commit;
    rc = tree_open(&im->t, im->a, im->from, &base, err);
    if (rc == 0 && git_oid_fromstr(&commit, t->base_commit) == 0 && head_is(im->repo, &commit))
        rc = take_layer(im, root, &untracked, err);
    git_tree_free(root);
    if (rc == 0)
        rc = tree_walk(im->t, "", find_submodules, im, err);
    if (rc < 0)
        return rc;
    const char **items = arena_alloc(im->a, sizeof *items * ((size_t)im->gone_count + 3)   /* store_import() may add one */);
    if (items == NULL)
        return err_set(err, ERR_LIMIT, "import: out of memory");
    uint32_t n = 0;
    bool lost = false;
    if (im->layered > 0)
        lost |= (items[n++] = arena_printf(im->a, "%u uncommitted change%s taken as set-up layer", im->layered,
                                           im->layered == 1 ? "" : "s")) == NULL;
    if (untracked > 0)
        lost |= (items[n++] = arena_printf(im->a, "%u untracked path%s left out", untracked, untracked == 1 ? "" : "s")) == NULL;
    for (uint32_t i = 0; i < im->gone_count; i++) {
        if ((rc = tree_delete(im->t, im->gone[i], err)) < 0)
            return rc;
        lost |= (items[n++] = arena_printf(im->a, "submodule %s left out", im->gone[i])) == NULL;
    }
    if (lost)
        return err_set(err, ERR_LIMIT, "import: out of memory");
    *notes = (struct str_list){ items, n };
    return 0;
}

static void digest_ids(struct digest_ctx *d, const struct str_list *ids)
{
    digest_add_u64(d, ids->count);
    for (uint32_t i = 0; i < ids->count; i++)
        digest_add_str(d, ids->items[i]);
}

static void fill_digests(struct task *t)
{
    struct digest_ctx d;
    digest_start(&d);
    digest_add_str(&d, "assay snapshot 1");
    digest_add_str(&d, t->environment);
    digest_add_str(&d, t->base_tree);
    digest_finish(&d, &t->snapshot);
    digest_start(&d);
    digest_add_str(&d, "assay definition 1");
    digest_add(&d, t->snapshot.bytes, sizeof t->snapshot.bytes);
    digest_add_str(&d, t->test_patch);
    digest_ids(&d, &t->fail_to_pass);
    digest_ids(&d, &t->pass_to_pass);
    digest_add_str(&d, t->test_cmd);
    digest_add_str(&d, t->reader);
    uint64_t bits;
    memcpy(&bits, &t->timeout_s, sizeof bits);
    digest_add_u64(&d, bits);
    digest_add_u64(&d, t->memory_mb);
    if (strcmp(t->profile, "strict") != 0)      /* that of a strict task is what it was before there were others */
        digest_add_str(&d, t->profile);
    digest_finish(&d, &t->definition);
}

int store_import(struct store *s, struct arena *a, struct task *t, const char *repos_dir, struct str_list *notes, struct err *err)
{
    if (!s->writable)
        return err_set(err, ERR_INTERNAL, "store %s is open for reading only", s->path);
    char quoted[96];
    err_quote(quoted, sizeof quoted, t->id, strlen(t->id));
    struct importing im = { .a = a };
    int rc = store_source_open(&im.repo, &im.prefix, a, repos_dir, t->repo, err);
    if (rc == 0 && git_repository_odb(&im.from, im.repo) != 0)
        rc = git_err(err, ERR_BAD_INPUT, "object database");
    struct str_list told = { 0 };
    git_oid id;
    char hex[GIT_OID_HEXSZ + 1] = "";
    struct stat st;
    if (rc == 0)
        rc = build_base(&im, t, &told, err);
    if (rc == 0 && (rc = tree_id(im.t, &id, err)) == 0) {
        git_oid_tostr(hex, sizeof hex, &id);
        if (fstatat(s->trees_fd, hex, &st, AT_SYMLINK_NOFOLLOW) != 0)   /* a named tree has all its objects */
            rc = tree_store(im.t, s->odb, err);
    }
    if (rc == 0)
        rc = materialise(s->trees_fd, hex, s->odb, a, err);
    git_odb_free(im.from);
    git_repository_free(im.repo);
    const char *kept = rc == 0 ? arena_strdup(a, hex) : NULL, *fix_fault = NULL;
    if (rc == 0 && kept == NULL)
        rc = err_set(err, ERR_LIMIT, "out of memory");
    if (rc == 0)
        rc = merge_check(&fix_fault, a, s, t, hex, err);
    if (rc == 0 && fix_fault != NULL && (told.items[told.count++] = arena_printf(a, "its true fix does not apply: %s",
                                                                                 fix_fault)) == NULL)
        rc = err_set(err, ERR_LIMIT, "out of memory");
    if (rc < 0)
        return err_in(err, "task %s", quoted);
    t->base_tree = kept;
    fill_digests(t);
    *notes = told;
    return 0;
}
