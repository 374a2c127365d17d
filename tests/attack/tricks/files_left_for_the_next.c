#include "tests/attack/attack.h"

static const char *const places[] = { "/tmp/mark", "/dev/shm/mark", "/var/tmp/mark", "/home/sandbox/mark", "/usr/bin/mark", "/etc/mark", "/dev/mark", "./mark" };

static int earlier(void)
{
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++)
        close(open(places[i], O_CREAT | O_WRONLY, 0777));
    int fd = open("/etc/ld.so.preload", O_CREAT | O_WRONLY, 0644);
    if (fd >= 0 && access("/etc/shadow", F_OK) < 0 && write(fd, "/tmp/evil.so\n", 13) != 13)    /* never where it is the host's */
        return 1;
    return 0;
}

static int attack(void)
{
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++)
        tried(places[i], access(places[i], F_OK));
    tried("preload", access("/etc/ld.so.preload", F_OK));
    return 0;
}

static int twin(void) { return says_ok(open("/usr/bin/own", O_CREAT | O_WRONLY, 0755) >= 0 && access("/usr/bin/own", F_OK) == 0); }

ATTACK(.tries = "trojans left for the next sandbox: programs, ld.so.preload, shared memory", .attack = attack, .twin = twin, .earlier = earlier,
       .bare = "/tmp/mark", .must = { "/usr/bin/mark refused ENOENT", "preload refused ENOENT" });
