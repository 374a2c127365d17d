/* assay.c - main of the command line: the table of commands, help, and the one place that prints errors. */
#include "rollout/cli/cli.h"
#include "rollout/cli/print.h"
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>

const struct cli_command cli_commands[] = {
    { "tasks", "import", "bring tasks in from a JSONL file", "FILE.jsonl|-", 1, 1, cmd_tasks_import_options,
      "Each line is one task record. Good records are kept when others are bad; each bad one is named\n"
      "as FILE:LINE: id: what is wrong, and the exit status is 65. Records are kept in batches: after an\n"
      "import that was killed, the same command with --resume goes on from there.\n", cmd_tasks_import, true },
    { "tasks", "ls", "list tasks, or search for some", "", 0, 0, cmd_tasks_ls_options,
      "In the order of ids; with --search, or with --language, --split or --task-state but neither --repo nor\n"
      "--prefix, in the order in which tasks came in.\n", cmd_tasks_ls, false },
    { "tasks", "show", "show one task", "ID", 1, 1, cmd_tasks_show_options, "", cmd_tasks_show, false },
    { "tasks", "duplicates", "tasks with the same base tree and the same tests, a group a line", "", 0, 0, cli_no_options, "",
      cmd_tasks_duplicates, false },
    { "eval", NULL, "evaluate a patch against a task's tests", "", 0, 0, cmd_eval_options,
      "Exit status: 0 a verdict was reached, whatever the reward; 64 usage; 65 bad input (unknown task,\n"
      "unreadable or too large patch); 69 no server; 70 our own failure (no reward).\n", cmd_eval, false },
    { "mine", NULL, "make a task from two revisions of a repository", "", 0, 0, cmd_mine_options,
      "The change from base to head is split into source and tests. The tests run before the source\n"
      "change and twice after it: what passes only after becomes FAIL_TO_PASS, what passes in both\n"
      "becomes PASS_TO_PASS, what differs between the two runs after is left out.\n", cmd_mine, true },
    { "log", "ls", "list episodes of the trajectory log", "", 0, 0, cmd_log_ls_options, "", cmd_log_ls, false },
    { "log", "cat", "print trajectories as JSON lines, tokens included", "[EPISODE|CURSOR]", 0, 1, cmd_log_cat_options,
      "Without an argument: every trajectory from --cursor on.\n", cmd_log_cat, false },
    { "replay", NULL, "run an episode's patch again and compare", "EPISODE|CURSOR", 1, 1, cmd_replay_options,
      "Exit status: 0 same outcome, reward and tests; 1 they differ.\n", cmd_replay, false },
    { "learn", NULL, "train a policy online on tasks", "[-- LEARNER OPTIONS]", 0, 64, cmd_learn_options,
      "Starts assay-learner against the server, waits for it and passes its exit status on. Words behind\n"
      "`--` go to assay-learner as they are (`assay-learner rl --help` lists them).\n", cmd_learn, false },
    { "status", NULL, "what the server of the state directory is doing", "", 0, 0, cli_no_options,
      "Looks only: no server is started. Exit status 65 when there is no state.\n", cmd_status, false },
    { "doctor", NULL, "what this machine offers, what is enforced, what to do", "", 0, 0, cli_no_options,
      "Exit status: 0 evaluations can run here; 69 something they need is missing.\n", cmd_doctor, false },
    { "version", NULL, "print the version", "", 0, 0, cli_no_options, "", cmd_version, false },
    { "help", NULL, "show help, or the help of one command", "[COMMAND]", 0, 2, cli_no_options, "", cmd_help, false },
};
const uint32_t cli_command_count = sizeof cli_commands / sizeof cli_commands[0];

void cli_say(const struct cli *c, const char *fmt, ...)
{
    (void)c;
    char line[2048];                    /* may hold what a server or a file name said: printed safely */
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    fputs("assay: ", stderr);
    print_str(stderr, line);
    fputc('\n', stderr);
}

static void print_options(FILE *f, const struct cli_option *o)
{
    for (; o->name != NULL; o++) {
        char left[64];
        snprintf(left, sizeof left, "%c%c%c --%s%s%s", o->letter ? '-' : ' ', o->letter ? o->letter : ' ',
                 o->letter ? ',' : ' ', o->name, o->arg != NULL ? " " : "", o->arg != NULL ? o->arg : "");
        fprintf(f, "  %-28s %s\n", left, o->help);
    }
}

/* One line for each command, or for those of one noun. */
static void print_commands(FILE *f, const char *noun)
{
    for (uint32_t i = 0; i < cli_command_count; i++) {
        if (noun != NULL && strcmp(cli_commands[i].noun, noun) != 0)
            continue;
        char name[32];
        const struct cli_command *k = &cli_commands[i];
        snprintf(name, sizeof name, "%s%s%s", k->noun, k->verb != NULL ? " " : "", k->verb != NULL ? k->verb : "");
        fprintf(f, "  %-16s %s\n", name, k->summary);
    }
}

static void help_all(FILE *f)
{
    fputs("usage: assay COMMAND [OPTIONS]\n\n", f);
    print_commands(f, NULL);
    fputs("\noptions of every command:\n", f);
    print_options(f, cli_common_options);
    fputs("\nNo server is needed: a private one is started for the state directory and ends with its last user.\n"
          "`assay help COMMAND` has the rest; `assay doctor` says what this machine can do.\n", f);
}

/* A noun whose verbs are commands of their own. */
static bool is_noun(const char *word)
{
    for (uint32_t i = 0; i < cli_command_count; i++)
        if (cli_commands[i].verb != NULL && strcmp(cli_commands[i].noun, word) == 0)
            return true;
    return false;
}

static void help_noun(FILE *f, const char *noun)
{
    fprintf(f, "usage: assay %s COMMAND [OPTIONS]\n\n", noun);
    print_commands(f, noun);
    fprintf(f, "\n`assay help %s COMMAND` has the rest.\n", noun);
}

static void help_one(FILE *f, const struct cli_command *k)
{
    fprintf(f, "usage: assay %s%s%s%s%s [OPTIONS]\n\n%s\n", k->noun, k->verb != NULL ? " " : "",
            k->verb != NULL ? k->verb : "", k->args[0] != '\0' ? " " : "", k->args, k->summary);
    if (k->more[0] != '\0')
        fprintf(f, "\n%s", k->more);
    if (k->options->name != NULL) {
        fputs("\noptions:\n", f);
        print_options(f, k->options);
    }
    fputs("\noptions of every command:\n", f);
    print_options(f, cli_common_options);
}

/* The command that the words begin with; *out_words says how many of them name it. */
static const struct cli_command *find(int argc, char **argv, int *out_words)
{
    for (uint32_t i = 0; argc > 0 && i < cli_command_count; i++) {
        const struct cli_command *k = &cli_commands[i];
        if (strcmp(k->noun, argv[0]) != 0)
            continue;
        if (k->verb == NULL || (argc > 1 && strcmp(k->verb, argv[1]) == 0)) {
            *out_words = k->verb == NULL ? 1 : 2;
            return k;
        }
    }
    return NULL;
}

static int refuse_command(int argc, char **argv, struct err *err)
{
    const char *words[32];
    uint32_t count = 0;
    bool noun_known = false;
    for (uint32_t i = 0; i < cli_command_count; i++)
        noun_known |= strcmp(cli_commands[i].noun, argv[0]) == 0;
    for (uint32_t i = 0; i < cli_command_count && count < 32; i++)
        if (!noun_known)
            words[count++] = cli_commands[i].noun;
        else if (strcmp(cli_commands[i].noun, argv[0]) == 0)
            words[count++] = cli_commands[i].verb;
    const char *word = noun_known ? (argc > 1 ? argv[1] : "") : argv[0];
    char quoted[96];
    err_quote(quoted, sizeof quoted, word, strlen(word));
    const char *near = cli_nearest(word, words, count);
    if (argv[0][0] == '-' || (noun_known && word[0] == '-'))
        return err_set(err, ERR_USAGE, "`%s`: options come after the command: assay %s%s [OPTIONS]; try `assay help`", quoted,
                       noun_known ? argv[0] : "COMMAND", noun_known ? " COMMAND" : "");
    if (near != NULL)
        return err_set(err, ERR_USAGE, "no command `%s%s%s`; did you mean `%s%s%s`?", noun_known ? argv[0] : "",
                       noun_known ? " " : "", quoted, noun_known ? argv[0] : "", noun_known ? " " : "", near);
    return err_set(err, ERR_USAGE, "no command `%s%s%s`; try `assay help`", noun_known ? argv[0] : "",
                   noun_known ? " " : "", quoted);
}

int cmd_help(struct cli *c, struct err *err)
{
    if (c->arg_count == 0) {
        help_all(stdout);
        return 0;
    }
    int words = 0;
    char *argv[] = { (char *)(uintptr_t)c->args[0], (char *)(uintptr_t)(c->arg_count > 1 ? c->args[1] : NULL) };
    const struct cli_command *k = find((int)c->arg_count, argv, &words);
    if (k != NULL) {
        help_one(stdout, k);
        return 0;
    }
    if (c->arg_count > 1 || !is_noun(argv[0]))
        return refuse_command((int)c->arg_count, argv, err);
    help_noun(stdout, argv[0]);
    return 0;
}

static int run(struct cli *c, int argc, char **argv, struct err *err)
{
    if (argc < 1) {
        help_all(stderr);
        return err_info(ERR_USAGE)->exit_status;
    }
    if (strcmp(argv[0], "--help") == 0 || strcmp(argv[0], "-h") == 0) {
        help_all(stdout);
        return 0;
    }
    if (is_noun(argv[0]) && (argc == 1 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        help_noun(argc == 1 ? stderr : stdout, argv[0]);
        return argc == 1 ? err_info(ERR_USAGE)->exit_status : 0;
    }
    int words = 0;
    c->command = strcmp(argv[0], "--version") == 0 ? find(1, (char *[]){ (char[]){ "version" } }, &words)
                                                   : find(argc, argv, &words);
    if (c->command == NULL)
        return refuse_command(argc, argv, err);
    int rc = cli_parse(c, argc - words, argv + words, err);
    if (rc < 0)
        return rc;
    if (cli_flag(c, "help")) {
        help_one(stdout, c->command);
        return 0;
    }
    return c->command->run(c, err);
}

int main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN);           /* a lost server or reader is an error with a text, not a death */
    struct cli c = { 0 };
    struct err err = { 0 };
    int rc = run(&c, argc - 1, argv + 1, &err);
    if (rc >= 0 && (fflush(stdout) != 0 || ferror(stdout)))
        rc = print_failed(&err);
    cli_disconnect(&c);                 /* may wait for our server's end: the answer is out already */
    int status = rc;
    if (rc == ERR_CANCELLED && err.sys == EPIPE) {
        status = 0;
    } else if (rc < 0) {
        const char *verb = c.command != NULL && c.command->verb != NULL ? c.command->verb : NULL;
        fflush(stdout);
        fprintf(stderr, "assay%s%s%s%s: ", c.command != NULL ? " " : "", c.command != NULL ? c.command->noun : "",
                verb != NULL ? " " : "", verb != NULL ? verb : "");
        print_text(stderr, err.msg, strlen(err.msg));
        fputc('\n', stderr);
        if (rc == ERR_USAGE && c.command != NULL)
            fprintf(stderr, "try `assay help %s%s%s`\n", c.command->noun, verb != NULL ? " " : "", verb != NULL ? verb : "");
        status = err_info(rc)->exit_status;
    }
    arena_done(&c.arena);
    return status;
}
