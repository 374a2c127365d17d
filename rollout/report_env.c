/* report_env.c - the part of the readers that assayd needs: what to put into a command's environment. */
#include "rollout/report.h"
#include "rollout/worker.h"
#include "sandbox/sandbox.h"
#include <string.h>

/*
 * xunit1 carries the file of each test, which the default format leaves out; -rA prints the lines that the report is
 * held against; the cache goes out of the tree, so that a run leaves no files there for another to read.
 */
#define PYTEST_ADDOPTS \
    "PYTEST_ADDOPTS=--junitxml=" SANDBOX_REPORT_DIR "/" REPORT_JUNIT_FILE " -o junit_family=xunit1 -o junit_logging=no " \
    "-o cache_dir=/tmp/pytest-cache -rA --color=no"

static const char *const for_pytest[] = { PYTEST_ADDOPTS, NULL };
static const char *const for_tap[] = { "HARNESS_VERBOSE=1", NULL };    /* prove shows each test, as with -v */
static const char *const for_any[] = { PYTEST_ADDOPTS, "HARNESS_VERBOSE=1", "ASSAY_REPORT_DIR=" SANDBOX_REPORT_DIR, NULL };
static const char *const for_exit[] = { NULL };

int reader_environment(const char *const **out, struct arena *a, const struct task *task, struct err *err)
{
    static const struct { const char *reader; const char *const *env; } table[] = {
        { "pytest", for_pytest }, { "tap", for_tap }, { "exit", for_exit },
        { "auto", for_any }, { "junit", for_any }, { "", for_any },
    };
    const char *reader = task->reader != NULL ? task->reader : "";
    (void)a;                                /* constants so far: nothing to allocate */
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (strcmp(table[i].reader, reader) == 0) {
            *out = table[i].env;
            return 0;
        }
    char name[64];
    err_quote(name, sizeof name, reader, strlen(reader));
    return err_set(err, ERR_BAD_INPUT, "task %s: unknown report reader %s; known are auto, pytest, junit, tap, exit",
                   task->id, name);
}
