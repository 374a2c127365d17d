/*
 * catalog.c - a million tasks in one SQLite file.
 *
 * One row per task: short columns first and long texts last, so that a page of a listing never
 * touches the overflow pages where patches lie. WAL: one writer (import), any number of readers that
 * see each committed batch at their next statement. Statements are prepared once and kept.
 *
 * The -wal and -shm files are left in place when the writer closes (SQLITE_FCNTL_PERSIST_WAL): a
 * reader without the right to create files in the store could not open the catalog otherwise.
 */
#include "repos/repos.h"
#include "base/own.h"
#include <sqlite3.h>
#include <string.h>
#include <sys/stat.h>

#define CATALOG_APPLICATION_ID 0x41535359   /* "ASSY" */
#define CATALOG_VERSION 2           /* 1 had no profiles */
#define BUSY_MS         10000               /* an import commits in batches; a reader waits for none of them */
#define LIST_BYTES_MAX  ((size_t)16 << 20)  /* a page ends early rather than be larger */

/* One list of columns for every statement that reads or writes a row; the order is that of enum col. */
#define SHORT_COLS "id,repo,base_commit,test_cmd,reader,environment,split,timeout_s,memory_mb,base_tree,snapshot,definition," \
                   "fail_to_pass,pass_to_pass,extra,profile"
#define LONG_COLS  "problem_statement,patch,test_patch"
enum col { COL_ID, COL_REPO, COL_BASE_COMMIT, COL_TEST_CMD, COL_READER, COL_ENVIRONMENT, COL_SPLIT, COL_TIMEOUT_S, COL_MEMORY_MB,
           COL_BASE_TREE, COL_SNAPSHOT, COL_DEFINITION, COL_FAIL_TO_PASS, COL_PASS_TO_PASS, COL_EXTRA, COL_PROFILE,
           COL_PROBLEM, COL_PATCH, COL_TEST_PATCH, COL_RECORD };

static const char schema[] =
    "CREATE TABLE IF NOT EXISTS tasks(id TEXT NOT NULL, repo TEXT NOT NULL, base_commit TEXT NOT NULL, test_cmd TEXT NOT NULL,"
    " reader TEXT NOT NULL, environment TEXT NOT NULL, split TEXT NOT NULL, timeout_s REAL NOT NULL, memory_mb INTEGER NOT NULL,"
    " base_tree TEXT NOT NULL, snapshot BLOB NOT NULL, definition BLOB NOT NULL, record BLOB NOT NULL,"
    " fail_to_pass TEXT NOT NULL, pass_to_pass TEXT NOT NULL, extra TEXT NOT NULL, profile TEXT NOT NULL,"
    " problem_statement TEXT NOT NULL, patch TEXT NOT NULL, test_patch TEXT NOT NULL, PRIMARY KEY(id));"
    "CREATE INDEX IF NOT EXISTS tasks_by_repo ON tasks(repo, id);";

enum stmt { STMT_GET, STMT_RECORD, STMT_PUT, STMT_LIST, STMT_LIST_REPO, STMT_COUNT, STMT_AFTER, STMT_BEFORE,
            STMT_BEGIN, STMT_COMMIT, STMT_ROLLBACK, STMT_N };
static const char *const stmt_sql[STMT_N] = {
    [STMT_GET]       = "SELECT " SHORT_COLS "," LONG_COLS " FROM tasks WHERE id=?1",
    [STMT_RECORD]    = "SELECT definition,record FROM tasks WHERE id=?1",
    [STMT_PUT]       = "INSERT INTO tasks(" SHORT_COLS "," LONG_COLS ",record)"
                       " VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14,?15,?16,?17,?18,?19,?20)"
                       " ON CONFLICT(id) DO UPDATE SET repo=excluded.repo,base_commit=excluded.base_commit,"
                       "test_cmd=excluded.test_cmd,"
                       "reader=excluded.reader,environment=excluded.environment,split=excluded.split,"
                       "timeout_s=excluded.timeout_s,"
                       "memory_mb=excluded.memory_mb,base_tree=excluded.base_tree,snapshot=excluded.snapshot,"
                       "definition=excluded.definition,record=excluded.record,fail_to_pass=excluded.fail_to_pass,"
                       "pass_to_pass=excluded.pass_to_pass,extra=excluded.extra,profile=excluded.profile,"
                       "problem_statement=excluded.problem_statement,"
                       "patch=excluded.patch,test_patch=excluded.test_patch",
    [STMT_LIST]      = "SELECT " SHORT_COLS " FROM tasks WHERE id>?1 AND id>=?2 ORDER BY id",
    [STMT_LIST_REPO] = "SELECT " SHORT_COLS " FROM tasks WHERE repo=?3 AND id>?1 AND id>=?2 ORDER BY id",
    [STMT_COUNT]     = "SELECT count(*) FROM tasks",
    [STMT_AFTER]     = "SELECT id FROM tasks WHERE id>?1 ORDER BY id LIMIT 64",
    [STMT_BEFORE]    = "SELECT id FROM tasks WHERE id<?1 ORDER BY id DESC LIMIT 64",
    [STMT_BEGIN]     = "BEGIN IMMEDIATE",
    [STMT_COMMIT]    = "COMMIT",
    [STMT_ROLLBACK]  = "ROLLBACK",
};

struct catalog {
    sqlite3      *db;
    sqlite3_stmt *stmt[STMT_N];
    bool          writable;
    bool          in_batch;
    char          path[4096];       /* for messages */
};

static int db_err(const struct catalog *c, int rc, const char *what, struct err *err)
{
    int code = ERR_SYS;
    switch (rc & 0xff) {
    case SQLITE_CORRUPT: case SQLITE_NOTADB: case SQLITE_FORMAT: code = ERR_CORRUPT; break;
    case SQLITE_BUSY: case SQLITE_LOCKED: code = ERR_BUSY; break;
    case SQLITE_PERM: case SQLITE_READONLY: case SQLITE_AUTH: code = ERR_DENIED; break;
    case SQLITE_NOMEM: case SQLITE_TOOBIG: case SQLITE_FULL: code = ERR_LIMIT; break;
    case SQLITE_MISUSE: code = ERR_INTERNAL; break;
    default: break;
    }
    return err_set(err, code, "catalog %s: %s: %s", c->path, what, c->db != NULL ? sqlite3_errmsg(c->db) : sqlite3_errstr(rc));
}

/* The kept statement, ready for binding. Prepared at its first use. */
static int stmt_get(struct catalog *c, sqlite3_stmt **out, enum stmt which, struct err *err)
{
    if (c->stmt[which] == NULL) {
        int rc = sqlite3_prepare_v3(c->db, stmt_sql[which], -1, SQLITE_PREPARE_PERSISTENT, &c->stmt[which], NULL);
        if (rc != SQLITE_OK)
            return db_err(c, rc, "prepare", err);
    }
    *out = c->stmt[which];
    return 0;
}

/* A stepped statement holds a read transaction until it is reset: never leave a function without. */
static void own_stmt_done(sqlite3_stmt **s)
{
    if (*s != NULL) {
        sqlite3_reset(*s);
        sqlite3_clear_bindings(*s);
    }
}
#define own_stmt __attribute__((cleanup(own_stmt_done))) sqlite3_stmt

static int run(struct catalog *c, enum stmt which, struct err *err)
{
    own_stmt *s = NULL;
    int rc = stmt_get(c, &s, which, err);
    if (rc < 0)
        return rc;
    rc = sqlite3_step(s);
    return rc == SQLITE_DONE ? 0 : db_err(c, rc, stmt_sql[which], err);
}

static int pragma_u32(struct catalog *c, uint32_t *out, const char *sql, struct err *err)
{
    sqlite3_stmt *s = NULL;
    int rc = sqlite3_prepare_v2(c->db, sql, -1, &s, NULL);
    if (rc == SQLITE_OK && (rc = sqlite3_step(s)) == SQLITE_ROW) {
        *out = (uint32_t)sqlite3_column_int64(s, 0);
        rc = SQLITE_OK;
    }
    rc = rc == SQLITE_OK ? 0 : db_err(c, rc, "open", err);
    sqlite3_finalize(s);
    return rc;
}

static int create_schema(struct catalog *c, struct err *err)
{
    char sql[128];
    snprintf(sql, sizeof sql, "PRAGMA application_id=%d; PRAGMA user_version=%d;", CATALOG_APPLICATION_ID, CATALOG_VERSION);
    int rc;
    if ((rc = sqlite3_exec(c->db, "PRAGMA journal_mode=WAL; BEGIN IMMEDIATE;", NULL, NULL, NULL)) != SQLITE_OK
        || (rc = sqlite3_exec(c->db, schema, NULL, NULL, NULL)) != SQLITE_OK
        || (rc = sqlite3_exec(c->db, sql, NULL, NULL, NULL)) != SQLITE_OK
        || (rc = sqlite3_exec(c->db, "COMMIT", NULL, NULL, NULL)) != SQLITE_OK)
        return db_err(c, rc, "create", err);
    return 0;
}

static int from_version_1(struct catalog *c, struct err *err)
{
    int rc = sqlite3_exec(c->db, "BEGIN IMMEDIATE; ALTER TABLE tasks ADD COLUMN profile TEXT NOT NULL DEFAULT 'strict';"
                          "PRAGMA user_version=2; COMMIT;", NULL, NULL, NULL);
    return rc == SQLITE_OK ? 0 : db_err(c, rc, "bring to version 2", err);
}

int catalog_open(struct catalog **out, const char *store_dir, bool writable, struct err *err)
{
    struct catalog *c = calloc(1, sizeof *c);
    if (c == NULL)
        return err_set(err, ERR_LIMIT, "catalog %s: out of memory", store_dir);
    c->writable = writable;
    int n = snprintf(c->path, sizeof c->path, "%s/catalog.db", store_dir);
    int rc = 0;
    struct stat st;
    if (n < 0 || (size_t)n >= sizeof c->path)
        rc = err_set(err, ERR_USAGE, "store directory name is too long");
    else if (!writable && stat(c->path, &st) != 0)
        rc = err_sys(err, ERR_NOT_FOUND, "catalog %s; import tasks first", c->path);
    else if (writable && mkdir(store_dir, 0755) != 0 && stat(store_dir, &st) != 0)
        rc = err_sys(err, ERR_SYS, "store directory %s", store_dir);
    if (rc < 0) {
        catalog_close(c);
        return rc;
    }
    int flags = SQLITE_OPEN_NOMUTEX | (writable ? SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE : SQLITE_OPEN_READONLY);
    rc = sqlite3_open_v2(c->path, &c->db, flags, NULL);
    if (rc != SQLITE_OK) {
        rc = db_err(c, rc, "open", err);
        catalog_close(c);
        return rc;
    }
    sqlite3_busy_timeout(c->db, BUSY_MS);
    sqlite3_extended_result_codes(c->db, 1);
    int on = 1;
    if (writable)
        (void)sqlite3_file_control(c->db, "main", SQLITE_FCNTL_PERSIST_WAL, &on);
    uint32_t app = 0, version = 0;
    if ((rc = pragma_u32(c, &app, "PRAGMA application_id", err)) == 0
        && (rc = pragma_u32(c, &version, "PRAGMA user_version", err)) == 0) {
        if (writable && app == 0 && version == 0)
            rc = create_schema(c, err);
        else if (app != CATALOG_APPLICATION_ID)
            rc = err_set(err, ERR_CORRUPT, "catalog %s: not a catalog of ours (application id %08x)", c->path, app);
        else if (writable && version == 1)
            rc = from_version_1(c, err);
        else if (version != CATALOG_VERSION)
            rc = err_set(err, ERR_UNSUPPORTED, "catalog %s: version %u, this build reads %d", c->path, version, CATALOG_VERSION);
    }
    if (rc == 0 && writable && sqlite3_exec(c->db, "PRAGMA synchronous=NORMAL", NULL, NULL, NULL) != SQLITE_OK)
        rc = db_err(c, sqlite3_errcode(c->db), "open", err);
    if (rc == 0)                        /* inner pages of the id index stay; of a million tasks they are some 10 MiB */
        rc = sqlite3_exec(c->db, "PRAGMA cache_size=-32768", NULL, NULL, NULL) == SQLITE_OK ? 0
            : db_err(c, sqlite3_errcode(c->db), "open", err);
    if (rc == 0)                        /* one look at the rows' root page: a torn file is told now */
        rc = (sqlite3_exec(c->db, "SELECT id FROM tasks LIMIT 1", NULL, NULL, NULL) == SQLITE_OK)
            ? 0 : db_err(c, sqlite3_errcode(c->db), "open", err);
    if (rc < 0) {
        catalog_close(c);
        return rc;
    }
    *out = c;
    return 0;
}

void catalog_close(struct catalog *c)
{
    if (c == NULL)
        return;
    for (int i = 0; i < STMT_N; i++)
        sqlite3_finalize(c->stmt[i]);
    sqlite3_close(c->db);               /* an open batch is rolled back */
    free(c);
}

int catalog_begin(struct catalog *c, struct err *err)
{
    if (c->in_batch)
        return err_set(err, ERR_INTERNAL, "catalog %s: a batch is open already", c->path);
    int rc = run(c, STMT_BEGIN, err);
    c->in_batch = rc == 0;
    return rc;
}

int catalog_commit(struct catalog *c, struct err *err)
{
    if (!c->in_batch)
        return err_set(err, ERR_INTERNAL, "catalog %s: no batch is open", c->path);
    int rc = run(c, STMT_COMMIT, err);
    struct err dropped = { 0 };
    if (rc < 0 && run(c, STMT_ROLLBACK, &dropped) < 0)
        err_in(err, "%s", dropped.msg);
    c->in_batch = false;
    return rc;
}

static void digest_add_list(struct digest_ctx *d, const struct str_list *l)
{
    digest_add_u64(d, l->count);
    for (uint32_t i = 0; i < l->count; i++)
        digest_add_str(d, l->items[i]);
}

/* Every field of the record: two records are equal exactly if these are. */
static void record_digest(struct digest *out, const struct task *t)
{
    struct digest_ctx d;
    digest_start(&d);
    const char *const texts[] = { t->id, t->repo, t->base_commit, t->problem_statement, t->patch, t->test_patch, t->test_cmd,
                                  t->reader, t->environment, t->split, t->extra_json, t->base_tree };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        digest_add_str(&d, texts[i] != NULL ? texts[i] : "");
    digest_add_list(&d, &t->fail_to_pass);
    digest_add_list(&d, &t->pass_to_pass);
    digest_add(&d, &t->timeout_s, sizeof t->timeout_s);
    digest_add_u64(&d, t->memory_mb);
    digest_add(&d, t->snapshot.bytes, sizeof t->snapshot.bytes);
    if (strcmp(t->profile, "strict") != 0)      /* version 1 knew no other */
        digest_add_str(&d, t->profile);
    digest_finish(&d, out);
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

static bool bind_text(sqlite3_stmt *s, enum col col, const char *text, size_t n)
{
    return sqlite3_bind_text64(s, (int)col + 1, text != NULL ? text : "", text != NULL ? n : 0, SQLITE_STATIC,
                               SQLITE_UTF8) == SQLITE_OK;
}

static bool bind_blob(sqlite3_stmt *s, enum col col, const struct digest *d)
{
    return sqlite3_bind_blob(s, (int)col + 1, d->bytes, sizeof d->bytes, SQLITE_STATIC) == SQLITE_OK;
}

static int put_row(struct catalog *c, const struct task *t, const struct digest *record, struct err *err)
{
    own_buf f2p = { 0 }, p2p = { 0 };
    own_stmt *s = NULL;
    int rc;
    if ((rc = list_text(&f2p, &t->fail_to_pass, err)) < 0 || (rc = list_text(&p2p, &t->pass_to_pass, err)) < 0
        || (rc = stmt_get(c, &s, STMT_PUT, err)) < 0)
        return rc;
    const struct { enum col col; const char *text; } texts[] = {
        { COL_ID, t->id }, { COL_REPO, t->repo }, { COL_BASE_COMMIT, t->base_commit }, { COL_TEST_CMD, t->test_cmd },
        { COL_READER, t->reader }, { COL_ENVIRONMENT, t->environment }, { COL_SPLIT, t->split }, { COL_BASE_TREE, t->base_tree },
        { COL_EXTRA, t->extra_json }, { COL_PROFILE, t->profile },
        { COL_PROBLEM, t->problem_statement }, { COL_PATCH, t->patch },
            { COL_TEST_PATCH, t->test_patch },
    };
    bool bound = true;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        bound = bound && bind_text(s, texts[i].col, texts[i].text, texts[i].text != NULL ? strlen(texts[i].text) : 0);
    bound = bound && bind_text(s, COL_FAIL_TO_PASS, (const char *)f2p.data, f2p.len)
        && bind_text(s, COL_PASS_TO_PASS, (const char *)p2p.data, p2p.len)
        && sqlite3_bind_double(s, COL_TIMEOUT_S + 1, t->timeout_s) == SQLITE_OK
        && sqlite3_bind_int64(s, COL_MEMORY_MB + 1, (sqlite3_int64)t->memory_mb) == SQLITE_OK
        && bind_blob(s, COL_SNAPSHOT, &t->snapshot) && bind_blob(s, COL_DEFINITION, &t->definition)
        && bind_blob(s, COL_RECORD, record);
    if (!bound)
        return db_err(c, sqlite3_errcode(c->db), "put", err);
    rc = sqlite3_step(s);
    return rc == SQLITE_DONE ? 0 : db_err(c, rc, "put", err);
}

static bool same_digest(sqlite3_stmt *s, int col, const struct digest *d)
{
    const void *p = sqlite3_column_blob(s, col);
    return p != NULL && sqlite3_column_bytes(s, col) == (int)sizeof d->bytes && memcmp(p, d->bytes, sizeof d->bytes) == 0;
}

int catalog_put(struct catalog *c, const struct task *t, enum catalog_put *out, struct err *err)
{
    struct digest record;
    record_digest(&record, t);
    enum catalog_put what = CATALOG_ADDED;
    {
        own_stmt *s = NULL;
        int rc = stmt_get(c, &s, STMT_RECORD, err);
        if (rc < 0)
            return rc;
        if (!bind_text(s, COL_ID, t->id, strlen(t->id)))
            return db_err(c, sqlite3_errcode(c->db), "put", err);
        rc = sqlite3_step(s);
        if (rc == SQLITE_ROW)
            what = same_digest(s, 0, &t->definition) && same_digest(s, 1, &record) ? CATALOG_UNCHANGED : CATALOG_REPLACED;
        else if (rc != SQLITE_DONE)
            return db_err(c, rc, "put", err);
    }
    if (what != CATALOG_UNCHANGED) {
        int rc = put_row(c, t, &record, err);
        if (rc < 0)
            return rc;
    }
    *out = what;
    return 0;
}

struct row_reading { sqlite3_stmt *s; struct arena *a; bool lost; };

static const char *row_text(struct row_reading *r, enum col col)
{
    const char *s = (const char *)sqlite3_column_text(r->s, (int)col);
    char *copy = arena_strndup(r->a, s != NULL ? s : "", s != NULL ? (size_t)sqlite3_column_bytes(r->s, (int)col) : 0);
    r->lost = r->lost || copy == NULL;
    return copy;
}

static int row_read(struct catalog *c, struct task *out, struct arena *a, sqlite3_stmt *s, bool whole, struct err *err)
{
    struct row_reading r = { .s = s, .a = a };
    struct task t = {
        .id = row_text(&r, COL_ID), .repo = row_text(&r, COL_REPO), .base_commit = row_text(&r, COL_BASE_COMMIT),
        .problem_statement = whole ? row_text(&r, COL_PROBLEM) : "", .patch = whole ? row_text(&r, COL_PATCH) : "",
        .test_patch = whole ? row_text(&r, COL_TEST_PATCH) : "", .test_cmd = row_text(&r, COL_TEST_CMD),
        .reader = row_text(&r, COL_READER), .environment = row_text(&r, COL_ENVIRONMENT), .split = row_text(&r, COL_SPLIT),
        .timeout_s = sqlite3_column_double(s, COL_TIMEOUT_S), .memory_mb = (uint64_t)sqlite3_column_int64(s, COL_MEMORY_MB),
        .extra_json = row_text(&r, COL_EXTRA), .profile = row_text(&r, COL_PROFILE),
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
        int rc = stmt_get(c, &s, sides[i], err);
        if (rc < 0)
            return rc;
        if (!bind_text(s, COL_ID, id, strlen(id)))
            return db_err(c, sqlite3_errcode(c->db), "get", err);
        while ((rc = sqlite3_step(s)) == SQLITE_ROW) {
            const char *other = (const char *)sqlite3_column_text(s, 0);
            unsigned d = other != NULL ? id_distance(id, other) : UINT32_MAX;
            if (d < best_distance) {
                best_distance = d;
                err_quote(best, sizeof best, other, strlen(other));
            }
        }
        if (rc != SQLITE_DONE)
            return db_err(c, rc, "get", err);
    }
    err_quote(quoted, sizeof quoted, id, strlen(id));
    if (best_distance <= 2 + strlen(id) / 4)
        return err_set(err, ERR_NOT_FOUND, "task %s is not in the catalog; did you mean %s?", quoted, best);
    return err_set(err, ERR_NOT_FOUND, "task %s is not in the catalog", quoted);
}

int catalog_get(struct catalog *c, struct task *out, struct arena *a, const char *id, struct err *err)
{
    own_stmt *s = NULL;
    int rc = stmt_get(c, &s, STMT_GET, err);
    if (rc < 0)
        return rc;
    if (!bind_text(s, COL_ID, id, strlen(id)))
        return db_err(c, sqlite3_errcode(c->db), "get", err);
    rc = sqlite3_step(s);
    if (rc == SQLITE_DONE)
        return not_found(c, id, err);
    if (rc != SQLITE_ROW)
        return db_err(c, rc, "get", err);
    return row_read(c, out, a, s, true, err);
}

int catalog_list(struct catalog *c, struct task **out, uint32_t *out_count, const char **out_next, struct arena *a,
                 const char *after, const char *repo, const char *prefix, uint32_t limit, struct err *err)
{
    own_stmt *s = NULL;
    int rc = stmt_get(c, &s, repo[0] != '\0' ? STMT_LIST_REPO : STMT_LIST, err);
    if (rc < 0)
        return rc;
    struct task *tasks = arena_alloc(a, sizeof *tasks * ((size_t)limit + 1));
    if (tasks == NULL)
        return err_set(err, ERR_LIMIT, "catalog: a page of %u tasks does not fit the memory budget", limit);
    if (!bind_text(s, 0, after, strlen(after)) || !bind_text(s, 1, prefix, strlen(prefix))
        || (repo[0] != '\0' && !bind_text(s, 2, repo, strlen(repo))))
        return db_err(c, sqlite3_errcode(c->db), "list", err);
    uint32_t count = 0;
    const char *next = "";
    size_t used = a->used, prefix_len = strlen(prefix);
    while ((rc = sqlite3_step(s)) == SQLITE_ROW) {
        const char *id = (const char *)sqlite3_column_text(s, COL_ID);
        if (id == NULL || strncmp(id, prefix, prefix_len) != 0)
            break;                      /* ids are in order: none with the prefix can follow */
        if (count == limit || a->used - used > LIST_BYTES_MAX) {
            next = count > 0 ? tasks[count - 1].id : "";
            break;
        }
        if ((rc = row_read(c, &tasks[count], a, s, false, err)) < 0)
            return rc;
        count++;
    }
    if (rc != SQLITE_ROW && rc != SQLITE_DONE)
        return db_err(c, rc, "list", err);
    *out = tasks;
    *out_count = count;
    *out_next = next;
    return 0;
}

int catalog_count(struct catalog *c, uint64_t *out, struct err *err)
{
    own_stmt *s = NULL;
    int rc = stmt_get(c, &s, STMT_COUNT, err);
    if (rc < 0)
        return rc;
    rc = sqlite3_step(s);
    if (rc != SQLITE_ROW)
        return db_err(c, rc, "count", err);
    *out = (uint64_t)sqlite3_column_int64(s, 0);
    return 0;
}
