#include "tests/attack/attack.h"
#include <sys/ptrace.h>
#include <sys/user.h>

/* A traced child calls getpid; its tracer makes another call of it after the entry. */
static long changed_to(long nr, unsigned long a)
{
    struct user_regs_struct r;
    int status = 0;
    pid_t pid = fork();
    if (pid == 0) {
        if (ptrace(PTRACE_TRACEME, 0, 0, 0) < 0)
            _exit(1);
        raise(SIGSTOP);
        syscall(SYS_getpid);
        _exit(0);
    }
    waitpid(pid, &status, 0);
    if (!WIFSTOPPED(status))
        return -ENOSYS;
    ptrace(PTRACE_SYSCALL, pid, 0, 0);
    waitpid(pid, &status, 0);
    ptrace(PTRACE_GETREGS, pid, 0, &r);
    r.orig_rax = (unsigned long)nr;
    r.rdi = a;
    r.rsi = r.rdx = 0;
    ptrace(PTRACE_SETREGS, pid, 0, &r);
    ptrace(PTRACE_SYSCALL, pid, 0, 0);
    waitpid(pid, &status, 0);
    ptrace(PTRACE_GETREGS, pid, 0, &r);
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    return (long)r.rax;
}

static int attack(void)
{
    long bpf = changed_to(SYS_bpf, 9999), ring = changed_to(SYS_io_uring_setup, 0);
    judged("bpf-by-tracer", bpf != -ENOSYS && bpf != -EPERM);
    judged("io_uring-by-tracer", ring != -ENOSYS && ring != -EPERM);
    pid_t pid = idle_child();
    tried("filter-suspended", ptrace(PTRACE_SEIZE, pid, 0, 1 << 21));
    kill(pid, SIGKILL);
    child_status(pid);
    return 0;
}

static int twin(void) { return says_ok(syscall(SYS_getpid) == getpid()); }

ATTACK(.tries = "calls past the filter, made of harmless ones by a tracer", .attack = attack, .twin = twin, .bare = "bpf-by-tracer",
       .must = { "bpf-by-tracer refused", "filter-suspended refused ENOSYS" },
       .compatible = { .must = { "bpf-by-tracer refused", "filter-suspended refused EPERM" } });
