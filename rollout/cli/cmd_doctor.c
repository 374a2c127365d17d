/*
 * cmd_doctor.c - `assay doctor`: what this machine offers, which limits are enforced by what, what to do.
 *
 * Features are tried, not looked up: a child makes the namespaces and mounts an overlay in them, so
 * that a container's seccomp filter or a sysctl that forbids them is seen as what it is.
 */
#include "rollout/cli/cli.h"
#include "rollout/cli/print.h"
#include "base/own.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>

enum level { GOOD, WEAK, MISSING };
static const char *const level_names[] = { "ok", "weak", "missing" };

struct doctor {
    struct cli *c;
    json_t *checks, *limits;
    bool usable;
};

static void check(struct doctor *d, enum level level, const char *name, const char *advice, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
static void check(struct doctor *d, enum level level, const char *name, const char *advice, const char *fmt, ...)
{
    char detail[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(detail, sizeof detail, fmt, ap);
    va_end(ap);
    if (level == GOOD)
        advice = "";
    d->usable &= level != MISSING;
    if (d->c->json) {
        json_array_append_new(d->checks, json_pack("{s:s,s:s,s:o,s:o}", "name", name, "status", level_names[level],
                                                   "detail", json_str(detail), "advice", json_str(advice)));
        return;
    }
    printf("%-8s %-18s ", level_names[level], name);
    print_str(stdout, detail);
    putchar('\n');
    if (advice[0] != '\0')
        printf("%-8s %-18s -> %s\n", "", "", advice);
}

/* --- namespaces and overlay --- */

struct trial { int unshare_errno, tmpfs_errno, overlay_errno; };

static void write_text(const char *path, const char *text)
{
    own_fd fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd >= 0 && write(fd, text, strlen(text)) < 0)
        return;                             /* the mount that needs it fails and says so */
}

static void try_isolation(struct trial *t, int flags, uid_t uid, gid_t gid)
{
    if (unshare(flags) < 0) {
        t->unshare_errno = errno;
        return;
    }
    if ((flags & CLONE_NEWUSER) != 0) {
        char map[64];
        write_text("/proc/self/setgroups", "deny");
        snprintf(map, sizeof map, "0 %u 1", (unsigned)uid);
        write_text("/proc/self/uid_map", map);
        snprintf(map, sizeof map, "0 %u 1", (unsigned)gid);
        write_text("/proc/self/gid_map", map);
    }
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 || mount("tmpfs", "/tmp", "tmpfs", 0, "size=1m") < 0) {
        t->tmpfs_errno = errno;
        return;
    }
    if (mkdir("/tmp/low", 0755) < 0 || mkdir("/tmp/up", 0755) < 0 || mkdir("/tmp/work", 0755) < 0
        || mkdir("/tmp/all", 0755) < 0
        || mount("overlay", "/tmp/all", "overlay", 0, "lowerdir=/tmp/low,upperdir=/tmp/up,workdir=/tmp/work") < 0)
        t->overlay_errno = errno;
}

/* In a child, whose namespaces end with it. */
static bool run_trial(struct trial *t, int flags)
{
    int ends[2];
    *t = (struct trial){ 0 };
    if (pipe2(ends, O_CLOEXEC) < 0)
        return false;
    own_fd from = ends[0], to = ends[1];
    uid_t uid = getuid();
    gid_t gid = getgid();
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        try_isolation(t, flags, uid, gid);
        _exit(write(to, t, sizeof *t) == (ssize_t)sizeof *t ? 0 : 1);
    }
    close(give_fd(&to));
    bool whole = pid > 0 && read(from, t, sizeof *t) == (ssize_t)sizeof *t;
    while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
    return whole;
}

static void check_isolation(struct doctor *d)
{
    const int kinds = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP;
    struct trial t;
    bool root = geteuid() == 0;
    check(d, root ? GOOD : MISSING, "privileges", "assay-jail needs root (or setuid root): run as root",
          root ? "root" : "uid %u",
          (unsigned)geteuid());
    if (!run_trial(&t, kinds | CLONE_NEWUSER)) {
        check(d, MISSING, "namespaces", "see the kernel log", "the trial process failed");
        return;
    }
    if (t.unshare_errno != 0)
        check(d, MISSING, "namespaces", "allow user namespaces: sysctl user.max_user_namespaces=15000, "
              "kernel.unprivileged_userns_clone=1, and a container runtime's seccomp profile must permit unshare",
              "user, mount, pid, net, ipc, uts, cgroup: %s", strerror(t.unshare_errno));
    else
        check(d, GOOD, "namespaces", "", "user, mount, pid, net, ipc, uts, cgroup");
    struct trial plain = t;
    if (root && (t.unshare_errno != 0 || t.tmpfs_errno != 0 || t.overlay_errno != 0) && !run_trial(&plain, kinds))
        plain = t;
    int failed = plain.unshare_errno != 0 ? plain.unshare_errno : plain.tmpfs_errno != 0 ? plain.tmpfs_errno
               : plain.overlay_errno;
    check(d, failed == 0 ? GOOD : MISSING, "overlay", "load the module (modprobe overlay) and, in a container, allow mount",
          failed == 0 ? "tmpfs and overlay mount" : "%s", strerror(failed));
}

/* --- kernel calls --- */

static void check_kernel(struct doctor *d)
{
    struct utsname u = { 0 };
    uname(&u);
    unsigned major = 0, minor = 0;
    bool known = sscanf(u.release, "%u.%u", &major, &minor) == 2;
    check(d, known && (major > 5 || (major == 5 && minor >= 10)) ? GOOD : WEAK, "kernel",
          "5.10 or newer is what this is tested on", "%s %s", u.sysname, u.release);
    int pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0);
    check(d, pidfd >= 0 ? GOOD : MISSING, "pidfd", "kernel 5.3 or newer, and a seccomp profile that permits pidfd_open",
          "%s", pidfd >= 0 ? "pidfd_open works" : strerror(errno));
    if (pidfd >= 0)
        close(pidfd);
    uint32_t action = SECCOMP_RET_ERRNO;
    bool seccomp = syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) == 0;
    check(d, seccomp ? GOOD : MISSING, "seccomp", "a kernel with CONFIG_SECCOMP_FILTER", "%s",
          seccomp ? "filters with errno" : strerror(errno));
    long abi = syscall(SYS_landlock_create_ruleset, NULL, (size_t)0, LANDLOCK_CREATE_RULESET_VERSION);
    if (abi > 0)
        check(d, GOOD, "landlock", "", "ABI %ld", abi);
    else
        check(d, WEAK, "landlock", "boot with lsm=landlock,... ; without it workers are confined by seccomp and their user only",
              "%s", strerror(errno));
}

/* --- cgroups and what they enforce --- */

struct cgroups {
    bool v1_memory, v1_pids, v1_cpu, v1_cpuacct;    /* mounted and writable */
    bool v2, v2_memory, v2_pids, v2_cpu;
    char v1_seen[160], v2_seen[160];
};

static bool has_word(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *p = list; (p = strstr(p, word)) != NULL; p += n)
        if ((p == list || strchr(", \n", p[-1]) != NULL) && (p[n] == '\0' || strchr(", \n", p[n]) != NULL))
            return true;
    return false;
}

static void cgroup_line(struct cgroups *g, const char *point, const char *type, const char *options)
{
    bool writable = access(point, W_OK) == 0;
    if (strcmp(type, "cgroup") == 0 && writable) {
        static const char *const names[] = { "memory", "pids", "cpu", "cpuacct" };
        bool *flags[] = { &g->v1_memory, &g->v1_pids, &g->v1_cpu, &g->v1_cpuacct };
        for (size_t i = 0; i < 4; i++)
            if (has_word(options, names[i])) {
                *flags[i] = true;
                size_t n = strlen(g->v1_seen);
                snprintf(g->v1_seen + n, sizeof g->v1_seen - n, "%s%s", n > 0 ? " " : "", names[i]);
            }
    } else if (strcmp(type, "cgroup2") == 0 && writable) {
        g->v2 = true;
        char path[4200], list[512];
        snprintf(path, sizeof path, "%s/cgroup.controllers", point);
        own_fd fd = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t n = fd >= 0 ? read(fd, list, sizeof list - 1) : -1;
        if (n <= 0)
            return;
        list[n] = '\0';
        g->v2_memory = has_word(list, "memory");
        g->v2_pids = has_word(list, "pids");
        g->v2_cpu = has_word(list, "cpu");
        snprintf(g->v2_seen, sizeof g->v2_seen, "%s%s%s", g->v2_memory ? "memory " : "", g->v2_pids ? "pids " : "",
                 g->v2_cpu ? "cpu" : "");
    }
}

static void read_cgroups(struct cgroups *g)
{
    own_file f = fopen("/proc/self/mountinfo", "re");
    own_mem char *line = NULL;
    size_t cap = 0;
    *g = (struct cgroups){ 0 };
    while (f != NULL && getline(&line, &cap, f) > 0) {
        /* id parent maj:min root POINT options... - TYPE source SUPER */
        char point[4096], type[64], super[256];
        char *dash = strstr(line, " - ");
        if (dash != NULL && sscanf(line, "%*s %*s %*s %*s %4095s", point) == 1
            && sscanf(dash, " - %63s %*s %255s", type, super) == 2)
            cgroup_line(g, point, type, super);
    }
}

static void limit(struct doctor *d, const char *name, const char *by, const char *note)
{
    if (d->c->json)
        json_object_set_new(d->limits, name, json_string(by));
    else
        printf("  %-10s %-12s %s\n", name, by, note);
}

static const char *by_cgroup(bool v1, bool v2, const char *otherwise)
{
    return v2 ? "cgroup v2" : v1 ? "cgroup v1" : otherwise;
}

static void check_limits(struct doctor *d)
{
    struct cgroups g;
    read_cgroups(&g);
    check(d, g.v1_memory || g.v2_memory ? GOOD : WEAK, "cgroup memory",
          "mount cgroup2 with the memory controller (or v1 memory), writable; without it memory is held by rlimits per process",
          "v1: %s; v2: %s", g.v1_seen[0] != '\0' ? g.v1_seen : "none writable",
          !g.v2 ? "none writable" : g.v2_seen[0] != '\0' ? g.v2_seen : "mounted, no controllers");
    if (!d->c->json)
        puts("\nlimits, and what enforces them here");
    limit(d, "wall", "assay-jail", "its timer kills the whole tree");
    limit(d, "cpu", by_cgroup(g.v1_cpuacct, g.v2_cpu, "rlimit"), "CPU seconds of the tree; an rlimit counts per process");
    limit(d, "memory", by_cgroup(g.v1_memory, g.v2_memory, "rlimit"), "an rlimit counts per process");
    limit(d, "pids", by_cgroup(g.v1_pids, g.v2_pids, "rlimit"), "tasks at once");
    limit(d, "output", "assay-jail", "stdout and stderr together");
    limit(d, "file", "rlimit", "largest single file");
    limit(d, "disk", "tmpfs", "size and inodes of the private writable layer");
    if (!d->c->json)
        putchar('\n');
}

/* --- machine and programs --- */

static void check_machine(struct doctor *d)
{
    own_file f = fopen("/proc/meminfo", "re");
    char line[128];
    unsigned long long total = 0, available = 0;
    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        (void)sscanf(line, "MemTotal: %llu", &total);
        (void)sscanf(line, "MemAvailable: %llu", &available);
    }
    check(d, available >= 1048576 ? GOOD : WEAK, "memory", "a sandbox may take what its task allows: keep 1 GiB and more free",
          "%llu MiB, %llu free", total / 1024, available / 1024);
    check(d, GOOD, "processors", "", "%ld", sysconf(_SC_NPROCESSORS_ONLN));

    /* The state directory's file system, or that of the nearest directory above it which is there. */
    char path[4096];
    snprintf(path, sizeof path, "%s", d->c->state);
    struct statvfs s;
    while (statvfs(path, &s) < 0 && strrchr(path, '/') != NULL && strcmp(path, "/") != 0) {
        char *slash = strrchr(path, '/');
        slash[slash == path ? 1 : 0] = '\0';
    }
    unsigned long long mib = statvfs(path, &s) == 0 ? (unsigned long long)s.f_bavail * s.f_frsize >> 20 : 0;
    bool writable = access(path, W_OK) == 0;
    check(d, !writable ? MISSING : mib < 1024 ? WEAK : GOOD, "state", "choose another place with --state DIR or ASSAY_STATE",
          "%s: %s, %llu MiB free", d->c->state, writable ? "writable" : "not writable", mib);
}

static void check_programs(struct doctor *d)
{
    static const struct { const char *name; enum level without; const char *advice; } ours[] = {
        { "assayd", MISSING, "the server: run `make`, keep the programs in one directory" },
        { "assay-jail", MISSING, "makes the sandboxes: run `make`, keep the programs in one directory" },
        { "assay-worker", MISSING, "parses patches and reports: run `make`, keep the programs in one directory" },
        { "assay-learner", WEAK, "`assay learn` needs it: run `make`, keep the programs in one directory" },
    };
    for (size_t i = 0; i < sizeof ours / sizeof ours[0]; i++) {
        struct err err = { 0 };
        const char *path = NULL;
        if (server_program(&path, &d->c->arena, ours[i].name, &err) == 0)
            check(d, GOOD, ours[i].name, "", "%s", path);
        else
            check(d, ours[i].without, ours[i].name, ours[i].advice, "not found");
    }
    /* The default environment is this host: what tests call must be here. */
    static const char *const tools[] = { "/usr/bin/git", "/usr/bin/python3", "/usr/bin/perl" };
    for (size_t i = 0; i < sizeof tools / sizeof tools[0]; i++)
        check(d, access(tools[i], X_OK) == 0 ? GOOD : WEAK, strrchr(tools[i], '/') + 1,
              "the default environment is this host: install it if your tasks' tests call it",
              "%s", access(tools[i], X_OK) == 0 ? tools[i] : "not found");
}

int cmd_doctor(struct cli *c, struct err *err)
{
    struct doctor d = { .c = c, .checks = json_array(), .limits = json_object(), .usable = true };
    if (d.checks == NULL || d.limits == NULL)
        return err_set(err, ERR_LIMIT, "out of memory");
    check_kernel(&d);
    check_isolation(&d);
    check_limits(&d);
    check_machine(&d);
    check_programs(&d);
    int rc = 0;
    if (c->json)
        rc = print_json(stdout, json_pack("{s:b,s:O,s:O}", "ok", d.usable, "checks", d.checks, "limits", d.limits), true, err);
    else
        puts(d.usable ? "\nevaluations can run here" : "\nevaluations cannot run here: see what is missing above");
    json_decref(d.checks);
    json_decref(d.limits);
    return rc < 0 ? rc : d.usable ? 0 : err_info(ERR_UNAVAILABLE)->exit_status;
}
