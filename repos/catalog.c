/*
 * catalog.c - a million tasks in one SQLite file: its tables, every statement, opening and migration.
 *
 * WAL: one writer (import), any number of readers that see each committed batch at their next statement.
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
    return err_set(err, sql_code(rc), "catalog %s: %s: %s", c->path, what, c->db != NULL ? sqlite3_errmsg(c->db) : sqlite3_errstr(rc));
}

/* The kept statement, ready for binding. Prepared at its first use. */
int catalog_stmt(struct catalog *c, sqlite3_stmt **out, enum stmt which, struct err *err)
{
    int rc = sql_prepare(c->db, &c->stmt[which], catalog_sql[which]);
    if (rc != SQLITE_OK)
        return catalog_db_err(c, rc, "prepare", err);
    *out = c->stmt[which];
    return 0;
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
            rc = catalog_put_row(c, &t, err);
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

void catalog_rollback(struct catalog *c)
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
