#include "tests/attack/attack.h"

static int holder(void)
{
    if (abstract_socket("meeting", true) < 0)
        return 1;
    hold();
    return 0;
}

static int attack(void)
{
    tried("abstract-neighbour", abstract_socket("meeting", false));
    return 0;
}

static int twin(void) { return says_ok(abstract_socket("meeting", true) >= 0 && abstract_socket("meeting", false) >= 0); }

ATTACK(.tries = "meet another sandbox at an abstract socket", .attack = attack, .twin = twin, .holder = holder, .bare = "abstract-neighbour",
       .must = { "abstract-neighbour refused ECONNREFUSED" });
