/* cmd_replay.c - `assay replay`: an episode's patch once more, in a fresh sandbox, and what came out differently. */
#include "rollout/cli/eval.h"
#include "rollout/cli/print.h"
#include <string.h>

const struct cli_option cmd_replay_options[] = {
    { "timeout", 0, "S", "seconds for the tests; default: what the episode had" },
    { 0 },
};

struct differences { bool json; json_t *list; uint32_t count; };

static void differ(struct differences *d, const char *what, const char *test, const char *was, const char *now)
{
    d->count++;
    if (d->json) {
        json_t *row = json_pack("{s:s,s:o,s:o}", "what", what, "was", json_str(was), "now", json_str(now));
        if (test != NULL)
            json_object_set_new(row, "test", json_str(test));
        json_array_append_new(d->list, row);
        return;
    }
    printf("  %-12s ", what);
    if (test != NULL) {
        print_str(stdout, test);
        fputs(": ", stdout);
    }
    printf("was ");
    print_str(stdout, was);
    printf(", now ");
    print_str(stdout, now);
    putchar('\n');
}

/* Test ids to statuses, for looking up. */
static json_t *statuses(const struct verdict_view *v)
{
    json_t *o = json_object();
    for (uint32_t i = 0; i < v->test_count; i++)
        json_object_set_new(o, v->tests[i].id, json_string(v->tests[i].status));
    return o;
}

static void compare_tests(struct differences *d, const struct verdict_view *was, const struct verdict_view *now)
{
    json_t *before = statuses(was), *after = statuses(now);
    const char *id;
    json_t *value;
    json_object_foreach(before, id, value) {
        json_t *other = json_object_get(after, id);
        const char *word = other != NULL ? json_string_value(other) : "not seen";
        if (strcmp(word, json_string_value(value)) != 0)
            differ(d, "test", id, json_string_value(value), word);
    }
    json_object_foreach(after, id, value)
        if (json_object_get(before, id) == NULL)
            differ(d, "test", id, "not seen", json_string_value(value));
    json_decref(before);
    json_decref(after);
}

static void compare(struct differences *d, const struct verdict_view *was, const struct verdict_view *now)
{
    char reward_was[32], reward_now[32];
    if (strcmp(was->outcome, now->outcome) != 0)
        differ(d, "outcome", NULL, was->outcome, now->outcome);
    if (strcmp(reward_text(reward_was, was), reward_text(reward_now, now)) != 0)
        differ(d, "reward", NULL, reward_was, reward_now);
    if (strcmp(was->patch_status, now->patch_status) != 0)
        differ(d, "patch_status", NULL, was->patch_status, now->patch_status);
    compare_tests(d, was, now);
}

/* The labels of the episode, plus whose replay this is (in place of the last one when there is no room). */
static int replay_labels(struct cli *c, struct evaluate_ask *q, const struct trajectory_view *t, struct err *err)
{
    q->labels = arena_alloc(&c->arena, (t->label_count + 1) * sizeof *q->labels);
    if (q->labels == NULL)
        return err_set(err, ERR_LIMIT, "out of memory");
    for (size_t i = 0; i < t->label_count; i++)
        if (strcmp(t->labels[i].key, "replay_of") != 0 && q->label_count < 15)
            q->labels[q->label_count++] = t->labels[i];
    q->labels[q->label_count++] = (struct label_view){ "replay_of", t->episode_id };
    return 0;
}

int cmd_replay(struct cli *c, struct err *err)
{
    struct evaluate_ask q = { .fresh = true };
    struct trajectory_view t;
    struct evaluate_view v;
    int rc = cli_seconds(c, "timeout", &q.timeout_s, err);
    if (rc == 0)
        rc = fetch_trajectory(c, c->args[0], &t, err);
    if (rc == 0)
        rc = replay_labels(c, &q, &t, err);
    if (rc < 0)
        return rc;
    if (q.timeout_s == 0)
        q.timeout_s = t.timeout_s;      /* asked for then: another limit would be another question */
    q.task_id = t.task_id;
    q.patch = t.patch;
    q.patch_len = t.patch_len;
    rc = evaluate_patch(c, &q, &v, err);
    if (rc < 0)
        return rc;
    if (strcmp(v.verdict.outcome, "infra_error") == 0) {
        err_set(err, ERR_INTERNAL, "the replay reached no verdict: %s", v.verdict.reason);
        return err->code;
    }
    struct differences d = { .json = c->json, .list = json_array() };
    if (!c->json) {
        char reward[32];
        printf("%s ", t.episode_id);
        print_str(stdout, t.task_id);
        printf(": was %s, reward %s", t.verdict.outcome, reward_text(reward, &t.verdict));
        printf("; now %s, reward %s (episode %s)\n", v.verdict.outcome, reward_text(reward, &v.verdict), v.episode_id);
    }
    compare(&d, &t.verdict, &v.verdict);
    if (c->json) {
        rc = print_json(stdout, json_pack("{s:s,s:s,s:s,s:b,s:O,s:s,s:s}", "episode_id", t.episode_id, "replay_episode_id",
                        v.episode_id, "task_id", t.task_id, "same", d.count == 0, "differences", d.list,
                        "outcome_was", t.verdict.outcome, "outcome", v.verdict.outcome), true, err);
    } else if (d.count == 0) {
        printf("the same: outcome, reward and %u test%s\n", v.verdict.test_count, v.verdict.test_count == 1 ? "" : "s");
    }
    json_decref(d.list);
    return rc < 0 ? rc : d.count > 0;
}
