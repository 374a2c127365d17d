/* wire.c - requests, verdicts and trajectories. */
#include "rollout/wire.h"
#include "assay/v1/rollout.pb-c.h"
#include "assay/v1/trajectory.pb-c.h"
#include "rollout/wire_pb.h"
#include "sandbox/sandbox.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- foreign bytes --- */

void *wire_unpack(const ProtobufCMessageDescriptor *d, const char *what, const void *bytes, size_t n, struct err *err)
{
    void *m = message_unpack(d, bytes, n);
    if (m == NULL)
        err_set(err, ERR_BAD_INPUT, "%s: not a valid protobuf message of this type (%zu bytes)", what, n);
    return m;
}

bool wire_utf8(const char *s, size_t n)
{
    const uint8_t *p = (const uint8_t *)s, *end = p + n;
    while (p < end) {
        uint8_t c = *p++;
        int more = c < 0x80 ? 0 : c >= 0xc2 && c < 0xe0 ? 1 : c >= 0xe0 && c < 0xf0 ? 2 : c >= 0xf0 && c < 0xf5 ? 3 : -1;
        if (more < 0 || end - p < more)
            return false;
        if ((c == 0xe0 && p[0] < 0xa0) || (c == 0xed && p[0] > 0x9f) || (c == 0xf0 && p[0] < 0x90) || (c == 0xf4 && p[0] > 0x8f))
            return false;
        for (; more > 0; more--)
            if ((*p++ & 0xc0) != 0x80)
                return false;
    }
    return true;
}

const char *wire_text(struct arena *a, const char *field, const char *s, size_t max, struct err *err)
{
    size_t n = strlen(s);
    if (n > max) {
        err_set(err, ERR_BAD_INPUT, "%s: %zu bytes, at most %zu are allowed", field, n, max);
        return NULL;
    }
    bool clean = wire_utf8(s, n);
    for (size_t i = 0; i < n; i++)
        clean = clean && (uint8_t)s[i] >= 0x20 && s[i] != 0x7f;
    if (!clean) {
        char quoted[128];
        err_quote(quoted, sizeof quoted, s, n);
        err_set(err, ERR_BAD_INPUT, "%s \"%s\": want UTF-8 without control characters", field, quoted);
        return NULL;
    }
    const char *copy = arena_strndup(a, s, n);
    if (copy == NULL)
        err_set(err, ERR_LIMIT, "%s: the request's memory budget is used up", field);
    return copy;
}

/* --- Evaluate --- */

/* The rules of trajectory.proto's Sample; a violation names the position. */
static int check_sample(const Assay__V1__Sample *s, struct err *err)
{
    size_t n = s->n_tokens;
    if (n > WIRE_TOKENS_MAX)
        return err_set(err, ERR_BAD_INPUT, "sample: %zu tokens, at most %zu are allowed", n, WIRE_TOKENS_MAX);
    if (s->n_logprobs != n || s->loss_mask.len != n)
        return err_set(err, ERR_BAD_INPUT, "sample: %zu tokens but %zu logprobs and a loss_mask of %zu: one each a token", n, s->n_logprobs, s->loss_mask.len);
    for (size_t i = 0; i < n; i++) {
        if (s->loss_mask.data[i] > 1)
            return err_set(err, ERR_BAD_INPUT, "sample: loss_mask[%zu] is %u, want 0 or 1", i, s->loss_mask.data[i]);
        if (!isfinite(s->logprobs[i]) || s->logprobs[i] > 0)
            return err_set(err, ERR_BAD_INPUT, "sample: logprobs[%zu] is not a finite number <= 0", i);
        if (s->loss_mask.data[i] == 1 && s->choice_count != 0 &&
            (s->tokens[i] < s->choice_first || s->tokens[i] - s->choice_first >= s->choice_count))
            return err_set(err, ERR_BAD_INPUT, "sample: tokens[%zu] = %u lies outside the choice range", i, s->tokens[i]);
    }
    uint32_t at = 0;
    for (size_t k = 0; k < s->n_spans; k++) {
        const Assay__V1__PolicySpan *p = s->spans[k];
        if (p->start < at || p->end <= p->start || p->end > n)
            return err_set(err, ERR_BAD_INPUT, "sample: spans[%zu] = [%u, %u) overlaps, is empty or passes the end", k, p->start, p->end);
        for (uint32_t i = at; i < p->start; i++)
            if (s->loss_mask.data[i] == 1)
                return err_set(err, ERR_BAD_INPUT, "sample: token %u was chosen by the policy but no span says by which version", i);
        at = p->end;
    }
    for (size_t i = at; i < n; i++)
        if (s->loss_mask.data[i] == 1)
            return err_set(err, ERR_BAD_INPUT, "sample: token %zu was chosen by the policy but no span says by which version", i);
    return 0;
}

static uint8_t *copy_bytes(struct arena *a, const void *p, size_t n, struct err *err)
{
    uint8_t *to = arena_alloc(a, n + 1);
    if (to == NULL)
        err_set(err, ERR_LIMIT, "the request's memory budget is used up");
    else if (n > 0)
        memcpy(to, p, n);
    return to;
}

int wire_read_evaluate(struct evaluate_request *out, struct arena *a, const void *bytes, size_t n, struct err *err)
{
    own_message Assay__V1__EvaluateRequest *m = wire_unpack(&assay__v1__evaluate_request__descriptor, "EvaluateRequest", bytes, n, err);
    if (m == NULL)
        return err->code;
    struct evaluate_request r = { .fresh = m->fresh, .priority = m->priority };
    if ((r.request_id = wire_text(a, "request_id", m->request_id, WIRE_ID_MAX, err)) == NULL ||
        (r.task_id = wire_text(a, "task_id", m->task_id, WIRE_ID_MAX, err)) == NULL)
        return err->code;
    if (r.task_id[0] == '\0')
        return err_set(err, ERR_BAD_INPUT, "task_id: is empty; name a task of the catalog");
    if (m->patch.len > WIRE_PATCH_MAX)
        return err_set(err, ERR_BAD_INPUT, "patch: %zu bytes, at most %zu are allowed", m->patch.len, WIRE_PATCH_MAX);
    r.patch_len = m->patch.len;
    if ((r.patch = copy_bytes(a, m->patch.data, m->patch.len, err)) == NULL)
        return err->code;
    if (m->priority > 2)
        return err_set(err, ERR_BAD_INPUT, "priority: %u, want 0 batch, 1 normal or 2 urgent", m->priority);
    if (!(m->timeout_s >= 0 && m->timeout_s <= 86400))
        return err_set(err, ERR_BAD_INPUT, "timeout_s: want a number of seconds between 0 and 86400");
    r.timeout_ns = (uint64_t)(m->timeout_s * 1e9);
    if (m->sample != NULL) {
        int rc = check_sample(m->sample, err);
        if (rc < 0)
            return rc;
        r.sample_len = protobuf_c_message_get_packed_size(&m->sample->base);
        uint8_t *p = arena_alloc(a, r.sample_len + 1);
        if (p == NULL)
            return err_set(err, ERR_LIMIT, "sample: the request's memory budget is used up");
        protobuf_c_message_pack(&m->sample->base, p);
        r.sample = p;
    }
    if (m->group != NULL && m->group->id.len != 0) {
        if (m->group->id.len != 16)
            return err_set(err, ERR_BAD_INPUT, "group.id: %zu bytes, want 16", m->group->id.len);
        if (m->group->want == 0 || m->group->index >= m->group->want)
            return err_set(err, ERR_BAD_INPUT, "group: index %u of want %u", m->group->index, m->group->want);
        r.has_group = true;
        memcpy(r.group_id, m->group->id.data, 16);
        r.group_want = m->group->want;
        r.group_index = m->group->index;
    }
    if (m->n_labels > WIRE_LABELS_MAX)
        return err_set(err, ERR_BAD_INPUT, "labels: %zu, at most %d are allowed", m->n_labels, WIRE_LABELS_MAX);
    r.label_count = (uint32_t)m->n_labels;
    r.labels = arena_alloc(a, sizeof *r.labels * (m->n_labels + 1));
    if (r.labels == NULL)
        return err_set(err, ERR_LIMIT, "labels: the request's memory budget is used up");
    for (size_t i = 0; i < m->n_labels; i++) {
        r.labels[i].key = wire_text(a, "label key", m->labels[i]->key, WIRE_LABEL_MAX, err);
        r.labels[i].value = r.labels[i].key == NULL ? NULL : wire_text(a, "label value", m->labels[i]->value, WIRE_LABEL_MAX, err);
        if (r.labels[i].value == NULL)
            return err->code;
        if (strcmp(r.labels[i].key, "control") == 0 && strcmp(r.labels[i].value, "before") == 0)
            r.control_before = true;
    }
    struct digest_ctx d;
    digest_start(&d);
    digest_add_str(&d, r.task_id);
    digest_add_u64(&d, r.patch_len);
    digest_add(&d, r.patch, r.patch_len);
    digest_add_u64(&d, r.sample_len);
    digest_add(&d, r.sample, r.sample_len);
    digest_add(&d, r.group_id, sizeof r.group_id);
    digest_add_u64(&d, (uint64_t)r.group_want << 32 | r.group_index);
    digest_add_u64(&d, r.fresh);
    digest_add_u64(&d, r.timeout_ns);
    for (uint32_t i = 0; i < r.label_count; i++) {
        digest_add_str(&d, r.labels[i].key);
        digest_add_str(&d, r.labels[i].value);
    }
    digest_finish(&d, &r.content);
    *out = r;
    return 0;
}

/* --- verdicts --- */

#define TEST_STATUS(name) [TEST_##name] = ASSAY__V1__TEST_STATUS__TEST_STATUS_##name
static const Assay__V1__TestStatus status_out[TEST_STATUS_COUNT] = {
    TEST_STATUS(PASSED), TEST_STATUS(FAILED), TEST_STATUS(ERROR), TEST_STATUS(SKIPPED), TEST_STATUS(XFAIL),
    TEST_STATUS(XPASS), TEST_STATUS(MISSING), TEST_STATUS(FLAKY),
};
#define OUTCOME_ROW(name) [OUTCOME_##name] = ASSAY__V1__OUTCOME__OUTCOME_##name
static const Assay__V1__Outcome outcome_out[OUTCOME_COUNT] = {
    OUTCOME_ROW(RESOLVED), OUTCOME_ROW(UNRESOLVED), OUTCOME_ROW(PATCH_FAILED), OUTCOME_ROW(PATCH_EMPTY),
    OUTCOME_ROW(TIME_LIMIT), OUTCOME_ROW(MEMORY_LIMIT), OUTCOME_ROW(OUTPUT_LIMIT), OUTCOME_ROW(PIDS_LIMIT),
    OUTCOME_ROW(DISK_LIMIT), OUTCOME_ROW(UNREADABLE), OUTCOME_ROW(NO_TESTS_RAN), OUTCOME_ROW(TASK_INVALID),
    OUTCOME_ROW(TAMPERED), OUTCOME_ROW(INFRA_ERROR), OUTCOME_ROW(CANCELLED),
};
static const struct { uint32_t bit; const char *name; } limit_names[] = {
    { SANDBOX_HIT_TIME, "time_limit" }, { SANDBOX_HIT_MEMORY, "memory_limit" }, { SANDBOX_HIT_OUTPUT, "output_limit" },
    { SANDBOX_HIT_PIDS, "pids_limit" }, { SANDBOX_HIT_DISK, "disk_limit" }, { SANDBOX_HIT_CPU, "cpu_limit" },
};
#define LIMIT_COUNT (sizeof limit_names / sizeof limit_names[0])

/* protobuf-c wants char * and never writes through it when packing. */

/* A verdict as a message whose parts lie in `a` and borrow from v. */
static Assay__V1__Verdict *verdict_message(struct arena *a, const struct verdict *v)
{
    Assay__V1__Verdict *m = arena_alloc(a, sizeof *m);
    Assay__V1__Timings *t = arena_alloc(a, sizeof *t);
    Assay__V1__Reward *reward = arena_alloc(a, sizeof *reward);
    Assay__V1__TestResult *tests = arena_alloc(a, sizeof *tests * (v->test_count + 1));
    Assay__V1__TestResult **test_ptrs = arena_alloc(a, sizeof *test_ptrs * (v->test_count + 1));
    char **limits = arena_alloc(a, sizeof *limits * LIMIT_COUNT);
    char **findings = arena_alloc(a, sizeof *findings * (v->findings.count + 1));
    if (m == NULL || t == NULL || reward == NULL || tests == NULL || test_ptrs == NULL || limits == NULL || findings == NULL)
        return NULL;
    assay__v1__verdict__init(m);
    assay__v1__timings__init(t);
    m->outcome = outcome_out[v->outcome];
    if (v->has_reward) {
        assay__v1__reward__init(reward);
        reward->value = v->reward;
        m->reward = reward;
    }
    m->reason = message_text(v->reason);
    m->patch_status = message_text(v->patch_status);
    for (uint32_t i = 0; i < v->test_count; i++) {
        assay__v1__test_result__init(&tests[i]);
        tests[i].id = message_text(v->tests[i].id);
        tests[i].status = status_out[v->tests[i].status];
        tests[i].required = v->tests[i].required;
        tests[i].evidence = message_text(v->tests[i].evidence);
        tests[i].message = message_text(v->tests[i].message);
        tests[i].duration_s = v->tests[i].duration_s;
        test_ptrs[i] = &tests[i];
    }
    m->n_tests = v->test_count;
    m->tests = test_ptrs;
    for (size_t i = 0; i < LIMIT_COUNT; i++)
        if ((v->limits_hit & limit_names[i].bit) != 0)
            limits[m->n_limits_hit++] = message_text(limit_names[i].name);
    m->limits_hit = limits;
    m->run_end = message_text(v->run_end);
    m->start = message_text(v->start);
    m->reader = message_text(v->reader);
    m->peak_memory_bytes = v->memory_bytes_peak;
    m->cpu_ns = v->cpu_ns;
    m->cached = v->cached;
    if (v->cached)
        m->source_episode = (ProtobufCBinaryData){ 16, (uint8_t *)(uintptr_t)v->source_episode };
    m->fault = message_text(v->fault);
    m->retryable = v->retryable;
    m->attempts = v->attempts;
    for (uint32_t i = 0; i < v->findings.count; i++)
        findings[i] = message_text(v->findings.items[i]);
    m->n_findings = v->findings.count;
    m->findings = findings;
    m->output = (ProtobufCBinaryData){ v->output_len, (uint8_t *)(uintptr_t)v->output };
    m->output_bytes = v->output_bytes;
    t->queue_ns = v->timings.queue_ns;
    t->prepare_ns = v->timings.prepare_ns;
    t->slot_ns = v->timings.slot_ns;
    t->run_ns = v->timings.run_ns;
    t->read_ns = v->timings.read_ns;
    t->total_ns = v->timings.total_ns;
    m->timings = t;
    m->maskable = v->maskable;
    return m;
}

int wire_write_evaluate_response(struct buf *out, const char *request_id, const uint8_t episode_id[16],
                                 const char *task_id, const struct verdict *v, uint64_t cursor, struct err *err)
{
    own_arena a = { 0 };
    Assay__V1__EvaluateResponse m = ASSAY__V1__EVALUATE_RESPONSE__INIT;
    m.request_id = message_text(request_id);
    m.task_id = message_text(task_id);
    m.episode_id = (ProtobufCBinaryData){ episode_id != NULL ? 16 : 0, (uint8_t *)(uintptr_t)episode_id };
    m.cursor = cursor;
    m.verdict = verdict_message(&a, v);
    if (m.verdict == NULL)
        return err_set(err, ERR_LIMIT, "verdict: out of memory");
    return message_pack(out, &m, err);
}

static int read_verdict(struct verdict *out, struct arena *a, const Assay__V1__Verdict *m, struct err *err)
{
    struct verdict v = { .fault = "", .patch_status = "", .run_end = "", .reader = "", .start = "" };
    bool known = false;
    for (int i = 0; i < OUTCOME_COUNT; i++)
        if (outcome_out[i] == m->outcome) {
            v.outcome = (enum outcome)i;
            known = true;
        }
    if (!known)
        return err_set(err, ERR_CORRUPT, "verdict: outcome number %d is unknown to this version", (int)m->outcome);
    v.has_reward = m->reward != NULL;
    v.reward = m->reward != NULL ? m->reward->value : 0;
    struct { const char **to; const char *from; } texts[] = {
        { &v.reason, m->reason }, { &v.patch_status, m->patch_status }, { &v.run_end, m->run_end },
        { &v.reader, m->reader }, { &v.fault, m->fault }, { &v.start, m->start },
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        if ((*texts[i].to = arena_strdup(a, texts[i].from)) == NULL)
            return err_set(err, ERR_LIMIT, "verdict: out of memory");
    v.tests = arena_alloc(a, sizeof *v.tests * (m->n_tests + 1));
    v.findings.items = arena_alloc(a, sizeof *v.findings.items * (m->n_findings + 1));
    if (v.tests == NULL || v.findings.items == NULL)
        return err_set(err, ERR_LIMIT, "verdict: out of memory");
    for (size_t i = 0; i < m->n_tests; i++) {
        const Assay__V1__TestResult *t = m->tests[i];
        struct test_result *r = &v.tests[i];
        known = false;
        for (int k = 0; k < TEST_STATUS_COUNT; k++)
            if (status_out[k] == t->status) {
                r->status = (enum test_status)k;
                known = true;
            }
        if (!known)
            return err_set(err, ERR_CORRUPT, "verdict: test status number %d is unknown to this version", (int)t->status);
        r->id = arena_strdup(a, t->id);
        r->message = arena_strdup(a, t->message);
        r->evidence = arena_strdup(a, t->evidence);
        r->required = t->required;
        r->duration_s = t->duration_s;
        if (r->id == NULL || r->message == NULL || r->evidence == NULL)
            return err_set(err, ERR_LIMIT, "verdict: out of memory");
    }
    v.test_count = (uint32_t)m->n_tests;
    for (size_t i = 0; i < m->n_findings; i++)
        if ((v.findings.items[i] = arena_strdup(a, m->findings[i])) == NULL)
            return err_set(err, ERR_LIMIT, "verdict: out of memory");
    v.findings.count = (uint32_t)m->n_findings;
    for (size_t i = 0; i < m->n_limits_hit; i++)
        for (size_t k = 0; k < LIMIT_COUNT; k++)
            if (strcmp(limit_names[k].name, m->limits_hit[i]) == 0)
                v.limits_hit |= limit_names[k].bit;
    v.memory_bytes_peak = m->peak_memory_bytes;
    v.cpu_ns = m->cpu_ns;
    v.cached = m->cached;
    if (m->source_episode.len == 16)
        memcpy(v.source_episode, m->source_episode.data, 16);
    v.retryable = m->retryable;
    v.attempts = m->attempts;
    v.maskable = m->maskable;
    if ((v.output = copy_bytes(a, m->output.data, m->output.len, err)) == NULL)
        return err->code;
    v.output_len = (uint32_t)m->output.len;
    v.output_bytes = m->output_bytes;
    if (m->timings != NULL)
        v.timings = (struct timings){ m->timings->queue_ns, m->timings->prepare_ns, m->timings->slot_ns,
                                      m->timings->run_ns, m->timings->read_ns, m->timings->total_ns };
    *out = v;
    return 0;
}

/* --- trajectories --- */

int wire_write_trajectory(struct buf *out, const struct trajectory_facts *f, struct err *err)
{
    own_arena a = { 0 };
    const struct evaluate_request *r = f->request;
    Assay__V1__Trajectory m = ASSAY__V1__TRAJECTORY__INIT;
    Assay__V1__Group g = ASSAY__V1__GROUP__INIT;
    own_message Assay__V1__Sample *sample = NULL;
    m.episode_id = (ProtobufCBinaryData){ 16, (uint8_t *)(uintptr_t)f->episode_id };
    m.request_id = message_text(r->request_id);
    m.task_id = message_text(r->task_id);
    if (r->has_group) {
        g.id = (ProtobufCBinaryData){ 16, (uint8_t *)(uintptr_t)r->group_id };
        g.want = r->group_want;
        g.index = r->group_index;
        m.group = &g;
    }
    if (r->sample != NULL) {
        sample = wire_unpack(&assay__v1__sample__descriptor, "Sample", r->sample, r->sample_len, err);
        if (sample == NULL)
            return err->code;
        m.sample = sample;
    }
    m.verdict = verdict_message(&a, f->verdict);
    Assay__V1__Trajectory__LabelsEntry *labels = arena_alloc(&a, sizeof *labels * (r->label_count + 1));
    Assay__V1__Trajectory__LabelsEntry **label_ptrs = arena_alloc(&a, sizeof *label_ptrs * (r->label_count + 1));
    if (m.verdict == NULL || labels == NULL || label_ptrs == NULL)
        return err_set(err, ERR_LIMIT, "trajectory: out of memory");
    for (uint32_t i = 0; i < r->label_count; i++) {
        assay__v1__trajectory__labels_entry__init(&labels[i]);
        labels[i].key = message_text(r->labels[i].key);
        labels[i].value = message_text(r->labels[i].value);
        label_ptrs[i] = &labels[i];
    }
    m.n_labels = r->label_count;
    m.labels = label_ptrs;
    m.patch = (ProtobufCBinaryData){ r->patch_len, (uint8_t *)(uintptr_t)r->patch };
    m.snapshot = message_text(f->snapshot);
    m.patched_tree = message_text(f->patched_tree);
    m.verdict_key = message_text(f->verdict_key);
    m.accepted_unix_ns = f->accepted_unix_ns;
    m.finished_unix_ns = f->finished_unix_ns;
    m.content_digest = (ProtobufCBinaryData){ sizeof r->content.bytes, (uint8_t *)(uintptr_t)r->content.bytes };
    m.timeout_s = (double)r->timeout_ns / 1e9;
    return message_pack(out, &m, err);
}

int wire_read_trajectory_head(struct trajectory_head *out, struct arena *a, const void *bytes, size_t n, struct err *err)
{
    own_message Assay__V1__Trajectory *m = wire_unpack(&assay__v1__trajectory__descriptor, "Trajectory", bytes, n, err);
    if (m == NULL)
        return err->code;
    if (m->episode_id.len != 16)
        return err_set(err, ERR_CORRUPT, "trajectory: episode id of %zu bytes", m->episode_id.len);
    struct trajectory_head h = { 0 };
    memcpy(h.episode_id, m->episode_id.data, 16);
    h.request_id = arena_strdup(a, m->request_id);
    h.task_id = arena_strdup(a, m->task_id);
    h.verdict_key = arena_strdup(a, m->verdict_key);
    if (h.request_id == NULL || h.task_id == NULL || h.verdict_key == NULL)
        return err_set(err, ERR_LIMIT, "trajectory: out of memory");
    if (m->content_digest.len == sizeof h.content.bytes)
        memcpy(h.content.bytes, m->content_digest.data, sizeof h.content.bytes);
    h.has_sample = m->sample != NULL;
    if (m->verdict != NULL) {
        int rc = read_verdict(&h.verdict, a, m->verdict, err);
        if (rc < 0)
            return rc;
    }
    *out = h;
    return 0;
}

int wire_read_append(struct buf *out, const void *bytes, size_t n, const uint8_t episode_id[16], uint64_t now_unix_ns,
                     struct err *err)
{
    own_message Assay__V1__AppendRequest *m = wire_unpack(&assay__v1__append_request__descriptor, "AppendRequest", bytes, n, err);
    if (m == NULL)
        return err->code;
    Assay__V1__Trajectory *t = m->trajectory;
    if (t == NULL)
        return err_set(err, ERR_BAD_INPUT, "trajectory: is missing");
    own_arena a = { 0 };
    if (wire_text(&a, "trajectory.task_id", t->task_id, WIRE_ID_MAX, err) == NULL ||
        wire_text(&a, "trajectory.request_id", t->request_id, WIRE_ID_MAX, err) == NULL)
        return err->code;
    if (t->patch.len > WIRE_PATCH_MAX)
        return err_set(err, ERR_BAD_INPUT, "trajectory.patch: %zu bytes, at most %zu", t->patch.len, WIRE_PATCH_MAX);
    int rc = t->sample != NULL ? check_sample(t->sample, err) : 0;
    struct verdict v;
    if (rc == 0 && t->verdict != NULL) {
        rc = read_verdict(&v, &a, t->verdict, err);
        if (rc == 0 && v.has_reward && (!outcome_has_reward(v.outcome) || !isfinite(v.reward)))
            rc = err_set(err, ERR_BAD_INPUT, "trajectory.verdict: outcome %s with a reward, or a reward that is no number", outcome_name(v.outcome));
        if (rc == ERR_CORRUPT)
            err->code = rc = ERR_BAD_INPUT;
    }
    if (rc < 0)
        return rc;
    ProtobufCBinaryData was = t->episode_id;
    t->episode_id = (ProtobufCBinaryData){ 16, (uint8_t *)(uintptr_t)episode_id };
    t->finished_unix_ns = now_unix_ns;
    t->cursor = 0;
    rc = message_pack(out, t, err);
    t->episode_id = was;
    return rc;
}

int wire_write_append_response(struct buf *out, uint64_t cursor, const uint8_t episode_id[16], struct err *err)
{
    Assay__V1__AppendResponse m = ASSAY__V1__APPEND_RESPONSE__INIT;
    m.cursor = cursor;
    m.episode_id = (ProtobufCBinaryData){ 16, (uint8_t *)(uintptr_t)episode_id };
    return message_pack(out, &m, err);
}

/* Concatenated encodings merge (protobuf encoding, "last one wins"): field 13, varint. */
int wire_write_stored(struct buf *out, const void *record, size_t n, uint64_t cursor, struct err *err)
{
    uint8_t tail[11] = { 13 << 3 };
    size_t len = 1;
    for (uint64_t v = cursor; ; v >>= 7) {
        tail[len++] = (uint8_t)((v & 0x7f) | (v > 0x7f ? 0x80 : 0));
        if (v <= 0x7f)
            break;
    }
    int rc = buf_add(out, record, n, err);
    return rc < 0 ? rc : buf_add(out, tail, len, err);
}

int wire_read_subscribe(struct subscribe_request *out, struct arena *a, const void *bytes, size_t n, struct err *err)
{
    own_message Assay__V1__SubscribeRequest *m = wire_unpack(&assay__v1__subscribe_request__descriptor, "SubscribeRequest", bytes, n, err);
    if (m == NULL)
        return err->code;
    *out = (struct subscribe_request){ .cursor = m->cursor, .follow = m->follow, .with_sample_only = m->with_sample_only };
    out->task_prefix = wire_text(a, "task_prefix", m->task_prefix, WIRE_ID_MAX, err);
    return out->task_prefix != NULL ? 0 : err->code;
}

int wire_read_get_trajectory(struct get_trajectory_request *out, struct arena *a, const void *bytes, size_t n, struct err *err)
{
    own_message Assay__V1__GetTrajectoryRequest *m = wire_unpack(&assay__v1__get_trajectory_request__descriptor, "GetTrajectoryRequest", bytes, n, err);
    if (m == NULL)
        return err->code;
    struct get_trajectory_request r = { 0 };
    if ((r.request_id = wire_text(a, "request_id", m->request_id, WIRE_ID_MAX, err)) == NULL)
        return err->code;
    if (m->episode_id.len == 16) {
        r.by_episode = true;
        memcpy(r.episode_id, m->episode_id.data, 16);
    } else if (m->episode_id.len != 0 || r.request_id[0] == '\0') {
        return err_set(err, ERR_BAD_INPUT, "episode_id: %zu bytes, want 16, or a request_id", m->episode_id.len);
    }
    *out = r;
    return 0;
}

int wire_read_list_trajectories(struct list_request *out, struct arena *a, const void *bytes, size_t n, struct err *err)
{
    own_message Assay__V1__ListTrajectoriesRequest *m = wire_unpack(&assay__v1__list_trajectories_request__descriptor, "ListTrajectoriesRequest", bytes, n, err);
    if (m == NULL)
        return err->code;
    if (m->limit > 1000)
        return err_set(err, ERR_BAD_INPUT, "limit: %u, at most 1000", m->limit);
    *out = (struct list_request){ .cursor = m->cursor, .limit = m->limit != 0 ? m->limit : 100 };
    out->task_id = wire_text(a, "task_id", m->task_id, WIRE_ID_MAX, err);
    return out->task_id != NULL ? 0 : err->code;
}

/* Field 1 of ListTrajectoriesResponse, written by hand so that a page is never held twice. */
int wire_add_listed(struct buf *out, const void *record, size_t n, uint64_t cursor, struct err *err)
{
    own_message Assay__V1__Trajectory *m = wire_unpack(&assay__v1__trajectory__descriptor, "Trajectory", record, n, err);
    if (m == NULL)
        return err->code;
    m->cursor = cursor;
    if (m->sample != NULL)
        m->sample->n_tokens = m->sample->n_logprobs = m->sample->loss_mask.len = 0;
    m->patch.len = 0;
    if (m->verdict != NULL)
        m->verdict->output.len = 0;
    uint8_t head[11] = { 1 << 3 | 2 };
    size_t len = 1, size = protobuf_c_message_get_packed_size(&m->base);
    for (size_t v = size; ; v >>= 7) {
        head[len++] = (uint8_t)((v & 0x7f) | (v > 0x7f ? 0x80 : 0));
        if (v <= 0x7f)
            break;
    }
    int rc = buf_add(out, head, len, err);
    return rc < 0 ? rc : message_pack(out, m, err);
}

int wire_end_list(struct buf *out, uint64_t next_cursor, struct err *err)
{
    Assay__V1__ListTrajectoriesResponse m = ASSAY__V1__LIST_TRAJECTORIES_RESPONSE__INIT;
    m.next_cursor = next_cursor;
    return message_pack(out, &m, err);
}

int wire_write_status(struct buf *out, const struct server_status *s, struct err *err)
{
    Assay__V1__StatusResponse m = ASSAY__V1__STATUS_RESPONSE__INIT;
    m.slots = s->slots;
    m.slots_busy = s->slots_busy;
    m.queue_len = s->queue_len;
    m.queue_max = s->queue_max;
    m.log_next_cursor = s->log_next_cursor;
    m.version = message_text(s->version);
    return message_pack(out, &m, err);
}
