/*
 * Warm starts: a run that is a fork of a started interpreter can be told from a cold one by nothing that a test can see, and is
 * one only where a cold one would have been the same.
 */
#include "tests/sandbox/box.h"
#include "repos/edits.h"
#include <sys/mman.h>
#include <sys/stat.h>

static struct sandbox_client *client;

#define MIB ((uint64_t)1 << 20)
static const struct sandbox_limits usual = { .wall_ns = 60 * NS_PER_S, .memory_bytes = 512 * MIB, .pids = 64 };
static const char *const declared[] = { "python3", "-m", "pytest", NULL };
static const char *const addopts[] = { "PYTEST_ADDOPTS=-p no:cacheprovider", NULL };
static const struct sandbox_command warm = { .argv = declared, .env = addopts };

static int start(void **state) { (void)state; client = box_start(1); return 0; }
static int stop(void **state) { (void)state; sandbox_client_close(client); return 0; }

static int tree_make(char *path)
{
    strcpy(path, "/tmp/warm.XXXXXX");
    assert_non_null(mkdtemp(path));
    return open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

static void put(const char *dir, const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void remove_tree(const char *dir, int fd)
{
    char line[128];
    close(fd);
    snprintf(line, sizeof line, "rm -rf %s", dir);
    assert_int_equal(system(line), 0);
}

/* Run until the answer to how it began is `want`: the first of its kind in each slot is cold. */
static struct outcome run_until(const struct sandbox_spec *spec, const struct sandbox_command *cmd, const char *want)
{
    for (int i = 0; i < 12; i++) {
        struct sandbox *s = box_acquire(client, *spec, usual);
        struct outcome o = box_command(client, s, *cmd);
        sandbox_close(s);
        if (strncmp(o.result.start, want, strlen(want)) == 0)
            return o;
        fprintf(stderr, "# %s\n", o.result.start);
        outcome_done(&o);
    }
    fail_msg("never `%s`", want);
    return (struct outcome){ 0 };
}

static char *observed(struct outcome *o)
{
    char *at = strstr(o->output, "OBSERVED");
    if (at == NULL)
        fail_msg("%s: %s", o->result.start, o->output);
    char *line = strndup(at, strcspn(at, "\n"));
    outcome_done(o);
    return line;
}

static void a_test_sees_no_difference(void **state)
{
    (void)state;
    char dir[32];
    int tree = tree_make(dir);
    size_t n;
    char *text = box_slurp(open("tests/cross/observed_start.py", O_RDONLY), &n);
    put(dir, "test_observe.py", text);
    free(text);
    const char *const argv[] = { "python3", "-m", "pytest", "-q", "test_observe.py", NULL };
    struct sandbox_command cmd = { .argv = argv, .env = addopts };
    struct sandbox_spec plain = { tree, -1, -1, NULL }, declares = { tree, -1, -1, &warm };
    struct outcome o = run_until(&plain, &cmd, "");
    char *cold = observed(&o);
    for (int i = 0; i < 4; i++) {
        o = run_until(&declares, &cmd, "warm");
        char *got = observed(&o);
        if (strcmp(got, cold) != 0) {
            put("/tmp", "observed.cold", cold);
            put("/tmp", "observed.warm", got);
            fail_msg("a warm start shows");
        }
        free(got);
    }
    free(cold);
    remove_tree(dir, tree);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_test_sees_no_difference),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
