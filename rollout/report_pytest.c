/*
 * report_pytest.c - pytest: node ids out of its xunit1 report, held against what it printed.
 *
 * Theory: the report names a test by three attributes. pytest made `classname` and `name` from the node id by turning
 * the path's slashes to dots, so the way back needs the path: `file` gives it, except where a test function is
 * inherited from another file. Then the ids that pytest printed decide, then the task's required ids, each turned
 * the same way as pytest turns them and compared; where two fit, both get the result and keep their worse one.
 *
 * A pass needs the report. The printed lines can only take it away: a FAILED, ERROR or XFAIL line against a test, totals
 * that do not fit (a test skipped or deselected in the session and passed in a report written after it), no summary at
 * all where there must be one (os._exit inside the session). Output after pytest's own end is therefore harmless: a
 * forged PASSED line adds nothing.
 *
 * What this cannot see: code under test runs in pytest's own process, so it may write a perfect report and a perfect
 * summary and leave with status 0 before pytest has printed anything. No reader can tell; only a task's canary tests can.
 */
#include "rollout/report.h"
#include <stdlib.h>
#include <string.h>

/* --- pytest's own renaming: (path::Class::name[params]) -> (path.Class, name[params]) --- */

struct candidate { const char *classname, *name, *id; bool printed; };

static int candidate_from(struct candidate *out, struct arena *a, const char *id, bool printed, struct err *err)
{
    size_t open = strcspn(id, "["), path = 0;
    const char *sep = strstr(id, "::");
    path = sep != NULL && (size_t)(sep - id) < open ? (size_t)(sep - id) : open;
    char *classname = arena_alloc(a, open + 1);
    if (classname == NULL)
        return report_no_memory(err);
    size_t w = 0;
    for (size_t i = 0; i < path; i++)
        classname[w++] = id[i] == '/' ? '.' : id[i];
    if (w > 3 && memcmp(classname + w - 3, ".py", 3) == 0)
        w -= 3;
    size_t name_at = 0;
    bool has_name = false;
    for (size_t i = path; i + 1 < open && id[i] == ':' && id[i + 1] == ':'; ) {
        size_t end = i + 2;
        while (end < open && !(id[end] == ':' && end + 1 < open && id[end + 1] == ':'))
            end++;
        if (has_name) {                 /* the name so far was a class */
            classname[w++] = '.';
            memcpy(classname + w, id + name_at, i - name_at);
            w += i - name_at;
        }
        has_name = true;
        name_at = i + 2;
        i = end;
    }
    classname[w] = '\0';
    out->id = id;
    out->printed = printed;
    if (has_name) {
        out->classname = classname;
        out->name = id + name_at;       /* to the end: the parameters stay with it */
    } else {
        out->classname = "";
        out->name = path == open && id[open] == '[' ? arena_printf(a, "%s%s", classname, id + open) : classname;
    }
    return out->name != NULL ? 0 : report_no_memory(err);
}

static int candidate_cmp(const void *x, const void *y)
{
    const struct candidate *a = x, *b = y;
    int c = strcmp(a->name, b->name);
    if (c == 0)
        c = strcmp(a->classname, b->classname);
    if (c == 0)
        c = strcmp(a->id, b->id);
    return c != 0 ? c : (int)b->printed - (int)a->printed;
}

struct names { struct candidate *rows; uint32_t count; };

static int names_collect(struct names *out, struct arena *a, const struct pytest_text *text, const struct task *task,
                         struct err *err)
{
    const struct str_list *lists[2] = { &task->fail_to_pass, &task->pass_to_pass };
    size_t n = (size_t)text->count + lists[0]->count + lists[1]->count;
    int rc = 0;
    out->count = 0;
    out->rows = arena_alloc(a, (n + 1) * sizeof *out->rows);
    if (out->rows == NULL)
        return report_no_memory(err);
    for (uint32_t i = 0; rc == 0 && i < text->count; i++)
        rc = candidate_from(&out->rows[out->count++], a, text->lines[i].id, true, err);
    for (int k = 0; k < 2; k++)
        for (uint32_t i = 0; rc == 0 && i < lists[k]->count; i++)
            rc = candidate_from(&out->rows[out->count++], a, lists[k]->items[i], false, err);
    if (rc == 0 && out->count > 1)
        qsort(out->rows, out->count, sizeof *out->rows, candidate_cmp);
    return rc;
}

/* Rows for this classname and name; returns how many, *first is the first. */
static uint32_t names_find(const struct names *names, const struct junit_case *c, const struct candidate **first)
{
    uint32_t low = 0, high = names->count, n = 0;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        int cmp = strcmp(names->rows[mid].name, c->name);
        if (cmp == 0)
            cmp = strcmp(names->rows[mid].classname, c->classname);
        if (cmp < 0)
            low = mid + 1;
        else
            high = mid;
    }
    *first = &names->rows[low];
    while (low + n < names->count && strcmp((*first)[n].name, c->name) == 0 && strcmp((*first)[n].classname, c->classname) == 0)
        n++;
    return n;
}

/* The id by `file`, when the class name begins with it; NULL when it does not; *rc < 0 out of memory. */
static const char *id_by_file(struct arena *a, const struct junit_case *c, int *rc, struct err *err)
{
    size_t n = strlen(c->file), m = n > 3 && strcmp(c->file + n - 3, ".py") == 0 ? n - 3 : n;
    if (n == 0 || strlen(c->classname) < m)
        return NULL;
    for (size_t i = 0; i < m; i++)
        if (c->classname[i] != (c->file[i] == '/' ? '.' : c->file[i]))
            return NULL;
    const char *rest = c->classname + m;
    if (*rest != '\0' && *rest != '.')
        return NULL;
    char *classes = arena_alloc(a, strlen(rest) * 2 + 1), *w = classes;
    for (const char *p = rest; classes != NULL && *p != '\0'; p++) {
        if (*p == '.') {
            *w++ = ':';
            *w++ = ':';
        } else {
            *w++ = *p;
        }
    }
    const char *id = classes != NULL ? arena_printf(a, "%s%s::%s", c->file, classes, c->name) : NULL;
    if (id == NULL)
        *rc = report_no_memory(err);
    return id;
}

static int add_case(struct report_builder *b, const struct names *names, const struct junit_case *c, struct err *err)
{
    int rc = 0;
    const char *id = id_by_file(b->a, c, &rc, err);
    if (rc < 0)
        return rc;
    if (id != NULL)
        return report_add(b, id, c->status, c->message, "report_file", c->duration_s, err);
    const struct candidate *first;
    uint32_t n = names_find(names, c, &first), added = 0;
    bool any_printed = false;
    for (uint32_t i = 0; i < n; i++)
        any_printed |= first[i].printed;
    for (uint32_t i = 0; rc == 0 && i < n; i++)
        if (first[i].printed == any_printed && (i == 0 || strcmp(first[i].id, first[i - 1].id) != 0 || !any_printed)) {
            rc = report_add(b, first[i].id, c->status, c->message, "report_file", c->duration_s, err);
            added++;
        }
    if (rc < 0 || added > 0)
        return rc;
    id = *c->classname != '\0' ? arena_printf(b->a, "%s::%s", c->classname, c->name) : c->name;
    return report_add(b, id, c->status, c->message, "report_file", c->duration_s, err);
}

/* --- the printed lines against the report --- */

/*
 * With the report, a FAILED or ERROR line counts against a test that the report knows or the task asks for;
 * without it, every such line is a result. XPASS tells apart what the report calls a plain pass; XFAIL takes that away.
 */
static int apply_text(struct report_builder *b, const struct pytest_text *text, bool have_report, struct err *err)
{
    for (uint32_t i = 0; i < text->count; i++) {
        const struct pytest_line *l = &text->lines[i];
        bool bad = l->status == TEST_FAILED || l->status == TEST_ERROR;
        const struct test_result *known = report_find(b, l->id);
        bool marked = l->status == TEST_XPASS || l->status == TEST_XFAIL;
        bool use = bad ? known != NULL || !have_report : marked && known != NULL && known->status == TEST_PASSED;
        int rc = use ? report_add(b, l->id, l->status, l->message, "stdout", 0, err) : 0;
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* May the printed summary be absent although pytest ended in order? Only where the command sends its output elsewhere. */
static bool summary_expected(const struct report_input *in)
{
    const char *cmd = in->task->test_cmd != NULL ? in->task->test_cmd : "";
    bool direct = report_runs(cmd, "pytest") || report_runs(cmd, "py.test");
    return direct && strpbrk(cmd, "|>") == NULL && strstr(cmd, "no-summary") == NULL && strstr(cmd, "no:terminal") == NULL;
}

/* Ids, not rows: a test that a plug-in ran again has several rows and is printed once. */
static uint64_t ids_passed(const struct report_builder *b)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < b->count; i++)
        n += b->tests[i].status == TEST_PASSED || b->tests[i].status == TEST_XPASS;
    return n;
}

static const char *check_against_text(struct arena *a, const struct report_input *in, const struct junit_doc *d,
                                      const struct pytest_text *text, uint64_t passed)
{
    uint64_t printed = (uint64_t)text->passed + text->xpassed;
    if (!text->has_summary && !text->has_totals && !text->has_end && d->count > 0 && summary_expected(in))
        return "pytest's own summary is missing in the output: the session did not end in order";
    if (!text->has_totals || !d->has_counts)
        return NULL;
    if (text->failed != d->failures || text->errors != d->errors)
        return arena_printf(a, "pytest printed %u failed and %u errors, its report holds %llu and %llu", text->failed,
                            text->errors, (unsigned long long)d->failures, (unsigned long long)d->errors);
    if (passed > printed)
        return arena_printf(a, "pytest printed %llu passed, its report holds %llu", (unsigned long long)printed,
                            (unsigned long long)passed);
    return NULL;
}

static const struct report_file *our_report(const struct report_input *in)
{
    size_t n = strlen(REPORT_JUNIT_FILE);
    for (uint32_t i = 0; i < in->file_count; i++)
        if (in->files[i].name_len == n && memcmp(in->files[i].name, REPORT_JUNIT_FILE, n) == 0)
            return &in->files[i];
    return NULL;
}

static const char *no_report_note(const struct report_input *in)
{
    const struct run_facts *run = in->run;
    const char *cmd = in->task->test_cmd != NULL ? in->task->test_cmd : "";
    if (run->ended_by_limit != 0)
        return "pytest was ended before it wrote its report";
    if (run->exited && run->exit_code == 4)
        return "pytest refused its command line or a test file is missing (exit status 4), so there is no report";
    if (run->exited && (run->exit_code == 126 || run->exit_code == 127))
        return "the test command could not be run, so there is no report";
    if (strstr(cmd, "--junitxml") != NULL || strstr(cmd, "--junit-xml") != NULL)
        return "pytest wrote no report: the test command names its own --junitxml, leave that out";
    return "pytest wrote no report: the session did not end in order";
}

static int known_ids(struct str_list *out, struct arena *a, const struct task *task, const struct junit_doc *d, struct err *err)
{
    const struct str_list *lists[2] = { &task->fail_to_pass, &task->pass_to_pass };
    out->count = 0;
    out->items = arena_alloc(a, ((size_t)lists[0]->count + lists[1]->count + d->count + 1) * sizeof *out->items);
    if (out->items == NULL)
        return report_no_memory(err);
    for (int k = 0; k < 2; k++)
        for (uint32_t i = 0; i < lists[k]->count; i++)
            out->items[out->count++] = lists[k]->items[i];
    for (uint32_t i = 0; i < d->count; i++) {
        int rc = 0;
        const char *id = id_by_file(a, &d->cases[i], &rc, err);
        if (rc < 0)
            return rc;
        if (id != NULL)
            out->items[out->count++] = id;
    }
    return 0;
}

int report_read_pytest(struct report *out, struct arena *a, const struct report_input *in, struct err *err)
{
    struct report_builder b = { .a = a };
    struct junit_doc d = { 0 };
    struct pytest_text text = { 0 };
    struct names names = { 0 };
    struct str_list known = { 0 };
    const struct report_file *file = our_report(in);
    *out = (struct report){ .reader = "pytest/1", .note = "" };
    int rc = file != NULL ? junit_parse(&d, a, file->bytes, file->len, err) : 0;
    if (rc == 0)
        rc = known_ids(&known, a, in->task, &d, err);
    if (rc == 0)
        rc = pytest_text_read(&text, a, in->output, in->output_len, &known, err);
    if (rc == 0)
        rc = names_collect(&names, a, &text, in->task, err);
    if (rc < 0)
        return rc;

    const char *fault = file == NULL ? NULL : file->cut ? "larger than the report size limit" : d.fault;
    bool readable = file != NULL && fault == NULL;
    for (uint32_t i = 0; rc == 0 && i < d.count; i++) {
        struct junit_case c = d.cases[i];
        if (!readable && c.status != TEST_FAILED && c.status != TEST_ERROR)
            continue;                   /* a broken report proves no pass */
        rc = add_case(&b, &names, &c, err);
    }
    if (rc == 0)
        rc = apply_text(&b, &text, readable, err);
    if (rc < 0)
        return rc;

    const char *odd = readable ? check_against_text(a, in, &d, &text, ids_passed(&b)) : NULL;
    out->complete = readable && odd == NULL;
    if (!readable)
        out->note = file == NULL ? no_report_note(in) : arena_printf(a, "report unreadable: %s", fault);
    else if (odd != NULL)
        out->note = odd;
    out->tests = b.tests;
    out->test_count = b.count;
    if (readable && d.has_counts) {
        out->has_counts = true;
        out->count_failed = (uint32_t)d.failures;
        out->count_error = (uint32_t)d.errors;
        out->count_skipped = (uint32_t)d.skipped;
        /* pytest counts a tear-down error beside its test's pass, and takes one off for a failure followed by one:
         * `tests` is between the ids and the rows plus the errors, and this is what it claims as passed at most. */
        uint64_t other = d.failures + d.skipped;
        out->count_passed = d.tests > other ? (uint32_t)(d.tests - other) : 0;
        if (d.tests > d.count + d.errors || d.tests < b.count) {
            out->complete = false;
            out->note = arena_printf(a, "pytest's report claims %llu tests and holds %u", (unsigned long long)d.tests, d.count);
        }
    }
    out->collected_nothing = readable && d.count == 0 && in->run->exited && in->run->exit_code == 5;
    if (out->collected_nothing)
        out->note = "pytest collected no tests (exit status 5)";
    return out->note != NULL ? 0 : report_no_memory(err);
}
