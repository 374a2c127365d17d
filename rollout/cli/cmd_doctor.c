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

/* What is looked at, what follows where it is not as it should be, what to do then, and what was found. */
static void check(struct doctor *d, enum level level, const char *name, const char *effect, const char *advice,
                  const char *fmt, ...) __attribute__((format(printf, 6, 7)));
static void check(struct doctor *d, enum level level, const char *name, const char *effect, const char *advice,
                  const char *fmt, ...)
{
    char detail[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(detail, sizeof detail, fmt, ap);
    va_end(ap);
    if (level == GOOD)
        effect = advice = "";
    d->usable &= level != MISSING;
    if (d->c->json) {
        json_array_append_new(d->checks, json_pack("{s:s,s:s,s:o,s:s,s:o}", "name", name, "status", level_names[level],
                                                   "detail", json_str(detail), "effect", effect, "advice", json_str(advice)));
        return;
    }
    printf("%-8s %-18s ", level_names[level], name);
    print_str(stdout, detail);
    putchar('\n');
    if (effect[0] != '\0')
        printf("%-8s %-18s %s\n", "", "", effect);
    if (advice[0] != '\0')
        printf("%-8s %-18s -> %s\n", "", "", advice);
}

/* --- namespaces and mounts --- */

enum { USER, OTHER_KINDS };
static const struct { int flag; const char *name, *sysctl; } kinds[] = {
    [USER] = { CLONE_NEWUSER, "user", "user" },
    { CLONE_NEWNS, "mount", "mnt" }, { CLONE_NEWPID, "pid", "pid" }, { CLONE_NEWNET, "net", "net" },
    { CLONE_NEWIPC, "ipc", "ipc" }, { CLONE_NEWUTS, "uts", "uts" }, { CLONE_NEWCGROUP, "cgroup", "cgroup" },
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

struct trial { int kind_errno[KINDS], tmpfs_errno, overlay_errno, nested_errno; };

static void write_text(const char *path, const char *text)
{
    own_fd fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd >= 0 && write(fd, text, strlen(text)) < 0)
        return;                             /* the mount that needs it fails and says so */
}

/* As sandbox/mount.c does it: a file system of our own, by the calls for detached mounts. 0 or errno. */
static int try_mount(const char *type, const char *const options[][2], const char *at)
{
    own_fd fs = fsopen(type, FSOPEN_CLOEXEC);
    for (; fs >= 0 && (*options)[0] != NULL; options++)
        if (fsconfig(fs, FSCONFIG_SET_STRING, (*options)[0], (*options)[1], 0) < 0)
            return errno;
    if (fs < 0 || fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
        return errno;
    own_fd mount_fd = fsmount(fs, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID);
    return mount_fd < 0 || move_mount(mount_fd, "", AT_FDCWD, at, MOVE_MOUNT_F_EMPTY_PATH) < 0 ? errno : 0;
}

static void try_mounts(struct trial *t)
{
    static const char *const small[][2] = { { "size", "1m" }, { NULL, NULL } };
    static const char *const layers[][2] = { { "lowerdir", "/tmp/low" }, { "upperdir", "/tmp/up" }, { "workdir", "/tmp/work" },
                                             { NULL, NULL } };
    static const char *const dirs[] = { "/tmp/low", "/tmp/up", "/tmp/work", "/tmp/all" };
    t->tmpfs_errno = mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ? errno : try_mount("tmpfs", small, "/tmp");
    for (size_t i = 0; t->tmpfs_errno == 0 && i < sizeof dirs / sizeof dirs[0]; i++)
        if (mkdir(dirs[i], 0755) < 0)
            t->tmpfs_errno = errno;
    t->overlay_errno = t->tmpfs_errno != 0 ? t->tmpfs_errno : try_mount("overlay", layers, "/tmp/all");
}

/* The user namespace alone, or the rest: in it for who is not root, without it for root, as the jail does. */
static void try_isolation(struct trial *t, bool user, bool rest)
{
    uid_t uid = getuid();
    gid_t gid = getgid();
    if (user) {
        t->kind_errno[USER] = unshare(CLONE_NEWUSER) < 0 ? errno : 0;
        char map[64];
        write_text("/proc/self/setgroups", "deny");
        snprintf(map, sizeof map, "0 %u 1", (unsigned)uid);
        write_text("/proc/self/uid_map", map);
        snprintf(map, sizeof map, "0 %u 1", (unsigned)gid);
        write_text("/proc/self/gid_map", map);
        if (!rest)                          /* one more level, as in the compatible profile */
            t->nested_errno = unshare(CLONE_NEWUSER) < 0 ? errno : 0;
    }
    for (int i = OTHER_KINDS; rest && i < KINDS; i++)
        t->kind_errno[i] = unshare(kinds[i].flag) < 0 ? errno : 0;
    if (rest && t->kind_errno[OTHER_KINDS] == 0)
        try_mounts(t);
}

/* In a child, whose namespaces end with it. */
static bool run_trial(struct trial *t, bool user, bool rest)
{
    int ends[2];
    *t = (struct trial){ 0 };
    if (pipe2(ends, O_CLOEXEC) < 0)
        return false;
    own_fd from = ends[0], to = ends[1];
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        try_isolation(t, user, rest);
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
    struct trial t, user;
    bool root = geteuid() == 0;
    check(d, root ? GOOD : WEAK, "privileges",
          "sandboxes live inside this user's own namespace: device files are the host's, what the kernel counts per user is "
          "shared, the user's groups stay, /usr cannot be changed, trees of other owners are copied",
          "run as root where strangers' code is run", root ? "root" : "uid %u, not root", (unsigned)geteuid());
    if (!run_trial(&t, !root, true) || (root && !run_trial(&user, true, false))) {
        check(d, MISSING, "namespaces", "no sandbox can be made", "see the kernel log", "the trial process failed");
        return;
    }
    if (root) {
        t.kind_errno[USER] = user.kind_errno[USER];
        check(d, user.nested_errno == 0 ? GOOD : WEAK, "profiles",
              "tasks with the profile compatible find no namespaces inside",
              "sysctl user.max_user_namespaces=15000; where AppArmor restricts them, "
              "kernel.apparmor_restrict_unprivileged_userns=0",
              user.nested_errno == 0 ? "strict, compatible" : "strict; nested user namespaces: %s",
              strerror(user.nested_errno));
    }
    int bad = 0;
    while (bad < KINDS && t.kind_errno[bad] == 0)
        bad++;
    char advice[320] = "";
    if (bad < KINDS)
        snprintf(advice, sizeof advice, "sysctl user.max_%s_namespaces=15000%s; in a container, a seccomp profile that permits "
                 "unshare", kinds[bad].sysctl, bad == USER ? ", kernel.unprivileged_userns_clone=1 where it exists" : "");
    if (bad == KINDS)
        check(d, GOOD, "namespaces", "", "", "user, mount, pid, net, ipc, uts, cgroup");
    else
        check(d, MISSING, "namespaces", "no sandbox can be made: foreign code would run with the rights of this machine", advice,
              "%s namespaces: %s", kinds[bad].name,
              t.kind_errno[bad] == ENOSPC ? "their number is limited, and the limit is reached" : strerror(t.kind_errno[bad]));
    if (t.kind_errno[OTHER_KINDS] != 0)
        return;                             /* mounts cannot be tried, and why is said */
    check(d, t.tmpfs_errno == 0 ? GOOD : MISSING, "mounts", "no sandbox can be made: it has no file system of its own",
          "kernel 5.12 or newer; in a container, rights and a seccomp profile that permit fsopen, fsmount and move_mount",
          t.tmpfs_errno == 0 ? "detached mounts, tmpfs" : "detached tmpfs: %s", strerror(t.tmpfs_errno));
    if (t.tmpfs_errno == 0)
        check(d, t.overlay_errno == 0 ? GOOD : MISSING, "overlay",
              "no sandbox can be made: its writable layer lies over the host's files",
              "load the module (modprobe overlay), or a kernel with CONFIG_OVERLAY_FS",
              t.overlay_errno == 0 ? "overlay over tmpfs"
              : t.overlay_errno == ENODEV ? "the kernel has no overlay file system (%s)" : "overlay: %s",
              strerror(t.overlay_errno));
}

/* --- kernel calls --- */

static void check_kernel(struct doctor *d)
{
    struct utsname u = { 0 };
    uname(&u);
    unsigned major = 0, minor = 0;
    bool known = sscanf(u.release, "%u.%u", &major, &minor) == 2;
    check(d, known && (major > 5 || (major == 5 && minor >= 12)) ? GOOD : WEAK, "kernel",
          "calls that sandboxes need may be missing", "5.12 or newer is what this is tested on", "%s %s", u.sysname, u.release);
    int pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0);
    check(d, pidfd >= 0 ? GOOD : MISSING, "pidfd",
          "no sandbox can be made: runs are ended by it",
          "kernel 5.3 or newer; in a container, a seccomp profile that permits pidfd_open",
          "%s", pidfd >= 0 ? "pidfd_open works" : strerror(errno));
    if (pidfd >= 0)
        close(pidfd);
    uint32_t action = SECCOMP_RET_ERRNO;
    bool seccomp = syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) == 0;
    check(d, seccomp ? GOOD : MISSING, "seccomp", "no sandbox can be made: system calls are filtered by it",
          "a kernel with CONFIG_SECCOMP_FILTER", "%s",
          seccomp ? "filters with errno" : strerror(errno));
    long abi = syscall(SYS_landlock_create_ruleset, NULL, (size_t)0, LANDLOCK_CREATE_RULESET_VERSION);
    if (abi >= 6)
        check(d, GOOD, "landlock", "", "", "ABI %ld", abi);
    else if (abi >= 2)
        check(d, WEAK, "landlock", "a sandbox's second fence holds for files, not for signals and abstract sockets",
              "kernel 6.12 or newer", "ABI %ld", abi);
    else if (abi == 1)
        check(d, WEAK, "landlock", "sandboxes have no second fence: this version would forbid renames between directories",
              "kernel 5.19 or newer; 6.12 for all of it", "ABI 1");
    else
        check(d, WEAK, "landlock", "sandboxes have no second fence; the workers that parse patches and reports are "
              "confined by seccomp and their user only",
              "kernel 5.13 or newer, booted with lsm=landlock,... ; in a container, a seccomp profile that permits landlock_*",
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

/* May groups be made in our own group of version 2, or beside it? As sandbox/cgroup.c tries them. */
static bool v2_writable(const char *point)
{
    char line[512], path[4700];
    own_file f = fopen("/proc/self/cgroup", "re");
    bool may = access(point, W_OK) == 0;
    while (f != NULL && !may && fgets(line, sizeof line, f) != NULL) {
        if (strncmp(line, "0::/", 4) != 0)
            continue;
        line[strcspn(line, "\n")] = '\0';
        snprintf(path, sizeof path, "%s%s", point, line + 3);
        may = access(path, W_OK) == 0;
        if (!may) {
            *strrchr(path, '/') = '\0';
            may = access(path, W_OK) == 0;
        }
    }
    return may;
}

static void cgroup_line(struct cgroups *g, const char *point, const char *type, const char *options)
{
    bool writable = strcmp(type, "cgroup2") == 0 ? v2_writable(point) : access(point, W_OK) == 0;
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

/* As sandbox/cgroup.c chooses: v1 with memory and pids, else v2 with both, else none of them. */
static void check_limits(struct doctor *d)
{
    struct cgroups g;
    read_cgroups(&g);
    bool v1 = g.v1_memory && g.v1_pids, v2 = !v1 && g.v2_memory && g.v2_pids;
    bool time = v2 || (v1 && g.v1_cpuacct), share = (v2 && g.v2_cpu) || (v1 && g.v1_cpu);
    const char *by = v1 ? "cgroup v1" : v2 ? "cgroup v2" : "rlimit";
    char lacks[64];
    snprintf(lacks, sizeof lacks, "%s%s%s", g.v1_memory || g.v2_memory ? "" : " memory", g.v1_pids || g.v2_pids ? "" : " pids",
             (g.v1_cpu && g.v1_cpuacct) || g.v2_cpu ? "" : " cpu");
    check(d, time && share ? GOOD : WEAK, "cgroup controllers",
          v1 || v2 ? "a run's CPU time or share is not limited"
             : "memory, tasks and CPU time are limited per process, not for a run as a whole",
          "mount cgroup2 with memory, pids and cpu, writable (in a container: a delegated group; for a user: start it by "
          "`systemd-run --user --scope`), or the v1 hierarchies of these",
          "v1: %s; v2: %s%s%s", g.v1_seen[0] != '\0' ? g.v1_seen : "none writable",
          !g.v2 ? "none writable" : g.v2_seen[0] != '\0' ? g.v2_seen : "mounted, no controllers",
          lacks[0] != '\0' ? "; missing:" : "", lacks);
    if (!d->c->json)
        puts("\nlimits, and what enforces them here");
    limit(d, "wall", "assay-jail", "its timer kills the whole tree");
    limit(d, "cpu", v1 && !time ? "none" : by, "CPU seconds of the tree; an rlimit counts per process");
    limit(d, "memory", by, "an rlimit counts per process");
    limit(d, "pids", by, "tasks at once");
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
    check(d, available >= 1048576 ? GOOD : WEAK, "memory", "runs may be ended for want of memory",
          "a sandbox may take what its task allows: keep 1 GiB and more free",
          "%llu MiB, %llu free", total / 1024, available / 1024);
    check(d, GOOD, "processors", "", "", "%ld", sysconf(_SC_NPROCESSORS_ONLN));

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
    check(d, !writable ? MISSING : mib < 1024 ? WEAK : GOOD, "state",
          writable ? "little room for tasks, trees and the log" : "nothing can be kept: no server can start",
          "choose another place with --state DIR or ASSAY_STATE",
          "%s: %s, %llu MiB free", d->c->state, writable ? "writable" : "not writable", mib);
}

static void check_programs(struct doctor *d)
{
    static const struct { const char *name; enum level without; const char *effect, *advice; } ours[] = {
        { "assayd", MISSING, "there is no server", "run `make`, keep the programs in one directory" },
        { "assay-jail", MISSING, "no sandbox can be made", "run `make`, keep the programs in one directory" },
        { "assay-worker", MISSING, "no patch or report can be read", "run `make`, keep the programs in one directory" },
        { "assay-learner", WEAK, "`assay learn` cannot run", "run `make`, keep the programs in one directory" },
    };
    for (size_t i = 0; i < sizeof ours / sizeof ours[0]; i++) {
        struct err err = { 0 };
        const char *path = NULL;
        if (server_program(&path, &d->c->arena, ours[i].name, &err) == 0)
            check(d, GOOD, ours[i].name, "", "", "%s", path);
        else
            check(d, ours[i].without, ours[i].name, ours[i].effect, ours[i].advice, "not found");
    }
    /* The default environment is this host: what tests call must be here. */
    static const char *const tools[] = { "/usr/bin/git", "/usr/bin/python3", "/usr/bin/perl" };
    for (size_t i = 0; i < sizeof tools / sizeof tools[0]; i++)
        check(d, access(tools[i], X_OK) == 0 ? GOOD : WEAK, strrchr(tools[i], '/') + 1,
              "tests that call it fail: the default environment is this host", "install it if your tasks' tests call it",
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
