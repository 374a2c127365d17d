#include "tests/attack/attack.h"

static int attack(void)
{
    int n = 0;
    if (chdir("/tmp") < 0)
        return 1;
    while (n < 5000 && mkdir("dddddddd", 0755) == 0 && chdir("dddddddd") == 0)
        n++;
    judged("depth", n >= 5000);
    return 0;
}

static int twin(void) { return says_ok(mkdir("/tmp/a", 0755) == 0 && mkdir("/tmp/a/b", 0755) == 0); }

ATTACK(.tries = "directories deeper than any path, to break who removes them", .attack = attack, .twin = twin, .bare = "depth",
       .must = { "depth refused" }, .limits = { .disk_inodes = 3000 });
