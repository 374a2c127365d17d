/*
 * policy.h - which policy version is current, one count per run name, kept across restarts.
 *
 * One small file per run below the book's directory, named by the digest of the run name: the stored
 * PolicyVersion message, written aside, synced and renamed. Versions go up by one; publishing the
 * current one again with the same manifest digest is the repeat of a lost reply and succeeds.
 */
#pragma once
#include "base/buf.h"
#include "base/err.h"
#include <stdint.h>

/* Bytes of a PublishRequest to a PublishResponse. ERR_CONFLICT names the version that is wanted. */
MUST_CHECK int policy_publish(int dir_fd, struct buf *answer, const void *request, size_t n, uint64_t now_unix_ns,
                              struct err *err);
/* Bytes of a CurrentRequest to a PolicyVersion; version 0 when the run has none yet. */
MUST_CHECK int policy_current(int dir_fd, struct buf *answer, const void *request, size_t n, struct err *err);
