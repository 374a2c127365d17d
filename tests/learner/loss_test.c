/* Losses: known values; what is masked or without a reward takes no part. */
#include "learner/loss.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static struct loss_out at(double ratio, double advantage, struct loss_config c)
{
    return loss_policy(&c, &(struct loss_token){ .lp = -1, .behaviour = -1 - log(ratio), .advantage = advantage });
}

static void loss_policy__clipped_ratio(void **state)
{
    (void)state;
    const struct loss_config c = { 0.2, 0.2, 0, 0 };
    const double v[][3] = {                     /* advantage, ratio, loss */
        { 1, 0.5, -0.5 }, { -1, 1, 1 }, { 2, 1.5, -2.4 }, { -1, 1.5, 1.5 }, { -1, 0.5, 0.8 }, { 1, 2, -1.2 } };
    for (size_t i = 0; i < sizeof v / sizeof v[0]; i++)
        assert_true(fabs(at(v[i][1], v[i][0], c).loss - v[i][2]) < 1e-12);
    assert_true(at(2, 1, c).dlp == 0 && at(0.5, -1, c).dlp == 0);       /* clipped: no gradient */
    assert_true(fabs(at(1.1, 1, c).dlp + 1.1) < 1e-12);
    struct loss_out wild = at(1e30, 1, c);
    assert_true(isfinite(wild.loss) && wild.dlp == 0);
}

static void loss_policy__k3(void **state)
{
    (void)state;
    const double v[][2] = { { 0, 0.7183 }, { -15, 13 }, { -1, 0 } };    /* reference, k3 at lp -1 */
    for (size_t i = 0; i < 3; i++) {
        struct loss_out o = loss_policy(&(struct loss_config){ 0.2, 0.2, 1, 0 },
                                        &(struct loss_token){ .lp = -1, .behaviour = -1, .reference = v[i][0] });
        assert_true(fabs(o.loss - v[i][1]) < 1e-3);
    }
}

static void loss_policy__without_a_reward_there_is_no_loss_of_any_kind(void **state)
{
    (void)state;
    struct loss_out o = loss_policy(&(struct loss_config){ 0.2, 0.28, 0.5, 0.5 },
        &(struct loss_token){ .lp = -3, .entropy = 1, .behaviour = NAN, .reference = NAN, .advantage = NAN, .masked = true });
    assert_true(o.loss == 0 && o.dlp == 0 && o.dentropy == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loss_policy__clipped_ratio), cmocka_unit_test(loss_policy__k3),
        cmocka_unit_test(loss_policy__without_a_reward_there_is_no_loss_of_any_kind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
