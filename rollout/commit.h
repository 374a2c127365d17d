/*
 * commit.h - group commit: records added during one sync share the next; the disk waits on libuv's pool, never the loop.
 *
 * A record's callback fires when it is durable, with its cursor, or with the reason why it is not in the log. Order of
 * records = order of commit_add().
 */
#pragma once
#include "base/err.h"
#include <stdint.h>
#include <uv.h>

struct commit;
struct trajlog;

typedef void (*commit_cb)(void *arg, int rc, uint64_t cursor, const struct err *err);

MUST_CHECK int commit_open(struct commit **out, uv_loop_t *loop, struct trajlog *log, struct err *err);
/* kind: TRAJFRAME_EPISODE or TRAJFRAME_APPENDED. Bytes are copied. The callback comes from the loop, never from within. */
void commit_add(struct commit *c, uint8_t kind, const void *record, size_t n, commit_cb cb, void *arg);
bool commit_idle(const struct commit *c);
/* Subscribers are woken from here: called after each commit that made records durable. */
void commit_on_durable(struct commit *c, void (*cb)(void *arg), void *arg);
/* When idle: free. Records still on their way are finished first; their callbacks do not fire any more. */
void commit_close(struct commit *c);
