#include "tests/attack/attack.h"
#include <sys/inotify.h>
#include <poll.h>

static const char *const shared[] = { "/dev/null", "/usr/bin/env", "/etc/ld.so.cache", "/etc/passwd", "/usr/bin", "/dev", "/etc", "/tmp", "." };

_Noreturn static int holder(void)
{
    printf("holding\n");
    fflush(stdout);
    for (;;) {
        for (size_t i = 0; i < sizeof shared / sizeof shared[0]; i++) {
            int fd = open(shared[i], O_RDONLY);
            char b;
            if (read(fd, &b, 1) < 0)
                errno = 0;
            close(fd);
        }
        usleep(2000);
    }
}

static int attack(void)
{
    int in = inotify_init1(IN_NONBLOCK);
    for (size_t i = 0; i < sizeof shared / sizeof shared[0]; i++)
        inotify_add_watch(in, shared[i], IN_OPEN | IN_ACCESS | IN_CLOSE | IN_MODIFY);
    struct pollfd p = { .fd = in, .events = POLLIN };
    judged("events", poll(&p, 1, 300) > 0);
    tried("lease", fcntl(open("/usr/bin/env", O_RDONLY), F_SETLEASE, F_RDLCK) == 0 ? (errno = 0, -1) : -1);
    return 0;
}

static int twin(void)
{
    int in = inotify_init1(IN_NONBLOCK);
    char b[64];
    inotify_add_watch(in, "/tmp", IN_CREATE);
    close(open("/tmp/new", O_CREAT | O_WRONLY, 0600));
    return says_ok(read(in, b, sizeof b) > 0);
}

ATTACK(.tries = "inotify on files that two sandboxes share", .attack = attack, .twin = twin, .holder = holder, .bare = "events", .must = { "events refused" });
