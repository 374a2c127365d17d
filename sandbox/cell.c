/* cell.c - see cell.h. After rights_drop() nothing here has more power than the foreign code to come. */
#include "sandbox/cell.h"
#include "base/frame.h"
#include "base/own.h"
#include "sandbox/landlock.h"
#include "sandbox/rights.h"
#include "sandbox/warm.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/rseq.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

extern char **environ;

static const char *const fixed_env[] = {
    "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/home/sandbox",
    "SHELL=/bin/sh", "LANG=C.UTF-8", "TZ=UTC", "TERM=dumb", "TMPDIR=/tmp",
    "PWD=" SANDBOX_WORK_DIR,        /* as a shell would set it, where one runs the command */
    "PYTHONDONTWRITEBYTECODE=1", "PYTHONHASHSEED=0", "PYTHONNOUSERSITE=1", "GIT_TERMINAL_PROMPT=0",
};
static const char *const user_env[SANDBOX_PROFILE_COUNT][2] = {
    { "USER=root", "LOGNAME=root" }, { "USER=sandbox", "LOGNAME=sandbox" },
};
#define FIXED_ENV_COUNT (sizeof fixed_env / sizeof fixed_env[0])
#define BIRTH_STACK 32768               /* bytes for the way from fork to exec */
#define VECTORS 1024                    /* bytes of its arguments and environment, as a rule */
#define PAGE ((uintptr_t)4096)
#define STACK_DEPTH ((uintptr_t)65536)  /* deeper than ours goes; the kernel maps twice as much at the start */

/* What a zygote keeps of its beginning. */
struct zygote {
    uint32_t slot;
    enum sandbox_profile profile;
    int proc, sock, adj;        /* adj: /proc/self/oom_score_adj */
    int null_errno;             /* why the coming command cannot have /dev/null; 0: it has */
};

static uid_t inside_uid(const struct kit *kit) { return kit->profile == SANDBOX_COMPATIBLE ? COMPATIBLE_UID : 0; }

enum { FD_SOCK = 3 };                   /* the zygote's; 0 to 2 are the coming command's, or copies of it */

/* Close all but `sock`, and put it in its places. */
static void keep_only(int sock)
{
    for (int fd = 0; fd <= FD_SOCK; fd++)
        if (fd != sock && dup3(sock, fd, O_CLOEXEC) < 0)
            _exit(1);
    if (close_range(FD_SOCK + 1, ~0u, 0) < 0)
        _exit(1);
}

static void answer(int sock, int rc, const struct err *err)
{
    struct cell_answer a = { .rc = rc };
    struct err ignored;
    if (rc < 0) {
        a.sys = err->sys;
        memcpy(a.msg, err->msg, sizeof a.msg);
    }
    if (frame_send(sock, &a, sizeof a, NULL, 0, &ignored) < 0)
        _exit(1);                       /* the launcher is gone: so is the sandbox */
}

static void limit(int what, uint64_t value)
{
    if (value == 0)
        return;
    /* CPU: SIGXCPU first, the kill a second later, so that the end tells its cause. */
    struct rlimit r = { value, what == RLIMIT_CPU ? value + 1 : value }, now;
    if (getrlimit(what, &now) == 0 && now.rlim_max < r.rlim_max)
        r.rlim_cur = r.rlim_max = now.rlim_max;
    setrlimit(what, &r);
}

static void usual_limits(void)
{
    /* No core file is as small as a byte, and a core_pattern that is a pipe is left alone at 1 and only at 1. */
    struct rlimit no_core = { 1, 1 };
    setrlimit(RLIMIT_CORE, &no_core);
    limit(RLIMIT_NOFILE, 4096);
    limit(RLIMIT_MEMLOCK, 64 << 20);
    limit(RLIMIT_MSGQUEUE, 819200);
    limit(RLIMIT_SIGPENDING, 4096);
}

static void given_limits(const struct cell_order *o)
{
    limit(RLIMIT_FSIZE, o->file_bytes);
    limit(RLIMIT_AS, o->memory_bytes);
    limit(RLIMIT_CPU, o->cpu_s);
    limit(RLIMIT_NPROC, o->pids);
}

/* On so many of the processors that the jail may run on; which ones, depends on the slot, so that all are used. */
static void few_cpus(uint32_t slot, uint32_t count)
{
    cpu_set_t all, some;
    CPU_ZERO(&some);
    if (count == 0 || sched_getaffinity(0, sizeof all, &all) < 0)
        return;
    uint32_t total = (uint32_t)CPU_COUNT(&all), first = slot * count, at = 0;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &all)) {
            if ((at + total - first % total) % total < count)
                CPU_SET(cpu, &some);
            at++;
        }
    sched_setaffinity(0, sizeof some, &some);   /* the share is enforced by the cgroup: this is what programs count */
}

static bool same_name(const char *a, const char *b)
{
    size_t n = strcspn(a, "=");
    return strncmp(a, b, n) == 0 && b[n] == '=';
}

/* The sandbox's own files are in the way, as an earlier command or the image left them: that is how this command ends,
 * as a shell would tell it, and no failure of ours. */
_Noreturn static void unable(const char *what, int status)
{
    dprintf(1, "sandbox: %s: %s\n", what, strerror(errno));
    _exit(status);
}

static size_t strings_in(const char *text, const char *end)
{
    size_t n = 0;
    for (const char *s = text; s < end; s += strlen(s) + 1)
        n++;
    return n;
}

/* Fills env[], NULL-terminated; the strings are the fixed ones and those from `text` to `end`, the last of which ends there. */
static void environment(const char **env, enum sandbox_profile profile, const char *text, const char *end)
{
    size_t n = 0;
    for (; n < FIXED_ENV_COUNT; n++)
        env[n] = fixed_env[n];
    env[n++] = user_env[profile][0];
    env[n++] = user_env[profile][1];
    for (const char *s = text; s < end; s += strlen(s) + 1) {
        size_t at = 0;
        while (at < n && !same_name(env[at], s))
            at++;
        env[at] = s;                    /* a given name replaces a fixed one, the last one wins */
        n += at == n;
    }
    env[n] = NULL;
}

/* What execve() wants, taken from a command (grant.h), whose strings they are. There is room for one more in env. */
struct call { const char *path, **argv, **env; void *owned; };

/* The vectors lie in `room` if they fit: then the heap is not touched, which costs an idle zygote four pages. */
static int call_read(struct call *out, enum sandbox_profile profile, const char *bytes, size_t size, void *room, size_t room_size,
                     struct err *err)
{
    uint32_t argc = 0;
    const char *path = bytes + sizeof argc, *end = bytes + size, *next = path;
    if (size > sizeof argc)
        memcpy(&argc, bytes, sizeof argc);
    const size_t strings = argc == 0 || end[-1] != '\0' ? 0 : strings_in(path, end);
    const size_t vectors_size = (strings + FIXED_ENV_COUNT + 4) * sizeof *out->argv;
    if (argc >= strings)
        return err_set(err, ERR_BAD_INPUT, "command of %zu bytes: %u arguments promised", size, argc);
    void *owned = vectors_size <= room_size ? NULL : malloc(vectors_size);
    const char **argv = owned != NULL ? owned : room;
    if (owned == NULL && vectors_size > room_size)
        return err_set(err, ERR_LIMIT, "command: out of memory");
    *out = (struct call){ path, argv, argv + argc + 1, owned };
    next += strlen(path) + 1;
    for (uint32_t i = 0; i < argc; i++, next += strlen(next) + 1)
        argv[i] = next;
    argv[argc] = NULL;
    environment(out->env, profile, next, end);
    return 0;
}

/* The command in memfd `fd`, owned, with its size. */
static char *command_of(int fd, size_t *out_size, struct err *err)
{
    struct stat st;
    own_mem char *bytes = fstat(fd, &st) < 0 ? NULL : malloc((size_t)st.st_size + 1);
    if (bytes == NULL || pread(fd, bytes, (size_t)st.st_size, 0) != st.st_size) {
        err_sys(err, ERR_SYS, "command");
        return NULL;
    }
    char *whole = bytes;
    bytes = NULL;
    *out_size = (size_t)st.st_size;
    return whole;
}

/* Output and input of the coming command become ours, to be its from birth. Returns 0, or the errno with which /dev/null
 * cannot be had. */
static int arm(int out)
{
    if (dup2(out, 1) < 0 || dup2(out, 2) < 0)
        _exit(1);
    own_fd null = open("/dev/null", O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    return null < 0 || fcntl(null, F_SETFL, 0) < 0 || dup2(null, 0) < 0 ? errno : 0;
}

static void disarm(void)
{
    for (int fd = 0; fd < FD_SOCK; fd++)
        if (dup3(FD_SOCK, fd, O_CLOEXEC) < 0)
            _exit(1);
}

/* Execute it; a name is looked for as a shell does. Returns on failure, errno set. */
static void call_exec(const struct call *c)
{
    const char *dirs = strchr(c->path, '/') != NULL ? "" : NULL;
    for (const char **e = c->env; dirs == NULL && *e != NULL; e++)
        if (strncmp(*e, "PATH=", 5) == 0)
            dirs = *e + 5;
    int why = ENOENT;
    for (const char *d = dirs != NULL ? dirs : ""; ; d++) {
        size_t n = strcspn(d, ":");
        char found[4096];
        if (snprintf(found, sizeof found, "%.*s%s%s", (int)n, d, n > 0 ? "/" : "", c->path) < (int)sizeof found)
            execve(found, (char *const *)(uintptr_t)c->argv, (char *const *)(uintptr_t)c->env);
        if (errno != ENOENT && errno != ENOTDIR)
            why = errno;
        d += n;
        if (*d == '\0')
            break;
    }
    errno = why;
}

/* A command on its way to be born. */
struct birth {
    const struct zygote *zygote;
    const struct cell_order *order;
    struct call call;
    const int *fds;             /* its streams, as order->fds tells */
    int rc;
    struct err err;             /* rc < 0: what is wrong with the command */
};

/* An answer with our number, which the kernel vouches for and translates for whoever asks for it. */
static void tell_birth(void)
{
    union { struct cmsghdr head; char space[CMSG_SPACE(sizeof(struct ucred))]; } c = { 0 };
    struct cell_answer a = { 0 };
    struct iovec iov = { .iov_base = &a, .iov_len = sizeof a };
    struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = c.space, .msg_controllen = sizeof c.space };
    struct cmsghdr *h = CMSG_FIRSTHDR(&m);
    const struct ucred us = { getpid(), getuid(), getgid() };
    h->cmsg_level = SOL_SOCKET;
    h->cmsg_type = SCM_CREDENTIALS;
    h->cmsg_len = CMSG_LEN(sizeof us);
    memcpy(CMSG_DATA(h), &us, sizeof us);
    if (sendmsg(FD_SOCK, &m, MSG_NOSIGNAL) != (ssize_t)sizeof a)
        _exit(1);
}

/* The child that becomes the command. The zygote's memory is ours until then, and it waits. */
static int become(void *arg)
{
    const struct birth *b = arg;
    const struct cell_order *o = b->order;
    const int *fds = b->fds;
    tell_birth();
    if (b->rc < 0) {
        answer(FD_SOCK, b->rc, &b->err);
        _exit(1);
    }
    setsid();
    given_limits(o);
    few_cpus(b->zygote->slot, o->cpus);
    const bool given = o->fds & CELL_IN;
    errno = given && dup2(*fds++, 0) >= 0 ? 0 : given ? errno : b->zygote->null_errno;
    if (errno != 0)
        unable(given ? "standard input" : "/dev/null", 126);
    if ((o->fds & CELL_ERR) && dup2(*fds, 2) < 0)
        unable("standard error", 126);
    if (chdir(SANDBOX_WORK_DIR) < 0)
        unable(SANDBOX_WORK_DIR, 126);
    umask(022);
    call_exec(&b->call);
    unable(b->call.path, errno == ENOENT ? 127 : 126);
}

/* Begin the command; 0 to 2 are no more ours after that. `bytes` NULL: it cannot be read, for the reason in *why. */
static void run(const struct zygote *z, const struct cell_order *o, const char *bytes, size_t size, const int *fds,
                const struct err *why)
{
    char *const stack = (char *)(((uintptr_t)z | (PAGE - 1)) + 1);      /* the room that cell_restart() left us */
    struct birth b = { .zygote = z, .order = o, .fds = fds, .err = *why };
    b.rc = bytes == NULL ? why->code : call_read(&b.call, z->profile, bytes, size, stack + BIRTH_STACK, VECTORS, &b.err);
    /* Not to be born, for want of memory or because the reaper is dead already, is the end of the crew. */
    if (clone(become, stack + BIRTH_STACK, CLONE_VM | CLONE_VFORK | CLONE_PARENT | SIGCHLD, &b) < 0) {
        err_sys(&b.err, ERR_SYS, "command: fork");
        answer(FD_SOCK, b.err.code, &b.err);
        _exit(1);
    }
    cell_stack_forget(stack, BIRTH_STACK);
    disarm();
    free(b.call.owned);
}

pid_t cell_fork(void)
{
    struct clone_args args = { .flags = CLONE_CLEAR_SIGHAND, .exit_signal = SIGCHLD };
    return (pid_t)syscall(SYS_clone3, &args, sizeof args);
}

__attribute__((noinline)) void cell_stack_trim(void)
{
    const uintptr_t end = ((uintptr_t)__builtin_frame_address(0) - 512) & -PAGE;    /* what we use ourselves stays */
    madvise((void *)(end - STACK_DEPTH), STACK_DEPTH, MADV_DONTNEED);
}

/* The job's first frame, which ends at a page's border. */
static void restarted(void (*job)(void *), void *arg, uintptr_t border)
{
    /* As far as the environment, whose pages all processes share, because none writes to them. */
    madvise((void *)border, ((uintptr_t)environ & -PAGE) - border, MADV_DONTNEED);
    cell_stack_trim();
    job(arg);
}

void cell_restart(void (*job)(void *), const void *arg, size_t size, size_t room)
{
    const uintptr_t border = ((uintptr_t)__builtin_frame_address(0) - room) / PAGE * PAGE - PAGE, top = (border - size) & -16;
    void *copy = memcpy((void *)top, arg, size);
    __asm__ volatile("mov %[top], %%rsp\n\t"
                     "call *%[go]"
                     : : [top] "r"(top), [go] "r"(restarted), "D"(job), "S"(copy), "d"(border) : "memory");
    __builtin_unreachable();
}

bool cell_rseq_end(void)
{
    struct rseq *r = (struct rseq *)((char *)__builtin_thread_pointer() + __rseq_offset);
    return __rseq_size == 0 || (int)r->cpu_id < 0 || syscall(SYS_rseq, r, sizeof *r, RSEQ_FLAG_UNREGISTER, RSEQ_SIG) == 0;
}

/* What the jail changed of the signals, and cell_fork() leaves. */
static void default_signals(void)
{
    sigset_t none;
    signal(SIGPIPE, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

/* What warm.h promises a host: its descriptors and its environment. They are put in place by way of high numbers. */
static int host_outfit(struct call *c, const struct kit *kit, int declared, int *sock, int out, struct err *err)
{
    const struct sock_fprog *agents = &kit->filters[SANDBOX_STRICT];
    char fixed[FIXED_ENV_COUNT * 128], *at = fixed;
    for (size_t i = 0; i < FIXED_ENV_COUNT; i++)
        at = stpcpy(at, fixed_env[i]) + 1;
    own_fd env = frame_memfd("env", fixed, (size_t)(at - fixed), err);
    own_fd filter = env < 0 ? -1 : frame_memfd("filter", agents->filter, agents->len * sizeof *agents->filter, err);
    if (filter < 0)
        return err->code;
    const int from[] = { [WARM_SOCK] = *sock, [WARM_COMMAND] = declared, [WARM_ENV] = env, [WARM_FILTER] = filter };
    for (int fd = WARM_SOCK; fd <= WARM_FILTER; fd++)
        if (dup2(from[fd], 64 + fd) < 0)
            return err_sys(err, ERR_SYS, "warm host: descriptors");
    *sock = 64 + WARM_SOCK;
    own_fd null = open("/dev/null", O_RDONLY);
    if (dup2(out, 1) < 0 || dup2(out, 2) < 0 || null < 0 || (null > 0 && dup2(null, 0) < 0))
        return err_sys(err, ERR_SYS, "warm host: /dev/null");
    for (int fd = WARM_SOCK; fd <= WARM_FILTER; fd++)
        if (dup2(64 + fd, fd) < 0)
            return err_sys(err, ERR_SYS, "warm host: descriptors");
    *sock = WARM_SOCK;
    env = filter = null = -1;                   /* closed by what follows */
    close_range(WARM_FILTER + 1, ~0u, 0);
    size_t n = 0;
    for (; c->env[n] != NULL; n++)
        if (same_name(c->env[n], "PYTHONPATH="))
            return err_set(err, ERR_BAD_INPUT, "PYTHONPATH is set");
    c->env[n] = "PYTHONPATH=" WARM_DIR;
    c->env[n + 1] = NULL;
    return 0;
}

void cell_warm_host(const struct kit *kit, int declared, int sock, int out)
{
    static const uint64_t keep = UINT64_C(1) << CAP_SYS_ADMIN | UINT64_C(1) << CAP_NET_ADMIN;
    struct err err = { 0 };
    struct call c;
    size_t size = 0;
    default_signals();
    usual_limits();
    umask(022);
    const char *bytes = command_of(declared, &size, &err);
    int rc = bytes == NULL ? err.code : call_read(&c, SANDBOX_STRICT, bytes, size, NULL, 0, &err);
    if (rc == 0 && (setsid() < 0 || chdir("/") < 0))
        rc = err_sys(&err, ERR_SYS, "warm host: session");
    if (rc == 0)
        rc = rights_drop(kit, 0, &kit->host_filter, keep, &err);
    if (rc == 0)
        rc = landlock_confine(kit->landlock, SANDBOX_STRICT, -1, &err);     /* its forks stay within */
    if (rc == 0 && (rc = host_outfit(&c, kit, declared, &sock, out, &err)) == 0) {
        call_exec(&c);
        rc = err_sys(&err, ERR_SYS, "%.200s", c.path);
    }
    answer(sock, rc, &err);
    _exit(1);
}

/* What an agent does, with the rights of the sandbox and no more. */
static int work(const struct cell_order *o, const int *fds, int nfds, struct err *err)
{
    if (o->kind == CELL_EDITS && nfds == 1) {
        own_fd tree = open(SANDBOX_WORK_DIR, O_PATH | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        return tree < 0 ? err_sys(err, ERR_SYS, "work directory") : edits_apply(tree, fds[0], err);
    }
    if (o->kind == CELL_COPY && nfds == 1) {
        own_fd tree = open(SANDBOX_WORK_DIR, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        return tree < 0 ? err_sys(err, ERR_SYS, "work directory") : copy_tree(fds[0], tree, 0, err);
    }
    if (o->kind == CELL_COLLECT && nfds == 2)
        return collect_report(fds[0], fds[1], err);
    if (o->kind == CELL_READ && nfds == 2)
        return files_read(fds[0], fds[1], err);
    if (o->kind == CELL_LIST && nfds == 2)
        return files_list(fds[0], fds[1], err);
    if (o->kind == CELL_WRITE && nfds == 2)
        return files_write(fds[0], fds[1], (mode_t)o->mode, err);
    if (o->kind == CELL_DIFF && (nfds == 1 || nfds == 2))
        return diff_tree(nfds == 2 ? fds[1] : -1, fds[0], err);
    return err_set(err, ERR_INTERNAL, "agent: order %u with %d descriptors", o->kind, nfds);
}

/* Have an agent do it: what foreign files can do to one ends with it. */
static int have_done(const struct cell_order *o, const int *fds, int nfds, struct err *err)
{
    struct err *told = mmap(NULL, sizeof *told, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (told == MAP_FAILED)
        return err_sys(err, ERR_SYS, "agent: answer");
    int rc = err_set(told, ERR_LOST, "the sandbox's own process died"), status;
    pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
    if (pid == 0) {
        struct err mine = { 0 };
        prctl(PR_SET_NAME, "agent");
        close_range(0, FD_SOCK, 0);             /* whatever foreign files make of it, it does not speak for the zygote */
        mine.code = work(o, fds, nfds, &mine);
        *told = mine;
        _exit(0);
    }
    if (pid < 0)
        rc = err_sys(err, ERR_SYS, "agent: fork");
    else {
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
            ;
        *err = *told;
        rc = err->code;
    }
    munmap(told, sizeof *told);
    return rc;
}

/*
 * Pid 1 of the run. It is spoken to by nobody and only sleeps, so it keeps no memory but the page of code that it sleeps in,
 * which is the program's: no stack (it has no signal handlers), no heap, nothing that a debugger could call into or unwind.
 */
_Noreturn static void reaper(void)
{
    struct sigaction ignore = { .sa_handler = SIG_IGN, .sa_flags = SA_NOCLDWAIT };
    sigaction(SIGCHLD, &ignore, NULL);          /* orphans are reaped by the kernel */
    prctl(PR_SET_NAME, "init");
    close_range(0, ~0u, 0);
    while (!cell_rseq_end())                    /* or the kernel would kill it for what can no longer be written */
        pause();
    __asm__ volatile(".balign 128\n"            /* so that all of it lies in one page */
                     "0:\tlea 0b(%%rip), %%rbx\n\t"
                     "and %[page], %%rbx\n\t"
                     "xor %%edi, %%edi\n\t"
                     "mov %%rbx, %%rsi\n\t"
                     "mov %[munmap], %%eax\n\t"
                     "syscall\n\t"               /* all below it */
                     "lea %c[size](%%rbx), %%rdi\n\t"
                     "mov %[top], %%rsi\n\t"
                     "sub %%rdi, %%rsi\n\t"
                     "mov %[munmap], %%eax\n\t"
                     "syscall\n"                 /* and above */
                     "1:\tmov %[pause], %%eax\n\t"
                     "syscall\n\t"
                     "jmp 1b"
                     : : [page] "i"(-PAGE), [size] "i"(PAGE), [top] "r"((1ul << 47) - PAGE), [munmap] "i"(SYS_munmap),
                         [pause] "i"(SYS_pause)
                     : "rax", "rbx", "rcx", "rdi", "rsi", "r11", "memory");
    __builtin_unreachable();
}

/* The pid namespace, which is the user namespace's, and all that its processes will have. */
static int settle(const struct kit *kit, int sock, struct err *err)
{
    struct kit inside = *kit;
    struct cell_order o;
    int fds[FRAME_FDS_MAX], nfds;
    inside.userns = -1;
    default_signals();
    if (setns(kit->userns, CLONE_NEWUSER) < 0 || unshare(CLONE_NEWPID) < 0)
        return err_sys(err, ERR_SYS, "pid namespace");
    int rc = rights_drop(&inside, inside_uid(kit), &kit->filters[kit->profile], 0, err);
    if (rc < 0)
        return rc;
    usual_limits();
    if (frame_recv(sock, &o, sizeof o, fds, &nfds, err) != (int)sizeof o || o.kind != CELL_WORLD)
        _exit(1);
    own_fd queues = nfds == 1 ? fds[0] : -1;
    return chdir("/") < 0 ? err_sys(err, ERR_SYS, "root") : landlock_confine(kit->landlock, kit->profile, queues, err);
}

/* Tells the launcher when both are ready. Whoever is not fenced in with the run could not even be signalled from there, as a
 * pid 1 is elsewhere: so the reaper comes last. */
static void reaper_make(const struct zygote *z)
{
    struct err err;
    struct cell_answer a = { .pid = (int32_t)syscall(SYS_clone, CLONE_PARENT | SIGCHLD, NULL, NULL, NULL, NULL) };
    if (a.pid == 0)
        reaper();
    if (z->adj >= 0 && write(z->adj, "1000", 4) < 0)
        errno = 0;                              /* only makes the choice of the kernel's victim less sharp */
    /* Whoever is no root may look at neither of us by /proc. */
    own_fd ns = a.pid < 0 ? -1 : openat(z->proc, "self/ns/pid_for_children", O_RDONLY | O_CLOEXEC);
    int rc = ns < 0 ? err_sys(&err, ERR_SYS, "reaper") : frame_send(z->sock, &a, sizeof a, &ns, 1, &err);
    if (rc < 0) {
        answer(z->sock, rc, &err);
        _exit(1);
    }
}

static void serve(void *zygote)
{
    static char text[GRANT_INLINE_MAX];         /* apart: no page of it is touched before a command comes */
    struct zygote *z = zygote;
    reaper_make(z);
    keep_only(z->sock);
    for (;;) {
        struct cell_order o;
        int fds[FRAME_FDS_MAX], nfds;
        struct err err;
        int n = frame_recv_apart(FD_SOCK, &o, sizeof o, text, sizeof text, fds, &nfds, &err);
        if (n < (int)sizeof o)
            _exit(1);
        if (o.kind == CELL_ARM && nfds == 1) {
            z->null_errno = arm(fds[0]);
        } else if (o.kind == CELL_RUN && nfds == 0 && o.fds == 0) {
            run(z, &o, text, (size_t)n - sizeof o, fds, &err);
        } else if (o.kind == CELL_RUN && nfds == 1 + __builtin_popcount(o.fds)) {
            size_t len = 0;
            own_mem char *given = command_of(fds[0], &len, &err);
            run(z, &o, given, len, fds + 1, &err);
        } else {
            int done = have_done(&o, fds, nfds, &err);
            answer(FD_SOCK, done, &err);
        }
        for (int i = 0; i < nfds; i++)
            close(fds[i]);
    }
}

void cell_zygote(const struct kit *kit, int sock)
{
    const struct zygote z = { .slot = kit->slot, .profile = kit->profile, .proc = kit->proc, .sock = sock,
                              .adj = openat(kit->proc, "self/oom_score_adj", O_WRONLY | O_CLOEXEC) };
    struct err err = { 0 };
    prctl(PR_SET_NAME, "zygote");
    if (settle(kit, sock, &err) < 0) {
        answer(sock, err.code, &err);
        _exit(1);
    }
    cell_restart(serve, &z, sizeof z, BIRTH_STACK + VECTORS);          /* before the reaper is made, as a copy of little */
}
