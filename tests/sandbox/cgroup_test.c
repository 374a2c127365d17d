/*
 * Control groups of version 2: limits to the byte, a peak of each sandbox's own, a place wherever the client was started.
 * A host without such groups skips all of it; `make vm-check` runs it on one that has nothing else.
 */
#include "tests/sandbox/box.h"
#include "base/own.h"
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define TOP "/sys/fs/cgroup"
#define MIB ((uint64_t)1 << 20)
static const struct sandbox_limits usual = { .wall_ns = 60 * NS_PER_S, .memory_bytes = 256 * MIB, .pids = 64 };

/* ---- looking ---- */

/* A file's text without its last newline; "" where there is none. */
static const char *text_of(const char *fmt, ...)
{
    static char text[4][4096];
    static unsigned turn;
    char path[512], *out = text[turn++ % 4];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(path, sizeof path, fmt, ap);
    va_end(ap);
    own_fd fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, out, sizeof text[0] - 1);
    out[n > 0 ? n : 0] = '\0';
    if (n > 0 && out[n - 1] == '\n')
        out[n - 1] = '\0';
    return out;
}

static int put(const char *path, const char *text)
{
    own_fd fd = open(path, O_WRONLY | O_CLOEXEC);
    return fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text) ? 0 : -1;
}

/* First line of a shell command's output. */
static const char *said(const char *fmt, ...)
{
    static char line[512];
    char command[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(command, sizeof command, fmt, ap);
    va_end(ap);
    FILE *p = popen(command, "re");
    if (p == NULL || fgets(line, sizeof line, p) == NULL)
        line[0] = '\0';
    if (p != NULL)
        pclose(p);
    line[strcspn(line, "\n")] = '\0';
    return line;
}

/* Our own group, as /proc tells it. */
static const char *own_group(void) { return strchr(strchr(text_of("/proc/self/cgroup"), ':') + 1, ':') + 1; }

/* Directory of the jails that were started by this process, below `where`; "" without one. */
static const char *base_below(const char *where)
{
    return said("for d in $(find %s -type d -name 'assay-jail.*'); do p=${d##*assay-jail.}; "
                "grep -q \"^PPid:[[:space:]]*%d$\" /proc/${p%%%%.*}/status 2>/dev/null && echo $d; done", where,
                (int)getpid());
}

static int need_v2(void **state)
{
    (void)state;
    if (strstr(text_of(TOP "/cgroup.controllers"), "memory") == NULL || geteuid() != 0) {
        printf("SKIPPED: no control groups of version 2 with controllers at " TOP ", or not root: see make vm-check\n");
        exit(0);
    }
    return put(TOP "/cgroup.subtree_control", "+memory +pids +cpu");
}

/* ---- limits and figures ---- */

static void limits_are_exact(void **state)
{
    (void)state;
    struct sandbox_client *c = box_start(1);
    struct sandbox_limits l = { .wall_ns = 60 * NS_PER_S, .memory_bytes = 96 * MIB + 4096, .pids = 10, .cpu_percent = 150 };
    struct err err = { 0 };
    struct outcome o = { 0 };
    struct sandbox *s = box_acquire(c, BOX_EMPTY, l);
    assert_int_equal(sandbox_run(s, &(struct sandbox_command){ .shell = "exec sleep 30" }, box_done, &o, &err), 0);
    char dir[512];
    snprintf(dir, sizeof dir, "%s", said("grep -lx %llu $(find %s -name memory.max) | head -1",
                                         (unsigned long long)l.memory_bytes, base_below(TOP)));
    assert_non_null(strrchr(dir, '/'));
    *strrchr(dir, '/') = '\0';
    assert_string_equal(text_of("%s/memory.swap.max", dir), access("/proc/swaps", F_OK) == 0 ? "0" : "");
    assert_string_equal(text_of("%s/memory.oom.group", dir), "0");
    assert_string_equal(text_of("%s/pids.max", dir), "13");             /* three are ours */
    assert_string_equal(text_of("%s/cpu.max", dir), "150000 100000");
    sandbox_kill(s);
    assert_int_equal(box_wait(c, &o.come, 20000), 0);
    assert_int_equal(o.result.enforced_by[SANDBOX_LIMIT_MEMORY], SANDBOX_BY_CGROUP_V2);
    outcome_done(&o);
    o = box_run(c, s, "exec python3 -c 'import os, time\nn = 1\ntry:\n while os.fork() or time.sleep(9):\n  n += 1\n"
                      "except OSError: print(n)'");
    assert_string_equal(o.output, "10\n");
    assert_true(o.result.limits_hit & SANDBOX_HIT_PIDS);
    outcome_done(&o);
    /* With swap or without: the limit holds for both together. */
    o = box_run(c, s, "exec python3 -c 'b = []\nwhile True: b.append(bytearray(b\"x\" * (1 << 20)))'");
    assert_int_equal(o.result.end, SANDBOX_END_MEMORY_LIMIT);
    assert_in_range(o.result.memory_bytes_peak, 90 * MIB, 96 * MIB + 4096);
    outcome_done(&o);
    o = box_run(c, s, "{ sh -c 'kill -9 $$'; echo $?; } 2>/dev/null");  /* nothing of that is told of the next */
    assert_string_equal(o.output, "137\n");
    assert_int_equal(o.result.limits_hit, 0);
    outcome_done(&o);
    sandbox_close(s);
    sandbox_client_close(c);
}

/* The slot's directory serves again where its peak can begin anew, and else is another. */
static void peak_is_the_sandboxes_own(void **state)
{
    (void)state;
    struct sandbox_client *c = box_start(1);
    char was[512] = "", base[512];
    snprintf(base, sizeof base, "%s", base_below(TOP));
    for (int i = 0; i < 8; i++) {
        struct outcome o = box_once(c, BOX_EMPTY, usual, i % 2 ? "exec true" : "exec python3 -c 'x = b\"x\" * (150 << 20)'");
        assert_int_equal(o.result.end, SANDBOX_END_EXIT);
        if (i % 2)
            assert_in_range(o.result.memory_bytes_peak, 1, 100 * MIB);
        else
            assert_in_range(o.result.memory_bytes_peak, 150 * MIB, 256 * MIB);
        assert_true(o.result.cpu_ns > 0 && o.result.cpu_ns < 60 * NS_PER_S);
        outcome_done(&o);
        bool never = false;
        box_wait(c, &never, 500);               /* slots are made anew */
        if (i == 1)
            snprintf(was, sizeof was, "%s", said("echo $(ls -di %s/slot-*)", base));
    }
    char probe[600];
    snprintf(probe, sizeof probe, "%s/slot-0/memory.peak", base);
    own_fd peak = open(probe, O_RDWR | O_CLOEXEC);
    bool resets = peak >= 0 && write(peak, "0", 1) == 1;
    assert_int_equal(strcmp(was, said("echo $(ls -di %s/slot-*)", base)) == 0, resets);
    sandbox_client_close(c);
    assert_int_equal(access(base, F_OK), -1);
}

/* ---- places ---- */

/* As a child of ours in `group`: 0 when all is well there. */
static int in_group(const char *group, int (*work)(const char *group))
{
    pid_t pid = fork();
    if (pid == 0) {
        char path[300];
        snprintf(path, sizeof path, "%s/cgroup.procs", group);
        int rc = put(path, "0") < 0 ? 99 : work(group);
        fflush(NULL);
        _exit(rc);
    }
    int status;
    waitpid(pid, &status, 0);
    return status;
}

static pid_t stranger_in(const char *group)
{
    char path[300], text[16];
    pid_t pid = fork();
    if (pid == 0) {
        pause();
        _exit(0);
    }
    snprintf(path, sizeof path, "%s/cgroup.procs", group);
    snprintf(text, sizeof text, "%d", (int)pid);
    assert_int_equal(put(path, text), 0);
    return pid;
}

static void end_stranger(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

/* Does the memory limit hold? Else why not, on standard error. */
static bool held(struct sandbox_client *c)
{
    struct sandbox_limits l = usual;
    l.memory_bytes = 64 * MIB;
    struct outcome o = box_once(c, BOX_EMPTY, l, "exec tail /dev/zero");
    bool good = o.result.enforced_by[SANDBOX_LIMIT_MEMORY] == SANDBOX_BY_CGROUP_V2 &&
                o.result.end == SANDBOX_END_MEMORY_LIMIT;
    if (!good)
        fprintf(stderr, "enforced by %d, end %d\n", o.result.enforced_by[SANDBOX_LIMIT_MEMORY], (int)o.result.end);
    outcome_done(&o);
    return good;
}

static int not_so(const char *group, int line, const char *what)
{
    fprintf(stderr, "line %d: %s; own group %s, there are %s\n", line, what, own_group(),
            said("echo $(cd %s && for d in $(find . -type d); do "
                 "echo $d: $(wc -l <$d/cgroup.procs), $(cat $d/cgroup.subtree_control)';'; done)", group));
    return 1;
}
#define REQUIRE(what) do { if (!(what)) return not_so(group, __LINE__, #what); } while (0)

static bool ends_in(const char *text, const char *end)
{
    size_t n = strlen(text), k = strlen(end);
    return n >= k && strcmp(text + n - k, end) == 0;
}
static bool nothing_below(const char *group) { return said("find %s -mindepth 1 -type d", group)[0] == '\0'; }

static int as_service(const char *group)
{
    struct sandbox_client *c = box_start(1);
    REQUIRE(ends_in(own_group(), "/assay-client"));
    REQUIRE(strncmp(base_below(TOP), group, strlen(group)) == 0);
    REQUIRE(held(c));
    struct sandbox_client *second = box_start(1);               /* at the same time, then alone */
    REQUIRE(held(second));
    sandbox_client_close(c);
    REQUIRE(ends_in(own_group(), "/assay-client") && held(second));
    sandbox_client_close(second);
    REQUIRE(ends_in(own_group(), strrchr(group, '/')) && nothing_below(group));
    REQUIRE(text_of("%s/cgroup.subtree_control", group)[0] == '\0');
    c = box_start(1);                                           /* its guardian dies: another jail finds its way */
    kill((pid_t)atoi(said("pgrep -P %d assay-jail", (int)getpid())), SIGKILL);
    sandbox_client_close(c);
    c = box_start(1);
    REQUIRE(held(c));
    sandbox_client_close(c);
    REQUIRE(ends_in(own_group(), strrchr(group, '/')) && nothing_below(group));
    return 0;
}

static void service_keeps_its_processes_in_a_leaf(void **state)
{
    (void)state;
    mkdir(TOP "/t-service", 0755);
    assert_int_equal(in_group(TOP "/t-service", as_service), 0);
    assert_int_equal(rmdir(TOP "/t-service"), 0);
}

static int as_login(const char *group)
{
    struct sandbox_client *c = box_start(1);
    REQUIRE(ends_in(own_group(), strrchr(group, '/')));         /* nobody was moved */
    REQUIRE(strncmp(base_below(TOP), TOP "/t-user/assay-jail.", sizeof TOP "/t-user/assay-jail." - 1) == 0);
    REQUIRE(held(c));
    sandbox_client_close(c);
    REQUIRE(nothing_below(group) && said("find " TOP "/t-user -name 'assay*'")[0] == '\0');
    return 0;
}

static void login_keeps_its_processes(void **state)
{
    (void)state;
    mkdir(TOP "/t-user", 0755);
    mkdir(TOP "/t-user/session", 0755);
    pid_t stranger = stranger_in(TOP "/t-user/session");
    assert_int_equal(in_group(TOP "/t-user/session", as_login), 0);
    end_stranger(stranger);
    assert_true(rmdir(TOP "/t-user/session") == 0 && rmdir(TOP "/t-user") == 0);
}

static int own_view(void)
{
    return unshare(CLONE_NEWCGROUP | CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
           umount2(TOP, MNT_DETACH) < 0 || mount("cgroup2", TOP, "cgroup2", 0, NULL) < 0 ? -1 : 0;
}

static int as_container(const char *group)
{
    group = TOP;
    REQUIRE(own_view() == 0);
    const char *before = text_of(TOP "/cgroup.procs");
    struct sandbox_client *c = box_start(1);
    REQUIRE(strcmp(own_group(), "/assay-client") == 0 && strcmp(text_of(TOP "/cgroup.procs"), "") == 0);
    REQUIRE(held(c));
    sandbox_client_close(c);
    REQUIRE(strcmp(own_group(), "/") == 0 && strcmp(text_of(TOP "/cgroup.procs"), before) == 0 && nothing_below(TOP));
    return 0;
}

static void container_is_taken_whole(void **state)
{
    (void)state;
    mkdir(TOP "/t-container", 0755);
    pid_t stranger = stranger_in(TOP "/t-container");
    assert_int_equal(in_group(TOP "/t-container", as_container), 0);
    end_stranger(stranger);
    assert_int_equal(rmdir(TOP "/t-container"), 0);
}

/* What is not offered cannot be used, and is not pretended; and nobody is moved for it. */
static int as_poor_container(const char *group)
{
    group = TOP;
    REQUIRE(own_view() == 0);
    struct sandbox_client *c = box_start(1);
    struct outcome o = box_once(c, BOX_EMPTY, usual, "exec true");
    REQUIRE(!box_grouped(&o.result) && o.result.end == SANDBOX_END_EXIT);
    outcome_done(&o);
    REQUIRE(strcmp(own_group(), "/") == 0 && nothing_below(TOP));
    sandbox_client_close(c);
    return 0;
}

static void missing_controllers_are_told(void **state)
{
    (void)state;
    mkdir(TOP "/t-poor", 0755);
    mkdir(TOP "/t-poor/inner", 0755);           /* t-poor passes nothing on */
    assert_int_equal(in_group(TOP "/t-poor/inner", as_poor_container), 0);
    assert_true(rmdir(TOP "/t-poor/inner") == 0 && rmdir(TOP "/t-poor") == 0);
}

/* A user to whom a group was lent, as systemd does for a login's services. */
static int as_user(const char *group)
{
    if (setresgid(1000, 1000, 1000) < 0 || setresuid(1000, 1000, 1000) < 0)
        return 2;
    struct sandbox_client *c = box_start(1);
    REQUIRE(ends_in(own_group(), "/assay-client") && held(c));
    sandbox_client_close(c);
    REQUIRE(ends_in(own_group(), strrchr(group, '/')) && nothing_below(group));
    return 0;
}

static void group_lent_to_a_user(void **state)
{
    (void)state;
    mkdir(TOP "/t-lent", 0755);
    assert_int_equal(system("cd " TOP "/t-lent && chown 1000:1000 . cgroup.procs cgroup.subtree_control"), 0);
    assert_int_equal(in_group(TOP "/t-lent", as_user), 0);
    assert_int_equal(rmdir(TOP "/t-lent"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(limits_are_exact), cmocka_unit_test(peak_is_the_sandboxes_own),
        cmocka_unit_test(service_keeps_its_processes_in_a_leaf), cmocka_unit_test(login_keeps_its_processes),
        cmocka_unit_test(container_is_taken_whole), cmocka_unit_test(missing_controllers_are_told),
        cmocka_unit_test(group_lent_to_a_user),
    };
    return cmocka_run_group_tests_name("sandbox cgroups", tests, need_v2, NULL);
}
