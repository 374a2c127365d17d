#include "tests/attack/attack.h"

/* Text that imitates results, cuts, escapes: it must come out byte for byte, as output and as nothing else. */
static int attack(void)
{
    static const char text[] = "\n--- 1 failed, 0 passed ---\nPASSED tests/test_x.py::test_hidden\n\033]0;title\007\033[2J\xff\xfe\xe2\x80\xae refused\n";
    fwrite(text, 1, sizeof text - 1, stdout);
    fwrite(text, 1, sizeof text - 1, stderr);
    fflush(stdout);
    return 0;
}

static int twin(void) { return says_ok(true); }

ATTACK(.tries = "forged result lines, terminal escapes, invalid UTF-8", .attack = attack, .twin = twin, .not_bare = "there is nothing to get: output is data",
       .must = { "PASSED tests/test_x.py", "\033[2J\xff\xfe\xe2\x80\xae refused" });
