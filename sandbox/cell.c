/* cell.c - see cell.h. After rights_drop() nothing here has more power than the foreign code to come. */
#include "sandbox/cell.h"
#include "base/frame.h"
#include "base/own.h"
#include "sandbox/landlock.h"
#include "sandbox/rights.h"
#include "sandbox/mount.h"
#include "sandbox/warm.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/close_range.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>

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
#define COMMAND_USUAL 16384             /* bytes of heap made ready for one */

static uid_t inside_uid(const struct kit *kit) { return kit->profile == SANDBOX_COMPATIBLE ? COMPATIBLE_UID : 0; }

/* Close all but 0-2 and `keep`, which becomes 3. */
static int keep_only(int keep)
{
    if (keep != 3 && (dup2(keep, 3) < 0 || fcntl(3, F_SETFD, FD_CLOEXEC) < 0))
        return -1;
    return close_range(4, ~0u, 0);
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

_Noreturn static void reap(const struct kit *kit, int rc, struct err *why, int sock)
{
    struct err err = *why;
    struct sigaction ignore = { .sa_handler = SIG_IGN, .sa_flags = SA_NOCLDWAIT };
    sigaction(SIGCHLD, &ignore, NULL);          /* orphans are reaped by the kernel */
    prctl(PR_SET_NAME, "init");
    if (rc == 0)
        rc = rights_drop(kit, inside_uid(kit), NULL, 0, &err);     /* it only sleeps: no filter needed */
    if (rc == 0 && (chdir("/") < 0 || keep_only(sock) < 0))
        rc = err_sys(&err, ERR_SYS, "init: descriptors");
    answer(3, rc, &err);
    if (rc < 0 || close_range(0, ~0u, 0) < 0)
        _exit(1);
    for (;;)
        pause();
}

void cell_reaper(const struct kit *kit, const struct world *w, int sock)
{
    struct err err = { 0 };
    int rc = mount_proc(w, &err);
    reap(kit, rc, &err, sock);
}

void cell_reaper_within(const struct kit *kit, int sock)
{
    struct err err = { 0 };
    struct kit inside = *kit;
    inside.userns = -1;
    reap(&inside, 0, &err, sock);
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

/* NULL-terminated, owned; the strings are the fixed ones and those from `text` to `end`, the last of which ends there. */
static const char **environment(enum sandbox_profile profile, const char *text, const char *end)
{
    size_t n = 0;
    const char **env = malloc((FIXED_ENV_COUNT + 2 + strings_in(text, end) + 1) * sizeof *env);
    if (env == NULL)
        return NULL;
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
    return env;
}

/* What execve() wants, taken from a command (grant.h). The vectors are owned, their strings are the command's. */
struct call { const char *path, **argv, **env; };

static int call_read(struct call *out, enum sandbox_profile profile, const char *bytes, size_t size, struct err *err)
{
    uint32_t argc = 0;
    const char *path = bytes + sizeof argc, *end = bytes + size, *next = path;
    if (size > sizeof argc)
        memcpy(&argc, bytes, sizeof argc);
    if (argc == 0 || end[-1] != '\0' || argc >= strings_in(path, end))
        return err_set(err, ERR_BAD_INPUT, "command of %zu bytes: %u arguments promised", size, argc);
    next += strlen(path) + 1;
    *out = (struct call){ path, calloc((size_t)argc + 1, sizeof *out->argv), NULL };
    for (uint32_t i = 0; out->argv != NULL && i < argc; i++, next += strlen(next) + 1)
        out->argv[i] = next;
    if (out->argv != NULL)
        out->env = environment(profile, next, end);
    return out->env != NULL ? 0 : err_set(err, ERR_LIMIT, "command: out of memory");
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

/* Whatever of becoming the command needs no command. Returns 0, or the errno with which /dev/null cannot be had. */
static int prepare(enum sandbox_profile profile)
{
    usual_limits();
    prctl(PR_SET_DUMPABLE, 1);          /* no foreign code lives yet; opens our own /proc files to us */
    own_fd adj = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (adj >= 0 && write(adj, "1000", 4) < 0)
        errno = 0;                      /* only makes the choice of the kernel's victim less sharp */
    /* A process just forked pays at its first touch of code, heap and directories: so rehearse now. */
    struct err err;
    struct call c = { 0 };
    static const char rehearsal[] = "\1\0\0\0/bin/true\0true\0A=b";
    if (call_read(&c, profile, rehearsal, sizeof rehearsal, &err) == 0 && access(c.path, X_OK) < 0)
        errno = 0;
    free(c.argv);
    free(c.env);
    own_mem char *room = malloc(COMMAND_USUAL);
    if (room != NULL)
        memset(room, 1, COMMAND_USUAL);
    limit(RLIMIT_FSIZE, RLIM_INFINITY);
    if (chdir(SANDBOX_WORK_DIR) == 0 && chdir("/") < 0)
        _exit(1);
    own_fd null = open("/dev/null", O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (null < 0 || fcntl(null, F_SETFL, 0) < 0 || (null > 0 ? dup2(null, 0) : fcntl(null, F_SETFD, 0)) < 0)
        return errno;
    if (null == 0)
        (void)give_fd(&null);
    return 0;
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

/* Become the command. Returns only on failure. */
static int run(const struct kit *kit, const struct cell_order *o, const char *bytes, size_t size, const int *fds,
               int null_errno, struct err *err)
{
    struct call c;
    int rc = call_read(&c, kit->profile, bytes, size, err);
    if (rc < 0)
        return rc;
    given_limits(o);
    few_cpus(kit->slot, o->cpus);
    const bool given = o->fds & CELL_IN;
    errno = given && dup2(*fds++, 0) >= 0 ? 0 : given ? errno : null_errno;
    if (errno != 0)
        unable(given ? "standard input" : "/dev/null", 126);
    if ((o->fds & CELL_ERR) && dup2(*fds, 2) < 0)
        unable("standard error", 126);
    if (chdir(SANDBOX_WORK_DIR) < 0)
        unable(SANDBOX_WORK_DIR, 126);
    umask(022);
    call_exec(&c);
    unable(c.path, errno == ENOENT ? 127 : 126);
}

static void default_signals(void)
{
    sigset_t none;
    for (int sig = 1; sig < 65; sig++)
        signal(sig, SIG_DFL);
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
    const char **more = realloc(c->env, (n + 2) * sizeof *more);
    if (more == NULL)
        return err_set(err, ERR_LIMIT, "warm host: out of memory");
    c->env = more;
    more[n] = "PYTHONPATH=" WARM_DIR;
    more[n + 1] = NULL;
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
    int rc = bytes == NULL ? err.code : call_read(&c, SANDBOX_STRICT, bytes, size, &err);
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

/* Has nobody but reaper and agents ever lived in this pid namespace? An agent's number is asked for and not counted. */
static bool among_ourselves(void)
{
    char last[16];
    own_fd fd = open("/proc/sys/kernel/ns_last_pid", O_RDONLY | O_CLOEXEC);
    return fd >= 0 && read(fd, last, sizeof last) == 2 && memcmp(last, "1\n", 2) == 0;
}

void cell_agent(const struct kit *kit, const struct world *w, int sock, int out, bool again)
{
    struct err err = { 0 };
    if (again && !among_ourselves())
        _exit(1);
    prctl(PR_SET_NAME, "agent");
    default_signals();
    int rc = setsid() < 0 ? err_sys(&err, ERR_SYS, "agent: session")
           : rights_drop(kit, inside_uid(kit), &kit->filters[kit->profile], 0, &err);
    if (rc == 0)
        rc = landlock_confine(kit->landlock, kit->profile, w->queues, &err);
    if (rc == 0 && (chdir("/") < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0 || keep_only(sock) < 0))
        rc = err_sys(&err, ERR_SYS, "agent: descriptors");
    sock = 3;
    int null_errno = rc == 0 ? prepare(kit->profile) : 0;
    answer(sock, rc, &err);
    while (rc == 0) {
        static struct { struct cell_order o; char text[GRANT_INLINE_MAX]; } packet;
        int fds[FRAME_FDS_MAX], nfds;
        struct err bad;
        int n = frame_recv(sock, &packet, sizeof packet, fds, &nfds, &bad), done;
        if (n < (int)sizeof packet.o)
            _exit(1);
        size_t text_len = (size_t)n - sizeof packet.o;
        if (packet.o.kind == CELL_EDITS && nfds == 1) {
            own_fd tree = open(SANDBOX_WORK_DIR, O_PATH | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
            done = tree < 0 ? err_sys(&err, ERR_SYS, "work directory") : edits_apply(tree, fds[0], &err);
        } else if (packet.o.kind == CELL_COPY && nfds == 1) {
            own_fd tree = open(SANDBOX_WORK_DIR, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
            done = tree < 0 ? err_sys(&err, ERR_SYS, "work directory") : copy_tree(fds[0], tree, 0, &err);
        } else if (packet.o.kind == CELL_COLLECT && nfds == 2) {
            done = collect_report(fds[0], fds[1], &err);
        } else if (packet.o.kind == CELL_READ && nfds == 2) {
            done = files_read(fds[0], fds[1], &err);
        } else if (packet.o.kind == CELL_LIST && nfds == 2) {
            done = files_list(fds[0], fds[1], &err);
        } else if (packet.o.kind == CELL_WRITE && nfds == 2) {
            done = files_write(fds[0], fds[1], (mode_t)packet.o.mode, &err);
        } else if (packet.o.kind == CELL_DIFF && (nfds == 1 || nfds == 2)) {
            done = diff_tree(nfds == 2 ? fds[1] : -1, fds[0], &err);
        } else if (packet.o.kind == CELL_RUN && nfds == 0 && packet.o.fds == 0) {
            done = run(kit, &packet.o, packet.text, text_len, fds, null_errno, &err);
        } else if (packet.o.kind == CELL_RUN && nfds == 1 + __builtin_popcount(packet.o.fds)) {
            own_mem char *text = command_of(fds[0], &text_len, &err);
            done = text == NULL ? err.code : run(kit, &packet.o, text, text_len, fds + 1, null_errno, &err);
        } else {
            _exit(1);
        }
        for (int i = 0; i < nfds; i++)
            close(fds[i]);
        answer(sock, done, &err);
    }
    _exit(1);
}
