/*
 * err.h - the one error convention of the tree.
 *
 * A function that can fail returns 0 (or a count >= 0) on success and a negative stable code on
 * failure, the same code it leaves in err->code. The message is one line: what, which one, why,
 * what to do. `struct err` is the caller's memory: no allocation on failure, nothing stale.
 * Success leaves it untouched. Codes live in one table (err.c) with their gRPC status, exit
 * status, who is at fault and whether a retry can help; nothing else decides those.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#define MUST_CHECK __attribute__((warn_unused_result))
#define PRINTF_LIKE(fmt, args) __attribute__((format(printf, fmt, args)))

enum err_code {
    ERR_NONE = 0,
    ERR_USAGE = -1,         /* the command line or the request is malformed */
    ERR_BAD_INPUT = -2,     /* data from outside is malformed: task file, patch field, config */
    ERR_NOT_FOUND = -3,
    ERR_EXISTS = -4,        /* the name is taken by something different */
    ERR_CONFLICT = -5,      /* same request id, different content */
    ERR_LIMIT = -6,         /* a configured limit or a memory budget was reached */
    ERR_BUSY = -7,          /* queue full: come back later */
    ERR_UNAVAILABLE = -8,   /* the peer or a needed program is not there */
    ERR_DENIED = -9,
    ERR_CORRUPT = -10,      /* stored bytes do not match their checksum or name */
    ERR_SYS = -11,          /* a system call failed; errno in err->sys */
    ERR_PROTOCOL = -12,     /* a peer of ours broke the protocol */
    ERR_LOST = -13,         /* a process of ours died under the work */
    ERR_DEADLINE = -14,
    ERR_CANCELLED = -15,
    ERR_UNSUPPORTED = -16,
    ERR_INTERNAL = -17,
};

#define ERR_MSG_SIZE 512

struct err {
    int  code;              /* enum err_code, 0 when nothing failed */
    int  sys;               /* errno when the code is ERR_SYS, else 0 */
    char msg[ERR_MSG_SIZE];
};

struct err_info {
    int         code;
    const char *name;       /* stable, lower case, for the wire and for scripts: "not_found" */
    int         grpc_status;
    int         exit_status;/* sysexits: 64 usage, 65 data, 69 unavailable, 70 ours */
    bool        ours;       /* true: nothing was learnt about the patch (infra_error) */
    bool        retryable;
};

/* Row of the table for `code`; an unknown code gets the row of ERR_INTERNAL. Never NULL. */
const struct err_info *err_info(int code);

/* Fill *err and return `code`. The message is cut at ERR_MSG_SIZE: put the token before the prose. */
int err_set(struct err *err, int code, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* As err_set, with errno kept in err->sys and its text appended. Code is normally ERR_SYS. */
int err_sys(struct err *err, int code, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* Prefix an existing message with context; the code stays. Returns err->code. */
int err_in(struct err *err, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* Write foreign bytes printable: C escapes, at most `size`-1 characters, always terminated. */
void err_quote(char *out, size_t size, const void *bytes, size_t n);
