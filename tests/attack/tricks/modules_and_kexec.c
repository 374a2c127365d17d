#include "tests/attack/attack.h"

/* A call that gets as far as the kernel's own checks has passed the fence, whatever they say. */
static void reached(const char *what, long rc)
{
    judged(what, rc >= 0 || (errno != ENOSYS && errno != EPERM));
}

static int attack(void)
{
    reached("init_module", syscall(SYS_init_module, NULL, 0, ""));
    reached("finit_module", syscall(SYS_finit_module, -1, "", 0));
    reached("delete_module", syscall(SYS_delete_module, "no such module", 0));
    reached("kexec_load", syscall(SYS_kexec_load, 0, 99999, NULL, 0));
    reached("kexec_file_load", syscall(SYS_kexec_file_load, -1, -1, 0, "", 0x80000000ul));
    return 0;
}

static int twin(void) { return says_ok(access("/usr/bin/env", X_OK) == 0); }

ATTACK(.tries = "load a module or another kernel", .attack = attack, .twin = twin, .not_bare = "kernels without modules and kexec refuse by themselves", .must = { "init_module refused", "kexec_load refused" });
