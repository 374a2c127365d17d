/* report_files_fuzz.c - the container that report files leave a sandbox in: every file lies inside it. */
#include "rollout/report.h"
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct arena a = { .budget = (size_t)64 << 20 };
    struct err err;
    struct report_file *files;
    uint32_t count;
    struct task t = { .id = "t", .reader = "auto", .test_cmd = "make test" };
    struct run_facts run = { .run_end = "exit 0", .exited = true };
    struct report r;
    if (report_files_parse(&files, &count, &a, data, n, &err) != 0)
        abort();
    for (uint32_t i = 0; i < count; i++)
        if (files[i].name < data || files[i].name + files[i].name_len != files[i].bytes ||
            files[i].bytes + files[i].len > data + n)
            abort();
    struct report_input in = { .task = &t, .run = &run, .files = files, .file_count = count, .output = data, .output_len = n };
    if (report_read(&r, &a, &in, &err) == 0 && r.reader == NULL)
        abort();
    arena_done(&a);
    return 0;
}
