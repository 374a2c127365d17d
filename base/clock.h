/* clock.h - time. Monotonic for durations, wall for records; nothing pure reads either. */
#pragma once
#include <stdint.h>

#define NS_PER_S  UINT64_C(1000000000)
#define NS_PER_MS UINT64_C(1000000)

uint64_t clock_mono_ns(void);
uint64_t clock_wall_ns(void);       /* since the epoch, UTC */
