#include "tests/attack/attack.h"
#include <sys/resource.h>

/* Whoever has pid 1's uid may set its priority, processors and limits; nobody may if they show in the next sandbox, a message. */
static int earlier(void)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    setpriority(PRIO_USER, 0, 9);
    sched_setaffinity(1, sizeof one, &one);
    prlimit(1, RLIMIT_NOFILE, &(struct rlimit){ 77, 77 }, NULL);
    prlimit(1, RLIMIT_CPU, &(struct rlimit){ 77, 77 }, NULL);
    return 0;
}

static int attack(void)
{
    cpu_set_t init, mine;
    struct rlimit files, cpu;
    judged("priority", getpriority(PRIO_PROCESS, 1) != getpriority(PRIO_PROCESS, 0));
    judged("processors", sched_getaffinity(1, sizeof init, &init) == 0 && sched_getaffinity(0, sizeof mine, &mine) == 0 &&
           !CPU_EQUAL(&init, &mine));
    judged("limits", prlimit(1, RLIMIT_NOFILE, NULL, &files) == 0 && prlimit(1, RLIMIT_CPU, NULL, &cpu) == 0 &&
           (files.rlim_cur == 77 || cpu.rlim_cur == 77));
    return 0;
}

static int twin(void)
{
    pid_t pid = idle_child();
    bool set = setpriority(PRIO_PROCESS, pid, 19) == 0 && getpriority(PRIO_PROCESS, pid) == 19;
    kill(pid, SIGKILL);
    child_status(pid);
    return says_ok(set);
}

ATTACK(.tries = "messages to the next sandbox in what can be set of init", .attack = attack, .twin = twin, .earlier = earlier,
       .not_bare = "the init of the bare child's namespaces ends with it",
       .must = { "priority refused", "processors refused", "limits refused" });
