/*
 * collect_fuzz.c - report files read out of a directory that foreign code filled: only plain files come along, whole or
 * marked as cut, within the budget; afterwards the directory is empty but for directories with something in them.
 *
 * Input: entries, each a byte for what it is, one for its size, one for the length of its name, and the name.
 */
#include "base/own.h"
#include "sandbox/cell.h"
#include "sandbox/report_files.h"
#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static int dir = -1;
static char dir_path[64];

static void empty(void)
{
    DIR *d = fdopendir(openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL; ) {
        char below[300];
        snprintf(below, sizeof below, "%s/in", e->d_name);
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 && unlinkat(dir, e->d_name, 0) < 0) {
            unlinkat(dir, below, 0);
            unlinkat(dir, e->d_name, AT_REMOVEDIR);
        }
    }
    if (d != NULL)
        closedir(d);
}

static void done(void)
{
    empty();
    rmdir(dir_path);
}

enum { PATTERN = 65536 };                       /* beyond it a file is a hole */

static uint8_t pattern(uint64_t at, size_t name_len)
{
    return at < PATTERN ? (uint8_t)(at * 31 + (at >> 8) + name_len) : 0;
}

static void write_file(const char *name, uint64_t size)
{
    static uint8_t bytes[PATTERN];
    own_fd fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
    size_t n = size < PATTERN ? (size_t)size : PATTERN;
    for (size_t i = 0; i < n; i++)
        bytes[i] = pattern(i, strlen(name));
    if (fd >= 0 && (write(fd, bytes, n) != (ssize_t)n || ftruncate(fd, (off_t)size) < 0))
        abort();
}

/* Does nothing where the name is none or is taken. */
static void make(const char *name, unsigned what, unsigned size)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    char below[300];
    snprintf(below, sizeof below, "%s/in", name);
    switch (what % 10) {
    case 0: (void)mkfifoat(dir, name, 0644); break;
    case 1: (void)!symlinkat("/etc/passwd", dir, name); break;
    case 2: (void)mkdirat(dir, name, 0755); break;
    case 3:
        if (mkdirat(dir, name, 0755) == 0 && mkfifoat(dir, below, 0644) < 0)
            abort();
        break;
    case 4: (void)!linkat(dir, "a", dir, name, 0); break;            /* two names: neither comes along */
    case 5:
        if (snprintf(a.sun_path, sizeof a.sun_path, "%s/%s", dir_path, name) < (int)sizeof a.sun_path) {
            own_fd s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
            (void)!bind(s, (struct sockaddr *)&a, sizeof a);
        }
        break;
    case 6: write_file(name, (uint64_t)size << 8); break;
    case 7: write_file(name, size == 255 ? REPORT_FILES_TOTAL_MAX + 9 : size * 257u); break;
    case 8:                                                          /* many of them */
        for (unsigned i = 0; i < size; i++) {
            snprintf(below, sizeof below, "m%u", i);
            write_file(below, 1);
        }
        break;
    default: write_file(name, size); break;
    }
}

static void check(const uint8_t *p, size_t size)
{
    uint32_t files = 0;
    for (size_t at = 0; at < size; files++) {
        struct { uint32_t name_len, flags; uint64_t size; } h;
        if (size - at < sizeof h)
            abort();
        memcpy(&h, p + at, sizeof h);
        at += sizeof h;
        if (h.name_len == 0 || h.name_len > 255 || h.flags > 1 || h.name_len > size - at || h.size > size - at - h.name_len ||
            memchr(p + at, '/', h.name_len) != NULL || memchr(p + at, '\0', h.name_len) != NULL)
            abort();
        at += h.name_len;
        for (uint64_t i = 0; i < h.size; i += i < PATTERN ? 1 : 4093)
            if (p[at + i] != pattern(i, h.name_len))
                abort();
        at += h.size;
        if (h.flags != 0 && at != REPORT_FILES_TOTAL_MAX)
            abort();
    }
    if (size > REPORT_FILES_TOTAL_MAX || files > SANDBOX_REPORT_FILE_MAX)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (dir < 0) {
        snprintf(dir_path, sizeof dir_path, "%s/collect-fuzz-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
        if (mkdtemp(dir_path) == NULL || (dir = open(dir_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
            abort();
        atexit(done);
    }
    for (const uint8_t *p = data, *end = data + n; end - p >= 3; ) {
        char name[256] = { 0 };
        size_t len = p[2] < end - p - 3 ? p[2] : (size_t)(end - p - 3);
        memcpy(name, p + 3, len);
        if (name[0] != '\0' && strchr(name, '/') == NULL && strcmp(name, ".") != 0 && strcmp(name, "..") != 0)
            make(name, p[0], p[1]);
        p += 3 + len;
    }
    struct err err = { 0 };
    struct stat st;
    own_fd out = memfd_create("report", MFD_CLOEXEC);
    if (out < 0 || collect_report(dir, out, &err) != 0 || fstat(out, &st) < 0)
        abort();
    if (st.st_size > 0) {
        uint8_t *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, out, 0);
        check(p, (size_t)st.st_size);
        munmap(p, (size_t)st.st_size);
    }
    DIR *d = fdopendir(openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL; )
        if (e->d_type != DT_DIR)
            abort();                            /* the next run would report it as its own */
    closedir(d);
    empty();
    return 0;
}
