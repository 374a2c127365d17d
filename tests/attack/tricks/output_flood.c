#include "tests/attack/attack.h"

static int attack(void)
{
    static char zeros[1 << 16];
    for (int i = 0; i < 64; i++)
        if (write(1 + i % 2, zeros, sizeof zeros) < 0)
            break;
    judged("\nflood", true);
    sleep(1);
    return 0;
}

static int twin(void) { return says_ok(write(1, "", 0) == 0); }

ATTACK(.tries = "output without end and without newline, on both streams", .attack = attack, .twin = twin, .bare = "flood", .end = SANDBOX_END_OUTPUT_LIMIT,
       .value = -1, .hits = SANDBOX_HIT_OUTPUT, .limits = { .output_bytes = MIB });
