/*
 * As many members as one jail may be asked for: all come up, idle in little memory, run at once, and nothing is left.
 *
 * usage: pool_test [MEMBERS]; `make pool N=1000` runs the large one and says what a member costs.
 */
#include "tests/sandbox/box.h"
#include "tests/sandbox/census.h"
#include <sys/resource.h>
#include <sys/wait.h>

enum { AT_ONCE = 16 };
#define COME_UP_NS (60 * NS_PER_S)

static int members = 100;

/* Every slot is made when the processes below the jail stand still. */
static struct census at_rest(struct sandbox_client *c, long *guardian)
{
    struct census now = census_take(guardian), was;
    uint64_t end = clock_mono_ns() + COME_UP_NS;
    do {
        struct err err = { 0 };
        was = now;
        usleep(300000);
        if (sandbox_client_dispatch(c, &err) < 0)
            fail_msg("%s", err.msg);
        now = census_take(guardian);
    } while ((now.processes != was.processes || now.mounts != was.mounts || now.zombies > 0 ||
              now.slots < members) && clock_mono_ns() < end);
    return now;
}

static void pool(void **state)
{
    (void)state;
    long guardian = 0;
    struct census outside = census_take(&guardian), idle, left;
    uint64_t began = clock_mono_ns();
    struct sandbox_client *c = box_start((uint32_t)members);
    uint64_t greeted = clock_mono_ns();
    struct outcome *acquired = calloc((size_t)members, sizeof *acquired), done[AT_ONCE] = { 0 };
    const struct sandbox_limits limits = { 0 };
    struct err err = { 0 };
    char text[AT_ONCE][32];
    assert_non_null(acquired);
    idle = at_rest(c, &guardian);
    assert_true(idle.slots >= members);
    assert_int_equal(idle.zombies, 0);
    const double slots = (double)idle.slots;
    census_print("idle", &idle);
    printf("%d members, %ld slots, the first ready after %.0f ms\n"
           "a slot: %.1f processes, %.1f KiB of memory (PSS) and %.1f KiB of the jail; about %.0f KiB of the kernel's\n",
           members, idle.slots, (double)(greeted - began) / 1e6, (double)idle.slots_processes / slots,
           (double)idle.slots_pss_kib / slots, (double)idle.jail_pss_kib / slots,
           (double)(idle.kernel_kib - outside.kernel_kib) / slots);

    for (int i = 0; i < members; i++)
        if (sandbox_acquire(c, &BOX_EMPTY, &limits, box_acquired, &acquired[i], &err) < 0)
            fail_msg("%s", err.msg);
    assert_int_equal(sandbox_acquire(c, &BOX_EMPTY, &limits, box_acquired, &done[0], &err), ERR_BUSY);
    for (int i = 0; i < members; i++)
        if (box_wait(c, &acquired[i].come, 60000) < 0 || acquired[i].rc < 0)
            fail_msg("member %d: %s", i, acquired[i].err.msg);

    /* Some at once, from one end of the table to the other, and each answers for itself. */
    for (int i = 0; i < AT_ONCE; i++) {
        snprintf(text[i], sizeof text[i], "member %d", i);
        const char *const argv[] = { "/bin/echo", text[i], NULL };
        if (sandbox_run(acquired[i * (members - 1) / (AT_ONCE - 1)].sandbox, &(struct sandbox_command){ .argv = argv },
                        box_done, &done[i], &err) < 0)
            fail_msg("%s", err.msg);
    }
    for (int i = 0; i < AT_ONCE; i++) {
        if (box_wait(c, &done[i].come, 60000) < 0 || done[i].rc < 0)
            fail_msg("%s: %s", text[i], done[i].err.msg);
        assert_int_equal(done[i].result.end, SANDBOX_END_EXIT);
        assert_int_equal(done[i].result.value, 0);
        assert_int_equal(done[i].output_len, strlen(text[i]) + 1);
        assert_memory_equal(done[i].output, text[i], strlen(text[i]));
        outcome_done(&done[i]);
    }
    sandbox_client_close(c);                    /* with all of them held */
    for (int i = 0; i < members; i++)
        sandbox_close(acquired[i].sandbox);
    free(acquired);
    left = census_take(&guardian);
    census_print("closed", &left);
    assert_int_equal(left.processes, outside.processes);
    assert_int_equal(left.client_fds, outside.client_fds);
    assert_int_equal(left.host_mounts, outside.host_mounts);
    assert_int_equal(left.cgroups, 0);
}

/* A jail that may not open what so many slots need says so at once, and does not fail a slot here and there. */
static void few_files(void **state)
{
    (void)state;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        const struct rlimit few = { 256, 256 };
        struct sandbox_client *c = NULL;
        struct err err = { 0 };
        bool told = setrlimit(RLIMIT_NOFILE, &few) == 0 && sandbox_client_start(&c, box_jail(), 100, &err) == ERR_LIMIT &&
                    strstr(err.msg, "ulimit -Hn") != NULL;
        bool works = sandbox_client_start(&c, box_jail(), 2, &err) == 0;
        sandbox_client_close(c);
        _exit(told && works ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

int main(int argc, char **argv)
{
    if (argc == 2)
        members = atoi(argv[1]);
    if (argc > 2 || members < AT_ONCE || members > 1024) {
        fprintf(stderr, "usage: %s [MEMBERS]\n", argv[0]);
        return 64;
    }
    const struct CMUnitTest tests[] = { cmocka_unit_test(pool), cmocka_unit_test(few_files) };
    return cmocka_run_group_tests_name("sandbox pool", tests, NULL, NULL);
}
