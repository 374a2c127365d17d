/*
 * seccomp_policy.h - every system call a sandbox may make, with the reason. Reviewed by name: a new
 * row needs a real suite that needs it. All else answers ENOSYS, because libc and runtimes fall back
 * on ENOSYS and only on it; so clone3 (flags in memory, invisible to a filter) becomes clone.
 * The compatible profile has the rows of the strict one and a few more, at the end.
 *
 * Left out on purpose, in the strict profile: mounts (mount, umount2, fsopen, open_tree, move_mount, pivot_root, chroot),
 * namespaces (setns, unshare), other processes (ptrace, process_vm_*). In both: other processes (kcmp, pidfd_getfd,
 * process_madvise), handles (name_to_handle_at, open_by_handle_at), keys (add_key, request_key,
 * keyctl), kernel (bpf, perf_event_open, userfaultfd, io_uring_*, kexec_*, *_module, reboot, syslog,
 * swapon, acct, quotactl, fanotify_*), clocks (settimeofday, adjtimex, clock_settime), ports and
 * segments (iopl, ioperm, modify_ldt), seccomp itself, memfd_secret, vhangup, nfsservctl, and
 * sync, which writes out every disk of the host (syncfs ends at the sandbox's own layer).
 */
#pragma once
#include <netinet/in.h>
#include <sched.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/personality.h>
#include <sys/socket.h>

#define POLICY_CHECKS_MAX 3
struct policy_check { unsigned arg; uint64_t mask, value; };      /* (argument & mask) == value */
struct policy_row { const char *name; unsigned check_count; struct policy_check checks[POLICY_CHECKS_MAX]; };

#define POLICY_INT UINT64_C(0xffffffff)     /* the kernel reads these arguments as int */
#define POLICY_SOCKET_TYPE UINT64_C(0xf)     /* SOCK_NONBLOCK and SOCK_CLOEXEC lie above it */
#define POLICY_NEW_NAMESPACE (CLONE_NEWNS | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | \
                              CLONE_NEWCGROUP)
#define ALLOW(name) { #name, 0, { { 0, 0, 0 } } }
#define ALLOW_IF(name, arg, mask, value) { #name, 1, { { arg, mask, value } } }
#define SOCKET(family, type, protocol) \
    { "socket", 3, { { 0, POLICY_INT, family }, { 1, POLICY_SOCKET_TYPE, type }, { 2, POLICY_INT, protocol } } }

static const struct policy_row policy[] = {
    /* files: plain input and output */
    ALLOW(read), ALLOW(write), ALLOW(readv), ALLOW(writev), ALLOW(pread64), ALLOW(pwrite64), ALLOW(preadv), ALLOW(pwritev),
    ALLOW(preadv2), ALLOW(pwritev2), ALLOW(lseek), ALLOW(sendfile), ALLOW(copy_file_range), ALLOW(splice), ALLOW(tee),
    ALLOW(vmsplice), ALLOW(readahead), ALLOW(fadvise64), ALLOW(fallocate), ALLOW(ftruncate), ALLOW(truncate),
    ALLOW(syncfs), ALLOW(fsync), ALLOW(fdatasync), ALLOW(sync_file_range), ALLOW(cachestat),
    /* files: open, close, names; paths end at the sandbox's root */
    ALLOW(open), ALLOW(openat), ALLOW(openat2), ALLOW(creat), ALLOW(close), ALLOW(close_range), ALLOW(dup), ALLOW(dup2),
    ALLOW(dup3), ALLOW(fcntl), ALLOW(flock), ALLOW(access), ALLOW(faccessat), ALLOW(faccessat2), ALLOW(stat), ALLOW(fstat),
    ALLOW(lstat), ALLOW(newfstatat), ALLOW(statx), ALLOW(statfs), ALLOW(fstatfs), ALLOW(readlink), ALLOW(readlinkat),
    ALLOW(getdents), ALLOW(getdents64), ALLOW(getcwd), ALLOW(chdir), ALLOW(fchdir), ALLOW(mkdir), ALLOW(mkdirat),
    ALLOW(rmdir), ALLOW(unlink), ALLOW(unlinkat), ALLOW(rename), ALLOW(renameat), ALLOW(renameat2), ALLOW(link),
    ALLOW(linkat), ALLOW(symlink), ALLOW(symlinkat), ALLOW(umask), ALLOW(utime), ALLOW(utimes), ALLOW(utimensat),
    ALLOW(futimesat),
    /* files: owners and modes; only one uid is mapped, set-uid is off everywhere */
    ALLOW(chmod), ALLOW(fchmod), ALLOW(fchmodat), ALLOW(fchmodat2), ALLOW(chown), ALLOW(fchown), ALLOW(lchown),
    ALLOW(fchownat),
    /* files: extended attributes; trusted and security ones need capabilities */
    ALLOW(setxattr), ALLOW(lsetxattr), ALLOW(fsetxattr), ALLOW(getxattr), ALLOW(lgetxattr), ALLOW(fgetxattr),
    ALLOW(listxattr), ALLOW(llistxattr), ALLOW(flistxattr), ALLOW(removexattr), ALLOW(lremovexattr), ALLOW(fremovexattr),
    /* mkfifo is mknod; devices need CAP_MKNOD, which nobody has */
    ALLOW(mknod), ALLOW(mknodat),
    /* terminals and FIONREAD; not to feed a terminal, see refused_requests */
    ALLOW(ioctl),
    /* watching files and descriptors; instances count against the slot's own uid */
    ALLOW(inotify_init), ALLOW(inotify_init1), ALLOW(inotify_add_watch), ALLOW(inotify_rm_watch), ALLOW(poll), ALLOW(ppoll),
    ALLOW(select), ALLOW(pselect6), ALLOW(epoll_create), ALLOW(epoll_create1), ALLOW(epoll_ctl), ALLOW(epoll_ctl_old),
    ALLOW(epoll_wait), ALLOW(epoll_wait_old), ALLOW(epoll_pwait), ALLOW(epoll_pwait2), ALLOW(eventfd), ALLOW(eventfd2),
    ALLOW(signalfd), ALLOW(signalfd4), ALLOW(timerfd_create), ALLOW(timerfd_settime), ALLOW(timerfd_gettime), ALLOW(pipe),
    ALLOW(pipe2),
    /* asynchronous files of databases; no io_uring, whose calls pass no filter */
    ALLOW(io_setup), ALLOW(io_destroy), ALLOW(io_submit), ALLOW(io_cancel), ALLOW(io_getevents), ALLOW(io_pgetevents),
    /* memory */
    ALLOW(mmap), ALLOW(mprotect), ALLOW(munmap), ALLOW(mremap), ALLOW(brk), ALLOW(madvise), ALLOW(msync), ALLOW(mincore),
    ALLOW(mlock), ALLOW(mlock2), ALLOW(munlock), ALLOW(mlockall), ALLOW(munlockall), ALLOW(memfd_create),
    ALLOW(pkey_mprotect), ALLOW(pkey_alloc), ALLOW(pkey_free), ALLOW(mseal), ALLOW(map_shadow_stack),
    /* memory placement, of oneself only */
    ALLOW(mbind), ALLOW(set_mempolicy), ALLOW(get_mempolicy), ALLOW(set_mempolicy_home_node),
    /* processes: start and end */
    ALLOW(fork), ALLOW(vfork), ALLOW(execve), ALLOW(execveat), ALLOW(exit), ALLOW(exit_group), ALLOW(wait4), ALLOW(waitid),
    ALLOW(set_tid_address), ALLOW(set_robust_list), ALLOW(get_robust_list), ALLOW(rseq), ALLOW(restart_syscall),
    /* threads: locks and barriers */
    ALLOW(futex), ALLOW(futex_wait), ALLOW(futex_wake), ALLOW(futex_requeue), ALLOW(futex_waitv), ALLOW(membarrier),
    ALLOW(sched_yield),
    /* processes: who am I */
    ALLOW(getpid), ALLOW(getppid), ALLOW(gettid), ALLOW(getuid), ALLOW(geteuid), ALLOW(getgid), ALLOW(getegid),
    ALLOW(getgroups), ALLOW(getresuid), ALLOW(getresgid), ALLOW(getpgid), ALLOW(getpgrp), ALLOW(getsid), ALLOW(getcpu),
    /* processes: identity; nothing but uid 0 inside is mapped */
    ALLOW(setuid), ALLOW(setgid), ALLOW(setreuid), ALLOW(setregid), ALLOW(setresuid), ALLOW(setresgid), ALLOW(setfsuid),
    ALLOW(setfsgid), ALLOW(setgroups), ALLOW(setpgid), ALLOW(setsid), ALLOW(capget), ALLOW(capset),
    /* signals; pid 1 and the outside are out of reach */
    ALLOW(kill), ALLOW(tkill), ALLOW(tgkill), ALLOW(rt_sigaction), ALLOW(rt_sigprocmask), ALLOW(rt_sigpending),
    ALLOW(rt_sigtimedwait), ALLOW(rt_sigqueueinfo), ALLOW(rt_tgsigqueueinfo), ALLOW(rt_sigsuspend), ALLOW(rt_sigreturn),
    ALLOW(sigaltstack), ALLOW(pause), ALLOW(alarm), ALLOW(pidfd_open), ALLOW(pidfd_send_signal),
    /* prctl: filters can only be made narrower, bounding sets only smaller */
    ALLOW(prctl), ALLOW(arch_prctl),
    /* scheduling below the slot's share */
    ALLOW(sched_setparam), ALLOW(sched_getparam), ALLOW(sched_setscheduler), ALLOW(sched_getscheduler),
    ALLOW(sched_get_priority_max), ALLOW(sched_get_priority_min), ALLOW(sched_rr_get_interval), ALLOW(sched_setaffinity),
    ALLOW(sched_getaffinity), ALLOW(sched_setattr), ALLOW(sched_getattr), ALLOW(getpriority), ALLOW(setpriority),
    ALLOW(ioprio_set), ALLOW(ioprio_get),
    /* limits: can only be lowered */
    ALLOW(getrlimit), ALLOW(setrlimit), ALLOW(prlimit64), ALLOW(getrusage), ALLOW(times),
    /* clocks: reading and waiting */
    ALLOW(time), ALLOW(gettimeofday), ALLOW(clock_gettime), ALLOW(clock_getres), ALLOW(clock_nanosleep), ALLOW(nanosleep),
    ALLOW(getitimer), ALLOW(setitimer), ALLOW(timer_create), ALLOW(timer_settime), ALLOW(timer_gettime),
    ALLOW(timer_getoverrun), ALLOW(timer_delete),
    /* the machine, as uname tells it */
    ALLOW(uname), ALLOW(sysinfo), ALLOW(getrandom),
    /* sockets on loopback and between processes */
    ALLOW(socketpair), ALLOW(connect), ALLOW(accept), ALLOW(accept4), ALLOW(bind), ALLOW(listen), ALLOW(getsockname),
    ALLOW(getpeername), ALLOW(getsockopt), ALLOW(setsockopt), ALLOW(sendto), ALLOW(recvfrom), ALLOW(sendmsg), ALLOW(recvmsg),
    ALLOW(sendmmsg), ALLOW(recvmmsg), ALLOW(shutdown),
    /* System V and POSIX queues; the ipc namespace is the sandbox's own */
    ALLOW(shmget), ALLOW(shmat), ALLOW(shmctl), ALLOW(shmdt), ALLOW(semget), ALLOW(semop), ALLOW(semctl), ALLOW(semtimedop),
    ALLOW(msgget), ALLOW(msgsnd), ALLOW(msgrcv), ALLOW(msgctl), ALLOW(mq_open), ALLOW(mq_unlink), ALLOW(mq_timedsend),
    ALLOW(mq_timedreceive), ALLOW(mq_notify), ALLOW(mq_getsetattr),
    /* a program may confine itself further */
    ALLOW(landlock_create_ruleset), ALLOW(landlock_add_rule), ALLOW(landlock_restrict_self),
    /* new processes and threads, but no new namespace */
    ALLOW_IF(clone, 0, POLICY_NEW_NAMESPACE, 0),
    /* sockets: between processes, on loopback, and the route socket by which libc lists addresses (read-only without
     * capabilities); no vsock, packet, alg, bluetooth, key, netlink of other families */
    ALLOW_IF(socket, 0, POLICY_INT, AF_UNIX),
    /* of the internet families the protocols that suites use; no MPTCP, SCTP, DCCP, UDP-Lite, nor raw ones, whatever
     * capability a nested namespace gives */
    SOCKET(AF_INET, SOCK_STREAM, 0), SOCKET(AF_INET, SOCK_STREAM, IPPROTO_TCP), SOCKET(AF_INET, SOCK_DGRAM, 0),
    SOCKET(AF_INET, SOCK_DGRAM, IPPROTO_UDP), SOCKET(AF_INET, SOCK_DGRAM, IPPROTO_ICMP),
    SOCKET(AF_INET6, SOCK_STREAM, 0), SOCKET(AF_INET6, SOCK_STREAM, IPPROTO_TCP), SOCKET(AF_INET6, SOCK_DGRAM, 0),
    SOCKET(AF_INET6, SOCK_DGRAM, IPPROTO_UDP), SOCKET(AF_INET6, SOCK_DGRAM, IPPROTO_ICMPV6),
    SOCKET(AF_NETLINK, SOCK_RAW, 0), SOCKET(AF_NETLINK, SOCK_DGRAM, 0),
    /* asking for the execution domain, the normal one, and the one without address randomness (debuggers, some tests) */
    ALLOW_IF(personality, 0, POLICY_INT, PER_LINUX), ALLOW_IF(personality, 0, POLICY_INT, 0xffffffff),
    ALLOW_IF(personality, 0, POLICY_INT, ADDR_NO_RANDOMIZE),
};

/* For a warm host, which forks into the pid namespace it is given and gives its fork ipc and network namespaces of its own. */
static const struct policy_row host_policy[] = {
    ALLOW_IF(setns, 1, POLICY_INT, CLONE_NEWPID), ALLOW_IF(unshare, 0, ~(uint64_t)(CLONE_NEWIPC | CLONE_NEWNET), 0),
};

static const struct policy_row policy_compatible[] = {
    /* debuggers; the tracer's changes pass the filter after the kernel has made them */
    ALLOW(ptrace), ALLOW(process_vm_readv), ALLOW(process_vm_writev),
    /* namespaces: outside one's own nested user namespace they need capabilities that nobody has; their number is limited */
    ALLOW(clone), ALLOW(unshare), ALLOW(setns), ALLOW(sethostname), ALLOW(setdomainname),
    /* mounts of a nested mount namespace; those it was born with are locked there */
    ALLOW(mount), ALLOW(umount2), ALLOW(pivot_root), ALLOW(chroot), ALLOW(fsopen), ALLOW(fsconfig), ALLOW(fsmount),
    ALLOW(fspick), ALLOW(open_tree), ALLOW(move_mount), ALLOW(mount_setattr),
};

/* Requests of ioctl that type into a terminal: EPERM in both profiles. A caller's shell would run what was typed there
 * (CVE-2017-5226). */
static const uint32_t refused_requests[] = { TIOCSTI, TIOCLINUX };
