/* cgroup.c - see cgroup.h. Files hold decimal numbers; a missing one means a limit less, told by version 0 only. */
#include "sandbox/cgroup.h"
#include "base/own.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#define PREFIX "assay-jail."
#define TCP_BYTES "67108864"            /* v1 counts socket buffers apart, and leaves them unlimited unless told */
#define ROOMY_BYTES ((uint64_t)64 << 20)        /* the launcher has room for its own work below any such limit */
#define ROOMY_TASKS 16u                 /* ... and the next one beside it, with its crew and a warm host */
#define KEEP_CHARGED ((uint64_t)64 << 20)
#define LEAF "/assay-client"            /* v2: where the processes of a group go whose controllers are passed on */

static const char *const names[CGROUP_CONTROLLER_COUNT] = { "memory", "pids", "cpu", "cpuacct", "blkio" };

static int put(int fd, const char *text)
{
    return fd >= 0 && pwrite(fd, text, strlen(text), 0) == (ssize_t)strlen(text) ? 0 : -1;
}

static int put_path(const char *dir, const char *file, const char *text)
{
    char path[420];
    snprintf(path, sizeof path, "%s/%s", dir, file);
    own_fd fd = open(path, O_WRONLY | O_CLOEXEC);
    return put(fd, text);
}

static int put_number(int fd, uint64_t n)
{
    char text[32];
    snprintf(text, sizeof text, "%llu", (unsigned long long)n);
    return put(fd, text);
}

/* The number after `key` (whole word at a line's start), or the file's first number for NULL. */
static uint64_t number(int fd, const char *key)
{
    char text[4096];
    ssize_t n = fd < 0 ? -1 : pread(fd, text, sizeof text - 1, 0);
    if (n <= 0)
        return 0;
    text[n] = '\0';
    if (key == NULL)
        return strtoull(text, NULL, 10);
    size_t len = strlen(key);
    for (char *line = text; line != NULL; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, len) == 0 && line[len] == ' ')
            return strtoull(line + len, NULL, 10);
    }
    return 0;
}

/* Field `which` (from 3 on) of /proc/PID/stat; 0: no such process. */
static unsigned long long stat_field(long pid, int which)
{
    char path[48], text[1024];
    snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    own_fd fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (n <= 0)
        return 0;
    text[n] = '\0';
    char *p = strrchr(text, ')');           /* the name may hold anything */
    for (int field = 2; p != NULL && field < which; field++)
        p = strchr(p + 1, ' ');
    return p == NULL ? 0 : strtoull(p, NULL, 10);
}

static long parent_of(long pid) { return (long)stat_field(pid, 4); }

/* Ticks since boot at which process `pid` began; 0: no such process. */
static unsigned long long start_ticks(long pid) { return stat_field(pid, 22); }

/* Which process ids these are: containers that share a hierarchy count their own. */
static unsigned long long pid_namespace(void)
{
    struct stat st;
    return stat("/proc/self/ns/pid", &st) < 0 ? 0 : (unsigned long long)st.st_ino;
}

static void remove_tree(const char *dir)
{
    char path[640];
    DIR *d = opendir(dir);
    if (d == NULL)
        return;
    for (struct dirent *e; (e = readdir(d)) != NULL; )
        if (e->d_type == DT_DIR && strncmp(e->d_name, "slot-", 5) == 0) {
            snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
            rmdir(path);
        }
    closedir(d);
    rmdir(dir);
}

static void remove_stale(const char *parent)
{
    DIR *d = opendir(parent);
    if (d == NULL)
        return;
    for (struct dirent *e; (e = readdir(d)) != NULL; ) {
        long pid;
        unsigned long long namespace, ticks;
        char path[640];
        if (sscanf(e->d_name, PREFIX "%ld.n%llu.%llu", &pid, &namespace, &ticks) == 3 && namespace == pid_namespace() &&
            start_ticks(pid) != ticks) {
            snprintf(path, sizeof path, "%s/%s", parent, e->d_name);
            remove_tree(path);
        }
    }
    closedir(d);
}

/* Our own group in hierarchy `want` ("" for v2) of /proc/self/cgroup. */
static int own_group(const char *want, char *out, size_t size)
{
    char line[512];
    own_file f = fopen("/proc/self/cgroup", "re");
    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        char *list = strchr(line, ':'), *path = list == NULL ? NULL : strchr(list + 1, ':');
        if (path == NULL)
            continue;
        *path++ = '\0';
        path[strcspn(path, "\n")] = '\0';
        char *save = NULL, *c = *++list == '\0' ? list : strtok_r(list, ",", &save);
        for (; c != NULL; c = strtok_r(NULL, ",", &save)) {
            if (strcmp(c, want) == 0)
                return snprintf(out, size, "%s", strcmp(path, "/") == 0 ? "" : path) < (int)size ? 0 : -1;
            if (*c == '\0')
                break;
        }
    }
    return -1;
}

/* Mount point of the hierarchy with controller `want` (v1), or of v2 for NULL. */
static int mount_point(const char *want, char *out, size_t size)
{
    char line[1024];
    own_file f = fopen("/proc/self/mounts", "re");
    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        char dir[256], type[32], options[512];
        if (sscanf(line, "%*s %255s %31s %511s", dir, type, options) != 3)
            continue;
        bool found = want == NULL && strcmp(type, "cgroup2") == 0;
        if (want != NULL && strcmp(type, "cgroup") == 0)
            for (char *save = NULL, *o = strtok_r(options, ",", &save); o != NULL; o = strtok_r(NULL, ",", &save))
                found |= strcmp(o, want) == 0;
        if (found)
            return snprintf(out, size, "%s", dir) < (int)size ? 0 : -1;
    }
    return -1;
}

static int make_base(char *out, size_t size, const char *parent)
{
    remove_stale(parent);
    int n = snprintf(out, size, "%s/" PREFIX "%ld.n%llu.%llu", parent, (long)getpid(), pid_namespace(), start_ticks(getpid()));
    if (n >= (int)size)
        return -1;
    return mkdir(out, 0755) == 0 || errno == EEXIST ? 0 : -1;
}

static bool open_v1(struct cgroup_host *h)
{
    for (int c = 0; c < CGROUP_CONTROLLER_COUNT; c++) {
        char mount[256], group[256], parent[512];
        if (mount_point(names[c], mount, sizeof mount) < 0 || own_group(names[c], group, sizeof group) < 0)
            continue;
        snprintf(parent, sizeof parent, "%s%s", mount, group);
        /* Inside a container the path of /proc may not exist below the mount: its root is ours then. */
        if (access(parent, W_OK) < 0)
            snprintf(parent, sizeof parent, "%s", mount);
        if (make_base(h->base[c], sizeof h->base[c], parent) < 0)
            h->base[c][0] = '\0';
    }
    h->cpu_share = h->base[CGROUP_CPU][0] != '\0';
    return h->base[CGROUP_MEMORY][0] != '\0' && h->base[CGROUP_PIDS][0] != '\0';
}

/* Is `pid` the client that started us, or below it? */
static bool of_the_family(long pid)
{
    const long top = getppid();
    for (int deep = 0; pid > 1 && pid != top && deep < 64; deep++)
        pid = parent_of(pid);
    return pid == top && pid > 0;
}

/* Is everything in this group ours? A process of another pid namespace shows as 0. */
static bool only_family(const char *dir)
{
    char path[600];
    snprintf(path, sizeof path, "%s/cgroup.procs", dir);
    own_file f = fopen(path, "re");
    long pid;
    bool all = f != NULL;
    while (all && fscanf(f, "%ld", &pid) == 1)
        all = of_the_family(pid);
    return all;
}

/* Every process of group `from` to group `to`, those that are born meanwhile too. */
static int move_all(const char *from, const char *to)
{
    char path[600], text[24];
    snprintf(path, sizeof path, "%s/cgroup.procs", from);
    for (int round = 0; round < 50; round++) {
        own_file f = fopen(path, "re");
        long pid, seen = 0;
        if (f == NULL)
            return -1;
        while (fscanf(f, "%ld", &pid) == 1) {
            if (pid == 0)
                return -1;
            seen++;
            snprintf(text, sizeof text, "%ld", pid);
            put_path(to, "cgroup.procs", text);     /* one that is gone needs no move */
        }
        if (seen == 0)
            return 0;
    }
    return -1;
}

static bool offers(const char *dir)
{
    char path[600], word[32];
    snprintf(path, sizeof path, "%s/cgroup.controllers", dir);
    own_file f = fopen(path, "re");
    int found = 0;
    while (f != NULL && fscanf(f, "%31s", word) == 1)
        found += strcmp(word, "memory") == 0 || strcmp(word, "pids") == 0;
    return found == 2;
}

/* Let groups below `dir` have the controllers; those of CPU and devices only where they can be had. */
static bool pass_on(const char *dir)
{
    if (put_path(dir, "cgroup.subtree_control", "+memory +pids") < 0)
        return false;
    put_path(dir, "cgroup.subtree_control", "+cpu");
    put_path(dir, "cgroup.subtree_control", "+io");     /* only counts */
    return true;
}

static bool base_in(struct cgroup_host *h, const char *parent)
{
    struct err err;
    struct cgroup_slot probe;
    if (!pass_on(parent) || make_base(h->base[0], sizeof h->base[0], parent) < 0)
        return false;
    bool good = pass_on(h->base[0]) && cgroup_slot_make(&probe, h, 0, &err) == 0;
    if (good) {
        /* May processes be born there? Whoever is not root may be kept from it by a group above. */
        pid_t pid = fork();
        if (pid == 0) {
            char dir[400];
            snprintf(dir, sizeof dir, "%s/slot-0", h->base[0]);
            _exit(put_path(dir, "cgroup.procs", "0") < 0 ? 1 : 0);
        }
        int status = 1;
        good = pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
        h->cpu_share = probe.cpu_quota >= 0;
        cgroup_slot_drop(&probe);
    }
    if (!good)
        remove_tree(h->base[0]);
    return good;
}

/* Take back what move_aside() did, unless another jail uses it still. */
static void move_back(const char *group)
{
    char leaf[600];
    snprintf(leaf, sizeof leaf, "%s" LEAF, group);
    remove_stale(group);
    if (put_path(group, "cgroup.subtree_control", "-memory -pids") < 0)
        return;
    put_path(group, "cgroup.subtree_control", "-cpu");
    put_path(group, "cgroup.subtree_control", "-io");
    if (move_all(leaf, group) == 0)
        rmdir(leaf);
}

static bool move_aside(struct cgroup_host *h, const char *group)
{
    char leaf[600];
    snprintf(leaf, sizeof leaf, "%s" LEAF, group);
    if ((mkdir(leaf, 0755) < 0 && errno != EEXIST) || move_all(group, leaf) < 0 || !base_in(h, group)) {
        move_back(group);
        rmdir(leaf);
        return false;
    }
    snprintf(h->aside, sizeof h->aside, "%s", group);
    return true;
}

/*
 * A group with processes cannot pass controllers on, except the root of all. Where ours lies, best first:
 *   1 in our own group, when it can: the root, or one whose processes were moved aside by another jail;
 *   2 there, with its processes moved to a leaf, when all of them are the client's: a service's own group;
 *   3 beside it, or at the top: a login's group holds processes that are none of our business;
 *   4 as 2, whosever the processes are: a container, of which we see no more than its own group.
 */
static bool open_v2(struct cgroup_host *h)
{
    char mount[256], group[256], own[512], beside[512];
    if (mount_point(NULL, mount, sizeof mount) < 0 || own_group("", group, sizeof group) < 0)
        return false;
    h->version = 2;
    snprintf(own, sizeof own, "%s%s", mount, group);
    size_t len = strlen(own), leaf_len = sizeof LEAF - 1;
    if (len > leaf_len && strcmp(own + len - leaf_len, LEAF) == 0) {
        own[len - leaf_len] = '\0';
        snprintf(h->aside, sizeof h->aside, "%s", own);
    }
    if (offers(own) && (base_in(h, own) || (only_family(own) && move_aside(h, own))))
        return true;
    if (strlen(own) > strlen(mount)) {
        snprintf(beside, sizeof beside, "%.*s", (int)(strrchr(own, '/') - own), own);
        if (base_in(h, beside) || base_in(h, mount))
            return true;
    }
    return offers(own) && move_aside(h, own);
}

void cgroup_open(struct cgroup_host *h)
{
    *h = (struct cgroup_host){ 0 };
    if (open_v1(h)) {
        h->version = 1;
        return;
    }
    cgroup_close(h);                        /* of v1, what was there without memory */
    *h = (struct cgroup_host){ 0 };
    if (!open_v2(h))
        *h = (struct cgroup_host){ 0 };
}

void cgroup_close(const struct cgroup_host *h)
{
    if (h->version == 2)
        put_path(h->base[0], "cgroup.kill", "1");           /* whoever lives there still; Linux 5.14 */
    for (int c = 0; c < CGROUP_CONTROLLER_COUNT; c++)
        for (int tries = 0; h->base[c][0] != '\0' && tries < 200; tries++) {
            remove_tree(h->base[c]);
            if (access(h->base[c], F_OK) < 0)
                break;
            nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
        }
    if (h->aside[0] != '\0')
        move_back(h->aside);
}

static int open_in(const char *dir, const char *file, int flags)
{
    char path[500];
    snprintf(path, sizeof path, "%s/%s", dir, file);
    return open(path, flags | O_CLOEXEC);
}

static int slot_dir(const struct cgroup_host *h, int controller, uint32_t slot, char *out, size_t size, struct err *err)
{
    snprintf(out, size, "%s/slot-%u", h->base[controller], slot);
    int rc = mkdir(out, 0755);
    /* An empty group may be swept away by a tidy neighbour before its first process joins. */
    if (rc < 0 && errno == ENOENT && (mkdir(h->base[controller], 0755) == 0 || errno == EEXIST))
        rc = mkdir(out, 0755);
    if (rc < 0 && errno != EEXIST)
        return err_sys(err, ERR_SYS, "control group %s", out);
    return 0;
}

int cgroup_slot_make(struct cgroup_slot *s, const struct cgroup_host *h, uint32_t slot, struct err *err)
{
    char dir[400];
    *s = (struct cgroup_slot){ h, slot, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, false, false, 0, 0, 0 };
    if (h->version == 0)
        return 0;
    if (h->version == 2) {
        int rc = slot_dir(h, 0, slot, dir, sizeof dir, err);
        if (rc < 0)
            return rc;
        s->dir = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        s->memory_limit = open_in(dir, "memory.max", O_WRONLY);
        s->memsw_limit = open_in(dir, "memory.swap.max", O_WRONLY);
        s->memory_peak = open_in(dir, "memory.peak", O_RDWR);
        if (s->memory_peak < 0)
            s->memory_peak = open_in(dir, "memory.peak", O_RDONLY);
        s->peak_stays = put(s->memory_peak, "0") < 0;           /* before Linux 6.12 */
        s->oom = open_in(dir, "memory.events", O_RDONLY);
        s->pids_max = open_in(dir, "pids.max", O_WRONLY);
        s->pids_events = open_in(dir, "pids.events", O_RDONLY);
        s->cpu_quota = open_in(dir, "cpu.max", O_WRONLY);
        s->cpu_usage = open_in(dir, "cpu.stat", O_RDONLY);
        s->memory_now = open_in(dir, "memory.current", O_RDONLY);
        return s->dir >= 0 && s->memory_limit >= 0 && s->pids_max >= 0 ? 0
             : err_sys(err, ERR_SYS, "control group files of %s", dir);
    }
    for (int c = 0; c < CGROUP_CONTROLLER_COUNT; c++) {
        if (h->base[c][0] == '\0')
            continue;
        int rc = slot_dir(h, c, slot, dir, sizeof dir, err);
        if (rc < 0)
            return rc;
        if (c == CGROUP_MEMORY) {
            put_path(dir, "memory.kmem.tcp.limit_in_bytes", TCP_BYTES);
            s->memory_limit = open_in(dir, "memory.limit_in_bytes", O_WRONLY);
            s->memsw_limit = open_in(dir, "memory.memsw.limit_in_bytes", O_WRONLY);
            s->memory_peak = open_in(dir, s->memsw_limit >= 0 ? "memory.memsw.max_usage_in_bytes"
                                                              : "memory.max_usage_in_bytes", O_RDWR);
            s->oom = open_in(dir, "memory.oom_control", O_RDONLY);
            s->memory_now = open_in(dir, "memory.usage_in_bytes", O_RDONLY);
        } else if (c == CGROUP_PIDS) {
            s->pids_max = open_in(dir, "pids.max", O_WRONLY);
            s->pids_events = open_in(dir, "pids.events", O_RDONLY);
        } else if (c == CGROUP_CPU) {
            s->cpu_quota = open_in(dir, "cpu.cfs_quota_us", O_WRONLY);
        } else if (c == CGROUP_CPUACCT) {
            s->cpu_usage = open_in(dir, "cpuacct.usage", O_RDONLY);
        }
    }
    return s->memory_limit >= 0 && s->pids_max >= 0 ? 0 : err_sys(err, ERR_SYS, "control group files of slot %u", slot);
}

void cgroup_slot_drop(struct cgroup_slot *s)
{
    int *fds[] = { &s->dir, &s->memory_limit, &s->memsw_limit, &s->memory_peak, &s->oom, &s->pids_max, &s->pids_events,
                   &s->cpu_quota, &s->cpu_usage, &s->memory_now };
    for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++) {
        if (*fds[i] >= 0)
            close(*fds[i]);
        *fds[i] = -1;
    }
    if (s->host != NULL && s->host->version == 2) {
        char dir[400];
        snprintf(dir, sizeof dir, "%s/slot-%u", s->host->base[0], s->slot);
        rmdir(dir);
    }
}

int cgroup_slot_renew(struct cgroup_slot *s, struct err *err)
{
    int rc = s->host->version == 2 && s->peak_stays ? -1 : cgroup_limit(s, NULL, err);
    if (rc < 0) {
        cgroup_slot_drop(s);
        rc = cgroup_slot_make(s, s->host, s->slot, err);
    }
    return rc;
}

int cgroup_slot_enter(const struct cgroup_slot *s, int *out_pids_now, struct err *err)
{
    *out_pids_now = -1;
    for (int c = 0; s->host->version == 1 && c < CGROUP_CONTROLLER_COUNT; c++) {
        char dir[400];
        if (s->host->base[c][0] == '\0')
            continue;
        snprintf(dir, sizeof dir, "%s/slot-%u", s->host->base[c], s->slot);
        /* A thread that moves itself by "tasks" takes no lock against the whole system's forks; by "cgroup.procs" it would,
         * at the price of a grace period. */
        if (put_path(dir, "tasks", "0") < 0)
            return err_sys(err, ERR_SYS, "join control group %s", dir);
        if (c == CGROUP_PIDS)
            *out_pids_now = open_in(dir, "pids.current", O_RDONLY);
    }
    if (s->host->version == 2 && !s->peak_stays) {      /* else the next sandbox has another directory */
        char dir[400];
        snprintf(dir, sizeof dir, "%s/slot-%u", s->host->base[0], s->slot);
        *out_pids_now = open_in(dir, "pids.current", O_RDONLY);
    }
    return 0;
}

int cgroup_limit(struct cgroup_slot *s, const struct sandbox_limits *limits, struct err *err)
{
    const bool v2 = s->host->version == 2;
    const char *open_end = v2 ? "max" : "-1";
    if (s->host->version == 0)
        return 0;
    if (limits == NULL) {
        s->memory_bytes = 0;
        s->pids = s->cpu_percent = 0;
        put(s->memsw_limit, open_end);
        if (put(s->memory_limit, open_end) < 0 || put(s->pids_max, "max") < 0)
            return err_sys(err, ERR_SYS, "open limits of slot %u", s->slot);
        put(s->cpu_quota, open_end);
        /* File pages the last sandbox read are charged here still; a lot of them would slow the next limit. */
        uint64_t charged = number(s->memory_now, NULL);
        if (charged > KEEP_CHARGED) {
            char dir[400], amount[32];
            snprintf(dir, sizeof dir, "%s/slot-%u", s->host->base[CGROUP_MEMORY], s->slot);
            snprintf(amount, sizeof amount, "%llu", v2 ? (unsigned long long)charged : 0);
            put_path(dir, v2 ? "memory.reclaim" : "memory.force_empty", amount);
        }
        return 0;
    }
    if (s->memory_bytes != limits->memory_bytes) {
        /* v1: memory + swap may never be below memory, so it goes first when growing and last when shrinking. */
        s->memory_bytes = 0;
        put_number(s->memsw_limit, v2 ? 0 : limits->memory_bytes);
        if (put_number(s->memory_limit, limits->memory_bytes) < 0)
            return err_sys(err, ERR_SYS, "memory limit of %llu bytes", (unsigned long long)limits->memory_bytes);
        put_number(s->memsw_limit, v2 ? 0 : limits->memory_bytes);
        s->memory_bytes = limits->memory_bytes;
    }
    const uint32_t pids = limits->pids + CGROUP_OWN_TASKS + s->guest;
    if (s->pids != pids) {
        s->pids = 0;
        if (put_number(s->pids_max, pids) < 0)
            return err_sys(err, ERR_SYS, "task limit of %u", limits->pids);
        s->pids = pids;
    }
    if (s->cpu_percent != limits->cpu_percent) {
        char quota[48];
        uint64_t us = (uint64_t)limits->cpu_percent * 1000;     /* of a period of 100 ms */
        snprintf(quota, sizeof quota, v2 ? "%llu 100000" : "%llu", (unsigned long long)us);
        s->cpu_percent = put(s->cpu_quota, quota) < 0 ? 0 : limits->cpu_percent;
    }
    return 0;
}

bool cgroup_settle(struct cgroup_slot *s)
{
    struct err err;
    if (s->host->version == 2 && s->peak_stays)
        return false;
    if (s->memory_bytes >= ROOMY_BYTES && s->pids >= ROOMY_TASKS && number(s->memory_now, NULL) <= KEEP_CHARGED)
        return true;
    return cgroup_limit(s, NULL, &err) == 0;
}

bool cgroup_only_ours(int pids_now, uint32_t ours)
{
    return number(pids_now, NULL) == ours;
}

void cgroup_peak_reset(struct cgroup_slot *s)
{
    put(s->memory_peak, "0");
}

void cgroup_usage(const struct cgroup_slot *s, struct cgroup_usage *out)
{
    *out = (struct cgroup_usage){ 0 };
    if (s->host->version == 0)
        return;
    const bool v2 = s->host->version == 2;
    out->cpu_ns = v2 ? number(s->cpu_usage, "usage_usec") * 1000 : number(s->cpu_usage, NULL);
    out->memory_peak = number(s->memory_peak, NULL);
    out->oom_kills = number(s->oom, "oom_kill");
    out->pids_hits = number(s->pids_events, "max");
}

/* Sum of the numbers that follow `key` in a file of lines "8:0 Read 4096" or "8:0 rbytes=4096 wbytes=0". */
static uint64_t sum(int fd, const char *key, bool *out_devices)
{
    char text[4096];
    uint64_t total = 0;
    ssize_t n = fd < 0 ? -1 : pread(fd, text, sizeof text - 1, 0);
    text[n < 0 ? 0 : n] = '\0';
    *out_devices = strchr(text, ':') != NULL;
    for (char *at = text; (at = strstr(at, key)) != NULL; )
        total += strtoull(at += strlen(key), &at, 10);
    return total;
}

void cgroup_detail(const struct cgroup_slot *s, struct cgroup_detail *out)
{
    static const struct { enum cgroup_controller v1; const char *v1_file, *v2_file; } files[] = {
        { CGROUP_CPUACCT, "cpuacct.usage_user", "cpu.stat" }, { CGROUP_CPUACCT, "cpuacct.usage_sys", "cpu.stat" },
        { CGROUP_MEMORY, "memory.stat", "memory.stat" }, { CGROUP_BLKIO, "blkio.throttle.io_service_bytes", "io.stat" },
    };
    const bool v2 = s->host->version == 2;
    int fds[4];
    *out = (struct cgroup_detail){ 0 };
    for (int i = 0; i < 4; i++) {
        char path[500];
        const char *base = s->host->base[v2 ? 0 : files[i].v1];
        snprintf(path, sizeof path, "%s/slot-%u/%s", base, s->slot, v2 ? files[i].v2_file : files[i].v1_file);
        fds[i] = s->host->version == 0 || *base == '\0' ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    }
    out->user = number(fds[0], v2 ? "user_usec" : NULL);
    out->system = number(fds[1], v2 ? "system_usec" : NULL);
    out->faults = number(fds[2], "pgfault");
    out->faults_major = number(fds[2], "pgmajfault");
    bool devices;
    out->io_read = sum(fds[3], v2 ? " rbytes=" : " Read ", &devices);
    out->io_written = sum(fds[3], v2 ? " wbytes=" : " Write ", &devices);
    out->known = (fds[0] >= 0 && fds[1] >= 0 ? SANDBOX_KNOWN_CPU : 0u) | (fds[2] >= 0 ? SANDBOX_KNOWN_FAULTS : 0u) |
                 (fds[3] >= 0 && (v2 || devices) ? SANDBOX_KNOWN_IO : 0u);  /* v1 may list none, and then counts none */
    for (int i = 0; i < 4; i++)
        if (fds[i] >= 0)
            close(fds[i]);
}
