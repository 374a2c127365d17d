/*
 * Checkpoints: a resumed run goes on bit for bit, a failed save leaves the old one, foreign files are
 * refused; a published version is a folder with Hugging Face names that reads back equal.
 */
#include "learner/checkpoint.h"
#include "base/own.h"
#include "learner/backend.h"
#include "learner/safetensors.h"
#include "learner/train.h"
#include <fcntl.h>
#include <ftw.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <cmocka.h>

static const struct model_config small = { .vocab = 40, .dim = 16, .hidden = 24, .layers = 2, .heads = 4, .kv_heads = 2,
                                           .context = 32, .eps = 1e-5, .theta = 10000 };
static char dir[64];

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
    (void)st, (void)kind, (void)ftw;
    return remove(path);
}

static int set_up(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/assay-checkpoint-XXXXXX");
    return mkdtemp(dir) == NULL;
}

static int tear_down(void **state)
{
    (void)state;
    return nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

struct run { struct model *m; struct trainer t; struct collective *self; };

static struct run begin(uint64_t seed)
{
    struct run r;
    struct err err = { 0 };
    const struct optimizer_config oc = OPTIMIZER_DEFAULT;
    assert_int_equal(collective_self_open(&r.self, &err), 0);
    assert_int_equal(model_new(&r.m, &small, 64, 64, &err), 0);
    assert_int_equal(model_init_weights(r.m, seed, &err), 0);
    assert_int_equal(trainer_init(&r.t, r.m, &oc, r.self, &err), 0);
    r.t.sft = true;
    return r;
}

static void end(struct run *r)
{
    struct err err = { 0 };
    trainer_done(&r->t);
    model_free(r->m);
    assert_int_equal(collective_close(r->self, &err), 0);
}

static void train(struct run *r, uint32_t from, uint32_t to)
{
    for (uint32_t i = from; i < to; i++) {
        uint32_t tokens[6] = { i % 40, (i * 3) % 40, 5, 6, (i * 7) % 40, 8 };
        const float lps[6] = { 0 };
        const uint8_t mask[6] = { 0, 1, 1, 1, 1, 1 };
        const struct sample s = { .tokens = tokens, .logprobs = lps, .mask = mask, .n = 6, .has_reward = true };
        own_buf bytes = { 0 };
        struct batch b;
        struct train_stats stats;
        struct err err = { 0 };
        assert_int_equal(batch_pack(&bytes, &s, 1, 40, 32, &err), 0);
        assert_int_equal(batch_view(&b, &bytes, &err), 0);
        assert_int_equal(train_batch(&r->t, &b, &stats, &err), 0);
    }
}

static void checkpoint__a_resumed_run_goes_on_bit_for_bit(void **state)
{
    (void)state;
    struct err err = { 0 };
    struct run a = begin(3), b = begin(4);
    struct checkpoint_state got;
    char run[64];
    train(&a, 0, 5);
    assert_int_equal(checkpoint_save(dir, a.m, &a.t.optimizer, &(struct checkpoint_state){ .step = 5, .version = 6, .cursor = 77,
                     .seed = UINT64_MAX, .rng = UINT64_C(0x8000000000000001), .run = "a \"run\"", .history = "[1, 2]" }, &err),
                     0);
    train(&a, 5, 10);
    assert_int_equal(checkpoint_load(dir, b.m, &b.t.optimizer, &got, run, sizeof run, &err), 0);
    assert_true(got.step == 5 && got.version == 6 && got.cursor == 77 && got.seed == UINT64_MAX &&
        got.rng == UINT64_C(0x8000000000000001));
    assert_string_equal(run, "a \"run\"");
    assert_string_equal(got.history, "[1, 2]");
    free((char *)(uintptr_t)got.history);
    assert_int_equal(b.t.optimizer.step, 5);
    train(&b, 5, 10);
    assert_memory_equal(a.m->weights, b.m->weights, a.m->n_params * sizeof(real));
    assert_memory_equal(a.t.optimizer.v, b.t.optimizer.v, a.m->n_params * sizeof(real));
    end(&a);
    end(&b);
}

static void checkpoint__a_failed_save_leaves_the_old_one(void **state)
{
    (void)state;
    struct err err = { 0 };
    struct run a = begin(3);
    struct checkpoint_state got;
    char run[64], path[128];
    assert_int_equal(checkpoint_save(dir, a.m, &a.t.optimizer, &(struct checkpoint_state){ .step = 1, .run = "r" }, &err), 0);
    struct rlimit old, tight = { .rlim_cur = 4096 };
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    tight.rlim_max = old.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &tight), 0);
    int rc = checkpoint_save(dir, a.m, &a.t.optimizer, &(struct checkpoint_state){ .step = 2, .run = "r" }, &err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_int_equal(rc, ERR_SYS);
    snprintf(path, sizeof path, "%s/.checkpoint.safetensors.tmp", dir);
    assert_int_equal(access(path, F_OK), -1);               /* nothing half-written stays */
    assert_int_equal(checkpoint_load(dir, a.m, &a.t.optimizer, &got, run, sizeof run, &err), 0);
    assert_int_equal(got.step, 1);
    free((char *)(uintptr_t)got.history);
    end(&a);
}

static void checkpoint__foreign_bytes_are_refused(void **state)
{
    (void)state;
    struct err err = { 0 };
    struct run a = begin(3);
    struct checkpoint_state got;
    char run[64], path[128];
    snprintf(path, sizeof path, "%s/checkpoint.safetensors", dir);
    assert_int_equal(checkpoint_load(dir, a.m, NULL, &got, run, sizeof run, &err), ERR_NOT_FOUND);
    static const struct { const char *bytes; size_t n; } bad[] = {
        { "", 0 }, { "1234", 4 }, { "\xff\xff\xff\xff\xff\xff\xff\xff{}", 10 }, { "\x02\0\0\0\0\0\0\0{}", 10 },
        { "\x03\0\0\0\0\0\0\0{}", 10 }, { "\x02\0\0\0\0\0\0\0[]", 10 },
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        own_fd fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        assert_int_equal(write(fd, bad[i].bytes, bad[i].n), bad[i].n);
        int rc = checkpoint_load(dir, a.m, NULL, &got, run, sizeof run, &err);
        assert_int_equal(rc, ERR_CORRUPT);
    }
    /* A tensor that claims bytes outside of the file. */
    static const char lie[] = "{\"t\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[1000000,1000008]}}";
    uint64_t len = sizeof lie - 1;
    {
        own_fd fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        assert_true(write(fd, &len, 8) == 8 && write(fd, lie, len) == (ssize_t)len);
    }
    struct safetensors *f;
    float to[2];
    assert_int_equal(safetensors_open(&f, path, &err), 0);
    assert_int_equal(safetensors_read(f, "t", to, 2, 1, true, &err), ERR_CORRUPT);
    assert_int_equal(safetensors_read(f, "t", to, 3, 1, true, &err), ERR_BAD_INPUT);
    assert_int_equal(safetensors_read(f, "u", to, 2, 1, true, &err), ERR_NOT_FOUND);
    safetensors_close(f);
    end(&a);
}

static void checkpoint_export__reads_back_equal_and_twice_the_same(void **state)
{
    (void)state;
    struct err err = { 0 };
    struct run a = begin(3);
    struct checkpoint_version v, again;
    struct model *m;
    assert_int_equal(checkpoint_export(&v, dir, a.m, 7, "r", &err), 0);
    assert_int_equal(checkpoint_export(&again, dir, a.m, 7, "r", &err), 0);
    assert_string_equal(v.manifest_sha256, again.manifest_sha256);
    *strrchr(v.manifest_path, '/') = '\0';
    assert_non_null(strstr(v.manifest_path, "/policy/version-000007"));
    assert_int_equal(checkpoint_import(&m, v.manifest_path, 0, 0, &err), 0);
    assert_memory_equal(a.m->weights, m->weights, m->n_params * sizeof(real));
    assert_int_equal(m->config.kv_heads, 2);
    model_free(m);
    end(&a);
}

int main(void)
{
    struct err err = { 0 };
#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        T(checkpoint__a_resumed_run_goes_on_bit_for_bit), T(checkpoint__a_failed_save_leaves_the_old_one),
        T(checkpoint__foreign_bytes_are_refused), T(checkpoint_export__reads_back_equal_and_twice_the_same),
    };
    return backend_open(0, 1, &err) < 0 || cmocka_run_group_tests(tests, NULL, NULL);
}
