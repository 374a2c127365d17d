/* report_exit.c - a command is its own test: one id, `command`, PASSED exactly when it ended by itself with status 0. */
#include "rollout/report.h"

int report_read_exit(struct report *out, struct arena *a, const struct report_input *in, struct err *err)
{
    const struct run_facts *run = in->run;
    struct report_builder b = { .a = a };
    bool passed = run->exited && run->exit_code == 0;
    bool cut_off = run->ended_by_limit != 0;
    char *message = passed || cut_off ? "" : arena_printf(a, "%s", run->run_end != NULL ? run->run_end : "");
    int rc = report_add(&b, "command", passed ? TEST_PASSED : cut_off ? TEST_MISSING : TEST_FAILED, message, "exit_status",
                        (double)run->wall_ns / 1e9, err);
    if (rc < 0)
        return rc;
    *out = (struct report){
        .reader = "exit/1", .tests = b.tests, .test_count = b.count, .complete = !cut_off,
        .note = cut_off ? "the command did not end by itself" : "",
    };
    return 0;
}
