/*
 * box.h - a sandbox as a blocking call, for tests: start a jail, acquire, run, look at the result.
 * The jail is $ASSAY_BIN/assay-jail, or build/bin/assay-jail.
 */
#pragma once
#include "base/clock.h"
#include "base/err.h"
#include "sandbox/sandbox.h"
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

struct outcome {
    bool come;
    int rc;
    struct sandbox *sandbox;            /* of an acquire */
    struct sandbox_result result;       /* of a run; descriptors are read and closed */
    char *output;                       /* malloc'ed, NUL-terminated */
    char *report, *errors;
    size_t output_len, report_len, errors_len;
    struct err err;
};

/* A shell's line by printf(); its exit status as system() tells it. */
static inline int box_sh(const char *fmt, ...)
{
    char text[8192];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return system(text);
}

static inline const char *box_jail(void)
{
    static char path[4096];
    const char *dir = getenv("ASSAY_BIN");
    snprintf(path, sizeof path, "%s/assay-jail", dir != NULL ? dir : "build/bin");
    return path;
}

static inline struct sandbox_client *box_start(uint32_t slots)
{
    struct sandbox_client *c = NULL;
    struct err err = { 0 };
    if (sandbox_client_start(&c, box_jail(), slots, &err) < 0)
        fail_msg("%s", err.msg);
    return c;
}

/* So long a time for work that takes a while: on an emulated machine (ASSAY_SLOW) it takes longer. */
static inline uint64_t box_seconds(uint64_t s) { return s * NS_PER_S * (getenv("ASSAY_SLOW") != NULL ? 5 : 1); }

/* The command line of a sleep like no other on this machine, to be looked for from outside. */
static inline const char *box_sleep(int seconds)
{
    static char text[4][48];
    static unsigned turn;
    char *p = text[turn++ % 4];
    snprintf(p, sizeof text[0], "sleep %d.0%ld", seconds, (long)getpid());
    return p;
}

/* Does a process with exactly this command line live? Where `ps` cannot be asked, the answer is the bad one. */
static inline bool box_alive(const char *line)
{
    char text[160];
    snprintf(text, sizeof text, "all=$(ps -eo args) || exit 0; echo \"$all\" | grep -qxF '%s'", line);
    return system(text) == 0;
}

/* Were memory and tasks limited as a tree, by control groups? */
static inline bool box_grouped(const struct sandbox_result *r)
{
    return r->enforced_by[SANDBOX_LIMIT_MEMORY] == SANDBOX_BY_CGROUP_V1 || r->enforced_by[SANDBOX_LIMIT_MEMORY] == SANDBOX_BY_CGROUP_V2;
}

/* Dispatch until *come. Returns 0, or ERR_LOST, or ERR_DEADLINE after `ms`. */
static inline int box_wait(struct sandbox_client *c, const bool *come, int ms)
{
    struct err err = { 0 };
    uint64_t end = clock_mono_ns() + (uint64_t)ms * NS_PER_MS;
    while (!*come && clock_mono_ns() < end) {
        struct pollfd p = { .fd = sandbox_client_fd(c), .events = POLLIN };
        poll(&p, 1, 100);
        int rc = sandbox_client_dispatch(c, &err);
        if (rc < 0)
            return rc;
    }
    return *come ? 0 : ERR_DEADLINE;
}

/* Dispatch until the process with this command line is there; a busy machine takes its time. */
static inline void box_wait_alive(struct sandbox_client *c, const bool *come, const char *line)
{
    for (int i = 0; i < 200 && !box_alive(line); i++)
        box_wait(c, come, 50);
}

static inline char *box_slurp(int fd, size_t *out_len)
{
    off_t size = fd < 0 ? 0 : lseek(fd, 0, SEEK_END);
    char *text = calloc(1, (size_t)size + 1);
    ssize_t n = fd < 0 ? 0 : pread(fd, text, (size_t)size, 0);
    *out_len = n < 0 ? 0 : (size_t)n;
    if (fd >= 0)
        close(fd);
    return text;
}

static inline void box_acquired(void *arg, int rc, struct sandbox *s, const struct err *err)
{
    struct outcome *o = arg;
    o->come = true;
    o->rc = rc;
    o->sandbox = s;
    if (err != NULL)
        o->err = *err;
}

static inline void box_done(void *arg, int rc, struct sandbox_result *r, const struct err *err)
{
    struct outcome *o = arg;
    o->come = true;
    o->rc = rc;
    if (err != NULL)
        o->err = *err;
    if (r != NULL) {
        o->result = *r;
        o->output = box_slurp(r->output_fd, &o->output_len);
        o->report = box_slurp(r->report_fd, &o->report_len);
        o->errors = box_slurp(r->error_fd, &o->errors_len);
    }
}

static inline void outcome_done(struct outcome *o)
{
    free(o->output);
    free(o->report);
    free(o->errors);
    *o = (struct outcome){ 0 };
}

static inline int box_try_acquire(struct sandbox_client *c, struct sandbox_spec spec, struct sandbox_limits limits, struct outcome *o)
{
    *o = (struct outcome){ 0 };
    int rc = sandbox_acquire(c, &spec, &limits, box_acquired, o, &o->err);
    if (rc == 0)
        rc = box_wait(c, &o->come, 30000);
    return rc < 0 ? rc : o->rc;
}

#define BOX_EMPTY ((struct sandbox_spec){ -1, -1, -1, SANDBOX_STRICT, NULL })

static inline struct sandbox *box_acquire(struct sandbox_client *c, struct sandbox_spec spec, struct sandbox_limits limits)
{
    struct outcome o;
    if (box_try_acquire(c, spec, limits, &o) < 0)
        fail_msg("acquire: %s", o.err.msg);
    return o.sandbox;
}

static inline struct outcome box_command(struct sandbox_client *c, struct sandbox *s, struct sandbox_command cmd)
{
    struct outcome o = { 0 };
    int rc = sandbox_run(s, &cmd, box_done, &o, &o.err);
    if (rc == 0)
        rc = box_wait(c, &o.come, 60000);
    if (rc < 0 || o.rc < 0)
        fail_msg("run: %d %s", rc, o.err.msg);
    return o;
}

static inline struct outcome box_run_env(struct sandbox_client *c, struct sandbox *s, const char *shell, const char *const *env)
{
    return box_command(c, s, (struct sandbox_command){ .shell = shell, .env = env });
}

static inline struct outcome box_run(struct sandbox_client *c, struct sandbox *s, const char *shell)
{
    return box_run_env(c, s, shell, NULL);
}

/* One command in a sandbox of its own. */
static inline struct outcome box_once(struct sandbox_client *c, struct sandbox_spec spec, struct sandbox_limits limits, const char *shell)
{
    struct sandbox *s = box_acquire(c, spec, limits);
    struct outcome o = box_run(c, s, shell);
    sandbox_close(s);
    return o;
}
