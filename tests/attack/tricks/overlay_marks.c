#include "tests/attack/attack.h"
#include <sys/sysmacros.h>
#include <sys/xattr.h>

/* Whiteouts and marks that mean something to overlayfs, put there by hand (CVE-2021-3493, CVE-2023-0386). */
static int attack(void)
{
    mkdir("d", 0755);
    tried("whiteout", mknod("d/env", S_IFCHR, makedev(0, 0)));
    tried("opaque", setxattr("d", "trusted.overlay.opaque", "y", 1, 0));
    tried("redirect", setxattr("d", "trusted.overlay.redirect", "/../../../etc", 13, 0));
    tried("metacopy", setxattr("d", "trusted.overlay.metacopy", "", 0, 0));
    tried("upper-opaque-usr", setxattr("/usr/lib", "trusted.overlay.opaque", "y", 1, 0));
    setxattr("d", "user.overlay.redirect", "/../../../etc", 13, 0);     /* inert: the mount does not use user.* */
    judged("redirected", access("d/passwd", F_OK) == 0);
    tried("store", access("/assay/store/up", F_OK));
    tried("store-work", access("/assay/store/work", F_OK));
    return 0;
}

static int twin(void) { return says_ok(mkdir("e", 0755) == 0 && rename("e", "f") == 0 && rmdir("f") == 0); }

ATTACK(.tries = "whiteouts and overlay marks by hand (CVE-2021-3493, CVE-2023-0386)", .attack = attack, .twin = twin, .bare = "opaque",
       .must = { "opaque refused EPERM", "redirected refused" });
