/*
 * copy.c - the snapshot's tree as plain files of the writable layer: the fall-back where the kernel
 * cannot idmap the tree's file system, so that an overlay of it could be read but not changed.
 * Done by the agent with the sandbox's own rights: a file closed to all is an error, not a way in.
 */
#include "base/own.h"
#include "sandbox/cell.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>

#define DEPTH_MAX 128

static int failed(const char *name, const char *step, struct err *err)
{
    int sys = errno;
    char quoted[200];
    err_quote(quoted, sizeof quoted, name, strlen(name));
    errno = sys;
    int code = sys == ENOSPC ? ERR_LIMIT : sys == EACCES ? ERR_DENIED : ERR_SYS;
    return err_sys(err, code, "copy of the tree: %s %s", step, quoted);
}

static int copy_file(int from, int to, const char *name, mode_t mode, struct err *err)
{
    own_fd in = openat(from, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    own_fd out = in < 0 ? -1 : openat(to, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (out < 0)
        return failed(name, "open", err);
    ssize_t n;
    while ((n = sendfile(out, in, NULL, (size_t)1 << 30)) > 0)
        ;
    if (n < 0 || fchmod(out, mode & 0777) < 0)
        return failed(name, "write", err);
    return 0;
}

int copy_tree(int from, int to, int depth, struct err *err)
{
    if (depth > DEPTH_MAX)
        return err_set(err, ERR_LIMIT, "copy of the tree: deeper than %d directories", DEPTH_MAX);
    int again = openat(from, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = again < 0 ? NULL : fdopendir(again);
    if (d == NULL)
        return failed(".", "list", err);
    int rc = 0;
    for (struct dirent *e; rc == 0 && (e = readdir(d)) != NULL; ) {
        const char *name = e->d_name;
        struct stat st;
        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
            continue;
        if (fstatat(from, name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
            rc = failed(name, "look at", err);
        } else if (S_ISREG(st.st_mode)) {
            rc = copy_file(from, to, name, st.st_mode, err);
        } else if (S_ISLNK(st.st_mode)) {
            char target[4096];
            ssize_t n = readlinkat(from, name, target, sizeof target - 1);
            target[n < 0 ? 0 : n] = '\0';
            if (n < 0 || symlinkat(target, to, name) < 0)
                rc = failed(name, "link", err);
        } else if (S_ISDIR(st.st_mode)) {
            own_fd in = openat(from, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
            own_fd out = in < 0 || mkdirat(to, name, 0700) < 0 ? -1
                       : openat(to, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
            rc = out < 0 ? failed(name, "directory", err) : copy_tree(in, out, depth + 1, err);
            if (rc == 0 && fchmod(out, st.st_mode & 0777) < 0)
                rc = failed(name, "mode of", err);
        }
    }
    closedir(d);
    return rc;
}
