#include "tests/attack/attack.h"

/* Every number up to 1023 that no table of today names, and each number that the policy leaves out, must be ENOSYS. */
static int attack(void)
{
    int odd = 0;
    for (long nr = 470; nr < 1024; nr++)
        odd += syscall(nr, -1, -1, -1, -1, -1, -1) != -1 || errno != ENOSYS;
    judged("numbers-above", odd > 0);
    static const int left_out[] = { SYS_uselib, SYS_ustat, SYS_sysfs, SYS_vhangup, SYS__sysctl, SYS_create_module, SYS_get_kernel_syms,
                                    SYS_query_module, SYS_nfsservctl, SYS_getpmsg, SYS_putpmsg, SYS_afs_syscall, SYS_tuxcall, SYS_security,
                                    SYS_remap_file_pages, SYS_epoll_ctl_old, SYS_kcmp, SYS_lookup_dcookie, SYS_pidfd_getfd, SYS_memfd_secret,
                                    461 /* lsm_list_modules */, 459, 460, 457 /* statmount */, 458 };
    for (size_t i = 0; i < sizeof left_out / sizeof left_out[0]; i++) {
        long rc = syscall(left_out[i], -1L, -1L, -1L, -1L, -1L, -1L);
        char what[24];
        snprintf(what, sizeof what, "number-%d", left_out[i]);
        judged(what, rc != -1 || errno != ENOSYS);
    }
    return 0;
}

static int twin(void) { return says_ok(syscall(SYS_getpid) == getpid()); }

ATTACK(.tries = "numbers that no policy row names, old and to come", .attack = attack, .twin = twin, .bare = "number-312",
       .must = { "numbers-above refused", "number-312 refused" });
