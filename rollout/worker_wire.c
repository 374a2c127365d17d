/* worker_wire.c - bodies between pool and worker: u32 lengths, host order (one machine, one build), checked on both sides. */
#include "rollout/worker_wire.h"
#include <math.h>
#include <string.h>

static int put_u64(struct buf *out, uint64_t v, struct err *err) { return buf_add(out, &v, sizeof v, err); }

static int put_double(struct buf *out, double v, struct err *err) { return buf_add(out, &v, sizeof v, err); }

static int put_str(struct buf *out, const char *s, struct err *err)
{
    size_t n = s != NULL ? strlen(s) : 0;
    uint32_t len = (uint32_t)n;
    if (n > WORKER_BODY_MAX)
        return err_set(err, ERR_LIMIT, "worker: a text of %zu bytes", n);
    int rc = buf_add(out, &len, sizeof len, err);
    return rc < 0 ? rc : buf_add(out, n > 0 ? s : "", n, err);
}

static int put_list(struct buf *out, const struct str_list *l, struct err *err)
{
    int rc = put_u64(out, l->count, err);
    for (uint32_t i = 0; rc >= 0 && i < l->count; i++)
        rc = put_str(out, l->items[i], err);
    return rc;
}

static bool take(struct wire_in *in, void *out, size_t n)
{
    if (in->bad || (size_t)(in->end - in->at) < n) {
        in->bad = true;
        memset(out, 0, n);
        return false;
    }
    memcpy(out, in->at, n);
    in->at += n;
    return true;
}

static uint64_t get_u64(struct wire_in *in)
{
    uint64_t v;
    take(in, &v, sizeof v);
    return v;
}

static double get_double(struct wire_in *in)
{
    double v;
    take(in, &v, sizeof v);
    return isfinite(v) ? v : 0;
}

static const char *get_str(struct wire_in *in)
{
    uint32_t n;
    if (!take(in, &n, sizeof n) || (size_t)(in->end - in->at) < n) {
        in->bad = true;
        return "";
    }
    char *s = arena_strndup(in->a, (const char *)in->at, n);
    in->at += n;
    if (s == NULL || memchr(s, '\0', n) != NULL)
        in->bad = true;
    return s != NULL ? s : "";
}

/* Each element takes at least `least` bytes: a count beyond what can follow is refused before anything is allocated. */
static uint32_t get_count(struct wire_in *in, size_t least)
{
    uint64_t n = get_u64(in);
    if (in->bad || n > (size_t)(in->end - in->at) / least) {
        in->bad = true;
        return 0;
    }
    return (uint32_t)n;
}

static void get_list(struct wire_in *in, struct str_list *out)
{
    uint32_t n = get_count(in, sizeof(uint32_t));
    const char **items = arena_alloc(in->a, ((size_t)n + 1) * sizeof *items);
    in->bad |= items == NULL;
    for (uint32_t i = 0; !in->bad && i < n; i++)
        items[i] = get_str(in);
    *out = (struct str_list){ items, in->bad ? 0 : n };
}

static int verdict_on(const struct wire_in *in, const char *what, struct err *err)
{
    return in->bad ? err_set(err, ERR_PROTOCOL, "worker: malformed or oversized %s", what) : 0;
}

/* --- task: what readers and the merge look at --- */

#define TASK_TEXTS 11

static void task_texts(const char **out[TASK_TEXTS], struct task *t)
{
    const char **texts[TASK_TEXTS] = {
        &t->id, &t->repo, &t->base_commit, &t->test_patch, &t->test_cmd, &t->reader, &t->environment, &t->split, &t->extra_json,
        &t->base_tree, &t->profile,
    };
    memcpy(out, texts, sizeof texts);
}

int wire_put_task(struct buf *out, const struct task *t, struct err *err)
{
    struct task copy = *t;
    const char **texts[TASK_TEXTS];
    int rc = 0;
    task_texts(texts, &copy);
    for (int i = 0; rc >= 0 && i < TASK_TEXTS; i++)
        rc = put_str(out, *texts[i], err);
    if (rc >= 0)
        rc = put_list(out, &t->fail_to_pass, err);
    return rc < 0 ? rc : put_list(out, &t->pass_to_pass, err);
}

int wire_get_task(struct wire_in *in, struct task *out, struct err *err)
{
    const char **texts[TASK_TEXTS];
    *out = (struct task){ .problem_statement = "", .patch = "" };   /* a worker has no use for the true fix */
    task_texts(texts, out);
    for (int i = 0; i < TASK_TEXTS; i++)
        *texts[i] = get_str(in);
    get_list(in, &out->fail_to_pass);
    get_list(in, &out->pass_to_pass);
    return verdict_on(in, "task record", err);
}

/* --- run facts --- */

int wire_put_run(struct buf *out, const struct run_facts *r, struct err *err)
{
    const uint64_t numbers[8] = { r->exited, (uint32_t)r->exit_code, r->limits_hit, r->ended_by_limit, r->wall_ns, r->cpu_ns,
                                  r->memory_bytes_peak, r->output_bytes };
    int rc = put_str(out, r->run_end, err);
    return rc < 0 ? rc : buf_add(out, numbers, sizeof numbers, err);
}

int wire_get_run(struct wire_in *in, struct run_facts *out, struct err *err)
{
    uint64_t n[8];
    const char *end = get_str(in);
    take(in, n, sizeof n);
    *out = (struct run_facts){
        .run_end = end, .exited = n[0] != 0, .exit_code = (int)(uint32_t)n[1], .limits_hit = (uint32_t)n[2],
        .ended_by_limit = (uint32_t)n[3], .wall_ns = n[4], .cpu_ns = n[5], .memory_bytes_peak = n[6], .output_bytes = n[7],
    };
    return verdict_on(in, "run facts", err);
}

/* --- answers --- */

int wire_put_report(struct buf *out, const struct report *r, struct err *err)
{
    const uint64_t numbers[8] = { r->complete, r->collected_nothing, r->has_counts, r->count_passed, r->count_failed,
                                  r->count_error, r->count_skipped, r->test_count };
    int rc = put_str(out, r->reader, err);
    if (rc >= 0)
        rc = put_str(out, r->note, err);
    if (rc >= 0)
        rc = buf_add(out, numbers, sizeof numbers, err);
    for (uint32_t i = 0; rc >= 0 && i < r->test_count; i++) {
        const struct test_result *t = &r->tests[i];
        rc = put_str(out, t->id, err);
        if (rc >= 0)
            rc = put_str(out, t->message, err);
        if (rc >= 0)
            rc = put_str(out, t->evidence, err);
        if (rc >= 0)
            rc = put_u64(out, t->status, err);
        if (rc >= 0)
            rc = put_double(out, t->duration_s, err);
    }
    return rc;
}

int wire_get_report(struct wire_in *in, struct report *out, struct err *err)
{
    uint64_t n[7];
    *out = (struct report){ .reader = get_str(in), .note = get_str(in) };
    take(in, n, sizeof n);
    out->complete = n[0] != 0;
    out->collected_nothing = n[1] != 0;
    out->has_counts = n[2] != 0;
    out->count_passed = (uint32_t)n[3];
    out->count_failed = (uint32_t)n[4];
    out->count_error = (uint32_t)n[5];
    out->count_skipped = (uint32_t)n[6];
    uint32_t count = get_count(in, 3 * sizeof(uint32_t) + 16);
    out->tests = arena_alloc(in->a, ((size_t)count + 1) * sizeof *out->tests);
    in->bad |= out->tests == NULL;
    for (uint32_t i = 0; !in->bad && i < count; i++) {
        struct test_result *t = &out->tests[i];
        t->id = get_str(in);
        t->message = get_str(in);
        t->evidence = get_str(in);
        uint64_t status = get_u64(in);
        t->duration_s = get_double(in);
        in->bad |= status >= TEST_STATUS_COUNT;
        t->status = (enum test_status)(status < TEST_STATUS_COUNT ? status : TEST_MISSING);
    }
    out->test_count = in->bad ? 0 : count;
    return verdict_on(in, "report", err);
}

int wire_put_patch(struct buf *out, const char *reason, const struct str_list *findings, struct err *err)
{
    int rc = put_str(out, reason, err);
    return rc < 0 ? rc : put_list(out, findings, err);
}

int wire_get_patch(struct wire_in *in, const char **reason, struct str_list *findings, struct err *err)
{
    *reason = get_str(in);
    get_list(in, findings);
    return verdict_on(in, "patch answer", err);
}
