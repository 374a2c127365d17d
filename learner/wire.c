/* wire.c - see wire.h. */
#include "learner/wire.h"
#include "assay/v1/catalog.pb-c.h"
#include "assay/v1/policy.pb-c.h"
#include "assay/v1/rollout.pb-c.h"
#include "assay/v1/trajectory.pb-c.h"
#include "proto/message.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- packing and unpacking --- */

static void *unpack(const ProtobufCMessageDescriptor *d, const struct buf *bytes, struct err *err)
{
    void *m = message_unpack(d, bytes->data, bytes->len);
    if (m == NULL)
        err_set(err, ERR_PROTOCOL, "the server sent %zu bytes that are no %s", bytes->len, d->short_name);
    return m;
}

static int pack(struct buf *out, const void *message, struct err *err)
{
    buf_reset(out);
    return message_pack(out, message, err);
}

static int copy_id(char out[WIRE_ID_MAX + 1], const char *id, struct err *err)
{
    size_t n = strlen(id);
    if (n > WIRE_ID_MAX)
        return err_set(err, ERR_PROTOCOL, "the server sent a request id of %zu bytes", n);
    memcpy(out, id, n + 1);
    return 0;
}

/* --- episodes --- */

int wire_write_evaluate(struct buf *out, const struct wire_evaluate *e, struct err *err)
{
    Assay__V1__EvaluateRequest m = ASSAY__V1__EVALUATE_REQUEST__INIT;
    Assay__V1__Sample sample = ASSAY__V1__SAMPLE__INIT;
    Assay__V1__Group group = ASSAY__V1__GROUP__INIT;
    Assay__V1__PolicySpan span = ASSAY__V1__POLICY_SPAN__INIT, *spans[1] = { &span };
    Assay__V1__EvaluateRequest__LabelsEntry label = ASSAY__V1__EVALUATE_REQUEST__LABELS_ENTRY__INIT, *labels[1] = { &label };
    m.request_id = message_text(e->request_id);
    m.task_id = message_text(e->task_id);
    m.patch = (ProtobufCBinaryData){ e->patch_len, (uint8_t *)(uintptr_t)e->patch };
    m.priority = 1;
    label.key = message_text("run");
    label.value = message_text(e->run);
    m.labels = labels;
    m.n_labels = 1;
    group.id = (ProtobufCBinaryData){ sizeof e->group_id, (uint8_t *)(uintptr_t)e->group_id };
    group.want = e->group_want;
    group.index = e->group_index;
    m.group = &group;
    sample.tokens = (uint32_t *)(uintptr_t)e->tokens;
    sample.logprobs = (float *)(uintptr_t)e->logprobs;
    sample.n_tokens = sample.n_logprobs = e->n;
    sample.loss_mask = (ProtobufCBinaryData){ e->n, (uint8_t *)(uintptr_t)e->mask };
    span.start = 0;                     /* one version for the whole choice; the span also covers the prompt it was made for */
    for (uint32_t i = 0; i < e->n && e->mask[i] == 0; i++)
        span.start = i + 1;
    span.end = (uint32_t)e->n;
    span.version = e->version;
    sample.spans = spans;
    sample.n_spans = 1;
    sample.model = message_text(e->model);
    sample.seed = e->seed;
    sample.choice_first = 0;
    sample.choice_count = e->choice_count;
    m.sample = &sample;
    return pack(out, &m, err);
}

int wire_read_answer(struct wire_answer *out, const struct buf *bytes, struct err *err)
{
    own_message Assay__V1__EvaluateResponse *m = unpack(&assay__v1__evaluate_response__descriptor, bytes, err);
    if (m == NULL)
        return err->code;
    *out = (struct wire_answer){ .cursor = m->cursor };
    if (m->verdict != NULL) {
        out->retryable = m->verdict->retryable;
        err_quote(out->fault, sizeof out->fault, m->verdict->fault, strlen(m->verdict->fault));
        err_quote(out->reason, sizeof out->reason, m->verdict->reason, strlen(m->verdict->reason));
    }
    return copy_id(out->request_id, m->request_id, err);
}

static void *arena_copy(struct arena *a, const void *p, size_t n, struct err *err)
{
    void *to = arena_alloc(a, n + 1);
    if (to == NULL)
        err_set(err, ERR_LIMIT, "trajectory: the memory budget is used up");
    else if (n > 0)
        memcpy(to, p, n);
    return to;
}

int wire_read_trajectory(struct wire_trajectory *out, struct arena *a, const struct buf *bytes, struct err *err)
{
    own_message Assay__V1__Trajectory *m = unpack(&assay__v1__trajectory__descriptor, bytes, err);
    if (m == NULL)
        return err->code;
    const Assay__V1__Sample *s = m->sample;
    *out = (struct wire_trajectory){ .cursor = m->cursor,
        .request_id = arena_copy(a, m->request_id, strlen(m->request_id) + 1, err) };
    if (out->request_id == NULL)
        return err->code;
    if (m->verdict != NULL && m->verdict->reward != NULL) {
        out->reward = m->verdict->reward->value;
        if (!isfinite(out->reward))
            return err_set(err, ERR_PROTOCOL, "trajectory %llu: its reward is not a finite number",
                (unsigned long long)m->cursor);
        out->has_reward = true;
    }
    if (s == NULL)
        return 0;
    if (s->n_logprobs != s->n_tokens || s->loss_mask.len != s->n_tokens)
        return err_set(err, ERR_PROTOCOL, "trajectory %llu: %zu tokens, %zu logprobs, %zu mask bytes",
            (unsigned long long)m->cursor, s->n_tokens, s->n_logprobs, s->loss_mask.len);
    out->n = s->n_tokens;
    out->choice_first = s->choice_first;
    out->choice_count = s->choice_count;
    out->tokens = arena_copy(a, s->tokens, s->n_tokens * sizeof *s->tokens, err);
    out->logprobs = arena_copy(a, s->logprobs, s->n_tokens * sizeof *s->logprobs, err);
    out->mask = arena_copy(a, s->loss_mask.data, s->n_tokens, err);
    if (out->tokens == NULL || out->logprobs == NULL || out->mask == NULL)
        return err->code;
    if (s->n_spans > 0)
        out->version = s->spans[s->n_spans - 1]->version;
    return 0;
}

int wire_write_subscribe(struct buf *out, uint64_t cursor, const char *task_prefix, struct err *err)
{
    Assay__V1__SubscribeRequest m = ASSAY__V1__SUBSCRIBE_REQUEST__INIT;
    m.cursor = cursor;
    m.follow = true;
    m.task_prefix = message_text(task_prefix);
    m.with_sample_only = true;
    return pack(out, &m, err);
}

/* --- policy, status, tasks --- */

int wire_write_publish(struct buf *out, const struct wire_policy *p, struct err *err)
{
    Assay__V1__PublishRequest m = ASSAY__V1__PUBLISH_REQUEST__INIT;
    Assay__V1__PolicyVersion v = ASSAY__V1__POLICY_VERSION__INIT;
    const struct { const char *key; double value; } row[] = {
        { "actor/pg_loss", p->loss }, { "actor/grad_norm", p->grad_norm }, { "actor/entropy", p->entropy },
        { "reward/mean", p->reward_mean } };
    enum { N = sizeof row / sizeof row[0] };
    Assay__V1__PolicyVersion__MetricsEntry entry[N], *entries[N];
    for (int i = 0; i < N; i++) {
        assay__v1__policy_version__metrics_entry__init(&entry[i]);
        entry[i].key = message_text(row[i].key);
        entry[i].value = row[i].value;
        entries[i] = &entry[i];
    }
    v.version = p->version;
    v.manifest_path = message_text(p->manifest_path);
    v.manifest_sha256 = message_text(p->manifest_sha256);
    v.made_by = message_text(p->made_by);
    v.trained_to_cursor = p->cursor;
    v.metrics = entries;
    v.n_metrics = N;
    m.policy = &v;
    return pack(out, &m, err);
}

int wire_read_publish(uint64_t *out_version, const struct buf *bytes, struct err *err)
{
    own_message Assay__V1__PublishResponse *m = unpack(&assay__v1__publish_response__descriptor, bytes, err);
    if (m == NULL)
        return err->code;
    *out_version = m->version;
    return 0;
}

int wire_write_current(struct buf *out, const char *made_by, struct err *err)
{
    Assay__V1__CurrentRequest m = ASSAY__V1__CURRENT_REQUEST__INIT;
    m.made_by = message_text(made_by);
    return pack(out, &m, err);
}

int wire_read_current(uint64_t *out_version, const struct buf *bytes, struct err *err)
{
    own_message Assay__V1__PolicyVersion *m = unpack(&assay__v1__policy_version__descriptor, bytes, err);
    if (m == NULL)
        return err->code;
    *out_version = m->version;
    return 0;
}

int wire_read_status(uint64_t *out_next_cursor, const struct buf *bytes, struct err *err)
{
    own_message Assay__V1__StatusResponse *m = unpack(&assay__v1__status_response__descriptor, bytes, err);
    if (m == NULL)
        return err->code;
    *out_next_cursor = m->log_next_cursor;
    return 0;
}

int wire_write_list(struct buf *out, const char *prefix, const char *after, struct err *err)
{
    Assay__V1__ListTasksRequest m = ASSAY__V1__LIST_TASKS_REQUEST__INIT;
    m.prefix = message_text(prefix);
    m.after = message_text(after);
    m.limit = 100;
    return pack(out, &m, err);
}

int wire_read_list(struct wire_task **out, size_t *out_n, const char **out_next, struct arena *a, const struct buf *bytes,
                   struct err *err)
{
    own_message Assay__V1__ListTasksResponse *m = unpack(&assay__v1__list_tasks_response__descriptor, bytes, err);
    if (m == NULL)
        return err->code;
    struct wire_task *t = arena_alloc(a, (m->n_tasks + 1) * sizeof *t);
    *out_next = arena_strdup(a, m->next);
    for (size_t i = 0; i < m->n_tasks && t != NULL; i++) {
        t[i].id = arena_strdup(a, m->tasks[i]->id);
        t[i].extra_json = arena_strdup(a, m->tasks[i]->extra_json);
        if (t[i].id == NULL || t[i].extra_json == NULL)
            t = NULL;
    }
    if (t == NULL || *out_next == NULL)
        return err_set(err, ERR_LIMIT, "tasks: the memory budget is used up");
    *out = t;
    *out_n = m->n_tasks;
    return 0;
}

int wire_write_get(struct buf *out, const char *task_id, struct err *err)
{
    Assay__V1__GetTaskRequest m = ASSAY__V1__GET_TASK_REQUEST__INIT;
    m.id = message_text(task_id);
    return pack(out, &m, err);
}

int wire_read_task(struct wire_task *out, struct arena *a, const struct buf *bytes, struct err *err)
{
    own_message Assay__V1__Task *m = unpack(&assay__v1__task__descriptor, bytes, err);
    if (m == NULL)
        return err->code;
    *out = (struct wire_task){ arena_strdup(a, m->id), arena_strdup(a, m->extra_json) };
    if (out->id == NULL || out->extra_json == NULL)
        return err_set(err, ERR_LIMIT, "task: the memory budget is used up");
    return 0;
}
