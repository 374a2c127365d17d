/* pytest_text_fuzz.c - pytest's printed summary: any bytes, with and without known ids; printed lines alone never pass. */
#include "rollout/report.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const char *ids[] = { "test_ids.py::test_echo[a - b]", "test_calc.py::test_even" };
    struct arena a = { .budget = (size_t)64 << 20 };
    struct err err;
    struct task t = { .id = "t", .reader = "pytest", .test_cmd = "pytest", .fail_to_pass = { ids, 2 } };
    struct run_facts run = { .run_end = "exit 0", .exited = true };
    struct report_input in = { .task = &t, .run = &run, .output = data, .output_len = n };
    struct report r;
    if (report_read(&r, &a, &in, &err) == 0)
        for (uint32_t i = 0; i < r.test_count; i++)
            if (r.tests[i].status == TEST_PASSED || r.tests[i].status == TEST_XPASS)
                abort();
    arena_done(&a);
    return 0;
}
