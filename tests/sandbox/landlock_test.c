/* The second fence alone, without namespaces and filter around it: what it closes, what it leaves open, at every version. */
#include "base/own.h"
#include "sandbox/landlock.h"
#include "tests/sandbox/box.h"
#include <errno.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/wait.h>

static char dir[] = "/tmp/assay-fence.XXXXXX";
static struct sockaddr_un outside = { .sun_family = AF_UNIX };
static socklen_t outside_len;
static int listener, version;

/* A root of its own with a device directory, and beside it what is outside. */
static int start(void **state)
{
    (void)state;
    static const char *const dirs[] = { "root", "root/dev", "root/a", "root/b", "out" };
    version = landlock_version();
    if (mkdtemp(dir) == NULL || chdir(dir) < 0)
        return -1;
    for (size_t i = 0; i < sizeof dirs / sizeof dirs[0]; i++)
        if (mkdir(dirs[i], 0755) < 0)
            return -1;
    if (mknod("root/dev/null", S_IFCHR | 0666, makedev(1, 3)) < 0 || mknod("root/a/zero", S_IFCHR | 0666, makedev(1, 5)) < 0)
        return -1;
    int fd = open("out/secret", O_CREAT | O_WRONLY | O_CLOEXEC, 0644), in = open("root/a/file", O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
    if (fd < 0 || in < 0 || write(fd, "secret", 6) != 6)
        return -1;
    close(fd);
    close(in);
    int n = snprintf(outside.sun_path + 1, sizeof outside.sun_path - 1, "%s", dir);
    outside_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
    listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return bind(listener, (struct sockaddr *)&outside, outside_len) < 0 || listen(listener, 64) < 0 ? -1 : 0;
}

static int stop(void **state)
{
    (void)state;
    char text[64];
    snprintf(text, sizeof text, "rm -rf %s", dir);
    return system(text);
}

struct seen { int confined, outside, climb, rename, link, node, ioctl_dev, ioctl_other, kill, trace, abstract; };
#define ERRNO_OF(call) ((call) < 0 ? errno : 0)

static int ioctl_by(const char *path)
{
    own_fd fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    struct winsize w;
    return fd < 0 ? ENOENT : ERRNO_OF(ioctl(fd, TIOCGWINSZ, &w));
}

static struct seen look(int as, enum sandbox_profile profile)
{
    struct seen s = { 0 };
    int ends[2];
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    pid_t other = fork();                       /* outside, to be signalled and traced */
    if (other == 0)
        for (;;)
            pause();
    pid_t pid = fork();
    if (pid == 0) {
        struct err err = { 0 };
        int leaked = open("out", O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (chroot("root") < 0 || chdir("/") < 0)
            _exit(1);
        s.confined = landlock_confine(as, profile, -1, &err);
        s.outside = ERRNO_OF(openat(leaked, "secret", O_RDONLY | O_CLOEXEC));
        s.climb = ERRNO_OF(openat(leaked, "../out/secret", O_RDONLY | O_CLOEXEC));
        s.rename = ERRNO_OF(rename("a/file", "b/file"));
        s.link = ERRNO_OF(link("b/file", "a/link"));
        s.node = ERRNO_OF(mknod("a/null", S_IFCHR | 0666, makedev(1, 3)));
        s.ioctl_dev = ioctl_by("dev/null");
        s.ioctl_other = ioctl_by("a/zero");
        s.kill = ERRNO_OF(kill(other, 0));
        s.trace = ERRNO_OF(ptrace(PTRACE_SEIZE, other, NULL, NULL));
        int c = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        s.abstract = ERRNO_OF(connect(c, (struct sockaddr *)&outside, outside_len));
        unlink("a/link");
        unlink("a/null");
        rename("b/file", "a/file");
        _exit(write(ends[1], &s, sizeof s) != sizeof s);
    }
    close(ends[1]);
    assert_int_equal(read(ends[0], &s, sizeof s), sizeof s);
    close(ends[0]);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    kill(other, SIGKILL);
    assert_int_equal(waitpid(other, NULL, 0), other);
    if (chdir(dir) == 0)                        /* what the child could not put back */
        (void)(unlink("root/a/link") + unlink("root/a/null") + rename("root/b/file", "root/a/file"));
    return s;
}

/* Without it everything works: else the test below would prove nothing. */
static void nothing_without_it(void **state)
{
    (void)state;
    struct seen s = look(0, SANDBOX_STRICT);
    assert_true(s.confined == 0 && s.outside == 0 && s.climb == 0 && s.rename == 0 && s.link == 0 && s.node == 0 && s.kill == 0);
    assert_true(s.abstract == 0 && s.ioctl_dev == s.ioctl_other);
}

/* Each version of the kernel's that we may meet, as far as this one can play it. */
static void every_version_holds_what_it_can(void **state)
{
    (void)state;
    if (version == 0) {
        print_message("this kernel has no Landlock\n");
        skip();
    }
    for (int v = 1; v <= version; v++) {
        struct seen s = look(v, SANDBOX_STRICT);
        if (s.confined != 0 || s.rename != 0 || s.link != 0)
            fail_msg("version %d: confined %d, rename %d, link %d", v, s.confined, s.rename, s.link);
        assert_int_equal(s.outside, v >= 2 ? EACCES : 0);
        assert_int_equal(s.climb, v >= 2 ? EACCES : 0);
        assert_int_equal(s.node, v >= 2 ? EACCES : 0);
        assert_int_equal(s.ioctl_other, v >= 5 ? EACCES : s.ioctl_dev);
        assert_int_equal(s.kill, v >= 6 ? EPERM : 0);
        assert_int_equal(s.abstract, v >= 6 ? EPERM : 0);
        assert_int_equal(s.trace, v >= 2 ? EPERM : s.trace);
        s = look(v, SANDBOX_COMPATIBLE);
        assert_true(s.confined == 0 && s.outside == 0 && s.rename == 0 && s.node == 0);
        assert_int_equal(s.kill, v >= 6 ? EPERM : 0);
        assert_int_equal(s.abstract, v >= 6 ? EPERM : 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(nothing_without_it), cmocka_unit_test(every_version_holds_what_it_can) };
    return cmocka_run_group_tests_name("sandbox landlock", tests, start, stop);
}
