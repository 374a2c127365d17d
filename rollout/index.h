/*
 * index.h - where in the log an episode stands, by episode id or by request id. Memory only, rebuilt from the log.
 *
 * An entry is eight bytes of the key (a random id, or the digest of a text) and the cursor; whoever finds one reads the
 * record and compares, so equal prefixes cost a second read and never a wrong answer.
 */
#pragma once
#include "base/err.h"
#include <stdint.h>

struct index { struct index_slot *slots; uint32_t mask, used; };        /* zeroed: empty */

uint64_t index_key_of_id(const uint8_t id[16]);
uint64_t index_key_of_text(const char *text);
MUST_CHECK int index_add(struct index *x, uint64_t key, uint64_t cursor, struct err *err);
/* Cursors of a key one after the other: start with *state 0; returns 0 when there are no more. */
uint64_t index_find(const struct index *x, uint64_t key, uint32_t *state);
void index_done(struct index *x);
