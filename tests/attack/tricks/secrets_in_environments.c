#include "tests/attack/attack.h"
#include <dirent.h>

extern char **environ;

static int attack(void)
{
    int found = 0;
    for (char **e = environ; *e != NULL; e++)
        found += strncmp(*e, "ASSAY_TEST_SECRET", 17) == 0;
    judged("own-environment", found > 0);
    DIR *d = opendir("/proc");
    for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL; ) {
        char path[300], text[8192];
        if (e->d_name[0] < '1' || e->d_name[0] > '9' || atoi(e->d_name) == getpid())
            continue;
        snprintf(path, sizeof path, "/proc/%s/environ", e->d_name);
        int fd = open(path, O_RDONLY);
        ssize_t n = read(fd, text, sizeof text);
        judged("environment-of-others", n > 0 && memmem(text, (size_t)n, "ASSAY_TEST", 10) != NULL);
    }
    return 0;
}

static int twin(void) { return says_ok(strcmp(given("HOME"), "/home/sandbox") == 0 && access(given("HOME"), W_OK) == 0); }

ATTACK(.tries = "tokens in environments, one's own and by /proc/*/environ", .attack = attack, .twin = twin, .bare = "own-environment",
       .must = { "own-environment refused" });
