/*
 * relay.h - bytes of a stream between a pipe of the sandbox's and a descriptor of the caller's, at the pace of the slower.
 *
 * The launcher polls and never waits in here: descriptors of the caller's may block, so each is touched only after poll()
 * said that it can be, and then for no more than it must take.
 */
#pragma once
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RELAY_BYTES 65536
struct relay {
    int from, to;               /* owned; -1: none */
    bool socket;                /* `to` is one */
    bool live;                  /* more will be put into bytes[] by others */
    uint64_t left;              /* so much of `from` is still to go */
    size_t at, len;             /* bytes[at .. len) wait to be written */
    uint8_t *bytes;             /* [RELAY_BYTES], the caller's; apart, so that no page is touched before there are any */
};

/* `to` (owned from here on) gets what is put into bytes[], or what `from` (owned, or -1) has. */
void relay_open(struct relay *r, int from, int to);
void relay_close(struct relay *r);
/* What to wait for; fd -1: nothing. */
struct pollfd relay_poll(const struct relay *r);
/* What was waited for has come. */
void relay_step(struct relay *r);
/* Its run is over: `left` bytes of `from` (owned, or -1) are all that still comes. Ends by itself when they are gone. */
void relay_finish(struct relay *r, int from, uint64_t left);
