#include "tests/attack/attack.h"
#include <sys/prctl.h>

static int attack(void)
{
    struct prctl_mm_map map = { 0 };
    judged("nnp-off", prctl(PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0) == 0 && prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 0);
    tried("securebits", prctl(PR_SET_SECUREBITS, 0));
    tried("ambient", prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, 21, 0, 0));
    tried("mm-exe", prctl(PR_SET_MM, PR_SET_MM_EXE_FILE, open("/usr/bin/env", O_RDONLY), 0, 0));
    tried("mm-map", prctl(PR_SET_MM, PR_SET_MM_MAP, &map, sizeof map, 0));
    tried("io-flusher", prctl(57, 1, 0, 0, 0));
    tried("seccomp-off", prctl(PR_SET_SECCOMP, 0));
    judged("no-no-new-privs", prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1);
    return 0;
}

static int twin(void) { return says_ok(prctl(PR_SET_NAME, "honest") == 0 && prctl(PR_SET_DUMPABLE, 0) == 0); }

ATTACK(.tries = "prctl: no_new_privs off, secure bits, ambient capabilities, exe file", .attack = attack, .twin = twin, .bare = "no-no-new-privs",
       .must = { "securebits refused EPERM", "no-no-new-privs refused" });
