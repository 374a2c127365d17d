/* cmd_tasks.c - `assay tasks ls|show|duplicates`. */
#include "rollout/cli/eval.h"
#include "rollout/cli/print.h"
#include "base/own.h"
#include <string.h>

#define LIST_PAGE       1000
#define ID_SIZE_MAX     256             /* repos/task.c */

const struct cli_option cmd_tasks_ls_options[] = {
    { "prefix", 0, "P", "only ids that begin so" },
    { "repo", 0, "R", "only tasks of this repository" },
    { "language", 0, "L", "only tasks of this language, e.g. python" },
    { "split", 0, "S", "only tasks of this split" },
    { "task-state", 0, "STATE", "only in this state: imported, validated, quarantined or refused" },
    { "search", 0, "WORDS", "all of these words in id, repository or problem statement; WORD* is a beginning" },
    { "limit", 0, "N", "at most so many" },
    { "after", 0, "ID", "only what comes after this task: to go on where --limit has ended" },
    { "drafts", 0, NULL, "also drafts: what `assay mine` found no tests for" },
    { 0 },
};
const struct cli_option cmd_tasks_show_options[] = {
    { "with-fix", 0, NULL, "also the true fix and the hidden tests" },
    { 0 },
};


/* As cmd_mine.c puts it in before the ids are known. */
static bool is_draft(const struct task *t)
{
    return strcmp(t->split, "draft") == 0;
}

static void print_row(const struct task *t)
{
    print_str(stdout, t->id);
    int pad = 36 - (int)strlen(t->id);
    printf("%*s  ", pad > 0 ? pad : 0, "");
    print_str(stdout, t->repo);
    printf("  %.12s  %u+%u tests  %s  %gs%s", t->base_commit, t->fail_to_pass.count, t->pass_to_pass.count, t->reader,
           t->timeout_s, is_draft(t) ? "  draft" : "");
    if (strcmp(t->state, task_state_names[TASK_IMPORTED]) != 0 && t->state[0] != '\0') {
        fputs("  ", stdout);
        print_str(stdout, t->state);
    }
    putchar('\n');
}

/* A row of the listing: what the server sends without the long texts. */
static json_t *row_json(const struct task *t)
{
    return json_pack("{s:o,s:o,s:o,s:I,s:I,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:f,s:I}", "instance_id", json_str(t->id),
                     "repo", json_str(t->repo), "base_commit", json_str(t->base_commit),
                     "fail_to_pass_count", (json_int_t)t->fail_to_pass.count,
                     "pass_to_pass_count", (json_int_t)t->pass_to_pass.count, "test_cmd", json_str(t->test_cmd),
                     "reader", json_str(t->reader), "environment", json_str(t->environment), "split", json_str(t->split),
                     "language", json_str(t->language), "state", json_str(t->state),
                     "profile", json_str(t->profile), "timeout_s", t->timeout_s, "memory_mb", (json_int_t)t->memory_mb);
}

struct listing {
    struct tasks_ask ask;
    uint64_t left, count, drafts;       /* that may still be printed; were; were left out */
    json_t *rows;                       /* with -o json */
    char after[ID_SIZE_MAX + 1];        /* of the last task that was printed or left out */
};

static int list_page(struct cli *c, struct listing *l, bool *out_more, struct err *err)
{
    own_arena a = { 0 };
    own_buf request = { 0 };
    own_buf answer = { 0 };
    struct tasks_view page = { 0 };
    int rc = ask_tasks(&request, &l->ask, err);
    if (rc == 0)
        rc = cli_call(c, METHOD_TASK_LIST, &request, &answer, err);
    if (rc == 0)
        rc = view_tasks(&page, &a, &answer, err);
    size_t i = 0;
    for (; rc == 0 && i < page.count && l->left > 0; i++) {
        const struct task *t = &page.tasks[i];
        if (is_draft(t) && !cli_flag(c, "drafts") && l->ask.filter.split == NULL) {
            l->drafts++;
            continue;
        }
        l->count++;
        l->left--;
        if (!c->json)
            print_row(t);
        else if (json_array_append_new(l->rows, row_json(t)) != 0)
            rc = err_set(err, ERR_LIMIT, "out of memory");
    }
    if (rc < 0)
        return rc;
    const char *after = i < page.count ? page.tasks[i - 1].id : page.next;
    if (strlen(after) >= sizeof l->after)
        return err_set(err, ERR_PROTOCOL, "the server's answer goes on after an id of %zu bytes", strlen(after));
    strcpy(l->after, after);
    l->ask.after = l->after;
    *out_more = after[0] != '\0';
    return 0;
}

int cmd_tasks_ls(struct cli *c, struct err *err)
{
    struct listing l = { .ask = { .after = cli_value(c, "after"), .limit = LIST_PAGE, .filter = {
        .repo = cli_value(c, "repo"), .prefix = cli_value(c, "prefix"), .language = cli_value(c, "language"),
        .split = cli_value(c, "split"), .state = cli_value(c, "task-state"), .text = cli_value(c, "search") } } };
    const struct catalog_filter *f = &l.ask.filter;
    bool more = true, filtered = f->repo || f->prefix || f->language || f->split || f->state || f->text;
    int rc = cli_number(c, "limit", 1, UINT64_MAX, UINT64_MAX, &l.left, err);
    if (rc < 0)
        return rc;
    if (l.left < LIST_PAGE)
        l.ask.limit = (uint32_t)l.left;
    l.rows = c->json ? json_array() : NULL;
    while (rc == 0 && more && l.left > 0)
        rc = list_page(c, &l, &more, err);
    if (rc == 0 && c->json)
        return print_json(stdout, json_pack("{s:o,s:o*}", "tasks", l.rows, "next", more ? json_str(l.after) : NULL), true, err);
    json_decref(l.rows);
    if (rc < 0)
        return rc;
    if (l.drafts > 0)
        cli_say(c, "%llu draft%s left out; --drafts has them", (unsigned long long)l.drafts, l.drafts == 1 ? "" : "s");
    if (more)
        cli_say(c, "there may be more: --after '%s'", l.after);
    if (l.count == 0 && l.drafts == 0)
        cli_say(c, "no tasks%s; bring some in with `assay tasks import FILE.jsonl --repos DIR%s`",
                filtered ? " match" : "", cli_retype(c, (const char *[]){ "state", "server" }, 2));
    return 0;
}

static void print_twins(const struct twins_view *t)
{
    printf("%llu tasks", (unsigned long long)t->count);
    for (uint32_t i = 0; i < t->ids.count; i++) {
        fputs(i == 0 ? "  " : ", ", stdout);
        print_str(stdout, t->ids.items[i]);
    }
    puts(t->count > t->ids.count ? ", ..." : "");
}

int cmd_tasks_duplicates(struct cli *c, struct err *err)
{
    char after[32] = "";
    json_t *groups = c->json ? json_array() : NULL;
    uint64_t count = 0;
    int rc = 0;
    do {
        own_arena a = { 0 };
        own_buf request = { 0 };
        own_buf answer = { 0 };
        struct duplicates_view page = { 0 };
        rc = ask_duplicates(&request, after, LIST_PAGE, err);
        if (rc == 0)
            rc = cli_call(c, METHOD_DUPLICATES, &request, &answer, err);
        if (rc == 0)
            rc = view_duplicates(&page, &a, &answer, err);
        for (size_t i = 0; rc == 0 && i < page.count; i++) {
            count++;
            if (!c->json)
                print_twins(&page.groups[i]);
            else if (json_array_append_new(groups, json_pack("{s:o,s:I}", "ids", json_strings(&page.groups[i].ids), "count",
                                                             (json_int_t)page.groups[i].count)) != 0)
                rc = err_set(err, ERR_LIMIT, "out of memory");
        }
        snprintf(after, sizeof after, "%s", rc == 0 ? page.next : "");
    } while (after[0] != '\0');
    if (rc == 0 && c->json)
        return print_json(stdout, json_pack("{s:o}", "groups", groups), true, err);
    json_decref(groups);
    if (rc == 0 && count == 0)
        cli_say(c, "no two tasks have the same base tree and the same tests");
    return rc;
}

static void print_ids(const char *what, const struct str_list *ids)
{
    printf("%-13s %u\n", what, ids->count);
    for (uint32_t i = 0; i < ids->count; i++) {
        fputs("    ", stdout);
        print_str(stdout, ids->items[i]);
        putchar('\n');
    }
}

static void print_field(const char *what, const char *text)
{
    printf("%-13s ", what);
    print_str(stdout, text);
    putchar('\n');
}

int cmd_tasks_show(struct cli *c, struct err *err)
{
    own_buf request = { 0 };
    own_buf answer = { 0 };
    struct task t;
    bool with_fix = cli_flag(c, "with-fix");
    int rc = ask_task(&request, c->args[0], with_fix, err);
    if (rc == 0)
        rc = cli_call(c, METHOD_TASK_GET, &request, &answer, err);
    if (rc == 0)
        rc = view_task(&t, &c->arena, &answer, err);
    if (rc < 0)
        return rc;
    char hex[DIGEST_HEX_SIZE];
    digest_hex(hex, &t.snapshot);
    if (c->json) {
        json_t *o = NULL;
        rc = json_task(&o, &t, err);
        if (rc < 0)
            return rc;
        if (!with_fix) {                        /* left out, not empty */
            json_object_del(o, "patch");
            json_object_del(o, "test_patch");
        }
        json_object_set_new(o, "snapshot", json_string(hex));
        json_object_set_new(o, "state", json_str(t.state));
        json_object_set_new(o, "language", json_str(t.language));
        return print_json(stdout, o, true, err);
    }
    print_field("task", t.id);
    print_field("repo", t.repo);
    print_field("base commit", t.base_commit);
    print_field("snapshot", hex);
    print_field("test command", t.test_cmd);
    print_field("reader", t.reader);
    if (t.language[0] != '\0')
        print_field("language", t.language);
    print_field("state", t.state);
    print_field("environment", t.environment);
    if (strcmp(t.profile, "strict") != 0)
        print_field("profile", t.profile);
    printf("%-13s %g s, %llu MiB\n", "limits", t.timeout_s, (unsigned long long)t.memory_mb);
    if (t.split[0] != '\0')
        print_field("split", t.split);
    print_ids("fail to pass", &t.fail_to_pass);
    print_ids("pass to pass", &t.pass_to_pass);
    if (t.problem_statement[0] != '\0') {
        puts("\nproblem");
        print_block(stdout, "    ", t.problem_statement, strlen(t.problem_statement));
    }
    if (with_fix) {
        puts("\ntrue fix");
        print_block(stdout, "", t.patch, strlen(t.patch));
        puts("\nhidden tests");
        print_block(stdout, "", t.test_patch, strlen(t.test_patch));
    }
    return 0;
}
