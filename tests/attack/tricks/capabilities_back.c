#include "tests/attack/attack.h"
#include <linux/capability.h>

static int attack(void)
{
    char line[256];
    FILE *f = fopen("/proc/self/status", "r");
    while (f != NULL && fgets(line, sizeof line, f) != NULL)
        if (strncmp(line, "Cap", 3) == 0) {
            line[6] = '\0';
            judged(line, strtoull(line + 8, NULL, 16) != 0);
        }
    for (unsigned cap = 0; cap < 41; cap++) {
        struct __user_cap_header_struct h = { .version = _LINUX_CAPABILITY_VERSION_3 };
        struct __user_cap_data_struct d[2] = { 0 };
        d[cap / 32].effective = d[cap / 32].permitted = d[cap / 32].inheritable = 1u << (cap % 32);
        pid_t pid = fork();
        if (pid == 0)
            _exit(syscall(SYS_capset, &h, d) == 0 ? 0 : errno);
        errno = WEXITSTATUS(child_status(pid));
        tried("capset", errno == 0 ? 0 : -1);
    }
    return 0;
}

static int twin(void)
{
    struct __user_cap_header_struct h = { .version = _LINUX_CAPABILITY_VERSION_3 };
    struct __user_cap_data_struct d[2] = { 0 };
    return says_ok(syscall(SYS_capset, &h, d) == 0);
}

ATTACK(.tries = "raise each capability; all five sets must be empty", .attack = attack, .twin = twin, .bare = "CapEff",
       .must = { "CapEff refused", "CapBnd refused", "capset refused EPERM" });
