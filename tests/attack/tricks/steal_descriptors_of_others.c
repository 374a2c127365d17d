#include "tests/attack/attack.h"

static int attack(void)
{
    long fd = syscall(SYS_pidfd_open, 1, 0);
    for (int i = 0; i < 8; i++)
        tried("pidfd_getfd", syscall(SYS_pidfd_getfd, fd, i, 0));
    tried("kcmp", syscall(SYS_kcmp, getpid(), 1, 2, 0, 0));
    tried_open("/proc/1/fd", O_RDONLY | O_DIRECTORY);
    tried_open("/proc/1/fdinfo", O_RDONLY | O_DIRECTORY);
    return 0;
}

static int twin(void)
{
    long fd = syscall(SYS_pidfd_open, getpid(), 0);
    return says_ok(fd >= 0 && syscall(SYS_pidfd_send_signal, fd, 0, NULL, 0) == 0);
}

ATTACK(.tries = "pidfd_getfd and kcmp on init's descriptors", .attack = attack, .twin = twin, .bare = "pidfd_getfd",
       .must = { "pidfd_getfd refused ENOSYS", "kcmp refused ENOSYS", "/proc/1/fd refused ENOENT" });
