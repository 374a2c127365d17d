/*
 * fixture.h - a repository made by a script, imported into a store; patches merged into its tree.
 * After each merge the edits are applied to a copy of the materialised tree with plain file calls, and
 * git's own id of the result must be the one that merge_task_patch() computed.
 */
#pragma once
#include "repos/edits.h"
#include "tests/repos/repos_test.h"
#include <errno.h>
#include <sys/stat.h>

struct fixture { char *top; struct store *store; struct arena a; struct task t; struct merge m; };

static inline void fixture_import(struct fixture *f)
{
    struct err err = { 0 };
    struct str_list notes;
    char *head = slurp(f->top, "head", NULL), dir[4200];
    f->t = (struct task){ .id = "t-1", .repo = "r", .base_commit = arena_strndup(&f->a, head, 40), .problem_statement = "",
                          .patch = "",
                          .test_patch = "", .test_cmd = "true", .reader = "auto", .environment = "host", .profile = "strict", .split = "",
                              .timeout_s = 1,
                          .memory_mb = 64, .extra_json = "{}", .base_tree = "" };
    free(head);
    snprintf(dir, sizeof dir, "%s/repos", f->top);
    if (store_import(f->store, &f->a, &f->t, dir, &notes, &err) != 0)
        fail_msg("%s", err.msg);
}

static inline void fixture_open(struct fixture *f, const char *script)
{
    struct err err = { 0 };
    *f = (struct fixture){ .top = temp_dir() };
    char dir[4200];
    snprintf(dir, sizeof dir, "%s/store", f->top);
    char *cmd = arena_printf(&f->a, "mkdir -p repos/r; cd repos/r; git init -q; git config core.autocrlf false; git config core.quotepath true; "
                             "%s; git add -A; git commit -q --allow-empty -m base; git rev-parse HEAD >../../head", script);
    assert_int_equal(sh(f->top, cmd), 0);
    assert_int_equal(store_open(&f->store, dir, true, &err), 0);
    fixture_import(f);
}

static inline void fixture_close(struct fixture *f)
{
    buf_done(&f->m.edits);
    store_close(f->store);
    arena_done(&f->a);
    drop_dir(f->top);
}

static inline uint64_t le(const uint8_t *p, int n)
{
    uint64_t v = 0;
    for (int i = n; i-- > 0; )
        v = v << 8 | p[i];
    return v;
}

static inline void make_parents(char *path)
{
    for (char *s = path + 1; (s = strchr(s, '/')) != NULL; *s++ = '/') {
        *s = '\0';
        if (mkdir(path, 0755) != 0)
            assert_int_equal(errno, EEXIST);
    }
}

/* Format and meaning of repos/edits.h, read independently of the writer. */
static inline void apply_edits(const char *dir, const struct buf *b)
{
    assert_true(b->len >= 16);
    assert_memory_equal(b->data, EDITS_MAGIC, 8);
    uint64_t count = le(b->data + 8, 8);
    size_t at = 16;
    for (uint64_t i = 0; i < count; i++) {
        assert_true(b->len - at >= 24);
        const uint8_t *p = b->data + at;
        uint32_t kind = (uint32_t)le(p, 4), mode = (uint32_t)le(p + 4, 4), path_n = (uint32_t)le(p + 8, 4);
        uint64_t size = le(p + 16, 8);
        assert_int_equal(le(p + 12, 4), 0);
        at += 24;
        assert_true(path_n > 0 && path_n <= 4095 && b->len - at >= path_n && b->len - at - path_n >= size);
        char path[8400];
        snprintf(path, sizeof path, "%s/%.*s", dir, (int)path_n, (const char *)p + 24);
        const uint8_t *bytes = p + 24 + path_n;
        at += path_n + size;
        if (kind == EDIT_DELETE) {
            assert_true(mode == 0 && size == 0);
            assert_int_equal(unlink(path), 0);
            for (char *s; (s = strrchr(path, '/')) != NULL && s > path + strlen(dir); ) {
                *s = '\0';
                if (rmdir(path) != 0)
                    break;
            }
            continue;
        }
        make_parents(path);
        if (kind == EDIT_LINK) {
            char target[4096] = "";
            assert_true(size < sizeof target && mode == 0);
            memcpy(target, bytes, size);
            unlink(path);
            assert_int_equal(symlink(target, path), 0);
        } else {
            assert_true(kind == EDIT_WRITE && (mode == 0644 || mode == 0755));
            FILE *f = fopen(path, "wb");
            assert_non_null(f);
            assert_int_equal(fwrite(bytes, 1, size, f), size);
            fclose(f);
            assert_int_equal(chmod(path, mode), 0);
        }
    }
    assert_int_equal(at, b->len);
}

/* Merge; when it applied, out/ holds the resulting tree. */
static inline void fixture_merge(struct fixture *f, const void *patch, size_t n)
{
    struct err err = { 0 };
    buf_done(&f->m.edits);
    if (merge_task_patch(&f->m, &f->a, f->store, &f->t, patch, n, &err) != 0)
        fail_msg("%s", err.msg);
    if (f->m.outcome == MERGE_FAILED) {
        assert_int_equal(f->m.edits.len, 0);
        assert_true(f->m.reason[0] != '\0');
        return;
    }
    char *cmd = arena_printf(&f->a, "rm -rf out; cp -a store/trees/%s out; test -d check.git || git init -q --bare check.git",
                             f->t.base_tree), dir[4200];
    assert_int_equal(sh(f->top, cmd), 0);
    snprintf(dir, sizeof dir, "%s/out", f->top);
    apply_edits(dir, &f->m.edits);
    cmd = arena_printf(&f->a, "rm -f check.git/index; export GIT_DIR=$PWD/check.git GIT_WORK_TREE=$PWD/out; cd out; "
                       "git -c core.autocrlf=false add -A -f .; test $(git write-tree) = %s", f->m.tree);
    if (sh(f->top, cmd) != 0)
        fail_msg("the edits do not lead to tree %s", f->m.tree);
}

static inline bool has_finding(const struct fixture *f, const char *text)
{
    for (uint32_t i = 0; i < f->m.findings.count; i++)
        if (strstr(f->m.findings.items[i], text) != NULL)
            return true;
    return false;
}

static inline void expect_file(struct fixture *f, const char *name, const char *want, size_t n)
{
    char path[4200];
    size_t got = 0;
    snprintf(path, sizeof path, "out/%s", name);
    char *s = slurp(f->top, path, &got);
    if (want == NULL) {
        assert_null(s);
        return;
    }
    assert_non_null(s);
    assert_int_equal(got, n);
    assert_memory_equal(s, want, n);
    free(s);
}
#define EXPECT_FILE(f, name, text) expect_file(f, name, text, sizeof(text) - 1)
