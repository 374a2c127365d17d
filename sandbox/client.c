/*
 * client.c - the unprivileged side: one socket, a table of slots, no waiting after the start.
 *
 * The jail tells which slots are ready; an acquire takes one, or is kept (at most as many as there
 * are slots) until one is. Callbacks fire from sandbox_client_dispatch() only. When the jail is
 * gone, everything that waits is failed with ERR_LOST, once.
 */
#include "sandbox/sandbox.h"
#include "base/frame.h"
#include "base/own.h"
#include "sandbox/grant.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>

#define START_MS_MAX 60000
#define STOP_MS_MAX 5000
#define RETRIES_MAX 5

#define TEXT_OF(number) #number
#define PROXY_URL(port) "http://127.0.0.1:" TEXT_OF(port)
static const char *const proxy_env[] = {
    "http_proxy=" PROXY_URL(SANDBOX_PROXY_PORT), "https_proxy=" PROXY_URL(SANDBOX_PROXY_PORT),
    "HTTP_PROXY=" PROXY_URL(SANDBOX_PROXY_PORT), "HTTPS_PROXY=" PROXY_URL(SANDBOX_PROXY_PORT),
    "no_proxy=localhost,127.0.0.1,::1", "NO_PROXY=localhost,127.0.0.1,::1", NULL,
};

struct sandbox {
    struct sandbox_client *client;          /* NULL: the client was closed first */
    uint32_t slot, generation;
    bool running, lost;
    int proxy;                              /* -1: none */
    sandbox_done_cb done;
    void *done_arg;
    sandbox_file_cb filed;                  /* NULL: nothing asked */
    void *filed_arg;
};

struct packed {                             /* a command; owned */
    char *bytes;                            /* with room for the request before it; NULL: none */
    size_t size;
    uint32_t which, option;                 /* of the request */
    int fds[4], nfds;                       /* its streams, after a place for the command */
};

struct waiting {                            /* an acquire: not sent yet, or not answered yet */
    sandbox_acquired_cb cb;
    sandbox_done_cb done;                   /* of the first command */
    void *arg;
    struct packed command;                  /* .bytes NULL: none yet */
    struct sandbox_limits limits;
    uint32_t which, profile;
    int fds[4], nfds;                       /* owned */
    int retries;
    struct waiting *next;
};

struct mounting { sandbox_file_cb cb; void *arg; struct mounting *next; };      /* an image: asked for, not answered */

struct slot_view {
    bool ready;
    uint32_t generation;
    struct waiting *acquiring;              /* sent, not answered */
    struct sandbox *held;
};

struct sandbox_client {
    int sock;
    pid_t jail;
    bool lost;
    uint32_t wanted, open;                  /* the most at once; now acquired or being acquired */
    uint32_t slot_count;
    struct slot_view *slots;
    struct waiting *first, **last;          /* in order of asking */
    struct mounting *mounting, **mounting_last;     /* likewise */
};

static void packed_done(struct packed *p)
{
    free(p->bytes);
    for (int i = 1; i <= p->nfds; i++)
        close(p->fds[i]);
}

static void waiting_free(struct waiting *w)
{
    packed_done(&w->command);
    for (int i = 0; i < w->nfds; i++)
        close(w->fds[i]);
    free(w);
}

/* ---- start and stop ---- */

static int spawn_jail(const char *path, uint32_t slots, int theirs, pid_t *out, struct err *err)
{
    char count[16], *argv[] = { (char *)(uintptr_t)"assay-jail", count, NULL };
    char *env[] = { (char *)(uintptr_t)"PATH=/usr/sbin:/usr/bin:/sbin:/bin", NULL };
    posix_spawn_file_actions_t fa;
    posix_spawnattr_t attr;
    sigset_t none;
    snprintf(count, sizeof count, "%u", slots);
    posix_spawn_file_actions_init(&fa);
    posix_spawnattr_init(&attr);
    sigemptyset(&none);
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawnattr_setpgroup(&attr, 0);            /* a signal from the terminal goes to us; we end the jail */
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
    posix_spawn_file_actions_adddup2(&fa, theirs, 3);
    int rc = posix_spawn(out, path, &fa, &attr, argv, env);
    posix_spawn_file_actions_destroy(&fa);
    posix_spawnattr_destroy(&attr);
    if (rc != 0) {
        errno = rc;
        return err_sys(err, ERR_UNAVAILABLE, "start %s", path);
    }
    return 0;
}

static int await_hello(struct sandbox_client *c, struct err *err)
{
    struct grant_answer a;
    int fds[FRAME_FDS_MAX], nfds;
    struct pollfd p = { .fd = c->sock, .events = POLLIN };
    int n;
    do
        n = poll(&p, 1, START_MS_MAX);
    while (n < 0 && errno == EINTR);
    if (n == 0)
        return err_set(err, ERR_DEADLINE, "jail: no answer in %d s", START_MS_MAX / 1000);
    n = n < 0 ? err_sys(err, ERR_SYS, "poll") : frame_recv(c->sock, &a, sizeof a, fds, &nfds, err);
    if (n < 0)
        return n;
    if (n != (int)sizeof a)
        return err_set(err, ERR_LOST, "jail ended at its start: is it of this build, and run by root?");
    if (a.kind != GRANT_HELLO || a.rc < 0) {
        err_set(err, a.rc < 0 ? a.rc : ERR_PROTOCOL, "jail: %.*s", (int)sizeof a.msg - 1, a.msg);
        err->sys = a.sys;
        return err->code;
    }
    if (a.version != GRANT_VERSION || a.slots == 0 || a.slots > 2 * GRANT_SLOTS_MAX)
        return err_set(err, ERR_PROTOCOL, "jail: version %u, not %u: install both from one build", a.version, GRANT_VERSION);
    c->slot_count = a.slots;
    return 0;
}

int sandbox_client_start(struct sandbox_client **out, const char *jail_path, uint32_t slots, struct err *err)
{
    if (slots == 0 || slots > GRANT_SLOTS_MAX)
        return err_set(err, ERR_USAGE, "%u sandboxes: want 1 to %u", slots, GRANT_SLOTS_MAX);
    int pair[2];
    struct sandbox_client *c = calloc(1, sizeof *c);
    if (c == NULL)
        return err_set(err, ERR_LIMIT, "sandbox client: out of memory");
    c->last = &c->first;
    c->mounting_last = &c->mounting;
    c->wanted = slots;
    c->sock = -1;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) {
        free(c);
        return err_sys(err, ERR_SYS, "jail socket");
    }
    own_fd theirs = pair[1];
    c->sock = pair[0];
    int room = 4 << 20;                             /* bursts of requests on many slots */
    setsockopt(c->sock, SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
    setsockopt(theirs, SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
    int rc = spawn_jail(jail_path, slots, theirs, &c->jail, err);
    close(give_fd(&theirs));
    if (rc == 0)
        rc = await_hello(c, err);
    if (rc == 0) {
        c->slots = calloc(c->slot_count, sizeof *c->slots);
        if (c->slots == NULL)
            rc = err_set(err, ERR_LIMIT, "sandbox client: out of memory");
    }
    if (rc == 0 && fcntl(c->sock, F_SETFL, O_NONBLOCK) < 0)
        rc = err_sys(err, ERR_SYS, "jail socket");
    if (rc < 0) {
        sandbox_client_close(c);
        return rc;
    }
    *out = c;
    return 0;
}

int sandbox_client_fd(const struct sandbox_client *c) { return c->sock; }

void sandbox_client_close(struct sandbox_client *c)
{
    if (c == NULL)
        return;
    close(c->sock);                                 /* the jail ends by that */
    for (int ms = 0; c->jail > 0; ms++) {
        pid_t done = waitpid(c->jail, NULL, WNOHANG);
        if (done == c->jail || (done < 0 && errno != EINTR))
            break;
        if (ms == STOP_MS_MAX)
            kill(c->jail, SIGKILL);
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    }
    for (uint32_t i = 0; c->slots != NULL && i < c->slot_count; i++) {
        if (c->slots[i].acquiring != NULL)
            waiting_free(c->slots[i].acquiring);
        if (c->slots[i].held != NULL)
            c->slots[i].held->client = NULL;
    }
    for (struct waiting *w; (w = c->first) != NULL; waiting_free(w))
        c->first = w->next;
    for (struct mounting *m; (m = c->mounting) != NULL; free(m))
        c->mounting = m->next;
    free(c->slots);
    free(c);
}

/* ---- requests ---- */

static int streams_pack(const struct sandbox_streams *streams, struct packed *out, struct err *err)
{
    const int given[3] = { streams->in, streams->out, streams->err };
    if (given[2] >= 0 && !streams->apart)
        return err_set(err, ERR_USAGE, "standard error has a stream of its own only when kept apart");
    out->option |= streams->apart ? GRANT_RUN_APART : 0;
    for (int i = 0; i < 3; i++) {
        if (given[i] < 0)
            continue;
        if (!grant_stream_fits(given[i], i == 0))
            return err_set(err, ERR_USAGE, "descriptor %d: want a pipe or stream socket%s to %s", given[i],
                           i == 0 ? ", or a file," : "", i == 0 ? "read" : "write");
        int fd = fcntl(given[i], F_DUPFD_CLOEXEC, 0);
        if (fd < 0)
            return err_sys(err, ERR_SYS, "streams");
        out->which |= GRANT_FD_IN << i;
        out->fds[++out->nfds] = fd;
    }
    return 0;
}

/* A command as the agent reads it (grant.h). On failure, too, *out is to be done with. */
static int command_pack(const struct sandbox_command *cmd, bool proxy, struct packed *out, struct err *err)
{
    const char *const by_shell[] = { "sh", "-c", cmd->shell, NULL }, *const none[] = { NULL };
    const char *const *argv = cmd->shell != NULL ? by_shell : cmd->argv, *const *env = cmd->env != NULL ? cmd->env : none;
    if (argv == NULL || argv[0] == NULL)
        return err_set(err, ERR_USAGE, "a command needs a program");
    const char *path = cmd->shell != NULL ? "/bin/sh" : argv[0];
    const char *const *ours = proxy ? proxy_env : none;
    uint32_t argc = 0;
    size_t size = sizeof argc + strlen(path) + 1;
    for (const char *const *e = ours; *e != NULL; e++)
        size += strlen(*e) + 1;
    for (; argv[argc] != NULL; argc++)
        size += strlen(argv[argc]) + 1;
    for (const char *const *e = env; *e != NULL; e++) {
        if (strchr(*e, '=') == NULL)
            return err_set(err, ERR_USAGE, "environment: `%.40s` is no NAME=value", *e);
        size += strlen(*e) + 1;
    }
    if (size > GRANT_COMMAND_MAX)
        return err_set(err, ERR_LIMIT, "command and environment: %zu bytes, at most %llu", size,
                       (unsigned long long)GRANT_COMMAND_MAX);
    *out = (struct packed){ .bytes = malloc(sizeof(struct grant_request) + size), .size = size,
                            .option = cmd->measure ? GRANT_RUN_MEASURE : 0 };
    if (out->bytes == NULL)
        return err_set(err, ERR_LIMIT, "command: out of memory");
    if (cmd->streams != NULL && streams_pack(cmd->streams, out, err) < 0)
        return err->code;
    char *text = out->bytes + sizeof(struct grant_request);
    memcpy(text, &argc, sizeof argc);
    char *at = stpcpy(text + sizeof argc, path) + 1;
    for (const char *const *a = argv; *a != NULL; a++)
        at = stpcpy(at, *a) + 1;
    for (const char *const *e = ours; *e != NULL; e++)
        at = stpcpy(at, *e) + 1;
    for (const char *const *e = env; *e != NULL; e++)          /* the last one of a name counts */
        at = stpcpy(at, *e) + 1;
    return 0;
}

static int send_request(struct sandbox_client *c, const struct grant_request *r, const int *fds, int nfds, struct err *err)
{
    return c->lost ? err_set(err, ERR_LOST, "the jail is gone") : frame_send(c->sock, r, sizeof *r, fds, nfds, err);
}

/* What has no way to fail: a jail that does not even take it is given up. */
static void send_or_lose(struct sandbox_client *c, const struct grant_request *r, const int *fds, int nfds)
{
    struct err err;
    if (!c->lost && send_request(c, r, fds, nfds, &err) < 0)
        shutdown(c->sock, SHUT_RDWR);               /* the next dispatch finds the end */
}

static void send_about(const struct sandbox *s, uint32_t kind)
{
    const struct grant_request r = { .kind = kind, .slot = s->slot, .generation = s->generation };
    send_or_lose(s->client, &r, NULL, 0);
}

static int send_run(struct sandbox_client *c, uint32_t slot, uint32_t generation, struct packed *p, struct err *err)
{
    struct grant_request r = { .kind = GRANT_RUN, .slot = slot, .generation = generation, .fds = p->which,
                               .option = p->option };
    const bool plain = p->nfds == 0 && !(p->option & GRANT_RUN_APART);
    if (c->lost)
        return err_set(err, ERR_LOST, "the jail is gone");
    if (plain && p->size <= GRANT_INLINE_MAX) {
        memcpy(p->bytes, &r, sizeof r);
        return frame_send(c->sock, p->bytes, sizeof r + p->size, NULL, 0, err);
    }
    r.fds |= GRANT_FD_COMMAND;
    own_fd fd = p->fds[0] = frame_memfd("command", p->bytes + sizeof r, p->size, err);
    return fd < 0 ? fd : frame_send(c->sock, &r, sizeof r, p->fds, 1 + p->nfds, err);
}

static int send_acquire(struct sandbox_client *c, uint32_t slot, struct waiting *w, struct err *err)
{
    struct slot_view *v = &c->slots[slot];
    struct grant_request r = { .kind = GRANT_ACQUIRE, .slot = slot, .generation = v->generation, .fds = w->which,
                               .option = w->command.bytes != NULL ? GRANT_ACQUIRE_RUN : 0, .profile = w->profile, .limits = w->limits };
    int rc = send_request(c, &r, w->fds, w->nfds, err);
    if (rc == 0) {
        v->ready = false;
        v->acquiring = w;
    }
    /* Should the acquire fail, the jail passes over the command. */
    if (rc == 0 && w->command.bytes != NULL && send_run(c, slot, v->generation, &w->command, err) < 0)
        shutdown(c->sock, SHUT_RDWR);           /* the next dispatch finds the end */
    return rc;
}

/* A slot that was ready and had to be remade: the acquire goes back to the head of the line. */
static void put_back(struct sandbox_client *c, struct waiting *w)
{
    struct err err;
    for (uint32_t i = 0; i < c->slot_count; i++)
        if (c->slots[i].ready && c->slots[i].acquiring == NULL && send_acquire(c, i, w, &err) == 0)
            return;
    w->next = c->first;
    c->first = w;
    if (w->next == NULL)
        c->last = &w->next;
}

int sandbox_acquire(struct sandbox_client *c, const struct sandbox_spec *spec, const struct sandbox_limits *limits,
                    sandbox_acquired_cb cb, void *arg, struct err *err)
{
    return sandbox_acquire_run(c, spec, limits, NULL, cb, NULL, arg, err);
}

int sandbox_acquire_run(struct sandbox_client *c, const struct sandbox_spec *spec, const struct sandbox_limits *limits,
                        const struct sandbox_command *cmd, sandbox_acquired_cb cb, sandbox_done_cb done, void *arg,
                        struct err *err)
{
    if (c->lost)
        return err_set(err, ERR_LOST, "the jail is gone");
    if (spec->profile >= SANDBOX_PROFILE_COUNT)
        return err_set(err, ERR_USAGE, "profile %u: there is none of that number", (unsigned)spec->profile);
    if (c->open == c->wanted)
        return err_set(err, ERR_BUSY, "all %u sandboxes are in use", c->wanted);
    struct waiting *w = calloc(1, sizeof *w);
    if (w == NULL)
        return err_set(err, ERR_LIMIT, "acquire: out of memory");
    *w = (struct waiting){ .cb = cb, .done = done, .arg = arg, .limits = *limits, .profile = spec->profile };
    if (cmd != NULL && command_pack(cmd, limits->network == SANDBOX_NET_PROXY, &w->command, err) < 0) {
        waiting_free(w);
        return err->code;
    }
    struct packed declared = { 0 };
    own_fd warm = -1;
    if (spec->warm != NULL && command_pack(spec->warm, limits->network == SANDBOX_NET_PROXY, &declared, err) == 0)
        warm = frame_memfd("warm", declared.bytes + sizeof(struct grant_request), declared.size, err);
    free(declared.bytes);
    if (spec->warm != NULL && warm < 0) {
        waiting_free(w);
        return err->code;
    }
    const struct { int fd; uint32_t bit; } given[] = {
        { spec->tree_fd, GRANT_FD_TREE }, { spec->edits_fd, GRANT_FD_EDITS }, { spec->root_fd, GRANT_FD_ROOT },
        { warm, GRANT_FD_WARM },
    };
    for (size_t i = 0; i < sizeof given / sizeof given[0]; i++) {
        if (given[i].fd < 0)
            continue;
        int fd = fcntl(given[i].fd, F_DUPFD_CLOEXEC, 0);
        if (fd < 0) {
            waiting_free(w);
            return err_sys(err, ERR_SYS, "acquire: descriptor");
        }
        w->which |= given[i].bit;
        w->fds[w->nfds++] = fd;
    }
    for (uint32_t i = 0; c->first == NULL && i < c->slot_count; i++) {
        if (!c->slots[i].ready || c->slots[i].acquiring != NULL)
            continue;
        int rc = send_acquire(c, i, w, err);
        if (rc < 0) {
            waiting_free(w);
            return rc;
        }
        c->open++;
        return 0;
    }
    *c->last = w;
    c->last = &w->next;
    c->open++;
    return 0;
}

int sandbox_run(struct sandbox *s, const struct sandbox_command *cmd, sandbox_done_cb cb, void *arg, struct err *err)
{
    if (s->lost || s->client == NULL)
        return err_set(err, ERR_LOST, "the jail is gone");
    if (s->running || s->filed != NULL)
        return err_set(err, ERR_USAGE, "a sandbox does one thing at a time");
    struct packed command = { 0 };
    int rc = command_pack(cmd, s->proxy >= 0, &command, err);
    if (rc == 0)
        rc = send_run(s->client, s->slot, s->generation, &command, err);
    packed_done(&command);
    if (rc == 0) {
        s->running = true;
        s->done = cb;
        s->done_arg = arg;
    }
    return rc;
}

static int ask_file(struct sandbox *s, struct grant_request r, const char *path, int other, sandbox_file_cb cb, void *arg,
                    struct err *err)
{
    if (s->lost || s->client == NULL)
        return err_set(err, ERR_LOST, "the jail is gone");
    if (s->running || s->filed != NULL)
        return err_set(err, ERR_USAGE, "a sandbox does one thing at a time");
    if (path != NULL && (*path == '\0' || strlen(path) >= GRANT_PATH_MAX))
        return err_set(err, ERR_BAD_INPUT, "path: want 1 to %d bytes", GRANT_PATH_MAX - 1);
    own_fd text = path == NULL ? -1 : frame_memfd("path", path, strlen(path) + 1, err);
    if (path != NULL && text < 0)
        return err->code;
    int fds[2], n = 0;
    if (path != NULL)
        fds[n++] = text;
    if (other >= 0)
        fds[n++] = other;
    r.slot = s->slot;
    r.generation = s->generation;
    int rc = send_request(s->client, &r, fds, n, err);
    if (rc == 0) {
        s->filed = cb;
        s->filed_arg = arg;
    }
    return rc;
}

int sandbox_read_file(struct sandbox *s, const char *path, sandbox_file_cb cb, void *arg, struct err *err)
{
    return ask_file(s, (struct grant_request){ .kind = GRANT_READ, .fds = GRANT_FD_PATH }, path, -1, cb, arg, err);
}

int sandbox_list(struct sandbox *s, const char *path, sandbox_file_cb cb, void *arg, struct err *err)
{
    return ask_file(s, (struct grant_request){ .kind = GRANT_LIST, .fds = GRANT_FD_PATH }, path, -1, cb, arg, err);
}

int sandbox_write_file(struct sandbox *s, const char *path, int content, uint32_t mode, sandbox_file_cb cb, void *arg,
                       struct err *err)
{
    const int need = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
    struct stat st;
    int seals = fcntl(content, F_GET_SEALS);
    if (seals < 0 || (seals & need) != need || fstat(content, &st) < 0 || mode > 0777)
        return err_set(err, ERR_USAGE, "content must be a sealed memfd, and mode %o at most 777", mode);
    if ((uint64_t)st.st_size > SANDBOX_FILE_MAX)
        return err_set(err, ERR_LIMIT, "content: %lld bytes, at most %llu", (long long)st.st_size,
                       (unsigned long long)SANDBOX_FILE_MAX);
    struct grant_request r = { .kind = GRANT_WRITE, .fds = GRANT_FD_PATH | GRANT_FD_CONTENT, .option = mode };
    return ask_file(s, r, path, content, cb, arg, err);
}

int sandbox_diff(struct sandbox *s, int tree_fd, sandbox_file_cb cb, void *arg, struct err *err)
{
    struct stat st;
    if (tree_fd >= 0 && (fstat(tree_fd, &st) < 0 || !S_ISDIR(st.st_mode)))
        return err_set(err, ERR_USAGE, "tree: no directory");
    struct grant_request r = { .kind = GRANT_DIFF, .fds = tree_fd >= 0 ? GRANT_FD_TREE : 0 };
    return ask_file(s, r, NULL, tree_fd, cb, arg, err);
}

int sandbox_image_mount(struct sandbox_client *c, const int *files, int count, sandbox_file_cb cb, void *arg, struct err *err)
{
    if (count < 1 || count > SANDBOX_IMAGE_FILES)
        return err_set(err, ERR_USAGE, "image of %d files: want 1 to %d", count, SANDBOX_IMAGE_FILES);
    for (int i = 0; i < count; i++)
        if (!grant_file_fits(files[i]))
            return err_set(err, ERR_USAGE, "descriptor %d: want a file opened for reading alone", files[i]);
    struct mounting *m = calloc(1, sizeof *m);
    if (m == NULL)
        return err_set(err, ERR_LIMIT, "image: out of memory");
    const struct grant_request r = { .kind = GRANT_MOUNT, .option = (uint32_t)count - 1 };
    int rc = send_request(c, &r, files, count, err);
    if (rc < 0) {
        free(m);
        return rc;
    }
    *m = (struct mounting){ cb, arg, NULL };
    *c->mounting_last = m;
    c->mounting_last = &m->next;
    return 0;
}

void sandbox_image_unmount(struct sandbox_client *c, int dir)
{
    const struct grant_request r = { .kind = GRANT_UNMOUNT };
    send_or_lose(c, &r, &dir, 1);
    close(dir);
}

void sandbox_kill(struct sandbox *s)
{
    if (s->running && s->client != NULL)
        send_about(s, GRANT_KILL);
}

void sandbox_close(struct sandbox *s)
{
    if (s == NULL)
        return;
    if (s->client != NULL) {
        send_about(s, GRANT_CLOSE);
        s->client->slots[s->slot].held = NULL;
        s->client->open--;
    }
    if (s->proxy >= 0)
        close(s->proxy);
    free(s);
}

int sandbox_proxy_fd(const struct sandbox *s) { return s->proxy; }

/* ---- answers ---- */

static void acquired(struct sandbox_client *c, const struct grant_answer *a, int *fds, int nfds, const struct err *why)
{
    struct slot_view *v = &c->slots[a->slot];
    struct waiting *w = v->acquiring;
    v->acquiring = NULL;
    if (w == NULL)
        return;
    if (a->rc == ERR_BUSY && w->retries++ < RETRIES_MAX) {
        put_back(c, w);
        return;
    }
    struct sandbox *s = a->rc < 0 ? NULL : calloc(1, sizeof *s);
    struct err err = *why;
    int rc = a->rc;
    if (s != NULL) {
        *s = (struct sandbox){ .client = c, .slot = a->slot, .generation = v->generation, .running = w->command.bytes != NULL,
                               .done = w->done, .done_arg = w->arg, .proxy = -1 };
        if ((a->fds & GRANT_HAS_PROXY) && nfds == 1) {
            s->proxy = fds[0];
            fds[0] = -1;
        }
        v->held = s;
    } else {
        c->open--;
        if (rc == 0) {
            struct grant_request r = { .kind = GRANT_CLOSE, .slot = a->slot, .generation = v->generation };
            rc = err_set(&err, ERR_LIMIT, "sandbox: out of memory");
            send_or_lose(c, &r, NULL, 0);
        }
    }
    w->cb(w->arg, rc, s, rc < 0 ? &err : NULL);
    waiting_free(w);
}

static void ready(struct sandbox_client *c, const struct grant_answer *a, const struct err *why)
{
    struct slot_view *v = &c->slots[a->slot];
    struct waiting *w = c->first;
    struct err err = *why;
    v->ready = a->rc == 0;
    v->generation = a->generation;
    /* While an acquire of the slot's last life is unanswered, its answer comes first. */
    if (w == NULL || v->acquiring != NULL)
        return;
    int rc = a->rc < 0 ? a->rc : 0;
    c->first = w->next;
    if (c->first == NULL)
        c->last = &c->first;
    w->next = NULL;
    if (rc == 0)
        rc = send_acquire(c, a->slot, w, &err);
    if (rc < 0) {
        c->open--;
        w->cb(w->arg, rc, NULL, &err);
        waiting_free(w);
    }
}

static void done(struct sandbox_client *c, const struct grant_answer *a, int *fds, int nfds, const struct err *why)
{
    struct sandbox *s = c->slots[a->slot].held;
    if (s == NULL || !s->running || a->generation != s->generation)
        return;                                     /* closed meanwhile */
    s->running = false;
    struct sandbox_result r = a->result;
    r.output_fd = r.report_fd = r.error_fd = -1;
    int next = 0;
    if (a->rc == 0 && (a->fds & GRANT_HAS_OUTPUT) && next < nfds) {
        r.output_fd = fds[next];
        fds[next++] = -1;
    }
    if (a->rc == 0 && (a->fds & GRANT_HAS_REPORT) && next < nfds) {
        r.report_fd = fds[next];
        fds[next++] = -1;
    }
    if (a->rc == 0 && (a->fds & GRANT_HAS_ERROR) && next < nfds) {
        r.error_fd = fds[next];
        fds[next++] = -1;
    }
    s->done(s->done_arg, a->rc, a->rc == 0 ? &r : NULL, a->rc < 0 ? why : NULL);
}

static void filed(struct sandbox_client *c, const struct grant_answer *a, int *fds, int nfds, const struct err *why)
{
    struct sandbox *s = c->slots[a->slot].held;
    if (s == NULL || s->filed == NULL || a->generation != s->generation)
        return;                                     /* closed meanwhile */
    sandbox_file_cb cb = s->filed;
    int fd = -1;
    s->filed = NULL;
    if (a->rc == 0 && nfds == 1) {
        fd = fds[0];
        fds[0] = -1;
    }
    cb(s->filed_arg, a->rc, fd, a->rc < 0 ? why : NULL);
}

static void mounted(struct sandbox_client *c, const struct grant_answer *a, int *fds, int nfds, const struct err *why)
{
    struct mounting *m = c->mounting;
    if (m == NULL)
        return;
    c->mounting = m->next;
    if (m->next == NULL)
        c->mounting_last = &c->mounting;
    int fd = a->rc == 0 && nfds == 1 ? fds[0] : -1;
    if (fd >= 0)
        fds[0] = -1;
    m->cb(m->arg, a->rc, fd, a->rc < 0 ? why : NULL);
    free(m);
}

static void lose(struct sandbox_client *c)
{
    struct err err;
    err_set(&err, ERR_LOST, "the jail is gone");
    c->lost = true;
    for (uint32_t i = 0; i < c->slot_count; i++) {
        struct sandbox *s = c->slots[i].held;
        struct waiting *w = c->slots[i].acquiring;
        c->slots[i].ready = false;
        c->slots[i].acquiring = NULL;
        if (s != NULL) {
            bool was = s->running;
            s->lost = true;
            s->running = false;
            sandbox_file_cb cb = s->filed;
            s->filed = NULL;
            if (was)
                s->done(s->done_arg, ERR_LOST, NULL, &err);
            else if (cb != NULL)
                cb(s->filed_arg, ERR_LOST, -1, &err);
        }
        if (w != NULL) {
            c->open--;
            w->cb(w->arg, ERR_LOST, NULL, &err);
            waiting_free(w);
        }
    }
    for (struct waiting *w; (w = c->first) != NULL; ) {
        c->first = w->next;
        c->open--;
        w->cb(w->arg, ERR_LOST, NULL, &err);
        waiting_free(w);
    }
    c->last = &c->first;
    const struct grant_answer lost = { .rc = ERR_LOST };
    while (c->mounting != NULL)
        mounted(c, &lost, NULL, 0, &err);
}

int sandbox_client_dispatch(struct sandbox_client *c, struct err *err)
{
    for (;;) {
        struct grant_answer a;
        int fds[FRAME_FDS_MAX], nfds;
        if (c->lost)
            return err_set(err, ERR_LOST, "the jail is gone");
        int n = frame_recv(c->sock, &a, sizeof a, fds, &nfds, err);
        if (n == ERR_BUSY)
            return 0;
        if (n != (int)sizeof a || a.slot >= c->slot_count) {
            lose(c);
            continue;
        }
        struct err why = { 0 };
        if (a.rc < 0) {
            err_set(&why, a.rc, "%.*s", (int)sizeof a.msg - 1, a.msg);
            why.sys = a.sys;
        }
        if (a.kind == GRANT_READY)
            ready(c, &a, &why);
        else if (a.kind == GRANT_ACQUIRED)
            acquired(c, &a, fds, nfds, &why);
        else if (a.kind == GRANT_DONE)
            done(c, &a, fds, nfds, &why);
        else if (a.kind == GRANT_FILED)
            filed(c, &a, fds, nfds, &why);
        else if (a.kind == GRANT_MOUNTED)
            mounted(c, &a, fds, nfds, &why);
        for (int i = 0; i < nfds; i++)
            if (fds[i] >= 0)
                close(fds[i]);
    }
}
