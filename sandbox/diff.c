/*
 * diff.c - what a sandbox made of its tree, as tree edits (repos/edits.h), by the agent with the sandbox's own rights.
 *
 * The tree as it is now is held against the tree as it was given, directory by directory. So what an overlay keeps about
 * deleted, replaced and renamed directories is read by the kernel and not here, and a tree that had to be copied is told as
 * well. A file that nobody touched has all its times and its number still (nobody inside can set the time of change); any
 * other is compared by content, so that what was written and put back is no edit.
 *
 * Left out is what an edit cannot say: empty directories, FIFOs, sockets, anything below a ".git". Names are foreign bytes.
 */
#include "repos/edits.h"
#include "base/own.h"
#include "sandbox/cell.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#define PATH_BYTES_MAX 4096u            /* as edits.c has it */
#define EDITS_COUNT_MAX 1000000u
#define DEPTH_MAX 128

struct record { uint32_t kind, mode, path_len, reserved; uint64_t size; };

struct diff {
    FILE *out;
    uint64_t bytes, count;
    char path[PATH_BYTES_MAX];          /* where the walk is */
    size_t len;
};

static int failed(const struct diff *d, const char *name, const char *step, struct err *err)
{
    int sys = errno;
    char path[PATH_BYTES_MAX + 260], quoted[200];
    int n = snprintf(path, sizeof path, "%s%s%s", d->path, d->len > 0 ? "/" : "", name);
    err_quote(quoted, sizeof quoted, path, (size_t)n);
    errno = sys;
    int code = sys == EACCES ? ERR_BAD_INPUT : sys == ENOSPC ? ERR_LIMIT : ERR_SYS;
    return err_sys(err, code, "changes of %s: %s", quoted, step);
}

static int put(struct diff *d, const void *bytes, size_t n, struct err *err)
{
    d->bytes += n;
    if (d->bytes > SANDBOX_FILE_MAX)
        return err_set(err, ERR_LIMIT, "changes: more than %llu bytes", (unsigned long long)SANDBOX_FILE_MAX);
    return n == 0 || fwrite(bytes, n, 1, d->out) == 1 ? 0 : err_sys(err, ERR_SYS, "changes: write");
}

static int put_head(struct diff *d, uint32_t kind, uint32_t mode, const char *name, uint64_t size, struct err *err)
{
    size_t slash = d->len > 0, n = strlen(name);
    struct record r = { .kind = kind, .mode = mode, .path_len = (uint32_t)(d->len + slash + n), .size = size };
    if (r.path_len >= PATH_BYTES_MAX)
        return err_set(err, ERR_BAD_INPUT, "changes: a path of %u bytes", r.path_len);
    if (++d->count > EDITS_COUNT_MAX || size > SANDBOX_FILE_MAX)
        return err_set(err, ERR_LIMIT, "changes: more than %u, or one of %llu bytes", EDITS_COUNT_MAX,
                       (unsigned long long)size);
    int rc = put(d, &r, sizeof r, err);
    if (rc == 0)
        rc = put(d, d->path, d->len, err);
    if (rc == 0)
        rc = put(d, "/", slash, err);
    return rc == 0 ? put(d, name, n, err) : rc;
}

static int open_in(int dir, const char *name, int flags)
{
    return openat(dir, name, flags | O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
}

/* What its owner closed to himself is opened while it is looked at. Where that fails, the open that follows does. */
static void mode_with(int dir, const char *name, const struct stat *st, mode_t more)
{
    if ((st->st_mode & 0500) != 0500 && fchmodat(dir, name, (st->st_mode & 07777) | more, 0) < 0)
        errno = EACCES;
}

static void unlock(int dir, const char *name, const struct stat *st) { mode_with(dir, name, st, 0500); }
static void lock_again(int dir, const char *name, const struct stat *st) { mode_with(dir, name, st, 0); }

static bool untouched(const struct stat *now, const struct stat *was)
{
    return now->st_ino == was->st_ino && now->st_size == was->st_size && now->st_mode == was->st_mode &&
           memcmp(&now->st_ctim, &was->st_ctim, sizeof now->st_ctim) == 0 &&
           memcmp(&now->st_mtim, &was->st_mtim, sizeof now->st_mtim) == 0;
}

static bool same_bytes(int a, int b)
{
    static char bytes[2][65536];
    for (off_t at = 0; ; ) {
        ssize_t n = pread(a, bytes[0], sizeof bytes[0], at), m = n < 0 ? -1 : pread(b, bytes[1], sizeof bytes[1], at);
        if (n != m || n < 0 || memcmp(bytes[0], bytes[1], (size_t)n) != 0)
            return false;
        if (n == 0)
            return true;
        at += n;
    }
}

static int file(struct diff *d, int now, int was, const char *name, const struct stat *st, struct err *err)
{
    static char bytes[65536];
    struct stat old;
    const uint32_t mode = st->st_mode & 0100 ? 0755 : 0644;
    const bool there = was >= 0 && fstatat(was, name, &old, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(old.st_mode);
    if (there && untouched(st, &old))
        return 0;
    own_fd fd = open_in(now, name, 0);
    if (fd < 0 && errno == EACCES) {
        unlock(now, name, st);
        fd = open_in(now, name, 0);
        lock_again(now, name, st);
    }
    if (fd < 0)
        return failed(d, name, "open", err);
    const bool alike = there && old.st_size == st->st_size && ((old.st_mode ^ st->st_mode) & 0100) == 0;
    own_fd before = alike ? open_in(was, name, 0) : -1;
    if (before >= 0 && same_bytes(fd, before))
        return 0;
    int rc = put_head(d, EDIT_WRITE, mode, name, (uint64_t)st->st_size, err);
    for (off_t at = 0; rc == 0 && at < st->st_size; ) {
        ssize_t n = pread(fd, bytes, st->st_size - at < (off_t)sizeof bytes ? (size_t)(st->st_size - at) : sizeof bytes, at);
        if (n <= 0)
            return failed(d, name, "read", err);
        rc = put(d, bytes, (size_t)n, err);
        at += n;
    }
    return rc;
}

static int link_of(struct diff *d, int now, int was, const char *name, struct err *err)
{
    char target[PATH_BYTES_MAX], old[PATH_BYTES_MAX];
    ssize_t n = readlinkat(now, name, target, sizeof target);
    if (n <= 0 || n == (ssize_t)sizeof target)
        return failed(d, name, "link", err);
    if (was >= 0 && readlinkat(was, name, old, sizeof old) == n && memcmp(old, target, (size_t)n) == 0)
        return 0;
    int rc = put_head(d, EDIT_LINK, 0, name, (uint64_t)n, err);
    return rc == 0 ? put(d, target, (size_t)n, err) : rc;
}

static bool passed_over(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || strcasecmp(name, ".git") == 0;
}

static int walk(struct diff *d, int now, int was, int depth, struct err *err);

/* Into a directory: `now` and `was` are owned, either may be -1. */
static int below(struct diff *d, const char *name, int now, int was, int depth, struct err *err)
{
    own_fd a = now, b = was;
    const size_t len = d->len, n = strlen(name);
    if (len + 1 + n >= PATH_BYTES_MAX || depth >= DEPTH_MAX)
        return err_set(err, ERR_BAD_INPUT, "changes: deeper than %d directories or %u bytes of path", DEPTH_MAX,
                       PATH_BYTES_MAX);
    if (len > 0)
        d->path[d->len++] = '/';
    memcpy(d->path + d->len, name, n + 1);
    d->len += n;
    int rc = walk(d, a, b, depth + 1, err);
    d->path[d->len = len] = '\0';
    return rc;
}

/* What was there and is not: deletes come before what takes the place. */
static int gone(struct diff *d, DIR *was, int now, int depth, struct err *err)
{
    int rc = 0, dir = dirfd(was);
    for (struct dirent *e; rc == 0 && (e = readdir(was)) != NULL; ) {
        struct stat old, st;
        if (passed_over(e->d_name))
            continue;
        if (fstatat(dir, e->d_name, &old, AT_SYMLINK_NOFOLLOW) < 0)
            return failed(d, e->d_name, "look at", err);
        const bool there = now >= 0 && fstatat(now, e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0;
        const bool was_one = S_ISREG(old.st_mode) || S_ISLNK(old.st_mode);
        if (S_ISDIR(old.st_mode) && !(there && S_ISDIR(st.st_mode))) {
            int fd = open_in(dir, e->d_name, O_DIRECTORY);
            rc = fd < 0 ? failed(d, e->d_name, "open", err) : below(d, e->d_name, -1, fd, depth, err);
        } else if (was_one && !(there && (S_ISREG(st.st_mode) || S_ISLNK(st.st_mode)))) {
            rc = put_head(d, EDIT_DELETE, 0, e->d_name, 0, err);
        }
    }
    return rc;
}

static int walk(struct diff *d, int now, int was, int depth, struct err *err)
{
    int rc = 0;
    if (was >= 0) {
        int again = openat(was, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        DIR *dir = again < 0 ? NULL : fdopendir(again);
        rc = dir == NULL ? failed(d, ".", "list", err) : gone(d, dir, now, depth, err);
        if (dir != NULL)
            closedir(dir);
    }
    if (rc < 0 || now < 0)
        return rc;
    int again = openat(now, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = again < 0 ? NULL : fdopendir(again);
    if (dir == NULL)
        return failed(d, ".", "list", err);
    for (struct dirent *e; rc == 0 && (e = readdir(dir)) != NULL; ) {
        struct stat st;
        if (passed_over(e->d_name))
            continue;
        if (fstatat(now, e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
            rc = failed(d, e->d_name, "look at", err);
        } else if (S_ISDIR(st.st_mode)) {
            unlock(now, e->d_name, &st);
            int fd = open_in(now, e->d_name, O_DIRECTORY);
            rc = fd < 0 ? failed(d, e->d_name, "open", err)
               : below(d, e->d_name, fd, was < 0 ? -1 : open_in(was, e->d_name, O_DIRECTORY), depth, err);
            lock_again(now, e->d_name, &st);
        } else if (S_ISREG(st.st_mode)) {
            rc = file(d, now, was, e->d_name, &st, err);
        } else if (S_ISLNK(st.st_mode)) {
            rc = link_of(d, now, was, e->d_name, err);
        }
    }
    closedir(dir);
    return rc;
}

int diff_tree(int was, int out, struct err *err)
{
    static struct diff d;
    uint64_t none = 0;
    struct stat st;
    if (lstat(SANDBOX_WORK_DIR, &st) < 0 || !S_ISDIR(st.st_mode))
        return err_set(err, ERR_BAD_INPUT, "changes: " SANDBOX_WORK_DIR " is no directory any more");
    unlock(AT_FDCWD, SANDBOX_WORK_DIR, &st);
    own_fd now = open_in(AT_FDCWD, SANDBOX_WORK_DIR, O_DIRECTORY);
    if (now < 0)
        return err_sys(err, errno == EACCES ? ERR_BAD_INPUT : ERR_SYS, "changes: " SANDBOX_WORK_DIR);
    d = (struct diff){ .out = fdopen(fcntl(out, F_DUPFD_CLOEXEC, 0), "w") };
    if (d.out == NULL)
        return err_sys(err, ERR_SYS, "changes");
    int rc = put(&d, EDITS_MAGIC, sizeof EDITS_MAGIC - 1, err);
    if (rc == 0)
        rc = put(&d, &none, sizeof none, err);
    if (rc == 0)
        rc = walk(&d, now, was, 0, err);
    lock_again(AT_FDCWD, SANDBOX_WORK_DIR, &st);
    if (fclose(d.out) != 0 && rc == 0)
        rc = err_sys(err, ERR_SYS, "changes: write");
    if (rc == 0 && pwrite(out, &d.count, sizeof d.count, sizeof EDITS_MAGIC - 1) != (ssize_t)sizeof d.count)
        rc = err_sys(err, ERR_SYS, "changes: write");
    return rc;
}
