/* safetensors.c - see safetensors.h. */
#include "learner/safetensors.h"
#include "base/own.h"
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <string.h>
#include <sys/stat.h>

#define HEADER_MAX ((uint64_t)16 << 20)     /* a million tensors would not fit; a hostile length does not allocate */

static int write_all(int fd, const void *bytes, size_t n, struct err *err)
{
    const uint8_t *p = bytes;
    while (n > 0) {
        ssize_t k = write(fd, p, n);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return err_sys(err, ERR_SYS, "safetensors: writing %zu bytes", n);
        p += k;
        n -= (size_t)k;
    }
    return 0;
}

static void json_done(json_t **j) { json_decref(*j); }
#define own_json __attribute__((cleanup(json_done))) json_t

int safetensors_write(int fd, const struct safetensors_entry *e, size_t n, const struct safetensors_meta *meta, struct err *err)
{
    own_json *root = json_object();
    json_t *m = json_object();
    json_object_set_new(m, "format", json_string("pt"));
    for (; meta != NULL && meta->key != NULL; meta++)
        json_object_set_new(m, meta->key, json_string(meta->value));
    json_object_set_new(root, "__metadata__", m);
    uint64_t at = 0;
    for (size_t i = 0; i < n; i++) {
        uint64_t bytes = (uint64_t)e[i].rows * e[i].cols * sizeof(float);
        json_t *shape = e[i].is_vector ? json_pack("[I]", (json_int_t)e[i].rows)
                                       : json_pack("[I,I]", (json_int_t)e[i].rows, (json_int_t)e[i].cols);
        json_object_set_new(root, e[i].name, json_pack("{s:s, s:o, s:[I,I]}", "dtype", "F32", "shape", shape, "data_offsets",
                                                       (json_int_t)at, (json_int_t)(at + bytes)));
        at += bytes;
    }
    own_mem char *text = json_dumps(root, JSON_COMPACT);
    if (text == NULL)
        return err_set(err, ERR_LIMIT, "safetensors: no memory for the header of %zu tensors", n);
    size_t len = strlen(text), padded = (len + 7) / 8 * 8;      /* data starts on 8 bytes, filled up with spaces */
    uint64_t little = htole64(padded);
    int rc;
    if ((rc = write_all(fd, &little, sizeof little, err)) < 0 || (rc = write_all(fd, text, len, err)) < 0 ||
        (rc = write_all(fd, "        ", padded - len, err)) < 0)
        return rc;
    for (size_t i = 0; i < n; i++)
        if ((rc = write_all(fd, e[i].data, e[i].rows * e[i].cols * sizeof(float), err)) < 0)
            return rc;
    return 0;
}

struct safetensors {
    int fd;
    json_t *root;
    uint64_t data_at, data_size;
    char name[256];             /* of the file, for messages */
};

static int read_at(int fd, void *to, size_t n, uint64_t at)
{
    uint8_t *p = to;
    while (n > 0) {
        ssize_t k = pread(fd, p, n, (off_t)at);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return -1;
        p += k;
        at += (uint64_t)k;
        n -= (size_t)k;
    }
    return 0;
}

int safetensors_open(struct safetensors **out, const char *path, struct err *err)
{
    own_fd fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_sys(err, errno == ENOENT ? ERR_NOT_FOUND : ERR_SYS, "%s", path);
    struct stat st;
    uint64_t little;
    if (fstat(fd, &st) < 0)
        return err_sys(err, ERR_SYS, "%s", path);
    uint64_t size = (uint64_t)st.st_size;
    if (size < sizeof little || read_at(fd, &little, sizeof little, 0) < 0)
        return err_set(err, ERR_CORRUPT, "%s: %" PRIu64 " bytes are no safetensors file", path, size);
    uint64_t len = le64toh(little);
    if (len > HEADER_MAX || len > size - sizeof little)
        return err_set(err, ERR_CORRUPT, "%s: a header of %" PRIu64 " bytes does not fit the file", path, len);
    own_mem char *text = malloc(len + 1);
    if (text == NULL || read_at(fd, text, len, sizeof little) < 0)
        return err_set(err, ERR_CORRUPT, "%s: the header cannot be read", path);
    json_error_t at;
    own_json *root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &at);
    if (!json_is_object(root))
        return err_set(err, ERR_CORRUPT, "%s: the header is not a JSON object", path);
    struct safetensors *s = calloc(1, sizeof *s);
    if (s == NULL)
        return err_set(err, ERR_LIMIT, "%s: out of memory", path);
    *s = (struct safetensors){ .fd = give_fd(&fd), .root = give_ptr(&root), .data_at = sizeof little + len,
                               .data_size = size - sizeof little - len };
    snprintf(s->name, sizeof s->name, "%s", path);
    *out = s;
    return 0;
}

void safetensors_close(struct safetensors *s)
{
    if (s == NULL)
        return;
    close(s->fd);
    json_decref(s->root);
    free(s);
}

const char *safetensors_meta_get(const struct safetensors *s, const char *key)
{
    return json_string_value(json_object_get(json_object_get(s->root, "__metadata__"), key));
}

int safetensors_read(struct safetensors *s, const char *name, float *to, size_t rows, size_t cols, bool is_vector,
    struct err *err)
{
    json_t *t = json_object_get(s->root, name);
    if (t == NULL)
        return err_set(err, ERR_NOT_FOUND, "%s: no tensor \"%s\"", s->name, name);
    json_t *shape = json_object_get(t, "shape"), *offsets = json_object_get(t, "data_offsets");
    const char *dtype = json_string_value(json_object_get(t, "dtype"));
    bool fits = json_array_size(shape) == (is_vector ? 1 : 2) &&
                json_integer_value(json_array_get(shape, 0)) == (json_int_t)rows &&
                (is_vector || json_integer_value(json_array_get(shape, 1)) == (json_int_t)cols);
    if (dtype == NULL || strcmp(dtype, "F32") != 0 || !fits)
        return err_set(err, ERR_BAD_INPUT, "%s: tensor \"%s\" is not F32 of shape [%zu%s%.0zu]", s->name, name, rows,
                       is_vector ? "" : ", ", is_vector ? (size_t)0 : cols);
    json_int_t from = json_integer_value(json_array_get(offsets, 0)), end = json_integer_value(json_array_get(offsets, 1));
    size_t bytes = rows * cols * sizeof(float);
    if (from < 0 || end < from || (uint64_t)end > s->data_size || (uint64_t)(end - from) != bytes)
        return err_set(err, ERR_CORRUPT, "%s: tensor \"%s\" lies outside the file", s->name, name);
    if (read_at(s->fd, to, bytes, s->data_at + (uint64_t)from) < 0)
        return err_set(err, ERR_CORRUPT, "%s: tensor \"%s\" cannot be read", s->name, name);
    return 0;
}
