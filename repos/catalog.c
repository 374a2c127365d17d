/*
 * catalog.c - a million tasks in one SQLite file: opening, migration, writing and look-up by id.
 *
 * WAL: one writer (import), any number of readers that see each committed batch at their next statement.
 *
 * What the text index (FTS5, `search`) costs is several times what a row costs, so it follows behind: rows above the mark in
 * `indexed` are not in it yet, catalog_index() takes them in, and a replaced row below the mark is exchanged at once.
 *
 * The -wal and -shm files are left in place when the writer closes (SQLITE_FCNTL_PERSIST_WAL): a
 * reader without the right to create files in the store could not open the catalog otherwise.
 */
#include "repos/catalog.h"
#include "base/own.h"
#include <string.h>
#include <sys/stat.h>

#define CATALOG_APPLICATION_ID 0x41535359   /* "ASSY" */
#define CATALOG_VERSION 3           /* 1 had no profiles; 2 no states, languages, twins and text index */
#define BUSY_MS         10000               /* an import commits in batches; a reader waits for none of them */
#define INDEX_ROWS      5000                /* in one transaction of catalog_index(): some 10 MiB of text */

/*
 * By id, or by row: that is the order in which tasks came in. A walk over state, split or language is by row (it ends every
 * index), as a new task is then the last of its kind and costs next to nothing.
 */
static const char schema[] =
    "CREATE TABLE tasks(row INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, repo TEXT NOT NULL, base_commit TEXT NOT NULL,"
    " test_cmd TEXT NOT NULL, reader TEXT NOT NULL, environment TEXT NOT NULL, split TEXT NOT NULL, timeout_s REAL NOT NULL,"
    " memory_mb INTEGER NOT NULL, base_tree TEXT NOT NULL, snapshot BLOB NOT NULL, definition BLOB NOT NULL, record BLOB NOT NULL,"
    " twin TEXT NOT NULL, state TEXT NOT NULL, language TEXT NOT NULL,"
    " fail_to_pass TEXT NOT NULL, pass_to_pass TEXT NOT NULL, extra TEXT NOT NULL, profile TEXT NOT NULL,"
    " problem_statement TEXT NOT NULL, patch TEXT NOT NULL, test_patch TEXT NOT NULL);"
    "CREATE INDEX tasks_by_repo ON tasks(repo, id);"
    "CREATE INDEX tasks_by_state ON tasks(state);"
    "CREATE INDEX tasks_by_split ON tasks(split);"
    "CREATE INDEX tasks_by_language ON tasks(language);"
    /*
     * Words in any order, no ranking: detail=none is a third of the size. A twin's digest is a word too: keys without any order cost
     * a tree a page each, and this index, which is written in sorted runs, next to nothing.
     */
    "CREATE VIRTUAL TABLE search USING fts5(id, repo, problem_statement, twin, content='tasks', content_rowid='row',"
    " tokenize='ascii', detail=none, columnsize=0);"
    "CREATE VIRTUAL TABLE words USING fts5vocab('search', 'row');"
    "CREATE TABLE indexed(row INTEGER NOT NULL); INSERT INTO indexed VALUES(0);";

/* Rows of an older version, as `older`, with what they lack: one line a version. */
static const char *const older_rows[CATALOG_VERSION] = {
    [1] = "SELECT id,repo,base_commit,test_cmd,reader,environment,split,timeout_s,memory_mb,base_tree,snapshot,definition,"
          "fail_to_pass,pass_to_pass,extra,'strict','imported',''," LONG_COLS " FROM older ORDER BY rowid",
    [2] = "SELECT " SHORT_COLS ",'imported',''," LONG_COLS " FROM older ORDER BY rowid",
};

#define WORD_COLS "id,repo,problem_statement,twin"
#define WALK "SELECT row,state,split,language FROM tasks INDEXED BY "
const char *const catalog_sql[STMT_N] = {
    [STMT_GET]       = "SELECT " SHORT_COLS ",state,language," LONG_COLS " FROM tasks WHERE id=?1",
    [STMT_ROW]       = "SELECT " SHORT_COLS ",state,language FROM tasks WHERE row=?1",
    [STMT_RECORD]    = "SELECT definition,record,row FROM tasks WHERE id=?1",
    [STMT_PUT]       = "INSERT INTO tasks(" SHORT_COLS ",state,language," LONG_COLS ",record,twin)"
                       " VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14,?15,?16,?17,?18,?19,?20,?21,?22,?23)"
                       " ON CONFLICT(id) DO UPDATE SET repo=excluded.repo,base_commit=excluded.base_commit,"
                       "test_cmd=excluded.test_cmd,reader=excluded.reader,environment=excluded.environment,split=excluded.split,"
                       "timeout_s=excluded.timeout_s,memory_mb=excluded.memory_mb,base_tree=excluded.base_tree,"
                       "snapshot=excluded.snapshot,definition=excluded.definition,record=excluded.record,"
                       "fail_to_pass=excluded.fail_to_pass,pass_to_pass=excluded.pass_to_pass,extra=excluded.extra,"
                       "profile=excluded.profile,problem_statement=excluded.problem_statement,patch=excluded.patch,"
                       "test_patch=excluded.test_patch,twin=excluded.twin,language=excluded.language,"
                       /* what was found out about a task holds as long as its definition */
                       "state=CASE WHEN definition=excluded.definition THEN state ELSE excluded.state END",
    [STMT_SET_STATE]    = "UPDATE tasks SET state=?2 WHERE id=?1",
    [STMT_SET_LANGUAGE] = "UPDATE tasks SET language=?2 WHERE id=?1",
    [STMT_ROW_OF]    = "SELECT row FROM tasks WHERE id=?1",
    [STMT_BY_ID]     = "SELECT row,state,split,language FROM tasks WHERE id>=?1 AND id<?2 ORDER BY id",
    [STMT_BY_REPO]   = WALK "tasks_by_repo WHERE repo=?3 AND id>=?1 AND id<?2 ORDER BY id",
    [STMT_BY_STATE]  = WALK "tasks_by_state WHERE state=?3 AND row>?1 ORDER BY row",
    [STMT_BY_SPLIT]  = WALK "tasks_by_split WHERE split=?3 AND row>?1 ORDER BY row",
    [STMT_BY_LANGUAGE] = WALK "tasks_by_language WHERE language=?3 AND row>?1 ORDER BY row",
    [STMT_BY_TEXT]   = "SELECT row,state,split,language FROM search CROSS JOIN tasks ON row=search.rowid"
                       " WHERE search MATCH ?3 AND search.rowid>?1 ORDER BY search.rowid",
    [STMT_TWIN_ROWS] = "SELECT rowid FROM search WHERE search MATCH ?1 ORDER BY rowid",
    [STMT_TWINS]     = "SELECT term,doc FROM words WHERE term>?1 AND term<'" TWIN_END "' ORDER BY term",
    [STMT_AFTER]     = "SELECT id FROM tasks WHERE id>?1 ORDER BY id LIMIT 64",
    [STMT_BEFORE]    = "SELECT id FROM tasks WHERE id<?1 ORDER BY id DESC LIMIT 64",
    [STMT_INDEXED]   = "SELECT row FROM indexed WHERE rowid=1",
    [STMT_LAST]      = "SELECT max(row) FROM tasks",
    [STMT_INDEX_ROWS] = "INSERT INTO search(rowid," WORD_COLS ") SELECT row," WORD_COLS " FROM tasks WHERE row>?1 AND row<=?2",
    [STMT_INDEX_MARK] = "UPDATE indexed SET row=?1 WHERE rowid=1",
    [STMT_INDEX_DROP] = "INSERT INTO search(search,rowid," WORD_COLS ") SELECT 'delete',row," WORD_COLS " FROM tasks WHERE row=?1",
    [STMT_INDEX_ADD] = "INSERT INTO search(rowid," WORD_COLS ") SELECT row," WORD_COLS " FROM tasks WHERE row=?1",
    [STMT_BEGIN]     = "BEGIN IMMEDIATE",
    [STMT_COMMIT]    = "COMMIT",
    [STMT_ROLLBACK]  = "ROLLBACK",
};

int catalog_db_err(const struct catalog *c, int rc, const char *what, struct err *err)
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
int catalog_stmt(struct catalog *c, sqlite3_stmt **out, enum stmt which, struct err *err)
{
    if (c->stmt[which] == NULL) {
        int rc = sqlite3_prepare_v3(c->db, catalog_sql[which], -1, SQLITE_PREPARE_PERSISTENT, &c->stmt[which], NULL);
        if (rc != SQLITE_OK)
            return catalog_db_err(c, rc, "prepare", err);
    }
    *out = c->stmt[which];
    return 0;
}

void catalog_stmt_done(sqlite3_stmt **s)
{
    if (*s != NULL) {
        sqlite3_reset(*s);
        sqlite3_clear_bindings(*s);
    }
}

static int run(struct catalog *c, enum stmt which, struct err *err)
{
    own_stmt *s = NULL;
    int rc = catalog_stmt(c, &s, which, err);
    if (rc < 0)
        return rc;
    rc = sqlite3_step(s);
    return rc == SQLITE_DONE ? 0 : catalog_db_err(c, rc, catalog_sql[which], err);
}

static int exec(struct catalog *c, const char *sql, const char *what, struct err *err)
{
    int rc = sqlite3_exec(c->db, sql, NULL, NULL, NULL);
    return rc == SQLITE_OK ? 0 : catalog_db_err(c, rc, what, err);
}

static int pragma_u32(struct catalog *c, uint32_t *out, const char *sql, struct err *err)
{
    sqlite3_stmt *s = NULL;
    int rc = sqlite3_prepare_v2(c->db, sql, -1, &s, NULL);
    if (rc == SQLITE_OK && (rc = sqlite3_step(s)) == SQLITE_ROW) {
        *out = (uint32_t)sqlite3_column_int64(s, 0);
        rc = SQLITE_OK;
    }
    rc = rc == SQLITE_OK ? 0 : catalog_db_err(c, rc, "open", err);
    sqlite3_finalize(s);
    return rc;
}

static int put_row(struct catalog *c, const struct task *t, struct err *err);

/* Every row of an older catalog goes through the present code into a new table, in the caller's transaction. */
static int copy_older(struct catalog *c, uint32_t version, struct err *err)
{
    int rc = exec(c, "DROP INDEX tasks_by_repo; ALTER TABLE tasks RENAME TO older", "migrate", err);
    if (rc == 0)
        rc = exec(c, schema, "migrate", err);
    sqlite3_stmt *from = NULL;
    int step = SQLITE_DONE;
    if (rc == 0 && (step = sqlite3_prepare_v2(c->db, older_rows[version], -1, &from, NULL)) != SQLITE_OK)
        rc = catalog_db_err(c, step, "migrate", err);
    while (rc == 0 && (step = sqlite3_step(from)) == SQLITE_ROW) {
        own_arena a = { 0 };
        struct task t;
        rc = catalog_row_read(c, &t, &a, from, true, err);
        if (rc == 0 && (rc = task_language(&t, &a, err)) == 0)
            rc = put_row(c, &t, err);
    }
    if (rc == 0 && step != SQLITE_DONE)
        rc = catalog_db_err(c, step, "migrate", err);
    sqlite3_finalize(from);
    return rc < 0 ? rc : exec(c, "DROP TABLE older", "migrate", err);
}

static int read_version(struct catalog *c, uint32_t *out, struct err *err)
{
    uint32_t app = 0;
    int rc = pragma_u32(c, &app, "PRAGMA application_id", err);
    if (rc == 0)
        rc = pragma_u32(c, out, "PRAGMA user_version", err);
    if (rc < 0)
        return rc;
    if (app != CATALOG_APPLICATION_ID && (app != 0 || *out != 0 || !c->writable))
        return err_set(err, ERR_CORRUPT, "catalog %s: not a catalog of ours (application id %08x)", c->path, app);
    if (*out > CATALOG_VERSION)
        return err_set(err, ERR_UNSUPPORTED, "catalog %s: version %u is newer than version %d, the last that this build knows; "
                       "use the build that made it, or a later one", c->path, *out, CATALOG_VERSION);
    return 0;
}

/* Make a new file a catalog, or an older catalog one of ours: wholly or not at all. */
static int bring_up(struct catalog *c, struct err *err)
{
    uint32_t version;
    char sql[128];
    int rc = catalog_begin(c, err);
    if (rc < 0)
        return rc;
    rc = read_version(c, &version, err);        /* another may have been faster */
    if (rc == 0 && version == 0)
        rc = exec(c, schema, "create", err);
    else if (rc == 0 && version < CATALOG_VERSION)
        rc = copy_older(c, version, err);
    snprintf(sql, sizeof sql, "PRAGMA application_id=%d; PRAGMA user_version=%d;", CATALOG_APPLICATION_ID, CATALOG_VERSION);
    if (rc == 0)
        rc = exec(c, sql, "create", err);
    return rc == 0 ? catalog_commit(c, err) : rc;       /* else closing takes it all back */
}

static int open_file(struct catalog *c, const char *store_dir, struct err *err)
{
    int n = snprintf(c->path, sizeof c->path, "%s/catalog.db", store_dir);
    struct stat st;
    if (n < 0 || (size_t)n >= sizeof c->path)
        return err_set(err, ERR_USAGE, "store directory name is too long");
    if (!c->writable && stat(c->path, &st) != 0)
        return err_sys(err, ERR_NOT_FOUND, "catalog %s; import tasks first", c->path);
    if (c->writable && mkdir(store_dir, 0755) != 0 && stat(store_dir, &st) != 0)
        return err_sys(err, ERR_SYS, "store directory %s", store_dir);
    int flags = SQLITE_OPEN_NOMUTEX | (c->writable ? SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE : SQLITE_OPEN_READONLY);
    int rc = sqlite3_open_v2(c->path, &c->db, flags, NULL);
    if (rc != SQLITE_OK)
        return catalog_db_err(c, rc, "open", err);
    sqlite3_busy_timeout(c->db, BUSY_MS);
    sqlite3_extended_result_codes(c->db, 1);
    int on = 1;
    if (c->writable)
        (void)sqlite3_file_control(c->db, "main", SQLITE_FCNTL_PERSIST_WAL, &on);
    /*
     * A writer may keep a large batch whole, so that a page of an index which many of its rows touch is written once; a reader
     * keeps little more than inner pages. The rest is the system's to keep, and our memory is the same for a thousand tasks and
     * for a million.
     */
    return exec(c, c->writable ? "PRAGMA cache_size=-262144; PRAGMA secure_delete=0" : "PRAGMA cache_size=-8192", "open", err);
}

static int open_catalog(struct catalog *c, const char *store_dir, struct err *err)
{
    uint32_t version = 0;
    int rc = open_file(c, store_dir, err);
    if (rc == 0)
        rc = read_version(c, &version, err);
    if (rc == 0 && version != CATALOG_VERSION && !c->writable)
        return err_set(err, ERR_UNSUPPORTED, "catalog %s: version %u, this build reads %d; start assayd on it once, or import into "
                       "it: either brings it up to date", c->path, version, CATALOG_VERSION);
    if (rc == 0 && version == 0)
        rc = exec(c, "PRAGMA page_size=4096; PRAGMA journal_mode=WAL", "create", err);
    if (rc == 0 && c->writable)
        rc = exec(c, "PRAGMA synchronous=NORMAL; PRAGMA wal_autocheckpoint=8192", "open", err);    /* 32 MiB a sync */
    if (rc == 0 && version != CATALOG_VERSION)
        rc = bring_up(c, err);
    if (rc == 0)                        /* one look at the rows' root page: a torn file is told now */
        rc = exec(c, "SELECT id FROM tasks LIMIT 1", "open", err);
    return rc;
}

int catalog_open(struct catalog **out, const char *store_dir, bool writable, struct err *err)
{
    struct catalog *c = calloc(1, sizeof *c);
    if (c == NULL)
        return err_set(err, ERR_LIMIT, "catalog %s: out of memory", store_dir);
    c->writable = writable;
    int rc = open_catalog(c, store_dir, err);
    if (rc < 0)
        catalog_close(c);
    else
        *out = c;
    return rc;
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

static void catalog_rollback(struct catalog *c)
{
    struct err dropped = { 0 };         /* the fault that led here is told */
    (void)(run(c, STMT_ROLLBACK, &dropped) < 0);
    c->in_batch = false;
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

static int put_row(struct catalog *c, const struct task *t, struct err *err)
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
        rc = put_row(c, t, err);
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
    int64_t from, last;
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
