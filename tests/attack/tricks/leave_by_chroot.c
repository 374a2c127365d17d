#include "tests/attack/attack.h"

static int attack(void)
{
    mkdir("/tmp/jail", 0755);
    int top = open("/", O_RDONLY);
    tried("chroot", chroot("/tmp/jail"));
    tried("pivot_root", syscall(SYS_pivot_root, "/tmp/jail", "/tmp/jail"));
    if (fchdir(top) < 0)
        return 1;
    for (int i = 0; i < 64; i++)
        if (chdir("..") < 0)
            break;
    tried("chroot-up", chroot("."));
    tried("shadow", access("etc/shadow", F_OK));
    return 0;
}

static int twin(void) { return says_ok(chdir("/usr") == 0 && access("bin", F_OK) == 0); }

ATTACK(.tries = "the classic: chroot, keep a directory, climb, chroot again", .attack = attack, .twin = twin, .bare = "chroot",
       .must = { "chroot refused ENOSYS", "pivot_root refused ENOSYS", "shadow refused ENOENT" },
       .compatible = { .must = { "chroot refused EPERM", "pivot_root refused EPERM" } });
