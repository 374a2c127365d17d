/* etc.c - copies by allow-list, within a budget, never following links. */
#include "sandbox/etc.h"
#include "base/own.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>

/* What build tools, interpreters and libc look for and what says nothing about this host. */
static const char *const copied[] = {
    "alternatives", "ssl", "ca-certificates", "ca-certificates.conf", "ld.so.cache", "ld.so.conf", "ld.so.conf.d",
    "perl", "python3", "python3.11", "python3.12", "python3.13", "java-17-openjdk", "java-21-openjdk", "maven",
    "mime.types", "magic", "magic.mime", "protocols", "services", "rpc", "ethertypes", "debian_version", "os-release",
    "lsb-release", "inputrc", "bash.bashrc", "profile", "terminfo", "fonts", "locale.alias", "gai.conf", "host.conf",
    "shells", "networks", "groff", "papersize", "gprofng.rc", "gtk-2.0", "X11", "OpenCL", "glvnd", "skel",
};

struct fresh { const char *name, *text; };
static const struct fresh fresh_files[] = {
    { "passwd", "root:x:0:0:root:/home/sandbox:/bin/sh\nsandbox:x:1000:1000:sandbox:/home/sandbox:/bin/sh\n"
                "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n" },
    { "group", "root:x:0:\nsandbox:x:1000:\nnogroup:x:65534:\n" },
    { "hosts", "127.0.0.1 localhost " ETC_HOSTNAME "\n::1 localhost ip6-localhost ip6-loopback " ETC_HOSTNAME "\n" },
    { "hostname", ETC_HOSTNAME "\n" },
    { "resolv.conf", "# no network here\n" },
    { "nsswitch.conf", "passwd: files\ngroup: files\nshadow: files\nhosts: files\nnetworks: files\nprotocols: files\n"
                       "services: files\nethers: files\nrpc: files\n" },
    { "machine-id", "5b2f0c9e6d3a4f17a8e1c4d70b96e352\n" },     /* the same everywhere: identifies nothing */
    { "timezone", "Etc/UTC\n" },
    /* Where the kernel cannot idmap the tree, it belongs to nobody; git must still read it. */
    { "gitconfig", "[safe]\n\tdirectory = *\n" },
    { "fstab", "# nothing to mount\n" },
};

struct budget { uint64_t bytes; uint32_t entries, depth; };

static int copy_entry(int from, int to, const char *name, struct budget *left, struct err *err);

static int copy_file(int in, int to, const char *name, mode_t mode, struct budget *left, struct err *err)
{
    own_fd out = openat(to, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
    if (out < 0)
        return err_sys(err, ERR_SYS, "etc template: %s", name);
    char bytes[16384];
    for (;;) {
        ssize_t n = read(in, bytes, sizeof bytes);
        if (n <= 0)
            return n == 0 ? 0 : err_sys(err, ERR_SYS, "etc template: read %s", name);
        if ((uint64_t)n > left->bytes)
            return 0;                               /* over budget: a cut file, never a failure to start */
        left->bytes -= (uint64_t)n;
        if (write(out, bytes, (size_t)n) != n)
            return err_sys(err, ERR_SYS, "etc template: write %s", name);
    }
}

static int copy_dir(int in, int to, const char *name, struct budget *left, struct err *err)
{
    if (mkdirat(to, name, 0755) < 0)
        return err_sys(err, ERR_SYS, "etc template: %s", name);
    own_fd out = openat(to, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    int again = dup(in);
    DIR *d = again < 0 ? NULL : fdopendir(again);
    if (out < 0 || d == NULL)
        return err_sys(err, ERR_SYS, "etc template: list %s", name);
    int rc = 0;
    left->depth--;
    for (struct dirent *e; rc == 0 && (e = readdir(d)) != NULL; )
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            rc = copy_entry(in, out, e->d_name, left, err);
    left->depth++;
    closedir(d);
    return rc;
}

static int copy_entry(int from, int to, const char *name, struct budget *left, struct err *err)
{
    struct stat st;
    if (fstatat(from, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || left->entries == 0)
        return 0;
    left->entries--;
    if (S_ISLNK(st.st_mode)) {
        char target[1024];
        ssize_t n = readlinkat(from, name, target, sizeof target - 1);
        if (n <= 0)
            return 0;
        target[n] = '\0';
        return symlinkat(target, to, name) == 0 ? 0 : err_sys(err, ERR_SYS, "etc template: %s", name);
    }
    if (!(S_ISREG(st.st_mode) && (st.st_mode & 0004)) && !(S_ISDIR(st.st_mode) && (st.st_mode & 0005) == 0005))
        return 0;
    own_fd in = openat(from, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (in < 0)
        return 0;
    if (S_ISREG(st.st_mode))
        return copy_file(in, to, name, st.st_mode & 0755, left, err);
    return left->depth == 0 ? 0 : copy_dir(in, to, name, left, err);
}

int etc_fill(int dir, struct err *err)
{
    own_fd host = open("/etc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (host < 0)
        return err_sys(err, ERR_SYS, "open /etc");
    struct budget left = { .bytes = 16 << 20, .entries = 8000, .depth = 8 };
    for (size_t i = 0; i < sizeof copied / sizeof copied[0]; i++) {
        int rc = copy_entry(host, dir, copied[i], &left, err);
        if (rc < 0)
            return rc;
    }
    for (size_t i = 0; i < sizeof fresh_files / sizeof fresh_files[0]; i++) {
        const struct fresh *f = &fresh_files[i];
        own_fd fd = openat(dir, f->name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
        if (fd < 0 || write(fd, f->text, strlen(f->text)) != (ssize_t)strlen(f->text))
            return err_sys(err, ERR_SYS, "etc template: %s", f->name);
    }
    if (symlinkat("/usr/share/zoneinfo/UTC", dir, "localtime") < 0 || symlinkat("/proc/self/mounts", dir, "mtab") < 0)
        return err_sys(err, ERR_SYS, "etc template: links");
    return 0;
}
