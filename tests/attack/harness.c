/* harness.c - see harness.h. */
#include "tests/attack/harness.h"
#include "base/own.h"
#include <arpa/inet.h>
#include <sys/mount.h>
#include <sys/prctl.h>

#define SECRET "Zx9-canary-7Qp"
#define OTHER_MS_MAX 12000

static int listen_at(int family, const void *a, socklen_t len)
{
    int s = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    return bind(s, a, len) < 0 || listen(s, 8) < 0 ? -1 : s;
}

void harness_name(const struct attack *a, char out[48])
{
    snprintf(out, 48, "%.*s", (int)strcspn(a->name, "."), a->name);
}

static const struct attack *read_rows(const char *program, size_t *out_count)
{
    char text[128];
    static struct attack rows[256];
    snprintf(text, sizeof text, "%s --list", program);
    FILE *p = popen(text, "r");
    size_t n = p == NULL ? 0 : fread(rows, sizeof rows[0], 256, p);
    *out_count = n;
    return p == NULL || pclose(p) != 0 ? NULL : rows;
}

int harness_open(struct harness *h)
{
    char text[512];
    const char *program = getenv("ASSAY_ATTACKER");
    *h = (struct harness){ .listeners = { -1, -1 }, .leaked_fd = -1, .tree_fd = -1 };
    strcpy(h->dir, "/tmp/assay-attack.XXXXXX");
    if (mkdtemp(h->dir) == NULL)
        return -1;
    snprintf(h->program, sizeof h->program, "%s/attacker", h->dir);
    snprintf(text, sizeof text, "chmod 755 %s && cp %s %s", h->dir, program != NULL ? program : "build/attack/attacker", h->program);
    if (system(text) != 0)
        return -1;
    snprintf(h->host_file, sizeof h->host_file, "%s.secret", h->dir);
    own_file f = fopen(h->host_file, "we");
    if (f == NULL || fputs(SECRET "\n", f) == EOF)
        return -1;
    h->tree_fd = open(h->dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    h->leaked_fd = open("/", O_RDONLY | O_DIRECTORY);           /* not close-on-exec, for leaked_descriptors */
    h->leaked_fd = fcntl(h->leaked_fd, F_DUPFD, 40);

    struct sockaddr_in in = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof in;
    h->listeners[0] = listen_at(AF_INET, &in, sizeof in);
    if (h->listeners[0] < 0 || getsockname(h->listeners[0], (struct sockaddr *)&in, &len) < 0)
        return -1;
    snprintf(h->host_port, sizeof h->host_port, "%d", ntohs(in.sin_port));
    snprintf(h->host_socket, sizeof h->host_socket, "assay-attack-%s", h->host_port);
    char un[110] = { AF_UNIX, 0, 0 };
    memcpy(un + 3, h->host_socket, strlen(h->host_socket));
    h->listeners[1] = listen_at(AF_UNIX, un, (socklen_t)(3 + strlen(h->host_socket)));
    if (h->listeners[1] < 0)
        return -1;
    setenv("ASSAY_TEST_SECRET", SECRET, 1);
    snprintf(h->env[0], sizeof h->env[0], "HOST_FILE=%s", h->host_file);
    snprintf(h->env[1], sizeof h->env[1], "HOST_PORT=%s", h->host_port);
    snprintf(h->env[2], sizeof h->env[2], "HOST_SOCKET=%s", h->host_socket);
    snprintf(h->env[3], sizeof h->env[3], "HOST_DIR=%s", h->dir);
    for (size_t i = 0; i < 4; i++) {
        h->env_list[i] = h->env[i];
        putenv(h->env[i]);
    }
    h->rows = read_rows(h->program, &h->count);
    return h->rows == NULL ? -1 : 0;
}

void harness_jail(struct harness *h)
{
    h->client = box_start(4);
    h->neighbour = box_acquire(h->client, BOX_EMPTY, (struct sandbox_limits){ 0 });
    struct outcome o = box_run(h->client, h->neighbour, "echo neighbour >/tmp/neighbour; echo neighbour >/dev/shm/neighbour");
    outcome_done(&o);
}

void harness_close(struct harness *h)
{
    char text[256];
    sandbox_close(h->neighbour);
    if (h->client != NULL)
        sandbox_client_close(h->client);
    snprintf(text, sizeof text, "rm -rf %s %s", h->dir, h->host_file);
    if (system(text) != 0)
        fprintf(stderr, "left behind: %s\n", h->dir);
}

/* A directory for the part "image" or "tree", filled by a child with its cwd there. Returns its descriptor. */
static int prepared(struct harness *h, const struct attack *a, const char *part, const char *to)
{
    char name[48], text[800];
    harness_name(a, name);
    snprintf(text, sizeof text, "rm -rf %s && mkdir -m 755 %s && cd %s && %s %s %s%s%s%s", to, to, to, h->program, name, part,
             strcmp(part, "tree") == 0 ? " && cp " : "", strcmp(part, "tree") == 0 ? h->program : "", strcmp(part, "tree") == 0 ? " ." : "");
    return system(text) != 0 ? -1 : open(to, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

struct outcome harness_ours(struct harness *h, const struct attack *a, const char *part, struct err *why)
{
    char name[48], command[120], scratch[96];
    bool twin = strcmp(part, "twin") == 0, hostile = !twin && (a->image != NULL || a->tree != NULL);
    struct outcome held = { 0 }, o;
    struct sandbox *beside = NULL;
    struct sandbox_limits l = twin ? (struct sandbox_limits){ 0 } : a->limits;
    if (l.wall_ns == 0)
        l.wall_ns = 30 * SECOND;
    harness_name(a, name);
    snprintf(scratch, sizeof scratch, "%s.made", h->dir);
    own_fd made = hostile ? prepared(h, a, a->image != NULL ? "image" : "tree", scratch) : -1;
    if (hostile && made < 0)
        fail_msg("%s: cannot prepare", name);
    struct sandbox_spec usual = { h->tree_fd, -1, -1, h->profile, NULL }, spec = usual;
    if (hostile && a->image != NULL)
        spec = (struct sandbox_spec){ -1, -1, made, h->profile, NULL };
    else if (hostile)
        spec.tree_fd = made;
    for (int i = 0; !twin && a->earlier != NULL && i < 6; i++) {          /* as many as there are slots, so that one is met again */
        snprintf(command, sizeof command, "exec ./attacker %s earlier", name);   /* alone, or its namespaces would go with it */
        o = box_once(h->client, usual, (struct sandbox_limits){ .wall_ns = SECOND / 2 }, command);
        outcome_done(&o);
    }
    if (!twin && a->holder != NULL) {
        struct err err;
        beside = box_acquire(h->client, usual, (struct sandbox_limits){ .wall_ns = 60 * SECOND });
        snprintf(command, sizeof command, "exec ./attacker %s holder", name);
        struct sandbox_command cmd = { .shell = command, .env = h->env_list };
        assert_int_equal(sandbox_run(beside, &cmd, box_done, &held, &err), 0);
        box_wait(h->client, &held.come, 150);
        if (held.come)
            fail_msg("%s: the holder ended: %d `%s`", name, held.result.value, held.output);
    }
    o = (struct outcome){ 0 };
    int rc = box_try_acquire(h->client, spec, l, &o);
    if (rc < 0) {
        *why = o.err;
        o.rc = rc;
    } else {
        struct sandbox *s = o.sandbox;
        snprintf(command, sizeof command, hostile && a->image != NULL ? "%s %s" : "exec ./attacker %s %s", name, part);
        o = box_run_env(h->client, s, command, h->env_list);
        sandbox_close(s);
    }
    sandbox_close(beside);
    outcome_done(&held);
    if (hostile) {
        snprintf(command, sizeof command, "rm -rf %s", scratch);
        if (system(command) != 0)
            fail_msg("%s stays", scratch);
    }
    return o;
}

/* ---- the bare child: namespaces for what it could break, and no defence ---- */

/* A /dev of its own with the host's nodes: tricks rename and make files there. */
static int own_devices(void)
{
    static const char *const names[] = { "null", "zero", "full", "random", "urandom", "tty", "ttyS0", "kvm", "fuse", "console", "kmsg" };
    if (mkdir("/tmp/dev", 0755) < 0 || mount("t", "/tmp/dev", "tmpfs", 0, "mode=755") < 0 || mkdir("/tmp/dev/shm", 01777) < 0 || mkdir("/tmp/dev/pts", 0755) < 0)
        return -1;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char from[32], to[32];
        struct stat st;
        snprintf(from, sizeof from, "/dev/%s", names[i]);
        snprintf(to, sizeof to, "/tmp/dev/%s", names[i]);
        if (stat(from, &st) == 0 && mknod(to, st.st_mode, st.st_rdev) < 0)
            return -1;
    }
    return mount("/tmp/dev", "/dev", NULL, MS_MOVE, NULL);
}

_Noreturn static void bare_world(const char *program, const char *name, const char *part, const struct attack *a)
{
    int self = open(program, O_RDONLY | O_CLOEXEC);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 || mount("proc", "/proc", "proc", 0, NULL) < 0 ||
        mount(NULL, "/", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL) < 0 || mount("t", "/tmp", "tmpfs", 0, NULL) < 0 ||
        own_devices() < 0 || mount("t", "/dev/shm", "tmpfs", 0, NULL) < 0 || mkdir("/tmp/work", 0755) < 0 || chdir("/tmp/work") < 0)
        _exit(90);
    setenv("ATTACK_BARE", "1", 1);
    static const char *const parts[] = { "tree", "earlier", "holder", NULL };
    pid_t beside = 0;
    bool has[] = { a->tree != NULL, a->earlier != NULL, a->holder != NULL };
    for (size_t i = 0; i < 4; i++) {
        if (i < 3 && !has[i])
            continue;
        const char *run = i < 3 ? parts[i] : part;
        pid_t pid = fork();
        if (pid == 0) {
            char *argv[] = { (char *)(uintptr_t)program, (char *)(uintptr_t)name, (char *)(uintptr_t)run, NULL };
            if (i < 3)
                dup2(open("/dev/null", O_WRONLY), 1);
            fexecve(self, argv, environ);
            _exit(91);
        }
        if (i == 3) {
            int status = 0;
            waitpid(pid, &status, 0);
            if (beside > 0)
                kill(beside, SIGKILL);
            for (int k = 0; k < 150 && waitpid(-1, NULL, WNOHANG) >= 0; k++)   /* what outlives it may still speak */
                usleep(10000);
            _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 92);
        }
        beside = i == 2 ? pid : beside;
        for (int k = 0; k < 15 && waitpid(pid, NULL, WNOHANG) == 0; k++)
            usleep(10000);
    }
    _exit(93);
}

/* What the row allows, for launchers that know limits: 0 is their own default. */
static void export_limits(const struct sandbox_limits *l)
{
    const struct { const char *name; unsigned long long value; } limits[] = {
        { "ATTACK_MEMORY_BYTES", l->memory_bytes }, { "ATTACK_PIDS", l->pids }, { "ATTACK_CPU_PERCENT", l->cpu_percent },
        { "ATTACK_FILE_BYTES", l->file_bytes }, { "ATTACK_DISK_BYTES", l->disk_bytes }, { "ATTACK_DISK_INODES", l->disk_inodes },
    };
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        char text[32];
        snprintf(text, sizeof text, "%llu", limits[i].value);
        setenv(limits[i].name, text, 1);
    }
}

static pid_t other_start(struct harness *h, const struct attack *a, const char *part, const char *adapter, int out)
{
    char name[48], text[1200];
    harness_name(a, name);
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    setpgid(0, 0);
    dup2(out, 1);
    dup2(out, 2);
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    dup2(null, 0);
    if (adapter != NULL) {
        snprintf(text, sizeof text, "exec %s", adapter);
        setenv("ATTACK_DIR", h->dir, 1);
        export_limits(&a->limits);
        execl("/bin/sh", "sh", "-c", text, "sh", h->program, name, part, NULL);
        _exit(94);
    }
    if (unshare(CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC) < 0)
        _exit(95);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    pid_t one = fork();
    if (one == 0)
        bare_world(h->program, name, part, a);
    int status = 0;
    waitpid(one, &status, 0);
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 96);
}

void harness_other(struct harness *h, const struct attack *a, const char *part, const char *adapter, struct run_end *out)
{
    int ends[2];
    pid_t beside = 0;
    bool twin = strcmp(part, "twin") == 0;
    memset(out, 0, offsetof(struct run_end, text));
    if (pipe2(ends, O_CLOEXEC) < 0)
        return;
    own_fd in = ends[0], to = ends[1], null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (adapter != NULL && !twin && a->earlier != NULL) {
        pid_t pid = other_start(h, a, "earlier", adapter, null);
        for (int k = 0; k < 30 && waitpid(pid, NULL, WNOHANG) == 0; k++)
            usleep(10000);
        kill(-pid, SIGKILL);
        waitpid(pid, NULL, WNOHANG);
    }
    if (adapter != NULL && !twin && a->holder != NULL) {
        beside = other_start(h, a, "holder", adapter, null);
        usleep(200000);
    }
    pid_t pid = other_start(h, a, part, adapter, to);
    close(give_fd(&to));
    uint64_t end = clock_mono_ns() + OTHER_MS_MAX * NS_PER_MS;
    for (bool open = true; open; ) {
        uint64_t now = clock_mono_ns();
        struct pollfd p = { .fd = in, .events = POLLIN };
        if (now >= end || poll(&p, 1, (int)((end - now) / NS_PER_MS) + 1) == 0) {
            out->stuck = true;
            break;
        }
        char bytes[65536];
        ssize_t n = read(in, bytes, sizeof bytes);
        open = n > 0;
        /* Of a flood the end is what counts. */
        size_t keep = n <= 0 ? 0 : (size_t)n < sizeof out->text / 2 ? (size_t)n : sizeof out->text / 2;
        if (out->len + keep >= sizeof out->text)
            out->len = 0;
        for (size_t i = 0; i < keep; i++) {
            char c = bytes[(size_t)n - keep + i];
            out->text[out->len++] = c == '\0' ? ' ' : c;
        }
    }
    out->text[out->len] = '\0';
    kill(-pid, SIGKILL);
    kill(pid, SIGKILL);
    waitpid(pid, &out->status, 0);
    if (beside > 0) {
        kill(-beside, SIGKILL);
        waitpid(beside, NULL, 0);
    }
    out->ok = true;
}

static bool among(const char *words, const char *name, size_t len)
{
    for (const char *w = words; *w != '\0'; w += strcspn(w, " "), w += strspn(w, " "))
        if (strcspn(w, " ") == len && strncmp(w, name, len) == 0)
            return true;
    return false;
}

const char *harness_first_got(const char *text, const char *granted)
{
    for (const char *at = text; (at = strstr(at, " GOT")) != NULL; at++) {
        const char *line = at;
        while (line > text && line[-1] != '\n')
            line--;
        if (!among(granted, line, (size_t)(at - line)))
            return line;
    }
    return NULL;
}

bool harness_has_got(const char *text, const char *what)
{
    char line[80];
    snprintf(line, sizeof line, "%s GOT", what);
    for (const char *at = text; (at = strstr(at, line)) != NULL; at++)
        if (at == text || at[-1] == '\n')
            return true;
    return false;
}
