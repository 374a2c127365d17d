/*
 * cell.h - the processes of a sandbox that are ours and have no privilege.
 *
 * The zygote takes on what a command will have (user, rights, filter, second fence, limits) once, and for each order begins a
 * child that has it all from birth: the command, by a fork that copies nothing, or an agent that does what must be done with
 * the sandbox's own rights (write the edits into the tree, read files out of it). Its children are born into the run's pid
 * namespace; it is not in there itself, so foreign code cannot name it, and lives on from run to run and from sandbox to
 * sandbox. Foreign code never holds its socket.
 *
 * The reaper is pid 1 of that namespace: it sleeps; the kernel reaps orphans for it, and its death is the death of everything
 * in the run. Reaper and command are children of the launcher.
 */
#pragma once
#include "sandbox/order.h"
#include "sandbox/sandbox.h"
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

enum cell_kind {
    CELL_WORLD = 1,         /* the first order: the world is there; fd: root of its message queues, if one is mounted. Answered
                             * with the reaper's pid and a descriptor of the run's pid namespace */
    CELL_ARM,               /* fd: the coming command's output */
    CELL_EDITS,             /* fd: edits memfd */
    CELL_COPY,              /* fd: directory of the tree, which could not be idmapped: copy it */
    CELL_COLLECT,           /* fds: report directory, empty memfd */
    CELL_READ, CELL_LIST,   /* fds: memfd with a path, empty memfd */
    CELL_WRITE,             /* fds: memfd with a path, sealed memfd; mode */
    CELL_DIFF,              /* fds: empty memfd, then directory of the tree if there was one */
    CELL_RUN,               /* the command follows the struct; or fds: memfd with it, and what `fds` say. Answered by the
                             * command itself: that it is born, and then perhaps why it cannot be executed */
};

struct cell_answer { int32_t rc, sys; char msg[ERR_MSG_SIZE]; int32_t pid; };     /* warm/sitecustomize.py knows its layout */

/* fork() without the care for threads and streams, of which we have none and which costs memory; no signal has a handler in
 * the child. */
pid_t cell_fork(void);
/* Go on with `job`, which never returns, on pages of the stack that nobody has touched; its argument is a copy of arg[size],
 * and all that was on the stack is given back. The copy ends below a page's border, and `room` bytes from there on are free. */
_Noreturn void cell_restart(void (*job)(void *arg), const void *arg, size_t size, size_t room);
/* A process that shared our memory had its stack here and is gone without a return: what the address sanitizer has noted of its
 * frames would be held against ours. */
static inline void cell_stack_forget(const void *from, size_t size)
{
#ifdef __SANITIZE_ADDRESS__
    __asan_unpoison_memory_region(from, size);
#endif
    (void)from, (void)size;
}
/* Coming to rest: give back what deeper calls have touched of the stack. */
void cell_stack_trim(void);
/* False: the kernel goes on writing into our memory on which processor we are, as libc asked it to. */
bool cell_rseq_end(void);
/* Never returns. May be begun before the world is there: makes itself, the run's pid namespace and the reaper meanwhile. Of its
 * descriptors it keeps `sock`. */
_Noreturn void cell_zygote(const struct kit *kit, int sock);
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
