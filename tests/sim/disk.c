/* disk.c - see disk.h. */
#include "tests/sim/disk.h"
#include "tests/sim/world.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int fails(struct disk *d, const char *what, struct err *err)
{
    d->dead = d->dead || (d->faults && rng_permille(d->rng, 4));
    if (d->dead || (d->faults && rng_permille(d->rng, d->fault_permille))) {
        d->fault_count++;
        errno = EIO;
        return err_sys(err, ERR_SYS, "%s", what);
    }
    return 0;
}

size_t disk_used(const struct disk *d)
{
    size_t n = 0;
    for (int i = 0; i < DISK_FILES_MAX; i++)
        n += d->files[i].used ? d->files[i].len : 0;
    return n;
}

static int disk_lock(void *ctx, struct err *err) { (void)ctx, (void)err; return 0; }

static int disk_open(void *ctx, const char *name, bool create, struct err *err)
{
    struct disk *d = ctx;
    int spare = -1;
    for (int i = 0; i < DISK_FILES_MAX; i++) {
        if (d->files[i].used && strcmp(d->files[i].name, name) == 0)
            return i;
        if (!d->files[i].used && spare < 0)
            spare = i;
    }
    if (!create) {
        errno = ENOENT;
        return err_sys(err, ERR_SYS, "open %s", name);
    }
    int rc = fails(d, "open", err);
    if (rc < 0)
        return rc;
    sim_require(spare >= 0, "disk", "more than %d files", DISK_FILES_MAX);
    struct disk_file *f = &d->files[spare];
    *f = (struct disk_file){ .used = true };
    snprintf(f->name, sizeof f->name, "%s", name);
    return spare;
}

static int disk_size(void *ctx, int handle, uint64_t *out, struct err *err)
{
    (void)err;
    *out = ((struct disk *)ctx)->files[handle].len;
    return 0;
}

static int disk_read(void *ctx, int handle, uint64_t offset, void *bytes, size_t n, size_t *out_n, struct err *err)
{
    (void)err;
    struct disk_file *f = &((struct disk *)ctx)->files[handle];
    size_t have = offset < f->len ? f->len - offset : 0;
    *out_n = have < n ? have : n;
    if (*out_n > 0)
        memcpy(bytes, f->bytes + offset, *out_n);
    return 0;
}

static int disk_write(void *ctx, int handle, uint64_t offset, const void *bytes, size_t n, struct err *err)
{
    struct disk *d = ctx;
    struct disk_file *f = &d->files[handle];
    sim_require(offset >= f->durable_len, "I2", "%s: durable byte %llu is overwritten", f->name, (unsigned long long)offset);
    sim_require(offset <= f->len, "disk", "%s: a hole is written", f->name);
    size_t room = d->capacity > disk_used(d) ? d->capacity - disk_used(d) : 0, part = n;
    int rc = fails(d, "write", err);
    if (rc < 0)
        part = rng_below(d->rng, (uint32_t)n + 1);
    if (offset + part > f->len && offset + part - f->len > room) {
        part = f->len + room - offset;
        d->fault_count++;
        errno = ENOSPC;
        rc = err_sys(err, ERR_SYS, "write");
    }
    if (offset + part > f->cap) {
        f->cap = (offset + part) * 2;
        f->bytes = realloc(f->bytes, f->cap);
    }
    if (part > 0)
        memcpy(f->bytes + offset, bytes, part);
    if (offset + part > f->len)
        f->len = offset + part;
    if (f->len > f->ghost_len)
        f->ghost_len = f->len;
    return rc;
}

static int disk_sync(void *ctx, int handle, struct err *err)
{
    struct disk *d = ctx;
    struct disk_file *f = &d->files[handle];
    int rc = fails(d, "sync", err);
    if (rc < 0)
        return rc;
    f->durable_len = f->ghost_len = f->len;
    while (f->durable_len - f->parsed_len >= TRAJFRAME_HEADER_SIZE) {
        struct trajframe t;
        struct err bad = { 0 };
        const uint8_t *p = f->bytes + f->parsed_len;
        sim_require(trajframe_read(&t, p, UINT32_MAX, &bad) == 0 && f->parsed_len + TRAJFRAME_HEADER_SIZE + t.length <= f->len,
                    "I2", "%s: what was synced is no frame at %zu", f->name, f->parsed_len);
        d->on_durable(d->arg, t.cursor, p + TRAJFRAME_HEADER_SIZE, t.length);
        f->parsed_len += TRAJFRAME_HEADER_SIZE + t.length;
    }
    return 0;
}

static int disk_truncate(void *ctx, int handle, uint64_t size, struct err *err)
{
    struct disk *d = ctx;
    struct disk_file *f = &d->files[handle];
    int rc = fails(d, "truncate", err);
    if (rc < 0)
        return rc;
    sim_require(size >= f->durable_len, "I2", "%s: durable bytes are cut at %llu", f->name, (unsigned long long)size);
    sim_require(size <= f->len, "disk", "%s: truncate beyond its end", f->name);
    f->len = size;
    return 0;
}

static int disk_sync_dir(void *ctx, struct err *err)
{
    struct disk *d = ctx;
    int rc = fails(d, "sync directory", err);
    for (int i = 0; rc == 0 && i < DISK_FILES_MAX; i++)
        d->files[i].name_durable = d->files[i].used;
    return rc;
}

static int disk_list(void *ctx, int (*each)(void *, const char *, struct err *), void *arg, struct err *err)
{
    struct disk *d = ctx;
    int rc = 0;
    for (int i = 0; rc == 0 && i < DISK_FILES_MAX; i++)
        if (d->files[i].used)
            rc = each(arg, d->files[i].name, err);
    return rc;
}

static void disk_close(void *ctx, int handle) { (void)ctx, (void)handle; }
static void disk_closed(void *ctx) { (void)ctx; }

void disk_io(struct disk *d, struct trajlog_io *out)
{
    *out = (struct trajlog_io){ .ctx = d, .lock = disk_lock, .open = disk_open, .size = disk_size, .read = disk_read,
                                .write = disk_write, .sync = disk_sync, .truncate = disk_truncate, .sync_dir = disk_sync_dir,
                                .list = disk_list, .close = disk_close, .done = disk_closed };
}

void disk_crash(struct disk *d)
{
    for (int i = 0; i < DISK_FILES_MAX; i++) {
        struct disk_file *f = &d->files[i];
        if (!f->used)
            continue;
        if (!f->name_durable && rng_permille(d->rng, 500)) {
            sim_require(f->durable_len == 0, "I2", "%s: durable records in a file whose name was never synced", f->name);
            free(f->bytes);
            *f = (struct disk_file){ .used = false };
            continue;
        }
        size_t loose = f->ghost_len - f->durable_len;
        size_t keep = rng_below(d->rng, (uint32_t)loose + 1);
        if (keep > 0 && rng_permille(d->rng, 500))
            f->bytes[f->durable_len + rng_below(d->rng, (uint32_t)keep)] ^= (uint8_t)(1 + rng_below(d->rng, 255));
        f->len = f->ghost_len = f->durable_len + keep;
        f->name_durable = true;
    }
}

void disk_done(struct disk *d)
{
    for (int i = 0; i < DISK_FILES_MAX; i++)
        free(d->files[i].bytes);
    memset(d->files, 0, sizeof d->files);
}
