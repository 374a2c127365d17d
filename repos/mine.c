/*
 * mine.c - the change between two commits, split into source and tests.
 *
 * A file belongs to the tests by its path alone, by the conventions of the common runners. Renames are
 * left as deletion and creation, so that each half applies without the other.
 */
#include "base/buf.h"
#include "repos/store.h"
#include "repos/tree.h"
#include <string.h>

#define MINED_SIZE_MAX ((size_t)64 << 20)

static bool one_of(const char *s, size_t n, const char *const *words)
{
    for (; *words != NULL; words++)
        if (strlen(*words) == n && strncasecmp(s, *words, n) == 0)
            return true;
    return false;
}

static bool ends(const char *s, size_t n, const char *with)
{
    size_t k = strlen(with);
    return n >= k && memcmp(s + n - k, with, k) == 0;
}

/* Directories first, then the file's own name. */
bool path_is_test(const char *path)
{
    static const char *const dirs[] = { "test", "tests", "t", "xt", "spec", "specs", "__tests__", "testdata", NULL };
    static const char *const stems[] = { "test", "tests", "conftest", NULL };
    static const char *const camel[] = { "java", "kt", "scala", "groovy", "cs", "php", "swift", NULL };
    const char *c = path;
    for (const char *slash; (slash = strchr(c, '/')) != NULL; c = slash + 1)
        if (one_of(c, (size_t)(slash - c), dirs))
            return true;
    const char *dot = strrchr(c, '.');
    size_t n = dot != NULL && dot != c ? (size_t)(dot - c) : strlen(c);
    const char *ext = c[n] == '.' ? c + n + 1 : "";
    if (strcmp(ext, "t") == 0 || (*ext != '\0' && one_of(c, n, stems)) || (strncmp(c, "test_", 5) == 0 && *ext != '\0'))
        return true;
    static const char *const tails[] = { "_test", "_tests", "_spec", ".test", ".spec", "-test", "-spec" };
    for (size_t i = 0; i < sizeof tails / sizeof tails[0]; i++)
        if (*ext != '\0' && ends(c, n, tails[i]))
            return true;
    return one_of(ext, strlen(ext), camel) && (ends(c, n, "Test") || ends(c, n, "Tests") || ends(c, n, "Spec")
                                               || ends(c, n, "IT"));
}

static int commit_of(git_commit **out, git_repository *r, const char *rev, struct err *err)
{
    git_object *o = NULL;
    if (git_revparse_single(&o, r, rev) != 0)
        return err_set(err, ERR_BAD_INPUT, "revision \"%.200s\" is not in the repository", rev);
    int rc = git_object_peel((git_object **)out, o, GIT_OBJECT_COMMIT);
    git_object_free(o);
    return rc == 0 ? 0 : err_set(err, ERR_BAD_INPUT, "revision \"%.200s\" is no commit", rev);
}

struct splitting { struct arena *a; struct buf text[2]; struct str_list files[2]; };   /* 0 source, 1 tests */

static int take_delta(struct splitting *sp, git_diff *diff, size_t i, struct err *err)
{
    const git_diff_delta *d = git_diff_get_delta(diff, i);
    const char *path = d->status == GIT_DELTA_DELETED ? d->old_file.path : d->new_file.path;
    unsigned side = path_is_test(path);
    git_patch *p = NULL;
    git_buf b = { 0 };
    int rc = 0;
    if (git_patch_from_diff(&p, diff, i) != 0 || p == NULL || git_patch_to_buf(&b, p) != 0)
        rc = git_err(err, ERR_BAD_INPUT, path);
    if (rc == 0)
        rc = buf_add(&sp->text[side], b.ptr, b.size, err);
    git_buf_dispose(&b);
    git_patch_free(p);
    if (rc < 0)
        return rc;
    const char *copy = arena_strdup(sp->a, path);
    if (copy == NULL)
        return err_set(err, ERR_LIMIT, "the change does not fit the memory budget");
    sp->files[side].items[sp->files[side].count++] = copy;
    return 0;
}

static int split_diff(struct change_split *out, struct splitting *sp, git_diff *diff, struct err *err)
{
    size_t n = git_diff_num_deltas(diff);
    for (int side = 0; side < 2; side++)
        if ((sp->files[side].items = arena_alloc(sp->a, sizeof *sp->files[side].items * (n + 1))) == NULL)
            return err_set(err, ERR_LIMIT, "the change does not fit the memory budget");
    for (size_t i = 0; i < n; i++) {
        int rc = take_delta(sp, diff, i, err);
        if (rc < 0)
            return rc;
    }
    const char *text[2];
    for (int side = 0; side < 2; side++) {
        if (sp->text[side].len > 0 && memchr(sp->text[side].data, '\0', sp->text[side].len) != NULL)
            return err_set(err, ERR_BAD_INPUT, "the change holds NUL bytes outside binary files");
        if ((text[side] = arena_strndup(sp->a, (const char *)sp->text[side].data, sp->text[side].len)) == NULL)
            return err_set(err, ERR_LIMIT, "the change does not fit the memory budget");
    }
    out->patch = text[0];
    out->test_patch = text[1];
    out->source_files = sp->files[0];
    out->test_files = sp->files[1];
    return 0;
}

static int diff_of(git_diff **out, git_repository *r, git_commit *base, git_commit *head, struct err *err)
{
    git_diff_options opts;
    git_tree *from = NULL, *to = NULL;
    int rc = git_diff_options_init(&opts, GIT_DIFF_OPTIONS_VERSION);
    opts.flags = GIT_DIFF_SHOW_BINARY;
    opts.ignore_submodules = GIT_SUBMODULE_IGNORE_ALL;
    opts.id_abbrev = GIT_OID_HEXSZ;
    if (rc != 0 || git_commit_tree(&from, base) != 0 || git_commit_tree(&to, head) != 0
        || git_diff_tree_to_tree(out, r, from, to, &opts) != 0)
        rc = git_err(err, ERR_BAD_INPUT, "diff");
    git_tree_free(from);
    git_tree_free(to);
    return rc;
}

int mine_split(struct change_split *out, struct arena *a, const char *repo_dir, const char *base_rev, const char *head_rev,
               struct err *err)
{
    int rc = store_git_init(err);
    if (rc < 0)
        return rc;
    git_repository *r = NULL;
    git_commit *base = NULL, *head = NULL;
    git_diff *diff = NULL;
    struct change_split result = { 0 };
    struct splitting sp = { .a = a, .text = { { .max = MINED_SIZE_MAX }, { .max = MINED_SIZE_MAX } } };
    if (git_repository_open(&r, repo_dir) != 0)
        rc = git_err(err, ERR_BAD_INPUT, repo_dir);
    if (rc == 0 && (rc = commit_of(&base, r, base_rev, err)) == 0 && (rc = commit_of(&head, r, head_rev, err)) == 0
        && (rc = diff_of(&diff, r, base, head, err)) == 0)
        rc = split_diff(&result, &sp, diff, err);
    char hex[GIT_OID_HEXSZ + 1];
    if (rc == 0 && (result.base_commit = arena_strdup(a, git_oid_tostr(hex, sizeof hex, git_commit_id(base)))) == NULL)
        rc = err_set(err, ERR_LIMIT, "the change does not fit the memory budget");
    buf_done(&sp.text[0]);
    buf_done(&sp.text[1]);
    git_diff_free(diff);
    git_commit_free(base);
    git_commit_free(head);
    git_repository_free(r);
    git_libgit2_shutdown();
    if (rc == 0)
        *out = result;
    return rc;
}
