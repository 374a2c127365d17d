#include "tests/attack/attack.h"

static int attack(void)
{
    static const char *const paths[] = {
        "/dev/mem", "/dev/kmem", "/dev/kmsg", "/dev/port", "/dev/vda", "/dev/sda", "/dev/nvme0n1", "/dev/loop0", "/dev/loop-control", "/dev/fuse",
        "/dev/kvm", "/dev/net/tun", "/dev/vhost-net", "/dev/userfaultfd", "/dev/console", "/dev/tty0", "/dev/tty1", "/dev/ttyS0",
        "/dev/hvc0", "/dev/mapper/control", "/dev/cuse", "/dev/rtc0", "/dev/watchdog", "/dev/snapshot", "/dev/uinput", "/dev/vcs", "/dev/tty",
    };
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++)
        tried_open(paths[i], O_RDONLY);
    return 0;
}

static int twin(void)
{
    char b[4];
    return says_ok(read(open("/dev/urandom", O_RDONLY), b, 4) == 4 && write(open("/dev/null", O_WRONLY), b, 4) == 4 && read(open("/dev/zero", O_RDONLY), b, 4) == 4);
}

ATTACK(.tries = "devices of the host in /dev", .attack = attack, .twin = twin, .bare = "/dev/kvm",
       .must = { "/dev/mem refused ENOENT", "/dev/fuse refused ENOENT", "/dev/tty refused ENXIO" });
