/*
 * jail_fuzz.c - the jail's three doors, without a privilege: any frame of a client in any state, any note of a launcher, a
 * maker that is slow or refuses, launchers that die at any moment, clocks that jump, kernels that refuse. The jail proper is
 * included whole and its own loop runs, over a real epoll whose batches come in any order; under it the process, namespace
 * and control group calls are play. A pidfd is the read end of a pipe, whose other end the play closes when the process dies.
 *
 * Held: a bad frame ends the connection and changes no slot; nobody is killed that is no launcher of the slot's; each acquire
 * and run that is taken is answered once, at the latest when time has passed; whatever happened, a slot that nobody holds is
 * ready again when the kernel serves it; no launcher is left that neither is known nor finds its socket closed; the jail
 * waits only for an answer that the maker owes it; no descriptor is lost or has two owners; and see check_slot().
 *
 * Input: a byte for the world, then operations: one byte each, with bytes of its own (see play()).
 */
#include "base/clock.h"
#include "base/frame.h"
#include "base/log.h"
#include "base/own.h"
#include "sandbox/cgroup.h"
#include "sandbox/grant.h"
#include "sandbox/maker.h"
#include "sandbox/mount.h"
#include "sandbox/seccomp.h"
#include "sandbox/slot.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/securebits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <sys/wait.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int jail_program(int argc, char **argv);

static uint64_t play_now;
static int play_socketpair(int domain, int type, int protocol, int *pair);
static pid_t play_fork(void);
static int play_never(void);
static int play_setns(int fd);
static int play_signal(int fd, int sig);
static int play_epoll(int epoll, int op, int fd, struct epoll_event *event);
static int play_wait(struct epoll_event *events, int max);
static int play_poll(struct pollfd *p, nfds_t n, int timeout);
static int play_recv(int sock, void *bytes, size_t size, int *fds, int *out_nfds, struct err *err);

#define main(...) jail_program(__VA_ARGS__)
#define clock_mono_ns() play_now
#define socketpair(d, t, p, pair) play_socketpair(d, t, p, pair)
#define fork() play_fork()
#define kill(pid, sig) play_never()
#define waitpid(pid, status, flags) play_never()
#define pidfd_send_signal(fd, sig, info, flags) play_signal(fd, sig)
#define setns(fd, flags) play_setns(fd)
#define epoll_ctl(epoll, op, fd, event) play_epoll(epoll, op, fd, event)
#define epoll_pwait(epoll, events, max, timeout, mask) ((void)(mask), play_wait(events, max))
#define timerfd_settime(fd, flags, new, old) ((void)(new))
#define poll(p, n, timeout) play_poll(p, n, timeout)
#define frame_recv(sock, bytes, size, fds, nfds, err) play_recv(sock, bytes, size, fds, nfds, err)
#define log_err(level, err, ...) ((void)(err))
#define log_line(level, ...) ((void)0)
#include "sandbox/slot.c"   // NOLINT: see the top
#include "sandbox/jail.c"   // NOLINT
#undef main
#undef socketpair
#undef kill
#undef epoll_ctl
#undef poll
#undef frame_recv

enum { SLOTS = 3, LAUNCHERS = 512, LAUNCHERS_LEFT = 128, KINDS = 8, DESCRIPTORS_MAX = 1024 };
enum { BAD_CGROUP = 1, BAD_CGROUP_MAKE = 2, BAD_MOUNT = 4, BAD_BIRTH = 8, TREE_COPIED = 16, BAD_EPOLL = 32,
       BAD_SOCKET = 64 };                                   /* of `broken` */
enum { WORLD_SLOW_MAKER = 4, WORLD_NOT_GREETED = 8, WORLD_SLOW_DEATH = 16, WORLD_ROOTLESS = 32 };   /* 1, 2: of control groups */

struct input { const uint8_t *at, *end; };

/* One that the maker was asked for. */
struct launcher {
    uint32_t slot, serial;
    int sock, life, pidfd;                                  /* life: closed when it is dead; pidfd: until it is handed over */
    ino_t pipe;
    bool killed, told, spoke;
};

static int broken, world;
static struct launcher launchers[LAUNCHERS];                /* those up to `answered` are known to the jail */
static int launcher_count, answered;
static int maker;                                           /* its end */
static uint64_t usage;
static int kinds[KINDS];                                    /* descriptors of every kind */
static int agent;                                           /* the other end of one of them */
static int no_timer;                                        /* never readable */
static int client;                                          /* the client's end of descriptor 3 */
static int unread;                                          /* frames of the client's: fewer than the jail takes in one go */
static struct jail *jail;
static struct input *input;
static bool drain;                                          /* events come before the next operation */
static int settling;                                        /* steps since the input was over */
static struct ring rings[SLOTS];
static uint32_t images;                                     /* mounts that are not answered */
static struct { uint32_t acquires, runs, files, of; } pending[SLOTS];    /* of: generation of the runs */
static struct { struct grant_request r; int n, nfds; struct slot slots[SLOTS]; } last;  /* frame that was taken, and before it */

/* ---- play ---- */

static int play_never(void) { abort(); }                    /* it names a process by its number, or waits */

static pid_t play_fork(void)
{
    errno = EAGAIN;
    return -1;
}

static int play_socketpair(int domain, int type, int protocol, int *pair)
{
    errno = EMFILE;
    int rc = broken & BAD_SOCKET ? -1 : socketpair(domain, type, protocol, pair);
    if (rc == 0)
        setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &(int){ 1 }, sizeof(int));   /* a few orders that nobody reads */
    return rc;
}

static int play_setns(int fd)
{
    if (fcntl(fd, F_GETFD) < 0)
        abort();
    return 0;
}

static void hang_up(struct launcher *l)
{
    if (l->sock >= 0)
        close(l->sock);
    l->sock = -1;
}

static void die(struct launcher *l)
{
    hang_up(l);
    if (l->life >= 0)
        close(l->life);
    l->life = -1;
}

static struct launcher *launcher_of(int pidfd)
{
    struct stat st;
    if (pidfd < 0 || fstat(pidfd, &st) < 0)
        return NULL;
    for (int i = launcher_count - 1; i >= 0; i--)
        if (S_ISFIFO(st.st_mode) && launchers[i].pipe == st.st_ino && (launchers[i].life >= 0 || launchers[i].told))
            return &launchers[i];
    return NULL;
}

static int play_signal(int fd, int sig)
{
    for (uint32_t i = 0; sig == SIGKILL && fd >= 0 && i < SLOTS; i++) {
        const struct slot *s = &jail->slots[i];
        struct launcher *l = fd == s->launcher_fd ? launcher_of(fd) : NULL;
        if (l != NULL && l->slot == i) {
            l->killed = true;
            if (!(world & WORLD_SLOW_DEATH))
                die(l);
            return 0;
        }
        if (fd == s->run_fd && fcntl(fd, F_GETFD) >= 0)
            return 0;
    }
    abort();                                                /* that would have been a stranger */
}

static int play_epoll(int epoll, int op, int fd, struct epoll_event *event)
{
    errno = ENOSPC;
    return broken & BAD_EPOLL ? -1 : epoll_ctl(epoll, op, fd, event);
}

/* ---- the maker ---- */

/* Begin what it was asked for next; it may live for a while before that is told. */
static bool birth(void)
{
    struct birth b;
    struct err err;
    struct stat st;
    int fds[FRAME_FDS_MAX], nfds, life[2];
    if (launcher_count == LAUNCHERS || frame_recv(maker, &b, sizeof b, fds, &nfds, &err) != (int)sizeof b)
        return false;
    struct launcher *l = &launchers[launcher_count++];
    if (b.slot >= SLOTS || nfds != (jail->cgroup.version == 2 ? 3 : 2))
        abort();
    *l = (struct launcher){ .slot = b.slot, .serial = b.serial, .sock = -1, .life = -1, .pidfd = -1 };
    if (!(broken & BAD_BIRTH)) {
        if (pipe2(life, O_CLOEXEC) < 0 || fstat(life[0], &st) < 0)
            abort();
        *l = (struct launcher){ .slot = b.slot, .serial = b.serial, .sock = give_fd(&fds[0]), .life = life[1], .pidfd = life[0],
                                .pipe = st.st_ino };
        fcntl(l->sock, F_SETFL, O_NONBLOCK);
    }
    for (int i = 0; i < nfds; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    return true;
}

enum { ANSWER_RIGHT, ANSWER_OTHER_SERIAL, ANSWER_NO_SLOT, ANSWER_RC };

static bool answer_birth(int how)
{
    struct err err;
    if (answered == launcher_count && !birth())
        return false;
    struct launcher *l = &launchers[answered++];
    struct born b = { .slot = l->slot, .serial = l->serial, .rc = l->pidfd < 0 ? ERR_DENIED : 0, .sys = l->pidfd < 0 ? EAGAIN : 0 };
    if (how == ANSWER_OTHER_SERIAL && !l->spoke) {          /* not the one that the jail waits for: that never speaks */
        b.serial ^= 0x80000000u;
        die(l);
    }
    b.slot |= how == ANSWER_NO_SLOT ? 0x80000000u : 0;
    b.rc ^= how == ANSWER_RC ? ERR_DENIED : 0;
    if (frame_send(maker, &b, sizeof b, &l->pidfd, l->pidfd >= 0, &err) < 0)
        abort();
    if (l->pidfd >= 0)
        close(l->pidfd);
    l->pidfd = -1;
    l->told = true;
    return true;
}

static int play_poll(struct pollfd *p, nfds_t n, int timeout)
{
    int rc = poll(p, n, 0);
    if (rc != 0 || timeout == 0)
        return rc;
    if (n != 1 || p->fd != jail->maker || !answer_birth(ANSWER_RIGHT))
        abort();                                            /* a wait without end */
    return poll(p, n, 0);
}

static int refuse(int bit, struct err *err)
{
    errno = EIO;
    return broken & bit ? err_sys(err, ERR_SYS, "the kernel refuses") : 0;
}

void maker_main(int sock, const struct kit *common, const struct cgroup_host *groups, int rings_fd) { (void)sock, (void)common, (void)groups, (void)rings_fd; abort(); }
int mount_plan(struct plan *out, struct err *err) { *out = (struct plan){ 0 }; (void)err; return 0; }
int mount_jail(struct err *err) { (void)err; return 0; }
int seccomp_compile(struct sock_fprog *out, enum sandbox_profile profile, bool host, struct err *err) { (void)host; *out = (struct sock_fprog){ 0 }; (void)profile, (void)err; return 0; }
int landlock_version(void) { return 0; }
int mount_clone(int fd, int userns, bool *own, struct err *err)
{
    (void)userns;
    *own = !(broken & TREE_COPIED);
    return refuse(BAD_MOUNT, err) < 0 ? err->code : fcntl(fd, F_DUPFD_CLOEXEC, 0);
}
int mount_image(const int *files, int count, struct err *err)
{
    if (count < 1 || count > SANDBOX_IMAGE_FILES)
        abort();
    return refuse(BAD_MOUNT, err) < 0 ? err->code : fcntl(files[count - 1], F_DUPFD_CLOEXEC, 0);
}
void mount_image_end(int dir) { (void)dir; }
void cgroup_open(struct cgroup_host *h) { (void)h; }
void cgroup_close(const struct cgroup_host *h) { (void)h; }
int cgroup_slot_make(struct cgroup_slot *s, const struct cgroup_host *h, uint32_t slot, struct err *err)
{
    *s = (struct cgroup_slot){ .host = h, .slot = slot, .dir = -1 };
    int rc = refuse(BAD_CGROUP_MAKE, err);
    if (rc == 0 && h->version == 2)
        s->dir = fcntl(kinds[3], F_DUPFD_CLOEXEC, 0);
    return rc;
}
void cgroup_slot_drop(struct cgroup_slot *s)
{
    if (s->dir >= 0)
        close(s->dir);
    s->dir = -1;
}
int cgroup_slot_enter(const struct cgroup_slot *s, int *out_pids_now, struct err *err)
{
    (void)s, (void)err;
    *out_pids_now = -1;
    return 0;
}
int cgroup_limit(struct cgroup_slot *s, const struct sandbox_limits *limits, struct err *err)
{
    (void)s, (void)limits;
    return refuse(BAD_CGROUP, err);
}
int cgroup_slot_renew(struct cgroup_slot *s, struct err *err)
{
    int rc = s->host->version == 2 ? -1 : cgroup_limit(s, NULL, err);
    if (rc == 0)
        return 0;
    cgroup_slot_drop(s);
    return cgroup_slot_make(s, s->host, s->slot, err);
}
bool cgroup_settle(struct cgroup_slot *s) { return s->host->version != 2 && !(broken & BAD_CGROUP); }
void cgroup_peak_reset(struct cgroup_slot *s) { (void)s; }
void cgroup_usage(const struct cgroup_slot *s, struct cgroup_usage *out)
{
    (void)s;
    *out = (struct cgroup_usage){ usage, usage, usage & 7, usage & 3 };
}
void cgroup_detail(const struct cgroup_slot *s, struct cgroup_detail *out)
{
    (void)s;
    *out = (struct cgroup_detail){ (uint32_t)usage & 7, usage, usage / 2, usage, usage / 3, usage, usage };
}

/* ---- input ---- */

static uint32_t byte(struct input *in) { return in->at < in->end ? *in->at++ : 0; }
static uint64_t number(struct input *in, size_t bytes)
{
    uint64_t n = 0;
    while (bytes-- > 0)
        n = n << 8 | byte(in);
    return n;
}
static int descriptors(struct input *in, uint32_t count, int *fds)
{
    if (count > FRAME_FDS_MAX)
        count = FRAME_FDS_MAX;
    for (uint32_t i = 0; i < count; i++)
        fds[i] = kinds[byte(in) % KINDS];
    return (int)count;
}

static void once(void)
{
    static bool done;
    if (done)
        return;
    done = true;
    struct err err;
    close(ring_memfd(&rings[0], &err));                     /* keeps a descriptor for good */
    for (int i = 0; i < KINDS; i++)
        kinds[i] = open("/dev/null", O_RDWR | O_CLOEXEC);
    const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
    struct stat st;
    dup3(frame_memfd("sealed", "true\0A=b", 9, &err), kinds[1], O_CLOEXEC);
    dup3(memfd_create("open", MFD_CLOEXEC | MFD_ALLOW_SEALING), kinds[2], O_CLOEXEC);
    int dir = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0 || fstat(dir, &st) < 0 || (st.st_uid == 0 && st.st_gid == 0 && dup3(dir, kinds[3], O_CLOEXEC) < 0))
        abort();                                            /* another owner's would need a namespace */
    int large = memfd_create("large", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (ftruncate(large, (off_t)(GRANT_COMMAND_MAX + 1)) < 0 || fcntl(large, F_ADD_SEALS, seals) < 0)
        abort();
    dup3(large, kinds[4], O_CLOEXEC);
    int pair[2];
    if ((socketpair)(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
        abort();
    dup3(pair[0], kinds[5], O_CLOEXEC);                     /* to an agent */
    agent = pair[1];
    dup3(open("/proc/self/exe", O_RDONLY | O_CLOEXEC), kinds[6], O_CLOEXEC);
    if ((socketpair)(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
        abort();
    dup3(pair[0], kinds[7], O_CLOEXEC);                     /* a stream of the client's */
    no_timer = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
}

/* Descriptor 3 is the client's, whatever else this process opens. */
__attribute__((constructor)) static void reserve(void)
{
    if (fcntl(CLIENT_FD, F_GETFD) < 0 && open("/dev/null", O_RDONLY | O_CLOEXEC) != CLIENT_FD)
        dup3(0, CLIENT_FD, O_CLOEXEC);
}

/* ---- what must hold ---- */

static void read_answers(void)
{
    for (;;) {
        struct grant_answer a;
        struct err err;
        int fds[FRAME_FDS_MAX], nfds;
        int n = frame_recv(client, &a, sizeof a, fds, &nfds, &err);
        if (n == ERR_BUSY || n == 0)
            return;
        if (n != (int)sizeof a || a.slot >= SLOTS || nfds != __builtin_popcount(a.fds) ||
            a.generation > jail->slots[a.slot].generation || strnlen(a.msg, sizeof a.msg) == sizeof a.msg)
            abort();
        if (a.kind == GRANT_ACQUIRED && pending[a.slot].acquires-- == 0 && !jail->over)
            abort();
        if (a.kind == GRANT_ACQUIRED && a.rc < 0 && a.generation == pending[a.slot].of)
            pending[a.slot].runs = 0;                       /* the first command is passed over */
        if (a.kind == GRANT_DONE && pending[a.slot].runs-- == 0 && !jail->over)
            abort();
        if (a.kind == GRANT_FILED && pending[a.slot].files-- == 0 && !jail->over)
            abort();
        if (a.kind == GRANT_MOUNTED && images-- == 0 && !jail->over)
            abort();
        if (a.kind == GRANT_DONE && a.rc == 0 && ((int)a.result.end < 0 || a.result.end >= SANDBOX_END_COUNT))
            abort();
        for (int i = 0; i < nfds; i++) {
            struct stat st;
            if (fstat(fds[i], &st) < 0 || (i == 0 && a.kind == GRANT_DONE && (uint64_t)st.st_size > 2 * SANDBOX_OUTPUT_KEEP + 128))
                abort();
            close(fds[i]);
        }
    }
}

/* The last frame of the client was taken: should it have been? */
static void check_taken(void)
{
    const struct grant_request *r = &last.r;
    const int n = last.n, nfds = last.nfds;
    last.n = 0;
    if (n == 0)
        return;
    if (n == (int)sizeof *r && (r->kind == GRANT_MOUNT || r->kind == GRANT_UNMOUNT)) {
        const uint32_t files = r->kind == GRANT_MOUNT ? r->option + 1 : 1;
        if (r->fds != 0 || files > SANDBOX_IMAGE_FILES || (uint32_t)nfds != files || (r->kind == GRANT_UNMOUNT && r->option != 0))
            abort();
        images += r->kind == GRANT_MOUNT;
        return;
    }
    if (n < (int)sizeof *r || n > (int)(sizeof *r + GRANT_INLINE_MAX) || (n > (int)sizeof *r && r->kind != GRANT_RUN) ||
        r->kind < GRANT_ACQUIRE || r->kind > GRANT_DIFF || r->slot >= SLOTS)
        abort();
    const struct slot *s = &last.slots[r->slot];
    bool current = r->generation == s->generation;
    if (r->kind == GRANT_ACQUIRE) {
        if (current ? s->state != SLOT_READY || r->profile >= SANDBOX_PROFILE_COUNT : r->generation > s->generation)
            abort();
        pending[r->slot].acquires++;
        read_answers();                                     /* what the generation before was told, a run of it passed over */
    } else if (r->kind == GRANT_RUN) {
        if (current && s->state != SLOT_SCRUB) {
            if ((s->state != SLOT_HELD && s->state != SLOT_DEAD && s->state != SLOT_ACQUIRING) || s->command >= 0 ||
                (n == sizeof *r) != (nfds > 0) || nfds > 4)
                abort();
            pending[r->slot].runs++;
            pending[r->slot].of = r->generation;
        } else if (r->generation > s->generation) {
            abort();
        }
    } else if (r->kind >= GRANT_READ && r->kind <= GRANT_DIFF) {
        if (current && s->state != SLOT_SCRUB) {
            if ((s->state != SLOT_HELD && s->state != SLOT_DEAD) || nfds > 2)
                abort();
            pending[r->slot].files++;
        } else if (r->generation > s->generation) {
            abort();
        }
    } else if (current && r->kind == GRANT_CLOSE && s->state != SLOT_SCRUB) {
        read_answers();                                     /* what came before it */
        pending[r->slot].acquires = pending[r->slot].runs = pending[r->slot].files = 0;
    }
    for (uint32_t i = 0; i < SLOTS; i++)
        if (jail->slots[i].state >= SLOT_STATE_COUNT || (i != r->slot && jail->slots[i].state != last.slots[i].state))
            abort();
}

static int play_recv(int sock, void *bytes, size_t size, int *fds, int *out_nfds, struct err *err)
{
    if (sock == CLIENT_FD)
        check_taken();
    for (uint32_t i = 0; i < SLOTS; i++)
        if (jail->slots[i].sock == sock && jail->slots[i].launcher_fd < 0 && jail->births > 0)
            abort();                                        /* what it says comes after its birth */
    int n = frame_recv(sock, bytes, size, fds, out_nfds, err);
    if (sock == CLIENT_FD && n > 0) {
        unread--;
        memset(&last.r, 0, sizeof last.r);
        memcpy(&last.r, bytes, (size_t)n < sizeof last.r ? (size_t)n : sizeof last.r);
        memcpy(last.slots, jail->slots, sizeof last.slots);
        last.n = n;
        last.nfds = *out_nfds;
    }
    return n;
}

static void check_slot(const struct slot *s)
{
    static const unsigned waits = 1u << SLOT_ACQUIRING | 1u << SLOT_RUNNING | 1u << SLOT_DRAIN | 1u << SLOT_COLLECT |
                                  1u << SLOT_FILES | 1u << SLOT_SCRUB;
    const struct launcher *l = launcher_of(s->launcher_fd);
    const bool making = s->state == SLOT_MAKING;
    if (making ? s->deadline_ns == 0 : s->resetting)
        abort();                                            /* a slot in making is looked at again */
    if (!making && (l == NULL) != (s->state == SLOT_DEAD))
        abort();                                            /* any other has a launcher, until that is dead */
    if ((s->launcher_fd >= 0) != (l != NULL))
        abort();
    if ((l != NULL && (l->slot != s->kit.slot || l->serial != s->serial)) || (!making && s->sock >= 0 && l == NULL))
        abort();
    if ((waits >> s->state & 1) && s->deadline_ns == 0 && !l->killed)
        abort();                                            /* what the client waits for ends */
    if (s->command >= 0 && s->state != SLOT_ACQUIRING && s->state != SLOT_RUNNING)
        abort();
    if (s->report_fd >= 0 && s->state != SLOT_COLLECT && s->state != SLOT_FILES)
        abort();
}

enum { OWN_MAX = 16 };
static int own_of(struct slot *s, int *out[OWN_MAX])
{
    int *own[] = { &s->sock, &s->launcher_fd, &s->run_fd, &s->door, &s->command, &s->streams[0],
                   &s->streams[1], &s->streams[2], &s->errors_fd, &s->owner_ns, &s->report_fd, &s->cgroup.dir };
    memcpy(out, own, sizeof own);
    return sizeof own / sizeof own[0];
}

static void check_all(void)
{
    static bool owned[DESCRIPTORS_MAX];
    int *own[OWN_MAX];
    memset(owned, 0, sizeof owned);
    for (uint32_t i = 0; i < jail->begun; i++) {
        check_slot(&jail->slots[i]);
        for (int k = own_of(&jail->slots[i], own) - 1; k >= 0; k--) {
            if (*own[k] >= 0 && (*own[k] <= CLIENT_FD || *own[k] >= DESCRIPTORS_MAX || owned[*own[k]]))
                abort();
            if (*own[k] >= 0)
                owned[*own[k]] = true;
        }
    }
    if (jail->births > BIRTHS_MAX)
        abort();
}

static int open_count(void)
{
    static struct pollfd p[DESCRIPTORS_MAX];
    int count = 0;
    for (int i = 0; i < DESCRIPTORS_MAX; i++)
        p[i].fd = i;
    if (poll(p, DESCRIPTORS_MAX, 0) < 0)
        abort();
    for (int i = 0; i < DESCRIPTORS_MAX; i++)
        count += !(p[i].revents & POLLNVAL);
    return count;
}

/* ---- one operation ---- */

/* The launcher that the slot has, or with `old` the first of those that live yet. */
static struct launcher *launcher_in(uint32_t slot, bool old)
{
    for (int i = 0; i < launcher_count; i++) {
        struct launcher *l = &launchers[old ? i : launcher_count - 1 - i];
        if (l->slot == slot && l->life >= 0)
            return l;
    }
    return NULL;
}

static void frame_of_client(const void *bytes, size_t n, const int *fds, int nfds)
{
    struct err err;
    if (n > 0 && unread < 60 && frame_send(client, bytes, n, fds, nfds, &err) == 0)
        unread++;
}

static void request_nearly_right(const struct slot *s, uint32_t what)
{
    static struct { struct grant_request r; char text[GRANT_INLINE_MAX + 1]; } packet;
    int fds[FRAME_FDS_MAX];
    uint32_t kind = byte(input), mask = kind >> 4, more = what & 128 ? byte(input) : 0;
    mask |= (more & 63) << 4;
    packet.r = (struct grant_request){ .kind = kind & 15, .slot = s->kit.slot, .generation = s->generation - (more >> 7),
                                       .fds = mask, .profile = (more >> 6) & 1 };
    size_t text = packet.r.kind == GRANT_RUN && !(mask & GRANT_FD_COMMAND) ? number(input, 2) % sizeof packet.text : 0;
    uint32_t option = what & 128 ? byte(input) : 0;
    if (option & 128)
        for (size_t i = 0; i < sizeof packet.r.limits / 8; i++)
            ((uint64_t *)(void *)&packet.r.limits)[i] = number(input, 1 + i % 8);
    if (packet.r.kind == GRANT_ACQUIRE)
        packet.r.limits.network = option & 3;
    else
        packet.r.option = option & 127;
    if (packet.r.kind == GRANT_MOUNT || packet.r.kind == GRANT_UNMOUNT) {
        packet.r.fds = option & 32;
        packet.r.option = packet.r.kind == GRANT_MOUNT && mask != 0 && !(option & 64) ? (uint32_t)__builtin_popcount(mask) - 1 : option & 7;
    }
    frame_of_client(&packet, sizeof packet.r + text, fds, descriptors(input, (uint32_t)__builtin_popcount(mask), fds));
}

static void note_of(struct launcher *l, struct slot *s, bool any)
{
    struct err err;
    int fds[FRAME_FDS_MAX], nfds;
    uint32_t kind = byte(input), more = byte(input), it = kind & 7;
    l->spoke = true;
    for (int got = more & 128 ? 0 : 1; got > 0; ) {
        struct order o;
        got = frame_recv(l->sock, &o, sizeof o, fds, &nfds, &err);
        for (int i = 0; i < nfds; i++)
            close(fds[i]);
    }
    if ((it == NOTE_COLLECTED || it == NOTE_FILES) && s->report_fd >= 0 && ftruncate(s->report_fd, (off_t)(more << 17)) < 0)
        abort();
    struct note n = { .kind = it, .rc = kind & 16 ? -(int32_t)(more & 15) : 0, .crew = (kind >> 3) & 1, .report = more & 16,
                      .disk_full = more & 32, .ended_ns = play_now };
    uint32_t carries = it == NOTE_CREW ? kind & 8 ? 0 : 2 : it == NOTE_ACQUIRED && s->limits.network == SANDBOX_NET_PROXY;
    if (it == NOTE_ENDED)
        n.status = (int)number(input, 2);
    if (kind & 32)
        memset(n.msg, 'x', sizeof n.msg);
    if (kind & 64) {
        rings[s->kit.slot].total = number(input, 1 + more % 8);
        rings[s->kit.slot].over = more & 8;
        if (s->errors != NULL)
            s->errors->total = rings[s->kit.slot].total >> (more & 31);
    }
    nfds = descriptors(input, any ? byte(input) % (FRAME_FDS_MAX + 1) : carries, fds);
    if (frame_send(l->sock, &n, kind & 128 ? 1 + more % sizeof n : sizeof n, fds, nfds, &err) < 0)
        err.code = 0;                                       /* the jail has given it up */
}

/* True: and more before the jail looks. */
static bool play(void)
{
    int fds[FRAME_FDS_MAX];
    uint32_t what = byte(input), id = ((what >> 4) & 3) % SLOTS;
    struct slot *s = &jail->slots[id];
    struct launcher *l = launcher_in(id, what & 128);
    switch (what % 16) {
    case 0:
    case 1:
        request_nearly_right(s, what);
        break;
    case 2: {                                               /* any bytes at all */
        uint8_t bytes[sizeof(struct grant_request) + 16] = { 0 };
        uint32_t n = byte(input) % (sizeof bytes + 1);
        if (what & 128)
            n = sizeof(struct grant_request);
        for (uint32_t i = 0; i < n; i++)
            bytes[i] = (uint8_t)byte(input);
        frame_of_client(bytes, n, fds, descriptors(input, byte(input) % (FRAME_FDS_MAX + 1), fds));
        break;
    }
    case 3:
    case 4:
    case 5:
        if (l != NULL && l->sock >= 0)
            note_of(l, s, what % 16 == 5);
        break;
    case 6:
        play_now += number(input, 1 + byte(input) % 6);
        break;
    case 7:
        broken = (int)byte(input);
        usage += byte(input);
        break;
    case 8:
        read_answers();
        break;
    case 9:
        birth();
        break;
    case 10:
        answer_birth(ANSWER_RIGHT);
        break;
    case 11: {
        uint32_t how = byte(input);
        answer_birth(how == 255 ? ANSWER_NO_SLOT : how == 254 ? ANSWER_RC : ANSWER_OTHER_SERIAL);
        break;
    }
    case 12:
        if (l != NULL)
            die(l);
        break;
    case 13:
        if (l != NULL)
            hang_up(l);
        break;
    default:                                                /* those that were killed are dead by now */
        for (int i = 0; i < launcher_count; i++)
            if (launchers[i].killed)
                die(&launchers[i]);
    }
    return what & 64;
}

/* ---- when the input is over ---- */

static bool slots_at_rest(void)
{
    bool all = true;
    for (uint32_t i = 0; i < SLOTS; i++)
        all &= (1u << SLOT_READY | 1u << SLOT_HELD | 1u << SLOT_DEAD) >> jail->slots[i].state & 1;
    return all;
}

static void settle_births(void)
{
    for (int i = 0; i < launcher_count; i++)
        if (launchers[i].killed)
            die(&launchers[i]);
    while (answer_birth(ANSWER_RIGHT))
        ;
}

static void settle_ready(void)
{
    const struct note n = { .kind = NOTE_READY };
    for (uint32_t i = 0; i < SLOTS; i++) {
        struct err err;
        struct launcher *l = launcher_of(jail->slots[i].launcher_fd);
        if (l != NULL && l->sock >= 0 && jail->slots[i].state == SLOT_MAKING &&
            frame_send(l->sock, &n, sizeof n, NULL, 0, &err) < 0)
            err.code = 0;
    }
}

/* Whoever lives has a slot that knows of it, or sees that it is of no more use. */
static void check_launchers(void)
{
    for (int i = 0; i < launcher_count; i++) {
        struct launcher *l = &launchers[i];
        const struct slot *s = &jail->slots[l->slot];
        struct pollfd p = { .fd = l->sock, .events = POLLIN };
        if (l->life >= 0 && launcher_of(s->launcher_fd) != l && l->sock >= 0 &&
            (poll(&p, 1, 0) <= 0 || !(p.revents & POLLHUP)))
            abort();
    }
}

/* First time passes and nobody does anything but die: each request is answered. Then the kernel serves: all slots that nobody
 * holds come up. Then all launchers die, and stay dead. */
enum { STEPS_SILENT = 8, STEPS_SERVED = STEPS_SILENT + 32 };
static void settle(void)
{
    const int step = settling++;
    if (step < STEPS_SILENT) {
        broken |= BAD_BIRTH;
        settle_births();
        read_answers();
        play_now += 8 * 86400 * NS_PER_S;
        return;
    }
    for (uint32_t i = 0; step == STEPS_SILENT && i < SLOTS; i++)
        if (pending[i].acquires != 0 || pending[i].runs != 0 || pending[i].files != 0)
            abort();
    if (step < STEPS_SERVED && !slots_at_rest()) {
        broken = 0;
        if (step % 2 == 0)
            settle_births();
        else if (step % 4 == 1)
            settle_ready();
        else
            play_now += 31 * NS_PER_S;
    } else if (step < STEPS_SERVED + 2) {
        if (!slots_at_rest())
            abort();
        check_launchers();
        settling = STEPS_SERVED + 2;
        broken = BAD_SOCKET;
        for (int i = 0; i < launcher_count; i++)
            die(&launchers[i]);
    } else {
        told_to_end = 1;
    }
}

/* What is ready, in an order of the input's. */
static int events_now(struct epoll_event *events, int max)
{
    int n = epoll_wait(jail->epoll, events, max - 1, 0);
    if (jail->timer_ns != 0 && play_now >= jail->timer_ns)
        events[n++] = (struct epoll_event){ .events = EPOLLIN, .data.u32 = ID_TIMER };
    uint32_t order = n > 1 ? byte(input) : 0;
    for (uint32_t k = order % 8; n > 1 && k > 0; k--) {
        const struct epoll_event first = events[0];
        memmove(events, events + 1, (size_t)(n - 1) * sizeof events[0]);
        events[n - 1] = first;
    }
    int most = (int)(order >> 3 & 3);
    drain = !(order & 128);
    return most > 0 && most < n ? most : n;
}

static int play_wait(struct epoll_event *events, int max)
{
    check_all();
    while (!told_to_end) {
        if (drain) {
            int n = events_now(events, max);
            if (n > 0)
                return n;
        }
        drain = true;
        if (!(world & WORLD_SLOW_MAKER) && answer_birth(ANSWER_RIGHT))
            continue;
        if (launcher_count >= LAUNCHERS - LAUNCHERS_LEFT)
            input->at = input->end;
        if (input->at == input->end)
            settle();
        else
            drain = !play();
    }
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    once();
    struct input in = { data, data + n };
    struct err err;
    struct slot slots[SLOTS];
    int pair[2], maker_pair[2], *own[OWN_MAX], open_before = open_count();
    for (char command[256]; recv(agent, command, sizeof command, 0) > 0; )
        ;
    broken = launcher_count = answered = settling = last.n = unread = 0;
    usage = 0;
    play_now = NS_PER_S;
    told_to_end = 0;
    drain = true;
    input = &in;
    memset(pending, 0, sizeof pending);
    images = 0;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0 ||
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, maker_pair) < 0)
        abort();
    client = pair[0];
    dup3(pair[1], CLIENT_FD, O_CLOEXEC);
    close(pair[1]);
    maker = maker_pair[0];
    world = (int)byte(&in);
    struct jail j = { .epoll = epoll_create1(EPOLL_CLOEXEC), .timer = no_timer, .maker = maker_pair[1], .slot_count = SLOTS,
                      .slots = slots, .host_ns = kinds[0], .own_ns = kinds[0], .greeted = !(world & WORLD_NOT_GREETED),
                      .rootless = world & WORLD_ROOTLESS, .cgroup.version = (world & 3) % 3 };
    jail = &j;
    set_defaults(&j);
    if (watch(&j, CLIENT_FD, ID_CLIENT, &err) < 0 || watch(&j, j.maker, ID_MAKER, &err) < 0)
        abort();
    for (uint32_t i = 0; i < SLOTS; i++) {
        slots[i] = (struct slot){ .sock = -1, .launcher_fd = -1, .run_fd = -1, .door = -1, .command = -1,
                                  .report_fd = -1, .owner_ns = -1, .streams = { -1, -1, -1 },
                                  .errors_fd = -1, .kit = { .slot = i, .ring = &rings[i], .userns = kinds[0] } };
        slots[i].kit.disk_bytes = j.defaults.disk_bytes;
        slots[i].kit.disk_inodes = j.defaults.disk_inodes;
        slots[i].kit.cpus = j.cpus;
        rings[i].total = 0;
        if (cgroup_slot_make(&slots[i].cgroup, &j.cgroup, i, &err) < 0)
            abort();
    }
    if (loop(&j, &err) < 0)
        abort();
    read_answers();
    for (uint32_t i = 0; i < SLOTS; i++) {
        if (!j.over && (images != 0 || pending[i].acquires != 0 || pending[i].runs != 0 || pending[i].files != 0 || slots[i].sock >= 0 ||
                        slots[i].launcher_fd >= 0 || j.births != 0))
            abort();
        drop_errors(&slots[i]);
        for (int k = own_of(&slots[i], own) - 1; k >= 0; k--)
            drop_fd(own[k]);
    }
    for (int i = 0; i < launcher_count; i++) {
        die(&launchers[i]);
        drop_fd(&launchers[i].pidfd);
    }
    close(client);
    close(maker);
    close(j.maker);
    close(j.epoll);
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    dup3(null, CLIENT_FD, O_CLOEXEC);
    close(null);
    if (open_count() != open_before)
        abort();
    return 0;
}
