/*
 * trajframe.h - how one record lies in a trajectory log file. Others must read this in five years.
 *
 * A segment file is frames and nothing else. A frame, all integers little-endian:
 *
 *   offset size
 *        0    4  magic 0x314A5441, "ATJ1" as text
 *        4    1  version, 1
 *        5    1  kind: 1 = an episode of this server, 2 = a record appended by a client
 *        6    2  zero
 *        8    4  length of the payload, bytes
 *       12    4  CRC32C (Castagnoli) of the header with this field zero, then the payload
 *       16    8  cursor: ordinal of the record in the whole log, the first is 1
 *       24    n  payload: one assay.v1.Trajectory
 *
 * The first frame of a segment has the cursor that names the file; the next has one more, and so on. A log
 * ends before the first frame that is short, fails its check or breaks that order.
 */
#pragma once
#include "base/err.h"
#include <stdint.h>

#define TRAJFRAME_HEADER_SIZE 24
enum { TRAJFRAME_EPISODE = 1, TRAJFRAME_APPENDED = 2 };

struct trajframe { uint8_t kind; uint32_t length, crc; uint64_t cursor; };

/* Fill the header that belongs before payload[n]. */
void trajframe_write(uint8_t out[TRAJFRAME_HEADER_SIZE], uint8_t kind, uint64_t cursor, const void *payload, uint32_t n);
/* ERR_CORRUPT when these 24 bytes cannot be a frame's header of a payload of at most length_max bytes. */
MUST_CHECK int trajframe_read(struct trajframe *out, const uint8_t header[TRAJFRAME_HEADER_SIZE], uint32_t length_max,
                              struct err *err);
/* Do header and payload[f->length] belong together? */
bool trajframe_intact(const struct trajframe *f, const void *payload);

/* CRC32C of bytes that go on from those with checksum `crc` (0 at the start). */
uint32_t trajframe_crc32c(uint32_t crc, const void *bytes, size_t n);
