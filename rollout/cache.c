/* cache.c - open hashing over a fixed slab; a list in order of use. Keys are digests: any of their bytes hash well. */
#include "rollout/cache.h"
#include "base/fault.h"
#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX

struct node { struct cache_entry entry; uint32_t chain, newer, older; };
struct cache {
    struct node *nodes;
    uint32_t *buckets, bucket_mask, count, max, newest, oldest, free;
};

int cache_new(struct cache **out, uint32_t entries_max, struct err *err)
{
    uint32_t buckets = 16;
    while (buckets < entries_max && buckets < UINT32_C(1) << 30)
        buckets *= 2;
    struct cache *c = fault_hit("cache.alloc") ? NULL : calloc(1, sizeof *c);
    if (c != NULL) {
        c->nodes = calloc(entries_max, sizeof *c->nodes);
        c->buckets = calloc(buckets, sizeof *c->buckets);
    }
    if (c == NULL || c->nodes == NULL || c->buckets == NULL) {
        cache_free(c);
        return err_set(err, ERR_LIMIT, "cache: out of memory for %u entries", entries_max);
    }
    memset(c->buckets, 0xff, buckets * sizeof *c->buckets);
    c->bucket_mask = buckets - 1;
    c->max = entries_max;
    c->newest = c->oldest = c->free = NONE;
    for (uint32_t i = entries_max; i-- > 0; ) {
        c->nodes[i].chain = c->free;
        c->free = i;
    }
    *out = c;
    return 0;
}

void cache_free(struct cache *c)
{
    if (c == NULL)
        return;
    free(c->nodes);
    free(c->buckets);
    free(c);
}

uint32_t cache_count(const struct cache *c) { return c->count; }

static uint32_t *bucket_of(const struct cache *c, const struct digest *key)
{
    uint32_t h;
    memcpy(&h, key->bytes, sizeof h);
    return &c->buckets[h & c->bucket_mask];
}

/* The link that holds the key's node, or the chain's end. */
static uint32_t *find(const struct cache *c, const struct digest *key)
{
    uint32_t *link = bucket_of(c, key);
    while (*link != NONE && !digest_equal(&c->nodes[*link].entry.key, key))
        link = &c->nodes[*link].chain;
    return link;
}

static void unlist(struct cache *c, uint32_t i)
{
    struct node *n = &c->nodes[i];
    *(n->newer != NONE ? &c->nodes[n->newer].older : &c->newest) = n->older;
    *(n->older != NONE ? &c->nodes[n->older].newer : &c->oldest) = n->newer;
}

static void list_newest(struct cache *c, uint32_t i)
{
    struct node *n = &c->nodes[i];
    n->newer = NONE;
    n->older = c->newest;
    *(c->newest != NONE ? &c->nodes[c->newest].newer : &c->oldest) = i;
    c->newest = i;
}

const struct cache_entry *cache_get(struct cache *c, const struct digest *key)
{
    uint32_t i = *find(c, key);
    if (i == NONE)
        return NULL;
    unlist(c, i);
    list_newest(c, i);
    return &c->nodes[i].entry;
}

void cache_remove(struct cache *c, const struct digest *key)
{
    uint32_t *link = find(c, key), i = *link;
    if (i == NONE)
        return;
    *link = c->nodes[i].chain;
    unlist(c, i);
    c->nodes[i].chain = c->free;
    c->free = i;
    c->count--;
}

void cache_put(struct cache *c, const struct digest *key, uint64_t cursor, const struct digest *beside)
{
    if (c->max == 0)
        return;
    uint32_t i = *find(c, key);
    if (i != NONE) {
        unlist(c, i);
    } else {
        if (c->free == NONE) {
            struct digest old = c->nodes[c->oldest].entry.key;
            cache_remove(c, &old);
        }
        i = c->free;
        c->free = c->nodes[i].chain;
        uint32_t *bucket = bucket_of(c, key);
        c->nodes[i].chain = *bucket;
        *bucket = i;
        c->count++;
    }
    c->nodes[i].entry = (struct cache_entry){ .key = *key, .beside = *beside, .cursor = cursor };
    list_newest(c, i);
}
