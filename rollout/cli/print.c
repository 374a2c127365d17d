/* print.c - terminal-safe text, and JSON. */
#include "rollout/cli/print.h"
#include "base/own.h"
#include "repos/repos.h"
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <string.h>
#include <time.h>

#define OUTPUT_END_BYTES 4096
#define OUTPUT_END_LINES 15

/* Length of the UTF-8 character at p, its code point in *cp; 0 when it is none (RFC 3629: no surrogates, no overlong). */
static size_t utf8_at(uint32_t *cp, const uint8_t *p, size_t n)
{
    uint8_t b = p[0];
    size_t len = b < 0x80 ? 1 : b >= 0xc2 && b < 0xe0 ? 2 : b >= 0xe0 && b < 0xf0 ? 3 : b >= 0xf0 && b < 0xf5 ? 4 : 0;
    if (len == 0 || len > n)
        return 0;
    uint32_t v = len == 1 ? b : b & (0x7fu >> len);
    for (size_t i = 1; i < len; i++) {
        if ((p[i] & 0xc0) != 0x80)
            return 0;
        v = v << 6 | (p[i] & 0x3f);
    }
    if ((len == 3 && (v < 0x800 || (v >= 0xd800 && v < 0xe000))) || (len == 4 && (v < 0x10000 || v > 0x10ffff)))
        return 0;
    *cp = v;
    return len;
}

/* Characters that change what a terminal shows beyond their own place: controls, and Unicode's direction marks. */
static bool steers_terminal(uint32_t cp)
{
    return cp < 0x20 || (cp >= 0x7f && cp < 0xa0) || cp == 0xad || cp == 0x61c || (cp >= 0x200b && cp <= 0x200f)
        || (cp >= 0x2028 && cp <= 0x202e) || (cp >= 0x2060 && cp <= 0x206f) || cp == 0xfeff || (cp >= 0xe0000 && cp <= 0xe007f);
}

static size_t print_one(FILE *f, const uint8_t *p, size_t n)
{
    uint32_t cp = 0;
    size_t len = utf8_at(&cp, p, n);
    if (len > 0 && !steers_terminal(cp)) {
        fwrite(p, 1, len, f);
        return len;
    }
    if (len == 0)
        len = 1;
    for (size_t i = 0; i < len; i++)
        fprintf(f, "\\x%02x", p[i]);
    return len;
}

void print_text(FILE *f, const void *bytes, size_t n)
{
    const uint8_t *p = bytes, *end = p + n;
    while (p < end) {
        if (*p == '\n' || *p == '\t') {
            fputs(*p == '\n' ? "\\n" : "\\t", f);
            p++;
        } else {
            p += print_one(f, p, (size_t)(end - p));
        }
    }
}

void print_str(FILE *f, const char *s)
{
    print_text(f, s, strlen(s));
}

void print_block(FILE *f, const char *indent, const void *bytes, size_t n)
{
    const uint8_t *p = bytes, *end = p + n;
    bool fresh = true;
    while (p < end) {
        if (fresh)
            fputs(indent, f);
        fresh = *p == '\n';
        if (*p == '\n' || *p == '\t')
            fputc(*p++, f);
        else
            p += print_one(f, p, (size_t)(end - p));
    }
    if (!fresh)
        fputc('\n', f);
}

void print_time(FILE *f, uint64_t unix_ns)
{
    time_t t = (time_t)(unix_ns / UINT64_C(1000000000));
    struct tm tm;
    char text[32];
    if (unix_ns == 0 || localtime_r(&t, &tm) == NULL || strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &tm) == 0)
        strcpy(text, "-");
    fprintf(f, "%-19s", text);
}

/* --- JSON --- */

json_t *json_text(const void *bytes, size_t n)
{
    json_t *s = json_stringn(n > 0 ? bytes : "", n);
    if (s != NULL)
        return s;
    own_buf clean = { 0 };                      /* not UTF-8: copy with U+FFFD in place of what is none */
    struct err ignored = { 0 };
    const uint8_t *p = bytes, *end = p + n;
    while (p < end) {
        uint32_t cp = 0;
        size_t len = utf8_at(&cp, p, (size_t)(end - p));
        if ((len > 0 ? buf_add(&clean, p, len, &ignored) : buf_add(&clean, "\xef\xbf\xbd", 3, &ignored)) < 0)
            return NULL;
        p += len > 0 ? len : 1;
    }
    return json_stringn((const char *)clean.data, clean.len);
}

json_t *json_str(const char *s)
{
    return json_text(s, strlen(s));
}

json_t *json_number(double v)
{
    return isfinite(v) ? json_real(v) : json_null();
}

json_t *json_strings(const struct str_list *l)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < l->count; i++)
        if (json_array_append_new(array, json_str(l->items[i])) != 0) {
            json_decref(array);
            return NULL;
        }
    return array;
}

static json_t *json_u64(uint64_t v)
{
    return json_integer((json_int_t)v);
}

static json_t *json_ms(uint64_t ns)
{
    return json_real((double)(ns / 1000) / 1000.0);     /* microseconds are what is meant by it */
}

/* Takes `value`; NULL and a full memory are remembered in *bad. */
static void put(json_t *o, const char *key, json_t *value, int *bad)
{
    *bad |= json_object_set_new(o, key, value);
}

int json_add_verdict(json_t *o, const struct verdict_view *v, struct err *err)
{
    json_t *tests = json_object(), *detail = json_object(), *ms = json_object();
    int bad = tests == NULL || detail == NULL || ms == NULL;
    for (uint32_t i = 0; !bad && i < v->test_count; i++) {
        const struct test_view *t = &v->tests[i];
        json_t *id = json_str(t->id);           /* keys must be UTF-8 as well */
        bad |= id == NULL || json_object_set_new(tests, json_string_value(id), json_string(t->status)) != 0;
        if (!bad && strcmp(t->status, "PASSED") != 0 && t->message[0] != '\0')
            bad |= json_object_set_new(detail, json_string_value(id), json_str(t->message)) != 0;
        json_decref(id);
    }
    put(ms, "queue", json_ms(v->timings.queue_ns), &bad);
    put(ms, "prepare", json_ms(v->timings.prepare_ns), &bad);
    put(ms, "slot", json_ms(v->timings.slot_ns), &bad);
    put(ms, "run", json_ms(v->timings.run_ns), &bad);
    put(ms, "read", json_ms(v->timings.read_ns), &bad);
    put(ms, "total", json_ms(v->timings.total_ns), &bad);
    put(o, "outcome", json_string(v->outcome), &bad);
    put(o, "reward", v->has_reward ? json_number(v->reward) : json_null(), &bad);
    put(o, "tests", tests, &bad);
    put(o, "messages", detail, &bad);
    put(o, "patch_status", json_str(v->patch_status), &bad);
    put(o, "reason", json_str(v->reason), &bad);
    put(o, "limits_hit", json_strings(&v->limits_hit), &bad);
    put(o, "timings_ms", ms, &bad);
    put(o, "peak_memory_bytes", json_u64(v->peak_memory_bytes), &bad);
    put(o, "cpu_ms", json_ms(v->cpu_ns), &bad);
    put(o, "run_end", json_str(v->run_end), &bad);
    put(o, "start", json_str(v->start), &bad);
    put(o, "reader", json_str(v->reader), &bad);
    put(o, "cached", json_boolean(v->cached), &bad);
    put(o, "source_episode", v->source_episode[0] != '\0' ? json_string(v->source_episode) : json_null(), &bad);
    put(o, "findings", json_strings(&v->findings), &bad);
    put(o, "fault", v->fault[0] != '\0' ? json_str(v->fault) : json_null(), &bad);
    put(o, "retryable", json_boolean(v->retryable), &bad);
    put(o, "maskable", json_boolean(v->maskable), &bad);
    put(o, "attempts", json_u64(v->attempts), &bad);
    put(o, "output", json_text(v->output, v->output_len), &bad);
    put(o, "output_bytes", json_u64(v->output_bytes), &bad);
    return bad ? err_set(err, ERR_LIMIT, "out of memory") : 0;
}

static json_t *json_base64(const uint8_t *p, size_t n)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    own_mem char *s = malloc((n + 2) / 3 * 4 + 1);
    size_t o = 0;
    if (s == NULL)
        return NULL;
    for (size_t i = 0; i < n; i += 3) {
        uint32_t v = (uint32_t)p[i] << 16 | (i + 1 < n ? (uint32_t)p[i + 1] << 8 : 0) | (i + 2 < n ? p[i + 2] : 0u);
        s[o++] = digits[v >> 18];
        s[o++] = digits[v >> 12 & 63];
        s[o++] = i + 1 < n ? digits[v >> 6 & 63] : '=';
        s[o++] = i + 2 < n ? digits[v & 63] : '=';
    }
    return json_stringn(s, o);
}

static json_t *json_sample(const struct trajectory_view *t)
{
    json_t *o = json_object(), *tokens = json_array(), *logprobs = json_array(), *mask = json_array(), *spans = json_array();
    for (size_t i = 0; i < t->token_count; i++)
        json_array_append_new(tokens, json_u64(t->tokens[i]));
    for (size_t i = 0; i < t->logprob_count; i++)
        json_array_append_new(logprobs, json_number((double)t->logprobs[i]));
    for (size_t i = 0; i < t->loss_mask_len; i++)
        json_array_append_new(mask, json_u64(t->loss_mask[i]));
    for (size_t i = 0; i < t->span_count; i++)
        json_array_append_new(spans, json_pack("{s:I,s:I,s:I}", "start", (json_int_t)t->spans[i].start, "end",
                                               (json_int_t)t->spans[i].end, "version", (json_int_t)t->spans[i].version));
    int bad = 0;
    put(o, "tokens", tokens, &bad);
    put(o, "logprobs", logprobs, &bad);
    put(o, "loss_mask", mask, &bad);
    put(o, "spans", spans, &bad);
    put(o, "model", json_str(t->model), &bad);
    put(o, "seed", json_u64(t->seed), &bad);
    put(o, "choice_first", json_u64(t->choice_first), &bad);
    put(o, "choice_count", json_u64(t->choice_count), &bad);
    if (bad || json_array_size(tokens) != t->token_count || json_array_size(logprobs) != t->logprob_count
        || json_array_size(mask) != t->loss_mask_len || json_array_size(spans) != t->span_count) {
        json_decref(o);
        return NULL;
    }
    return o;
}

int json_trajectory(json_t **out, const struct trajectory_view *t, bool whole, struct err *err)
{
    json_t *o = json_object(), *labels = json_object();
    int bad = o == NULL || labels == NULL;
    for (size_t i = 0; !bad && i < t->label_count; i++) {
        json_t *key = json_str(t->labels[i].key);
        bad |= key == NULL || json_object_set_new(labels, json_string_value(key), json_str(t->labels[i].value)) != 0;
        json_decref(key);
    }
    put(o, "cursor", json_u64(t->cursor), &bad);
    put(o, "episode_id", json_string(t->episode_id), &bad);
    put(o, "request_id", json_str(t->request_id), &bad);
    put(o, "task_id", json_str(t->task_id), &bad);
    put(o, "accepted_unix_ns", json_u64(t->accepted_unix_ns), &bad);
    put(o, "finished_unix_ns", json_u64(t->finished_unix_ns), &bad);
    put(o, "timeout_s", t->timeout_s > 0 ? json_number(t->timeout_s) : json_null(), &bad);
    put(o, "labels", labels, &bad);
    put(o, "group", !t->has_group ? json_null() : json_pack("{s:s,s:I,s:I}", "id", t->group_id, "want",
        (json_int_t)t->group_want, "index", (json_int_t)t->group_index), &bad);
    put(o, "snapshot", json_str(t->snapshot), &bad);
    put(o, "patched_tree", json_str(t->patched_tree), &bad);
    put(o, "verdict_key", json_str(t->verdict_key), &bad);
    if (whole) {
        json_t *patch = json_stringn(t->patch_len > 0 ? (const char *)t->patch : "", t->patch_len);
        bad |= patch != NULL ? json_object_set_new(o, "patch", patch)
                             : json_object_set_new(o, "patch_base64", json_base64(t->patch, t->patch_len));
        bad |= json_object_set_new(o, "sample", t->has_sample ? json_sample(t) : json_null());
    }
    int rc = bad ? err_set(err, ERR_LIMIT, "out of memory") : json_add_verdict(o, &t->verdict, err);
    if (rc == 0 && !whole)
        json_object_del(o, "output");           /* a listing comes without */
    if (rc < 0)
        json_decref(o);
    else
        *out = o;
    return rc;
}

int json_task(json_t **out, const struct task *t, struct err *err)
{
    own_buf text = { 0 };
    int rc = task_write_json(&text, t, err);
    if (rc < 0)
        return rc;
    json_error_t where;
    *out = json_loadb((const char *)text.data, text.len, 0, &where);
    return *out != NULL ? 0 : err_set(err, ERR_INTERNAL, "task %s: its record is no JSON: %s", t->id, where.text);
}

int print_failed(struct err *err)
{
    /* stdio may have failed a while ago: ask the descriptor, not errno, whether anyone still reads. */
    struct pollfd p = { .fd = STDOUT_FILENO };
    if (poll(&p, 1, 0) > 0 && (p.revents & (POLLERR | POLLHUP)) != 0) {
        errno = EPIPE;
        return err_sys(err, ERR_CANCELLED, "standard output");
    }
    return err_set(err, ERR_UNAVAILABLE, "standard output: cannot be written");
}

int print_json(FILE *f, json_t *value, bool indented, struct err *err)
{
    if (value == NULL)
        return err_set(err, ERR_LIMIT, "out of memory");
    /* 9 digits give every float back exactly. */
    size_t flags = JSON_REAL_PRECISION(9) | (indented ? (size_t)JSON_INDENT(2) : JSON_COMPACT);
    int rc = json_dumpf(value, f, flags);
    json_decref(value);
    return rc != 0 || fputc('\n', f) == EOF ? print_failed(err) : 0;
}

/* --- people --- */

const char *reward_text(char out[32], const struct verdict_view *v)
{
    if (v->has_reward)
        snprintf(out, 32, "%g", v->reward);
    else
        strcpy(out, "none");
    return out;
}

static void print_tests(FILE *f, const struct verdict_view *v, uint32_t tests_max)
{
    uint32_t passed = 0, required = 0, required_passed = 0, shown = 0, hidden = 0;
    for (uint32_t i = 0; i < v->test_count; i++) {
        bool ok = strcmp(v->tests[i].status, "PASSED") == 0;
        passed += ok;
        required += v->tests[i].required;
        required_passed += v->tests[i].required && ok;
    }
    if (v->test_count > 0) {
        fprintf(f, "  tests    %u of %u passed", passed, v->test_count);
        if (required > 0)
            fprintf(f, "; %u of %u required", required_passed, required);
        fputc('\n', f);
    }
    for (int pass = 0; pass < 2; pass++)        /* required ones first: they decide */
        for (uint32_t i = 0; i < v->test_count; i++) {
            const struct test_view *t = &v->tests[i];
            if (t->required != (pass == 0) || strcmp(t->status, "PASSED") == 0
                || (!t->required && (strcmp(t->status, "SKIPPED") == 0 || strcmp(t->status, "XFAIL") == 0)))
                continue;
            if (shown == tests_max) {
                hidden++;
                continue;
            }
            shown++;
            fprintf(f, "  %-8s ", t->status);
            print_str(f, t->id);
            if (t->message[0] != '\0') {
                fputs("\n           ", f);
                size_t n = strlen(t->message);
                print_text(f, t->message, n > 160 ? 160 : n);
            }
            fputc('\n', f);
        }
    if (hidden > 0)
        fprintf(f, "  and %u more that did not pass (-o json has all)\n", hidden);
}

void print_verdict(FILE *f, const struct verdict_view *v, uint32_t tests_max)
{
    char reward[32];
    fprintf(f, "%s, reward %s%s\n", v->outcome, reward_text(reward, v), v->cached ? " (from the verdict cache)" : "");
    if (v->reason[0] != '\0') {
        fputs("  reason   ", f);
        print_str(f, v->reason);
        fputc('\n', f);
    }
    print_tests(f, v, tests_max);
    for (uint32_t i = 0; i < v->findings.count; i++) {
        fputs("  finding  ", f);
        print_str(f, v->findings.items[i]);
        fputc('\n', f);
    }
    for (uint32_t i = 0; i < v->limits_hit.count; i++) {
        fputs("  limit    ", f);
        print_str(f, v->limits_hit.items[i]);
        fputc('\n', f);
    }
    if (v->run_end[0] != '\0') {
        fputs("  run      ", f);
        print_str(f, v->run_end);
        fprintf(f, ", %.2f s, %.0f MiB at most, reader ", (double)v->timings.run_ns / 1e9,
                (double)v->peak_memory_bytes / 1048576.0);
        print_str(f, v->reader);
        if (v->start[0] != '\0') {
            fputs(", start ", f);
            print_str(f, v->start);
        }
        fputc('\n', f);
    }
    if (v->fault[0] != '\0') {
        fprintf(f, "  fault    ");
        print_str(f, v->fault);
        fprintf(f, " after %u attempt%s%s\n", v->attempts, v->attempts == 1 ? "" : "s",
                v->retryable ? "; trying again may help" : "");
    }
}

void print_output_end(FILE *f, const struct verdict_view *v)
{
    size_t n = v->output_len, from = n, lines = 0;
    if (from > 0 && v->output[from - 1] == '\n')
        from--;
    while (from > 0 && n - from < OUTPUT_END_BYTES && (v->output[from - 1] != '\n' || ++lines < OUTPUT_END_LINES))
        from--;
    fputs("  the output ended so:\n", f);
    print_block(f, "    | ", v->output + from, n - from);
}
