/* warm.c - see warm.h. What a host says is believed of nobody but itself: of its forks the kernel is asked. */
#include "sandbox/warm.h"
#include "base/frame.h"
#include "base/own.h"
#include "sandbox/cell.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define START_MS_MAX 10000              /* an interpreter with a large framework, on a busy machine */
#define FORK_MS_MAX 3000

/* The files, carried in this program. */
__asm__(".section .rodata\n"
        "warm_module: .incbin \"sandbox/warm/fork.so\"\nwarm_module_end:\n"
        "warm_script: .incbin \"sandbox/warm/sitecustomize.py\"\nwarm_script_end:\n"
        ".previous\n");
extern const char warm_module[], warm_module_end[], warm_script[], warm_script_end[];

int warm_files(int dir, struct err *err)
{
    const struct { const char *name, *from, *end; } files[] = {
        { "fork.so", warm_module, warm_module_end }, { "sitecustomize.py", warm_script, warm_script_end },
    };
    for (size_t i = 0; i < 2; i++) {
        size_t n = (size_t)(files[i].end - files[i].from);
        own_fd fd = openat(dir, files[i].name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0444);
        if (fd < 0 || write(fd, files[i].from, n) != (ssize_t)n)
            return err_sys(err, ERR_SYS, "warm/%s", files[i].name);
    }
    return 0;
}

void warm_died(struct warm *w)
{
    kill(-w->pid, SIGKILL);             /* its group: what it has left there is ours now, as their init */
    while (waitpid(-w->pid, NULL, 0) > 0 || errno == EINTR)
        ;
    w->pid = -1;
}

void warm_end(struct warm *w)
{
    if (w->pid == 0)
        return;
    if (w->pid > 0) {
        kill(w->pid, SIGKILL);          /* it is not reaped yet, so the number is its own */
        while (waitpid(w->pid, NULL, 0) < 0 && errno == EINTR)
            ;
        warm_died(w);
    }
    close(w->sock);
    close(w->output);
    free(w->declared);
    *w = (struct warm){ 0 };
}

static uint8_t *slurp(int fd, size_t *out_len)
{
    struct stat st;
    uint8_t *bytes = fstat(fd, &st) < 0 ? NULL : malloc((size_t)st.st_size + 1);
    if (bytes != NULL && pread(fd, bytes, (size_t)st.st_size, 0) != (ssize_t)st.st_size) {
        free(bytes);
        bytes = NULL;
    }
    *out_len = bytes != NULL ? (size_t)st.st_size : 0;
    return bytes;
}

int warm_start(struct warm *w, const struct kit *kit, int declared, uint32_t net, struct err *err)
{
    int pair[2], pipe[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_sys(err, ERR_SYS, "socket");
    own_fd ours = pair[0], theirs = pair[1];
    if (pipe2(pipe, O_CLOEXEC) < 0)
        return err_sys(err, ERR_SYS, "pipe");
    own_fd in = pipe[0], out = pipe[1];
    size_t len;
    uint8_t *bytes = slurp(declared, &len);
    if (bytes == NULL)
        return err_set(err, ERR_LIMIT, "warm host: its command");
    pid_t pid = cell_fork();
    if (pid == 0)
        cell_warm_host(kit, declared, theirs, out);
    if (pid < 0) {
        free(bytes);
        return err_sys(err, ERR_SYS, "fork");
    }
    *w = (struct warm){ .pid = pid, .sock = give_fd(&ours), .output = give_fd(&in), .net = net, .declared = bytes,
                        .declared_len = len };
    return 0;
}

bool warm_alive(const struct warm *w)
{
    siginfo_t end = { 0 };
    return w->pid > 0 && waitid(P_PID, (id_t)w->pid, &end, WEXITED | WNOHANG | WNOWAIT) == 0 && end.si_pid == 0;
}

bool warm_is(const struct warm *w, int declared)
{
    struct stat st;
    if (w->pid <= 0 || fstat(declared, &st) < 0 || (size_t)st.st_size != w->declared_len)
        return false;
    size_t len;
    own_mem uint8_t *bytes = slurp(declared, &len);
    return bytes != NULL && len == w->declared_len && memcmp(bytes, w->declared, len) == 0;
}

/* Its next answer. Its death is one too, whoever else may hold its end of the socket. */
static int await(struct warm *w, int ms, struct err *err)
{
    struct cell_answer a;
    own_fd life = w->pid > 0 ? pidfd_open(w->pid, 0) : -1;
    struct pollfd p[] = { { .fd = w->sock, .events = POLLIN }, { .fd = life, .events = POLLIN } };
    int fds[FRAME_FDS_MAX], nfds, n;
    do
        n = poll(p, 2, ms);
    while (n < 0 && errno == EINTR);
    if (n <= 0)
        return err_set(err, ERR_DEADLINE, "no answer in %d s", ms / 1000);
    if (p[0].revents == 0)
        return err_set(err, ERR_LOST, "it ended");
    n = frame_recv(w->sock, &a, sizeof a, fds, &nfds, err);
    for (int i = 0; i < nfds; i++)
        close(fds[i]);
    if (n != (int)sizeof a)
        return err_set(err, ERR_LOST, "it ended");
    return a.rc < 0 ? err_set(err, ERR_DENIED, "%.*s", (int)sizeof a.msg - 1, a.msg) : 0;
}

static bool line_is(const char *status, const char *name, const char *value)
{
    size_t n = strlen(name), v = strlen(value);
    for (const char *at = status; (at = strstr(at, name)) != NULL; at += n)
        if ((at == status || at[-1] == '\n') && at[n] == ':') {
            at += n + 1;
            at += strspn(at, "\t ");
            return strncmp(at, value, v) == 0 && at[v + strspn(at + v, "\t ")] == '\n';
        }
    return false;
}

/* The text of PID/status. */
static bool status_read(int proc, pid_t pid, char *out, size_t size)
{
    char name[32];
    snprintf(name, sizeof name, "%d/status", (int)pid);
    own_fd fd = openat(proc, name, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, out, size - 1);
    out[n > 0 ? n : 0] = '\0';
    return n > 0;
}

int warm_ready(struct warm *w, int procs, struct err *err)
{
    char text[4096];
    if (w->ready)
        return 0;
    struct pollfd printed = { .fd = w->output, .events = POLLIN };
    int rc = await(w, START_MS_MAX, err);
    if (rc == 0 && poll(&printed, 1, 0) > 0)
        rc = err_set(err, ERR_DENIED, "the interpreter prints at its start");
    if (rc == 0 && (!status_read(procs, w->pid, text, sizeof text) || !line_is(text, "Threads", "1")))
        rc = err_set(err, ERR_DENIED, "an import starts a thread");
    w->ready = rc == 0;
    if (rc < 0)
        warm_end(w);
    return rc;
}

int warm_fork(struct warm *w, int pidns, uint32_t namespaces, int sock, int out, struct err *err)
{
    struct warm_order o = { .namespaces = namespaces };
    int rc = frame_send(w->sock, &o, sizeof o, (int[]){ pidns, sock, out }, 3, err);
    if (rc == 0)
        rc = await(w, FORK_MS_MAX, err);
    if (rc < 0)
        warm_end(w);
    return rc;
}

int warm_verify(int proc, uid_t uid, struct err *err)
{
    static const char *const same[] = { "user", "mnt", "uts", "cgroup", "pid", "pid_for_children" };
    static const char none[] = "0000000000000000";
    char ids[64], text[4096];
    snprintf(ids, sizeof ids, "%u\t%u\t%u\t%u", uid, uid, uid, uid);
    const struct { const char *name, *value; } want[] = {
        { "Tgid", "2" }, { "NSpid", "2" }, { "PPid", "0" }, { "TracerPid", "0" }, { "Threads", "1" }, { "Uid", ids }, { "Gid", ids },
        { "Groups", "" }, { "CapInh", none }, { "CapPrm", none }, { "CapEff", none }, { "CapBnd", none }, { "CapAmb", none },
        { "NoNewPrivs", "1" }, { "Seccomp", "2" }, { "Seccomp_filters", "2" },
    };
    if (!status_read(proc, 2, text, sizeof text))
        return err_sys(err, ERR_DENIED, "no agent");
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++)
        if (!line_is(text, want[i].name, want[i].value))
            return err_set(err, ERR_DENIED, "agent: %s is not %s", want[i].name, want[i].value);
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++) {
        char path[32], of[2][64] = { { 0 } };
        for (int k = 0; k < 2; k++) {
            snprintf(path, sizeof path, "%d/ns/%s", k + 1, same[i]);
            if (readlinkat(proc, path, of[k], sizeof of[k] - 1) <= 0)
                return err_sys(err, ERR_DENIED, "namespace %s", path);
        }
        if (strcmp(of[0], of[1]) != 0)
            return err_set(err, ERR_DENIED, "agent: another %s namespace", same[i]);
    }
    int again = openat(proc, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = again < 0 ? NULL : fdopendir(again);
    int processes = 0;
    for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL; )
        processes += e->d_name[0] >= '0' && e->d_name[0] <= '9';
    if (d != NULL)
        closedir(d);
    return processes == 2 ? 0 : err_set(err, ERR_DENIED, "%d processes in the run's namespace", processes);
}
