/* index.c - see index.h. Open addressing, linear probing, at most 70 % full. */
#include "rollout/index.h"
#include "base/digest.h"
#include <stdlib.h>
#include <string.h>

struct index_slot { uint64_t key, cursor; };        /* cursor 0: free */

uint64_t index_key_of_id(const uint8_t id[16])
{
    uint64_t key;
    memcpy(&key, id, sizeof key);
    return key;
}

uint64_t index_key_of_text(const char *text)
{
    struct digest d;
    digest_of(&d, text, strlen(text));
    return index_key_of_id(d.bytes);
}

static void put(struct index *x, uint64_t key, uint64_t cursor)
{
    uint32_t at = (uint32_t)key & x->mask;
    while (x->slots[at].cursor != 0)
        at = (at + 1) & x->mask;
    x->slots[at] = (struct index_slot){ .key = key, .cursor = cursor };
    x->used++;
}

int index_add(struct index *x, uint64_t key, uint64_t cursor, struct err *err)
{
    if (x->slots == NULL || x->used >= (x->mask / 10) * 7) {
        struct index bigger = { .mask = x->slots == NULL ? 1023 : x->mask * 2 + 1 };
        if (x->mask > UINT32_MAX / 4 || (bigger.slots = calloc((size_t)bigger.mask + 1, sizeof *bigger.slots)) == NULL)
            return err_set(err, ERR_LIMIT, "log index: out of memory at %u entries", x->used);
        for (uint32_t k = 0; x->slots != NULL && k <= x->mask; k++)
            if (x->slots[k].cursor != 0)
                put(&bigger, x->slots[k].key, x->slots[k].cursor);
        free(x->slots);
        *x = bigger;
    }
    put(x, key, cursor);
    return 0;
}

uint64_t index_find(const struct index *x, uint64_t key, uint32_t *state)
{
    while (x->slots != NULL && *state <= x->mask) {
        const struct index_slot *s = &x->slots[((uint32_t)key + (*state)++) & x->mask];
        if (s->cursor == 0)
            return 0;
        if (s->key == key)
            return s->cursor;
    }
    return 0;
}

void index_done(struct index *x)
{
    free(x->slots);
    *x = (struct index){ 0 };
}
