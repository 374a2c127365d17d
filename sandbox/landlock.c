/* landlock.c - see landlock.h. The kernel's numbers stand here: the headers may be older than the kernel. */
#include "sandbox/landlock.h"
#include "base/own.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

struct ruleset { uint64_t files, net, scopes; };
struct __attribute__((packed)) beneath { uint64_t allowed; int32_t parent; };
enum { RULE_BENEATH = 1, CREATE_VERSION = 1 };

#define FILE_ALL_V2     ((UINT64_C(1) << 14) - 1)       /* execute ... refer */
#define FILE_MAKE_CHAR  (UINT64_C(1) << 6)
#define FILE_MAKE_BLOCK (UINT64_C(1) << 11)
#define FILE_TRUNCATE   (UINT64_C(1) << 14)             /* v3 */
#define FILE_IOCTL_DEV  (UINT64_C(1) << 15)             /* v5 */
#define SCOPE_ALL       UINT64_C(3)                     /* v6: abstract sockets, signals */
#define LOG_NOTHING     5u                              /* v7: neither this fence nor those made inside fill a log */

int landlock_version(void)
{
    long v = syscall(SYS_landlock_create_ruleset, NULL, (size_t)0, CREATE_VERSION);
    return v < 0 ? 0 : (int)v;
}

static int grant_at(int rules, int fd, uint64_t what)
{
    struct beneath b = { .allowed = what, .parent = fd };
    return fd < 0 ? -1 : (int)syscall(SYS_landlock_add_rule, rules, RULE_BENEATH, &b, 0);
}

static int grant(int rules, const char *path, uint64_t what)
{
    own_fd fd = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return grant_at(rules, fd, what);
}

int landlock_confine(int version, enum sandbox_profile profile, int queues, struct err *err)
{
    struct ruleset r = { .scopes = version >= 6 ? SCOPE_ALL : 0 };
    /* Version 1 forbids renames and links from one directory to another altogether: real suites need them. */
    if (profile == SANDBOX_STRICT && version >= 2)
        r.files = FILE_ALL_V2 | (version >= 3 ? FILE_TRUNCATE : 0) | (version >= 5 ? FILE_IOCTL_DEV : 0);
    if (r.files == 0 && r.scopes == 0)
        return 0;
    own_fd rules = (int)syscall(SYS_landlock_create_ruleset, &r, sizeof r, 0);
    if (rules < 0)
        return err_sys(err, ERR_SYS, "second fence (Landlock %d)", version);
    const uint64_t dev = r.files & FILE_IOCTL_DEV, usual = r.files & ~(FILE_MAKE_CHAR | FILE_MAKE_BLOCK | FILE_IOCTL_DEV);
    if (r.files != 0 && (grant(rules, "/", usual) < 0 || (queues >= 0 && grant_at(rules, queues, usual) < 0)))
        return err_sys(err, ERR_SYS, "second fence: root");
    if (dev != 0 && grant(rules, "/dev", dev) < 0 && errno != ENOENT && errno != ENOTDIR && errno != ELOOP)
        return err_sys(err, ERR_SYS, "second fence: /dev");     /* an earlier run may have moved it away: its own loss */
    if (syscall(SYS_landlock_restrict_self, rules, version >= 7 ? LOG_NOTHING : 0) < 0)
        return err_sys(err, ERR_SYS, "second fence (Landlock %d)", version);
    return 0;
}
