#include "tests/attack/attack.h"

static int holder(void)
{
    static const char *const places[] = { "/tmp", "/dev/shm", "/var/tmp", "/home/sandbox", ".", "/run", "/dev" };
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        char path[64];
        snprintf(path, sizeof path, "%s/neighbour-was-here", places[i]);
        close(open(path, O_CREAT | O_WRONLY, 0666));
    }
    hold();
    return 0;
}

static int attack(void)
{
    static const char *const places[] = { "/tmp", "/dev/shm", "/var/tmp", "/home/sandbox", ".", "/run", "/dev" };
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        char path[64];
        snprintf(path, sizeof path, "%s/neighbour-was-here", places[i]);
        tried(places[i], access(path, F_OK));
    }
    return 0;
}

static int twin(void) { return says_ok(open("/dev/shm/x", O_CREAT | O_RDWR, 0600) >= 0 && open("/var/tmp/x", O_CREAT | O_RDWR, 0600) >= 0); }

ATTACK(.tries = "a file of a neighbour in a shared directory (isolate 2.6: /dev/shm)", .attack = attack, .twin = twin, .holder = holder, .bare = "/tmp",
       .must = { "/dev/shm refused ENOENT", "/tmp refused ENOENT" });
