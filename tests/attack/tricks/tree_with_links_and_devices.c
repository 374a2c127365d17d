#include "tests/attack/attack.h"
#include <sys/sysmacros.h>

/* The snapshot's tree: links to the host, nodes, set-uid files, a FIFO. */
static int tree(void)
{
    return symlink("/etc/shadow", "shadow") < 0 || symlink("../../../../../../etc/shadow", "up") < 0 || symlink("/proc/1/root/etc/shadow", "magic") < 0 ||
           symlink(given("HOST_FILE"), "secret") < 0 || mkfifo("fifo", 0666) < 0 || mknod("disk", S_IFBLK | 0666, makedev(254, 0)) < 0 ||
           mknod("mem", S_IFCHR | 0666, makedev(1, 1)) < 0 || mknod("whiteout", S_IFCHR, makedev(0, 0)) < 0;
}

static int attack(void)
{
    static const char *const names[] = { "shadow", "up", "magic", "secret", "disk", "mem" };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        tried_open(names[i], O_RDONLY);
    return 0;
}

static int twin(void) { return says_ok(symlink("attacker", "l") == 0 && access("l", F_OK) == 0); }

ATTACK(.tries = "a tree with links to the host, device nodes and a FIFO", .attack = attack, .twin = twin, .tree = tree, .bare = "shadow",
       .must = { "secret refused ENOENT", "disk refused EACCES", "mem refused EACCES" });
