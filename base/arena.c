/* arena.c - blocks in a list; under ASSAY_ARENA_DEBUG one block per allocation. */
#include "base/arena.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct arena_block {
    struct arena_block *next;
    size_t used, size;
    _Alignas(16) uint8_t bytes[];
};

#ifdef ASSAY_ARENA_DEBUG
#define BLOCK_SIZE 0
#else
#define BLOCK_SIZE 4000     /* with its header and malloc's own just below a page */
#endif

void *arena_alloc(struct arena *a, size_t size)
{
    if (size > SIZE_MAX / 2)
        return NULL;
    size_t need = BLOCK_SIZE == 0 ? size : (size + 15) & ~(size_t)15;
    if (a->budget != 0 && (need > a->budget || a->used > a->budget - need))
        return NULL;
    struct arena_block *b = a->head;
    if (b == NULL || b->size - b->used < need || BLOCK_SIZE == 0) {
        size_t cap = need > BLOCK_SIZE ? need : BLOCK_SIZE;
        b = calloc(1, sizeof *b + cap + (cap == 0));
        if (b == NULL)
            return NULL;
        b->size = cap;
        if (a->head != NULL && cap == need && BLOCK_SIZE != 0) {
            b->next = a->head->next;            /* a large block goes behind: the open one stays open */
            a->head->next = b;
        } else {
            b->next = a->head;
            a->head = b;
        }
    }
    void *p = b->bytes + b->used;
    b->used += need;
    a->used += need;
    return p;
}

char *arena_strndup(struct arena *a, const char *s, size_t n)
{
    char *p = arena_alloc(a, n + 1);
    if (p != NULL && n > 0)
        memcpy(p, s, n);
    return p;
}

char *arena_strdup(struct arena *a, const char *s) { return arena_strndup(a, s, strlen(s)); }

char *arena_printf(struct arena *a, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    char *p = n < 0 ? NULL : arena_alloc(a, (size_t)n + 1);
    if (p != NULL)
        vsnprintf(p, (size_t)n + 1, fmt, again);
    va_end(again);
    return p;
}

void arena_done(struct arena *a)
{
    for (struct arena_block *b = a->head, *next; b != NULL; b = next) {
        next = b->next;
        free(b);
    }
    a->head = NULL;
    a->used = 0;
}
