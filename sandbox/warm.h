/*
 * warm.h - warm starts: a process that has started its interpreter and imports already, forked per run.
 *
 *   launcher --fork, exec--> warm host: the declared command, e.g. python3 -m pytest, in the sandbox's
 *                            world before any foreign code is in it; stops in the middle of its start
 *            --WARM_FORK-->  a fork of it, born into a run's namespaces: that run's agent
 *            --CELL_RUN-->   goes on as if just started - or, where it would not be what a cold start
 *                            of this command on this tree is, executes the command (and says why)
 *
 * Nothing of ours runs below the interpreter: warm/sitecustomize.py is imported by the interpreter's own
 * `site`, between its start and its command, imports what the command will import, and waits there, in
 * warm/fork.c; in the fork it removes its traces and returns, and the interpreter takes up its command.
 *
 * Rights: the host runs in the slot's user namespace, without capabilities but CAP_SYS_ADMIN and
 * CAP_NET_ADMIN of that namespace (no power over anything of the host), and may call of what they allow
 * only setns and unshare of three kinds. It needs them to fork into a pid namespace, which therefore
 * belongs to that user namespace. The fork gives them up before its agent's work begins, and the launcher
 * looks for itself, by /proc, that it did. The host's program is the image's: as trusted as the image.
 */
#pragma once
#include "sandbox/order.h"

#define WARM_DIR "/assay/warm"          /* sitecustomize.py and fork.so inside; nobody inside owns it */

enum { WARM_SOCK = 3, WARM_COMMAND, WARM_ENV, WARM_FILTER };     /* the host's descriptors at its exec: socket to the
                                 * launcher; the declared command as a GRANT_FD_COMMAND; the fixed environment as NUL-terminated
                                 * strings; the filter of agents as struct sock_filter. It answers with a cell_answer when it
                                 * is ready, or cannot be, and to each order. */

struct warm_order {             /* fds: pid namespace of the run, its agent's socket, its output */
    uint32_t namespaces;        /* CLONE_NEW... kinds that the run must not share with the host */
};

/* With less memory a run has no host beside it, which takes some 30 MiB of what is the run's. */
#define WARM_MEMORY_MIN ((uint64_t)256 << 20)

/* ---- the launcher's side; one host at most ---- */

struct warm {
    pid_t pid;                  /* 0: none; -1: dead and reaped by the way */
    int sock, output;           /* to it; what it prints, which must be nothing */
    bool ready;
    uint32_t net;               /* which network namespace it was born in, by net.count */
    uint8_t *declared;          /* its command, owned */
    size_t declared_len;
};

/* Begin a host for the command in memfd `declared`; in the slot of one that has been ended. It comes up by itself. */
MUST_CHECK int warm_start(struct warm *w, const struct kit *kit, int declared, uint32_t net, struct err *err);
bool warm_alive(const struct warm *w);
/* Is there a host, and for this command? */
bool warm_is(const struct warm *w, int declared);
/* Wait until it is ready; `procs` is a /proc in which it is seen. On failure it is ended. */
MUST_CHECK int warm_ready(struct warm *w, int procs, struct err *err);
/* Have it fork an agent (socket, output: borrowed) into pid namespace `pidns`; the agent answers for itself, and is a child of
 * the caller. On failure the host is ended. */
MUST_CHECK int warm_fork(struct warm *w, int pidns, uint32_t namespaces, int sock, int out, struct err *err);
/* Does /proc (of the run's pid namespace, at descriptor `proc`) show nothing but reaper and agent, and the agent without rights? */
MUST_CHECK int warm_verify(int proc, uid_t uid, struct err *err);
void warm_end(struct warm *w);
/* It is dead and reaped: so will be what it had begun and left, which has its rights and might import what is foreign now. */
void warm_died(struct warm *w);

/* What lies in WARM_DIR: put there once per slot. */
MUST_CHECK int warm_files(int dir, struct err *err);
