/*
 * files.c - single files in and out of the sandbox by name, with the sandbox's own rights.
 *
 * The caller's path is resolved without following any link; what is read is a regular file of the sandbox's own file
 * systems, never a device, a FIFO or a part of /proc. No foreign process lives meanwhile: nothing moves under our hands.
 */
#include "base/own.h"
#include "sandbox/cell.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#define LIST_MAX 65536

struct place { int base; char text[GRANT_PATH_MAX + 1]; char *path; };    /* path: relative to base, in text */

static int failed(const char *path, const char *step, struct err *err)
{
    int sys = errno;
    char quoted[200];
    err_quote(quoted, sizeof quoted, path, strlen(path));
    errno = sys;
    static const int theirs[] = { ELOOP, ENOTDIR, EXDEV, EACCES, EPERM, EISDIR, ENOTEMPTY, EROFS, ENAMETOOLONG, EEXIST, EBUSY,
                                  ENXIO, EINVAL };
    int code = sys == ENOENT ? ERR_NOT_FOUND : sys == ENOSPC || sys == EDQUOT || sys == EFBIG ? ERR_LIMIT : ERR_SYS;
    for (size_t i = 0; i < sizeof theirs / sizeof theirs[0]; i++)
        code = theirs[i] == sys ? ERR_BAD_INPUT : code;
    return err_sys(err, code, "%s: %s", quoted, sys == ELOOP ? "is a link, or lies beyond one" : step);
}

static int bad(const char *path, const char *why, int code, struct err *err)
{
    char quoted[200];
    err_quote(quoted, sizeof quoted, path, strlen(path));
    return err_set(err, code, "%s: %s", quoted, why);
}

/* The name in memfd `fd`: absolute, or relative to the work directory. The base is the caller's to close. */
static int place_open(struct place *p, int fd, struct err *err)
{
    ssize_t n = pread(fd, p->text, sizeof p->text, 0);
    if (n < 2 || p->text[n - 1] != '\0' || strlen(p->text) != (size_t)n - 1)
        return err_set(err, ERR_BAD_INPUT, "path: want 1 to %d bytes", GRANT_PATH_MAX - 1);
    const bool absolute = p->text[0] == '/';
    p->path = p->text + strspn(p->text, "/");
    if (*p->path == '\0')
        strcpy(p->path = p->text, ".");
    p->base = open(absolute ? "/" : SANDBOX_WORK_DIR, O_PATH | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    return p->base >= 0 ? 0 : failed(SANDBOX_WORK_DIR, "open", err);
}

/* Open what is there if it is of `type` and in a file system of the sandbox's own. */
static int place_read(const struct place *p, mode_t type, struct err *err)
{
    struct stat st;
    struct statfs fs;
    own_fd at = beneath_open(p->base, p->path, O_PATH, 0);      /* opening a device or a FIFO can have effects: ask first */
    if (at < 0 || fstat(at, &st) < 0 || fstatfs(at, &fs) < 0)
        return failed(p->path, "open", err);
    if ((st.st_mode & S_IFMT) != type)
        return bad(p->path, type == S_IFDIR ? "is no directory" : "is no regular file", ERR_BAD_INPUT, err);
    if (fs.f_type != OVERLAYFS_SUPER_MAGIC && fs.f_type != TMPFS_MAGIC)
        return bad(p->path, "is no file of the sandbox's own", ERR_BAD_INPUT, err);
    if (type == S_IFREG && (uint64_t)st.st_size > SANDBOX_FILE_MAX)
        return bad(p->path, "is too large", ERR_LIMIT, err);
    int fd = beneath_open(p->base, p->path, O_RDONLY | O_NONBLOCK | O_NOCTTY | (type == S_IFDIR ? O_DIRECTORY : 0), 0);
    return fd >= 0 ? fd : failed(p->path, "open", err);
}

static int copy(int to, int from, const char *path, struct err *err)
{
    for (off_t at = 0; (uint64_t)at <= SANDBOX_FILE_MAX; ) {
        ssize_t n = sendfile(to, from, &at, (size_t)(SANDBOX_FILE_MAX + 1 - (uint64_t)at));
        if (n < 0)
            return failed(path, "copy", err);
        if (n == 0)
            return 0;
    }
    return bad(path, "is too large", ERR_LIMIT, err);
}

int files_read(int path, int out, struct err *err)
{
    struct place p;
    int rc = place_open(&p, path, err);
    if (rc < 0)
        return rc;
    own_fd base = p.base, from = place_read(&p, S_IFREG, err);
    return from < 0 ? err->code : copy(out, from, p.path, err);
}

int files_write(int path, int content, mode_t mode, struct err *err)
{
    static const char temporary[] = ".assay-write";
    struct place p;
    const char *name;
    int rc = place_open(&p, path, err);
    if (rc < 0)
        return rc;
    own_fd base = p.base;
    own_fd dir = beneath_parent(p.base, p.path, true, &name);
    if (dir < 0)
        return failed(p.path, "directory", err);
    if (*name == '\0' || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return bad(p.path, "names no file", ERR_BAD_INPUT, err);
    /* Beside it and then into its place: whole or not at all, and a link there is replaced, not followed. */
    if (unlinkat(dir, temporary, 0) < 0 && errno != ENOENT)
        return failed(p.path, "write", err);
    own_fd to = beneath_open(dir, temporary, O_WRONLY | O_CREAT | O_EXCL, 0600);
    if (to < 0)
        return failed(p.path, "create", err);
    rc = copy(to, content, p.path, err);
    if (rc == 0 && (fchmod(to, mode) < 0 || renameat(dir, temporary, dir, name) < 0))
        rc = failed(p.path, "put in its place", err);
    if (rc < 0)
        unlinkat(dir, temporary, 0);
    return rc;
}

int files_list(int path, int out, struct err *err)
{
    struct place p;
    int rc = place_open(&p, path, err);
    if (rc < 0)
        return rc;
    own_fd base = p.base;
    int fd = place_read(&p, S_IFDIR, err);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (d == NULL)
        return fd < 0 ? fd : failed(p.path, "list", err);
    own_file f = fdopen(fcntl(out, F_DUPFD_CLOEXEC, 0), "w");
    uint32_t count = 0;
    for (struct dirent *e; rc == 0 && f != NULL && (e = readdir(d)) != NULL; ) {
        struct stat st;
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 ||
            fstatat(fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            continue;
        struct sandbox_entry head = { .name_len = (uint32_t)strlen(e->d_name), .mode = st.st_mode,
                                      .size = (uint64_t)st.st_size };
        if (++count > LIST_MAX)
            rc = bad(p.path, "has too many entries", ERR_LIMIT, err);
        else if (fwrite(&head, sizeof head, 1, f) != 1 || fwrite(e->d_name, head.name_len, 1, f) != 1)
            rc = failed(p.path, "list", err);
    }
    closedir(d);
    if (rc == 0 && (f == NULL || fflush(f) != 0))
        rc = err_sys(err, ERR_SYS, "list");
    return rc;
}
