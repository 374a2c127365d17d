/* slot.c - see slot.h. */
#include "sandbox/slot.h"
#include "sandbox/cell.h"
#include "sandbox/maker.h"
#include "base/clock.h"
#include "base/frame.h"
#include "base/own.h"
#include "sandbox/ring.h"
#include "sandbox/warm.h"
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <fcntl.h>
#include "sandbox/report_files.h"

#define DRAIN_NS_MAX (10 * NS_PER_S)        /* from kill to the last process's death */
#define MAKE_NS_MAX (30 * NS_PER_S)
#define RETRY_NS (NS_PER_S / 2)
#define PRESET_BYTES_MIN ((uint64_t)64 << 20)
#define COLLECT_BYTES ((uint64_t)48 << 20)  /* memory granted beyond the limit to read files for the client */

static void drop_command(struct slot *s)
{
    drop_fd(&s->command);
    for (int i = 0; i < 3; i++)
        drop_fd(&s->streams[i]);
    drop_fd(&s->errors_fd);
}

static void drop_crew(struct slot *s)
{
    drop_fd(&s->run_fd);
    drop_fd(&s->door);
    s->ready = false;
}

static void drop_errors(struct slot *s)
{
    if (s->errors != NULL)
        munmap(s->errors, sizeof *s->errors);
    s->errors = NULL;
}

static void say(struct jail *j, struct slot *s, struct grant_answer *a, const int *fds, int nfds)
{
    struct grant_answer first = { .kind = GRANT_ACQUIRED, .slot = s->kit.slot, .generation = s->generation };
    if (s->untold)
        jail_answer(j, &first, NULL, 0);
    s->untold = false;
    if (a != NULL)
        jail_answer(j, a, fds, nfds);
}

static void answer(struct jail *j, struct slot *s, uint32_t kind, int rc, const struct err *why)
{
    struct grant_answer a = { .kind = kind, .slot = s->kit.slot, .generation = s->generation, .rc = rc };
    if (rc < 0) {
        a.sys = why->sys;
        memcpy(a.msg, why->msg, sizeof a.msg);
    }
    say(j, s, &a, NULL, 0);
}

/* The client hears of it in good time to be able to kill. Not at once: to wake it up in the midst of a run's beginning takes as
 * long as to begin the run, and one that is over soon makes it needless. */
static void acquired(struct jail *j, struct slot *s, int proxy)
{
    struct grant_answer a = { .kind = GRANT_ACQUIRED, .slot = s->kit.slot, .generation = s->generation,
                              .fds = proxy >= 0 ? GRANT_HAS_PROXY : 0 };
    s->state = SLOT_HELD;
    s->untold = s->late && proxy < 0;
    s->deadline_ns = s->untold ? clock_mono_ns() + GRANT_UNTOLD_NS : 0;
    if (!s->untold)
        jail_answer(j, &a, &proxy, proxy >= 0);
}

/* slot_deaths() follows. */
static void kill_launcher(const struct slot *s)
{
    if (s->launcher_fd >= 0)
        pidfd_send_signal(s->launcher_fd, SIGKILL, NULL, 0);
}

/* An order that the socket does not take means a slot that hangs. */
static void order(struct slot *s, struct order o, const int *fds, int nfds)
{
    struct err err;
    o.killed = s->crew_killed;
    if (frame_send(s->sock, &o, sizeof o, fds, nfds, &err) < 0)
        kill_launcher(s);
}

static void kill_crew(struct slot *s)
{
    s->crew_killed = true;
    if (s->run_fd >= 0)                         /* else as soon as it is known */
        pidfd_send_signal(s->run_fd, SIGKILL, NULL, 0);
}

static void cannot_make(struct jail *j, struct slot *s, int rc, const struct err *why)
{
    answer(j, s, GRANT_READY, rc, why);
    s->deadline_ns = clock_mono_ns() + RETRY_NS;
}

void slot_make(struct jail *j, struct slot *s)
{
    struct err err = { 0 };
    s->state = SLOT_MAKING;
    s->generation++;
    s->reason = SLOT_REASON_NONE;
    s->resetting = s->warm = s->crew_killed = false;
    s->deadline_ns = clock_mono_ns() + MAKE_NS_MAX;
    int rc = s->kit.userns < 0 ? jail_found(j, s, &err) : cgroup_slot_renew(&s->cgroup, &err);
    if (rc == 0)
        rc = jail_birth(j, s, &err);
    if (rc < 0)
        cannot_make(j, s, rc, &err);
}

void slot_born(struct jail *j, struct slot *s, uint32_t serial, int pidfd, int failed)
{
    struct err err;
    if (serial != s->serial) {                  /* given up meanwhile: it finds its socket closed, and ends */
        drop_fd(&pidfd);
        return;
    }
    s->launcher_fd = pidfd;
    errno = failed;
    int rc = pidfd < 0 ? err_sys(&err, ERR_DENIED, "new namespaces") : jail_watch(j, s, pidfd, &err);
    if (rc == 0)
        return;
    drop_fd(&s->launcher_fd);
    drop_fd(&s->sock);
    s->serial++;
    cannot_make(j, s, rc, &err);
}

/* As many processors as the share needs, of those there are. */
static uint32_t cpus_of(const struct slot *s)
{
    uint32_t n = (s->limits.cpu_percent + 99) / 100;
    return n < s->kit.cpus ? n : s->kit.cpus;
}

int slot_acquire(struct jail *j, struct slot *s, uint32_t which, const int *fds, int nfds, bool tree_own,
                 const struct grant_request *r, struct err *err)
{
    const struct sandbox_limits *limits = &r->limits;
    s->limits = *limits;
    s->late = r->option & GRANT_ACQUIRE_RUN;
    /* A host that must go first would be in the way of a small limit: then that is set when it has gone. */
    const bool tight = s->warm && limits->memory_bytes < WARM_MEMORY_MIN;
    s->cgroup.guest = (s->warm || (which & GRANT_FD_WARM)) && !tight;
    int rc = tight ? 0 : cgroup_limit(&s->cgroup, limits, err);
    if (rc < 0)
        return rc;
    s->warm |= (which & GRANT_FD_WARM) != 0;
    if (!tight && nfds == 0 && limits->network == SANDBOX_NET_LOOPBACK &&
        limits->disk_bytes == s->kit.disk_bytes && limits->disk_inodes == s->kit.disk_inodes &&
        cpus_of(s) == s->kit.cpus) {
        acquired(j, s, -1);                         /* it is what was asked for */
        return 0;
    }
    if ((which & (GRANT_FD_ROOT | ORDER_FD_USERNS)) || limits->network == SANDBOX_NET_NONE)
        drop_crew(s);                               /* the launcher ends it: it was made for another root, profile or network */
    struct order o = { .kind = ORDER_ACQUIRE, .fds = which, .tree_own = tree_own, .cpus = cpus_of(s), .limits = *limits };
    s->state = SLOT_ACQUIRING;
    s->deadline_ns = clock_mono_ns() + MAKE_NS_MAX;
    order(s, o, fds, nfds);
    return 0;
}

/* What is used from here on is used by the coming run: until then the slot is idle. */
static void mark(struct slot *s)
{
    cgroup_peak_reset(&s->cgroup);
    cgroup_usage(&s->cgroup, &s->before);
}

/* The waiting command has streams: it takes the way through the launcher, which serves them. */
static void start_streams(struct slot *s, const struct cell_order *cell)
{
    struct order o = { .kind = ORDER_RUN, .apart = s->errors_fd >= 0, .crew = s->crew, .cell = *cell };
    int fds[5] = { s->command }, n = 1;
    for (int i = 0; i < 3; i++)
        if (s->streams[i] >= 0) {
            o.fds |= GRANT_FD_IN << i;
            fds[n++] = s->streams[i];
        }
    if (o.apart)
        fds[n++] = s->errors_fd;
    order(s, o, fds, n);
    drop_command(s);
}

/* Hand the command to the crew: the one that waits, or `text`. From here on it may run. */
static void start(struct slot *s, const void *text, size_t len)
{
    const bool bare = s->cgroup.host->version == 0;
    struct { struct cell_order o; char text[GRANT_INLINE_MAX]; } c;
    c.o = (struct cell_order){
        .kind = CELL_RUN, .file_bytes = s->limits.file_bytes, .memory_bytes = bare ? s->limits.memory_bytes : 0,
        .cpu_s = s->cgroup.cpu_usage < 0 ? (s->limits.cpu_ns + NS_PER_S - 1) / NS_PER_S : 0,
        .pids = bare ? s->limits.pids : 0,
        .cpus = cpus_of(s) < s->kit.cpus ? cpus_of(s) : 0,
    };
    struct err err;
    s->began_ns = clock_mono_ns();
    s->ready = false;
    if (s->errors_fd >= 0 || s->streams[0] >= 0 || s->streams[1] >= 0 || s->streams[2] >= 0) {
        start_streams(s, &c.o);
        return;
    }
    /* Where the crew is dead already, the launcher tells so. */
    if (len > 0)
        memcpy(c.text, text, len);
    if (frame_send(s->door, &c, sizeof c.o + len, &s->command, len == 0, &err) < 0 && err.code != ERR_LOST)
        kill_launcher(s);
    drop_fd(&s->command);
}

/* A ring whose pages are the jail's and which the launcher can map: not there in a run that does not need it. */
static int errors_make(struct slot *s, struct err *err)
{
    s->errors_fd = memfd_create("errors", MFD_CLOEXEC);
    void *ring = s->errors_fd < 0 || ftruncate(s->errors_fd, sizeof(struct ring)) < 0 ? MAP_FAILED
               : mmap(NULL, sizeof(struct ring), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, s->errors_fd, 0);
    if (ring == MAP_FAILED)
        return err_sys(err, ERR_SYS, "standard error");
    madvise(ring, sizeof(struct ring), MADV_DONTFORK);      /* none of another slot's business */
    s->errors = ring;
    return 0;
}

/* The slot is held and has a command, waiting or as `text`: hand it to the crew, or have that made ready first. It may be
 * killed before that: what is told of it then must not be of the run before. */
static void begin(struct slot *s, const void *text, size_t len)
{
    s->kit.ring->total = s->kit.ring->tasks = s->kit.ring->over = 0;
    s->kit.ring->measure = s->measure;
    s->kit.ring->max = s->limits.output_bytes;
    if (!s->ready)
        mark(s);
    if (s->measure)
        cgroup_detail(&s->cgroup, &s->detail);
    uint64_t now = clock_mono_ns();
    s->state = SLOT_RUNNING;
    s->reason = SLOT_REASON_NONE;
    s->began_ns = now;
    s->wall_end_ns = now + s->limits.wall_ns;
    /* The CPU limit cannot be reached before every core has spun for its share of it. */
    uint64_t cores = (s->limits.cpu_percent + 99) / 100, cpu_at = now + s->limits.cpu_ns / (cores ? cores : 1);
    s->deadline_ns = cpu_at < s->wall_end_ns ? cpu_at : s->wall_end_ns;
    if (s->untold && s->deadline_ns > now + GRANT_UNTOLD_NS)
        s->deadline_ns = now + GRANT_UNTOLD_NS;
    if (s->ready)
        start(s, text, len);
    else
        order(s, (struct order){ .kind = ORDER_CREW }, NULL, 0);
}

static void take(int *to, int *from)
{
    *to = *from;
    *from = -1;
}

void slot_run(struct jail *j, struct slot *s, const struct grant_request *r, int *fds, const void *text, size_t len)
{
    struct err err;
    int rc = 0;
    if (r->fds & GRANT_FD_COMMAND)
        take(&s->command, fds++);
    for (int i = 0; i < 3; i++)
        if (r->fds & (GRANT_FD_IN << i))
            take(&s->streams[i], fds++);
    drop_errors(s);
    s->measure = r->option & GRANT_RUN_MEASURE;
    if (s->state == SLOT_DEAD)
        rc = err_set(&err, ERR_LOST, "the sandbox died: acquire another");
    else if (len > 0 && (s->state != SLOT_HELD || !s->ready))
        s->command = rc = frame_memfd("command", text, len, &err);          /* it has to wait */
    if (rc >= 0 && (r->option & GRANT_RUN_APART))
        rc = errors_make(s, &err);
    if (rc < 0) {
        drop_command(s);
        answer(j, s, GRANT_DONE, rc, &err);
    } else if (s->state == SLOT_HELD) {
        begin(s, text, s->command >= 0 ? 0 : len);
    }
}

void slot_kill(struct slot *s, enum slot_reason why)
{
    if (s->state != SLOT_RUNNING)
        return;
    s->state = SLOT_DRAIN;
    s->reason = why;
    s->deadline_ns = clock_mono_ns() + DRAIN_NS_MAX;
    drop_command(s);
    kill_crew(s);
}

/* The launcher can tell whether the next sandbox may have its world; what it was in the middle of would keep it from that. */
static bool reset(struct slot *s)
{
    const bool idle = s->state == SLOT_HELD || s->state == SLOT_RUNNING || s->state == SLOT_DRAIN;
    if (!idle || s->launcher_fd < 0 || !cgroup_settle(&s->cgroup))
        return false;
    if (s->state != SLOT_HELD) {
        kill_crew(s);
        drop_crew(s);
    }
    drop_command(s);
    s->ready = false;
    s->state = SLOT_MAKING;
    s->generation++;
    s->reason = SLOT_REASON_NONE;
    s->resetting = true;
    s->deadline_ns = clock_mono_ns() + DRAIN_NS_MAX;
    order(s, (struct order){ .kind = ORDER_RESET }, NULL, 0);
    return true;
}

void slot_scrub(struct jail *j, struct slot *s)
{
    say(j, s, NULL, NULL, 0);
    drop_errors(s);
    if (reset(s))
        return;
    s->state = SLOT_SCRUB;
    drop_crew(s);
    drop_command(s);
    drop_fd(&s->report_fd);
    s->deadline_ns = clock_mono_ns() + DRAIN_NS_MAX;
    if (s->launcher_fd >= 0)
        kill_launcher(s);
    else
        slot_make(j, s);
}

static uint64_t be_sure(uint64_t later, uint64_t earlier) { return later > earlier ? later - earlier : 0; }

/* What the agent wrote is charged to the sandbox and not sealed: the client gets a copy. */
static int report_copy(int from, uint64_t max, struct err *err)
{
    struct stat st;
    own_fd fd = memfd_create("report", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0 || fstat(from, &st) < 0)
        return err_sys(err, ERR_SYS, "report");
    off_t at = 0;
    while (at < st.st_size && (uint64_t)at < max) {
        ssize_t n = sendfile(fd, from, &at, (size_t)(st.st_size - at));
        if (n <= 0)
            return err_sys(err, ERR_SYS, "report: copy");
    }
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) < 0)
        return err_sys(err, ERR_SYS, "report: seal");
    return give_fd(&fd);
}

static void judge(const struct slot *s, const struct cgroup_usage *used, struct sandbox_result *r)
{
    int status = s->end.status;
    bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    bool oom = used->oom_kills > s->before.oom_kills;
    /* The shell that started the command says 128 + 9 for it when the command was its last word. */
    bool killed_below = WIFEXITED(status) && WEXITSTATUS(status) == 128 + SIGKILL;
    bool file_over = WIFSIGNALED(status) && WTERMSIG(status) == SIGXFSZ;
    bool no_page = WIFSIGNALED(status) ? WTERMSIG(status) == SIGBUS : WEXITSTATUS(status) == 128 + SIGBUS;
    bool cpu_over = s->cgroup.cpu_usage < 0 && WIFSIGNALED(status) && WTERMSIG(status) == SIGXCPU;
    r->end = WIFSIGNALED(status) ? SANDBOX_END_SIGNAL : SANDBOX_END_EXIT;
    r->value = WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
    bool over = s->kit.ring->over || (s->errors != NULL && s->errors->over);
    r->output_bytes = s->kit.ring->total + (s->errors != NULL ? s->errors->total : 0) + over;
    r->limits_hit = (oom ? SANDBOX_HIT_MEMORY : 0u) | (over ? SANDBOX_HIT_OUTPUT : 0u) |
                    (used->pids_hits > s->before.pids_hits ? SANDBOX_HIT_PIDS : 0u) |
                    (s->end.disk_full || file_over ? SANDBOX_HIT_DISK : 0u) | (cpu_over ? SANDBOX_HIT_CPU : 0u);
    r->oom_kills = (uint32_t)be_sure(used->oom_kills, s->before.oom_kills);
    r->pids_refused = (uint32_t)be_sure(used->pids_hits, s->before.pids_hits);
    /* A run that ended by itself a moment before it was to be killed keeps its own end. */
    if (killed && s->reason == SLOT_REASON_KILLED)
        r->end = SANDBOX_END_KILLED;
    else if ((killed && s->reason != SLOT_REASON_NONE) || cpu_over)
        r->end = SANDBOX_END_TIME_LIMIT;
    else if (r->limits_hit & SANDBOX_HIT_OUTPUT)
        r->end = SANDBOX_END_OUTPUT_LIMIT;
    else if ((killed || killed_below) && oom)
        r->end = SANDBOX_END_MEMORY_LIMIT;
    else if (file_over || (no_page && s->end.disk_full))
        r->end = SANDBOX_END_DISK_LIMIT;
    if (r->end == SANDBOX_END_TIME_LIMIT && !cpu_over)
        r->limits_hit |= s->reason == SLOT_REASON_CPU ? SANDBOX_HIT_CPU : SANDBOX_HIT_TIME;
}

static void tell_enforcers(const struct cgroup_slot *c, uint8_t out[SANDBOX_LIMIT_COUNT])
{
    const uint8_t group = c->host->version == 2 ? SANDBOX_BY_CGROUP_V2 : c->host->version == 1 ? SANDBOX_BY_CGROUP_V1
                        : SANDBOX_BY_RLIMIT;
    out[SANDBOX_LIMIT_TIME] = out[SANDBOX_LIMIT_OUTPUT] = SANDBOX_BY_JAIL;
    out[SANDBOX_LIMIT_MEMORY] = out[SANDBOX_LIMIT_PIDS] = group;
    out[SANDBOX_LIMIT_DISK] = SANDBOX_BY_MOUNT;
    out[SANDBOX_LIMIT_FILE] = SANDBOX_BY_RLIMIT;
    out[SANDBOX_LIMIT_CPU] = c->cpu_usage >= 0 ? group : SANDBOX_BY_RLIMIT;
    out[SANDBOX_LIMIT_CPU_SHARE] = c->cpu_percent != 0 ? group : SANDBOX_BY_NONE;
}

/* What was used between two readings of the control groups. */
static void tell_usage(const struct slot *s, uint64_t cpu_ns, struct sandbox_usage *out)
{
    struct cgroup_detail now;
    cgroup_detail(&s->cgroup, &now);
    uint64_t user = be_sure(now.user, s->detail.user), system = be_sure(now.system, s->detail.system);
    uint64_t major = be_sure(now.faults_major, s->detail.faults_major);
    *out = (struct sandbox_usage){
        .known = now.known & s->detail.known,
        .faults_minor = be_sure(be_sure(now.faults, s->detail.faults), major), .faults_major = major,
        .io_read_bytes = be_sure(now.io_read, s->detail.io_read),
        .io_written_bytes = be_sure(now.io_written, s->detail.io_written),
    };
    if (user + system == 0)
        out->known &= ~(uint32_t)SANDBOX_KNOWN_CPU;             /* too short for the kernel to have looked */
    else
        out->user_ns = (uint64_t)((double)cpu_ns * ((double)user / ((double)user + (double)system)));
    out->system_ns = out->known & SANDBOX_KNOWN_CPU ? cpu_ns - out->user_ns : 0;
    if (s->kit.ring->tasks > 0) {                               /* 1 is our own and 2 the command, which is not counted there */
        out->known |= SANDBOX_KNOWN_TASKS;
        out->tasks_made = s->kit.ring->tasks > 2 ? s->kit.ring->tasks - 1 : 1;
    }
}

static void finish(struct jail *j, struct slot *s, enum slot_state next)
{
    struct err err = { 0 };
    struct cgroup_usage used;
    struct grant_answer a = { .kind = GRANT_DONE, .slot = s->kit.slot, .generation = s->generation };
    struct sandbox_result *r = &a.result;
    cgroup_usage(&s->cgroup, &used);
    judge(s, &used, r);
    r->wall_ns = be_sure(s->end.ended_ns, s->began_ns);
    r->cpu_ns = be_sure(used.cpu_ns, s->before.cpu_ns);
    r->memory_bytes_peak = used.memory_peak;
    tell_enforcers(&s->cgroup, r->enforced_by);
    if (s->cgroup.host->version == 0) {
        r->cpu_ns = s->end.cpu_ns;
        r->memory_bytes_peak = s->end.rss_bytes;
    }
    if (s->measure)
        tell_usage(s, r->cpu_ns, &r->usage);
    const bool apart = s->errors != NULL;
    memcpy(r->start, s->end.msg, sizeof r->start - 1);
    own_fd output = ring_memfd(s->kit.ring, &err);
    own_fd errors = output >= 0 && apart ? ring_memfd(s->errors, &err) : -1;
    own_fd report = output >= 0 && s->report_fd >= 0 ? report_copy(s->report_fd, REPORT_FILES_TOTAL_MAX + 4096, &err) : -1;
    s->deadline_ns = 0;
    s->state = next;
    if (output < 0 || (apart && errors < 0) || (s->report_fd >= 0 && report < 0)) {
        answer(j, s, GRANT_DONE, err.code, &err);
    } else {
        int fds[3] = { output }, n = 1;
        if (report >= 0)
            fds[n++] = report;
        if (apart)
            fds[n++] = errors;
        a.fds = GRANT_HAS_OUTPUT | (report >= 0 ? GRANT_HAS_REPORT : 0u) | (apart ? GRANT_HAS_ERROR : 0u);
        say(j, s, &a, fds, n);
    }
    drop_fd(&s->report_fd);
    drop_errors(s);
}

static void collect(struct jail *j, struct slot *s)
{
    struct err err = { 0 };
    struct sandbox_limits more = s->limits;
    more.memory_bytes += COLLECT_BYTES;
    s->report_fd = memfd_create("report", MFD_CLOEXEC);
    if (s->report_fd < 0 || cgroup_limit(&s->cgroup, &more, &err) < 0) {
        err_sys(&err, ERR_SYS, "report");
        drop_fd(&s->report_fd);
        s->state = SLOT_HELD;
        s->deadline_ns = 0;
        answer(j, s, GRANT_DONE, err.code, &err);
        return;
    }
    s->state = SLOT_COLLECT;
    s->deadline_ns = clock_mono_ns() + DRAIN_NS_MAX;
    say(j, s, NULL, NULL, 0);
    order(s, (struct order){ .kind = ORDER_COLLECT }, &s->report_fd, 1);
}

void slot_files(struct jail *j, struct slot *s, const struct cell_order *cell, const int *fds, int nfds, bool out)
{
    struct err err = { 0 };
    struct sandbox_limits more = s->limits;
    more.memory_bytes += COLLECT_BYTES;
    int rc = s->state == SLOT_DEAD ? err_set(&err, ERR_LOST, "the sandbox died: acquire another") : 0;
    if (rc == 0 && out && (s->report_fd = memfd_create("file", MFD_CLOEXEC)) < 0)
        rc = err_sys(&err, ERR_SYS, "file");
    if (rc == 0)
        rc = cgroup_limit(&s->cgroup, &more, &err);
    if (rc < 0) {
        drop_fd(&s->report_fd);
        answer(j, s, GRANT_FILED, rc, &err);
        return;
    }
    int all[FRAME_FDS_MAX], n = 0;
    const bool first = cell->kind == CELL_DIFF;
    if (out && first)
        all[n++] = s->report_fd;
    for (int i = 0; i < nfds; i++)
        all[n++] = fds[i];
    if (out && !first)
        all[n++] = s->report_fd;
    s->state = SLOT_FILES;
    s->deadline_ns = clock_mono_ns() + MAKE_NS_MAX;
    struct order o = { .kind = ORDER_FILES, .cell = *cell };
    order(s, o, all, n);
}

static void filed(struct jail *j, struct slot *s, const struct note *n)
{
    struct err err = { 0 };
    struct grant_answer a = { .kind = GRANT_FILED, .slot = s->kit.slot, .generation = s->generation };
    int rc = n->rc;
    err_set(&err, rc, "%.*s", (int)sizeof n->msg - 1, n->msg);
    err.sys = n->sys;
    if (rc == ERR_LOST)
        drop_crew(s);
    own_fd file = rc == 0 && s->report_fd >= 0 ? report_copy(s->report_fd, SANDBOX_FILE_MAX, &err) : -1;
    if (rc == 0 && s->report_fd >= 0 && file < 0)
        rc = err.code;
    drop_fd(&s->report_fd);
    s->state = SLOT_HELD;
    s->deadline_ns = 0;
    if (rc < 0) {
        answer(j, s, GRANT_FILED, rc, &err);
    } else {
        a.fds = file >= 0 ? GRANT_HAS_OUTPUT : 0;
        say(j, s, &a, (int[]){ file }, file >= 0);
    }
    if (cgroup_limit(&s->cgroup, &s->limits, &err) < 0)
        err.code = 0;                           /* what was read is charged still: a little more for the next run */
    mark(s);
}

static void fail(struct jail *j, struct slot *s, const struct note *n, uint32_t kind)
{
    struct err err;
    err_set(&err, n->rc, "%.*s", (int)sizeof n->msg - 1, n->msg);
    err.sys = n->sys;
    drop_fd(&s->report_fd);
    s->deadline_ns = 0;
    answer(j, s, kind, n->rc, &err);
}

/* The launcher is dead. If the memory killer took it in a run, that is how the run ended. */
static void launcher_gone(struct jail *j, struct slot *s)
{
    drop_fd(&s->launcher_fd);
    drop_crew(s);
    drop_command(s);
    enum slot_state was = s->state;
    if (was == SLOT_SCRUB) {
        slot_make(j, s);
        return;
    }
    struct note n = { .rc = ERR_LOST, .msg = "the sandbox's launcher died" };
    struct cgroup_usage used;
    cgroup_usage(&s->cgroup, &used);
    s->state = SLOT_DEAD;
    if (was == SLOT_MAKING && s->resetting) {
        slot_make(j, s);
    } else if (was == SLOT_MAKING) {
        s->state = SLOT_MAKING;                 /* its NOTE_READY carried the reason; try again */
        s->deadline_ns = clock_mono_ns() + RETRY_NS;
    } else if (was == SLOT_READY) {
        slot_make(j, s);
    } else if (was == SLOT_ACQUIRING) {
        n.rc = ERR_BUSY;                        /* the client tries another slot, a few times */
        fail(j, s, &n, GRANT_ACQUIRED);
        slot_scrub(j, s);
    } else if (was == SLOT_FILES) {
        fail(j, s, &n, GRANT_FILED);
    } else if (was == SLOT_RUNNING || was == SLOT_DRAIN || was == SLOT_COLLECT) {
        if (used.oom_kills > s->before.oom_kills) {
            s->end = (struct note){ .status = SIGKILL, .ended_ns = s->began_ns };
            drop_fd(&s->report_fd);
            finish(j, s, SLOT_DEAD);
        } else {
            fail(j, s, &n, GRANT_DONE);
        }
    }
}

static void crew_ready(struct slot *s, const struct note *n)
{
    s->ready = true;
    s->crew = n->crew;
}

static void made(struct jail *j, struct slot *s, const struct note *n)
{
    struct err why;
    err_set(&why, n->rc, "%.*s", (int)sizeof n->msg - 1, n->msg);
    why.sys = n->sys;
    s->resetting = false;
    if (n->rc == 0) {
        s->state = SLOT_READY;
        if (n->crew != 0 && s->door >= 0)
            crew_ready(s, n);
        /* Most sandboxes want the limits of the one before: then nothing is left to set when they come. What fails now
         * is tried again then; small ones wait, because they could take the launcher. */
        if (s->limits.memory_bytes >= PRESET_BYTES_MIN && cgroup_limit(&s->cgroup, &s->limits, &why) < 0)
            why.code = 0;
        mark(s);
    }
    s->deadline_ns = n->rc == 0 ? 0 : clock_mono_ns() + RETRY_NS;
    answer(j, s, GRANT_READY, n->rc, &why);
}

int slot_note(struct jail *j, struct slot *s, const struct note *n, int *fds, int nfds, struct err *err)
{
    switch ((enum note_kind)n->kind) {
    case NOTE_READY:
        if (s->state == SLOT_MAKING)
            made(j, s, n);
        return 0;
    case NOTE_ACQUIRED:
        if (s->state != SLOT_ACQUIRING)
            return 0;
        if (n->rc == 0 && nfds != (s->limits.network == SANDBOX_NET_PROXY))
            break;
        if (n->rc < 0 || cgroup_limit(&s->cgroup, &s->limits, err) < 0) {
            struct note why = *n;
            if (n->rc == 0) {
                why.rc = err->code;
                memcpy(why.msg, err->msg, sizeof why.msg);
            }
            fail(j, s, &why, GRANT_ACQUIRED);
            slot_scrub(j, s);
        } else {
            acquired(j, s, nfds > 0 ? fds[0] : -1);
            mark(s);
            if (s->command >= 0)
                begin(s, NULL, 0);
        }
        return 0;
    case NOTE_CREW:
        if (nfds != 2 && nfds != 0)
            break;
        if (nfds == 0 && s->door < 0)
            return 0;                           /* given up meanwhile */
        if (nfds == 2) {
            drop_fd(&s->run_fd);
            drop_fd(&s->door);
            take(&s->run_fd, &fds[0]);
            take(&s->door, &fds[1]);
            s->crew_killed = false;
        }
        crew_ready(s, n);
        if (s->state == SLOT_DRAIN)
            kill_crew(s);
        else if (s->state == SLOT_RUNNING && s->command >= 0) {
            mark(s);
            start(s, NULL, 0);
        }
        return 0;
    case NOTE_ENDED:
        s->ready = false;
        if (n->crew == 0 || s->crew_killed)
            drop_crew(s);                       /* outside a run the kernel took it, for memory: the next run has one made */
        if (s->state != SLOT_RUNNING && s->state != SLOT_DRAIN)
            return 0;
        drop_command(s);
        s->end = *n;
        if (n->rc < 0 && s->state != SLOT_DRAIN) {      /* none is born of a crew that we have killed: no failure of it */
            s->state = SLOT_HELD;
            fail(j, s, n, GRANT_DONE);
        } else if (n->report) {
            collect(j, s);
        } else {
            finish(j, s, SLOT_HELD);
        }
        return 0;
    case NOTE_COLLECTED:
        if (s->state != SLOT_COLLECT)
            return 0;
        if (n->rc < 0) {
            s->state = SLOT_HELD;
            fail(j, s, n, GRANT_DONE);
        } else {
            finish(j, s, SLOT_HELD);
        }
        if (cgroup_limit(&s->cgroup, &s->limits, err) < 0)
            err->code = 0;                      /* pages of the report are charged still: a little more for the next run */
        mark(s);                                /* the agent that read it is the next run's */
        return 0;
    case NOTE_FILES:
        if (s->state == SLOT_FILES)
            filed(j, s, n);
        return 0;
    }
    return err_set(err, ERR_PROTOCOL, "slot %u: note %u", s->kit.slot, n->kind);
}

void slot_lost(struct slot *s)
{
    drop_fd(&s->sock);
    kill_launcher(s);
}

static bool has_ended(int pidfd)
{
    struct pollfd p = { .fd = pidfd, .events = POLLIN };
    return pidfd >= 0 && poll(&p, 1, 0) > 0;
}

void slot_deaths(struct jail *j, struct slot *s)
{
    if (has_ended(s->launcher_fd)) {
        drop_fd(&s->sock);
        launcher_gone(j, s);
    }
}

void slot_tick(struct jail *j, struct slot *s, uint64_t now_ns)
{
    if (s->deadline_ns == 0 || now_ns < s->deadline_ns)
        return;
    s->deadline_ns = 0;
    say(j, s, NULL, NULL, 0);
    switch (s->state) {
    case SLOT_MAKING:
        if (s->sock >= 0 || s->launcher_fd >= 0) {      /* took too long */
            slot_lost(s);
            s->deadline_ns = now_ns + MAKE_NS_MAX;
        } else {
            slot_make(j, s);
        }
        break;
    case SLOT_RUNNING:
        if (now_ns >= s->wall_end_ns) {
            slot_kill(s, SLOT_REASON_TIME);
        } else {
            struct cgroup_usage used;
            cgroup_usage(&s->cgroup, &used);
            if (used.cpu_ns >= s->before.cpu_ns + s->limits.cpu_ns && s->cgroup.cpu_usage >= 0) {
                slot_kill(s, SLOT_REASON_CPU);
                break;
            }
            uint64_t cores = (s->limits.cpu_percent + 99) / 100, left = be_sure(s->before.cpu_ns + s->limits.cpu_ns, used.cpu_ns) / (cores ? cores : 1);
            s->deadline_ns = now_ns + (left < 5 * NS_PER_MS ? 5 * NS_PER_MS : left);
            if (s->deadline_ns > s->wall_end_ns)
                s->deadline_ns = s->wall_end_ns;
        }
        break;
    case SLOT_ACQUIRING:
    case SLOT_DRAIN:
    case SLOT_COLLECT:
    case SLOT_FILES:
    case SLOT_SCRUB:                            /* something in the slot does not die or answer: end the slot itself */
        kill_launcher(s);
        break;
    case SLOT_READY:
    case SLOT_HELD:
    case SLOT_DEAD:
    case SLOT_STATE_COUNT:
        break;
    }
}
