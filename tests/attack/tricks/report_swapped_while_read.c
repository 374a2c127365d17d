#include "tests/attack/attack.h"

/* Left behind at the end of the run, a child swaps file, link and directory at one name and lets a file grow. */
static int attack(void)
{
    if (chdir("/assay/report") < 0)
        return 1;
    for (int k = 0; k < 4; k++)
        if (fork() == 0) {
            char name[8], other[12];
            snprintf(name, sizeof name, "r%d", k);
            snprintf(other, sizeof other, "r%d.new", k);
            setsid();
            for (;;) {
                if (symlink("/etc/passwd", other) == 0)
                    rename(other, name);
                int fd = open(other, O_CREAT | O_WRONLY, 0644);
                if (write(fd, "data", 4) == 4)
                    rename(other, name);
                close(fd);
            }
        }
    usleep(50000);
    printf("report refused to be a race\n");
    return 0;
}

static int twin(void)
{
    int fd = open("/assay/report/r", O_CREAT | O_WRONLY, 0644);
    return says_ok(fd >= 0 && write(fd, "honest", 6) == 6);
}

ATTACK(.tries = "swap the report for a link while it is read (Judge0 CVE-2024-28185, go-judge)", .attack = attack, .twin = twin,
       .not_bare = "the runner's own code is the defence", .must = { "report refused" });
