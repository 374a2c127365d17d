/*
 * server.c - start a private assayd and let go of it.
 *
 * Two pipes tie the two together. On the ready pipe the server writes one line: "ready", or the name
 * of an error and its text ("busy: ..." when another server holds the state). An end of file without
 * a line is a crash: the end of its log is all there is to tell. The
 * lifeline pipe is never written to: the server sees its end when every process that started it is
 * gone, however it went, and leaves as soon as no client is connected. It runs in a session of its
 * own, so that Ctrl-C in one terminal does not end a server that somebody else is using.
 */
#include "rollout/cli/cli.h"
#include "base/clock.h"
#include "base/own.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define READY_WAIT_NS  (60 * NS_PER_S)      /* recovery of a long log is the slow part */

int server_program(const char **out, struct arena *a, const char *name, struct err *err)
{
    char self[4096];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n < 0)
        return err_sys(err, ERR_SYS, "/proc/self/exe");
    self[n] = '\0';
    char *slash = strrchr(self, '/');
    if (slash != NULL)
        *slash = '\0';
    const char *path = arena_printf(a, "%s/%s", self, name);
    if (path == NULL)
        return err_set(err, ERR_LIMIT, "out of memory");
    if (access(path, X_OK) != 0)
        return err_sys(err, ERR_UNAVAILABLE, "%s: build it or install it beside `assay`", path);
    *out = path;
    return 0;
}

/* Only async-signal-safe calls: between fork and exec. */
static _Noreturn void become_server(const char *const *argv, int log_fd, const int *keep, int keep_count)
{
    setsid();
    int null = open("/dev/null", O_RDONLY);
    if (null < 0 || dup2(null, 0) < 0 || dup2(log_fd, 1) < 0 || dup2(log_fd, 2) < 0)
        _exit(71);
    for (int i = 0; i < keep_count; i++)
        if (fcntl(keep[i], F_SETFD, 0) < 0)
            _exit(71);
    signal(SIGPIPE, SIG_DFL);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execv(argv[0], (char *const *)(uintptr_t)argv);
    _exit(71);
}

/* The last lines that the server wrote to its log since offset `from`, as one printable line. */
static void log_tail(char *out, size_t size, int log_fd, off_t from)
{
    char bytes[400];
    struct stat st;
    out[0] = '\0';
    if (fstat(log_fd, &st) < 0 || st.st_size <= from)
        return;
    off_t at = st.st_size - (off_t)sizeof bytes > from ? st.st_size - (off_t)sizeof bytes : from;
    ssize_t n = pread(log_fd, bytes, sizeof bytes, at);
    while (n > 0 && bytes[n - 1] == '\n')
        n--;
    if (n > 0)
        err_quote(out, size, bytes, (size_t)n);
}

/* 0 when the server said "ready". What it said instead is left in `said`. */
static int wait_ready(int ready_fd, char *said, size_t size)
{
    uint64_t until = clock_mono_ns() + READY_WAIT_NS;
    size_t n = 0;
    said[0] = '\0';
    for (;;) {
        uint64_t now = clock_mono_ns();
        if (now >= until)
            return ERR_DEADLINE;
        struct pollfd p = { .fd = ready_fd, .events = POLLIN };
        if (poll(&p, 1, (int)((until - now) / NS_PER_MS) + 1) < 0 && errno != EINTR)
            return ERR_SYS;
        if (p.revents == 0)
            continue;
        ssize_t got = read(ready_fd, said + n, size - 1 - n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0 || n + (size_t)got >= size - 1)
            return ERR_LOST;
        n += (size_t)got;
        said[n] = '\0';
        if (strcmp(said, "ready\n") == 0)
            return 0;
        if (n == size - 1)
            return ERR_LOST;
    }
}

static int start_failed(int rc, pid_t pid, const char *said, int log_fd, off_t log_from, const char *state,
                        struct err *err)
{
    int status = 0;
    if (rc != ERR_LOST)
        kill(pid, SIGKILL);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    char text[400];
    if (said[0] != '\0')
        err_quote(text, sizeof text, said, strcspn(said, "\n"));
    else
        log_tail(text, sizeof text, log_fd, log_from);
    if (rc == ERR_DEADLINE)
        return err_set(err, ERR_UNAVAILABLE, "assayd was not ready after %llu s; see %s/assayd.log",
                       (unsigned long long)(READY_WAIT_NS / NS_PER_S), state);
    int exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    int code = strncmp(said, "busy:", 5) == 0 ? ERR_BUSY : ERR_UNAVAILABLE;
    if (exit_code >= 0)
        return err_set(err, code, "assayd ended with exit status %d: %s", exit_code,
                       text[0] != '\0' ? text : "it said nothing");
    return err_set(err, code, "assayd was ended by signal %d: %s", WTERMSIG(status),
                   text[0] != '\0' ? text : "it said nothing");
}

int server_start(struct server_process *out, const char *state, int state_fd, uint32_t slots, struct err *err)
{
    own_arena a = { 0 };
    const char *program = NULL;
    int rc = server_program(&program, &a, "assayd", err);
    if (rc < 0)
        return rc;
    own_fd log_fd = openat(state_fd, "assayd.log", O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (log_fd < 0)
        return err_sys(err, ERR_UNAVAILABLE, "%s/assayd.log", state);
    off_t log_from = lseek(log_fd, 0, SEEK_END);

    int ready[2], lifeline[2];
    if (pipe2(ready, O_CLOEXEC) < 0)
        return err_sys(err, ERR_SYS, "pipe");
    own_fd ready_read = ready[0], ready_write = ready[1];
    if (pipe2(lifeline, O_CLOEXEC) < 0)
        return err_sys(err, ERR_SYS, "pipe");
    own_fd lifeline_read = lifeline[0], lifeline_write = lifeline[1];

    char ready_text[16], lifeline_text[16], slots_text[16];
    snprintf(ready_text, sizeof ready_text, "%d", ready_write);
    snprintf(lifeline_text, sizeof lifeline_text, "%d", lifeline_read);
    snprintf(slots_text, sizeof slots_text, "%u", slots);
    const char *argv[] = { program, "--state", state, "--ready-fd", ready_text, "--lifeline-fd",
                           lifeline_text, slots > 0 ? "--slots" : NULL, slots_text, NULL };
    const int keep[] = { ready_write, lifeline_read };

    pid_t pid = fork();
    if (pid < 0)
        return err_sys(err, ERR_SYS, "fork");
    if (pid == 0)
        become_server(argv, log_fd, keep, 2);
    close(give_fd(&ready_write));
    close(give_fd(&lifeline_read));
    own_fd pid_fd = (int)syscall(SYS_pidfd_open, pid, 0);   /* kernel 5.3; without it nobody waits at the end */

    char said[512];
    rc = wait_ready(ready_read, said, sizeof said);
    if (rc < 0)
        return start_failed(rc, pid, said, log_fd, log_from, state, err);
    out->pid_fd = give_fd(&pid_fd);
    out->lifeline_fd = give_fd(&lifeline_write);
    return 0;
}

void server_stop(struct server_process *p, uint64_t wait_ns)
{
    if (p->lifeline_fd >= 0)
        close(p->lifeline_fd);
    if (p->pid_fd >= 0) {
        struct pollfd w = { .fd = p->pid_fd, .events = POLLIN };
        if (poll(&w, 1, (int)(wait_ns / NS_PER_MS)) > 0)
            (void)waitid(P_PIDFD, (id_t)p->pid_fd, &(siginfo_t){ 0 }, WEXITED | WNOHANG);
        close(p->pid_fd);
    }
    *p = SERVER_PROCESS_NONE;
}
