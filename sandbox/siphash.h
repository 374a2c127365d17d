/*
 * siphash.h - SipHash-2-4 (Aumasson and Bernstein, 2012): a keyed 64-bit hash. Who does not know the key can neither choose
 * two texts that have one hash nor find one that has a given.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>

struct siphash_key { uint64_t word[2]; };
struct siphash { uint64_t v[4], tail, len; };

void siphash_start(struct siphash *s, const struct siphash_key *key);
void siphash_add(struct siphash *s, const void *bytes, size_t n);
uint64_t siphash_finish(struct siphash *s);
