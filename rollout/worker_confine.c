/* worker_confine.c - see worker_confine.h. Sanitizer builds keep their system calls and memory: their runtime needs them. */
#include "rollout/worker_confine.h"
#include "base/own.h"
#include "rollout/worker_wire.h"
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/landlock.h>
#include <seccomp.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NOBODY 65534u

#ifdef __SANITIZE_ADDRESS__
#define BOUNDED false
#else
#define BOUNDED true
#endif

int worker_enter(const char **out_dir, const char *store_dir, struct err *err)
{
    *out_dir = store_dir;
    if (geteuid() != 0)
        return 0;
    if (chroot(store_dir) != 0) {
        if (errno == EPERM)             /* root without the capability: Landlock and the file modes remain */
            return 0;
        return err_sys(err, ERR_SYS, "worker: enter store %.200s", store_dir);
    }
    if (chdir("/") != 0)
        return err_sys(err, ERR_SYS, "worker: enter store %.200s", store_dir);
    *out_dir = "/";
    return 0;
}

static int become_nobody(uint32_t *steps, struct err *err)
{
    if (geteuid() != 0)
        return 0;
    if (setgroups(0, NULL) != 0 || setresgid(NOBODY, NOBODY, NOBODY) != 0 || setresuid(NOBODY, NOBODY, NOBODY) != 0)
        return err_sys(err, ERR_DENIED, "worker: become uid %u", NOBODY);
    *steps |= WORKER_CONFINED_UID;
    return 0;
}

static int landlock(uint32_t *steps, const char *dir, struct err *err)
{
    long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    if (abi < 1)
        return 0;                       /* an older kernel, or switched off */
    struct landlock_ruleset_attr attr = {       /* all rights of the first version: none is given but reading */
        .handled_access_fs = (LANDLOCK_ACCESS_FS_MAKE_SYM << 1) - 1,
    };
    own_fd rules = (int)syscall(SYS_landlock_create_ruleset, &attr, sizeof attr, 0);
    own_fd at = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (rules < 0 || at < 0)
        return err_sys(err, ERR_SYS, "worker: landlock");
    struct landlock_path_beneath_attr below = {
        .allowed_access = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR, .parent_fd = at,
    };
    if (syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &below, 0) != 0 ||
        syscall(SYS_landlock_restrict_self, rules, 0) != 0)
        return err_sys(err, ERR_SYS, "worker: landlock");
    *steps |= WORKER_CONFINED_LANDLOCK;
    return 0;
}

static int bound(int what, rlim_t value, struct err *err)
{
    struct rlimit l = { value, value };
    return setrlimit((__rlimit_resource_t)what, &l) == 0 ? 0 : err_sys(err, ERR_SYS, "worker: setrlimit %d", what);
}

static int bound_all(uint32_t *steps, struct err *err)
{
    static const struct { int what; rlim_t value; } limits[] = {
        { RLIMIT_DATA, (rlim_t)1 << 30 },               /* heap and private maps; packs are mapped shared and read-only ... */
        { RLIMIT_AS, (rlim_t)64 << 30 },                /* ... and only have to fit here */
        { RLIMIT_FSIZE, (rlim_t)WORKER_EDITS_MAX },     /* of a memfd: nothing else can be written */
        { RLIMIT_NOFILE, 256 }, { RLIMIT_NPROC, 0 }, { RLIMIT_CORE, 0 }, { RLIMIT_MEMLOCK, 0 }, { RLIMIT_MSGQUEUE, 0 },
    };
    for (size_t i = 0; BOUNDED && i < sizeof limits / sizeof limits[0]; i++) {
        int rc = bound(limits[i].what, limits[i].value, err);
        if (rc < 0)
            return rc;
    }
    *steps |= BOUNDED ? WORKER_CONFINED_RLIMITS : 0;
    return 0;
}

static const int allowed[] = {
    /* answer and read what we were given */
    SCMP_SYS(recvmsg), SCMP_SYS(sendmsg), SCMP_SYS(read), SCMP_SYS(readv), SCMP_SYS(pread64), SCMP_SYS(preadv),
    SCMP_SYS(lseek), SCMP_SYS(close), SCMP_SYS(write), SCMP_SYS(writev), SCMP_SYS(pwrite64), SCMP_SYS(ftruncate),
    SCMP_SYS(memfd_create), SCMP_SYS(fcntl), SCMP_SYS(dup), SCMP_SYS(poll), SCMP_SYS(ppoll),
    /* look around in the store */
    SCMP_SYS(fstat), SCMP_SYS(newfstatat), SCMP_SYS(stat), SCMP_SYS(lstat), SCMP_SYS(statx), SCMP_SYS(access),
    SCMP_SYS(faccessat), SCMP_SYS(faccessat2), SCMP_SYS(getdents64), SCMP_SYS(readlink), SCMP_SYS(readlinkat),
    SCMP_SYS(getcwd), SCMP_SYS(fstatfs), SCMP_SYS(statfs),
    /* memory */
    SCMP_SYS(brk), SCMP_SYS(munmap), SCMP_SYS(mremap), SCMP_SYS(madvise),
    /* the C library's own needs */
    SCMP_SYS(futex), SCMP_SYS(getrandom), SCMP_SYS(clock_gettime), SCMP_SYS(gettimeofday), SCMP_SYS(time),
    SCMP_SYS(getrusage), SCMP_SYS(rt_sigaction), SCMP_SYS(rt_sigprocmask), SCMP_SYS(rt_sigreturn),
    SCMP_SYS(sigaltstack), SCMP_SYS(getpid), SCMP_SYS(gettid), SCMP_SYS(getuid), SCMP_SYS(geteuid), SCMP_SYS(getgid),
    SCMP_SYS(getegid), SCMP_SYS(sysinfo), SCMP_SYS(sched_getaffinity), SCMP_SYS(sched_yield), SCMP_SYS(getrlimit),
    SCMP_SYS(setrlimit), SCMP_SYS(set_robust_list), SCMP_SYS(rseq), SCMP_SYS(uname), SCMP_SYS(exit),
    SCMP_SYS(exit_group), SCMP_SYS(restart_syscall),
};

/* Everything else answers EPERM: a parser that asks for it gets an error, not a silent wait. */
static int filter(uint32_t *steps, struct err *err)
{
    if (!BOUNDED)
        return 0;
    const uint64_t writing = O_ACCMODE | O_CREAT | O_TRUNC | (__O_TMPFILE & ~O_DIRECTORY);
    scmp_filter_ctx f = seccomp_init(SCMP_ACT_ERRNO(EPERM));
    int rc = f == NULL ? -ENOMEM : 0;
    for (size_t i = 0; rc == 0 && i < sizeof allowed / sizeof allowed[0]; i++)
        rc = seccomp_rule_add(f, SCMP_ACT_ALLOW, allowed[i], 0);
    if (rc == 0)                        /* reading only */
        rc = seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(openat), 1, SCMP_A2(SCMP_CMP_MASKED_EQ, writing, 0));
    if (rc == 0)
        rc = seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(open), 1, SCMP_A1(SCMP_CMP_MASKED_EQ, writing, 0));
    if (rc == 0)                        /* no new code */
        rc = seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(mmap), 1, SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
    if (rc == 0)
        rc = seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(mprotect), 1, SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
    if (rc == 0)                        /* its own limits, which it can only lower but for CPU's soft one */
        rc = seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(prlimit64), 1, SCMP_A0(SCMP_CMP_EQ, 0));
    if (rc == 0)
        rc = seccomp_load(f);
    seccomp_release(f);
    if (rc != 0) {
        errno = -rc;
        return err_sys(err, ERR_SYS, "worker: system call filter");
    }
    *steps |= WORKER_CONFINED_SECCOMP;
    return 0;
}

int worker_confine(uint32_t *out_steps, const char *dir, struct err *err)
{
    uint32_t steps = 0;
    int rc = become_nobody(&steps, err);
    /* After the change of user, which clears it. */
    if (rc == 0 && prctl(PR_SET_PDEATHSIG, SIGKILL) != 0)
        rc = err_sys(err, ERR_SYS, "worker: PR_SET_PDEATHSIG");
    if (rc == 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        rc = err_sys(err, ERR_SYS, "worker: no_new_privs");
    if (rc == 0)
        rc = landlock(&steps, dir, err);
    if (rc == 0)
        rc = bound_all(&steps, err);
    if (rc == 0)
        rc = filter(&steps, err);
    *out_steps = steps;
    return rc;
}

void worker_bound_job(uint32_t cpu_s)
{
    struct rusage u;
    struct rlimit l;
    if (getrusage(RUSAGE_SELF, &u) != 0 || getrlimit(RLIMIT_CPU, &l) != 0)
        return;
    l.rlim_cur = (rlim_t)(u.ru_utime.tv_sec + u.ru_stime.tv_sec + 1) + cpu_s;
    if (l.rlim_max != RLIM_INFINITY && l.rlim_cur > l.rlim_max)
        l.rlim_cur = l.rlim_max;
    (void)setrlimit(RLIMIT_CPU, &l);    /* the pool's own time limit stands behind it */
}
