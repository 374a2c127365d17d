/* rng.h - the simulation's only source of chance: splitmix64 of a seed, so that a seed repeats a run. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct rng { uint64_t state; };

static inline uint64_t rng_next(struct rng *r)
{
    uint64_t z = r->state += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}
static inline uint32_t rng_below(struct rng *r, uint32_t n) { return (uint32_t)(rng_next(r) % n); }
static inline bool rng_permille(struct rng *r, uint32_t p) { return rng_below(r, 1000) < p; }
