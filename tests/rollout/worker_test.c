/* worker_test.c - the pool with the real assay-worker: answers, deaths, and what a worker can no longer do. */
#include "rollout/worker.h"
#include "base/clock.h"
#include "base/frame.h"
#include "base/own.h"
#include "repos/edits.h"
#include "repos/repos.h"
#include "rollout/worker_confine.h"
#include "rollout/worker_wire.h"
#include "sandbox/report_files.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <cmocka.h>

static char dir[64], store_dir[96], worker_path[4096];
static struct task task;
static struct arena task_arena;

static const char fix[] =
    "diff --git a/calc.py b/calc.py\n--- a/calc.py\n+++ b/calc.py\n"
    "@@ -1,2 +1,2 @@\n def half(n):\n-    return n - n / 2 + 1\n+    return n / 2\n";
static const char bad_fix[] =
    "diff --git a/calc.py b/calc.py\n--- a/calc.py\n+++ b/calc.py\n"
    "@@ -1,2 +1,2 @@\n def third(n):\n-    return n / 3 + 1\n+    return n / 3\n";
static const char test_patch[] =
    "diff --git a/test_calc.py b/test_calc.py\nnew file mode 100644\n--- /dev/null\n+++ b/test_calc.py\n@@ -0,0 +1,4 @@\n"
    "+from calc import half\n+\n+def test_even():\n+    assert half(8) == 4\n";

struct got {
    int called, rc, code;
    enum patch_outcome outcome;
    bool unreadable, has_edits, complete;
    char tree[41], reason[300], reader[32], first_id[128];
    enum test_status first_status;
};

static void on_patch(void *arg, int rc, struct patch_answer *ans, const struct err *err)
{
    struct got *g = arg;
    char magic[8] = "";
    g->called++;
    g->rc = rc;
    g->code = err->code;
    g->outcome = ans->outcome;
    snprintf(g->reason, sizeof g->reason, "%.299s", rc < 0 ? err->msg : ans->reason);
    memcpy(g->tree, ans->tree, sizeof g->tree);
    if (ans->edits_fd >= 0) {
        g->has_edits = pread(ans->edits_fd, magic, 8, 0) == 8 && memcmp(magic, EDITS_MAGIC, 8) == 0;
        close(ans->edits_fd);
    }
}

static void on_report(void *arg, int rc, struct report_answer *ans, const struct err *err)
{
    struct got *g = arg;
    g->called++;
    g->rc = rc;
    g->code = err->code;
    g->unreadable = ans->unreadable;
    g->complete = ans->report.complete;
    snprintf(g->reader, sizeof g->reader, "%s", ans->report.reader);
    if (ans->report.test_count > 0) {
        snprintf(g->first_id, sizeof g->first_id, "%s", ans->report.tests[0].id);
        g->first_status = ans->report.tests[0].status;
    }
}

static void turn(struct worker_pool *p)
{
    struct err err = { 0 };
    struct pollfd wait = { .fd = worker_pool_fd(p), .events = POLLIN };
    assert_true(poll(&wait, 1, 10000) == 1);
    if (worker_pool_dispatch(p, &err) < 0)
        fail_msg("%s", err.msg);
}

static void until(struct worker_pool *p, const struct got *g, int calls)
{
    uint64_t end = clock_mono_ns() + 30 * NS_PER_S;
    while (g->called < calls) {
        assert_true(clock_mono_ns() < end);
        turn(p);
    }
}

static struct worker_pool *start(uint32_t count)
{
    struct worker_pool *p = NULL;
    struct err err = { 0 };
    if (worker_pool_start(&p, worker_path, store_dir, count, &err) < 0)
        fail_msg("%s", err.msg);
    return p;
}

/* The pool's one child process. */
static pid_t child(void)
{
    DIR *d = opendir("/proc");
    pid_t found = -1;
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d)) != NULL; ) {
        char path[300], state;
        int pid, parent;
        snprintf(path, sizeof path, "/proc/%s/stat", e->d_name);
        own_file f = e->d_name[0] >= '0' && e->d_name[0] <= '9' ? fopen(path, "re") : NULL;
        if (f != NULL && fscanf(f, "%d (%*[^)]) %c %d", &pid, &state, &parent) == 3 && parent == getpid())
            found = pid;
    }
    closedir(d);
    assert_true(found > 0);
    return found;
}

static void stop(pid_t pid)
{
    int status;
    assert_int_equal(kill(pid, SIGSTOP), 0);
    assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
}

static void submit_report(struct worker_pool *p, const char *output, int exit_code, struct got *g)
{
    struct err err = { 0 };
    struct task t = { .id = "t", .reader = "exit", .test_cmd = "true" };
    struct run_facts run = { .run_end = "exit", .exited = true, .exit_code = exit_code, .output_bytes = strlen(output) };
    own_fd out = frame_memfd("output", output, strlen(output), &err);
    assert_true(out >= 0);
    if (worker_report(p, &t, -1, out, &run, on_report, g, &err) < 0)
        fail_msg("%s", err.msg);
}

static void pool__reports_come_back(void **s)
{
    (void)s;
    struct worker_pool *p = start(2);
    struct got g[20] = { { 0 } };
    for (int i = 0; i < 20; i++)
        submit_report(p, "x", i % 2, &g[i]);
    for (int i = 0; i < 20; i++) {
        until(p, &g[i], 1);
        assert_int_equal(g[i].rc, 0);
        assert_string_equal(g[i].reader, "exit/1");
        assert_int_equal(g[i].first_status, i % 2 == 0 ? TEST_PASSED : TEST_FAILED);
    }
    worker_pool_close(p);
}

static void pool__report_files_reach_the_reader(void **s)
{
    (void)s;
    static const char xml[] = "<testsuite name='pytest' tests='1' failures='0' errors='0' skipped='0'>"
                              "<testcase classname='t' name='a[x y]' file='t.py'/></testsuite>";
    static const char out_text[] = "== short test summary info ==\nPASSED t.py::a[x y]\n1 passed in 0.01s\n";
    struct worker_pool *p = start(1);
    struct err err = { 0 };
    struct got g = { 0 };
    own_buf files = { 0 };
    uint32_t head[2] = { 9, 0 };
    uint64_t size = sizeof xml - 1;
    assert_int_equal(buf_add(&files, head, sizeof head, &err), 0);
    assert_int_equal(buf_add(&files, &size, sizeof size, &err), 0);
    assert_int_equal(buf_add(&files, "junit.xml", 9, &err), 0);
    assert_int_equal(buf_add(&files, xml, sizeof xml - 1, &err), 0);
    own_fd report = frame_memfd("report", files.data, files.len, &err);
    own_fd out = frame_memfd("output", out_text, sizeof out_text - 1, &err);
    struct task t = { .id = "t", .reader = "auto", .test_cmd = "pytest" };
    struct run_facts run = { .run_end = "exit 0", .exited = true, .output_bytes = sizeof out_text - 1 };
    assert_int_equal(worker_report(p, &t, report, out, &run, on_report, &g, &err), 0);
    until(p, &g, 1);
    assert_int_equal(g.rc, 0);
    assert_string_equal(g.reader, "pytest/1");
    assert_string_equal(g.first_id, "t.py::a[x y]");
    assert_int_equal(g.first_status, TEST_PASSED);
    assert_true(g.complete);
    worker_pool_close(p);
}

static void pool__patches_are_merged(void **s)
{
    (void)s;
    struct worker_pool *p = start(1);
    struct err err = { 0 };
    struct got good = { 0 }, bad = { 0 }, empty = { 0 };
    assert_int_equal(worker_patch(p, &task, fix, sizeof fix - 1, on_patch, &good, &err), 0);
    assert_int_equal(worker_patch(p, &task, bad_fix, sizeof bad_fix - 1, on_patch, &bad, &err), 0);
    assert_int_equal(worker_patch(p, &task, "", 0, on_patch, &empty, &err), 0);
    until(p, &good, 1);
    until(p, &bad, 1);
    until(p, &empty, 1);
    if (good.rc < 0)
        fail_msg("%s", good.reason);
    assert_int_equal(good.outcome, PATCH_APPLIED);
    assert_true(good.has_edits);
    assert_int_equal(strlen(good.tree), 40);
    assert_int_equal(bad.rc, 0);
    assert_int_equal(bad.outcome, PATCH_FAILED);
    assert_non_null(strstr(bad.reason, "calc.py"));
    assert_int_equal(empty.outcome, PATCH_EMPTY);
    assert_true(empty.has_edits);               /* the hidden tests, for a control run of the base tree */
    /* A task that is broken says nothing about the patch: no outcome, so no reward. */
    struct got broken = { 0 };
    struct task with_junk = task;
    with_junk.test_patch = "no diff";
    assert_int_equal(worker_patch(p, &with_junk, fix, sizeof fix - 1, on_patch, &broken, &err), 0);
    until(p, &broken, 1);
    assert_true(broken.rc < 0);
    assert_non_null(strstr(broken.reason, "its test_patch does not apply"));
    worker_pool_close(p);
}

static void pool__a_death_while_idle_costs_nothing(void **s)
{
    (void)s;
    struct worker_pool *p = start(1);
    struct got g = { 0 };
    kill(child(), SIGKILL);
    submit_report(p, "x", 0, &g);
    until(p, &g, 1);
    assert_int_equal(g.rc, 0);
    assert_int_equal(g.first_status, TEST_PASSED);
    worker_pool_close(p);
}

static void pool__one_death_is_repeated_two_are_the_inputs_fault(void **s)
{
    (void)s;
    for (int deaths = 1; deaths <= 2; deaths++) {
        struct worker_pool *p = start(1);
        struct got g = { 0 };
        pid_t pid = child();
        stop(pid);
        submit_report(p, "x", 0, &g);           /* sent to a stopped worker: it is busy with it */
        kill(pid, SIGKILL);
        turn(p);                                /* the death is seen, another worker is started */
        assert_int_equal(g.called, 0);
        if (deaths == 2) {
            struct pollfd hello = { .fd = worker_pool_fd(p), .events = POLLIN };
            assert_int_equal(poll(&hello, 1, 10000), 1);
            pid = child();
            stop(pid);
            turn(p);                            /* it is up, and gets the job again */
            kill(pid, SIGKILL);
        }
        until(p, &g, 1);
        assert_int_equal(g.rc, 0);
        assert_int_equal(g.unreadable, deaths == 2);
        if (deaths == 1)
            assert_int_equal(g.first_status, TEST_PASSED);
        struct got next = { 0 };                /* and the pool goes on */
        submit_report(p, "x", 1, &next);
        until(p, &next, 1);
        assert_int_equal(next.first_status, TEST_FAILED);
        worker_pool_close(p);
    }
}

static void pool__a_wrong_program_is_named(void **s)
{
    (void)s;
    struct worker_pool *p = NULL;
    struct err err = { 0 };
    assert_true(worker_pool_start(&p, "/bin/true", store_dir, 1, &err) < 0);
    assert_non_null(strstr(err.msg, "/bin/true"));
    assert_int_equal(worker_pool_start(&p, "/no/such/assay-worker", store_dir, 1, &err), ERR_UNAVAILABLE);
    assert_int_equal(worker_pool_start(&p, worker_path, "/no/such/store", 1, &err), ERR_NOT_FOUND);
    assert_null(p);
}

/* The pool's clock, moved by hand; the kernel's timer is not. */
static uint64_t ahead_ns;
uint64_t __real_clock_mono_ns(void);
uint64_t __wrap_clock_mono_ns(void);
uint64_t __wrap_clock_mono_ns(void) { return __real_clock_mono_ns() + ahead_ns; }

static void pool__the_wall_limit_says_nothing_about_the_input(void **s)
{
    (void)s;
    struct worker_pool *p = start(1);
    struct err err = { 0 };
    struct got g = { 0 }, next = { 0 };
    stop(child());
    submit_report(p, "x", 0, &g);
    ahead_ns = 59 * NS_PER_S;
    assert_int_equal(worker_pool_dispatch(p, &err), 0);
    assert_int_equal(g.called, 0);
    ahead_ns = 61 * NS_PER_S;
    assert_int_equal(worker_pool_dispatch(p, &err), 0);
    assert_int_equal(g.called, 1);
    assert_int_equal(g.rc, ERR_LOST);
    assert_int_equal(g.code, ERR_LOST);
    submit_report(p, "x", 0, &next);
    until(p, &next, 1);
    assert_int_equal(next.first_status, TEST_PASSED);
    ahead_ns = 0;
    worker_pool_close(p);
}

static void pool__a_worker_is_replaced_after_many_jobs(void **s)
{
    (void)s;
    struct worker_pool *p = start(1);
    struct got g = { 0 };
    pid_t first = child();
    for (int i = 0; i < 1100; i++)
        submit_report(p, "x", 0, &g);
    until(p, &g, 1100);
    assert_int_equal(g.rc, 0);
    assert_int_not_equal(child(), first);
    worker_pool_close(p);
}

static void pool__a_full_queue_is_busy(void **s)
{
    (void)s;
    struct worker_pool *p = start(1);
    struct err err = { 0 };
    struct got g = { 0 };
    struct run_facts run = { .run_end = "exit 0", .exited = true };
    struct task t = { .id = "t", .reader = "exit" };
    int rc = 0, n = 0;
    stop(child());
    while (rc == 0 && n < 100000) {
        rc = worker_report(p, &t, -1, -1, &run, on_report, &g, &err);
        n++;
    }
    assert_int_equal(rc, ERR_BUSY);
    assert_int_equal(g.called, 0);
    worker_pool_close(p);
}

/* --- confinement: the same calls that worker.c makes, then what a taken-over parser would try --- */

enum { TRY_WRITE_FILE = 1, TRY_CREATE_FILE = 2, TRY_READ_PASSWD = 4, TRY_SOCKET = 8, TRY_FORK = 16, TRY_EXEC = 32, TRY_KILL = 64,
       TRY_EXECUTABLE_MEMORY = 128 };

static unsigned try_all(void)
{
    unsigned done = 0;
    struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = 80, .sin_addr = { 0x0100007f } };
    int fd = open("/etc/passwd", O_RDWR | O_CLOEXEC);
    done |= fd >= 0 ? TRY_WRITE_FILE : 0;
    fd = open("objects.git/x", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    done |= fd >= 0 ? TRY_CREATE_FILE : 0;
    fd = open("/etc/passwd", O_RDONLY | O_CLOEXEC);
    done |= fd >= 0 && geteuid() != 0 ? TRY_READ_PASSWD : 0;
    fd = socket(AF_INET, SOCK_STREAM, 0);
    done |= fd >= 0 || connect(WORKER_FD, (struct sockaddr *)&to, sizeof to) == 0 ? TRY_SOCKET : 0;
    pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    done |= pid > 0 ? TRY_FORK : 0;
    char *argv[] = { NULL };
    execv("/bin/true", argv);
    done |= errno != EPERM ? TRY_EXEC : 0;
    done |= kill(getpid(), 0) == 0 ? TRY_KILL : 0;
    void *code = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    done |= code != MAP_FAILED ? TRY_EXECUTABLE_MEMORY : 0;
    return done;
}

static void confine__takes_network_files_and_processes(void **s)
{
    (void)s;
#ifdef __SANITIZE_ADDRESS__
    skip();     /* the sanitizer's runtime needs calls that the filter refuses */
#endif
    int status;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct err err = { 0 };
        const char *at;
        uint32_t steps = 0;
        if (worker_enter(&at, store_dir, &err) < 0 || worker_confine(&steps, at, &err) < 0)
            _exit(255);
        if ((steps & WORKER_CONFINED_SECCOMP) == 0)
            _exit(254);
        _exit((int)try_all());
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void confine__a_worker_runs_as_nobody(void **s)
{
    (void)s;
    if (geteuid() != 0)
        skip();
    struct worker_pool *p = start(1);
    char path[64], line[200];
    unsigned uid = 0, seccomp_mode = 0, no_new_privs = 0;
    snprintf(path, sizeof path, "/proc/%d/status", (int)child());
    own_file f = fopen(path, "re");
    assert_non_null(f);
    while (fgets(line, sizeof line, f) != NULL) {
        (void)sscanf(line, "Uid: %u", &uid);
        (void)sscanf(line, "Seccomp: %u", &seccomp_mode);
        (void)sscanf(line, "NoNewPrivs: %u", &no_new_privs);
    }
    assert_int_equal(uid, 65534);
    assert_int_equal(no_new_privs, 1);
#ifndef __SANITIZE_ADDRESS__
    assert_int_equal(seccomp_mode, 2);
#endif
    worker_pool_close(p);
}

/* --- bodies --- */

static void wire__every_cut_is_refused(void **s)
{
    (void)s;
    const char *ids[] = { "a", "b" };
    struct task t = { .id = "t", .repo = "r", .base_tree = "0", .test_cmd = "c", .fail_to_pass = { ids, 2 },
                      .pass_to_pass = { ids, 1 } };
    struct test_result tests[2] = { { .id = "a", .message = "m", .evidence = "e", .status = TEST_XFAIL, .duration_s = 0.5 },
                                    { .id = "b", .message = "", .evidence = "", .status = TEST_PASSED } };
    struct report r = { .reader = "x", .note = "n", .tests = tests, .test_count = 2, .complete = true, .count_failed = 7 };
    struct run_facts run = { .run_end = "signal 9", .exit_code = -1, .output_bytes = 5 };
    own_buf b = { 0 };
    struct err err = { 0 };
    assert_int_equal(wire_put_task(&b, &t, &err), 0);
    assert_int_equal(wire_put_run(&b, &run, &err), 0);
    assert_int_equal(wire_put_report(&b, &r, &err), 0);
    for (size_t n = 0; n <= b.len; n++) {
        struct arena a = { 0 };
        struct wire_in in = { b.data, b.data + n, &a, false };
        struct task t2;
        struct run_facts run2 = { 0 };
        struct report r2 = { 0 };
        int rc = wire_get_task(&in, &t2, &err);
        if (rc == 0)
            rc = wire_get_run(&in, &run2, &err);
        if (rc == 0)
            rc = wire_get_report(&in, &r2, &err);
        assert_int_equal(rc, n == b.len ? 0 : ERR_PROTOCOL);
        if (rc == 0) {
            assert_string_equal(t2.fail_to_pass.items[1], "b");
            assert_string_equal(run2.run_end, "signal 9");
            assert_int_equal(run2.exit_code, -1);
            assert_int_equal(r2.test_count, 2);
            assert_int_equal(r2.tests[0].status, TEST_XFAIL);
            assert_int_equal(r2.count_failed, 7);
        }
        arena_done(&a);
    }
}

/* --- set-up: a store with one task --- */

static int write_file(const char *at, const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", at, name);
    own_file f = fopen(path, "we");
    return f != NULL && fputs(text, f) >= 0 ? 0 : -1;
}

static int set_up(void **s)
{
    (void)s;
    const char *bin = getenv("ASSAY_BIN");
    char repos[96], repo[128], cmd[600], commit[64] = "";
    struct err err = { 0 };
    snprintf(worker_path, sizeof worker_path, "%s/assay-worker", bin != NULL ? bin : "build/bin");
    strcpy(dir, "/tmp/worker_test_XXXXXX");
    if (mkdtemp(dir) == NULL || chmod(dir, 0755) != 0)
        return -1;
    snprintf(store_dir, sizeof store_dir, "%s/store", dir);
    snprintf(repos, sizeof repos, "%s/repos", dir);
    snprintf(repo, sizeof repo, "%s/calc", repos);
    if (mkdir(repos, 0755) != 0 || mkdir(repo, 0755) != 0 ||
        write_file(repo, "calc.py", "def half(n):\n    return n - n / 2 + 1\n") != 0)
        return -1;
    snprintf(cmd, sizeof cmd, "cd %s && git init -q . && git add -A && "
             "git -c user.name=a -c user.email=a@b commit -qm base && git rev-parse HEAD", repo);
    FILE *git = popen(cmd, "re");
    if (git == NULL || fscanf(git, "%63s", commit) != 1 || pclose(git) != 0)
        return -1;
    struct store *store = NULL;
    struct str_list notes = { 0 };
    task = (struct task){ .id = "calc-1", .repo = "calc", .base_commit = arena_strdup(&task_arena, commit),
                          .problem_statement = "", .patch = "", .test_patch = test_patch, .test_cmd = "pytest -q",
                          .reader = "pytest", .environment = "host", .profile = "strict", .split = "test", .timeout_s = 10,
                          .memory_mb = 128, .extra_json = "{}" };
    if (store_open(&store, store_dir, true, &err) < 0 ||
        store_import(store, &task_arena, &task, repos, &notes, &err) < 0) {
        fprintf(stderr, "%s\n", err.msg);
        return -1;
    }
    store_close(store);
    return 0;
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *w)
{
    (void)st;
    (void)flag;
    (void)w;
    return remove(path);
}

static int tear_down(void **s)
{
    (void)s;
    arena_done(&task_arena);
    return nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pool__reports_come_back),
        cmocka_unit_test(pool__report_files_reach_the_reader),
        cmocka_unit_test(pool__patches_are_merged),
        cmocka_unit_test(pool__a_death_while_idle_costs_nothing),
        cmocka_unit_test(pool__one_death_is_repeated_two_are_the_inputs_fault),
        cmocka_unit_test(pool__a_wrong_program_is_named),
        cmocka_unit_test(pool__the_wall_limit_says_nothing_about_the_input),
        cmocka_unit_test(pool__a_worker_is_replaced_after_many_jobs),
        cmocka_unit_test(pool__a_full_queue_is_busy),
        cmocka_unit_test(confine__takes_network_files_and_processes),
        cmocka_unit_test(confine__a_worker_runs_as_nobody),
        cmocka_unit_test(wire__every_cut_is_refused),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
