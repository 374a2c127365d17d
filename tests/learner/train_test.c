/*
 * One update: without spread it changes no bit, absent rewards change no bit, two ranks equal one,
 * and a micro-batch's size does not matter.
 */
#include "base/own.h"
#include "learner/advantage.h"
#include "learner/train.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <cmocka.h>

static const struct model_config small = { .vocab = 40, .dim = 16, .hidden = 24, .layers = 2, .heads = 4, .kv_heads = 2,
                                           .context = 32, .eps = 1e-5, .theta = 10000 };
enum { GROUPS = 5, G = 4, LEN = 12 };

struct data { uint32_t tokens[GROUPS * G][LEN]; float lps[LEN]; uint8_t mask[LEN]; struct sample s[GROUPS * G]; };

/* Groups of G samples that share a prompt; rewards[i] NAN: absent. */
static void make(struct data *d, const double rewards[GROUPS * G])
{
    memset(d, 0, sizeof *d);
    d->mask[LEN - 1] = 1;
    d->lps[LEN - 1] = -2.0f;
    for (size_t i = 0; i < GROUPS * G; i++) {
        for (size_t j = 0; j < LEN; j++)
            d->tokens[i][j] = (uint32_t)(8 + (i / G * 7 + j * 3) % 30);
        d->tokens[i][LEN - 1] = (uint32_t)(i * 3 % 8);
        d->s[i] = (struct sample){ .tokens = d->tokens[i], .logprobs = d->lps, .mask = d->mask, .n = LEN, .choice_count = 8,
                                   .has_reward = !isnan(rewards[i]) };
    }
    for (size_t g = 0; g < GROUPS; g++) {
        double a[G], r[G];
        bool has[G];
        for (size_t i = 0; i < G; i++) {
            has[i] = !isnan(rewards[g * G + i]);
            r[i] = rewards[g * G + i];
        }
        advantage_grpo(a, r, has, G, true);
        for (size_t i = 0; i < G; i++)
            d->s[g * G + i].advantage = a[i];
    }
}

/* Train `steps` times on the samples; the weights, owned by the caller. */
static real *train(const struct sample *s, size_t n, size_t tokens_max, int steps, struct collective *ranks,
    struct train_stats *stats)
{
    struct model *m;
    struct trainer t;
    struct err err = { 0 };
    const struct optimizer_config oc = OPTIMIZER_DEFAULT;
    own_buf bytes = { 0 };
    struct batch b;
    if (model_new(&m, &small, tokens_max, 64, &err) < 0 || model_init_weights(m, 9, &err) < 0 ||
        trainer_init(&t, m, &oc, ranks, &err) < 0 || batch_pack(&bytes, s, n, small.vocab, small.context, &err) < 0 ||
        batch_view(&b, &bytes, &err) < 0)
        abort();
    t.epochs = 2;
    for (int i = 0; i < steps; i++)
        if (train_batch(&t, &b, stats, &err) < 0) {
            fprintf(stderr, "%s\n", err.msg);
            abort();
        }
    real *w = malloc(m->n_params * sizeof *w);
    backend_download(w, m->weights, m->n_params * sizeof *w);
    trainer_done(&t);
    model_free(m);
    return w;
}

static real *train_alone(const struct sample *s, size_t n, size_t tokens_max, int steps, struct train_stats *stats)
{
    struct collective *self;
    struct err err = { 0 };
    assert_int_equal(collective_self_open(&self, &err), 0);
    real *w = train(s, n, tokens_max, steps, self, stats);
    assert_int_equal(collective_close(self, &err), 0);
    return w;
}

static const double SPREAD[GROUPS * G] = { 1, 0, 0, 1, 0, 0, 0, 1, 1, 1, 1, 1, 0.5, 0.25, 0, 0, 0, 0, 0, 0 };

static void train_batch__without_spread_changes_no_bit(void **state)
{
    (void)state;
    const double tenth = 0.1f, flat[GROUPS * G] = { 1, 1, 1, 1, 0, 0, 0, 0, tenth, tenth, tenth, tenth, 1, NAN, NAN, NAN, NAN,
        NAN, NAN, NAN };
    struct data d;
    struct train_stats stats;
    make(&d, flat);
    own_mem real *before = train_alone(d.s, GROUPS * G, 256, 0, &stats);
    own_mem real *after = train_alone(d.s, GROUPS * G, 256, 3, &stats);
    assert_memory_equal(before, after, model_param_count(&small) * sizeof(real));
    assert_true(isfinite(stats.loss));
    assert_int_equal(stats.steps, 0);
    make(&d, SPREAD);
    own_mem real *moved = train_alone(d.s, GROUPS * G, 256, 3, &stats);
    assert_memory_not_equal(before, moved, model_param_count(&small) * sizeof(real));
    assert_int_equal(stats.steps, 2);
}

static void train_batch__an_absent_reward_is_as_if_never_sampled(void **state)
{
    (void)state;
    double rewards[GROUPS * G];
    struct data d;
    struct train_stats stats;
    memcpy(rewards, SPREAD, sizeof rewards);
    rewards[2] = rewards[7] = rewards[12] = NAN;
    make(&d, rewards);
    struct sample scored[GROUPS * G];
    size_t n = 0;
    for (size_t i = 0; i < GROUPS * G; i++)
        if (d.s[i].has_reward)
            scored[n++] = d.s[i];
    own_mem real *with = train_alone(d.s, GROUPS * G, 256, 3, &stats), *without = train_alone(scored, n, 256, 3, &stats);
    assert_memory_equal(with, without, model_param_count(&small) * sizeof(real));
}

static double distance(const real *a, const real *b, size_t n)
{
    double diff = 0, size = 0;
    for (size_t i = 0; i < n; i++) {
        diff += (double)(a[i] - b[i]) * (double)(a[i] - b[i]);
        size += (double)a[i] * (double)a[i];
    }
    return sqrt(diff / size);
}

static void train_batch__small_micro_batches_equal_one(void **state)
{
    (void)state;
    struct data d;
    struct train_stats stats;
    make(&d, SPREAD);
    own_mem real *one = train_alone(d.s, GROUPS * G, 256, 3, &stats), *many = train_alone(d.s, GROUPS * G, 16, 3, &stats);
    assert_true(distance(one, many, model_param_count(&small)) < 1e-5);
}

/* In a process of its own, because ranks are forked: 2 ranks train, rank 0 leaves its weights in `shared`. */
static void train_with_ranks(real *shared, const struct sample *s, size_t n, int size)
{
    int pid = fork();
    if (pid == 0) {
        struct collective *ranks;
        struct train_stats stats;
        struct err err = { 0 };
        if (collective_shm_spawn(&ranks, size, 20000000000u, &err) < 0)
            _exit(1);
        real *w = train(s, n, 256, 3, ranks, &stats);
        memcpy(shared + (size_t)ranks->rank * model_param_count(&small), w, model_param_count(&small) * sizeof *w);
        free(w);
        _exit(collective_close(ranks, &err) < 0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void train_batch__two_ranks_equal_one(void **state)
{
    (void)state;
    struct data d;
    struct train_stats stats;
    size_t n = model_param_count(&small), bytes = n * sizeof(real);
    make(&d, SPREAD);
    own_mem real *one = train_alone(d.s, GROUPS * G, 256, 3, &stats);
    real *two = mmap(NULL, 6 * bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(two != MAP_FAILED);
    train_with_ranks(two, d.s, GROUPS * G, 2);
    train_with_ranks(two + 2 * n, d.s, GROUPS * G, 2);
    assert_memory_equal(two, two + n, bytes);               /* both ranks hold the same bits */
    assert_memory_equal(two, two + 2 * n, bytes);           /* and the same run gives them again */
    fprintf(stderr, "two ranks against one: relative distance %.2g\n", distance(one, two, n));
    assert_true(distance(one, two, n) < 1e-5);
    train_with_ranks(two, d.s, GROUPS * G, 3);              /* 5 sequences over 3 ranks: uneven */
    assert_true(distance(one, two, n) < 1e-5);
    munmap(two, 6 * bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(train_batch__without_spread_changes_no_bit),
        cmocka_unit_test(train_batch__an_absent_reward_is_as_if_never_sampled),
        cmocka_unit_test(train_batch__small_micro_batches_equal_one), cmocka_unit_test(train_batch__two_ranks_equal_one),
    };
    struct err err = { 0 };
    return backend_open(0, 1, &err) < 0 || cmocka_run_group_tests(tests, NULL, NULL);
}
