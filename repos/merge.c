/*
 * merge.c - base tree + model's patch + hidden tests, as one tree id and the edits that lead to it.
 *
 * The order is REWARD.md's: the model's patch onto the base; files that steer the test runner, and test
 * files that hold required ids, back to the base; the hidden tests' files on top, whatever the model did at
 * their paths. Code under test shares the runner's process in many frameworks and can do there what it likes;
 * what is put back is what would change the run before any of it was imported. The hidden patch is
 * applied to the *base*, never to the model's tree: its result is what counts, so a model's own version
 * of a test file neither wins nor gets in the way. Nothing is written: the ids are computed in memory.
 */
#include "repos/edits.h"
#include "repos/patch.h"
#include "repos/store.h"
#include "repos/tree.h"
#include <string.h>
#include <strings.h>

#define EDITS_MAX (2 * PATCH_OUTPUT_MAX)

struct merging {
    struct tree *base, *model, *hidden;
    const struct task *task;
    struct arena *a;
    struct patch_notes notes;
    bool  deletions;                /* the pass that writes edits: deletions go first */
    struct buf *edits;
    uint64_t edit_count;
    const char **paths;             /* collected by a diff, acted on after it */
    uint32_t path_count, path_cap;
};

static bool blank_text(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strchr(" \t\r\n\f\v", s[i]) == NULL || s[i] == '\0')
            return false;
    return true;
}

/* Parse and apply; *out_reason says what is wrong with the patch, also when its memory budget is. */
static int apply_text(struct tree *t, struct tree *base, const char **out_reason, struct arena *a, const char *bytes, size_t n,
                      struct patch_notes *notes, struct err *err)
{
    struct patch p;
    int rc = patch_parse(&p, out_reason, a, bytes, n, notes, err);
    if (rc == 0 && *out_reason == NULL)
        rc = patch_apply(t, base, &p, out_reason, a, notes, err);
    if (rc == ERR_LIMIT) {
        *out_reason = "the patch and the files it changes need more memory than a patch may have";
        rc = 0;
    }
    return rc;
}

/* --- files that steer the test runner --- */

/* `name` is one of these modules in whatever form: module, package, compiled. */
static bool is_module(const char *name, size_t n, const char *const *modules)
{
    for (; *modules != NULL; modules++) {
        size_t len = strlen(*modules);
        if (n >= len && memcmp(name, *modules, len) == 0 && (n == len || name[len] == '.'))
            return true;
    }
    return false;
}

static bool ends_in(const char *name, size_t n, const char *with)
{
    size_t k = strlen(with);
    return n > k && strncasecmp(name + n - k, with, k) == 0;
}

/* Imported by the interpreter at its start. */
static const char *const site_modules[] = { "sitecustomize", "usercustomize", NULL };
/* The runner itself, which `python -m` looks for at the tree's top first. */
static const char *const runner_modules[] = { "pytest", "_pytest", "pluggy", "iniconfig", "unittest", NULL };

static bool is_protected(const char *path)
{
    static const char *const names[] = { "conftest.py", "pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml", "tox.ini" };
    for (const char *c = path; ; ) {
        size_t n = strcspn(c, "/");
        /* Compiled code wins over the source that it claims to be of. */
        if (is_module(c, n, site_modules) || (n == 11 && memcmp(c, "__pycache__", n) == 0))
            return true;
        /* A distribution at the tree's top counts as installed there, with its plug-ins. */
        bool installed = ends_in(c, n, ".dist-info") || ends_in(c, n, ".egg-info");
        if (installed && (c[n] == '\0' || strcasecmp(c + n, "/entry_points.txt") == 0))
            return true;
        if (c[n] == '\0') {
            for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
                if (strcmp(c, names[i]) == 0)
                    return true;
            return ends_in(c, n, ".pth") || ends_in(c, n, ".pyc");
        }
        c += n + 1;
    }
}

/* A module of the runner's name where the base has none; a project that is the runner may change it. */
static int hides_runner(struct merging *m, const char *path, bool *out, struct err *err)
{
    size_t n = strcspn(path, "/");
    *out = false;
    if (!is_module(path, n, runner_modules))
        return 0;
    struct entry package, module;
    size_t stem = strcspn(path, "./");
    const char *name = arena_strndup(m->a, path, stem), *file = arena_printf(m->a, "%.*s.py", (int)stem, path);
    if (name == NULL || file == NULL)
        return err_set(err, ERR_LIMIT, "merge: out of memory");
    int rc;
    if ((rc = tree_look(m->base, &package, name, err)) < 0 || (rc = tree_look(m->base, &module, file, err)) < 0)
        return rc;
    *out = package.kind == ENTRY_NONE && module.kind == ENTRY_NONE;
    return 0;
}

/* A test file of the base with required ids in it (`path::...`): who is judged by it does not write it. */
static bool holds_required(const struct merging *m, const char *path)
{
    const struct str_list *lists[2] = { &m->task->fail_to_pass, &m->task->pass_to_pass };
    size_t n = strlen(path);
    if (!path_is_test(path))
        return false;
    for (int k = 0; k < 2; k++)
        for (uint32_t i = 0; i < lists[k]->count; i++)
            if (strncmp(lists[k]->items[i], path, n) == 0 && strncmp(lists[k]->items[i] + n, "::", 2) == 0)
                return true;
    return false;
}

static bool may_configure(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path;
    return strcmp(name, "setup.cfg") == 0 || strcmp(name, "pyproject.toml") == 0;
}

static int collect(const char *path, const struct entry *was, const struct entry *is, void *arg, struct err *err)
{
    (void)was, (void)is;
    struct merging *m = arg;
    if (m->path_count == m->path_cap) {
        uint32_t cap = m->path_cap != 0 ? m->path_cap * 2 : 16;
        const char **more = arena_alloc(m->a, sizeof *more * cap);
        if (more == NULL)
            return err_set(err, ERR_LIMIT, "merge: out of memory");
        if (m->path_count > 0)
            memcpy(more, m->paths, sizeof *more * m->path_count);
        m->paths = more;
        m->path_cap = cap;
    }
    const char *copy = arena_strdup(m->a, path);
    if (copy == NULL)
        return err_set(err, ERR_LIMIT, "merge: out of memory");
    m->paths[m->path_count++] = copy;
    return 0;
}

static int changed_paths(struct merging *m, struct tree *is, struct err *err)
{
    m->path_count = 0;
    m->path_cap = 0;
    return tree_diff(m->base, is, collect, m, err);
}

static bool same_entry(const struct entry *x, const struct entry *y)
{
    return x->kind == y->kind && (x->kind == ENTRY_NONE || (x->executable == y->executable && git_oid_equal(&x->id, &y->id)));
}

/* Does tree `t` hold at path what the base does? Ids of both are settled. */
static int as_base(struct merging *m, struct tree *t, const char *path, bool *out, struct err *err)
{
    struct entry was, is;
    int rc;
    if ((rc = tree_look(m->base, &was, path, err)) < 0 || (rc = tree_look(t, &is, path, err)) < 0)
        return rc;
    *out = same_entry(&was, &is);
    return 0;
}

static int restore_protected(struct merging *m, struct err *err)
{
    int rc = changed_paths(m, m->model, err);
    for (uint32_t i = 0; rc == 0 && i < m->path_count; i++) {
        const char *path = m->paths[i], *q = patch_quote(m->a, path);
        if (may_configure(path) && (rc = patch_note(&m->notes, m->a, err,
                                                    "%s: changed by the patch; it may configure the test runner", q)) < 0)
            return rc;
        struct entry was;
        bool hidden_too = false, hides = false, steers = is_protected(path), judges = !steers && holds_required(m, path);
        if ((rc = tree_look(m->base, &was, path, err)) < 0 || (rc = hides_runner(m, path, &hides, err)) < 0)
            return rc;
        if (!steers && !hides && (!judges || was.kind == ENTRY_NONE))
            continue;
        if ((rc = as_base(m, m->hidden, path, &hidden_too, err)) < 0)
            return rc;
        if (judges && !hidden_too)
            continue;
        rc = was.kind != ENTRY_NONE ? tree_put_id(m->model, path, &was, err) : tree_delete(m->model, path, err);
        if (rc == 0 && hidden_too)      /* else the hidden tests bring it, and say so */
            rc = patch_note(&m->notes, m->a, err, judges ? "%s: holds required tests, put back as it was" : was.kind != ENTRY_NONE
                            ? "%s: test runner configuration, put back as it was" : "%s: test runner configuration, not taken",
                                q);
    }
    return rc;
}

static int force_hidden(struct merging *m, struct err *err)
{
    git_oid id;
    int rc = tree_id(m->model, &id, err);
    if (rc == 0)
        rc = changed_paths(m, m->hidden, err);
    for (uint32_t i = 0; rc == 0 && i < m->path_count; i++) {
        const char *path = m->paths[i];
        struct entry want, was, have;
        if ((rc = tree_look(m->hidden, &want, path, err)) < 0 || (rc = tree_look(m->base, &was, path, err)) < 0
            || (rc = tree_look(m->model, &have, path, err)) < 0)
            return rc;
        /* An earlier round may have changed this path with a directory it stood in: then there is nothing to tell. */
        bool touched = !same_entry(&was, &have) && !same_entry(&want, &have);
        if (touched && (rc = patch_note(&m->notes, m->a, err, "%s: changed by the patch, the hidden tests' version is used",
                                        patch_quote(m->a, path))) < 0)
            return rc;
        if (want.kind == ENTRY_DIR)     /* was a file; its new files come next */
            rc = have.kind == ENTRY_DIR ? 0 : tree_delete(m->model, path, err);
        else
            rc = want.kind != ENTRY_NONE ? tree_put_id(m->model, path, &want, err) : tree_delete(m->model, path, err);
    }
    return rc;
}

/* --- edits --- */

static int put_u32(struct buf *b, uint32_t v, struct err *err)
{
    uint8_t le[4] = { (uint8_t)v, (uint8_t)(v >> 8), (uint8_t)(v >> 16), (uint8_t)(v >> 24) };
    return buf_add(b, le, sizeof le, err);
}

static int put_u64(struct buf *b, uint64_t v, struct err *err)
{
    int rc = put_u32(b, (uint32_t)v, err);
    return rc < 0 ? rc : put_u32(b, (uint32_t)(v >> 32), err);
}

static int put_edit(struct merging *m, uint32_t kind, uint32_t mode, const char *path, const void *bytes, size_t n,
                    struct err *err)
{
    size_t path_n = strlen(path);
    int rc;
    if ((rc = put_u32(m->edits, kind, err)) < 0 || (rc = put_u32(m->edits, mode, err)) < 0
        || (rc = put_u32(m->edits, (uint32_t)path_n, err)) < 0
        || (rc = put_u32(m->edits, 0, err)) < 0 || (rc = put_u64(m->edits, n, err)) < 0
            || (rc = buf_add(m->edits, path, path_n, err)) < 0
        || (rc = buf_add(m->edits, bytes, n, err)) < 0)
        return rc;
    m->edit_count++;
    return 0;
}

static int edit(const char *path, const struct entry *was, const struct entry *is, void *arg, struct err *err)
{
    struct merging *m = arg;
    bool gone = was->kind == ENTRY_FILE || was->kind == ENTRY_LINK;
    if (m->deletions)
        return gone && is->kind != was->kind ? put_edit(m, EDIT_DELETE, 0, path, "", 0, err) : 0;
    if (is->kind != ENTRY_FILE && is->kind != ENTRY_LINK)
        return 0;
    struct entry e = *is;
    int rc = tree_read(m->model, &e, EDITS_MAX, err);
    if (rc < 0)
        return rc;
    return e.kind == ENTRY_LINK ? put_edit(m, EDIT_LINK, 0, path, e.bytes, e.size, err)
                                : put_edit(m, EDIT_WRITE, e.executable ? 0755 : 0644, path, e.bytes, e.size, err);
}

static int write_edits(struct merging *m, struct err *err)
{
    int rc;
    if ((rc = buf_add(m->edits, EDITS_MAGIC, 8, err)) < 0 || (rc = put_u64(m->edits, 0, err)) < 0)
        return rc;
    m->deletions = true;
    if ((rc = tree_diff(m->base, m->model, edit, m, err)) < 0)
        return rc;
    m->deletions = false;
    if ((rc = tree_diff(m->base, m->model, edit, m, err)) < 0)
        return rc;
    for (unsigned k = 0; k < 8; k++)
        m->edits->data[8 + k] = (uint8_t)(m->edit_count >> (8 * k));
    return 0;
}

/* The three trees, the hidden one with the task's test_patch on it. `code`: what a test_patch that does not apply is. */
static int open_trees(struct merging *m, git_oid *out_base, const struct store *s, const struct task *t, const char *base_hex,
                      int code, struct err *err)
{
    if (base_hex == NULL || strlen(base_hex) != GIT_OID_HEXSZ || git_oid_fromstr(out_base, base_hex) != 0)
        return err_set(err, ERR_NOT_FOUND, "has no base tree; import it again");
    git_odb *odb = store_odb(s);
    int rc;
    if ((rc = tree_open(&m->base, m->a, odb, out_base, err)) < 0 || (rc = tree_open(&m->model, m->a, odb, out_base, err)) < 0
        || (rc = tree_open(&m->hidden, m->a, odb, out_base, err)) < 0)
        return rc;
    size_t n = strlen(t->test_patch);
    struct patch_notes unused = { 0 };
    const char *reason = NULL;
    git_oid id;
    if (blank_text(t->test_patch, n))
        return 0;
    if ((rc = apply_text(m->hidden, m->base, &reason, m->a, t->test_patch, n, &unused, err)) < 0)
        return rc;
    if (reason != NULL)
        return err_set(err, code, "its test_patch does not apply: %s", reason);
    return tree_id(m->hidden, &id, err);
}

int merge_check(const char **out_fix_fault, struct arena *a, const struct store *s, const struct task *t, const char *base_hex,
                struct err *err)
{
    struct merging m = { .a = a };
    git_oid base;
    *out_fix_fault = NULL;
    int rc = open_trees(&m, &base, s, t, base_hex, ERR_BAD_INPUT, err);
    size_t n = strlen(t->patch);
    return rc < 0 || blank_text(t->patch, n) ? rc : apply_text(m.model, m.base, out_fix_fault, a, t->patch, n, &m.notes, err);
}

static int merge_into(struct merge *out, struct merging *m, const struct store *s, const struct task *t, const char *patch,
                      size_t n, struct err *err)
{
    git_oid base, id;
    const char *reason = NULL;
    /* Hidden tests first: a task that is broken must not look like a bad patch. Import has seen them apply. */
    int rc = open_trees(m, &base, s, t, t->base_tree, ERR_CORRUPT, err);
    if (rc < 0)
        return rc;
    if (!blank_text(patch, n)) {
        if ((rc = apply_text(m->model, m->base, &reason, m->a, patch, n, &m->notes, err)) < 0)
            return rc;
        if (reason != NULL) {
            out->outcome = MERGE_FAILED;
            out->reason = reason;
            return 0;
        }
    }
    if ((rc = tree_id(m->model, &id, err)) < 0)
        return rc;
    out->outcome = git_oid_equal(&id, &base) ? MERGE_EMPTY : MERGE_APPLIED;
    if ((rc = restore_protected(m, err)) < 0 || (rc = force_hidden(m, err)) < 0 || (rc = tree_id(m->model, &id, err)) < 0)
        return rc;
    git_oid_tostr(out->tree, sizeof out->tree, &id);
    return write_edits(m, err);
}

int merge_task_patch(struct merge *out, struct arena *a, const struct store *s, const struct task *t, const void *patch, size_t n,
                     struct err *err)
{
    struct merge result = { .outcome = MERGE_FAILED, .edits = { .max = EDITS_MAX }, .reason = "" };
    struct merging m = { .a = a, .task = t, .edits = &result.edits };
    int rc = merge_into(&result, &m, s, t, patch != NULL ? patch : "", n, err);
    if (rc < 0) {
        buf_done(&result.edits);
        char quoted[96];
        err_quote(quoted, sizeof quoted, t->id, strlen(t->id));
        return err_in(err, "task %s", quoted);
    }
    result.findings = m.notes.list;
    *out = result;
    return 0;
}
