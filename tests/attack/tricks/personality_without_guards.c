#include "tests/attack/attack.h"
#include <sys/personality.h>

static int attack(void)
{
    tried("read-implies-exec", personality(READ_IMPLIES_EXEC));
    tried("mmap-page-zero", personality(MMAP_PAGE_ZERO));
    tried("linux32", personality(PER_LINUX32));
    tried("whole-seconds", personality(WHOLE_SECONDS));
    tried("uname26", personality(UNAME26));
    void *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    tried("map-page-zero", p == MAP_FAILED ? -1 : 0);
    return 0;
}

static int twin(void) { return says_ok(personality(0xffffffff) >= 0 && personality(ADDR_NO_RANDOMIZE) >= 0); }

ATTACK(.tries = "execution domains that switch guards off", .attack = attack, .twin = twin, .bare = "read-implies-exec",
       .must = { "read-implies-exec refused ENOSYS", "map-page-zero refused EPERM" });
