/* choice.c - see choice.h. */
#include "learner/choice.h"
#include <jansson.h>
#include <string.h>

static void json_done(json_t **j) { json_decref(*j); }

static const char *text(struct arena *a, const json_t *choice, const char *field, struct err *err)
{
    const json_t *v = json_object_get(choice, field);
    if (!json_is_string(v) || strlen(json_string_value(v)) != json_string_length(v)) {
        err_set(err, ERR_BAD_INPUT, "choice.%s: want a string without NUL", field);
        return NULL;
    }
    const char *copy = arena_strdup(a, json_string_value(v));
    if (copy == NULL)
        err_set(err, ERR_LIMIT, "choice.%s: the memory budget is used up", field);
    return copy;
}

int choice_read(struct choice *out, struct arena *a, const char *extra_json, uint32_t context, struct err *err)
{
    if (extra_json == NULL || extra_json[0] == '\0')
        return 0;
    json_error_t at;
    __attribute__((cleanup(json_done))) json_t *root = json_loads(extra_json, JSON_REJECT_DUPLICATES, &at);
    if (root == NULL)
        return err_set(err, ERR_BAD_INPUT, "extra_json: %s at byte %d", at.text, at.position);
    const json_t *c = json_object_get(root, "choice");
    if (c == NULL)
        return 0;
    const json_t *options = json_object_get(c, "options");
    size_t n = json_array_size(options);
    if (n < 1 || n > CHOICE_OPTIONS_MAX)
        return err_set(err, ERR_BAD_INPUT, "choice.options: want a list of 1 to %d strings", CHOICE_OPTIONS_MAX);
    *out = (struct choice){ .n_options = (uint32_t)n, .options = arena_alloc(a, n * sizeof *out->options) };
    const char *prompt = text(a, c, "prompt", err);
    if (prompt == NULL || (out->prefix = text(a, c, "prefix", err)) == NULL || (out->suffix = text(a, c, "suffix", err)) == NULL)
        return err->code;
    for (size_t i = 0; i < n && out->options != NULL; i++) {
        const json_t *o = json_array_get(options, i);
        if (!json_is_string(o) || strlen(json_string_value(o)) != json_string_length(o))
            return err_set(err, ERR_BAD_INPUT, "choice.options[%zu]: want a string without NUL", i);
        out->options[i] = arena_strdup(a, json_string_value(o));
        if (out->options[i] == NULL)
            return err_set(err, ERR_LIMIT, "choice.options: the memory budget is used up");
    }
    /* Too long a prompt loses its middle: what is asked stands at its ends. */
    size_t len = strlen(prompt), keep = len < context - 1 ? len : context - 1, head = len == keep ? keep : keep / 2;
    uint32_t *tokens = arena_alloc(a, (keep + 1) * sizeof *tokens);
    if (tokens == NULL || out->options == NULL)
        return err_set(err, ERR_LIMIT, "choice.prompt: the memory budget is used up");
    tokens[0] = CHOICE_BOS;
    for (size_t i = 0; i < keep; i++)
        tokens[i + 1] = CHOICE_BYTE_FIRST + (uint8_t)prompt[i < head ? i : len - keep + i];
    out->prompt = tokens;
    out->n_prompt = keep + 1;
    return 1;
}

const char *choice_patch(const struct choice *c, uint32_t k, struct arena *a)
{
    return arena_printf(a, "%s%s%s", c->prefix, c->options[k], c->suffix);
}
