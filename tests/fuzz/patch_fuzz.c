/* patch_fuzz.c - any bytes as a patch onto a small tree: parsed, applied or refused, never beyond the arena's budget. */
#include "repos/patch.h"
#include "repos/store.h"
#include <git2/sys/mempack.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define BUDGET ((size_t)32 << 20)

static git_odb *odb;
static git_oid base_id;

static void check(bool fine)
{
    if (!fine)
        abort();
}

static void put(struct tree *t, const char *path, enum entry_kind kind, const char *text, size_t n)
{
    struct err err = { 0 };
    check(tree_put(t, path, kind, false, text, n, &err) == 0);
}

static void set_up(void)
{
    struct err err = { 0 };
    own_arena a = { 0 };
    git_odb_backend *memory = NULL;
    struct tree *t;
    check(store_git_init(&err) == 0 && git_odb_new(&odb) == 0 && git_mempack_new(&memory) == 0 && git_odb_add_backend(odb, memory, 1) == 0);
    check(git_odb_write(&base_id, odb, "", 0, GIT_OBJECT_TREE) == 0 && tree_open(&t, &a, odb, &base_id, &err) == 0);
#define PUT(path, kind, text) put(t, path, kind, text, sizeof(text) - 1)
    PUT("n.txt", ENTRY_FILE, "one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\nten\n");
    PUT("crlf", ENTRY_FILE, "one\r\ntwo\r\n");
    PUT("bare", ENTRY_FILE, "no newline");
    PUT("empty", ENTRY_FILE, "");
    PUT("icon.bin", ENTRY_FILE, "\0\1\2\3");
    PUT("link", ENTRY_LINK, "n.txt");
    PUT("a/same", ENTRY_FILE, "x\n");
    PUT("same", ENTRY_FILE, "x\n");
    PUT("sub/deep/file", ENTRY_FILE, "x\ny\nz\n");
    check(tree_id(t, &base_id, &err) == 0 && tree_store(t, odb, &err) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (odb == NULL)
        set_up();
    own_arena a = { .budget = BUDGET };
    struct err err = { 0 };
    struct tree *t, *base;
    struct patch p;
    struct patch_notes notes = { 0 };
    const char *reason = NULL;
    check(tree_open(&base, &a, odb, &base_id, &err) == 0 && tree_open(&t, &a, odb, &base_id, &err) == 0);
    int rc = patch_parse(&p, &reason, &a, (const char *)data, size, &notes, &err);
    if (rc == 0 && reason == NULL)
        rc = patch_apply(t, base, &p, &reason, &a, &notes, &err);
    check(rc == 0 || rc == ERR_LIMIT);
    git_oid id;
    if (rc == 0 && reason == NULL)
        check(tree_id(t, &id, &err) == 0);
    check(tree_id(base, &id, &err) == 0 && git_oid_equal(&id, &base_id));
    check(a.used <= BUDGET);
    return 0;
}
