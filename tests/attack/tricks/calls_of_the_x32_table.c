#include "tests/attack/attack.h"

static int attack(void)
{
    tried("x32", syscall(0x40000000 | SYS_getpid));
    return 0;
}

static int twin(void) { return says_ok(syscall(SYS_getppid) == getppid()); }

ATTACK(.tries = "x32 numbers: known calls under another number", .attack = attack, .twin = twin,
       .not_bare = "most kernels are built without x32", .end = SANDBOX_END_SIGNAL, .value = SIGSYS);
