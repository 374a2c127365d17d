/* cmd_tasks.c - `assay tasks import|ls|show`. */
#include "rollout/cli/eval.h"
#include "rollout/cli/print.h"
#include "base/own.h"
#include <errno.h>
#include <string.h>

#define IMPORT_CALL_MAX ((size_t)3 << 20)       /* whole records of at most so many bytes a call: proto/catalog */
#define IMPORT_FILE_MAX ((size_t)4 << 30)
#define LIST_PAGE       1000
#define LINES_LOOK_MAX  ((size_t)64 << 20)      /* so far for the end of what began on a line and did not end there */

const struct cli_option cmd_tasks_import_options[] = {
    { "repos", 0, "DIR", "directory that holds the repositories the records name (required)" },
    { 0 },
};
const struct cli_option cmd_tasks_ls_options[] = {
    { "prefix", 0, "P", "only ids that begin so" },
    { "repo", 0, "R", "only tasks of this repository" },
    { "drafts", 0, NULL, "also drafts: what `assay mine` found no tests for" },
    { 0 },
};
const struct cli_option cmd_tasks_show_options[] = {
    { "with-fix", 0, NULL, "also the true fix and the hidden tests" },
    { 0 },
};

/* --- import --- */

const char *record_fault(const char *message, const char *id)
{
    size_t n = strlen(id);
    if (strncmp(message, "task ", 5) != 0 || strncmp(message, "task record ", 12) == 0)
        return message;
    message += 5;               /* a record that could not be read whole: only the message knows its id */
    return n > 0 && strncmp(message, id, n) == 0 && strncmp(message + n, ": ", 2) == 0 ? message + n + 2 : message;
}

struct import_total {
    uint64_t added, unchanged, replaced;
    json_t *failures, *notes;       /* kept for -o json */
    uint64_t failed;
};

static int report_failure(struct cli *c, struct import_total *total, const char *source, uint64_t line, const char *id,
                          const char *code, const char *message, struct err *err)
{
    total->failed++;
    message = record_fault(message, id);
    fprintf(stderr, "%s:%llu: ", source, (unsigned long long)line);
    if (id[0] != '\0') {
        print_str(stderr, id);
        fputs(": ", stderr);
    }
    print_str(stderr, message);
    fputc('\n', stderr);
    if (c->json && json_array_append_new(total->failures, json_pack("{s:I,s:o,s:o,s:o}", "line", (json_int_t)line,
            "id", json_str(id), "code", json_str(code), "message", json_str(message))) != 0)
        return err_set(err, ERR_LIMIT, "out of memory");
    return 0;
}

static int import_call(struct cli *c, struct import_total *total, const uint8_t *bytes, size_t n, const char *repos,
                       const char *source, uint64_t first_line, struct err *err)
{
    own_arena a = { 0 };
    own_buf request = { 0 };
    own_buf answer = { 0 };
    struct import_view v;
    int rc = ask_import(&request, bytes, n, repos, source, first_line, err);
    if (rc == 0)
        rc = cli_call(c, METHOD_IMPORT, &request, &answer, err);
    if (rc == 0)
        rc = view_import(&v, &a, &answer, err);
    if (rc < 0)
        return rc;
    total->added += v.added;
    total->unchanged += v.unchanged;
    total->replaced += v.replaced;
    for (uint32_t i = 0; i < v.notes.count; i++) {
        if (c->json)
            json_array_append_new(total->notes, json_str(v.notes.items[i]));
        fputs("note: ", stderr);
        print_str(stderr, v.notes.items[i]);
        fputc('\n', stderr);
    }
    for (size_t i = 0; rc == 0 && i < v.failure_count; i++)
        rc = report_failure(c, total, source, v.failures[i].line, v.failures[i].id, v.failures[i].code,
                            v.failures[i].message, err);
    return rc;
}

static const uint8_t *line_end(const uint8_t *p, const uint8_t *end)
{
    const uint8_t *newline = memchr(p, '\n', (size_t)(end - p));
    return newline != NULL ? newline + 1 : end;
}

/* The line without white space at its ends. */
static const uint8_t *trimmed(const uint8_t *p, const uint8_t *next, size_t *n)
{
    while (p < next && strchr(" \t\r\n", *p) != NULL && *p != '\0')
        p++;
    while (next > p && strchr(" \t\r\n", next[-1]) != NULL && next[-1] != '\0')
        next--;
    *n = (size_t)(next - p);
    return p;
}

/*
 * Where the object or list ends that begins at the line `p` and goes on behind it, as pretty printers write it; NULL when
 * the line is a record, or bad in a way of its own. Taken line by line it would be dozens of errors that say nothing.
 */
static const uint8_t *many_lines_end(const uint8_t *p, const uint8_t *end)
{
    size_t n, m;
    const uint8_t *next = line_end(p, end), *text = trimmed(p, next, &n);
    if (n == 0 || next == end || (text[0] != '{' && text[0] != '[') || (text[0] == '{' && text[n - 1] == '}'))
        return NULL;
    size_t most = (size_t)(end - text) < LINES_LOOK_MAX ? (size_t)(end - text) : LINES_LOOK_MAX;
    json_error_t where;
    json_t *whole = json_loadb((const char *)text, most, JSON_DISABLE_EOF_CHECK, &where);
    json_decref(whole);
    if (whole != NULL)
        return text + where.position > next ? line_end(text + where.position - 1, end) : NULL;
    if (n > 1)
        return NULL;
    /* Not JSON as a whole either: it ends where its bracket is closed at the margin. */
    char close = text[0] == '{' ? '}' : ']';
    while (next < end) {
        const uint8_t *line = next;
        next = line_end(line, end);
        if (*line == close && (trimmed(line, next, &m), m == 1))
            break;
    }
    return next;
}

static uint64_t lines_in(const uint8_t *p, const uint8_t *end)
{
    uint64_t n = 0;
    for (; p < end; p = line_end(p, end))
        n++;
    return n;
}

/* Cut the file into runs of whole lines that fit a call; a line that fits none is a bad record of its own. */
static int import_all(struct cli *c, struct import_total *total, const struct buf *file, const char *repos,
                      const char *source, struct err *err)
{
    const uint8_t *p = file->data, *end = p + file->len;
    if (file->len >= 3 && memcmp(p, "\xef\xbb\xbf", 3) == 0)       /* the mark some editors begin a file with */
        p += 3;
    uint64_t line = 1;
    while (p < end) {
        const uint8_t *stop = p, *many = NULL;
        uint64_t lines = 0;
        while (stop < end) {
            const uint8_t *next = line_end(stop, end);
            if ((size_t)(next - p) > IMPORT_CALL_MAX || (many = many_lines_end(stop, end)) != NULL)
                break;
            stop = next;
            lines++;
        }
        int rc;
        if (lines == 0 && many != NULL) {
            rc = report_failure(c, total, source, line, "", "bad_input", *trimmed(p, end, &(size_t){ 0 }) == '{'
                                ? "a record over several lines: want one object a line (`jq -c .` writes them so)"
                                : "a list over several lines: want one object a line (`jq -c '.[]'` writes them so)", err);
            stop = many;
            lines = lines_in(p, stop);
        } else if (lines == 0) {
            rc = report_failure(c, total, source, line, "", "limit", "record is larger than 3 MiB", err);
            stop = line_end(p, end);
            lines = 1;
        } else {
            rc = import_call(c, total, p, (size_t)(stop - p), repos, source, line, err);
        }
        if (rc < 0)
            return rc;
        p = stop;
        line += lines;
    }
    return 0;
}

int cmd_tasks_import(struct cli *c, struct err *err)
{
    const char *path = c->args[0], *dir = cli_value(c, "repos");
    if (dir == NULL)
        return err_set(err, ERR_USAGE, "--repos DIR is needed: where the repositories that the records name are");
    own_mem char *repos = realpath(dir, NULL);
    if (repos == NULL)
        return err_sys(err, ERR_BAD_INPUT, "--repos %s", dir);
    own_buf file = { 0 };
    int rc = cli_read_file(&file, path, IMPORT_FILE_MAX, err);
    if (rc < 0)
        return rc;
    const char *source = strcmp(path, "-") == 0 ? "stdin" : path;
    struct import_total total = { .failures = json_array(), .notes = json_array() };
    rc = total.failures == NULL || total.notes == NULL ? err_set(err, ERR_LIMIT, "out of memory")
                                                       : import_all(c, &total, &file, repos, source, err);
    if (rc == 0 && c->json)
        rc = print_json(stdout, json_pack("{s:I,s:I,s:I,s:O,s:O}", "added", (json_int_t)total.added, "unchanged",
                        (json_int_t)total.unchanged, "replaced", (json_int_t)total.replaced, "failures", total.failures,
                        "notes", total.notes), true, err);
    else if (rc == 0)
        printf("%llu added, %llu unchanged, %llu replaced%s\n", (unsigned long long)total.added,
               (unsigned long long)total.unchanged, (unsigned long long)total.replaced,
               total.failed > 0 ? "" : "; no bad records");
    json_decref(total.failures);
    json_decref(total.notes);
    if (rc == 0 && total.failed > 0)
        return err_set(err, ERR_BAD_INPUT, "%s: %llu bad record%s, named above; the good ones were kept", source,
                       (unsigned long long)total.failed, total.failed == 1 ? "" : "s");
    return rc;
}

/* --- ls, show --- */

/* As cmd_mine.c puts it in before the ids are known. */
static bool is_draft(const struct task *t)
{
    return strcmp(t->split, "draft") == 0;
}

static void print_row(const struct task *t)
{
    print_str(stdout, t->id);
    int pad = 36 - (int)strlen(t->id);
    printf("%*s  ", pad > 0 ? pad : 0, "");
    print_str(stdout, t->repo);
    printf("  %.12s  %u+%u tests  %s  %gs%s\n", t->base_commit, t->fail_to_pass.count, t->pass_to_pass.count, t->reader,
           t->timeout_s, is_draft(t) ? "  draft" : "");
}

/* A row of the listing: what the server sends without the long texts. */
static json_t *row_json(const struct task *t)
{
    return json_pack("{s:o,s:o,s:o,s:I,s:I,s:o,s:o,s:o,s:o,s:o,s:f,s:I}", "instance_id", json_str(t->id),
                     "repo", json_str(t->repo), "base_commit", json_str(t->base_commit),
                     "fail_to_pass_count", (json_int_t)t->fail_to_pass.count,
                     "pass_to_pass_count", (json_int_t)t->pass_to_pass.count, "test_cmd", json_str(t->test_cmd),
                     "reader", json_str(t->reader), "environment", json_str(t->environment), "split", json_str(t->split),
                     "profile", json_str(t->profile), "timeout_s", t->timeout_s, "memory_mb", (json_int_t)t->memory_mb);
}

int cmd_tasks_ls(struct cli *c, struct err *err)
{
    const char *prefix = cli_value(c, "prefix"), *repo = cli_value(c, "repo");
    const char *after = "";
    uint64_t count = 0, drafts = 0;
    bool with_drafts = cli_flag(c, "drafts");
    json_t *rows = c->json ? json_array() : NULL;
    int rc = 0;
    do {
        own_buf request = { 0 };
        own_buf answer = { 0 };
        struct tasks_view page = { 0 };
        rc = ask_tasks(&request, after, LIST_PAGE, repo != NULL ? repo : "", prefix != NULL ? prefix : "", err);
        if (rc == 0)
            rc = cli_call(c, METHOD_TASK_LIST, &request, &answer, err);
        if (rc == 0)
            rc = view_tasks(&page, &c->arena, &answer, err);
        for (size_t i = 0; rc == 0 && i < page.count; i++) {
            if (is_draft(&page.tasks[i]) && !with_drafts) {
                drafts++;
                continue;
            }
            count++;
            if (!c->json)
                print_row(&page.tasks[i]);
            else if (json_array_append_new(rows, row_json(&page.tasks[i])) != 0)
                rc = err_set(err, ERR_LIMIT, "out of memory");
        }
        after = rc == 0 && page.count > 0 ? page.next : "";
    } while (rc == 0 && after[0] != '\0');
    if (rc < 0) {
        json_decref(rows);
        return rc;
    }
    if (c->json)
        return print_json(stdout, json_pack("{s:o}", "tasks", rows), true, err);
    if (drafts > 0)
        cli_say(c, "%llu draft%s left out; --drafts has them", (unsigned long long)drafts, drafts == 1 ? "" : "s");
    if (count == 0 && drafts == 0)
        cli_say(c, "no tasks%s; bring some in with `assay tasks import FILE.jsonl --repos DIR%s`",
                prefix != NULL || repo != NULL ? " match" : "", cli_retype(c, (const char *[]){ "state", "server" }, 2));
    return 0;
}

static void print_ids(const char *what, const struct str_list *ids)
{
    printf("%-13s %u\n", what, ids->count);
    for (uint32_t i = 0; i < ids->count; i++) {
        fputs("    ", stdout);
        print_str(stdout, ids->items[i]);
        putchar('\n');
    }
}

static void print_field(const char *what, const char *text)
{
    printf("%-13s ", what);
    print_str(stdout, text);
    putchar('\n');
}

int cmd_tasks_show(struct cli *c, struct err *err)
{
    own_buf request = { 0 };
    own_buf answer = { 0 };
    struct task t;
    bool with_fix = cli_flag(c, "with-fix");
    int rc = ask_task(&request, c->args[0], with_fix, err);
    if (rc == 0)
        rc = cli_call(c, METHOD_TASK_GET, &request, &answer, err);
    if (rc == 0)
        rc = view_task(&t, &c->arena, &answer, err);
    if (rc < 0)
        return rc;
    char hex[DIGEST_HEX_SIZE];
    digest_hex(hex, &t.snapshot);
    if (c->json) {
        json_t *o = NULL;
        rc = json_task(&o, &t, err);
        if (rc < 0)
            return rc;
        if (!with_fix) {                        /* left out, not empty */
            json_object_del(o, "patch");
            json_object_del(o, "test_patch");
        }
        json_object_set_new(o, "snapshot", json_string(hex));
        return print_json(stdout, o, true, err);
    }
    print_field("task", t.id);
    print_field("repo", t.repo);
    print_field("base commit", t.base_commit);
    print_field("snapshot", hex);
    print_field("test command", t.test_cmd);
    print_field("reader", t.reader);
    print_field("environment", t.environment);
    if (strcmp(t.profile, "strict") != 0)
        print_field("profile", t.profile);
    printf("%-13s %g s, %llu MiB\n", "limits", t.timeout_s, (unsigned long long)t.memory_mb);
    if (t.split[0] != '\0')
        print_field("split", t.split);
    print_ids("fail to pass", &t.fail_to_pass);
    print_ids("pass to pass", &t.pass_to_pass);
    if (t.problem_statement[0] != '\0') {
        puts("\nproblem");
        print_block(stdout, "    ", t.problem_statement, strlen(t.problem_statement));
    }
    if (with_fix) {
        puts("\ntrue fix");
        print_block(stdout, "", t.patch, strlen(t.patch));
        puts("\nhidden tests");
        print_block(stdout, "", t.test_patch, strlen(t.test_patch));
    }
    return 0;
}
