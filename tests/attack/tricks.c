/*
 * tricks.c - the attacker's toolbox: `tricks NAME [ARG]` tries one way out and prints, per attempt,
 * "NAME refused ERRNO" or "NAME GOT". Built on the host, run inside a sandbox by attack_test.c.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <arpa/inet.h>
#include <unistd.h>

static void tried(const char *what, long rc)
{
    if (rc < 0)
        printf("%s refused %s\n", what, strerrorname_np(errno));
    else
        printf("%s GOT\n", what);
    fflush(stdout);
}

static void tried_open(const char *path, int flags) { tried(path, open(path, flags)); }

static void try_exe(void)
{
    tried_open("/proc/1/exe", O_RDWR);
    tried_open("/proc/1/exe", O_RDONLY);
    tried_open("/proc/1/mem", O_RDWR);
    tried_open("/proc/1/environ", O_RDONLY);
    tried_open("/proc/1/root/etc/shadow", O_RDONLY);
    tried_open("/proc/1/cwd/etc", O_RDONLY);
    tried_open("/proc/1/fd/3", O_RDWR);
}

static void try_fds(void)
{
    int seen = 0;
    for (int fd = 3; fd < 65536; fd++)
        if (fcntl(fd, F_GETFD) >= 0) {
            seen++;
            tried("descriptor", fd);
        }
    printf("descriptors %d\n", seen);
}

static void try_namespaces(void)
{
    static const char *const names[] = { "mnt", "pid", "net", "user", "uts", "ipc", "cgroup" };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[64];
        snprintf(path, sizeof path, "/proc/1/ns/%s", names[i]);
        int fd = open(path, O_RDONLY);
        tried("open-ns", fd);
        snprintf(path, sizeof path, "/proc/self/ns/%s", names[i]);
        fd = open(path, O_RDONLY);
        tried("setns", setns(fd, 0));
    }
    tried("unshare-user", unshare(CLONE_NEWUSER));
    tried("unshare-mount", unshare(CLONE_NEWNS));
    tried("unshare-net", unshare(CLONE_NEWNET));
    tried("clone-user", syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0));
    tried("clone-mount", syscall(SYS_clone, CLONE_NEWNS | SIGCHLD, 0, 0, 0, 0));
    uint64_t args[11] = { CLONE_NEWUSER, 0, 0, 0, SIGCHLD };
    tried("clone3-user", syscall(SYS_clone3, args, sizeof args));
    int map = open("/proc/self/uid_map", O_WRONLY);
    tried("uid_map", map < 0 ? -1 : write(map, "0 0 1\n", 6));
}

static void try_mounts(void)
{
    tried("mount-tmpfs", mount("none", "/tmp", "tmpfs", 0, NULL));
    tried("mount-bind", mount("/", "/tmp", NULL, MS_BIND, NULL));
    tried("mount-proc", mount("proc", "/tmp", "proc", 0, NULL));
    tried("remount", mount(NULL, "/proc/sys", NULL, MS_REMOUNT | MS_BIND, NULL));
    tried("umount-mask", umount2("/proc/keys", MNT_DETACH));
    tried("umount-store", umount2("/assay/store", MNT_DETACH));
    tried("fsopen", syscall(SYS_fsopen, "tmpfs", 0));
    tried("open_tree", syscall(SYS_open_tree, AT_FDCWD, "/", 1));
    tried("move_mount", syscall(SYS_move_mount, AT_FDCWD, "/proc", AT_FDCWD, "/tmp", 0));
    tried("pivot_root", syscall(SYS_pivot_root, "/tmp", "/tmp"));
    tried("chroot", chroot("/tmp"));
    tried("swapon", syscall(SYS_swapon, "/tmp/x", 0));
}

static void try_handles(void)
{
    struct { struct file_handle h; unsigned char bytes[128]; } f = { .h = { .handle_bytes = 8, .handle_type = 1 } };
    int id;
    tried("name_to_handle_at", syscall(SYS_name_to_handle_at, AT_FDCWD, "/", &f, &id, 0));
    tried("open_by_handle_at", syscall(SYS_open_by_handle_at, open("/", O_RDONLY), &f, O_RDONLY));
}

static void try_ptrace(void)
{
    char c = 0;
    struct iovec local = { &c, 1 }, far = { (void *)0x1000, 1 };
    tried("ptrace-init", ptrace(PTRACE_ATTACH, 1, 0, 0));
    tried("ptrace-me", ptrace(PTRACE_TRACEME, 0, 0, 0));
    tried("vm_readv", syscall(SYS_process_vm_readv, 1, &local, 1, &far, 1, 0));
    tried("vm_writev", syscall(SYS_process_vm_writev, 1, &local, 1, &far, 1, 0));
    tried("kcmp", syscall(SYS_kcmp, 1, getpid(), 0, 0, 0));
    int fd = (int)syscall(SYS_pidfd_open, 1, 0);
    tried("pidfd_getfd", syscall(SYS_pidfd_getfd, fd, 0, 0));
    tried("process_madvise", syscall(SYS_process_madvise, fd, &far, 1, 4, 0));
}

static void try_kernel(void)
{
    char space[256] = { 0 };
    tried("bpf", syscall(SYS_bpf, 0, space, sizeof space));
    tried("perf_event_open", syscall(SYS_perf_event_open, space, 0, -1, -1, 0));
    tried("userfaultfd", syscall(SYS_userfaultfd, 0));
    tried("io_uring_setup", syscall(SYS_io_uring_setup, 8, space));
    tried("kexec_load", syscall(SYS_kexec_load, 0, 0, 0, 0));
    tried("init_module", syscall(SYS_init_module, space, 0, ""));
    tried("finit_module", syscall(SYS_finit_module, 0, "", 0));
    tried("add_key", syscall(SYS_add_key, "user", "x", "y", 1, -4));
    tried("keyctl", syscall(SYS_keyctl, 0, -4, 0));
    tried("request_key", syscall(SYS_request_key, "user", "x", 0, 0));
    tried("iopl", syscall(SYS_iopl, 3));
    tried("ioperm", syscall(SYS_ioperm, 0, 1, 1));
    tried("modify_ldt", syscall(SYS_modify_ldt, 0, space, sizeof space));
    tried("reboot", syscall(SYS_reboot, 0xfee1dead, 672274793, 0x89abcdef, 0));
    tried("syslog", syscall(SYS_syslog, 3, space, sizeof space));
    tried("acct", syscall(SYS_acct, "/tmp/x"));
    tried("quotactl", syscall(SYS_quotactl, 0, "/", 0, 0));
    tried("seccomp", syscall(SYS_seccomp, 0, 0, 0));
    tried("memfd_secret", syscall(447, 0));
    tried("personality-x32", syscall(SYS_personality, 0x8));
    tried("settimeofday", syscall(SYS_settimeofday, space, 0));
    tried("clock_settime", syscall(SYS_clock_settime, 0, space));
    tried("adjtimex", syscall(SYS_adjtimex, space));
    tried("sethostname", sethostname("x", 1));
    tried("vhangup", syscall(SYS_vhangup));
}

static void try_proc(void)
{
    static const char *const writes[] = {
        "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/vm/drop_caches", "/proc/sys/kernel/hostname",
        "/proc/sysrq-trigger", "/proc/sys/net/ipv4/ip_forward", "/proc/1/oom_score_adj", "/proc/mtrr", "/proc/self/loginuid",
    };
    for (size_t i = 0; i < sizeof writes / sizeof writes[0]; i++) {
        int fd = open(writes[i], O_WRONLY);
        tried(writes[i], fd < 0 ? -1 : write(fd, "1", 1));
    }
    static const char *const reads[] = { "/proc/kcore", "/proc/keys", "/proc/kallsyms", "/proc/kmsg", "/proc/timer_list", "/proc/cmdline" };
    for (size_t i = 0; i < sizeof reads / sizeof reads[0]; i++) {
        char c;
        int fd = open(reads[i], O_RDONLY);
        ssize_t n = fd < 0 ? -1 : read(fd, &c, 1);
        if (n == 0)
            errno = ENODATA;
        tried(reads[i], n == 0 ? -1 : n);
    }
    static const char *const absent[] = { "/sys/fs/cgroup", "/sys/kernel", "/sys/class", "/dev/mem", "/dev/kmsg", "/dev/vda", "/dev/sda",
                                          "/dev/console", "/dev/fuse", "/dev/net/tun", "/dev/kvm", "/run/systemd", "/var/run/docker.sock" };
    for (size_t i = 0; i < sizeof absent / sizeof absent[0]; i++)
        tried(absent[i], access(absent[i], F_OK));
    tried("/dev/tty", open("/dev/tty", O_RDWR));
}

static void try_devices(void)
{
    tried("mknod-block", mknod("/tmp/disk", S_IFBLK | 0666, makedev(254, 0)));
    tried("mknod-mem", mknod("/tmp/mem", S_IFCHR | 0666, makedev(1, 1)));
    tried("mknod-null", mknod("/tmp/null", S_IFCHR | 0666, makedev(1, 3)));
    tried("mknod-whiteout-open", open("/dev/../tmp/none", O_RDONLY));
    tried("trusted-xattr", setxattr("/testbed", "trusted.overlay.opaque", "y", 1, 0));
    tried("capability-xattr", setxattr("/testbed/tricks", "security.capability", "\1\0\0\2\377\377\377\377\0\0\0\0\377\377\377\377\0\0\0\0", 20, 0));
    tried("chown-other", chown("/tmp", 1000, 1000));
}

static void try_caps(void)
{
    char line[256];
    FILE *f = fopen("/proc/self/status", "r");
    while (f != NULL && fgets(line, sizeof line, f) != NULL)
        if (strncmp(line, "Cap", 3) == 0 && strtoull(line + 8, NULL, 16) != 0)
            printf("GOT %s", line);
    struct __user_cap_header_struct h = { .version = _LINUX_CAPABILITY_VERSION_3 };
    struct __user_cap_data_struct d[2] = { { .effective = 1u << 21, .permitted = 1u << 21 } };
    tried("capset", syscall(SYS_capset, &h, d));
    tried("setuid", setresuid(1000, 1000, 1000));
    tried("nnp-off", prctl(PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0));
    tried("securebits", prctl(PR_SET_SECUREBITS, 0));
    tried("ambient", prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, 21, 0, 0));
    struct rlimit r = { RLIM_INFINITY, RLIM_INFINITY };
    tried("rlimit-up", setrlimit(RLIMIT_NOFILE, &r));
    tried("nice-down", setpriority(PRIO_PROCESS, 0, -10));
}

static void try_sockets(const char *port)
{
    static const struct { const char *name; int family, type, protocol; } kinds[] = {
        { "packet", AF_PACKET, SOCK_RAW, 0 }, { "vsock", AF_VSOCK, SOCK_STREAM, 0 }, { "alg", AF_ALG, SOCK_SEQPACKET, 0 },
        { "raw", AF_INET, SOCK_RAW, 1 }, { "raw6", AF_INET6, SOCK_RAW, 58 }, { "netlink-generic", AF_NETLINK, SOCK_RAW, 16 },
        { "netlink-audit", AF_NETLINK, SOCK_RAW, 9 }, { "netlink-netfilter", AF_NETLINK, SOCK_RAW, 12 }, { "key", AF_KEY, SOCK_RAW, 2 },
        { "bluetooth", AF_BLUETOOTH, SOCK_RAW, 1 }, { "can", 29, SOCK_RAW, 1 }, { "rds", 21, SOCK_SEQPACKET, 0 }, { "xdp", 44, SOCK_RAW, 0 },
    };
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        tried(kinds[i].name, socket(kinds[i].family, kinds[i].type, kinds[i].protocol));
    struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port)) };
    inet_pton(AF_INET, "127.0.0.1", &v4.sin_addr);
    tried("host-loopback", connect(socket(AF_INET, SOCK_STREAM, 0), (void *)&v4, sizeof v4));
    inet_pton(AF_INET, "8.8.8.8", &v4.sin_addr);
    v4.sin_port = htons(53);
    tried("outside", sendto(socket(AF_INET, SOCK_DGRAM, 0), "x", 1, 0, (void *)&v4, sizeof v4));
    struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_port = htons(53) };
    inet_pton(AF_INET6, "2001:4860:4860::8888", &v6.sin6_addr);
    tried("outside6", sendto(socket(AF_INET6, SOCK_DGRAM, 0), "x", 1, 0, (void *)&v6, sizeof v6));
    inet_pton(AF_INET6, "ff02::1", &v6.sin6_addr);
    struct sockaddr_un un = { .sun_family = AF_UNIX };
    int n = snprintf(un.sun_path + 1, sizeof un.sun_path - 1, "assay-attack-%s", port);
    tried("abstract", connect(socket(AF_UNIX, SOCK_STREAM, 0), (void *)&un, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n)));
}

static void try_signals(void)
{
    setpriority(PRIO_PROCESS, 1, 19);           /* allowed, and of no use: init only sleeps */
    for (int sig = 1; sig < 32; sig++)
        kill(1, sig);
    syscall(SYS_pidfd_send_signal, syscall(SYS_pidfd_open, 1, 0), SIGKILL, NULL, 0);
    signal(SIGTERM, SIG_IGN);
    kill(-1, SIGTERM);
    kill(-1, SIGKILL);
    printf("init %s\n", kill(1, 0) == 0 ? "alive" : "GONE");
    tried("parent", kill(getppid() > 1 ? -getpgid(0) - 100000 : 99999, SIGKILL));
}

static void try_report(void)
{
    if (chdir("/assay/report") < 0)
        exit(1);
    mkfifo("fifo", 0666);
    mkdir("dir", 0777);
    tried("link", symlink("/etc/passwd", "link"));
    tried("hard", link("/testbed/tricks", "hard"));
    close(open("twice", O_CREAT | O_WRONLY, 0644));
    tried("twice", link("twice", "twice2"));
    struct sockaddr_un un = { .sun_family = AF_UNIX, .sun_path = "socket" };
    tried("socket", bind(socket(AF_UNIX, SOCK_STREAM, 0), (void *)&un, sizeof un));
    int fd = open("sparse", O_CREAT | O_WRONLY, 0644);
    tried("sparse", ftruncate(fd, 200 << 20));
    close(fd);
    close(open("-rf\n\033[31m\377", O_CREAT | O_WRONLY, 0644));
    tried("move-report", rename("/assay/report", "/tmp/report"));
    tried("move-assay", rename("/assay", "/tmp/assay"));
    tried("rmdir-report", rmdir("/assay/report"));
}

static void try_bombs(const char *which)
{
    if (strcmp(which, "fork") == 0)
        for (;;)
            if (fork() < 0)
                sched_yield();
    if (strcmp(which, "orphans") == 0)
        for (int i = 0; i < 3000; i++)
            if (fork() == 0) {
                if (fork() == 0)
                    _exit(0);
                _exit(0);
            } else {
                wait(NULL);
            }
    if (strcmp(which, "tmpfs") == 0 || strcmp(which, "memfd") == 0) {
        int fd = which[0] == 't' ? open("/tmp/f", O_CREAT | O_WRONLY, 0644) : memfd_create("x", 0);
        static char bytes[1 << 20];
        memset(bytes, 1, sizeof bytes);
        for (int i = 0; i < 4096 && write(fd, bytes, sizeof bytes) > 0; i++)
            ;
    }
    if (strcmp(which, "shm") == 0)
        for (int i = 0; i < 64; i++) {
            void *p = shmat(shmget(IPC_PRIVATE, 64 << 20, 0600), NULL, 0);
            if (p != (void *)-1)
                memset(p, 1, 64 << 20);
        }
    if (strcmp(which, "stop") == 0) {
        for (int i = 0; i < 8; i++)
            if (fork() == 0)
                raise(SIGSTOP);
        if (vfork() == 0)
            raise(SIGSTOP);
        raise(SIGSTOP);
    }
    if (strcmp(which, "inotify") == 0) {
        int n = 0;
        while (n < 100000 && inotify_init1(0) >= 0)
            n++;
        printf("instances %s\n", n > 0 ? "some" : "none");
        fflush(stdout);
        sleep(3);
    }
    if (strcmp(which, "depth") == 0)
        for (int i = 0; i < 100000 && mkdir("d", 0755) == 0 && chdir("d") == 0; i++)
            ;
    printf("done\n");
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "", *arg = argc > 2 ? argv[2] : "";
    if (strcmp(what, "exe") == 0) try_exe();
    else if (strcmp(what, "fds") == 0) try_fds();
    else if (strcmp(what, "namespaces") == 0) try_namespaces();
    else if (strcmp(what, "mounts") == 0) try_mounts();
    else if (strcmp(what, "handles") == 0) try_handles();
    else if (strcmp(what, "ptrace") == 0) try_ptrace();
    else if (strcmp(what, "kernel") == 0) try_kernel();
    else if (strcmp(what, "proc") == 0) try_proc();
    else if (strcmp(what, "devices") == 0) try_devices();
    else if (strcmp(what, "caps") == 0) try_caps();
    else if (strcmp(what, "sockets") == 0) try_sockets(arg);
    else if (strcmp(what, "signals") == 0) try_signals();
    else if (strcmp(what, "report") == 0) try_report();
    else if (strcmp(what, "bomb") == 0) try_bombs(arg);
    else if (strcmp(what, "int80") == 0) {
        long rc;
        __asm__ volatile("int $0x80" : "=a"(rc) : "a"(20) : "memory");      /* getpid of the 32-bit table */
        printf("int80 GOT %ld\n", rc);
    } else if (strcmp(what, "x32") == 0) {
        printf("x32 GOT %ld\n", syscall(0x40000000 | SYS_getpid));
    }
    else return 2;
    return 0;
}
