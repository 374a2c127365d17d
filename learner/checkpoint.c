/* checkpoint.c - see checkpoint.h. */
#include "learner/checkpoint.h"
#include "base/digest.h"
#include "base/own.h"
#include "learner/backend.h"
#include "learner/safetensors.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <string.h>
#include <sys/stat.h>

static void json_done(json_t **j) { json_decref(*j); }
#define own_json __attribute__((cleanup(json_done))) json_t
static void safetensors_done(struct safetensors **s) { safetensors_close(*s); }
#define own_safetensors __attribute__((cleanup(safetensors_done))) struct safetensors

static int path_of(char out[CHECKPOINT_PATH_SIZE], const char *dir, const char *name, struct err *err)
{
    if ((size_t)snprintf(out, CHECKPOINT_PATH_SIZE, "%s/%s", dir, name) >= CHECKPOINT_PATH_SIZE)
        return err_set(err, ERR_LIMIT, "the path of %s is too long", name);
    return 0;
}

static int make_dir(const char *path, struct err *err)
{
    if (mkdir(path, 0777) < 0 && errno != EEXIST)
        return err_sys(err, ERR_SYS, "%s", path);
    return 0;
}

/* With the folders above it. */
static int make_dirs(const char *path, struct err *err)
{
    char part[CHECKPOINT_PATH_SIZE];
    int rc = 0;
    if (strlen(path) >= sizeof part)
        return err_set(err, ERR_LIMIT, "the path %.64s... is too long", path);
    strcpy(part, path);
    for (char *p = part + 1; rc == 0 && *p != '\0'; p++)
        if (*p == '/') {
            *p = '\0';
            rc = make_dir(part, err);
            *p = '/';
        }
    return rc < 0 ? rc : make_dir(path, err);
}

static int sync_dir(const char *path, struct err *err)
{
    own_fd fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || fsync(fd) < 0)
        return err_sys(err, ERR_SYS, "%s", path);
    return 0;
}

static int create(int *out_fd, const char *path, struct err *err)
{
    *out_fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    return *out_fd < 0 ? err_sys(err, ERR_SYS, "%s", path) : 0;
}

static int write_text(const char *path, const char *text, struct err *err)
{
    own_fd fd = -1;
    int rc = create(&fd, path, err);
    if (rc < 0)
        return rc;
    size_t n = strlen(text);
    if (write(fd, text, n) != (ssize_t)n || fsync(fd) < 0)
        return err_sys(err, ERR_SYS, "%s", path);
    return 0;
}

/* Tensors of `host`, a copy of a flat array in the model's layout, under a prefix ("" for weights). */
static size_t entries_of(struct safetensors_entry *e, char (*names)[MODEL_NAME_SIZE + 8], const struct model_config *c,
                         const float *host, const char *prefix)
{
    size_t n = model_tensor_count(c);
    for (size_t i = 0; i < n; i++) {
        struct model_tensor t = model_tensor_at(c, i);
        snprintf(names[i], sizeof names[i], "%s%s", prefix, t.name);
        e[i] = (struct safetensors_entry){ .name = names[i], .data = host + t.offset, .rows = t.rows, .cols = t.cols,
                                           .is_vector = t.is_vector };
    }
    return n;
}

/* Backend memory as float on the host: the double build (tests only) keeps its checkpoints in float too. */
static float *host_copy(const real *from, size_t n)
{
    float *out = malloc(n * sizeof *out);
    own_mem real *r = malloc(n * sizeof *r);
    if (out == NULL || r == NULL) {
        free(out);
        return NULL;
    }
    backend_download(r, from, n * sizeof *r);
    for (size_t i = 0; i < n; i++)
        out[i] = (float)r[i];
    return out;
}

static json_t *config_json(const struct model_config *c)
{
    return json_pack("{s:[s], s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:b, s:s, s:s, s:b, s:b}",
        "architectures", "LlamaForCausalLM", "model_type", "llama", "vocab_size", (json_int_t)c->vocab, "hidden_size",
        (json_int_t)c->dim, "intermediate_size", (json_int_t)c->hidden, "num_hidden_layers", (json_int_t)c->layers,
        "num_attention_heads", (json_int_t)c->heads, "num_key_value_heads", (json_int_t)c->kv_heads, "max_position_embeddings",
        (json_int_t)c->context, "rms_norm_eps", c->eps, "rope_theta", c->theta, "tie_word_embeddings", (int)c->tied,
        "torch_dtype", "float32", "hidden_act", "silu", "attention_bias", 0, "mlp_bias", 0);
}

static int config_read(struct model_config *c, const json_t *j, const char *what, struct err *err)
{
    const struct { const char *name; uint32_t *to; } whole[] = {
        { "vocab_size", &c->vocab }, { "hidden_size", &c->dim }, { "intermediate_size", &c->hidden },
        { "num_hidden_layers", &c->layers }, { "num_attention_heads", &c->heads }, { "num_key_value_heads", &c->kv_heads },
        { "max_position_embeddings", &c->context } };
    const char *type = json_string_value(json_object_get(j, "model_type"));
    if (type == NULL || strcmp(type, "llama") != 0)
        return err_set(err, ERR_UNSUPPORTED, "%s: model_type is not \"llama\"", what);
    if (!json_is_null(json_object_get(j, "rope_scaling")) && json_object_get(j, "rope_scaling") != NULL)
        return err_set(err, ERR_UNSUPPORTED, "%s: rope_scaling is not supported", what);
    for (size_t i = 0; i < sizeof whole / sizeof whole[0]; i++) {
        const json_t *v = json_object_get(j, whole[i].name);
        json_int_t n = json_integer_value(v);
        if (!json_is_integer(v) || n < 0 || n > INT32_MAX)
            return err_set(err, ERR_BAD_INPUT, "%s: %s is not a whole number", what, whole[i].name);
        *whole[i].to = (uint32_t)n;
    }
    c->eps = json_number_value(json_object_get(j, "rms_norm_eps"));
    c->theta = json_number_value(json_object_get(j, "rope_theta"));
    c->tied = json_is_true(json_object_get(j, "tie_word_embeddings"));
    return model_config_check(c, err);
}

/* --- the checkpoint --- */

bool checkpoint_exists(const char *out_dir)
{
    char path[CHECKPOINT_PATH_SIZE];
    struct err err;
    return path_of(path, out_dir, "checkpoint.safetensors", &err) == 0 && access(path, F_OK) == 0;
}

int checkpoint_save(const char *out_dir, const struct model *m, const struct optimizer *opt, const struct checkpoint_state *s,
                    struct err *err)
{
    char path[CHECKPOINT_PATH_SIZE], aside[CHECKPOINT_PATH_SIZE], text[5][32];
    int rc;
    if ((rc = make_dirs(out_dir, err)) < 0 || (rc = path_of(path, out_dir, "checkpoint.safetensors", err)) < 0 ||
        (rc = path_of(aside, out_dir, ".checkpoint.safetensors.tmp", err)) < 0)
        return rc;
    size_t n = model_tensor_count(&m->config), sets = opt == NULL ? 1 : 3;
    own_mem struct safetensors_entry *e = calloc(3 * n, sizeof *e);
    own_mem char (*names)[MODEL_NAME_SIZE + 8] = calloc(3 * n, sizeof *names);
    own_mem float *w = host_copy(m->weights, m->n_params);
    own_mem float *first = opt == NULL ? NULL : host_copy(opt->m, m->n_params);
    own_mem float *second = opt == NULL ? NULL : host_copy(opt->v, m->n_params);
    own_json *config = config_json(&m->config);
    own_mem char *config_text = json_dumps(config, JSON_COMPACT);
    if (e == NULL || names == NULL || w == NULL || config_text == NULL || (opt != NULL && (first == NULL || second == NULL)))
        return err_set(err, ERR_LIMIT, "%s: no memory for a checkpoint", path);
    entries_of(e, names, &m->config, w, "");
    if (opt != NULL) {
        entries_of(e + n, names + n, &m->config, first, "adam.m.");
        entries_of(e + 2 * n, names + 2 * n, &m->config, second, "adam.v.");
    }
    const uint64_t number[5] = { s->step, s->version, s->cursor, s->seed, s->rng };
    for (int i = 0; i < 5; i++)
        snprintf(text[i], sizeof text[i], "%" PRIu64, number[i]);
    char opt_step[32];
    snprintf(opt_step, sizeof opt_step, "%" PRIu64, opt == NULL ? 0 : opt->step);
    const struct safetensors_meta meta[] = {
        { "assay", "checkpoint/1" }, { "step", text[0] }, { "version", text[1] }, { "cursor", text[2] }, { "seed", text[3] },
        { "rng", text[4] }, { "optimizer_step", opt_step }, { "run", s->run }, { "config", config_text },
        { "history", s->history == NULL ? "[]" : s->history }, { NULL, NULL } };
    own_fd fd = -1;
    if ((rc = create(&fd, aside, err)) < 0 || (rc = safetensors_write(fd, e, sets * n, meta, err)) < 0) {
        unlink(aside);
        return rc;
    }
    if (fsync(fd) < 0 || rename(aside, path) < 0) {
        rc = err_sys(err, ERR_SYS, "%s", path);
        unlink(aside);
        return rc;
    }
    return sync_dir(out_dir, err);
}

static int read_set(struct safetensors *f, const struct model_config *c, real *to, const char *prefix, struct err *err)
{
    size_t n = model_param_count(c);
    own_mem float *host = malloc(n * sizeof *host);
    own_mem real *r = malloc(n * sizeof *r);
    if (host == NULL || r == NULL)
        return err_set(err, ERR_LIMIT, "no memory for %zu weights", n);
    for (size_t i = 0; i < model_tensor_count(c); i++) {
        struct model_tensor t = model_tensor_at(c, i);
        char name[MODEL_NAME_SIZE + 8];
        snprintf(name, sizeof name, "%s%s", prefix, t.name);
        int rc = safetensors_read(f, name, host + t.offset, t.rows, t.cols, t.is_vector, err);
        if (rc < 0)
            return rc;
    }
    for (size_t i = 0; i < n; i++)
        r[i] = (real)host[i];
    backend_upload(to, r, n * sizeof *r);
    return 0;
}

static uint64_t meta_number(const struct safetensors *f, const char *key, bool *whole)
{
    const char *t = safetensors_meta_get(f, key);
    char *end = NULL;
    errno = 0;
    uint64_t v = t == NULL ? 0 : strtoull(t, &end, 10);
    *whole = *whole && t != NULL && end != t && *end == '\0' && errno == 0;
    return v;
}

int checkpoint_peek(const char *out_dir, uint64_t *out_cursor, struct err *err)
{
    char path[CHECKPOINT_PATH_SIZE];
    own_safetensors *f = NULL;
    int rc;
    if ((rc = path_of(path, out_dir, "checkpoint.safetensors", err)) < 0 || (rc = safetensors_open(&f, path, err)) < 0)
        return rc;
    bool whole = true;
    *out_cursor = meta_number(f, "cursor", &whole);
    return whole ? 0 : err_set(err, ERR_CORRUPT, "%s: not a checkpoint of this program", path);
}

int checkpoint_load(const char *out_dir, struct model *m, struct optimizer *opt, struct checkpoint_state *s, char *run_buf,
                    size_t run_size, struct err *err)
{
    char path[CHECKPOINT_PATH_SIZE];
    own_safetensors *f = NULL;
    int rc;
    if ((rc = path_of(path, out_dir, "checkpoint.safetensors", err)) < 0 || (rc = safetensors_open(&f, path, err)) < 0)
        return rc;
    const char *kind = safetensors_meta_get(f, "assay"), *config_text = safetensors_meta_get(f, "config");
    const char *run = safetensors_meta_get(f, "run"), *history = safetensors_meta_get(f, "history");
    if (kind == NULL || strcmp(kind, "checkpoint/1") != 0 || config_text == NULL || run == NULL || history == NULL)
        return err_set(err, ERR_CORRUPT, "%s: not a checkpoint of this program", path);
    own_json *config = json_loads(config_text, 0, NULL);
    struct model_config c = { 0 };
    if ((rc = config_read(&c, config, path, err)) < 0)
        return rc;
    own_json *now = config_json(&m->config), *then = config_json(&c);
    if (json_equal(now, then) != 1)
        return err_set(err, ERR_BAD_INPUT, "%s: made for another model than the one asked for", path);
    bool whole = true;
    struct checkpoint_state got = { .step = meta_number(f, "step", &whole), .version = meta_number(f, "version", &whole),
        .cursor = meta_number(f, "cursor", &whole), .seed = meta_number(f, "seed", &whole),
        .rng = meta_number(f, "rng", &whole) };
    uint64_t opt_step = meta_number(f, "optimizer_step", &whole);
    if (!whole || strlen(run) >= run_size)
        return err_set(err, ERR_CORRUPT, "%s: the run's state cannot be read", path);
    if ((rc = read_set(f, &c, m->weights, "", err)) < 0)
        return rc;
    if (opt != NULL) {
        if ((rc = read_set(f, &c, opt->m, "adam.m.", err)) < 0 || (rc = read_set(f, &c, opt->v, "adam.v.", err)) < 0)
            return rc;
        opt->step = opt_step;
    }
    got.run = strcpy(run_buf, run);
    got.history = strdup(history);
    if (got.history == NULL)
        return err_set(err, ERR_LIMIT, "%s: out of memory", path);
    *s = got;
    return 0;
}

/* --- versions --- */

static void remove_version(const char *dir)
{
    static const char *const files[] = { "config.json", "model.safetensors", "manifest.json" };
    char path[CHECKPOINT_PATH_SIZE];
    struct err err;
    for (size_t i = 0; i < 3; i++)
        if (path_of(path, dir, files[i], &err) == 0)
            unlink(path);
    rmdir(dir);
}

static int write_model(const char *path, const struct model *m, char hex[DIGEST_HEX_SIZE], uint64_t *out_bytes, struct err *err)
{
    size_t n = model_tensor_count(&m->config);
    own_mem struct safetensors_entry *e = calloc(n, sizeof *e);
    own_mem char (*names)[MODEL_NAME_SIZE + 8] = calloc(n, sizeof *names);
    own_mem float *w = host_copy(m->weights, m->n_params);
    if (e == NULL || names == NULL || w == NULL)
        return err_set(err, ERR_LIMIT, "%s: no memory for the weights", path);
    own_fd fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0)
        return err_sys(err, ERR_SYS, "%s", path);
    entries_of(e, names, &m->config, w, "");
    struct digest d;
    int rc = safetensors_write(fd, e, n, NULL, err);
    if (rc < 0)
        return rc;
    if (fsync(fd) < 0)
        return err_sys(err, ERR_SYS, "%s", path);
    if ((rc = digest_of_fd(&d, out_bytes, fd, err)) < 0)
        return rc;
    digest_hex(hex, &d);
    return 0;
}

int checkpoint_export(struct checkpoint_version *out, const char *out_dir, const struct model *m, uint64_t version,
    const char *run, struct err *err)
{
    char policy[CHECKPOINT_PATH_SIZE], dir[CHECKPOINT_PATH_SIZE], aside[CHECKPOINT_PATH_SIZE], path[CHECKPOINT_PATH_SIZE];
    char name[64], hex[DIGEST_HEX_SIZE];
    int rc;
    if ((rc = make_dirs(out_dir, err)) < 0 || (rc = path_of(policy, out_dir, "policy", err)) < 0 ||
        (rc = make_dir(policy, err)) < 0)
        return rc;
    snprintf(name, sizeof name, "version-%06" PRIu64, version);
    if ((rc = path_of(dir, policy, name, err)) < 0)
        return rc;
    snprintf(name, sizeof name, ".version-%06" PRIu64 ".tmp", version);
    if ((rc = path_of(aside, policy, name, err)) < 0 || (rc = make_dir(aside, err)) < 0)
        return rc;

    uint64_t bytes;
    own_json *config = config_json(&m->config);
    own_mem char *config_text = json_dumps(config, JSON_INDENT(2));
    if (config_text == NULL)
        return err_set(err, ERR_LIMIT, "%s: out of memory", dir);
    if ((rc = path_of(path, aside, "config.json", err)) < 0 || (rc = write_text(path, config_text, err)) < 0 ||
        (rc = path_of(path, aside, "model.safetensors", err)) < 0 || (rc = write_model(path, m, hex, &bytes, err)) < 0)
        return rc;
    own_json *manifest = json_pack("{s:s, s:s, s:I, s:s, s:[{s:s, s:s, s:I}]}", "format", "assay-policy/1", "made_by", run,
        "version",
        (json_int_t)version, "config", "config.json", "shards", "file", "model.safetensors", "sha256", hex, "bytes",
        (json_int_t)bytes);
    own_mem char *text = json_dumps(manifest, JSON_INDENT(2));
    if (text == NULL)
        return err_set(err, ERR_LIMIT, "%s: out of memory", dir);
    if ((rc = path_of(path, aside, "manifest.json", err)) < 0 || (rc = write_text(path, text, err)) < 0 ||
        (rc = sync_dir(aside, err)) < 0)
        return rc;
    remove_version(dir);                /* left by a step that is done again: same content */
    if (rename(aside, dir) < 0)
        return err_sys(err, ERR_SYS, "%s", dir);
    if ((rc = sync_dir(policy, err)) < 0 || (rc = path_of(path, dir, "manifest.json", err)) < 0)
        return rc;
    if (realpath(path, out->manifest_path) == NULL)
        return err_sys(err, ERR_SYS, "%s", path);
    struct digest d;
    digest_of(&d, text, strlen(text));
    digest_hex(out->manifest_sha256, &d);
    return 0;
}

int checkpoint_import(struct model **out, const char *dir, size_t tokens_max, size_t rows_max, struct err *err)
{
    char path[CHECKPOINT_PATH_SIZE];
    json_error_t at;
    struct model_config c = { 0 };
    int rc = path_of(path, dir, "config.json", err);
    if (rc < 0)
        return rc;
    own_json *config = json_load_file(path, JSON_REJECT_DUPLICATES, &at);
    if (config == NULL)
        return err_set(err, access(path, F_OK) == 0 ? ERR_BAD_INPUT : ERR_NOT_FOUND, "%s: %s", path, at.text);
    if ((rc = config_read(&c, config, path, err)) < 0 || (rc = path_of(path, dir, "model.safetensors", err)) < 0)
        return rc;
    own_safetensors *f = NULL;
    struct model *m = NULL;
    if ((rc = safetensors_open(&f, path, err)) < 0 || (rc = model_new(&m, &c, tokens_max, rows_max, err)) < 0)
        return rc;
    if ((rc = read_set(f, &c, m->weights, "", err)) < 0) {
        model_free(m);
        return rc;
    }
    *out = m;
    return 0;
}
