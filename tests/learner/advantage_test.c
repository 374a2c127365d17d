/* Advantages: the tables for groups without spread and for groups with samples that have no reward. */
#include "learner/advantage.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

struct row { const char *rewards; size_t n; double r[8]; bool has[8]; double want[8]; double tolerance; };

static void advantage_grpo__population_table(void **state)
{
    (void)state;
    const double tenth = 0.1f;                  /* as a 32-bit float came over the wire */
    const struct row table[] = {
        { "1 1 1 1", 4, { 1, 1, 1, 1 }, { 1, 1, 1, 1 }, { 0, 0, 0, 0 }, 0 },
        { "0.1 x 7", 7, { tenth, tenth, tenth, tenth, tenth, tenth, tenth }, { 1, 1, 1, 1, 1, 1, 1 }, { 0 }, 0 },
        { "rounding noise", 3, { 0.1, 0.1f, 0.1 }, { 1, 1, 1 }, { 0 }, 0 },
        { "one scored", 4, { 1, 0, 0, 0 }, { 1, 0, 0, 0 }, { 0 }, 0 },
        { "none scored", 2, { 0, 0 }, { 0, 0 }, { 0 }, 0 },
        { "1 0 0 1", 4, { 1, 0, 0, 1 }, { 1, 1, 1, 1 }, { 1, -1, -1, 1 }, 1e-3 },
        { "1 0 0 0", 4, { 1, 0, 0, 0 }, { 1, 1, 1, 1 }, { 1.7321, -0.5774, -0.5774, -0.5774 }, 1e-3 },
        { "1 0 absent 0", 4, { 1, 0, 77, 0 }, { 1, 1, 0, 1 }, { 1.4142, -0.7071, 0, -0.7071 }, 1e-3 },
    };
    for (size_t k = 0; k < sizeof table / sizeof table[0]; k++) {
        double a[8];
        struct advantage_group g = advantage_grpo(a, table[k].r, table[k].has, table[k].n, true);
        for (size_t i = 0; i < table[k].n; i++) {
            assert_true(isfinite(a[i]));
            assert_true(fabs(a[i] - table[k].want[i]) <= table[k].tolerance);
        }
        assert_int_equal(g.has_spread, table[k].tolerance > 0);
    }
}

static void advantage_grpo__absent_is_not_zero(void **state)
{
    (void)state;
    double a[4];
    struct advantage_group g = advantage_grpo(a, (double[]){ 1, 0, NAN, 0 }, (bool[]){ 1, 1, 0, 1 }, 4, false);
    assert_int_equal(g.scored, 3);
    assert_true(fabs(g.mean - 1.0 / 3) < 1e-12 && fabs(g.std - 0.471405) < 1e-6);
    assert_true(fabs(a[0] - 0.6667) < 1e-3 && fabs(a[1] + 0.3333) < 1e-3 && fabs(a[3] + 0.3333) < 1e-3 && a[2] == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(advantage_grpo__population_table), cmocka_unit_test(advantage_grpo__absent_is_not_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
