/*
 * cache.h - bounded maps from a 32-byte key to a place in the log: known verdicts, and known request ids.
 *
 * Neither holds a verdict: the log does (a durable record is the truth, and both maps are rebuilt from it at
 * start). An entry is a key, the record's cursor and 32 bytes beside it. All memory is taken at cache_new();
 * a full map drops the entry used longest ago.
 */
#pragma once
#include "base/digest.h"
#include "base/err.h"
#include <stdint.h>

struct cache;
struct cache_entry { struct digest key, beside; uint64_t cursor; };

MUST_CHECK int cache_new(struct cache **out, uint32_t entries_max, struct err *err);
void cache_free(struct cache *c);
/* Borrowed until the next put or remove; NULL when unknown. Counts as a use. */
const struct cache_entry *cache_get(struct cache *c, const struct digest *key);
void cache_put(struct cache *c, const struct digest *key, uint64_t cursor, const struct digest *beside);  /* replaces */
void cache_remove(struct cache *c, const struct digest *key);
uint32_t cache_count(const struct cache *c);
