#include "tests/attack/attack.h"
#include <sys/sysmacros.h>
#include "tests/attack/image.h"

static int image(void)
{
    if (image_base() < 0)
        return 1;
    if (mknod("disk", S_IFBLK | 0666, makedev(254, 0)) < 0 || mknod("mem", S_IFCHR | 0666, makedev(1, 1)) < 0) return 1;
    chmod("bin/sh", 06755);
    return 0;
}

static int attack(void)
{
    tried("host-file", open(given("HOST_FILE"), O_RDONLY));
    tried("shadow", access("/etc/shadow", F_OK));
    tried("report-to-tmp", access("/tmp/r", F_OK));
    tried("disk", open("/disk", O_RDONLY));
    tried("mem", open("/mem", O_RDONLY));
    judged("effective-uid", geteuid() != getuid());
    return 0;
}

static int twin(void) { return says_ok(access("/usr/bin/env", X_OK) == 0); }

ATTACK(.tries = "an image that brings device nodes and a set-uid shell", .attack = attack, .twin = twin, .image = image, .not_bare = "the runner's own code is the defence");
