/* How a run ends and what is told of it: real jail, real kernel. Cases H14 to H17 of the handed suite are here. */
#include "tests/sandbox/box.h"
#include "base/frame.h"
#include "base/own.h"
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>

static struct sandbox_client *client;

#define MIB ((uint64_t)1 << 20)
static const struct sandbox_limits usual = { .wall_ns = 30 * NS_PER_S, .memory_bytes = 512 * MIB, .pids = 64 };

static int start(void **state) { (void)state; client = box_start(4); return 0; }
static int stop(void **state) { (void)state; sandbox_client_close(client); return 0; }

static void says(const char *shell, enum sandbox_end end, int value, const char *output)
{
    struct outcome o = box_once(client, BOX_EMPTY, usual, shell);
    if (o.result.end != end || o.result.value != value || (output != NULL && strcmp(o.output, output) != 0))
        fail_msg("`%s`: end %d value %d output `%s`", shell, (int)o.result.end, o.result.value, o.output);
    outcome_done(&o);
}

static void ends_are_told_apart(void **state)
{
    (void)state;
    says("true", SANDBOX_END_EXIT, 0, "");
    says("exit 7", SANDBOX_END_EXIT, 7, "");
    says("kill -9 $$", SANDBOX_END_SIGNAL, SIGKILL, "");
    says("kill -SEGV $$", SANDBOX_END_SIGNAL, SIGSEGV, "");
    says("echo out; echo err >&2", SANDBOX_END_EXIT, 0, "out\nerr\n");
    says("no-such-command 2>/dev/null", SANDBOX_END_EXIT, 127, "");
}

/* H14 */
static void background_child_does_not_delay(void **state)
{
    (void)state;
    uint64_t began = clock_mono_ns();
    struct sandbox *s = box_acquire(client, BOX_EMPTY, usual);
    const char *sleeper = box_sleep(40);
    char command[120];
    snprintf(command, sizeof command, "%s & printf 'suite done\\n'; exit 3", sleeper);
    struct outcome o = box_run(client, s, command);
    assert_int_equal(o.result.end, SANDBOX_END_EXIT);
    assert_int_equal(o.result.value, 3);
    assert_string_equal(o.output, "suite done\n");
    assert_true(clock_mono_ns() - began < 20 * NS_PER_S);
    outcome_done(&o);
    snprintf(command, sizeof command, "(setsid %s &) ; exit 0", sleeper);
    o = box_run(client, s, command);
    assert_int_equal(o.result.value, 0);
    assert_string_equal(o.output, "");
    outcome_done(&o);
    o = box_run(client, s, "cat /proc/[0-9]*/comm");     /* nothing of the earlier runs lives here */
    assert_null(strstr(o.output, "sleep"));
    outcome_done(&o);
    sandbox_close(s);
    assert_false(box_alive(sleeper));
}

/* H15 */
static void time_limit_takes_every_descendant(void **state)
{
    (void)state;
    const char *sleeper = box_sleep(4711);
    char linger[1024];
    snprintf(linger, sizeof linger,
        "cat >/tmp/linger.py <<'END'\n"
        "import os, signal, sys, time\n"
        "def settle():\n"
        "    os.setsid()\n"
        "    for s in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):\n"
        "        signal.signal(s, signal.SIG_IGN)\n"
        "    if os.fork():\n"
        "        os._exit(0)\n"
        "    os.execvp('sleep', '%s'.split())\n"
        "if os.fork() == 0:\n"
        "    settle()\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "print('started', flush=True)\n"
        "while True:\n"
        "    pass\n"
        "END\n"
        "exec python3 /tmp/linger.py", sleeper);
    struct sandbox_limits l = usual;
    l.wall_ns = box_seconds(2);
    uint64_t began = clock_mono_ns();
    struct outcome o = box_once(client, BOX_EMPTY, l, linger);
    uint64_t took = clock_mono_ns() - began;
    assert_int_equal(o.result.end, SANDBOX_END_TIME_LIMIT);
    assert_true(o.result.limits_hit & SANDBOX_HIT_TIME);
    assert_true(took >= l.wall_ns && took < box_seconds(20));
    assert_string_equal(o.output, "started\n");
    assert_false(box_alive(sleeper));
    outcome_done(&o);
}

/* H16 */
static const char grow[] = "cat >/tmp/grow.py <<'END'\nblocks = []\nwhile True:\n    blocks.append(bytearray(b'x' * (4 << 20)))\nEND\n";

static struct outcome grown(const char *then)
{
    char shell[512];
    struct sandbox_limits l = usual;
    l.memory_bytes = 128 * MIB;
    snprintf(shell, sizeof shell, "%s%s", grow, then);
    return box_once(client, BOX_EMPTY, l, shell);
}

static void memory_limit_is_told_apart(void **state)
{
    (void)state;
    struct outcome o = grown("exec python3 /tmp/grow.py");
    if (!box_grouped(&o.result)) {            /* no process is killed for it: rlimits_stand_in() */
        outcome_done(&o);
        skip();
    }
    assert_int_equal(o.result.end, SANDBOX_END_MEMORY_LIMIT);
    assert_true(o.result.limits_hit & SANDBOX_HIT_MEMORY);
    outcome_done(&o);

    o = grown("sh -c 'python3 /tmp/grow.py; echo \"child said $?\"; exit 1'");
    assert_int_equal(o.result.end, SANDBOX_END_EXIT);
    assert_int_equal(o.result.value, 1);
    assert_true(o.result.limits_hit & SANDBOX_HIT_MEMORY);
    if (box_grouped(&o.result)) {
        assert_true(o.result.memory_bytes_peak >= 120 * MIB);
        assert_true(o.result.memory_bytes_peak <= 128 * MIB);
    }
    outcome_done(&o);

    o = grown("exec sh -c 'kill -9 $$'");
    assert_true(o.result.end == SANDBOX_END_SIGNAL && o.result.value == SIGKILL);
    assert_false(o.result.limits_hit & SANDBOX_HIT_MEMORY);
    outcome_done(&o);

    o = grown("python3 -c 'raise MemoryError' 2>/dev/null");
    assert_true(o.result.end == SANDBOX_END_EXIT && o.result.value == 1);
    assert_false(o.result.limits_hit & SANDBOX_HIT_MEMORY);
    outcome_done(&o);
}

/* H17 a */
static void threads_work_under_the_filter(void **state)
{
    (void)state;
    static const char source[] =
        "cat >/tmp/t.c <<'END'\n"
        "#define _GNU_SOURCE\n#include <errno.h>\n#include <pthread.h>\n#include <stdio.h>\n#include <unistd.h>\n"
        "#include <sys/syscall.h>\n"
        "static void *work(void *p) { *(int *)p = 42; return NULL; }\n"
        "int main(void)\n{\n"
        "    long r = syscall(435, NULL, 0);\n    int e = r == -1 ? errno : 0;\n"
        "    pthread_t t;\n    int got = 0;\n    int rc = pthread_create(&t, NULL, work, &got);\n"
        "    if (rc == 0)\n        pthread_join(t, NULL);\n"
        "    printf(\"clone3=%s thread=%s\\n\", e == ENOSYS ? \"ENOSYS\" : e == EINVAL ? \"EINVAL\" : \"BAD\",\n"
        "           rc == 0 && got == 42 ? \"ok\" : \"FAILED\");\n"
        "    return !((e == ENOSYS || e == EINVAL) && rc == 0 && got == 42);\n}\n"
        "END\n"
        "gcc -O1 -pthread -o /tmp/t /tmp/t.c && /tmp/t";
    says(source, SANDBOX_END_EXIT, 0, "clone3=ENOSYS thread=ok\n");
}

/* H17 b */
static void loopback_is_up_and_nothing_else(void **state)
{
    (void)state;
    static const char script[] =
        "cat >/tmp/n.py <<'END'\n"
        "import socket\n"
        "def talk(family, host):\n"
        "    srv = socket.socket(family, socket.SOCK_STREAM)\n"
        "    srv.bind((host, 0))\n"
        "    srv.listen(1)\n"
        "    cli = socket.create_connection((host, srv.getsockname()[1]), timeout=3)\n"
        "    peer, _ = srv.accept()\n"
        "    cli.sendall(b'ping')\n"
        "    return peer.recv(4) == b'ping'\n"
        "print('v4', talk(socket.AF_INET, '127.0.0.1'))\n"
        "print('v6', talk(socket.AF_INET6, '::1'))\n"
        "print('name', talk(socket.AF_INET, 'localhost'))\n"
        "print('self', socket.gethostbyname(socket.gethostname()) != '')\n"
        "try:\n"
        "    socket.create_connection(('192.0.2.1', 80), timeout=2)\n"
        "    print('out', 'REACHED')\n"
        "except OSError as e:\n"
        "    print('out', 'closed')\n"
        "END\n"
        "python3 /tmp/n.py";
    says(script, SANDBOX_END_EXIT, 0, "v4 True\nv6 True\nname True\nself True\nout closed\n");
}

static void output_is_cut_in_the_middle(void **state)
{
    (void)state;
    /* 2 * 32 KiB exactly: whole. One byte more: a marker between head and tail. */
    struct outcome o = box_once(client, BOX_EMPTY, usual, "head -c 65536 /dev/zero | tr '\\0' a");
    assert_int_equal(o.output_len, 65536);
    assert_int_equal(o.result.output_bytes, 65536);
    assert_null(memchr(o.output, '[', o.output_len));
    outcome_done(&o);
    o = box_once(client, BOX_EMPTY, usual, "printf begin; head -c 1000000 /dev/zero | tr '\\0' a; printf finish");
    assert_int_equal(o.result.output_bytes, 1000011);
    assert_int_equal(o.result.end, SANDBOX_END_EXIT);
    assert_true(o.output_len > 65536 && o.output_len < 65536 + 100);
    assert_memory_equal(o.output, "begin", 5);
    assert_string_equal(o.output + o.output_len - 6, "finish");
    assert_non_null(strstr(o.output, "\n[... 934475 bytes left out ...]\n"));
    outcome_done(&o);
}

static void output_limit_ends_the_run(void **state)
{
    (void)state;
    struct sandbox_limits l = usual;
    l.output_bytes = 1 * MIB;
    uint64_t began = clock_mono_ns();
    struct outcome o = box_once(client, BOX_EMPTY, l, "yes");
    assert_int_equal(o.result.end, SANDBOX_END_OUTPUT_LIMIT);
    assert_true(o.result.limits_hit & SANDBOX_HIT_OUTPUT);
    assert_true(o.result.output_bytes > MIB);
    assert_true(clock_mono_ns() - began < 10 * NS_PER_S);
    assert_memory_equal(o.output, "y\ny\n", 4);
    outcome_done(&o);
}

static void other_limits_hold(void **state)
{
    (void)state;
    struct sandbox_limits l = usual;
    l.pids = 16;
    struct outcome o = box_once(client, BOX_EMPTY, l, "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do sleep 5 & done 2>/dev/null; true");
    assert_true(!box_grouped(&o.result) || (o.result.limits_hit & SANDBOX_HIT_PIDS));
    outcome_done(&o);

    l = usual;
    l.disk_bytes = 4 * MIB;
    o = box_once(client, BOX_EMPTY, l, "dd if=/dev/zero of=/tmp/f bs=1M count=8 2>&1 | grep -c 'No space'");
    assert_string_equal(o.output, "1\n");
    assert_true(o.result.limits_hit & SANDBOX_HIT_DISK);
    outcome_done(&o);

    l = usual;
    l.disk_inodes = 500;
    o = box_once(client, BOX_EMPTY, l, "i=0; while : >/tmp/$i; do i=$((i + 1)); [ $i -lt 1000 ] || exit 0; done 2>/dev/null; echo $i");
    assert_int_not_equal(o.result.value, 0);
    outcome_done(&o);

    l = usual;
    l.file_bytes = 1 * MIB;
    o = box_once(client, BOX_EMPTY, l, "exec dd if=/dev/zero of=/tmp/f bs=64k count=40 2>/dev/null");
    assert_true(o.result.end == SANDBOX_END_DISK_LIMIT && o.result.value == SIGXFSZ && o.result.limits_hit == SANDBOX_HIT_DISK);
    outcome_done(&o);

    l = usual;
    l.cpu_ns = NS_PER_S / 2;
    l.cpu_percent = 200;
    o = box_once(client, BOX_EMPTY, l, "while :; do :; done");
    assert_int_equal(o.result.end, SANDBOX_END_TIME_LIMIT);
    assert_true(o.result.limits_hit & SANDBOX_HIT_CPU);
    assert_true(!box_grouped(&o.result) || (o.result.cpu_ns >= NS_PER_S / 2 && o.result.cpu_ns < NS_PER_S));
    outcome_done(&o);
}

static void kill_ends_a_run(void **state)
{
    (void)state;
    struct err err = { 0 };
    struct sandbox *s = box_acquire(client, BOX_EMPTY, usual);
    struct outcome o = { 0 };
    sandbox_kill(s);                            /* none is running: harmless */
    const char *sleeper = box_sleep(30);
    char text[80];
    snprintf(text, sizeof text, "echo here; %s", sleeper);
    struct sandbox_command cmd = { .shell = text };
    assert_int_equal(sandbox_run(s, &cmd, box_done, &o, &err), 0);
    assert_int_equal(sandbox_run(s, &cmd, box_done, &o, &err), ERR_USAGE);
    box_wait_alive(client, &o.come, sleeper);
    sandbox_kill(s);
    sandbox_kill(s);
    assert_int_equal(box_wait(client, &o.come, 10000), 0);
    assert_int_equal(o.result.end, SANDBOX_END_KILLED);
    assert_string_equal(o.output, "here\n");
    outcome_done(&o);
    o = box_run(client, s, "echo again");       /* the sandbox is usable still, and keeps its files */
    assert_string_equal(o.output, "again\n");
    outcome_done(&o);
    sandbox_close(s);
}

static void environment_is_fixed_and_can_be_added_to(void **state)
{
    (void)state;
    const char *const env[] = { "PATH=/usr/bin:/bin", "CASE=one two", "CASE=three", NULL };
    struct sandbox *s = box_acquire(client, BOX_EMPTY, usual);
    struct outcome o = box_run_env(client, s, "echo $PATH; echo $CASE; echo $HOME $LANG $TZ $PYTHONHASHSEED; echo ${SECRET-none}; pwd", env);
    assert_string_equal(o.output, "/usr/bin:/bin\nthree\n/home/sandbox C.UTF-8 UTC 0\nnone\n/testbed\n");
    outcome_done(&o);
    sandbox_close(s);
}

static void a_program_needs_no_shell(void **state)
{
    (void)state;
    struct sandbox *s = box_acquire(client, BOX_EMPTY, usual);
    const char *const print[] = { "/usr/bin/printf", "[%s]", "a  b", "", "$HOME", NULL }, *const none[] = { NULL };
    const char *const show[] = { "/usr/bin/env", NULL }, *const env[] = { "CASE=one two", NULL };
    const char *const lost[] = { "/no/such", NULL }, *const dir[] = { "/tmp", NULL };
    struct outcome o = box_command(client, s, (struct sandbox_command){ .argv = print });
    assert_string_equal(o.output, "[a  b][][$HOME]");
    outcome_done(&o);
    o = box_command(client, s, (struct sandbox_command){ .argv = show, .env = env });
    assert_non_null(strstr(o.output, "HOME=/home/sandbox\n"));
    assert_non_null(strstr(o.output, "CASE=one two\n"));
    outcome_done(&o);
    o = box_command(client, s, (struct sandbox_command){ .argv = lost });
    assert_int_equal(o.result.value, 127);
    assert_string_equal(o.output, "sandbox: /no/such: No such file or directory\n");
    outcome_done(&o);
    o = box_command(client, s, (struct sandbox_command){ .argv = dir });
    assert_int_equal(o.result.value, 126);
    outcome_done(&o);
    struct err err = { 0 };
    assert_int_equal(sandbox_run(s, &(struct sandbox_command){ .argv = none }, box_done, &o, &err), ERR_USAGE);
    assert_int_equal(sandbox_run(s, &(struct sandbox_command){ 0 }, box_done, &o, &err), ERR_USAGE);
    sandbox_close(s);
}

struct pair { struct outcome acquired, done; };
static void pair_acquired(void *arg, int rc, struct sandbox *s, const struct err *err)
{
    box_acquired(&((struct pair *)arg)->acquired, rc, s, err);
}
static void pair_done(void *arg, int rc, struct sandbox_result *r, const struct err *err)
{
    assert_true(((struct pair *)arg)->acquired.come);
    box_done(&((struct pair *)arg)->done, rc, r, err);
}

static void a_first_command_comes_with_the_sandbox(void **state)
{
    (void)state;
    own_fd dir = open("/usr/share/doc", O_PATH | O_DIRECTORY | O_CLOEXEC);
    const struct sandbox_spec specs[] = { BOX_EMPTY, { dir, -1, -1, 0, NULL } };
    const struct sandbox_command say = { .shell = "echo first; sleep 0.1" };
    struct err err = { 0 };
    for (int i = 0; i < 2; i++) {
        struct pair p = { 0 };
        assert_int_equal(sandbox_acquire_run(client, &specs[i], &usual, &say, pair_acquired, pair_done, &p, &err), 0);
        assert_int_equal(box_wait(client, &p.acquired.come, 10000), 0);
        assert_int_equal(p.acquired.rc, 0);
        assert_int_equal(sandbox_run(p.acquired.sandbox, &say, box_done, &p.done, &err), ERR_USAGE);    /* it runs one */
        assert_int_equal(box_wait(client, &p.done.come, 10000), 0);
        assert_string_equal(p.done.output, "first\n");
        outcome_done(&p.done);
        struct outcome o = box_run(client, p.acquired.sandbox, "echo second");
        assert_string_equal(o.output, "second\n");
        outcome_done(&o);
        sandbox_close(p.acquired.sandbox);
    }
    /* Where there is no sandbox, there is no command. */
    struct pair p = { 0 };
    own_fd bad = frame_memfd("edits", "none", 4, &err);
    assert_int_equal(sandbox_acquire_run(client, &(struct sandbox_spec){ -1, bad, -1, 0, NULL }, &usual, &say, pair_acquired, pair_done, &p, &err), 0);
    assert_int_equal(box_wait(client, &p.acquired.come, 10000), 0);
    assert_int_equal(p.acquired.rc, ERR_BAD_INPUT);
    says("echo usable", SANDBOX_END_EXIT, 0, "usable\n");
    assert_false(p.done.come);
}

static void interpreters_and_git_work(void **state)
{
    (void)state;
    says("python3 -c 'import ssl, sqlite3, ctypes, multiprocessing as m; p = m.Pool(2); print(sum(p.map(abs, [-1, -2])))'",
         SANDBOX_END_EXIT, 0, "3\n");
    says("perl -e 'use POSIX; print strftime(\"%Y\", gmtime(0)), \"\\n\"'", SANDBOX_END_EXIT, 0, "1970\n");
    says("git init -q r && cd r && echo a >a && git add a && git -c user.name=n -c user.email=e commit -qm m && git log --format=%s",
         SANDBOX_END_EXIT, 0, "m\n");
    says("test \"$(id -u)\" = 0 && mkfifo /tmp/p && echo x >/dev/shm/y && echo z >/dev/null && test -c /dev/tty && echo ok >/dev/stderr",
         SANDBOX_END_EXIT, 0, "ok\n");
}

static void usage_is_measured(void **state)
{
    (void)state;
    struct outcome o = box_once(client, BOX_EMPTY, usual, "exec python3 -c 'x = bytearray(50 << 20); import time; e = time.process_time() + 0.3\nwhile time.process_time() < e: pass'");
    assert_int_equal(o.result.end, SANDBOX_END_EXIT);
    assert_true(o.result.cpu_ns > NS_PER_S / 4 && o.result.cpu_ns < box_seconds(2));
    assert_true(o.result.memory_bytes_peak > 50 * MIB && o.result.memory_bytes_peak < 200 * MIB);
    assert_true(o.result.wall_ns > NS_PER_S / 4);
    outcome_done(&o);
}

/* A host without control groups: rlimits stand in, and the result says so. */
static void rlimits_stand_in(void **state)
{
    (void)state;
    pid_t child = fork();
    if (child == 0) {
        if (geteuid() == 0 && (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
                               umount2("/sys", MNT_DETACH) < 0))
            _exit(2);
        struct sandbox_client *c = box_start(1);
        struct sandbox_limits l = { .wall_ns = 20 * NS_PER_S, .memory_bytes = 200 * MIB, .cpu_ns = NS_PER_S, .pids = 20 };
        struct outcome o = box_once(c, BOX_EMPTY, l, "python3 -c 'bytearray(300 << 20)' 2>&1 | tail -1");
        bool good = o.result.enforced_by[SANDBOX_LIMIT_MEMORY] == SANDBOX_BY_RLIMIT && strstr(o.output, "MemoryError") != NULL;
        outcome_done(&o);
        o = box_once(c, BOX_EMPTY, l, "while :; do :; done");
        good = good && o.result.end == SANDBOX_END_TIME_LIMIT && o.result.limits_hit == SANDBOX_HIT_CPU;
        outcome_done(&o);
        o = box_once(c, BOX_EMPTY, l, "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23; do sleep 3 & done; echo all");
        good = good && strstr(o.output, "all") == NULL;
        outcome_done(&o);
        sandbox_client_close(c);
        _exit(good ? 0 : 1);
    }
    int status;
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ends_are_told_apart), cmocka_unit_test(background_child_does_not_delay),
        cmocka_unit_test(time_limit_takes_every_descendant), cmocka_unit_test(memory_limit_is_told_apart),
        cmocka_unit_test(threads_work_under_the_filter), cmocka_unit_test(loopback_is_up_and_nothing_else),
        cmocka_unit_test(output_is_cut_in_the_middle), cmocka_unit_test(output_limit_ends_the_run),
        cmocka_unit_test(other_limits_hold), cmocka_unit_test(kill_ends_a_run),
        cmocka_unit_test(environment_is_fixed_and_can_be_added_to), cmocka_unit_test(a_program_needs_no_shell), cmocka_unit_test(a_first_command_comes_with_the_sandbox), cmocka_unit_test(interpreters_and_git_work),
        cmocka_unit_test(usage_is_measured), cmocka_unit_test(rlimits_stand_in),
    };
    return cmocka_run_group_tests_name("sandbox run", tests, start, stop);
}
