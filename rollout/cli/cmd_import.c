/*
 * cmd_import.c - `assay tasks import`: a file of any length, in calls of whole records.
 *
 * Each call is one transaction of the server, so an import that is killed has kept what was told as imported, and perhaps one call
 * more: with --resume it goes on where it was, as records that are known as they stand are passed over.
 */
#include "rollout/cli/eval.h"
#include "rollout/cli/print.h"
#include "base/clock.h"
#include "base/own.h"
#include <errno.h>
#include <string.h>
#include <unistd.h>

#define IMPORT_CALL_MAX ((size_t)3 << 20)       /* whole records of at most so many bytes a call: proto/catalog */
#define LINES_LOOK_MAX  ((size_t)64 << 20)      /* so far for the end of what began on a line and did not end there */
#define INPUT_MAX       ((size_t)256 << 20)     /* what is looked at twice over, as it moves when half of it is done */
#define READ_SIZE       ((size_t)1 << 20)
#define PROGRESS_NS     100000000u              /* a terminal is written to ten times a second */
#define PROGRESS_WIDTH  30

const struct cli_option cmd_tasks_import_options[] = {
    { "repos", 0, "DIR", "directory that holds the repositories the records name (required)" },
    { "resume", 0, NULL, "pass over records that are in the catalog as they stand, without a look at their repository" },
    { 0 },
};

const char *record_fault(const char *message, const char *id)
{
    size_t n = strlen(id);
    if (strncmp(message, "task ", 5) != 0 || strncmp(message, "task record ", 12) == 0)
        return message;
    message += 5;               /* a record that could not be read whole: only the message knows its id */
    return n > 0 && strncmp(message, id, n) == 0 && strncmp(message + n, ": ", 2) == 0 ? message + n + 2 : message;
}

/* What is read of the file and not sent yet: `at` on. The memory is the same for any file. */
struct input {
    int fd;
    struct buf b;
    size_t at;
    bool ended;
    uint64_t size;                  /* of a regular file; else 0 */
    uint64_t done, line;            /* bytes and lines behind us; the line that is next */
};

struct import_total {
    uint64_t added, unchanged, replaced, skipped;
    json_t *failures, *notes;       /* kept for -o json */
    uint64_t failed;
    bool bar;                       /* a bar is on the terminal's last line */
    uint64_t from_ns, shown_ns;
};

/* --- progress --- */

static void progress_clear(struct import_total *total)
{
    if (total->bar)
        fputs("\r\033[K", stderr);
    total->bar = false;
}

static uint64_t imported(const struct import_total *t)
{
    return t->added + t->unchanged + t->replaced + t->skipped + t->failed;
}

/* One line that is written over: share, records, rate, time left. For a terminal only. */
static void progress_show(struct import_total *total, const struct input *in)
{
    uint64_t now = clock_mono_ns();
    if (!isatty(STDERR_FILENO) || now - total->shown_ns < PROGRESS_NS)
        return;
    total->shown_ns = now;
    double took_s = (double)(now - total->from_ns) / 1e9, rate = (double)imported(total) / took_s;
    fputs("\r\033[K", stderr);
    if (in->size > 0) {
        double share = (double)in->done / (double)in->size;
        int full = (int)(share * PROGRESS_WIDTH);
        fprintf(stderr, "[%.*s%*s] %3.0f %%  ", full, "##############################", PROGRESS_WIDTH - full, "", share * 100);
    }
    fprintf(stderr, "%llu records  %.0f/s", (unsigned long long)imported(total), rate);
    if (in->done > 0 && in->size > in->done) {
        double left_s = took_s * (double)(in->size - in->done) / (double)in->done;
        fprintf(stderr, "  %d:%02d left", (int)(left_s / 60), (int)left_s % 60);
    }
    fflush(stderr);
    total->bar = true;
}

/* --- one call --- */

static int report_failure(struct cli *c, struct import_total *total, const char *source, uint64_t line, const char *id,
                          const char *code, const char *message, struct err *err)
{
    total->failed++;
    progress_clear(total);
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
    int rc = ask_import(&request, bytes, n, repos, source, first_line, cli_flag(c, "resume"), err);
    if (rc == 0)
        rc = cli_call(c, METHOD_IMPORT, &request, &answer, err);
    if (rc == 0)
        rc = view_import(&v, &a, &answer, err);
    if (rc < 0)
        return rc;
    total->added += v.added;
    total->unchanged += v.unchanged;
    total->replaced += v.replaced;
    total->skipped += v.skipped;
    if (v.notes.count > 0)
        progress_clear(total);
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

/* --- the file, cut into calls --- */

/* At least `want` bytes from `at` on, unless the file ends before. */
static int fill(struct input *in, const char *source, size_t want, struct err *err)
{
    while (!in->ended && in->b.len - in->at < want) {
        if (in->at > in->b.len / 2) {           /* moved only when that frees more than it moves */
            in->b.len -= in->at;
            memmove(in->b.data, in->b.data + in->at, in->b.len);
            in->at = 0;
        }
        uint8_t *to = buf_reserve(&in->b, READ_SIZE, err);
        if (to == NULL)
            return err->code;
        ssize_t n = read(in->fd, to, READ_SIZE);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_sys(err, ERR_BAD_INPUT, "%s", source);
        in->ended = n == 0;
        in->b.len += (size_t)n;
    }
    return 0;
}

static void pass(struct input *in, size_t n, uint64_t lines)
{
    in->at += n;
    in->done += n;
    in->line += lines;
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

/* A line that no call holds: passed over without being kept. */
static int pass_line(struct input *in, const char *source, struct err *err)
{
    in->line++;
    for (;;) {
        int rc = fill(in, source, 1, err);
        size_t n = in->b.len - in->at;
        if (rc < 0 || n == 0)
            return rc;
        const uint8_t *p = in->b.data + in->at, *newline = memchr(p, '\n', n);
        pass(in, newline != NULL ? (size_t)(newline + 1 - p) : n, 0);
        if (newline != NULL)
            return 0;
    }
}

/* As many whole lines from here on as fit a call; *many is set where a record over several lines comes next. */
static size_t whole_lines(const struct input *in, uint64_t *out_lines, const uint8_t **many)
{
    const uint8_t *p = in->b.data + in->at, *end = in->b.data + in->b.len, *stop = p;
    *out_lines = 0;
    *many = NULL;
    while (stop < end) {
        const uint8_t *next = line_end(stop, end);
        if ((size_t)(next - p) > IMPORT_CALL_MAX || (next[-1] != '\n' && !in->ended)
            || (*many = many_lines_end(stop, end)) != NULL)
            break;
        stop = next;
        ++*out_lines;
    }
    return (size_t)(stop - p);
}

/* One call's worth: a run of whole lines, or one bad record that is none. */
static int import_next(struct cli *c, struct import_total *total, struct input *in, const char *repos, const char *source,
                       struct err *err)
{
    const uint8_t *many;
    uint64_t lines;
    size_t n = whole_lines(in, &lines, &many);
    if (many != NULL && !in->ended) {           /* look as far as it may take before it is believed */
        int rc = fill(in, source, LINES_LOOK_MAX, err);
        if (rc < 0)
            return rc;
        n = whole_lines(in, &lines, &many);
    }
    const uint8_t *p = in->b.data + in->at, *end = in->b.data + in->b.len;
    if (lines > 0) {
        int rc = import_call(c, total, p, n, repos, source, in->line, err);
        pass(in, n, lines);
        return rc;
    }
    if (many == NULL) {
        int rc = report_failure(c, total, source, in->line, "", "limit", "record is larger than 3 MiB", err);
        return rc < 0 ? rc : pass_line(in, source, err);
    }
    int rc = report_failure(c, total, source, in->line, "", "bad_input", *trimmed(p, end, &(size_t){ 0 }) == '{'
                            ? "a record over several lines: want one object a line (`jq -c .` writes them so)"
                            : "a list over several lines: want one object a line (`jq -c '.[]'` writes them so)", err);
    pass(in, (size_t)(many - p), lines_in(p, many));
    return rc;
}

static int import_all(struct cli *c, struct import_total *total, struct input *in, const char *repos, const char *source,
                      struct err *err)
{
    int rc = fill(in, source, IMPORT_CALL_MAX + 1, err);
    if (rc == 0 && in->b.len >= 3 && memcmp(in->b.data, "\xef\xbb\xbf", 3) == 0)     /* the mark some editors begin a file with */
        pass(in, 3, 0);
    while (rc == 0 && in->at < in->b.len) {
        rc = import_next(c, total, in, repos, source, err);
        if (rc == 0) {
            progress_show(total, in);
            rc = fill(in, source, IMPORT_CALL_MAX + 1, err);
        }
    }
    progress_clear(total);
    return rc;
}

static int print_total(struct cli *c, const struct import_total *total, struct err *err)
{
    if (c->json)
        return print_json(stdout, json_pack("{s:I,s:I,s:I,s:I,s:O,s:O}", "added", (json_int_t)total->added, "unchanged",
                          (json_int_t)total->unchanged, "replaced", (json_int_t)total->replaced, "skipped",
                          (json_int_t)total->skipped, "failures", total->failures, "notes", total->notes), true, err);
    printf("%llu added, %llu unchanged, %llu replaced", (unsigned long long)total->added, (unsigned long long)total->unchanged,
           (unsigned long long)total->replaced);
    if (cli_flag(c, "resume"))
        printf(", %llu skipped", (unsigned long long)total->skipped);
    puts(total->failed > 0 ? "" : "; no bad records");
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
    uint64_t size;
    own_fd fd = -1;
    int rc = cli_open_file(&fd, &size, path, err);
    if (rc < 0)
        return rc;
    const char *source = strcmp(path, "-") == 0 ? "stdin" : path;
    struct input in = { .fd = fd, .size = size, .line = 1, .b.max = INPUT_MAX };
    struct import_total total = { .failures = json_array(), .notes = json_array(), .from_ns = clock_mono_ns() };
    rc = total.failures == NULL || total.notes == NULL ? err_set(err, ERR_LIMIT, "out of memory")
                                                       : import_all(c, &total, &in, repos, source, err);
    if (rc == 0)
        rc = print_total(c, &total, err);
    buf_done(&in.b);
    json_decref(total.failures);
    json_decref(total.notes);
    if (rc == 0 && total.failed > 0)
        return err_set(err, ERR_BAD_INPUT, "%s: %llu bad record%s, named above; the good ones were kept", source,
                       (unsigned long long)total.failed, total.failed == 1 ? "" : "s");
    return rc;
}
