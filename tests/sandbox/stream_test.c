/* Streams of a running command: real jail, real kernel. Who is slow, gone or hostile holds up nobody but himself. */
#include "tests/sandbox/box.h"
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>

#define MIB ((uint64_t)1 << 20)
static struct sandbox_client *client;
static const struct sandbox_limits usual = { .wall_ns = 60 * NS_PER_S, .memory_bytes = 512 * MIB, .pids = 64 };
static const struct sandbox_streams none = { .in = -1, .out = -1, .err = -1 };

static int start(void **state) { (void)state; signal(SIGPIPE, SIG_IGN); client = box_start(3); return 0; }
static int stop(void **state) { (void)state; sandbox_client_close(client); return 0; }

static void begin(struct sandbox *s, const char *shell, struct sandbox_streams streams, struct outcome *o)
{
    *o = (struct outcome){ 0 };
    struct sandbox_command cmd = { .shell = shell, .streams = &streams };
    if (sandbox_run(s, &cmd, box_done, o, &o->err) < 0)
        fail_msg("run: %s", o->err.msg);
}

static void finish(struct outcome *o)
{
    if (box_wait(client, &o->come, 60000) < 0 || o->rc < 0)
        fail_msg("no end: %s", o->err.msg);
}

static struct outcome run(struct sandbox *s, const char *shell, struct sandbox_streams streams)
{
    struct outcome o;
    begin(s, shell, streams, &o);
    finish(&o);
    return o;
}

static int memfd_with(const char *text)
{
    int fd = memfd_create("input", MFD_CLOEXEC);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
    return fd;
}

/* All that comes until the end. */
static char *read_all(int fd, size_t *out_len)
{
    size_t max = 8 << 20;
    char *text = malloc(max);
    *out_len = 0;
    for (ssize_t n; (n = read(fd, text + *out_len, max - *out_len)) > 0; )
        *out_len += (size_t)n;
    return text;
}

struct feeder { int fd; size_t bytes; };
static void *feed(void *arg)
{
    const struct feeder *f = arg;
    static char text[100000];
    memset(text, 'x', sizeof text);
    for (size_t left = f->bytes; left > 0; ) {
        ssize_t n = write(f->fd, text, left < sizeof text ? left : sizeof text);
        if (n < 0)
            break;
        left -= (size_t)n;
    }
    close(f->fd);
    return NULL;
}

static void input_from_what_the_caller_has(void **state)
{
    (void)state;
    struct sandbox *s = box_acquire(client, BOX_EMPTY, usual);
    struct outcome o = run(s, "cat; ls -l /proc/self/fd/0", none);
    assert_non_null(strstr(o.output, "/dev/null"));
    outcome_done(&o);
    struct sandbox_streams in = none;
    in.in = memfd_with("from a file\n");
    o = run(s, "cat", in);
    assert_string_equal(o.output, "from a file\n");
    outcome_done(&o);
    close(in.in);
    for (int socket = 0; socket < 2; socket++) {
        int ends[2];
        pthread_t t;
        assert_int_equal(socket ? socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) : pipe2(ends, O_CLOEXEC), 0);
        struct feeder f = { ends[1], 3000001 };
        pthread_create(&t, NULL, feed, &f);
        in.in = ends[0];
        begin(s, "wc -c", in, &o);
        close(ends[0]);                         /* the call has what it needs */
        finish(&o);
        pthread_join(t, NULL);
        assert_string_equal(o.output, "3000001\n");
        outcome_done(&o);
        /* A command that does not want it all ends when it likes; whoever writes then learns it. */
        assert_int_equal(socket ? socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) : pipe2(ends, O_CLOEXEC), 0);
        f = (struct feeder){ ends[1], 3000001 };
        pthread_create(&t, NULL, feed, &f);
        in.in = ends[0];
        begin(s, "head -c 5; exec 0<&-; exit 3", in, &o);
        close(ends[0]);
        finish(&o);
        pthread_join(t, NULL);
        assert_string_equal(o.output, "xxxxx");
        assert_int_equal(o.result.value, 3);
        outcome_done(&o);
    }
    sandbox_close(s);
}

/* A dialogue: each side needs what the other said before. */
static void output_comes_while_the_command_runs(void **state)
{
    (void)state;
    char text[64];
    int in[2], out[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, in), 0);
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    struct sandbox *s = box_acquire(client, BOX_EMPTY, usual);
    struct outcome o;
    begin(s, "echo one; read x; echo two $x >&2; read y; echo three $y", (struct sandbox_streams){ .in = in[0], .out = out[1], .err = -1 }, &o);
    close(in[0]);
    close(out[1]);
    assert_int_equal(read(out[0], text, sizeof text), 4);
    assert_memory_equal(text, "one\n", 4);
    assert_int_equal(write(in[1], "a\n", 2), 2);
    assert_int_equal(read(out[0], text, sizeof text), 6);
    assert_memory_equal(text, "two a\n", 6);
    assert_false(o.come);
    assert_int_equal(write(in[1], "b\n", 2), 2);
    finish(&o);
    assert_int_equal(read(out[0], text, sizeof text), 8);
    assert_int_equal(read(out[0], text, sizeof text), 0);
    assert_string_equal(o.output, "one\ntwo a\nthree b\n");
    outcome_done(&o);
    close(in[1]);
    close(out[0]);
    sandbox_close(s);
}

static bool lines_in_order(const char *text, size_t len)
{
    unsigned long want = 1;
    for (const char *p = text; p < text + len; want++) {
        char *end;
        if (strtoul(p, &end, 10) != want || *end != '\n')
            return false;
        p = end + 1;
    }
    return true;
}

static void slow_reader_makes_only_the_command_wait(void **state)
{
    (void)state;
    for (int socket = 0; socket < 2; socket++) {
        int out[2];
        size_t len;
        assert_int_equal(socket ? socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, out) : pipe2(out, O_CLOEXEC), 0);
        struct sandbox *s = box_acquire(client, BOX_EMPTY, usual);
        struct outcome o;
        begin(s, "seq 500000; touch /tmp/through; sleep 0.2", (struct sandbox_streams){ .in = -1, .out = out[1], .err = -1 }, &o);
        close(out[1]);
        for (int i = 0; i < 20; i++) {          /* the jail serves others meanwhile */
            struct outcome other = box_once(client, BOX_EMPTY, usual, "echo other");
            assert_string_equal(other.output, "other\n");
            outcome_done(&other);
        }
        box_wait(client, &o.come, 300);
        assert_false(o.come);
        char *text = read_all(out[0], &len);
        assert_int_equal(len, 3388895);
        assert_true(lines_in_order(text, len));
        finish(&o);
        assert_int_equal(o.result.end, SANDBOX_END_EXIT);
        assert_int_equal(o.result.output_bytes, 3388895);
        assert_memory_equal(o.output, "1\n2\n3\n", 6);
        assert_string_equal(o.output + o.output_len - 14, "499999\n500000\n");
        free(text);
        outcome_done(&o);
        close(out[0]);
        sandbox_close(s);
    }
}

static void reader_that_never_reads_meets_the_wall_limit(void **state)
{
    (void)state;
    int out[2];
    struct sandbox_limits l = usual;
    l.wall_ns = NS_PER_S;
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    struct sandbox *s = box_acquire(client, BOX_EMPTY, l);
    struct outcome o = run(s, "exec yes", (struct sandbox_streams){ .in = -1, .out = out[1], .err = -1 });
    assert_int_equal(o.result.end, SANDBOX_END_TIME_LIMIT);
    assert_true(o.result.output_bytes < MIB);
    outcome_done(&o);
    o = box_run(client, s, "echo again");
    assert_string_equal(o.output, "again\n");
    outcome_done(&o);
    sandbox_close(s);
    close(out[0]);
    close(out[1]);
}

static void reader_that_closes_is_left_alone(void **state)
{
    (void)state;
    for (int socket = 0; socket < 2; socket++) {
        int out[2];
        assert_int_equal(socket ? socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, out) : pipe2(out, O_CLOEXEC), 0);
        struct sandbox *s = box_acquire(client, BOX_EMPTY, usual);
        struct outcome o;
        begin(s, "seq 100000; echo end; exit 4", (struct sandbox_streams){ .in = -1, .out = out[1], .err = -1 }, &o);
        close(out[1]);
        char byte;
        assert_int_equal(read(out[0], &byte, 1), 1);
        close(out[0]);
        finish(&o);
        assert_int_equal(o.result.end, SANDBOX_END_EXIT);
        assert_int_equal(o.result.value, 4);
        assert_int_equal(o.result.output_bytes, 588899);
        assert_string_equal(o.output + o.output_len - 4, "end\n");
        outcome_done(&o);
        sandbox_close(s);
    }
}

/* The command is gone before anyone reads; its pipe is as large and as odd as it could make it. */
static void what_is_left_at_the_end_comes_too(void **state)
{
    (void)state;
    static const char *const writes[] = {
        "exec python3 -c \"import os; os.write(1, b'y' * 60000); os.write(1, b'end')\"",
        "exec python3 -c \"import fcntl, os\ntry: fcntl.fcntl(1, 1031, 1 << 20)\nexcept OSError: pass\n"     /* the user may have too many */
        "os.write(1, b'y' * 900000); os.write(1, b'end')\"",
        "exec python3 -c \"import fcntl, os; fcntl.fcntl(1, 4, os.O_DIRECT | 1); "
        "[os.write(1, b'y' * 1000) for i in range(10)]; os.write(1, b'end')\"",
    };
    struct sandbox *s = box_acquire(client, BOX_EMPTY, usual);
    for (size_t i = 0; i < sizeof writes / sizeof writes[0]; i++) {
        int out[2];
        size_t len;
        assert_int_equal(pipe2(out, O_CLOEXEC), 0);
        fcntl(out[1], F_SETPIPE_SZ, 4096);
        struct outcome o;
        begin(s, writes[i], (struct sandbox_streams){ .in = -1, .out = out[1], .err = -1 }, &o);
        close(out[1]);
        if (i != 1)                             /* that one cannot put it all away */
            finish(&o);
        char *text = read_all(out[0], &len);
        finish(&o);
        assert_int_equal(len, o.result.output_bytes);
        if (len < 10000)
            fail_msg("%zu: end %d value %d: %.*s", i, (int)o.result.end, o.result.value, (int)len, text);
        assert_memory_equal(text + len - 4, "yend", 4);
        assert_string_equal(o.output + o.output_len - 4, "yend");
        free(text);
        outcome_done(&o);
        close(out[0]);
    }
    sandbox_close(s);
}

static void standard_error_apart(void **state)
{
    (void)state;
    struct sandbox_limits l = usual;
    l.output_bytes = 200000;
    struct sandbox *s = box_acquire(client, BOX_EMPTY, l);
    struct sandbox_streams apart = { .in = -1, .out = -1, .err = -1, .apart = true };
    struct outcome o = run(s, "echo out; echo err >&2; echo more", apart);
    assert_string_equal(o.output, "out\nmore\n");
    assert_string_equal(o.errors, "err\n");
    assert_int_equal(o.result.output_bytes, 13);
    outcome_done(&o);
    o = run(s, "seq 30000 >&2; echo done", apart);              /* more than a pipe holds, that nobody but us reads */
    assert_string_equal(o.output, "done\n");
    assert_int_equal(o.result.output_bytes, 168894 + 5);
    assert_string_equal(o.errors + o.errors_len - 12, "29999\n30000\n");
    outcome_done(&o);
    o = run(s, "head -c 150000 /dev/zero; head -c 50001 /dev/zero >&2; sleep 30", apart);       /* the limit is on both */
    assert_int_equal(o.result.end, SANDBOX_END_OUTPUT_LIMIT);
    assert_int_equal(o.result.output_bytes, 200001);
    outcome_done(&o);
    o = box_run(client, s, "echo out; echo err >&2");           /* and then as ever */
    assert_string_equal(o.output, "out\nerr\n");
    assert_int_equal(o.errors_len, 0);
    assert_int_equal(o.result.error_fd, -1);
    outcome_done(&o);
    /* Both streamed, one to a reader that is gone: the other is whole. */
    int out[2], err[2];
    size_t len;
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    assert_int_equal(pipe2(err, O_CLOEXEC), 0);
    apart.out = out[1];
    apart.err = err[1];
    close(err[0]);
    begin(s, "for i in 1 2 3 4 5 6 7 8 9; do echo $i; echo e$i >&2; done", apart, &o);
    close(out[1]);
    close(err[1]);
    char *text = read_all(out[0], &len);
    finish(&o);
    assert_int_equal(len, 18);
    assert_true(lines_in_order(text, len));
    assert_int_equal(o.errors_len, 27);
    free(text);
    outcome_done(&o);
    close(out[0]);
    sandbox_close(s);
}

static void kill_in_a_dialogue_leaves_the_sandbox_usable(void **state)
{
    (void)state;
    struct sandbox *s = box_acquire(client, BOX_EMPTY, usual);
    for (int i = 0; i < 20; i++) {
        int in[2], out[2];
        size_t len;
        assert_int_equal(pipe2(in, O_CLOEXEC), 0);
        assert_int_equal(pipe2(out, O_CLOEXEC), 0);
        struct outcome o;
        begin(s, "echo here; cat; echo never", (struct sandbox_streams){ .in = in[0], .out = out[1], .err = -1, .apart = i & 1 }, &o);
        close(in[0]);
        close(out[1]);
        if (i > 9) {                            /* the others are killed wherever they are */
            char text[8];
            assert_int_equal(read(out[0], text, sizeof text), 5);
        }
        sandbox_kill(s);
        finish(&o);
        assert_int_equal(o.result.end, SANDBOX_END_KILLED);
        outcome_done(&o);
        char *text = read_all(out[0], &len);
        assert_null(memmem(text, len, "never", 5));
        free(text);
        close(out[0]);
        close(in[1]);
        o = box_run(client, s, "echo again");
        assert_string_equal(o.output, "again\n");
        outcome_done(&o);
    }
    sandbox_close(s);
}

struct both { struct outcome acquired, done; };
static void first_acquired(void *arg, int rc, struct sandbox *s, const struct err *err)
{
    box_acquired(&((struct both *)arg)->acquired, rc, s, err);
}
static void first_done(void *arg, int rc, struct sandbox_result *r, const struct err *err)
{
    box_done(&((struct both *)arg)->done, rc, r, err);
}

/* A first command that comes with the acquire has all a later one has. */
static void first_command_has_streams_too(void **state)
{
    (void)state;
    struct sandbox_streams streams = { .in = memfd_with("in\n"), .out = -1, .err = -1, .apart = true };
    struct sandbox_limits l = usual;
    l.network = SANDBOX_NET_PROXY;
    struct sandbox_command cmd = { .shell = "cat; echo $http_proxy >&2", .streams = &streams, .measure = true };
    struct both b = { 0 };
    assert_int_equal(sandbox_acquire_run(client, &BOX_EMPTY, &l, &cmd, first_acquired, first_done, &b, &b.done.err), 0);
    close(streams.in);
    finish(&b.done);
    assert_true(b.acquired.come && sandbox_proxy_fd(b.acquired.sandbox) >= 0);
    assert_string_equal(b.done.output, "in\n");
    assert_string_equal(b.done.errors, "http://127.0.0.1:3128\n");
    assert_true(b.done.result.usage.known & SANDBOX_KNOWN_TASKS);
    outcome_done(&b.done);
    sandbox_close(b.acquired.sandbox);
}

/* The command has pipes of its own and none of the caller's descriptors. */
static void descriptors_of_the_caller_stay_outside(void **state)
{
    (void)state;
    int in[2], out[2];
    size_t len;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, in), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, out), 0);
    struct sandbox *s = box_acquire(client, BOX_EMPTY, usual);
    struct outcome o;
    begin(s, "exec python3 -c \"import os\nfor f in sorted(os.listdir('/proc/self/fd')):\n"
             "    try: print(f, os.readlink('/proc/self/fd/' + f).split(':')[0])\n    except OSError: pass\n\"",
          (struct sandbox_streams){ .in = in[0], .out = out[1], .err = -1, .apart = true }, &o);
    close(in[0]);
    close(out[1]);
    char *text = read_all(out[0], &len);
    finish(&o);
    assert_int_equal(len, 21);
    assert_memory_equal(text, "0 pipe\n1 pipe\n2 pipe\n", 21);
    free(text);
    outcome_done(&o);
    close(in[1]);
    close(out[0]);
    sandbox_close(s);
}

static void other_descriptors_are_refused(void **state)
{
    (void)state;
    struct sandbox *s = box_acquire(client, BOX_EMPTY, usual);
    int pipe_ends[2], packets[2], dir = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC), path = open("/etc/passwd", O_PATH | O_CLOEXEC);
    int file = memfd_with("x"), null = open("/dev/null", O_RDWR | O_CLOEXEC);
    assert_int_equal(pipe2(pipe_ends, O_CLOEXEC), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, packets), 0);
    const struct sandbox_streams bad[] = {
        { dir, -1, -1, false }, { path, -1, -1, false }, { pipe_ends[1], -1, -1, false }, { packets[0], -1, -1, false },
        { -1, pipe_ends[0], -1, false }, { -1, file, -1, false }, { -1, null, -1, false }, { -1, packets[0], -1, false },
        { -1, -1, pipe_ends[1], false }, { 12345, -1, -1, false },
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct outcome o = { 0 };
        struct sandbox_command cmd = { .shell = "true", .streams = &bad[i] };
        assert_int_equal(sandbox_run(s, &cmd, box_done, &o, &o.err), ERR_USAGE);
    }
    struct outcome o = box_run(client, s, "echo fine");
    assert_string_equal(o.output, "fine\n");
    outcome_done(&o);
    const int all[] = { dir, path, file, null, pipe_ends[0], pipe_ends[1], packets[0], packets[1] };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        close(all[i]);
    sandbox_close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(input_from_what_the_caller_has), cmocka_unit_test(output_comes_while_the_command_runs),
        cmocka_unit_test(slow_reader_makes_only_the_command_wait), cmocka_unit_test(reader_that_never_reads_meets_the_wall_limit),
        cmocka_unit_test(reader_that_closes_is_left_alone), cmocka_unit_test(what_is_left_at_the_end_comes_too),
        cmocka_unit_test(standard_error_apart), cmocka_unit_test(kill_in_a_dialogue_leaves_the_sandbox_usable),
        cmocka_unit_test(first_command_has_streams_too), cmocka_unit_test(descriptors_of_the_caller_stay_outside), cmocka_unit_test(other_descriptors_are_refused),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
