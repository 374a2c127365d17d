/*
 * edits.c - apply tree edits (repos/edits.h) beneath a directory, with the sandbox's own rights.
 * Every path is opened beneath the tree without following a link; a delete of a file from the
 * lower layer becomes a whiteout by the overlay's doing. The bytes are untrusted.
 */
#include "repos/edits.h"
#include "base/own.h"
#include "sandbox/cell.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#define PATH_BYTES_MAX 4096u
#define EDITS_COUNT_MAX UINT64_C(1000000)

struct record { uint32_t kind, mode, path_len, reserved; uint64_t size; };

int beneath_open(int dir, const char *path, int flags, mode_t mode)
{
    struct open_how how = { .flags = (uint64_t)(flags | O_CLOEXEC | O_NOFOLLOW), .mode = mode,
                            .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS };
    return (int)syscall(SYS_openat2, dir, path, &how, sizeof how);
}

static int bad(const char *path, size_t n, const char *why, struct err *err)
{
    char quoted[200];
    err_quote(quoted, sizeof quoted, path, n);
    return err_set(err, ERR_BAD_INPUT, "edit of %s: %s", quoted, why);
}

static int failed(const char *path, const char *step, struct err *err)
{
    int sys = errno;
    char quoted[200];
    err_quote(quoted, sizeof quoted, path, strlen(path));
    errno = sys;
    /* What the tree's shape forbids is the input's fault; a full layer is a limit. */
    int code = sys == ENOTDIR || sys == ELOOP || sys == EISDIR || sys == EEXIST || sys == ENOTEMPTY || sys == ENAMETOOLONG
             ? ERR_BAD_INPUT : sys == ENOSPC || sys == EDQUOT || sys == EFBIG ? ERR_LIMIT : ERR_SYS;
    return err_sys(err, code, "edit of %s: %s", quoted, step);
}

/* Relative, no empty, "." or ".." component, nothing in a ".git". */
static bool path_good(const char *p, size_t n)
{
    if (n == 0 || n >= PATH_BYTES_MAX || memchr(p, '\0', n) != NULL)
        return false;
    for (size_t i = 0; i <= n; ) {
        const char *slash = i < n ? memchr(p + i, '/', n - i) : NULL;
        size_t len = slash != NULL ? (size_t)(slash - (p + i)) : n - i;
        if (len == 0 || len > 255 || (len == 1 && p[i] == '.') || (len == 2 && p[i] == '.' && p[i + 1] == '.') ||
            (len == 4 && strncasecmp(p + i, ".git", 4) == 0))
            return false;
        i += len + 1;
    }
    return true;
}

int beneath_parent(int tree, char *path, bool make, const char **out_name)
{
    char *slash = strrchr(path, '/');
    *out_name = slash == NULL ? path : slash + 1;
    if (slash == NULL)
        return beneath_open(tree, ".", O_RDONLY | O_DIRECTORY, 0);
    *slash = '\0';
    int fd = beneath_open(tree, path, O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0 && errno == ENOENT && make) {
        fd = beneath_open(tree, ".", O_RDONLY | O_DIRECTORY, 0);
        for (char *at = path; fd >= 0 && at != NULL; ) {
            char *next = strchr(at, '/');
            if (next != NULL)
                *next = '\0';
            int below = mkdirat(fd, at, 0755) < 0 && errno != EEXIST ? -1 : beneath_open(fd, at, O_RDONLY | O_DIRECTORY, 0);
            int sys = errno;
            close(fd);
            errno = sys;
            fd = below;
            if (next != NULL)
                *next = '/';
            at = next != NULL ? next + 1 : NULL;
        }
    }
    int sys = errno;
    *slash = '/';
    errno = sys;
    return fd;
}

static int put_file(int dir, const char *name, const char *path, const struct record *r, const uint8_t *bytes, struct err *err)
{
    own_fd fd = beneath_open(dir, name, O_WRONLY | O_CREAT | O_EXCL, r->mode);
    if (fd < 0)
        return failed(path, "create", err);
    for (uint64_t done = 0; done < r->size; ) {
        ssize_t n = write(fd, bytes + done, (size_t)(r->size - done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return failed(path, "write", err);
        done += (uint64_t)n;
    }
    return fchmod(fd, r->mode) == 0 ? 0 : failed(path, "mode", err);
}

static int apply(int tree, const struct record *r, char *path, const uint8_t *bytes, struct err *err)
{
    const char *name;
    own_fd dir = beneath_parent(tree, path, r->kind != EDIT_DELETE, &name);
    if (dir < 0)
        return r->kind == EDIT_DELETE && errno == ENOENT ? 0 : failed(path, "directory", err);
    if (unlinkat(dir, name, 0) < 0 && errno != ENOENT)
        return failed(path, "remove", err);
    if (r->kind == EDIT_WRITE)
        return put_file(dir, name, path, r, bytes, err);
    if (r->kind == EDIT_LINK) {
        char target[PATH_BYTES_MAX];
        memcpy(target, bytes, (size_t)r->size);
        target[r->size] = '\0';
        return symlinkat(target, dir, name) == 0 ? 0 : failed(path, "link", err);
    }
    /* As git does: a directory goes with its last file. */
    for (char *slash; (slash = strrchr(path, '/')) != NULL; ) {
        *slash = '\0';
        own_fd above = beneath_parent(tree, path, false, &name);
        if (above < 0 || unlinkat(above, name, AT_REMOVEDIR) < 0)
            break;
    }
    return 0;
}

int edits_apply(int tree, int edits, struct err *err)
{
    struct stat st;
    if (fstat(edits, &st) < 0)
        return err_sys(err, ERR_SYS, "edits");
    size_t size = (size_t)st.st_size, at = sizeof EDITS_MAGIC - 1 + sizeof(uint64_t);
    if (st.st_size < (off_t)at)
        return err_set(err, ERR_BAD_INPUT, "edits: too short");
    uint8_t *p = mmap(NULL, size, PROT_READ, MAP_SHARED, edits, 0);
    if (p == MAP_FAILED)
        return err_sys(err, ERR_SYS, "edits: map");
    uint64_t count;
    memcpy(&count, p + sizeof EDITS_MAGIC - 1, sizeof count);
    int rc = memcmp(p, EDITS_MAGIC, sizeof EDITS_MAGIC - 1) != 0 || count > EDITS_COUNT_MAX
           ? err_set(err, ERR_BAD_INPUT, "edits: bad header") : 0;
    for (uint64_t i = 0; rc == 0 && i < count; i++) {
        struct record r;
        char path[PATH_BYTES_MAX];
        if (size - at < sizeof r) {
            rc = err_set(err, ERR_BAD_INPUT, "edits: record %llu is cut", (unsigned long long)i);
            break;
        }
        memcpy(&r, p + at, sizeof r);
        at += sizeof r;
        const char *name = (const char *)p + at;
        if (r.path_len > size - at || r.size > size - at - r.path_len) {
            rc = err_set(err, ERR_BAD_INPUT, "edits: record %llu is cut", (unsigned long long)i);
        } else if (!path_good(name, r.path_len)) {
            rc = bad(name, r.path_len < PATH_BYTES_MAX ? r.path_len : PATH_BYTES_MAX, "path not allowed", err);
        } else if (!((r.kind == EDIT_WRITE && (r.mode == 0644 || r.mode == 0755)) ||
                     (r.kind == EDIT_LINK && r.mode == 0 && r.size > 0 && r.size < PATH_BYTES_MAX) ||
                     (r.kind == EDIT_DELETE && r.mode == 0 && r.size == 0)) || r.reserved != 0) {
            rc = bad(name, r.path_len, "kind, mode or size not allowed", err);
        } else {
            memcpy(path, name, r.path_len);
            path[r.path_len] = '\0';
            rc = apply(tree, &r, path, p + at + r.path_len, err);
            at += r.path_len + (size_t)r.size;
        }
    }
    if (rc == 0 && at != size)
        rc = err_set(err, ERR_BAD_INPUT, "edits: %zu bytes after the last record", size - at);
    munmap(p, size);
    return rc;
}
