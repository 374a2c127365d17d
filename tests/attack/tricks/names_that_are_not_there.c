#include "tests/attack/attack.h"

/* Each failed lookup leaves an entry in the kernel's memory; it must be paid for by who asked. */
static int attack(void)
{
    int n = 0;
    for (double end = seconds() + 1.5; seconds() < end; )
        for (int i = 0; i < 1000; i++, n++) {
            char path[300];
            snprintf(path, sizeof path, "/usr/lib/%0200d-not-there", n);
            access(path, F_OK);
        }
    printf("lookups refused to grow the host %d\n", n > 0);
    return 0;
}

static int twin(void) { return says_ok(access("/usr/lib/not-there", F_OK) < 0); }

ATTACK(.tries = "a flood of lookups of names that are not there", .attack = attack, .twin = twin, .not_bare = "the harness's limit on time and the neighbour are the check",
       .limits = { .memory_bytes = 64 * MIB, .wall_ns = 20 * SECOND });
