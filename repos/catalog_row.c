/*
 * catalog_row.c - one row of the catalog: written, read, compared, and its words taken into the text index.
 *
 * What the text index (FTS5, `search`) costs is several times what a row costs, so it follows behind: rows above the mark in
 * `indexed` are not in it yet, catalog_index() takes them in, and a replaced row below the mark is exchanged at once.
 */
#include "repos/catalog.h"
#include "base/own.h"
#include <stdlib.h>
#include <string.h>

#define INDEX_ROWS 5000                 /* in one transaction of catalog_index(): some 10 MiB of text */

static void digest_add_list(struct digest_ctx *d, const struct str_list *l)
{
    digest_add_u64(d, l->count);
    for (uint32_t i = 0; i < l->count; i++)
        digest_add_str(d, l->items[i]);
}

/* Every field that the record itself has: two records are equal exactly if these are. */
static void record_digest(struct digest *out, const struct task *t)
{
    struct digest_ctx d;
    digest_start(&d);
    const char *const texts[] = { t->id, t->repo, t->base_commit, t->problem_statement, t->patch, t->test_patch, t->test_cmd,
                                  t->reader, t->environment, t->split, t->extra_json, t->profile };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        digest_add_str(&d, texts[i] != NULL ? texts[i] : "");
    digest_add_list(&d, &t->fail_to_pass);
    digest_add_list(&d, &t->pass_to_pass);
    digest_add(&d, &t->timeout_s, sizeof t->timeout_s);
    digest_add_u64(&d, t->memory_mb);
    digest_finish(&d, out);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* As a set: the order of ids says nothing about a task. */
static int digest_add_set(struct digest_ctx *d, const struct str_list *l, struct err *err)
{
    own_mem const char **sorted = malloc((l->count + 1) * sizeof *sorted);
    if (sorted == NULL)
        return err_set(err, ERR_LIMIT, "catalog: test ids do not fit into memory");
    if (l->count > 0)
        memcpy(sorted, l->items, l->count * sizeof *sorted);
    qsort(sorted, l->count, sizeof *sorted, by_text);
    digest_add_list(d, &(struct str_list){ sorted, l->count });
    return 0;
}

/*
 * Tasks with one base tree, the same required tests and the same hidden ones are twins. 64 bits of the digest are enough: among a
 * million tasks one pair is taken for twins falsely with a chance of 3e-8, and nothing but a note depends on it.
 */
static int twin_of(char out[TWIN_SIZE], const struct task *t, struct err *err)
{
    struct digest_ctx d;
    struct digest all;
    digest_start(&d);
    digest_add_str(&d, t->base_tree);
    digest_add_str(&d, t->test_patch != NULL ? t->test_patch : "");
    int rc = digest_add_set(&d, &t->fail_to_pass, err);
    if (rc == 0)
        rc = digest_add_set(&d, &t->pass_to_pass, err);
    digest_finish(&d, &all);
    char hex[DIGEST_HEX_SIZE];
    digest_hex(hex, &all);
    snprintf(out, TWIN_SIZE, TWIN_BEGIN "%.16s", hex);
    return rc;
}

/* Test ids hold no control characters (task.c), so a newline ends each. */
static int list_text(struct buf *out, const struct str_list *l, struct err *err)
{
    int rc = buf_add(out, "", 0, err);
    for (uint32_t i = 0; i < l->count && rc == 0; i++)
        rc = buf_addf(out, err, "%s\n", l->items[i]);
    return rc;
}

static int list_read(struct str_list *out, struct arena *a, const char *s, size_t n, struct err *err)
{
    uint32_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += s[i] == '\n';
    char *text = arena_strndup(a, s, n);
    const char **items = arena_alloc(a, sizeof *items * (count + 1));
    if (text == NULL || items == NULL)
        return err_set(err, ERR_LIMIT, "catalog: test ids do not fit the memory budget");
    for (uint32_t i = 0; i < count; i++) {
        items[i] = text;
        text = memchr(text, '\n', strlen(text));
        *text++ = '\0';
    }
    *out = (struct str_list){ items, count };
    return 0;
}

bool catalog_bind_text(sqlite3_stmt *s, int at, const char *text)
{
    return sqlite3_bind_text(s, at, text != NULL ? text : "", -1, SQLITE_STATIC) == SQLITE_OK;
}

static bool bind_blob(sqlite3_stmt *s, enum col col, const struct digest *d)
{
    return sqlite3_bind_blob(s, (int)col + 1, d->bytes, sizeof d->bytes, SQLITE_STATIC) == SQLITE_OK;
}

int catalog_put_row(struct catalog *c, const struct task *t, struct err *err)
{
    own_buf f2p = { 0 }, p2p = { 0 };
    own_stmt *s = NULL;
    struct digest record;
    char twin[TWIN_SIZE];
    int rc;
    record_digest(&record, t);
    if ((rc = list_text(&f2p, &t->fail_to_pass, err)) < 0 || (rc = list_text(&p2p, &t->pass_to_pass, err)) < 0
        || (rc = twin_of(twin, t, err)) < 0 || (rc = catalog_stmt(c, &s, STMT_PUT, err)) < 0)
        return rc;
    const struct { enum col col; const char *text; } texts[] = {
        { COL_ID, t->id }, { COL_REPO, t->repo }, { COL_BASE_COMMIT, t->base_commit }, { COL_TEST_CMD, t->test_cmd },
        { COL_READER, t->reader }, { COL_ENVIRONMENT, t->environment }, { COL_SPLIT, t->split }, { COL_BASE_TREE, t->base_tree },
        { COL_EXTRA, t->extra_json }, { COL_PROFILE, t->profile }, { COL_STATE, task_state_names[TASK_IMPORTED] },
        { COL_LANGUAGE, t->language }, { COL_PROBLEM, t->problem_statement }, { COL_PATCH, t->patch },
        { COL_TEST_PATCH, t->test_patch }, { COL_TWIN, twin },
        { COL_FAIL_TO_PASS, (const char *)f2p.data }, { COL_PASS_TO_PASS, (const char *)p2p.data },
    };
    bool bound = true;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        bound = bound && catalog_bind_text(s, (int)texts[i].col + 1, texts[i].text);
    bound = bound && sqlite3_bind_double(s, COL_TIMEOUT_S + 1, t->timeout_s) == SQLITE_OK
        && sqlite3_bind_int64(s, COL_MEMORY_MB + 1, (sqlite3_int64)t->memory_mb) == SQLITE_OK
        && bind_blob(s, COL_SNAPSHOT, &t->snapshot) && bind_blob(s, COL_DEFINITION, &t->definition)
        && bind_blob(s, COL_RECORD, &record);
    if (!bound)
        return catalog_db_err(c, sqlite3_errcode(c->db), "put", err);
    rc = sqlite3_step(s);
    return rc == SQLITE_DONE ? 0 : catalog_db_err(c, rc, "put", err);
}

/* A statement that takes one or two whole numbers; *out, when wanted, is the number it answers, or 0. */
static int run_numbers(struct catalog *c, enum stmt which, int64_t first, int64_t second, int64_t *out, struct err *err)
{
    own_stmt *s = NULL;
    int rc = catalog_stmt(c, &s, which, err);
    if (rc < 0)
        return rc;
    int want = sqlite3_bind_parameter_count(s);
    if ((want > 0 && sqlite3_bind_int64(s, 1, first) != SQLITE_OK) || (want > 1 && sqlite3_bind_int64(s, 2, second) != SQLITE_OK))
        return catalog_db_err(c, sqlite3_errcode(c->db), catalog_sql[which], err);
    rc = sqlite3_step(s);
    if (out != NULL)
        *out = rc == SQLITE_ROW ? sqlite3_column_int64(s, 0) : 0;
    return rc == SQLITE_ROW || rc == SQLITE_DONE ? 0 : catalog_db_err(c, rc, catalog_sql[which], err);
}

static bool same_digest(sqlite3_stmt *s, int col, const struct digest *d)
{
    const void *p = sqlite3_column_blob(s, col);
    return p != NULL && sqlite3_column_bytes(s, col) == (int)sizeof d->bytes && memcmp(p, d->bytes, sizeof d->bytes) == 0;
}

struct kept { bool found, same_definition, same_record; int64_t row; };

static int find_kept(struct catalog *c, struct kept *out, const struct task *t, struct err *err)
{
    own_stmt *s = NULL;
    struct digest record;
    int rc = catalog_stmt(c, &s, STMT_RECORD, err);
    if (rc < 0)
        return rc;
    if (!catalog_bind_text(s, 1, t->id))
        return catalog_db_err(c, sqlite3_errcode(c->db), "put", err);
    rc = sqlite3_step(s);
    if (rc != SQLITE_ROW && rc != SQLITE_DONE)
        return catalog_db_err(c, rc, "put", err);
    *out = (struct kept){ .found = rc == SQLITE_ROW };
    if (out->found) {
        record_digest(&record, t);
        out->same_definition = same_digest(s, 0, &t->definition);
        out->same_record = same_digest(s, 1, &record);
        out->row = sqlite3_column_int64(s, 2);
    }
    return 0;
}

int catalog_put(struct catalog *c, const struct task *t, enum catalog_put *out, struct err *err)
{
    struct kept kept;
    int rc = find_kept(c, &kept, t, err);
    int64_t indexed = 0;
    if (rc == 0 && kept.same_definition && kept.same_record) {
        *out = CATALOG_UNCHANGED;
        return 0;
    }
    bool alone = rc == 0 && kept.found && !c->in_batch;      /* row and text index change together */
    if (alone)
        rc = catalog_begin(c, err);
    if (rc == 0 && kept.found)
        rc = run_numbers(c, STMT_INDEXED, 0, 0, &indexed, err);
    bool exchange = kept.found && kept.row <= indexed;
    if (rc == 0 && exchange)
        rc = run_numbers(c, STMT_INDEX_DROP, kept.row, 0, NULL, err);
    struct err second = { 0 };
    bool dropped = rc == 0 && exchange;
    if (rc == 0)
        rc = catalog_put_row(c, t, err);
    if (dropped && run_numbers(c, STMT_INDEX_ADD, kept.row, 0, NULL, &second) < 0 && rc == 0)   /* also when the row stays as it was */
        rc = err_set(err, second.code, "%s", second.msg);
    if (alone && c->in_batch)
        rc = rc == 0 ? catalog_commit(c, err) : (catalog_rollback(c), rc);
    if (rc == 0)
        *out = kept.found ? CATALOG_REPLACED : CATALOG_ADDED;
    return rc;
}

int catalog_has(struct catalog *c, bool *out, const struct task *t, struct err *err)
{
    struct kept kept;
    int rc = find_kept(c, &kept, t, err);
    *out = rc == 0 && kept.same_record;
    return rc;
}

static int index_some(struct catalog *c, bool *out_more, struct err *err)
{
    int64_t from = 0, last = 0;
    int rc = run_numbers(c, STMT_INDEXED, 0, 0, &from, err);
    if (rc == 0)
        rc = run_numbers(c, STMT_LAST, 0, 0, &last, err);
    if (rc < 0 || (*out_more = last > from) == false)
        return rc;
    int64_t to = last - from > INDEX_ROWS ? from + INDEX_ROWS : last;
    rc = run_numbers(c, STMT_INDEX_ROWS, from, to, NULL, err);
    return rc == 0 ? run_numbers(c, STMT_INDEX_MARK, to, 0, NULL, err) : rc;
}

int catalog_index(struct catalog *c, struct err *err)
{
    bool more = true;
    int rc = 0;
    while (rc == 0 && more) {
        if ((rc = catalog_begin(c, err)) == 0 && (rc = index_some(c, &more, err)) < 0)
            catalog_rollback(c);
        else if (rc == 0)
            rc = catalog_commit(c, err);
    }
    return rc;
}

static int not_found(struct catalog *c, const char *id, struct err *err);

static int set_text(struct catalog *c, enum stmt which, const char *id, const char *text, struct err *err)
{
    own_stmt *s = NULL;
    int rc = catalog_stmt(c, &s, which, err);
    if (rc < 0)
        return rc;
    if (!catalog_bind_text(s, 1, id) || !catalog_bind_text(s, 2, text))
        return catalog_db_err(c, sqlite3_errcode(c->db), "set", err);
    rc = sqlite3_step(s);
    if (rc != SQLITE_DONE)
        return catalog_db_err(c, rc, "set", err);
    return sqlite3_changes(c->db) > 0 ? 0 : not_found(c, id, err);
}

int catalog_set_state(struct catalog *c, const char *id, enum task_state state, struct err *err)
{
    return set_text(c, STMT_SET_STATE, id, task_state_names[state], err);
}

int catalog_set_language(struct catalog *c, const char *id, const char *language, struct err *err)
{
    return set_text(c, STMT_SET_LANGUAGE, id, language, err);
}

int catalog_twin(struct catalog *c, const char **out, struct arena *a, const struct task *t, struct err *err)
{
    own_stmt *s = NULL;
    char twin[TWIN_SIZE];
    struct task first;
    *out = NULL;
    int rc = twin_of(twin, t, err);
    if (rc < 0 || (rc = catalog_stmt(c, &s, STMT_TWIN_ROWS, err)) < 0)
        return rc;
    if (!catalog_bind_text(s, 1, twin))
        return catalog_db_err(c, sqlite3_errcode(c->db), "twin", err);
    rc = sqlite3_step(s);
    if (rc == SQLITE_DONE)
        return 0;
    if (rc != SQLITE_ROW)
        return catalog_db_err(c, rc, "twin", err);
    rc = catalog_read_at(c, &first, a, sqlite3_column_int64(s, 0), err);
    if (rc == 0 && strcmp(first.id, t->id) != 0)
        *out = first.id;
    return rc;
}

struct row_reading { sqlite3_stmt *s; struct arena *a; bool lost; };

static const char *row_text(struct row_reading *r, enum col col)
{
    const char *s = (const char *)sqlite3_column_text(r->s, (int)col);
    char *copy = arena_strndup(r->a, s != NULL ? s : "", s != NULL ? (size_t)sqlite3_column_bytes(r->s, (int)col) : 0);
    r->lost = r->lost || copy == NULL;
    return copy;
}

int catalog_row_read(struct catalog *c, struct task *out, struct arena *a, sqlite3_stmt *s, bool whole, struct err *err)
{
    struct row_reading r = { .s = s, .a = a };
    struct task t = {
        .id = row_text(&r, COL_ID), .repo = row_text(&r, COL_REPO), .base_commit = row_text(&r, COL_BASE_COMMIT),
        .problem_statement = whole ? row_text(&r, COL_PROBLEM) : "", .patch = whole ? row_text(&r, COL_PATCH) : "",
        .test_patch = whole ? row_text(&r, COL_TEST_PATCH) : "", .test_cmd = row_text(&r, COL_TEST_CMD),
        .reader = row_text(&r, COL_READER), .environment = row_text(&r, COL_ENVIRONMENT), .split = row_text(&r, COL_SPLIT),
        .timeout_s = sqlite3_column_double(s, COL_TIMEOUT_S), .memory_mb = (uint64_t)sqlite3_column_int64(s, COL_MEMORY_MB),
        .extra_json = row_text(&r, COL_EXTRA), .profile = row_text(&r, COL_PROFILE),
        .state = row_text(&r, COL_STATE), .language = row_text(&r, COL_LANGUAGE),
        .base_tree = row_text(&r, COL_BASE_TREE),
    };
    if (r.lost)
        return err_set(err, ERR_LIMIT, "catalog: a task does not fit the memory budget");
    const void *snap = sqlite3_column_blob(s, COL_SNAPSHOT), *def = sqlite3_column_blob(s, COL_DEFINITION);
    if (snap == NULL || def == NULL || sqlite3_column_bytes(s, COL_SNAPSHOT) != (int)sizeof t.snapshot.bytes
        || sqlite3_column_bytes(s, COL_DEFINITION) != (int)sizeof t.definition.bytes) {
        char quoted[96];
        err_quote(quoted, sizeof quoted, t.id, strlen(t.id));
        return err_set(err, ERR_CORRUPT, "catalog %s: task %s: a digest has the wrong size", c->path, quoted);
    }
    memcpy(t.snapshot.bytes, snap, sizeof t.snapshot.bytes);
    memcpy(t.definition.bytes, def, sizeof t.definition.bytes);
    const char *f2p = (const char *)sqlite3_column_text(s, COL_FAIL_TO_PASS);
    const char *p2p = (const char *)sqlite3_column_text(s, COL_PASS_TO_PASS);
    int rc;
    if ((rc = list_read(&t.fail_to_pass, a, f2p != NULL ? f2p : "", (size_t)sqlite3_column_bytes(s, COL_FAIL_TO_PASS), err)) < 0
        || (rc = list_read(&t.pass_to_pass, a, p2p != NULL ? p2p : "", (size_t)sqlite3_column_bytes(s, COL_PASS_TO_PASS),
                           err)) < 0)
        return rc;
    *out = t;
    return 0;
}

/* Levenshtein distance, ASCII case not counted. Ids are short (task.c); longer ones are cut. */
static unsigned id_distance(const char *x, const char *y)
{
    unsigned row[129];
    size_t nx = strnlen(x, 128), ny = strnlen(y, 128);
    for (unsigned j = 0; j <= ny; j++)
        row[j] = j;
    for (size_t i = 1; i <= nx; i++) {
        unsigned diag = row[0];
        row[0] = (unsigned)i;
        for (size_t j = 1; j <= ny; j++) {
            unsigned above = row[j];
            unsigned same = (x[i - 1] | 0x20) == (y[j - 1] | 0x20) ? diag : diag + 1;
            unsigned step = (row[j - 1] < above ? row[j - 1] : above) + 1;
            row[j] = same < step ? same : step;
            diag = above;
        }
    }
    return row[ny];
}

/* The message of an unknown id names the nearest of the ids that sort beside it, when one is near. */
static int not_found(struct catalog *c, const char *id, struct err *err)
{
    char best[ERR_MSG_SIZE / 3] = "", quoted[ERR_MSG_SIZE / 3];
    unsigned best_distance = UINT32_MAX;
    const enum stmt sides[] = { STMT_AFTER, STMT_BEFORE };
    for (size_t i = 0; i < 2; i++) {
        own_stmt *s = NULL;
        int rc = catalog_stmt(c, &s, sides[i], err);
        if (rc < 0)
            return rc;
        if (!catalog_bind_text(s, 1, id))
            return catalog_db_err(c, sqlite3_errcode(c->db), "get", err);
        while ((rc = sqlite3_step(s)) == SQLITE_ROW) {
            const char *other = (const char *)sqlite3_column_text(s, 0);
            unsigned d = other != NULL ? id_distance(id, other) : UINT32_MAX;
            if (d < best_distance) {
                best_distance = d;
                err_quote(best, sizeof best, other, strlen(other));
            }
        }
        if (rc != SQLITE_DONE)
            return catalog_db_err(c, rc, "get", err);
    }
    err_quote(quoted, sizeof quoted, id, strlen(id));
    if (best_distance <= 2 + strlen(id) / 4)
        return err_set(err, ERR_NOT_FOUND, "task %s is not in the catalog; did you mean %s?", quoted, best);
    return err_set(err, ERR_NOT_FOUND, "task %s is not in the catalog", quoted);
}

int catalog_get(struct catalog *c, struct task *out, struct arena *a, const char *id, struct err *err)
{
    own_stmt *s = NULL;
    int rc = catalog_stmt(c, &s, STMT_GET, err);
    if (rc < 0)
        return rc;
    if (!catalog_bind_text(s, 1, id))
        return catalog_db_err(c, sqlite3_errcode(c->db), "get", err);
    rc = sqlite3_step(s);
    if (rc == SQLITE_DONE)
        return not_found(c, id, err);
    if (rc != SQLITE_ROW)
        return catalog_db_err(c, rc, "get", err);
    return catalog_row_read(c, out, a, s, true, err);
}
