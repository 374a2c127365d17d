/*
 * catalog_list.c - pages of tasks: by filters, by words, and those that are twins of each other.
 *
 * A page is a walk along one index from a key on. What the index doesn't say is looked at row by row, at most WALK_MAX rows a
 * page: one that finds little ends early, with a key to go on from, and never holds up whoever waits for its server.
 */
#include "repos/catalog.h"
#include "base/own.h"
#include <string.h>

#define LIST_BYTES_MAX  ((size_t)16 << 20)  /* a page ends early rather than be larger */
#define WALK_MAX        1024                /* some 5 ms */
#define TWINS_MAX       4096                /* words of one task each are passed over faster */
#define GROUP_IDS_MAX   100                 /* more twins than that are counted, not named */
#define BEGINNING_MIN   3
#define QUERY_MAX       ((size_t)16 << 10)
#define WALK_ID_MAX     512                 /* an id and what a bound adds to it: task.c */

static bool given(const char *s)
{
    return s != NULL && s[0] != '\0';
}

static bool fits(const char *want, const unsigned char *has)
{
    return !given(want) || (has != NULL && strcmp(want, (const char *)has) == 0);
}

/* FTS5's tokenizer "ascii": letters, digits and every byte beyond ASCII make a word. */
static bool word_byte(char ch)
{
    return (ch >= '0' && ch <= '9') || (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z') || (ch & 0x80) != 0;
}

/*
 * Each word quoted, so that none is an operator; a `*` right behind one makes it a beginning. All must be there.
 * What begins with one or two letters is read from too many words: a second and more of a million tasks.
 */
static int add_words(struct buf *query, const char *text, struct err *err)
{
    int rc = 0;
    for (const char *p = text; rc == 0 && *p != '\0';) {
        size_t n = 0;
        while (word_byte(p[n]))
            n++;
        if (n > 0 && n < BEGINNING_MIN && p[n] == '*')
            rc = err_set(err, ERR_BAD_INPUT, "text: %.*s*: a beginning needs %d letters", (int)n, p, BEGINNING_MIN);
        else if (n > 0)
            rc = buf_addf(query, err, "\"%.*s\"%s ", (int)n, p, p[n] == '*' ? "*" : "");
        p += n > 0 ? n : 1;
    }
    return rc;
}

/* ids are UTF-8, in which no byte is above 0xf4. */
static void bounds(char lower[], char upper[], const char *after, const char *prefix)
{
    strcpy(lower, strcmp(after, prefix) > 0 ? after : prefix);
    strcpy(upper, prefix);
    strcat(upper, "\xff");
}

/*
 * Which index, and in which order: words by row; a repository, an id's beginning or nothing by id; else the rarest kind
 * of column first, by row.
 */
static enum stmt choose(const struct catalog_filter *f)
{
    return given(f->text) ? STMT_BY_TEXT : given(f->repo) ? STMT_BY_REPO : given(f->prefix) ? STMT_BY_ID
         : given(f->state) ? STMT_BY_STATE : given(f->split) ? STMT_BY_SPLIT : given(f->language) ? STMT_BY_LANGUAGE : STMT_BY_ID;
}

static int row_of(struct catalog *c, int64_t *out, const char *id, struct err *err)
{
    own_stmt *s = NULL;
    *out = 0;
    if (id[0] == '\0')
        return 0;
    int rc = catalog_stmt(c, &s, STMT_ROW_OF, err);
    if (rc < 0)
        return rc;
    if (!catalog_bind_text(s, 1, id))
        return catalog_db_err(c, sqlite3_errcode(c->db), "list", err);
    rc = sqlite3_step(s);
    if (rc == SQLITE_ROW)
        *out = sqlite3_column_int64(s, 0);
    if (rc == SQLITE_DONE) {
        char quoted[96];
        err_quote(quoted, sizeof quoted, id, strlen(id));
        return err_set(err, ERR_BAD_INPUT, "after: no task %s; want the `next` of the page before", quoted);
    }
    return rc == SQLITE_ROW ? 0 : catalog_db_err(c, rc, "list", err);
}

struct walk {
    sqlite3_stmt *s;
    char lower[WALK_ID_MAX], upper[WALK_ID_MAX];    /* borrowed by the statement */
    struct buf query;
};

static int walk_start(struct catalog *c, struct walk *w, const char *after, const struct catalog_filter *f, struct err *err)
{
    const char *const of[STMT_N] = { [STMT_BY_REPO] = f->repo, [STMT_BY_STATE] = f->state, [STMT_BY_SPLIT] = f->split,
                                     [STMT_BY_LANGUAGE] = f->language };
    enum stmt which = choose(f);
    const char *key = of[which];
    int64_t row = 0;
    int rc = catalog_stmt(c, &w->s, which, err);
    bool by_id = which == STMT_BY_ID || which == STMT_BY_REPO, bound;
    if (rc == 0 && !by_id)
        rc = row_of(c, &row, after, err);
    if (rc == 0 && which == STMT_BY_TEXT) {
        w->query.max = QUERY_MAX;
        rc = add_words(&w->query, f->text, err);
        if (rc == 0 && w->query.len == 0)
            rc = err_set(err, ERR_BAD_INPUT, "text: holds no word to search for");
        if (rc == 0 && given(f->repo))              /* its words are in the index too, and narrow what is looked at */
            rc = add_words(&w->query, f->repo, err);
        key = (const char *)w->query.data;
    }
    if (rc < 0)
        return rc;
    if (by_id) {
        if (strlen(after) >= WALK_ID_MAX - 1 || (given(f->prefix) && strlen(f->prefix) >= WALK_ID_MAX - 1))
            return err_set(err, ERR_BAD_INPUT, "after, prefix: longer than any id");
        bounds(w->lower, w->upper, after, given(f->prefix) ? f->prefix : "");
        bound = catalog_bind_text(w->s, 1, w->lower) && catalog_bind_text(w->s, 2, w->upper);
    } else {
        bound = sqlite3_bind_int64(w->s, 1, row) == SQLITE_OK;
    }
    bound = bound && (key == NULL || catalog_bind_text(w->s, 3, key));
    return bound ? 0 : catalog_db_err(c, sqlite3_errcode(c->db), "list", err);
}

int catalog_read_at(struct catalog *c, struct task *out, struct arena *a, int64_t row, struct err *err)
{
    own_stmt *s = NULL;
    int rc = catalog_stmt(c, &s, STMT_ROW, err);
    if (rc < 0)
        return rc;
    if (sqlite3_bind_int64(s, 1, row) != SQLITE_OK)
        return catalog_db_err(c, sqlite3_errcode(c->db), "list", err);
    rc = sqlite3_step(s);
    return rc == SQLITE_ROW ? catalog_row_read(c, out, a, s, false, err) : catalog_db_err(c, rc, "list", err);
}

struct page { struct task *tasks; uint32_t count, limit; const char *next; };

static int walk(struct catalog *c, struct page *page, struct arena *a, sqlite3_stmt *s, const char *after,
                const struct catalog_filter *f, struct err *err)
{
    size_t used = a->used, prefix_len = given(f->prefix) ? strlen(f->prefix) : 0;
    int rc, seen = 0;
    int64_t last = 0;
    while ((rc = sqlite3_step(s)) == SQLITE_ROW) {
        if (page->count == page->limit || a->used - used > LIST_BYTES_MAX || seen == WALK_MAX)
            break;
        seen++;
        last = sqlite3_column_int64(s, 0);
        if (!fits(f->state, sqlite3_column_text(s, 1)) || !fits(f->split, sqlite3_column_text(s, 2))
            || !fits(f->language, sqlite3_column_text(s, 3)))
            continue;
        struct task *t = &page->tasks[page->count];
        if ((rc = catalog_read_at(c, t, a, last, err)) < 0)
            return rc;
        if (strcmp(t->id, after) != 0 && fits(f->repo, (const unsigned char *)t->repo)
            && (prefix_len == 0 || strncmp(t->id, f->prefix, prefix_len) == 0))
            page->count++;
    }
    if (rc != SQLITE_ROW && rc != SQLITE_DONE)
        return catalog_db_err(c, rc, "list", err);
    page->next = "";
    struct task end;
    if (rc == SQLITE_ROW && (rc = catalog_read_at(c, &end, a, last, err)) == 0)
        page->next = end.id;
    return rc < 0 ? rc : 0;
}

int catalog_list(struct catalog *c, struct task **out, uint32_t *out_count, const char **out_next, struct arena *a,
                 const char *after, const struct catalog_filter *f, uint32_t limit, struct err *err)
{
    struct page page = { .tasks = arena_alloc(a, sizeof *page.tasks * ((size_t)limit + 1)), .limit = limit };
    if (page.tasks == NULL)
        return err_set(err, ERR_LIMIT, "catalog: a page of %u tasks does not fit the memory budget", limit);
    struct walk w = { 0 };
    int rc = walk_start(c, &w, after, f, err);
    if (rc == 0)
        rc = walk(c, &page, a, w.s, after, f, err);
    sql_stmt_done(&w.s);
    buf_done(&w.query);
    if (rc < 0)
        return rc;
    *out = page.tasks;
    *out_count = page.count;
    *out_next = page.next;
    return 0;
}

static int name_twins(struct catalog *c, struct catalog_twins *out, struct arena *a, const char *twin, struct err *err)
{
    own_stmt *s = NULL;
    int rc = catalog_stmt(c, &s, STMT_TWIN_ROWS, err);
    if (rc < 0)
        return rc;
    out->ids.items = arena_alloc(a, GROUP_IDS_MAX * sizeof *out->ids.items);
    if (out->ids.items == NULL || !catalog_bind_text(s, 1, twin))
        return err_set(err, ERR_LIMIT, "catalog: a page of duplicates does not fit the memory budget");
    while ((rc = sqlite3_step(s)) == SQLITE_ROW && out->ids.count < GROUP_IDS_MAX) {
        struct task t;
        int read = catalog_read_at(c, &t, a, sqlite3_column_int64(s, 0), err);
        if (read < 0)
            return read;
        out->ids.items[out->ids.count++] = t.id;
    }
    return rc == SQLITE_ROW || rc == SQLITE_DONE ? 0 : catalog_db_err(c, rc, "duplicates", err);
}

int catalog_duplicates(struct catalog *c, struct catalog_twins **out, uint32_t *out_count, const char **out_next, struct arena *a,
                       const char *after, uint32_t limit, struct err *err)
{
    own_stmt *s = NULL;
    struct catalog_twins *groups = arena_alloc(a, sizeof *groups * ((size_t)limit + 1));
    int rc = groups != NULL ? catalog_stmt(c, &s, STMT_TWINS, err) : err_set(err, ERR_LIMIT, "catalog: out of memory");
    if (rc < 0)
        return rc;
    if (!catalog_bind_text(s, 1, strcmp(after, TWIN_BEGIN) > 0 ? after : TWIN_BEGIN))
        return catalog_db_err(c, sqlite3_errcode(c->db), "duplicates", err);
    uint32_t count = 0;
    char last[TWIN_SIZE] = "";
    for (int seen = 0; (rc = sqlite3_step(s)) == SQLITE_ROW && seen < TWINS_MAX && count < limit; seen++) {
        snprintf(last, sizeof last, "%s", (const char *)sqlite3_column_text(s, 0));
        uint64_t size = (uint64_t)sqlite3_column_int64(s, 1);
        if (size < 2)
            continue;
        groups[count].count = size;
        int named = name_twins(c, &groups[count++], a, last, err);
        if (named < 0)
            return named;
    }
    if (rc != SQLITE_ROW && rc != SQLITE_DONE)
        return catalog_db_err(c, rc, "duplicates", err);
    *out = groups;
    *out_count = count;
    *out_next = rc == SQLITE_ROW ? arena_strdup(a, last) : "";
    return *out_next != NULL ? 0 : err_set(err, ERR_LIMIT, "catalog: out of memory");
}
