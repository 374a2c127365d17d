/*
 * attacker.c - the program that runs the tricks: `attacker NAME PART`; `attacker --list` writes the rows as they are in
 * memory, for the harness. As /bin/sh of a hostile image it takes `sh -c "NAME PART"`.
 */
#include "tests/attack/attack.h"
#include <stddef.h>
#include <sys/un.h>

extern const struct attack *const __start_attacks[], *const __stop_attacks[];

void tried(const char *what, long rc)
{
    if (rc < 0)
        printf("%s refused %s\n", what, strerrorname_np(errno));
    else
        printf("%s GOT\n", what);
    fflush(stdout);
}

void tried_open(const char *path, int flags) { tried(path, open(path, flags | O_NONBLOCK | O_NOCTTY)); }

void judged(const char *what, bool got)
{
    printf("%s %s\n", what, got ? "GOT" : "refused");
    fflush(stdout);
}

void hold(void)
{
    printf("holding\n");
    fflush(stdout);
    for (;;)
        pause();
}

int says_ok(bool ok)
{
    printf(ok ? "ok\n" : "not ok: %s\n", strerror(errno));
    fflush(stdout);
    return !ok;
}

pid_t idle_child(void)
{
    pid_t pid = fork();
    if (pid == 0)
        for (;;)
            pause();
    return pid;
}

int child_status(pid_t pid)
{
    int status = -1;
    waitpid(pid, &status, 0);
    return status;
}

const char *given(const char *name)
{
    const char *v = getenv(name);
    return v == NULL ? "" : v;
}

int abstract_socket(const char *name, bool listens)
{
    struct sockaddr_un un = { .sun_family = AF_UNIX };
    int n = snprintf(un.sun_path + 1, sizeof un.sun_path - 1, "%s", name), s = socket(AF_UNIX, SOCK_STREAM, 0);
    socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
    if (listens)
        return bind(s, (void *)&un, len) < 0 || listen(s, 8) < 0 ? -1 : s;
    return connect(s, (void *)&un, len) < 0 ? -1 : s;
}

double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
    char text[128] = "";
    const char *name = argc > 1 ? argv[1] : "", *part = argc > 2 ? argv[2] : "attack";
    if (strcmp(name, "--list") == 0) {
        for (const struct attack *const *a = __start_attacks; a < __stop_attacks; a++)
            if (write(1, *a, sizeof **a) != (ssize_t)sizeof **a)
                return 1;
        return 0;
    }
    if (strcmp(name, "-c") == 0) {
        snprintf(text, sizeof text, "%s", part);
        char *save = NULL;
        name = strtok_r(text, " ", &save);
        part = strtok_r(NULL, " ", &save);
    }
    for (const struct attack *const *a = __start_attacks; name != NULL && part != NULL && a < __stop_attacks; a++) {
        size_t n = strcspn((*a)->name, ".");
        if (strlen(name) != n || strncmp(name, (*a)->name, n) != 0)
            continue;
        const struct { const char *part; attack_part *run; } parts[] = {
            { "attack", (*a)->attack }, { "twin", (*a)->twin }, { "holder", (*a)->holder }, { "earlier", (*a)->earlier },
            { "image", (*a)->image }, { "tree", (*a)->tree },
        };
        for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
            if (strcmp(part, parts[i].part) == 0 && parts[i].run != NULL)
                return parts[i].run();
    }
    return 64;
}
