/* The work tree in a sandbox: edits, ownership, renames, the environment root, report files. Real jail, real kernel. */
#include "tests/sandbox/box.h"
#include "base/buf.h"
#include "base/frame.h"
#include "base/own.h"
#include "repos/edits.h"
#include "sandbox/report_files.h"
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/wait.h>

static struct sandbox_client *client;
static char tree[64];
static const struct sandbox_limits usual = { .wall_ns = 30 * NS_PER_S, .memory_bytes = (uint64_t)512 << 20 };

static int start(void **state)
{
    (void)state;
    strcpy(tree, "/tmp/assay-tree.XXXXXX");
    if (mkdtemp(tree) == NULL ||
        box_sh("cd %s && mkdir -p src/deep lib && chmod 755 . && echo one >src/a && echo two >src/b && echo deep >src/deep/c && "
           "echo lib >lib/l && ln -s ../src/a lib/link && echo '#!/bin/sh\necho ran' >lib/run && chmod 755 lib/run", tree) != 0)
        return -1;
    client = box_start(4);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    sandbox_client_close(client);
    return box_sh("rm -rf %s", tree);
}

static int open_tree_dir(void)
{
    int fd = open(tree, O_PATH | O_DIRECTORY | O_CLOEXEC);
    assert_true(fd >= 0);
    return fd;
}

static bool kernel_since(int major, int minor)
{
    struct utsname u;
    int a = 0, b = 0;
    return uname(&u) == 0 && sscanf(u.release, "%d.%d", &a, &b) == 2 && (a > major || (a == major && b >= minor));
}

/* ---- edits ---- */

struct edits { struct buf b; uint64_t count; };

static void edit(struct edits *e, uint32_t kind, uint32_t mode, const char *path, const char *content)
{
    struct err err = { 0 };
    uint32_t head[4] = { kind, mode, (uint32_t)strlen(path), 0 };
    uint64_t size = content == NULL ? 0 : strlen(content);
    assert_int_equal(buf_add(&e->b, head, sizeof head, &err), 0);
    assert_int_equal(buf_add(&e->b, &size, sizeof size, &err), 0);
    assert_int_equal(buf_add(&e->b, path, strlen(path), &err), 0);
    if (size > 0)
        assert_int_equal(buf_add(&e->b, content, size, &err), 0);
    e->count++;
}

static int edits_fd(struct edits *e)
{
    struct err err = { 0 };
    own_buf all = { 0 };
    assert_int_equal(buf_add(&all, EDITS_MAGIC, 8, &err), 0);
    assert_int_equal(buf_add(&all, &e->count, sizeof e->count, &err), 0);
    if (e->b.len > 0)
        assert_int_equal(buf_add(&all, e->b.data, e->b.len, &err), 0);
    int fd = frame_memfd("edits", all.data, all.len, &err);
    assert_true(fd >= 0);
    buf_done(&e->b);
    return fd;
}

static void edits_reach_the_tree(void **state)
{
    (void)state;
    own_fd dir = open_tree_dir();
    struct edits e = { 0 };
    edit(&e, EDIT_WRITE, 0644, "src/a", "changed\n");
    edit(&e, EDIT_WRITE, 0755, "new/dir/tool", "#!/bin/sh\necho tool\n");
    edit(&e, EDIT_LINK, 0, "new/link", "dir/tool");
    edit(&e, EDIT_DELETE, 0, "src/b", NULL);
    edit(&e, EDIT_DELETE, 0, "src/deep/c", NULL);
    edit(&e, EDIT_DELETE, 0, "not/there", NULL);
    edit(&e, EDIT_WRITE, 0644, "lib/link", "no link any more\n");
    edit(&e, EDIT_WRITE, 0644, "empty", "");
    own_fd fd = edits_fd(&e);
    struct outcome o = box_once(client, (struct sandbox_spec){ dir, fd, -1, 0, NULL }, usual,
        "cat src/a; new/link; ls src; cat lib/link; readlink new/link; stat -c %a new/dir/tool src/a; stat -c %s empty; lib/run");
    assert_string_equal(o.output, "changed\ntool\na\nno link any more\ndir/tool\n755\n644\n0\nran\n");
    outcome_done(&o);
    assert_int_equal(box_sh("test $(cat %s/src/a) = one && test -e %s/src/b && ! test -e %s/new", tree, tree, tree), 0);
}

static int refused(struct edits *e)
{
    own_fd dir = open_tree_dir(), fd = edits_fd(e);
    struct outcome o;
    int rc = box_try_acquire(client, (struct sandbox_spec){ dir, fd, -1, 0, NULL }, usual, &o);
    if (rc == 0)
        sandbox_close(o.sandbox);
    return rc;
}

static void bad_edits_are_refused(void **state)
{
    (void)state;
    static const char *const paths[] = { "/etc/x", "../x", "src/../../x", "src//x", "", ".git/config", "a/.git/hooks/x", "src/.", "." };
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        struct edits e = { 0 };
        edit(&e, EDIT_WRITE, 0644, paths[i], "x");
        assert_int_equal(refused(&e), ERR_BAD_INPUT);
    }
    struct edits e = { 0 };
    edit(&e, EDIT_LINK, 0, "way", "/tmp");          /* a link made by an edit is not followed by the next */
    edit(&e, EDIT_WRITE, 0644, "way/out", "x");
    assert_int_equal(refused(&e), ERR_BAD_INPUT);
    e = (struct edits){ 0 };
    edit(&e, EDIT_WRITE, 04755, "suid", "x");
    assert_int_equal(refused(&e), ERR_BAD_INPUT);
    e = (struct edits){ 0 };
    edit(&e, 9, 0644, "x", "x");
    assert_int_equal(refused(&e), ERR_BAD_INPUT);
    e = (struct edits){ 0 };
    edit(&e, EDIT_WRITE, 0644, "src/deep", "a directory is there");
    assert_int_equal(refused(&e), ERR_BAD_INPUT);
    e = (struct edits){ .count = 5 };               /* more promised than there is */
    edit(&e, EDIT_WRITE, 0644, "x", "x");
    assert_int_equal(refused(&e), ERR_BAD_INPUT);
}

static void unsealed_descriptors_end_the_connection(void **state)
{
    (void)state;
    struct sandbox_client *c = box_start(1);
    own_fd fd = memfd_create("open", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(fd, 64), 0);
    struct outcome o;
    assert_int_equal(box_try_acquire(c, (struct sandbox_spec){ -1, fd, -1, 0, NULL }, usual, &o), ERR_LOST);
    sandbox_client_close(c);
}

/* ---- the tree itself ---- */

static void tree_belongs_to_uid_0_and_can_be_written(void **state)
{
    (void)state;
    own_fd dir = open_tree_dir();
    struct outcome o = box_once(client, (struct sandbox_spec){ dir, -1, -1, 0, NULL }, usual,
        "stat -c %u:%g . src src/a && echo more >>src/a && rm lib/l && mkdir x && mv src moved && cat moved/a moved/deep/c && "
        "mv moved/deep lib/ && chmod 600 lib/run && ls lib && git init -q . && git status --short | head -1");
    assert_string_equal(o.output, "0:0\n0:0\n0:0\none\nmore\ndeep\ndeep\nlink\nrun\n?? lib/\n");
    assert_int_equal(o.result.value, 0);
    outcome_done(&o);
    assert_int_equal(box_sh("test \"$(cat %s/src/a)\" = one && test -e %s/lib/l && ! test -e %s/moved", tree, tree, tree), 0);
}

static void paths_of_the_host_do_not_show(void **state)
{
    (void)state;
    own_fd dir = open_tree_dir();
    struct outcome o = box_once(client, (struct sandbox_spec){ dir, -1, -1, 0, NULL }, usual, "cat /proc/self/mountinfo /proc/mounts /proc/self/maps");
    assert_null(strstr(o.output, "assay-tree"));
    if (geteuid() == 0 || kernel_since(6, 6))       /* else it is a copy and no mount: see struct world */
        assert_non_null(strstr(o.output, "/testbed"));
    outcome_done(&o);
}

static void two_sandboxes_do_not_see_each_other(void **state)
{
    (void)state;
    own_fd dir = open_tree_dir();
    struct sandbox *s[2];
    struct outcome o[2] = { 0 };
    struct err err = { 0 };
    for (int i = 0; i < 2; i++)
        s[i] = box_acquire(client, (struct sandbox_spec){ dir, -1, -1, 0, NULL }, usual);
    const bool slow = getenv("ASSAY_SLOW") != NULL;         /* starting a program alone takes so long there */
    const char *cmd[2] = {
        slow ? "echo first >src/a; touch /tmp/mine /dev/shm/mine; flock src/a sleep 12; cat src/a"
             : "echo first >src/a; touch /tmp/mine /dev/shm/mine; flock src/a sleep 1; cat src/a",
        slow ? "sleep 2; timeout 8 flock src/a true || echo locked; cat src/a; ls /tmp /dev/shm"
             : "sleep 0.5; timeout 0.2 flock src/a true || echo locked; cat src/a; ls /tmp /dev/shm" };
    for (int i = 0; i < 2; i++)
        assert_int_equal(sandbox_run(s[i], &(struct sandbox_command){ .shell = cmd[i] }, box_done, &o[i], &err), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(box_wait(client, &o[i].come, 20000), 0);
    assert_string_equal(o[0].output, "first\n");
    assert_string_equal(o[1].output, "one\n/dev/shm:\n\n/tmp:\n");
    for (int i = 0; i < 2; i++) {
        sandbox_close(s[i]);
        outcome_done(&o[i]);
    }
}

static void tree_of_another_owner_works(void **state)
{
    (void)state;
    if (geteuid() != 0) {                       /* who cannot give files away has others' to try: it is copied */
        own_fd dir = open("/usr/share/base-files", O_PATH | O_DIRECTORY | O_CLOEXEC);
        struct outcome o = box_once(client, (struct sandbox_spec){ dir, -1, -1, 0, NULL }, usual,
                                    "stat -c %u:%g . profile && echo y >>profile && touch n && tail -n 1 profile");
        assert_string_equal(o.output, "0:0\n0:0\ny\n");
        outcome_done(&o);
        return;
    }
    char other[] = "/tmp/assay-tree.XXXXXX";
    assert_non_null(mkdtemp(other));
    /* The slots come round, and with them what each keeps for the owner of its last tree. */
    static const char *const owners[] = { "12345:23456", "12345:23456", "12345:1", "0:0", "7:7", "12345:23456" };
    for (int i = 0; i < 24; i++) {
        assert_int_equal(box_sh("cd %s && rm -rf f d && echo x >f && mkdir d && chown -R %s .", other, owners[i % 6]), 0);
        own_fd dir = open(other, O_PATH | O_DIRECTORY | O_CLOEXEC);
        struct outcome o = box_once(client, (struct sandbox_spec){ dir, -1, -1, 0, NULL }, usual,
                                    "stat -c %u:%g . f && echo y >>f && touch d/n && cat f");
        assert_string_equal(o.output, "0:0\n0:0\nx\ny\n");
        outcome_done(&o);
    }
    box_sh("rm -rf %s", other);
}

/* An overlay cannot be idmapped: the tree is copied, and all works as before. */
static void tree_without_idmap_works(void **state)
{
    (void)state;
    if (geteuid() != 0)
        skip();
    char base[] = "/tmp/assay-over.XXXXXX";
    assert_non_null(mkdtemp(base));
    pid_t child = fork();
    if (child == 0) {
        if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
            box_sh("mount -t tmpfs x %s && cd %s && mkdir up work m && mount -t overlay -o lowerdir=%s,upperdir=up,workdir=work x m", base, base, tree) != 0)
            _exit(2);
        char path[100];
        snprintf(path, sizeof path, "%s/m", base);
        int dir = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
        struct sandbox_client *c = box_start(1);
        struct edits e = { 0 };
        edit(&e, EDIT_WRITE, 0644, "src/a", "changed\n");
        edit(&e, EDIT_DELETE, 0, "src/b", NULL);
        int fd = edits_fd(&e);
        struct outcome o = box_once(c, (struct sandbox_spec){ dir, fd, -1, 0, NULL }, usual,
            "stat -c %u:%g . src lib/run; cat src/a src/deep/c lib/link && lib/run && echo x >>lib/l && rm -r src && ls");
        bool good = strcmp(o.output, "0:0\n0:0\n0:0\nchanged\ndeep\nchanged\nran\nlib\n") == 0;
        if (!good)
            fprintf(stderr, "%s\n", o.output);
        outcome_done(&o);
        sandbox_client_close(c);
        _exit(good ? 0 : 1);
    }
    int status;
    waitpid(child, &status, 0);
    rmdir(base);
    assert_int_equal(status, 0);
}

/* ---- an environment root of its own ---- */

static void environment_root_replaces_the_host(void **state)
{
    (void)state;
    char root[] = "/tmp/assay-root.XXXXXX";
    assert_non_null(mkdtemp(root));
    assert_int_equal(box_sh("cd %s && chmod 755 . && mkdir -p bin etc proc lib64 && cp /bin/dash bin/sh && cp /bin/cat /bin/ls bin/ && "
                        "for b in bin/sh bin/cat bin/ls; do for l in $(ldd $b | grep -o '/[^ ]*'); do mkdir -p .$(dirname $l); "
                        "cp -L $l .$l; done; done; echo marked >marker; echo bad >etc/hosts", root), 0);
    own_fd dir = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC), work = open_tree_dir();
    struct outcome o = box_once(client, (struct sandbox_spec){ work, -1, dir, 0, NULL }, usual,
        "cat /marker src/a && ls / && ls /usr; echo new >/made && echo x >/tmp/x && echo r >/assay/report/r && cat /proc/self/comm /etc/hosts");
    assert_non_null(strstr(o.output, "marked\none\n"));
    assert_non_null(strstr(o.output, "localhost"));
    assert_null(strstr(o.output, "bad"));
    assert_int_equal(o.result.value, 0);
    assert_int_equal(o.report_len, 16 + 1 + 2);
    outcome_done(&o);
    assert_int_equal(box_sh("! test -e %s/made", root), 0);
    /* A mount point that is a link would lead elsewhere: refused. */
    assert_int_equal(box_sh("cd %s && rm -rf proc && ln -s /tmp proc", root), 0);
    assert_int_equal(box_try_acquire(client, (struct sandbox_spec){ work, -1, dir, 0, NULL }, usual, &o), ERR_BAD_INPUT);
    box_sh("rm -rf %s", root);
}

/* ---- report files ---- */

static void report_files_come_out(void **state)
{
    (void)state;
    struct sandbox *s = box_acquire(client, BOX_EMPTY, usual);
    struct outcome o = box_run(client, s, "printf abc >/assay/report/r.xml");
    struct { uint32_t name_len, flags; uint64_t size; } h;
    assert_int_equal(o.report_len, sizeof h + 5 + 3);
    memcpy(&h, o.report, sizeof h);
    assert_int_equal(h.name_len, 5);
    assert_int_equal(h.flags, 0);
    assert_int_equal(h.size, 3);
    assert_memory_equal(o.report + sizeof h, "r.xmlabc", 8);
    outcome_done(&o);
    o = box_run(client, s, "ls /assay/report | wc -l");     /* empty again, and none now */
    assert_string_equal(o.output, "0\n");
    assert_int_equal(o.report_len, 0);
    outcome_done(&o);
    o = box_run(client, s, "i=0; while [ $i -lt 200 ]; do echo $i >/assay/report/$i; i=$((i+1)); done");
    uint32_t files = 0;
    for (size_t at = 0; at < o.report_len; files++) {
        memcpy(&h, o.report + at, sizeof h);
        at += sizeof h + h.name_len + (size_t)h.size;
    }
    assert_int_equal(files, SANDBOX_REPORT_FILE_MAX);
    outcome_done(&o);
    sandbox_close(s);

    struct sandbox_limits l = usual;
    l.memory_bytes = (uint64_t)64 << 20;
    o = box_once(client, BOX_EMPTY, l, "head -c 20000000 /dev/zero >/assay/report/big");
    memcpy(&h, o.report, sizeof h);
    assert_int_equal(h.flags, 1);
    assert_int_equal(h.size, REPORT_FILES_TOTAL_MAX - sizeof h - 3);
    outcome_done(&o);
}

/* What foreign code does to the directory itself is neither our failure nor the next run's report. */
static void report_directory_cannot_be_spoiled(void **state)
{
    (void)state;
    static const struct { const char *shell; bool reported; } cases[] = {
        { "echo x >/assay/report/r; chmod 0 /assay/report; exit 5", true },
        { "echo x >/assay/report/r; chmod 0555 /assay/report; exit 5", true },
        { "echo x >/assay/report/r; chmod 0 /assay/report/r; exit 5", false },
        { "mkdir -p /assay/report/d/e; echo x >/assay/report/d/f; chmod 0 /assay/report/d; exit 5", false },
        { "cd /assay/report; seq 3000 | xargs touch; exit 5", true },
        { "cd /assay/report; seq 60000 | xargs touch; exit 5", true },
        { "truncate -s 1000000000 /assay/report/hole; exit 5", true },
        { "head -c 50000000 /dev/zero >/tmp/f; echo x >/assay/report/r; exit 5", true },
        { "head -c 200000000 /dev/zero >/tmp/f 2>/dev/null; rm /tmp/f; echo x >/assay/report/r; exit 5", true },
    };
    struct sandbox_limits l = usual;
    l.memory_bytes = (uint64_t)128 << 20;
    l.disk_bytes = (uint64_t)64 << 20;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct sandbox *s = box_acquire(client, BOX_EMPTY, l);
        struct outcome o = box_run(client, s, cases[i].shell);
        if (o.result.end != SANDBOX_END_EXIT || o.result.value != 5 || (o.report_len > 0) != cases[i].reported)
            fail_msg("`%s` ended with %d %d, %zu bytes of report", cases[i].shell, (int)o.result.end, o.result.value, o.report_len);
        outcome_done(&o);
        o = box_run(client, s, "find /assay/report -maxdepth 1 ! -type d | wc -l");
        if (o.output == NULL || strcmp(o.output, "0\n") != 0 || o.report_len != 0)
            fail_msg("after `%s` the next run finds %s files and reports %zu bytes", cases[i].shell, o.output, o.report_len);
        outcome_done(&o);
        sandbox_close(s);
    }
}

/* All that a sandbox can see of what an earlier one may have left; of times only whether they are old, as none is in a new world. */
#define LOOK "readlink /proc/self/ns/mnt; exec python3 -c '\
import os\n\
for top in \"/\", \"/tmp\", \"/var\", \"/dev\", \"/run\", \"/home\", \"/assay/report\", \"/testbed\", \"/etc\", \"/usr/bin\", \"/opt\":\n\
    for at, dirs, files in os.walk(top):\n\
        if top == \"/\": dirs[:] = []\n\
        s = os.lstat(at)\n\
        print(at, oct(s.st_mode), s.st_uid, s.st_gid, s.st_nlink, s.st_mtime < 1e9, s.st_atime < 1e9, os.listxattr(at), sorted(dirs), len(files))\n\
        for f in files:\n\
            s = os.lstat(os.path.join(at, f))\n\
            print(f, oct(s.st_mode), s.st_size, s.st_rdev)\n\
for f in \"/assay/store\", \"/proc/fs\", \"/proc/cmdline\", \"/sys/devices/system/cpu\", \"/sys/devices/system/cpu/online\", \"/dev/pts\":\n\
    s = os.stat(f)\n\
    print(f, s.st_atime <= s.st_mtime or s.st_atime > 2e9)\n\
s = os.stat(\"/dev/pts/ptmx\")\n\
print(s.st_mtime > 2e9, s.st_atime > 2e9)\n\
for f in \"shm\", \"sem\", \"msg\": print(open(\"/proc/sysvipc/\" + f).read())\n\
print(os.uname().nodename, os.statvfs(\"/tmp\").f_files, os.statvfs(\"/tmp\").f_ffree, os.statvfs(\"/tmp\").f_bfree)\n\
print(sorted(p for p in os.listdir(\"/proc\") if p.isdigit()), os.fork() or os._exit(0))'"

/* One sandbox at a time, so that its slots serve again and again. A sandbox finds the world as a new one, whatever was done
 * in it before, and the same one where nothing was, or nothing that could not be taken away. */
static void worlds_serve_again_only_as_new(void **state)
{
#define PYTHON(text) "python3 -c '" text "'"
    static const struct { const char *shell; bool again; } dirt[] = {
        { "true", true },
        { "find / -xdev >/dev/null; ls -lR /usr/bin /home /tmp >/dev/null; cat /etc/passwd >/dev/null", true },
        { "sleep 0.01; ls /assay/store /proc/fs /sys/devices/system/cpu /dev/pts; cat /proc/cmdline /sys/devices/system/cpu/online", true },
        { PYTHON("import os, pty; ends = pty.openpty(); [os.write(e, b\"x\\n\") for e in ends]; os.read(ends[0], 1)"), true },
        { "echo x >/tmp/a; mkdir -p /tmp/d/e; ln -s /etc/passwd /tmp/l; mkfifo /tmp/f; echo r >/assay/report/r", true },
        { "echo x >src/a; rm -r lib; mkdir lib; mv src/deep here; echo n >new; chmod 700 .", true },
        { "chmod 700 /tmp /var/tmp; chmod 700 /home/sandbox; touch -d 2001-01-01 /dev/shm", true },
        { "chmod 700 /tmp; chmod 1777 /tmp; touch -d @0 /tmp", true },
        { PYTHON("import os; [os.setxattr(d, \"user.m\", b\"1\") for d in (\"/tmp\", \"/home/sandbox\")]"), true },
        { "mkdir -p /dev/shm/x $HOME/.cache/y /var/tmp/z; cd $HOME; echo x >.profile; sleep 30 & setsid sleep 30 & true", true },
        { PYTHON("import os; os.chdir(\"/tmp\"); [(os.mkdir(\"d\" * 200), os.chdir(\"d\" * 200)) for i in range(60)]"), false },
        { "cd /tmp && seq 5000 | xargs touch", false },
        { "touch /marker; rm /marker", false },
        { "touch -d 2001-01-01 /", false }, { "touch -a -d 2001-01-01 /usr", false }, { "touch -d 2001-01-01 .", true },
        { PYTHON("import os; os.setxattr(\"/\", \"user.m\", b\"1\"); os.removexattr(\"/\", \"user.m\")"), false },
        { "mv /home /home2; mkdir -p /home/sandbox; echo x >/home/sandbox/m", false },
        { "chmod 600 /dev/null; rm /dev/zero; echo x >/dev/zero", false },
        { "rm /usr/bin/true; echo x >/usr/bin/m; rm -rf /usr/share/doc", false },
        { "echo 1.2.3.4 host >>/etc/hosts; echo x >/run/m; echo x >/var/m", false },
        { "(true); (true); (true)", true },
        { "ipcmk -M 100 >/dev/null; ipcmk -S 1 >/dev/null; ipcmk -Q >/dev/null", true },
    };
    (void)state;
    own_fd dir = open_tree_dir();
    struct sandbox_client *c = box_start(1);
    struct sandbox_spec spec = { dir, -1, -1, 0, NULL };
    struct outcome was = box_once(c, spec, usual, LOOK);
    assert_int_equal(was.result.value, 0);
    const size_t line = strcspn(was.output, "\n");
    for (size_t i = 0; i < sizeof dirt / sizeof dirt[0]; i++) {
        char before[3][64], command[1024];
        int met = 0;
        bool lasts = true;                      /* v2: the group can serve another sandbox, whose memory peak is its own */
        snprintf(command, sizeof command, "readlink /proc/self/ns/mnt; { %s; } >/dev/null 2>&1", dirt[i].shell);
        for (int k = 0; k < 3; k++) {
            struct outcome o = box_once(c, spec, usual, command);
            snprintf(before[k], sizeof before[k], "%.*s", (int)strcspn(o.output, "\n"), o.output);
            lasts = o.result.enforced_by[SANDBOX_LIMIT_MEMORY] != SANDBOX_BY_CGROUP_V2 || kernel_since(6, 12);
            outcome_done(&o);
        }
        for (int k = 0; k < 3; k++) {
            struct outcome o = box_once(c, spec, usual, LOOK);
            if (strlen(o.output) < line || strcmp(o.output + line, was.output + line) != 0)
                fail_msg("after `%s`:\n%s\nwas:\n%s", dirt[i].shell, o.output, was.output);
            for (int b = 0; b < 3; b++)
                met += strncmp(o.output, before[b], line) == 0;
            outcome_done(&o);
        }
        if (dirt[i].again && lasts && met == 0) /* numbers of namespaces come again, so meeting one by chance says nothing */
            fail_msg("after `%s` no world served again", dirt[i].shell);
    }
    outcome_done(&was);
    sandbox_client_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(edits_reach_the_tree), cmocka_unit_test(bad_edits_are_refused),
        cmocka_unit_test(unsealed_descriptors_end_the_connection), cmocka_unit_test(tree_belongs_to_uid_0_and_can_be_written),
        cmocka_unit_test(paths_of_the_host_do_not_show), cmocka_unit_test(two_sandboxes_do_not_see_each_other), cmocka_unit_test(tree_of_another_owner_works),
        cmocka_unit_test(tree_without_idmap_works), cmocka_unit_test(environment_root_replaces_the_host), cmocka_unit_test(report_files_come_out),
        cmocka_unit_test(report_directory_cannot_be_spoiled), cmocka_unit_test(worlds_serve_again_only_as_new),
    };
    return cmocka_run_group_tests_name("sandbox tree", tests, start, stop);
}
