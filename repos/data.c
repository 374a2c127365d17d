/* data.c - see data.h. */
#include "repos/data.h"
#include "base/fault.h"
#include "base/own.h"
#include "repos/sql.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#define INDEX_VERSION  1
#define BUSY_MS        60000        /* for commits of others, and for their readers */
#define COPY_BYTES     ((size_t)1 << 20)

/* The block is the rowid: the last content, and contents in the order of the file, cost no index. */
static const char schema[] =
    "BEGIN IMMEDIATE;"
    "CREATE TABLE IF NOT EXISTS contents(block INTEGER PRIMARY KEY, size INTEGER NOT NULL, digest BLOB NOT NULL UNIQUE);"
    "CREATE TABLE IF NOT EXISTS aliases(alias BLOB PRIMARY KEY, block INTEGER NOT NULL, size INTEGER NOT NULL) WITHOUT ROWID;"
    "PRAGMA application_id=1095979844;"         /* "ASSD" */
    "PRAGMA user_version=1;"
    "COMMIT";

enum stmt { STMT_FIND, STMT_ALIAS, STMT_PUT, STMT_PUT_ALIAS, STMT_LAST, STMT_NEXT, STMT_VERSION, STMT_BEGIN, STMT_COMMIT,
            STMT_ROLLBACK, STMT_N };
static const char *const stmt_sql[STMT_N] = {
    [STMT_FIND]      = "SELECT block,size FROM contents WHERE digest=?1",
    [STMT_ALIAS]     = "SELECT block,size FROM aliases WHERE alias=?1",
    [STMT_PUT]       = "INSERT INTO contents(digest,block,size) VALUES(?1,?2,?3)",
    [STMT_PUT_ALIAS] = "INSERT INTO aliases(alias,block,size) VALUES(?1,?2,?3) ON CONFLICT(alias) DO NOTHING",
    [STMT_LAST]      = "SELECT block,size FROM contents ORDER BY block DESC LIMIT 1",
    [STMT_NEXT]      = "SELECT block,size,digest FROM contents WHERE block>=?1 ORDER BY block LIMIT 1",
    [STMT_VERSION]   = "PRAGMA user_version",
    [STMT_BEGIN]     = "BEGIN IMMEDIATE",
    [STMT_COMMIT]    = "COMMIT",
    [STMT_ROLLBACK]  = "ROLLBACK",
};

struct data {
    sqlite3      *db;
    sqlite3_stmt *stmt[STMT_N];
    int           fd;
    uint64_t      begin, end;       /* in a batch: where its contents begin, and where the next one goes */
    bool          in_batch, failed;
    const char   *name;             /* in path */
    char          path[PATH_MAX];
};

static int db_err(const struct data *d, int rc, const char *what, struct err *err)
{
    return err_set(err, sql_code(rc), "data %s: index: %s: %s", d->name, what, sqlite3_errmsg(d->db));
}

static int stmt_get(struct data *d, sqlite3_stmt **out, enum stmt which, struct err *err)
{
    int rc = sql_prepare(d->db, &d->stmt[which], stmt_sql[which]);
    if (rc != SQLITE_OK)
        return db_err(d, rc, "prepare", err);
    *out = d->stmt[which];
    return 0;
}

static int run(struct data *d, enum stmt which, struct err *err)
{
    own_stmt *s = NULL;
    int rc = stmt_get(d, &s, which, err);
    if (rc < 0)
        return rc;
    rc = sqlite3_step(s);
    return rc == SQLITE_DONE ? 0 : db_err(d, rc, stmt_sql[which], err);
}

static uint64_t after(const struct data_place *p) { return p->offset + (p->size + DATA_BLOCK - 1) / DATA_BLOCK * DATA_BLOCK; }

/* The place in a row: block, size. A row that no writer of ours made is the index's fault, not a reason to read anywhere. */
static int row_place(const struct data *d, struct data_place *out, sqlite3_stmt *s, struct err *err)
{
    int64_t block = sqlite3_column_int64(s, 0), size = sqlite3_column_int64(s, 1);
    if (block < 0 || block > INT64_MAX / (2 * DATA_BLOCK) || size <= 0 || size > INT64_MAX / 2)
        return err_set(err, ERR_CORRUPT, "data %s: index: a content lies at block %lld with %lld bytes", d->name,
                       (long long)block, (long long)size);
    *out = (struct data_place){ .offset = (uint64_t)block * DATA_BLOCK, .size = (uint64_t)size };
    return 0;
}

static int find(struct data *d, struct data_place *out, enum stmt which, const void *key, size_t n, struct err *err)
{
    own_stmt *s = NULL;
    int rc = stmt_get(d, &s, which, err);
    if (rc < 0)
        return rc;
    if (key != NULL && (rc = sqlite3_bind_blob64(s, 1, key, n, SQLITE_STATIC)) != SQLITE_OK)
        return db_err(d, rc, "bind", err);
    rc = sqlite3_step(s);
    if (rc == SQLITE_DONE) {
        err->code = ERR_NOT_FOUND;
        return ERR_NOT_FOUND;
    }
    return rc == SQLITE_ROW ? row_place(d, out, s, err) : db_err(d, rc, stmt_sql[which], err);
}

int data_find(struct data *d, struct data_place *out, const struct digest *digest, struct err *err)
{
    return find(d, out, STMT_FIND, digest->bytes, sizeof digest->bytes, err);
}

int data_find_alias(struct data *d, struct data_place *out, const void *alias, size_t n, struct err *err)
{
    return find(d, out, STMT_ALIAS, alias, n, err);
}

/* --- open, close --- */

static bool name_is_fit(const char *name)
{
    static const char fit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    size_t n = strlen(name);
    return n > 0 && n <= DATA_NAME_MAX && name[0] != '.' && strspn(name, fit) == n;
}

static int index_version(struct data *d, int64_t *out, struct err *err)
{
    own_stmt *s = NULL;
    int rc = stmt_get(d, &s, STMT_VERSION, err);
    if (rc < 0)
        return rc;
    if ((rc = sqlite3_step(s)) != SQLITE_ROW)
        return db_err(d, rc, "read its version", err);
    *out = sqlite3_column_int64(s, 0);
    return 0;
}

static int index_open(struct data *d, const char *dir, bool writable, struct err *err)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/%s.index", dir, d->name) >= (int)sizeof path)
        return err_set(err, ERR_LIMIT, "data %s: its path is too long", d->name);
    int rc = sqlite3_open_v2(path, &d->db, (writable ? SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE : SQLITE_OPEN_READONLY)
                             | SQLITE_OPEN_NOMUTEX, NULL);
    if (rc != SQLITE_OK)
        return db_err(d, rc, "open", err);
    sqlite3_busy_timeout(d->db, BUSY_MS);
    /* Not WAL: one file beside the data and no other. Readers wait for a commit but not for a batch: nothing spills before it. */
    rc = sqlite3_exec(d->db, "PRAGMA synchronous=FULL; PRAGMA cache_spill=0;", NULL, NULL, NULL);
    int64_t version = 0;
    int found = rc == SQLITE_OK ? index_version(d, &version, err) : db_err(d, rc, "set up", err);
    if (found == 0 && version == 0 && writable) {
        rc = sqlite3_exec(d->db, schema, NULL, NULL, NULL);
        found = rc == SQLITE_OK ? index_version(d, &version, err) : db_err(d, rc, "set up", err);
    }
    if (found == 0 && version != INDEX_VERSION)
        found = err_set(err, ERR_UNSUPPORTED, "data %s: its index has version %lld; this program knows %d", d->name,
                        (long long)version, INDEX_VERSION);
    return found;
}

static int sync_dir(const char *dir, struct err *err)
{
    own_fd fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd >= 0 && fsync(fd) == 0 ? 0 : err_sys(err, ERR_SYS, "data: sync %s", dir);
}

/* Where the last content ends; the data file must reach as far. */
static int end_of(struct data *d, uint64_t *out, struct err *err)
{
    struct data_place last = { 0 };
    struct err none = { 0 };
    struct stat st;
    int rc = find(d, &last, STMT_LAST, NULL, 0, &none);
    if (rc < 0 && rc != ERR_NOT_FOUND) {
        *err = none;
        return rc;
    }
    if (fstat(d->fd, &st) != 0)
        return err_sys(err, ERR_SYS, "data %s", d->name);
    *out = after(&last);
    if ((uint64_t)st.st_size < *out)
        return err_set(err, ERR_CORRUPT, "data %s: has %lld bytes, its index tells of %llu; bring it back from a copy", d->name,
                       (long long)st.st_size, (unsigned long long)*out);
    return 0;
}

static int files_open(struct data *d, const char *dir, bool writable, struct err *err)
{
    if (writable && mkdir(dir, 0755) != 0 && errno != EEXIST)
        return err_sys(err, ERR_SYS, "data: make %s", dir);
    d->fd = open(d->path, (writable ? O_RDWR | O_CREAT : O_RDONLY) | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (d->fd < 0)
        return err_sys(err, errno == ENOENT ? ERR_NOT_FOUND : ERR_SYS, "data %s", d->path);
    int rc = index_open(d, dir, writable, err);
    if (rc == 0 && writable)
        rc = sync_dir(dir, err);        /* both names, before any row */
    uint64_t end;
    return rc == 0 ? end_of(d, &end, err) : rc;
}

int data_open(struct data **out, const char *dir, const char *name, bool writable, struct err *err)
{
    if (!name_is_fit(name)) {
        char quoted[128];
        err_quote(quoted, sizeof quoted, name, strlen(name));
        return err_set(err, ERR_BAD_INPUT, "data: \"%s\" cannot name a data file; use letters, digits, '.', '_' and '-'", quoted);
    }
    struct data *d = calloc(1, sizeof *d);
    if (d == NULL)
        return err_set(err, ERR_LIMIT, "data %s: out of memory", name);
    d->fd = -1;
    int rc = 0;
    if (snprintf(d->path, sizeof d->path, "%s/%s.data", dir, name) >= (int)sizeof d->path)
        rc = err_set(err, ERR_LIMIT, "data %s: its path is too long", name);
    d->name = name;                     /* the caller's, until we have our own */
    own_mem char *kept = strdup(name);
    if (rc == 0 && kept == NULL)
        rc = err_set(err, ERR_LIMIT, "data %s: out of memory", name);
    d->name = give_ptr(&kept);
    if (rc == 0)
        rc = files_open(d, dir, writable, err);
    if (rc < 0) {
        data_close(d);
        return rc;
    }
    *out = d;
    return 0;
}

void data_close(struct data *d)
{
    if (d == NULL)
        return;
    data_drop(d);
    for (int i = 0; i < STMT_N; i++)
        sqlite3_finalize(d->stmt[i]);
    sqlite3_close(d->db);
    drop_fd(&d->fd);
    free((char *)(uintptr_t)d->name);
    free(d);
}

int data_fd(const struct data *d) { return d->fd; }
const char *data_path(const struct data *d) { return d->path; }

/* --- batches --- */

int data_begin(struct data *d, struct err *err)
{
    /* SQLite only polls for its lock: of two importers that come back at once one could wait for long. */
    while (flock(d->fd, LOCK_EX) != 0)
        if (errno != EINTR)
            return err_sys(err, ERR_SYS, "data %s: lock", d->name);
    int rc = run(d, STMT_BEGIN, err);
    if (rc < 0) {
        flock(d->fd, LOCK_UN);
        return rc;
    }
    d->in_batch = true;
    d->failed = false;
    rc = end_of(d, &d->begin, err);
    d->end = d->begin;
    if (rc == 0 && ftruncate(d->fd, (off_t)d->begin) != 0)     /* what a killed importer left */
        rc = err_sys(err, ERR_SYS, "data %s: cut", d->name);
    if (rc < 0) {
        d->begin = UINT64_MAX;
        data_drop(d);
    }
    return rc;
}

void data_drop(struct data *d)
{
    if (!d->in_batch)
        return;
    d->in_batch = false;
    struct err late = { 0 };
    if (d->begin != UINT64_MAX && ftruncate(d->fd, (off_t)d->begin) != 0)
        late.code = ERR_SYS;                    /* the next batch cuts */
    if (sqlite3_get_autocommit(d->db) == 0 && run(d, STMT_ROLLBACK, &late) < 0)
        late.code = ERR_SYS;                    /* closing the database does it */
    flock(d->fd, LOCK_UN);
}

static int write_at(struct data *d, const uint8_t *p, size_t n, uint64_t at, struct err *err)
{
    while (n > 0) {
        ssize_t k = fault_hit("data.write") ? (errno = ENOSPC, -1) : pwrite(d->fd, p, n, (off_t)at);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return err_sys(err, ERR_SYS, "data %s: write %zu bytes", d->name, n);
        p += k;
        at += (uint64_t)k;
        n -= (size_t)k;
    }
    return 0;
}

static int put_row(struct data *d, enum stmt which, const void *key, size_t n, const struct data_place *place, struct err *err)
{
    own_stmt *s = NULL;
    int rc = stmt_get(d, &s, which, err);
    if (rc < 0)
        return rc;
    if ((rc = sqlite3_bind_blob64(s, 1, key, n, SQLITE_STATIC)) != SQLITE_OK
        || (rc = sqlite3_bind_int64(s, 2, (int64_t)(place->offset / DATA_BLOCK))) != SQLITE_OK
        || (rc = sqlite3_bind_int64(s, 3, (int64_t)place->size)) != SQLITE_OK
        || (rc = fault_hit("data.row") ? SQLITE_FULL : sqlite3_step(s)) != SQLITE_DONE)
        return db_err(d, rc, "add", err);
    return 0;
}

/* The content's bytes stand at d->end. */
static int take_place(struct data *d, struct data_place *out, const struct digest *digest, uint64_t size, struct err *err)
{
    struct data_place place = { .offset = d->end, .size = size };
    int rc = put_row(d, STMT_PUT, digest->bytes, sizeof digest->bytes, &place, err);
    if (rc < 0)
        return rc;
    d->end = after(&place);
    *out = place;
    return 0;
}

/* Before any put. */
static int may_put(struct data *d, struct err *err)
{
    if (!d->in_batch || d->failed)
        return err_set(err, ERR_INTERNAL, "data %s: %s", d->name, d->failed ? "its batch has failed" : "no batch was begun");
    return 0;
}

int data_put(struct data *d, struct data_place *out, const void *bytes, size_t n, struct err *err)
{
    int rc = may_put(d, err);
    if (rc < 0)
        return rc;
    *out = (struct data_place){ 0 };
    if (n == 0)
        return 0;
    struct digest digest;
    struct err none = { 0 };
    digest_of(&digest, bytes, n);
    rc = data_find(d, out, &digest, &none);
    if (rc == ERR_NOT_FOUND) {
        rc = write_at(d, bytes, n, d->end, err);
        if (rc == 0)
            rc = take_place(d, out, &digest, n, err);
    } else if (rc < 0)
        *err = none;
    d->failed = rc < 0;
    return rc;
}

/* Copy size bytes of fd to the end; they must still be those of `digest`. */
static int copy_in(struct data *d, int fd, const struct digest *digest, uint64_t size, struct err *err)
{
    own_mem uint8_t *block = malloc(COPY_BYTES);
    if (block == NULL)
        return err_set(err, ERR_LIMIT, "data %s: out of memory", d->name);
    struct digest_ctx c;
    struct digest seen;
    digest_start(&c);
    int rc = 0;
    uint64_t at = 0;
    while (rc == 0 && at < size) {
        ssize_t k = pread(fd, block, size - at < COPY_BYTES ? (size_t)(size - at) : COPY_BYTES, (off_t)at);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            rc = err_sys(err, ERR_SYS, "data %s: read the file to put", d->name);
        if (k <= 0)
            break;
        rc = write_at(d, block, (size_t)k, d->end + at, err);
        digest_add(&c, block, (size_t)k);
        at += (uint64_t)k;
    }
    digest_finish(&c, &seen);
    if (rc == 0 && !digest_equal(&seen, digest))
        rc = err_set(err, ERR_CORRUPT, "data %s: the file to put changes while it is read", d->name);
    return rc;
}

int data_put_fd(struct data *d, struct data_place *out, int fd, struct err *err)
{
    int rc = may_put(d, err);
    if (rc < 0)
        return rc;
    struct digest digest;
    struct err none = { 0 };
    uint64_t size;
    *out = (struct data_place){ 0 };
    rc = digest_of_fd(&digest, &size, fd, err);
    if (rc < 0 || size == 0)
        return rc;
    rc = data_find(d, out, &digest, &none);
    if (rc == ERR_NOT_FOUND) {
        rc = copy_in(d, fd, &digest, size, err);
        if (rc == 0)
            rc = take_place(d, out, &digest, size, err);
    } else if (rc < 0)
        *err = none;
    d->failed = rc < 0;
    return rc;
}

int data_put_alias(struct data *d, const void *alias, size_t n, const struct data_place *place, struct err *err)
{
    int rc = may_put(d, err);
    if (rc < 0)
        return rc;
    if (n == 0 || n > DATA_ALIAS_MAX)
        return err_set(err, ERR_INTERNAL, "data %s: an alias of %zu bytes", d->name, n);
    if (place->size == 0)
        return 0;                       /* no row tells of no bytes */
    rc = put_row(d, STMT_PUT_ALIAS, alias, n, place, err);
    d->failed = rc < 0;
    return rc;
}

int data_commit(struct data *d, struct err *err)
{
    int rc = may_put(d, err);
    /* To a whole block: the kernel reads blocks, and what lies behind a content's end in its last must be zeros. */
    if (rc == 0 && (fault_hit("data.sync") || ftruncate(d->fd, (off_t)d->end) != 0 || fdatasync(d->fd) != 0))
        rc = err_sys(err, ERR_SYS, "data %s: sync", d->name);
    if (rc == 0)
        rc = fault_hit("data.commit") ? err_set(err, ERR_SYS, "data %s: commit", d->name) : run(d, STMT_COMMIT, err);
    if (rc < 0)
        data_drop(d);
    else {
        d->in_batch = false;
        flock(d->fd, LOCK_UN);
    }
    return rc;
}

/* --- verify --- */

/* Does what lies there have the digest? */
static int check(struct data *d, bool *out_good, const struct data_place *p, const struct digest *want, uint8_t *block,
                 struct err *err)
{
    struct digest_ctx c;
    struct digest seen;
    digest_start(&c);
    for (uint64_t at = 0; at < p->size; ) {
        size_t n = p->size - at < COPY_BYTES ? (size_t)(p->size - at) : COPY_BYTES;
        ssize_t k = pread(d->fd, block, n, (off_t)(p->offset + at));
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0) {
            digest_finish(&c, &seen);
            return err_sys(err, ERR_SYS, "data %s: read at %llu", d->name, (unsigned long long)(p->offset + at));
        }
        if (k == 0)
            break;                      /* cut short: another digest */
        digest_add(&c, block, (size_t)k);
        at += (uint64_t)k;
    }
    digest_finish(&c, &seen);
    *out_good = digest_equal(&seen, want);
    return 0;
}

static int corrupt(const struct data *d, const struct digest *digest, const struct data_place *p, uint64_t bad, struct err *err)
{
    char hex[DIGEST_HEX_SIZE];
    digest_hex(hex, digest);
    return err_set(err, ERR_CORRUPT, "data %s: content %s at byte %llu (%llu bytes) does not match its digest; %llu such in all",
                   d->name, hex, (unsigned long long)p->offset, (unsigned long long)p->size, (unsigned long long)bad);
}

/* Clean pages go, so that the disk is read and not our memory of it. */
static void forget_pages(const struct data *d, const struct data_place *p)
{
    (void)!posix_fadvise(d->fd, (off_t)p->offset, (off_t)(after(p) - p->offset), POSIX_FADV_DONTNEED);
}

int data_verify(struct data *d, const struct digest *digest, struct err *err)
{
    struct data_place p;
    char hex[DIGEST_HEX_SIZE];
    digest_hex(hex, digest);
    int rc = data_find(d, &p, digest, err);
    if (rc < 0)
        return rc == ERR_NOT_FOUND ? err_set(err, rc, "data %s: has no content %s", d->name, hex) : rc;
    own_mem uint8_t *block = malloc(COPY_BYTES);
    if (block == NULL)
        return err_set(err, ERR_LIMIT, "data %s: out of memory", d->name);
    bool good = false;
    forget_pages(d, &p);
    rc = check(d, &good, &p, digest, block, err);
    return rc < 0 || good ? rc : corrupt(d, digest, &p, 1, err);
}

/* The first content at or behind a byte. One statement for each, so that a long check keeps no importer from committing. */
static int next_content(struct data *d, struct data_place *out, struct digest *out_digest, uint64_t from, struct err *err)
{
    own_stmt *s = NULL;
    int rc = stmt_get(d, &s, STMT_NEXT, err);
    if (rc < 0)
        return rc;
    if ((rc = sqlite3_bind_int64(s, 1, (int64_t)(from / DATA_BLOCK))) != SQLITE_OK)
        return db_err(d, rc, "bind", err);
    rc = sqlite3_step(s);
    if (rc == SQLITE_DONE) {
        *out = (struct data_place){ 0 };
        return 0;
    }
    if (rc != SQLITE_ROW)
        return db_err(d, rc, "read", err);
    *out_digest = (struct digest){ 0 };             /* of another length: matches nothing */
    if (sqlite3_column_bytes(s, 2) == (int)sizeof out_digest->bytes)
        memcpy(out_digest->bytes, sqlite3_column_blob(s, 2), sizeof out_digest->bytes);
    return row_place(d, out, s, err);
}

int data_verify_all(struct data *d, uint64_t *out_count, struct err *err)
{
    own_mem uint8_t *block = malloc(COPY_BYTES);
    if (block == NULL)
        return err_set(err, ERR_LIMIT, "data %s: out of memory", d->name);
    uint64_t count = 0, bad = 0;
    struct digest want, first = { 0 };
    struct data_place p = { 0 }, first_place = { 0 };
    for (;; count++) {
        bool good = false;
        int rc = next_content(d, &p, &want, after(&p), err);
        if (rc == 0 && p.size == 0)
            break;
        if (rc == 0)
            forget_pages(d, &p);
        if (rc < 0 || (rc = check(d, &good, &p, &want, block, err)) < 0)
            return rc;
        if (!good && bad++ == 0) {
            first = want;
            first_place = p;
        }
    }
    *out_count = count;
    return bad == 0 ? 0 : corrupt(d, &first, &first_place, bad, err);
}
