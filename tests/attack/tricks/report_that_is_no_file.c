#include "tests/attack/attack.h"
#include <sys/un.h>

static int attack(void)
{
    if (chdir("/assay/report") < 0) {
        judged("report", *given("ATTACK_BARE") != 0);
        return 0;
    }
    mkfifo("fifo", 0666);
    mkdir("dir", 0777);
    tried("link", symlink("/etc/passwd", "link") < 0 ? -1 : (errno = 0, -1));
    tried("hard", link("/testbed/attacker", "hard"));
    tried("proc-link", symlink("/proc/self/root/etc/passwd", "proc-link") < 0 ? -1 : (errno = 0, -1));
    struct sockaddr_un un = { .sun_family = AF_UNIX, .sun_path = "socket" };
    if (bind(socket(AF_UNIX, SOCK_STREAM, 0), (void *)&un, sizeof un) < 0)
        return 1;
    tried("move-report", rename("/assay/report", "/tmp/report"));
    tried("move-assay", rename("/assay", "/tmp/assay"));
    tried("rmdir-report", rmdir("/assay/report"));
    return 0;
}

static int twin(void)
{
    int fd = open("/assay/report/r", O_CREAT | O_WRONLY, 0644);
    return says_ok(fd >= 0 && write(fd, "honest", 6) == 6);
}

ATTACK(.tries = "report files that are links, FIFOs, sockets (Judge0 CVE-2024-28189, isolate 2.5)", .attack = attack, .twin = twin,
       .not_bare = "the runner's own code is the defence", .must = { "hard refused EXDEV", "move-report refused", "move-assay refused" });
