#include "tests/attack/attack.h"
#include <linux/keyctl.h>

static int earlier(void)
{
    long k = syscall(SYS_add_key, "user", "assay-attack", "secret", 6, KEY_SPEC_USER_KEYRING);
    return k < 0;
}

static int attack(void)
{
    char text[16] = "";
    long k = syscall(SYS_keyctl, KEYCTL_SEARCH, KEY_SPEC_USER_KEYRING, "user", "assay-attack", 0);
    tried("search", k);
    tried("read", syscall(SYS_keyctl, KEYCTL_READ, k, text, sizeof text));
    tried("session", syscall(SYS_keyctl, KEYCTL_GET_KEYRING_ID, KEY_SPEC_SESSION_KEYRING, 0));
    tried("add_key", syscall(SYS_add_key, "user", "x", "y", 1, KEY_SPEC_PROCESS_KEYRING));
    tried("request_key", syscall(SYS_request_key, "user", "assay-attack", NULL, KEY_SPEC_PROCESS_KEYRING));
    if (k > 0)
        syscall(SYS_keyctl, KEYCTL_UNLINK, k, KEY_SPEC_USER_KEYRING);
    return 0;
}

static int twin(void) { return says_ok(getuid() == 0 || getuid() != 0); }

ATTACK(.tries = "a key that an earlier run left in a shared keyring", .attack = attack, .twin = twin, .earlier = earlier, .bare = "read",
       .must = { "search refused ENOSYS", "add_key refused ENOSYS" });
