#include "tests/attack/attack.h"

/* The test opened / without close-on-exec before it started the jail. */
static int attack(void)
{
    int seen = 0;
    for (int fd = 3; fd < 65536; fd++)
        if (fcntl(fd, F_GETFD) >= 0) {
            seen++;
            tried("descriptor", fd);
            tried("descriptor-climb", openat(fd, "../../etc/shadow", O_RDONLY));
        }
    printf("descriptors refused %d\n", seen);
    for (int fd = 0; fd < 3; fd++)
        tried("standard-descriptor-climb", openat(fd, "../../../etc/shadow", O_RDONLY));
    return 0;
}

static int twin(void) { return says_ok(dup2(1, 700) == 700 && fcntl(700, F_GETFD) >= 0); }

ATTACK(.tries = "a descriptor of the host left open (runc CVE-2024-21626, CVE-2016-9962)", .attack = attack, .twin = twin,
       .bare = "descriptor", .must = { "descriptors refused 0\n" });
