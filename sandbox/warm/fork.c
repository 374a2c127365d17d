/*
 * fork.c - the warm host's half in native code: an extension module of any CPython from 3.8 on, with any C library.
 *
 * Loaded inside, by the image's interpreter: it links nothing and takes what it calls from the process it is in. The few
 * functions of Python's stable interface are declared here, so that neither building nor running it needs Python's headers.
 */
#include "sandbox/cell.h"
#include "sandbox/warm.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/seccomp.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <linux/capability.h>
#include <unistd.h>

/* ---- of Python ---- */

typedef struct object { ptrdiff_t refs; void *type; } object;
struct method { const char *name; object *(*call)(object *self, object *args); int flags; const char *doc; };
struct module_def {
    struct { object base; object *(*init)(void); ptrdiff_t index; object *copy; } base;
    const char *name, *doc;
    ptrdiff_t size;
    struct method *methods;
    void *slots, *traverse, *clear, *free;
};
enum { METHOD_TUPLE = 1, ABI = 3 };
extern object *PyModule_Create2(struct module_def *def, int abi), *PyLong_FromLong(long value);
extern object *PyBytes_FromStringAndSize(const char *bytes, ptrdiff_t size);
extern object *PyErr_SetFromErrno(object *type), *PyTuple_GetItem(object *tuple, ptrdiff_t at);
extern long PyLong_AsLong(object *value);
extern char *PyBytes_AsString(object *bytes);
extern ptrdiff_t PyBytes_Size(object *bytes);
extern void PyOS_BeforeFork(void), PyOS_AfterFork_Parent(void), PyOS_AfterFork_Child(void);
extern object *PyExc_OSError;
object *PyInit_fork(void);

/* ---- the fork ---- */

#define FDS_MAX 8
/* One packet of at least `least` bytes, with *out_fds descriptors in fds[FDS_MAX]. */
static ssize_t take(int sock, void *bytes, size_t least, size_t size, int *fds, int *out_fds)
{
    union { struct cmsghdr head; char room[CMSG_SPACE(FDS_MAX * sizeof(int))]; } control;
    struct iovec iov = { bytes, size };
    struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control };
    ssize_t n;
    do
        n = recvmsg(sock, &msg, MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR);
    struct cmsghdr *c = n > 0 ? CMSG_FIRSTHDR(&msg) : NULL;
    *out_fds = c != NULL ? (int)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int)) : 0;
    if (*out_fds > 0)
        memcpy(fds, CMSG_DATA(c), (size_t)*out_fds * sizeof(int));
    return n < (ssize_t)least ? -1 : n;
}

static void say(int sock, const char *failed)
{
    struct cell_answer a;
    memset(&a, 0, sizeof a);
    if (failed != NULL) {
        a.rc = ERR_SYS;
        a.sys = errno;
        strncpy(a.msg, failed, sizeof a.msg - 1);
    }
    if (send(sock, &a, sizeof a, MSG_NOSIGNAL) != (ssize_t)sizeof a)
        _exit(1);
}

static int loopback_up(void)
{
    int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct ifreq r;
    memset(&r, 0, sizeof r);
    memcpy(r.ifr_name, "lo", 3);
    r.ifr_flags = IFF_UP | IFF_RUNNING;
    int rc = s < 0 ? -1 : ioctl(s, SIOCSIFFLAGS, &r);
    close(s);
    return rc;
}

/* What the host still has and an agent must not have; what an agent has and the host has not. Same order as rights.c. */
static const char *become_agent(const struct warm_order *o, int out, const struct sock_fprog *filter)
{
    if (setsid() < 0)
        return "session";
    if (o->namespaces != 0 && (unshare((int)o->namespaces) < 0 || ((o->namespaces & CLONE_NEWNET) && loopback_up() < 0)))
        return "namespaces";
    int adj = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (adj >= 0 && write(adj, "1000", 4) < 0)
        errno = 0;                          /* as cell.c's reaper_make() */
    if (adj >= 0)
        close(adj);
    struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
    struct __user_cap_data_struct none[2];
    memset(none, 0, sizeof none);
    if (syscall(SYS_capset, &head, none) < 0)       /* takes the ambient set along; the bounding set is empty */
        return "capabilities";
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, filter) < 0)
        return "system call filter";
    return dup2(out, 1) < 0 || dup2(out, 2) < 0 ? "output" : NULL;
}

static void limit(int what, uint64_t value)
{
    struct rlimit r = { value, what == RLIMIT_CPU ? value + 1 : value }, now;
    if (value == 0)
        return;
    if (getrlimit(what, &now) == 0 && now.rlim_max < r.rlim_max)
        r.rlim_cur = r.rlim_max = now.rlim_max;
    setrlimit(what, &r);
}

/* The sandbox's own files are in the way: as cell.c tells it. */
_Noreturn static void unable(const char *what, int why)
{
    const char *said[] = { "sandbox: ", what, ": ", strerror(why), "\n" };
    for (int i = 0; i < 5; i++)
        if (write(1, said[i], strlen(said[i])) < 0)
            break;
    _exit(126);
}

/* In the fork: agent until the command comes, which is returned as bytes; the first says whether it has an input. */
static object *agent(const struct warm_order *o, int sock, int out, const struct sock_fprog *filter)
{
    const char *failed = become_agent(o, out, filter);
    if (failed == NULL && (dup2(sock, 3) < 0 || syscall(SYS_close_range, 4u, ~0u, 0u) < 0))
        failed = "descriptors";
    fcntl(3, F_SETFD, FD_CLOEXEC);
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    int null_errno = null < 0 || fcntl(null, F_SETFL, 0) < 0 || dup2(null, 0) < 0 ? errno : 0;
    if (null >= 0)
        close(null);
    say(failed == NULL ? 3 : sock, failed);
    static struct { struct cell_order o; char text[GRANT_INLINE_MAX]; } packet;
    int fds[FDS_MAX], got = 0;
    ssize_t n = failed != NULL ? -1 : take(3, &packet, sizeof packet.o, sizeof packet, fds, &got);
    const bool input = packet.o.fds & CELL_IN, errors = packet.o.fds & CELL_ERR;
    if (n < 0 || packet.o.kind != CELL_RUN || got != (packet.o.fds != 0 || got > 0) + input + errors)
        _exit(1);
    limit(RLIMIT_FSIZE, packet.o.file_bytes);
    limit(RLIMIT_AS, packet.o.memory_bytes);
    limit(RLIMIT_CPU, packet.o.cpu_s);
    limit(RLIMIT_NPROC, packet.o.pids);
    if (input ? dup2(fds[1], 0) < 0 : null_errno != 0)
        unable(input ? "standard input" : "/dev/null", input ? errno : null_errno);
    if (errors && dup2(fds[1 + input], 2) < 0)
        unable("standard error", errno);
    if (chdir(SANDBOX_WORK_DIR) < 0)
        unable(SANDBOX_WORK_DIR, errno);
    off_t size = got == 0 ? n - (ssize_t)sizeof packet.o : lseek(fds[0], 0, SEEK_END);
    object *bytes = size < 0 ? NULL : PyBytes_FromStringAndSize(NULL, size + 1);
    if (bytes == NULL)
        _exit(1);
    char *at = PyBytes_AsString(bytes);
    *at = (char)input;
    if (got == 0)
        memcpy(at + 1, packet.text, (size_t)size);
    else if (pread(fds[0], at + 1, (size_t)size, 0) != size)
        _exit(1);
    for (int i = 0; i < got; i++)
        close(fds[i]);
    return bytes;
}

/*
 * serve(filter: bytes) -> bytes, see agent(). Tells the launcher that the host is ready and forks as it is
 * told. Returns in forks only, each with its agent's socket at 3. The fork's parent must be the launcher and the fork be made
 * by the C library: so it is made by a process between, whose death leaves it to the launcher, pid 1 here. Of the host's stack
 * the process between has the part above this call only; the fork, with a copy of all, goes on from there.
 */
static object *serve(object *self, object *args)
{
    (void)self;
    object *bytes = PyTuple_GetItem(args, 0);
    struct sock_fprog filter = { .filter = (struct sock_filter *)(void *)PyBytes_AsString(bytes) };
    filter.len = (unsigned short)((size_t)PyBytes_Size(bytes) / sizeof *filter.filter);
    say(WARM_SOCK, NULL);
    for (;;) {
        struct warm_order o;
        int fds[FDS_MAX], got, status = 0;
        if (take(WARM_SOCK, &o, sizeof o, sizeof o, fds, &got) < 0 || got != 3)
            _exit(0);
        PyOS_BeforeFork();
        pid_t between = vfork();            /* no copy for one who is there only to be a parent and to have a namespace */
        if (between == 0) {
            pid_t pid = setns(fds[0], CLONE_NEWPID) < 0 ? -1 : fork();
            if (pid != 0)
                _exit(pid < 0 ? errno : 0);
            PyOS_AfterFork_Child();
            return agent(&o, fds[1], fds[2], &filter);
        }
        PyOS_AfterFork_Parent();
        while (between > 0 && waitpid(between, &status, 0) < 0 && errno == EINTR)
            ;
        for (int i = 0; i < 3; i++)
            close(fds[i]);
        errno = WEXITSTATUS(status);
        say(WARM_SOCK, between < 0 || status != 0 ? strerror(errno) : NULL);
    }
}

/* ---- what /proc tells of the command line ---- */

/*
 * show(arguments: bytes, environment: bytes): let /proc/self/cmdline and environ be these. The kernel takes new places for
 * them from anyone, but only together with all the other marks of the address space, which /proc/self/stat gives.
 */
static object *show(object *self, object *args)
{
    (void)self;
    char text[2048], *at;
    unsigned long long field[64] = { 0 };
    int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC), n = 3;
    ssize_t len = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    close(fd);
    if (len <= 0)
        return PyLong_FromLong(0);
    text[len] = '\0';
    at = strrchr(text, ')');
    for (at = at == NULL ? text + len : at + 4; *at != '\0' && n < 63; at++) {     /* "pid (name) state ppid ..." */
        if (*at == ' ' || *at == '\n')
            continue;
        for (n++; *at != '\0' && *at != ' ' && *at != '\n'; at++)
            field[n] = field[n] * 10 + ((unsigned long long)*at & 15);
        at--;
    }
    const char *arguments = PyBytes_AsString(PyTuple_GetItem(args, 0)), *environment = PyBytes_AsString(PyTuple_GetItem(args, 1));
    size_t size = (size_t)PyBytes_Size(PyTuple_GetItem(args, 0)), more = (size_t)PyBytes_Size(PyTuple_GetItem(args, 1));
    char *place = mmap(NULL, size + more + 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (place == MAP_FAILED)
        return PyErr_SetFromErrno(PyExc_OSError);
    memcpy(place, arguments, size);
    memcpy(place + size, environment, more);
    struct prctl_mm_map map = {
        .start_code = field[26], .end_code = field[27], .start_data = field[45], .end_data = field[46],
        .start_brk = field[47], .brk = (uint64_t)syscall(SYS_brk, 0), .start_stack = field[28],
        .arg_start = (uintptr_t)place, .arg_end = (uintptr_t)place + size,
        .env_start = (uintptr_t)place + size, .env_end = (uintptr_t)place + size + more, .exe_fd = ~0u,
    };
    return PyLong_FromLong(prctl(PR_SET_MM, PR_SET_MM_MAP, &map, sizeof map, 0) == 0);
}

static struct method methods[] = {
    { "serve", serve, METHOD_TUPLE, NULL }, { "show", show, METHOD_TUPLE, NULL }, { NULL, NULL, 0, NULL },
};
static struct module_def def = { .base = { .base = { .refs = 1 } }, .name = "fork", .size = -1, .methods = methods };

object *PyInit_fork(void) { return PyModule_Create2(&def, ABI); }
