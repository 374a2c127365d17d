/*
 * Attacks on the sandbox: one row per trick. A row runs its command in a
 * sandbox and asserts what the attacker got; its honest twin does the allowed neighbour of the trick and must work, so
 * that a broken test program cannot pass for a defence. After every row host and a neighbouring sandbox are looked at.
 */
#include "tests/sandbox/box.h"
#include "base/own.h"
#include "sandbox/report_files.h"
#include <arpa/inet.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#define MIB ((uint64_t)1 << 20)
#define SECRET "Zx9-canary-7Qp"

static struct sandbox_client *client;
static struct sandbox *neighbour;
static char dir[64], port[16], host_file[96];
static int listeners[2], tree_fd;

struct attack {
    const char *name, *command;
    enum sandbox_end end;
    int value;                      /* of an exit or signal; -1: any */
    uint32_t hits;                  /* limits that must be among those hit */
    const char *must[4];            /* all in the output */
    const char *must_not;           /* none of it in the output; NULL: "GOT" */
    const char *twin, *twin_output;
    struct sandbox_limits limits;   /* zero: usual */
};

static const struct attack attacks[] = {
    { "overwrite the runner through /proc", "./tricks exe", SANDBOX_END_EXIT, 0, 0, { "/proc/1/exe refused EACCES", "/proc/1/mem refused" }, NULL,
      "cat /proc/self/comm", "cat\n", { 0 } },
    { "inherited descriptors", "./tricks fds", SANDBOX_END_EXIT, 0, 0, { "descriptors 0\n" }, NULL, "exec 7</dev/null; test -e /proc/self/fd/7 && echo 7", "7\n", { 0 } },
    { "namespaces: enter, make, map", "./tricks namespaces", SANDBOX_END_EXIT, 0, 0,
      { "setns refused ENOSYS", "unshare-user refused ENOSYS", "clone-user refused ENOSYS", "clone3-user refused ENOSYS" },
      "unshare-user GOT", "python3 -c 'import os; print(os.waitpid(os.fork() or os._exit(4), 0)[1] >> 8)'", "4\n", { 0 } },
    { "mount calls, old and new", "./tricks mounts", SANDBOX_END_EXIT, 0, 0, { "mount-bind refused", "umount-store refused", "fsopen refused", "chroot refused" },
      NULL, "mkdir /tmp/a && mv /tmp/a /tmp/b && ls /tmp", "b\n", { 0 } },
    { "file handles", "./tricks handles", SANDBOX_END_EXIT, 0, 0, { "open_by_handle_at refused ENOSYS" }, NULL, "stat -c %i / >/dev/null && echo ok", "ok\n", { 0 } },
    { "trace or rewrite another process", "./tricks ptrace", SANDBOX_END_EXIT, 0, 0, { "ptrace-init refused", "vm_writev refused", "pidfd_getfd refused" },
      NULL, "sleep 9 & kill $! && echo ok", "ok\n", { 0 } },
    { "the kernel's rarer doors", "./tricks kernel", SANDBOX_END_EXIT, 0, 0,
      { "bpf refused ENOSYS", "io_uring_setup refused ENOSYS", "keyctl refused ENOSYS", "settimeofday refused ENOSYS" }, NULL,
      "date +%Z", "UTC\n", { 0 } },
    { "/proc, /sys and devices of the host", "./tricks proc", SANDBOX_END_EXIT, 0, 0,
      { "core_pattern refused", "/proc/keys refused", "/sys/fs/cgroup refused ENOENT", "/dev/tty refused ENXIO" }, NULL,
      "grep -c ^processor /proc/cpuinfo >/dev/null && head -c 4 /dev/urandom | wc -c", "4\n", { 0 } },
    { "device nodes and privileged attributes", "./tricks devices", SANDBOX_END_EXIT, 0, 0, { "mknod-block refused EPERM", "trusted-xattr refused" },
      NULL, "mkfifo /tmp/p && test -p /tmp/p && echo fifo", "fifo\n", { 0 } },
    { "capabilities back", "./tricks caps", SANDBOX_END_EXIT, 0, 0, { "capset refused EPERM", "rlimit-up refused EPERM", "nnp-off refused" }, NULL,
      "ulimit -n 100; ulimit -n", "100\n", { 0 } },
    { "set-uid copies", "cp /bin/sh /tmp/s; chmod 6755 /tmp/s; /tmp/s -pc 'grep -E \"^(CapEff|NoNewPrivs)\" /proc/self/status'; "
      "for f in /usr/bin/su /usr/bin/mount /usr/bin/passwd; do test -u $f && echo \"$f set\"; done; mount -t tmpfs x /mnt 2>&1; true",
      SANDBOX_END_EXIT, 0, 0, { "CapEff:\t0000000000000000", "NoNewPrivs:\t1" }, "CapEff:\t0000003", "cp /bin/echo /tmp/e && /tmp/e hi", "hi\n", { 0 } },
    { "sockets of the host and other families", "./tricks sockets $PORT", SANDBOX_END_EXIT, 0, 0,
      { "packet refused", "vsock refused", "host-loopback refused ECONNREFUSED", "abstract refused ECONNREFUSED" }, NULL,
      "python3 -c 'import socket as s; a = s.create_server((\"127.0.0.1\", 0)); s.create_connection(a.getsockname()); print(1)'", "1\n", { 0 } },
    { "32-bit system calls", "exec ./tricks int80", SANDBOX_END_SIGNAL, SIGSYS, 0, { "" }, NULL, "uname -m", "x86_64\n", { 0 } },
    { "x32 system calls", "exec ./tricks x32", SANDBOX_END_SIGNAL, SIGSYS, 0, { "" }, NULL, "getconf LONG_BIT", "64\n", { 0 } },
    { "signals at init", "exec ./tricks signals", SANDBOX_END_EXIT, 0, 0, { "init alive" }, "GONE", "sleep 9 & kill -9 $!; echo ok", "ok\n", { 0 } },
    { "secrets of the host by name", "cat " "/etc/shadow /etc/gshadow /root/.bashrc /root/.ssh/* /home/*/.ssh/* $HOST_FILE 2>/dev/null; ls -d /root /work /srv /mnt /boot 2>/dev/null; "
      "grep -rl \"$NEEDLE\" /tmp /var /run /home 2>/dev/null; env | grep -c ASSAY_TEST_SECRET", SANDBOX_END_EXIT, 1, 0, { "0\n" }, "/", "head -c 4 /etc/passwd", "root", { 0 } },
    { "neighbours by process and file", "ls /proc | grep -c '^[0-9]'; ls -A /tmp /dev/shm /var/tmp; kill -0 1000 2>&1", SANDBOX_END_EXIT, -1, 0,
      { "/dev/shm:\n", "/tmp:\n" }, "neighbour", "echo $$", "2\n", { 0 } },
    { "fork bomb", "exec ./tricks bomb fork", SANDBOX_END_TIME_LIMIT, -1, SANDBOX_HIT_PIDS, { "" }, NULL, "(echo a) | cat", "a\n",
      { .wall_ns = NS_PER_S, .pids = 50, .memory_bytes = 128 * MIB } },
    { "orphans", "./tricks bomb orphans", SANDBOX_END_EXIT, 0, 0, { "done" }, NULL, "true & wait; echo ok", "ok\n", { .pids = 50 } },
    { "stopped processes", "exec ./tricks bomb stop", SANDBOX_END_TIME_LIMIT, -1, SANDBOX_HIT_TIME, { "" }, NULL, "sleep 0.1; echo ok", "ok\n", { .wall_ns = NS_PER_S } },
    { "memory by tmpfs", "exec ./tricks bomb tmpfs", SANDBOX_END_MEMORY_LIMIT, -1, SANDBOX_HIT_MEMORY, { "" }, NULL, "echo x >/tmp/x; cat /tmp/x", "x\n",
      { .memory_bytes = 64 * MIB, .disk_bytes = 4096 * MIB, .file_bytes = 4096 * MIB } },
    { "memory by memfd", "exec ./tricks bomb memfd", SANDBOX_END_MEMORY_LIMIT, -1, SANDBOX_HIT_MEMORY, { "" }, NULL, "echo ok", "ok\n",
      { .memory_bytes = 64 * MIB, .file_bytes = 4096 * MIB } },
    { "memory by System V segments", "exec ./tricks bomb shm", SANDBOX_END_MEMORY_LIMIT, -1, SANDBOX_HIT_MEMORY, { "" }, NULL, "ipcs -m >/dev/null; echo ok", "ok\n",
      { .memory_bytes = 64 * MIB } },
    { "inode bomb", "i=0; while true >/tmp/$i; do i=$((i+1)); done 2>/dev/null; test $i -lt 2000 && echo held", SANDBOX_END_EXIT, 0, 0, { "held" }, NULL,
      "touch /tmp/one && ls /tmp", "one\n", { .disk_inodes = 1500 } },
    { "directory depth bomb", "cd /tmp && ./tricks bomb depth; /testbed/tricks bomb depth; echo ended", SANDBOX_END_EXIT, 0, 0, { "ended" }, NULL, "mkdir -p /tmp/a/b/c && echo ok", "ok\n",
      { .disk_inodes = 20000 } },
    { "disk bomb, sparse and real", "truncate -s 1T /tmp/s; dd if=/dev/zero of=/tmp/f bs=1M count=100 2>&1 | tail -1; df --output=avail /tmp | tail -1",
      SANDBOX_END_EXIT, 0, SANDBOX_HIT_DISK, { "\n" }, NULL, "dd if=/dev/zero of=/tmp/f bs=1M count=1 2>/dev/null; stat -c %s /tmp/f", "1048576\n",
      { .disk_bytes = 8 * MIB } },
    { "output flood", "exec cat /dev/zero", SANDBOX_END_OUTPUT_LIMIT, -1, SANDBOX_HIT_OUTPUT, { "" }, NULL, "head -c 5 /dev/zero | wc -c", "5\n", { .output_bytes = MIB } },
    { "CPU spin on many threads", "for i in 1 2 3 4 5 6; do while :; do :; done & done; wait", SANDBOX_END_TIME_LIMIT, -1, SANDBOX_HIT_TIME, { "" }, NULL, "echo ok", "ok\n",
      { .wall_ns = 2 * NS_PER_S, .cpu_percent = 50 } },
    { "per-uid instances of inotify", "exec ./tricks bomb inotify", SANDBOX_END_EXIT, 0, 0, { "instances some" }, NULL, "echo ok", "ok\n", { 0 } },
};

static int start(void **state)
{
    (void)state;
    char text[512];
    strcpy(dir, "/tmp/assay-attack.XXXXXX");
    if (mkdtemp(dir) == NULL)
        return -1;
    snprintf(text, sizeof text, "chmod 755 %s && gcc -O1 -w -o %s/tricks tests/attack/tricks.c", dir, dir);
    if (system(text) != 0)
        return -1;
    snprintf(host_file, sizeof host_file, "%s.secret", dir);
    own_file f = fopen(host_file, "we");
    if (f == NULL || fputs(SECRET "\n", f) == EOF)
        return -1;
    setenv("ASSAY_TEST_SECRET", SECRET, 1);
    tree_fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);

    struct sockaddr_in in = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof in;
    listeners[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    listeners[1] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (bind(listeners[0], (struct sockaddr *)&in, sizeof in) < 0 || listen(listeners[0], 8) < 0 ||
        getsockname(listeners[0], (struct sockaddr *)&in, &len) < 0)
        return -1;
    snprintf(port, sizeof port, "%d", ntohs(in.sin_port));
    struct sockaddr_un un = { .sun_family = AF_UNIX };
    int n = snprintf(un.sun_path + 1, sizeof un.sun_path - 1, "assay-attack-%s", port);
    if (bind(listeners[1], (struct sockaddr *)&un, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n)) < 0 ||
        listen(listeners[1], 8) < 0)
        return -1;
    client = box_start(3);
    neighbour = box_acquire(client, BOX_EMPTY, (struct sandbox_limits){ 0 });
    struct outcome o = box_run(client, neighbour, "echo neighbour >/tmp/neighbour; echo neighbour >/dev/shm/neighbour");
    outcome_done(&o);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    char text[200];
    sandbox_close(neighbour);
    sandbox_client_close(client);
    close(listeners[0]);
    close(listeners[1]);
    close(tree_fd);
    snprintf(text, sizeof text, "rm -rf %s %s", dir, host_file);
    return system(text);
}

static struct outcome attack_run(struct sandbox_limits l, const char *command)
{
    char env[3][160];
    snprintf(env[0], sizeof env[0], "PORT=%s", port);
    snprintf(env[1], sizeof env[1], "HOST_FILE=%s", host_file);
    snprintf(env[2], sizeof env[2], "NEEDLE=%s", "canary-7Qp");
    const char *const list[] = { env[0], env[1], env[2], NULL };
    if (l.wall_ns == 0)
        l.wall_ns = 30 * NS_PER_S;
    struct sandbox *s = box_acquire(client, (struct sandbox_spec){ tree_fd, -1, -1 }, l);
    struct outcome o = box_run_env(client, s, command, list);
    sandbox_close(s);
    return o;
}

static void attack_fails_and_twin_works(void **state)
{
    const struct attack *a = *state;
    uint64_t began = clock_mono_ns();
    struct outcome o = attack_run(a->limits, a->command);
    if (o.result.end != a->end || (a->value >= 0 && o.result.value != a->value) || (o.result.limits_hit & a->hits) != a->hits)
        fail_msg("end %d value %d hits %u, output:\n%.3000s", (int)o.result.end, o.result.value, o.result.limits_hit, o.output);
    for (size_t i = 0; i < 4 && a->must[i] != NULL; i++)
        if (strstr(o.output, a->must[i]) == NULL)
            fail_msg("`%s` missing in:\n%.4000s", a->must[i], o.output);
    if (strstr(o.output, a->must_not != NULL ? a->must_not : " GOT") != NULL || strstr(o.output, SECRET) != NULL)
        fail_msg("the attacker got something:\n%.4000s", o.output);
    assert_true(clock_mono_ns() - began < 25 * NS_PER_S);
    outcome_done(&o);

    o = attack_run((struct sandbox_limits){ 0 }, a->twin);
    if (strcmp(o.output, a->twin_output) != 0)
        fail_msg("twin: end %d value %d `%s`", (int)o.result.end, o.result.value, o.output);
    outcome_done(&o);

    o = box_run(client, neighbour, "cat /tmp/neighbour /dev/shm/neighbour; hostname; head -c 3 /etc/passwd");
    assert_string_equal(o.output, "neighbour\nneighbour\nsandbox\nroo");
    outcome_done(&o);
    own_file f = fopen(host_file, "re");
    char line[64] = "";
    assert_true(f != NULL && fgets(line, sizeof line, f) != NULL);
    assert_string_equal(line, SECRET "\n");
    for (int i = 0; i < 2; i++)
        assert_true(accept(listeners[i], NULL, NULL) < 0);      /* nobody came through */
}

static void report_takes_only_plain_files(void **state)
{
    (void)state;
    struct outcome o = attack_run((struct sandbox_limits){ 0 }, "./tricks report");
    struct { uint32_t name_len, flags; uint64_t size; } h;
    size_t count = 0;
    bool sparse = false, odd = false;
    for (size_t at = 0; at < o.report_len; count++) {
        assert_true(o.report_len - at >= sizeof h);
        memcpy(&h, o.report + at, sizeof h);
        const char *name = o.report + at + sizeof h;
        sparse |= h.name_len == 6 && memcmp(name, "sparse", 6) == 0 && h.flags == 1;
        odd |= h.name_len == 10 && memcmp(name, "-rf\n\033[31m\377", 10) == 0;
        at += sizeof h + h.name_len + (size_t)h.size;
    }
    /* Of FIFO, directory, link, hard links, socket, sparse file and odd name, the last two are files; room decides which. */
    assert_true(count >= 1 && count <= 2);
    assert_true(sparse || odd);
    assert_true(o.report_len <= REPORT_FILES_TOTAL_MAX);
    assert_null(memmem(o.report, o.report_len, "root:", 5));
    assert_non_null(strstr(o.output, "move-report refused"));
    assert_non_null(strstr(o.output, "move-assay refused"));
    assert_non_null(strstr(o.output, "rmdir-report refused"));
    outcome_done(&o);
    o = attack_run((struct sandbox_limits){ 0 }, "echo honest >/assay/report/r");
    assert_non_null(memmem(o.report, o.report_len, "honest", 6));
    outcome_done(&o);
}

/* A first run leaves traps where our own processes will work before the second. */
static void traps_for_the_next_run(void **state)
{
    (void)state;
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

static void inotify_of_a_neighbour_is_not_used_up(void **state)
{
    (void)state;
    struct outcome o = { 0 }, mine;
    struct err err;
    struct sandbox *s = box_acquire(client, (struct sandbox_spec){ tree_fd, -1, -1 }, (struct sandbox_limits){ .wall_ns = 20 * NS_PER_S });
    assert_int_equal(sandbox_run(s, &(struct sandbox_command){ .shell = "exec ./tricks bomb inotify" }, box_done, &o, &err), 0);
    box_wait(client, &o.come, 500);
    mine = attack_run((struct sandbox_limits){ .wall_ns = 20 * NS_PER_S }, "exec ./tricks bomb inotify");
    assert_string_equal(mine.output, "instances some\ndone\n");
    outcome_done(&mine);
    sandbox_close(s);
    outcome_done(&o);
}

int main(void)
{
    enum { N = sizeof attacks / sizeof attacks[0] };
    static struct CMUnitTest tests[N + 4];
    for (size_t i = 0; i < N; i++)
        tests[i] = (struct CMUnitTest){ attacks[i].name, attack_fails_and_twin_works, NULL, NULL, (void *)(uintptr_t)&attacks[i] };
    tests[N] = (struct CMUnitTest)cmocka_unit_test(report_takes_only_plain_files);
    tests[N + 1] = (struct CMUnitTest)cmocka_unit_test(uid_outside_is_nobodys);
    tests[N + 2] = (struct CMUnitTest)cmocka_unit_test(inotify_of_a_neighbour_is_not_used_up);
    tests[N + 3] = (struct CMUnitTest)cmocka_unit_test(traps_for_the_next_run);
    return cmocka_run_group_tests_name("sandbox attacks", tests, start, stop);
}
