/* task_test.c - records read, written, and refused with the wrong field's name. */
#include "tests/repos/repos_test.h"

#define CHOICE "\"choice\":{\"prompt\":\"p\",\"prefix\":\"\",\"suffix\":\"\","
#define HEX64  "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static int read_str(struct task *t, struct arena *a, const char *s, struct err *err) { return task_read_json(t, a, s, strlen(s),
                                                                                          err); }

static void task_read_json__fills_defaults_and_keeps_unknown_fields(void **state)
{
    (void)state;
    own_arena a = { 0 };
    struct task t;
    struct err err = { 0 };
    assert_int_equal(read_str(&t, &a, RECORD_HEAD "\"zeta\":[1,2],\"alpha\":{\"k\":null}," RECORD_TAIL, &err), 0);
    assert_string_equal(t.id, "t-1");
    assert_string_equal(t.reader, "auto");
    assert_string_equal(t.environment, "host");
    assert_true(t.timeout_s == 300.0);
    assert_int_equal(t.memory_mb, 2048);
    assert_string_equal(t.profile, "strict");
    assert_string_equal(t.extra_json, "{\"alpha\":{\"k\":null},\"zeta\":[1,2]}");
    assert_int_equal(t.fail_to_pass.count, 1);
    assert_int_equal(t.pass_to_pass.count, 0);
}

static void task_read_json__takes_ids_in_every_public_shape(void **state)
{
    (void)state;
    static const char *const shapes[] = {
        "\"FAIL_TO_PASS\":[\"x::a [1-2]\",\"\xc3\xa9\"]", "\"FAIL_TO_PASS\":\"[\\\"x::a [1-2]\\\", \\\"\\u00e9\\\"]\"",
        "\"fail_to_pass\":[\"x::a [1-2]\",\"\\u00e9\",\"x::a [1-2]\"]",
    };
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        own_arena a = { 0 };
        struct task t;
        struct err err = { 0 };
        char *s = arena_printf(&a, RECORD_HEAD "%s,\"test_cmd\":\"true\"}", shapes[i]);
        assert_int_equal(read_str(&t, &a, s, &err), 0);
        assert_int_equal(t.fail_to_pass.count, 2);
        assert_string_equal(t.fail_to_pass.items[0], "x::a [1-2]");
        assert_string_equal(t.fail_to_pass.items[1], "\xc3\xa9");
    }
}

static void task_read_json__takes_images_choices_and_others_fields(void **state)
{
    (void)state;
    static const char *const rows[] = {
        "\"environment\":\"" HEX64 "\"", "\"environment\":\"sha256:" HEX64 "\"", "\"environment\":null", "\"choice\":null",
        CHOICE "\"options\":[\"\",\"b\"],\"more\":1}",
        "\"hints_text\":\"\",\"version\":\"1\",\"created_at\":\"\",\"difficulty\":\"\",\"environment_setup_commit\":\"\"",
        "\"role\":\"\",\"ref\":\"\",\"FAIL_TO_FAIL\":[],\"language\":\"\",\"a_field_with_a_name_longer_than_any_of_ours\":1",
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        own_arena a = { 0 };
        struct task t;
        struct err err = { 0 };
        if (read_str(&t, &a, arena_printf(&a, RECORD_HEAD "%s," RECORD_TAIL, rows[i]), &err) != 0)
            fail_msg("row %zu: %s", i, err.msg);
    }
}

static void task_read_json__skips_a_byte_order_mark(void **state)
{
    (void)state;
    own_arena a = { 0 };
    struct task t;
    struct err err = { 0 };
    assert_int_equal(read_str(&t, &a, "\xef\xbb\xbf" RECORD_HEAD RECORD_TAIL, &err), 0);
    assert_int_equal(read_str(&t, &a, "\xef\xbb\xbf", &err), ERR_BAD_INPUT);
}

static void task_read_json__names_the_wrong_field(void **state)
{
    (void)state;
    static const struct { const char *record, *named; } rows[] = {
        { "[]", "want an object" },
        { "{", "not one JSON object" },
        { RECORD_HEAD "\"repo\":\"again\"," RECORD_TAIL, "duplicate" },
        { RECORD_HEAD "\"FAIL_TO_PASS\":[\"a\"]}", "test_cmd is missing" },
        { RECORD_HEAD "\"test_cmd\":\"\",\"FAIL_TO_PASS\":[\"a\"]}", "test_cmd is empty" },
        { RECORD_HEAD "\"fail_to_pass\":[\"a\"]," RECORD_TAIL, "FAIL_TO_PASS is there twice" },
        { RECORD_HEAD "\"PASS_TO_PASS\":[1]," RECORD_TAIL, "PASS_TO_PASS: entry 1" },
        { RECORD_HEAD "\"PASS_TO_PASS\":[\"a\\nb\"]," RECORD_TAIL, "control character: \"a\\nb\"" },
        { RECORD_HEAD "\"PASS_TO_PASS\":\"[oops\"," RECORD_TAIL, "PASS_TO_PASS: a string that is not" },
        { RECORD_HEAD "\"patch\":7," RECORD_TAIL, "patch: want a string, got an integer" },
        { RECORD_HEAD "\"timeout_s\":\"5\"," RECORD_TAIL, "timeout_s: want a number" },
        { RECORD_HEAD "\"timeout_s\":0.05," RECORD_TAIL, "timeout_s" },
        { RECORD_HEAD "\"timeout_s\":86401," RECORD_TAIL, "timeout_s" },
        { RECORD_HEAD "\"memory_mb\":15," RECORD_TAIL, "memory_mb" },
        { RECORD_HEAD "\"memory_mb\":64.5," RECORD_TAIL, "memory_mb" },
        { RECORD_HEAD "\"reader\":\"junit\"," RECORD_TAIL, "reader: \"junit\"" },
        { "{\"instance_id\":\"a\\tb\"," "\"repo\":\"r\"}", "instance_id holds a control" },
        { "{\"instance_id\":\"a/\"," "\"repo\":\"r\"}", "instance_id begins or ends" },
        { "{\"instance_id\":\"a\",\"repo\":\"r\",\"base_commit\":\"HEAD\"}", "base_commit: \"HEAD\"" },
        { "{\"repo\":\"r\"}", "instance_id is missing" },
        { RECORD_HEAD "\"memory_mb\":2097152," RECORD_TAIL, "memory_mb: 2097152, want a whole number in 16..1048576" },
        { RECORD_HEAD "\"environment\":\"python:3.11\"," RECORD_TAIL, "environment: \"python:3.11\", want host, or" },
        { RECORD_HEAD "\"environment\":\"sha256:0123\"," RECORD_TAIL, "environment: \"sha256:0123\"" },
        { RECORD_HEAD "\"profile\":\"loose\"," RECORD_TAIL, "profile: \"loose\", want strict, or compatible" },
        { RECORD_HEAD "\"profile\":1," RECORD_TAIL, "profile: want a string, got an integer" },
        { RECORD_HEAD "\"profil\":\"strict\"," RECORD_TAIL, "unknown field profil: did you mean profile?" },
        { RECORD_HEAD "\"choice\":[]," RECORD_TAIL, "choice: want an object, got a list" },
        { RECORD_HEAD "\"choice\":{\"prompt\":\"p\",\"prefix\":\"\"}," RECORD_TAIL, "choice.suffix: want a string, got nothing" },
        { RECORD_HEAD CHOICE "\"options\":\"ab\"}," RECORD_TAIL, "choice.options: want a list of strings, got a string" },
        { RECORD_HEAD CHOICE "\"options\":[\"a\"]}," RECORD_TAIL, "choice.options: 1 entries, want 2..64" },
        { RECORD_HEAD CHOICE "\"options\":[\"a\",2]}," RECORD_TAIL, "choice.options: entry 2: want a string, got an integer" },
        { RECORD_HEAD "\"FAIL_TO_PAS\":[]," RECORD_TAIL, "unknown field FAIL_TO_PAS: did you mean FAIL_TO_PASS?" },
        { RECORD_HEAD "\"fail_to_pas\":[]," RECORD_TAIL, "unknown field fail_to_pas: did you mean FAIL_TO_PASS?" },
        { RECORD_HEAD "\"FAIL_TO_PASS\":[\"a\"],\"testcmd\":\"true\"}", "unknown field testcmd: did you mean test_cmd?" },
        { RECORD_HEAD "\"Pass_To_Pass\":[]," RECORD_TAIL, "unknown field Pass_To_Pass: did you mean PASS_TO_PASS?" },
        { RECORD_HEAD "\"timeout\":5," RECORD_TAIL, "unknown field timeout: did you mean timeout_s?" },
        { RECORD_HEAD "\"memory\":5," RECORD_TAIL, "unknown field memory: did you mean memory_mb?" },
        { "{\"instanceId\":\"a\",\"repo\":\"r\"}", "unknown field instanceId: did you mean instance_id?" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        own_arena a = { 0 };
        struct task t;
        struct err err = { 0 };
        assert_int_equal(read_str(&t, &a, rows[i].record, &err), ERR_BAD_INPUT);
        if (strstr(err.msg, rows[i].named) == NULL)
            fail_msg("row %zu: \"%s\" does not say \"%s\"", i, err.msg, rows[i].named);
    }
}

static void task_write_json__is_read_back_equal(void **state)
{
    (void)state;
    own_arena a = { 0 };
    struct task t, u;
    struct err err = { 0 };
    own_buf first = { 0 }, second = { 0 };
    assert_int_equal(read_str(&t, &a,
                              RECORD_HEAD "\"patch\":\"--- a\\r\\n\\u00e9\\n\",\"x\":1.25,\"timeout_s\":0.1,\"split\":\"dev\","
                              RECORD_TAIL, &err), 0);
    assert_int_equal(task_write_json(&first, &t, &err), 0);
    assert_int_equal(task_read_json(&u, &a, (char *)first.data, first.len, &err), 0);
    assert_int_equal(task_write_json(&second, &u, &err), 0);
    assert_int_equal(first.len, second.len);
    assert_memory_equal(first.data, second.data, first.len);
    assert_string_equal(u.patch, "--- a\r\n\xc3\xa9\n");
    assert_true(u.timeout_s == 0.1);
}

static void task_read_json__keeps_to_the_arena_budget(void **state)
{
    (void)state;
    own_arena a = { .budget = 64 };
    struct task t;
    struct err err = { 0 };
    assert_int_equal(read_str(&t, &a, RECORD_HEAD RECORD_TAIL, &err), ERR_LIMIT);
}

/* How runs begin: words only where a shell would find words only, and the declared ones only where the command begins so. */
static void task_warm__takes_plain_words(void **state)
{
    (void)state;
    static const struct { const char *cmd, *field; uint32_t words, warm; } rows[] = {
        { "python3 -m pytest tests/a.py::T::t -k b --x=y", "", 7, 3 }, { "pytest", "", 1, 1 }, { "  python3  -m pytest ", "", 3, 3 },
        { "python3 -m pytest t.py", "\"warm\":[],", 0, 0 }, { "python3 -m pytest t.py", "\"warm\":null,", 4, 3 },
        { "python3 -m unittest t", "", 0, 0 }, { "python3 -m unittest t", "\"warm\":[\"python3\",\"-m\",\"unittest\"],", 4, 3 },
        { "python3 -m pytest t.py", "\"warm\":[\"python3\",\"-m\",\"unittest\"],", 0, 0 }, { "python3 -m", "", 0, 0 },
        { "python3 -m pytest 't.py'", "", 0, 0 }, { "python3 -m pytest t.py | cat", "", 0, 0 }, { "python3 -m pytest *.py", "", 0, 0 },
        { "python3 -m pytest t.py[a]", "", 0, 0 }, { "A=b python3 -m pytest", "", 0, 0 }, { "python3 -m pytest $X", "", 0, 0 },
        { "python3 -m pytest ~/t.py", "", 0, 0 }, { "python3 -m pytest t.py\\n", "", 0, 0 }, { "python3 -m pytest # t", "", 0, 0 },
        { "pytest-3", "", 0, 0 }, { " ", "", 0, 0 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        own_arena a = { 0 };
        struct task t;
        struct err err = { 0 };
        char *record = arena_printf(&a, "{\"instance_id\":\"t\",\"repo\":\"r\",\"base_commit\":\"%.40s\",%s\"test_cmd\":\"%s\"}", HEX64,
                                    rows[i].field, rows[i].cmd);
        if (read_str(&t, &a, record, &err) != 0 || task_warm(&t, &a, &err) != 0)
            fail_msg("row %zu: %s", i, err.msg);
        assert_int_equal(t.argv.count, rows[i].words);
        assert_int_equal(t.warm.count, rows[i].warm);
    }
    static const char *const bad[] = { "\"warm\":\"python3\"", "\"warm\":[\"\"]", "\"warm\":[1]", "\"warm\":[\"a\\u0000b\"]" };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        own_arena a = { 0 };
        struct task t;
        struct err err = { 0 };
        assert_int_equal(read_str(&t, &a, arena_printf(&a, RECORD_HEAD "%s," RECORD_TAIL, bad[i]), &err), ERR_BAD_INPUT);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(task_warm__takes_plain_words),
        cmocka_unit_test(task_read_json__fills_defaults_and_keeps_unknown_fields),
        cmocka_unit_test(task_read_json__takes_ids_in_every_public_shape),
        cmocka_unit_test(task_read_json__takes_images_choices_and_others_fields),
        cmocka_unit_test(task_read_json__skips_a_byte_order_mark),
        cmocka_unit_test(task_read_json__names_the_wrong_field),
        cmocka_unit_test(task_write_json__is_read_back_equal),
        cmocka_unit_test(task_read_json__keeps_to_the_arena_budget),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
