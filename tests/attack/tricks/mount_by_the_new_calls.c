#include "tests/attack/attack.h"
#include <sys/mount.h>

static int attack(void)
{
    struct mount_attr attr = { 0 };
    long fs = syscall(SYS_fsopen, "tmpfs", 0);
    tried("fsopen", fs);
    tried("fsconfig", syscall(SYS_fsconfig, fs, 6, NULL, NULL, 0));
    tried("fsmount", syscall(SYS_fsmount, fs, 0, 0));
    tried("open_tree", syscall(SYS_open_tree, AT_FDCWD, "/", OPEN_TREE_CLONE));
    tried("open_tree_attr", syscall(467, AT_FDCWD, "/", OPEN_TREE_CLONE, &attr, sizeof attr));
    tried("move_mount", syscall(SYS_move_mount, AT_FDCWD, "/proc", AT_FDCWD, "/tmp", 0));
    tried("mount_setattr", syscall(SYS_mount_setattr, AT_FDCWD, "/tmp", 0, &attr, sizeof attr));
    tried("fspick", syscall(SYS_fspick, AT_FDCWD, "/tmp", 0));
    tried("listmount", syscall(458, NULL, NULL, 0, 0) == -1 && errno == ENOSYS ? -1 : 0);
    return 0;
}

static int twin(void)
{
    struct stat st;
    return says_ok(stat("/tmp", &st) == 0 && S_ISDIR(st.st_mode));
}

ATTACK(.tries = "fsopen and its family (CVE-2022-0185 was in fsconfig)", .attack = attack, .twin = twin, .bare = "fsopen",
       .must = { "fsopen refused ENOSYS", "open_tree refused ENOSYS", "mount_setattr refused ENOSYS" },
       .compatible = { .must = { "fsopen refused EPERM", "open_tree refused EPERM", "mount_setattr refused EPERM" } });
