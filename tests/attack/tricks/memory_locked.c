#include "tests/attack/attack.h"

static int attack(void)
{
    char *p = mmap(NULL, 128 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    tried("mlock", mlock(p, 128 << 20));
    tried("mlockall", mlockall(MCL_CURRENT | MCL_FUTURE));
    tried("huge-pages", mmap(NULL, 2 << 20, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0) == MAP_FAILED ? -1 : 0);
    return 0;
}

static int twin(void)
{
    static char page[4096];
    return says_ok(mlock(page, sizeof page) == 0);
}

ATTACK(.tries = "lock more memory than is allowed", .attack = attack, .twin = twin, .bare = "mlock", .must = { "mlock refused ENOMEM", "mlockall refused" });
