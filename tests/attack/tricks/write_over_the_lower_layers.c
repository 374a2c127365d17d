#include "tests/attack/attack.h"

/* What is written over programs and the tree must stay in one's own layer; the harness compares the host's files. */
static int earlier(void)
{
    if (*given("ATTACK_BARE")) {
        close(open("/tmp/written", O_CREAT | O_WRONLY, 0600));
        return 0;
    }
    static const char *const files[] = { "/usr/bin/env", "/bin/sh", "/etc/passwd", "attacker" };
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        int fd = open(files[i], O_WRONLY);
        if (fd >= 0 && write(fd, "evil", 4) == 4)
            close(fd);
        chmod(files[i], 06777);
        rename(files[i], "/tmp/moved");
        link("/usr/bin/dash", "/tmp/hard");
    }
    return 0;
}

static int attack(void)
{
    char b[4] = "";
    judged("program-changed", read(open("/usr/bin/env", O_RDONLY), b, 4) != 4 || memcmp(b, "\177ELF", 4) != 0);
    judged("shell-changed", access("/bin/sh", X_OK) < 0);
    tried("written", access("/tmp/written", F_OK));
    tried("hard-link", access("/tmp/hard", F_OK));
    return 0;
}

static int twin(void)
{
    int fd = open("attacker2", O_CREAT | O_WRONLY, 0755);
    return says_ok(fd >= 0 && write(fd, "x", 1) == 1 && rename("attacker2", "attacker3") == 0);
}

ATTACK(.tries = "write over programs, the shell and the tree below", .attack = attack, .twin = twin, .earlier = earlier, .bare = "written",
       .must = { "program-changed refused", "shell-changed refused" });
