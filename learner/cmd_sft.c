/*
 * cmd_sft.c - assay-learner sft: learn to continue prompts with given answers.
 *
 * The data is JSON lines {"prompt": text, "completion": text}; tokens are bytes (choice.h). Every rank
 * reads the file and draws the same examples from the same random state, which the checkpoint keeps:
 * a resumed run goes on bit for bit.
 */
#include "base/arena.h"
#include "base/clock.h"
#include "base/own.h"
#include "learner/backend.h"
#include "learner/checkpoint.h"
#include "learner/choice.h"
#include "learner/cmd.h"
#include "learner/options.h"
#include "learner/rng.h"
#include "learner/train.h"
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <string.h>

#define TOKENS_MAX 4096
#define LINE_MAX_BYTES ((size_t)1 << 20)

static void json_done(json_t **j) { json_decref(*j); }
#define own_json __attribute__((cleanup(json_done))) json_t

struct sft {
    const char *data, *out_dir;
    uint64_t steps, batch, seed, context, save_every;
    double lr;
    bool resume;
    struct sample *samples;             /* in the arena */
    size_t n, room;
    struct arena arena;
};

static int add_example(struct sft *s, const char *line, size_t len, size_t number, struct err *err)
{
    json_error_t at;
    own_json *j = json_loadb(line, len, JSON_REJECT_DUPLICATES, &at);
    const char *text[2] = { json_string_value(json_object_get(j, "prompt")),
                            json_string_value(json_object_get(j, "completion")) };
    if (text[0] == NULL || text[1] == NULL || text[1][0] == '\0')
        return err_set(err, ERR_BAD_INPUT, "%s:%zu: want {\"prompt\": text, \"completion\": text of at least one byte}",
            s->data, number);
    size_t prompt = strlen(text[0]), n = 1 + prompt + strlen(text[1]);
    if (n - 1 > s->context)
        return err_set(err, ERR_BAD_INPUT, "%s:%zu: %zu tokens, --context is %" PRIu64, s->data, number, n, s->context);
    uint32_t *tokens = arena_alloc(&s->arena, n * sizeof *tokens);
    float *lps = arena_alloc(&s->arena, n * sizeof *lps);
    uint8_t *mask = arena_alloc(&s->arena, n);
    if (s->n == s->room) {
        s->room = s->room == 0 ? 256 : 2 * s->room;
        struct sample *more = realloc(s->samples, s->room * sizeof *more);
        if (more == NULL)
            return err_set(err, ERR_LIMIT, "%s: no memory for %zu examples", s->data, s->room);
        s->samples = more;
    }
    if (tokens == NULL || lps == NULL || mask == NULL)
        return err_set(err, ERR_LIMIT, "%s:%zu: out of memory", s->data, number);
    tokens[0] = CHOICE_BOS;
    for (size_t i = 1; i < n; i++) {
        tokens[i] = CHOICE_BYTE_FIRST + (uint8_t)(i <= prompt ? text[0][i - 1] : text[1][i - 1 - prompt]);
        mask[i] = i > prompt;
    }
    s->samples[s->n++] = (struct sample){ .tokens = tokens, .logprobs = lps, .mask = mask, .n = n, .has_reward = true };
    return 0;
}

static int read_data(struct sft *s, struct err *err)
{
    own_file f = fopen(s->data, "re");
    if (f == NULL)
        return err_sys(err, errno == ENOENT ? ERR_NOT_FOUND : ERR_SYS, "--data %s", s->data);
    own_mem char *line = NULL;
    size_t room = 0, number = 0;
    for (ssize_t len; (len = getline(&line, &room, f)) >= 0; ) {
        number++;
        if ((size_t)len > LINE_MAX_BYTES)
            return err_set(err, ERR_LIMIT, "%s:%zu: a line of %zd bytes", s->data, number, len);
        while (len > 0 && (line[len - 1] == '\n' || line[len - 1] == '\r'))
            len--;
        int rc = len == 0 ? 0 : add_example(s, line, (size_t)len, number, err);
        if (rc < 0)
            return rc;
    }
    if (s->n == 0)
        return err_set(err, ERR_BAD_INPUT, "--data %s: no example in it", s->data);
    return 0;
}

static int one_step(const struct sft *s, struct trainer *t, struct rng *r, struct train_stats *stats, struct err *err)
{
    own_buf bytes = { .max = (size_t)1 << 30 };
    own_mem struct sample *drawn = malloc(s->batch * sizeof *drawn);
    struct batch b;
    int rc;
    if (drawn == NULL)
        return err_set(err, ERR_LIMIT, "sft: no memory for a batch of %" PRIu64, s->batch);
    for (uint64_t i = 0; i < s->batch; i++)
        drawn[i] = s->samples[rng_next(r) % s->n];
    if ((rc = batch_pack(&bytes, drawn, s->batch, CHOICE_VOCAB, (uint32_t)s->context, err)) < 0 ||
        (rc = batch_view(&b, &bytes, err)) < 0)
        return rc;
    return train_batch(t, &b, stats, err);
}

static int train(const struct sft *s, struct model *m, struct collective *ranks, json_t *losses, struct err *err)
{
    struct optimizer_config oc = OPTIMIZER_DEFAULT;
    struct trainer t;
    oc.lr = s->lr;
    int rc = trainer_init(&t, m, &oc, ranks, err);
    if (rc < 0)
        return rc;
    t.sft = true;
    struct rng r = rng_of(s->seed, 0x5f7, 0, 0);
    uint64_t step = 0;
    if (s->resume) {
        struct checkpoint_state st;
        char run[64];
        if ((rc = checkpoint_load(s->out_dir, m, &t.optimizer, &st, run, sizeof run, err)) == 0) {
            free((char *)(uintptr_t)st.history);
            step = st.step;
            r.state = st.rng;
        }
    }
    while (rc == 0 && step < s->steps) {
        struct train_stats stats;
        ranks->step = step + 1;
        if ((rc = one_step(s, &t, &r, &stats, err)) < 0)
            break;
        step++;
        if (ranks->rank != 0)
            continue;
        fprintf(stderr, "assay-learner: step %" PRIu64 "/%" PRIu64 ": loss %.4f, %zu tokens\n", step, s->steps, stats.loss,
            stats.tokens);
        json_array_append_new(losses, json_real(stats.loss));
        if (step % s->save_every == 0 || step == s->steps)
            rc = checkpoint_save(s->out_dir, m, &t.optimizer, &(struct checkpoint_state){ .step = step, .seed = s->seed,
                                 .rng = r.state, .run = "sft" }, err);
    }
    if (rc == 0 && ranks->rank == 0) {
        struct checkpoint_version v;
        rc = checkpoint_export(&v, s->out_dir, m, step, "sft", err);
    }
    trainer_done(&t);
    return rc;
}

static int run(struct sft *s, struct collective *ranks, struct err *err)
{
    const struct { uint32_t dim, hidden, layers, heads, kv_heads; } shape = { 64, 176, 2, 4, 2 };
    const struct model_config mc = { .vocab = CHOICE_VOCAB, .dim = shape.dim, .hidden = shape.hidden, .layers = shape.layers,
        .heads = shape.heads, .kv_heads = shape.kv_heads, .context = (uint32_t)s->context, .eps = 1e-5, .theta = 10000 };
    struct model *m = NULL;
    own_json *losses = json_array();
    int rc;
    if ((rc = model_new(&m, &mc, TOKENS_MAX, TOKENS_MAX, err)) == 0 && (rc = model_init_weights(m, s->seed, err)) == 0)
        rc = train(s, m, ranks, losses, err);
    model_free(m);
    if (rc == 0 && ranks->rank == 0) {
        own_json *all = json_pack("{s:s, s:I, s:O, s:s, s:I}", "run", "sft", "steps", (json_int_t)s->steps, "loss", losses, "out",
                                  s->out_dir, "examples", (json_int_t)s->n);
        own_mem char *text = json_dumps(all, JSON_REAL_PRECISION(9));
        if (text == NULL || puts(text) < 0 || fflush(stdout) != 0)
            return err_set(err, ERR_SYS, "the result cannot be written to stdout");
    }
    return rc;
}

int cmd_sft(int argc, char **argv, struct err *err)
{
    struct sft s = { .steps = 100, .batch = 8, .seed = 1, .context = 512, .save_every = 1, .lr = 1e-3 };
    uint64_t ranks_n = 1, limit_s = 10;
    bool help = false;
    const struct option_row rows[] = {
        { "--data", OPTION_TEXT, &s.data, 0, 0, "FILE     JSON lines {\"prompt\", \"completion\"}" },
        { "--out", OPTION_TEXT, &s.out_dir, 0, 0, "DIR      checkpoint and weights go there" },
        { "--steps", OPTION_COUNT, &s.steps, 1, 1e9, "N        updates; default 100" },
        { "--batch", OPTION_COUNT, &s.batch, 1, 4096, "N        examples in one update; default 8" },
        { "--seed", OPTION_COUNT, &s.seed, 0, 1.8e19, "S        of weights and order; default 1" },
        { "--context", OPTION_COUNT, &s.context, 2, TOKENS_MAX, "N        tokens of the longest example; default 512" },
        { "--save-every", OPTION_COUNT, &s.save_every, 1, 1e9, "N        steps between checkpoints; default 1" },
        { "--lr", OPTION_NUMBER, &s.lr, 1e-9, 1, "X        learning rate of AdamW; default 0.001" },
        { "--ranks", OPTION_COUNT, &ranks_n, 1, 64, "N        processes that train together; default 1" },
        { "--peer-limit", OPTION_COUNT, &limit_s, 1, 3600,
            "S        seconds without a sign of a rank that end the run; default 10" },
        { "--resume", OPTION_FLAG, &s.resume, 0, 0, "         go on from the checkpoint in --out" },
        { "--help", OPTION_FLAG, &help, 0, 0, "         this text" },
        { 0 },
    };
    int rc = options_read(rows, argc, argv, err);
    if (rc < 0)
        return rc;
    if (help) {
        options_help("assay-learner sft --data FILE.jsonl --out DIR [options]", rows);
        return 0;
    }
    if (s.data == NULL || s.out_dir == NULL)
        return err_set(err, ERR_USAGE, "sft: %s is missing; see assay-learner sft --help", s.data == NULL ? "--data" : "--out");
    if (!s.resume && checkpoint_exists(s.out_dir))
        return err_set(err, ERR_EXISTS, "--out %s: holds a checkpoint; pass --resume to go on, or another --out", s.out_dir);
    if ((rc = read_data(&s, err)) == 0) {
        struct collective *control = NULL, *ranks = NULL;
        rc = ranks_n == 1 ? collective_self_open(&control, err)
                          : collective_shm_spawn(&control, (int)ranks_n, limit_s * NS_PER_S, err);
        ranks = control;
        if (rc == 0) {
            if ((rc = backend_open(ranks->rank % backend_device_count(), 1, err)) == 0 &&
                (rc = collective_device_open(&ranks, control, err)) == 0)
                rc = run(&s, ranks, err);
            if (rc < 0 && rc != ERR_LOST && ranks->rank != 0)       /* that message names the rank itself */
                (void)err_in(err, "rank %d", ranks->rank);
            struct err late = { 0 };
            if (collective_close(ranks, &late) < 0 && rc == 0) {
                *err = late;
                rc = late.code;
            }
            backend_close();
        }
    }
    free(s.samples);
    arena_done(&s.arena);
    return rc;
}
