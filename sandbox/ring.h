/*
 * ring.h - output of a run, capped: its head and its tail are kept, what lies between is counted.
 * The launcher writes while the run lives, the jail reads when it is over (struct ring in order.h).
 */
#pragma once
#include "sandbox/order.h"
#include <stdbool.h>

/* Take what one read of `fd` brings, nothing beyond the first byte too many. False at the end of the stream. */
bool ring_take(struct ring *r, int fd);
/* Head, marker if something is missing, tail: copied into a sealed memfd, owned. The numbers in the ring are not trusted. */
MUST_CHECK int ring_memfd(const struct ring *r, struct err *err);
