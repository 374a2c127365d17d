/* Birth and death: many sandboxes at once, a jail that is killed, clients that vanish or misbehave, what is left behind. */
#include "tests/sandbox/box.h"
#include "base/frame.h"
#include "base/own.h"
#include "sandbox/grant.h"
#include <dirent.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

static const struct sandbox_limits usual = { .wall_ns = 30 * NS_PER_S, .memory_bytes = (uint64_t)256 << 20 };

/* ---- what is there on the host ---- */

struct process { pid_t pid, parent; char comm[32]; };

static size_t processes(struct process *out, size_t max)
{
    size_t n = 0;
    DIR *d = opendir("/proc");
    for (struct dirent *e; n < max && (e = readdir(d)) != NULL; ) {
        char path[300], line[512] = "";
        snprintf(path, sizeof path, "/proc/%s/stat", e->d_name);
        own_file f = fopen(path, "re");
        int pid, parent;
        char comm[32];
        if (f != NULL && fgets(line, sizeof line, f) != NULL && sscanf(line, "%d (%31[^)]) %*c %d", &pid, comm, &parent) == 3) {
            out[n] = (struct process){ .pid = pid, .parent = parent };
            strcpy(out[n++].comm, comm);
        }
    }
    closedir(d);
    return n;
}

/* Pids of our descendants named `comm` (NULL: all). */
static size_t descendants(const char *comm, pid_t *out, size_t max)
{
    static struct process all[8192];
    size_t n = processes(all, sizeof all / sizeof all[0]), found = 0;
    for (size_t i = 0; i < n; i++) {
        pid_t up = all[i].pid;
        if (all[i].pid == getpid() || (comm != NULL && strcmp(all[i].comm, comm) != 0))
            continue;
        for (size_t k = 0; k < n && up > 1; k++)
            if (all[k].pid == up) {
                up = all[k].parent;
                if (up == getpid()) {
                    if (found < max)
                        out[found] = all[i].pid;
                    found++;
                    break;
                }
                k = (size_t)-1;
            }
    }
    return found;
}

static size_t mounts(void)
{
    size_t n = 0;
    own_file f = fopen("/proc/self/mountinfo", "re");
    for (int c; (c = fgetc(f)) != EOF; )
        n += c == '\n';
    return n;
}

/* Directories of jail `guardian` in any control group hierarchy. */
static bool groups_left(pid_t guardian)
{
    char text[128];
    snprintf(text, sizeof text, "find /sys/fs/cgroup -type d -name 'assay-jail.%d.*' | grep -q .", (int)guardian);
    return system(text) == 0;
}

static bool dead_within(pid_t pid, int ms)
{
    for (; ms > 0; ms -= 10) {
        if (kill(pid, 0) < 0)
            return true;
        waitpid(pid, NULL, WNOHANG);
        usleep(10000);
    }
    return false;
}

static pid_t guardian(void)
{
    pid_t pids[8];
    size_t n = descendants("assay-jail", pids, 8);
    assert_true(n >= 2);
    return pids[0] < pids[1] ? pids[0] : pids[1];
}

/* ---- many ---- */

static void many_at_once(void **state)
{
    (void)state;
    enum { N = 6, ROUNDS = 3 };
    struct sandbox_client *c = box_start(N);
    for (int round = 0; round < ROUNDS; round++) {
        struct outcome a[N] = { 0 }, r[N] = { 0 };
        struct err err = { 0 };
        for (int i = 0; i < N; i++)
            assert_int_equal(sandbox_acquire(c, &BOX_EMPTY, &usual, box_acquired, &a[i], &err), 0);
        assert_int_equal(sandbox_acquire(c, &BOX_EMPTY, &usual, box_acquired, &a[0], &err), ERR_BUSY);
        for (int i = 0; i < N; i++) {
            assert_int_equal(box_wait(c, &a[i].come, 20000), 0);
            assert_int_equal(a[i].rc, 0);
            char shell[64];
            snprintf(shell, sizeof shell, "echo %d; sleep 0.2; exit %d", i, i);
            assert_int_equal(sandbox_run(a[i].sandbox, &(struct sandbox_command){ .shell = shell }, box_done, &r[i], &err), 0);
        }
        for (int i = 0; i < N; i++) {
            assert_int_equal(box_wait(c, &r[i].come, 20000), 0);
            assert_int_equal(r[i].result.value, i);
            assert_int_equal(r[i].output[0], '0' + i);
            outcome_done(&r[i]);
            sandbox_close(a[i].sandbox);
        }
    }
    sandbox_client_close(c);
}

static size_t fds_of(pid_t pid)
{
    char path[64];
    size_t n = 0;
    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    DIR *d = opendir(path);
    while (d != NULL && readdir(d) != NULL)
        n++;
    if (d != NULL)
        closedir(d);
    return n;
}

static void nothing_piles_up(void **state)
{
    (void)state;
    struct sandbox_client *c = box_start(1);
    pid_t pids[8], jail;
    size_t n = descendants("assay-jail", pids, 8), was_fds = 0, was_all = 0;
    assert_true(n >= 2);
    jail = pids[0] == guardian() ? pids[1] : pids[0];
    own_fd dir = open(geteuid() == 0 ? "/usr/share" : ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; i < 30; i++) {
        struct outcome o = box_once(c, (struct sandbox_spec){ dir, -1, -1, 0, NULL }, usual, "echo r >/assay/report/r; sleep 5 & echo x");
        outcome_done(&o);
        if (i == 5 || i == 29) {
            usleep(200000);                     /* slots are being remade */
            size_t fds = fds_of(jail), all = descendants(NULL, pids, 8);
            if (i == 29) {
                assert_int_equal(fds, was_fds);
                assert_int_equal(all, was_all);
            }
            was_fds = fds;
            was_all = all;
        }
    }
    sandbox_client_close(c);
}

static void closing_in_the_middle(void **state)
{
    (void)state;
    struct sandbox_client *c = box_start(2);
    struct err err = { 0 };
    for (int i = 0; i < 10; i++) {
        struct outcome never = { 0 };
        struct sandbox *s = box_acquire(c, BOX_EMPTY, usual);
        assert_int_equal(sandbox_run(s, &(struct sandbox_command){ .shell = "sleep 20" }, box_done, &never, &err), 0);
        usleep((unsigned)i * 1000);
        if (i % 2)
            sandbox_kill(s);
        sandbox_close(s);
        struct outcome o = box_once(c, BOX_EMPTY, usual, "echo fine");
        assert_string_equal(o.output, "fine\n");
        assert_false(never.come);
        outcome_done(&o);
    }
    sandbox_client_close(c);
}

/* A kill may come before the command is born, in its birth, and after its end: the run ends once, as killed or by itself, and
 * what comes after it in the slot is whole. */
static void killed_at_birth(void **state)
{
    (void)state;
    enum { ROUNDS = 600 };
    struct sandbox_client *c = box_start(1);
    struct sandbox *s = NULL;
    struct err err = { 0 };
    for (int i = 0; i < ROUNDS; i++) {
        struct outcome o = { 0 };
        const struct sandbox_streams apart = { .in = -1, .out = -1, .err = -1, .apart = true };
        const char *const argv[] = { i & 1 ? "yes" : "true", NULL };
        struct sandbox_command cmd = { .argv = argv, .streams = i % 7 == 0 ? &apart : NULL, .measure = i % 5 == 0 };
        if (s == NULL)
            s = box_acquire(c, BOX_EMPTY, usual);
        assert_int_equal(sandbox_run(s, &cmd, box_done, &o, &err), 0);
        for (uint64_t end = clock_mono_ns() + (uint64_t)(i % 40) * 50000; clock_mono_ns() < end; )
            ;
        sandbox_kill(s);
        if (i % 3 == 0) {
            sandbox_close(s);
            s = NULL;
            assert_false(o.come);
            continue;
        }
        assert_int_equal(box_wait(c, &o.come, 20000), 0);
        if (o.rc < 0 || (o.result.end != SANDBOX_END_KILLED && o.result.end != (i & 1 ? SANDBOX_END_OUTPUT_LIMIT : SANDBOX_END_EXIT)))
            fail_msg("round %d: %d %s: end %d", i, o.rc, o.err.msg, (int)o.result.end);
        outcome_done(&o);
        if (i % 3 == 1) {
            o = box_run(c, s, "echo $$ mine");
            assert_string_equal(o.output, "2 mine\n");
            outcome_done(&o);
        }
    }
    sandbox_close(s);
    sandbox_client_close(c);
}

/* ---- what one sandbox leaves to the next ---- */

#define PYTHON_CALLS \
    "import ctypes, fcntl, os, resource, signal\n" \
    "libc = ctypes.CDLL(None, use_errno=True)\n" \
    "def call(n, *a):\n" \
    "    libc.syscall.restype = ctypes.c_long\n" \
    "    r = libc.syscall(ctypes.c_long(n), *[ctypes.c_long(x) if isinstance(x, int) else x for x in a])\n" \
    "    return r if r >= 0 else -ctypes.get_errno()\n" \
    "def tries(f, *a):\n" \
    "    try: return f(*a)\n" \
    "    except OSError: pass\n" \
    "ours = '/proc/cmdline', '/proc/fs', '/sys/devices/system/cpu', '/sys/devices/system/cpu/online', '/assay/store'\n"

/* All that a program can see of how it began, of pid 1, and of what can be numbered from outside of it. */
static const char observe[] = PYTHON_CALLS
    "for pid in 0, 1:\n"
    "    b, c = ctypes.create_string_buffer(56), ctypes.create_string_buffer(128)\n"
    "    print(pid, libc.getpriority(0, pid), call(315, pid, b, 56, 0), b.raw.hex(), call(204, pid, 128, c), c.raw.hex(), call(252, 1, pid))\n"
    "    print([resource.prlimit(pid, i) for i in range(16)])\n"
    "mask = os.umask(0)\n"
    "print(mask, os.getcwd(), os.getpid(), os.getppid(), os.getpgrp(), os.getsid(0), os.environ, libc.getpriority(2, 0))\n"
    "keep = 'Name Umask FDSize NSpid NSpgid NSsid Threads SigQ SigPnd ShdPnd SigBlk SigIgn SigCgt Cpus_allowed Mems_allowed'.split()\n"
    "print([l for l in open('/proc/self/status') if l.split(':')[0] in keep])\n"
    "print([(fd, os.fstat(fd).st_mode, fcntl.fcntl(fd, 3), fcntl.fcntl(fd, 1)) for fd in map(int, os.listdir('/proc/self/fd')) if fd < 3], "
    "       [fd for fd in range(3, 200) if os.path.exists(f'/proc/self/fd/{fd}')])\n"
    "print([call(157, p, 0, 0, 0, 0) for p in (3, 7, 27, 30, 37, 39, 42)], call(135, 0xffffffff), open('/proc/self/oom_score_adj').read())\n"
    "print(sorted(l.split()[3:] for l in open('/proc/self/mountinfo')))\n"
    "print([os.stat(p).st_mode for p in ours], open(ours[3]).read(), tries(os.listdir, ours[4]))\n"
    "print([open('/proc/sysvipc/' + f).read() for f in ('msg', 'sem', 'shm')])\n"
    "print([sorted(os.listdir(d)) for d in ('/tmp', '/dev', '/dev/shm', '/testbed', '/home/sandbox', '/assay')])\n"
    "print(call(240, b'left', 2, 0, None), [(call(29, 0, 4096, 0o1600), call(64, 0, 1, 0o1600), call(68, 0, 0o1600)) for _ in '123'])\n";

static struct outcome python(struct sandbox_client *c, const char *text)
{
    const char *const argv[] = { "python3", "-c", text, NULL };
    struct sandbox *s = box_acquire(c, BOX_EMPTY, usual);
    struct outcome o = box_command(c, s, (struct sandbox_command){ .argv = argv });
    sandbox_close(s);
    return o;
}

/* A run that is killed while its crew is being made has printed and used nothing: neither the run before it shows in its
 * result, nor another sandbox's. */
static void killed_before_it_began(void **state)
{
    (void)state;
    enum { SLOTS = 3 };
    static const char before[] = "echo secret; python3 -c 'x = bytearray(60 << 20); sum(range(10000000))'; sleep 5 &";
    struct sandbox_client *c = box_start(1);
    struct sandbox_limits none = usual;
    none.network = SANDBOX_NET_NONE;
    for (int another = 0; another < 2; another++) {
        struct sandbox *s = NULL;
        struct outcome o = { 0 };
        uint64_t used_ns = 0, peak = 0;
        if (another) {
            for (int i = 0; i < SLOTS; i++) {
                o = box_once(c, BOX_EMPTY, usual, before);
                used_ns = o.result.cpu_ns;
                outcome_done(&o);
            }
            s = box_acquire(c, BOX_EMPTY, none);
        } else {
            s = box_acquire(c, BOX_EMPTY, usual);
            o = box_run(c, s, before);
            used_ns = o.result.cpu_ns;
            outcome_done(&o);
            o = box_run(c, s, "true");          /* before Linux 6.12 the peak of version 2 is the sandbox's, not the run's */
            peak = o.result.memory_bytes_peak;
            outcome_done(&o);
        }
        assert_int_equal(sandbox_run(s, &(struct sandbox_command){ .shell = "exec sleep 20" }, box_done, &o, &o.err), 0);
        sandbox_kill(s);
        assert_int_equal(box_wait(c, &o.come, 10000), 0);
        assert_int_equal(o.rc, 0);
        assert_int_equal(o.result.end, SANDBOX_END_KILLED);
        assert_string_equal(o.output, "");
        assert_int_equal(o.result.output_bytes, 0);
        if (box_grouped(&o.result))
            assert_true(o.result.cpu_ns < used_ns / 2 &&
                        (o.result.memory_bytes_peak < (uint64_t)30 << 20 || peak > (uint64_t)30 << 20));
        outcome_done(&o);
        sandbox_close(s);
    }
    sandbox_client_close(c);
}

/* Whatever a sandbox did, to itself, to pid 1 or to its namespaces, the next one in its slot begins as the first did. */
static void each_begins_as_the_first(void **state)
{
    (void)state;
    enum { SLOTS = 3 };                         /* that a jail for one has: each is dirtied, each is looked at */
    static const char *const before[] = {
        "pass", "call(203, 1, 128, (ctypes.c_ulong * 16)(1))", "libc.setpriority(0, 1, 7)", "libc.setpriority(2, 0, 9)",
        "call(144, 1, 3, (ctypes.c_int * 1)(0))", "call(251, 1, 1, 3 << 13 | 3)", "call(251, 3, 0, 2 << 13 | 6)",
        "resource.prlimit(1, resource.RLIMIT_NOFILE, (77, 77))", "resource.prlimit(1, resource.RLIMIT_CPU, (77, 77))",
        "[tries(os.chmod, p, 0o700) for p in ours]; tries(os.mkdir, ours[4] + '/left'); tries(lambda: open(ours[3], 'w').write('0-770'))",
        "[os.kill(1, s) for s in range(1, 65) if s not in (32, 33)]",
        "os.umask(0); os.chdir('/'); signal.pthread_sigmask(0, range(1, 32)); signal.signal(2, signal.SIG_IGN); call(157, 29, 5, 0, 0, 0);"
        "call(135, 0x40000); os.nice(5); resource.setrlimit(7, (9, 9)); [fcntl.fcntl(fd, 4, os.O_NONBLOCK | os.O_APPEND) for fd in range(3)]",
        "call(29, 0, 4096, 0o1600)", "call(64, 0, 1, 0o1600)", "call(68, 0, 0o1600)", "call(240, b'left', 0o102, 0o600, None)",
        "call(31, call(29, 0, 4096, 0o1600), 0, 0)", "call(66, call(64, 0, 1, 0o1600), 0, 0)", "call(71, call(68, 0, 0o1600), 0, 0)",
        "call(240, b'left', 0o102, 0o600, None); call(241, b'left')",
        "[call(56, 0x8011, 0, 0, 0, 0) or os._exit(3) for i in range(40)]",             /* CLONE_PARENT: children of ours */
        "call(56, 0x8011, 0, 0, 0, 0) or signal.pause()", "os.fork() or os.setsid() or signal.pause()", "os.abort()",
    };
    struct sandbox_client *c = box_start(1);
    struct outcome first = python(c, observe);
    assert_int_equal(first.result.end, SANDBOX_END_EXIT);
    assert_int_equal(first.result.value, 0);
    for (size_t i = 0; i < sizeof before / sizeof before[0]; i++) {
        char text[1024];
        snprintf(text, sizeof text, "%s%s", PYTHON_CALLS, before[i]);
        for (int k = 0; k < SLOTS; k++) {
            struct outcome o = python(c, text);
            if (o.result.end != SANDBOX_END_EXIT || o.result.value != 0)
                assert_string_equal(before[i], "os.abort()");
            outcome_done(&o);
        }
        for (int k = 0; k < SLOTS; k++) {
            struct outcome o = python(c, observe);
            if (strcmp(o.output, first.output) != 0)
                fail_msg("after `%s`:\n%s\nthe first:\n%s", before[i], o.output, first.output);
            outcome_done(&o);
        }
    }
    outcome_done(&first);
    sandbox_client_close(c);
}

/* ---- death ---- */

static void jail_killed(bool whole)
{
    size_t mounts_before = mounts();
    struct sandbox_client *c = box_start(2);
    struct err err = { 0 };
    struct outcome o = { 0 }, a = { 0 };
    struct sandbox *s = box_acquire(c, BOX_EMPTY, usual);
    const char *behind = box_sleep(4243), *before = box_sleep(4242);
    char command[120];
    snprintf(command, sizeof command, "echo x; %s & %s", behind, before);
    assert_int_equal(sandbox_run(s, &(struct sandbox_command){ .shell = command }, box_done, &o, &err), 0);
    box_wait_alive(c, &o.come, before);
    pid_t top = guardian(), all[64];
    size_t n = descendants(NULL, all, 64);
    assert_true(n > 6 && n < 64);
    assert_int_equal(mounts(), mounts_before);          /* a living jail shows none on the host either */
    pid_t victim = top;
    for (size_t i = 0; !whole && i < n; i++) {
        pid_t pids[8];
        size_t k = descendants("assay-jail", pids, 8);
        for (size_t m = 0; m < k; m++)
            if (pids[m] != top)
                victim = pids[m];
    }
    assert_int_equal(kill(victim, SIGKILL), 0);
    assert_int_equal(box_wait(c, &a.come, 60000), ERR_LOST);
    assert_true(o.come);
    assert_int_equal(o.rc, ERR_LOST);
    assert_int_equal(sandbox_acquire(c, &BOX_EMPTY, &usual, box_acquired, &a, &err), ERR_LOST);
    assert_int_equal(sandbox_run(s, &(struct sandbox_command){ .shell = "true" }, box_done, &o, &err), ERR_LOST);
    sandbox_close(s);
    sandbox_client_close(c);
    for (size_t i = 0; i < n; i++)
        assert_true(dead_within(all[i], 30000));
    assert_int_equal(mounts(), mounts_before);
    assert_false(box_alive(behind) || box_alive(before));
    for (int i = 0; i < 60 && groups_left(top); i++)    /* whichever of the two is left cleans up */
        usleep(50000);
    assert_false(groups_left(top));
}

/* With both gone at once nobody cleans up: the next jail does. */
static void next_jail_removes_what_a_dead_one_left(void **state)
{
    (void)state;
    struct sandbox_client *c = box_start(1);
    pid_t pids[8], top = guardian();
    size_t n = descendants("assay-jail", pids, 8);
    kill(top, SIGSTOP);
    for (size_t i = 0; i < n && i < 8; i++)
        kill(pids[i], SIGKILL);
    sandbox_client_close(c);
    c = box_start(1);
    for (int i = 0; i < 20 && groups_left(top); i++) {  /* zombies of the first may hold a group for a moment */
        usleep(100000);
        sandbox_client_close(c);
        c = box_start(1);
    }
    assert_false(groups_left(top));
    sandbox_client_close(c);
}

static void jail_killed_leaves_nothing(void **state) { (void)state; jail_killed(false); }
static void guardian_killed_leaves_nothing(void **state) { (void)state; jail_killed(true); }

static void close_leaves_nothing(void **state)
{
    (void)state;
    struct sandbox_client *c = box_start(2);
    pid_t top = guardian(), all[64];
    struct err err = { 0 };
    struct outcome o = { 0 };
    struct sandbox *s = box_acquire(c, BOX_EMPTY, usual);
    assert_int_equal(sandbox_run(s, &(struct sandbox_command){ .shell = "sleep 4244" }, box_done, &o, &err), 0);
    box_wait(c, &o.come, 100);
    size_t n = descendants(NULL, all, 64);
    sandbox_client_close(c);
    for (size_t i = 0; i < n; i++)
        assert_true(dead_within(all[i], 30000));
    assert_false(groups_left(top));
    sandbox_close(s);                                   /* after its client: frees the handle */
}

static void client_killed_leaves_nothing(void **state)
{
    (void)state;
    int tell[2];
    const char *sleeper = box_sleep(4245);
    assert_int_equal(pipe(tell), 0);
    pid_t child = fork();
    if (child == 0) {
        struct sandbox_client *c = box_start(1);
        struct outcome o = { 0 };
        struct err err;
        struct sandbox *s = box_acquire(c, BOX_EMPTY, usual);
        if (sandbox_run(s, &(struct sandbox_command){ .shell = sleeper }, box_done, &o, &err) < 0)
            _exit(1);
        box_wait_alive(c, &o.come, sleeper);
        pid_t top = guardian();
        if (write(tell[1], &top, sizeof top) != sizeof top)
            _exit(1);
        pause();
    }
    pid_t top = 0, all[64];
    assert_int_equal(read(tell[0], &top, sizeof top), sizeof top);
    size_t n = descendants(NULL, all, 64);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    for (size_t i = 0; i < n; i++)
        assert_true(dead_within(all[i], 30000));
    for (int i = 0; i < 100 && groups_left(top); i++)
        usleep(50000);
    assert_false(groups_left(top));
    assert_false(box_alive(sleeper));
    close(tell[0]);
    close(tell[1]);
}

/* The world that a sandbox of one task has spoiled is followed by another while its launcher ends. */
static void a_small_limit_is_not_the_next_ones(void **state)
{
    (void)state;
    struct sandbox_client *c = box_start(1);
    const struct sandbox_limits one = { .pids = 1 };
    for (int i = 0; i < 24; i++) {
        struct outcome o = box_once(c, BOX_EMPTY, one, "echo x >/marker");
        assert_int_equal(o.result.value, 0);
        outcome_done(&o);
    }
    sandbox_client_close(c);
}

static void slot_heals(const char *victim)
{
    struct sandbox_client *c = box_start(1);
    struct err err = { 0 };
    struct outcome o = { 0 };
    struct sandbox *s = box_acquire(c, BOX_EMPTY, usual);
    assert_int_equal(sandbox_run(s, &(struct sandbox_command){ .shell = "sleep 20" }, box_done, &o, &err), 0);
    box_wait(c, &o.come, 200);
    pid_t pids[16];
    size_t n = descendants(victim, pids, 16);
    assert_true(n > 0 && n <= 16);
    for (size_t i = 0; i < n; i++)
        kill(pids[i], SIGKILL);
    for (size_t i = 0; i < n; i++)
        assert_true(dead_within(pids[i], 30000));
    usleep(100000);                             /* what hung on them dies a moment later */
    assert_int_equal(box_wait(c, &o.come, 10000), 0);
    if (strcmp(victim, "init") == 0)
        assert_true(o.rc == 0 && o.result.end == SANDBOX_END_SIGNAL);
    else
        assert_int_equal(o.rc, ERR_LOST);
    sandbox_close(s);
    for (int i = 0; i < 4; i++) {
        o = box_once(c, BOX_EMPTY, usual, "echo healed");
        assert_string_equal(o.output, "healed\n");
        outcome_done(&o);
    }
    sandbox_client_close(c);
}

static void slots_heal(void **state)
{
    (void)state;
    slot_heals("launcher");
}

/* What waits in a sandbox for its command may be taken by the kernel before that comes: another is made. */
static void crew_is_replaced(void **state)
{
    static const char *const victims[] = { "zygote", "init" };
    (void)state;
    struct sandbox_client *c = box_start(1);
    for (size_t v = 0; v < sizeof victims / sizeof victims[0]; v++)
        for (int held = 0; held < 2; held++) {
            struct sandbox *s = held ? box_acquire(c, BOX_EMPTY, usual) : NULL;
            pid_t pids[16];
            size_t n = 0;
            for (int i = 0; i < 100 && (n = descendants(victims[v], pids, 16)) == 0; i++)
                usleep(10000);
            assert_true(n > 0 && n <= 16);
            for (size_t i = 0; i < n; i++)
                kill(pids[i], SIGKILL);
            for (size_t i = 0; i < n; i++)
                assert_true(dead_within(pids[i], 30000));
            usleep(50000);                      /* the launcher tells it */
            if (s == NULL)
                s = box_acquire(c, BOX_EMPTY, usual);
            for (int i = 0; i < 2; i++) {
                struct outcome o = box_run(c, s, "echo replaced");
                assert_int_equal(o.result.end, SANDBOX_END_EXIT);
                assert_string_equal(o.output, "replaced\n");
                outcome_done(&o);
            }
            sandbox_close(s);
        }
    sandbox_client_close(c);
}

/* ---- starts that cannot work ---- */

static void start_failures_say_why(void **state)
{
    (void)state;
    struct sandbox_client *c = NULL;
    struct err err = { 0 };
    assert_int_equal(sandbox_client_start(&c, "/no/such/jail", 1, &err), ERR_UNAVAILABLE);
    assert_int_equal(sandbox_client_start(&c, "/bin/true", 1, &err), ERR_LOST);
    assert_int_equal(sandbox_client_start(&c, box_jail(), 0, &err), ERR_USAGE);
    pid_t child = fork();
    if (child == 0) {
        /* Somebody who may make no namespaces, not even in a user namespace: there is none to be had. */
        char copy[] = "/tmp/assay-jail.XXXXXX", text[4200];
        int fd = mkstemp(copy);
        snprintf(text, sizeof text, "cp %s %s && chmod 755 %s", box_jail(), copy, copy);
        if (fd < 0 || close(fd) < 0 || system(text) != 0 || (geteuid() == 0 && setresgid(65534, 65534, 65534) < 0))
            _exit(1);
        pid_t inner = fork();
        if (inner == 0) {
            if ((geteuid() == 0 && setresuid(65534, 65534, 65534) < 0) || unshare(CLONE_NEWUSER) < 0)
                _exit(1);
            own_fd most = open("/proc/sys/user/max_user_namespaces", O_WRONLY | O_CLOEXEC);
            if (most < 0 || write(most, "0", 1) != 1 || prctl(PR_SET_DUMPABLE, 1) < 0)
                _exit(3);
            int rc = sandbox_client_start(&c, copy, 1, &err);
            _exit(rc == ERR_DENIED && strstr(err.msg, "user namespace") != NULL ? 0 : 2);
        }
        int status;
        waitpid(inner, &status, 0);
        unlink(copy);
        _exit(WEXITSTATUS(status));
    }
    int status;
    waitpid(child, &status, 0);
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* ---- a client that breaks the protocol ---- */

static int raw_jail(pid_t *out_pid)
{
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    char *argv[] = { (char[]){ "assay-jail" }, (char[]){ "1" }, NULL }, *env[] = { NULL };
    posix_spawn_file_actions_t fa;
    posix_spawn_file_actions_init(&fa);
    posix_spawn_file_actions_adddup2(&fa, pair[1], 3);
    posix_spawn_file_actions_addopen(&fa, 2, "/dev/null", O_WRONLY, 0);
    assert_int_equal(posix_spawn(out_pid, box_jail(), &fa, NULL, argv, env), 0);
    posix_spawn_file_actions_destroy(&fa);
    close(pair[1]);
    return pair[0];
}

static void protocol_errors_end_the_jail(void **state)
{
    (void)state;
    static const struct grant_request bad[] = {
        { .kind = 0 }, { .kind = 99 }, { .kind = GRANT_HELLO }, { .kind = GRANT_ACQUIRE, .slot = 1000 },
        { .kind = GRANT_ACQUIRE, .generation = 77 }, { .kind = GRANT_RUN, .generation = 1, .fds = GRANT_FD_COMMAND },
        { .kind = GRANT_CLOSE, .generation = 1 }, { .kind = GRANT_ACQUIRE, .generation = 1, .fds = GRANT_FD_TREE },
        { .kind = GRANT_ACQUIRE, .generation = 1, .fds = 1u << 31 },
    };
    for (size_t i = 0; i <= sizeof bad / sizeof bad[0]; i++) {
        pid_t pid;
        own_fd sock = raw_jail(&pid);
        struct grant_answer a;
        struct err err;
        int fds[FRAME_FDS_MAX], nfds, n;
        do
            n = frame_recv(sock, &a, sizeof a, fds, &nfds, &err);
        while (n > 0 && !(a.kind == GRANT_READY && a.slot == 0));
        assert_true(n > 0);
        if (i < sizeof bad / sizeof bad[0])
            assert_int_equal(frame_send(sock, &bad[i], sizeof bad[i], NULL, 0, &err), 0);
        else
            assert_int_equal(frame_send(sock, "short", 5, NULL, 0, &err), 0);
        do
            n = frame_recv(sock, &a, sizeof a, fds, &nfds, &err);
        while (n > 0 && a.kind == GRANT_READY);
        assert_true(n <= 0);
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
    }
}

static void jail_links_nothing_it_should_not(void **state)
{
    (void)state;
    char text[4300];
    snprintf(text, sizeof text, "ldd %s 2>&1 | grep -E 'lib' | grep -vE 'linux-vdso|ld-linux|libc\\.so|libseccomp|libcap|lib[a-z]*san|"
             "libgcc_s|libm\\.so|libstdc'", box_jail());
    assert_int_not_equal(system(text), 0);
    /* Also linked statically: no other way to start a program than execve, no network client, no parsers. */
    snprintf(text, sizeof text, "nm %s | grep -E ' [TtUWw] (execv|execvp|execvpe|execl|execlp|posix_spawn|system|popen|getaddrinfo|connect|"
             "SSL_new|EVP_DigestInit|git_libgit2_init|uv_run|inflate|XML_ParserCreate)(@|$)'", box_jail());
    assert_int_not_equal(system(text), 0);
    snprintf(text, sizeof text, "nm %s | grep -qE ' [TtUWw] (execve)(@|$)'", box_jail());
    assert_int_equal(system(text), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_at_once), cmocka_unit_test(nothing_piles_up), cmocka_unit_test(closing_in_the_middle),
        cmocka_unit_test(killed_at_birth),
        cmocka_unit_test(each_begins_as_the_first), cmocka_unit_test(killed_before_it_began),
        cmocka_unit_test(jail_killed_leaves_nothing), cmocka_unit_test(guardian_killed_leaves_nothing),
        cmocka_unit_test(next_jail_removes_what_a_dead_one_left),
        cmocka_unit_test(close_leaves_nothing), cmocka_unit_test(client_killed_leaves_nothing), cmocka_unit_test(slots_heal),
        cmocka_unit_test(crew_is_replaced), cmocka_unit_test(a_small_limit_is_not_the_next_ones),
        cmocka_unit_test(start_failures_say_why), cmocka_unit_test(protocol_errors_end_the_jail),
        cmocka_unit_test(jail_links_nothing_it_should_not),
    };
    return cmocka_run_group_tests_name("sandbox life", tests, NULL, NULL);
}
