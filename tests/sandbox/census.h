/*
 * census.h - what a jail and its client hold, counted from outside: the figures of the soak before and after.
 * Everything is counted over the process tree below the client, so that neighbours on the machine do not show;
 * the figures of the whole machine stand beside them.
 */
#pragma once
#include "base/own.h"
#include <dirent.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct census {
    long client_fds, jail_fds;              /* descriptors of the client; of everything below it */
    long processes, zombies;                /* below the client */
    long slots, slots_processes;            /* right below the jail, one a slot; all below it */
    long slots_pss_kib, jail_pss_kib;       /* proportional memory: of all below the jail; of guardian and jail */
    long mounts, namespaces;                /* mount points in all their mount namespaces; how many of those */
    long host_mounts, cgroups;              /* of this process's namespace; directories of this jail */
    long client_kib, jail_kib, below_kib;   /* resident: client, guardian and jail; anonymous: all below */
    long free_kib, kernel_kib;              /* of the machine: available; unreclaimable slab, stacks, tables, per-CPU */
    long all_cgroups;                       /* of the machine, dying ones included */
};

enum { CENSUS_MAX = 16384 };

static inline long census_lines(const char *path)
{
    own_file f = fopen(path, "re");
    long n = 0;
    for (int c; f != NULL && (c = getc(f)) != EOF; )
        n += c == '\n';
    return n;
}

static inline long census_entries(const char *path)
{
    DIR *d = opendir(path);
    long n = 0;
    for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL; )
        n += e->d_name[0] != '.';
    if (d != NULL)
        closedir(d);
    return n;
}

/* Sum of the lines of `path` that begin with one of `keys` (a list that ends with NULL): KEY  NUMBER kB. */
static inline long census_keys(const char *path, const char *const *keys)
{
    own_file f = fopen(path, "re");
    char line[256];
    long sum = 0;
    while (f != NULL && fgets(line, sizeof line, f) != NULL)
        for (const char *const *k = keys; *k != NULL; k++)
            if (strncmp(line, *k, strlen(*k)) == 0)
                sum += strtol(line + strlen(*k), NULL, 10);
    return sum;
}
#define CENSUS_KEYS(path, ...) census_keys(path, (const char *const[]){ __VA_ARGS__, NULL })

struct census_process { long pid, parent; char state, name[32]; };

static inline long census_all(struct census_process *all)
{
    DIR *d = opendir("/proc");
    long n = 0;
    for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL && n < CENSUS_MAX; ) {
        char path[300], text[512], *close_at;
        if (e->d_name[0] < '0' || e->d_name[0] > '9')
            continue;
        snprintf(path, sizeof path, "/proc/%s/stat", e->d_name);
        own_file f = fopen(path, "re");
        size_t got = f == NULL ? 0 : fread(text, 1, sizeof text - 1, f);
        text[got] = '\0';
        struct census_process *p = &all[n];
        if (got == 0 || (close_at = strrchr(text, ')')) == NULL || sscanf(close_at + 1, " %c %ld", &p->state, &p->parent) != 2)
            continue;
        p->pid = strtol(text, NULL, 10);
        char *open_at = strchr(text, '(');
        snprintf(p->name, sizeof p->name, "%.*s", (int)(close_at - open_at - 1), open_at + 1);
        n++;
    }
    if (d != NULL)
        closedir(d);
    return n;
}

static inline bool census_below(const struct census_process *all, long n, long i, long top)
{
    for (long pid = all[i].parent, deep = 0; pid > 1 && deep < 64; deep++) {
        if (pid == top)
            return true;
        long up = 0;
        for (long k = 0; k < n && up == 0; k++)
            if (all[k].pid == pid)
                up = all[k].parent;
        pid = up;
    }
    return false;
}

/* Directories of control groups of the jail whose guardian is `pid`. */
static inline long census_cgroups(long pid)
{
    char line[256];
    snprintf(line, sizeof line, "find /sys/fs/cgroup -type d -path '*/assay-jail.%ld.*' 2>/dev/null | wc -l", pid);
    FILE *f = popen(line, "re");
    long n = f == NULL || fgets(line, sizeof line, f) == NULL ? -1 : strtol(line, NULL, 10);
    if (f != NULL)
        pclose(f);
    return n;
}

/* *guardian: set when the jail is found; the cgroups of a jail that is gone can be asked for by it. */
static inline struct census census_take(long *guardian)
{
    struct census c = { 0 };
    struct census_process *all = calloc(CENSUS_MAX, sizeof *all);
    long n = all == NULL ? 0 : census_all(all), seen_count = 0;
    static unsigned long long seen[CENSUS_MAX];
    char path[64];
    for (long i = 0; i < n; i++) {
        if (!census_below(all, n, i, getpid()))
            continue;
        c.processes++;
        c.zombies += all[i].state == 'Z';
        snprintf(path, sizeof path, "/proc/%ld/fd", all[i].pid);
        c.jail_fds += census_entries(path);
        snprintf(path, sizeof path, "/proc/%ld/smaps_rollup", all[i].pid);
        c.below_kib += CENSUS_KEYS(path, "Anonymous:");
        bool jail = strcmp(all[i].name, "assay-jail") == 0;     /* guardian and jail; the others have names of their own */
        *(jail ? &c.jail_pss_kib : &c.slots_pss_kib) += CENSUS_KEYS(path, "Pss:");
        c.slots_processes += !jail && strcmp(all[i].name, "maker") != 0;
        c.slots += strcmp(all[i].name, "launcher") == 0;
        if (jail) {
            snprintf(path, sizeof path, "/proc/%ld/status", all[i].pid);
            c.jail_kib += CENSUS_KEYS(path, "VmRSS:");
            if (all[i].parent == getpid())
                *guardian = all[i].pid;
        }
        char ns[64];
        unsigned long long id = 0;
        snprintf(path, sizeof path, "/proc/%ld/ns/mnt", all[i].pid);
        ssize_t len = readlink(path, ns, sizeof ns - 1);
        bool known = len <= 0 || (ns[len] = '\0', sscanf(ns, "mnt:[%llu]", &id) != 1);
        for (long k = 0; k < seen_count && !known; k++)
            known = seen[k] == id;
        if (!known) {
            seen[seen_count++] = id;
            snprintf(path, sizeof path, "/proc/%ld/mountinfo", all[i].pid);
            c.mounts += census_lines(path);
        }
    }
    free(all);
    c.namespaces = seen_count;
    c.client_fds = census_entries("/proc/self/fd");
    c.host_mounts = census_lines("/proc/self/mountinfo");
    c.client_kib = CENSUS_KEYS("/proc/self/status", "VmRSS:");
    c.free_kib = CENSUS_KEYS("/proc/meminfo", "MemAvailable:");
    c.kernel_kib = CENSUS_KEYS("/proc/meminfo", "SUnreclaim:", "KernelStack:", "PageTables:", "Percpu:");
    c.cgroups = *guardian > 0 ? census_cgroups(*guardian) : 0;
    own_file f = fopen("/proc/cgroups", "re");
    char line[128];
    while (f != NULL && fgets(line, sizeof line, f) != NULL)
        (void)sscanf(line, "memory %*d %ld", &c.all_cgroups);
    return c;
}

static inline void census_print(const char *when, const struct census *c)
{
    printf("%-9s fds %ld+%ld  processes %ld (%ld zombies)  mounts %ld in %ld namespaces, %ld here  cgroups %ld (machine %ld)\n"
           "          resident client %ld KiB, jail %ld KiB, all below %ld KiB anonymous\n"
           "          machine: %ld MiB free, kernel %ld MiB\n",
           when, c->client_fds, c->jail_fds, c->processes, c->zombies, c->mounts, c->namespaces, c->host_mounts, c->cgroups,
           c->all_cgroups, c->client_kib, c->jail_kib, c->below_kib, c->free_kib / 1024, c->kernel_kib / 1024);
    fflush(stdout);
}
