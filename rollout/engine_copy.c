/* engine_copy.c - see engine_copy.h. */
#include "rollout/engine_copy.h"
#include <string.h>

/* A copy under way: once memory is out the rest costs nothing and `out_of_memory` says so. */
struct copy { struct arena *a; bool out_of_memory; };

static void *bytes(struct copy *c, const void *p, size_t n)
{
    void *q = c->out_of_memory ? NULL : arena_alloc(c->a, n);
    if (q == NULL)
        c->out_of_memory = true;
    else if (n > 0)
        memcpy(q, p, n);
    return q;
}

static const char *text(struct copy *c, const char *s)
{
    return s == NULL || *s == '\0' ? "" : bytes(c, s, strlen(s) + 1);
}

static struct str_list list(struct copy *c, const struct str_list *l)
{
    struct str_list out = { .items = bytes(c, l->items, l->count * sizeof *l->items), .count = l->count };
    for (uint32_t i = 0; i < l->count && !c->out_of_memory; i++)
        out.items[i] = text(c, l->items[i]);
    return out;
}

static int done(const struct copy *c, const char *what, struct err *err)
{
    return c->out_of_memory
               ? err_set(err, ERR_LIMIT, "%s: does not fit the episode's memory of %zu bytes", what, c->a->budget)
               : 0;
}

#define ROUND 32    /* alignment and, under sanitizers, nothing more: a bound for either arena */

size_t engine_request_bytes(const struct evaluate_request *r)
{
    size_t n = strlen(r->request_id) + strlen(r->task_id) + r->patch_len + r->sample_len + 5 * ROUND +
               r->label_count * sizeof *r->labels;
    for (uint32_t i = 0; i < r->label_count; i++)
        n += strlen(r->labels[i].key) + strlen(r->labels[i].value) + 2 * ROUND;
    return n;
}

int engine_copy_request(struct evaluate_request *out, struct arena *a, const struct evaluate_request *r, struct err *err)
{
    struct copy c = { .a = a };
    *out = *r;
    out->request_id = text(&c, r->request_id);
    out->task_id = text(&c, r->task_id);
    out->patch = bytes(&c, r->patch, r->patch_len);
    out->sample = r->sample != NULL ? bytes(&c, r->sample, r->sample_len) : NULL;
    out->labels = bytes(&c, r->labels, r->label_count * sizeof *r->labels);
    for (uint32_t i = 0; i < r->label_count && !c.out_of_memory; i++)
        out->labels[i] = (struct label){ text(&c, r->labels[i].key), text(&c, r->labels[i].value) };
    return done(&c, "request", err);
}

int engine_copy_task(const struct task **out, struct arena *a, const struct task *t, struct err *err)
{
    struct copy c = { .a = a };
    struct task *k = bytes(&c, t, sizeof *t);
    if (k != NULL) {
        k->id = text(&c, t->id);
        k->repo = text(&c, t->repo);
        k->base_commit = text(&c, t->base_commit);
        k->problem_statement = k->patch = k->extra_json = "";
        k->test_patch = text(&c, t->test_patch);
        k->fail_to_pass = list(&c, &t->fail_to_pass);
        k->pass_to_pass = list(&c, &t->pass_to_pass);
        k->test_cmd = text(&c, t->test_cmd);
        k->argv = list(&c, &t->argv);
        k->warm = list(&c, &t->warm);
        k->reader = text(&c, t->reader);
        k->environment = text(&c, t->environment);
        k->split = text(&c, t->split);
        k->profile = text(&c, t->profile);
        k->base_tree = text(&c, t->base_tree);
    }
    *out = k;
    return done(&c, "task", err);
}

int engine_copy_patch(const char **out_reason, struct str_list *out_findings, struct arena *a, const struct patch_answer *p,
                      struct err *err)
{
    struct copy c = { .a = a };
    *out_reason = text(&c, p->reason);
    *out_findings = list(&c, &p->findings);
    return done(&c, "patch remarks", err);
}

int engine_copy_report(const struct report **out, struct arena *a, const struct report *r, struct err *err)
{
    struct copy c = { .a = a };
    struct report *k = bytes(&c, r, sizeof *r);
    if (k != NULL) {
        k->reader = text(&c, r->reader);
        k->note = text(&c, r->note);
        k->tests = bytes(&c, r->tests, r->test_count * sizeof *r->tests);
    }
    for (uint32_t i = 0; i < r->test_count && !c.out_of_memory; i++) {
        k->tests[i].id = text(&c, r->tests[i].id);
        k->tests[i].message = text(&c, r->tests[i].message);
        k->tests[i].evidence = text(&c, r->tests[i].evidence);
    }
    *out = k;
    return done(&c, "report", err);
}
