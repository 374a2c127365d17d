/*
 * peers.h - programs started bare, under bubblewrap, crun and runc, each the way that costs it least, for benchmarks.
 *
 * PEERS_TRUE is true.c, carried in the benchmark and laid into a tmpfs over /opt that only it and what it starts see.
 * crun and runc get what a container manager would have made beforehand: a bundle (config.json, the host's root bound as
 * root, read-only) in a mount namespace of its own. They have the limits below. Nobody is asked for a filter of system
 * calls, /dev/pts or /sys. One process of the program at a time uses this.
 */
#pragma once
#include "base/clock.h"
#include "base/own.h"
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define PEERS_MEMORY_BYTES 536870912
#define PEERS_TASKS 64
#define PEERS_CPU_PERCENT 200
#define PEERS_TRUE "/opt/true"

#define WORD(w) (char[]){ w }

extern char **environ;

struct side {
    const char *name;
    bool oci;
    char *prefix[16];                       /* what comes before the program; for OCI all of the command line */
    char *argv[24], version[64];
    int mounts;                             /* namespace in which it is started; -1: ours */
};
enum { BARE, BWRAP, CRUN, RUNC, OURS, SIDES };
#define OCI_PREFIX WORD("--root"), WORD(""), WORD("run"), WORD("--bundle"), bundle, container
static char bundle[64], container[32];
static struct side sides[SIDES] = {
    [BARE]  = { .name = "bare", .mounts = -1 },
    [BWRAP] = { .name = "bwrap", .mounts = -1, .prefix = {
        WORD("bwrap"), WORD("--unshare-all"), WORD("--ro-bind"), WORD("/"), WORD("/"), WORD("--proc"), WORD("/proc"),
        WORD("--dev"), WORD("/dev"), WORD("--tmpfs"), WORD("/tmp") } },
    [CRUN]  = { .name = "crun", .oci = true, .mounts = -1, .prefix = { WORD("crun"), OCI_PREFIX } },
    [RUNC]  = { .name = "runc", .oci = true, .mounts = -1, .prefix = { WORD("runc"), OCI_PREFIX } },
    [OURS]  = { .name = "ours", .mounts = -1 },
};

_Noreturn static inline void die(const char *what, const char *why)
{
    fprintf(stderr, "bench: %s: %s\n", what, why);
    exit(1);
}

static char *const *words;                  /* the program of the moment */

static inline void write_config(char *const *argv)
{
    char path[96];
    snprintf(path, sizeof path, "%s/config.json", bundle);
    own_file f = fopen(path, "we");
    if (f == NULL)
        die(path, strerror(errno));
    fprintf(f, "{\"ociVersion\":\"1.0.0\",\"root\":{\"path\":\"rootfs\",\"readonly\":true},"
               "\"process\":{\"terminal\":false,\"noNewPrivileges\":true,\"user\":{\"uid\":0,\"gid\":0},\"cwd\":\"/\","
               "\"env\":[\"PATH=/usr/bin:/bin\"],\"args\":[");
    for (int i = 0; argv[i] != NULL; i++)   /* none of ours has a quote or a backslash */
        fprintf(f, "%s\"%s\"", i > 0 ? "," : "", argv[i]);
    fprintf(f, "]},\"mounts\":[{\"destination\":\"/proc\",\"type\":\"proc\",\"source\":\"proc\"},"
               "{\"destination\":\"/dev\",\"type\":\"tmpfs\",\"source\":\"tmpfs\",\"options\":[\"nosuid\",\"mode=755\"]},"
               "{\"destination\":\"/tmp\",\"type\":\"tmpfs\",\"source\":\"tmpfs\",\"options\":[\"nosuid\",\"nodev\"]}],"
               "\"linux\":{\"resources\":{\"memory\":{\"limit\":%d,\"swap\":%d},\"pids\":{\"limit\":%d},"
               "\"cpu\":{\"quota\":%d,\"period\":100000}},"
               "\"uidMappings\":[{\"containerID\":0,\"hostID\":0,\"size\":1}],"
               "\"gidMappings\":[{\"containerID\":0,\"hostID\":0,\"size\":1}],"
               "\"namespaces\":[{\"type\":\"user\"},{\"type\":\"mount\"},{\"type\":\"pid\"},{\"type\":\"network\"},"
               "{\"type\":\"ipc\"},{\"type\":\"uts\"},{\"type\":\"cgroup\"}]}}\n",
            PEERS_MEMORY_BYTES, PEERS_MEMORY_BYTES, PEERS_TASKS, PEERS_CPU_PERCENT * 1000);
}

static inline void set_program(char *const *argv)
{
    words = argv;
    write_config(argv);
    for (int k = 0; k < OURS; k++) {
        int n = 0;
        for (int i = 0; sides[k].prefix[i] != NULL; i++)
            sides[k].argv[n++] = sides[k].prefix[i];
        for (int i = 0; !sides[k].oci && argv[i] != NULL; i++)
            sides[k].argv[n++] = argv[i];
        sides[k].argv[n] = NULL;
    }
}

static int own_mounts = -1, own_dir = -1;

static inline void go_into(int mounts)
{
    if (setns(mounts, CLONE_NEWNS) < 0)
        die("mount namespace", strerror(errno));
}

/* The peers of the OCI kind start in a mount namespace of their own: there the host's root is the bundle's, and cgroup v2
 * beside v1, which crun refuses, is not there. */
static inline void enter(const struct side *s)
{
    if (s->mounts >= 0)
        go_into(s->mounts);
}

static inline void leave(const struct side *s)
{
    if (s->mounts < 0)
        return;
    go_into(own_mounts);
    if (fchdir(own_dir) < 0)
        die("working directory", strerror(errno));
}

static inline pid_t spawned(struct side *s)
{
    static unsigned number;
    pid_t pid;
    if (s->oci)
        snprintf(container, sizeof container, "bench-%ld-%u", (long)getpid(), number++);
    int rc = posix_spawn(&pid, s->argv[0], NULL, NULL, s->argv, environ);
    if (rc != 0)
        die(s->argv[0], strerror(rc));
    return pid;
}

static inline double since_us(uint64_t began_ns) { return (double)(clock_mono_ns() - began_ns) / 1e3; }

static inline int status_of(struct side *s, double *us)
{
    int status = -1;
    enter(s);
    uint64_t began = clock_mono_ns();
    pid_t pid = spawned(s);
    if (waitpid(pid, &status, 0) != pid)
        die(s->name, "is gone");
    *us = since_us(began);
    leave(s);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static inline double us_of(struct side *s)
{
    double us;
    if (status_of(s, &us) != 0)
        die(s->name, "its command failed");
    return us;
}

/* Bare is the program itself; the others are looked for in PATH once, not by each start. */
static inline bool find_peer(struct side *s)
{
    static char path[SIDES][256];
    char line[256];
    snprintf(line, sizeof line, "command -v %s && %s --version", s->prefix[0], s->prefix[0]);
    FILE *f = popen(line, "re");
    char *p = path[s - sides];
    bool found = f != NULL && fgets(p, sizeof path[0], f) != NULL && fgets(line, sizeof line, f) != NULL;
    if (f != NULL)
        pclose(f);
    if (!found)
        return false;
    p[strcspn(p, "\n")] = '\0';
    line[strcspn(line, "\n")] = '\0';
    const char *word = strrchr(line, ' ');
    snprintf(s->version, sizeof s->version, "%s %.40s", s->name, word == NULL ? line : word + 1);
    s->prefix[0] = p;
    return true;
}

__asm__(".section .rodata\n"
        "true_program: .incbin \"tests/bench/true\"\ntrue_program_end:\n"
        ".previous\n");
extern const char true_program[], true_program_end[];

static bool true_placed;

/* Before the bundle is made and anything is started. False where there is no /opt to mount on, which is left as it is. */
static inline bool place_true(void)
{
    struct stat st;
    const ssize_t size = true_program_end - true_program;
    if (lstat("/opt", &st) < 0 || !S_ISDIR(st.st_mode))
        return false;
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("tmpfs", "/opt", "tmpfs", MS_NOSUID | MS_NODEV, "size=1m,mode=0755") < 0)
        die("mount over /opt", strerror(errno));
    own_fd fd = open(PEERS_TRUE, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0755);
    if (fd < 0 || write(fd, true_program, (size_t)size) != size || fchmod(fd, 0755) < 0)
        die(PEERS_TRUE, strerror(errno));
    return true_placed = true;
}

static inline void make_bundle(void)
{
    char path[96], opt[112], *state = path;
    snprintf(bundle, sizeof bundle, "/tmp/assay-bench.%ld", (long)getpid());
    snprintf(path, sizeof path, "%s/rootfs", bundle);
    snprintf(opt, sizeof opt, "%s/opt", path);
    if (mkdir(bundle, 0700) < 0 || mkdir(path, 0755) < 0)
        die(bundle, strerror(errno));
    own_mounts = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
    own_dir = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (own_mounts < 0 || own_dir < 0 || unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("/", path, NULL, MS_BIND, NULL) < 0 || (true_placed && mount("/opt", opt, NULL, MS_BIND, NULL) < 0))
        die("mount namespace", strerror(errno));
    umount2("/sys/fs/cgroup/unified", MNT_DETACH);      /* where the host has none, nothing is lost */
    int mounts = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
    snprintf(state, sizeof path, "%s/state", bundle);
    for (int k = 0; k < OURS; k++)
        if (sides[k].oci) {
            sides[k].mounts = mounts;
            sides[k].prefix[2] = strdup(state);
        }
    leave(&sides[CRUN]);
}

static inline void remove_bundle(void)
{
    char line[128];
    snprintf(line, sizeof line, "rm -rf --one-file-system %s", bundle);
    if (system(line) != 0)
        fprintf(stderr, "bench: %s is left over\n", bundle);
}
