/*
 * bench_sandbox.c - what isolation costs, beside bubblewrap, crun and (where there is one) runc, in one run.
 * figures: sandbox-overhead-vs-bwrap sandbox-overhead-vs-crun sandbox-overhead-vs-runc sandbox-p99-vs-bwrap-min
 * figures: sandbox-stalls sandbox-pool-empty-vs-bwrap sandbox-pool-reset-vs-bwrap sandbox-all-fresh-vs-bwrap
 * figures: sandbox-first-of-all-vs-bwrap sandbox-rate-vs-bwrap-2 sandbox-rate-vs-bwrap-8 sandbox-rate-vs-bwrap-32
 * figures: sandbox-idle-pss sandbox-rate-vs-crun-2 sandbox-rate-vs-crun-8 sandbox-rate-vs-crun-32
 * figures: sandbox-rate-2 sandbox-rate-8 sandbox-rate-32 sandbox-bare-us sandbox-bwrap-us sandbox-crun-us sandbox-runc-us
 * figures: sandbox-ours-us sandbox-ours-in-a-row-us sandbox-pool-empty-us sandbox-pool-reset-us sandbox-all-fresh-us
 * figures: sandbox-idle-pss-with-jail sandbox-libc-overhead-vs-bwrap sandbox-libc-overhead-vs-crun
 * figures: sandbox-libc-overhead-vs-runc sandbox-libc-bare-us sandbox-libc-bwrap-us sandbox-libc-crun-us
 * figures: sandbox-libc-runc-us sandbox-libc-ours-us sandbox-libc-rate-vs-bwrap-8 sandbox-libc-rate-vs-crun-8
 * figures: sandbox-libc-rate-8
 *
 * All sides run one program by its path, without a shell, and its exit status is looked at: true.c, which has no libc, and
 * for the figures named libc /bin/true. Before anything is measured each side has to run programs whose exit statuses say
 * that they ran, in a pid and a network namespace of their own, and for us and the OCI runtimes that the task limit holds.
 * Ours has limits (memory, tasks, CPU), an own /etc and a writable layer over all; bubblewrap has none of them; crun and
 * runc have the limits. Their bundle (config.json, the host's root bound as root) and the mount namespace it lies in are
 * made beforehand. Neither a filter for system calls nor /dev/pts or /sys is asked of them, though ours has the filter.
 *
 *   overhead    (ours - bare) / (peer - bare), medians of a round; ours is from sandbox_acquire_run() to the result with its
 *               output. In every step of a round each side runs once, in an order drawn anew, after a pause in which what
 *               the one before left for later (the next sandbox made, a network unmade) comes to its end.
 *   p99, stalls 10,000 runs of ours, taking turns with bare spawns, without any pause. A stall is a run above 50 ms. It is
 *               put down to the machine where a bare spawn within 200 ms took ten times bare's median; how many those are
 *               stands beside it.
 *   pool-empty  overhead likewise, where a sandbox that has written to /usr is given back, and its slot is waited for, taken
 *               and used: from before it is given back until the next command has run. The world of that sandbox is of no
 *               more use, so every mount, process and namespace but that of the network (and, with cgroup v1, the control
 *               groups) is made anew.
 *   pool-reset  the same where the sandbox has run the program only: its world is proved to be as new.
 *   all-fresh   overhead of one more sandbox of which all is new, control groups, user namespace, network and root:
 *               from before the start of a jail for 32 until every slot it makes, spares too, has run the program, less the
 *               same for a jail for 1, so that what a jail does once falls out. Theirs and bare: the time of as many runs
 *               less that of as few, as many at once as there are cores, because the jail uses all of them too. Of the end,
 *               either side pays only what the kernel does meanwhile.
 *               first-of-all is a client of one: all the time from before the start of the jail until its command has run,
 *               by that of one bwrap.
 *   rate        runs per second, K at once, for 1.5 s after a start that is not counted; everything made or unmade in the
 *               background happens on the same cores in the same time.
 *   idle-pss    proportional memory of all processes of a slot that is ready; with-jail adds the slot's
 *               share of the jail itself (64 KiB of it for output).
 *
 * A figure is the median of the rounds with (min … max) of the rounds; times in us are of all runs. "Of all minima" is the
 * same ratio of the fastest runs: where neighbours load the machine, it moves least.
 */
#include "tests/sandbox/box.h"
#include "tests/sandbox/census.h"
#include "tests/bench/peers.h"
#include "base/frame.h"
#include "sandbox/grant.h"
#include <sys/socket.h>

enum { ROUNDS = 5, RUNS = 40, ROW = 10000, EMPTY_RUNS = 20, FRESH = 32, RATE_ROUNDS = 3, WIDTH_MAX = 32, IDLE = 64 };
#define SETTLE_US 10000
#define STALL_US 50e3
#define NOISE_FACTOR 10
#define NOISE_WINDOW_US 200e3
#define WARM_NS (300 * NS_PER_MS)
#define COUNT_NS (1500 * NS_PER_MS)
#define RATE_SETTLE_US 500000

static const struct sandbox_limits limits = { .wall_ns = 30 * NS_PER_S, .memory_bytes = PEERS_MEMORY_BYTES,
                                              .pids = PEERS_TASKS, .cpu_percent = PEERS_CPU_PERCENT };
#define TRIES_80_TASKS "exec 2>/dev/null; i=0; while [ $i -lt 80 ]; do sleep 9 & i=$((i+1)); done; exit 7"
enum { CANNOT_FORK = 2 };                   /* so does the shell end */

static char *program[] = { WORD(PEERS_TRUE), NULL };
static char *exit_7[] = { WORD(PEERS_TRUE), WORD("-c"), WORD("exit 7"), NULL };     /* it takes any argument for that */
static char *const libc_true[] = { WORD("/bin/true"), NULL };
static char *const exit_7_alone[] = {
    WORD("/bin/sh"), WORD("-c"), WORD("[ $$ -le 9 ] && [ $(grep -c : /proc/net/dev) = 1 ] && exit 7"), NULL };
static char *const tasks_80[] = { WORD("/bin/sh"), WORD("-c"), WORD(TRIES_80_TASKS), NULL };

/* ---- ours ---- */

static struct sandbox_client *start(uint32_t slots)
{
    struct sandbox_client *c;
    struct err err = { 0 };
    if (sandbox_client_start(&c, box_jail(), slots, &err) < 0)
        die("jail", err.msg);
    return c;
}

struct job { struct outcome acquired, done; };

static void on_acquired(void *arg, int rc, struct sandbox *s, const struct err *err)
{
    struct job *job = arg;
    box_acquired(&job->acquired, rc, s, err);
    if (rc < 0)
        die("acquire", job->acquired.err.msg);
}

static void on_done(void *arg, int rc, struct sandbox_result *r, const struct err *err)
{
    struct job *job = arg;
    box_done(&job->done, rc, r, err);
    if (rc < 0)
        die("run", job->done.err.msg);
}

static void begin(struct sandbox_client *c, struct job *job)
{
    struct err err = { 0 };
    struct sandbox_command cmd = { .argv = (const char *const *)words };
    *job = (struct job){ 0 };
    if (sandbox_acquire_run(c, &BOX_EMPTY, &limits, &cmd, on_acquired, on_done, job, &err) < 0)
        die("acquire", err.msg);
}

/* Its exit status. The sandbox is still held. */
static int ended(struct job *job)
{
    int status = job->done.result.end == SANDBOX_END_EXIT ? job->done.result.value : -1;
    outcome_done(&job->done);
    return status;
}

static int status_of_sandbox(struct sandbox_client *c, double *us)
{
    struct job job;
    uint64_t began = clock_mono_ns();
    begin(c, &job);
    if (box_wait(c, &job.done.come, 60000) < 0)
        die("ours", "no answer");
    *us = since_us(began);
    sandbox_close(job.acquired.sandbox);
    return ended(&job);
}

static double us_of_sandbox(struct sandbox_client *c)
{
    double us;
    if (status_of_sandbox(c, &us) != 0)
        die("ours", "its command failed");
    return us;
}

/* ---- does everybody do what is measured? ---- */

static bool peer_ends(struct side *s, char *const *argv, int want)
{
    double us;
    set_program(argv);
    int got = status_of(s, &us);
    if (got != want)
        fprintf(stderr, "bench_sandbox: %s: `%s` ended with %d, not %d\n", s->name, argv[2], got, want);
    return got == want;
}

static bool there[SIDES] = { [BARE] = true, [OURS] = true };

static void choose_program(void)
{
    if (place_true())
        return;
    fprintf(stderr, "bench_sandbox: no directory /opt to show a program without libc in: all figures are of /bin/true\n");
    program[0] = libc_true[0];
    exit_7[0] = exit_7_alone[0];
}

static void check_all(struct sandbox_client *c)
{
    double us;
    if (!peer_ends(&sides[BARE], exit_7, 7))
        die("bare", "cannot be measured");
    for (int k = BWRAP; k < OURS; k++) {
        there[k] = there[k] && peer_ends(&sides[k], exit_7, 7) && peer_ends(&sides[k], exit_7_alone, 7) &&
                   (!sides[k].oci || peer_ends(&sides[k], tasks_80, CANNOT_FORK));
        if (!there[k])
            fprintf(stderr, "bench_sandbox: no figures beside %s\n", sides[k].name);
    }
    set_program(exit_7);
    if (status_of_sandbox(c, &us) != 7)
        die("ours", "the program did not run");
    set_program(exit_7_alone);
    if (status_of_sandbox(c, &us) != 7)
        die("ours", "the command did not run alone");
    set_program(tasks_80);
    if (status_of_sandbox(c, &us) != CANNOT_FORK)
        die("ours", "the task limit does not hold");
    set_program(program);
}

/* ---- figures ---- */

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts. */
static double at(double *v, int n, double percent)
{
    qsort(v, (size_t)n, sizeof *v, by_size);
    int i = (int)(n * percent / 100);
    return v[i < n ? i : n - 1];
}

static void show(const char *name, double *v, int n, const char *unit, const char *peer)
{
    double median = at(v, n, 50);
    printf("%s %.3f %s (%.3f … %.3f%s%s)\n", name, median, unit, v[0], v[n - 1], *peer ? "; " : "", peer);
    fflush(stdout);
}

static void show_us(const char *name, double *v, int n, const char *peer)
{
    double median = at(v, n, 50);
    printf("%s %.1f us (min %.1f, p99 %.1f, max %.1f%s%s)\n", name, median, v[0], at(v, n, 99), v[n - 1],
           *peer ? "; " : "", peer);
    fflush(stdout);
}

static double bwrap_min_us;                 /* 0: not measured */

static double overhead_ratio(double ours, double theirs, double bare) { return (ours - bare) / (theirs - bare); }

/* v[r] of each round; least: of the fastest runs of all. */
static void show_overhead(const char *name, double *v, double least, const char *peer)
{
    char text[128];
    snprintf(text, sizeof text, "of all minima %.3f; %s", least, peer);
    show(name, v, ROUNDS, "ratio", text);
}

/* `kind` is part of the figures' names. Returns the fastest run of bwrap, 0 where there is none. */
static double overhead(struct sandbox_client *c, const char *kind)
{
    static double us[SIDES][ROUNDS][RUNS];
    double ratio[SIDES][ROUNDS], median[SIDES];
    for (int r = 0; r < ROUNDS; r++) {
        for (int i = 0; i < RUNS; i++) {
            int order[SIDES];
            for (int k = 0; k < SIDES; k++) {           /* a drawn order */
                int j = rand() % (k + 1);
                order[k] = order[j];
                order[j] = k;
            }
            for (int n = 0; n < SIDES; n++) {
                int k = order[n];
                if (!there[k])
                    continue;
                usleep(SETTLE_US);
                us[k][r][i] = k == OURS ? us_of_sandbox(c) : us_of(&sides[k]);
            }
        }
        for (int k = 0; k < SIDES; k++)
            median[k] = at(us[k][r], RUNS, 50);
        for (int k = BWRAP; k < OURS; k++)
            ratio[k][r] = overhead_ratio(median[OURS], median[k], median[BARE]);
    }
    double least[SIDES];
    for (int k = 0; k < SIDES; k++)
        least[k] = at(&us[k][0][0], ROUNDS * RUNS, 0);
    for (int k = BWRAP; k < OURS; k++) {
        char name[64];
        snprintf(name, sizeof name, "sandbox%s-overhead-vs-%s", kind, sides[k].name);
        if (there[k])
            show_overhead(name, ratio[k], overhead_ratio(least[OURS], least[k], least[BARE]), sides[k].version);
    }
    for (int k = 0; k < SIDES; k++) {
        char name[64];
        snprintf(name, sizeof name, "sandbox%s-%s-us", kind, sides[k].name);
        if (there[k])
            show_us(name, &us[k][0][0], ROUNDS * RUNS, sides[k].version);
    }
    return there[BWRAP] ? least[BWRAP] : 0;
}

static void in_a_row(struct sandbox_client *c)
{
    static double ours[ROW], bare[ROW], from[ROW], sorted[ROW];     /* us; from: when bare's ended and ours began */
    uint64_t began = clock_mono_ns();
    for (int i = 0; i < ROW; i++) {
        bare[i] = us_of(&sides[BARE]);
        from[i] = since_us(began);
        ours[i] = us_of_sandbox(c);
    }
    memcpy(sorted, bare, sizeof sorted);
    double unusual = NOISE_FACTOR * at(sorted, ROW, 50), longest_bare = sorted[ROW - 1];
    int stalls = 0, noise = 0;
    for (int i = 0; i < ROW; i++) {
        if (ours[i] <= STALL_US)
            continue;
        bool noisy = false;
        for (int k = i; k >= 0 && from[k] > from[i] - NOISE_WINDOW_US; k--)
            noisy |= bare[k] > unusual;
        for (int k = i + 1; k < ROW && from[k] - bare[k] < from[i] + ours[i] + NOISE_WINDOW_US; k++)
            noisy |= bare[k] > unusual;
        stalls += !noisy;
        noise += noisy;
    }
    if (bwrap_min_us > 0)
        printf("sandbox-p99-vs-bwrap-min %.3f ratio (p99.9 %.3f; %s)\n", at(ours, ROW, 99) / bwrap_min_us,
               at(ours, ROW, 99.9) / bwrap_min_us, sides[BWRAP].version);
    printf("sandbox-stalls %d of_%d (longest %.1f ms; %d more beside unusual bare spawns, longest bare %.1f ms)\n",
           stalls, ROW, at(ours, ROW, 100) / 1e3, noise, longest_bare / 1e3);
    show_us("sandbox-ours-in-a-row-us", ours, ROW, "");
}

/* A jail spoken to about one slot at a time and without the client, which would take another slot that is ready. */
struct door { int sock; pid_t jail; uint32_t slot, generation; };

static struct grant_answer next_answer(struct door *d)
{
    struct grant_answer a;
    struct err err = { 0 };
    int fds[FRAME_FDS_MAX], nfds;
    if (frame_recv(d->sock, &a, sizeof a, fds, &nfds, &err) != (int)sizeof a)
        die("jail", "is gone");
    for (int i = 0; i < nfds; i++)
        close(fds[i]);
    if (a.rc < 0)
        die("jail", a.msg);
    return a;
}

static int status_in(const struct grant_answer *a)
{
    return a->result.end == SANDBOX_END_EXIT ? a->result.value : -1;
}

/* The next answer of this kind about the door's slot. Returns the exit status for GRANT_DONE. */
static int answer(struct door *d, uint32_t kind)
{
    for (;;) {
        struct grant_answer a = next_answer(d);
        if (a.kind == kind && a.slot == d->slot) {
            d->generation = a.generation;
            return status_in(&a);
        }
    }
}

struct text { size_t len; char bytes[256]; };   /* a command as it travels */

static void request(struct door *d, uint32_t kind, const struct text *command)
{
    struct { struct grant_request r; char command[sizeof command->bytes]; } p = {
        .r = { .kind = kind, .slot = d->slot, .generation = d->generation } };
    size_t len = command == NULL ? 0 : command->len;
    struct err err = { 0 };
    if (kind == GRANT_ACQUIRE)
        p.r.limits = limits;
    if (len > 0)
        memcpy(p.command, command->bytes, len);
    if (frame_send(d->sock, &p, sizeof p.r + len, NULL, 0, &err) < 0)
        die("jail", err.msg);
}

static void door_open(struct door *d, unsigned wanted)
{
    int pair[2];
    char count[16], *argv[] = { WORD("assay-jail"), count, NULL };
    snprintf(count, sizeof count, "%u", wanted);
    posix_spawn_file_actions_t fa;
    posix_spawn_file_actions_init(&fa);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0 ||
        posix_spawn_file_actions_adddup2(&fa, pair[1], 3) != 0 ||
        posix_spawn(&d->jail, box_jail(), &fa, NULL, argv, environ) != 0)
        die("jail", "cannot be started");
    posix_spawn_file_actions_destroy(&fa);
    close(pair[1]);
    d->sock = pair[0];
    d->slot = 0;
}

static void door_close(struct door *d)
{
    close(d->sock);
    waitpid(d->jail, NULL, 0);
}

/* The program without arguments, or shell text. */
static struct text command_text(const char *path, const char *shell)
{
    struct text t;
    const uint32_t argc = shell == NULL ? 1 : 3;
    memcpy(t.bytes, &argc, sizeof argc);
    t.len = sizeof argc;
    t.len += (size_t)snprintf(t.bytes + t.len, sizeof t.bytes - t.len, "%s%c%s%c", path, 0, path, 0);
    if (shell != NULL)
        t.len += (size_t)snprintf(t.bytes + t.len, sizeof t.bytes - t.len, "-c%c%s%c", 0, shell, 0);
    return t;
}

/* `leave_text`: for a shell, what the sandbox does before it is given back; NULL: the program. */
static void pool(const char *name, const char *leave_text)
{
    double ratio[ROUNDS], us[ROUNDS][EMPTY_RUNS], bwrap[ROUNDS][EMPTY_RUNS], bare[ROUNDS][EMPTY_RUNS];
    const int all = ROUNDS * EMPTY_RUNS;
    char text[64];
    struct door d;
    struct text command = command_text(program[0], NULL);
    struct text before = leave_text == NULL ? command : command_text("/bin/sh", leave_text);
    door_open(&d, 1);
    answer(&d, GRANT_READY);
    request(&d, GRANT_ACQUIRE, NULL);
    answer(&d, GRANT_ACQUIRED);
    for (int r = 0; r < ROUNDS; r++) {
        for (int i = 0; i < EMPTY_RUNS; i++) {
            request(&d, GRANT_RUN, &before);
            if (answer(&d, GRANT_DONE) != 0)
                die(name, "a sandbox cannot be left as wanted");
            usleep(SETTLE_US);
            uint64_t began = clock_mono_ns();
            request(&d, GRANT_CLOSE, NULL);
            answer(&d, GRANT_READY);
            request(&d, GRANT_ACQUIRE, NULL);
            request(&d, GRANT_RUN, &command);
            int status = answer(&d, GRANT_DONE);
            us[r][i] = since_us(began);
            if (status != 0)
                die(name, "its command failed");
            usleep(SETTLE_US);
            bwrap[r][i] = us_of(&sides[BWRAP]);
            usleep(SETTLE_US);
            bare[r][i] = us_of(&sides[BARE]);
        }
        ratio[r] = overhead_ratio(at(us[r], EMPTY_RUNS, 50), at(bwrap[r], EMPTY_RUNS, 50), at(bare[r], EMPTY_RUNS, 50));
    }
    door_close(&d);
    snprintf(text, sizeof text, "%s-vs-bwrap", name);
    show_overhead(text, ratio, overhead_ratio(at(&us[0][0], all, 0), at(&bwrap[0][0], all, 0), at(&bare[0][0], all, 0)),
                  sides[BWRAP].version);
    snprintf(text, sizeof text, "%s-us", name);
    show_us(text, &us[0][0], all, "");
}

/* From before the start of a jail for `wanted` until every slot it makes has run the program once. */
static double us_of_jail(unsigned wanted, uint32_t *out_slots)
{
    const struct text command = command_text(program[0], NULL);
    struct door d;
    uint32_t slots = 0, done = 0;
    uint64_t began = clock_mono_ns();
    door_open(&d, wanted);
    while (slots == 0 || done < slots) {
        struct grant_answer a = next_answer(&d);
        if (a.kind == GRANT_HELLO) {
            slots = a.slots;
        } else if (a.kind == GRANT_READY) {
            d.slot = a.slot;
            d.generation = a.generation;
            request(&d, GRANT_ACQUIRE, NULL);
            request(&d, GRANT_RUN, &command);
        } else if (a.kind == GRANT_DONE) {
            if (status_in(&a) != 0)
                die("all-fresh", "its command failed");
            done++;
        }
    }
    double us = since_us(began);
    door_close(&d);
    *out_slots = slots;
    return us;
}

static double us_of_first(void)
{
    uint64_t began = clock_mono_ns();
    struct sandbox_client *c = start(1);
    us_of_sandbox(c);
    double us = since_us(began);
    sandbox_client_close(c);
    return us;
}

/* n runs, as many at once as there are cores. */
static double us_of_many(struct side *s, uint32_t n)
{
    const uint32_t cores = (uint32_t)sysconf(_SC_NPROCESSORS_ONLN);
    usleep(RATE_SETTLE_US);
    uint64_t began = clock_mono_ns();
    for (uint32_t started = 0, over = 0; over < n; ) {
        int status;
        if (started < n && started - over < cores) {
            spawned(s);
            started++;
        } else if (wait(&status) > 0) {
            if (status != 0)
                die(s->name, "its command failed");
            over++;
        }
    }
    return since_us(began);
}

/* us; what more of them cost is the difference. */
struct more { double few[ROUNDS], many[ROUNDS]; };

static double more_least(struct more *m) { return at(m->many, ROUNDS, 0) - at(m->few, ROUNDS, 0); }

static void all_fresh(void)
{
    struct more m[SIDES] = { 0 };
    double ratio[ROUNDS], us[ROUNDS], first[ROUNDS];
    for (int r = 0; r < ROUNDS; r++) {
        uint32_t few, many;
        double more[SIDES];
        usleep(RATE_SETTLE_US);
        m[OURS].few[r] = us_of_jail(1, &few);
        usleep(RATE_SETTLE_US);
        m[OURS].many[r] = us_of_jail(FRESH, &many);
        for (int k = BARE; k <= BWRAP; k++) {
            m[k].few[r] = us_of_many(&sides[k], few);
            m[k].many[r] = us_of_many(&sides[k], many);
        }
        for (int k = 0; k < SIDES; k++)
            more[k] = m[k].many[r] - m[k].few[r];
        ratio[r] = overhead_ratio(more[OURS], more[BWRAP], more[BARE]);
        us[r] = more[OURS] / (many - few);
        usleep(RATE_SETTLE_US);
        double one = us_of_first();
        usleep(SETTLE_US);
        first[r] = one / us_of(&sides[BWRAP]);
    }
    show_overhead("sandbox-all-fresh-vs-bwrap", ratio,
                  overhead_ratio(more_least(&m[OURS]), more_least(&m[BWRAP]), more_least(&m[BARE])), sides[BWRAP].version);
    show_us("sandbox-all-fresh-us", us, ROUNDS, "");
    show("sandbox-first-of-all-vs-bwrap", first, ROUNDS, "ratio", sides[BWRAP].version);
}

/* Ends of runs counted after the start and until the end of the measured time; what still runs then is seen through. */
struct meter { uint64_t from_ns, to_ns; long count; };

static struct meter meter_begin(void)
{
    uint64_t now = clock_mono_ns();
    return (struct meter){ now + WARM_NS, now + WARM_NS + COUNT_NS, 0 };
}

/* One run is over. May another begin? */
static bool meter_tick(struct meter *m)
{
    uint64_t now = clock_mono_ns();
    m->count += now >= m->from_ns && now < m->to_ns;
    return now < m->to_ns;
}

static double rate_of(struct side *s, int width)
{
    enter(s);
    struct meter m = meter_begin();
    int open = 0, status;
    for (; open < width; open++)
        spawned(s);
    while (open > 0) {
        if (wait(&status) < 0)
            continue;
        if (status != 0)
            die(s->name, "its command failed");
        if (meter_tick(&m))
            spawned(s);
        else
            open--;
    }
    leave(s);
    return (double)m.count * 1e9 / COUNT_NS;
}

static double rate_of_sandboxes(struct sandbox_client *c, int width)
{
    static struct job jobs[WIDTH_MAX];
    struct err err = { 0 };
    struct meter m = meter_begin();
    int open = width;
    for (int i = 0; i < width; i++)
        begin(c, &jobs[i]);
    while (open > 0) {
        struct pollfd p = { .fd = sandbox_client_fd(c), .events = POLLIN };
        poll(&p, 1, -1);
        if (sandbox_client_dispatch(c, &err) < 0)
            die("rate", err.msg);
        for (int i = 0; i < width; i++) {
            if (!jobs[i].done.come)
                continue;
            if (ended(&jobs[i]) != 0)
                die("rate", "a command failed");
            sandbox_close(jobs[i].acquired.sandbox);
            if (meter_tick(&m))
                begin(c, &jobs[i]);
            else
                open--;
        }
    }
    return (double)m.count * 1e9 / COUNT_NS;
}

/* `kind` is part of the figures' names. */
static void rates(const char *kind, int width)
{
    double ours[RATE_ROUNDS], ratio[SIDES][RATE_ROUNDS];
    char name[64];
    struct sandbox_client *c = start((uint32_t)width);
    for (int r = 0; r < RATE_ROUNDS; r++) {
        double rate[SIDES] = { 0 };
        for (int n = 0; n < SIDES; n++) {
            int k = (n + r) % SIDES;
            if (!there[k] || k == BARE || k == RUNC)
                continue;
            usleep(RATE_SETTLE_US);
            rate[k] = k == OURS ? rate_of_sandboxes(c, width) : rate_of(&sides[k], width);
        }
        ours[r] = rate[OURS];
        for (int k = BWRAP; k <= CRUN; k++)
            ratio[k][r] = rate[OURS] / rate[k];
    }
    sandbox_client_close(c);
    for (int k = BWRAP; k <= CRUN; k++) {
        snprintf(name, sizeof name, "sandbox%s-rate-vs-%s-%d", kind, sides[k].name, width);
        if (there[k])
            show(name, ratio[k], RATE_ROUNDS, "ratio", sides[k].version);
    }
    snprintf(name, sizeof name, "sandbox%s-rate-%d", kind, width);
    show(name, ours, RATE_ROUNDS, "per_s", "");
}

static void idle(void)
{
    struct sandbox_client *c = start(IDLE);
    long guardian = 0;
    struct census now = census_take(&guardian), was;
    do {                                    /* until all are made */
        was = now;
        usleep(RATE_SETTLE_US);
        now = census_take(&guardian);
    } while (now.processes != was.processes || now.mounts != was.mounts);
    double pss = (double)now.slots_pss_kib / (double)now.slots, jail = (double)now.jail_pss_kib / (double)now.slots;
    printf("sandbox-idle-pss %.1f KiB (%ld ready slots, %.1f processes each)\n", pss, now.slots,
           (double)now.slots_processes / (double)now.slots);
    printf("sandbox-idle-pss-with-jail %.1f KiB (%ld ready slots)\n", pss + jail, now.slots);
    sandbox_client_close(c);
}

/* `make bench ONLY=NAME` runs only the part that has a figure whose name begins so. */
static bool wanted(const char *figures)
{
    const char *only = getenv("ONLY");
    bool found = only == NULL || *only == '\0';
    for (const char *f = figures; f != NULL && !found; f = strchr(f, ' ')) {
        f += *f == ' ';
        found = strncmp(f, only, strlen(only)) == 0;
    }
    return found;
}

int main(void)
{
    static const int widths[] = { 2, 8, 32 };
    choose_program();
    make_bundle();
    atexit(remove_bundle);
    for (int k = BWRAP; k < OURS; k++)
        there[k] = find_peer(&sides[k]);
    struct sandbox_client *c = start(4);
    check_all(c);
    if (wanted("sandbox-overhead-vs-bwrap sandbox-overhead-vs-crun sandbox-overhead-vs-runc sandbox-p99-vs-bwrap-min "
               "sandbox-bare-us sandbox-bwrap-us sandbox-crun-us sandbox-runc-us sandbox-ours-us"))
        bwrap_min_us = overhead(c, "");
    if (wanted("sandbox-p99-vs-bwrap-min sandbox-stalls sandbox-ours-in-a-row-us"))
        in_a_row(c);
    set_program(libc_true);
    if (wanted("sandbox-libc-overhead-vs-bwrap sandbox-libc-overhead-vs-crun sandbox-libc-overhead-vs-runc "
               "sandbox-libc-bare-us sandbox-libc-bwrap-us sandbox-libc-crun-us sandbox-libc-runc-us sandbox-libc-ours-us"))
        overhead(c, "-libc");
    set_program(program);
    sandbox_client_close(c);
    if (there[BWRAP] && wanted("sandbox-pool-empty-vs-bwrap sandbox-pool-empty-us"))
        pool("sandbox-pool-empty", ": >/usr/left");
    if (there[BWRAP] && wanted("sandbox-pool-reset-vs-bwrap sandbox-pool-reset-us"))
        pool("sandbox-pool-reset", NULL);
    if (there[BWRAP] && wanted("sandbox-all-fresh-vs-bwrap sandbox-all-fresh-us sandbox-first-of-all-vs-bwrap"))
        all_fresh();
    for (size_t i = 0; i < sizeof widths / sizeof widths[0]; i++) {
        char figures[96];
        snprintf(figures, sizeof figures, "sandbox-rate-vs-bwrap-%d sandbox-rate-vs-crun-%d sandbox-rate-%d",
                 widths[i], widths[i], widths[i]);
        if (wanted(figures))
            rates("", widths[i]);
    }
    set_program(libc_true);
    if (wanted("sandbox-libc-rate-vs-bwrap-8 sandbox-libc-rate-vs-crun-8 sandbox-libc-rate-8"))
        rates("-libc", 8);
    if (wanted("sandbox-idle-pss sandbox-idle-pss-with-jail"))
        idle();
    return 0;
}
