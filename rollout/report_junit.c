/*
 * report_junit.c - JUnit XML: a parser to plain rows that pytest's reader uses too, and the generic reader.
 *
 * Theory: the file was written by a process that also ran the code under test. So: no DOCTYPE (no entities to
 * expand or fetch), a depth and a row budget, and a cleaning pass in front of the parser, because frameworks put raw
 * colour codes and forbidden references into failure texts and a strict parser would then show no test at all.
 * The same bytes are always cleaned the same way. What cannot be parsed to its end is kept as `fault`.
 */
#include "rollout/report.h"
#include "base/own.h"
#include <expat.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH_MAX 64

/* --- cleaning --- */

static bool xml_char(unsigned long c)
{
    return c == 0x9 || c == 0xA || c == 0xD || (c >= 0x20 && c <= 0xD7FF) || (c >= 0xE000 && c <= 0xFFFD) ||
           (c >= 0x10000 && c <= 0x10FFFF);
}

/* Length of a reference to a character that XML forbids (`&#x7;`), or 0. */
static size_t forbidden_reference(const uint8_t *p, size_t n)
{
    if (n < 4 || p[0] != '&' || p[1] != '#')
        return 0;
    bool hex = p[2] == 'x';
    size_t i = hex ? 3 : 2, digits = 0;
    unsigned long c = 0;
    for (; i < n && digits < 10; i++, digits++) {
        unsigned d = p[i] >= '0' && p[i] <= '9' ? p[i] - (unsigned)'0'
                   : hex && (p[i] | 32) >= 'a' && (p[i] | 32) <= 'f' ? (p[i] | 32u) - 'a' + 10 : 99u;
        if (d == 99)
            break;
        c = c * (hex ? 16 : 10) + d;
    }
    return digits > 0 && i < n && p[i] == ';' && !xml_char(c) ? i + 1 : 0;
}

static size_t clean_utf8(const uint8_t *p, size_t n)
{
    size_t len = p[0] >= 0xC2 && p[0] <= 0xDF ? 2 : (p[0] & 0xF0) == 0xE0 ? 3 : p[0] >= 0xF0 && p[0] <= 0xF4 ? 4 : 0;
    unsigned long c = len == 2 ? p[0] & 0x1Fu : len == 3 ? p[0] & 0x0Fu : p[0] & 0x07u;
    if (len == 0 || len > n)
        return 0;
    for (size_t i = 1; i < len; i++) {
        if ((p[i] & 0xC0) != 0x80)
            return 0;
        c = c << 6 | (p[i] & 0x3Fu);
    }
    return c >= (len == 2 ? 0x80u : len == 3 ? 0x800u : 0x10000u) && xml_char(c) ? len : 0;
}

/* At most four output bytes per input byte. */
static size_t clean(uint8_t *out, const uint8_t *p, size_t n)
{
    static const char hex[] = "0123456789abcdef";
    size_t w = 0;
    for (size_t i = 0; i < n; ) {
        size_t skip = p[i] == '&' ? forbidden_reference(p + i, n - i) : 0;
        size_t len = p[i] >= 0x80 ? clean_utf8(p + i, n - i) : 1;
        if (skip > 0) {
            i += skip;
        } else if (p[i] < 0x80) {
            if (xml_char(p[i]) && p[i] != 0x7F)
                out[w++] = p[i];
            i++;
        } else if (len == 0) {
            out[w++] = '\\';
            out[w++] = 'x';
            out[w++] = (uint8_t)hex[p[i] >> 4];
            out[w++] = (uint8_t)hex[p[i] & 15];
            i++;
        } else {
            memcpy(out + w, p + i, len);
            w += len;
            i += len;
        }
    }
    return w;
}

/* --- parsing --- */

struct suite_level { const char *name; bool nested, counted; uint64_t tests, failures, errors, skipped; };

struct parse {
    struct junit_doc *doc;
    struct arena *a;
    XML_Parser xml;
    struct suite_level suites[DEPTH_MAX];
    uint32_t suite_depth, depth;
    struct junit_case *open;        /* inside a testcase */
    bool want_text, root_seen, out_of_memory;
    uint8_t text[REPORT_MESSAGE_MAX];
    size_t text_len;
};

static void stop(struct parse *p, const char *fault)
{
    if (p->doc->fault == NULL)
        p->doc->fault = fault;
    XML_StopParser(p->xml, XML_FALSE);
}

static const char *attribute(const XML_Char **atts, const char *name)
{
    for (; atts[0] != NULL; atts += 2)
        if (strcmp(atts[0], name) == 0)
            return atts[1];
    return NULL;
}

static const char *kept(struct parse *p, const char *s, size_t max)
{
    if (s == NULL || *s == '\0')
        return "";
    const char *t = report_text(p->a, s, strlen(s), max);
    if (t == NULL) {
        p->out_of_memory = true;
        stop(p, "too large");
        return "";
    }
    return t;
}

static const char *kept_line(struct parse *p, const char *s)
{
    return kept(p, s, s == NULL ? 0 : strcspn(s, "\r\n") < REPORT_MESSAGE_MAX ? strcspn(s, "\r\n") : REPORT_MESSAGE_MAX);
}

static bool number(const char *s, uint64_t *out)
{
    char *end;
    if (s == NULL || *s < '0' || *s > '9')
        return false;
    *out = strtoull(s, &end, 10);
    return *end == '\0' && *out <= REPORT_TESTS_MAX * (uint64_t)4;
}

static void case_open(struct parse *p, const XML_Char **atts)
{
    struct junit_doc *d = p->doc;
    if (d->count == d->cap) {
        uint32_t cap = d->cap == 0 ? 64 : d->cap * 2;
        struct junit_case *more = d->count >= REPORT_TESTS_MAX ? NULL : arena_alloc(p->a, (size_t)cap * sizeof *more);
        if (more == NULL) {
            p->out_of_memory = d->count < REPORT_TESTS_MAX;
            stop(p, "more test cases than this reader takes");
            return;
        }
        if (d->count > 0)
            memcpy(more, d->cases, d->count * sizeof *more);
        d->cases = more;
        d->cap = cap;
    }
    const char *time = attribute(atts, "time"), *status = attribute(atts, "status");
    double duration_s = time != NULL ? strtod(time, NULL) : 0;
    bool not_run = status != NULL && (strcmp(status, "notrun") == 0 || strcmp(status, "disabled") == 0);
    p->open = &d->cases[d->count++];
    *p->open = (struct junit_case){
        .suite = p->suite_depth > 0 ? p->suites[p->suite_depth - 1].name : "",
        .classname = kept(p, attribute(atts, "classname"), REPORT_ID_MAX),
        .name = kept(p, attribute(atts, "name"), REPORT_ID_MAX),
        .file = kept(p, attribute(atts, "file"), REPORT_ID_MAX),
        .message = "",
        .status = not_run ? TEST_SKIPPED : TEST_PASSED,
        .duration_s = duration_s > 0 && duration_s < 1e9 ? duration_s : 0,      /* NaN fails both */
    };
}

static void case_mark(struct parse *p, const char *what, const XML_Char **atts)
{
    static const struct { const char *element; enum test_status status; } marks[] = {
        { "failure", TEST_FAILED }, { "error", TEST_ERROR }, { "skipped", TEST_SKIPPED }, { "rerunFailure", TEST_FAILED },
        { "rerunError", TEST_ERROR }, { "flakyFailure", TEST_FLAKY }, { "flakyError", TEST_FLAKY },
    };
    for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++) {
        if (strcmp(marks[i].element, what) != 0)
            continue;
        enum test_status status = marks[i].status;
        const char *message = attribute(atts, "message"), *type = attribute(atts, "type");
        /* pytest: an expected failure; one that was never run has shown nothing and stays a skip. */
        if (status == TEST_SKIPPED && type != NULL && strcmp(type, "pytest.xfail") == 0 &&
            (message == NULL || strncmp(message, "[NOTRUN]", 8) != 0))
            status = TEST_XFAIL;
        if (test_status_worse(p->open->status, status) == p->open->status)
            return;
        p->open->status = status;
        p->open->message = kept_line(p, message);
        p->want_text = *p->open->message == '\0';
        p->text_len = 0;
        return;
    }
}

static void suite_open(struct parse *p, const XML_Char **atts)
{
    if (p->suite_depth > 0)
        p->suites[p->suite_depth - 1].nested = true;
    struct suite_level *s = &p->suites[p->suite_depth++];       /* suite_depth <= depth < DEPTH_MAX */
    *s = (struct suite_level){ .name = kept(p, attribute(atts, "name"), REPORT_ID_MAX) };
    const char *skipped = attribute(atts, "skipped");
    uint64_t disabled = 0;
    s->counted = number(attribute(atts, "tests"), &s->tests) && number(attribute(atts, "failures"), &s->failures);
    (void)number(attribute(atts, "errors"), &s->errors);
    (void)number(skipped != NULL ? skipped : attribute(atts, "skips"), &s->skipped);
    if (number(attribute(atts, "disabled"), &disabled))
        s->skipped += disabled;
}

static void XMLCALL on_start(void *arg, const XML_Char *name, const XML_Char **atts)
{
    struct parse *p = arg;
    if (p->depth >= DEPTH_MAX) {
        stop(p, "nested too deeply");
        return;
    }
    bool is_suite = strcmp(name, "testsuite") == 0;
    if (p->depth == 0) {
        p->root_seen = is_suite || strcmp(name, "testsuites") == 0;
        if (!p->root_seen) {
            stop(p, "not a JUnit report");
            return;
        }
    }
    p->depth++;
    if (is_suite && p->open == NULL)
        suite_open(p, atts);
    else if (strcmp(name, "testcase") == 0 && p->open == NULL)
        case_open(p, atts);
    else if (p->open != NULL)
        case_mark(p, name, atts);
}

static void XMLCALL on_end(void *arg, const XML_Char *name)
{
    struct parse *p = arg;
    if (p->depth > 0)
        p->depth--;
    if (p->want_text) {
        p->want_text = false;
        size_t from = 0;
        while (from < p->text_len && (p->text[from] == '\n' || p->text[from] == ' '))
            from++;
        char *line = report_first_line(p->a, p->text + from, p->text_len - from, REPORT_MESSAGE_MAX);
        if (line == NULL)
            p->out_of_memory = true;
        else
            p->open->message = line;
    }
    if (strcmp(name, "testcase") == 0) {
        p->open = NULL;
    } else if (strcmp(name, "testsuite") == 0 && p->open == NULL && p->suite_depth > 0) {
        const struct suite_level *s = &p->suites[--p->suite_depth];
        if (!s->nested && s->counted) {
            p->doc->has_counts = true;
            p->doc->tests += s->tests;
            p->doc->failures += s->failures;
            p->doc->errors += s->errors;
            p->doc->skipped += s->skipped;
        }
    }
}

static void XMLCALL on_text(void *arg, const XML_Char *s, int n)
{
    struct parse *p = arg;
    size_t room = sizeof p->text - p->text_len;
    if (!p->want_text)
        return;
    if ((size_t)n < room)
        room = (size_t)n;
    memcpy(p->text + p->text_len, s, room);
    p->text_len += room;
}

static void XMLCALL on_doctype(void *arg, const XML_Char *name, const XML_Char *sys, const XML_Char *pub, int subset)
{
    (void)name;
    (void)sys;
    (void)pub;
    (void)subset;
    stop(arg, "it declares a DOCTYPE, which no test report needs");
}

int junit_parse(struct junit_doc *out, struct arena *a, const void *bytes, size_t n, struct err *err)
{
    *out = (struct junit_doc){ 0 };
    own_mem uint8_t *cleaned = malloc(n * 4 + 1);
    struct parse *p = arena_alloc(a, sizeof *p);
    if (cleaned == NULL || p == NULL)
        return report_no_memory(err);
    *p = (struct parse){ .doc = out, .a = a };
    size_t len = clean(cleaned, bytes, n);
    p->xml = XML_ParserCreate("UTF-8");         /* whatever the file declares: the cleaning pass made it so */
    if (p->xml == NULL)
        return report_no_memory(err);
    XML_SetUserData(p->xml, p);
    XML_SetElementHandler(p->xml, on_start, on_end);
    XML_SetCharacterDataHandler(p->xml, on_text);
    XML_SetStartDoctypeDeclHandler(p->xml, on_doctype);
    enum XML_Status status = XML_Parse(p->xml, (const char *)cleaned, (int)len, 1);
    if (status != XML_STATUS_OK && out->fault == NULL)
        out->fault = arena_printf(a, "line %lu: %s", (unsigned long)XML_GetCurrentLineNumber(p->xml),
                                  XML_ErrorString(XML_GetErrorCode(p->xml)));
    XML_ParserFree(p->xml);
    if (p->out_of_memory || (status != XML_STATUS_OK && out->fault == NULL))
        return report_no_memory(err);
    return 0;
}

/* --- the generic reader --- */

static const char *plain_id(struct arena *a, const struct junit_case *c)
{
    const char *group = *c->classname != '\0' ? c->classname : c->suite;
    return *group != '\0' ? arena_printf(a, "%s/%s", group, c->name) : c->name;
}

/* Two suites may hold the same id: the plain one keeps the worse result, later ones also get the suite in front. */
static int add_cases(struct report_builder *b, struct report_builder *firsts, const struct junit_doc *d, struct err *err)
{
    for (uint32_t i = 0; i < d->count; i++) {
        const struct junit_case *c = &d->cases[i];
        const char *id = plain_id(b->a, c);
        const struct test_result *first = id != NULL ? report_find(firsts, id) : NULL;
        int rc = 0;
        if (first == NULL) {            /* `message` of a firsts row is the suite, which is all that it is for */
            rc = report_add(firsts, id, TEST_PASSED, c->suite, "", 0, err);
        } else if (strcmp(first->message, c->suite) != 0 && *c->classname != '\0') {
            rc = report_add(b, arena_printf(b->a, "%s/%s", c->suite, id), c->status, c->message, "report_file",
                            c->duration_s, err);
        }
        if (rc == 0)
            rc = report_add(b, id, c->status, c->message, "report_file", c->duration_s, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

int report_read_junit(struct report *out, struct arena *a, const struct report_input *in, struct err *err)
{
    struct report_builder b = { .a = a }, firsts = { .a = a };
    uint64_t failed = 0, errors = 0, skipped = 0, tests = 0;
    uint32_t files = 0, cases = 0;
    *out = (struct report){ .reader = "junit/1", .note = "", .complete = true, .has_counts = true };
    for (uint32_t i = 0; i < in->file_count; i++) {
        const struct report_file *f = &in->files[i];
        struct junit_doc d;
        if (f->name_len < 5 || memcmp(f->name + f->name_len - 4, ".xml", 4) != 0)
            continue;
        files++;
        int rc = junit_parse(&d, a, f->bytes, f->len, err);
        if (rc == 0 && (d.fault != NULL || f->cut)) {
            out->complete = false;
            out->note = arena_printf(a, "report unreadable: %s: %s", report_text(a, f->name, f->name_len, 100),
                                     f->cut ? "larger than the report size limit" : d.fault);
            for (uint32_t k = 0; k < d.count; k++)      /* a broken file proves no pass */
                if (d.cases[k].status == TEST_PASSED || d.cases[k].status == TEST_FLAKY)
                    d.cases[k].status = TEST_MISSING;
        }
        if (rc == 0)
            rc = add_cases(&b, &firsts, &d, err);
        if (rc < 0)
            return rc;
        cases += d.count;
        out->has_counts &= d.has_counts;
        tests += d.tests;
        failed += d.failures;
        errors += d.errors;
        skipped += d.skipped;
    }
    if (files == 0) {
        out->complete = out->has_counts = false;
        out->note = "no report was written: no *.xml file in $ASSAY_REPORT_DIR";
    }
    if (out->complete && out->has_counts && tests != cases) {
        out->complete = false;
        out->note = arena_printf(a, "the report claims %llu tests and holds %u", (unsigned long long)tests, cases);
    }
    out->tests = b.tests;
    out->test_count = b.count;
    out->count_failed = (uint32_t)failed;
    out->count_error = (uint32_t)errors;
    out->count_skipped = (uint32_t)skipped;
    /* Suites count a test's error beside its own result: what is claimed as passed at most. */
    uint64_t other = failed + skipped;
    out->count_passed = tests > other ? (uint32_t)(tests - other) : 0;
    return out->note != NULL ? 0 : report_no_memory(err);
}
