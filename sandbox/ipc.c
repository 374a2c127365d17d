/* ipc.c - see ipc.h. */
#include "sandbox/ipc.h"
#include "base/own.h"
#include <fcntl.h>
#include <sched.h>
#include <string.h>

static const char *const kinds[IPC_KINDS] = { "sys/kernel/shm_next_id", "sys/kernel/sem_next_id", "sys/kernel/msg_next_id" };

int ipc_watch(struct ipc *i, const struct kit *kit, struct world *w, struct err *err)
{
    int rc = kit->landlock >= 2 ? mount_queues(w, err) : 0;
    for (int k = 0; k < IPC_KINDS; k++) {
        own_fd fd = openat(kit->proc, kinds[k], O_RDWR | O_CLOEXEC);      /* of the namespace of whoever opens it */
        i->next[k] = fd >= 0 && write(fd, "0", 1) == 1 ? give_fd(&fd) : -1;
    }
    if (rc == 0 && w->queues >= 0)
        rc = part_watch(&i->queues, w->queues, err);
    return rc;
}

bool ipc_unused(const struct ipc *i, const struct world *w)
{
    bool unused = w->queues >= 0 && part_clean(&i->queues);
    for (int k = 0; unused && k < IPC_KINDS; k++) {
        char text[8];
        unused = i->next[k] >= 0 && pread(i->next[k], text, sizeof text, 0) == 2 && memcmp(text, "0\n", 2) == 0;
    }
    return unused;
}

void ipc_end(struct ipc *i)
{
    for (int k = 0; k < IPC_KINDS; k++)
        drop_fd(&i->next[k]);
}

int ipc_renew(struct ipc *i, const struct kit *kit, struct world *w, struct err *err)
{
    ipc_end(i);
    return unshare(CLONE_NEWIPC) < 0 ? err_sys(err, ERR_SYS, "ipc namespace") : ipc_watch(i, kit, w, err);
}
