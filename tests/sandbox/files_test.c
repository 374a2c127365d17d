/* Files in and out of a sandbox by name, and what became of its tree: real jail, real kernel, hostile names and places. */
#include "tests/sandbox/box.h"
#include "base/frame.h"
#include "base/own.h"
#include "repos/edits.h"
#include <sys/stat.h>

#define MIB ((uint64_t)1 << 20)
static struct sandbox_client *client;
static const struct sandbox_limits usual = { .wall_ns = 60 * NS_PER_S, .memory_bytes = 256 * MIB, .pids = 64,
                                               .file_bytes = (uint64_t)1 << 42 };

static int start(void **state) { (void)state; client = box_start(3); return 0; }
static int stop(void **state) { (void)state; sandbox_client_close(client); return 0; }

struct got { bool come; int rc; char *text; size_t len; int fd; struct err err; };

static void on_file(void *arg, int rc, int fd, const struct err *err)
{
    struct got *g = arg;
    g->come = true;
    g->rc = rc;
    g->fd = fd;
    if (err != NULL)
        g->err = *err;
}

enum what { READ, LIST, DIFF };

static struct got ask(struct sandbox *s, enum what what, const char *path, int tree)
{
    struct got g = { .fd = -1 };
    int rc = what == READ ? sandbox_read_file(s, path, on_file, &g, &g.err)
           : what == LIST ? sandbox_list(s, path, on_file, &g, &g.err) : sandbox_diff(s, tree, on_file, &g, &g.err);
    if (rc == 0 && box_wait(client, &g.come, 60000) < 0)
        fail_msg("no answer");
    if (rc < 0)
        g.rc = rc;
    if (g.fd >= 0) {
        const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL;
        assert_int_equal(fcntl(g.fd, F_GET_SEALS), seals);
        g.text = box_slurp(fcntl(g.fd, F_DUPFD_CLOEXEC, 0), &g.len);
    }
    return g;
}

static void got_done(struct got *g)
{
    free(g->text);
    if (g->fd >= 0)
        close(g->fd);
    *g = (struct got){ .fd = -1 };
}

static void reads(struct sandbox *s, const char *path, const char *text)
{
    struct got g = ask(s, READ, path, -1);
    if (g.rc < 0 || strcmp(g.text, text) != 0)
        fail_msg("%s: %d %s `%.100s`", path, g.rc, g.err.msg, g.text);
    got_done(&g);
}

static void refuses(struct sandbox *s, enum what what, const char *path, int code)
{
    struct got g = ask(s, what, path, -1);
    if (g.rc != code || g.err.msg[0] == '\0')
        fail_msg("%s: %d, not %d: %s", path, g.rc, code, g.err.msg);
    got_done(&g);
}

static int writes(struct sandbox *s, const char *path, const char *text, uint32_t mode)
{
    struct got g = { .fd = -1 };
    own_fd fd = frame_memfd("content", text, strlen(text), &g.err);
    int rc = sandbox_write_file(s, path, fd, mode, on_file, &g, &g.err);
    if (rc == 0 && box_wait(client, &g.come, 60000) < 0)
        fail_msg("no answer");
    assert_int_equal(g.fd, -1);
    return rc < 0 ? rc : g.rc;
}

static void shell(struct sandbox *s, const char *text, const char *output)
{
    struct outcome o = box_run(client, s, text);
    if (o.result.value != 0 || strcmp(o.output, output) != 0)
        fail_msg("`%s`: value %d: %s", text, o.result.value, o.output);
    outcome_done(&o);
}

static void files_go_in_and_out(void **state)
{
    (void)state;
    struct sandbox *s = box_acquire(client, BOX_EMPTY, usual);
    assert_int_equal(writes(s, "a/b/c.sh", "#!/bin/sh\necho ran\n", 0755), 0);
    shell(s, "a/b/c.sh; stat -c '%a %U' a/b/c.sh a/b; ls -A a/b", "ran\n755 root\n755 root\nc.sh\n");
    reads(s, "a/b/c.sh", "#!/bin/sh\necho ran\n");
    reads(s, "/testbed/a/b/c.sh", "#!/bin/sh\necho ran\n");
    reads(s, "a/../a/./b//c.sh", "#!/bin/sh\necho ran\n");
    assert_int_equal(writes(s, "/tmp/x", "", 0600), 0);
    reads(s, "/tmp/x", "");
    assert_int_equal(writes(s, "/tmp/x", "again", 0600), 0);    /* what is there is replaced */
    reads(s, "/tmp/x", "again");
    reads(s, "/etc/hostname", "sandbox\n");
    shell(s, "printf 'a\\0b' >/dev/shm/nul", "");
    struct got g = ask(s, READ, "/dev/shm/nul", -1);
    assert_int_equal(g.len, 3);
    got_done(&g);
    g = ask(s, LIST, "a", -1);
    struct sandbox_entry e;
    memcpy(&e, g.text, sizeof e);
    assert_true(g.len == sizeof e + 1 && e.name_len == 1 && S_ISDIR(e.mode) && g.text[sizeof e] == 'b');
    got_done(&g);
    sandbox_close(s);
}

static void hostile_places_are_not_read(void **state)
{
    (void)state;
    struct sandbox *s = box_acquire(client, BOX_EMPTY, usual);
    struct outcome o = box_run(client, s, "mkfifo fifo; ln -s /etc/passwd link; ln -s /etc dir; ln -s loop loop; mkdir d; truncate -s 1T huge; "
        "truncate -s 33554433 over; head -c 33554432 /dev/zero >most; echo x >closed; chmod 0 closed; mkdir shut; echo x >shut/x; "
        "chmod 0 shut; python3 -c \"import socket; socket.socket(socket.AF_UNIX).bind('sock')\"; mknod null c 1 3 || true");
    outcome_done(&o);
    static const struct { const char *path; int code; } cases[] = {
        { "fifo", ERR_BAD_INPUT }, { "link", ERR_BAD_INPUT }, { "dir/passwd", ERR_BAD_INPUT }, { "loop", ERR_BAD_INPUT },
        { "d", ERR_BAD_INPUT }, { "huge", ERR_LIMIT }, { "over", ERR_LIMIT }, { "closed", ERR_BAD_INPUT },
        { "shut/x", ERR_BAD_INPUT }, { "sock", ERR_BAD_INPUT }, { "/dev/null", ERR_BAD_INPUT }, { "/dev/tty", ERR_BAD_INPUT },
        { "/proc/self/environ", ERR_BAD_INPUT }, { "/proc/self/root/etc/passwd", ERR_BAD_INPUT }, { "/proc/1/maps", ERR_NOT_FOUND },
        { "/dev/stdin", ERR_BAD_INPUT }, { "none", ERR_NOT_FOUND }, { "d/none", ERR_NOT_FOUND }, { "link/x", ERR_BAD_INPUT },
        { "../etc/passwd", ERR_BAD_INPUT }, { "", ERR_BAD_INPUT }, { "/", ERR_BAD_INPUT }, { "/assay/store/up", ERR_BAD_INPUT },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (strcmp(cases[i].path, "/assay/store/up") != 0)
            refuses(s, READ, cases[i].path, cases[i].code);
    struct got g = ask(s, READ, "/assay/store/up", -1);
    assert_true(g.rc < 0);
    got_done(&g);
    g = ask(s, READ, "most", -1);
    assert_int_equal(g.len, SANDBOX_FILE_MAX);
    got_done(&g);
    refuses(s, LIST, "fifo", ERR_BAD_INPUT);
    refuses(s, LIST, "dir", ERR_BAD_INPUT);
    refuses(s, LIST, "/proc", ERR_BAD_INPUT);
    refuses(s, LIST, "none", ERR_NOT_FOUND);
    shell(s, "echo usable", "usable\n");
    sandbox_close(s);
}

static void names_are_bytes(void **state)
{
    (void)state;
    char deep[4200], name[300], path[600];
    struct sandbox *s = box_acquire(client, BOX_EMPTY, usual);
    memset(name, 'n', 255);
    name[255] = '\0';
    const char *const names[] = { "new\nline", "-rf", "\033[31mred", "\xff\xfe", name, "a b", "*" };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        assert_int_equal(writes(s, names[i], names[i], 0644), 0);
        reads(s, names[i], names[i]);
        snprintf(path, sizeof path, "/testbed/sub/%s", names[i]);
        assert_int_equal(writes(s, path, "y", 0644), 0);
        reads(s, path, "y");
    }
    struct got g = ask(s, LIST, "sub", -1);
    size_t count = 0, at = 0;
    for (struct sandbox_entry e; at + sizeof e <= g.len; at += sizeof e + e.name_len, count++) {
        memcpy(&e, g.text + at, sizeof e);
        assert_true(e.name_len <= 255 && e.size == 1 && S_ISREG(e.mode));
    }
    assert_int_equal(count, sizeof names / sizeof names[0]);
    assert_int_equal(at, g.len);
    got_done(&g);
    memset(name, 'n', 256);
    name[256] = '\0';
    refuses(s, READ, name, ERR_BAD_INPUT);
    assert_int_equal(writes(s, name, "x", 0644), ERR_BAD_INPUT);
    memset(deep, 'd', sizeof deep);
    for (size_t i = 1; i < sizeof deep; i += 2)
        deep[i] = '/';
    deep[sizeof deep - 1] = '\0';
    refuses(s, READ, deep, ERR_BAD_INPUT);                      /* longer than a path can be */
    deep[2001] = '\0';
    assert_int_equal(writes(s, deep, "deep", 0644), 0);         /* a thousand directories */
    reads(s, deep, "deep");
    sandbox_close(s);
}

static void links_are_replaced_and_not_followed(void **state)
{
    (void)state;
    struct sandbox_limits l = usual;
    l.disk_bytes = 4 * MIB;
    struct sandbox *s = box_acquire(client, BOX_EMPTY, l);
    shell(s, "echo old >/tmp/target; ln -s /tmp/target link; ln -s /tmp dir; mkdir d; mkfifo fifo; echo keep >kept", "");
    assert_int_equal(writes(s, "link", "new", 0644), 0);
    assert_int_equal(writes(s, "fifo", "new", 0644), 0);
    shell(s, "cat /tmp/target link fifo; test ! -L link && echo; ls -A /tmp", "old\nnewnew\ntarget\n");
    assert_int_equal(writes(s, "dir/x", "new", 0644), ERR_BAD_INPUT);
    assert_int_equal(writes(s, "d", "new", 0644), ERR_BAD_INPUT);
    assert_int_equal(writes(s, "kept/x", "new", 0644), ERR_BAD_INPUT);
    assert_int_equal(writes(s, "/proc/x", "new", 0644), ERR_NOT_FOUND);
    assert_int_equal(writes(s, "d/..", "new", 0644), ERR_BAD_INPUT);
    /* A full layer: what was there stays whole. */
    struct got g = { .fd = -1 };
    char *large = calloc(1, 5 * MIB);
    own_fd fd = frame_memfd("content", large, 5 * MIB, &g.err);
    assert_int_equal(sandbox_write_file(s, "kept", fd, 0644, on_file, &g, &g.err), 0);
    assert_int_equal(box_wait(client, &g.come, 60000), 0);
    assert_int_equal(g.rc, ERR_LIMIT);
    free(large);
    shell(s, "cat kept; ls -A", "keep\nd\ndir\nfifo\nkept\nlink\n");
    /* What is no sealed memfd, or no mode, is refused here. */
    own_fd open_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_int_equal(sandbox_write_file(s, "x", open_fd, 0644, on_file, &g, &g.err), ERR_USAGE);
    assert_int_equal(writes(s, "x", "x", 04755), ERR_USAGE);
    sandbox_close(s);
}

/* Nothing foreign can race: while it lives nobody reads, and it does not live on. */
static void nobody_renames_meanwhile(void **state)
{
    (void)state;
    struct sandbox *s = box_acquire(client, BOX_EMPTY, usual);
    struct outcome o = { 0 };
    struct sandbox_command cmd = { .shell = "echo one >a; ln -s /etc/passwd b; (setsid sh -c 'while :; do mv -f a t; cp -P b a; mv -f t a; done' &); sleep 1" };
    assert_int_equal(sandbox_run(s, &cmd, box_done, &o, &o.err), 0);
    struct got g = { .fd = -1 };
    assert_int_equal(sandbox_read_file(s, "a", on_file, &g, &g.err), ERR_USAGE);
    assert_int_equal(sandbox_diff(s, -1, on_file, &g, &g.err), ERR_USAGE);
    assert_int_equal(box_wait(client, &o.come, 60000), 0);
    outcome_done(&o);
    for (int i = 0; i < 50; i++) {
        g = ask(s, READ, "a", -1);
        assert_true(g.rc == ERR_BAD_INPUT || g.rc == ERR_NOT_FOUND || (g.rc == 0 && strcmp(g.text, "one\n") == 0));
        int rc = g.rc;
        got_done(&g);
        g = ask(s, READ, "a", -1);
        assert_int_equal(g.rc, rc);                             /* and it stays so */
        got_done(&g);
    }
    assert_int_equal(sandbox_read_file(s, "a", on_file, &g, &g.err), 0);
    assert_int_equal(sandbox_run(s, &cmd, box_done, &o, &o.err), ERR_USAGE);
    assert_int_equal(box_wait(client, &g.come, 60000), 0);
    got_done(&g);
    sandbox_close(s);
}

/* ---- changes ---- */

static char tree[] = "/tmp/assay-files-XXXXXX";

static int make_tree(void **state)
{
    char text[1024];
    (void)state;
    if (mkdtemp(tree) == NULL)
        return -1;
    snprintf(text, sizeof text, "cd %s && chmod 755 . && umask 022 && mkdir -p src/deep old/sub keep .git && echo a >src/a && "
             "echo b >src/b && echo c >src/deep/c && echo o >old/o && echo s >old/sub/s && ln -s a src/l && echo k >keep/k && "
             "echo '#!/bin/sh' >run && chmod 755 run && echo x >same && echo y >swap && mkdir turn && echo t >turn/t && echo g >.git/g", tree);
    return system(text);
}

static int drop_tree(void **state)
{
    char text[80];
    (void)state;
    snprintf(text, sizeof text, "rm -rf %s", tree);
    return system(text);
}

#define LISTING "find . -iname .git -prune -o \\( -type f -o -type l \\) -printf '%p %y %m %l\\n' | sort; " \
                "find . -iname .git -prune -o -type f -print0 | sort -z | xargs -0r sha256sum"

/* After `shell` in a sandbox on the tree, its changes as edits make another sandbox the same; `count` of them, if >= 0. */
static void comes_again(const char *shell, int64_t count)
{
    own_fd dir = open(tree, O_PATH | O_DIRECTORY | O_CLOEXEC);
    struct sandbox *s = box_acquire(client, (struct sandbox_spec){ dir, -1, -1, 0, NULL }, usual);
    struct outcome first = box_run(client, s, shell);
    if (first.result.end != SANDBOX_END_EXIT || first.result.value != 0)
        fail_msg("`%s`: %s", shell, first.output);
    struct got g = ask(s, DIFF, NULL, dir);
    if (g.rc < 0)
        fail_msg("`%s`: changes: %s", shell, g.err.msg);
    uint64_t edits;
    memcpy(&edits, g.text + 8, sizeof edits);
    if (memcmp(g.text, EDITS_MAGIC, 8) != 0 || (count >= 0 && edits != (uint64_t)count))
        fail_msg("`%s`: %llu edits", shell, (unsigned long long)edits);
    /* Modes an edit cannot say are not compared. */
    struct outcome here = box_run(client, s, "chmod -R u+rwX,go=u-w . 2>/dev/null; " LISTING);
    struct outcome there = box_once(client, (struct sandbox_spec){ dir, g.fd, -1, 0, NULL }, usual, LISTING);
    if (here.output_len == 0 || strcmp(here.output, there.output) != 0)
        fail_msg("`%s`: is\n%sand comes again as\n%s", shell, here.output, there.output);
    outcome_done(&first);
    outcome_done(&here);
    outcome_done(&there);
    got_done(&g);
    sandbox_close(s);
}

static void changes_come_again_in_another_sandbox(void **state)
{
    (void)state;
    static const struct { const char *shell; int64_t count; } cases[] = {
        { "true", 0 },
        { "echo more >>src/a", 1 },
        { "echo x >new; mkdir -p n/e/w; echo y >n/e/w/f", 2 },
        { "rm src/b", 1 },
        { "rm -r old", 2 },
        { "rm -r old; mkdir old; echo new >old/o", 2 },                             /* opaque */
        { "mv old renamed", 4 },                                                    /* redirected */
        { "mv old renamed; mv keep old", -1 },
        { "mv src/deep src/moved; echo z >src/moved/z; rm src/moved/c", 2 },
        { "rm -r turn; echo f >turn", 2 }, { "rm -r turn; ln -s src turn", 2 },     /* directory to file, to link */
        { "rm swap; mkdir swap; echo in >swap/in", 2 },                             /* file to directory */
        { "rm swap; mkdir swap", 1 }, { "rm swap; mkfifo swap", 1 },                /* to what an edit cannot say */
        { "ln -sf b src/l", 1 }, { "rm src/l; echo l >src/l", 1 },
        { "chmod -x run", 1 }, { "chmod +x src/a", 1 },
        { "touch same; echo x >same; chmod 600 src/b; cp keep/k t; mv t keep/k", 0 },       /* written, and the same */
        { "echo z >same; touch -d @1 same; touch -r keep/k same", 1 },              /* same size, any time one likes */
        { "ln src/a hard; echo more >>hard", 2 },
        { "mkdir empty; mkfifo p; echo g2 >.git/g; mkdir -p sub/.git; echo h >sub/.git/h; echo h >.GIT", 0 },
        { "chmod 0 src/a; echo n >closed; chmod 0 closed; mkdir shut; echo i >shut/i; chmod 0 shut", 2 },
        { "printf n >\"$(printf 'new\\nline')\"; printf e >\"$(printf 'e\\033[31m')\"; printf r >-rf; printf f >\"$(printf '\\377\\376')\"; "
          "printf l >$(head -c 255 /dev/zero | tr '\\0' l)", 5 },
        { "p=.; for i in $(seq 100); do p=$p/d; done; mkdir -p $p; echo deep >$p/f", 1 },
        { "git init -q r && cd r && echo a >a && git add a && git -c user.name=n -c user.email=e commit -qm m", 1 },
        { "head -c 5000000 /dev/urandom >large", 1 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        comes_again(cases[i].shell, cases[i].count);
}

static void changes_beyond_bounds_are_refused(void **state)
{
    (void)state;
    static const struct { const char *shell; int code; } cases[] = {
        { "chmod 0 . src src/deep", 0 }, { "truncate -s 1T sparse", ERR_LIMIT }, { "truncate -s 33554433 sparse", ERR_LIMIT },
        { "for i in 1 2 3 4 5; do head -c 8000000 /dev/zero >$i; done", ERR_LIMIT },
        { "python3 -c \"import os\nfor i in range(200): os.mkdir('d'); os.chdir('d')\nopen('f', 'w')\"", ERR_BAD_INPUT },
        { "python3 -c \"import os\nfor i in range(30): os.mkdir('d' * 200); os.chdir('d' * 200)\nopen('f', 'w')\"", ERR_BAD_INPUT },
    };
    own_fd dir = open(tree, O_PATH | O_DIRECTORY | O_CLOEXEC);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct sandbox *s = box_acquire(client, (struct sandbox_spec){ dir, -1, -1, 0, NULL }, usual);
        struct outcome o = box_run(client, s, cases[i].shell);
        outcome_done(&o);
        struct got g = ask(s, DIFF, NULL, dir);
        if (g.rc != cases[i].code)
            fail_msg("`%s`: %d %s", cases[i].shell, g.rc, g.err.msg);
        got_done(&g);
        o = box_run(client, s, "echo usable");
        assert_int_equal(o.result.value, cases[i].code == 0 ? 126 : 0);     /* the first has locked itself out, as before */
        outcome_done(&o);
        sandbox_close(s);
    }
    /* No tree at all, and a work directory that is none any more. */
    struct sandbox *s = box_acquire(client, BOX_EMPTY, usual);
    shell(s, "echo x >x", "");
    struct got g = ask(s, DIFF, NULL, -1);
    assert_int_equal(g.len, 16 + 24 + 1 + 2);
    got_done(&g);
    struct outcome o = box_run(client, s, "rm -rf /testbed && ln -s /etc /testbed; true");
    bool replaced = o.result.value == 0;
    outcome_done(&o);
    g = ask(s, DIFF, NULL, -1);
    assert_true(!replaced || g.rc == ERR_BAD_INPUT || g.rc == 0);
    got_done(&g);
    sandbox_close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_go_in_and_out), cmocka_unit_test(hostile_places_are_not_read), cmocka_unit_test(names_are_bytes),
        cmocka_unit_test(links_are_replaced_and_not_followed), cmocka_unit_test(nobody_renames_meanwhile),
        cmocka_unit_test_setup_teardown(changes_come_again_in_another_sandbox, make_tree, NULL),
        cmocka_unit_test_teardown(changes_beyond_bounds_are_refused, drop_tree),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
