/*
 * safetensors.h - the file format of Hugging Face weights: 8 bytes of little-endian header length,
 * a JSON header {name: {dtype, shape, data_offsets}}, then the bytes. float32 only.
 *
 * A foreign file is not trusted: offsets, shapes and the header's size are checked against the file
 * before anything is read.
 */
#pragma once
#include "base/buf.h"
#include <stdint.h>

struct safetensors_entry {
    const char *name;
    const float *data;                  /* writing: the bytes; reading: where they go (as float *) */
    size_t rows, cols;
    bool is_vector;
};

/* key = value pairs for "__metadata__"; ends at key NULL. */
struct safetensors_meta { const char *key, *value; };

/* Write to fd from its start; the caller syncs and renames. */
MUST_CHECK int safetensors_write(int fd, const struct safetensors_entry *e, size_t n, const struct safetensors_meta *meta,
                                 struct err *err);

struct safetensors;
/* Opens and checks the header; *out is owned. `path` is for messages too. */
MUST_CHECK int safetensors_open(struct safetensors **out, const char *path, struct err *err);
void safetensors_close(struct safetensors *s);
const char *safetensors_meta_get(const struct safetensors *s, const char *key);     /* NULL: not there */
/* Read one tensor of n elements; ERR_NOT_FOUND, or ERR_BAD_INPUT when type or shape differ. is_vector: shape [rows]. */
MUST_CHECK int safetensors_read(struct safetensors *s, const char *name, float *to, size_t rows, size_t cols, bool is_vector,
                                struct err *err);
