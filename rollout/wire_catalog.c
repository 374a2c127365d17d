/* wire_catalog.c - tasks and policy versions. */
#include "assay/v1/catalog.pb-c.h"
#include "assay/v1/policy.pb-c.h"
#include "rollout/wire.h"
#include "rollout/wire_pb.h"
#include <math.h>
#include <string.h>

int wire_read_import(struct import_request *out, struct arena *a, const void *bytes, size_t n, struct err *err)
{
    own_message Assay__V1__ImportRequest *m = wire_unpack(&assay__v1__import_request__descriptor, "ImportRequest", bytes, n, err);
    if (m == NULL)
        return err->code;
    struct import_request r = { .jsonl_len = m->jsonl.len, .first_line = m->first_line != 0 ? m->first_line : 1,
                                .skip_known = m->skip_known };
    if ((r.repos_dir = wire_text(a, "repos_dir", m->repos_dir, 4096, err)) == NULL ||
        (r.source = wire_text(a, "source", m->source, 4096, err)) == NULL)
        return err->code;
    if (r.repos_dir[0] != '/')
        return err_set(err, ERR_BAD_INPUT, "repos_dir \"%s\": want an absolute path on the server's machine", r.repos_dir);
    r.jsonl = (const uint8_t *)arena_strndup(a, (const char *)m->jsonl.data, m->jsonl.len);
    if (r.jsonl == NULL)
        return err_set(err, ERR_LIMIT, "jsonl: the request's memory budget is used up");
    *out = r;
    return 0;
}

int wire_write_import(struct buf *out, const struct import_answer *ans, struct err *err)
{
    own_arena a = { 0 };
    Assay__V1__ImportResponse m = ASSAY__V1__IMPORT_RESPONSE__INIT;
    m.added = ans->added;
    m.unchanged = ans->unchanged;
    m.replaced = ans->replaced;
    m.skipped = ans->skipped;
    Assay__V1__ImportFailure *f = arena_alloc(&a, sizeof *f * (ans->failure_count + 1));
    Assay__V1__ImportFailure **fp = arena_alloc(&a, sizeof *fp * (ans->failure_count + 1));
    char **notes = arena_alloc(&a, sizeof *notes * (ans->notes.count + 1));
    if (f == NULL || fp == NULL || notes == NULL)
        return err_set(err, ERR_LIMIT, "import answer: out of memory");
    for (uint32_t i = 0; i < ans->failure_count; i++) {
        assay__v1__import_failure__init(&f[i]);
        f[i].line = ans->failures[i].line;
        f[i].id = message_text(ans->failures[i].id);
        f[i].code = message_text(err_info(ans->failures[i].code)->name);
        f[i].message = message_text(ans->failures[i].message);
        fp[i] = &f[i];
    }
    m.n_failures = ans->failure_count;
    m.failures = fp;
    for (uint32_t i = 0; i < ans->notes.count; i++)
        notes[i] = message_text(ans->notes.items[i]);
    m.n_notes = ans->notes.count;
    m.notes = notes;
    return message_pack(out, &m, err);
}

int wire_read_get_task(struct get_task_request *out, struct arena *a, const void *bytes, size_t n, struct err *err)
{
    own_message Assay__V1__GetTaskRequest *m = wire_unpack(&assay__v1__get_task_request__descriptor, "GetTaskRequest", bytes, n, err);
    if (m == NULL)
        return err->code;
    out->with_fix = m->with_fix;
    out->id = wire_text(a, "id", m->id, WIRE_ID_MAX, err);
    return out->id != NULL ? 0 : err->code;
}

static void task_message(Assay__V1__Task *m, const struct task *t, bool whole, bool with_fix, char hex[DIGEST_HEX_SIZE])
{
    assay__v1__task__init(m);
    m->id = message_text(t->id);
    m->repo = message_text(t->repo);
    m->base_commit = message_text(t->base_commit);
    m->n_fail_to_pass = t->fail_to_pass.count;
    m->fail_to_pass = (char **)(uintptr_t)t->fail_to_pass.items;
    m->n_pass_to_pass = t->pass_to_pass.count;
    m->pass_to_pass = (char **)(uintptr_t)t->pass_to_pass.items;
    m->test_cmd = message_text(t->test_cmd);
    m->reader = message_text(t->reader);
    m->environment = message_text(t->environment);
    m->timeout_s = t->timeout_s;
    m->memory_mb = t->memory_mb;
    m->split = message_text(t->split);
    m->profile = message_text(t->profile);
    m->language = message_text(t->language);
    m->state = message_text(t->state);
    digest_hex(hex, &t->snapshot);
    m->snapshot = hex;
    if (whole) {
        m->problem_statement = message_text(t->problem_statement);
        m->extra_json = message_text(t->extra_json);
    }
    if (with_fix) {
        m->patch = message_text(t->patch);
        m->test_patch = message_text(t->test_patch);
    }
}

int wire_write_task(struct buf *out, const struct task *t, bool with_fix, struct err *err)
{
    Assay__V1__Task m;
    char hex[DIGEST_HEX_SIZE];
    task_message(&m, t, true, with_fix, hex);
    return message_pack(out, &m, err);
}

static bool known_state(const char *state)
{
    for (int i = 0; i < TASK_STATE_COUNT; i++)
        if (strcmp(state, task_state_names[i]) == 0)
            return true;
    return false;
}

int wire_read_list_tasks(struct list_tasks_request *out, struct arena *a, const void *bytes, size_t n, struct err *err)
{
    own_message Assay__V1__ListTasksRequest *m = wire_unpack(&assay__v1__list_tasks_request__descriptor, "ListTasksRequest", bytes, n, err);
    if (m == NULL)
        return err->code;
    struct list_tasks_request r = { .limit = m->limit != 0 ? m->limit : 100 };
    if (r.limit > 1000)
        return err_set(err, ERR_BAD_INPUT, "limit: %u, at most 1000", r.limit);
    if ((r.after = wire_text(a, "after", m->after, WIRE_ID_MAX, err)) == NULL ||
        (r.filter.repo = wire_text(a, "repo", m->repo, 4096, err)) == NULL ||
        (r.filter.prefix = wire_text(a, "prefix", m->prefix, WIRE_ID_MAX, err)) == NULL ||
        (r.filter.language = wire_text(a, "language", m->language, WIRE_LABEL_MAX, err)) == NULL ||
        (r.filter.state = wire_text(a, "state", m->state, WIRE_LABEL_MAX, err)) == NULL ||
        (r.filter.split = wire_text(a, "split", m->split, 4096, err)) == NULL ||
        (r.filter.text = wire_text(a, "text", m->text, 4096, err)) == NULL)
        return err->code;
    if (r.filter.state[0] != '\0' && !known_state(r.filter.state)) {
        char quoted[64];
        err_quote(quoted, sizeof quoted, r.filter.state, strlen(r.filter.state));
        return err_set(err, ERR_BAD_INPUT, "state: \"%s\", want imported, validated, quarantined or refused", quoted);
    }
    *out = r;
    return 0;
}

int wire_write_tasks(struct buf *out, const struct task *const *tasks, uint32_t count, const char *next, struct err *err)
{
    own_arena a = { 0 };
    Assay__V1__ListTasksResponse m = ASSAY__V1__LIST_TASKS_RESPONSE__INIT;
    Assay__V1__Task *t = arena_alloc(&a, sizeof *t * (count + 1));
    Assay__V1__Task **tp = arena_alloc(&a, sizeof *tp * (count + 1));
    char (*hex)[DIGEST_HEX_SIZE] = arena_alloc(&a, sizeof *hex * (count + 1));
    if (t == NULL || tp == NULL || hex == NULL)
        return err_set(err, ERR_LIMIT, "task list: out of memory");
    for (uint32_t i = 0; i < count; i++) {
        task_message(&t[i], tasks[i], false, false, hex[i]);
        tp[i] = &t[i];
    }
    m.n_tasks = count;
    m.tasks = tp;
    m.next = message_text(next);
    return message_pack(out, &m, err);
}

int wire_read_duplicates(struct duplicates_request *out, struct arena *a, const void *bytes, size_t n, struct err *err)
{
    own_message Assay__V1__DuplicatesRequest *m = wire_unpack(&assay__v1__duplicates_request__descriptor, "DuplicatesRequest", bytes, n, err);
    if (m == NULL)
        return err->code;
    *out = (struct duplicates_request){ .limit = m->limit != 0 ? m->limit : 100 };
    if (out->limit > 1000)
        return err_set(err, ERR_BAD_INPUT, "limit: %u, at most 1000", out->limit);
    out->after = wire_text(a, "after", m->after, WIRE_ID_MAX, err);
    return out->after != NULL ? 0 : err->code;
}

int wire_write_duplicates(struct buf *out, const struct catalog_twins *groups, uint32_t count, const char *next, struct err *err)
{
    own_arena a = { 0 };
    Assay__V1__DuplicatesResponse m = ASSAY__V1__DUPLICATES_RESPONSE__INIT;
    Assay__V1__TaskGroup *g = arena_alloc(&a, sizeof *g * (count + 1));
    Assay__V1__TaskGroup **gp = arena_alloc(&a, sizeof *gp * (count + 1));
    if (g == NULL || gp == NULL)
        return err_set(err, ERR_LIMIT, "duplicates: out of memory");
    for (uint32_t i = 0; i < count; i++) {
        assay__v1__task_group__init(&g[i]);
        g[i].n_ids = groups[i].ids.count;
        g[i].ids = (char **)(uintptr_t)groups[i].ids.items;
        g[i].count = groups[i].count;
        gp[i] = &g[i];
    }
    m.n_groups = count;
    m.groups = gp;
    m.next = message_text(next);
    return message_pack(out, &m, err);
}

static int policy_facts_of(struct policy_facts *out, struct arena *a, const Assay__V1__PolicyVersion *p, struct err *err)
{
    out->version = p->version;
    out->made_by = wire_text(a, "policy.made_by", p->made_by, WIRE_ID_MAX, err);
    out->manifest_sha256 = wire_text(a, "policy.manifest_sha256", p->manifest_sha256, DIGEST_HEX_SIZE, err);
    return out->made_by != NULL && out->manifest_sha256 != NULL ? 0 : err->code;
}

int wire_read_publish(struct policy_facts *out, struct buf *record, struct arena *a, const void *bytes, size_t n,
                      uint64_t now_unix_ns, struct err *err)
{
    own_message Assay__V1__PublishRequest *m = wire_unpack(&assay__v1__publish_request__descriptor, "PublishRequest", bytes, n, err);
    if (m == NULL)
        return err->code;
    Assay__V1__PolicyVersion *p = m->policy;
    if (p == NULL || p->version == 0)
        return err_set(err, ERR_BAD_INPUT, "policy: missing, or version 0; versions begin with 1");
    if (wire_text(a, "policy.manifest_path", p->manifest_path, 4096, err) == NULL)
        return err->code;
    if (p->manifest_sha256[0] != '\0') {
        struct digest d;
        int rc = digest_parse(&d, p->manifest_sha256, err);
        if (rc < 0)
            return err_in(err, "policy.manifest_sha256");
    }
    if (p->n_metrics > 64)
        return err_set(err, ERR_BAD_INPUT, "policy.metrics: %zu, at most 64", p->n_metrics);
    for (size_t i = 0; i < p->n_metrics; i++)
        if (wire_text(a, "policy.metrics key", p->metrics[i]->key, WIRE_LABEL_MAX, err) == NULL)
            return err->code;
    if (policy_facts_of(out, a, p, err) < 0)
        return err->code;
    p->created_unix_ns = now_unix_ns;
    return message_pack(record, p, err);
}

int wire_read_policy(struct policy_facts *out, struct arena *a, const void *record, size_t n, struct err *err)
{
    own_message Assay__V1__PolicyVersion *m = wire_unpack(&assay__v1__policy_version__descriptor, "PolicyVersion", record, n, err);
    if (m == NULL)
        return err->code;
    return policy_facts_of(out, a, m, err);
}

int wire_read_current(const char **out_made_by, struct arena *a, const void *bytes, size_t n, struct err *err)
{
    own_message Assay__V1__CurrentRequest *m = wire_unpack(&assay__v1__current_request__descriptor, "CurrentRequest", bytes, n, err);
    if (m == NULL)
        return err->code;
    *out_made_by = wire_text(a, "made_by", m->made_by, WIRE_ID_MAX, err);
    return *out_made_by != NULL ? 0 : err->code;
}

int wire_write_publish_response(struct buf *out, uint64_t version, struct err *err)
{
    Assay__V1__PublishResponse m = ASSAY__V1__PUBLISH_RESPONSE__INIT;
    m.version = version;
    return message_pack(out, &m, err);
}
