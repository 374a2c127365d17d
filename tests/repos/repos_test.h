/* repos_test.h - what the repos tests share: temp directories, git in a directory, tasks. */
#pragma once
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "repos/repos.h"

#define RECORD_HEAD "{\"instance_id\":\"t-1\",\"repo\":\"r\",\"base_commit\":\"0123456789012345678901234567890123456789\","
#define RECORD_TAIL "\"FAIL_TO_PASS\":[\"a::b\"],\"test_cmd\":\"true\"}"

static inline char *temp_dir(void)
{
    char *d = strdup("/tmp/assay-repos-XXXXXX");
    assert_non_null(mkdtemp(d));
    return d;
}

static inline void drop_dir(char *d)
{
    char cmd[4200];
    snprintf(cmd, sizeof cmd, "rm -rf '%s'", d);
    assert_int_equal(system(cmd), 0);
    free(d);
}

/* A shell script in directory d; git has an identity and no configuration of the machine. */
static inline int sh(const char *d, const char *script)
{
    static const char env[] = "export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_NAME=t GIT_AUTHOR_EMAIL=t@t "
                              "GIT_COMMITTER_NAME=t GIT_COMMITTER_EMAIL=t@t; set -e; ";
    size_t n = strlen(d) + strlen(env) + strlen(script) + 32;
    char *cmd = malloc(n);
    assert_non_null(cmd);
    snprintf(cmd, n, "cd '%s'; %s%s", d, env, script);
    int rc = system(cmd);
    free(cmd);
    return rc;
}

static inline char *slurp(const char *dir, const char *name, size_t *out_n)
{
    char path[8800];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "rb");
    if (f == NULL)
        return NULL;
    struct buf b = { .max = (size_t)256 << 20 };
    struct err err = { 0 };
    assert_int_equal(buf_read_fd(&b, fileno(f), &err), 0);
    fclose(f);
    char *s = calloc(1, b.len + 1);
    assert_non_null(s);
    if (b.len > 0)
        memcpy(s, b.data, b.len);
    if (out_n != NULL)
        *out_n = b.len;
    buf_done(&b);
    return s;
}
