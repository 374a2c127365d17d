/*
 * cmd_mine.c - `assay mine`: a task from two revisions, its required ids from real runs.
 *
 * The change is split into source and tests (repos/mine.c). A draft record without required ids goes
 * into the catalog, and three runs tell what the tests are worth:
 *   before       base + hidden tests, no patch (label control=before)
 *   after, twice base + source change + hidden tests
 * FAIL_TO_PASS = passed in both runs after and not before; PASS_TO_PASS = passed in all three. An id
 * that differs between the two runs after is unsteady: left out and named. The final record takes
 * the draft's place; when there is none to make, whatever stood under the id before is put back.
 */
#include "rollout/cli/eval.h"
#include "rollout/cli/print.h"
#include "base/own.h"
#include "repos/repos.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#define PROBLEM_MAX    ((size_t)1 << 20)
#define TEST_ID_MAX    4096             /* what a record may hold: repos/task.c */
#define NAMED_MAX      20
#define DRAFT_SPLIT    "draft"          /* until its ids are known: `assay tasks ls` leaves it out */

const struct cli_option cmd_mine_options[] = {
    { "repo", 0, "DIR", "the git repository (required)" },
    { "base", 0, "REV", "revision before the change (required)" },
    { "head", 0, "REV", "revision after the change (required)" },
    { "cmd", 0, "COMMAND", "shell command that runs the tests at the repository's root (required)" },
    { "id", 0, "ID", "id of the task; default: made from the repository's name and the change" },
    { "reader", 0, "R", "auto (default), pytest, tap or exit" },
    { "timeout", 0, "S", "seconds for the tests; default 300" },
    { "memory-mb", 0, "N", "memory for the tests in MiB; default 2048" },
    { "problem", 0, "FILE", "problem statement" },
    { "split", 0, "NAME", "which split the task belongs to" },
    { "out", 0, "FILE", "append the record to this JSONL file" },
    { 0 },
};

int import_task(struct cli *c, const struct task *t, const char *repos_dir, struct err *err)
{
    own_buf line = { 0 };
    own_buf request = { 0 };
    own_buf answer = { 0 };
    struct import_view v;
    int rc = task_write_json(&line, t, err);
    if (rc == 0)
        rc = buf_add(&line, "\n", 1, err);
    if (rc == 0)
        rc = ask_import(&request, line.data, line.len, repos_dir, t->id, 1, false, err);
    if (rc == 0)
        rc = cli_call(c, METHOD_IMPORT, &request, &answer, err);
    if (rc == 0)
        rc = view_import(&v, &c->arena, &answer, err);
    if (rc < 0)
        return rc;
    if (v.failure_count > 0)
        return err_set(err, ERR_BAD_INPUT, "%s", record_fault(v.failures[0].message, t->id));
    for (uint32_t i = 0; i < v.notes.count; i++)
        cli_say(c, "note: %s", v.notes.items[i]);
    return 0;
}

struct mining {
    struct cli *c;
    struct task task;
    const char *repos_dir;
    struct change_split split;
    struct verdict_view before, after[2];
    const char **unsteady; uint32_t unsteady_count;
};

static int no_memory(struct err *err)
{
    return err_set(err, ERR_LIMIT, "out of memory");
}

/* --- the draft --- */

static int draft_id(struct mining *m, const char *name, struct err *err)
{
    const char *id = cli_value(m->c, "id");
    if (id == NULL) {
        struct digest d;
        char hex[DIGEST_HEX_SIZE];
        struct digest_ctx ctx;
        digest_start(&ctx);
        digest_add_str(&ctx, m->split.base_commit);
        digest_add_str(&ctx, m->split.patch);
        digest_add_str(&ctx, m->split.test_patch);
        digest_finish(&ctx, &d);
        digest_hex(hex, &d);
        id = arena_printf(&m->c->arena, "%s-%.8s-%.8s", name, m->split.base_commit, hex);
    }
    m->task.id = id;
    return id != NULL ? 0 : no_memory(err);
}

static int make_draft(struct mining *m, struct err *err)
{
    struct cli *c = m->c;
    static const char *const needed[] = { "repo", "base", "head", "cmd" };
    for (size_t i = 0; i < 4; i++)
        if (cli_value(c, needed[i]) == NULL || cli_value(c, needed[i])[0] == '\0')
            return err_set(err, ERR_USAGE, "--%s is needed", needed[i]);
    double timeout_s;
    uint64_t memory_mb;
    int rc = cli_seconds(c, "timeout", &timeout_s, err);
    if (rc == 0)
        rc = cli_number(c, "memory-mb", 16, 1048576, 2048, &memory_mb, err);
    if (rc < 0)
        return rc;
    own_buf problem = { 0 };
    if (cli_value(c, "problem") != NULL)
        rc = cli_read_file(&problem, cli_value(c, "problem"), PROBLEM_MAX, err);
    if (rc < 0)
        return rc;

    own_mem char *real = realpath(cli_value(c, "repo"), NULL);
    if (real == NULL)
        return err_sys(err, ERR_BAD_INPUT, "--repo %s", cli_value(c, "repo"));
    char *dir = arena_strdup(&c->arena, real);
    if (dir == NULL)
        return no_memory(err);
    char *slash = strrchr(dir, '/');
    if (slash == NULL || slash[1] == '\0')
        return err_set(err, ERR_BAD_INPUT, "--repo %s: want the repository's directory", dir);
    rc = mine_split(&m->split, &c->arena, real, cli_value(c, "base"), cli_value(c, "head"), err);
    if (rc < 0)
        return rc;
    if (m->split.patch[0] == '\0')
        return err_set(err, ERR_BAD_INPUT, "%s..%s changes no source file: there is nothing to fix", cli_value(c, "base"),
                       cli_value(c, "head"));
    const char *name = slash + 1, *reader = cli_value(c, "reader"), *split = cli_value(c, "split");
    *slash = '\0';
    m->repos_dir = slash == dir ? "/" : dir;
    m->task = (struct task){
        .repo = name, .base_commit = m->split.base_commit, .patch = m->split.patch, .test_patch = m->split.test_patch,
        .problem_statement = problem.len > 0 ? arena_strndup(&c->arena, (const char *)problem.data, problem.len) : "",
        .test_cmd = cli_value(c, "cmd"), .reader = reader != NULL ? reader : "auto", .environment = "host",
        .profile = "strict",
        .split = split != NULL ? split : "", .timeout_s = timeout_s > 0 ? timeout_s : 300, .memory_mb = memory_mb,
        .extra_json = "{}", .base_tree = "",
    };
    if (m->task.problem_statement == NULL)
        return no_memory(err);
    return draft_id(m, name, err);
}

/* --- the runs --- */

/* Tests that do not pass with the fix in place: what they said is all there is to go by. */
static void say_end(const struct verdict_view *v)
{
    fputs("  run      ", stderr);
    print_str(stderr, v->run_end[0] != '\0' ? v->run_end : "not begun");
    fprintf(stderr, ", %s: ", v->outcome);
    print_str(stderr, v->reason);
    fputc('\n', stderr);
    if (v->output_len > 0)
        print_output_end(stderr, v);
    else
        fputs("  it printed nothing\n", stderr);
}

static int run_once(struct mining *m, const char *what, const char *patch, bool before, struct verdict_view *out,
                    struct err *err)
{
    struct label_view label = { "control", before ? "before" : "after" };
    struct evaluate_ask q = { .task_id = m->task.id, .patch = (const uint8_t *)patch, .patch_len = strlen(patch),
                              .fresh = true, .labels = &label, .label_count = 1 };
    struct evaluate_view v;
    int rc = evaluate_patch(m->c, &q, &v, err);
    if (rc < 0)
        return rc;
    *out = v.verdict;
    cli_say(m->c, "%s: %s, %u tests seen, %.1f s", what, out->outcome, out->test_count, (double)out->timings.run_ns / 1e9);
    if (strcmp(out->outcome, "infra_error") == 0 || strcmp(out->outcome, "cancelled") == 0)
        return err_set(err, ERR_INTERNAL, "%s: no verdict: %s", what, out->reason);
    if (!before && strcmp(out->outcome, "resolved") != 0 && strcmp(out->outcome, "unresolved") != 0) {
        say_end(out);
        return err_set(err, ERR_BAD_INPUT, "%s: %s: %s", what, out->outcome, out->reason);
    }
    return 0;
}

/* --- the ids --- */

static json_t *passed_set(const struct verdict_view *v)
{
    json_t *o = json_object();
    for (uint32_t i = 0; o != NULL && i < v->test_count; i++)
        json_object_set_new(o, v->tests[i].id, json_boolean(strcmp(v->tests[i].status, "PASSED") == 0));
    return o;
}

/* What a record may not hold can't be required. */
static bool id_fits(const char *id)
{
    size_t n = strlen(id);
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)id[i] < 0x20 || id[i] == 0x7f)
            return false;
    return n > 0 && n <= TEST_ID_MAX;
}

static int sort_ids(struct mining *m, struct err *err)
{
    uint32_t most = m->after[0].test_count + m->after[1].test_count + 1;
    const char **f2p = arena_alloc(&m->c->arena, most * sizeof *f2p), **p2p = arena_alloc(&m->c->arena, most * sizeof *p2p);
    m->unsteady = arena_alloc(&m->c->arena, most * sizeof *m->unsteady);
    json_t *before = passed_set(&m->before), *first = passed_set(&m->after[0]), *second = passed_set(&m->after[1]);
    int rc = 0;
    if (f2p == NULL || p2p == NULL || m->unsteady == NULL || before == NULL || first == NULL || second == NULL)
        rc = no_memory(err);
    for (uint32_t i = 0; rc == 0 && i < m->after[0].test_count; i++) {
        const char *id = m->after[0].tests[i].id;
        bool passed = json_is_true(json_object_get(first, id)), again = json_is_true(json_object_get(second, id));
        if (passed != again || !id_fits(id))
            m->unsteady[m->unsteady_count++] = id;
        else if (passed && json_is_true(json_object_get(before, id)))
            p2p[m->task.pass_to_pass.count++] = id;
        else if (passed)
            f2p[m->task.fail_to_pass.count++] = id;
    }
    for (uint32_t i = 0; rc == 0 && i < m->after[1].test_count; i++) {
        const char *id = m->after[1].tests[i].id;
        if (json_is_true(json_object_get(second, id)) && json_object_get(first, id) == NULL)
            m->unsteady[m->unsteady_count++] = id;
    }
    m->task.fail_to_pass.items = f2p;
    m->task.pass_to_pass.items = p2p;
    json_decref(before);
    json_decref(first);
    json_decref(second);
    return rc;
}

static void name_unsteady(const struct mining *m)
{
    for (uint32_t i = 0; i < m->unsteady_count; i++) {
        if (i == NAMED_MAX) {
            cli_say(m->c, "and %u more left out", m->unsteady_count - i);
            return;
        }
        fputs("assay: left out, not the same in two runs or no printable id: ", stderr);
        print_str(stderr, m->unsteady[i]);
        fputc('\n', stderr);
    }
}

static int mine_ids(struct mining *m, struct err *err)
{
    int rc = run_once(m, "before", "", true, &m->before, err);
    if (rc == 0)
        rc = run_once(m, "after", m->task.patch, false, &m->after[0], err);
    if (rc == 0)
        rc = run_once(m, "after, again", m->task.patch, false, &m->after[1], err);
    if (rc == 0)
        rc = sort_ids(m, err);
    if (rc < 0)
        return rc;
    name_unsteady(m);
    if (m->task.fail_to_pass.count + m->task.pass_to_pass.count == 0) {
        say_end(&m->after[1]);
        return err_set(err, ERR_BAD_INPUT, "no test passes after the change: no record made; does --cmd run them?");
    }
    if (m->task.fail_to_pass.count == 0)
        return err_set(err, ERR_BAD_INPUT, "no test fails before the change and passes after it (%u pass in both): "
                       "no record made", m->task.pass_to_pass.count);
    return 0;
}

/* --- the record --- */

static int append_record(const struct task *t, const char *path, struct err *err)
{
    own_buf line = { 0 };
    int rc = task_write_json(&line, t, err);
    if (rc == 0)
        rc = buf_add(&line, "\n", 1, err);
    if (rc < 0)
        return rc;
    own_fd fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (fd < 0)
        return err_sys(err, ERR_BAD_INPUT, "--out %s", path);
    for (size_t done = 0; done < line.len; ) {
        ssize_t n = write(fd, line.data + done, line.len - done);
        if (n < 0 && errno != EINTR)
            return err_sys(err, ERR_SYS, "--out %s", path);
        done += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

static int give_record(struct mining *m, struct err *err)
{
    struct cli *c = m->c;
    const char *path = cli_value(c, "out");
    json_t *record = NULL;
    int rc = path != NULL ? append_record(&m->task, path, err) : 0;
    if (rc == 0 && (c->json || path == NULL)) {
        rc = json_task(&record, &m->task, err);
        if (rc == 0)
            rc = print_json(stdout, record, c->json, err);
    }
    if (rc == 0)
        cli_say(c, "task %s: %u fail to pass, %u pass to pass, %u left out%s%s", m->task.id, m->task.fail_to_pass.count,
                m->task.pass_to_pass.count, m->unsteady_count, path != NULL ? "; appended to " : "", path != NULL ? path : "");
    return rc;
}

int cmd_mine(struct cli *c, struct err *err)
{
    struct mining m = { .c = c };
    int rc = make_draft(&m, err);
    if (rc < 0)
        return rc;
    struct task earlier;
    struct err probe = { 0 };
    bool had = fetch_task(c, m.task.id, true, &earlier, &probe) == 0;
    if (!had && probe.code != ERR_NOT_FOUND) {
        *err = probe;
        return probe.code;
    }
    const char *split = m.task.split;
    m.task.split = DRAFT_SPLIT;
    rc = import_task(c, &m.task, m.repos_dir, err);
    if (rc < 0)
        return err_in(err, "draft of %s", m.task.id);
    rc = mine_ids(&m, err);
    m.task.split = split;
    if (rc == 0)
        rc = import_task(c, &m.task, m.repos_dir, err);
    if (rc < 0) {
        if (!had)
            cli_say(c, "the draft stays in the catalog as %s (`assay tasks ls --drafts%s` has it)", m.task.id,
                    cli_retype(c, (const char *[]){ "state", "server" }, 2));
        else if (import_task(c, &earlier, m.repos_dir, &probe) < 0)
            cli_say(c, "the earlier record of %s could not be put back: %s", m.task.id, probe.msg);
        return rc;
    }
    return give_record(&m, err);
}
