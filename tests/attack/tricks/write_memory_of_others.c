#include "tests/attack/attack.h"
#include <sys/uio.h>

static int attack(void)
{
    char bytes[8] = "x";
    struct iovec here = { bytes, 8 }, there = { bytes, 8 };
    tried("process_vm_readv", process_vm_readv(1, &here, 1, &there, 1, 0) < 0 && errno != EFAULT ? -1 : 0);
    tried("process_vm_writev", process_vm_writev(1, &here, 1, &there, 1, 0) < 0 && errno != EFAULT ? -1 : 0);
    tried_open("/proc/1/mem", O_RDWR);
    tried("process_madvise", syscall(SYS_process_madvise, syscall(SYS_pidfd_open, 1, 0), &there, 1, 21, 0) < 0 && errno != EFAULT ? -1 : 0);
    tried("process_mrelease", syscall(SYS_process_mrelease, syscall(SYS_pidfd_open, 1, 0), 0) < 0 && errno != EINVAL ? -1 : 0);
    tried("move_pages", syscall(SYS_move_pages, 1, 0, NULL, NULL, NULL, 0));
    return 0;
}

static int twin(void)
{
    int fd = open("/proc/self/mem", O_RDWR), v = 1, w = 2;
    return says_ok(pwrite(fd, &w, sizeof w, (off_t)(uintptr_t)&v) == sizeof w && *(volatile int *)&v == 2);
}

ATTACK(.tries = "process_vm_writev, /proc/1/mem, process_madvise on init", .attack = attack, .twin = twin, .bare = "process_vm_writev",
       .must = { "process_vm_writev refused ENOSYS", "/proc/1/mem refused ENOENT" },
       .compatible = { .must = { "process_vm_writev refused EPERM", "/proc/1/mem refused ENOENT" } });
