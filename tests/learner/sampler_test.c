/* The sampler: the same logits as the trainer's, however the tokens were fed; choices stay in their range. */
#include "learner/sampler.h"
#include "learner/backend.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static const struct model_config small = { .vocab = 40, .dim = 16, .hidden = 24, .layers = 2, .heads = 4, .kv_heads = 2,
                                           .context = 16, .eps = 1e-5, .theta = 10000 };
static const uint32_t tokens[10] = { 1, 5, 39, 0, 7, 7, 2, 30, 11, 4 };

static struct model *make(void)
{
    struct model *m;
    struct err err = { 0 };
    assert_int_equal(model_new(&m, &small, 16, 16, &err), 0);
    assert_int_equal(model_init_weights(m, 2, &err), 0);
    return m;
}

static void sampler_feed__equals_the_trainer_however_it_is_fed(void **state)
{
    (void)state;
    struct err err = { 0 };
    struct model *m = make();
    struct sampler *s;
    const uint32_t starts[2] = { 0, 10 }, rows[1] = { 9 };
    assert_int_equal(sampler_new(&s, m, &err), 0);
    assert_int_equal(model_forward(m, &(struct model_input){ tokens, 10, starts, 1, rows, 1 }, &err), 0);
    real logits[40];
    backend_download(logits, m->logits, sizeof logits);
    const size_t splits[] = { 10, 1, 3, 9 };
    for (size_t k = 0; k < 4; k++) {
        sampler_reset(s);
        for (size_t at = 0; at < 10; at += splits[k])
            assert_int_equal(sampler_feed(s, tokens + at, at + splits[k] > 10 ? 10 - at : splits[k], &err), 0);
        for (size_t i = 0; i < small.vocab; i++)
            assert_true(fabs((double)(sampler_logits(s)[i] - logits[i])) < 1e-5);
    }
    assert_int_equal(sampler_feed(s, tokens, 7, &err), ERR_LIMIT);      /* 10 + 7 > 16 */
    sampler_free(s);
    model_free(m);
}

static void sampler_pick__stays_in_its_range_with_its_probabilities(void **state)
{
    (void)state;
    struct err err = { 0 };
    struct model *m = make();
    struct sampler *s;
    struct rng r = rng_of(1, 2, 3, 4);
    enum { N = 20000, FIRST = 30, COUNT = 5 };
    double seen[COUNT] = { 0 }, p[COUNT] = { 0 }, total = 0;
    assert_int_equal(sampler_new(&s, m, &err), 0);
    assert_int_equal(sampler_feed(s, tokens, 10, &err), 0);
    for (int i = 0; i < N; i++) {
        uint32_t token;
        float lp;
        assert_int_equal(sampler_pick(s, (struct sampler_range){ FIRST, COUNT }, 0.5, &r, &token, &lp, &err), 0);
        assert_true(token >= FIRST && token < FIRST + COUNT && lp <= 0 && isfinite(lp));
        seen[token - FIRST]++;
        p[token - FIRST] = exp((double)lp);
    }
    for (int i = 0; i < COUNT; i++) {
        total += p[i];
        assert_true(fabs(seen[i] / N - p[i]) < 5 * sqrt(p[i] * (1 - p[i]) / N) + 1e-9);     /* five sigma */
    }
    assert_true(fabs(total - 1) < 1e-5);                    /* normalised over the range */
    uint32_t best;
    float lp;
    assert_int_equal(sampler_pick(s, (struct sampler_range){ 0, 0 }, 0, &r, &best, &lp, &err), 0);
    for (uint32_t i = 0; i < small.vocab; i++)
        assert_true(sampler_logits(s)[i] <= sampler_logits(s)[best]);
    assert_int_equal(sampler_pick(s, (struct sampler_range){ 38, 3 }, 1, &r, &best, &lp, &err), ERR_USAGE);
    sampler_free(s);
    model_free(m);
}

int main(void)
{
    struct err err = { 0 };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sampler_feed__equals_the_trainer_however_it_is_fed),
        cmocka_unit_test(sampler_pick__stays_in_its_range_with_its_probabilities),
    };
    return backend_open(0, 1, &err) < 0 || cmocka_run_group_tests(tests, NULL, NULL);
}
