#include "tests/attack/attack.h"

/* sync(2) makes every disk of the host write what it holds, whoever's it is. */
static int attack(void)
{
    judged("sync", syscall(SYS_sync) == 0);
    judged("syncfs-slow", ({ double t = seconds(); for (int i = 0; i < 100; i++) syncfs(open("/usr", O_RDONLY)); seconds() - t > 5; }));
    return 0;
}

static int twin(void)
{
    int fd = open("/tmp/f", O_CREAT | O_WRONLY, 0600);
    return says_ok(fsync(fd) == 0 && fdatasync(fd) == 0 && syncfs(fd) == 0);
}

ATTACK(.tries = "make the host's disks write, again and again", .attack = attack, .twin = twin, .bare = "sync", .must = { "sync refused" });
