/*
 * Warm starts: a run that is a fork of a started interpreter can be told from a cold one by nothing that a test can see, and is
 * one only where a cold one would have been the same.
 */
#include "tests/sandbox/box.h"
#include "base/frame.h"
#include "repos/edits.h"
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>

static struct sandbox_client *client;

#define MIB ((uint64_t)1 << 20)
static const struct sandbox_limits usual = { .wall_ns = 60 * NS_PER_S, .memory_bytes = 512 * MIB, .pids = 64 };
static const char *const declared[] = { "python3", "-m", "pytest", NULL };
static const char *const addopts[] = { "PYTEST_ADDOPTS=-p no:cacheprovider", NULL };
static const struct sandbox_command warm = { .argv = declared, .env = addopts };

static int start(void **state) { (void)state; client = box_start(1); return 0; }
static int stop(void **state) { (void)state; sandbox_client_close(client); return 0; }

static int tree_make(char *path)
{
    strcpy(path, "/tmp/warm.XXXXXX");
    assert_non_null(mkdtemp(path));
    return open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

static void put(const char *dir, const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void remove_tree(const char *dir, int fd)
{
    char line[128];
    close(fd);
    snprintf(line, sizeof line, "rm -rf %s", dir);
    assert_int_equal(system(line), 0);
}

/* Run until the answer to how it began is `want`: the first of its kind in each slot is cold. */
static struct outcome run_until(const struct sandbox_spec *spec, const struct sandbox_command *cmd, const char *want)
{
    for (int i = 0; i < 12; i++) {
        struct sandbox *s = box_acquire(client, *spec, usual);
        struct outcome o = box_command(client, s, *cmd);
        sandbox_close(s);
        if (strncmp(o.result.start, want, strlen(want)) == 0)
            return o;
        fprintf(stderr, "# %s\n", o.result.start);
        outcome_done(&o);
    }
    fail_msg("never `%s`", want);
    return (struct outcome){ 0 };
}

static char *observed(struct outcome *o)
{
    char *at = memmem(o->report, o->report_len, "OBSERVED", 8), *end = at != NULL ? strchr(at, '\n') : NULL;
    if (end == NULL)
        fail_msg("%s: %s", o->result.start, o->output);
    char *line = strndup(at, (size_t)(end - at));
    assert_non_null(strstr(line, "\"warnings\": "));       /* to its last key */
    outcome_done(o);
    return line;
}

static void a_test_sees_no_difference(void **state)
{
    (void)state;
    char dir[32];
    int tree = tree_make(dir);
    size_t n;
    char *text = box_slurp(open("tests/cross/observed_start.py", O_RDONLY), &n);
    put(dir, "test_observe.py", text);
    free(text);
    const char *const argv[] = { "python3", "-m", "pytest", "-q", "test_observe.py", NULL };
    struct sandbox_command cmd = { .argv = argv, .env = addopts };
    struct sandbox_spec plain = { tree, -1, -1, 0, NULL }, declares = { tree, -1, -1, 0, &warm };
    struct outcome o = run_until(&plain, &cmd, "");
    char *cold = observed(&o);
    for (int i = 0; i < 4; i++) {
        o = run_until(&declares, &cmd, "warm");
        char *got = observed(&o);
        if (strcmp(got, cold) != 0) {
            put("/tmp", "observed.cold", cold);
            put("/tmp", "observed.warm", got);
            fail_msg("a warm start shows");
        }
        free(got);
    }
    free(cold);
    remove_tree(dir, tree);
}

/* ---- what a cold start would not be the same for is cold ---- */

static const char *const trivial[] = { "python3", "-m", "pytest", "-q", "test_one.py", NULL };
#define PASSES "def test_one():\n    assert True\n"

static void starts(const struct sandbox_spec *spec, const struct sandbox_command *cmd, const char *want, const char *output)
{
    struct outcome o = run_until(spec, cmd, want);
    if (strstr(o.output, output) == NULL)
        fail_msg("%s: `%s` not in: %s", want, output, o.output);
    outcome_done(&o);
}

static void what_disagrees_is_cold(void **state)
{
    static const struct { const char *name, *text, *start, *output; } trees[] = {
        { "pytest.ini", "[pytest]\naddopts = -p no:terminal\n", "warm", "" },          /* read by each session anew */
        { "conftest.py", "import sys\nprint('from conftest', file=sys.__stdout__)\n", "warm", "" },
        { "argparse.py", "print('own argparse')\nraise SystemExit(3)\n", "cold: the tree has its own argparse.py", "own argparse" },
        { "pytest.py", "print('own pytest')\n", "cold: the tree has its own pytest.py", "own pytest" },
        { "pluggy/__init__.py", "print('own pluggy')\nraise SystemExit(3)\n", "cold: the tree has its own pluggy", "own pluggy" },
        { "pluggy/notes.py", "", "warm", "1 passed" },                                  /* no package: hides nothing */
        { "sitecustomize.py", "print('own site')\n", "cold: the tree has its own sitecustomize.py", "1 passed" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof trees / sizeof trees[0]; i++) {
        char dir[32], sub[64];
        int tree = tree_make(dir);
        snprintf(sub, sizeof sub, "%s/pluggy", dir);
        if (strchr(trees[i].name, '/') != NULL)
            assert_int_equal(mkdir(sub, 0755), 0);
        put(dir, "test_one.py", PASSES);
        put(dir, trees[i].name, trees[i].text);
        struct sandbox_spec spec = { tree, -1, -1, 0, &warm };
        starts(&spec, &(struct sandbox_command){ .argv = trivial, .env = addopts }, trees[i].start, trees[i].output);
        remove_tree(dir, tree);
    }
}

/* Also where the tree is innocent and the edits are not: they come after the warm process, before the run. */
static void edits_that_disagree_are_cold(void **state)
{
    (void)state;
    char dir[32];
    int tree = tree_make(dir);
    put(dir, "test_one.py", PASSES);
    static const char name[] = "argparse.py", text[] = "print('edited in')\nraise SystemExit(3)\n";
    struct { char magic[8]; uint64_t count; struct { uint32_t kind, mode, path_len, reserved; uint64_t size; } r; char rest[128]; } e =
        { .count = 1, .r = { EDIT_WRITE, 0644, sizeof name - 1, 0, sizeof text - 1 } };
    memcpy(e.magic, EDITS_MAGIC, 8);
    memcpy(stpcpy(e.rest, name), text, sizeof text);
    struct err err;
    int edits = frame_memfd("edits", &e, offsetof(typeof(e), rest) + sizeof name - 1 + sizeof text - 1, &err);
    struct sandbox_spec spec = { tree, -1, -1, 0, &warm }, edited = { tree, edits, -1, 0, &warm };
    const struct sandbox_command cmd = { .argv = trivial, .env = addopts };
    starts(&spec, &cmd, "warm", "1 passed");
    starts(&edited, &cmd, "cold: the tree has its own argparse.py", "edited in");
    starts(&spec, &cmd, "warm", "1 passed");
    close(edits);
    remove_tree(dir, tree);
}

static void another_command_is_cold(void **state)
{
    static const char *const seeded[] = { "PYTHONHASHSEED=7", "PYTEST_ADDOPTS=-p no:cacheprovider", NULL };
    static const char *const unit[] = { "python3", "-m", "unittest", "-q", "test_one", NULL };
    static const char *const missing[] = { "no-such-program", NULL };
    (void)state;
    char dir[32];
    int tree = tree_make(dir);
    put(dir, "test_one.py", "import sys, unittest\nclass T(unittest.TestCase):\n    def test_one(self):\n"
        "        print(hash('a string'), file=sys.__stdout__)\n        sys.__stdout__.flush()\n");
    struct sandbox_spec spec = { tree, -1, -1, 0, &warm };
    starts(&spec, &(struct sandbox_command){ .argv = trivial, .env = addopts }, "warm", "1 passed");
    starts(&spec, &(struct sandbox_command){ .argv = trivial, .env = seeded }, "cold: another environment", "1 passed");
    starts(&spec, &(struct sandbox_command){ .argv = unit, .env = addopts }, "cold: another command", "OK");
    starts(&spec, &(struct sandbox_command){ .shell = "echo from $PWD; umask", .env = addopts }, "cold: another command",
           "from /testbed\n0022\n");
    starts(&spec, &(struct sandbox_command){ .argv = missing, .env = addopts }, "cold: another command", "no-such-program");
    /* Only the first run of a sandbox: what comes after a run may be told by what that left. */
    struct sandbox *s = box_acquire(client, spec, usual);
    for (int i = 0; i < 2; i++) {
        struct outcome o = box_command(client, s, (struct sandbox_command){ .argv = trivial, .env = addopts });
        assert_non_null(strstr(o.output, "1 passed"));
        if (i == 1)
            assert_string_equal(o.result.start, "cold: not the first command of its sandbox");
        outcome_done(&o);
    }
    sandbox_close(s);
    /* A small sandbox has all its memory for itself; one that declares nothing is told nothing. */
    struct sandbox_limits small = usual;
    small.memory_bytes = 32 * MIB;
    s = box_acquire(client, (struct sandbox_spec){ -1, -1, -1, 0, &warm }, small);
    struct outcome o = box_run(client, s, "echo small");
    assert_string_equal(o.output, "small\n");
    assert_non_null(strstr(o.result.start, "cold: too little memory"));
    outcome_done(&o);
    sandbox_close(s);
    o = box_once(client, BOX_EMPTY, usual, "true");
    assert_string_equal(o.result.start, "");
    outcome_done(&o);
    remove_tree(dir, tree);
}

static void on_file(void *arg, int rc, int fd, const struct err *err)
{
    bool *come = arg;
    if (rc < 0)
        fail_msg("%s", err->msg);
    if (fd >= 0)
        close(fd);
    *come = true;
}

/* Standard error apart is no matter; an input is, because the interpreter was started on another; a file put in before the
 * command is foreign. */
static void streams_and_files(void **state)
{
    (void)state;
    char dir[32];
    int tree = tree_make(dir), in[2];
    put(dir, "test_one.py", "import os, sys\ndef test_one():\n    sys.stderr.write('to errors')\n    os.write(1, os.read(0, 9))\n");
    const char *const argv[] = { "python3", "-m", "pytest", "-q", "-s", "test_one.py", NULL };
    struct sandbox_streams apart = { -1, -1, -1, true };
    struct sandbox_spec spec = { tree, -1, -1, 0, &warm };
    struct outcome o = run_until(&spec, &(struct sandbox_command){ .argv = argv, .env = addopts, .streams = &apart }, "warm");
    assert_string_equal(o.errors, "to errors");
    assert_null(strstr(o.output, "to errors"));
    outcome_done(&o);
    for (int i = 0, told = 0; told == 0; i++) {
        assert_int_equal(pipe(in), 0);
        assert_int_equal(write(in[1], "from us", 7), 7);
        close(in[1]);
        struct sandbox_streams input = { in[0], -1, -1, false };
        struct sandbox *s = box_acquire(client, spec, usual);
        o = box_command(client, s, (struct sandbox_command){ .argv = argv, .env = addopts, .streams = &input });
        sandbox_close(s);
        assert_non_null(strstr(o.output, "from us"));
        told += strncmp(o.result.start, "cold: an input", 14) == 0;
        assert_true(strncmp(o.result.start, "cold: ", 6) == 0 && i < 12);
        outcome_done(&o);
        close(in[0]);
    }
    for (int i = 0, told = 0; told == 0; i++) {
        struct sandbox *s = box_acquire(client, spec, usual);
        bool come = false;
        struct err err;
        static const char text[] = "def test_one():\n    print('put in')\n";
        int fd = frame_memfd("file", text, sizeof text - 1, &err);
        assert_int_equal(sandbox_write_file(s, "test_one.py", fd, 0644, on_file, &come, &err), 0);
        assert_int_equal(box_wait(client, &come, 10000), 0);
        close(fd);
        o = box_command(client, s, (struct sandbox_command){ .argv = argv, .env = addopts });
        assert_non_null(strstr(o.output, "put in"));
        told += strstr(o.result.start, "files were asked for") != NULL;
        assert_true(strncmp(o.result.start, "cold: ", 6) == 0 && i < 12);
        outcome_done(&o);
        sandbox_close(s);
    }
    remove_tree(dir, tree);
}

/* ---- attacks ---- */

/* A run that turns everything it can reach upside down is followed by one that cannot tell. */
static void nothing_stays_for_the_next(void **state)
{
    (void)state;
    char dir[32];
    int tree = tree_make(dir);
    size_t n;
    char *text = box_slurp(open("tests/cross/observed_start.py", O_RDONLY), &n);
    put(dir, "test_observe.py", text);
    free(text);
    put(dir, "test_havoc.py",
        "import atexit, builtins, gc, os, random, resource, signal, subprocess, sys, threading, time, socket\n"
        "import _pytest.config, _pytest.runner\n"
        "def test_havoc():\n"
        "    os.write(1, b'havoc done')\n    _pytest.runner.pytest_runtest_protocol = None\n"
        "    _pytest.config.main = lambda *a: 0\n    sys.path.insert(0, '/evil')\n    sys.modules['json'] = None\n"
        "    os.environ['EVIL'] = '1'\n    os.umask(0o777)\n    os.chdir('/')\n    random.seed(1)\n    gc.disable()\n"
        "    resource.setrlimit(resource.RLIMIT_NOFILE, (20, 20))\n    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])\n    sys.setrecursionlimit(99999)\n"
        "    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n    atexit.register(print, 'evil exit')\n"
        "    open('/tmp/evil', 'w').write('x')\n    open('/home/sandbox/.evil', 'w').write('x')\n"
        "    s = socket.socket(socket.AF_UNIX); s.bind('\\0evil'); s.listen()\n"
        "    t = socket.create_server(('127.0.0.1', 18080))\n"
        "    subprocess.Popen(['sleep', '60'], start_new_session=True)\n    os.nice(5)\n"
        "    builtins.len = lambda x: 0\n    os.write(1, b'to the end')\n    os._exit(0)\n");
    const char *const watch[] = { "python3", "-m", "pytest", "-q", "test_observe.py", NULL };
    const char *const havoc[] = { "python3", "-m", "pytest", "-q", "-s", "test_havoc.py", NULL };
    struct sandbox_command observe = { .argv = watch, .env = addopts };
    struct sandbox_spec plain = { tree, -1, -1, 0, NULL }, declares = { tree, -1, -1, 0, &warm };
    struct outcome o = run_until(&plain, &observe, "");
    char *cold = observed(&o);
    for (int i = 0; i < 4; i++) {
        starts(&declares, &(struct sandbox_command){ .argv = havoc, .env = addopts }, "warm", "havoc doneto the end");
        o = run_until(&declares, &observe, "warm");
        char *got = observed(&o);
        if (strcmp(got, cold) != 0) {
            put("/tmp", "observed.cold", cold);
            put("/tmp", "observed.warm", got);
            fail_msg("a run left something behind");
        }
        free(got);
    }
    free(cold);
    remove_tree(dir, tree);
}

/* Out of a run there is no way to the warm process, and none of its rights. */
static void the_host_is_out_of_reach(void **state)
{
    (void)state;
    char dir[32];
    int tree = tree_make(dir);
    put(dir, "test_reach.py",
        "import ctypes, os, signal\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "def fails(name, *args):\n"
        "    ctypes.set_errno(0)\n    rc = getattr(libc, name)(*args)\n    return rc < 0 and ctypes.get_errno()\n"
        "def test_reach():\n"
        "    assert [p for p in os.listdir('/proc') if p.isdigit()] == ['2'] and not os.path.exists('/proc/1')\n"
        "    assert os.getppid() == 0\n"
        "    assert fails('setns', 0, 0) == 38 and fails('unshare', 0x08000000) == 38 and fails('unshare', 0x40000000) == 38\n"
        "    assert fails('ptrace', 16, 1, 0, 0) == 38\n"
        "    for cap in range(64):\n"
        "        assert libc.prctl(23, cap, 0, 0, 0) != 1 and fails('prctl', 47, 2, cap, 0, 0)\n"
        "    for what in ('root', 'cwd', 'exe', 'fd', 'ns/pid', 'mem', 'maps'):\n"
        "        try:\n            open('/proc/1/' + what).read()\n        except OSError:\n            continue\n"
        "        assert False, what\n"
        "    links = {fd: os.readlink('/proc/self/fd/' + fd) for fd in os.listdir('/proc/self/fd')\n"
        "             if os.path.exists('/proc/self/fd/' + fd)}\n"
        "    assert not [l for l in links.values() if 'socket' in l or 'memfd' in l or 'pidfd' in l], links\n"
        "    try:\n        os.kill(-1, signal.SIGKILL)\n    except ProcessLookupError:\n        pass\n"
        "    try:\n        os.kill(0, 0)\n        os.kill(1, signal.SIGKILL)\n    except PermissionError:\n        pass\n");
    const char *const argv[] = { "python3", "-m", "pytest", "-q", "test_reach.py", NULL };
    struct sandbox_spec spec = { tree, -1, -1, 0, &warm };
    for (int i = 0; i < 3; i++)
        starts(&spec, &(struct sandbox_command){ .argv = argv, .env = addopts }, "warm", "1 passed");
    remove_tree(dir, tree);
}

/* An interpreter that plays the warm host and its fork, but keeps the rights, or brings company, or says nothing at all: the
 * launcher sees it, and the run is an ordinary one. */
/* A host that is ended in the middle of its start takes along the child in which it finds out what is to be imported. */
static void a_host_leaves_no_child(void **state)
{
    (void)state;
    const struct sandbox_spec spec = { -1, -1, -1, SANDBOX_STRICT, &warm };
    struct sandbox_limits small = usual;
    small.memory_bytes = 128 * MIB;
    struct sandbox_client *c = box_start(1);
    char stopped[32] = "", line[512];
    snprintf(line, sizeof line, "for i in $(seq 100); do p=$(ps -eo pid,ppid,args | awk '{ parent[$1] = $2 } "
             "/[p]ython3 -m pytest/ { host[$1] = 1 } END { for (p in host) if (parent[p] in host) "
             "for (q = p; q in parent; q = parent[q]) if (q == %d) { print p; exit } }'); "
             "[ -n \"$p\" ] && kill -STOP $p && echo $p && break; done", (int)getpid());
    for (int i = 0; i < 6 && stopped[0] == '\0'; i++) {
        struct outcome o = box_once(c, spec, usual, "true");
        outcome_done(&o);
        FILE *f = popen(line, "r");
        assert_non_null(f);
        if (fgets(stopped, sizeof stopped, f) == NULL)
            stopped[0] = '\0';
        pclose(f);
    }
    const int child = atoi(stopped);
    assert_true(child > 1);
    for (int i = 0; i < 200 && kill(child, 0) == 0; i++) {      /* until it was that slot's turn: a world to be made takes time */
        struct outcome o = box_once(c, BOX_EMPTY, small, ": >/left; exit 3");
        assert_int_equal(o.result.value, 3);
        outcome_done(&o);
    }
    const bool lives = kill(child, 0) == 0;
    kill(child, SIGKILL);
    assert_false(lives);
    sandbox_client_close(c);
}

/* Nor is one left by a host that lets it go: where the next world is another one, and where it is the same. */
static void a_host_leaves_no_stray(void **state)
{
    static const char stray[] = "import os\nif os.fork() == 0:\n    os.setsid()\n    os.execlp('sleep', 'sleep', '7654')\n";
    static const char *const dirt[] = { ": >/left", "true" };
    const char *const argv[] = { "python3", "-S", "-c", stray, NULL };
    const struct sandbox_command host = { .argv = argv };
    const struct sandbox_spec spec = { -1, -1, -1, SANDBOX_STRICT, &host };
    (void)state;
    for (size_t k = 0; k < sizeof dirt / sizeof dirt[0]; k++) {
        struct sandbox_client *c = box_start(1);
        for (int i = 0; i < 24; i++) {
            struct outcome o = box_once(c, spec, usual, dirt[k]);
            assert_int_equal(o.result.end, SANDBOX_END_EXIT);
            outcome_done(&o);
        }
        FILE *f = popen("ps -eo args | grep -c '^[s]leep 7654'", "r");
        assert_non_null(f);
        int strays = -1;
        assert_int_equal(fscanf(f, "%d", &strays), 1);
        pclose(f);
        sandbox_client_close(c);
        assert_in_range(strays, 0, 3);          /* of the host of each slot */
    }
}

static void a_false_host_is_found_out(void **state)
{
    static const char script[] =
        "import array, ctypes, os, socket, sys, time\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "mode, ok = sys.argv[1], bytes(524)\n"
        "host = socket.socket(fileno=3)\n"
        "if mode == 'prints': os.write(1, b'hello')\n"
        "host.send(ok)\n"
        "while True:\n"
        "    data, extra, _, _ = host.recvmsg(64, 256)\n"
        "    if not data: os._exit(0)\n"
        "    fds = array.array('i', extra[0][2])\n"
        "    if os.fork() == 0:\n"
        "        if mode != 'outside': libc.setns(fds[0], 0x20000000)\n"
        "        if os.fork(): os._exit(0)\n"
        "        agent = socket.socket(fileno=fds[1])\n"
        "        os.setsid()\n"
        "        if mode == 'company' and os.fork() == 0: time.sleep(60)\n"
        "        if mode in ('company', 'unfiltered'):\n"
        "            libc.syscall(126, ctypes.byref(ctypes.c_uint64(0x20080522)), bytes(24))\n"
        "        if mode != 'silent': agent.send(ok)\n"
        "        agent.recv(64)\n"
        "        os.write(fds[2], b'CAUGHT NOBODY')\n"
        "        os._exit(0)\n"
        "    os.wait()\n"
        "    host.send(ok)\n";
    static const struct { const char *mode, *start; } cases[] = {
        { "rights", "cold: agent: Cap" }, { "company", "cold: agent: " }, { "unfiltered", "cold: agent: Seccomp_filters" },
        { "outside", "cold: no agent" }, { "silent", "cold: the fork of the warm process is silent" },
        { "prints", "cold: the interpreter prints at its start" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *const argv[] = { "python3", "-S", "-c", script, cases[i].mode, NULL };
        struct sandbox_command host = { .argv = argv };
        struct sandbox_spec spec = { -1, -1, -1, 0, &host };
        struct outcome o = run_until(&spec, &(struct sandbox_command){ .shell = "echo in order; grep CapEff /proc/self/status" },
                                     cases[i].start);
        assert_string_equal(o.output, "in order\nCapEff:\t0000000000000000\n");
        outcome_done(&o);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_test_sees_no_difference), cmocka_unit_test(what_disagrees_is_cold),
        cmocka_unit_test(edits_that_disagree_are_cold), cmocka_unit_test(another_command_is_cold),
        cmocka_unit_test(streams_and_files), cmocka_unit_test(nothing_stays_for_the_next), cmocka_unit_test(the_host_is_out_of_reach),
        cmocka_unit_test(a_false_host_is_found_out), cmocka_unit_test(a_host_leaves_no_child), cmocka_unit_test(a_host_leaves_no_stray),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
