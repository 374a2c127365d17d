#include "tests/attack/attack.h"

/* A script whose interpreter is a descriptor, and programs run by descriptor: the runner's own file was reached so (CVE-2019-5736). */
static int attack(void)
{
    static const char *const interpreters[] = { "/proc/1/exe", "/proc/1/fd/3", "/proc/1/root/bin/sh" };
    for (size_t i = 0; i < sizeof interpreters / sizeof interpreters[0]; i++) {
        FILE *f = fopen("/tmp/s", "w");
        fprintf(f, "#!%s\n", interpreters[i]);
        fclose(f);
        chmod("/tmp/s", 0755);
        pid_t pid = fork();
        if (pid == 0) {
            execl("/tmp/s", "s", "--list", NULL);
            _exit(99);
        }
        int status = child_status(pid);
        errno = EACCES;
        tried("script", WIFEXITED(status) && WEXITSTATUS(status) == 99 ? -1 : 0);
    }
    tried("execveat-init", syscall(SYS_execveat, open("/proc/1/exe", O_PATH), "", (char *[]){ "x", NULL }, NULL, AT_EMPTY_PATH));
    tried("link-init", syscall(SYS_linkat, AT_FDCWD, "/proc/1/exe", AT_FDCWD, "/tmp/init", AT_SYMLINK_FOLLOW));
    return 0;
}

static int twin(void)
{
    pid_t pid = fork();
    if (pid == 0) {
        fexecve(open("/bin/true", O_RDONLY), (char *[]){ "true", NULL }, (char *[]){ NULL });
        _exit(9);
    }
    return says_ok(child_status(pid) == 0);
}

ATTACK(.tries = "a script whose interpreter is the runner's own file (runc CVE-2019-5736)", .attack = attack, .twin = twin, .bare = "script",
       .must = { "script refused", "execveat-init refused", "link-init refused" });
