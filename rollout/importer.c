/* importer.c - see importer.h. Good records are kept, bad ones are named by line; all in one transaction. */
#include "rollout/importer.h"
#include "base/arena.h"
#include "base/buf.h"
#include "base/own.h"
#include "repos/repos.h"
#include "rollout/wire.h"
#include <string.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#define INPUT_MAX ((size_t)4 << 20)
#define IMPORT_CPU_S 600

struct import_run {
    const char *repos_dir;
    bool skip_known;
    struct arena keep;              /* the answer */
    struct import_answer answer;
    uint32_t failure_cap, note_cap;
    const char **put;               /* ids added or replaced */
    uint32_t put_count, put_cap;
};

static int grow(void **items, uint32_t count, uint32_t *cap, size_t size, struct arena *a, struct err *err)
{
    if (count < *cap)
        return 0;
    uint32_t more = *cap == 0 ? 16 : *cap * 2;
    void *p = arena_alloc(a, more * size);
    if (p == NULL)
        return err_set(err, ERR_LIMIT, "import: out of memory for messages");
    if (count > 0)
        memcpy(p, *items, count * size);
    *items = p;
    *cap = more;
    return 0;
}

static int add_note(struct import_run *r, const char *note, struct err *err)
{
    int rc = grow((void **)&r->answer.notes.items, r->answer.notes.count, &r->note_cap, sizeof(char *), &r->keep, err);
    if (rc < 0)
        return rc;
    char *copy = arena_strdup(&r->keep, note);
    if (copy == NULL)
        return err_set(err, ERR_LIMIT, "import: out of memory for notes");
    r->answer.notes.items[r->answer.notes.count++] = copy;
    return 0;
}

static int add_failure(struct import_run *r, uint64_t line, const char *id, const struct err *why, struct err *err)
{
    int rc = grow((void **)&r->answer.failures, r->answer.failure_count, &r->failure_cap, sizeof(struct import_failure),
                  &r->keep, err);
    if (rc < 0)
        return rc;
    r->answer.failures[r->answer.failure_count++] = (struct import_failure){
        .line = line, .id = arena_strdup(&r->keep, id), .code = why->code, .message = arena_strdup(&r->keep, why->msg) };
    return 0;
}

/* What a task needs to be asked for its twins once the text index has it. */
static int keep_for_twins(struct import_run *r, const struct task *t, struct err *err)
{
    int rc = grow((void **)&r->put, r->put_count, &r->put_cap, sizeof *r->put, &r->keep, err);
    if (rc < 0)
        return rc;
    const char *id = arena_strdup(&r->keep, t->id);
    if (id == NULL)
        return err_set(err, ERR_LIMIT, "import: out of memory for notes");
    r->put[r->put_count++] = id;
    return 0;
}

static int note_twins(struct import_run *r, struct catalog *catalog, struct err *err)
{
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < r->put_count; i++) {
        own_arena a = { .budget = (size_t)256 << 20 };
        struct task t;
        const char *twin = NULL;
        if ((rc = catalog_get(catalog, &t, &a, r->put[i], err)) < 0 || (rc = catalog_twin(catalog, &twin, &a, &t, err)) < 0 || twin == NULL)
            continue;
        const char *note = arena_printf(&a, "task %s: same base tree and same tests as task %s", t.id, twin);
        rc = note != NULL ? add_note(r, note, err) : err_set(err, ERR_LIMIT, "import: out of memory for notes");
    }
    return rc;
}

/* One record. A refusal goes into the answer; only what ends the whole import is returned. */
static int import_line(struct import_run *r, struct store *store, struct catalog *catalog, uint64_t line, const char *json, size_t n,
                       struct err *err)
{
    own_arena a = { .budget = (size_t)256 << 20 };
    struct task task = { 0 };
    struct str_list notes = { 0 };
    struct err why = { 0 };
    enum catalog_put put = CATALOG_UNCHANGED;
    int rc = task_read_json(&task, &a, json, n, &why);
    bool known = false;
    if (rc == 0 && r->skip_known)
        rc = catalog_has(catalog, &known, &task, &why);
    if (rc == 0 && known) {
        r->answer.skipped++;
        return 0;
    }
    if (rc == 0)
        rc = store_import(store, &a, &task, r->repos_dir, &notes, &why);
    if (rc == 0)
        rc = catalog_put(catalog, &task, &put, &why);
    if (rc < 0)
        return add_failure(r, line, task.id != NULL ? task.id : "", &why, err);
    for (uint32_t i = 0; i < notes.count; i++)
        if ((rc = add_note(r, notes.items[i], err)) < 0)
            return rc;
    if (put != CATALOG_UNCHANGED && (rc = keep_for_twins(r, &task, err)) < 0)
        return rc;
    switch (put) {
    case CATALOG_ADDED: r->answer.added++; break;
    case CATALOG_UNCHANGED: r->answer.unchanged++; break;
    case CATALOG_REPLACED: r->answer.replaced++; break;
    }
    return 0;
}

static int import_all(struct buf *out, char *const argv[], const struct buf *in, struct err *err)
{
    const char *store_dir = argv[1], *source = argv[3];
    struct store *store = NULL;
    struct catalog *catalog = NULL;
    struct import_run r = { .repos_dir = argv[2], .skip_known = argv[5] != NULL, .keep = { .budget = (size_t)64 << 20 } };
    int rc = store_open(&store, store_dir, true, err);
    if (rc == 0)
        rc = catalog_open(&catalog, store_dir, true, err);
    if (rc == 0)
        rc = catalog_begin(catalog, err);
    uint64_t line = strtoull(argv[4], NULL, 10);
    for (size_t at = 0; rc == 0 && at < in->len; line++) {
        const char *begin = (const char *)in->data + at;
        const char *end = memchr(begin, '\n', in->len - at);
        size_t n = end != NULL ? (size_t)(end - begin) : in->len - at;
        at += n + 1;
        while (n > 0 && strchr(" \t\r", begin[n - 1]) != NULL)
            n--;
        if (n > 0)
            rc = import_line(&r, store, catalog, line, begin, n, err);
    }
    if (rc == 0)
        rc = catalog_commit(catalog, err);
    if (rc == 0)
        rc = catalog_index(catalog, err);
    if (rc == 0)
        rc = note_twins(&r, catalog, err);
    if (rc == 0)
        rc = wire_write_import(out, &r.answer, err);
    if (rc < 0)
        err_in(err, "import of %s", source);
    catalog_close(catalog);
    store_close(store);
    arena_done(&r.keep);
    return rc;
}

int importer_main(int argc, char **argv)
{
    if (argc < 5) {
        fprintf(stderr, "assay-worker import STORE REPOS_DIR SOURCE FIRST_LINE [skip] < records.jsonl (called by assayd)\n");
        return 64;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    /* A damaged object can make the git library spin for ever: that is the end of this call, not of all imports. */
    setrlimit(RLIMIT_CPU, &(struct rlimit){ .rlim_cur = IMPORT_CPU_S, .rlim_max = IMPORT_CPU_S });
    struct err err = { 0 };
    own_buf in = { .max = INPUT_MAX };
    own_buf out = { 0 };
    int rc = buf_read_fd(&in, STDIN_FILENO, &err);
    if (rc >= 0)
        rc = import_all(&out, argv, &in, &err);
    for (size_t at = 0; rc == 0 && at < out.len;) {
        ssize_t n = write(STDOUT_FILENO, out.data + at, out.len - at);
        if (n < 0)
            rc = err_sys(&err, ERR_SYS, "import: writing the answer");
        else
            at += (size_t)n;
    }
    if (rc >= 0)
        return 0;
    /* assayd puts this line into the answer's error: "<code name>: <message>" */
    fprintf(stderr, "%s: %s\n", err_info(err.code)->name, err.msg);
    return err_info(err.code)->exit_status;
}
