#include "tests/attack/attack.h"
#include <sys/sysmacros.h>
#include "tests/attack/image.h"

static int image(void)
{
    if (image_base() < 0)
        return 1;
    mkdir("etc", 0755); if (symlink("../../../../etc/shadow", "etc/passwd") < 0) return 1;
    return 0;
}

static int attack(void)
{
    tried("host-file", open(given("HOST_FILE"), O_RDONLY));
    tried("shadow", access("/etc/shadow", F_OK));
    tried("report-to-tmp", access("/tmp/r", F_OK));
    return 0;
}

static int twin(void) { return says_ok(access("/usr/bin/env", X_OK) == 0); }

ATTACK(.tries = "an image whose /etc/passwd is a link to the host's shadow", .attack = attack, .twin = twin, .image = image, .not_bare = "the runner's own code is the defence", .image_refused = true);
