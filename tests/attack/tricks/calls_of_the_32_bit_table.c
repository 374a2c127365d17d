#include "tests/attack/attack.h"

static int attack(void)
{
    long rc;
    __asm__ volatile("int $0x80" : "=a"(rc) : "a"(20) : "memory");      /* getpid of the 32-bit table */
    judged("int80", rc > 0);
    return 0;
}

static int twin(void) { return says_ok(sizeof(void *) == 8); }

ATTACK(.tries = "int 0x80: the 32-bit table, whose numbers mean other calls", .attack = attack, .twin = twin, .bare = "int80",
       .end = SANDBOX_END_SIGNAL, .value = SIGSYS);
