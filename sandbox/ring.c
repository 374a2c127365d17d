/* ring.c - see ring.h. */
#include "sandbox/ring.h"
#include "base/frame.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

ssize_t ring_take(struct ring *ring, int fd, uint64_t allowed, uint8_t *chunk, size_t size)
{
    if (ring->over)
        return 0;
    ssize_t n = read(fd, chunk, allowed < size ? (size_t)allowed + 1 : size);
    if (n <= 0)
        return n < 0 && (errno == EINTR || errno == EAGAIN) ? 0 : -1;
    const uint8_t *p = chunk;
    ring->over = (uint64_t)n > allowed;
    const size_t kept = (size_t)n - ring->over;
    size_t left = kept;
    if (ring->total < SANDBOX_OUTPUT_KEEP) {
        size_t room = (size_t)(SANDBOX_OUTPUT_KEEP - ring->total), k = left < room ? left : room;
        memcpy(ring->head + ring->total, p, k);
        ring->total += k;
        p += k;
        left -= k;
    }
    while (left > 0) {
        size_t at = (size_t)((ring->total - SANDBOX_OUTPUT_KEEP) % SANDBOX_OUTPUT_KEEP);
        size_t room = SANDBOX_OUTPUT_KEEP - at, k = left < room ? left : room;
        memcpy(ring->tail + at, p, k);
        ring->total += k;
        p += k;
        left -= k;
    }
    return (ssize_t)kept;
}

int ring_memfd(const struct ring *r, struct err *err)
{
    static uint8_t text[2 * SANDBOX_OUTPUT_KEEP + 128];
    static int nothing = -1;                    /* one for all: sealed and empty, it can carry nothing from one to another */
    uint64_t total = r->total;
    if (total == 0 && nothing < 0)
        nothing = frame_memfd("output", "", 0, err);
    if (total == 0) {
        int fd = nothing < 0 ? -1 : fcntl(nothing, F_DUPFD_CLOEXEC, 0);
        return fd >= 0 ? fd : err_sys(err, ERR_SYS, "output");
    }
    uint64_t past = total > SANDBOX_OUTPUT_KEEP ? total - SANDBOX_OUTPUT_KEEP : 0;
    size_t n = (size_t)(past == 0 ? total : SANDBOX_OUTPUT_KEEP);
    memcpy(text, r->head, n);
    if (past > SANDBOX_OUTPUT_KEEP) {
        n += (size_t)snprintf((char *)text + n, 128, "\n[... %llu bytes left out ...]\n",
                              (unsigned long long)(past - SANDBOX_OUTPUT_KEEP));
        size_t cut = (size_t)(past % SANDBOX_OUTPUT_KEEP);
        memcpy(text + n, r->tail + cut, SANDBOX_OUTPUT_KEEP - cut);
        memcpy(text + n + SANDBOX_OUTPUT_KEEP - cut, r->tail, cut);
        n += SANDBOX_OUTPUT_KEEP;
    } else if (past > 0) {
        memcpy(text + n, r->tail, (size_t)past);
        n += (size_t)past;
    }
    return frame_memfd("output", text, n, err);
}
