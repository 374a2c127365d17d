/*
 * ring.h - output of a run, capped: its head and its tail are kept, what lies between is counted.
 * The launcher writes while the run lives, the jail reads when it is over (struct ring in order.h).
 */
#pragma once
#include "sandbox/order.h"
#include <sys/types.h>

/* Read `fd` once, into chunk[size], and keep what came, at most `allowed` bytes of it. Returns how many; 0 when nothing was
 * there, or only the byte too many; -1 at the end of the stream. */
ssize_t ring_take(struct ring *r, int fd, uint64_t allowed, uint8_t *chunk, size_t size);
/* Head, marker if something is missing, tail: copied into a sealed memfd, owned. The numbers in the ring are not trusted. */
MUST_CHECK int ring_memfd(const struct ring *r, struct err *err);
