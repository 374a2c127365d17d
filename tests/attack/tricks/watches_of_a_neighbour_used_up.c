#include "tests/attack/attack.h"
#include <sys/inotify.h>

static int take(void)
{
    int n = 0;
    while (n < 100000 && inotify_init1(0) >= 0)
        n++;
    return n;
}

static int holder(void)
{
    struct { int n; } t = { take() };
    (void)t;
    hold();
    return 0;
}

static int attack(void)
{
    judged("neighbour-starved", take() < 8);
    return 0;
}

static int twin(void) { return says_ok(inotify_init1(0) >= 0); }

ATTACK(.tries = "use up a budget that the kernel counts per user", .attack = attack, .twin = twin, .holder = holder, .bare = "neighbour-starved",
       .must = { "neighbour-starved refused" });
