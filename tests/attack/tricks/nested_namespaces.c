#include "tests/attack/attack.h"
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/sysmacros.h>

#define ALL (CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP)

static void map(const char *path, unsigned id)
{
    char line[32];
    int fd = open(path, O_WRONLY), n = snprintf(line, sizeof line, "0 %u 1", id);
    if (fd >= 0 && write(fd, line, (size_t)n) < 0)
        judged("map", false);
}

static bool readable(const char *path)
{
    char b[1];
    int fd = open(path, O_RDONLY | O_NONBLOCK);
    return fd >= 0 && read(fd, b, 1) == 1;
}

/* The root of the lower layers, which ours was mounted over. */
static bool below_the_root(void)
{
    int top = open("/", O_RDONLY);
    if (mkdir("/tmp/c", 0755) < 0 || chroot("/tmp/c") < 0 || fchdir(top) < 0)
        return false;
    for (int i = 0; i < 64 && chdir("..") == 0; i++)
        ;
    return access("lower", F_OK) == 0 || access("skeleton", F_OK) == 0;
}

/* As uid 0 with every capability, one level down: what of it counts outside? */
static int inside(void)
{
    static const char *const settings[] = { "sys/kernel/core_pattern", "sys/kernel/modprobe", "sys/vm/drop_caches", "sys/vm/overcommit_memory",
        "sys/kernel/threads-max", "sys/kernel/panic", "sys/fs/file-max", "sysrq-trigger", "irq/default_smp_affinity", "timer_list", "kcore", "kmsg",
        "kpageflags", "slabinfo", "vmallocinfo" };
    static const char *const facts[] = { "cmdline", "interrupts", "partitions", "diskstats", "modules", "config.gz", "kallsyms" };
    static const char *const covers[] = { "/assay/store", "/proc/keys", "/proc/sys", "/proc", "/" };
    char path[96], line[64] = "";
    mkdir("/tmp/p", 0755);
    mkdir("/tmp/m", 0755);
    tried("proc-anew", mount("proc", "/tmp/p", "proc", 0, NULL));
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
        snprintf(path, sizeof path, "/tmp/p/%s", settings[i]);
        tried(settings[i], open(path, strncmp(settings[i], "sys", 3) == 0 || strncmp(settings[i], "irq", 3) == 0 ? O_WRONLY : O_RDONLY));
    }
    bool any = false;
    for (size_t i = 0; i < sizeof facts / sizeof facts[0]; i++) {
        snprintf(path, sizeof path, "/tmp/p/%s", facts[i]);
        any |= readable(path);
    }
    judged("facts-of-the-host", any);
    FILE *f = fopen("/tmp/p/kallsyms", "r");
    judged("addresses", f != NULL && fgets(line, sizeof line, f) != NULL && strncmp(line, "0000000000000000", 16) != 0);
    bool keys = false;
    char key[256];
    for (f = fopen("/tmp/p/keys", "r"); f != NULL && fgets(key, sizeof key, f) != NULL; )
        keys |= strstr(key, "keyring   _ses: empty") == NULL;       /* those our own processes began with */
    judged("keys-of-others", keys);

    for (size_t i = 0; i < sizeof covers / sizeof covers[0]; i++)
        tried("uncover", umount2(covers[i], MNT_DETACH));
    tried("statmount", syscall(457, NULL, NULL, 0, 0));
    tried("listmount", syscall(458, NULL, NULL, 0, 0));
    tried("bind-root-alone", mount("/", "/tmp/m", NULL, MS_BIND, NULL));
    tried("bind-cover-alone", mount("/assay", "/tmp/m", NULL, MS_BIND, NULL));
    tried("move-cover", mount("/assay/store", "/tmp/m", NULL, MS_MOVE, NULL));
    tried("settings-rw", mount(NULL, "/proc/sys", NULL, MS_REMOUNT | MS_BIND, NULL));
    tried("set-uid-on", mount(NULL, "/", NULL, MS_REMOUNT | MS_BIND, NULL));
    if (mount("/", "/tmp/m", NULL, MS_BIND | MS_REC, NULL) == 0) {
        tried("store-by-copy", access("/tmp/m/assay/store/up", F_OK));
        tried("uncover-copy", umount2("/tmp/m/assay/store", MNT_DETACH));
        umount2("/tmp/m", MNT_DETACH);
    }
    tried("sysfs", mount("sysfs", "/tmp/m", "sysfs", 0, NULL));
    tried("disk", mount("/dev/vda", "/tmp/m", "ext4", MS_RDONLY, NULL));
    if (mount("none", "/tmp/m", "cgroup", 0, "memory") == 0 || mount("none", "/tmp/m", "cgroup2", 0, NULL) == 0) {
        static const char *const files[] = { "release_agent", "cgroup.procs", "memory.limit_in_bytes", "memory.max", "notify_on_release" };
        for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
            snprintf(path, sizeof path, "/tmp/m/%s", files[i]);
            tried(files[i], open(path, O_WRONLY));
        }
        tried("own-group", mkdir("/tmp/m/below", 0755));
        umount2("/tmp/m", MNT_DETACH);
    }
    if (mount("none", "/tmp/m", "tmpfs", 0, NULL) == 0) {
        tried("device", mknod("/tmp/m/disk", S_IFBLK | 0600, makedev(254, 0)));
        tried("device-mem", mknod("/tmp/m/mem", S_IFCHR | 0600, makedev(1, 1)));
    }
    uint64_t handle[17] = { 8 };
    tried("open_by_handle_at", syscall(SYS_open_by_handle_at, open("/", O_RDONLY), handle, 0));
    tried("raw-socket", socket(AF_INET, SOCK_RAW, 1));
    tried("packet-socket", socket(17, SOCK_RAW, 0));
    tried("netfilter", socket(AF_NETLINK, SOCK_RAW, 12));
    tried("bpf", syscall(SYS_bpf, 9999, NULL, 0));
    tried("set-time", syscall(SYS_clock_settime, 0, NULL));
    tried("chown-to-host-root", chown("/tmp/p", 1, 1));
    judged("below-the-root", below_the_root());
    return 0;
}

static int attack(void)
{
    unsigned uid = getuid(), gid = getgid();
    long rc = syscall(SYS_unshare, ALL);
    tried("nested", rc);
    if (rc < 0 || *given("ATTACK_BARE"))                /* there the rest is the host's */
        return 0;
    int deny = open("/proc/self/setgroups", O_WRONLY);
    if (write(deny, "deny", 4) < 0)
        return 1;
    map("/proc/self/uid_map", uid);
    map("/proc/self/gid_map", gid);
    pid_t pid = fork();
    if (pid == 0)
        _exit(inside());
    return WEXITSTATUS(child_status(pid));
}

static int twin(void) { return says_ok(access("/proc/self/ns/user", F_OK) == 0); }

ATTACK(.tries = "every capability in nested namespaces, with a fresh /proc and mounts (CVE-2022-0185, CVE-2022-0492)", .attack = attack, .twin = twin, .bare = "nested",
       .must = { "nested refused ENOSYS" },
       .compatible = { .grants = "nested proc-anew facts-of-the-host", .must = { "sys/kernel/core_pattern refused EACCES", "uncover refused EINVAL", "below-the-root refused" } });
