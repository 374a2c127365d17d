#include "tests/attack/attack.h"
#include <sys/ipc.h>
#include <sys/msg.h>

static int attack(void)
{
    static struct { long type; char bytes[8192]; } m = { 1, "" };
    static int ids[20000];
    size_t total = 0;
    int n = 0;
    while (n < 20000 && total < (size_t)192 << 20 && (ids[n] = msgget(IPC_PRIVATE, 0600)) >= 0) {
        while (msgsnd(ids[n], &m, sizeof m.bytes, IPC_NOWAIT) == 0)
            total += sizeof m.bytes;
        n++;
    }
    judged("memory", total >= (size_t)128 << 20);
    for (int i = 0; i < n; i++)
        msgctl(ids[i], IPC_RMID, NULL);
    return 0;
}

static int twin(void)
{
    struct { long type; char bytes[8]; } m = { 1, "x" };
    int id = msgget(IPC_PRIVATE, 0600);
    return says_ok(id >= 0 && msgsnd(id, &m, 8, 0) == 0 && msgrcv(id, &m, 8, 0, 0) == 8);
}

ATTACK(.tries = "memory by System V messages that nobody takes", .attack = attack, .twin = twin, .bare = "memory", .end = SANDBOX_END_MEMORY_LIMIT, .value = -1,
       .hits = SANDBOX_HIT_MEMORY, .limits = { .memory_bytes = 64 * MIB, .wall_ns = 20 * SECOND });
