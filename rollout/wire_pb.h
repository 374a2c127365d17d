/* wire_pb.h - private to rollout/wire*.c: what both files need of a foreign message. */
#pragma once
#include "base/arena.h"
#include "proto/message.h"

/* Unpack (proto/message.h), or NULL with ERR_BAD_INPUT in *err. */
void *wire_unpack(const ProtobufCMessageDescriptor *d, const char *what, const void *bytes, size_t n, struct err *err);
/* Copy a foreign string: UTF-8, no control characters, at most max bytes. NULL on error. */
const char *wire_text(struct arena *a, const char *field, const char *s, size_t max, struct err *err);
bool wire_utf8(const char *s, size_t n);
