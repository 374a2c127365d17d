/* sql.h - SQLite as the catalog and the data files' indexes use it: each statement is prepared once and kept. */
#pragma once
#include "base/err.h"
#include <sqlite3.h>

/* A stepped statement holds a read transaction until it is reset: never leave a function without. */
static inline void sql_stmt_done(sqlite3_stmt **s)
{
    if (*s != NULL) {
        sqlite3_reset(*s);
        sqlite3_clear_bindings(*s);
    }
}
#define own_stmt __attribute__((cleanup(sql_stmt_done))) sqlite3_stmt

/* Prepare `text` unless it is in *kept already. Returns SQLite's code. */
static inline int sql_prepare(sqlite3 *db, sqlite3_stmt **kept, const char *text)
{
    return *kept != NULL ? SQLITE_OK : sqlite3_prepare_v3(db, text, -1, SQLITE_PREPARE_PERSISTENT, kept, NULL);
}

/* Our code for one of SQLite's. */
static inline int sql_code(int rc)
{
    switch (rc & 0xff) {
    case SQLITE_CORRUPT: case SQLITE_NOTADB: case SQLITE_FORMAT: return ERR_CORRUPT;
    case SQLITE_BUSY: case SQLITE_LOCKED: return ERR_BUSY;
    case SQLITE_PERM: case SQLITE_READONLY: case SQLITE_AUTH: return ERR_DENIED;
    case SQLITE_NOMEM: case SQLITE_TOOBIG: case SQLITE_FULL: return ERR_LIMIT;
    case SQLITE_MISUSE: return ERR_INTERNAL;
    default: return ERR_SYS;
    }
}
