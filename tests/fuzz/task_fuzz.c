/* task_fuzz.c - any bytes as a task record: what is accepted is written and read back as the same record. */
#include "repos/repos.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    own_arena a = { .budget = (size_t)32 << 20 };
    struct err err = { 0 };
    struct task t, u;
    struct buf first = { 0 }, second = { 0 };
    int rc = task_read_json(&t, &a, (const char *)data, size, &err);
    if (rc == 0) {
        if (task_write_json(&first, &t, &err) != 0 || task_read_json(&u, &a, (const char *)first.data, first.len, &err) != 0
            || task_write_json(&second, &u, &err) != 0 || first.len != second.len || memcmp(first.data, second.data, first.len) != 0)
            abort();
    } else if (rc != ERR_BAD_INPUT && rc != ERR_LIMIT)
        abort();
    buf_done(&first);
    buf_done(&second);
    return 0;
}
