/* wire_cli.c - protobuf to the plain structs of view.h and back; the only file of the command line that sees it. */
#include "rollout/cli/view.h"
#include "assay/v1/catalog.pb-c.h"
#include "assay/v1/rollout.pb-c.h"
#include "assay/v1/trajectory.pb-c.h"
#include "proto/message.h"
#include <string.h>

/* A message is unpacked into the arena, which frees it; protobuf-c never reallocates. */
static void *arena_pb_alloc(void *data, size_t size)
{
    return arena_alloc(data, size);
}
static void arena_pb_free(void *data, void *p)
{
    (void)data;
    (void)p;
}

static void *unpack(const ProtobufCMessageDescriptor *d, struct arena *a, const struct buf *b, struct err *err)
{
    ProtobufCAllocator alloc = { arena_pb_alloc, arena_pb_free, a };
    void *m = protobuf_c_message_unpack(d, &alloc, b->len, b->data);
    if (m == NULL)
        err_set(err, ERR_PROTOCOL, "the server's answer is no %s (%zu bytes)", d->name, b->len);
    return m;
}

static int no_memory(struct err *err)
{
    return err_set(err, ERR_LIMIT, "out of memory");
}

static ProtobufCBinaryData loan_bytes(const void *bytes, size_t n)
{
    return (ProtobufCBinaryData){ .len = n, .data = (uint8_t *)(uintptr_t)bytes };
}

static const char *hex_of(struct arena *a, ProtobufCBinaryData b)
{
    char *s = arena_alloc(a, 2 * b.len + 1);
    if (s == NULL)
        return "";
    for (size_t i = 0; i < b.len; i++) {
        s[2 * i] = "0123456789abcdef"[b.data[i] >> 4];
        s[2 * i + 1] = "0123456789abcdef"[b.data[i] & 15];
    }
    return s;
}

bool view_parse_episode_id(uint8_t out[16], const char *text)
{
    if (strlen(text) != 32)
        return false;
    for (size_t i = 0; i < 32; i++) {
        char ch = text[i];
        int v = ch >= '0' && ch <= '9' ? ch - '0' : ch >= 'a' && ch <= 'f' ? ch - 'a' + 10
              : ch >= 'A' && ch <= 'F' ? ch - 'A' + 10 : -1;
        if (v < 0)
            return false;
        out[i / 2] = (uint8_t)(i % 2 == 0 ? v << 4 : out[i / 2] | v);
    }
    return true;
}

static struct str_list strings(char **items, size_t n)
{
    return (struct str_list){ .items = (const char **)items, .count = (uint32_t)n };
}

/* --- enums: an unknown number is an error here and never travels on --- */

static const char *status_name(Assay__V1__TestStatus s)
{
    switch (s) {
    case ASSAY__V1__TEST_STATUS__TEST_STATUS_PASSED:  return "PASSED";
    case ASSAY__V1__TEST_STATUS__TEST_STATUS_FAILED:  return "FAILED";
    case ASSAY__V1__TEST_STATUS__TEST_STATUS_ERROR:   return "ERROR";
    case ASSAY__V1__TEST_STATUS__TEST_STATUS_SKIPPED: return "SKIPPED";
    case ASSAY__V1__TEST_STATUS__TEST_STATUS_XFAIL:   return "XFAIL";
    case ASSAY__V1__TEST_STATUS__TEST_STATUS_XPASS:   return "XPASS";
    case ASSAY__V1__TEST_STATUS__TEST_STATUS_MISSING: return "MISSING";
    case ASSAY__V1__TEST_STATUS__TEST_STATUS_FLAKY:   return "FLAKY";
    case ASSAY__V1__TEST_STATUS__TEST_STATUS_UNSPECIFIED:
    case _ASSAY__V1__TEST_STATUS_IS_INT_SIZE:
    default: return NULL;
    }
}

static const char *outcome_word(Assay__V1__Outcome o)
{
    switch (o) {
    case ASSAY__V1__OUTCOME__OUTCOME_RESOLVED:     return "resolved";
    case ASSAY__V1__OUTCOME__OUTCOME_UNRESOLVED:   return "unresolved";
    case ASSAY__V1__OUTCOME__OUTCOME_PATCH_FAILED: return "patch_failed";
    case ASSAY__V1__OUTCOME__OUTCOME_PATCH_EMPTY:  return "patch_empty";
    case ASSAY__V1__OUTCOME__OUTCOME_TIME_LIMIT:   return "time_limit";
    case ASSAY__V1__OUTCOME__OUTCOME_MEMORY_LIMIT: return "memory_limit";
    case ASSAY__V1__OUTCOME__OUTCOME_OUTPUT_LIMIT: return "output_limit";
    case ASSAY__V1__OUTCOME__OUTCOME_PIDS_LIMIT:   return "pids_limit";
    case ASSAY__V1__OUTCOME__OUTCOME_DISK_LIMIT:   return "disk_limit";
    case ASSAY__V1__OUTCOME__OUTCOME_UNREADABLE:   return "unreadable";
    case ASSAY__V1__OUTCOME__OUTCOME_NO_TESTS_RAN: return "no_tests_ran";
    case ASSAY__V1__OUTCOME__OUTCOME_TASK_INVALID: return "task_invalid";
    case ASSAY__V1__OUTCOME__OUTCOME_TAMPERED:     return "tampered";
    case ASSAY__V1__OUTCOME__OUTCOME_INFRA_ERROR:  return "infra_error";
    case ASSAY__V1__OUTCOME__OUTCOME_CANCELLED:    return "cancelled";
    case ASSAY__V1__OUTCOME__OUTCOME_UNSPECIFIED:
    case _ASSAY__V1__OUTCOME_IS_INT_SIZE:
    default: return NULL;
    }
}

/* --- requests --- */

int ask_evaluate(struct buf *out, const struct evaluate_ask *q, struct err *err)
{
    own_arena a = { 0 };
    Assay__V1__EvaluateRequest m = ASSAY__V1__EVALUATE_REQUEST__INIT;
    m.request_id = message_text(q->request_id);
    m.task_id = message_text(q->task_id);
    m.patch = loan_bytes(q->patch, q->patch_len);
    m.fresh = q->fresh;
    m.priority = 1;                         /* a person waits for it */
    m.timeout_s = q->timeout_s;
    Assay__V1__EvaluateRequest__LabelsEntry *entries = arena_alloc(&a, (q->label_count + 1) * sizeof *entries);
    Assay__V1__EvaluateRequest__LabelsEntry **rows = arena_alloc(&a, (q->label_count + 1) * sizeof *rows);
    if (entries == NULL || rows == NULL)
        return no_memory(err);
    for (size_t i = 0; i < q->label_count; i++) {
        entries[i] = (Assay__V1__EvaluateRequest__LabelsEntry)ASSAY__V1__EVALUATE_REQUEST__LABELS_ENTRY__INIT;
        entries[i].key = message_text(q->labels[i].key);
        entries[i].value = message_text(q->labels[i].value);
        rows[i] = &entries[i];
    }
    m.n_labels = q->label_count;
    m.labels = rows;
    return message_pack(out, &m, err);
}

int ask_status(struct buf *out, struct err *err)
{
    Assay__V1__StatusRequest m = ASSAY__V1__STATUS_REQUEST__INIT;
    return message_pack(out, &m, err);
}

int ask_subscribe(struct buf *out, uint64_t cursor, bool follow, const char *task_prefix, struct err *err)
{
    Assay__V1__SubscribeRequest m = ASSAY__V1__SUBSCRIBE_REQUEST__INIT;
    m.cursor = cursor;
    m.follow = follow;
    m.task_prefix = message_text(task_prefix);
    return message_pack(out, &m, err);
}

int ask_trajectory(struct buf *out, const uint8_t episode_id[16], struct err *err)
{
    Assay__V1__GetTrajectoryRequest m = ASSAY__V1__GET_TRAJECTORY_REQUEST__INIT;
    m.episode_id = loan_bytes(episode_id, 16);
    return message_pack(out, &m, err);
}

int ask_trajectories(struct buf *out, uint64_t cursor, uint32_t limit, const char *task_id, struct err *err)
{
    Assay__V1__ListTrajectoriesRequest m = ASSAY__V1__LIST_TRAJECTORIES_REQUEST__INIT;
    m.cursor = cursor;
    m.limit = limit;
    m.task_id = message_text(task_id);
    return message_pack(out, &m, err);
}

int ask_import(struct buf *out, const void *jsonl, size_t n, const char *repos_dir, const char *source,
               uint64_t first_line, bool skip_known, struct err *err)
{
    Assay__V1__ImportRequest m = ASSAY__V1__IMPORT_REQUEST__INIT;
    m.jsonl = loan_bytes(jsonl, n);
    m.repos_dir = message_text(repos_dir);
    m.source = message_text(source);
    m.first_line = first_line;
    m.skip_known = skip_known;
    return message_pack(out, &m, err);
}

int ask_task(struct buf *out, const char *id, bool with_fix, struct err *err)
{
    Assay__V1__GetTaskRequest m = ASSAY__V1__GET_TASK_REQUEST__INIT;
    m.id = message_text(id);
    m.with_fix = with_fix;
    return message_pack(out, &m, err);
}

int ask_tasks(struct buf *out, const struct tasks_ask *q, struct err *err)
{
    Assay__V1__ListTasksRequest m = ASSAY__V1__LIST_TASKS_REQUEST__INIT;
    m.after = message_text(q->after);
    m.limit = q->limit;
    m.repo = message_text(q->filter.repo);
    m.prefix = message_text(q->filter.prefix);
    m.language = message_text(q->filter.language);
    m.state = message_text(q->filter.state);
    m.split = message_text(q->filter.split);
    m.text = message_text(q->filter.text);
    return message_pack(out, &m, err);
}

int ask_duplicates(struct buf *out, const char *after, uint32_t limit, struct err *err)
{
    Assay__V1__DuplicatesRequest m = ASSAY__V1__DUPLICATES_REQUEST__INIT;
    m.after = message_text(after);
    m.limit = limit;
    return message_pack(out, &m, err);
}

/* --- answers --- */

static int verdict_from(struct verdict_view *out, struct arena *a, const Assay__V1__Verdict *v, struct err *err)
{
    if (v == NULL)
        return err_set(err, ERR_PROTOCOL, "the server's answer holds no verdict");
    const char *outcome = outcome_word(v->outcome);
    if (outcome == NULL)
        return err_set(err, ERR_PROTOCOL, "the server's answer has the unknown outcome %d; update assay", (int)v->outcome);
    *out = (struct verdict_view){
        .outcome = outcome, .has_reward = v->reward != NULL, .reward = v->reward != NULL ? v->reward->value : 0,
        .reason = v->reason, .patch_status = v->patch_status, .run_end = v->run_end, .start = v->start, .reader = v->reader,
        .fault = v->fault,
        .limits_hit = strings(v->limits_hit, v->n_limits_hit), .findings = strings(v->findings, v->n_findings),
        .cached = v->cached, .retryable = v->retryable, .maskable = v->maskable, .attempts = v->attempts,
        .source_episode = hex_of(a, v->source_episode), .peak_memory_bytes = v->peak_memory_bytes,
        .cpu_ns = v->cpu_ns, .output_bytes = v->output_bytes, .output = v->output.data, .output_len = v->output.len,
    };
    if (v->timings != NULL) {
        out->timings.queue_ns = v->timings->queue_ns;
        out->timings.prepare_ns = v->timings->prepare_ns;
        out->timings.slot_ns = v->timings->slot_ns;
        out->timings.run_ns = v->timings->run_ns;
        out->timings.read_ns = v->timings->read_ns;
        out->timings.total_ns = v->timings->total_ns;
    }
    out->tests = arena_alloc(a, (v->n_tests + 1) * sizeof *out->tests);
    if (out->tests == NULL)
        return no_memory(err);
    for (size_t i = 0; i < v->n_tests; i++) {
        const Assay__V1__TestResult *t = v->tests[i];
        const char *status = status_name(t->status);
        if (status == NULL)
            return err_set(err, ERR_PROTOCOL, "the server's answer has the unknown test status %d; update assay", (int)t->status);
        out->tests[i] = (struct test_view){ .id = t->id, .status = status, .message = t->message, .evidence = t->evidence,
                                            .required = t->required, .duration_s = t->duration_s };
    }
    out->test_count = (uint32_t)v->n_tests;
    return 0;
}

int view_evaluate(struct evaluate_view *out, struct arena *a, const struct buf *answer, struct err *err)
{
    const Assay__V1__EvaluateResponse *m = unpack(&assay__v1__evaluate_response__descriptor, a, answer, err);
    if (m == NULL)
        return err->code;
    out->request_id = m->request_id;
    out->episode_id = hex_of(a, m->episode_id);
    out->task_id = m->task_id;
    out->cursor = m->cursor;
    return verdict_from(&out->verdict, a, m->verdict, err);
}

int view_status(struct status_view *out, struct arena *a, const struct buf *answer, struct err *err)
{
    const Assay__V1__StatusResponse *m = unpack(&assay__v1__status_response__descriptor, a, answer, err);
    if (m == NULL)
        return err->code;
    *out = (struct status_view){ .slots = m->slots, .slots_busy = m->slots_busy, .queue_len = m->queue_len,
                                 .queue_max = m->queue_max, .log_next_cursor = m->log_next_cursor, .version = m->version };
    return 0;
}

static int sample_from(struct trajectory_view *out, struct arena *a, const Assay__V1__Sample *s, struct err *err)
{
    out->has_sample = true;
    out->tokens = s->tokens;
    out->token_count = s->n_tokens;
    out->logprobs = s->logprobs;
    out->logprob_count = s->n_logprobs;
    out->loss_mask = s->loss_mask.data;
    out->loss_mask_len = s->loss_mask.len;
    out->model = s->model;
    out->seed = s->seed;
    out->choice_first = s->choice_first;
    out->choice_count = s->choice_count;
    out->spans = arena_alloc(a, (s->n_spans + 1) * sizeof *out->spans);
    if (out->spans == NULL)
        return no_memory(err);
    for (size_t i = 0; i < s->n_spans; i++)
        out->spans[i] = (struct span_view){ s->spans[i]->start, s->spans[i]->end, s->spans[i]->version };
    out->span_count = s->n_spans;
    return 0;
}

static int trajectory_from(struct trajectory_view *out, struct arena *a, const Assay__V1__Trajectory *m, struct err *err)
{
    *out = (struct trajectory_view){
        .episode_id = hex_of(a, m->episode_id), .request_id = m->request_id, .task_id = m->task_id, .group_id = "",
        .model = "", .patch = m->patch.data, .patch_len = m->patch.len, .snapshot = m->snapshot,
        .patched_tree = m->patched_tree, .verdict_key = m->verdict_key, .accepted_unix_ns = m->accepted_unix_ns,
        .finished_unix_ns = m->finished_unix_ns, .cursor = m->cursor,
        .timeout_s = m->timeout_s,
    };
    if (m->group != NULL && m->group->id.len > 0) {
        out->has_group = true;
        out->group_id = hex_of(a, m->group->id);
        out->group_want = m->group->want;
        out->group_index = m->group->index;
    }
    int rc = m->sample != NULL ? sample_from(out, a, m->sample, err) : 0;
    if (rc < 0)
        return rc;
    out->labels = arena_alloc(a, (m->n_labels + 1) * sizeof *out->labels);
    if (out->labels == NULL)
        return no_memory(err);
    for (size_t i = 0; i < m->n_labels; i++)
        out->labels[i] = (struct label_view){ m->labels[i]->key, m->labels[i]->value };
    out->label_count = m->n_labels;
    return verdict_from(&out->verdict, a, m->verdict, err);
}

int view_trajectory(struct trajectory_view *out, struct arena *a, const struct buf *answer, struct err *err)
{
    const Assay__V1__Trajectory *m = unpack(&assay__v1__trajectory__descriptor, a, answer, err);
    return m == NULL ? err->code : trajectory_from(out, a, m, err);
}

int view_trajectories(struct trajectories_view *out, struct arena *a, const struct buf *answer, struct err *err)
{
    const Assay__V1__ListTrajectoriesResponse *m = unpack(&assay__v1__list_trajectories_response__descriptor, a, answer, err);
    if (m == NULL)
        return err->code;
    out->items = arena_alloc(a, (m->n_trajectories + 1) * sizeof *out->items);
    if (out->items == NULL)
        return no_memory(err);
    for (size_t i = 0; i < m->n_trajectories; i++) {
        int rc = trajectory_from(&out->items[i], a, m->trajectories[i], err);
        if (rc < 0)
            return rc;
    }
    out->count = m->n_trajectories;
    out->next_cursor = m->next_cursor;
    return 0;
}

int view_import(struct import_view *out, struct arena *a, const struct buf *answer, struct err *err)
{
    const Assay__V1__ImportResponse *m = unpack(&assay__v1__import_response__descriptor, a, answer, err);
    if (m == NULL)
        return err->code;
    *out = (struct import_view){ .added = m->added, .unchanged = m->unchanged, .replaced = m->replaced,
                                 .skipped = m->skipped,
                                 .failure_count = m->n_failures, .notes = strings(m->notes, m->n_notes) };
    out->failures = arena_alloc(a, (m->n_failures + 1) * sizeof *out->failures);
    if (out->failures == NULL)
        return no_memory(err);
    for (size_t i = 0; i < m->n_failures; i++)
        out->failures[i] = (struct import_failure_view){ m->failures[i]->line, m->failures[i]->id, m->failures[i]->code,
                                                         m->failures[i]->message };
    return 0;
}

static void task_from(struct task *out, const Assay__V1__Task *m)
{
    struct err ignored = { 0 };
    *out = (struct task){
        .id = m->id, .repo = m->repo, .base_commit = m->base_commit, .problem_statement = m->problem_statement,
        .patch = m->patch, .test_patch = m->test_patch, .fail_to_pass = strings(m->fail_to_pass, m->n_fail_to_pass),
        .pass_to_pass = strings(m->pass_to_pass, m->n_pass_to_pass), .test_cmd = m->test_cmd, .reader = m->reader,
        .environment = m->environment, .split = m->split, .profile = m->profile,
        .language = m->language, .state = m->state,
        .timeout_s = m->timeout_s, .memory_mb = m->memory_mb,
        .extra_json = m->extra_json[0] != '\0' ? m->extra_json : "{}", .base_tree = "",
    };
    if (digest_parse(&out->snapshot, m->snapshot, &ignored) < 0)
        out->snapshot = (struct digest){ { 0 } };       /* not told: printed as absent */
}

int view_task(struct task *out, struct arena *a, const struct buf *answer, struct err *err)
{
    const Assay__V1__Task *m = unpack(&assay__v1__task__descriptor, a, answer, err);
    if (m == NULL)
        return err->code;
    task_from(out, m);
    return 0;
}

int view_tasks(struct tasks_view *out, struct arena *a, const struct buf *answer, struct err *err)
{
    const Assay__V1__ListTasksResponse *m = unpack(&assay__v1__list_tasks_response__descriptor, a, answer, err);
    if (m == NULL)
        return err->code;
    out->tasks = arena_alloc(a, (m->n_tasks + 1) * sizeof *out->tasks);
    if (out->tasks == NULL)
        return no_memory(err);
    for (size_t i = 0; i < m->n_tasks; i++)
        task_from(&out->tasks[i], m->tasks[i]);
    out->count = m->n_tasks;
    out->next = m->next;
    return 0;
}

int view_duplicates(struct duplicates_view *out, struct arena *a, const struct buf *answer, struct err *err)
{
    const Assay__V1__DuplicatesResponse *m = unpack(&assay__v1__duplicates_response__descriptor, a, answer, err);
    if (m == NULL)
        return err->code;
    out->groups = arena_alloc(a, (m->n_groups + 1) * sizeof *out->groups);
    if (out->groups == NULL)
        return no_memory(err);
    for (size_t i = 0; i < m->n_groups; i++)
        out->groups[i] = (struct twins_view){ strings(m->groups[i]->ids, m->groups[i]->n_ids), m->groups[i]->count };
    out->count = m->n_groups;
    out->next = m->next;
    return 0;
}
