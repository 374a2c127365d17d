/*
 * grant.h - what a client and its jail say to each other: fixed structs, one per packet.
 *
 * The jail answers requests by a table per slot state (jail.c). A request outside its row, with a
 * wrong generation, a wrong size or a wrong set of descriptors ends the connection, and with it
 * every sandbox of that client. Descriptors travel beside the struct in the order of the bits of
 * `fds`; each is checked for its type before use.
 */
#pragma once
#include "base/err.h"
#include "sandbox/sandbox.h"
#include <stdint.h>

#define GRANT_VERSION 1u        /* both sides come from one build; another number is refused */
#define GRANT_SLOTS_MAX 1024u
#define GRANT_COMMAND_MAX ((uint64_t)1 << 20)   /* bytes of a command memfd */
#define GRANT_EDITS_MAX ((uint64_t)1 << 30)

enum grant_kind {
    /* requests */
    GRANT_ACQUIRE = 1, GRANT_RUN, GRANT_KILL, GRANT_CLOSE,
    /* answers */
    GRANT_HELLO, GRANT_READY, GRANT_ACQUIRED, GRANT_DONE,
    GRANT_KIND_COUNT
};

enum {                          /* bits of grant_request.fds */
    GRANT_FD_TREE = 1, GRANT_FD_EDITS = 2, GRANT_FD_ROOT = 4,   /* acquire */
    GRANT_FD_COMMAND = 8,       /* run: sealed memfd with the command, where it does not follow the struct */
    GRANT_FD_WARM = 16,         /* acquire: sealed memfd with a command: how the sandbox's first run begins (warm.h) */
};
/* A command: uint32_t argc, then NUL-terminated strings: the program's path, argc arguments from the zeroth on, NAME=value ...
 * Up to so many bytes of it follow the struct in the same packet: it is passed on as it is. */
#define GRANT_INLINE_MAX 4096u

struct grant_request {
    uint32_t kind, slot, generation, fds;
    struct sandbox_limits limits;       /* acquire only; zero elsewhere */
};

enum { GRANT_HAS_OUTPUT = 1, GRANT_HAS_REPORT = 2 };            /* bits of grant_answer.fds */

struct grant_answer {
    uint32_t kind, slot, generation, fds;
    int32_t  rc, sys;                   /* 0, or a code of err.h with its errno; text in msg */
    uint32_t version, slots;            /* hello: how many slots are numbered 0 .. slots-1 */
    struct sandbox_result result;       /* done; its descriptors travel beside */
    char msg[ERR_MSG_SIZE];
};
