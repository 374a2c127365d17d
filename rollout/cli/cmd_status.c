/* cmd_status.c - `assay status`: what the server is doing. Looks only, starts nothing. */
#include "rollout/cli/cli.h"
#include "rollout/cli/print.h"
#include "rollout/cli/view.h"

int status_ask(struct status_view *out, struct cli *c, struct err *err)
{
    own_buf request = { 0 };
    own_buf answer = { 0 };
    int rc = ask_status(&request, err);
    if (rc == 0)
        rc = cli_call(c, METHOD_STATUS, &request, &answer, err);
    return rc < 0 ? rc : view_status(out, &c->arena, &answer, err);
}

int cmd_status(struct cli *c, struct err *err)
{
    int running = cli_connect_running(c, err);
    if (running < 0)
        return running;
    const char *where = c->server != NULL ? c->server : c->state;
    if (running == 0) {
        if (c->json)
            return print_json(stdout, json_pack("{s:b,s:s}", "running", 0, "state", where), true, err);
        fputs("no server is running for ", stdout);
        print_str(stdout, where);
        puts("; the next command that needs one starts it");
        return 0;
    }
    struct status_view s;
    int rc = status_ask(&s, c, err);
    if (rc < 0)
        return rc;
    if (c->json)
        return print_json(stdout, json_pack("{s:b,s:s,s:I,s:I,s:I,s:I,s:I,s:o}", "running", 1, "state", where,
                          "slots", (json_int_t)s.slots, "slots_busy", (json_int_t)s.slots_busy,
                          "queue_len", (json_int_t)s.queue_len, "queue_max", (json_int_t)s.queue_max,
                          "log_next_cursor", (json_int_t)s.log_next_cursor, "version", json_str(s.version)), true, err);
    fputs("server for ", stdout);
    print_str(stdout, where);
    fputs(", version ", stdout);
    print_str(stdout, s.version);
    printf("\n  slots    %u of %u busy\n  queue    %u of %u\n  log      next cursor %llu\n", s.slots_busy, s.slots,
           s.queue_len, s.queue_max, (unsigned long long)s.log_next_cursor);
    return 0;
}
