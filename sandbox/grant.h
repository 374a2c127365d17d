/*
 * grant.h - what a client and its jail say to each other: fixed structs, one per packet.
 *
 * The jail answers requests by a table per slot state (jail.c), and those about images, which are no slot's, in
 * their order. A request outside its row, with a
 * wrong generation, a wrong size or a wrong set of descriptors ends the connection, and with it
 * every sandbox of that client. Descriptors travel beside the struct in the order of the bits of
 * `fds`; each is checked for its type before use.
 */
#pragma once
#include "base/clock.h"
#include "base/err.h"
#include "sandbox/sandbox.h"
#include <fcntl.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/stat.h>

#define GRANT_VERSION 1u        /* both sides come from one build; another number is refused */
#define GRANT_SLOTS_MAX 1024u
#define GRANT_COMMAND_MAX ((uint64_t)1 << 20)   /* bytes of a command memfd */
#define GRANT_EDITS_MAX ((uint64_t)1 << 30)
#define GRANT_PATH_MAX 4096                     /* bytes of a path, its NUL included */

enum grant_kind {
    /* requests */
    GRANT_ACQUIRE = 1, GRANT_RUN, GRANT_KILL, GRANT_CLOSE, GRANT_READ, GRANT_LIST, GRANT_WRITE, GRANT_DIFF,
    GRANT_MOUNT, GRANT_UNMOUNT,
    /* answers */
    GRANT_HELLO = 64, GRANT_READY, GRANT_ACQUIRED, GRANT_DONE, GRANT_FILED, GRANT_MOUNTED,
    GRANT_KIND_COUNT
};

enum {                          /* bits of grant_request.fds */
    GRANT_FD_TREE = 1, GRANT_FD_EDITS = 2, GRANT_FD_ROOT = 4,   /* acquire; diff: only the tree */
    GRANT_FD_COMMAND = 8,       /* run: sealed memfd with the command, where it does not follow the struct */
    GRANT_FD_IN = 16, GRANT_FD_OUT = 32, GRANT_FD_ERR = 64,     /* run with such a memfd: struct sandbox_streams */
    GRANT_FD_PATH = 128,        /* read, list, write: sealed memfd, one NUL-terminated string */
    GRANT_FD_CONTENT = 256,     /* write: sealed memfd */
    GRANT_FD_WARM = 512,        /* acquire: sealed memfd with a command: how the sandbox's first run begins (warm.h) */
};
/* A command: uint32_t argc, then NUL-terminated strings: the program's path, argc arguments from the zeroth on, NAME=value ...
 * Up to so many bytes of it follow the struct in the same packet: it is passed on as it is. */
#define GRANT_INLINE_MAX 4096u

enum { GRANT_RUN_MEASURE = 1, GRANT_RUN_APART = 2 };
/* acquire: a command follows at once. That it was acquired need not be told before the command's end, but within ... */
enum { GRANT_ACQUIRE_RUN = 1 };
#define GRANT_UNTOLD_NS (1 * NS_PER_MS)

struct grant_request {
    uint32_t kind, slot, generation, fds;
    uint32_t option;                    /* bits of GRANT_ACQUIRE_* and GRANT_RUN_*; write: mode of the file; mount: how many data
                                         * files follow the image; zero elsewhere */
    uint32_t profile;                   /* acquire only, as the limits; zero elsewhere */
    struct sandbox_limits limits;       /* acquire only; zero elsewhere */
};

enum { GRANT_HAS_OUTPUT = 1, GRANT_HAS_REPORT = 2, GRANT_HAS_PROXY = 4, GRANT_HAS_ERROR = 8 };  /* of grant_answer.fds */

struct grant_answer {
    uint32_t kind, slot, generation, fds;
    int32_t  rc, sys;                   /* 0, or a code of err.h with its errno; text in msg */
    uint32_t version, slots;            /* hello: how many slots are numbered 0 .. slots-1 */
    struct sandbox_result result;       /* done; its descriptors travel beside */
    char msg[ERR_MSG_SIZE];
};

/* A stream that the launcher can read or write without waiting once poll() has said so. The client asks before it sends, the
 * jail before it takes. */
static inline bool grant_stream_fits(int fd, bool input)
{
    struct stat st;
    int type = 0, flags = fcntl(fd, F_GETFL);
    socklen_t size = sizeof type;
    return flags >= 0 && !(flags & O_PATH) && (flags & O_ACCMODE) != (input ? O_WRONLY : O_RDONLY) && fstat(fd, &st) == 0 &&
           (S_ISFIFO(st.st_mode) || (input && S_ISREG(st.st_mode)) ||
            (S_ISSOCK(st.st_mode) && getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_STREAM));
}

/* A file that nobody can change by this descriptor. */
static inline bool grant_file_fits(int fd)
{
    struct stat st;
    int flags = fcntl(fd, F_GETFL);
    return flags >= 0 && !(flags & O_PATH) && (flags & O_ACCMODE) == O_RDONLY && fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
}
