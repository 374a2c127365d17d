/*
 * task.c - one JSONL record as a struct task, and back.
 *
 * Task files come from outside: every known field has one row that says its type and whether it must
 * be there, and a wrong one is named with the task's id. A field that is not known is kept, not
 * judged: other tools put theirs beside ours. Only one that looks like a slip in a known name is
 * refused: kept as it is, it would silently leave that field at its default.
 */
#include "repos/repos.h"
#include <jansson.h>
#include <math.h>
#include <string.h>

/* One record: a large patch is a few MiB, so 64 MiB is a broken file rather than a task. */
#define RECORD_SIZE_MAX ((size_t)64 << 20)
#define ID_SIZE_MAX     256
#define TEST_ID_SIZE_MAX 4096
#define TESTS_MAX       200000
#define NAME_SIZE_MAX   1024
#define CMD_SIZE_MAX    65536
#define TIMEOUT_S_MIN   0.1
#define TIMEOUT_S_MAX   86400.0
#define TIMEOUT_S       300.0
#define MEMORY_MB_MIN   16
#define MEMORY_MB_MAX   1048576
#define MEMORY_MB       2048
#define CHOICE_OPTIONS_MIN 2
#define CHOICE_OPTIONS_MAX 64   /* as the learner's vocabulary has them: learner/choice.h */
#define WARM_WORDS_MAX  16
#define LANGUAGE_SIZE_MAX 64
/* No quote, no expansion, no operator, no comment: to a shell these are words. */
#define PLAIN "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:,@%+= -"
#define SLIP_NAME_MAX   32      /* longer names are no slips of ours */

const char *const task_state_names[TASK_STATE_COUNT] = { "imported", "validated", "quarantined", "refused" };

static void own_json_done(json_t **j) { json_decref(*j); }
#define own_json __attribute__((cleanup(own_json_done))) json_t

struct reading {
    json_t       *root;
    struct arena *a;
    const char   *id;           /* quoted, for messages */
    struct err   *err;
};

static const char *type_name(const json_t *j)
{
    switch (json_typeof(j)) {
    case JSON_OBJECT: return "an object";
    case JSON_ARRAY: return "a list";
    case JSON_STRING: return "a string";
    case JSON_INTEGER: return "an integer";
    case JSON_REAL: return "a number";
    case JSON_TRUE: case JSON_FALSE: return "a boolean";
    case JSON_NULL: return "null";
    }
    return "something else";
}

static bool has_control(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)s[i] < 0x20 || s[i] == 0x7f)
            return true;
    return false;
}

static int wrong_type(struct reading *r, const char *name, const char *want, const json_t *got)
{
    return err_set(r->err, ERR_BAD_INPUT, "task %s: field %s: want %s, got %s", r->id, name, want, type_name(got));
}

/* Take field `name` (or its alias) out of the record. null counts as absent. */
static int take(struct reading *r, json_t **out, const char *name, const char *alias)
{
    json_t *j = json_object_get(r->root, name);
    json_t *other = alias != NULL ? json_object_get(r->root, alias) : NULL;
    if (j != NULL && other != NULL)
        return err_set(r->err, ERR_BAD_INPUT, "task %s: field %s is there twice, also as %s; keep one", r->id, name, alias);
    j = j != NULL ? j : other;
    *out = j == NULL || json_is_null(j) ? NULL : json_incref(j);
    if (json_object_del(r->root, name) != 0 && alias != NULL)
        (void)json_object_del(r->root, alias);
    return 0;
}

/* `fallback` NULL: the field must be there and not be empty. `line`: one line without control characters. */
static int take_text(struct reading *r, const char **out, const char *name, const char *fallback, size_t size_max, bool line)
{
    own_json *j = NULL;
    int rc = take(r, &j, name, NULL);
    if (rc < 0)
        return rc;
    if (j != NULL && !json_is_string(j))
        return wrong_type(r, name, "a string", j);
    const char *s = j != NULL ? json_string_value(j) : fallback;
    size_t n = j != NULL ? json_string_length(j) : s != NULL ? strlen(s) : 0;
    if (n == 0 && fallback == NULL)
        return err_set(r->err, ERR_BAD_INPUT, "task %s: field %s is %s; every task needs it", r->id, name,
                       j != NULL ? "empty" : "missing");
    if (n == 0)
        n = strlen(s = fallback);           /* "" says no more than an absent field */
    if (n > size_max)
        return err_set(r->err, ERR_BAD_INPUT, "task %s: field %s: %zu bytes, at most %zu", r->id, name, n, size_max);
    if (line && has_control(s, n))
        return err_set(r->err, ERR_BAD_INPUT, "task %s: field %s holds a control character", r->id, name);
    *out = arena_strndup(r->a, s, n);
    return *out != NULL ? 0 : err_set(r->err, ERR_LIMIT, "task %s: field %s does not fit the memory budget", r->id, name);
}

/* A list of test ids; public data sets also hold it as JSON inside a string. Repeats are dropped. */
static int take_ids(struct reading *r, struct str_list *out, const char *name, const char *alias)
{
    own_json *j = NULL;
    int rc = take(r, &j, name, alias);
    if (rc < 0)
        return rc;
    *out = (struct str_list){ 0 };
    if (j == NULL || (json_is_string(j) && json_string_length(j) == 0))
        return 0;
    if (json_is_string(j)) {
        json_error_t je;
        json_t *inner = json_loadb(json_string_value(j), json_string_length(j), 0, &je);
        if (inner == NULL) {
            char why[JSON_ERROR_TEXT_LENGTH];
            err_quote(why, sizeof why, je.text, strlen(je.text));
            return err_set(r->err, ERR_BAD_INPUT, "task %s: field %s: a string that is not a JSON list: %s", r->id, name, why);
        }
        json_decref(j);
        j = inner;
    }
    if (!json_is_array(j))
        return wrong_type(r, name, "a list of test ids", j);
    size_t n = json_array_size(j);
    if (n > TESTS_MAX)
        return err_set(r->err, ERR_BAD_INPUT, "task %s: field %s: %zu ids, at most %d", r->id, name, n, TESTS_MAX);
    own_json *seen = json_object();
    const char **items = arena_alloc(r->a, sizeof *items * (n + 1));
    if (seen == NULL || items == NULL)
        return err_set(r->err, ERR_LIMIT, "task %s: field %s does not fit the memory budget", r->id, name);
    uint32_t count = 0;
    for (size_t i = 0; i < n; i++) {
        const json_t *one = json_array_get(j, i);
        if (!json_is_string(one))
            return err_set(r->err, ERR_BAD_INPUT, "task %s: field %s: entry %zu: want a string, got %s", r->id, name, i + 1,
                           type_name(one));
        const char *s = json_string_value(one);
        size_t len = json_string_length(one);
        if (len == 0 || len > TEST_ID_SIZE_MAX)
            return err_set(r->err, ERR_BAD_INPUT, "task %s: field %s: entry %zu: %zu bytes, want 1..%d", r->id, name, i + 1, len,
                           TEST_ID_SIZE_MAX);
        if (has_control(s, len)) {
            char quoted[128];
            err_quote(quoted, sizeof quoted, s, len);
            return err_set(r->err, ERR_BAD_INPUT, "task %s: field %s: entry %zu holds a control character: \"%s\"", r->id, name,
                           i + 1, quoted);
        }
        if (json_object_get(seen, s) != NULL)
            continue;
        if (json_object_set_new(seen, s, json_true()) != 0 || (items[count] = arena_strndup(r->a, s, len)) == NULL)
            return err_set(r->err, ERR_LIMIT, "task %s: field %s does not fit the memory budget", r->id, name);
        count++;
    }
    *out = (struct str_list){ items, count };
    return 0;
}

static int take_number(struct reading *r, double *out, const char *name, double fallback, double least, double most, bool whole)
{
    own_json *j = NULL;
    int rc = take(r, &j, name, NULL);
    if (rc < 0)
        return rc;
    if (j != NULL && !json_is_number(j))
        return wrong_type(r, name, "a number", j);
    double v = j != NULL ? json_number_value(j) : fallback;
    if (!(v >= least && v <= most) || (whole && v != floor(v)))
        return err_set(r->err, ERR_BAD_INPUT, "task %s: field %s: %.15g, want %s%.15g..%.15g", r->id, name, v,
                       whole ? "a whole number in " : "", least, most);
    *out = v;
    return 0;
}

static int check_id(struct reading *r, const char *id)
{
    size_t n = strlen(id);
    if (id[0] == '/' || id[n - 1] == '/')
        return err_set(r->err, ERR_BAD_INPUT, "task %s: field instance_id begins or ends with '/'", r->id);
    return 0;
}

static int check_commit(struct reading *r, struct task *t)
{
    char *c = arena_strdup(r->a, t->base_commit);
    if (c == NULL)
        return err_set(r->err, ERR_LIMIT, "task %s: out of memory", r->id);
    for (char *p = c; *p != '\0'; p++)
        if (*p >= 'A' && *p <= 'F')
            *p = (char)(*p + 'a' - 'A');
    if (strlen(c) != 40 || strspn(c, "0123456789abcdef") != 40) {
        char quoted[80];
        err_quote(quoted, sizeof quoted, t->base_commit, strlen(t->base_commit));
        return err_set(r->err, ERR_BAD_INPUT, "task %s: field base_commit: \"%s\", want 40 hex digits", r->id, quoted);
    }
    t->base_commit = c;
    return 0;
}

static int check_reader(struct reading *r, const char *reader)
{
    static const char *const known[] = { "auto", "pytest", "tap", "exit" };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strcmp(reader, known[i]) == 0)
            return 0;
    char quoted[64];
    err_quote(quoted, sizeof quoted, reader, strlen(reader));
    return err_set(r->err, ERR_BAD_INPUT, "task %s: field reader: \"%s\", want auto, pytest, tap or exit", r->id, quoted);
}

/* The machine's own files, or an image in the store by its digest. */
static int check_environment(struct reading *r, const char *environment)
{
    const char *hex = strncmp(environment, "sha256:", 7) == 0 ? environment + 7 : environment;
    if (strcmp(environment, "host") == 0 || (strlen(hex) == 64 && strspn(hex, "0123456789abcdef") == 64))
        return 0;
    char quoted[96];
    err_quote(quoted, sizeof quoted, environment, strlen(environment));
    return err_set(r->err, ERR_BAD_INPUT, "task %s: field environment: \"%s\", want host, or an image's digest: 64 "
                   "lower-case hex digits, \"sha256:\" may stand before them", r->id, quoted);
}

/* How much of the kernel a sandbox grants: sandbox/sandbox.h. */
static int check_profile(struct reading *r, const char *profile)
{
    if (strcmp(profile, "strict") == 0 || strcmp(profile, "compatible") == 0)
        return 0;
    char quoted[64];
    err_quote(quoted, sizeof quoted, profile, strlen(profile));
    return err_set(r->err, ERR_BAD_INPUT, "task %s: field profile: \"%s\", want strict, or compatible for suites "
                   "that need ptrace or nested namespaces", r->id, quoted);
}

/* What a policy may choose from. It is kept among the further fields, but a wrong one would only be found when learning. */
static int check_choice(struct reading *r)
{
    static const char *const texts[] = { "prompt", "prefix", "suffix" };
    const json_t *choice = json_object_get(r->root, "choice");
    if (choice == NULL || json_is_null(choice))
        return 0;
    if (!json_is_object(choice))
        return wrong_type(r, "choice", "an object", choice);
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        const json_t *text = json_object_get(choice, texts[i]);
        if (!json_is_string(text))
            return err_set(r->err, ERR_BAD_INPUT, "task %s: field choice.%s: want a string, got %s", r->id, texts[i],
                           text != NULL ? type_name(text) : "nothing");
    }
    const json_t *options = json_object_get(choice, "options");
    if (!json_is_array(options))
        return err_set(r->err, ERR_BAD_INPUT, "task %s: field choice.options: want a list of strings, got %s", r->id,
                       options != NULL ? type_name(options) : "nothing");
    size_t n = json_array_size(options);
    if (n < CHOICE_OPTIONS_MIN || n > CHOICE_OPTIONS_MAX)
        return err_set(r->err, ERR_BAD_INPUT, "task %s: field choice.options: %zu entries, want %d..%d", r->id, n,
                       CHOICE_OPTIONS_MIN, CHOICE_OPTIONS_MAX);
    for (size_t i = 0; i < n; i++)
        if (!json_is_string(json_array_get(options, i)))
            return err_set(r->err, ERR_BAD_INPUT, "task %s: field choice.options: entry %zu: want a string, got %s", r->id, i + 1,
                           type_name(json_array_get(options, i)));
    return 0;
}

/* How runs begin; kept among the further fields, as it changes nothing but their speed. */
static int check_warm(struct reading *r)
{
    const json_t *warm = json_object_get(r->root, "warm");
    if (warm == NULL || json_is_null(warm))
        return 0;
    if (!json_is_array(warm))
        return wrong_type(r, "warm", "a list of words", warm);
    size_t n = json_array_size(warm);
    if (n > WARM_WORDS_MAX)
        return err_set(r->err, ERR_BAD_INPUT, "task %s: field warm: %zu words, at most %d", r->id, n, WARM_WORDS_MAX);
    for (size_t i = 0; i < n; i++) {
        const json_t *one = json_array_get(warm, i);
        if (!json_is_string(one) || json_string_length(one) == 0 || has_control(json_string_value(one), json_string_length(one)))
            return err_set(r->err, ERR_BAD_INPUT, "task %s: field warm: entry %zu: want a word", r->id, i + 1);
    }
    return 0;
}

/* For listings; kept among the further fields. */
static int check_language(struct reading *r)
{
    const json_t *language = json_object_get(r->root, "language");
    if (language == NULL || json_is_null(language))
        return 0;
    if (!json_is_string(language))
        return wrong_type(r, "language", "a string", language);
    size_t n = json_string_length(language);
    if (n > LANGUAGE_SIZE_MAX || has_control(json_string_value(language), n))
        return err_set(r->err, ERR_BAD_INPUT, "task %s: field language: want a word of at most %d bytes", r->id, LANGUAGE_SIZE_MAX);
    return 0;
}

/* Lower case, underscores left out: how people remember a field's name. False when it is longer than any slip. */
static bool plain_name(char out[SLIP_NAME_MAX], const char *name)
{
    size_t n = 0;
    for (; *name != '\0'; name++) {
        if (*name == '_')
            continue;
        if (n == SLIP_NAME_MAX - 1)
            return false;
        out[n++] = *name >= 'A' && *name <= 'Z' ? (char)(*name - 'A' + 'a') : *name;
    }
    out[n] = '\0';
    return true;
}

/* Levenshtein's distance; one row of the table is enough. */
static size_t name_distance(const char *a, const char *b)
{
    size_t row[SLIP_NAME_MAX], m = strlen(b);
    for (size_t j = 0; j <= m; j++)
        row[j] = j;
    for (size_t i = 1; a[i - 1] != '\0'; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            size_t best = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            best = row[j] + 1 < best ? row[j] + 1 : best;
            row[j] = row[j - 1] + 1 < best ? row[j - 1] + 1 : best;
        }
    }
    return row[m];
}

/*
 * A further field that is nearly a known one is a slip. Two letters may differ, but in a short name only one:
 * "role" is not "repo".
 */
static int check_slips(struct reading *r)
{
    static const char *const known[] = { "instance_id", "repo", "base_commit", "problem_statement", "patch", "test_patch",
                                         "FAIL_TO_PASS", "PASS_TO_PASS", "test_cmd", "reader", "environment",
                                         "profile", "split",
                                         "timeout_s", "memory_mb", "choice", "warm",
                                         "fail_to_pass", "pass_to_pass" };      /* accepted as well */
    const char *name;
    json_t *value;
    json_object_foreach(r->root, name, value) {
        char plain[SLIP_NAME_MAX], want[SLIP_NAME_MAX];
        const char *near = NULL;
        size_t least = plain_name(plain, name) ? SIZE_MAX : 0;
        for (size_t i = 0; i < sizeof known / sizeof known[0] && least > 0; i++)
            if (strcmp(name, known[i]) == 0)
                least = 0;              /* no slip */
        for (size_t i = 0; i < sizeof known / sizeof known[0] && least > 0; i++) {
            size_t d = plain_name(want, known[i]) ? name_distance(plain, want) : SIZE_MAX;
            if (d < least && d <= (strlen(want) <= 6 ? 1 : 2)) {
                near = known[i];
                least = d;
            }
        }
        if (near == NULL)
            continue;                   /* known, or like nothing that we know */
        char quoted[2 * SLIP_NAME_MAX];
        err_quote(quoted, sizeof quoted, name, strlen(name));
        return err_set(r->err, ERR_BAD_INPUT, "task %s: unknown field %s: did you mean %s?", r->id, quoted, near);
    }
    return 0;
}

int task_read_json(struct task *out, struct arena *a, const char *json, size_t n, struct err *err)
{
    if (n > RECORD_SIZE_MAX)
        return err_set(err, ERR_BAD_INPUT, "task record: %zu bytes, at most %zu", n, RECORD_SIZE_MAX);
    if (n >= 3 && memcmp(json, "\xef\xbb\xbf", 3) == 0) {      /* the mark some editors begin a file with */
        json += 3;
        n -= 3;
    }
    json_error_t je;
    own_json *root = json_loadb(json, n, JSON_REJECT_DUPLICATES, &je);
    if (root == NULL) {
        char why[2 * JSON_ERROR_TEXT_LENGTH];
        err_quote(why, sizeof why, je.text, strlen(je.text));
        return err_set(err, ERR_BAD_INPUT, "task record is not one JSON object: byte %d: %s", je.position, why);
    }
    if (!json_is_object(root))
        return err_set(err, ERR_BAD_INPUT, "task record is %s, want an object", type_name(root));

    char quoted_id[96] = "(no instance_id)";
    json_t *id = json_object_get(root, "instance_id");
    if (json_is_string(id) && json_string_length(id) > 0)
        err_quote(quoted_id, sizeof quoted_id, json_string_value(id), json_string_length(id));
    struct reading r = { .root = root, .a = a, .id = quoted_id, .err = err };
    struct task t = { 0 };
    double memory_mb = 0;
    int rc;
    if ((rc = check_slips(&r)) < 0          /* before a needed field is said to be missing */
        || (rc = take_text(&r, &t.id, "instance_id", NULL, ID_SIZE_MAX, true)) < 0
        || (rc = check_id(&r, t.id)) < 0
        || (rc = take_text(&r, &t.repo, "repo", NULL, NAME_SIZE_MAX, true)) < 0
        || (rc = take_text(&r, &t.base_commit, "base_commit", NULL, NAME_SIZE_MAX, true)) < 0
        || (rc = check_commit(&r, &t)) < 0
        || (rc = take_text(&r, &t.problem_statement, "problem_statement", "", RECORD_SIZE_MAX, false)) < 0
        || (rc = take_text(&r, &t.patch, "patch", "", RECORD_SIZE_MAX, false)) < 0
        || (rc = take_text(&r, &t.test_patch, "test_patch", "", RECORD_SIZE_MAX, false)) < 0
        || (rc = take_ids(&r, &t.fail_to_pass, "FAIL_TO_PASS", "fail_to_pass")) < 0
        || (rc = take_ids(&r, &t.pass_to_pass, "PASS_TO_PASS", "pass_to_pass")) < 0
        || (rc = take_text(&r, &t.test_cmd, "test_cmd", NULL, CMD_SIZE_MAX, false)) < 0
        || (rc = take_text(&r, &t.reader, "reader", "auto", NAME_SIZE_MAX, true)) < 0
        || (rc = check_reader(&r, t.reader)) < 0
        || (rc = take_text(&r, &t.environment, "environment", "host", NAME_SIZE_MAX, true)) < 0
        || (rc = check_environment(&r, t.environment)) < 0
        || (rc = take_text(&r, &t.profile, "profile", "strict", NAME_SIZE_MAX, true)) < 0
        || (rc = check_profile(&r, t.profile)) < 0
        || (rc = take_text(&r, &t.split, "split", "", NAME_SIZE_MAX, true)) < 0
        || (rc = take_number(&r, &t.timeout_s, "timeout_s", TIMEOUT_S, TIMEOUT_S_MIN, TIMEOUT_S_MAX, false)) < 0
        || (rc = take_number(&r, &memory_mb, "memory_mb", MEMORY_MB, MEMORY_MB_MIN, MEMORY_MB_MAX, true)) < 0
        || (rc = check_choice(&r)) < 0 || (rc = check_warm(&r)) < 0 || (rc = check_language(&r)) < 0)
        return rc;
    t.memory_mb = (uint64_t)memory_mb;

    char *extra = json_dumps(root, JSON_COMPACT | JSON_SORT_KEYS | JSON_REAL_PRECISION(17));
    t.extra_json = extra != NULL ? arena_strdup(a, extra) : NULL;
    free(extra);
    t.base_tree = arena_strdup(a, "");
    if (t.extra_json == NULL || t.base_tree == NULL)
        return err_set(err, ERR_LIMIT, "task %s: its record does not fit the memory budget", quoted_id);
    t.state = task_state_names[TASK_IMPORTED];
    if ((rc = task_language(&t, a, err)) < 0)
        return rc;
    *out = t;
    return 0;
}

static bool put_text(json_t *root, const char *name, const char *value)
{
    return value == NULL || json_object_set_new(root, name, json_string(value)) == 0;
}

static bool put_ids(json_t *root, const char *name, const struct str_list *ids)
{
    json_t *list = json_array();
    for (uint32_t i = 0; list != NULL && i < ids->count; i++)
        if (json_array_append_new(list, json_string(ids->items[i])) != 0) {
            json_decref(list);
            return false;
        }
    return json_object_set_new(root, name, list) == 0;
}

int task_write_json(struct buf *out, const struct task *t, struct err *err)
{
    own_json *root = json_object();
    own_json *extra = json_loads(t->extra_json != NULL && t->extra_json[0] != '\0' ? t->extra_json : "{}", 0, NULL);
    bool fine = root != NULL && json_is_object(extra)
        && put_text(root, "instance_id", t->id) && put_text(root, "repo", t->repo)
        && put_text(root, "base_commit", t->base_commit) && put_text(root, "problem_statement", t->problem_statement)
        && put_text(root, "patch", t->patch) && put_text(root, "test_patch", t->test_patch)
        && put_ids(root, "FAIL_TO_PASS", &t->fail_to_pass) && put_ids(root, "PASS_TO_PASS", &t->pass_to_pass)
        && put_text(root, "test_cmd", t->test_cmd) && put_text(root, "reader", t->reader)
        && put_text(root, "environment", t->environment) && put_text(root, "profile", t->profile)
        && put_text(root, "split", t->split)
        && json_object_set_new(root, "timeout_s", json_real(t->timeout_s)) == 0
        && json_object_set_new(root, "memory_mb", json_integer((json_int_t)t->memory_mb)) == 0
        && json_object_update_missing(root, extra) == 0;        /* a known field is never overwritten */
    char *text = fine ? json_dumps(root, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
    if (text == NULL) {
        char quoted[96];
        err_quote(quoted, sizeof quoted, t->id, strlen(t->id));
        return err_set(err, ERR_BAD_INPUT, "task %s: cannot be written as JSON: a field is not UTF-8, or memory is out", quoted);
    }
    int rc = buf_add(out, text, strlen(text), err);
    free(text);
    return rc;
}

/* ---- how runs begin ---- */

/* The words of a command in which a shell would find nothing but words; none: not such a command, or out of memory. */
static struct str_list plain_words(struct arena *a, const char *cmd)
{
    struct str_list out = { 0 };
    char *text = arena_strdup(a, cmd), *save = NULL;
    out.items = arena_alloc(a, (strlen(cmd) / 2 + 1) * sizeof *out.items);
    if (text == NULL || out.items == NULL || strspn(cmd, PLAIN) != strlen(cmd))
        return (struct str_list){ 0 };
    for (char *w = strtok_r(text, " ", &save); w != NULL; w = strtok_r(NULL, " ", &save))
        out.items[out.count++] = w;
    return out.count > 0 && strchr(out.items[0], '=') == NULL ? out : (struct str_list){ 0 };
}

static bool begins(const struct str_list *words, const struct str_list *with)
{
    uint32_t i = 0;
    while (i < with->count && i < words->count && strcmp(words->items[i], with->items[i]) == 0)
        i++;
    return i > 0 && i == with->count;
}

int task_warm(struct task *t, struct arena *a, struct err *err)
{
    static const char *usual[] = { "python3", "-m", "pytest", "python", "-m", "pytest", "pytest", "py.test" };
    static const struct str_list begins_of[] = { { usual, 3 }, { usual + 3, 3 }, { usual + 6, 1 }, { usual + 7, 1 } };
    t->argv = t->warm = (struct str_list){ 0 };
    struct str_list words = plain_words(a, t->test_cmd), warm = { 0 };
    own_json *extra = json_loads(t->extra_json != NULL && t->extra_json[0] != '\0' ? t->extra_json : "{}", 0, NULL);
    const json_t *field = json_object_get(extra, "warm");
    if (json_is_array(field)) {
        warm.items = arena_alloc(a, (json_array_size(field) + 1) * sizeof *warm.items);
        for (size_t i = 0; warm.items != NULL && i < json_array_size(field); i++)
            if ((warm.items[warm.count++] = arena_strdup(a, json_string_value(json_array_get(field, i)))) == NULL)
                warm.items = NULL;
        if (warm.items == NULL)
            return err_set(err, ERR_LIMIT, "task %s: out of memory", t->id);
    } else {
        for (size_t i = 0; warm.count == 0 && i < sizeof begins_of / sizeof begins_of[0]; i++)
            if (begins(&words, &begins_of[i]))
                warm = begins_of[i];
    }
    if (begins(&words, &warm)) {
        t->argv = words;
        t->warm = warm;
    }
    return 0;
}

/* ---- language ---- */

static const struct { const char *ending, *language; } languages[] = {
    { "py", "python" }, { "pyx", "python" }, { "c", "c" }, { "h", "c" }, { "cc", "c++" }, { "cpp", "c++" }, { "cxx", "c++" },
    { "hpp", "c++" }, { "hh", "c++" }, { "rs", "rust" }, { "go", "go" }, { "java", "java" }, { "kt", "kotlin" }, { "scala", "scala" },
    { "js", "javascript" }, { "jsx", "javascript" }, { "mjs", "javascript" }, { "ts", "typescript" }, { "tsx", "typescript" },
    { "rb", "ruby" }, { "php", "php" }, { "pl", "perl" }, { "pm", "perl" }, { "cs", "c#" }, { "swift", "swift" }, { "lua", "lua" },
    { "sh", "shell" }, { "bash", "shell" }, { "hs", "haskell" }, { "ml", "ocaml" }, { "ex", "elixir" }, { "exs", "elixir" },
    { "erl", "erlang" }, { "jl", "julia" }, { "r", "r" }, { "R", "r" }, { "zig", "zig" },
};
#define LANGUAGE_COUNT (sizeof languages / sizeof languages[0])

/* The language of a changed file's header line, "+++ b/src/x.py" or "--- a/src/x.py"; NULL: of none. */
static const char *language_of_line(const char *line, size_t n)
{
    while (n > 0 && (line[n - 1] == '\r' || line[n - 1] == '\t'))
        n--;
    const char *dot = memrchr(line, '.', n);
    size_t len = dot != NULL ? n - (size_t)(dot + 1 - line) : 0;
    for (size_t i = 0; len > 0 && i < LANGUAGE_COUNT; i++)
        if (strlen(languages[i].ending) == len && memcmp(dot + 1, languages[i].ending, len) == 0)
            return languages[i].language;
    return NULL;
}

static const char *language_of_patch(const char *patch)
{
    uint32_t files[LANGUAGE_COUNT] = { 0 }, most = 0;
    const char *best = "";
    for (const char *p = patch; *p != '\0'; p += *p == '\n') {
        size_t n = strcspn(p, "\n");
        const char *language = strncmp(p, "+++ ", 4) == 0 || strncmp(p, "--- ", 4) == 0 ? language_of_line(p, n) : NULL;
        for (size_t i = 0; language != NULL && i < LANGUAGE_COUNT; i++)
            if (strcmp(languages[i].language, language) == 0 && ++files[i] > most) {
                most = files[i];
                best = language;
            }
        p += n;
    }
    return best;
}

int task_language(struct task *t, struct arena *a, struct err *err)
{
    own_json *extra = json_loads(t->extra_json[0] != '\0' ? t->extra_json : "{}", 0, NULL);
    const char *field = json_string_value(json_object_get(extra, "language"));
    char *copy = arena_strdup(a, field != NULL ? field : language_of_patch(t->patch));
    if (copy == NULL)
        return err_set(err, ERR_LIMIT, "task %s: out of memory", t->id);
    for (char *p = copy; *p != '\0'; p++)
        if (*p >= 'A' && *p <= 'Z')
            *p = (char)(*p - 'A' + 'a');
    t->language = copy;
    return 0;
}
