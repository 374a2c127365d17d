/* tap_fuzz.c - output as a plain TAP stream and as prove prints it; a stream that is not whole passes nothing. */
#include "rollout/report.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const char *const commands[] = { "./t", "prove -v t" };
    for (int k = 0; k < 2; k++) {
        struct arena a = { .budget = (size_t)64 << 20 };
        struct err err;
        struct task t = { .id = "t", .reader = "tap", .test_cmd = commands[k] };
        struct run_facts run = { .run_end = "exit 0", .exited = true };
        struct report_input in = { .task = &t, .run = &run, .output = data, .output_len = n };
        struct report r;
        if (report_read(&r, &a, &in, &err) == 0)
            for (uint32_t i = 0; i < r.test_count; i++)
                if (!r.complete && r.tests[i].status == TEST_PASSED)
                    abort();
        arena_done(&a);
    }
    return 0;
}
