#include "tests/attack/attack.h"
#include <sys/ioctl.h>

static int attack(void)
{
    char c = '\n', code = 3;
    for (int fd = 0; fd < 3; fd++) {
        tried("TIOCSTI", ioctl(fd, TIOCSTI, &c));
        tried("TIOCSTI-high-bits", syscall(SYS_ioctl, fd, 0x100000000ul | TIOCSTI, &c));
        tried("TIOCLINUX", ioctl(fd, 0x541c, &code));
        tried("TIOCSETD", ioctl(fd, TIOCSETD, &(int){ 0 }));
        tried("VT_ACTIVATE", ioctl(fd, 0x5606, 1));
    }
    static const char *const ttys[] = { "/dev/tty", "/dev/console", "/dev/tty0", "/dev/tty1", "/dev/ttyS0", "/dev/hvc0" };
    for (size_t i = 0; i < sizeof ttys / sizeof ttys[0]; i++)
        tried_open(ttys[i], O_RDONLY);
    judged("host-ptys", access("/dev/pts/0", F_OK) == 0);
    return 0;
}

static int twin(void)
{
    int m = posix_openpt(O_RDWR | O_NOCTTY);
    char name[64];
    if (m < 0 || unlockpt(m) < 0 || ptsname_r(m, name, sizeof name) != 0)
        return says_ok(false);
    int s = open(name, O_RDWR | O_NOCTTY);
    return says_ok(s >= 0 && write(m, "x\n", 2) == 2 && isatty(s));
}

ATTACK(.tries = "type into the caller's terminal (bubblewrap CVE-2017-5226, flatpak CVE-2019-10063, snap CVE-2023-1523)", .attack = attack, .twin = twin,
       .bare = "/dev/ttyS0", .must = { "TIOCSTI refused EPERM", "TIOCSTI-high-bits refused EPERM", "TIOCLINUX refused EPERM" });
