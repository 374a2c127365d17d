#include "tests/attack/attack.h"
#include <sys/ptrace.h>

static int attack(void)
{
    tried("ptrace-seize-init", ptrace(PTRACE_SEIZE, 1, 0, 0));
    tried("ptrace-attach-init", ptrace(PTRACE_ATTACH, 1, 0, 0));
    pid_t pid = idle_child();
    tried("ptrace-child", ptrace(PTRACE_SEIZE, pid, 0, 0));
    kill(pid, SIGKILL);
    child_status(pid);
    pid = fork();
    if (pid == 0)
        _exit(ptrace(PTRACE_TRACEME, 0, 0, 0) == 0);
    judged("traceme", WEXITSTATUS(child_status(pid)) != 0);
    return 0;
}

static int twin(void)
{
    pid_t pid = idle_child();
    kill(pid, SIGTERM);
    return says_ok(WTERMSIG(child_status(pid)) == SIGTERM);
}

ATTACK(.tries = "ptrace pid 1, or a child in order to call past the filter", .attack = attack, .twin = twin, .bare = "ptrace-seize-init",
       .must = { "ptrace-seize-init refused ENOSYS", "ptrace-child refused ENOSYS" },
       .compatible = { .grants = "ptrace-child traceme", .must = { "ptrace-seize-init refused EPERM", "ptrace-attach-init refused EPERM" } });
