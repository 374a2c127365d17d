/*
 * report_pytest_text.c - pytest's printed summary as rows. What they are worth is report_pytest.c's business.
 *
 * Lines are read only below a "short test summary info" rule. An id may hold blanks, brackets, " - " and "::", so
 * it is never cut at blanks: a PASSED line is all id; elsewhere a known id decides, else the bracket that closes the
 * parameters and is followed by the line's end or by " - ".
 */
#include "rollout/report.h"
#include <stdlib.h>
#include <string.h>

#define LINE_MAX_BYTES (REPORT_ID_MAX + REPORT_MESSAGE_MAX)

/* Copy a line without terminal sequences (ESC [ ... letter). */
static size_t plain_line(uint8_t *out, const uint8_t *line, size_t n)
{
    size_t w = 0;
    for (size_t i = 0; i < n && w < LINE_MAX_BYTES; i++) {
        if (line[i] == 0x1B && i + 1 < n && line[i + 1] == '[') {
            i += 2;
            while (i < n && (line[i] < 0x40 || line[i] > 0x7E))
                i++;
            continue;
        }
        out[w++] = line[i];
    }
    while (w > 0 && out[w - 1] == '\r')
        w--;
    return w;
}

static bool starts(const uint8_t *s, size_t n, const char *with)
{
    size_t k = strlen(with);
    return n >= k && memcmp(s, with, k) == 0;
}

static int known_cmp(const void *x, const void *y)
{
    const char *const *a = x, *const *b = y;
    return strcmp(*a, *b);
}

static bool is_known(const char **sorted, uint32_t count, const uint8_t *s, size_t n)
{
    char id[REPORT_ID_MAX + 1];
    const char *key = id;
    if (n > REPORT_ID_MAX || count == 0)
        return false;
    memcpy(id, s, n);
    id[n] = '\0';
    return bsearch(&key, sorted, count, sizeof *sorted, known_cmp) != NULL;
}

/* Where the id ends in "id", "id - message" or, for XPASS of older versions, "id message". */
static size_t id_end(const uint8_t *s, size_t n, enum test_status status, const char **known, uint32_t known_count)
{
    bool blank_ends = status == TEST_XPASS;
    size_t first = 0, dash = 0, best = 0;
    int depth = 0;
    if (is_known(known, known_count, s, n))
        return n;
    for (size_t i = 1; i < n; i++) {
        if (s[i - 1] == '[')
            depth++;
        else if (s[i - 1] == ']' && depth > 0)
            depth--;
        bool sep = (i + 2 < n && s[i] == ' ' && s[i + 1] == '-' && s[i + 2] == ' ') || (blank_ends && s[i] == ' ');
        if (!sep)
            continue;
        if (known_count > 0 && is_known(known, known_count, s, i))
            best = i;                   /* the longest known id wins */
        if (first == 0 && depth == 0)
            first = i;                  /* brackets balanced: the likely end */
        if (dash == 0 && s[i - 1] == ']')
            dash = i;
    }
    return best != 0 ? best : first != 0 ? first : dash != 0 ? dash : n;
}

static int add_line(struct pytest_text *t, struct arena *a, enum test_status status, const uint8_t *id, size_t id_len,
                    const uint8_t *msg, size_t msg_len, struct err *err)
{
    if (t->count >= REPORT_TESTS_MAX)
        return 0;
    if (t->count == t->cap) {
        uint32_t cap = t->cap == 0 ? 64 : t->cap * 2;
        struct pytest_line *more = arena_alloc(a, (size_t)cap * sizeof *more);
        if (more == NULL)
            return report_no_memory(err);
        if (t->count > 0)
            memcpy(more, t->lines, t->count * sizeof *more);
        t->lines = more;
        t->cap = cap;
    }
    struct pytest_line l = { .status = status };
    l.id = report_text(a, id, id_len, REPORT_ID_MAX);
    l.message = report_text(a, msg, msg_len, REPORT_MESSAGE_MAX);
    if (l.id == NULL || l.message == NULL)
        return report_no_memory(err);
    t->lines[t->count++] = l;
    return 0;
}

/* "1 failed, 2 passed in 0.03s", with or without rules around it. */
static bool read_totals(struct pytest_text *t, const uint8_t *s, size_t n)
{
    static const struct { const char *word; size_t at; } words[] = {
        { "failed", offsetof(struct pytest_text, failed) }, { "passed", offsetof(struct pytest_text, passed) },
        { "skipped", offsetof(struct pytest_text, skipped) }, { "xfailed", offsetof(struct pytest_text, xfailed) },
        { "xpassed", offsetof(struct pytest_text, xpassed) }, { "errors", offsetof(struct pytest_text, errors) },
        { "error", offsetof(struct pytest_text, errors) },
    };
    struct pytest_text sum = { 0 };
    size_t i = 0;
    while (n > 0 && (s[n - 1] == '=' || s[n - 1] == ' '))
        n--;
    while (i < n && (s[i] == '=' || s[i] == ' '))
        i++;
    if (starts(s + i, n - i, "no tests ran in ")) {
        t->passed = t->failed = t->errors = t->skipped = t->xfailed = t->xpassed = 0;
        return true;
    }
    for (;;) {
        uint32_t value = 0;
        size_t digits = 0, len = 0;
        while (i < n && s[i] >= '0' && s[i] <= '9' && digits++ < 8)
            value = value * 10 + (s[i++] - (uint32_t)'0');
        if (digits == 0 || i >= n || s[i++] != ' ')
            return false;
        while (i + len < n && s[i + len] != ',' && !starts(s + i + len, n - i - len, " in "))
            len++;
        if (i + len >= n || len > 40)
            return false;
        for (size_t k = 0; k < sizeof words / sizeof words[0]; k++)
            if (strlen(words[k].word) == len && memcmp(words[k].word, s + i, len) == 0)
                *(uint32_t *)(void *)((char *)&sum + words[k].at) = value;
        if (len > 7 && memcmp(" passed", s + i + len - 7, 7) == 0)
            sum.passed += value;        /* "6 subtests passed" */
        i += len;
        if (s[i] == ',') {
            if (i + 1 >= n || s[i + 1] != ' ')
                return false;
            i += 2;
            continue;
        }
        i += 4;                         /* " in " */
        size_t from = i;
        while (i < n && ((s[i] >= '0' && s[i] <= '9') || s[i] == '.'))
            i++;
        if (i == from || i >= n || s[i] != 's')
            return false;
        break;
    }
    t->passed = sum.passed;
    t->failed = sum.failed;
    t->errors = sum.errors;
    t->skipped = sum.skipped;
    t->xfailed = sum.xfailed;
    t->xpassed = sum.xpassed;
    return true;
}

int pytest_text_read(struct pytest_text *out, struct arena *a, const uint8_t *output, size_t n, const struct str_list *known,
                     struct err *err)
{
    static const struct { const char *word; enum test_status status; } words[] = {
        { "PASSED ", TEST_PASSED }, { "FAILED ", TEST_FAILED }, { "ERROR ", TEST_ERROR },
        { "XFAIL ", TEST_XFAIL }, { "XPASS ", TEST_XPASS },
    };
    const uint8_t *raw;
    size_t raw_len, at = 0;
    bool inside = false;
    *out = (struct pytest_text){ 0 };
    uint8_t *line = arena_alloc(a, LINE_MAX_BYTES + 1);
    const char **sorted = arena_alloc(a, ((size_t)known->count + 1) * sizeof *sorted);
    if (line == NULL || sorted == NULL)
        return report_no_memory(err);
    if (known->count > 0) {
        memcpy(sorted, known->items, known->count * sizeof *sorted);
        qsort(sorted, known->count, sizeof *sorted, known_cmp);
    }
    while (report_next_line(output, n, &at, &raw, &raw_len)) {
        size_t len = plain_line(line, raw, raw_len);
        if (len > 0 && (line[0] == '=' || (line[0] >= '0' && line[0] <= '9') || line[0] == 'n')) {
            bool totals = read_totals(out, line, len);
            out->has_totals |= totals;
            if (line[0] == '=' || totals)
                inside = false;
            if (line[0] == '=' && len < 300 && memmem(line, len, " short test summary info ", 25) != NULL)
                inside = out->has_summary = true;
            continue;
        }
        if (len > 0 && line[0] == '-' && memmem(line, len, " generated xml file: ", 21) != NULL)
            out->has_end = true;
        if (!inside)
            continue;
        for (size_t w = 0; w < sizeof words / sizeof words[0]; w++) {
            size_t k = strlen(words[w].word);
            if (!starts(line, len, words[w].word) || len == k)
                continue;
            const uint8_t *id = line + k;
            size_t rest = len - k;
            size_t end = words[w].status == TEST_PASSED ? rest : id_end(id, rest, words[w].status, sorted, known->count);
            size_t msg = end + 3 <= rest && memcmp(id + end, " - ", 3) == 0 ? end + 3 : end < rest ? end + 1 : rest;
            int rc = add_line(out, a, words[w].status, id, end, id + msg, rest - msg, err);
            if (rc < 0)
                return rc;
            break;
        }
    }
    return 0;
}
