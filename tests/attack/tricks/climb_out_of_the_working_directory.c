#include "tests/attack/attack.h"

static int attack(void)
{
    char cwd[4096];
    judged("cwd-unreachable", getcwd(cwd, sizeof cwd) == NULL || cwd[0] != '/');
    for (int i = 0; i < 64; i++)
        judged("climb", chdir("..") < 0);
    tried("host-file-below-root", access(given("HOST_FILE") + 1, F_OK));
    tried("host-file-by-self", access("/proc/self/cwd/../etc/shadow", F_OK));
    tried("root-by-proc", access("/proc/self/root/work", F_OK));
    return 0;
}

static int twin(void) { return says_ok(chdir("/tmp") == 0 && mkdir("a", 0755) == 0 && chdir("a") == 0 && chdir("..") == 0 && access("a", F_OK) == 0); }

ATTACK(.tries = "a working directory outside the root, then .. (runc CVE-2024-21626)", .attack = attack, .twin = twin,
       .bare = "host-file-by-self", .must = { "host-file-below-root refused ENOENT" });
