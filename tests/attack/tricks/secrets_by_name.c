#include "tests/attack/attack.h"
#include <dirent.h>

static int attack(void)
{
    static const char *const names[] = {
        "/etc/shadow", "/etc/gshadow", "/etc/ssh/ssh_host_ed25519_key", "/root", "/root/.ssh", "/home/user", "/work", "/srv", "/mnt", "/boot",
        "/var/lib/docker", "/var/run/docker.sock", "/run/systemd", "/run/containerd", "/var/log/syslog", "/var/lib/dpkg/status_", "/lost+found",
        "/.dockerenv", "/etc/kubernetes", "/var/run/secrets", "/opt/secret",
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        tried(names[i], access(names[i], F_OK));
    tried("host-file", open(given("HOST_FILE"), O_RDONLY));
    char line[256];
    FILE *f = fopen("/etc/passwd", "r");
    int users = 0;
    while (f != NULL && fgets(line, sizeof line, f) != NULL)
        users++;
    judged("host-users", users > 4);
    return 0;
}

static int twin(void)
{
    char b[4];
    return says_ok(read(open("/etc/passwd", O_RDONLY), b, 4) == 4 && memcmp(b, "root", 4) == 0);
}

ATTACK(.tries = "the host's secrets by their usual names", .attack = attack, .twin = twin, .bare = "/etc/shadow",
       .must = { "/etc/shadow refused ENOENT", "host-file refused ENOENT", "/work refused ENOENT" });
