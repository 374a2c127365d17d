/* cmd_eval.c - `assay eval`: one patch, one verdict. */
#include "rollout/cli/eval.h"
#include "rollout/cli/print.h"
#include <string.h>

#define TESTS_SHOWN 20
#define LABELS_MAX  16

const struct cli_option cmd_eval_options[] = {
    { "task", 0, "ID", "the task (required)" },
    { "patch", 0, "FILE", "unified diff to evaluate; - reads standard input" },
    { "fix", 0, NULL, "evaluate the task's own true fix instead" },
    { "fresh", 0, NULL, "run the tests even if this verdict is known" },
    { "timeout", 0, "S", "seconds for the tests; default: the task's own" },
    { "label", 0, "K=V", "keep this with the episode; may be given several times" },
    { "request-id", 0, "R", "repeat with the same id: the run is done once, the answer is the same" },
    { 0 },
};

int evaluate_patch(struct cli *c, struct evaluate_ask *q, struct evaluate_view *out, struct err *err)
{
    own_buf request = { 0 };
    own_buf answer = { 0 };
    int rc = q->request_id != NULL ? 0 : cli_request_id(&q->request_id, &c->arena, err);
    if (rc == 0)
        rc = ask_evaluate(&request, q, err);
    if (rc == 0)
        rc = cli_call(c, METHOD_EVALUATE, &request, &answer, err);
    if (rc == 0)
        rc = view_evaluate(out, &c->arena, &answer, err);
    return rc;
}

int fetch_task(struct cli *c, const char *id, bool with_fix, struct task *out, struct err *err)
{
    own_buf request = { 0 };
    own_buf answer = { 0 };
    int rc = ask_task(&request, id, with_fix, err);
    if (rc == 0)
        rc = cli_call(c, METHOD_TASK_GET, &request, &answer, err);
    if (rc == 0)
        rc = view_task(out, &c->arena, &answer, err);
    return rc;
}

int verdict_exit_status(const struct verdict_view *v)
{
    if (strcmp(v->outcome, "infra_error") == 0)
        return err_info(ERR_INTERNAL)->exit_status;
    if (strcmp(v->outcome, "task_invalid") == 0)
        return err_info(ERR_BAD_INPUT)->exit_status;
    if (strcmp(v->outcome, "cancelled") == 0)
        return err_info(ERR_CANCELLED)->exit_status;
    return 0;
}

static int read_labels(struct cli *c, struct evaluate_ask *q, struct err *err)
{
    struct label_view *labels = arena_alloc(&c->arena, LABELS_MAX * sizeof *labels);
    if (labels == NULL)
        return err_set(err, ERR_LIMIT, "out of memory");
    const char *text;
    for (uint32_t i = 0; (text = cli_value_nth(c, "label", i)) != NULL; i++) {
        const char *eq = strchr(text, '=');
        char quoted[96];
        err_quote(quoted, sizeof quoted, text, strlen(text));
        if (i == LABELS_MAX)
            return err_set(err, ERR_USAGE, "--label %s: more than %d labels", quoted, LABELS_MAX);
        if (eq == NULL || eq == text)
            return err_set(err, ERR_USAGE, "--label %s: want NAME=VALUE", quoted);
        labels[i] = (struct label_view){ arena_strndup(&c->arena, text, (size_t)(eq - text)), eq + 1 };
        if (labels[i].key == NULL)
            return err_set(err, ERR_LIMIT, "out of memory");
        q->label_count = i + 1;
    }
    q->labels = labels;
    return 0;
}

/* Everything that can be wrong with the command line, before anything is done. */
static int check_usage(struct cli *c, struct evaluate_ask *q, struct err *err)
{
    const char *path = cli_value(c, "patch");
    q->task_id = cli_value(c, "task");
    if (q->task_id == NULL || q->task_id[0] == '\0')
        return err_set(err, ERR_USAGE, "--task ID is needed; `assay tasks ls` lists them");
    if ((path != NULL) == cli_flag(c, "fix"))
        return err_set(err, ERR_USAGE, path != NULL ? "--patch and --fix exclude each other"
                                                    : "--patch FILE is needed (- for standard input), or --fix");
    q->request_id = cli_value(c, "request-id");
    if (q->request_id != NULL && (q->request_id[0] == '\0' || strlen(q->request_id) > 256))
        return err_set(err, ERR_USAGE, "--request-id: want 1 to 256 bytes");
    q->fresh = cli_flag(c, "fresh");
    int rc = cli_seconds(c, "timeout", &q->timeout_s, err);
    return rc < 0 ? rc : read_labels(c, q, err);
}

static int print_evaluation(const struct evaluate_view *v, struct err *err)
{
    json_t *o = json_object();
    if (o == NULL || json_object_set_new(o, "task_id", json_str(v->task_id)) != 0) {
        json_decref(o);
        return err_set(err, ERR_LIMIT, "out of memory");
    }
    int rc = json_add_verdict(o, &v->verdict, err);
    if (rc < 0) {
        json_decref(o);
        return rc;
    }
    json_object_set_new(o, "episode_id", json_string(v->episode_id));
    json_object_set_new(o, "request_id", json_str(v->request_id));
    json_object_set_new(o, "cursor", json_integer((json_int_t)v->cursor));
    return print_json(stdout, o, true, err);
}

/* When no single test tells what went wrong, the end of the output may. */
static bool output_tells(const struct verdict_view *v)
{
    if (v->output_len == 0 || (v->has_reward && v->reward > 0))
        return false;
    for (uint32_t i = 0; i < v->test_count; i++)
        if (strcmp(v->tests[i].status, "FAILED") == 0 || strcmp(v->tests[i].status, "ERROR") == 0)
            return false;
    return true;
}

int cmd_eval(struct cli *c, struct err *err)
{
    struct evaluate_ask q = { 0 };
    own_buf patch = { 0 };
    int rc = check_usage(c, &q, err);
    if (rc < 0)
        return rc;
    if (cli_flag(c, "fix")) {
        struct task t;
        rc = fetch_task(c, q.task_id, true, &t, err);
        if (rc < 0)
            return rc;
        if (t.patch[0] == '\0')
            return err_set(err, ERR_BAD_INPUT, "task %s: its record holds no true fix", t.id);
        q.patch = (const uint8_t *)t.patch;
        q.patch_len = strlen(t.patch);
    } else {
        rc = cli_read_file(&patch, cli_value(c, "patch"), PATCH_MAX, err);
        if (rc < 0)
            return rc;
        q.patch = patch.data;
        q.patch_len = patch.len;
    }
    struct evaluate_view v;
    rc = evaluate_patch(c, &q, &v, err);
    if (rc < 0)
        return rc;
    if (c->json) {
        rc = print_evaluation(&v, err);
    } else {
        print_str(stdout, v.task_id);
        fputs(": ", stdout);
        print_verdict(stdout, &v.verdict, TESTS_SHOWN);
        if (output_tells(&v.verdict))
            print_output_end(stdout, &v.verdict);
        printf("  episode  %s at cursor %llu\n", v.episode_id, (unsigned long long)v.cursor);
    }
    return rc < 0 ? rc : verdict_exit_status(&v.verdict);
}
