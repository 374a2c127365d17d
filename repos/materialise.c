/*
 * materialise.c - a git tree as files, made aside and renamed in.
 *
 * Every directory is entered by descriptor (O_NOFOLLOW) and every file made O_EXCL, so that a link in
 * the tree is only ever written, never followed. The finished directory gets its name by a rename
 * that does not replace: of two imports one wins and the other removes its own copy. A directory that
 * is being built is locked; one that is not locked was left by a killed import and is removed.
 *
 * All times are the same, so that make and Python see a tree that was not touched since, and two
 * materialisations of one tree are equal.
 */
#include "repos/store.h"
#include "base/own.h"
#include "repos/tree.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define TMP_PREFIX ".new-"
static const struct timespec tree_times[2] = { { .tv_sec = TREE_TIME }, { .tv_sec = TREE_TIME } };

struct building {
    git_odb *odb;
    int     fd[TREE_DEPTH_MAX + 1]; /* open directories from the root down */
    size_t  end[TREE_DEPTH_MAX + 1];/* length of the path of each */
    int     depth;
    char    path[TREE_PATH_MAX + 1];
};

static int dir_close(struct building *b, struct err *err)
{
    int fd = b->fd[b->depth--];
    int rc = futimens(fd, tree_times) == 0 ? 0 : err_sys(err, ERR_SYS, "tree: times of a directory");
    close(fd);
    return rc;
}

/* Enter the directory that holds `path`, making what is missing; leaves come in path order. */
static int dir_enter(struct building *b, const char *path, struct err *err)
{
    const char *slash = strrchr(path, '/');
    size_t want = slash != NULL ? (size_t)(slash - path) : 0;
    int rc = 0;
    while (b->depth > 0 && (b->end[b->depth] > want || memcmp(b->path, path, b->end[b->depth]) != 0
                            || (path[b->end[b->depth]] != '/')))
        if ((rc = dir_close(b, err)) < 0)
            return rc;
    while (b->end[b->depth] < want) {
        size_t from = b->end[b->depth] + (b->depth > 0);
        size_t len = strcspn(path + from, "/");
        char name[256];
        if (len >= sizeof name || b->depth == TREE_DEPTH_MAX)
            return err_set(err, ERR_LIMIT, "tree: a directory name is too long or too deep");
        memcpy(name, path + from, len);
        name[len] = '\0';
        int up = b->fd[b->depth];
        if (mkdirat(up, name, 0700) != 0)
            return err_sys(err, ERR_SYS, "tree: make directory %.200s", path);
        int fd = openat(up, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0 || fchmod(fd, 0755) != 0) {
            rc = err_sys(err, ERR_SYS, "tree: open directory %.200s", path);
            if (fd >= 0)
                close(fd);
            return rc;
        }
        b->fd[++b->depth] = fd;
        b->end[b->depth] = from + len;
        memcpy(b->path, path, from + len);
    }
    return 0;
}

static int write_all(int fd, const uint8_t *p, size_t n)
{
    while (n > 0) {
        ssize_t k = write(fd, p, n);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return -1;
        p += k;
        n -= (size_t)k;
    }
    return 0;
}

static int leaf(const char *path, const struct entry *e, void *arg, struct err *err)
{
    struct building *b = arg;
    int rc = dir_enter(b, path, err);
    if (rc < 0)
        return rc;
    const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path;
    int dir = b->fd[b->depth];
    if (e->kind == ENTRY_SUBMODULE)
        return mkdirat(dir, name, 0755) == 0 && utimensat(dir, name, tree_times, 0) == 0
             ? 0 : err_sys(err, ERR_SYS, "tree: make directory %.200s", path);
    git_odb_object *o = NULL;           /* not tree_read(): one file at a time is in memory */
    if (git_odb_read(&o, b->odb, &e->id) != 0)
        return git_err(err, ERR_CORRUPT, "object store: read");
    const uint8_t *bytes = git_odb_object_data(o);
    size_t n = git_odb_object_size(o);
    if (e->kind == ENTRY_LINK) {
        char target[TREE_PATH_MAX + 1];
        if (n == 0 || n > TREE_PATH_MAX || memchr(bytes, '\0', n) != NULL)
            rc = err_set(err, ERR_BAD_INPUT, "tree: link %.200s has no usable target", path);
        else {
            memcpy(target, bytes, n);
            target[n] = '\0';
            if (symlinkat(target, dir, name) != 0 || utimensat(dir, name, tree_times, AT_SYMLINK_NOFOLLOW) != 0)
                rc = err_sys(err, ERR_SYS, "tree: make link %.200s", path);
        }
    } else {
        own_fd fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd < 0 || write_all(fd, bytes, n) != 0 || fchmod(fd, e->executable ? 0755 : 0644) != 0
            || futimens(fd, tree_times) != 0)
            rc = err_sys(err, ERR_SYS, "tree: write %.200s", path);
    }
    git_odb_object_free(o);
    return rc;
}

/* Everything below dir/name. Best effort: what stays is found by the next import. */
static void remove_below(int dir, const char *name, int depth)
{
    int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *d = fd >= 0 && depth <= TREE_DEPTH_MAX + 1 ? fdopendir(fd) : NULL;
    if (d == NULL) {
        if (fd >= 0)
            close(fd);
        unlinkat(dir, name, 0);
        return;
    }
    /* cppcheck-suppress readdirCalled ; the stream is this call's own */
    for (struct dirent *e; (e = readdir(d)) != NULL; )
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0
            && unlinkat(dirfd(d), e->d_name, 0) != 0)
            remove_below(dirfd(d), e->d_name, depth + 1);
    closedir(d);
    unlinkat(dir, name, AT_REMOVEDIR);
}

void materialise_clean(int trees_fd)
{
    int fd = openat(trees_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    /* cppcheck-suppress readdirCalled ; the stream is this call's own */
    for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL; ) {
        if (strncmp(e->d_name, TMP_PREFIX, strlen(TMP_PREFIX)) != 0)
            continue;
        own_fd old = openat(trees_fd, e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (old >= 0 && flock(old, LOCK_EX | LOCK_NB) == 0)
            remove_below(trees_fd, e->d_name, 0);
    }
    if (d != NULL)
        closedir(d);
}

/* A new locked directory. A cleaner may take it between mkdir and flock: then another name is tried. */
static int new_dir(int trees_fd, char name[48], struct err *err)
{
    for (int i = 0; i < 100; i++) {
        uint64_t r;
        if (getrandom(&r, sizeof r, 0) != (ssize_t)sizeof r)
            return err_sys(err, ERR_SYS, "tree: random name");
        snprintf(name, 48, TMP_PREFIX "%016llx", (unsigned long long)r);
        if (mkdirat(trees_fd, name, 0700) != 0) {
            if (errno == EEXIST)
                continue;
            return err_sys(err, ERR_SYS, "store: make a directory in trees");
        }
        own_fd fd = openat(trees_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        struct stat a, b;
        if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0 && fstat(fd, &a) == 0
            && fstatat(trees_fd, name, &b, AT_SYMLINK_NOFOLLOW) == 0 && a.st_ino == b.st_ino)
            return give_fd(&fd);
    }
    return err_set(err, ERR_BUSY, "store: no new directory in trees could be kept; is another import cleaning?");
}

int materialise(int trees_fd, const char *hex, git_odb *odb, struct arena *a, struct err *err)
{
    struct stat st;
    if (fstatat(trees_fd, hex, &st, AT_SYMLINK_NOFOLLOW) == 0)
        return S_ISDIR(st.st_mode) ? 0 : err_set(err, ERR_CORRUPT, "store: trees/%s is not a directory", hex);
    git_oid root;
    if (git_oid_fromstr(&root, hex) != 0)
        return err_set(err, ERR_INTERNAL, "store: %s is not a tree id", hex);
    struct building b = { .odb = odb };
    struct tree *t;
    int rc = tree_open(&t, a, odb, &root, err);
    if (rc < 0)
        return rc;
    char name[48];
    own_fd lock = new_dir(trees_fd, name, err);
    if (lock < 0)
        return lock;
    b.fd[0] = openat(lock, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (b.fd[0] < 0)
        rc = err_sys(err, ERR_SYS, "tree: open its directory");
    else {
        rc = tree_walk(t, "", leaf, &b, err);
        struct err late = { 0 };
        while (b.depth > 0)
            if (dir_close(&b, rc < 0 ? &late : err) < 0 && rc == 0)
                rc = err->code;
        if (rc == 0 && (fchmod(b.fd[0], 0755) != 0 || futimens(b.fd[0], tree_times) != 0))
            rc = err_sys(err, ERR_SYS, "tree: finish");
        close(b.fd[0]);
    }
    if (rc == 0 && syncfs(trees_fd) != 0)       /* the name must not outlive the content across a power cut */
        rc = err_sys(err, ERR_SYS, "store: sync");
    if (rc == 0 && renameat2(trees_fd, name, trees_fd, hex, RENAME_NOREPLACE) == 0)
        return 0;
    if (rc == 0 && errno == EINVAL && renameat(trees_fd, name, trees_fd, hex) == 0)     /* a file system without the flag */
        return 0;
    if (rc == 0 && errno != EEXIST && errno != ENOTEMPTY)   /* those: another import was first, and its copy is equal */
        rc = err_sys(err, ERR_SYS, "store: name trees/%s", hex);
    remove_below(trees_fd, name, 0);
    return rc;
}
