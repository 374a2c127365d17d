/*
 * learner.c - assay-learner: training as a client of the server.
 *
 * Theory: rl.h is the loop, source.h the server's side of it, train.h one update, model.h the net.
 * This file picks a verb and says, once, what failed; exit statuses are those of base/err.c.
 */
#include "learner/cmd.h"
#include <signal.h>
#include <stdio.h>
#include <string.h>

static const struct cmd verbs[] = {
    { "rl", "learn online: the policy's tokens choose the patch, the server's tests are the reward", cmd_rl },
    { "sft", "learn from given prompts and answers", cmd_sft },
};
#define VERBS (sizeof verbs / sizeof verbs[0])

static void usage(FILE *to)
{
    fprintf(to, "usage: assay-learner VERB [options]\n\n");
    for (size_t i = 0; i < VERBS; i++)
        fprintf(to, "  %-8s %s\n", verbs[i].name, verbs[i].help);
    fprintf(to, "\nassay-learner VERB --help lists the options.\n");
}

int main(int argc, char **argv)
{
    struct err err = { 0 };
    int rc = ERR_USAGE;
    signal(SIGPIPE, SIG_IGN);
    if (argc >= 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "help") == 0)) {
        usage(stdout);
        return 0;
    }
    const struct cmd *verb = NULL;
    for (size_t i = 0; argc >= 2 && i < VERBS; i++)
        if (strcmp(argv[1], verbs[i].name) == 0)
            verb = &verbs[i];
    if (verb != NULL) {
        rc = verb->run(argc - 1, argv + 1, &err);
    } else if (argc < 2) {
        err_set(&err, ERR_USAGE, "a verb is missing: rl or sft; see assay-learner --help");
    } else {
        char quoted[64];
        err_quote(quoted, sizeof quoted, argv[1], strlen(argv[1]));
        err_set(&err, ERR_USAGE, "unknown verb \"%s\": want rl or sft", quoted);
    }
    if (rc < 0)
        fprintf(stderr, "assay-learner: error: %s (%s)\n", err.msg, err_info(err.code)->name);
    return rc < 0 ? err_info(err.code)->exit_status : 0;
}
