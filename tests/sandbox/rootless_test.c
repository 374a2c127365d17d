/*
 * The sandbox without root: the other test programs once more, run by an ordinary user, who has no right but the one to make
 * user namespaces. What cannot hold there they skip themselves; what is weaker is listed in tests/attack/attack_test.c.
 *
 * usage: rootless_test [PROGRAM ...]: only these.
 */
#include "tests/sandbox/box.h"
#include "base/own.h"
#include <errno.h>
#include <grp.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define USER 1000

static char here[4096], dir[64];

static void become_user(void)
{
    if (geteuid() == 0 && (setgroups(0, NULL) < 0 || setresgid(USER, USER, USER) < 0 || setresuid(USER, USER, USER) < 0))
        _exit(98);
}

/* A directory of the user's with copies of what the user may have no way to. */
static int start(void **state)
{
    (void)state;
    pid_t pid = fork();
    if (pid == 0) {
        become_user();
        _exit(unshare(CLONE_NEWUSER) < 0 ? 1 : 0);
    }
    int status;
    if (waitpid(pid, &status, 0) < 0)
        return -1;
    if (status != 0) {
        printf("SKIPPED: an ordinary user may make no user namespaces here: kernel.unprivileged_userns_clone, "
               "user.max_user_namespaces, or a security module\n");
        exit(0);
    }
    const char *bin = getenv("ASSAY_BIN"), *attacker = getenv("ASSAY_ATTACKER");
    strcpy(dir, "/tmp/assay-user.XXXXXX");
    if (mkdtemp(dir) == NULL)
        return -1;
    if (box_sh("cp %s/assay-jail %s && cp %s %s && cp %s/*_test %s", bin != NULL ? bin : "build/bin", dir,
           attacker != NULL ? attacker : "build/attack/attacker", dir, here, dir) != 0)
        return -1;
    box_sh("cp %s/../attack/attack_test %s 2>/dev/null", here, dir);        /* unless it lay with the others */
    return geteuid() == 0 ? box_sh("chown -R %d:%d %s", USER, USER, dir) : 0;
}

static int stop(void **state)
{
    (void)state;
    return box_sh("rm -rf %s", dir);
}

static void run(const char *program, char *const *more)
{
    pid_t pid = fork();
    if (pid == 0) {
        char path[128], *argv[8] = { path };
        for (int i = 0; more != NULL && more[i] != NULL && i < 6; i++)
            argv[1 + i] = more[i];
        snprintf(path, sizeof path, "%s/%s", dir, program);
        if (chdir(dir) < 0 || setenv("ASSAY_BIN", dir, 1) < 0 || setenv("HOME", dir, 1) < 0 ||
            setenv("ATTACK_NO_BARE", "1", 1) < 0 || setenv("ASSAY_ATTACKER", "./attacker", 1) < 0)
            _exit(97);
        become_user();
        execv(path, argv);
        _exit(96);
    }
    int status;
    waitpid(pid, &status, 0);
    if (status != 0)
        fail_msg("%s by an ordinary user: status %x", program, (unsigned)status);
}

static void program(void **state)
{
    const char *name = *state;
    run(name, strcmp(name, "soak_test") == 0 ? (char *[]){ (char[]){ "40" }, (char[]){ "3" }, NULL } : NULL);
}

int main(int argc, char **argv)
{
    /* Not exact_test: a limit kept by rlimits cannot be told from a signal of that number. */
    static const char *const names[] = { "run_test", "stream_test", "files_test", "tree_test", "net_test", "life_test",
                                         "soak_test", "attack_test" };
    struct CMUnitTest tests[sizeof names / sizeof names[0]];
    size_t n = 0;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        bool wanted = argc == 1;
        for (int k = 1; k < argc; k++)
            wanted |= strcmp(names[i], argv[k]) == 0;
        if (wanted)
            tests[n++] = (struct CMUnitTest){ names[i], program, NULL, NULL, (void *)(uintptr_t)names[i] };
    }
    snprintf(here, sizeof here, "%s", argv[0]);
    char *slash = strrchr(here, '/');
    if (slash != NULL)
        *slash = '\0';
    return _cmocka_run_group_tests("sandbox without root", tests, n, start, stop);
}
