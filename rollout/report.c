/* report.c - choosing a reader, and what the readers share: results by id, foreign text, lines. See report.h. */
#include "rollout/report.h"
#include "sandbox/report_files.h"
#include "sandbox/sandbox.h"
#include <endian.h>
#include <stdio.h>
#include <string.h>

int report_no_memory(struct err *err)
{
    return err_set(err, ERR_LIMIT, "report: larger than the reader's memory budget");
}

int report_files_parse(struct report_file **out, uint32_t *out_count, struct arena *a, const void *bytes, size_t n,
                       struct err *err)
{
    const uint8_t *p = bytes;
    struct report_file *files = arena_alloc(a, SANDBOX_REPORT_FILE_MAX * sizeof *files);
    uint32_t count = 0;
    if (files == NULL)
        return report_no_memory(err);
    while (count < SANDBOX_REPORT_FILE_MAX && n >= 16) {
        uint32_t name_len, flags;
        uint64_t size;
        memcpy(&name_len, p, 4);
        memcpy(&flags, p + 4, 4);
        memcpy(&size, p + 8, 8);
        name_len = le32toh(name_len);
        size = le64toh(size);
        if (name_len > n - 16 || size > n - 16 - name_len)
            break;
        files[count++] = (struct report_file){
            .name = p + 16, .name_len = name_len, .cut = (le32toh(flags) & 1) != 0,
            .bytes = p + 16 + name_len, .len = (size_t)size,
        };
        p += 16 + name_len + size;
        n -= 16 + name_len + (size_t)size;
    }
    *out = files;
    *out_count = count;
    return 0;
}

/* --- results by id --- */

static uint32_t id_hash(const char *id)
{
    uint32_t h = 2166136261u;               /* FNV-1a: enough here, as equal ids are compared in full */
    for (; *id != '\0'; id++)
        h = (h ^ (uint8_t)*id) * 16777619u;
    return h;
}

static uint32_t *slot_of(const struct report_builder *b, const char *id)
{
    uint32_t at = id_hash(id) & (b->slot_count - 1);
    while (b->slots[at] != 0 && strcmp(b->tests[b->slots[at] - 1].id, id) != 0)
        at = (at + 1) & (b->slot_count - 1);
    return &b->slots[at];
}

const struct test_result *report_find(const struct report_builder *b, const char *id)
{
    if (b->slot_count == 0)
        return NULL;
    uint32_t at = *slot_of(b, id);
    return at != 0 ? &b->tests[at - 1] : NULL;
}

static int builder_grow(struct report_builder *b, struct err *err)
{
    uint32_t cap = b->cap == 0 ? 64 : b->cap * 2;
    struct test_result *tests = arena_alloc(b->a, (size_t)cap * sizeof *tests);
    uint32_t *slots = arena_alloc(b->a, (size_t)cap * 2 * sizeof *slots);
    if (tests == NULL || slots == NULL)
        return report_no_memory(err);
    if (b->count > 0)
        memcpy(tests, b->tests, b->count * sizeof *tests);
    b->tests = tests;
    b->slots = slots;
    b->cap = cap;
    b->slot_count = cap * 2;
    for (uint32_t i = 0; i < b->count; i++)
        *slot_of(b, tests[i].id) = i + 1;
    return 0;
}

int report_add(struct report_builder *b, const char *id, enum test_status status, const char *message, const char *evidence,
               double duration_s, struct err *err)
{
    if (id == NULL || message == NULL)
        return report_no_memory(err);
    if (b->count == b->cap) {
        if (b->count >= REPORT_TESTS_MAX)
            return err_set(err, ERR_LIMIT, "report: more than %u test ids", REPORT_TESTS_MAX);
        int rc = builder_grow(b, err);
        if (rc < 0)
            return rc;
    }
    uint32_t *slot = slot_of(b, id);
    if (*slot == 0) {
        b->tests[b->count] = (struct test_result){
            .id = id, .message = message, .evidence = evidence, .status = status, .duration_s = duration_s,
        };
        *slot = ++b->count;
        return 0;
    }
    struct test_result *r = &b->tests[*slot - 1];
    if (test_status_worse(r->status, status) != r->status) {
        r->status = status;
        r->message = message;
        r->evidence = evidence;
    }
    return 0;
}

/* --- foreign text --- */

/* Length of the UTF-8 sequence at p (1..4), or 0 when the bytes are none (RFC 3629: no surrogates, no overlong forms). */
static size_t utf8_len(const uint8_t *p, size_t n)
{
    if (p[0] < 0x80)
        return 1;
    size_t len = p[0] >= 0xC2 && p[0] <= 0xDF ? 2 : (p[0] & 0xF0) == 0xE0 ? 3 : p[0] >= 0xF0 && p[0] <= 0xF4 ? 4 : 0;
    if (len == 0 || len > n)
        return 0;
    for (size_t i = 1; i < len; i++)
        if ((p[i] & 0xC0) != 0x80)
            return 0;
    if ((p[0] == 0xE0 && p[1] < 0xA0) || (p[0] == 0xED && p[1] > 0x9F) || (p[0] == 0xF0 && p[1] < 0x90) ||
        (p[0] == 0xF4 && p[1] > 0x8F))
        return 0;
    return len;
}

/* Writes when `out` is there, and returns the length either way: one loop decides both. */
static size_t text_write(char *out, const uint8_t *p, size_t n)
{
    static const char hex[] = "0123456789abcdef";
    size_t w = 0;
    for (size_t i = 0; i < n; ) {
        size_t len = utf8_len(p + i, n - i);
        char escape[4] = { '\\', 'x', hex[p[i] >> 4], hex[p[i] & 15] };
        const void *piece = p + i;
        size_t piece_len = len, used = len;
        if (len == 0 || (len == 1 && (p[i] < 0x20 || p[i] == 0x7F))) {
            char letter = p[i] == '\n' ? 'n' : p[i] == '\t' ? 't' : p[i] == '\r' ? 'r' : '\0';
            if (letter != '\0')
                escape[1] = letter;
            piece = escape;
            piece_len = letter != '\0' ? 2 : 4;
            used = 1;
        }
        if (out != NULL)
            memcpy(out + w, piece, piece_len);
        w += piece_len;
        i += used;
    }
    return w;
}

char *report_text(struct arena *a, const void *bytes, size_t n, size_t max)
{
    if (n > max)
        n = max;
    char *out = arena_alloc(a, text_write(NULL, bytes, n) + 1);     /* zeroed: the terminator is there */
    if (out != NULL)
        text_write(out, bytes, n);
    return out;
}

char *report_first_line(struct arena *a, const void *bytes, size_t n, size_t max)
{
    const uint8_t *p = bytes;
    size_t len = 0;
    while (len < n && p[len] != '\n' && p[len] != '\r' && p[len] != '\0')
        len++;
    return report_text(a, bytes, len, max);
}

bool report_next_line(const uint8_t *bytes, size_t n, size_t *at, const uint8_t **out_line, size_t *out_len)
{
    if (*at >= n)
        return false;
    const uint8_t *start = bytes + *at, *end = memchr(start, '\n', n - *at);
    size_t len = end != NULL ? (size_t)(end - start) : n - *at;
    *at += len + (end != NULL);
    while (len > 0 && start[len - 1] == '\r')
        len--;
    *out_line = start;
    *out_len = len;
    return true;
}

/* --- which reader --- */

bool report_runs(const char *cmd, const char *word)
{
    size_t n = strlen(word);
    for (const char *p = cmd; (p = strstr(p, word)) != NULL; p++) {
        bool before = p == cmd || strchr(" \t\n/;&|('\"", p[-1]) != NULL;
        bool after = p[n] == '\0' || strchr(" \t\n;&|)'\"-.", p[n]) != NULL;    /* pytest-3, py.test */
        if (before && after)
            return true;
    }
    return false;
}

static bool has_suffix(const struct report_file *f, const char *suffix)
{
    size_t n = strlen(suffix);
    return f->name_len > n && memcmp(f->name + f->name_len - n, suffix, n) == 0;
}

/* Both a plan and a test line at the left edge: prose seldom has both. */
bool report_is_tap(const uint8_t *output, size_t n)
{
    const uint8_t *line;
    size_t len, at = 0;
    bool plan = false, test = false;
    while (report_next_line(output, n, &at, &line, &len)) {
        plan |= len >= 4 && memcmp(line, "1..", 3) == 0 && line[3] >= '0' && line[3] <= '9';
        test |= (len >= 4 && memcmp(line, "ok ", 3) == 0 && line[3] >= '0' && line[3] <= '9') ||
                (len >= 8 && memcmp(line, "not ok ", 7) == 0 && line[7] >= '0' && line[7] <= '9');
        if (len >= 14 && memcmp(line, "TAP version 1", 13) == 0 && line[13] >= '2' && line[13] <= '4')
            return true;
        if (plan && test)
            return true;
    }
    return false;
}

static bool wants_only_command(const struct task *t)
{
    const struct str_list *lists[2] = { &t->fail_to_pass, &t->pass_to_pass };
    for (int k = 0; k < 2; k++)
        for (uint32_t i = 0; i < lists[k]->count; i++)
            if (strcmp(lists[k]->items[i], "command") != 0)
                return false;
    return t->fail_to_pass.count + t->pass_to_pass.count > 0;
}

typedef int (*reader_fn)(struct report *, struct arena *, const struct report_input *, struct err *);

static reader_fn choose(const struct report_input *in)
{
    bool ours = false, xml = false, tap = false;
    const char *cmd = in->task->test_cmd != NULL ? in->task->test_cmd : "";
    for (uint32_t i = 0; i < in->file_count; i++) {
        const struct report_file *f = &in->files[i];
        bool named = f->name_len == strlen(REPORT_JUNIT_FILE) && memcmp(f->name, REPORT_JUNIT_FILE, f->name_len) == 0;
        ours |= named;
        xml |= !named && has_suffix(f, ".xml");
        tap |= has_suffix(f, ".tap");
    }
    if (wants_only_command(in->task))
        return report_read_exit;
    if (ours || report_runs(cmd, "pytest") || report_runs(cmd, "py.test"))
        return report_read_pytest;
    if (xml)
        return report_read_junit;
    if (tap || report_runs(cmd, "prove") || report_is_tap(in->output, in->output_len))
        return report_read_tap;
    return report_read_exit;
}

int report_read(struct report *out, struct arena *a, const struct report_input *in, struct err *err)
{
    static const struct { const char *name; reader_fn read; } readers[] = {
        { "pytest", report_read_pytest }, { "junit", report_read_junit },
        { "tap", report_read_tap }, { "exit", report_read_exit },
    };
    reader_fn read = NULL;
    *out = (struct report){ .note = "" };
    for (size_t i = 0; i < sizeof readers / sizeof readers[0]; i++)
        if (in->task->reader != NULL && strcmp(in->task->reader, readers[i].name) == 0)
            read = readers[i].read;
    if (read == NULL)
        read = choose(in);
    int rc = read(out, a, in, err);
    /* A whole that does not hold together vouches for none of its parts: what it calls passed has no trustworthy result. */
    for (uint32_t i = 0; rc == 0 && !out->complete && i < out->test_count; i++)
        if (out->tests[i].status == TEST_PASSED || out->tests[i].status == TEST_XPASS) {
            out->tests[i].status = TEST_MISSING;
            out->tests[i].message = "";
        }
    return rc;
}
