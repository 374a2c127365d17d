/*
 * frame.h - fixed structs and descriptors over a SOCK_SEQPACKET socket between our own processes.
 *
 * One frame = one packet. Count and order of descriptors are fixed by the caller's protocol; a
 * frame with another count is ERR_PROTOCOL and its descriptors are closed.
 */
#pragma once
#include "base/err.h"

#define FRAME_FDS_MAX 8

/* Send `size` bytes and nfds descriptors (borrowed). ERR_BUSY when the socket would block. */
MUST_CHECK int frame_send(int sock, const void *bytes, size_t size, const int *fds, int nfds,
                          struct err *err);
/*
 * Receive one frame into bytes[size]. Returns its size (> 0), or 0 when the peer closed.
 * ERR_BUSY when nothing is there and the socket does not block. *out_nfds descriptors, owned by
 * the caller and close-on-exec, are put into fds[FRAME_FDS_MAX].
 */
MUST_CHECK int frame_recv(int sock, void *bytes, size_t size, int *fds, int *out_nfds,
                          struct err *err);
/* The same, and what is more than `size` goes into rest[rest_size]. */
MUST_CHECK int frame_recv_apart(int sock, void *bytes, size_t size, void *rest, size_t rest_size, int *fds, int *out_nfds,
                                struct err *err);
/* A memfd holding n bytes, sealed against any change. Returns the descriptor, owned. */
MUST_CHECK int frame_memfd(const char *name, const void *bytes, size_t n, struct err *err);
