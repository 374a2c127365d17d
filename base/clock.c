/* clock.c */
#include "base/clock.h"
#include <time.h>

static uint64_t now(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

uint64_t clock_mono_ns(void) { return now(CLOCK_MONOTONIC); }
uint64_t clock_wall_ns(void) { return now(CLOCK_REALTIME); }
