/* pid1.c - see pid1.h. */
#include "sandbox/pid1.h"
#include "base/own.h"
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SCHED_ATTR_BYTES 56             /* of sched_getattr(2); what a newer kernel has beyond is not told */
#define IOPRIO_WHO_PROCESS 1
#define LIMITS_BYTES 2048               /* sixteen lines of 80 bytes */

/* 0: something cannot be asked. */
static uint64_t digest(const struct pid1 *p)
{
    struct siphash hash;
    uint8_t sched[SCHED_ATTR_BYTES] = { 0 };
    cpu_set_t cpus;
    char text[LIMITS_BYTES];
    CPU_ZERO(&cpus);
    const long io = syscall(SYS_ioprio_get, IOPRIO_WHO_PROCESS, p->pid);
    const ssize_t n = pread(p->limits, text, sizeof text, 0);
    if (io < 0 || n <= 0 || n == sizeof text || syscall(SYS_sched_getattr, p->pid, sched, sizeof sched, 0) < 0 ||
        sched_getaffinity(p->pid, sizeof cpus, &cpus) < 0)
        return 0;
    siphash_start(&hash, &p->key);
    siphash_add(&hash, &io, sizeof io);
    siphash_add(&hash, sched, sizeof sched);
    siphash_add(&hash, &cpus, sizeof cpus);
    siphash_add(&hash, text, (size_t)n);
    return siphash_finish(&hash);
}

/* /proc/PID/limits of who has `pidfd`: his number is another one in another /proc, which tells it. */
static int limits_open(int proc, int pidfd)
{
    char name[48], text[512];
    snprintf(name, sizeof name, "self/fdinfo/%d", pidfd);
    own_fd info = openat(proc, name, O_RDONLY | O_CLOEXEC);
    ssize_t n = info < 0 ? -1 : read(info, text, sizeof text - 1);
    text[n > 0 ? n : 0] = '\0';
    const char *at = strstr(text, "\nPid:");
    if (at == NULL)
        return -1;
    snprintf(name, sizeof name, "%d/limits", atoi(at + sizeof "\nPid:" - 1));
    return openat(proc, name, O_RDONLY | O_CLOEXEC);
}

void pid1_watch(struct pid1 *p, int proc, pid_t pid, int pidfd)
{
    *p = (struct pid1){ .pid = pid, .limits = limits_open(proc, pidfd) };
    if (getrandom(&p->key, sizeof p->key, 0) == (ssize_t)sizeof p->key)
        p->was = digest(p);
}

bool pid1_unchanged(const struct pid1 *p)
{
    return p->was != 0 && digest(p) == p->was;
}

void pid1_forget(struct pid1 *p)
{
    if (p->limits >= 0)
        close(p->limits);
    p->limits = -1;
}
