/* layout.c - files of a layout: openat() in a directory, or places in a tar. */
#include "repos/layout.h"
#include "base/fault.h"
#include "base/own.h"
#include "repos/archive.h"
#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#define MEMBERS_MAX 65536u              /* an image of 500 layers has some 2000 */
#define HOPS_MAX    8                   /* links from member to member; docker save makes one */
#define MEMORY_MAX  ((size_t)64 << 20)

struct member {
    struct member *before;              /* in the archive */
    const char *name, *target;          /* cleaned; target: of a link */
    bool     file;
    uint64_t at, size;
};

struct layout {
    int            fd;
    bool           directory;
    struct arena   a;
    struct member *last;
};

/* The target of a link as a name in the tar: a symbolic link's is relative to the link's directory. */
static int target_clean(char *out, const char *name, const char *hard, const char *symbolic, struct err *err)
{
    char joined[2 * ARCHIVE_PATH_MAX + 2];
    const char *slash = strrchr(name, '/');
    if (hard != NULL)
        return archive_path_clean(out, hard, err);
    if (symbolic[0] == '/' || strlen(symbolic) > ARCHIVE_PATH_MAX)
        return err_set(err, ERR_BAD_INPUT, "its target is absolute or too long");
    snprintf(joined, sizeof joined, "%.*s%s", slash != NULL ? (int)(slash + 1 - name) : 0, name, symbolic);
    return archive_path_clean(out, joined, err);
}

static int member_add(struct layout *l, struct archive *r, struct archive_entry *e, struct err *err)
{
    char name[ARCHIVE_PATH_MAX + 1], target[ARCHIVE_PATH_MAX + 1] = "";
    const char *stated = archive_entry_pathname(e), *hard = archive_entry_hardlink(e);
    const char *symbolic = archive_entry_filetype(e) == AE_IFLNK ? archive_entry_symlink(e) : NULL;
    int rc = stated == NULL ? err_set(err, ERR_BAD_INPUT, "a member has no name") : archive_path_clean(name, stated, err);
    if (rc == 0 && (hard != NULL || symbolic != NULL))
        rc = target_clean(target, name, hard, symbolic, err);
    if (rc < 0) {
        char q[200];
        err_quote(q, sizeof q, stated != NULL ? stated : "", stated != NULL ? strlen(stated) : 0);
        return err_in(err, "member \"%s\"", q);
    }
    struct member *m = arena_alloc(&l->a, sizeof *m);
    if (m == NULL || (m->name = arena_strdup(&l->a, name)) == NULL || (m->target = arena_strdup(&l->a, target)) == NULL)
        return err_set(err, ERR_LIMIT, "more names of members than %zu MiB", MEMORY_MAX >> 20);
    m->before = l->last;
    /* A sparse member's bytes do not stand one behind the other. */
    m->file = hard == NULL && archive_entry_filetype(e) == AE_IFREG && archive_entry_sparse_count(e) == 0
              && archive_entry_size(e) >= 0;
    m->at = (uint64_t)archive_filter_bytes(r, 0);
    m->size = m->file ? (uint64_t)archive_entry_size(e) : 0;
    l->last = m;
    return 0;
}

static int members_read(struct layout *l, struct archive *r, struct err *err)
{
    struct archive_entry *e;
    archive_read_support_format_tar(r);
    if (archive_read_open_fd(r, l->fd, 65536) != ARCHIVE_OK)
        return err_set(err, ERR_BAD_INPUT, "neither a layout directory nor a plain tar of one: %s", archive_error_string(r));
    for (uint32_t n = 0;; n++) {
        int got = archive_read_next_header(r, &e);
        if (got == ARCHIVE_EOF)
            return 0;
        if (got != ARCHIVE_OK && got != ARCHIVE_WARN)
            return err_set(err, ERR_BAD_INPUT, "truncated or damaged: %s", archive_error_string(r));
        if (n == MEMBERS_MAX)
            return err_set(err, ERR_LIMIT, "more than %u members", MEMBERS_MAX);
        int rc = member_add(l, r, e, err);
        if (rc < 0)
            return rc;
    }
}

static int tar_scan(struct layout *l, struct err *err)
{
    static const struct { const char *magic, *tool; } packed[] = { { "\x1f\x8b", "gzip -d" }, { "\x28\xb5\x2f\xfd", "zstd -d" },
                                                                   { "\xfd" "7zXZ", "xz -d" } };
    char head[8] = { 0 };
    if (pread(l->fd, head, sizeof head - 1, 0) < 0)
        return err_sys(err, ERR_SYS, "read");
    for (size_t i = 0; i < sizeof packed / sizeof packed[0]; i++)
        if (strncmp(head, packed[i].magic, strlen(packed[i].magic)) == 0)
            return err_set(err, ERR_BAD_INPUT, "the archive is compressed as a whole; decompress it first (%s)", packed[i].tool);
    struct archive *r = archive_read_new();
    int rc = r == NULL ? err_set(err, ERR_LIMIT, "out of memory") : members_read(l, r, err);
    archive_read_free(r);
    return rc;
}

int layout_open(struct layout **out, const char *path, struct err *err)
{
    char q[200];
    err_quote(q, sizeof q, path, strlen(path));
    struct stat st;
    own_fd fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &st) != 0)
        return err_sys(err, errno == ENOENT ? ERR_NOT_FOUND : ERR_SYS, "image %s", q);
    if (!S_ISDIR(st.st_mode) && !S_ISREG(st.st_mode))
        return err_set(err, ERR_BAD_INPUT, "image %s: neither a directory nor a file", q);
    struct layout *l = fault_hit("layout.alloc") ? NULL : calloc(1, sizeof *l);
    if (l == NULL)
        return err_set(err, ERR_LIMIT, "image %s: out of memory", q);
    *l = (struct layout){ .fd = give_fd(&fd), .directory = S_ISDIR(st.st_mode), .a = { .budget = MEMORY_MAX } };
    int rc = l->directory ? 0 : tar_scan(l, err);
    if (rc < 0) {
        layout_close(l);
        return err_in(err, "image %s", q);
    }
    *out = l;
    return 0;
}

static int not_found(struct err *err, const char *name)
{
    char q[200];
    err_quote(q, sizeof q, name, strlen(name));
    return err_set(err, ERR_NOT_FOUND, "there is no file \"%s\"", q);
}

static int member_open(struct layout *l, struct layout_file *out, const char *name, struct err *err)
{
    const char *at = name;
    for (int hop = 0; hop < HOPS_MAX; hop++) {
        struct member *m = l->last;
        while (m != NULL && strcmp(m->name, at) != 0)
            m = m->before;
        if (m == NULL || (!m->file && m->target[0] == '\0'))
            break;
        if (m->file) {
            int fd = fcntl(l->fd, F_DUPFD_CLOEXEC, 0);
            if (fd < 0)
                return err_sys(err, ERR_SYS, "file %.200s", name);
            *out = (struct layout_file){ .fd = fd, .at = m->at, .left = m->size, .size = m->size };
            return 0;
        }
        at = m->target;
    }
    return not_found(err, name);
}

/* Component by component, so that no symbolic link is followed; `path` is written over. */
static int beneath_open(int dir, char *path)
{
    own_fd at = fcntl(dir, F_DUPFD_CLOEXEC, 0);
    for (char *name = path, *slash; at >= 0; name = slash + 1) {
        slash = strchr(name, '/');
        if (slash == NULL)
            return openat(at, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        *slash = '\0';
        int next = openat(at, name, O_PATH | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        drop_fd(&at);
        at = next;
    }
    return -1;
}

int layout_file_open(struct layout *l, struct layout_file *out, const char *name, struct err *err)
{
    char path[ARCHIVE_PATH_MAX + 1];
    int rc = archive_path_clean(path, name, err);
    if (rc < 0 || path[0] == '\0')
        return not_found(err, name);
    if (!l->directory)
        return member_open(l, out, path, err);
    struct stat st;
    own_fd fd = beneath_open(l->fd, path);
    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR))
        return not_found(err, name);
    if (fd < 0 || fstat(fd, &st) != 0)
        return err_sys(err, errno == ELOOP ? ERR_BAD_INPUT : ERR_SYS, "file %.200s", name);
    if (!S_ISREG(st.st_mode))
        return err_set(err, ERR_BAD_INPUT, "%.200s is no regular file", name);
    *out = (struct layout_file){ .fd = give_fd(&fd), .left = (uint64_t)st.st_size, .size = (uint64_t)st.st_size };
    return 0;
}

int layout_file_read(struct layout_file *f, void *buf, size_t max, size_t *out_n, struct err *err)
{
    size_t n = f->left < max ? (size_t)f->left : max;
    ssize_t k = 0;
    while (n > 0 && (k = pread(f->fd, buf, n, (off_t)f->at)) < 0 && errno == EINTR)
        ;
    if (k < 0)
        return err_sys(err, ERR_SYS, "read at %llu", (unsigned long long)f->at);
    if (n > 0 && k == 0)
        return err_set(err, ERR_BAD_INPUT, "truncated: %llu bytes are missing", (unsigned long long)f->left);
    f->at += (uint64_t)k;
    f->left -= (uint64_t)k;
    *out_n = (size_t)k;
    return 0;
}

void layout_file_done(struct layout_file *f)
{
    drop_fd(&f->fd);
}

void layout_close(struct layout *l)
{
    if (l == NULL)
        return;
    close(l->fd);
    arena_done(&l->a);
    free(l);
}
