/*
 * cell.h - the two processes inside a sandbox that are ours, both without any privilege.
 *
 * The reaper is pid 1 of a run's pid namespace: it mounts that namespace's /proc, drops all rights,
 * and sleeps; the kernel reaps orphans for it, and its death is the death of everything in the run.
 * The agent is the second process: it does what must be done with the sandbox's own rights
 * (write the edits into the tree, read report files out of it) and at last becomes the command.
 * What can be done for that before the command is known, it does before it answers.
 * Foreign code never holds their sockets.
 */
#pragma once
#include "sandbox/order.h"
#include "sandbox/sandbox.h"

enum cell_kind {
    CELL_EDITS = 1,         /* fd: edits memfd */
    CELL_COPY,              /* fd: directory of the tree, which could not be idmapped: copy it */
    CELL_COLLECT,           /* fds: report directory, empty memfd */
    CELL_READ, CELL_LIST,   /* fds: memfd with a path, empty memfd */
    CELL_WRITE,             /* fds: memfd with a path, sealed memfd; mode */
    CELL_DIFF,              /* fds: empty memfd, then directory of the tree if there was one */
    CELL_RUN,               /* the command follows the struct; or fds: memfd with it, and what `fds` say */
};

struct cell_answer { int32_t rc, sys; char msg[ERR_MSG_SIZE]; };

/* Never return. Each answers once when it is ready. An agent that is not the first in its pid namespace (`again`) ends
 * instead where anyone but agents has lived there. Of descriptors the agent keeps `sock`, and `out` as its standard output
 * and error; the reaper keeps none. */
struct world;
_Noreturn void cell_reaper(const struct kit *kit, const struct world *w, int sock);
_Noreturn void cell_agent(const struct kit *kit, const struct world *w, int sock, int out, bool again);
/* The reaper of a run whose agent is a warm host's fork, begun in the slot's user namespace; /proc is the launcher's business. */
_Noreturn void cell_reaper_within(const struct kit *kit, int sock);
/* Never returns: becomes a warm host (warm.h), by executing the command in `declared`. */
_Noreturn void cell_warm_host(const struct kit *kit, int declared, int sock, int out);

/* The agent's work; each in a file of its own. */
MUST_CHECK int edits_apply(int tree, int edits, struct err *err);
MUST_CHECK int copy_tree(int from, int to, int depth, struct err *err);
MUST_CHECK int collect_report(int dir, int out, struct err *err);
MUST_CHECK int files_read(int path, int out, struct err *err);
MUST_CHECK int files_list(int path, int out, struct err *err);
MUST_CHECK int files_write(int path, int content, mode_t mode, struct err *err);
MUST_CHECK int diff_tree(int was, int out, struct err *err);

/* Paths beneath a directory, no link followed (edits.c). Return a descriptor, or -1 with errno. */
int beneath_open(int dir, const char *path, int flags, mode_t mode);
/* The parent of `path`, made if `make`; *out_name is its last component. `path` is changed and restored. */
int beneath_parent(int tree, char *path, bool make, const char **out_name);
