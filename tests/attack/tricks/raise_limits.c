#include "tests/attack/attack.h"
#include <sys/resource.h>

static int attack(void)
{
    static const struct { const char *name; int what; } limits[] = { { "files", RLIMIT_NOFILE }, { "file-size", RLIMIT_FSIZE }, { "locked", RLIMIT_MEMLOCK },
        { "signals", RLIMIT_SIGPENDING }, { "queues", RLIMIT_MSGQUEUE }, { "core", RLIMIT_CORE } };
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        struct rlimit now, more;
        getrlimit(limits[i].what, &now);
        more = (struct rlimit){ now.rlim_cur, now.rlim_max == RLIM_INFINITY ? RLIM_INFINITY : now.rlim_max + 1 };
        tried(limits[i].name, setrlimit(limits[i].what, &more));
        prlimit(1, limits[i].what, &(struct rlimit){ 0, 0 }, NULL);     /* allowed, and of no use: init only sleeps */
    }
    prlimit(1, RLIMIT_CPU, &(struct rlimit){ 0, 0 }, NULL);
    judged("init-gone", kill(1, 0) < 0 && errno == ESRCH);
    return 0;
}

static int twin(void)
{
    struct rlimit r = { 100, 100 };
    return says_ok(setrlimit(RLIMIT_NOFILE, &r) == 0);
}

ATTACK(.tries = "resource limits, one's own and init's", .attack = attack, .twin = twin, .bare = "file-size", .must = { "files refused EPERM", "core refused EPERM" });
