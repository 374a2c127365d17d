/*
 * Many short sandboxes of every kind, in random order with a fixed seed: runs that end in all ways, kills and closes at
 * any moment, sandboxes used twice, edits good and bad. Nothing may be lost, mixed up, left over, or grow.
 *
 * usage: soak_test [SANDBOXES AT_ONCE]; `make soak N=20000 K=32` runs the long one. What the jail and its client hold is
 * counted when a tenth has been run and at the end (census.h), both times with every slot at rest.
 */
#include "tests/sandbox/box.h"
#include "tests/sandbox/census.h"
#include "base/frame.h"
#include "repos/edits.h"

#define STALL_NS (5 * NS_PER_S)             /* an acquire or the end of a run that takes so much longer than it should */
#define REST_NS (20 * NS_PER_S)             /* for all slots to be made anew */
#define RESIDENT_KIB 1024                   /* by so much client and jail may grow */
#define BELOW_KIB 96                        /* ... and each process of the slots: a launcher that is begun late has
                                             * more of the jail's buffers */
#define KERNEL_KIB (64 * 1024)              /* ... and the kernel's own memory, which neighbours use too */

#ifdef __SANITIZE_ADDRESS__
/* Freed memory that the sanitizer holds back, 256 MiB of it by default, would look like growth. */
const char *__asan_default_options(void);
const char *__asan_default_options(void) { return "quarantine_size_mb=0:thread_local_quarantine_size_kb=0"; }
#endif

#define KEPT 1                              /* the jail's one empty output */

static int sandboxes = 150, at_once = 5;

enum step { IDLE, ACQUIRING, RUNNING };

struct kind { const char *shell; unsigned ends, weight; };      /* ends: bits of enum sandbox_end that may come */
#define BIT(e) (1u << (e))
static const struct kind kinds[] = {
    { "exec true", BIT(SANDBOX_END_EXIT), 6 },
    { "yes | head -c 300000", BIT(SANDBOX_END_OUTPUT_LIMIT), 2 },
    { "exec yes", BIT(SANDBOX_END_OUTPUT_LIMIT), 1 },
    { "sleep 9 & setsid sleep 9 & exit 3", BIT(SANDBOX_END_EXIT), 2 },
    { "exec tail /dev/zero", BIT(SANDBOX_END_MEMORY_LIMIT), 2 },
    { "kill -9 $$", BIT(SANDBOX_END_SIGNAL), 1 },
    { "kill -SEGV $$", BIT(SANDBOX_END_SIGNAL), 1 },
    { "for i in 1 2 3; do echo $i >/assay/report/$i; done; mkfifo /assay/report/f; ln -s /etc/passwd /assay/report/l",
      BIT(SANDBOX_END_EXIT), 2 },
    { "dd if=/dev/zero of=/tmp/f bs=1M count=100 2>/dev/null; exit 0", BIT(SANDBOX_END_EXIT), 1 },
    { "for i in 1 2 3 4 5 6 7 8 9; do for k in 1 2 3 4; do sleep 9 & done; done 2>/dev/null; exit 0",
      BIT(SANDBOX_END_EXIT), 1 },               /* more tasks than it may have: the shell gives up, or goes on */
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };
/* In sandboxes whose limits are short. */
static const struct kind long_kinds[] = {
    { "exec sleep 9", BIT(SANDBOX_END_TIME_LIMIT), 1 },
    { "while :; do :; done", BIT(SANDBOX_END_TIME_LIMIT), 1 },
};

struct lane {
    struct outcome acquired, done;
    struct sandbox *sandbox;
    enum step step;
    const struct kind *kind;
    bool brief, bad, killed;                /* limits are short; edits are none; sandbox_kill() was called */
    uint64_t asked_ns;                      /* when the answer awaited was asked for */
};

struct times { uint64_t *all, count, worst; };
static struct times acquire_times, run_times;
static long ends[SANDBOX_END_COUNT], refused, closed_early;

static unsigned seed = 20261130;
static unsigned rnd(unsigned n) { seed = seed * 1103515245 + 12345; return (seed >> 16) % n; }

static void note_time(struct times *t, uint64_t ns, const char *what)
{
    if (t->count % 4096 == 0) {
        t->all = realloc(t->all, (t->count + 4096) * sizeof *t->all);
        assert_non_null(t->all);
    }
    t->all[t->count++] = ns;
    if (ns > t->worst)
        t->worst = ns;
    if (ns > STALL_NS)
        fail_msg("stall: %s took %llu ms", what, (unsigned long long)(ns / NS_PER_MS));
}

static int by_size(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void times_print(const char *name, struct times *t)
{
    if (t->count == 0)
        return;
    qsort(t->all, t->count, sizeof *t->all, by_size);
    printf("%-9s median %.2f ms, p99 %.2f ms, worst %.2f ms (%llu)\n", name, (double)t->all[t->count / 2] / 1e6,
           (double)t->all[t->count * 99 / 100] / 1e6, (double)t->worst / 1e6, (unsigned long long)t->count);
    free(t->all);
    *t = (struct times){ 0 };
}

/* Two files of edits, or bytes that are none. */
static int some_edits(bool bad)
{
    struct { char magic[8]; uint64_t count; struct { uint32_t kind, mode, path_len, reserved; uint64_t size; } r;
             char path[5], bytes[3]; } __attribute__((packed)) e = {
        .magic = "ASEDIT1", .count = 1, .r = { EDIT_WRITE, 0644, 5, 0, 3 }, .path = "new/f", .bytes = "abc" };
    struct err err = { 0 };
    e.magic[7] = bad ? 'x' : '\n';
    int fd = frame_memfd("edits", &e, sizeof e, &err);
    assert_true(fd >= 0);
    return fd;
}

static void begin(struct sandbox_client *c, struct lane *l, int dir)
{
    struct sandbox_limits limits = { .wall_ns = 30 * NS_PER_S, .memory_bytes = (uint64_t)64 << 20, .output_bytes = 200000,
                                     .disk_bytes = (uint64_t)32 << 20, .pids = 24 };
    struct err err = { 0 };
    *l = (struct lane){ .step = ACQUIRING, .brief = rnd(10) == 0, .bad = rnd(25) == 0 };
    own_fd edits = l->bad || rnd(4) == 0 ? some_edits(l->bad) : -1;
    struct sandbox_spec spec = { edits < 0 && rnd(2) ? dir : -1, edits, -1, rnd(16) == 0 ? SANDBOX_COMPATIBLE : SANDBOX_STRICT, NULL };
    if (l->brief) {
        limits.wall_ns = NS_PER_S / 4;
        limits.cpu_ns = NS_PER_S / 10;
    }
    l->asked_ns = clock_mono_ns();
    if (sandbox_acquire(c, &spec, &limits, box_acquired, &l->acquired, &err) < 0)
        fail_msg("%s", err.msg);
}

static void run(struct lane *l)
{
    struct err err = { 0 };
    unsigned total = 0, at;
    for (int i = 0; i < KINDS; i++)
        total += kinds[i].weight;
    at = rnd(total);
    l->kind = kinds;
    while (at >= l->kind->weight)
        at -= l->kind++->weight;
    if (l->brief)
        l->kind = &long_kinds[rnd(2)];
    l->killed = false;
    l->step = RUNNING;
    l->asked_ns = clock_mono_ns();
    if (sandbox_run(l->sandbox, &(struct sandbox_command){ .shell = l->kind->shell }, box_done, &l->done, &err) < 0)
        fail_msg("%s", err.msg);
    if (rnd(12) == 0) {
        l->killed = true;
        sandbox_kill(l->sandbox);
    }
}

static void leave(struct lane *l)
{
    sandbox_close(l->sandbox);
    outcome_done(&l->done);
    *l = (struct lane){ 0 };
}

static void on_acquired(struct lane *l)
{
    note_time(&acquire_times, clock_mono_ns() - l->asked_ns, "an acquire");
    if (l->bad) {
        assert_int_equal(l->acquired.rc, ERR_BAD_INPUT);
        refused++;
        *l = (struct lane){ 0 };
        return;
    }
    if (l->acquired.rc < 0)
        fail_msg("%s", l->acquired.err.msg);
    l->sandbox = l->acquired.sandbox;
    if (rnd(12) == 0) {
        closed_early++;
        leave(l);
    } else {
        run(l);
    }
}

static void on_done(struct lane *l)
{
    const struct sandbox_result *r = &l->done.result;
    uint64_t took = clock_mono_ns() - l->asked_ns;
    if (l->done.rc < 0)
        fail_msg("%s: %s", l->kind->shell, l->done.err.msg);
    note_time(&run_times, took > r->wall_ns && !l->killed ? took - r->wall_ns : 0, l->kind->shell);
    /* Where only the process is limited, its allocation fails. */
    const bool fails = !box_grouped(r) && l->kind->ends == BIT(SANDBOX_END_MEMORY_LIMIT);
    const unsigned ends_may = l->kind->ends | (fails ? BIT(SANDBOX_END_EXIT) : 0);
    if (!(ends_may & BIT(r->end)) && !(l->killed && r->end == SANDBOX_END_KILLED))
        fail_msg("`%s` ended with %d %d (limits %x, %llu ms)", l->kind->shell, (int)r->end, r->value, r->limits_hit,
                 (unsigned long long)(r->wall_ns / NS_PER_MS));
    ends[r->end]++;
    outcome_done(&l->done);
    if (rnd(3) == 0)
        run(l);
    else
        leave(l);
}

/* Begin `count` sandboxes, see all of them through. */
static void some(struct sandbox_client *c, struct lane *lanes, int dir, int count)
{
    for (int open = 1; count > 0 || open > 0; ) {
        uint64_t now = clock_mono_ns();
        open = 0;
        for (int i = 0; i < at_once; i++) {
            struct lane *l = &lanes[i];
            if (l->step == IDLE && count > 0) {
                begin(c, l, dir);
                count--;
            } else if (l->step == ACQUIRING && l->acquired.come) {
                on_acquired(l);
            } else if (l->step == RUNNING && l->done.come) {
                on_done(l);
            } else if (l->step == RUNNING && rnd(400) == 0) {
                closed_early++;
                leave(l);
            } else if (l->step != IDLE && now - l->asked_ns > 40 * NS_PER_S) {
                fail_msg("stall: no answer to %s", l->step == RUNNING ? l->kind->shell : "an acquire");
            }
            open += l->step != IDLE;
        }
        if (open == 0)
            continue;
        struct pollfd p = { .fd = sandbox_client_fd(c), .events = POLLIN };
        struct err err = { 0 };
        poll(&p, 1, 50);
        if (sandbox_client_dispatch(c, &err) < 0)
            fail_msg("%s", err.msg);
    }
}

/* `kept`: descriptors that the jail opens at their first use and keeps. */
static bool same(const struct census *a, const struct census *b, long kept)
{
    return a->client_fds == b->client_fds && b->jail_fds >= a->jail_fds && b->jail_fds <= a->jail_fds + kept &&
           a->processes == b->processes && b->zombies == 0 && a->mounts == b->mounts && a->namespaces == b->namespaces &&
           a->cgroups == b->cgroups;
}

/* Until the figures are those of `like`, or for NULL until they stand still. */
static struct census at_rest(struct sandbox_client *c, long *guardian, const struct census *like, long kept)
{
    struct census now = census_take(guardian), was;
    uint64_t end = clock_mono_ns() + REST_NS;
    do {
        struct err err = { 0 };
        was = now;
        usleep(200000);
        if (sandbox_client_dispatch(c, &err) < 0)
            fail_msg("%s", err.msg);
        now = census_take(guardian);
    } while (!(like != NULL ? same(like, &now, kept) : same(&was, &now, 0)) && clock_mono_ns() < end);
    return now;
}

static void soak(void **state)
{
    (void)state;
    long guardian = 0;
    struct census outside = census_take(&guardian), started, before, after, left;
    struct sandbox_client *c = box_start((uint32_t)at_once);
    struct lane *lanes = calloc((size_t)at_once, sizeof *lanes);
    assert_non_null(lanes);
    own_fd dir = open(geteuid() == 0 ? "/usr/share/doc" : ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    started = at_rest(c, &guardian, NULL, 0);
    uint64_t began = clock_mono_ns();
    some(c, lanes, dir, sandboxes / 10);
    before = at_rest(c, &guardian, &started, KEPT);
    some(c, lanes, dir, sandboxes - sandboxes / 10);
    uint64_t took = clock_mono_ns() - began;
    after = at_rest(c, &guardian, &before, 0);
    printf("%d sandboxes, %d at once, in %.1f s: %ld exit, %ld signal, %ld time limit, %ld memory limit, %ld output limit, "
           "%ld killed, %ld refused, %ld closed early\n", sandboxes, at_once, (double)took / 1e9, ends[SANDBOX_END_EXIT],
           ends[SANDBOX_END_SIGNAL], ends[SANDBOX_END_TIME_LIMIT], ends[SANDBOX_END_MEMORY_LIMIT], ends[SANDBOX_END_OUTPUT_LIMIT],
           ends[SANDBOX_END_KILLED], refused, closed_early);
    times_print("acquire", &acquire_times);
    times_print("run lag", &run_times);
    census_print("started", &started);
    census_print("a tenth", &before);
    census_print("after", &after);
    assert_true(started.processes >= 2 * at_once && started.cgroups >= 0);      /* it does count */
    assert_true(same(&started, &before, KEPT));
    assert_true(same(&before, &after, 0));
    assert_int_equal(before.host_mounts, after.host_mounts);
    assert_true(after.client_kib <= before.client_kib + RESIDENT_KIB);
    assert_true(after.jail_kib <= before.jail_kib + RESIDENT_KIB);
#ifndef __SANITIZE_ADDRESS__                    /* that keeps what was freed, and a launcher lives on */
    assert_true(after.below_kib <= before.below_kib + BELOW_KIB * before.processes);
#endif
    assert_true(after.kernel_kib <= before.kernel_kib + KERNEL_KIB);
    sandbox_client_close(c);
    left = census_take(&guardian);
    census_print("closed", &left);
    assert_int_equal(left.processes, outside.processes);
    assert_int_equal(left.client_fds, outside.client_fds + 1);                  /* dir */
    assert_int_equal(left.host_mounts, outside.host_mounts);
    assert_int_equal(left.cgroups, 0);
    free(lanes);
}

/* The client is closed with sandboxes in every state: all of it goes, and their owners can still close them. */
static void close_amid(void **state)
{
    (void)state;
    long guardian = 0;
    struct sandbox_client *c = box_start((uint32_t)at_once);
    struct lane *lanes = calloc((size_t)at_once, sizeof *lanes);
    assert_non_null(lanes);
    for (int i = 0; i < at_once; i++)
        begin(c, &lanes[i], -1);
    for (int turns = 0; turns < 10; turns++) {
        struct pollfd p = { .fd = sandbox_client_fd(c), .events = POLLIN };
        struct err err = { 0 };
        poll(&p, 1, 20);
        if (sandbox_client_dispatch(c, &err) < 0)
            fail_msg("%s", err.msg);
        for (int i = 0; i < at_once; i++)
            if (lanes[i].step == ACQUIRING && lanes[i].acquired.come && lanes[i].acquired.rc == 0 && rnd(2) == 0) {
                lanes[i].sandbox = lanes[i].acquired.sandbox;
                run(&lanes[i]);
            }
    }
    (void)census_take(&guardian);
    assert_true(guardian > 0);
    sandbox_client_close(c);
    for (int i = 0; i < at_once; i++) {
        if (lanes[i].sandbox == NULL && lanes[i].acquired.come)
            lanes[i].sandbox = lanes[i].acquired.sandbox;
        leave(&lanes[i]);
    }
    struct census left = census_take(&guardian);
    assert_int_equal(left.processes, 0);
    assert_int_equal(left.cgroups, 0);
    free(lanes);
}

int main(int argc, char **argv)
{
    if (argc == 3) {
        sandboxes = atoi(argv[1]);
        at_once = atoi(argv[2]);
    }
    if ((argc != 1 && argc != 3) || sandboxes < 10 || at_once < 1 || at_once > 1024) {
        fprintf(stderr, "usage: %s [SANDBOXES AT_ONCE]\n", argv[0]);
        return 64;
    }
    const struct CMUnitTest tests[] = { cmocka_unit_test(soak), cmocka_unit_test(close_amid) };
    return cmocka_run_group_tests_name("sandbox soak", tests, NULL, NULL);
}
