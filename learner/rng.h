/*
 * rng.h - seeded random numbers whose whole state is one 64-bit word (splitmix64, Steele et al. 2014).
 *
 * A state made from (seed, step, task, index) needs no history: a repeated step draws the same
 * numbers, which is what makes its requests idempotent.
 */
#pragma once
#include <math.h>
#include <stdint.h>

struct rng { uint64_t state; };

static inline uint64_t rng_next(struct rng *r)
{
    uint64_t z = (r->state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static inline struct rng rng_of(uint64_t seed, uint64_t a, uint64_t b, uint64_t c)
{
    struct rng r = { seed };
    r.state = rng_next(&r) ^ a;
    r.state = rng_next(&r) ^ b;
    r.state = rng_next(&r) ^ c;
    return r;
}

static inline double rng_unit(struct rng *r) { return (double)(rng_next(r) >> 11) * 0x1p-53; }     /* [0, 1) */

static inline double rng_normal(struct rng *r)              /* Box and Muller */
{
    double u = 1 - rng_unit(r), v = rng_unit(r);
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}
