#include "tests/attack/attack.h"
#include <sys/file.h>

static const char *const shared[] = { "/dev/null", "/dev/zero", "/dev/urandom", "/usr/bin/env", "/etc/ld.so.cache", "/etc/passwd", "/proc/self/ns/uts",
                                      "/proc/version", "/", "/usr", "/tmp", "/dev", "/proc/sys/kernel/ostype", "attacker" };

static int holder(void)
{
    for (size_t i = 0; i < sizeof shared / sizeof shared[0]; i++)
        flock(open(shared[i], O_RDONLY), LOCK_EX | LOCK_NB);
    struct flock l = { .l_type = F_WRLCK };
    fcntl(open("/dev/null", O_RDWR), F_SETLK, &l);
    fcntl(open("/dev/null", O_RDWR), F_OFD_SETLK, &l);
    hold();
    return 0;
}

/* What another holds, one can feel: a channel, and a way to make others wait. */
static int attack(void)
{
    for (size_t i = 0; i < sizeof shared / sizeof shared[0]; i++) {
        int fd = open(shared[i], O_RDONLY);
        if (fd >= 0)
            judged(shared[i], flock(fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK);
    }
    struct flock l = { .l_type = F_WRLCK };
    judged("record-lock", fcntl(open("/dev/null", O_RDWR), F_SETLK, &l) < 0 && (errno == EAGAIN || errno == EACCES));
    return 0;
}

static int twin(void)
{
    int a = open("/tmp/l", O_CREAT | O_RDWR, 0600), b = open("/tmp/l", O_RDWR);
    return says_ok(flock(a, LOCK_EX | LOCK_NB) == 0 && flock(b, LOCK_EX | LOCK_NB) < 0);
}

ATTACK(.tries = "locks on files that two sandboxes share: a channel, and a way to stall", .attack = attack, .twin = twin, .holder = holder,
       .bare = "/dev/null", .must = { "/dev/null refused", "/usr/bin/env refused", "/etc/passwd refused" });
