/* Packing: shared prompts are fed once, absent rewards not at all, malformed samples are named. And the choices of a task. */
#include "learner/batch.h"
#include "learner/choice.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static const float lps[5] = { 0, 0, 0, -1, -2 };
static const uint8_t mask[5] = { 0, 0, 0, 1, 1 }, last[5] = { 0, 0, 0, 0, 1 };

static void batch_pack__feeds_a_shared_prompt_once(void **state)
{
    (void)state;
    const uint32_t a[5] = { 9, 8, 7, 6, 1 }, b[5] = { 9, 8, 7, 6, 2 }, c[5] = { 9, 8, 7, 5, 2 };
    const struct sample s[] = {
        { a, lps, last, 5, 0, 4, 0.5, true }, { b, lps, last, 5, 0, 4, 9, false }, { b, lps, last, 5, 0, 4, -0.5, true },
        { c, lps, mask, 5, 0, 0, 1, true } };
    struct err err = { 0 };
    own_buf bytes = { 0 };
    struct batch v;
    assert_int_equal(batch_pack(&bytes, s, 4, 10, 4, &err), 0);
    assert_int_equal(batch_view(&v, &bytes, &err), 0);
    assert_true(v.n_seqs == 2 && v.n_tokens == 8 && v.n_rows == 4);
    assert_true(v.starts[1] == 4 && v.row_starts[1] == 2 && v.row_starts[2] == 4);
    assert_true(v.rows[0].token == 3 && v.rows[0].pick.target == 1 && v.rows[0].pick.count == 4 && v.rows[0].advantage == 0.5);
    assert_true(v.rows[1].token == 3 && v.rows[1].pick.target == 2 && v.rows[1].advantage == -0.5);
    assert_true(v.rows[2].token == 6 && v.rows[2].pick.target == 5 && v.rows[2].pick.count == 10 && v.rows[2].behaviour == -1);
    assert_true(v.rows[3].token == 7 && v.rows[3].behaviour == -2);
    bytes.len--;
    assert_int_equal(batch_view(&v, &bytes, &err), ERR_CORRUPT);
}

static void batch_pack__names_a_malformed_sample(void **state)
{
    (void)state;
    const uint32_t ok[5] = { 9, 8, 7, 6, 1 }, high[5] = { 9, 8, 10, 6, 1 }, outside[5] = { 9, 8, 7, 6, 5 };
    const float nan_lp[5] = { 0, 0, 0, 0, NAN }, positive[5] = { 0, 0, 0, 0, 0.5f };
    const uint8_t first[5] = { 1, 0, 0, 0, 0 };
    const struct sample bad[] = {
        { high, lps, last, 5, 0, 4, 0, true }, { outside, lps, last, 5, 0, 4, 0, true }, { ok, nan_lp, last, 5, 0, 4, 0, true },
        { ok, positive, last, 5, 0, 4, 0, true }, { ok, lps, first, 5, 0, 0, 0, true }, { ok, lps, last, 5, 8, 4, 0, true },
        { ok, lps, last, 1, 0, 4, 0, true }, };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct err err = { 0 };
        own_buf bytes = { 0 };
        const struct sample s[2] = { { ok, lps, last, 5, 0, 4, 0, true }, bad[i] };
        assert_int_equal(batch_pack(&bytes, s, 2, 10, 5, &err), ERR_BAD_INPUT);
        assert_non_null(strstr(err.msg, "sample 1"));
    }
}

static void choice_read__takes_the_choices_and_names_what_is_wrong(void **state)
{
    (void)state;
    own_arena a = { 0 };
    struct err err = { 0 };
    struct choice c;
    assert_int_equal(choice_read(&c, &a, "", 512, &err), 0);
    assert_int_equal(choice_read(&c, &a, "{\"other\": 1}", 512, &err), 0);
    assert_int_equal(choice_read(&c, &a,
        "{\"choice\": {\"prompt\": \"ab\xc3\xa9\", \"options\": [\"x\", \"y\"], \"prefix\": \"-p\\n+\","
                                 " \"suffix\": \"\\n\"}}", 512, &err), 1);
    assert_true(c.n_options == 2 && c.n_prompt == 5 && c.prompt[0] == CHOICE_BOS && c.prompt[1] == 64 + 'a' &&
        c.prompt[4] == 64 + 0xa9);
    assert_string_equal(choice_patch(&c, 1, &a), "-p\n+y\n");
    assert_int_equal(choice_read(&c, &a,
        "{\"choice\": {\"prompt\": \"0123456789\", \"options\": [\"x\"], \"prefix\": \"\", \"suffix\": \"\"}}",
                                 7, &err), 1);
    /* both ends */
    assert_true(c.n_prompt == 7 && c.prompt[3] == 64 + '2' && c.prompt[4] == 64 + '7' && c.prompt[6] == 64 + '9');
    static const struct { const char *json, *word; } bad[] = {
        { "{", "extra_json" }, { "{\"choice\": {}}", "options" },
        { "{\"choice\": {\"options\": [\"a\"], \"prefix\": \"\", \"suffix\": \"\"}}", "prompt" },
        { "{\"choice\": {\"prompt\": \"p\", \"options\": [\"a\", 1], \"prefix\": \"\", \"suffix\": \"\"}}", "options[1]" },
        { "{\"choice\": {\"prompt\": \"p\", \"options\": [\"a\"], \"prefix\": 3, \"suffix\": \"\"}}", "prefix" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(choice_read(&c, &a, bad[i].json, 512, &err), ERR_BAD_INPUT);
        assert_non_null(strstr(err.msg, bad[i].word));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batch_pack__feeds_a_shared_prompt_once), cmocka_unit_test(batch_pack__names_a_malformed_sample),
        cmocka_unit_test(choice_read__takes_the_choices_and_names_what_is_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
