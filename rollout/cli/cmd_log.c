/* cmd_log.c - `assay log ls|cat`: the trajectory log. */
#include "rollout/cli/eval.h"
#include "rollout/cli/print.h"
#include <errno.h>
#include <string.h>

#define LIST_PAGE 1000
#define TAIL_MAX  100000

const struct cli_option cmd_log_ls_options[] = {
    { "cursor", 0, "N", "begin here; default 0, the beginning" },
    { "limit", 0, "N", "at most so many; default 100" },
    { "tail", 0, "N", "the newest N instead" },
    { "task", 0, "ID", "only this task" },
    { 0 },
};
const struct cli_option cmd_log_cat_options[] = {
    { "cursor", 0, "N", "begin here; default 0, the beginning" },
    { "limit", 0, "N", "at most so many; default: all" },
    { "task", 0, "PREFIX", "only tasks whose id begins so" },
    { "follow", 'f', NULL, "wait for more at the end" },
    { 0 },
};

static void print_row(const struct trajectory_view *t)
{
    char reward[32];
    printf("%8llu  %s  ", (unsigned long long)t->cursor, t->episode_id);
    print_time(stdout, t->finished_unix_ns);
    printf("  %-13s %5s  ", t->verdict.outcome, reward_text(reward, &t->verdict));
    print_str(stdout, t->task_id);
    puts(t->verdict.cached ? "  (cached)" : "");
}

static int list_page(struct cli *c, struct arena *a, struct trajectories_view *page, uint64_t cursor, uint32_t limit,
                     const char *task, struct err *err)
{
    own_buf request = { 0 };
    own_buf answer = { 0 };
    int rc = ask_trajectories(&request, cursor, limit, task, err);
    if (rc == 0)
        rc = cli_call(c, METHOD_LIST, &request, &answer, err);
    if (rc == 0)
        rc = view_trajectories(page, a, &answer, err);
    return rc;
}

/*
 * The cursor at which the newest `want` begin. The log is read forwards only, and not every record need be an episode of
 * the task: guess how far back they lie, and look from farther back while there are too few.
 */
static int tail_start(struct cli *c, const char *task, uint64_t want, uint64_t *out, struct err *err)
{
    struct status_view s;
    int rc = status_ask(&s, c, err);
    if (rc < 0)
        return rc;
    uint64_t *last = arena_alloc(&c->arena, want * sizeof *last);      /* a ring */
    if (last == NULL)
        return err_set(err, ERR_LIMIT, "out of memory");
    for (uint64_t back = want; ; back *= 4) {
        uint64_t from = s.log_next_cursor > back ? s.log_next_cursor - back : 0, at = from, seen = 0;
        for (bool more = true; more; ) {
            own_arena a = { 0 };
            struct trajectories_view page;
            rc = list_page(c, &a, &page, at, LIST_PAGE, task, err);
            if (rc < 0)
                return rc;
            for (size_t i = 0; i < page.count; i++)
                last[seen++ % want] = page.items[i].cursor;
            more = page.next_cursor > at;
            at = page.next_cursor;
        }
        if (seen < want && from > 0)
            continue;
        *out = seen == 0 ? s.log_next_cursor : last[seen < want ? 0 : seen % want];
        return 0;
    }
}

int cmd_log_ls(struct cli *c, struct err *err)
{
    static const char *const again[] = { "limit", "task", "state", "server" };
    uint64_t cursor, limit, tail, count = 0;
    const char *task = cli_value(c, "task") != NULL ? cli_value(c, "task") : "";
    int rc = cli_number(c, "cursor", 0, INT64_MAX, 0, &cursor, err);
    if (rc == 0)
        rc = cli_number(c, "limit", 1, UINT32_MAX, 100, &limit, err);
    if (rc == 0)
        rc = cli_number(c, "tail", 1, TAIL_MAX, 0, &tail, err);
    if (rc == 0 && tail > 0 && (cli_value(c, "cursor") != NULL || cli_value(c, "limit") != NULL))
        return err_set(err, ERR_USAGE, "--tail goes without --cursor and --limit");
    if (rc == 0 && tail > 0)
        rc = tail_start(c, task, limit = tail, &cursor, err);
    if (rc < 0)
        return rc;
    json_t *rows = json_array();
    bool more = true;
    while (rc == 0 && more && count < limit) {
        own_arena a = { 0 };
        struct trajectories_view page;
        uint64_t want = limit - count < LIST_PAGE ? limit - count : LIST_PAGE;
        rc = list_page(c, &a, &page, cursor, (uint32_t)want, task, err);
        for (size_t i = 0; rc == 0 && i < page.count; i++) {
            json_t *row = NULL;
            if (!c->json)
                print_row(&page.items[i]);
            else if ((rc = json_trajectory(&row, &page.items[i], false, err)) == 0 && json_array_append_new(rows, row) != 0)
                rc = err_set(err, ERR_LIMIT, "out of memory");
        }
        if (rc == 0) {
            count += page.count;
            /* A server that does not move on would keep us here for ever. */
            more = page.next_cursor > cursor;
            cursor = page.next_cursor;
        }
    }
    if (rc < 0) {
        json_decref(rows);
        return rc;
    }
    if (c->json)
        return print_json(stdout, json_pack("{s:o,s:o}", "episodes", rows, "next_cursor",
                                            more ? json_integer((json_int_t)cursor) : json_null()), true, err);
    json_decref(rows);
    if (more && tail == 0)
        cli_say(c, "there may be more: assay log ls --cursor %llu%s (or --tail N for the newest)", (unsigned long long)cursor,
                cli_retype(c, again, 4));
    else if (count == 0)
        cli_say(c, "no episodes");
    return 0;
}

/* --- cat --- */

struct cat {
    uint64_t next_cursor, left;     /* left: UINT64_MAX for all */
    bool follow;
    const char *task_prefix;
};

static int cat_again(void *arg, struct buf *request, struct err *err)
{
    const struct cat *k = arg;
    return ask_subscribe(request, k->next_cursor, k->follow, k->task_prefix, err);
}

static int cat_next(void *arg, const struct buf *message, struct err *err)
{
    struct cat *k = arg;
    own_arena a = { 0 };
    struct trajectory_view t;
    json_t *o = NULL;
    int rc = view_trajectory(&t, &a, message, err);
    if (rc == 0)
        rc = json_trajectory(&o, &t, true, err);
    if (rc == 0)
        rc = print_json(stdout, o, false, err);
    if (rc == 0 && k->follow && fflush(stdout) != 0)
        rc = print_failed(err);
    if (rc < 0)                             /* a full disk must not look like a lost server */
        return rc == ERR_UNAVAILABLE ? err->code = ERR_SYS : rc;
    k->next_cursor = t.cursor + 1;
    return --k->left == 0;
}

/* One record by its cursor: the first one at or behind it, if it is that one. */
struct pick { uint64_t cursor; struct arena *a; struct trajectory_view *out; bool found; };

static int pick_again(void *arg, struct buf *request, struct err *err)
{
    const struct pick *k = arg;
    return ask_subscribe(request, k->cursor, false, "", err);
}

static int pick_next(void *arg, const struct buf *message, struct err *err)
{
    struct pick *k = arg;
    int rc = view_trajectory(k->out, k->a, message, err);
    if (rc < 0)
        return rc;
    k->found = k->out->cursor == k->cursor;
    return 1;
}

int fetch_trajectory(struct cli *c, const char *name, struct trajectory_view *out, struct err *err)
{
    uint8_t id[16];
    if (view_parse_episode_id(id, name)) {
        own_buf request = { 0 };
        own_buf answer = { 0 };
        int rc = ask_trajectory(&request, id, err);
        if (rc == 0)
            rc = cli_call(c, METHOD_GET, &request, &answer, err);
        if (rc == 0)
            rc = view_trajectory(out, &c->arena, &answer, err);
        return rc;
    }
    char *end = NULL, quoted[96];
    err_quote(quoted, sizeof quoted, name, strlen(name));
    errno = 0;
    uint64_t cursor = name[0] >= '0' && name[0] <= '9' ? strtoull(name, &end, 10) : 0;
    if (end == NULL || *end != '\0' || errno != 0)
        return err_set(err, ERR_USAGE, "`%s`: want an episode id (32 hex digits) or a cursor", quoted);
    struct pick k = { .cursor = cursor, .a = &c->arena, .out = out };
    struct cli_stream s = { METHOD_SUBSCRIBE, pick_again, pick_next, &k };
    int rc = cli_stream(c, &s, err);
    if (rc == 0 && !k.found) {
        err_set(err, ERR_NOT_FOUND, "no trajectory at cursor %s", quoted);
        rc = cli_say_where(c, err);
    }
    return rc;
}

int cmd_log_cat(struct cli *c, struct err *err)
{
    if (c->arg_count == 1) {
        struct trajectory_view t;
        json_t *o = NULL;
        if (cli_value(c, "cursor") != NULL || cli_value(c, "limit") != NULL || cli_flag(c, "follow"))
            return err_set(err, ERR_USAGE, "one episode needs no --cursor, --limit or --follow");
        int rc = fetch_trajectory(c, c->args[0], &t, err);
        if (rc == 0)
            rc = json_trajectory(&o, &t, true, err);
        return rc < 0 ? rc : print_json(stdout, o, false, err);
    }
    const char *prefix = cli_value(c, "task");
    struct cat k = { .follow = cli_flag(c, "follow"), .task_prefix = prefix != NULL ? prefix : "" };
    int rc = cli_number(c, "cursor", 0, INT64_MAX, 0, &k.next_cursor, err);
    if (rc == 0)
        rc = cli_number(c, "limit", 1, INT64_MAX, UINT64_MAX, &k.left, err);
    if (rc < 0)
        return rc;
    struct cli_stream s = { METHOD_SUBSCRIBE, cat_again, cat_next, &k };
    return cli_stream(c, &s, err);
}
