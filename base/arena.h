/*
 * arena.h - one request's memory: allocate forward, free in one call, never beyond a budget.
 *
 * Under sanitizers (ASSAY_ARENA_DEBUG) each allocation is its own malloc, so that an overrun or
 * a use after arena_done() is seen.
 */
#pragma once
#include "base/err.h"
#include <stdint.h>

struct arena_block;
struct arena {
    struct arena_block *head;
    size_t used;            /* bytes handed out */
    size_t budget;          /* bytes; 0 means no limit */
};

/* Zeroed memory aligned to 16, valid until arena_done(). NULL when the budget or memory is out. */
void *arena_alloc(struct arena *a, size_t size);
char *arena_strndup(struct arena *a, const char *s, size_t n);
char *arena_strdup(struct arena *a, const char *s);
char *arena_printf(struct arena *a, const char *fmt, ...) PRINTF_LIKE(2, 3);
void  arena_done(struct arena *a);
#define own_arena __attribute__((cleanup(arena_done))) struct arena
