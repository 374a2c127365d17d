#include "tests/attack/attack.h"

/* Each child holds one of a kind, in a nested user namespace of its own. */
static int attack(void)
{
    int n = 0;
    for (int ready[2]; n < 200 && pipe(ready) == 0; n++) {
        pid_t pid = fork();
        if (pid == 0) {
            char ok = syscall(SYS_unshare, CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS) == 0;
            if (write(ready[1], &ok, 1) == 1 && ok)
                for (;;)
                    pause();
            _exit(0);
        }
        char ok = 0;
        if (pid < 0 || read(ready[0], &ok, 1) != 1 || !ok)
            break;
        close(ready[0]);
        close(ready[1]);
    }
    judged("some", n > 0);
    judged("namespaces", n >= 200);
    kill(0, SIGTERM);
    return 0;
}

static int twin(void) { return says_ok(access("/proc/self/ns/mnt", F_OK) == 0); }

ATTACK(.tries = "namespaces without end, which the kernel pays for", .attack = attack, .twin = twin, .bare = "namespaces", .end = SANDBOX_END_SIGNAL, .value = SIGTERM,
       .must = { "namespaces refused" }, .compatible = { .grants = "some" });
