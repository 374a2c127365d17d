/* mount.c - see mount.h for the plan. Only constants and descriptors reach the kernel from here. */
#include "sandbox/mount.h"
#include "base/own.h"
#include "sandbox/etc.h"
#include "sandbox/siphash.h"
#include "sandbox/warm.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <linux/openat2.h>
#include <sched.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <time.h>

#ifndef MOUNT_ATTR_IDMAP
#define MOUNT_ATTR_IDMAP 0x00100000
#endif
#ifndef EFSCORRUPTED
#define EFSCORRUPTED EUCLEAN
#endif
#define WIPE_ENTRIES_MAX 4096           /* more than that and a new world is made sooner than the old one is cleaned */
#define WIPE_DEPTH_MAX 40
#define CLONE_FLAGS (OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC)

/* The root beside the host's layers: name, mode, owned by uid 0 inside? Made once per slot, a lower layer of every root. */
struct place { const char *path; mode_t mode; bool inside; };
static const struct place skeleton[] = {
    { "assay", 0755, false },           /* owned by nobody inside: cannot be moved away */
    { "assay/report", 0755, true },
    { "assay/store", 0700, false },
    { "assay/warm", 0755, false },
    { "dev", 0755, true }, { "dev/pts", 0755, false }, { "dev/shm", 01777, true },
    { "home", 0755, true }, { "home/sandbox", 0755, true },
    { "proc", 0555, false }, { "run", 0755, true }, { "sys", 0555, false }, { "sys/devices", 0555, false },
    { "sys/devices/system", 0555, false }, { "sys/devices/system/cpu", 0555, false },
    { "testbed", 0755, true }, { "tmp", 01777, true },
    { "var", 0755, true }, { "var/tmp", 01777, true }, { "var/lib", 0755, true }, { "var/cache", 0755, true },
    { "var/log", 0755, true },
};
struct node { const char *name; unsigned major, minor; };
static const struct node nodes[] = {
    { "null", 1, 3 }, { "zero", 1, 5 }, { "full", 1, 7 }, { "random", 1, 8 }, { "urandom", 1, 9 }, { "tty", 5, 0 },
};
struct link { const char *name, *target; };
static const struct link dev_links[] = {
    { "fd", "/proc/self/fd" }, { "stdin", "/proc/self/fd/0" }, { "stdout", "/proc/self/fd/1" },
    { "stderr", "/proc/self/fd/2" }, { "ptmx", "pts/ptmx" },
};
/* Directories of the store that lie open in the root, each a mount of its own: what a run leaves in them goes with it. */
struct shown { const char *name; mode_t mode; const char *at; };
static const struct shown shown[] = {
    { "report", 0755, "assay/report" }, { "tmp", 01777, "tmp" }, { "shm", 01777, "dev/shm" }, { "vartmp", 01777, "var/tmp" },
    { "home", 0755, "home/sandbox" },
};
_Static_assert(sizeof shown / sizeof shown[0] + 1 + PLAN_NAMES_MAX <= WORLD_PARTS_MAX, "parts of a world");
#define SHOWN_COUNT (sizeof shown / sizeof shown[0])
/* Parts of /proc that anyone may read and that tell of the host. What only root may open (kcore, sysrq-trigger, kmsg,
 * timer_list ...) is closed already: the uid behind a sandbox owns nothing of /proc. The first is in every kernel. */
static const char *const masked_files[] = {
    "cmdline", "keys", "key-users", "kallsyms", "config.gz", "interrupts", "modules", "diskstats", "partitions",
};
static const char *const masked_dirs[] = { "fs", "acpi", "scsi", "bus", "irq", "asound", "driver" };

/* Of a world. As with the network's counters (net.c) nobody inside learns it, or a digest made with it. */
static struct siphash_key part_key;

static int openat2_beneath(int dir, const char *path, int flags)
{
    struct open_how how = { .flags = (uint64_t)(flags | O_CLOEXEC),
                            .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS };
    return (int)syscall(SYS_openat2, dir, path, &how, sizeof how);
}

/* Attach detached mount `fd` on `path` below `dir`, which must be there and be no link. */
static int attach(int fd, int dir, const char *path, struct err *err)
{
    own_fd at = openat2_beneath(dir, path, O_PATH);
    if (at < 0)
        return err_sys(err, ERR_SYS, "mount point %s", path);
    if (move_mount(fd, "", at, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0)
        return err_sys(err, ERR_SYS, "attach at %s", path);
    return 0;
}

/* The same where no name on the way was ever foreign. The kernel follows no link in the last. */
static int attach_ours(int fd, int dir, const char *path, struct err *err)
{
    return move_mount(fd, "", dir, path, MOVE_MOUNT_F_EMPTY_PATH) < 0 ? err_sys(err, ERR_SYS, "attach at %s", path) : 0;
}

/* What is mounted at `from`, without what is mounted below, at `to` also; both below the cwd and never foreign. */
static int bind_at(const char *from, const char *to, struct err *err)
{
    return mount(from, to, NULL, MS_BIND, NULL) < 0 ? err_sys(err, ERR_SYS, "mount %s at %s", from, to) : 0;
}

/* The same, read-only. */
static int show_at(const char *from, const char *to, struct err *err)
{
    const unsigned long flags = MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC;
    int rc = bind_at(from, to, err);
    return rc == 0 && mount(NULL, to, NULL, MS_REMOUNT | MS_BIND | flags, NULL) < 0 ? err_sys(err, ERR_SYS, "read-only %s", to) : rc;
}

/*
 * Make the cwd the root of this namespace and let the old one go, with all that is mounted in it. Processes whose root was the
 * old one, as a zygote begun meanwhile, have the new one.
 */
static int enter(struct err *err)
{
    if (syscall(SYS_pivot_root, ".", ".") < 0 || umount2(".", MNT_DETACH) < 0 || chdir("/") < 0)
        return err_sys(err, ERR_SYS, "enter the sandbox's root");
    return 0;
}

/* A fresh file system, detached. `options` are name, value pairs; the NULL value of "lowerdir+" or "pidns" is the descriptor
 * `given`, any other NULL value makes a flag. A name that begins with '?' may be unknown to the kernel. */
static int fresh_over(const char *type, const char *const (*options)[2], unsigned attrs, int given, struct err *err)
{
    own_fd fs = fsopen(type, FSOPEN_CLOEXEC);
    if (fs < 0 || fsconfig(fs, FSCONFIG_SET_STRING, "source", type, 0) < 0)
        return err_sys(err, ERR_SYS, "file system %s", type);
    for (; options != NULL && (*options)[0] != NULL; options++) {
        const char *name = (*options)[0], *value = (*options)[1];
        bool optional = name[0] == '?';
        name += optional;
        int rc = value != NULL ? fsconfig(fs, FSCONFIG_SET_STRING, name, value, 0)
               : strcmp(name, "lowerdir+") == 0 || strcmp(name, "pidns") == 0 ? fsconfig(fs, FSCONFIG_SET_FD, name, NULL, given)
               : fsconfig(fs, FSCONFIG_SET_FLAG, name, NULL, 0);
        if (rc < 0 && !optional)
            return err_sys(err, ERR_SYS, "%s: option %s", type, name);
    }
    if (fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
        return err_sys(err, ERR_SYS, "%s: create", type);
    int fd = fsmount(fs, FSMOUNT_CLOEXEC, attrs);
    return fd >= 0 ? fd : err_sys(err, ERR_SYS, "%s: mount", type);
}

/* A fresh file system at `at`, below the cwd and never foreign: in one call. */
static int fresh_at(const char *type, const char *const (*options)[2], unsigned long flags, const char *at, struct err *err)
{
    char text[512] = "";
    size_t n = 0;
    for (; (*options)[0] != NULL && n < sizeof text; options++) {
        const char *name = (*options)[0] + ((*options)[0][0] == '?'), *value = (*options)[1];
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%s%s%s", n > 0 ? "," : "", name, value ? "=" : "", value ? value : "");
    }
    if (n >= sizeof text)
        return err_set(err, ERR_INTERNAL, "%s: options", type);
    return mount(type, at, type, flags, text) < 0 ? err_sys(err, ERR_SYS, "%s at %s", type, at) : 0;
}

static int fresh(const char *type, const char *const (*options)[2], unsigned attrs, struct err *err)
{
    return fresh_over(type, options, attrs, -1, err);
}

/* To have looked at what is shown as it lies in a tmpfs is no message to the next sandbox: a time of access that is far ahead
 * stays. */
static int never_read(int dir, const char *name, struct err *err)
{
    static const struct timespec times[] = { { .tv_sec = INT32_MAX }, { .tv_nsec = UTIME_OMIT } };
    return utimensat(dir, name, times, AT_SYMLINK_NOFOLLOW) < 0 ? err_sys(err, ERR_SYS, "time of access of %s", name) : 0;
}

/* Where the kernel notes when a terminal was spoken to, on whatever mount: as it would be if none had been. */
static int never_spoken_to(int root, struct err *err)
{
    static const struct timespec times[] = { { .tv_sec = INT32_MAX }, { .tv_sec = INT32_MAX } };
    return utimensat(root, "dev/pts/ptmx", times, AT_SYMLINK_NOFOLLOW) < 0 ? err_sys(err, ERR_SYS, "times of terminals") : 0;
}

static bool is_empty(const char *path)
{
    DIR *d = opendir(path);
    int entries = 0;
    while (d != NULL && entries <= 2 && readdir(d) != NULL)     /* "." and ".." */
        entries++;
    if (d != NULL)
        closedir(d);
    return entries == 2;
}

int mount_plan(struct plan *out, struct err *err)
{
    static const char *const names[] = { "usr", "opt", "bin", "sbin", "lib", "lib32", "lib64", "libx32" };
    *out = (struct plan){ 0 };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[16];
        struct stat st;
        snprintf(path, sizeof path, "/%s", names[i]);
        if (lstat(path, &st) < 0)
            continue;
        if (S_ISDIR(st.st_mode)) {
            out->bare |= is_empty(path) ? UINT32_C(1) << out->layer_count : 0;
            strcpy(out->layers[out->layer_count++], names[i]);
        } else if (S_ISLNK(st.st_mode)) {
            uint32_t k = out->link_count;
            ssize_t n = readlink(path, out->links[k].target, sizeof out->links[k].target - 1);
            if (n <= 0)
                return err_sys(err, ERR_SYS, "read link %s", path);
            out->links[k].target[n] = '\0';
            strcpy(out->links[k].name, names[i]);
            out->link_count++;
        }
    }
    return 0;
}

int mount_jail(struct err *err)
{
    static const char *const size[][2] = { { "size", "64m" }, { "mode", "0755" }, { NULL, NULL } };
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 || chdir("/") < 0)
        return err_sys(err, ERR_DENIED, "private mount namespace (CAP_SYS_ADMIN is needed)");
    if (mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
        return err_sys(err, ERR_DENIED, "fresh /proc");
    own_fd fd = fresh("tmpfs", size, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, err);
    if (fd < 0)
        return fd;
    if (mkdirat(fd, "top", 0755) < 0 || mkdirat(fd, "top/etc", 0755) < 0 || mkdirat(fd, "lower", 0700) < 0 ||
        mkdirat(fd, "images", 0700) < 0)
        return err_sys(err, ERR_SYS, "etc template");
    own_fd etc = openat(fd, "top/etc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int rc = etc < 0 ? err_sys(err, ERR_SYS, "etc template") : etc_fill(etc, err);
    return rc < 0 ? rc : attach(fd, AT_FDCWD, "tmp", err);
}

int mount_clone(int fd, int userns, bool *out_own, struct err *err)
{
    own_fd tree = open_tree(fd, "", CLONE_FLAGS | AT_EMPTY_PATH);
    if (tree < 0)
        return err_sys(err, errno == EINVAL ? ERR_DENIED : ERR_SYS,
                       "copy a directory's mount (it must lie in the jail's mount namespace)");
    struct mount_attr ro = { .attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV };
    if (mount_setattr(tree, "", AT_EMPTY_PATH, &ro, sizeof ro) < 0)
        return err_sys(err, ERR_SYS, "make a lower layer read-only");
    struct mount_attr map = { .attr_set = MOUNT_ATTR_IDMAP, .userns_fd = (uint64_t)userns };
    *out_own = userns >= 0 && mount_setattr(tree, "", AT_EMPTY_PATH, &map, sizeof map) == 0;
    return give_fd(&tree);
}

/* Before Linux 6.12 a file is no source of a mount: a loop device that is gone with its last user. Returns it, owned. */
static int loop_over(int file, char *out_path, size_t size, struct err *err)
{
    own_fd control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
    for (int tries = 0; control >= 0 && tries < 16; tries++) {
        int number = ioctl(control, LOOP_CTL_GET_FREE);
        struct loop_config c = { .fd = (uint32_t)file, .info.lo_flags = LO_FLAGS_READ_ONLY | LO_FLAGS_AUTOCLEAR };
        snprintf(out_path, size, "/dev/loop%d", number);
        own_fd loop = number < 0 ? -1 : open(out_path, O_RDONLY | O_CLOEXEC);
        if (loop >= 0 && ioctl(loop, LOOP_CONFIGURE, &c) == 0)
            return give_fd(&loop);
        if (errno != EBUSY)                     /* somebody else took it */
            break;
    }
    return err_sys(err, ERR_DENIED, "image: a loop device, which this kernel needs for it");
}

static int image_create(const int *files, int count, bool by_loops, struct err *err)
{
    int loops[SANDBOX_IMAGE_FILES], opened = 0, rc = 0;
    own_fd fs = fsopen("erofs", FSOPEN_CLOEXEC);
    if (fs < 0)
        return err_sys(err, ERR_DENIED, "image: file system erofs");
    for (int i = 0; rc == 0 && i < count; i++) {
        char path[32];
        snprintf(path, sizeof path, "/proc/self/fd/%d", files[i]);
        if (by_loops && (rc = loops[opened] = loop_over(files[i], path, sizeof path, err)) >= 0)
            opened++;
        if (rc >= 0)
            rc = fsconfig(fs, FSCONFIG_SET_STRING, i == 0 ? "source" : "device", path, 0) < 0 ? err_sys(err, ERR_DENIED, "image") : 0;
    }
    if (rc == 0 && fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
        rc = err_sys(err, errno == EINVAL || errno == EFSCORRUPTED ? ERR_BAD_INPUT : ERR_DENIED, "image: mount");
    for (int i = 0; i < opened; i++)
        close(loops[i]);                        /* the mount has them now */
    if (rc < 0)
        return rc;
    int fd = fsmount(fs, FSMOUNT_CLOEXEC, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOATIME);
    return fd >= 0 ? fd : err_sys(err, ERR_DENIED, "image: mount");
}

#define IMAGES "/tmp/images/"                   /* below what mount_jail() made */

int mount_image(const int *files, int count, struct err *err)
{
    static unsigned number;
    char at[sizeof IMAGES + 12];
    own_fd fd = image_create(files, count, false, err);
    if (fd < 0 && err->sys == ENOTBLK)
        fd = image_create(files, count, true, err);
    if (fd < 0)
        return err->code;
    snprintf(at, sizeof at, IMAGES "%u", number++);
    if (mkdir(at, 0700) < 0)
        return err_sys(err, ERR_SYS, "image: directory");
    int rc = attach_ours(fd, AT_FDCWD, at, err);
    return rc < 0 ? rc : give_fd(&fd);
}

void mount_image_end(int dir)
{
    char link[32], at[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", dir);
    ssize_t n = readlink(link, at, sizeof at - 1);
    at[n < 0 ? 0 : n] = '\0';
    if (strncmp(at, IMAGES, strlen(IMAGES)) == 0 && umount2(at, MNT_DETACH | UMOUNT_NOFOLLOW) == 0)
        rmdir(at);
}

/* The mode is as given: the umask of launchers is 0. */
static int own_by(int dir, const char *path, mode_t mode, const struct kit *kit, bool inside, struct err *err)
{
    if (mkdirat(dir, path, mode) < 0 && errno != EEXIST)
        return err_sys(err, ERR_SYS, "directory %s", path);
    if (inside && fchownat(dir, path, kit->uid, kit->uid, AT_SYMLINK_NOFOLLOW) < 0)
        return err_sys(err, ERR_SYS, "owner of %s", path);
    return 0;
}

/* /opt holds what was put there by hand: its files stay their owners', so those closed to all stay closed. */
static bool keeps_owners(const char *layer) { return strcmp(layer, "opt") == 0; }

/* Directories, links and device nodes of a root, ready to be a lower layer. */
static int fill_skeleton(int root, const struct kit *kit, struct err *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < sizeof skeleton / sizeof skeleton[0]; i++)
        rc = own_by(root, skeleton[i].path, skeleton[i].mode, kit, skeleton[i].inside, err);
    for (uint32_t i = 0; rc == 0 && i < kit->plan.layer_count; i++)
        rc = own_by(root, kit->plan.layers[i], 0755, kit, !keeps_owners(kit->plan.layers[i]), err);
    for (uint32_t i = 0; rc == 0 && i < kit->plan.link_count; i++)
        if (symlinkat(kit->plan.links[i].target, root, kit->plan.links[i].name) < 0)
            rc = err_sys(err, ERR_SYS, "link /%s", kit->plan.links[i].name);
    own_fd warm = rc < 0 ? -1 : openat2_beneath(root, "assay/warm", O_RDONLY | O_DIRECTORY);
    if (rc == 0)
        rc = warm < 0 ? err_sys(err, ERR_SYS, WARM_DIR) : warm_files(warm, err);
    own_fd dev = rc < 0 ? -1 : openat2_beneath(root, "dev", O_RDONLY | O_DIRECTORY);
    if (dev < 0)
        return rc < 0 ? rc : err_sys(err, ERR_SYS, "/dev");
    const mode_t kind = kit->rootless ? S_IFREG : S_IFCHR;
    for (size_t i = 0; i < sizeof nodes / sizeof nodes[0]; i++)
        if (mknodat(dev, nodes[i].name, kind | 0666, makedev(nodes[i].major, nodes[i].minor)) < 0 ||
            fchownat(dev, nodes[i].name, kit->uid, kit->uid, AT_SYMLINK_NOFOLLOW) < 0)
            return err_sys(err, ERR_SYS, "device %s", nodes[i].name);
    for (size_t i = 0; i < sizeof dev_links / sizeof dev_links[0]; i++)
        if (symlinkat(dev_links[i].target, dev, dev_links[i].name) < 0)
            return err_sys(err, ERR_SYS, "device link %s", dev_links[i].name);
    return 0;
}

/* What a rootless sandbox must borrow of the host: its device nodes, and a /proc. */
static int keep_for_rootless(int top, struct err *err)
{
    own_fd proc = open_tree(AT_FDCWD, "/proc", CLONE_FLAGS);
    int rc = proc < 0 ? err_sys(err, ERR_SYS, "copy the mount of /proc") : attach(proc, top, "proc", err);
    for (size_t i = 0; rc == 0 && i < sizeof nodes / sizeof nodes[0]; i++) {
        char from[24];
        struct stat st;
        snprintf(from, sizeof from, "/dev/%s", nodes[i].name);
        own_fd node = open_tree(AT_FDCWD, from, CLONE_FLAGS | AT_SYMLINK_NOFOLLOW);
        if (node < 0 || fstat(node, &st) < 0 || !S_ISCHR(st.st_mode) ||
            st.st_rdev != makedev(nodes[i].major, nodes[i].minor) || mknodat(top, from + 1, S_IFREG | 0444, 0) < 0)
            return err_sys(err, ERR_DENIED, "%s of the host is needed", from);
        rc = attach(node, top, from + 1, err);
    }
    return rc;
}

/* `path` below the cwd, as it is mounted there, to the same place in the image `root`. */
static int carry_over(const char *path, int root, struct err *err)
{
    own_fd fd = open_tree(AT_FDCWD, path, CLONE_FLAGS);
    return fd < 0 ? err_sys(err, ERR_SYS, "copy the mount of /%s", path) : attach(fd, root, path, err);
}

int mount_lower(struct kit *kit, struct err *err)
{
    static const char *const size[][2] = { { "size", "1m" }, { "mode", "0755" }, { NULL, NULL } };
    static const char *const dirs[] = { "lower", "lower/top", "store", "root", "empty", "skeleton", "proc", "dev" };
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return err_sys(err, ERR_DENIED, "private mount namespace");
    own_fd top = fresh("tmpfs", size, MOUNT_ATTR_NOSUID, err);
    if (top < 0)
        return top;
    int rc = attach(top, AT_FDCWD, "tmp/lower", err);
    for (size_t i = 0; rc == 0 && i < sizeof dirs / sizeof dirs[0]; i++)
        if (mkdirat(top, dirs[i], 0755) < 0)
            rc = err_sys(err, ERR_SYS, "lower directories");
    if (rc == 0)
        rc = never_read(top, "empty", err);
    for (uint32_t i = 0; rc == 0 && i <= kit->plan.layer_count; i++) {
        bool etc = i == kit->plan.layer_count, own = false;
        char from[32], to[32];
        if ((kit->plan.bare >> i) & 1)
            continue;
        snprintf(from, sizeof from, "/%s", etc ? "tmp/top" : kit->plan.layers[i]);
        snprintf(to, sizeof to, "lower/%s", etc ? "top" : kit->plan.layers[i]);
        if (!etc && mkdirat(top, to, 0755) < 0)
            return err_sys(err, ERR_SYS, "lower directories");
        bool mapped = !keeps_owners(from + 1);
        own_fd at = open(from, O_PATH | O_DIRECTORY | O_CLOEXEC);
        own_fd clone = at < 0 ? err_sys(err, ERR_SYS, "open %s", from) : mount_clone(at, mapped ? kit->userns : -1, &own, err);
        if (clone < 0)
            return err->code;
        if (own)
            kit->plan.own |= UINT32_C(1) << i;
        rc = attach(clone, top, to, err);
    }
    own_fd root = rc < 0 ? -1 : openat(top, "skeleton", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (rc == 0)
        rc = root < 0 ? err_sys(err, ERR_SYS, "skeleton") : fill_skeleton(root, kit, err);
    if (rc == 0 && kit->rootless)
        rc = keep_for_rootless(top, err);
    if (rc < 0)
        return rc;
    return fchdir(top) < 0 ? err_sys(err, ERR_SYS, "lower root") : enter(err);
}

struct overlay_paths { char upper[64], work[64]; };

/* Upper and work directory of overlay `name` in the store, which is `store` from the cwd: no absolute path is needed. */
static int overlay_dirs(struct overlay_paths *out, const char *name, const char *store, const struct kit *kit, bool own,
                        struct err *err)
{
    snprintf(out->upper, sizeof out->upper, "%sup/%s", store, name);
    snprintf(out->work, sizeof out->work, "%swork/%s", store, name);
    int rc = own_by(AT_FDCWD, out->upper, 0755, kit, own, err);
    return rc < 0 ? rc : own_by(AT_FDCWD, out->work, 0755, kit, false, err);
}

#define OVERLAY_OPTIONS(lowerdir, lower, paths, kit) {                                                                    \
    { lowerdir, lower }, { "upperdir", (paths).upper }, { "workdir", (paths).work },                                      \
    { (kit)->rootless ? "userxattr" : "?redirect_dir", (kit)->rootless ? NULL : "on" },                                   \
    { "?index", "off" }, { "?metacopy", "off" }, { "?xino", "off" }, { NULL, NULL } }

/* An overlay of `lower` at `at`, with the store at "store". It has no access times: to have looked into it is not to have
 * written to it. */
static int overlay_at(const char *lower, const char *name, const char *at, const struct kit *kit, bool own,
                      unsigned long flags, struct err *err)
{
    struct overlay_paths paths;
    int rc = overlay_dirs(&paths, name, "store/", kit, own, err);
    const char *const options[][2] = OVERLAY_OPTIONS("lowerdir", lower, paths, kit);
    return rc < 0 ? rc : fresh_at("overlay", options, MS_NOSUID | MS_NOATIME | flags, at, err);
}

/* The same, detached, with the cwd in the store; `lower` NULL: of the mount `lower_fd`. */
static int overlay_make(const char *lower, int lower_fd, const char *name, const struct kit *kit, struct err *err)
{
    struct overlay_paths paths;
    int rc = overlay_dirs(&paths, name, "", kit, true, err);
    const char *const options[][2] = OVERLAY_OPTIONS(lower == NULL ? "lowerdir+" : "lowerdir", lower, paths, kit);
    return rc < 0 ? rc : fresh_over("overlay", options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, lower_fd, err);
}

/* ---- parts: what a run may have written to, and how one sees that it did not ---- */

/* A digest of all that tells of a change; tmpfs counts the entries of a directory in its size. */
static bool look(int dir, uint64_t *out_digest, uint64_t *out_size)
{
    struct statx now;
    struct siphash hash;
    ssize_t xattrs = flistxattr(dir, NULL, 0);
    if (statx(dir, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &now) < 0)
        return false;
    const uint64_t told[] = {
        (uint64_t)xattrs, now.stx_size, now.stx_nlink, now.stx_mode, now.stx_uid, now.stx_gid, now.stx_attributes,
        (uint64_t)now.stx_ctime.tv_sec, now.stx_ctime.tv_nsec, (uint64_t)now.stx_mtime.tv_sec, now.stx_mtime.tv_nsec,
        (uint64_t)now.stx_atime.tv_sec, now.stx_atime.tv_nsec,
    };
    siphash_start(&hash, &part_key);
    siphash_add(&hash, told, sizeof told);
    *out_digest = siphash_finish(&hash);
    *out_size = now.stx_size;
    return true;
}

int part_watch(struct part *p, int dir, struct err *err)
{
    p->dir = dir;
    return look(dir, &p->digest, &p->size) ? 0 : err_sys(err, ERR_SYS, "stat a directory");
}

static int part_begin(struct part *p, int store, const char *name, struct err *err)
{
    int dir = openat(store, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    return dir < 0 ? err_sys(err, ERR_SYS, "store/%s", name) : part_watch(p, dir, err);
}

bool part_clean(const struct part *p)
{
    uint64_t digest, size;
    return look(p->dir, &digest, &size) && digest == p->digest;
}

/* A directory of the store, owned by uid 0 inside, to be mounted in the root. */
static int shown_make(struct part *p, const struct shown *s, int store, const struct kit *kit, struct err *err)
{
    int rc = own_by(store, s->name, s->mode, kit, true, err);
    return rc < 0 ? rc : part_begin(p, store, s->name, err);
}

/* Empty `dir` of the store, in which nobody lives any more. False: it is too much, or too deep. */
static bool wipe(int dir, int depth, int *budget)
{
    int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (d == NULL) {
        if (fd >= 0)
            close(fd);
        return false;
    }
    bool ok = depth < WIPE_DEPTH_MAX;
    for (struct dirent *e; ok && (e = readdir(d)) != NULL; ) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        ok = --*budget >= 0;
        if (ok && e->d_type == DT_DIR) {
            own_fd below = openat(fd, e->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
            ok = below >= 0 && wipe(below, depth + 1, budget);
        }
        ok = ok && unlinkat(fd, e->d_name, e->d_type == DT_DIR ? AT_REMOVEDIR : 0) == 0;
    }
    closedir(d);
    return ok;
}

static bool remove_dir(int store, const char *name, int *budget)
{
    own_fd fd = openat(store, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    return fd < 0 ? errno == ENOENT : wipe(fd, 0, budget) && unlinkat(store, name, AT_REMOVEDIR) == 0;
}

static void part_end(struct part *p) { drop_fd(&p->dir); }

void world_end(struct world *w)
{
    drop_fd(&w->store);
    drop_fd(&w->queues);
    for (uint32_t i = 0; i < w->part_count; i++)
        part_end(&w->parts[i]);
}

bool world_reset(struct world *w, const struct kit *kit)
{
    struct err err;
    int budget = WIPE_ENTRIES_MAX;
    if (w->image)
        return false;
    /* First the overlays: while they are as they were, no directory on the way to a mount point has been moved. */
    for (uint32_t i = SHOWN_COUNT; i < w->part_count; i++)
        if (!part_clean(&w->parts[i]))
            return false;
    own_fd root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (never_spoken_to(root, &err) < 0)
        return false;
    if (w->tree && (umount2(SANDBOX_WORK_DIR, MNT_DETACH | UMOUNT_NOFOLLOW) < 0 || !remove_dir(w->store, "up/testbed", &budget) ||
                    !remove_dir(w->store, "work/testbed", &budget)))
        return false;
    w->tree = false;
    for (uint32_t i = 0; i < SHOWN_COUNT; i++) {
        if (part_clean(&w->parts[i]))
            continue;
        char at[32];
        snprintf(at, sizeof at, "/%s", shown[i].at);
        part_end(&w->parts[i]);
        if (umount2(at, MNT_DETACH | UMOUNT_NOFOLLOW) < 0 || !remove_dir(w->store, shown[i].name, &budget) ||
            shown_make(&w->parts[i], &shown[i], w->store, kit, &err) < 0)
            return false;
        own_fd fd = open_tree(w->store, shown[i].name, CLONE_FLAGS);
        if (fd < 0 || attach(fd, root, shown[i].at, &err) < 0)
            return false;
    }
    if (mount_store_size(w, kit->disk_bytes, kit->disk_inodes, &err) < 0)
        return false;
    /* Whatever else may be left takes room. What the dead had open the kernel may be about to let go. */
    for (int tries = 0; tries < 5; tries++) {
        struct statfs now;
        if (fstatfs(w->store, &now) == 0 && now.f_bfree == w->blocks_free && now.f_ffree == w->inodes_free)
            return true;
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    }
    return false;
}

/* One file with three names. */
int mount_cpus(struct world *w, uint32_t count, struct err *err)
{
    char text[32];
    int n = count > 1 ? snprintf(text, sizeof text, "0-%u\n", count - 1) : snprintf(text, sizeof text, "0\n");
    if (count == w->cpus)
        return 0;
    own_fd fd = openat(w->store, "cpu/online", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0444);
    if (fd < 0 || write(fd, text, (size_t)n) != n)
        return err_sys(err, ERR_SYS, "processors shown");
    w->cpus = count;
    return 0;
}

/* The store at "store", as all that is made here below the cwd: the lower root, where nobody foreign has ever been. */
static int store_make(struct world *w, const struct kit *kit, struct err *err)
{
    char size[32], count[32];
    const char *const options[][2] = { { "size", size }, { "nr_inodes", count }, { "mode", "0755" }, { NULL, NULL } };
    static const char *const dirs[] = { "up", "work", "lower", "masks", "proc", "queues", "cpu" };
    static const char *const open_to_all[] = { "masks", "mask", "cpu", "cpu/online" };
    snprintf(size, sizeof size, "%llu", (unsigned long long)w->disk_bytes);
    snprintf(count, sizeof count, "%llu", (unsigned long long)w->disk_inodes);
    int rc = fresh_at("tmpfs", options, MS_NOSUID, "store", err);
    if (rc < 0)
        return rc;
    w->store = open("store", O_PATH | O_DIRECTORY | O_CLOEXEC);
    for (size_t i = 0; i < sizeof dirs / sizeof dirs[0]; i++)
        if (mkdirat(w->store, dirs[i], 0755) < 0)
            return err_sys(err, ERR_SYS, "store directories");
    if (mknodat(w->store, "mask", S_IFREG | 0444, 0) < 0)
        return err_sys(err, ERR_SYS, "store file");
    w->marks = !kit->rootless || setxattr("store", "user.marks", "", 0, 0) == 0;
    rc = mount_cpus(w, kit->cpus, err);
    if (rc == 0 && (linkat(w->store, "cpu/online", w->store, "cpu/possible", 0) < 0 ||
                    linkat(w->store, "cpu/online", w->store, "cpu/present", 0) < 0))
        rc = err_sys(err, ERR_SYS, "processors shown");
    for (size_t i = 0; rc == 0 && i < sizeof open_to_all / sizeof open_to_all[0]; i++)
        rc = never_read(w->store, open_to_all[i], err);
    /* Rootless, they belong to the sandbox's user. What is mounted from here is read-only with it. */
    if (rc == 0 && kit->rootless && (rc = show_at("store/mask", "store/mask", err)) == 0)
        rc = show_at("store/masks", "store/masks", err);
    return rc;
}

/* The overlays, the first at "root" and the others in it. */
static int layers_make(const struct kit *kit, struct err *err)
{
    const struct plan *plan = &kit->plan;
    int rc = overlay_at("lower/top:skeleton", "root", "root", kit, true, 0, err);
    for (uint32_t i = 0; rc == 0 && i < plan->layer_count; i++) {
        char lower[32], at[32];
        if ((plan->bare >> i) & 1)
            continue;
        snprintf(lower, sizeof lower, "lower/%s", plan->layers[i]);
        snprintf(at, sizeof at, "root/%s", plan->layers[i]);
        rc = overlay_at(lower, plan->layers[i], at, kit, (plan->own >> i) & 1, MS_NODEV, err);
    }
    return rc;
}

/* What a rootless sandbox borrows of the host. */
static int borrowed_show(struct err *err)
{
    int rc = bind_at("proc", "root/proc", err);
    for (size_t i = 0; rc == 0 && i < sizeof nodes / sizeof nodes[0]; i++) {
        char from[16], to[24];
        snprintf(from, sizeof from, "dev/%s", nodes[i].name);
        snprintf(to, sizeof to, "root/%s", from);
        rc = bind_at(from, to, err);
    }
    return rc;
}

/* All directories that lie open, mounted, and all parts to be watched. */
static int parts_make(struct world *w, const struct kit *kit, struct err *err)
{
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < SHOWN_COUNT; i++) {
        char from[24], to[32];
        snprintf(from, sizeof from, "store/%s", shown[i].name);
        snprintf(to, sizeof to, "root/%s", shown[i].at);
        rc = shown_make(&w->parts[w->part_count++], &shown[i], w->store, kit, err);
        if (rc == 0)
            rc = bind_at(from, to, err);
    }
    for (uint32_t i = 0; rc == 0 && i <= kit->plan.layer_count; i++) {
        char upper[32];
        if ((kit->plan.bare >> i) & 1)
            continue;
        snprintf(upper, sizeof upper, "up/%s", i == kit->plan.layer_count ? "root" : kit->plan.layers[i]);
        rc = part_begin(&w->parts[w->part_count++], w->store, upper, err);
    }
    return rc;
}

int mount_world(struct world *w, const struct kit *kit, struct err *err)
{
    static const char *const pts[][2] = { { "ptmxmode", "0666" }, { "mode", "0620" }, { NULL, NULL } };
    struct statfs room;
    *w = (struct world){ .store = -1, .queues = -1, .disk_bytes = kit->disk_bytes, .disk_inodes = kit->disk_inodes };
    if (getrandom(&part_key, sizeof part_key, 0) != (ssize_t)sizeof part_key)
        return err_sys(err, ERR_SYS, "key");
    int rc = store_make(w, kit, err);
    if (rc == 0)
        rc = layers_make(kit, err);
    if (rc == 0 && kit->rootless)
        rc = borrowed_show(err);
    if (rc == 0)
        rc = parts_make(w, kit, err);
    if (rc == 0)
        rc = show_at("store/cpu", "root/sys/devices/system/cpu", err);
    if (rc == 0)
        rc = fresh_at("devpts", pts, MS_NOSUID | MS_NOEXEC | MS_NOATIME, "root/dev/pts", err);
    /* The store stays mounted, out of sight: overlays made later need their upper layer in this namespace. */
    if (rc == 0)
        rc = attach_ours(w->store, AT_FDCWD, "root/assay/store", err);
    if (rc == 0)
        rc = show_at("empty", "root/assay/store", err);
    if (rc < 0)
        return rc;
    if (fstatfs(w->store, &room) < 0)
        return err_sys(err, ERR_SYS, "store");
    w->blocks_free = room.f_bfree;
    w->inodes_free = room.f_ffree;
    if (chdir("root") < 0)
        return err_sys(err, ERR_SYS, "root");
    rc = never_spoken_to(AT_FDCWD, err);
    return rc < 0 ? rc : enter(err);
}

/* With the cwd in the store: an overlay of detached mount `lower`. Kernels before 6.13 want the lower layer by name and
 * in this namespace: there it is attached for the moment it takes. */
static int overlay_detached(int lower, const char *name, const struct kit *kit, struct err *err)
{
    int fd = overlay_make(NULL, lower, name, kit, err);
    if (fd >= 0)
        return fd;
    int rc = attach_ours(lower, AT_FDCWD, "lower", err);
    if (rc == 0)
        rc = overlay_make("lower", -1, name, kit, err);
    umount2("lower", MNT_DETACH);               /* its path would tell inside where the host keeps it */
    return rc;
}

/* A directory of the image to mount on: made where missing, refused where it is anything else. */
static int ready_dir(int root, const char *name, struct err *err)
{
    own_fd fd = openat2_beneath(root, name, O_PATH | O_DIRECTORY);
    if (fd < 0 && errno == ENOENT && mkdirat(root, name, 0755) == 0)
        return 0;
    return fd >= 0 ? 0 : err_sys(err, ERR_BAD_INPUT, "environment root: /%s must be a directory", name);
}

static int ready_file(int root, const char *path, struct err *err)
{
    own_fd fd = openat2_beneath(root, path, O_PATH);
    struct stat st;
    if (fd >= 0)
        return fstat(fd, &st) == 0 && S_ISREG(st.st_mode) ? 0
             : err_set(err, ERR_BAD_INPUT, "environment root: /%s must be a file", path);
    struct open_how how = { .flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, .mode = 0644,
                            .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS };
    own_fd made = (int)syscall(SYS_openat2, root, path, &how, sizeof how);
    return made >= 0 ? 0 : err_sys(err, ERR_BAD_INPUT, "environment root: /%s", path);
}

int mount_root(struct world *w, const struct kit *kit, int lower, struct err *err)
{
    /* From the host's root as it was made; the order matters: a mount below one follows it. */
    static const char *const dirs[] = { "assay", "assay/report", "dev", "sys", "tmp", "run", "home" };
    static const char *const empty[] = { "etc", "proc", "testbed" };
    static const char *const files[] = { "etc/hosts", "etc/hostname", "etc/resolv.conf", "etc/passwd", "etc/group" };
    own_fd old = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (old < 0 || fchdir(w->store) < 0)
        return err_sys(err, ERR_SYS, "store");
    w->image = true;
    own_fd root = overlay_detached(lower, "image", kit, err);
    int rc = root < 0 ? err->code : attach(root, old, "testbed", err);
    for (size_t i = 0; rc == 0 && i < sizeof empty / sizeof empty[0]; i++)
        rc = ready_dir(root, empty[i], err);
    for (size_t i = 0; rc == 0 && i < sizeof dirs / sizeof dirs[0]; i++) {
        rc = strchr(dirs[i], '/') != NULL ? 0 : ready_dir(root, dirs[i], err);
        unsigned all = strcmp(dirs[i], "assay") == 0 ? 0 : AT_RECURSIVE;    /* the store below it moves, later */
        own_fd fd = rc < 0 ? -1 : open_tree(old, dirs[i], CLONE_FLAGS | all);
        if (rc == 0)
            rc = fd < 0 ? err_sys(err, ERR_SYS, "skeleton /%s", dirs[i]) : attach(fd, root, dirs[i], err);
    }
    for (size_t i = 0; rc == 0 && i < sizeof files / sizeof files[0]; i++) {
        rc = ready_file(root, files[i], err);
        own_fd fd = rc < 0 ? -1 : open_tree(old, files[i], CLONE_FLAGS);
        if (rc == 0)
            rc = fd < 0 ? err_sys(err, ERR_SYS, "fresh /%s", files[i]) : attach(fd, root, files[i], err);
    }
    if (rc == 0 && kit->rootless)
        rc = fchdir(old) < 0 ? err_sys(err, ERR_SYS, "old root") : carry_over("proc", root, err);
    if (rc == 0)
        rc = attach(w->store, root, "assay/store", err);        /* moves it, with its cover */
    w->proc_mounted = false;                                    /* the old one leaves with the old root */
    if (rc == 0 && fchdir(root) < 0)
        rc = err_sys(err, ERR_SYS, "environment root");
    return rc < 0 ? rc : enter(err);
}

int mount_tree(struct world *w, const struct kit *kit, int tree, struct err *err)
{
    if (fchdir(w->store) < 0)
        return err_sys(err, ERR_SYS, "store");
    w->tree = true;
    own_fd root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    own_fd fd = root < 0 ? err_sys(err, ERR_SYS, "root") : overlay_detached(tree, "testbed", kit, err);
    int rc = fd < 0 ? err->code : attach(fd, root, "testbed", err);
    if (chdir("/") < 0 && rc == 0)
        rc = err_sys(err, ERR_SYS, "leave the store");
    return rc;
}

int mount_queues(struct world *w, struct err *err)
{
    if (w->queues >= 0) {
        close(w->queues);
        w->queues = -1;
        if (fchdir(w->store) < 0 || umount2("queues", MNT_DETACH | UMOUNT_NOFOLLOW) < 0 || chdir("/") < 0)
            return err_sys(err, ERR_SYS, "old message queues");
    }
    own_fd fd = fresh("mqueue", NULL, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC, err);
    int rc = fd < 0 ? fd : attach_ours(fd, w->store, "queues", err);
    if (rc == 0)
        w->queues = give_fd(&fd);
    return rc;
}

int mount_lend(const struct world *w, int tree, struct err *err) { return attach_ours(tree, w->store, "lower", err); }

void mount_lend_end(const struct world *w)
{
    if (fchdir(w->store) == 0)
        umount2("lower", MNT_DETACH);
    if (chdir("/") < 0)
        _exit(1);                               /* foreign code has taken nothing of the root yet */
}

int mount_store_size(struct world *w, uint64_t bytes, uint64_t inodes, struct err *err)
{
    if (bytes == w->disk_bytes && inodes == w->disk_inodes)
        return 0;
    char size[32], count[32];
    snprintf(size, sizeof size, "%llu", (unsigned long long)bytes);
    snprintf(count, sizeof count, "%llu", (unsigned long long)inodes);
    own_fd fs = fspick(w->store, "", FSPICK_EMPTY_PATH | FSPICK_CLOEXEC | FSPICK_NO_AUTOMOUNT);
    if (fs < 0 || fsconfig(fs, FSCONFIG_SET_STRING, "size", size, 0) < 0 ||
        fsconfig(fs, FSCONFIG_SET_STRING, "nr_inodes", count, 0) < 0 || fsconfig(fs, FSCONFIG_CMD_RECONFIGURE, NULL, NULL, 0) < 0)
        return err_sys(err, ERR_SYS, "size of the writable layer (%s bytes, %s inodes)", size, count);
    w->disk_bytes = bytes;
    w->disk_inodes = inodes;
    return 0;
}

/* With the cwd in the store, and a new /proc mounted in it, where all names are the kernel's or ours. */
static int mask(const char *const *names, size_t count, const char *with, struct err *err)
{
    for (size_t i = 0; i < count; i++) {
        char at[32];
        snprintf(at, sizeof at, "proc/%s", names[i]);
        if (mount(with, at, NULL, MS_BIND, NULL) < 0 && (errno != ENOENT || i == 0))    /* this kernel may have no such part */
            return err_sys(err, ERR_SYS, "mask of /%s", at);
    }
    return 0;
}

#define PROC_ATTRS (MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC)

int mount_proc_hidden(struct err *err)
{
    static const char *const options[][2] = { { "hidepid", "2" }, { NULL, NULL } };
    return fresh("proc", options, PROC_ATTRS, err);
}

static int proc_of(int room, struct err *err)
{
    static const char *const options[][2] = { { "pidns", NULL }, { "hidepid", "2" }, { NULL, NULL } };
    return room < 0 ? mount_proc_hidden(err) : fresh_over("proc", options, PROC_ATTRS, room, err);
}

/* What tells of the host and what is not to be written to, with the cwd in the store and a new /proc mounted in it. */
static int proc_masks(struct err *err)
{
    int rc = mask(masked_files, sizeof masked_files / sizeof masked_files[0], "mask", err);
    if (rc == 0)
        rc = mask(masked_dirs, sizeof masked_dirs / sizeof masked_dirs[0], "masks", err);
    return rc < 0 ? rc : show_at("proc/sys", "proc/sys", err);
}

int mount_proc(const struct world *w, int room, struct err *err)
{
    own_fd root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    own_fd proc = proc_of(room, err);
    if (proc < 0)
        return proc;
    if (fchdir(w->store) < 0)
        return err_sys(err, ERR_SYS, "store");
    int rc = attach_ours(proc, w->store, "proc", err);          /* over the one for nested namespaces, if that is there */
    if (rc == 0) {
        rc = proc_masks(err);
        if (rc == 0)
            rc = attach(proc, root, "proc", err);               /* moves it, with its masks */
        if (rc < 0)
            umount2("proc", MNT_DETACH);
    }
    if (chdir("/") < 0 && rc == 0)
        rc = err_sys(err, ERR_SYS, "leave the store");
    return rc;
}

int mount_nested_proc(const struct world *w, struct err *err)
{
    own_fd proc = fresh("proc", NULL, PROC_ATTRS, err);
    return proc < 0 ? proc : attach_ours(proc, w->store, "proc", err);
}
