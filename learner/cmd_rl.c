/* cmd_rl.c - assay-learner rl: online learning against a server. */
#include "base/clock.h"
#include "base/own.h"
#include "learner/backend.h"
#include "learner/checkpoint.h"
#include "learner/cmd.h"
#include "learner/options.h"
#include "learner/source.h"
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>

static void json_done(json_t **j) { json_decref(*j); }
#define own_json __attribute__((cleanup(json_done))) json_t

static void progress(const char *line)
{
    fprintf(stderr, "assay-learner: %s\n", line);
}

static int print_result(const struct rl_config *c, const struct rl_result *r, size_t n_tasks, struct err *err)
{
    json_t *reward = json_array(), *scored = json_array(), *absent = json_array(), *loss = json_array();
    for (uint64_t i = 0; i < r->steps; i++) {
        const struct rl_step_report *p = &r->reports[i];
        json_array_append_new(reward, isnan(p->reward_mean) ? json_null() : json_real(p->reward_mean));
        json_array_append_new(scored, json_integer((json_int_t)p->scored));
        json_array_append_new(absent, json_integer((json_int_t)p->absent));
        json_array_append_new(loss, json_real(p->loss));
    }
    own_json *all = json_pack("{s:s, s:I, s:o, s:o, s:o, s:I, s:s, s:I, s:o, s:b}", "run", c->run, "steps", (json_int_t)r->steps,
        "reward_mean", reward, "scored", scored, "absent", absent, "policy_version", (json_int_t)r->version, "out", c->out_dir,
        "tasks", (json_int_t)n_tasks, "loss", loss, "learning", (int)c->learning);
    own_mem char *text = all == NULL ? NULL : json_dumps(all, JSON_REAL_PRECISION(9));
    if (text == NULL || puts(text) < 0 || fflush(stdout) != 0)
        return err_set(err, ERR_SYS, "the result cannot be written to stdout");
    return 0;
}

/* Rank 0: tasks, the server's idea of the run, then the loop. */
static int lead(struct rl_config *c, struct source_config *sc, struct collective *ranks, struct err *err)
{
    own_arena arena = { 0 };
    struct source *s = NULL;
    struct rl_task *tasks = NULL;
    struct rl_result r;
    size_t n = 0;
    uint64_t current = 0;
    sc->ranks = ranks;
    int rc = source_open(&s, sc, err);
    if (rc < 0)
        return rc;
    if ((rc = source_tasks(s, &tasks, &n, &arena, c->context, err)) == 0 && n == 0)
        rc = err_set(err, ERR_NOT_FOUND, "--tasks %s: no task with this prefix has a \"choice\" among its fields", sc->tasks);
    if (rc == 0)
        rc = source_current(s, &current, err);
    if (rc == 0 && !c->resume && current != 0)
        rc = err_set(err, ERR_EXISTS,
            "--run %s: the server has version %" PRIu64 " of it; pass --resume to go on, or another --run",
                     c->run, current);
    if (rc == 0)
        rc = source_begin(s, c->first_cursor, err);
    if (rc == 0) {
        struct rl_world world = source_world(s);
        rc = rl_run(&r, c, tasks, n, &world, ranks, progress, err);
    }
    source_close(s);
    if (rc < 0)
        return rc;
    rc = print_result(c, &r, n, err);
    free(r.reports);
    return rc;
}

int cmd_rl(int argc, char **argv, struct err *err)
{
    struct rl_config c = rl_config_default();
    struct source_config sc = { 0 };
    const char *out_dir = NULL, *format = "json";
    uint64_t steps = c.steps, group = c.group, seed = c.seed, ranks_n = 1, per_step = 0, epochs = c.epochs, limit_s = 10,
        patience_s = 600;
    bool help = false;
    const struct option_row rows[] = {
        { "--server", OPTION_TEXT, &sc.address, 0, 0, "ADDRESS  unix:/path or host:port of assayd" },
        { "--tasks", OPTION_TEXT, &sc.tasks, 0, 0, "PREFIX   tasks whose id begins so and that have a \"choice\"" },
        { "--run", OPTION_TEXT, &sc.run, 0, 0, "NAME     names the policy; one per server and --out" },
        { "--out", OPTION_TEXT, &out_dir, 0, 0, "DIR      checkpoint and policy versions go there" },
        { "--steps", OPTION_COUNT, &steps, 1, 1e6, "N        updates; default 32" },
        { "--group", OPTION_COUNT, &group, 1, 512, "G        samples of one task in one step; default 8" },
        { "--batch", OPTION_COUNT, &per_step, 0, 4096, "N        tasks in one step; default all, at most 64" },
        { "--seed", OPTION_COUNT, &seed, 0, 1.8e19, "S        of weights and samples; default 1" },
        { "--lr", OPTION_NUMBER, &c.lr, 0, 1, "X        learning rate of AdamW; default 0.001" },
        { "--epochs", OPTION_COUNT, &epochs, 1, 64, "N        passes over one batch; default 6" },
        { "--temperature", OPTION_NUMBER, &c.temperature, 0.01, 100, "X        of sampling; default 1" },
        { "--kl", OPTION_NUMBER, &c.kl, 0, 1e3, "X        weight of the KL term against the sampling policy; default 0" },
        { "--entropy", OPTION_NUMBER, &c.entropy, 0, 1e3, "X        weight of the entropy bonus; default 0.01" },
        { "--ranks", OPTION_COUNT, &ranks_n, 1, 64, "N        processes that train together; default 1" },
        { "--peer-limit", OPTION_COUNT, &limit_s, 1, 3600,
            "S        seconds without a sign of a rank that end the run; default 10" },
        { "--patience", OPTION_COUNT, &patience_s, 1, 86400,
            "S        seconds without a sign of the server that end the run; default 600" },
        { "--no-learning", OPTION_FLAG_OFF, &c.learning, 0, 0, "         sample and judge only: the control" },
        { "--resume", OPTION_FLAG, &c.resume, 0, 0, "         go on from the checkpoint in --out" },
        { "-o", OPTION_TEXT, &format, 0, 0, "json     format of the result on stdout" },
        { "--help", OPTION_FLAG, &help, 0, 0, "         this text" },
        { 0 },
    };
    int rc = options_read(rows, argc, argv, err);
    if (rc < 0)
        return rc;
    if (help) {
        options_help("assay-learner rl --server ADDRESS --tasks PREFIX --run NAME --out DIR [options]", rows);
        return 0;
    }
    for (int i = 0; i < 4; i++)
        if (*(const char **)rows[i].to == NULL)
            return err_set(err, ERR_USAGE, "rl: %s is missing; see assay-learner rl --help", rows[i].name);
    if (strcmp(format, "json") != 0)
        return err_set(err, ERR_USAGE, "-o \"%.32s\": want json", format);
    if (c.lr == 0)
        return err_set(err, ERR_USAGE, "--lr 0: want a rate above 0, or --no-learning");
    if (!c.resume && checkpoint_exists(out_dir))
        return err_set(err, ERR_EXISTS, "--out %s: holds a checkpoint; pass --resume to go on, or another --out", out_dir);
    c.run = sc.run;
    c.out_dir = out_dir;
    c.steps = steps;
    c.group = (uint32_t)group;
    c.seed = seed;
    c.tasks_per_step = (uint32_t)per_step;
    c.epochs = (uint32_t)epochs;
    sc.patience_ns = patience_s * NS_PER_S;
    if (c.resume && (rc = checkpoint_peek(out_dir, &c.first_cursor, err)) < 0)
        return err_in(err, "--resume");

    struct collective *control, *ranks;
    rc = ranks_n == 1 ? collective_self_open(&control, err)
                      : collective_shm_spawn(&control, (int)ranks_n, limit_s * NS_PER_S, err);
    if (rc < 0)
        return rc;
    ranks = control;
    if ((rc = backend_open(ranks->rank % backend_device_count(), 1, err)) == 0)
        rc = collective_device_open(&ranks, control, err);
    if (rc == 0) {
        struct rl_result none;
        rc = ranks->rank == 0 ? lead(&c, &sc, ranks, err) : rl_run(&none, &c, NULL, 0, NULL, ranks, NULL, err);
        if (rc == 0 && ranks->rank != 0)
            free(none.reports);
    }
    if (rc < 0 && rc != ERR_LOST && ranks->rank != 0)       /* that message names the rank itself */
        (void)err_in(err, "rank %d", ranks->rank);
    struct err late = { 0 };
    int end = collective_close(ranks, &late);
    backend_close();
    if (rc == 0 && end < 0) {
        *err = late;
        rc = end;
    }
    return rc;
}
