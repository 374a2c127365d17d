/*
 * ipc.h - the ipc namespace of a slot, and the proof that a sandbox made nothing in it.
 *
 * System V: the kernel gives the next object of a kind the number in kernel.{shm,sem,msg}_next_id, once, and then -1 stands
 * there. So each is set to 0, the number it would have anyway, and whether it still stands there tells. POSIX queues are
 * entries of a directory (see mount_queues()). Where either cannot be asked the namespace counts as used.
 */
#pragma once
#include "sandbox/mount.h"

enum { IPC_KINDS = 3 };
struct ipc {
    int next[IPC_KINDS];        /* the files of that; -1: the kernel has none */
    struct part queues;         /* world.queues as it was */
};

/* Watch the caller's ipc namespace, which nothing foreign has been in. */
MUST_CHECK int ipc_watch(struct ipc *i, const struct kit *kit, struct world *w, struct err *err);
bool ipc_unused(const struct ipc *i, const struct world *w);
/* Close what is open of it. */
void ipc_end(struct ipc *i);
/* Enter a new one. */
MUST_CHECK int ipc_renew(struct ipc *i, const struct kit *kit, struct world *w, struct err *err);
