/* policy.c - see policy.h. */
#include "rollout/policy.h"
#include "base/digest.h"
#include "base/own.h"
#include "rollout/wire.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#define RECORD_MAX ((size_t)256 << 10)

static void file_of(char out[DIGEST_HEX_SIZE + 4], const char *made_by)
{
    struct digest d;
    char hex[DIGEST_HEX_SIZE];
    digest_of(&d, made_by, strlen(made_by));
    digest_hex(hex, &d);
    snprintf(out, DIGEST_HEX_SIZE + 4, "%s.pb", hex);
}

/* The stored record, or an empty buffer when the run has published nothing. */
static int record_read(struct buf *out, int dir_fd, const char *made_by, struct err *err)
{
    char name[DIGEST_HEX_SIZE + 4];
    file_of(name, made_by);
    own_fd fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return errno == ENOENT ? 0 : err_sys(err, ERR_SYS, "policy record of run %s", made_by);
    return buf_read_fd(out, fd, err);
}

static int record_write(int dir_fd, const char *made_by, const struct buf *record, struct err *err)
{
    char name[DIGEST_HEX_SIZE + 4], aside[DIGEST_HEX_SIZE + 16];
    file_of(name, made_by);
    snprintf(aside, sizeof aside, "%s.new", name);
    own_fd fd = openat(dir_fd, aside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return err_sys(err, ERR_SYS, "policy record of run %s", made_by);
    for (size_t at = 0; at < record->len;) {
        ssize_t n = write(fd, record->data + at, record->len - at);
        if (n < 0)
            return err_sys(err, ERR_SYS, "policy record of run %s: write", made_by);
        at += (size_t)n;
    }
    if (fsync(fd) < 0 || renameat(dir_fd, aside, dir_fd, name) < 0 || fsync(dir_fd) < 0)
        return err_sys(err, ERR_SYS, "policy record of run %s: sync", made_by);
    return 0;
}

int policy_publish(int dir_fd, struct buf *answer, const void *request, size_t n, uint64_t now_unix_ns, struct err *err)
{
    own_arena a = { .budget = RECORD_MAX * 16 };
    own_buf record = { .max = RECORD_MAX };
    own_buf stored = { .max = RECORD_MAX };
    struct policy_facts wanted, current = { .manifest_sha256 = "" };
    int rc = wire_read_publish(&wanted, &record, &a, request, n, now_unix_ns, err);
    if (rc == 0)
        rc = record_read(&stored, dir_fd, wanted.made_by, err);
    if (rc >= 0 && stored.len > 0)
        rc = wire_read_policy(&current, &a, stored.data, stored.len, err);
    if (rc < 0)
        return rc;
    bool repeat = wanted.version == current.version && strcmp(wanted.manifest_sha256, current.manifest_sha256) == 0;
    if (wanted.version != current.version + 1 && !repeat)
        return err_set(err, ERR_CONFLICT, "policy version %llu of run %s: the current one is %llu, so the next must be %llu",
                       (unsigned long long)wanted.version, wanted.made_by, (unsigned long long)current.version,
                       (unsigned long long)current.version + 1);
    if (!repeat && (rc = record_write(dir_fd, wanted.made_by, &record, err)) < 0)
        return rc;
    return wire_write_publish_response(answer, wanted.version, err);
}

int policy_current(int dir_fd, struct buf *answer, const void *request, size_t n, struct err *err)
{
    own_arena a = { .budget = RECORD_MAX };
    const char *made_by;
    int rc = wire_read_current(&made_by, &a, request, n, err);
    if (rc < 0)
        return rc;
    return record_read(answer, dir_fd, made_by, err);   /* an empty message is version 0: none yet */
}
