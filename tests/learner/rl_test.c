/*
 * The whole loop against a bandit in place of the server: tasks whose right option is known.
 * What must hold: the mean reward of the last quarter of steps beats the first quarter by 0.2 for
 * several seeds, and does not when nothing is learnt.
 */
#include "base/own.h"
#include "learner/backend.h"
#include "learner/rl.h"
#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { TASKS = 8, OPTIONS = 16 };
struct bandit { int absent_every; size_t judged; };

static uint32_t right_option(size_t task) { return (uint32_t)(task * 5 + 3) % OPTIONS; }

static int judge(void *arg, struct rl_round *r, struct err *err)
{
    struct bandit *b = arg;
    (void)err;
    for (size_t i = 0; i < r->n; i++) {
        struct rl_episode *e = &r->episodes[i];
        e->answered = true;
        e->sample = (struct sample){ .tokens = e->tokens, .logprobs = e->logprobs, .mask = e->mask, .n = e->n,
                                     .choice_count = r->tasks[e->task].choice.n_options };
        e->has_reward = b->absent_every == 0 || ++b->judged % (size_t)b->absent_every != 0;
        e->reward = e->choice == right_option(e->task);
    }
    return 0;
}

/* Prompts as a person would write them: most of the text is the same, the task's own words differ. */
static size_t make_tasks(struct rl_task *out, struct arena *a)
{
    static const char *const names[TASKS] = { "area", "clamp", "sum_even", "is_leap", "median", "count_words", "gcd", "title" };
    for (size_t i = 0; i < TASKS; i++) {
        const char *json = arena_printf(a, "{\"choice\": {\"prompt\": \"File lib/%s.py, function %s is wrong and its test fails. "
            "Choose the line that makes tests/test_%s.py pass.\\nAnswer:\", "
            "\"options\": [\"0\",\"1\",\"2\",\"3\",\"4\",\"5\",\"6\","
            "\"7\",\"8\",\"9\",\"10\",\"11\",\"12\",\"13\",\"14\",\"15\"], \"prefix\": \"+\", \"suffix\": \"\\n\"}}", names[i],
                names[i], names[i]);
        struct err err = { 0 };
        out[i].id = names[i];
        assert_int_equal(choice_read(&out[i].choice, a, json, 512, &err), 1);
    }
    return TASKS;
}

static void progress(const char *line) { if (getenv("V") != NULL) fprintf(stderr, "%s\n", line); }

static void quarters(const struct rl_result *r, double *first, double *last)
{
    size_t q = r->steps / 4;
    *first = *last = 0;
    for (size_t i = 0; i < q; i++) {
        *first += r->reports[i].reward_mean / (double)q;
        *last += r->reports[r->steps - 1 - i].reward_mean / (double)q;
    }
}

static struct rl_result run(struct rl_config c, int absent_every)
{
    own_arena a = { 0 };
    struct rl_task tasks[TASKS];
    size_t n = make_tasks(tasks, &a);
    struct bandit b = { .absent_every = absent_every };
    struct collective *self;
    struct rl_result r;
    struct err err = { 0 };
    c.run = "bandit";
    assert_int_equal(collective_self_open(&self, &err), 0);
    int rc = rl_run(&r, &c, tasks, n, &(struct rl_world){ .arg = &b, .judge = judge }, self, progress, &err);
    if (rc < 0)
        fprintf(stderr, "%s\n", err.msg);
    assert_int_equal(rc, 0);
    assert_int_equal(collective_close(self, &err), 0);
    return r;
}

static void rl_run__learns_with_every_seed(void **state)
{
    (void)state;
    /* for trying other settings by hand */
    const char *lr = getenv("LR"), *epochs = getenv("EPOCHS"), *seeds = getenv("SEEDS"), *entropy = getenv("ENTROPY");
    for (uint64_t seed = 1; seed <= (seeds == NULL ? 3 : strtoull(seeds, NULL, 10)); seed++) {
        struct rl_config c = rl_config_default();
        c.seed = seed;
        if (lr != NULL)
            c.lr = atof(lr);
        if (epochs != NULL)
            c.epochs = (uint32_t)atoi(epochs);
        if (entropy != NULL)
            c.entropy = atof(entropy);
        struct rl_result r = run(c, 0);
        double first, last;
        quarters(&r, &first, &last);
        fprintf(stderr, "seed %" PRIu64 ": reward %.3f -> %.3f\n", seed, first, last);
        assert_true(last > first + 0.2 || seeds != NULL);
        assert_int_equal(r.version, 33);
        free(r.reports);
    }
}

static void rl_run__learns_although_every_fifth_reward_is_absent(void **state)
{
    (void)state;
    struct rl_config c = rl_config_default();
    struct rl_result r = run(c, 5);
    double first, last;
    quarters(&r, &first, &last);
    assert_true(last > first + 0.2);
    assert_true(r.reports[0].absent >= 12 && r.reports[0].absent + r.reports[0].scored == 64);
    free(r.reports);
}

static void rl_run__without_learning_nothing_rises(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 3; seed++) {
        struct rl_config c = rl_config_default();
        c.seed = seed;
        c.learning = false;
        struct rl_result r = run(c, 0);
        double first, last;
        quarters(&r, &first, &last);
        assert_true(last < first + 0.1);
        assert_int_equal(r.version, 1);
        free(r.reports);
    }
}

int main(void)
{
    struct err err = { 0 };
    if (backend_open(0, 1, &err) < 0)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rl_run__learns_with_every_seed), cmocka_unit_test(rl_run__learns_although_every_fifth_reward_is_absent),
        cmocka_unit_test(rl_run__without_learning_nothing_rises),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
