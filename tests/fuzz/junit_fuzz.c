/* junit_fuzz.c - JUnit XML as any report file, through the generic reader and through pytest's. */
#include "rollout/report.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const char *const names[] = { "r.xml", REPORT_JUNIT_FILE };
    static const char *const readers[] = { "junit", "pytest" };
    const char *ids[] = { "tests/test_x.py::TestA::test_m[1]" };
    for (int k = 0; k < 2; k++) {
        struct arena a = { .budget = (size_t)64 << 20 };
        struct err err;
        struct task t = { .id = "t", .reader = readers[k], .test_cmd = "pytest", .fail_to_pass = { ids, 1 } };
        struct run_facts run = { .run_end = "exit 0", .exited = true };
        struct report_file f = { (const uint8_t *)names[k], (uint32_t)strlen(names[k]), false, data, n };
        struct report_input in = { .task = &t, .run = &run, .files = &f, .file_count = 1,
                                   .output = (const uint8_t *)"", .output_len = 0 };
        struct report r;
        if (report_read(&r, &a, &in, &err) == 0)
            for (uint32_t i = 0; i < r.test_count; i++)
                if (strlen(r.tests[i].id) > REPORT_ID_MAX * 16 + 64 || r.tests[i].status >= TEST_STATUS_COUNT)
                    abort();
        arena_done(&a);
    }
    return 0;
}
