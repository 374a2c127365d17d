/*
 * The attack suite against our own jail. Per trick of tricks/: the attack must end as its row says and have got nothing; the
 * same program in a bare child, without any defence, must get what the row names, so that the test can fail; the honest twin
 * must work. After every trick host, jail and a neighbouring sandbox are looked at.
 *
 * usage: attack_test [PART_OF_A_NAME ...]. With ATTACK_NO_BARE in the environment the bare child is left out: it needs root
 * and things of this host's that a test machine has not.
 */
#include "base/own.h"
#include "sandbox/report_files.h"
#include "tests/attack/harness.h"
#include <dirent.h>

#define SECRET "canary-7Qp"

static struct harness h;
static struct sandbox_client *client;           /* of the harness, for the tests that are no rows */

/* ---- unharmed: what is counted before and after ---- */

struct census { long mounts, processes, jail_fds, groups; char core_pattern[128], hostname[65], files[240]; };

static long count_lines(const char *command)
{
    long n = -1;
    FILE *p = popen(command, "r");
    if (p == NULL || fscanf(p, "%ld", &n) != 1)
        n = -1;
    if (p != NULL)
        pclose(p);
    return n;
}

static void read_text(const char *path, char *out, size_t size)
{
    own_fd fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = read(fd, out, size - 1);
    out[n > 0 ? n : 0] = '\0';
}

static void stamp(char *out, size_t size)
{
    static const char *const paths[] = { "/usr/bin/env", "/etc/passwd", "/bin/sh", "/dev/null", NULL };
    size_t at = 0;
    for (size_t i = 0; i < 5; i++) {
        struct stat st = { 0 };
        stat(paths[i] != NULL ? paths[i] : h.program, &st);
        at += (size_t)snprintf(out + at, size - at, "%llu.%lld.%o ", (unsigned long long)st.st_ino,
                               S_ISREG(st.st_mode) ? (long long)st.st_mtime : 0, st.st_mode);
    }
}

/* The jail's guardian: our child of that name. */
static long jail_pid(void)
{
    char text[200];
    snprintf(text, sizeof text, "ps -o pid=,comm= --ppid %d | awk '$2 == \"assay-jail\" { print $1 }'", (int)getpid());
    return count_lines(text);
}

static void take_census(struct census *c)
{
    char text[256];
    *c = (struct census){ 0 };
    c->mounts = count_lines("wc -l </proc/self/mountinfo");
    long jail = jail_pid(), first = 0x60000000 + (jail & 0x3fff) * 2048;       /* the uids behind its sandboxes */
    snprintf(text, sizeof text, "ps -eo uid= | awk '$1 >= %ld && $1 < %ld' | wc -l", first, first + 2048);
    c->processes = count_lines(text);
    snprintf(text, sizeof text, "k=$(cat /proc/%ld/task/*/children); ls /proc/${k%%%% *}/fd | wc -l", jail);
    c->jail_fds = count_lines(text);
    snprintf(text, sizeof text, "find /sys/fs/cgroup -maxdepth 4 -path '*assay-jail.%ld.*' -name 'slot-*' 2>/dev/null | wc -l", jail);
    c->groups = count_lines(text);
    read_text("/proc/sys/kernel/core_pattern", c->core_pattern, sizeof c->core_pattern);
    gethostname(c->hostname, sizeof c->hostname);
    stamp(c->files, sizeof c->files);
}

static struct census before;

/* Slots are remade in the background: what must be equal may take a moment to be. */
static void unharmed(const char *name)
{
    struct census now;
    for (int i = 0; i < 40; i++) {
        take_census(&now);
        if (memcmp(&now, &before, sizeof now) == 0)
            break;
        bool never = false;
        box_wait(client, &never, 50);
    }
    if (now.mounts != before.mounts || now.processes != before.processes || now.jail_fds != before.jail_fds || now.groups != before.groups)
    {
        struct census was = before;
        before = now;                           /* told once */
        fail_msg("%s: mounts %ld -> %ld, processes of sandboxes %ld -> %ld, descriptors of the jail %ld -> %ld, groups %ld -> %ld", name, was.mounts,
                 now.mounts, was.processes, now.processes, was.jail_fds, now.jail_fds, was.groups, now.groups);
    }
    assert_string_equal(now.core_pattern, before.core_pattern);
    assert_string_equal(now.hostname, before.hostname);
    assert_string_equal(now.files, before.files);
    uint64_t began = clock_mono_ns();
    struct outcome o = box_run(client, h.neighbour, "cat /tmp/neighbour /dev/shm/neighbour; hostname; head -c 3 /etc/passwd");
    assert_string_equal(o.output, "neighbour\nneighbour\nsandbox\nroo");
    assert_true(clock_mono_ns() - began < 5 * NS_PER_S);
    outcome_done(&o);
    char line[64];
    read_text(h.host_file, line, sizeof line);
    assert_non_null(strstr(line, SECRET));
}

/* ---- the rows ---- */

/* What a row grants in the compatible profile it must really grant: else the row says too much. */
static void grants_are_used(const struct attack *a, const char *name, const char *output)
{
    char words[sizeof a->compatible.grants], *save = NULL;
    strcpy(words, a->compatible.grants);
    for (char *w = strtok_r(words, " ", &save); w != NULL; w = strtok_r(NULL, " ", &save))
        if (!harness_has_got(output, w))
            fail_msg("%s: `%s` is said to be granted, and is not:\n%.4000s", name, w, output);
}

static void attack_gets_nothing(struct attack const *a, const char *name)
{
    struct err why = { 0 };
    uint64_t began = clock_mono_ns();
    struct outcome o = harness_ours(&h, a, "attack", &why);
    if (a->image_refused != (o.rc < 0))
        fail_msg("%s: image: %d %s%s", name, o.rc, why.msg, o.output != NULL ? o.output : "");
    if (o.rc < 0) {
        assert_int_equal(o.rc, ERR_BAD_INPUT);
        return;
    }
    const bool compatible = h.profile == SANDBOX_COMPATIBLE;
    const char *got = harness_first_got(o.output, compatible ? a->compatible.grants : "");
    if (got != NULL || strstr(o.output, SECRET) != NULL)
        fail_msg("%s: the attacker got something: %.80s, in:\n%.4000s", name, got != NULL ? got : SECRET, o.output);
    /* Version 2 counts socket buffers as the sandbox's memory: its limit may end what version 1 refuses. */
    const bool by_memory = o.result.enforced_by[SANDBOX_LIMIT_MEMORY] == SANDBOX_BY_CGROUP_V2 &&
                           o.result.end == SANDBOX_END_MEMORY_LIMIT && strncmp(name, "memory_by_", 10) == 0;
    const bool as_told = (o.result.end == a->end || a->end == SANDBOX_END_COUNT) && (a->value < 0 || o.result.value == a->value) &&
                         (o.result.limits_hit & a->hits) == a->hits;
    if (!by_memory && !as_told)
        fail_msg("%s: end %d value %d hits %u, output:\n%.3000s", name, (int)o.result.end, o.result.value, o.result.limits_hit, o.output);
    if (!by_memory && a->end == SANDBOX_END_EXIT && a->value == 0 && strstr(o.output, "refused") == NULL)
        fail_msg("%s: nothing was tried:\n%.3000s", name, o.output);
    const char (*must)[48] = compatible && a->compatible.must[0][0] != '\0' ? a->compatible.must : a->must;
    for (size_t i = 0; i < 3 && !by_memory && must[i][0] != '\0'; i++)
        if (strstr(o.output, must[i]) == NULL)
            fail_msg("%s: `%s` missing in:\n%.6000s", name, must[i], o.output);
    if (compatible)
        grants_are_used(a, name, o.output);
    /* A report may hold what the attacker wrote, never what lies behind a link. */
    assert_true(o.report_len <= REPORT_FILES_TOTAL_MAX);
    if (o.report_len > 0)
        assert_true(memmem(o.report, o.report_len, "root:", 5) == NULL && memmem(o.report, o.report_len, SECRET, sizeof SECRET - 1) == NULL);
    assert_true(clock_mono_ns() - began < 25 * NS_PER_S);
    outcome_done(&o);
    for (int i = 0; i < 2; i++)
        assert_true(accept(h.listeners[i], NULL, NULL) < 0);        /* nobody came through */
}

/* What is weaker when an ordinary user runs the jail, on a host that lends no control groups to users. */
static const struct { const char *name, *why; } weaker[] = {
    { "cpu_of_children_never_waited_for", "CPU time is limited per process" },
    { "fork_bomb", "tasks are limited per user: it ends by the time limit" },
    { "memory_by_", "memory is limited per process, and what the kernel holds for one is not counted" },
    { "spin_on_many_threads", "a share of the CPU is not enforced" },
    { "thread_bomb", "tasks are limited per user, and not reported as a limit hit" },
    { "lock_a_shared_file", "device nodes are the host's own files: locks on them are shared" },
    { "watch_a_shared_file", "device nodes are the host's own files: their use can be watched" },
    { "watches_of_a_neighbour_used_up", "what the kernel counts per user is one budget for all sandboxes and the user" },
    { "files_left_for_the_next", "the twin changes /usr, which is another's" },
    { "image_with_set_uid_and_devices", "only root can make such an image" },
    { "image_with_tmp_as_device", "only root can make such an image" },
    { "tree_with_links_and_devices", "only root can make such a tree" },
};

static void trick(void **state)
{
    const struct attack *a = *state;
    static struct run_end r;
    char name[48];
    harness_name(a, name);
    for (size_t i = 0; geteuid() != 0 && i < sizeof weaker / sizeof weaker[0]; i++)
        if (strncmp(name, weaker[i].name, strlen(weaker[i].name)) == 0) {
            printf("SKIPPED without root: %s: %s\n", name, weaker[i].why);
            skip();
        }
    attack_gets_nothing(a, name);
    struct err why;
    struct outcome o = harness_ours(&h, a, "twin", &why);
    if (o.rc < 0 || strcmp(o.output, "ok\n") != 0)
        fail_msg("%s: twin: `%s`", name, o.rc < 0 ? why.msg : o.output);
    outcome_done(&o);
    unharmed(name);
    if (h.profile != SANDBOX_STRICT || getenv("ATTACK_NO_BARE") != NULL)    /* shown there */
        return;
    if (a->bare[0] != '\0') {
        harness_other(&h, a, "attack", NULL, &r);
        if (!harness_has_got(r.text, a->bare))
            fail_msg("%s: without its defence `%s` does not succeed either (stuck %d, status %x), output:\n%.3000s", name, a->bare, r.stuck, r.status, r.text);
        for (int i = 0; i < 2; i++)
            for (int fd; (fd = accept4(h.listeners[i], NULL, NULL, SOCK_CLOEXEC)) >= 0; )
                close(fd);
    } else if (a->not_bare[0] == '\0') {
        fail_msg("%s: says neither what it gets without its defence nor why that cannot be shown", name);
    }
}

static int start(void **state)
{
    (void)state;
    if (harness_open(&h) < 0)
        return -1;
    harness_jail(&h);
    client = h.client;
    bool never = false;
    box_wait(client, &never, 500);
    take_census(&before);
    return before.jail_fds > 0 && before.mounts > 0 ? 0 : -1;
}

static int start_compatible(void **state)
{
    int rc = start(state);
    h.profile = SANDBOX_COMPATIBLE;
    return rc;
}

static int stop(void **state)
{
    (void)state;
    harness_close(&h);
    return 0;
}

static struct outcome attack_run(struct sandbox_limits l, const char *command)
{
    if (l.wall_ns == 0)
        l.wall_ns = 30 * NS_PER_S;
    struct sandbox *s = box_acquire(client, (struct sandbox_spec){ h.tree_fd, -1, -1, h.profile, NULL }, l);
    struct outcome o = box_run_env(client, s, command, h.env_list);
    sandbox_close(s);
    return o;
}

/* Of links, FIFO, directory, socket, sparse file and odd name only files come out. */
static void report_takes_only_plain_files(void **state)
{
    (void)state;
    struct outcome o = attack_run((struct sandbox_limits){ 0 }, "./attacker report_that_is_no_file attack; cd /assay/report; truncate -s 200M sparse; "
                                                                ">\"$(printf -- '-rf\\n\\033[31m\\377')\"; ln sparse twice; echo x >t1; ln t1 t2");
    struct { uint32_t name_len, flags; uint64_t size; } head;
    size_t count = 0;
    bool odd = false;
    for (size_t at = 0; at < o.report_len; count++) {
        assert_true(o.report_len - at >= sizeof head);
        memcpy(&head, o.report + at, sizeof head);
        odd |= head.name_len == 10 && memcmp(o.report + at + sizeof head, "-rf\n\033[31m\377", 10) == 0;
        at += sizeof head + head.name_len + (size_t)head.size;
    }
    assert_in_range(count, 1, 3);               /* of two names for one file the second is the only one left when it is its turn */
    assert_null(memmem(o.report, o.report_len, "root:", 5));
    assert_true(odd);
    outcome_done(&o);
    o = attack_run((struct sandbox_limits){ 0 }, "truncate -s 200M /assay/report/sparse; echo honest >/assay/report/r");
    assert_true(o.report_len <= REPORT_FILES_TOTAL_MAX + 4096);
    assert_non_null(memmem(o.report, o.report_len, "sparse", 6));
    outcome_done(&o);
    o = attack_run((struct sandbox_limits){ 0 }, "echo honest >/assay/report/r");
    assert_non_null(memmem(o.report, o.report_len, "honest", 6));
    outcome_done(&o);
}

/* A first run leaves traps where our own processes will work before the second. */
static void traps_for_the_next_run(void **state)
{
    (void)state;
    if (geteuid() != 0)
        skip();                                 /* the traps cannot be laid: /dev/null and /bin/sh are another's */
    struct sandbox *s = box_acquire(client, BOX_EMPTY, (struct sandbox_limits){ .wall_ns = 20 * NS_PER_S });
    struct outcome o = box_run(client, s,
        "rm -f /dev/null /dev/zero; ln -s /proc/self/fd/7 /dev/null; mv /assay /gone; mkdir -p /assay/report; ln -s /etc/passwd /assay/report/p; "
        "mv /proc /p2 2>&1 | grep -q busy && echo kept; rmdir /testbed && ln -s /etc /testbed; mv /bin/sh /bin/sh2; ln -s /bin/sh2 /bin/sh; echo set");
    assert_string_equal(o.output, "kept\nset\n");
    outcome_done(&o);
    o = box_run(client, s, "cat /proc/keys | wc -c; ls /proc/fs /proc/keys/ 2>&1 | grep -c root; ls /gone/store; echo x >/gone/report/r; pwd -P");
    assert_true(o.result.end == SANDBOX_END_EXIT && o.result.value == 126);     /* it broke its own world: its own loss */
    assert_non_null(strstr(o.output, "/dev/null"));
    assert_null(memmem(o.report, o.report_len, "root:", 5));
    outcome_done(&o);
    sandbox_close(s);
    s = box_acquire(client, BOX_EMPTY, (struct sandbox_limits){ .wall_ns = 20 * NS_PER_S });
    o = box_run(client, s, "mv /assay /gone; mkdir -p /assay/report; ln -s /etc/passwd /assay/report/p; ln -s /etc/passwd /gone/report/q; "
                           "mv /bin/sh /bin/sh2; ln -s /bin/sh2 /bin/sh; echo x >/gone/report/r; echo set");
    assert_string_equal(o.output, "set\n");
    assert_int_equal(o.report_len, 16 + 1 + 2);
    outcome_done(&o);
    o = box_run(client, s, "cat /proc/keys | wc -c; ls -A /proc/fs /gone/store; pwd -P");
    assert_string_equal(o.output, "0\n/gone/store:\n\n/proc/fs:\n/testbed\n");
    outcome_done(&o);
    sandbox_close(s);
    o = attack_run((struct sandbox_limits){ 0 }, "echo honest >/dev/null && sh -c 'echo ok'; pwd -P");
    assert_string_equal(o.output, "ok\n/testbed\n");
    outcome_done(&o);
}

static void uid_outside_is_nobodys(void **state)
{
    (void)state;
    if (geteuid() != 0)
        skip();                                 /* it is the user's: there is no other */
    struct outcome o = { 0 };
    struct err err;
    struct sandbox *s = box_acquire(client, BOX_EMPTY, (struct sandbox_limits){ 0 });
    char text[160];
    const char *sleeper = box_sleep(4249);
    snprintf(text, sizeof text, "exec %s", sleeper);
    assert_int_equal(sandbox_run(s, &(struct sandbox_command){ .shell = text }, box_done, &o, &err), 0);
    box_wait_alive(client, &o.come, sleeper);
    snprintf(text, sizeof text, "ps -eo uid,args | awk '$2 \" \" $3 == \"%s\" { print $1 }'", sleeper);
    FILE *p = popen(text, "r");
    unsigned long uid = 0;
    assert_int_equal(fscanf(p, "%lu", &uid), 1);
    pclose(p);
    assert_true(uid >= 0x60000000);
    sandbox_close(s);
}

int main(int argc, char **argv)
{
    static struct CMUnitTest tests[300];
    static char names[300][48];
    size_t n = 0;
    struct harness rows;
    if (harness_open(&rows) < 0)
        return 1;
    harness_close(&rows);
    for (size_t i = 0; i < rows.count; i++) {
        harness_name(&rows.rows[i], names[n]);
        bool wanted = argc == 1;
        for (int k = 1; k < argc; k++)
            wanted |= strstr(names[n], argv[k]) != NULL;
        if (!wanted)
            continue;
        tests[n] = (struct CMUnitTest){ names[n], trick, NULL, NULL, (void *)(uintptr_t)&rows.rows[i] };
        n++;
    }
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(report_takes_only_plain_files);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(uid_outside_is_nobodys);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(traps_for_the_next_run);
    int failed = _cmocka_run_group_tests("sandbox attacks", tests, n, start, stop);
    return failed + _cmocka_run_group_tests("sandbox attacks, compatible profile", tests, n, start_compatible, stop);
}
