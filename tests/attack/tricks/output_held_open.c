#include "tests/attack/attack.h"

/* A grandchild in its own session keeps stdout open and reports later than the limit. */
static int attack(void)
{
    int fd = open("/proc/self/fd/1", O_RDWR | O_NONBLOCK);
    if (fork() == 0) {
        setsid();
        sleep(1);
        judged("late", true);
        sleep(60);
    }
    fcntl(1, F_SETPIPE_SZ, 1 << 20);
    fcntl(1, F_SETOWN, 1);
    fcntl(1, F_SETFL, O_NONBLOCK | O_ASYNC);
    printf("stdout refused to matter\n");
    fflush(stdout);
    return fd == -2;
}

static int twin(void)
{
    pid_t pid = fork();
    if (pid == 0) {
        says_ok(true);
        _exit(0);
    }
    return child_status(pid) != 0;
}

ATTACK(.tries = "keep stdout open after the end and print later", .attack = attack, .twin = twin, .bare = "late", .limits = { .wall_ns = 30 * SECOND });
