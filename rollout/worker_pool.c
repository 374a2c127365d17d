/*
 * worker_pool.c - jobs to confined processes and answers back; who dies is replaced, what dies twice is to blame.
 *
 * Life of a worker:   STARTING --hello--> IDLE --job--> BUSY --answer--> IDLE, after JOBS_PER_PROCESS answers let go
 *                     any state --socket closed, wrong answer, time limit--> gone; a new one is started (reap)
 * Life of a job:      queued -> at one worker -> callback. A worker that dies under it (signal, CPU limit, nonsense as
 *                     an answer) sends it to the head of the queue once; the second death is the input's fault and
 *                     answers unreadable. The wall limit says nothing about the input (the machine may be slow): ERR_LOST.
 *
 * A job keeps its bytes until its callback, so that a repeat sends the very same ones; they become memfds only on
 * their way, so that a long queue is memory and no descriptors. Nothing in here blocks but worker_pool_start(),
 * which waits for the first hellos.
 */
#include "rollout/worker.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/frame.h"
#include "base/own.h"
#include "rollout/worker_job.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/wait.h>

#define QUEUE_MAX        65536u
#define QUEUE_BYTES_MAX  ((size_t)1 << 30)
#define WORKERS_MAX      256u
#define JOBS_PER_PROCESS 1024u
#define CRASHES_MAX      2
#define JOB_NS_MAX       (60 * NS_PER_S)
#define HELLO_NS_MAX     (20 * NS_PER_S)
#define RETRY_NS         (200 * NS_PER_MS)  /* before a worker that did not come up is started again */
#define STARTS_FAILED_MAX 10                /* in a row, over all workers: then waiting jobs fail */
#define TIMER_KEY        UINT64_MAX

enum worker_state { WORKER_DOWN, WORKER_STARTING, WORKER_IDLE, WORKER_BUSY };

struct worker {
    enum worker_state state;
    pid_t    pid;
    int      sock;
    uint32_t answers;
    uint64_t deadline_ns;       /* STARTING: for the hello; BUSY: for the answer; DOWN: when to start again */
    struct job *job;
};

struct worker_pool {
    char *path, *store_dir;
    int   epoll_fd, timer_fd;
    struct worker *workers;
    uint32_t count, queued, failed_starts;
    uint64_t next_job, stalled_until_ns;
    size_t queued_bytes;
    struct job *head, **tail;
    struct err start_err;       /* why the last start failed */
};

static void queue_push(struct worker_pool *p, struct job *j, bool front)
{
    j->next = front ? p->head : NULL;
    if (front) {
        if (p->head == NULL)
            p->tail = &j->next;
        p->head = j;
    } else {
        *p->tail = j;
        p->tail = &j->next;
    }
    p->queued++;
    p->queued_bytes += j->record.len + j->patch.len;
}

static struct job *queue_pop(struct worker_pool *p)
{
    struct job *j = p->head;
    if (j == NULL)
        return NULL;
    p->head = j->next;
    if (p->head == NULL)
        p->tail = &p->head;
    p->queued--;
    p->queued_bytes -= j->record.len + j->patch.len;
    return j;
}

/* --- processes --- */

static void worker_end(struct worker *w)
{
    if (w->sock >= 0)
        close(w->sock);         /* leaves the epoll set with its last descriptor */
    w->sock = -1;
    if (w->pid > 0) {
        kill(w->pid, SIGKILL);
        while (waitpid(w->pid, NULL, 0) < 0 && errno == EINTR)
            ;
    }
    w->pid = -1;
    w->state = WORKER_DOWN;
    w->answers = 0;
}

static int spawn(pid_t *out, const struct worker_pool *p, int sock, struct err *err)
{
    char *const argv[] = { p->path, (char *)(uintptr_t)"pool", p->store_dir, NULL };
    /* Nothing of our own environment, which may hold tokens. */
    char *const env[] = { (char *)(uintptr_t)"PATH=/usr/bin:/bin", (char *)(uintptr_t)"ASAN_OPTIONS=detect_leaks=0", NULL };
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attr;
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    if (posix_spawn_file_actions_init(&files) != 0)
        return err_set(err, ERR_LIMIT, "worker: out of memory");
    if (posix_spawnattr_init(&attr) != 0) {
        posix_spawn_file_actions_destroy(&files);
        return err_set(err, ERR_LIMIT, "worker: out of memory");
    }
    int rc = posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    if (rc == 0)
        rc = posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    if (rc == 0)
        rc = posix_spawn_file_actions_adddup2(&files, sock, WORKER_FD);
    if (rc == 0)
        rc = posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    if (rc == 0)
        rc = posix_spawnattr_setsigmask(&attr, &none);
    if (rc == 0)
        rc = posix_spawnattr_setsigdefault(&attr, &all);
    if (rc == 0)
        rc = posix_spawn(out, p->path, &files, &attr, argv, env);
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&files);
    errno = rc;
    return rc == 0 ? 0 : err_sys(err, rc == ENOENT ? ERR_UNAVAILABLE : ERR_SYS, "worker: start %.200s", p->path);
}

static int worker_start(struct worker_pool *p, struct worker *w, struct err *err)
{
    int ends[2];
    if (fault_hit("worker.start"))
        return err_set(err, ERR_SYS, "worker: start %.200s: injected fault", p->path);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
        return err_sys(err, ERR_SYS, "worker: socket pair");
    own_fd ours = ends[0], theirs = ends[1];
    if (fcntl(ours, F_SETFL, O_NONBLOCK) != 0)
        return err_sys(err, ERR_SYS, "worker: socket");
    pid_t pid;
    int rc = spawn(&pid, p, theirs, err);
    if (rc < 0)
        return rc;
    *w = (struct worker){ .state = WORKER_STARTING, .pid = pid, .sock = give_fd(&ours),
                          .deadline_ns = clock_mono_ns() + HELLO_NS_MAX };
    struct epoll_event ev = { .events = EPOLLIN, .data.u64 = (uint64_t)(w - p->workers) };
    if (epoll_ctl(p->epoll_fd, EPOLL_CTL_ADD, w->sock, &ev) != 0) {
        rc = err_sys(err, ERR_SYS, "worker: epoll");
        worker_end(w);
        return rc;
    }
    return 0;
}

/* A worker that is down: start it now if its time has come. */
static void worker_revive(struct worker_pool *p, struct worker *w, uint64_t now_ns)
{
    struct err err = { 0 };
    if (w->state != WORKER_DOWN || now_ns < w->deadline_ns)
        return;
    if (worker_start(p, w, &err) < 0) {
        p->start_err = err;
        p->failed_starts++;
        w->state = WORKER_DOWN;
        w->deadline_ns = now_ns + RETRY_NS;
    }
}

/* The worker died, or answered nonsense, under its job. */
static void job_crashed(struct worker_pool *p, struct job *j)
{
    if (++j->crashes >= CRASHES_MAX)
        job_unreadable(j);
    else
        queue_push(p, j, true);
}

/* --- the loop's turns --- */

static void send_jobs(struct worker_pool *p, uint64_t now_ns)
{
    p->stalled_until_ns = 0;
    for (uint32_t i = 0; i < p->count && p->head != NULL; i++) {
        struct worker *w = &p->workers[i];
        struct err err = { 0 };
        if (w->state != WORKER_IDLE)
            continue;
        struct job *j = queue_pop(p);
        bool built;
        if (job_send(w->sock, j, &built, &err) < 0) {
            queue_push(p, j, true);
            if (!built) {                       /* short of descriptors: an answer that comes in frees some */
                p->stalled_until_ns = now_ns + RETRY_NS;
                return;
            }
            worker_end(w);                      /* it died while idle: no blame */
            w->deadline_ns = now_ns;
            worker_revive(p, w, now_ns);
            continue;
        }
        w->job = j;
        w->state = WORKER_BUSY;
        w->deadline_ns = now_ns + JOB_NS_MAX;
    }
}

static void on_gone(struct worker_pool *p, struct worker *w, uint64_t now_ns)
{
    struct job *j = w->job;
    bool came_up = w->state != WORKER_STARTING;
    worker_end(w);
    w->job = NULL;
    p->failed_starts = came_up ? 0 : p->failed_starts + 1;
    w->deadline_ns = came_up ? now_ns : now_ns + RETRY_NS;
    worker_revive(p, w, now_ns);
    if (j != NULL)
        job_crashed(p, j);
}

static bool hello_ok(struct worker_pool *p, struct worker_hello *h, int n, int nfds)
{
    h->message[sizeof h->message - 1] = '\0';
    if (n != (int)sizeof *h || nfds != 0 || h->magic != WORKER_MAGIC || h->layout != WORKER_LAYOUT) {
        (void)err_set(&p->start_err, ERR_UNAVAILABLE, "worker: %.200s is not the assay-worker of this build", p->path);
        return false;
    }
    if (h->rc < 0) {
        (void)err_set(&p->start_err, h->rc, "%s", h->message);
        return false;
    }
    return true;
}

static void on_readable(struct worker_pool *p, struct worker *w, uint64_t now_ns)
{
    union { struct worker_hello hello; struct worker_answer answer; } m;
    int fds[FRAME_FDS_MAX], nfds = 0;
    struct err err = { 0 };
    memset(&m, 0, sizeof m);
    int n = frame_recv(w->sock, &m, sizeof m, fds, &nfds, &err);
    if (n == ERR_BUSY)
        return;
    bool gone = n <= 0;
    if (!gone && w->state == WORKER_STARTING) {
        gone = !hello_ok(p, &m.hello, n, nfds);
        if (!gone) {
            w->state = WORKER_IDLE;
            p->failed_starts = 0;
        }
    } else if (!gone) {
        struct job *j = w->job;
        /* Idle before the callback, which may queue more. */
        if (w->state == WORKER_BUSY && n == (int)sizeof m.answer) {
            w->job = NULL;
            w->state = WORKER_IDLE;
            if (!job_deliver(j, &m.answer, fds, nfds)) {
                w->job = j;
                gone = true;
            } else if (++w->answers >= JOBS_PER_PROCESS && w->state == WORKER_IDLE) {
                worker_end(w);
                w->deadline_ns = now_ns;
                worker_revive(p, w, now_ns);
            }
        } else {
            gone = true;
        }
    }
    for (int i = 0; i < nfds; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    if (gone)
        on_gone(p, w, now_ns);
}

static void on_time(struct worker_pool *p, uint64_t now_ns)
{
    for (uint32_t i = 0; i < p->count; i++) {
        struct worker *w = &p->workers[i];
        if (now_ns < w->deadline_ns)
            continue;
        if (w->state == WORKER_DOWN) {
            worker_revive(p, w, now_ns);
        } else if (w->state == WORKER_STARTING) {
            (void)err_set(&p->start_err, ERR_UNAVAILABLE, "worker: %.200s said nothing for %d s", p->path,
                          (int)(HELLO_NS_MAX / NS_PER_S));
            on_gone(p, w, now_ns);
        } else if (w->state == WORKER_BUSY) {
            struct job *j = w->job;
            struct err err = { 0 };
            w->job = NULL;
            on_gone(p, w, now_ns);
            int rc = err_set(&err, ERR_LOST, "worker: no answer within %d s", (int)(JOB_NS_MAX / NS_PER_S));
            job_fail(j, rc, &err);
        }
    }
    /* No worker comes up any more: what waits would wait for ever. */
    for (uint32_t left = p->queued; p->failed_starts >= STARTS_FAILED_MAX && left > 0 && p->head != NULL; left--) {
        struct err err = p->start_err;
        if (err.code == 0)
            (void)err_set(&err, ERR_UNAVAILABLE, "worker: %.200s ends as soon as it starts", p->path);
        job_fail(queue_pop(p), err.code, &err);
    }
}

/* The nearest deadline of any worker, as the timer's next ring. */
static int arm(struct worker_pool *p, struct err *err)
{
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; i < p->count; i++)
        if (p->workers[i].state != WORKER_IDLE && p->workers[i].deadline_ns < least)
            least = p->workers[i].deadline_ns;
    if (p->head != NULL && p->stalled_until_ns != 0 && p->stalled_until_ns < least)
        least = p->stalled_until_ns;
    struct itimerspec at = { 0 };
    if (least != UINT64_MAX) {
        at.it_value.tv_sec = (time_t)(least / NS_PER_S);
        at.it_value.tv_nsec = (long)(least % NS_PER_S) + (least == 0);
    }
    return timerfd_settime(p->timer_fd, TFD_TIMER_ABSTIME, &at, NULL) == 0 ? 0 : err_sys(err, ERR_SYS, "worker: timer");
}

int worker_pool_dispatch(struct worker_pool *p, struct err *err)
{
    struct epoll_event evs[32];
    int n = epoll_wait(p->epoll_fd, evs, 32, 0);
    if (n < 0 && errno != EINTR)
        return err_sys(err, ERR_SYS, "worker: epoll");
    uint64_t now_ns = clock_mono_ns();
    for (int i = 0; i < n; i++) {
        uint64_t rings;
        if (evs[i].data.u64 == TIMER_KEY) {
            if (read(p->timer_fd, &rings, sizeof rings) < 0 && errno != EAGAIN)
                return err_sys(err, ERR_SYS, "worker: timer");
        } else if (p->workers[evs[i].data.u64].sock >= 0) {
            on_readable(p, &p->workers[evs[i].data.u64], now_ns);
        }
    }
    on_time(p, now_ns);
    send_jobs(p, now_ns);
    return arm(p, err);
}

/* --- the door --- */

static int wait_up(struct worker_pool *p, struct err *err)
{
    uint64_t until = clock_mono_ns() + HELLO_NS_MAX;
    for (;;) {
        uint32_t up = 0;
        for (uint32_t i = 0; i < p->count; i++)
            up += p->workers[i].state == WORKER_IDLE;
        if (up == p->count)
            return 0;
        if (p->start_err.code != 0) {
            *err = p->start_err;
            return err->code;
        }
        uint64_t now_ns = clock_mono_ns();
        if (p->failed_starts > 0 || now_ns >= until)
            return err_set(err, ERR_UNAVAILABLE, "worker: %.200s ended before it was ready", p->path);
        struct pollfd wait = { .fd = p->epoll_fd, .events = POLLIN };
        if (poll(&wait, 1, (int)((until - now_ns) / NS_PER_MS) + 1) < 0 && errno != EINTR)
            return err_sys(err, ERR_SYS, "worker: poll");
        int rc = worker_pool_dispatch(p, err);
        if (rc < 0)
            return rc;
    }
}

int worker_pool_start(struct worker_pool **out, const char *worker_path, const char *store_dir, uint32_t count, struct err *err)
{
    if (count < 1 || count > WORKERS_MAX)
        return err_set(err, ERR_USAGE, "workers: %u is out of range, want 1..%u", count, WORKERS_MAX);
    struct worker_pool *p = calloc(1, sizeof *p);
    if (p == NULL)
        return err_set(err, ERR_LIMIT, "worker: out of memory");
    p->tail = &p->head;
    p->timer_fd = p->epoll_fd = -1;
    p->path = strdup(worker_path);
    p->store_dir = realpath(store_dir, NULL);
    p->workers = calloc(count, sizeof *p->workers);
    int rc = p->path == NULL || p->workers == NULL ? err_set(err, ERR_LIMIT, "worker: out of memory") : 0;
    if (rc == 0 && p->store_dir == NULL)
        rc = err_sys(err, errno == ENOENT ? ERR_NOT_FOUND : ERR_SYS, "worker: store %.200s", store_dir);
    if (rc == 0) {
        struct epoll_event ev = { .events = EPOLLIN, .data.u64 = TIMER_KEY };
        p->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
        p->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
        if (p->epoll_fd < 0 || p->timer_fd < 0 || epoll_ctl(p->epoll_fd, EPOLL_CTL_ADD, p->timer_fd, &ev) != 0)
            rc = err_sys(err, ERR_SYS, "worker: epoll");
    }
    for (uint32_t i = 0; p->workers != NULL && i < count; i++)
        p->workers[i] = (struct worker){ .state = WORKER_DOWN, .pid = -1, .sock = -1 };
    for (; rc == 0 && p->count < count; p->count++)
        rc = worker_start(p, &p->workers[p->count], err);
    if (rc == 0)
        rc = arm(p, err);
    if (rc == 0)
        rc = wait_up(p, err);
    if (rc < 0) {
        worker_pool_close(p);
        return rc;
    }
    *out = p;
    return 0;
}

int worker_pool_fd(const struct worker_pool *p) { return p->epoll_fd; }

void worker_pool_close(struct worker_pool *p)
{
    if (p == NULL)
        return;
    for (uint32_t i = 0; i < p->count; i++) {
        worker_end(&p->workers[i]);
        if (p->workers[i].job != NULL)
            job_free(p->workers[i].job);
    }
    for (struct job *j; (j = queue_pop(p)) != NULL; )
        job_free(j);
    if (p->timer_fd >= 0)
        close(p->timer_fd);
    if (p->epoll_fd >= 0)
        close(p->epoll_fd);
    free(p->workers);
    free(p->path);
    free(p->store_dir);
    free(p);
}

/* Queue a job, or end it. */
static int submit(struct worker_pool *p, struct job *j, struct err *err)
{
    if (p->queued >= QUEUE_MAX || p->queued_bytes + j->record.len + j->patch.len > QUEUE_BYTES_MAX) {
        job_free(j);
        return err_set(err, ERR_BUSY, "worker: %u jobs of %zu bytes are waiting", p->queued, p->queued_bytes);
    }
    j->id = ++p->next_job;
    queue_push(p, j, false);
    send_jobs(p, clock_mono_ns());
    if (arm(p, err) < 0)
        err->code = 0;                      /* the job is in all the same; the next dispatch arms again and reports */
    return 0;
}

int worker_patch(struct worker_pool *p, const struct task *task, const void *patch, size_t patch_len, patch_cb cb, void *arg,
                 struct err *err)
{
    if (patch_len > WORKER_PATCH_MAX)
        return err_set(err, ERR_BAD_INPUT, "task %s: a patch of %zu bytes, at most %zu", task->id, patch_len, WORKER_PATCH_MAX);
    struct job *j = job_new(WORKER_PATCH, arg, task, NULL, err);
    if (j == NULL)
        return err->code;
    j->on_patch = cb;
    if (patch_len > 0 && buf_add(&j->patch, patch, patch_len, err) < 0) {
        job_free(j);
        return err->code;
    }
    return submit(p, j, err);
}

int worker_report(struct worker_pool *p, const struct task *task, int report_fd, int output_fd, const struct run_facts *run,
                  report_cb cb, void *arg, struct err *err)
{
    struct job *j = job_new(WORKER_REPORT, arg, task, run, err);
    if (j == NULL)
        return err->code;
    j->on_report = cb;
    int rc = job_keep_fd(&j->output_fd, output_fd, err);      /* none: an empty output */
    if (rc == 0)
        rc = job_keep_fd(&j->report_fd, report_fd, err);
    if (rc < 0) {
        job_free(j);
        return rc;
    }
    return submit(p, j, err);
}
