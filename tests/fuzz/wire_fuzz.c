/*
 * wire_fuzz.c - every request a client can send, through the door where protobuf ends. First byte: which message.
 * Whatever is accepted must survive being written again.
 */
#include "base/arena.h"
#include "base/buf.h"
#include "rollout/wire.h"
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    own_arena a = { .budget = (size_t)64 << 20 };
    own_buf out = { 0 };
    struct err err = { 0 };
    static const uint8_t id[16] = { 1 };
    union {
        struct evaluate_request evaluate;
        struct subscribe_request subscribe;
        struct get_trajectory_request get;
        struct list_request list;
        struct import_request import;
        struct get_task_request get_task;
        struct list_tasks_request list_tasks;
        struct duplicates_request duplicates;
        struct policy_facts policy;
        struct trajectory_head head;
        const char *made_by;
    } u;
    if (n == 0)
        return 0;
    const uint8_t which = *bytes++ % 11;
    n--;
    int rc = 0;
    switch (which) {
    case 0:
        rc = wire_read_evaluate(&u.evaluate, &a, bytes, n, &err);
        if (rc == 0) {
            struct verdict v;
            own_buf record = { 0 };
            verdict_without_run(&v, OUTCOME_PATCH_EMPTY, "fuzz", "");
            struct trajectory_facts f = { .request = &u.evaluate, .verdict = &v, .snapshot = "", .patched_tree = "", .verdict_key = "" };
            if (wire_write_trajectory(&record, &f, &err) < 0 ||
                wire_read_trajectory_head(&u.head, &a, record.data, record.len, &err) < 0)
                abort();            /* accepted, but its record cannot be read back */
        }
        break;
    case 1: rc = wire_read_append(&out, bytes, n, id, 1, &err);
        if (rc >= 0 && wire_read_trajectory_head(&u.head, &a, out.data, out.len, &err) < 0)
            abort();
        break;
    case 2: rc = wire_read_subscribe(&u.subscribe, &a, bytes, n, &err); break;
    case 3: rc = wire_read_get_trajectory(&u.get, &a, bytes, n, &err); break;
    case 4: rc = wire_read_list_trajectories(&u.list, &a, bytes, n, &err); break;
    case 5: rc = wire_read_import(&u.import, &a, bytes, n, &err); break;
    case 6: rc = wire_read_get_task(&u.get_task, &a, bytes, n, &err); break;
    case 7: rc = wire_read_list_tasks(&u.list_tasks, &a, bytes, n, &err); break;
    case 8: rc = wire_read_publish(&u.policy, &out, &a, bytes, n, 1, &err); break;
    case 9: rc = wire_read_duplicates(&u.duplicates, &a, bytes, n, &err); break;
    default: rc = wire_read_current(&u.made_by, &a, bytes, n, &err); break;
    }
    if (rc < 0 && (err.code != rc || err.msg[0] == '\0'))
        abort();                    /* refused without saying why */
    return 0;
}
