/*
 * disk.h - a directory in memory that fills up, fails, and forgets what was not synced.
 *
 * A file's first durable_len bytes are safe. A crash keeps some prefix of what was written after them, perhaps
 * damaged, perhaps bytes that had been cut off again; a file whose directory was not synced may be gone. Durable
 * bytes being overwritten or cut is a fault of the program under test.
 */
#pragma once
#include "rollout/trajlog.h"
#include "tests/sim/rng.h"

#define DISK_FILES_MAX 512

struct disk_file {
    char name[40];
    uint8_t *bytes; size_t len, cap, ghost_len;     /* bytes beyond len up to ghost_len: cut off, not yet for good */
    size_t durable_len, parsed_len;
    bool used, name_durable;
};
struct disk {
    struct rng *rng;
    struct disk_file files[DISK_FILES_MAX];
    size_t capacity;                                /* bytes of all files together */
    bool faults, dead;                              /* dead: the machine went down, perhaps within a call */
    uint32_t fault_permille;
    uint64_t fault_count;
    /* Called once for every frame that became durable. */
    void (*on_durable)(void *arg, uint64_t cursor, const uint8_t *payload, size_t n);
    void *arg;
};

void disk_io(struct disk *d, struct trajlog_io *out);
void disk_crash(struct disk *d);
void disk_done(struct disk *d);
size_t disk_used(const struct disk *d);
