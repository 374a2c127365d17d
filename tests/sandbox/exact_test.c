/* What a result says is so, and as exactly as it says: limits, ends, figures. Real jail, real kernel. Times are compared with
 * what a bare process sees on the same machine at the same moment, and a figure that load can blur has a few tries. */
#include "tests/sandbox/box.h"
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define MIB ((uint64_t)1 << 20)
#define PAGE_GROUP ((uint64_t)64 * 4096)        /* the kernel charges memory in steps of so much, per CPU */
enum { TRIES = 6 };

static struct sandbox_client *client;
static const struct sandbox_limits usual = { .wall_ns = 60 * NS_PER_S, .memory_bytes = 512 * MIB, .pids = 64 };

static int start(void **state) { (void)state; client = box_start(2); return 0; }
static int stop(void **state) { (void)state; sandbox_client_close(client); return 0; }

static struct outcome measured(struct sandbox_limits l, const char *shell)
{
    struct sandbox *s = box_acquire(client, BOX_EMPTY, l);
    struct outcome o = { 0 };
    struct sandbox_command cmd = { .shell = shell, .measure = true };
    if (sandbox_run(s, &cmd, box_done, &o, &o.err) < 0 || box_wait(client, &o.come, 60000) < 0 || o.rc < 0)
        fail_msg("run: %s", o.err.msg);
    sandbox_close(s);
    return o;
}

/* One command: how it ended, and which limits were hit. */
static void ends(struct sandbox_limits l, const char *shell, enum sandbox_end end, int value, uint32_t hit)
{
    struct outcome o = box_once(client, BOX_EMPTY, l, shell);
    if (o.result.end != end || o.result.value != value || o.result.limits_hit != hit)
        fail_msg("`%s`: end %d value %d hit %x, not %d %d %x: %s", shell, (int)o.result.end, o.result.value, o.result.limits_hit,
                 (int)end, value, hit, o.output);
    outcome_done(&o);
}

static void memory_to_the_page_group(void **state)
{
    (void)state;
    struct sandbox_limits l = usual;
    l.memory_bytes = 64 * MIB;
    struct outcome o = box_once(client, BOX_EMPTY, l, "exec tail /dev/zero");
    if (!box_grouped(&o.result))
        skip();
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    assert_int_equal(o.result.end, SANDBOX_END_MEMORY_LIMIT);
    assert_int_equal(o.result.limits_hit, SANDBOX_HIT_MEMORY);
    assert_int_equal(o.result.oom_kills, 1);
    assert_true(o.result.memory_bytes_peak <= l.memory_bytes);
    assert_true(o.result.memory_bytes_peak >= l.memory_bytes - (uint64_t)(cores + 1) * PAGE_GROUP);
    outcome_done(&o);
}

static void cpu_limit_within_two_percent(void **state)
{
    (void)state;
    struct sandbox_limits l = usual;
    l.cpu_ns = 2 * NS_PER_S;
    l.cpu_percent = 400;
    for (int i = 0; i < TRIES; i++) {
        struct outcome o = box_once(client, BOX_EMPTY, l, "while :; do :; done & while :; do :; done");
        if (o.result.enforced_by[SANDBOX_LIMIT_CPU] == SANDBOX_BY_RLIMIT)
            skip();
        assert_int_equal(o.result.end, SANDBOX_END_TIME_LIMIT);
        assert_int_equal(o.result.limits_hit, SANDBOX_HIT_CPU);
        assert_true(o.result.cpu_ns >= l.cpu_ns);
        uint64_t over = o.result.cpu_ns - l.cpu_ns;
        outcome_done(&o);
        if (over <= l.cpu_ns / 50)
            return;
    }
    fail_msg("more than 2 %% over in each of %d tries", TRIES);
}

/* How much later than asked a bare sleeper is killed and reaped. */
static uint64_t bare_lateness(uint64_t wall_ns)
{
    pid_t child = fork();
    if (child == 0) {
        pause();
        _exit(0);
    }
    uint64_t began = clock_mono_ns();
    usleep((useconds_t)(wall_ns / 1000));
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    return clock_mono_ns() - began - wall_ns;
}

static void wall_limit_as_late_as_a_bare_kill(void **state)
{
    (void)state;
    struct sandbox_limits l = usual;
    l.wall_ns = NS_PER_S / 4;
    uint64_t over = 0, bare = 0;
    for (int i = 0; i < TRIES; i++) {
        struct outcome o = box_once(client, BOX_EMPTY, l, "sleep 30");
        assert_int_equal(o.result.end, SANDBOX_END_TIME_LIMIT);
        assert_int_equal(o.result.limits_hit, SANDBOX_HIT_TIME);
        assert_true(o.result.wall_ns >= l.wall_ns);
        over = o.result.wall_ns - l.wall_ns;
        bare = bare_lateness(l.wall_ns);
        outcome_done(&o);
        if (over <= 10 * NS_PER_MS + 4 * bare)
            return;
    }
    fail_msg("%llu us over the wall limit, a bare kill %llu us", (unsigned long long)over / 1000, (unsigned long long)bare / 1000);
}

static void output_to_the_byte(void **state)
{
    (void)state;
    struct sandbox_limits l = usual;
    l.output_bytes = 100001;
    struct outcome o = box_once(client, BOX_EMPTY, l, "head -c 50000 /dev/zero; head -c 50001 /dev/zero >&2");
    assert_int_equal(o.result.end, SANDBOX_END_EXIT);
    assert_int_equal(o.result.limits_hit, 0);
    assert_int_equal(o.result.output_bytes, 100001);
    outcome_done(&o);
    o = box_once(client, BOX_EMPTY, l, "head -c 100001 /dev/zero | tr '\\0' a; printf b; sleep 30");
    assert_int_equal(o.result.end, SANDBOX_END_OUTPUT_LIMIT);
    assert_int_equal(o.result.limits_hit, SANDBOX_HIT_OUTPUT);
    assert_int_equal(o.result.output_bytes, 100002);
    assert_null(memchr(o.output, 'b', 30000));
    assert_int_equal(o.output[o.output_len - 1], 'a');          /* the byte too many is not kept */
    assert_non_null(strstr(o.output, "[... 34465 bytes left out ...]"));
    outcome_done(&o);
}

/* A limit is the end only of whom it killed; a command that gave up because it was refused has ended by itself. */
static void refusals_are_no_ends(void **state)
{
    (void)state;
    struct sandbox_limits disk = usual, few = usual;
    disk.disk_bytes = 4 * MIB;
    few.pids = 8;
    struct outcome o = box_once(client, BOX_EMPTY, usual, "true");
    const bool grouped = box_grouped(&o.result);
    outcome_done(&o);
    const uint32_t pids = grouped ? SANDBOX_HIT_PIDS : 0;
    const char *full = "dd if=/dev/zero of=/tmp/f bs=64k 2>/dev/null", *bomb = "exec python3 -c '\n"
        "import os, sys, time\n"
        "try:\n"
        "    while os.fork(): pass\n"
        "    time.sleep(60)\n"
        "except OSError as e: sys.exit(e.errno)'";
    ends(disk, full, SANDBOX_END_EXIT, 1, SANDBOX_HIT_DISK);
    ends(disk, "dd if=/dev/zero of=/tmp/f bs=64k 2>/dev/null; rm /tmp/f; exit 1", SANDBOX_END_EXIT, 1, 0);
    ends(few, bomb, SANDBOX_END_EXIT, 11 /* EAGAIN */, pids);
    ends(few, "exit 1", SANDBOX_END_EXIT, 1, 0);
    /* The bomb that never gives up ends by the clock, and is told of both. */
    few.wall_ns = NS_PER_S;
    ends(few, "exec python3 -c '\nimport os\nwhile True:\n    try: os.fork()\n    except OSError: pass'", SANDBOX_END_TIME_LIMIT, 9,
         SANDBOX_HIT_TIME | pids);
    o = box_once(client, BOX_EMPTY, few, bomb);
    assert_true(!grouped || o.result.pids_refused > 0);
    outcome_done(&o);
    /* Who dies of the full layer, or of a file too large. */
    const char *mapped = "exec python3 -c '\nimport mmap, os\nf = os.open(\"/tmp/f\", os.O_RDWR | os.O_CREAT)\n"
                         "os.ftruncate(f, 8 << 20)\nm = mmap.mmap(f, 8 << 20)\nfor i in range(0, 8 << 20, 4096): m[i] = 1'";
    ends(disk, mapped, SANDBOX_END_DISK_LIMIT, SIGBUS, SANDBOX_HIT_DISK);
    ends(disk, "kill -BUS $$", SANDBOX_END_SIGNAL, SIGBUS, 0);
    disk.file_bytes = 1 * MIB;
    ends(disk, "exec dd if=/dev/zero of=/tmp/f bs=64k count=40 2>/dev/null", SANDBOX_END_DISK_LIMIT, SIGXFSZ, SANDBOX_HIT_DISK);
    ends(usual, "kill -XCPU $$", SANDBOX_END_SIGNAL, SIGXCPU, 0);
}

static void enforcers_are_named(void **state)
{
    (void)state;
    struct outcome o = box_once(client, BOX_EMPTY, usual, "cat /proc/self/cgroup");
    const uint8_t *by = o.result.enforced_by;
    assert_int_equal(by[SANDBOX_LIMIT_TIME], SANDBOX_BY_JAIL);
    assert_int_equal(by[SANDBOX_LIMIT_OUTPUT], SANDBOX_BY_JAIL);
    assert_int_equal(by[SANDBOX_LIMIT_DISK], SANDBOX_BY_MOUNT);
    assert_int_equal(by[SANDBOX_LIMIT_FILE], SANDBOX_BY_RLIMIT);
    assert_int_equal(by[SANDBOX_LIMIT_MEMORY], by[SANDBOX_LIMIT_PIDS]);
    assert_int_not_equal(by[SANDBOX_LIMIT_MEMORY], SANDBOX_BY_NONE);
    /* What the kernel says of the command's groups agrees. */
    if (by[SANDBOX_LIMIT_MEMORY] == SANDBOX_BY_CGROUP_V1)
        assert_non_null(strstr(o.output, ":memory:"));
    if (by[SANDBOX_LIMIT_MEMORY] == SANDBOX_BY_CGROUP_V2)
        assert_non_null(strstr(o.output, "0::/"));
    outcome_done(&o);
}

static uint64_t share(uint64_t part, uint64_t whole) { return whole == 0 ? 0 : part * 100 / whole; }

static void usage_is_told_when_asked_for(void **state)
{
    (void)state;
    struct outcome o = box_once(client, BOX_EMPTY, usual, "true");
    const bool grouped = box_grouped(&o.result);
    assert_int_equal(o.result.usage.known, 0);
    outcome_done(&o);

    /* The split; the spinners are nobody's children by then, and no rusage of a parent has them. */
    o = measured(usual, "exec python3 -c '\nimport time\ne = time.process_time() + 0.4\nwhile time.process_time() < e: sum(range(10000))'");
    const struct sandbox_usage *u = &o.result.usage;
    if (u->known & SANDBOX_KNOWN_CPU) {
        assert_int_equal(u->user_ns + u->system_ns, o.result.cpu_ns);
        assert_true(share(u->user_ns, o.result.cpu_ns) > 50);
    }
    assert_true(!grouped || (u->known & SANDBOX_KNOWN_CPU));
    outcome_done(&o);
    o = measured(usual, "(setsid dd if=/dev/zero of=/dev/null bs=1 count=1000000 2>/dev/null &) ; sleep 0.5");
    if (u->known & SANDBOX_KNOWN_CPU)
        assert_true(share(u->system_ns, o.result.cpu_ns) > 20);
    outcome_done(&o);

    /* The faults that the process itself counts; its first ones came before the run, when it was our agent. */
    o = measured(usual, "exec python3 -c '\nimport mmap, resource\nm = mmap.mmap(-1, 40 << 20)\n"
                        "m.madvise(mmap.MADV_NOHUGEPAGE)\nfor i in range(0, 40 << 20, 4096): m[i] = 1\n"
                        "print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)'");
    uint64_t own = strtoull(o.output, NULL, 10);
    assert_true(own >= 10240);
    if (u->known & SANDBOX_KNOWN_FAULTS)
        if (u->faults_minor + 512 < own || u->faults_minor > own + 20000)
            fail_msg("%llu minor faults, the process itself counted %llu", (unsigned long long)u->faults_minor, (unsigned long long)own);
    assert_true(!grouped || (u->known & SANDBOX_KNOWN_FAULTS));
    outcome_done(&o);

    /* Every task has a number: the shell and twenty others, of which ten are nobody's children. */
    o = measured(usual, "for i in 1 2 3 4 5; do /bin/true; (/bin/true & ) ; /bin/true & done; wait");
    assert_true(u->known & SANDBOX_KNOWN_TASKS);
    assert_int_equal(u->tasks_made, 1 + 5 * 4);
    outcome_done(&o);
    o = measured(usual, "exec python3 -c '\nimport threading\nfor i in range(7):\n    t = threading.Thread(target=int)\n    t.start()\n    t.join()'");
    assert_int_equal(u->tasks_made, 8);
    outcome_done(&o);
    for (int i = 0; i < 5; i++) {               /* orphans that live on hold the command's number as their session's */
        o = measured(usual, "for i in 1 2 3; do (sleep 5 & ); done; exec true");
        assert_int_equal(u->tasks_made, 1 + 3 * 2);
        outcome_done(&o);
    }
    struct sandbox *s = box_acquire(client, BOX_EMPTY, usual);
    for (int i = 0; i < 4; i++) {               /* one run after another */
        struct sandbox_command cmd = { .shell = i & 1 ? "/bin/true; exec true" : "exec true", .measure = true };
        o = (struct outcome){ 0 };
        assert_int_equal(sandbox_run(s, &cmd, box_done, &o, &o.err), 0);
        assert_int_equal(box_wait(client, &o.come, 60000), 0);
        assert_int_equal(u->tasks_made, i & 1 ? 2 : 1);
        outcome_done(&o);
    }
    sandbox_close(s);
    /* Not for a run of which the memory killer or a kill took the end. */
    struct sandbox_limits l = usual;
    l.wall_ns = NS_PER_S / 2;
    o = measured(l, "sleep 30");
    assert_int_equal(o.result.end, SANDBOX_END_TIME_LIMIT);
    assert_true(!grouped || (u->known & SANDBOX_KNOWN_FAULTS));
    outcome_done(&o);
}

/* What one run used is not the next one's, whatever lies between them. */
static void figures_are_of_one_run(void **state)
{
    (void)state;
    static const char spin[] = "python3 -c '\nimport time\nx = bytearray(60 << 20)\ne = time.process_time() + 0.5\n"
                               "while time.process_time() < e: pass'; %s";
    static const char *const then[] = { "true", "echo r >/assay/report/r", "sleep 5 &" };
    for (size_t i = 0; i < sizeof then / sizeof then[0]; i++) {
        char text[256];
        struct sandbox *s = box_acquire(client, BOX_EMPTY, usual);
        snprintf(text, sizeof text, spin, then[i]);
        struct outcome first = box_run(client, s, text), next = box_run(client, s, "true");
        if (box_grouped(&first.result)) {
            assert_true(first.result.cpu_ns > NS_PER_S / 2);
            if (next.result.cpu_ns > first.result.cpu_ns / 2 || next.result.memory_bytes_peak > first.result.memory_bytes_peak / 2)
                fail_msg("after `%s`: %llu us and %llu KiB", then[i], (unsigned long long)next.result.cpu_ns / 1000,
                         (unsigned long long)next.result.memory_bytes_peak >> 10);
        }
        outcome_done(&first);
        outcome_done(&next);
        sandbox_close(s);
    }
}

/* How much this process has read from block devices. */
static uint64_t own_reads(void)
{
    char text[512] = "";
    int fd = open("/proc/self/io", O_RDONLY);
    ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    text[n < 0 ? 0 : n] = '\0';
    char *at = strstr(text, "\nread_bytes: ");
    return at == NULL ? 0 : strtoull(at + 13, NULL, 10);
}

static uint64_t read_cold(const char *path)
{
    static char bytes[1 << 20];
    int fd = open(path, O_RDWR);
    uint64_t before = own_reads();
    if (fd < 0 || fsync(fd) < 0 || posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) != 0 || pread(fd, bytes, sizeof bytes, 0) < 0)
        fail_msg("%s", path);
    uint64_t got = own_reads() - before;
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
    return got;
}

static void block_reads_are_told_or_said_absent(void **state)
{
    (void)state;
    char dir[] = "/var/tmp/assay-exact-XXXXXX", path[64];
    static char bytes[1 << 20];
    assert_non_null(mkdtemp(dir));
    chmod(dir, 0755);
    snprintf(path, sizeof path, "%s/f", dir);
    int fd = open(path, O_RDWR | O_CREAT, 0644);
    assert_int_equal(write(fd, bytes, sizeof bytes), sizeof bytes);
    close(fd);
    bool on_disk = read_cold(path) >= sizeof bytes;
    int tree = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    struct sandbox *s = box_acquire(client, (struct sandbox_spec){ tree, -1, -1, 0, NULL }, usual);
    struct outcome o = { 0 };
    struct sandbox_command cmd = { .shell = "cat f | wc -c", .measure = true };
    assert_int_equal(sandbox_run(s, &cmd, box_done, &o, &o.err), 0);
    assert_int_equal(box_wait(client, &o.come, 60000), 0);
    assert_string_equal(o.output, "1048576\n");
    const struct sandbox_usage *u = &o.result.usage;
    if (!(u->known & SANDBOX_KNOWN_IO))
        assert_int_equal(u->io_read_bytes + u->io_written_bytes, 0);
    else if (on_disk)
        assert_true(u->io_read_bytes >= sizeof bytes && u->io_read_bytes < 64 * MIB);
    outcome_done(&o);
    sandbox_close(s);
    close(tree);
    unlink(path);
    rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_to_the_page_group), cmocka_unit_test(cpu_limit_within_two_percent),
        cmocka_unit_test(wall_limit_as_late_as_a_bare_kill), cmocka_unit_test(output_to_the_byte),
        cmocka_unit_test(refusals_are_no_ends), cmocka_unit_test(enforcers_are_named),
        cmocka_unit_test(usage_is_told_when_asked_for), cmocka_unit_test(figures_are_of_one_run),
        cmocka_unit_test(block_reads_are_told_or_said_absent),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
