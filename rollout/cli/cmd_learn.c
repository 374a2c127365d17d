/*
 * cmd_learn.c - `assay learn`: run assay-learner against the server and pass its exit status on.
 *
 * We stay while it runs: our connection and lifeline keep a private server alive, and one that is
 * lost is started again at the same address, where the learner looks for it. Ctrl-C reaches the
 * learner through the terminal; a SIGTERM to us is handed on to it, and our death ends it.
 */
#include "rollout/cli/cli.h"
#include "rollout/cli/view.h"
#include "base/own.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

const struct cli_option cmd_learn_options[] = {
    { "tasks", 0, "PREFIX", "learn on the tasks whose ids begin so (required)" },
    { "run", 0, "NAME", "name of the run: its policy versions and files (required)" },
    { "out", 0, "DIR", "weights and checkpoints; default STATE/runs/NAME" },
    { "steps", 0, "N", "update steps" },
    { "group", 0, "N", "episodes of one task in one step" },
    { "seed", 0, "N", "seed of everything random" },
    { "ranks", 0, "N", "learner processes" },
    { "lr", 0, "X", "learning rate; default 0.001" },
    { "resume", 0, NULL, "go on from the run's checkpoint" },
    { "no-learning", 0, NULL, "sample and evaluate, never update: the control" },
    { 0 },
};

#define LEARN_ARGS_MAX 96
#define LOOK_AFTER_MS  2000             /* how often to see that our server is there */

static volatile sig_atomic_t learner_pid;
static void hand_on(int sig)
{
    if (learner_pid > 0)
        kill((pid_t)learner_pid, sig);
}

static int make_out(struct cli *c, const char **out, struct err *err)
{
    const char *dir = cli_value(c, "out"), *run = cli_value(c, "run");
    if (dir != NULL) {
        *out = dir;
        return 0;
    }
    if (c->server != NULL && !c->state_chosen)
        return err_set(err, ERR_USAGE, "--out DIR (or --state DIR) is needed with --server: where the weights go");
    const char *runs = arena_printf(&c->arena, "%s/runs", c->state);
    *out = arena_printf(&c->arena, "%s/runs/%s", c->state, run);
    if (runs == NULL || *out == NULL)
        return err_set(err, ERR_LIMIT, "out of memory");
    if ((mkdir(c->state, 0711) < 0 && errno != EEXIST) || (mkdir(runs, 0755) < 0 && errno != EEXIST))
        return err_sys(err, ERR_UNAVAILABLE, "%s", runs);
    return 0;
}

/* A call finds or starts a server if the one before is gone. What fails is tried again, or the learner gives up. */
static void look_after_server(struct cli *c)
{
    struct err ignored = { 0 };
    own_buf request = { 0 };
    own_buf answer = { 0 };
    if (ask_status(&request, &ignored) < 0 || cli_call(c, METHOD_STATUS, &request, &answer, &ignored) < 0)
        cli_say(c, "server: %s", ignored.msg);
}

static int wait_for(struct cli *c, pid_t pid, struct err *err)
{
    int status = 0;
    learner_pid = pid;
    own_fd pid_fd = (int)syscall(SYS_pidfd_open, pid, 0);
    struct pollfd p = { .fd = pid_fd, .events = POLLIN };
    while (c->server == NULL && pid_fd >= 0 && poll(&p, 1, LOOK_AFTER_MS) <= 0)
        look_after_server(c);
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return err_sys(err, ERR_SYS, "waiting for assay-learner");
    learner_pid = 0;
    if (WIFEXITED(status))
        return WEXITSTATUS(status);
    return err_set(err, ERR_LOST, "assay-learner was ended by signal %d", WTERMSIG(status));
}

static int check_rate(const char *text, struct err *err)
{
    if (text == NULL)
        return 0;
    char *end, quoted[64];
    double v = strtod(text, &end);
    if (text[0] != '\0' && *end == '\0' && v > 0 && v <= 1)
        return 0;
    err_quote(quoted, sizeof quoted, text, strlen(text));
    return err_set(err, ERR_USAGE, "--lr `%s`: want a rate above 0, at most 1", quoted);
}

int cmd_learn(struct cli *c, struct err *err)
{
    const char *tasks = cli_value(c, "tasks"), *run = cli_value(c, "run"), *out = NULL, *program = NULL;
    if (tasks == NULL || run == NULL)
        return err_set(err, ERR_USAGE, "--tasks PREFIX and --run NAME are needed");
    if (run[0] == '\0' || run[0] == '.' || strchr(run, '/') != NULL || strlen(run) > 100)
        return err_set(err, ERR_USAGE, "--run: want a plain name of at most 100 bytes without `/`");
    static const char *const numbers[] = { "steps", "group", "seed", "ranks" };
    for (size_t i = 0; i < 4; i++) {
        uint64_t v;
        int rc = cli_number(c, numbers[i], strcmp(numbers[i], "seed") == 0 ? 0 : 1, INT64_MAX, 1, &v, err);
        if (rc < 0)
            return rc;
    }
    int rc = check_rate(cli_value(c, "lr"), err);
    if (rc == 0)
        rc = server_program(&program, &c->arena, "assay-learner", err);
    if (rc == 0)
        rc = cli_connect(c, err);
    if (rc == 0)
        rc = make_out(c, &out, err);
    if (rc < 0)
        return rc;

    const char *argv[LEARN_ARGS_MAX + 1];
    size_t n = 0;
    const char *fixed[] = { program, "rl", "--server", cli_address(c), "--tasks", tasks, "--run", run, "--out", out };
    for (size_t i = 0; i < sizeof fixed / sizeof fixed[0]; i++)
        argv[n++] = fixed[i];
    for (size_t i = 0; i < 4; i++)
        if (cli_value(c, numbers[i]) != NULL) {
            argv[n++] = arena_printf(&c->arena, "--%s", numbers[i]);
            argv[n++] = cli_value(c, numbers[i]);
        }
    if (cli_value(c, "lr") != NULL) {
        argv[n++] = "--lr";
        argv[n++] = cli_value(c, "lr");
    }
    if (cli_flag(c, "resume"))
        argv[n++] = "--resume";
    if (cli_flag(c, "no-learning"))
        argv[n++] = "--no-learning";
    if (c->json) {
        argv[n++] = "-o";
        argv[n++] = "json";
    }
    for (uint32_t i = 0; i < c->arg_count && n < LEARN_ARGS_MAX; i++)
        argv[n++] = c->args[i];
    argv[n] = NULL;

    /* Ctrl-C is for the learner to end its step by; we wait for that. */
    signal(SIGINT, SIG_IGN);
    signal(SIGQUIT, SIG_IGN);
    struct sigaction term = { .sa_handler = hand_on };
    sigaction(SIGTERM, &term, NULL);
    pid_t parent = getpid();
    pid_t pid = fork();
    if (pid < 0)
        return err_sys(err, ERR_SYS, "fork");
    if (pid == 0) {
        signal(SIGINT, SIG_DFL);
        signal(SIGQUIT, SIG_DFL);
        signal(SIGTERM, SIG_DFL);
        signal(SIGPIPE, SIG_DFL);
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        const char *through = strstr(argv[3], "/proc/self/fd/");
        if (through != NULL)                    /* a socket named through our directory descriptor: hand it on */
            fcntl(atoi(through + strlen("/proc/self/fd/")), F_SETFD, 0);
        if (getppid() == parent)
            execv(program, (char *const *)(uintptr_t)argv);
        _exit(71);
    }
    return wait_for(c, pid, err);
}
