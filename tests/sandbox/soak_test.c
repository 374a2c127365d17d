/*
 * Many short sandboxes of every kind, in random order with a fixed seed: runs that end in all ways, kills and closes at
 * any moment, sandboxes used twice. Nothing may be lost, mixed up, or left over.
 */
#include "tests/sandbox/box.h"
#include "base/own.h"

enum { LANES = 5, RUNS = 150 };
enum step { IDLE, ACQUIRING, RUNNING };

struct kind { const char *shell; unsigned ends; };       /* ends: bits of enum sandbox_end that may come */
#define BIT(e) (1u << (e))
static const struct kind kinds[] = {
    { "exec true", BIT(SANDBOX_END_EXIT) },
    { "yes | head -c 300000", BIT(SANDBOX_END_OUTPUT_LIMIT) },
    { "sleep 9 & exit 3", BIT(SANDBOX_END_EXIT) },
    { "exec python3 -c 'x = b\"x\" * (200 << 20)'", BIT(SANDBOX_END_MEMORY_LIMIT) },
    { "exec sleep 9", BIT(SANDBOX_END_TIME_LIMIT) },
    { "kill -9 $$", BIT(SANDBOX_END_SIGNAL) },
    { "echo r >/assay/report/r", BIT(SANDBOX_END_EXIT) },
    { "dd if=/dev/zero of=/tmp/f bs=1M count=100 2>/dev/null; exit 0", BIT(SANDBOX_END_EXIT) },
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

struct lane {
    struct outcome acquired, done;
    struct sandbox *sandbox;
    enum step step;
    const struct kind *kind;
    bool killed;
};

static unsigned seed = 20261130;
static unsigned rnd(unsigned n) { seed = seed * 1103515245 + 12345; return (seed >> 16) % n; }

static void begin(struct sandbox_client *c, struct lane *l, int dir)
{
    struct sandbox_limits limits = { .wall_ns = 2 * NS_PER_S, .memory_bytes = (uint64_t)64 << 20, .output_bytes = 200000,
                                     .disk_bytes = (uint64_t)32 << 20 };
    struct sandbox_spec spec = { rnd(2) ? dir : -1, -1, -1 };
    struct err err = { 0 };
    *l = (struct lane){ .step = ACQUIRING };
    if (sandbox_acquire(c, &spec, &limits, box_acquired, &l->acquired, &err) < 0)
        fail_msg("%s", err.msg);
}

static void run(struct lane *l)
{
    struct err err = { 0 };
    l->kind = &kinds[rnd(KINDS)];
    l->killed = false;
    l->step = RUNNING;
    if (sandbox_run(l->sandbox, &(struct sandbox_command){ .shell = l->kind->shell }, box_done, &l->done, &err) < 0)
        fail_msg("%s", err.msg);
    if (rnd(12) == 0) {
        l->killed = true;
        sandbox_kill(l->sandbox);
    }
}

static void leave(struct lane *l)
{
    sandbox_close(l->sandbox);
    outcome_done(&l->done);
    *l = (struct lane){ 0 };
}

static void soak(void **state)
{
    (void)state;
    struct sandbox_client *c = box_start(LANES);
    struct lane lanes[LANES] = { 0 };
    own_fd dir = open("/usr/share/doc", O_PATH | O_DIRECTORY | O_CLOEXEC);
    for (int ended = 0; ended < RUNS; ) {
        for (int i = 0; i < LANES; i++) {
            struct lane *l = &lanes[i];
            if (l->step == IDLE) {
                begin(c, l, dir);
            } else if (l->step == ACQUIRING && l->acquired.come) {
                if (l->acquired.rc < 0)
                    fail_msg("%s", l->acquired.err.msg);
                l->sandbox = l->acquired.sandbox;
                if (rnd(12) == 0)
                    leave(l);
                else
                    run(l);
            } else if (l->step == RUNNING && l->done.come) {
                const struct sandbox_result *r = &l->done.result;
                if (l->done.rc < 0)
                    fail_msg("%s: %s", l->kind->shell, l->done.err.msg);
                if (!(l->kind->ends & BIT(r->end)) && !(l->killed && r->end == SANDBOX_END_KILLED))
                    fail_msg("`%s` ended with %d %d", l->kind->shell, (int)r->end, r->value);
                ended++;
                outcome_done(&l->done);
                if (rnd(3) == 0)
                    run(l);
                else
                    leave(l);
            } else if (l->step == RUNNING && rnd(400) == 0) {
                leave(l);
            }
        }
        struct pollfd p = { .fd = sandbox_client_fd(c), .events = POLLIN };
        struct err err = { 0 };
        poll(&p, 1, 50);
        if (sandbox_client_dispatch(c, &err) < 0)
            fail_msg("%s", err.msg);
    }
    sandbox_client_close(c);
    for (int i = 0; i < LANES; i++) {
        if (lanes[i].sandbox == NULL && lanes[i].acquired.come)
            lanes[i].sandbox = lanes[i].acquired.sandbox;
        leave(&lanes[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(soak) };
    return cmocka_run_group_tests_name("sandbox soak", tests, NULL, NULL);
}
