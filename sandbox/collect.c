/*
 * collect.c - report files out of the sandbox, read with the sandbox's own rights after every
 * foreign process is dead. Only regular files with one link, opened beneath the directory; a FIFO,
 * socket, link or device in their place is left out and can neither block nor lead elsewhere.
 */
#include "sandbox/report_files.h"
#include "base/own.h"
#include "sandbox/cell.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

struct head { uint32_t name_len, flags; uint64_t size; };

static int write_all(int fd, const void *bytes, size_t n, uint64_t at, struct err *err)
{
    for (size_t done = 0; done < n; ) {
        ssize_t w = pwrite(fd, (const char *)bytes + done, n - done, (off_t)(at + done));
        if (w < 0 && errno == EINTR)
            continue;
        if (w <= 0)
            return err_sys(err, ERR_SYS, "report: write");
        done += (size_t)w;
    }
    return 0;
}

/* Append one file at *at. Leaves *at alone when the file is none of ours to take. */
static int take(int dir, const char *name, int out, uint64_t *at, struct err *err)
{
    struct open_how how = { .flags = O_RDONLY | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW | O_CLOEXEC,
                            .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV };
    struct stat st;
    /* The type is asked first: opening a device or a FIFO can have effects. */
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode) || st.st_nlink != 1)
        return 0;
    own_fd fd = (int)syscall(SYS_openat2, dir, name, &how, sizeof how);
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_nlink != 1)
        return 0;
    struct head h = { .name_len = (uint32_t)strlen(name) };
    uint64_t start = *at + sizeof h + h.name_len;
    if (start > REPORT_FILES_TOTAL_MAX)
        return 0;
    char bytes[65536];
    for (;;) {
        ssize_t n = read(fd, bytes, sizeof bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        if ((uint64_t)n > REPORT_FILES_TOTAL_MAX - start - h.size) {
            n = (ssize_t)(REPORT_FILES_TOTAL_MAX - start - h.size);
            h.flags = 1;
        }
        int rc = write_all(out, bytes, (size_t)n, start + h.size, err);
        if (rc < 0)
            return rc;
        h.size += (uint64_t)n;
        if (h.flags != 0)
            break;
    }
    int rc = write_all(out, &h, sizeof h, *at, err);
    if (rc == 0)
        rc = write_all(out, name, h.name_len, *at + sizeof h, err);
    *at = start + h.size;
    return rc;
}

int collect_report(int dir, int out, struct err *err)
{
    /* Foreign code may have closed the directory to all; it is ours to open again. */
    int again = fchmod(dir, 0755) < 0 ? -1 : openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = again < 0 ? NULL : fdopendir(again);
    if (d == NULL)
        return err_sys(err, ERR_SYS, "report: list");
    uint64_t at = 0;
    uint32_t files = 0;
    int rc = 0;
    /* All are looked at, however many: one that stayed would be the next run's report. The layer's inodes bound them. */
    for (struct dirent *e; rc == 0 && (e = readdir(d)) != NULL; ) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        uint64_t was = at;
        if (files < SANDBOX_REPORT_FILE_MAX)
            rc = take(dir, e->d_name, out, &at, err);
        files += at != was;
        if (unlinkat(dir, e->d_name, 0) < 0)
            unlinkat(dir, e->d_name, AT_REMOVEDIR);     /* one that is not empty stays; nothing below it is ever taken */
    }
    closedir(d);
    return rc;
}
