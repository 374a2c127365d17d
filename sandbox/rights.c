/* rights.c - the order matters: each step needs what a later one takes away. */
#include "sandbox/rights.h"
#include <errno.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/keyctl.h>
#include <linux/securebits.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

int rights_drop(const struct kit *kit, uid_t id, const struct sock_fprog *filter, uint64_t keep, struct err *err)
{
    struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
    struct __user_cap_data_struct kept[2] = {
        { (uint32_t)keep, (uint32_t)keep, (uint32_t)keep },
        { (uint32_t)(keep >> 32), (uint32_t)(keep >> 32), (uint32_t)(keep >> 32) },
    };
    if (kit->userns >= 0 && setns(kit->userns, CLONE_NEWUSER) < 0)
        return err_sys(err, ERR_SYS, "enter the user namespace");
    if ((!kit->rootless && setgroups(0, NULL) < 0) || setresgid(id, id, id) < 0 || setresuid(id, id, id) < 0)
        return err_sys(err, ERR_SYS, "become uid %u of the user namespace", (unsigned)id);
    syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL);     /* a kernel without keyrings has none to leak */
    const unsigned long secure = SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | SECBIT_NO_SETUID_FIXUP |
        SECBIT_NO_SETUID_FIXUP_LOCKED | SECBIT_KEEP_CAPS_LOCKED | SECBIT_NO_CAP_AMBIENT_RAISE |
        SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED;
    for (unsigned long cap = 0; keep >> cap != 0; cap++) {
        struct __user_cap_data_struct all[2];   /* to be ambient it must be inheritable first, while there is a bounding set */
        if (!((keep >> cap) & 1))
            continue;
        if (syscall(SYS_capget, &head, all) < 0 || (all[cap / 32].inheritable |= 1u << cap % 32, syscall(SYS_capset, &head, all)) < 0 ||
            prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, cap, 0, 0) < 0)
            return err_sys(err, ERR_SYS, "capability to keep");
    }
    if (prctl(PR_SET_SECUREBITS, secure) < 0)
        return err_sys(err, ERR_SYS, "secure bits");
    unsigned long cap = 0;
    while (prctl(PR_CAPBSET_DROP, cap) == 0)
        cap++;
    if (errno != EINVAL || cap == 0)            /* EINVAL: the kernel has no such capability, nor any above */
        return err_sys(err, ERR_SYS, "bounding set");
    if (syscall(SYS_capset, &head, kept) < 0)
        return err_sys(err, ERR_SYS, "drop capabilities");
    if (prctl(PR_SET_DUMPABLE, 0) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return err_sys(err, ERR_SYS, "no_new_privs");
    if (filter != NULL && syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, filter) < 0)
        return err_sys(err, ERR_SYS, "system call filter");
    return 0;
}
