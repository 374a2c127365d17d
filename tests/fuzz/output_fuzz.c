/*
 * output_fuzz.c - the capped reader of a run's output: whatever comes in whatever pieces, head and tail are what came
 * first and last, and the middle is counted. A ring with any number in it gives a memfd of bounded size.
 *
 * Input: pieces, each a length (three bytes, the last is its pattern) repeated; a length of 0xffff breaks the total.
 */
#include "sandbox/ring.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { TOTAL_MAX = 1 << 20 };

static char *contents(const struct ring *r, size_t *out_len)
{
    static char text[2 * SANDBOX_OUTPUT_KEEP + 256];
    struct err err;
    struct stat st;
    int fd = ring_memfd(r, &err);
    if (fd < 0 || fstat(fd, &st) < 0 || (size_t)st.st_size > sizeof text || pread(fd, text, sizeof text, 0) != st.st_size ||
        fcntl(fd, F_GET_SEALS) != (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL))
        abort();
    close(fd);
    *out_len = (size_t)st.st_size;
    return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static struct ring ring;
    static uint8_t chunk[65536];
    static uint8_t all[TOTAL_MAX];
    size_t total = 0, len, keep = SANDBOX_OUTPUT_KEEP;
    int ends[2];
    bool broken = false;
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0)
        abort();
    ring.total = ring.over = 0;
    for (const uint8_t *p = data; n - (size_t)(p - data) >= 3 && !broken; p += 3) {
        size_t piece = (size_t)p[0] << 8 | p[1];
        broken = piece == 0xffff;
        if (piece > TOTAL_MAX - total)
            break;
        for (size_t i = 0; i < piece; i++)
            all[total + i] = (uint8_t)(p[2] + (p[2] & 1 ? i * 7 + (i >> 8) : 0));
        if (piece > 0 && write(ends[1], all + total, piece) != (ssize_t)piece)
            abort();                            /* a pipe takes 64 KiB */
        total += piece;
        if (ring_take(&ring, ends[0], UINT64_MAX, chunk, sizeof chunk) < 0)     /* nothing there is not the end */
            abort();
    }
    if (broken) {
        memcpy(&ring.total, data, n < sizeof ring.total ? n : sizeof ring.total);
        (void)contents(&ring, &len);
    } else {
        char marker[128];
        const char *text = contents(&ring, &len);
        size_t head = total < keep ? total : keep, tail = total - head < keep ? total - head : keep, cut = total - head - tail;
        int mark = cut == 0 ? 0 : snprintf(marker, sizeof marker, "\n[... %zu bytes left out ...]\n", cut);
        if (ring.total != total || len != head + (size_t)mark + tail || memcmp(text, all, head) != 0 ||
            memcmp(text + head, marker, (size_t)mark) != 0 || memcmp(text + head + mark, all + total - tail, tail) != 0)
            abort();
    }
    close(ends[1]);
    while (!broken && ring_take(&ring, ends[0], UINT64_MAX, chunk, sizeof chunk) >= 0)
        if (ring.total > total)
            abort();
    close(ends[0]);
    return 0;
}
