#include "tests/attack/attack.h"
#include <sys/statvfs.h>

static int attack(void)
{
    static char bytes[1 << 20];
    size_t n = 0;
    int fd = open("/tmp/f", O_CREAT | O_WRONLY, 0600), s = open("/tmp/s", O_CREAT | O_WRONLY, 0600);
    signal(SIGXFSZ, SIG_IGN);
    tried("sparse-8-exabytes", ftruncate(s, 0x7fffffffffffffff));
    tried("allocate", fallocate(s, 0, 0, 1ll << 30));
    memset(bytes, 1, sizeof bytes);
    while (n < (size_t)64 << 20 && write(fd, bytes, sizeof bytes) == (ssize_t)sizeof bytes)
        n += sizeof bytes;
    judged("bytes", n >= (size_t)64 << 20);
    return 0;
}

static int twin(void) { return says_ok(ftruncate(open("/tmp/t", O_CREAT | O_WRONLY, 0600), 1 << 20) == 0); }

ATTACK(.tries = "fill the disk: real, sparse and preallocated", .attack = attack, .twin = twin, .bare = "bytes", .hits = SANDBOX_HIT_DISK,
       .must = { "bytes refused", "allocate refused", "sparse-8-exabytes refused" }, .limits = { .disk_bytes = 8 * MIB });
