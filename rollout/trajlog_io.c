/* trajlog_io.c - the log's files on a real file system: a directory descriptor, names below it, no paths. */
#include "base/own.h"
#include "rollout/trajlog.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

struct files { int dir_fd, lock_fd; };

static int files_lock(void *ctx, struct err *err)
{
    struct files *f = ctx;
    f->lock_fd = openat(f->dir_fd, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (f->lock_fd < 0)
        return err_sys(err, ERR_SYS, "trajectory log: lock file");
    if (flock(f->lock_fd, LOCK_EX | LOCK_NB) < 0)
        return errno == EWOULDBLOCK ? err_set(err, ERR_BUSY, "trajectory log: another server uses this state directory")
                                    : err_sys(err, ERR_SYS, "trajectory log: lock file");
    return 0;
}

static int files_open(void *ctx, const char *name, bool create, struct err *err)
{
    struct files *f = ctx;
    int fd = openat(f->dir_fd, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | (create ? O_CREAT : 0), 0600);
    if (fd < 0)
        return err_sys(err, ERR_SYS, "trajectory log: open %s", name);
    return fd;
}

static int files_size(void *ctx, int handle, uint64_t *out, struct err *err)
{
    (void)ctx;
    struct stat st;
    if (fstat(handle, &st) < 0)
        return err_sys(err, ERR_SYS, "trajectory log: stat");
    *out = (uint64_t)st.st_size;
    return 0;
}

static int files_read(void *ctx, int handle, uint64_t offset, void *bytes, size_t n, size_t *out_n, struct err *err)
{
    (void)ctx;
    size_t done = 0;
    while (done < n) {
        ssize_t r = pread(handle, (char *)bytes + done, n - done, (off_t)(offset + done));
        if (r < 0 && errno == EINTR)
            continue;
        if (r < 0)
            return err_sys(err, ERR_SYS, "trajectory log: read");
        if (r == 0)
            break;
        done += (size_t)r;
    }
    *out_n = done;
    return 0;
}

static int files_write(void *ctx, int handle, uint64_t offset, const void *bytes, size_t n, struct err *err)
{
    (void)ctx;
    for (size_t done = 0; done < n; ) {
        ssize_t r = pwrite(handle, (const char *)bytes + done, n - done, (off_t)(offset + done));
        if (r < 0 && errno == EINTR)
            continue;
        if (r < 0)
            return err_sys(err, ERR_SYS, "trajectory log: write");
        done += (size_t)r;
    }
    return 0;
}

static int files_sync(void *ctx, int handle, struct err *err)
{
    (void)ctx;
    return fdatasync(handle) == 0 ? 0 : err_sys(err, ERR_SYS, "trajectory log: fdatasync");
}

static int files_truncate(void *ctx, int handle, uint64_t size, struct err *err)
{
    (void)ctx;
    return ftruncate(handle, (off_t)size) == 0 ? 0 : err_sys(err, ERR_SYS, "trajectory log: truncate");
}

static int files_sync_dir(void *ctx, struct err *err)
{
    struct files *f = ctx;
    return fsync(f->dir_fd) == 0 ? 0 : err_sys(err, ERR_SYS, "trajectory log: sync directory");
}

static int files_list(void *ctx, int (*each)(void *, const char *, struct err *), void *arg, struct err *err)
{
    struct files *f = ctx;
    int fd = openat(f->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return err_sys(err, ERR_SYS, "trajectory log: read directory");
    DIR *d = fdopendir(fd);
    if (d == NULL) {
        close(fd);
        return err_sys(err, ERR_SYS, "trajectory log: read directory");
    }
    int rc = 0;
    for (struct dirent *entry; rc == 0; ) {
        errno = 0;
        /* cppcheck-suppress readdirCalled ; this stream is ours alone */
        entry = readdir(d);
        if (entry == NULL) {
            if (errno != 0)
                rc = err_sys(err, ERR_SYS, "trajectory log: read directory");
            break;
        }
        rc = each(arg, entry->d_name, err);
    }
    closedir(d);
    return rc;
}

static void files_close(void *ctx, int handle)
{
    (void)ctx;
    close(handle);
}

static void files_done(void *ctx)
{
    struct files *f = ctx;
    if (f->lock_fd >= 0)
        close(f->lock_fd);
    close(f->dir_fd);
    free(f);
}

int trajlog_io_files(struct trajlog_io *out, const char *dir, struct err *err)
{
    if (mkdir(dir, 0700) < 0 && errno != EEXIST)
        return err_sys(err, ERR_SYS, "trajectory log: make %s", dir);
    own_fd fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return err_sys(err, ERR_SYS, "trajectory log: %s", dir);
    struct files *f = calloc(1, sizeof *f);
    if (f == NULL)
        /* cppcheck-suppress resourceLeak ; own_fd closes it */
        return err_set(err, ERR_LIMIT, "trajectory log: out of memory");
    *f = (struct files){ .dir_fd = give_fd(&fd), .lock_fd = -1 };
    *out = (struct trajlog_io){ .ctx = f, .lock = files_lock, .open = files_open, .size = files_size, .read = files_read,
                                .write = files_write, .sync = files_sync, .truncate = files_truncate,
                                .sync_dir = files_sync_dir, .list = files_list, .close = files_close, .done = files_done };
    return 0;
}
