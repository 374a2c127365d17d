/*
 * jail.c - assay-jail: the one privileged process. `assay-jail SLOTS`, with a SOCK_SEQPACKET socket
 * to its client as descriptor 3. Started by sandbox_client_start() only.
 *
 * Two processes: the guardian, which the client started, and the jail proper, pid 1 of a pid
 * namespace. The jail holds every sandbox below it, so its death, however it comes, is the death of
 * all of them; the guardian then removes the control groups. The jail ends when the client's end of
 * the socket closes, when the guardian dies, or when the client breaks the protocol.
 *
 * The jail opens nothing by a foreign name and parses nothing but the structs of grant.h.
 *
 * Rootless: started without CAP_SYS_ADMIN, the jail first enters a user namespace of its own, where it has it and where the
 * only uid is the user's. Every sandbox has a user namespace below that, so it has no right over jail or neighbour, but
 * outside all of them are the user: what the kernel counts or permits by uid is not kept apart. Mounts: see mount.h. The
 * client's mount namespace cannot be entered; a copy of it, made at the start, stands for it, and in there the client's
 * directories are found by name.
 */
#include "base/clock.h"
#include "base/frame.h"
#include "base/log.h"
#include "base/own.h"
#include "sandbox/cell.h"
#include "sandbox/cgroup.h"
#include "sandbox/grant.h"
#include "sandbox/maker.h"
#include "sandbox/landlock.h"
#include "sandbox/mount.h"
#include "sandbox/seccomp.h"
#include "sandbox/slot.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/securebits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>

#define CLIENT_FD 3
#define NESTED_MAX 64u                  /* namespaces of each kind in a compatible sandbox; their memory is its own */
#define MAKE_AT_ONCE 4u                 /* slots per core */
#define BIRTHS_MAX 64u                  /* launchers asked for and not yet begun */
#define SPARE_MAX 64u                   /* slots beside those that the client may hold */
#define FILES_PER_SLOT 18u              /* descriptors of the jail, at rest or in a plain run; and apart from slots: */
#define FILES_BESIDES 64u
#define UID_FIRST 0x60000000u           /* host uids behind uid 0 inside: far from any real one, one per slot */

struct jail {
    int epoll, timer, maker;
    int host_ns, own_ns;                /* mount namespaces: the client's descriptors live in the first */
    bool greeted, over, rootless;
    uint32_t slot_count, wanted, begun;
    uint32_t births;                    /* that the maker has not answered */
    uint64_t timer_ns;
    uid_t uid_first;
    uint32_t cpus;                      /* that we may run on */
    const void *text;                   /* command that came with the request at hand; text_len 0: none */
    size_t text_len;
    struct cgroup_host cgroup;
    struct sandbox_limits defaults;
    struct slot *slots;
};

/* ---- answers ---- */

void jail_answer(struct jail *j, struct grant_answer *a, const int *fds, int nfds)
{
    struct err err;
    if (!j->greeted) {
        /* The first slot that is ready, or that cannot be, decides what the client hears. */
        struct grant_answer hello = { .kind = GRANT_HELLO, .version = GRANT_VERSION, .slots = j->slot_count,
                                      .rc = a->rc, .sys = a->sys };
        memcpy(hello.msg, a->msg, sizeof hello.msg);
        j->greeted = true;
        if (frame_send(CLIENT_FD, &hello, sizeof hello, NULL, 0, &err) < 0)
            j->over = true;
        if (a->rc < 0) {
            j->over = true;
            return;
        }
    }
    if (!j->over && frame_send(CLIENT_FD, a, sizeof *a, fds, nfds, &err) < 0) {
        if (err.code != ERR_LOST)
            log_err(LOG_ERROR, &err, "client dropped");
        j->over = true;
    }
}

/* ---- user namespaces and launchers ---- */

static bool has_admin(void)
{
    struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
    struct __user_cap_data_struct caps[2] = { 0 };
    return syscall(SYS_capget, &head, caps) == 0 && (caps[0].effective & (1u << CAP_SYS_ADMIN)) != 0;
}

/* Does this user namespace have all uids from `first` to `last`? */
static bool has_uids(uid_t first, uid_t last)
{
    unsigned long inside, outside, count;
    own_file f = fopen("/proc/self/uid_map", "re");
    while (f != NULL && fscanf(f, "%lu %lu %lu", &inside, &outside, &count) == 3)
        if (first >= inside && last - inside < count)
            return true;
    return false;
}

static int put_map(pid_t pid, const char *which, unsigned from, unsigned to, struct err *err)
{
    char path[64], line[64];
    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, which);
    int n = snprintf(line, sizeof line, "%u %u 1\n", from, to);
    own_fd fd = open(path, O_WRONLY | O_CLOEXEC);
    return fd >= 0 && write(fd, line, (size_t)n) == n ? 0 : err_sys(err, ERR_DENIED, "%s of a user namespace", which);
}

/* Become uid 0 of a user namespace in which there is nobody else. */
static int enter_userns(struct err *err)
{
    uid_t uid = geteuid();
    gid_t gid = getegid();
    if (unshare(CLONE_NEWUSER) < 0)
        return err_sys(err, ERR_DENIED, "assay-jail is run by uid %u, and the kernel lets it have no user namespace: "
                       "run it as root, or see `assay doctor`", uid);
    own_fd fd = open("/proc/self/setgroups", O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, "deny", 4) != 4)
        return err_sys(err, ERR_DENIED, "setgroups of a user namespace");
    int rc = put_map(getpid(), "uid_map", 0, uid, err);
    return rc < 0 ? rc : put_map(getpid(), "gid_map", 0, gid, err);
}

/* How many namespaces of each kind may be made below the caller's user namespace. 0, or errno. */
static int limit_nested(unsigned count)
{
    static const char *const kinds[] = { "user", "mnt", "pid", "net", "ipc", "uts", "cgroup", "time" };
    char path[64], text[16];
    int n = snprintf(text, sizeof text, "%u", count);
    /* Without a user namespace nobody has the right to one of the others. */
    for (size_t i = 0; i < (count == 0 ? 1 : sizeof kinds / sizeof kinds[0]); i++) {
        snprintf(path, sizeof path, "/proc/sys/user/max_%s_namespaces", kinds[i]);
        own_fd fd = open(path, O_WRONLY | O_CLOEXEC);
        if (fd < 0 ? errno != ENOENT : write(fd, text, (size_t)n) != n)     /* no such file, no such kind */
            return errno;
    }
    return 0;
}

/* A user namespace in which `from_uid`/`from_gid` stand for host id `to`, for at most `nested` namespaces of each kind below
 * it. Returns its descriptor. */
static int userns_make(unsigned from_uid, unsigned from_gid, unsigned to, unsigned nested, struct err *err)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return err_sys(err, ERR_SYS, "pipe");
    own_fd in = ends[0], out = ends[1];
    pid_t pid = fork();
    if (pid == 0) {
        /* Owned by the slot's own uid: what the kernel counts per owner (inotify and others) is not shared by slots. */
        prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP);
        char ok = (char)(setresuid(to, to, to) == 0 && unshare(CLONE_NEWUSER) == 0 ? limit_nested(nested) : errno);
        if (write(out, &ok, 1) == 1)
            pause();
        _exit(0);
    }
    if (pid < 0)
        return err_sys(err, ERR_SYS, "fork");
    close(give_fd(&out));                       /* a child that dies before it speaks is the end of the wait */
    char failed = 1;
    int rc = read(in, &failed, 1) == 1 && failed == 0 ? 0 : -1, fd = -1;
    if (rc < 0) {
        errno = failed;
        rc = err_sys(err, ERR_DENIED, "new user namespace (user.max_user_namespaces, or a security module)");
    }
    if (rc == 0)
        rc = put_map(pid, "uid_map", from_uid, to, err);
    if (rc == 0)
        rc = put_map(pid, "gid_map", from_gid, to, err);
    if (rc == 0) {
        char path[64];
        snprintf(path, sizeof path, "/proc/%d/ns/user", (int)pid);
        fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
            rc = err_sys(err, ERR_SYS, "open a user namespace");
    }
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    return rc < 0 ? rc : fd;
}

/* What an event is about: a slot's number is its socket. */
enum { ID_CLIENT = 0xffffffffu, ID_TIMER = 0xfffffffeu, ID_MAKER = 0xfffffffdu, ID_DEATH = 0x40000000u };

static int watch(struct jail *j, int fd, uint32_t id, struct err *err)
{
    struct epoll_event e = { .events = EPOLLIN, .data.u32 = id };
    return epoll_ctl(j->epoll, EPOLL_CTL_ADD, fd, &e) == 0 ? 0 : err_sys(err, ERR_SYS, "epoll");
}

int jail_watch(struct jail *j, const struct slot *s, int pidfd, struct err *err)
{
    return watch(j, pidfd, s->kit.slot | ID_DEATH, err);
}

static void close_all(const int *fds, int nfds)
{
    for (int i = 0; i < nfds; i++)
        if (fds[i] >= 0)
            close(fds[i]);
}

/* The maker's next answer, if there is one or we are to wait for it. */
static void on_maker(struct jail *j, bool wait)
{
    struct pollfd p = { .fd = j->maker, .events = POLLIN };
    struct born b;
    struct err err = { 0 };
    int fds[FRAME_FDS_MAX], nfds;
    if (poll(&p, 1, wait ? -1 : 0) <= 0)
        return;
    int n = frame_recv(j->maker, &b, sizeof b, fds, &nfds, &err);
    j->births--;
    if (n == (int)sizeof b && nfds == (b.rc == 0) && b.slot < j->slot_count) {
        slot_born(j, &j->slots[b.slot], b.serial, nfds == 1 ? fds[0] : -1, b.sys);
        return;
    }
    close_all(fds, nfds);
    log_line(LOG_ERROR, "the maker of sandboxes is gone");
    j->births = 0;
    j->over = true;
}

int jail_found(struct jail *j, struct slot *s, struct err *err)
{
    int ns = userns_make(0, 0, s->kit.uid, 0, err);
    int rc = ns < 0 ? ns : cgroup_slot_make(&s->cgroup, &j->cgroup, s->kit.slot, err);
    if (rc == 0)
        s->kit.userns = ns;
    else if (ns >= 0)
        close(ns);
    return rc;
}

int jail_birth(struct jail *j, struct slot *s, struct err *err)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_sys(err, ERR_SYS, "slot socket");
    own_fd ours = pair[0], theirs = pair[1];
    const struct birth b = { .slot = s->kit.slot, .serial = ++s->serial, .uid = s->kit.uid };
    const int fds[] = { theirs, s->kit.userns, s->cgroup.dir };
    int rc = fcntl(ours, F_SETFL, O_NONBLOCK) < 0 ? err_sys(err, ERR_SYS, "slot socket") : watch(j, ours, s->kit.slot, err);
    while (rc == 0 && j->births >= BIRTHS_MAX)          /* or both sides might wait for room in the other's queue */
        on_maker(j, true);
    if (rc == 0)
        rc = frame_send(j->maker, &b, sizeof b, fds, s->cgroup.dir >= 0 ? 3 : 2, err);
    if (rc < 0)
        return rc;
    j->births++;
    s->sock = give_fd(&ours);
    return 0;
}

/* Fork the maker: from here on it has what we have, and no slot's. */
static int maker_start(struct jail *j, const struct kit *common, int rings, struct err *err)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_sys(err, ERR_SYS, "socket");
    own_fd ours = pair[0], theirs = pair[1];
    pid_t pid = fork();
    if (pid == 0) {
        const int keep[] = { theirs, rings };
        for (int i = 0; i < 2; i++)
            if (dup2(keep[i], 64 + i) < 0 || dup2(64 + i, 3 + i) < 0 || fcntl(3 + i, F_SETFD, FD_CLOEXEC) < 0)
                _exit(1);
        close_range(5, ~0u, 0);
        maker_main(3, common, &j->cgroup, 4);
    }
    if (pid < 0)
        return err_sys(err, ERR_SYS, "fork");
    j->maker = give_fd(&ours);
    return watch(j, j->maker, ID_MAKER, err);
}

/* ---- requests ---- */

static uint64_t given(uint64_t value, uint64_t otherwise, uint64_t max)
{
    return value == 0 ? otherwise : value < max ? value : max;
}

static void complete(const struct jail *j, struct sandbox_limits *l)
{
    const struct sandbox_limits *d = &j->defaults;
    l->wall_ns = given(l->wall_ns, d->wall_ns, 7 * 86400 * NS_PER_S);
    l->cpu_percent = (uint32_t)given(l->cpu_percent, d->cpu_percent, 100000);
    l->cpu_ns = given(l->cpu_ns, l->wall_ns * ((l->cpu_percent + 99) / 100), UINT64_C(1) << 62);
    l->memory_bytes = given(l->memory_bytes, d->memory_bytes, UINT64_C(1) << 46);
    if (l->memory_bytes < (uint64_t)8 << 20)
        l->memory_bytes = (uint64_t)8 << 20;                /* below it not even the shell starts */
    l->output_bytes = given(l->output_bytes, d->output_bytes, UINT64_C(1) << 46);
    l->file_bytes = given(l->file_bytes, d->file_bytes, UINT64_C(1) << 46);
    l->disk_bytes = given(l->disk_bytes, d->disk_bytes, UINT64_C(1) << 46);
    l->disk_inodes = (uint32_t)given(l->disk_inodes, d->disk_inodes, UINT32_MAX);
    l->pids = (uint32_t)given(l->pids, d->pids, 1 << 20);
}

static int sealed_memfd(int fd, uint64_t max, struct err *err)
{
    const int need = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
    struct stat st;
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & need) != need || fstat(fd, &st) < 0 || (uint64_t)st.st_size > max)
        return err_set(err, ERR_PROTOCOL, "descriptor is no sealed memfd of at most %llu bytes", (unsigned long long)max);
    return 0;
}

/* Rootless, in the copy of the client's mount namespace: the directory that `path` names there, if it is `like`; else -1. */
static int same_dir(const char *path, const struct stat *like)
{
    struct stat st;
    own_fd fd = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return fd >= 0 && fstat(fd, &st) == 0 && st.st_dev == like->st_dev && st.st_ino == like->st_ino ? give_fd(&fd) : -1;
}

/* The client's directory as a detached mount whose owner is uid 0 inside. Made in the client's mount namespace. */
static int borrow_dir(struct jail *j, struct slot *s, int dir, bool *out_own, struct err *err)
{
    struct stat st;
    char link[48], path[4096] = "";
    if (fstat(dir, &st) < 0 || !S_ISDIR(st.st_mode))
        return err_set(err, ERR_PROTOCOL, "descriptor is no directory");
    if (j->rootless) {
        snprintf(link, sizeof link, "/proc/self/fd/%d", dir);
        ssize_t n = readlink(link, path, sizeof path - 1);
        path[n < 0 ? 0 : n] = '\0';
    }
    bool other = st.st_uid != 0 || st.st_gid != 0;
    if (other && !j->rootless && (s->owner_ns < 0 || s->owner_uid != st.st_uid || s->owner_gid != st.st_gid)) {
        int ns = userns_make(st.st_uid, st.st_gid, s->kit.uid, 0, err);
        if (ns < 0)
            return ns;
        if (s->owner_ns >= 0)
            close(s->owner_ns);
        s->owner_ns = ns;                       /* mostly it is the same owner again: the client's */
        s->owner_uid = st.st_uid;
        s->owner_gid = st.st_gid;
    }
    /* An image that was mounted here? */
    int ours = j->rootless ? -1 : mount_clone(dir, other ? s->owner_ns : s->kit.userns, out_own, err);
    if (ours >= 0 || (!j->rootless && err->sys != EINVAL))
        return ours;
    if (setns(j->host_ns, CLONE_NEWNS) < 0)
        return err_sys(err, ERR_SYS, "mount namespace of the client");
    own_fd here = j->rootless ? same_dir(path, &st) : -1;
    int fd = !j->rootless ? mount_clone(dir, other ? s->owner_ns : s->kit.userns, out_own, err)
           : here >= 0 ? mount_clone(here, -1, out_own, err)
           : err_set(err, ERR_DENIED, "a directory for a jail without root must be mounted before the jail is started");
    if (j->rootless)
        *out_own = !other;
    if (setns(j->own_ns, CLONE_NEWNS) < 0)
        return err_sys(err, ERR_SYS, "own mount namespace");
    return fd;
}

static int on_acquire(struct jail *j, struct slot *s, struct grant_request *r, int *fds, struct err *err)
{
    int out[5] = { -1, -1, -1, -1, -1 }, n = 0, rc = 0;
    struct err why = { 0 };
    own_fd tree = -1, root = -1, nested = -1;
    bool tree_own = true, root_own;
    if (r->profile >= SANDBOX_PROFILE_COUNT)
        return err_set(err, ERR_PROTOCOL, "slot %u: profile %u", r->slot, r->profile);
    if (r->limits.network >= SANDBOX_NETWORK_COUNT)
        return err_set(err, ERR_PROTOCOL, "network %d", (int)r->limits.network);
    complete(j, &r->limits);
    int next = 0;
    uint32_t which = r->fds;
    if (r->fds & GRANT_FD_TREE)
        rc = (tree = borrow_dir(j, s, fds[next++], &tree_own, &why)) < 0 ? why.code : 0;
    if (rc == 0 && tree >= 0)
        out[n++] = tree;
    if (r->fds & GRANT_FD_EDITS) {
        if (sealed_memfd(fds[next], GRANT_EDITS_MAX, err) < 0)
            return err->code;
        out[n++] = fds[next++];
    }
    if (rc == 0 && (r->fds & GRANT_FD_ROOT)) {
        rc = (root = borrow_dir(j, s, fds[next++], &root_own, &why)) < 0 ? why.code : 0;
        out[n++] = root;
    }
    if (r->fds & GRANT_FD_WARM) {
        int warm = fds[__builtin_popcount(r->fds) - 1];
        if (sealed_memfd(warm, GRANT_COMMAND_MAX, err) < 0)
            return err->code;
        out[n++] = warm;
    }
    if (rc == 0 && r->profile == SANDBOX_COMPATIBLE) {
        nested = userns_make(COMPATIBLE_UID, COMPATIBLE_UID, s->kit.uid, NESTED_MAX, &why);
        rc = nested < 0 ? why.code : 0;
        out[n++] = nested;
        which |= ORDER_FD_USERNS;
    }
    if (rc == 0)
        rc = slot_acquire(j, s, which, out, n, tree_own, r, &why);
    if (rc == ERR_PROTOCOL) {
        *err = why;
        return rc;
    }
    if (rc < 0) {
        struct grant_answer a = { .kind = GRANT_ACQUIRED, .slot = r->slot, .generation = r->generation,
                                  .rc = rc, .sys = why.sys };
        memcpy(a.msg, why.msg, sizeof a.msg);
        jail_answer(j, &a, NULL, 0);
        slot_scrub(j, s);
    }
    return 0;
}

static int stream_good(int fd, bool input, struct err *err)
{
    return grant_stream_fits(fd, input) ? 0
         : err_set(err, ERR_PROTOCOL, "descriptor is no stream to %s", input ? "read" : "write");
}

static int on_run(struct jail *j, struct slot *s, struct grant_request *r, int *fds, struct err *err)
{
    const bool apart = (r->fds & GRANT_FD_COMMAND) != 0;
    const bool streams = (r->fds & ~(uint32_t)GRANT_FD_COMMAND) != 0 || (r->option & GRANT_RUN_APART);
    if (s->command >= 0 || apart == (j->text_len > 0) || (streams && !apart))
        return err_set(err, ERR_PROTOCOL, "slot %u: %s", s->kit.slot, s->command >= 0 ? "a second first command" : "one command");
    int rc = apart ? sealed_memfd(fds[0], GRANT_COMMAND_MAX, err) : 0, next = 1;
    if (rc == 0 && (r->fds & GRANT_FD_IN))
        rc = stream_good(fds[next++], true, err);
    for (uint32_t bit = GRANT_FD_OUT; rc == 0 && bit <= GRANT_FD_ERR; bit <<= 1)
        if (r->fds & bit)
            rc = stream_good(fds[next++], false, err);
    if (rc == 0 && (r->fds & GRANT_FD_ERR) && !(r->option & GRANT_RUN_APART))
        rc = err_set(err, ERR_PROTOCOL, "standard error is given and not apart");
    if (rc == 0)
        slot_run(j, s, r, fds, j->text, j->text_len);
    return rc;
}

/* A file in, a file, a directory's list or the changes of the tree out. */
static int on_files(struct jail *j, struct slot *s, struct grant_request *r, int *fds, struct err *err)
{
    static const uint32_t cells[] = { [GRANT_READ] = CELL_READ, [GRANT_LIST] = CELL_LIST, [GRANT_WRITE] = CELL_WRITE,
                                      [GRANT_DIFF] = CELL_DIFF };
    struct cell_order cell = { .kind = cells[r->kind], .mode = r->option };
    struct err why = { 0 };
    bool own;
    own_fd tree = -1;
    int give[2], n = 0, rc = 0;
    if (r->fds & GRANT_FD_TREE) {
        rc = (tree = borrow_dir(j, s, fds[0], &own, &why)) < 0 ? why.code : 0;
        give[n++] = tree;
    }
    if (r->fds & GRANT_FD_PATH) {
        rc = sealed_memfd(fds[0], GRANT_PATH_MAX, &why);
        give[n++] = fds[0];
    }
    if (rc == 0 && (r->fds & GRANT_FD_CONTENT)) {
        rc = sealed_memfd(fds[1], SANDBOX_FILE_MAX, &why);
        give[n++] = fds[1];
    }
    if (rc == 0) {
        slot_files(j, s, &cell, give, n, r->kind != GRANT_WRITE);
    } else if (rc == ERR_PROTOCOL) {
        *err = why;
        return rc;
    } else {
        struct grant_answer a = { .kind = GRANT_FILED, .slot = r->slot, .generation = r->generation,
                                  .rc = rc, .sys = why.sys };
        memcpy(a.msg, why.msg, sizeof a.msg);
        jail_answer(j, &a, NULL, 0);
    }
    return 0;
}

static int on_kill(struct jail *j, struct slot *s, struct grant_request *r, int *fds, struct err *err)
{
    (void)j, (void)r, (void)fds, (void)err;
    slot_kill(s, SLOT_REASON_KILLED);
    return 0;
}

static int on_close(struct jail *j, struct slot *s, struct grant_request *r, int *fds, struct err *err)
{
    (void)r, (void)fds, (void)err;
    slot_scrub(j, s);
    return 0;
}

/* Images: of no slot, and answered in the order of the requests. */
static int on_image(struct jail *j, const struct grant_request *r, const int *fds, int nfds, struct err *err)
{
    struct err why = { 0 };
    const uint32_t files_max = r->kind == GRANT_MOUNT ? SANDBOX_IMAGE_FILES : 1;
    if (r->option >= files_max || (uint32_t)nfds != r->option + 1 || r->fds != 0)
        return err_set(err, ERR_PROTOCOL, "image of %d files", nfds);
    if (r->kind == GRANT_UNMOUNT) {
        mount_image_end(fds[0]);
        return 0;
    }
    for (int i = 0; i < nfds; i++)
        if (!grant_file_fits(fds[i]))
            return err_set(err, ERR_PROTOCOL, "an image's file can be written to or is none");
    own_fd dir = mount_image(fds, nfds, &why);
    struct grant_answer a = { .kind = GRANT_MOUNTED, .rc = dir < 0 ? why.code : 0, .sys = why.sys,
                              .fds = dir >= 0 ? GRANT_HAS_OUTPUT : 0 };
    memcpy(a.msg, why.msg, sizeof a.msg);
    jail_answer(j, &a, (int[]){ dir }, dir >= 0);
    return 0;
}

typedef int (*request_fn)(struct jail *, struct slot *, struct grant_request *, int *, struct err *);
#define BIT(state) (1u << (state))
#define IDLE_STATES (BIT(SLOT_HELD) | BIT(SLOT_DEAD))
#define HELD_STATES (IDLE_STATES | BIT(SLOT_RUNNING) | BIT(SLOT_DRAIN) | BIT(SLOT_COLLECT) | BIT(SLOT_FILES))
/* Which request in which states, with which descriptors. A kill or close may cross an answer: they are good while held. */
static const struct { request_fn run; unsigned states; uint32_t fds_must, fds_may, option_may; } requests[] = {
    [GRANT_ACQUIRE] = { on_acquire, BIT(SLOT_READY), 0, GRANT_FD_TREE | GRANT_FD_EDITS | GRANT_FD_ROOT | GRANT_FD_WARM,
                        GRANT_ACQUIRE_RUN },
    [GRANT_RUN]     = { on_run, BIT(SLOT_ACQUIRING) | IDLE_STATES, 0,
                        GRANT_FD_COMMAND | GRANT_FD_IN | GRANT_FD_OUT | GRANT_FD_ERR, GRANT_RUN_MEASURE | GRANT_RUN_APART },
    [GRANT_KILL]    = { on_kill, HELD_STATES, 0, 0, 0 },
    [GRANT_CLOSE]   = { on_close, BIT(SLOT_ACQUIRING) | HELD_STATES, 0, 0, 0 },
    [GRANT_READ]    = { on_files, IDLE_STATES, GRANT_FD_PATH, GRANT_FD_PATH, 0 },
    [GRANT_LIST]    = { on_files, IDLE_STATES, GRANT_FD_PATH, GRANT_FD_PATH, 0 },
    [GRANT_WRITE]   = { on_files, IDLE_STATES, GRANT_FD_PATH | GRANT_FD_CONTENT, GRANT_FD_PATH | GRANT_FD_CONTENT, 0777 },
    [GRANT_DIFF]    = { on_files, IDLE_STATES, 0, GRANT_FD_TREE, 0 },
};

static int request(struct jail *j, struct grant_request *r, int *fds, int nfds, struct err *err)
{
    if (r->kind == GRANT_MOUNT || r->kind == GRANT_UNMOUNT)
        return on_image(j, r, fds, nfds, err);
    if (r->kind == 0 || r->kind >= sizeof requests / sizeof requests[0] || r->slot >= j->slot_count)
        return err_set(err, ERR_PROTOCOL, "request %u for slot %u", r->kind, r->slot);
    struct slot *s = &j->slots[r->slot];
    if (r->generation != s->generation) {
        /* Requests may cross the answer by which the client would have known better: a sandbox that could not be
         * had, a ready slot that had to be remade. */
        if (r->kind != GRANT_ACQUIRE && r->generation < s->generation)
            return 0;
        if (r->kind == GRANT_ACQUIRE && r->generation < s->generation) {
            struct grant_answer a = { .kind = GRANT_ACQUIRED, .slot = r->slot, .generation = r->generation, .rc = ERR_BUSY,
                                      .msg = "the slot is being remade" };
            jail_answer(j, &a, NULL, 0);
            return 0;
        }
        return err_set(err, ERR_PROTOCOL, "slot %u: generation %u, not %u", r->slot, r->generation, s->generation);
    }
    if (s->state == SLOT_SCRUB && r->kind != GRANT_ACQUIRE)
        return 0;
    if (!(requests[r->kind].states & BIT(s->state)))
        return err_set(err, ERR_PROTOCOL, "slot %u: request %u in state %d", r->slot, r->kind, (int)s->state);
    if ((r->fds & requests[r->kind].fds_must) != requests[r->kind].fds_must || (r->fds & ~requests[r->kind].fds_may) != 0 ||
        (r->option & ~requests[r->kind].option_may) != 0 || nfds != __builtin_popcount(r->fds))
        return err_set(err, ERR_PROTOCOL, "slot %u: request %u with %d descriptors", r->slot, r->kind, nfds);
    return requests[r->kind].run(j, s, r, fds, err);
}

/* A packet of `n` bytes. Only a request to run is longer than its struct. */
static int took(struct jail *j, struct grant_request *r, const char *text, size_t n, int *fds, int nfds, struct err *err)
{
    if (n < sizeof *r || (n > sizeof *r && r->kind != GRANT_RUN))
        return err_set(err, ERR_PROTOCOL, "request of %zu bytes", n);
    j->text = text;
    j->text_len = n - sizeof *r;
    return request(j, r, fds, nfds, err);
}

static void on_client(struct jail *j)
{
    for (int i = 0; i < 64 && !j->over; i++) {
        static struct { struct grant_request r; char text[GRANT_INLINE_MAX]; } packet;
        struct err err = { 0 };
        int fds[FRAME_FDS_MAX], nfds;
        int n = frame_recv(CLIENT_FD, &packet, sizeof packet, fds, &nfds, &err);
        if (n == ERR_BUSY)
            return;
        if (n == 0) {
            j->over = true;
            return;
        }
        if (n > 0)
            n = took(j, &packet.r, packet.text, (size_t)n, fds, nfds, &err);
        close_all(fds, nfds);
        if (n < 0) {
            log_err(LOG_ERROR, &err, "client dropped");
            j->over = true;
        }
    }
}

/* Has the maker told of the launcher, if that has anything to say? */
static bool is_told(struct jail *j, const struct slot *s)
{
    struct pollfd p = { .fd = s->sock, .events = POLLIN };
    while (s->sock >= 0 && s->launcher_fd < 0 && j->births > 0 && poll(&p, 1, 0) > 0)
        on_maker(j, true);
    return s->launcher_fd >= 0 || j->births == 0;
}

static void on_slot(struct jail *j, struct slot *s)
{
    const uint32_t serial = s->serial;
    while (s->sock >= 0 && s->serial == serial) {       /* the next launcher is to be told first */
        struct note n;
        struct err err = { 0 };
        int fds[FRAME_FDS_MAX], nfds;
        int rc = frame_recv(s->sock, &n, sizeof n, fds, &nfds, &err);
        if (rc == ERR_BUSY)
            return;
        if (rc != (int)sizeof n) {
            close_all(fds, nfds);
            slot_lost(s);
            return;
        }
        rc = slot_note(j, s, &n, fds, nfds, &err);
        close_all(fds, nfds);
        if (rc < 0) {
            log_err(LOG_ERROR, &err, "slot ended");
            slot_lost(s);
        }
    }
}

/* ---- the loop ---- */

static void set_timer(struct jail *j)
{
    uint64_t next = 0;
    for (uint32_t i = 0; i < j->slot_count; i++)
        if (j->slots[i].deadline_ns != 0 && (next == 0 || j->slots[i].deadline_ns < next))
            next = j->slots[i].deadline_ns;
    if (next == j->timer_ns)
        return;
    j->timer_ns = next;
    struct itimerspec t = { .it_value = { (time_t)(next / NS_PER_S), (long)(next % NS_PER_S) } };
    timerfd_settime(j->timer, TFD_TIMER_ABSTIME, &t, NULL);
}

static volatile sig_atomic_t told_to_end;
static void on_term(int sig) { (void)sig; told_to_end = 1; }

/* The first making of slots, few at a time: more of them would wait for each other, and the first be ready as late as the
 * last. One that failed and is tried again holds up nobody. */
static void make_more(struct jail *j)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    uint32_t making = 0, most = MAKE_AT_ONCE * (uint32_t)(cores > 0 ? cores : 1);
    for (uint32_t i = 0; i < j->begun; i++)
        making += j->slots[i].state == SLOT_MAKING && j->slots[i].generation == 1;
    for (; j->begun < j->slot_count && making < most; making++)
        slot_make(j, &j->slots[j->begun++]);
}

static int loop(struct jail *j, struct err *err)
{
    sigset_t none;
    sigemptyset(&none);
    while (!j->over && !told_to_end) {
        struct epoll_event events[64];
        if (j->begun < j->slot_count)
            make_more(j);
        set_timer(j);
        int n = epoll_pwait(j->epoll, events, 64, -1, &none);   /* SIGTERM comes in here or not at all */
        if (n < 0 && errno != EINTR)
            return err_sys(err, ERR_SYS, "epoll");
        for (int i = 0; i < n && !j->over; i++) {
            uint32_t id = events[i].data.u32;
            if (id == ID_CLIENT) {
                on_client(j);
            } else if (id == ID_TIMER) {
                uint64_t ticks, now = clock_mono_ns();
                if (read(j->timer, &ticks, sizeof ticks) < 0 && errno != EAGAIN)
                    return err_sys(err, ERR_SYS, "timer");
                j->timer_ns = 0;
                for (uint32_t k = 0; k < j->slot_count; k++)
                    slot_tick(j, &j->slots[k], now);
            } else if (id == ID_MAKER) {
                on_maker(j, false);
            } else {
                struct slot *s = &j->slots[id & ~ID_DEATH];
                if (is_told(j, s))
                    on_slot(j, s);              /* also what the dead said last */
                if (id & ID_DEATH)
                    slot_deaths(j, s);
            }
        }
    }
    return 0;
}

static void set_defaults(struct jail *j)
{
    cpu_set_t cpus;
    j->cpus = sched_getaffinity(0, sizeof cpus, &cpus) == 0 && CPU_COUNT(&cpus) > 0 ? (uint32_t)CPU_COUNT(&cpus) : 1;
    uint64_t memory = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    j->defaults = (struct sandbox_limits){
        .wall_ns = 600 * NS_PER_S, .memory_bytes = memory / 4 < (uint64_t)2 << 30 ? memory / 4 : (uint64_t)2 << 30,
        .output_bytes = (uint64_t)64 << 20, .file_bytes = (uint64_t)1 << 30, .disk_bytes = (uint64_t)1 << 30,
        .disk_inodes = 200000, .pids = 512, .cpu_percent = j->cpus * 100,
    };
}

static int open_all(struct jail *j, struct err *err)
{
    static struct kit common;                   /* the maker goes on reading it */
    struct rlimit files;
    uint32_t need = FILES_PER_SLOT * j->slot_count + FILES_BESIDES;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < need)     /* else it would show in the midst of work */
        return err_set(err, ERR_LIMIT, "%u sandboxes need %u open files, %llu are allowed: raise it (ulimit -Hn)",
                       j->wanted, need, (unsigned long long)files.rlim_cur);
    if (j->rootless && unshare(CLONE_NEWNS) < 0)
        return err_sys(err, ERR_DENIED, "copy of the mount namespace");
    j->host_ns = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
    if (j->host_ns < 0)
        return err_sys(err, ERR_DENIED, "/proc is needed");
    common = (struct kit){ .rootless = j->rootless, .landlock = landlock_version(), .pids_ours = CGROUP_OWN_TASKS,
                           .disk_bytes = j->defaults.disk_bytes, .disk_inodes = j->defaults.disk_inodes, .cpus = j->cpus };
    int rc = mount_plan(&common.plan, err);
    if (rc == 0)
        rc = mount_jail(err);
    for (enum sandbox_profile p = 0; rc == 0 && p < SANDBOX_PROFILE_COUNT; p++)
        rc = seccomp_compile(&common.filters[p], p, false, err);
    if (rc == 0)
        rc = seccomp_compile(&common.host_filter, SANDBOX_STRICT, true, err);
    if (rc < 0)
        return rc;
    j->own_ns = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
    j->epoll = epoll_create1(EPOLL_CLOEXEC);
    j->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (j->own_ns < 0 || j->epoll < 0 || j->timer < 0 || fcntl(CLIENT_FD, F_SETFL, O_NONBLOCK) < 0)
        return err_sys(err, ERR_SYS, "descriptors");
    rc = watch(j, CLIENT_FD, ID_CLIENT, err);
    if (rc == 0)
        rc = watch(j, j->timer, ID_TIMER, err);
    own_fd rings = memfd_create("rings", MFD_CLOEXEC);
    if (rc == 0 && (rings < 0 || ftruncate(rings, (off_t)(j->slot_count * RING_STRIDE)) < 0))
        rc = err_sys(err, ERR_SYS, "output buffers");
    if (rc == 0)
        rc = maker_start(j, &common, rings, err);
    if (rc < 0)
        return rc;
    /* Populated now, so that the pages are the jail's and not charged to a sandbox. A fork does not pay for them. */
    const size_t all = j->slot_count * RING_STRIDE;
    uint8_t *ring = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, rings, 0);
    if (ring == MAP_FAILED || madvise(ring, all, MADV_DONTFORK) < 0)
        return err_sys(err, ERR_SYS, "output buffers");
    j->slots = calloc(j->slot_count, sizeof *j->slots);
    if (j->slots == NULL)
        return err_set(err, ERR_LIMIT, "%u slots: out of memory", j->slot_count);
    for (uint32_t i = 0; i < j->slot_count; i++) {
        struct slot *s = &j->slots[i];
        *s = (struct slot){ .sock = -1, .launcher_fd = -1, .run_fd = -1, .door = -1, .command = -1, .report_fd = -1,
                            .owner_ns = -1, .streams = { -1, -1, -1 }, .errors_fd = -1, .kit = common };
        s->kit.slot = i;
        s->kit.uid = j->rootless ? 0 : j->uid_first + i;
        s->kit.ring = (struct ring *)(void *)(ring + i * RING_STRIDE);
        s->kit.userns = -1;
    }
    return 0;
}

static int jail_main(struct jail *j)
{
    struct err err = { 0 };
    prctl(PR_SET_PDEATHSIG, SIGTERM);           /* the guardian is dead: end, and clean up in its place */
    struct sigaction term = { .sa_handler = on_term };
    sigaction(SIGTERM, &term, NULL);
    setpriority(PRIO_PROCESS, 0, -10);          /* who keeps the limits must not wait behind those they are for */
    set_defaults(j);
    int rc = open_all(j, &err);
    if (rc < 0 && !j->greeted) {
        struct grant_answer a = { .kind = GRANT_HELLO, .rc = rc, .sys = err.sys };
        memcpy(a.msg, err.msg, sizeof a.msg);
        jail_answer(j, &a, NULL, 0);
        return 1;
    }
    if (rc == 0)
        rc = loop(j, &err);
    if (rc < 0)
        log_err(LOG_ERROR, &err, "jail ends");
    if (told_to_end) {
        kill(-1, SIGKILL);                      /* pid 1 here: all of ours, nobody else's */
        while (wait(NULL) > 0 || errno == EINTR)
            ;
        cgroup_close(&j->cgroup);
    }
    return rc < 0;
}

int main(int argc, char **argv)
{
    struct jail j = { .epoll = -1 };
    char *end = NULL;
    log_open("assay-jail", LOG_INFO);
    unsigned long slots = argc == 2 ? strtoul(argv[1], &end, 10) : 0;
    struct stat st;
    if (slots < 1 || slots > GRANT_SLOTS_MAX || *end != '\0' || fstat(CLIENT_FD, &st) < 0 || !S_ISSOCK(st.st_mode)) {
        fprintf(stderr, "assay-jail is started by assayd, with a socket and a number of slots (1 to %u)\n", GRANT_SLOTS_MAX);
        return 64;
    }
    fcntl(CLIENT_FD, F_SETFD, FD_CLOEXEC);
    for (int sig = 1; sig < NSIG; sig++)        /* commands inherit what whoever started us ignores */
        signal(sig, SIG_DFL);
    signal(SIGPIPE, SIG_IGN);
    j.wanted = (uint32_t)slots;
    /* Some are being remade while all are held; how many is a matter of the cores, and not of how many are held. */
    j.slot_count = j.wanted + (j.wanted < 8 ? 2 : j.wanted / 4 < SPARE_MAX ? j.wanted / 4 : SPARE_MAX);
    j.uid_first = UID_FIRST + ((unsigned)getpid() & 0x3fff) * 2 * GRANT_SLOTS_MAX;
    struct rlimit files = { 0 };
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGCHLD);
    sigprocmask(SIG_BLOCK, &set, NULL);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    cgroup_open(&j.cgroup);
    struct err err;
    int rc = has_admin() ? 0 : enter_userns(&err);
    j.rootless = !has_uids(j.uid_first, j.uid_first + 2 * GRANT_SLOTS_MAX - 1);
    if (rc == 0 && j.rootless)
        log_line(LOG_WARN, "not run by root: sandboxes live inside one user's namespace, share what the kernel counts per "
                 "user, and can change no file of the host's root that is another's");
    if (rc == 0 && j.cgroup.version == 0)
        log_line(LOG_WARN, "no control groups: memory, tasks and CPU time are limited per process or user, not for a run as "
                 "a whole");
    else if (rc == 0 && !j.cgroup.cpu_share)
        log_line(LOG_WARN, "no control group for the CPU: a sandbox's share of it is not limited");
    pid_t pid = rc < 0 || unshare(CLONE_NEWPID) < 0 ? -1 : fork();
    if (pid < 0) {
        struct grant_answer a = { .kind = GRANT_HELLO };
        a.rc = rc < 0 ? rc : err_sys(&err, ERR_DENIED, "new pid namespace");
        a.sys = err.sys;
        memcpy(a.msg, err.msg, sizeof a.msg);
        jail_answer(&j, &a, NULL, 0);
        cgroup_close(&j.cgroup);
        return 77;
    }
    if (pid == 0) {
        sigprocmask(SIG_UNBLOCK, &set, NULL);
        sigemptyset(&set);
        sigaddset(&set, SIGTERM);
        sigprocmask(SIG_BLOCK, &set, NULL);
        _exit(jail_main(&j));
    }
    close(CLIENT_FD);
    int status = 0;
    for (bool alive = true; alive; ) {
        int sig = 0;
        if (sigwait(&set, &sig) == 0 && sig != SIGCHLD)
            kill(pid, SIGKILL);
        alive = waitpid(pid, &status, sig == SIGCHLD ? WNOHANG : 0) != pid;
    }
    cgroup_close(&j.cgroup);
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 70);
}
