#include "tests/attack/attack.h"
#include <sys/xattr.h>

static int attack(void)
{
    static const unsigned char all_v2[20] = "\1\0\0\2\377\377\377\377\0\0\0\0\377\377\377\377\0\0\0\0";
    static const unsigned char all_v3[24] = "\1\0\0\3\377\377\377\377\0\0\0\0\377\377\377\377\0\0\0\0\0\0\0\0";
    close(open("/tmp/f", O_CREAT | O_WRONLY, 0755));
    tried("capability-2", setxattr("/tmp/f", "security.capability", all_v2, sizeof all_v2, 0));
    tried("capability-3", setxattr("/tmp/f", "security.capability", all_v3, sizeof all_v3, 0));
    tried("capability-usr", setxattr("/usr/bin/env", "security.capability", all_v3, sizeof all_v3, 0));
    tried("trusted", setxattr("/tmp/f", "trusted.x", "y", 1, 0));
    return 0;
}

static int twin(void) { return says_ok(open("/tmp/g", O_CREAT | O_WRONLY, 0644) >= 0 && chmod("/tmp/g", 0700) == 0); }

ATTACK(.tries = "capabilities of a file by xattr (runc CVE-2022-29162 kept inheritable ones)", .attack = attack, .twin = twin, .bare = "capability-2",
       .must = { "capability-2 refused", "trusted refused EPERM" });
