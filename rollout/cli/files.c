/* files.c - bytes from files and from the kernel's random source. */
#include "rollout/cli/cli.h"
#include "base/own.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>

int cli_open_file(int *out, uint64_t *out_size, const char *path, struct err *err)
{
    bool is_stdin = strcmp(path, "-") == 0;
    own_fd fd = is_stdin ? fcntl(0, F_DUPFD_CLOEXEC, 3) : open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) != 0)
        return err_sys(err, ERR_BAD_INPUT, "%s", is_stdin ? "standard input" : path);
    if (S_ISDIR(st.st_mode))
        return err_set(err, ERR_BAD_INPUT, "%s: is a directory", path);
    *out_size = S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0;
    *out = give_fd(&fd);
    return 0;
}

int cli_read_file(struct buf *out, const char *path, size_t max, struct err *err)
{
    bool is_stdin = strcmp(path, "-") == 0;
    own_fd fd = -1;
    uint64_t size;
    int rc = cli_open_file(&fd, &size, path, err);
    if (rc < 0)
        return rc;
    out->max = max;
    rc = buf_read_fd(out, fd, err);
    if (rc == ERR_LIMIT)
        return err_set(err, ERR_LIMIT, "%s: larger than %zu bytes", is_stdin ? "standard input" : path, max);
    if (rc < 0)
        return err_in(err, "%s", is_stdin ? "standard input" : path);
    return 0;
}

int cli_request_id(const char **out, struct arena *a, struct err *err)
{
    uint8_t random[16];
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        return err_sys(err, ERR_SYS, "getrandom");
    char *s = arena_alloc(a, 4 + 2 * sizeof random + 1);
    if (s == NULL)
        return err_set(err, ERR_LIMIT, "out of memory");
    memcpy(s, "cli-", 4);
    for (size_t i = 0; i < sizeof random; i++)
        snprintf(s + 4 + 2 * i, 3, "%02x", random[i]);
    *out = s;
    return 0;
}
