/*
 * mount.h - the file system a sandbox sees, built from constant tables only.
 *
 * Three mount namespaces lie behind a sandbox. The jail's (private copy of the host's) holds the
 * template of /etc. A second one of the launcher holds only the read-only lower layers, idmapped so that
 * files of root belong to the slot's uid: to copy it for another world costs a handful of mounts. The one
 * it lives in is the sandbox's: one tmpfs ("store") carries everything that can be written; the root
 * is an overlay of the slot's skeleton and the /etc template, and one overlay per layer goes on
 * top, so that inodes (and with them file locks) are never shared with host or neighbours. The store itself is mounted
 * below /assay and covered by an empty directory, out of reach but usable by descriptor. While a world is made nothing foreign is in it, and all that is mounted has
 * a path of our own making, one call each; later, and in the image, paths are resolved without symbolic links before
 * anything is mounted on them.
 *
 * Rootless, the kernel gives a user namespace less, and this is all that differs here: no idmapped layer (what belongs to
 * others than the user cannot be written over), device nodes bound from the host's, overlay marks in user attributes and
 * no redirected directories, and a /proc of the jail's that stays below each sandbox's own, because a namespace without
 * one may not have a new one.
 */
#pragma once
#include "sandbox/order.h"

/* Jail: read the host's root once. What is put into a directory that was empty then is not seen in sandboxes. */
MUST_CHECK int mount_plan(struct plan *out, struct err *err);
/* Jail: private mount namespace, fresh /proc, template of /etc on /tmp. */
MUST_CHECK int mount_jail(struct err *err);
/* A detached copy of the mount at `fd`, read-only, idmapped by `userns` where the file system can
 * do it (*out_own true). Returns the descriptor, owned. The caller must be in the mount's namespace. */
MUST_CHECK int mount_clone(int fd, int userns, bool *out_own, struct err *err);
/* Jail: an erofs image, files[0], with its data files, mounted read-only in the jail's mount namespace. Returns its directory,
 * owned. The kernel parses it: whoever may ask for that is trusted with the kernel. */
MUST_CHECK int mount_image(const int *files, int count, struct err *err);
/* It goes when nobody has it any more. `dir` stays the caller's. */
void mount_image_end(int dir);
/* Own mount namespace with the lower layers at /lower. Sets kit->plan.own. */
MUST_CHECK int mount_lower(struct kit *kit, struct err *err);

#define WORLD_PARTS_MAX 16
struct part {                   /* a directory of the store that foreign code may write to or through */
    int dir;
    uint64_t size, digest;      /* as it was before any: how much was in it, and all that tells of a change */
};
/* Remember directory `dir`, which the part has from now on, as it is before anything foreign can write to it. */
MUST_CHECK int part_watch(struct part *p, int dir, struct err *err);
/* Nothing in it and nothing about it has changed. */
bool part_clean(const struct part *p);

struct world {                  /* a launcher's view */
    int queues;                 /* POSIX message queues of the ipc namespace, mounted out of sight; -1: not yet */
    int store;                  /* root of the store */
    struct part parts[WORLD_PARTS_MAX];     /* first SANDBOX_REPORT_DIR and the others that lie open, then the overlays' */
    uint32_t part_count;
    uint64_t blocks_free, inodes_free;      /* of the store, before any run */
    bool proc_mounted, tree, image;         /* is there one: /proc of a run, the snapshot's tree, a root other than the host's */
    bool marks;                 /* the store can hold an overlay's marks: a directory may replace one of the lower layer */
    uint64_t disk_bytes, disk_inodes;       /* current size of the store */
    uint32_t cpus;              /* as many processors are shown */
};
#define WORLD_REPORT 0          /* which part that is */
MUST_CHECK int mount_world(struct world *w, const struct kit *kit, struct err *err);
/*
 * After a run and all its processes: make the world what mount_world() left, so that the next sandbox can have it. What was
 * not touched stays; what lies in the open directories and over the tree goes. False where more was touched than that: then
 * the launcher ends and another makes its world anew.
 */
bool world_reset(struct world *w, const struct kit *kit);
/* Close what it has open. It is unmade with its mount namespace. */
void world_end(struct world *w);
/* Replace the host's root by overlay of `root` (a detached mount; owned by uid 0 inside if `own`). */
MUST_CHECK int mount_root(struct world *w, const struct kit *kit, int root, struct err *err);
/* The snapshot's tree at SANDBOX_WORK_DIR, writable above. */
MUST_CHECK int mount_tree(struct world *w, const struct kit *kit, int tree, struct err *err);
/*
 * Mount the message queues of this ipc namespace in the store, under its cover: Landlock asks for rules on what mq_open()
 * opens, and takes none for the kernel's own mount. Again for each new ipc namespace.
 */
MUST_CHECK int mount_queues(struct world *w, struct err *err);
/* A tree that is copied, not mounted: the agent may open only what lies below the root, so while it copies the tree does. */
MUST_CHECK int mount_lend(const struct world *w, int tree, struct err *err);
void mount_lend_end(const struct world *w);
/* How many processors /sys/devices/system/cpu tells of, by which libc counts them. Nothing else of /sys is there. */
MUST_CHECK int mount_cpus(struct world *w, uint32_t count, struct err *err);
MUST_CHECK int mount_store_size(struct world *w, uint64_t bytes, uint64_t inodes, struct err *err);
/* Fresh /proc of pid namespace `room`, which kernels before 6.17 refuse, or, where that is -1, of the caller's; dangerous
 * parts masked. Foreign code of an earlier run may have left its files in the root by now: nothing is taken from there. It
 * gets its masks in the store, out of reach, and then moves. */
MUST_CHECK int mount_proc(const struct world *w, int room, struct err *err);
/* The same, mounted nowhere. Returns a descriptor, owned. */
MUST_CHECK int mount_proc_hidden(struct err *err);
/*
 * Let namespaces nested in this one mount a fresh /proc: the kernel lets them only where some /proc without masks is mounted
 * in the namespace already, and asks not where. So one goes into the store, under its cover, which is locked for them; the
 * one at /proc keeps its masks. Once per launcher.
 */
MUST_CHECK int mount_nested_proc(const struct world *w, struct err *err);
