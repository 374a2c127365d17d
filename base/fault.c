/* fault.c - process-wide by design: a fault point stands for the world, which there is one of. */
#include "base/fault.h"
#include <stddef.h>
#include <string.h>

static int armed_nth, seen, name_times;
static const char *armed_name;

bool fault_hit(const char *name)
{
    if (armed_nth == 0 && armed_name == NULL)
        return false;
    seen++;
    if (armed_name != NULL && name_times > 0 && strcmp(name, armed_name) == 0) {
        name_times--;
        return true;
    }
    return armed_nth != 0 && seen == armed_nth;
}

void fault_arm(int nth)
{
    armed_nth = nth;
    armed_name = NULL;
    seen = 0;
}

void fault_arm_name(const char *name, int times)
{
    armed_nth = 0;
    armed_name = name;
    name_times = times;
    seen = 0;
}

int fault_seen(void) { return seen; }
