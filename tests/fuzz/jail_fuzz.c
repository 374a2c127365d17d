/*
 * jail_fuzz.c - the jail's two doors, without a privilege: any frame of a client in any state, any note of a launcher,
 * keepers that die, clocks that jump, kernels that refuse. The jail proper is included whole, so that its own dispatch
 * runs; under it the process, namespace and control group calls are play.
 *
 * Held: a bad frame ends the connection and changes no slot; nobody is killed by a number that is no keeper; each
 * acquire and run that is taken is answered once, at the latest by the death of its slot; no descriptor is lost.
 *
 * Input: a byte for the world, then operations: one byte each, with bytes of its own (see play()).
 */
#include "base/clock.h"
#include "base/frame.h"
#include "base/log.h"
#include "base/own.h"
#include "sandbox/cgroup.h"
#include "sandbox/grant.h"
#include "sandbox/keeper.h"
#include "sandbox/mount.h"
#include "sandbox/seccomp.h"
#include "sandbox/slot.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/securebits.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
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
static int play_kill(pid_t pid, int sig);
static pid_t play_waitpid(pid_t pid);
static int play_pidfd(int fd);
static int play_epoll(void);

#define main(...) jail_program(__VA_ARGS__)
#define clock_mono_ns() play_now
#define socketpair(d, t, p, pair) play_socketpair(d, t, p, pair)
#define fork() play_fork()
#define kill(pid, sig) play_kill(pid, sig)
#define waitpid(pid, status, flags) play_waitpid(pid)
#define pidfd_send_signal(fd, sig, info, flags) play_pidfd(fd)
#define setns(fd, flags) play_pidfd(fd)
#define epoll_ctl(epoll, op, fd, event) ((void)(epoll), (void)(fd), (void)(event), play_epoll())
#define log_err(level, err, ...) ((void)(err))
#include "sandbox/slot.c"   // NOLINT: see the top
#include "sandbox/jail.c"   // NOLINT
#undef main
#undef socketpair
#undef kill

enum { SLOTS = 3, KEEPERS = 4096, KINDS = 8 };
enum { BAD_CGROUP = 1, BAD_CGROUP_MAKE = 2, BAD_MOUNT = 4, BAD_FORK = 8, TREE_COPIED = 16, BAD_EPOLL = 32 };   /* of `broken` */

static int broken;
static int theirs[KEEPERS], keepers, last_theirs = -1;      /* a keeper's end of its socket, by pid - 1; -1: dead */
static uint64_t usage;
static int kinds[KINDS];                                    /* descriptors of every kind */
static int agent;                                           /* the other end of one of them */
static int client;                                          /* the client's end of descriptor 3 */
static struct ring rings[SLOTS];
static struct { uint32_t acquires, runs, files, of; } pending[SLOTS];    /* of: generation of the runs */

/* ---- play ---- */

static int play_socketpair(int domain, int type, int protocol, int *pair)
{
    int rc = socketpair(domain, type, protocol, pair);
    if (rc == 0) {
        if (last_theirs >= 0)
            close(last_theirs);
        last_theirs = fcntl(pair[1], F_DUPFD_CLOEXEC, 0);
        fcntl(last_theirs, F_SETFL, O_NONBLOCK);
        setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &(int){ 1 }, sizeof(int));   /* a few orders that nobody reads */
    }
    return rc;
}

static pid_t play_fork(void)
{
    if ((broken & BAD_FORK) || keepers == KEEPERS) {
        errno = EAGAIN;
        return -1;
    }
    theirs[keepers++] = last_theirs;
    last_theirs = -1;
    return keepers;
}

static int play_kill(pid_t pid, int sig)
{
    if (pid <= 0 || pid > keepers || sig != SIGKILL)
        abort();                                            /* that would have been half the machine */
    if (theirs[pid - 1] >= 0)
        close(theirs[pid - 1]);
    theirs[pid - 1] = -1;
    return 0;
}

static pid_t play_waitpid(pid_t pid)
{
    if (pid <= 0 || theirs[pid - 1] >= 0)
        abort();                                            /* a wait without end */
    return pid;
}

static int play_pidfd(int fd)
{
    if (fcntl(fd, F_GETFD) < 0)
        abort();
    return 0;
}

static int play_epoll(void)
{
    errno = ENOSPC;
    return broken & BAD_EPOLL ? -1 : 0;
}

static int refuse(int bit, struct err *err)
{
    errno = EIO;
    return broken & bit ? err_sys(err, ERR_SYS, "the kernel refuses") : 0;
}

void keeper_main(struct kit *kit, int entered, const struct err *why) { (void)kit, (void)entered, (void)why; abort(); }
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
int cgroup_slot_renew(struct cgroup_slot *s, bool occupied, struct err *err)
{
    int rc = s->host->version == 2 ? -1 : cgroup_limit(s, NULL, err);
    if (rc == 0 || (occupied && s->host->version == 1))
        return rc;
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

struct input { const uint8_t *at, *end; };

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
    dup3(open("/proc/self/exe", O_PATH | O_CLOEXEC), kinds[6], O_CLOEXEC);
    if ((socketpair)(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
        abort();
    dup3(pair[0], kinds[7], O_CLOEXEC);                     /* a stream of the client's */
}

/* Descriptor 3 is the client's, whatever else this process opens. */
__attribute__((constructor)) static void reserve(void)
{
    if (fcntl(CLIENT_FD, F_GETFD) < 0 && open("/dev/null", O_RDONLY | O_CLOEXEC) != CLIENT_FD)
        dup3(0, CLIENT_FD, O_CLOEXEC);
}

/* ---- what must hold ---- */

static void read_answers(struct jail *j)
{
    for (;;) {
        struct grant_answer a;
        struct err err;
        int fds[FRAME_FDS_MAX], nfds;
        int n = frame_recv(client, &a, sizeof a, fds, &nfds, &err);
        if (n == ERR_BUSY || n == 0)
            return;
        if (n != (int)sizeof a || a.slot >= SLOTS || nfds != __builtin_popcount(a.fds) ||
            a.generation > j->slots[a.slot].generation || strnlen(a.msg, sizeof a.msg) == sizeof a.msg)
            abort();
        if (a.kind == GRANT_ACQUIRED && pending[a.slot].acquires-- == 0)
            abort();
        if (a.kind == GRANT_ACQUIRED && a.rc < 0 && a.generation == pending[a.slot].of)
            pending[a.slot].runs = 0;                       /* the first command is passed over */
        if (a.kind == GRANT_DONE && pending[a.slot].runs-- == 0)
            abort();
        if (a.kind == GRANT_FILED && pending[a.slot].files-- == 0)
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

static void turn(struct jail *j)
{
    bool more = true;
    while (more) {
        more = false;
        for (uint32_t i = 0; i < SLOTS; i++) {
            struct slot *s = &j->slots[i];
            int was = s->sock;
            if (s->sock >= 0)
                on_slot(j, s);
            more |= s->sock >= 0 && s->sock != was;
        }
    }
}

static void send_to_jail(struct jail *j, const void *bytes, size_t n, const int *fds, int nfds)
{
    struct err err;
    struct slot before[SLOTS];
    const struct grant_request *r = bytes;
    memcpy(before, j->slots, sizeof before);
    if (n == 0 || frame_send(client, bytes, n, fds, nfds, &err) < 0)
        return;
    on_client(j);
    if (j->over) {                                          /* by the frame, or by an answer that did not fit */
        return;
    }
    if (n < sizeof *r || n > sizeof *r + GRANT_INLINE_MAX || (n > sizeof *r && r->kind != GRANT_RUN) || r->kind < GRANT_ACQUIRE ||
        r->kind > GRANT_DIFF || r->slot >= SLOTS)
        abort();                                            /* taken, and should not have been */
    const struct slot *s = &before[r->slot];
    bool current = r->generation == s->generation;
    if (r->kind == GRANT_ACQUIRE) {
        if (current ? s->state != SLOT_READY || r->profile >= SANDBOX_PROFILE_COUNT : r->generation > s->generation)
            abort();
        pending[r->slot].acquires++;
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
        read_answers(j);                                    /* what came before it */
        pending[r->slot].acquires = pending[r->slot].runs = pending[r->slot].files = 0;
    }
    for (uint32_t i = 0; i < SLOTS; i++)
        if (j->slots[i].state >= SLOT_STATE_COUNT || (i != r->slot && j->slots[i].state != before[i].state))
            abort();
}

/* ---- one operation ---- */

static void play(struct jail *j, struct input *in)
{
    int fds[FRAME_FDS_MAX];
    uint32_t what = byte(in);
    struct slot *s = &j->slots[(what >> 4) % SLOTS];
    switch (what % 8) {
    case 0:
    case 1: {                                               /* a request that is nearly right */
        uint32_t kind = byte(in), mask = kind >> 4 | (what & 16 ? byte(in) << 4 : 0);
        static struct { struct grant_request r; char text[GRANT_INLINE_MAX + 1]; } packet;
        packet.r = (struct grant_request){ .kind = kind & 15, .slot = s->kit.slot, .generation = s->generation - (what >> 6),
                                           .fds = mask, .profile = (what >> 5) & 1 };
        size_t text = packet.r.kind == GRANT_RUN && !(mask & GRANT_FD_COMMAND) ? number(in, 2) % sizeof packet.text : 0;
        if (what & 8)
            for (size_t i = 0; i < sizeof packet.r.limits / 8; i++)
                ((uint64_t *)(void *)&packet.r.limits)[i] = number(in, 1 + i % 8);
        uint32_t option = what & 8 ? byte(in) : 0;
        if (packet.r.kind == GRANT_ACQUIRE)
            packet.r.limits.network = option & 3;
        else
            packet.r.option = option;
        send_to_jail(j, &packet, sizeof packet.r + text, fds, descriptors(in, (uint32_t)__builtin_popcount(mask), fds));
        break;
    }
    case 2: {                                               /* any bytes at all */
        uint8_t bytes[sizeof(struct grant_request) + 16] = { 0 };
        uint32_t n = byte(in) % (sizeof bytes + 1);
        if (what & 8)
            n = sizeof(struct grant_request);
        for (uint32_t i = 0; i < n; i++)
            bytes[i] = (uint8_t)byte(in);
        send_to_jail(j, bytes, n, fds, descriptors(in, byte(in) % (FRAME_FDS_MAX + 1), fds));
        break;
    }
    case 3:
    case 4:                                                 /* a note of the keeper or launcher */
        if (s->sock >= 0 && s->keeper > 0 && theirs[s->keeper - 1] >= 0) {
            struct err err;
            uint32_t kind = byte(in), more = byte(in);
            for (int got = more & 128 ? 0 : 1; got > 0; ) {
                struct order o;
                int nfds;
                got = frame_recv(theirs[s->keeper - 1], &o, sizeof o, fds, &nfds, &err);
                for (int i = 0; i < nfds; i++)
                    close(fds[i]);
            }
            if (((kind & 15) == NOTE_COLLECTED || (kind & 15) == NOTE_FILES) && s->report_fd >= 0 && ftruncate(s->report_fd, (off_t)(more << 17)) < 0)
                abort();
            bool proxy = (kind & 31) == NOTE_ACQUIRED && s->limits.network == SANDBOX_NET_PROXY;
            uint32_t carries = (kind & 15) == NOTE_BORN || proxy ? 1 : (kind & 15) == NOTE_CREW ? 2 : 0;
            struct note n = { .kind = kind & 15, .rc = kind & 16 ? -(int32_t)(more & 15) : 0, .status = (int)number(in, 2),
                              .report = more & 16, .disk_full = more & 32, .ended_ns = play_now };
            if (kind & 32)
                memset(n.msg, 'x', sizeof n.msg);
            if (kind & 64) {
                rings[s->kit.slot].total = number(in, 1 + more % 8);
                rings[s->kit.slot].over = more & 8;
                if (s->errors != NULL)
                    s->errors->total = rings[s->kit.slot].total >> (more & 31);
            }
            uint32_t count = what & 8 ? byte(in) % (FRAME_FDS_MAX + 1) : carries;
            int nfds = descriptors(in, count, fds);
            if (frame_send(theirs[s->keeper - 1], &n, kind & 128 ? 1 + more % sizeof n : sizeof n, fds, nfds, &err) < 0)
                break;
        }
        break;
    case 5:
        play_now += number(in, 1 + (what >> 3) % 6);
        for (uint32_t i = 0; i < SLOTS; i++)
            slot_tick(j, &j->slots[i], play_now);
        break;
    case 6:
        broken = (int)byte(in);
        usage += byte(in);
        break;
    default:
        if (what & 8)
            read_answers(j);
        else if (s->keeper > 0 && theirs[s->keeper - 1] >= 0)
            play_kill(s->keeper, SIGKILL);
    }
    turn(j);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    once();
    struct input in = { data, data + n };
    struct err err;
    struct slot slots[SLOTS];
    int pair[2], first_free = fcntl(0, F_DUPFD_CLOEXEC, 4);
    close(first_free);
    for (char command[256]; recv(agent, command, sizeof command, 0) > 0; )
        ;
    broken = keepers = 0;
    usage = 0;
    play_now = NS_PER_S;
    memset(pending, 0, sizeof pending);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
        abort();
    client = pair[0];
    dup3(pair[1], CLIENT_FD, O_CLOEXEC);
    close(pair[1]);
    struct jail j = { .epoll = epoll_create1(EPOLL_CLOEXEC), .greeted = true, .slot_count = SLOTS, .slots = slots,
                      .host_ns = kinds[0], .own_ns = kinds[0],
                      .cgroup.version = (int)(byte(&in) % 3) };
    set_defaults(&j);
    for (uint32_t i = 0; i < SLOTS; i++) {
        slots[i] = (struct slot){ .sock = -1, .launcher_fd = -1, .run_fd = -1, .door = -1, .command = -1, .report_fd = -1,
                                  .owner_ns = -1, .streams = { -1, -1, -1 }, .errors_fd = -1, .kit = { .slot = i, .ring = &rings[i] } };
        slots[i].kit.disk_bytes = j.defaults.disk_bytes;
        slots[i].kit.disk_inodes = j.defaults.disk_inodes;
        rings[i].total = 0;
        if (cgroup_slot_make(&slots[i].cgroup, &j.cgroup, i, &err) < 0)
            abort();
        slot_make(&j, &slots[i]);
    }
    while (in.at < in.end && !j.over)
        play(&j, &in);
    /* All slots die: who still waits hears of it. */
    for (uint32_t i = 0; i < SLOTS; i++) {
        broken |= BAD_FORK;                                 /* and stay dead */
        if (slots[i].keeper > 0 && slots[i].sock >= 0)
            play_kill(slots[i].keeper, SIGKILL);
    }
    turn(&j);
    read_answers(&j);
    for (uint32_t i = 0; i < SLOTS; i++) {
        if (!j.over && (pending[i].acquires != 0 || pending[i].runs != 0 || pending[i].files != 0))
            abort();
        if (slots[i].sock >= 0)
            abort();
        cgroup_slot_drop(&slots[i].cgroup);
        int *own[] = { &slots[i].launcher_fd, &slots[i].run_fd, &slots[i].door, &slots[i].command, &slots[i].report_fd,
                       &slots[i].streams[0], &slots[i].streams[1], &slots[i].streams[2], &slots[i].errors_fd };
        for (size_t k = 0; k < sizeof own / sizeof own[0]; k++)
            drop_fd(own[k]);
        drop_errors(&slots[i]);
    }
    for (int i = 0; i < keepers; i++)
        if (theirs[i] >= 0)
            abort();                                        /* a keeper without a slot: nobody will ever end it */
    if (last_theirs >= 0)
        close(last_theirs);
    last_theirs = -1;
    close(client);
    close(j.epoll);
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    dup3(null, CLIENT_FD, O_CLOEXEC);
    close(null);
    int now_free = fcntl(0, F_DUPFD_CLOEXEC, 4);
    close(now_free);
    if (now_free != first_free)
        abort();
    return 0;
}
