/*
 * report_tap.c - TAP 12 to 14, and the same below prove's file headings.
 *
 * Theory: TAP has no file that the tests cannot write, so a stream is believed only as a whole: the plan is met, the
 * numbers run 1, 2, 3, nothing bailed out, nothing is missing in the middle; under prove its own `Files=, Tests=`
 * totals and `Result:` fit as well. A line that a test slips in breaks one of these, and the run is then incomplete.
 * In a file (or subtest) whose plan was not met no single pass is kept: what ended early has not said everything.
 *
 * Subtests are indented by four; the outer test's line comes after them, or before in the `{` form. Their results
 * wait in the level above until that line gives the outer id.
 */
#include "rollout/report.h"
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define LEVELS_MAX 16

struct tap_point { const char *id, *message; enum test_status status; };

struct tap_level {
    struct tap_point *points; uint32_t count, cap;  /* done, under this level's own ids */
    bool has_plan, broken;
    uint64_t planned, seen;
    const char *outer;          /* `{` form: the id that these points belong to */
};

struct tap {
    struct arena *a;
    struct report_builder *out;
    struct report *report;
    const char *evidence;
    const char *file;           /* current file id, or NULL */
    const char *skip_all;       /* reason, or NULL */
    enum test_status file_status;
    bool file_open, file_ended, yaml;
    size_t yaml_indent;
    struct tap_level levels[LEVELS_MAX];
    uint32_t top;               /* deepest level in use */
    uint64_t top_points;        /* of all files */
};

static bool starts(const uint8_t *s, size_t n, const char *with)
{
    size_t k = strlen(with);
    return n >= k && memcmp(s, with, k) == 0;
}

static void incomplete(struct tap *t, const char *note)
{
    t->report->complete = false;
    if (note != NULL && *t->report->note == '\0')
        t->report->note = note;
}

static int level_add(struct tap *t, struct tap_level *l, struct tap_point p, struct err *err)
{
    if (p.id == NULL || p.message == NULL)
        return report_no_memory(err);
    if (l->count >= REPORT_TESTS_MAX)
        return err_set(err, ERR_LIMIT, "report: more than %u test ids", REPORT_TESTS_MAX);
    if (l->count == l->cap) {
        uint32_t cap = l->cap == 0 ? 32 : l->cap * 2;
        struct tap_point *more = arena_alloc(t->a, (size_t)cap * sizeof *more);
        if (more == NULL)
            return report_no_memory(err);
        if (l->count > 0)
            memcpy(more, l->points, l->count * sizeof *more);
        l->points = more;
        l->cap = cap;
    }
    l->points[l->count++] = p;
    return 0;
}

/* --- levels --- */

/* Does the level say everything it planned to? Without that its passes are not kept. */
static void level_settle(struct tap_level *l)
{
    if (l->has_plan && l->seen == l->planned && !l->broken)
        return;
    for (uint32_t i = 0; i < l->count; i++)
        if (l->points[i].status == TEST_PASSED || l->points[i].status == TEST_XPASS) {
            l->points[i].status = TEST_MISSING;
            l->points[i].message = "its plan was not met";
        }
}

/* The points of level `depth` become those of the test `outer` one level up. */
static int level_adopt(struct tap *t, uint32_t depth, const char *outer, struct err *err)
{
    struct tap_level *l = &t->levels[depth], *up = &t->levels[depth - 1];
    level_settle(l);
    for (uint32_t i = 0; i < l->count; i++) {
        struct tap_point p = l->points[i];
        p.id = arena_printf(t->a, "%s::%s", outer, p.id);
        int rc = level_add(t, up, p, err);
        if (rc < 0)
            return rc;
    }
    *l = (struct tap_level){ 0 };
    t->top = depth - 1;
    return 0;
}

/* Levels deeper than `depth` end here; the one right below it belongs to `outer`. */
static int levels_close(struct tap *t, uint32_t depth, const char *outer, struct err *err)
{
    while (t->top > depth) {
        const char *id = t->levels[t->top].outer != NULL ? t->levels[t->top].outer : t->top == depth + 1 ? outer : NULL;
        if (id == NULL)
            incomplete(t, "a subtest without its outer test");
        int rc = level_adopt(t, t->top, id != NULL ? id : "?", err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* --- one stream, which is one file under prove --- */

static int stream_close(struct tap *t, struct err *err)
{
    struct tap_level *l = &t->levels[0];
    if (!t->file_open)
        return 0;
    int rc = levels_close(t, 0, NULL, err);
    bool said_nothing = t->file != NULL && l->count == 0 && !l->has_plan;   /* prove without -v */
    bool met = l->has_plan && l->seen == l->planned && !l->broken;
    if (!said_nothing)
        level_settle(l);
    if (t->file == NULL && !met)
        incomplete(t, !l->has_plan ? "the TAP stream has no plan" : l->broken ? "the TAP stream's numbers or plan do not fit"
                       : arena_printf(t->a, "the plan was 1..%llu, %llu tests were seen", (unsigned long long)l->planned,
                                      (unsigned long long)l->seen));
    for (uint32_t i = 0; rc == 0 && i < l->count; i++) {
        const char *id = t->file != NULL ? arena_printf(t->a, "%s::%s", t->file, l->points[i].id) : l->points[i].id;
        rc = report_add(t->out, id, l->points[i].status, l->points[i].message, t->evidence, 0, err);
    }
    if (rc == 0 && t->file != NULL) {
        enum test_status s = t->file_status;
        if (!said_nothing && !met && t->skip_all == NULL)
            s = TEST_FAILED;
        rc = report_add(t->out, t->file, s, t->skip_all != NULL ? t->skip_all : "", t->evidence, 0, err);
    } else if (rc == 0 && t->skip_all != NULL) {
        t->report->collected_nothing = l->count == 0;
    }
    t->top_points += l->seen;
    *l = (struct tap_level){ 0 };
    t->file = t->skip_all = NULL;
    t->file_open = t->file_ended = t->yaml = false;
    return rc;
}

static void stream_open(struct tap *t, const char *file)
{
    t->file = file;
    t->file_open = true;
    t->file_ended = false;
    t->file_status = TEST_MISSING;
}

enum directive { PLAIN, TODO, SKIP };

/* "text # TODO why" -> its directive; *len becomes the length of the text before. */
static enum directive directive(const uint8_t *s, size_t *len, const uint8_t **why, size_t *why_len)
{
    for (size_t i = 0; i < *len; i++) {
        if (s[i] == '\\') {
            i++;
            continue;
        }
        if (s[i] != '#' || (i > 0 && s[i - 1] != ' ' && s[i - 1] != '\t'))
            continue;
        size_t at = i + 1, n = *len;
        while (at < n && s[at] == ' ')
            at++;
        bool todo = n - at >= 4 && strncasecmp((const char *)s + at, "TODO", 4) == 0;
        bool skip = n - at >= 4 && strncasecmp((const char *)s + at, "SKIP", 4) == 0;
        bool time = starts(s + at, n - at, "time=");
        if (!todo && !skip && !time)
            continue;
        at += 4;
        while (at < n && s[at] != ' ')
            at++;                       /* "skipped", "TODO:" */
        *why = s + (at < n ? at + 1 : n);
        *why_len = at < n ? n - at - 1 : 0;
        *len = i;
        return todo ? TODO : skip ? SKIP : PLAIN;
    }
    return PLAIN;
}

static const char *point_id(struct tap *t, uint64_t number, const uint8_t *s, size_t n)
{
    while (n > 0 && (s[n - 1] == ' ' || s[n - 1] == '\t'))
        n--;
    while (n > 0 && *s == ' ') {
        s++;
        n--;
    }
    if (starts(s, n, "- ") || (n == 1 && *s == '-')) {
        s += n == 1 ? 1 : 2;
        n -= n == 1 ? 1 : 2;
    }
    if (n == 0)
        return arena_printf(t->a, "%llu", (unsigned long long)number);
    uint8_t *plain = arena_alloc(t->a, n + 1);
    size_t w = 0;
    for (size_t i = 0; plain != NULL && i < n; i++) {       /* "\#" and "\\" are TAP's escapes */
        if (s[i] == '\\' && i + 1 < n && (s[i + 1] == '#' || s[i + 1] == '\\'))
            i++;
        plain[w++] = s[i];
    }
    char *text = plain != NULL ? report_text(t->a, plain, w, REPORT_ID_MAX) : NULL;
    return text != NULL ? arena_printf(t->a, "%llu - %s", (unsigned long long)number, text) : NULL;
}

static bool read_number(const uint8_t *s, size_t n, size_t *at, uint64_t *out)
{
    size_t from = *at;
    *out = 0;
    while (*at < n && s[*at] >= '0' && s[*at] <= '9' && *at - from < 9)
        *out = *out * 10 + (s[(*at)++] - (unsigned)'0');
    return *at > from;
}

/* "ok 3 - name # SKIP why" at `depth`; `s` begins after "ok" or "not ok". */
static int read_point(struct tap *t, uint32_t depth, bool good, const uint8_t *s, size_t n, struct err *err)
{
    struct tap_level *l = &t->levels[depth];
    size_t at = 0, why_len = 0;
    const uint8_t *why = s;
    uint64_t number;
    while (at < n && s[at] == ' ')
        at++;
    if (!read_number(s, n, &at, &number))
        number = l->seen + 1;
    bool opens = n > at + 1 && s[n - 1] == '{' && s[n - 2] == ' ';
    size_t len = n - at - (opens ? 2 : 0);
    s += at;
    enum directive kind = directive(s, &len, &why, &why_len);
    struct tap_point p = { point_id(t, number, s, len), "", good ? TEST_PASSED : TEST_FAILED };
    if (kind == TODO)
        p.status = good ? TEST_XPASS : TEST_XFAIL;
    else if (kind == SKIP && good)
        p.status = TEST_SKIPPED;
    if (kind == TODO || kind == SKIP)
        p.message = report_text(t->a, why, why_len, REPORT_MESSAGE_MAX);
    if (p.id == NULL)
        return report_no_memory(err);
    l->broken |= number != l->seen + 1 || (l->has_plan && number > l->planned);
    l->seen++;
    int rc = levels_close(t, depth, p.id, err);
    if (rc == 0)
        rc = level_add(t, l, p, err);
    if (rc == 0 && opens && depth + 1 < LEVELS_MAX) {
        t->levels[depth + 1] = (struct tap_level){ .outer = p.id };
        t->top = depth + 1;
    }
    return rc;
}

static int read_plan(struct tap *t, uint32_t depth, const uint8_t *s, size_t n, struct err *err)
{
    struct tap_level *l = &t->levels[depth];
    size_t at = 3, why_len = 0, len;
    const uint8_t *why = s;
    uint64_t planned;
    if (!read_number(s, n, &at, &planned))
        return 0;
    l->broken |= l->has_plan || l->seen > planned;
    l->has_plan = true;
    l->planned = planned;
    len = n - at;
    enum directive kind = directive(s + at, &len, &why, &why_len);
    if (depth == 0 && planned == 0) {
        t->skip_all = kind == SKIP ? report_text(t->a, why, why_len, REPORT_MESSAGE_MAX) : "no tests planned";
        t->file_status = TEST_SKIPPED;
        if (t->skip_all == NULL)
            return report_no_memory(err);
    }
    return 0;
}

static int read_line(struct tap *t, const uint8_t *line, size_t n, struct err *err)
{
    size_t indent = 0;
    while (indent < n && line[indent] == ' ')
        indent++;
    if (t->yaml) {                      /* a YAML block belongs to the test before it and is not read */
        t->yaml = !(indent == t->yaml_indent && starts(line + indent, n - indent, "..."));
        return 0;
    }
    if (indent % 4 == 2 && starts(line + indent, n - indent, "---")) {
        t->yaml = true;
        t->yaml_indent = indent;
        return 0;
    }
    uint32_t depth = (uint32_t)(indent / 4);
    const uint8_t *s = line + indent;
    n -= indent;
    if (indent % 4 != 0 || depth >= LEVELS_MAX || depth > t->top + 1 || n == 0)
        return 0;
    bool point = starts(s, n, "ok ") || (n == 2 && starts(s, n, "ok"));
    bool bad = starts(s, n, "not ok ") || (n == 6 && starts(s, n, "not ok"));
    bool plan = n >= 4 && starts(s, n, "1..") && s[3] >= '0' && s[3] <= '9';
    if (starts(s, n, "Bail out!")) {
        t->levels[0].broken = true;
        char *why = report_first_line(t->a, s, n, REPORT_MESSAGE_MAX);
        if (why == NULL)
            return report_no_memory(err);
        incomplete(t, why);
        return 0;
    }
    if (n == 1 && *s == '}' && t->top > depth)
        return levels_close(t, depth, NULL, err);
    if (*s == '#' && depth <= t->top) {
        struct tap_level *l = &t->levels[depth];
        struct tap_point *last = l->count > 0 ? &l->points[l->count - 1] : NULL;
        size_t skip = 0;
        while (skip < n && (s[skip] == ' ' || s[skip] == '#'))
            skip++;
        if (last != NULL && last->status == TEST_FAILED && *last->message == '\0' && skip < n && !starts(s, n, "# Subtest")) {
            last->message = report_text(t->a, s + skip, n - skip, REPORT_MESSAGE_MAX);
            return last->message != NULL ? 0 : report_no_memory(err);
        }
        return 0;
    }
    if (!point && !bad && !plan)
        return 0;
    if (depth > t->top) {
        t->levels[depth] = (struct tap_level){ 0 };
        t->top = depth;
    }
    return plan ? read_plan(t, depth, s, n, err) : read_point(t, depth, point, s + (point ? 2 : 6), n - (point ? 2 : 6), err);
}

/* --- prove --- */

struct totals { bool has_files, has_result, passed; uint64_t files, tests, headings; };

/* "t/name.t .. rest": the length of the name, or 0. */
static size_t heading(const uint8_t *s, size_t n, size_t *rest)
{
    if (n == 0 || *s == ' ' || *s == '#')
        return 0;
    for (size_t i = 1; i + 2 < n; i++) {
        if (s[i] != ' ' || s[i + 1] != '.' || s[i + 2] != '.')
            continue;
        size_t end = i + 1;
        while (end < n && s[end] == '.')
            end++;
        if (end < n && s[end] != ' ')
            continue;
        *rest = end < n ? end + 1 : n;
        return i;
    }
    return 0;
}

static void file_line(struct tap *t, const uint8_t *s, size_t n)
{
    struct tap_level *l = &t->levels[0];
    bool may_end = l->has_plan ? l->seen == l->planned : l->seen == 0;
    if (n == 2 && starts(s, n, "ok") && may_end) {
        t->file_ended = true;
        t->file_status = t->file_status == TEST_MISSING ? TEST_PASSED : t->file_status;
    } else if (starts(s, n, "skipped") && may_end && l->seen == 0) {
        t->file_ended = true;
        t->file_status = TEST_SKIPPED;
        l->has_plan = true;             /* prove shows no 1..0 line */
        t->skip_all = report_text(t->a, s, n, REPORT_MESSAGE_MAX);
    } else if (starts(s, n, "Dubious, test returned") || starts(s, n, "No subtests run") ||
               (starts(s, n, "Failed ") && n > 8 && s[7] >= '0' && s[7] <= '9' && memmem(s, n, " subtests", 9) != NULL)) {
        t->file_ended = true;
        t->file_status = TEST_FAILED;
    }
}

static int prove_line(struct tap *t, struct totals *sum, const uint8_t *s, size_t n, struct err *err)
{
    size_t rest = 0, name = heading(s, n, &rest), at = 6;
    if (starts(s, n, "Files=") && read_number(s, n, &at, &sum->files) && starts(s + at, n - at, ", Tests=")) {
        at += 8;
        sum->has_files = read_number(s, n, &at, &sum->tests);
        return stream_close(t, err);
    }
    if (starts(s, n, "Result: ")) {
        sum->has_result = true;
        sum->passed = starts(s, n, "Result: PASS");
        return stream_close(t, err);
    }
    if (starts(s, n, "Test Summary Report") || starts(s, n, "All tests successful."))
        return stream_close(t, err);
    const uint8_t *wstat = n > 0 ? memmem(s, n, " (Wstat: ", 9) : NULL;
    if (wstat != NULL && !t->file_open) {
        size_t len = (size_t)(wstat - s);
        while (len > 0 && s[len - 1] == ' ')
            len--;
        bool clean = starts(wstat, n - (size_t)(wstat - s), " (Wstat: 0 ") && memmem(s, n, "Failed: 0)", 10) != NULL;
        return clean ? 0 : report_add(t->out, report_text(t->a, s, len, REPORT_ID_MAX), TEST_FAILED, "", t->evidence, 0, err);
    }
    bool test_line = starts(s, n, "ok ") || starts(s, n, "not ok ");
    if (name > 0 && !test_line && !t->yaml) {
        int rc = stream_close(t, err);
        char *file = report_text(t->a, s, name, REPORT_ID_MAX);
        if (rc < 0 || file == NULL)
            return rc < 0 ? rc : report_no_memory(err);
        stream_open(t, file);
        sum->headings++;
        file_line(t, s + rest, n - rest);
        return 0;
    }
    if (!t->file_open)
        return 0;
    file_line(t, s, n);
    if (t->file_ended)
        return 0;                       /* past this file's end: only its heading's successor speaks again */
    return read_line(t, s, n, err);
}

static int read_prove(struct tap *t, const struct report_input *in, struct err *err)
{
    struct totals sum = { 0 };
    const uint8_t *line;
    size_t n, at = 0;
    int rc = 0;
    while (rc == 0 && report_next_line(in->output, in->output_len, &at, &line, &n))
        rc = prove_line(t, &sum, line, n, err);
    if (rc == 0)
        rc = stream_close(t, err);
    bool bad = false;
    for (uint32_t i = 0; i < t->out->count; i++)
        bad |= t->out->tests[i].status == TEST_FAILED || t->out->tests[i].status == TEST_ERROR;
    if (!sum.has_result || !sum.has_files)
        incomplete(t, "prove's closing lines are missing: it did not end in order");
    else if (sum.files != sum.headings)
        incomplete(t, arena_printf(t->a, "prove counted %llu files, the output shows %llu", (unsigned long long)sum.files,
                                   (unsigned long long)sum.headings));
    else if (t->top_points > 0 && sum.tests != t->top_points)
        incomplete(t, arena_printf(t->a, "prove counted %llu tests, the output shows %llu", (unsigned long long)sum.tests,
                                   (unsigned long long)t->top_points));
    else if (!sum.passed && !bad && sum.files > 0)
        incomplete(t, "prove's result is not PASS although no shown test failed");
    else if (sum.passed && bad)
        incomplete(t, "prove's result is PASS although a shown test failed");
    t->report->collected_nothing = rc == 0 && sum.has_result && sum.has_files && sum.files == 0 && t->out->count == 0;
    return rc;
}

/* --- the reader --- */

static int read_stream(struct tap *t, const char *file, const uint8_t *bytes, size_t n, struct err *err)
{
    const uint8_t *line;
    size_t len, at = 0;
    int rc = 0;
    stream_open(t, file);
    while (rc == 0 && report_next_line(bytes, n, &at, &line, &len))
        rc = read_line(t, line, len, err);
    if (rc == 0 && file != NULL)        /* a file of its own: good when its plan is met, which stream_close() checks */
        t->file_status = t->file_status == TEST_SKIPPED ? TEST_SKIPPED : TEST_PASSED;
    return rc == 0 ? stream_close(t, err) : rc;
}

int report_read_tap(struct report *out, struct arena *a, const struct report_input *in, struct err *err)
{
    struct report_builder b = { .a = a };
    uint32_t taps = 0, read = 0;
    int rc = 0;
    *out = (struct report){ .reader = "tap/1", .note = "", .complete = true };
    struct tap *t = arena_alloc(a, sizeof *t);
    if (t == NULL)
        return report_no_memory(err);
    *t = (struct tap){ .a = a, .out = &b, .report = out, .evidence = "stdout" };
    for (uint32_t i = 0; i < in->file_count; i++)
        taps += in->files[i].name_len > 4 && memcmp(in->files[i].name + in->files[i].name_len - 4, ".tap", 4) == 0;
    for (uint32_t i = 0; rc == 0 && taps > 0 && i < in->file_count; i++) {
        const struct report_file *f = &in->files[i];
        if (f->name_len <= 4 || memcmp(f->name + f->name_len - 4, ".tap", 4) != 0)
            continue;
        char *name = report_text(a, f->name, f->name_len - 4, REPORT_ID_MAX);
        t->evidence = "report_file";
        if (f->cut)
            incomplete(t, "a TAP file is larger than the report size limit");
        rc = name != NULL ? read_stream(t, taps > 1 ? name : NULL, f->bytes, f->len, err) : report_no_memory(err);
        read++;
    }
    if (rc == 0 && read == 0) {
        bool prove = report_runs(in->task->test_cmd != NULL ? in->task->test_cmd : "", "prove") ||
                     (in->output_len > 0 && memmem(in->output, in->output_len, "\nResult: ", 9) != NULL);
        if (in->output_cut)
            incomplete(t, "the middle of the output was dropped, and with it test lines");
        rc = prove ? read_prove(t, in, err) : read_stream(t, NULL, in->output, in->output_len, err);
    }
    if (in->run->ended_by_limit != 0)
        incomplete(t, "the run was ended by a limit");
    out->tests = b.tests;
    out->test_count = b.count;
    if (rc == 0 && out->note == NULL)
        return report_no_memory(err);
    return rc;
}
