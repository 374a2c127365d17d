#include "tests/attack/attack.h"

/* A call that gets as far as the kernel's own checks has passed the fence, whatever they say. */
static void reached(const char *what, long rc)
{
    judged(what, rc >= 0 || (errno != ENOSYS && errno != EPERM));
}

static int attack(void)
{
    reached("reboot", syscall(SYS_reboot, 1, 2, 3, NULL));
    reached("swapon", syscall(SYS_swapon, "/tmp/none", 0));
    reached("swapoff", syscall(SYS_swapoff, "/tmp/none"));
    reached("acct", syscall(SYS_acct, "/tmp/none/none"));
    reached("quotactl", syscall(SYS_quotactl, 0x80000100, NULL, 0, NULL));
    reached("syslog", syscall(SYS_syslog, 10, NULL, 0));
    reached("vhangup-fanotify", syscall(SYS_fanotify_init, 0xffffffff, 0));
    reached("lookup_dcookie", syscall(SYS_lookup_dcookie, 0, NULL, 0));
    reached("memfd_secret", syscall(SYS_memfd_secret, 0xffff));
    reached("migrate_pages", syscall(SYS_migrate_pages, -1, 0, NULL, NULL));
    return 0;
}

static int twin(void) { return says_ok(getpid() > 1); }

ATTACK(.tries = "reboot, swap, accounting, quotas, kernel log, fanotify", .attack = attack, .twin = twin, .bare = "swapon",
       .must = { "reboot refused", "syslog refused", "quotactl refused" });
