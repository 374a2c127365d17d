/*
 * edits_fuzz.c - edits applied to a small tree with links that lead out of it: any bytes may be refused, none may reach
 * beyond the tree or into a ".git", and a good edit is there afterwards.
 *
 * Input: the edits themselves, or after a first byte of 'R' records in short form: kind, mode, path number, size.
 */
#include "base/frame.h"
#include "base/own.h"
#include "repos/edits.h"
#include "sandbox/cell.h"
#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static int top = -1;                            /* holds tree/ and outside/ */
static char top_path[64];

static void remove_below(int dir)
{
    DIR *d = fdopendir(openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL; ) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 || unlinkat(dir, e->d_name, 0) == 0)
            continue;
        own_fd below = openat(dir, e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        remove_below(below);
        unlinkat(dir, e->d_name, AT_REMOVEDIR);
    }
    if (d != NULL)
        closedir(d);
}

static void put(const char *name, const char *text)
{
    own_fd fd = openat(top, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text))
        abort();
}

static void is(const char *name, const char *text)
{
    char got[16] = { 0 };
    own_fd fd = openat(top, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 || read(fd, got, sizeof got - 1) != (ssize_t)strlen(text) || strcmp(got, text) != 0)
        abort();
}

static long entries(const char *name)
{
    own_fd fd = openat(top, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fdopendir(dup(fd));
    long n = 0;
    while (d != NULL && readdir(d) != NULL)
        n++;
    if (d != NULL)
        closedir(d);
    return n;
}

static void done(void)
{
    remove_below(top);
    rmdir(top_path);
}

static void fresh(void)
{
    if (top < 0) {
        snprintf(top_path, sizeof top_path, "%s/edits-fuzz-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
        if (mkdtemp(top_path) == NULL || (top = open(top_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
            abort();
        atexit(done);
    }
    remove_below(top);
    static const char *const dirs[] = { "outside", "outside/d", "tree", "tree/d", "tree/d/e", "tree/.git" };
    for (size_t i = 0; i < sizeof dirs / sizeof dirs[0]; i++)
        if (mkdirat(top, dirs[i], 0755) < 0)
            abort();
    put("outside/f", "outside");
    put("tree/f", "old");
    put("tree/d/f", "old");
    put("tree/.git/f", "git");
    if (symlinkat("../outside", top, "tree/out") < 0 || symlinkat("../outside/f", top, "tree/link") < 0 ||
        symlinkat("d", top, "tree/in") < 0)
        abort();
}

/* Records of short form, with paths that are near the edges. */
static size_t unfold(const uint8_t *p, size_t n, uint8_t *out)
{
    static const char *const paths[] = {
        "f", "d/f", "d/e/f", "new/dir/f", "out/f", "link", "in/f", "out", "../outside/f", "d/../../outside/f", ".git/f",
        "d/.GIT/f", "/etc/f", "d", "d//f", "./f", "f/f", "d/e", "new", "..", "in", "x/.git", "out/d/new", "",
    };
    uint8_t *at = out + sizeof EDITS_MAGIC - 1 + sizeof(uint64_t);
    uint64_t count = 0;
    for (; n >= 4 && count < 64; p += 4, n -= 4, count++) {
        struct { uint32_t kind, mode, path_len, reserved; uint64_t size; } r = { .kind = p[0] & 3, .size = p[3] & 31 };
        const char *path = paths[p[2] % (sizeof paths / sizeof paths[0])];
        r.mode = r.kind == EDIT_WRITE ? (p[1] & 1 ? 0755 : 0644) : p[1] & 0x80 ? 0777 : 0;
        r.path_len = (uint32_t)strlen(path);
        if (r.kind == EDIT_DELETE && !(p[3] & 0x80))
            r.size = 0;
        memcpy(at, &r, sizeof r);
        memcpy(at + sizeof r, path, r.path_len);
        for (uint64_t i = 0; i < r.size; i++)
            at[sizeof r + r.path_len + i] = (uint8_t)"../outside/new-from-edits-fuzzing"[i];
        at += sizeof r + r.path_len + r.size;
    }
    memcpy(out, EDITS_MAGIC, sizeof EDITS_MAGIC - 1);
    memcpy(out + sizeof EDITS_MAGIC - 1, &count, sizeof count);
    return (size_t)(at - out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static uint8_t unfolded[16384];
    struct err err = { 0 };
    if (n > 65536)
        return 0;
    fresh();
    if (n > 0 && data[0] == 'R') {
        n = unfold(data + 1, n - 1, unfolded);
        data = unfolded;
    }
    own_fd edits = frame_memfd("edits", data, n, &err), tree = openat(top, "tree", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (edits < 0 || tree < 0)
        abort();
    int rc = edits_apply(tree, edits, &err);
    if (rc > 0 || (rc < 0 && (rc != err.code || err.msg[0] == '\0')) || rc == ERR_INTERNAL)
        abort();
    if (rc == 0 && (n < 16 || memcmp(data, EDITS_MAGIC, 8) != 0))
        abort();
    is("outside/f", "outside");
    is("tree/.git/f", "git");
    if (entries(".") != 4 || entries("outside") != 4 || entries("outside/d") != 2 || entries("tree/.git") != 3)
        abort();
    return 0;
}
