/*
 * catalog.h - the catalog's inside: catalog.c opens and migrates, catalog_row.c writes and reads rows, catalog_list.c pages and searches.
 *
 * One row per task: short columns first and long texts last, so that a page of a listing never touches the overflow pages
 * where patches lie. Every statement is in catalog_sql[] (a test asks SQLite for the plan of each: none may scan), is prepared
 * at its first use and kept.
 */
#pragma once
#include "repos/repos.h"
#include "repos/sql.h"

/* One list of columns for every statement that reads or writes a row; the order is that of enum col. */
#define SHORT_COLS "id,repo,base_commit,test_cmd,reader,environment,split,timeout_s,memory_mb,base_tree,snapshot,definition," \
                   "fail_to_pass,pass_to_pass,extra,profile"
#define LONG_COLS  "problem_statement,patch,test_patch"
enum col { COL_ID, COL_REPO, COL_BASE_COMMIT, COL_TEST_CMD, COL_READER, COL_ENVIRONMENT, COL_SPLIT, COL_TIMEOUT_S, COL_MEMORY_MB,
           COL_BASE_TREE, COL_SNAPSHOT, COL_DEFINITION, COL_FAIL_TO_PASS, COL_PASS_TO_PASS, COL_EXTRA, COL_PROFILE,
           COL_STATE, COL_LANGUAGE,                         /* here ends what version 2 and a listing have, and then: */
           COL_PROBLEM, COL_PATCH, COL_TEST_PATCH, COL_RECORD, COL_TWIN };

enum stmt { STMT_GET, STMT_ROW, STMT_RECORD, STMT_PUT, STMT_SET_STATE, STMT_SET_LANGUAGE, STMT_ROW_OF,
            STMT_BY_ID, STMT_BY_REPO, STMT_BY_STATE, STMT_BY_SPLIT, STMT_BY_LANGUAGE, STMT_BY_TEXT, STMT_TWIN_ROWS, STMT_TWINS,
            STMT_AFTER, STMT_BEFORE, STMT_INDEXED, STMT_LAST, STMT_INDEX_ROWS, STMT_INDEX_MARK, STMT_INDEX_DROP, STMT_INDEX_ADD,
            STMT_BEGIN, STMT_COMMIT, STMT_ROLLBACK, STMT_N };
extern const char *const catalog_sql[STMT_N];

/* The word that stands for a task's twins in the text index, and the bounds of all such words. */
#define TWIN_BEGIN "twin"
#define TWIN_END   "twio"
#define TWIN_SIZE  (sizeof TWIN_BEGIN + 16)

struct catalog {
    sqlite3      *db;
    sqlite3_stmt *stmt[STMT_N];
    bool          writable;
    bool          in_batch;
    char          path[4096];       /* for messages */
};

MUST_CHECK int catalog_stmt(struct catalog *c, sqlite3_stmt **out, enum stmt which, struct err *err);   /* ready for binding */
int catalog_db_err(const struct catalog *c, int rc, const char *what, struct err *err);
bool catalog_bind_text(sqlite3_stmt *s, int at, const char *text);
void catalog_rollback(struct catalog *c);
/* Add or replace, whatever is there; the text index is not touched. */
MUST_CHECK int catalog_put_row(struct catalog *c, const struct task *t, struct err *err);
/* The row's task, long texts left "". */
MUST_CHECK int catalog_read_at(struct catalog *c, struct task *out, struct arena *a, int64_t row, struct err *err);
/* The task of a row selected as SHORT_COLS, state, language and, when `whole`, LONG_COLS. */
MUST_CHECK int catalog_row_read(struct catalog *c, struct task *out, struct arena *a, sqlite3_stmt *s, bool whole, struct err *err);
