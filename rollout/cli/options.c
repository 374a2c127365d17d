/* options.c - words to options, by the command's table. */
#include "rollout/cli/cli.h"
#include "base/own.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

const struct cli_option cli_common_options[] = {
    { "state", 0, "DIR", "where everything lives; default: ASSAY_STATE, else ./.assay" },
    { "server", 0, "ADDR", "use a running server (unix:PATH or HOST:PORT) and start none" },
    { "slots", 0, "N", "sandboxes at once, when a private server is started" },
    { "output", 'o', "FORMAT", "text (default) or json" },
    { "help", 'h', NULL, "show the command's help" },
    { 0 },
};
const struct cli_option cli_no_options[] = { { 0 } };

#define OPTION_NAMES_MAX 64
#define SECONDS_MIN 0.1         /* what a task may ask for: repos/task.c */
#define SECONDS_MAX 86400.0

/* Restricted Damerau-Levenshtein distance; words longer than 31 bytes are never near. */
static uint32_t distance(const char *a, const char *b)
{
    size_t n = strlen(a), m = strlen(b);
    if (n > 31 || m > 31)
        return 99;
    uint32_t d[32][32];
    for (size_t i = 0; i <= n; i++)
        d[i][0] = (uint32_t)i;
    for (size_t j = 0; j <= m; j++)
        d[0][j] = (uint32_t)j;
    for (size_t i = 1; i <= n; i++)
        for (size_t j = 1; j <= m; j++) {
            uint32_t best = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            if (d[i - 1][j] + 1 < best)
                best = d[i - 1][j] + 1;
            if (d[i][j - 1] + 1 < best)
                best = d[i][j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && d[i - 2][j - 2] + 1 < best)
                best = d[i - 2][j - 2] + 1;
            d[i][j] = best;
        }
    return d[n][m];
}

const char *cli_nearest(const char *s, const char *const *words, uint32_t count)
{
    const char *best = NULL;
    uint32_t best_distance = (uint32_t)(strlen(s) <= 3 ? 1 : strlen(s) / 3 + 1);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t d = distance(s, words[i]);
        if (strlen(s) >= 3 && strncmp(s, words[i], strlen(s)) == 0)
            d = 1;                                      /* an abbreviation is as near as a slip */
        if (d <= best_distance && (best == NULL || d < best_distance)) {
            best = words[i];
            best_distance = d;
        }
    }
    return best;
}

static const struct cli_option *find_long(const struct cli_command *cmd, const char *name, size_t n)
{
    const struct cli_option *lists[] = { cmd->options, cli_common_options };
    for (size_t l = 0; l < 2; l++)
        for (const struct cli_option *o = lists[l]; o->name != NULL; o++)
            if (strlen(o->name) == n && memcmp(o->name, name, n) == 0)
                return o;
    return NULL;
}

static const struct cli_option *find_short(const struct cli_command *cmd, char letter)
{
    const struct cli_option *lists[] = { cmd->options, cli_common_options };
    for (size_t l = 0; l < 2; l++)
        for (const struct cli_option *o = lists[l]; o->name != NULL; o++)
            if (o->letter != 0 && o->letter == letter)
                return o;
    return NULL;
}

static int refuse_option(const struct cli_command *cmd, const char *word, const char *name, size_t n, struct err *err)
{
    const char *words[OPTION_NAMES_MAX];
    uint32_t count = 0;
    const struct cli_option *lists[] = { cmd->options, cli_common_options };
    for (size_t l = 0; l < 2; l++)
        for (const struct cli_option *o = lists[l]; o->name != NULL && count < OPTION_NAMES_MAX; o++)
            words[count++] = o->name;
    char quoted[96], plain[64];
    err_quote(quoted, sizeof quoted, word, strlen(word));
    snprintf(plain, sizeof plain, "%.*s", (int)n, name);
    const char *near = cli_nearest(plain, words, count);
    if (near != NULL)
        return err_set(err, ERR_USAGE, "unknown option `%s`; did you mean `--%s`?", quoted, near);
    return err_set(err, ERR_USAGE, "unknown option `%s`", quoted);
}

/* One word that begins with a dash. *i moves on when the value is the next word. */
static int parse_option(struct cli *c, int argc, char **argv, int *i, struct err *err)
{
    const char *word = argv[*i];
    const struct cli_option *o;
    const char *value = NULL;
    if (word[1] == '-') {
        const char *name = word + 2, *eq = strchr(name, '=');
        size_t n = eq != NULL ? (size_t)(eq - name) : strlen(name);
        o = find_long(c->command, name, n);
        if (o == NULL)
            return refuse_option(c->command, word, name, n, err);
        if (eq != NULL)
            value = eq + 1;
    } else {
        o = find_short(c->command, word[1]);
        if (o == NULL)
            return refuse_option(c->command, word, word + 1, strlen(word + 1), err);
        if (word[2] != '\0' && o->arg != NULL)
            value = word + 2;                           /* -ojson */
        else if (word[2] != '\0')
            return refuse_option(c->command, word, word + 1, strlen(word + 1), err);
    }
    if (o->arg == NULL) {
        if (value != NULL)
            return err_set(err, ERR_USAGE, "--%s takes no value", o->name);
        value = "";
    }
    if (value == NULL) {
        if (*i + 1 >= argc)
            return err_set(err, ERR_USAGE, "--%s needs a value: --%s %s", o->name, o->name, o->arg);
        value = argv[++*i];
    }
    c->values[c->value_count++] = (struct cli_value){ o, value };
    return 0;
}

static int take_common(struct cli *c, struct err *err)
{
    const char *format = cli_value(c, "output");
    if (format != NULL && strcmp(format, "json") != 0 && strcmp(format, "text") != 0) {
        char quoted[64];
        err_quote(quoted, sizeof quoted, format, strlen(format));
        return err_set(err, ERR_USAGE, "-o %s: want text or json", quoted);
    }
    c->json = format != NULL && strcmp(format, "json") == 0;
    c->server = cli_value(c, "server");
    if (c->server != NULL && c->server[0] == '\0')
        return err_set(err, ERR_USAGE, "--server needs an address: unix:PATH or HOST:PORT");
    uint64_t slots;
    int rc = cli_number(c, "slots", 1, 1024, 0, &slots, err);
    if (rc < 0)
        return rc;
    c->slots = (uint32_t)slots;

    const char *state = cli_value(c, "state");
    if (state == NULL)
        state = getenv("ASSAY_STATE");
    c->state_chosen = state != NULL && state[0] != '\0';
    if (cli_value(c, "state") != NULL && !c->state_chosen)
        return err_set(err, ERR_USAGE, "--state needs a directory");
    if (!c->state_chosen)
        state = ".assay";
    if (state[0] == '/') {
        c->state = state;
        return 0;
    }
    own_mem char *cwd = getcwd(NULL, 0);
    if (cwd == NULL)
        return err_sys(err, ERR_SYS, "current directory");
    c->state = arena_printf(&c->arena, "%s/%s", strcmp(cwd, "/") == 0 ? "" : cwd, state);
    if (c->state == NULL)
        return err_set(err, ERR_LIMIT, "out of memory");
    return 0;
}

int cli_parse(struct cli *c, int argc, char **argv, struct err *err)
{
    c->values = arena_alloc(&c->arena, ((size_t)argc + 1) * sizeof *c->values);
    c->args = arena_alloc(&c->arena, ((size_t)argc + 1) * sizeof *c->args);
    if (c->values == NULL || c->args == NULL)
        return err_set(err, ERR_LIMIT, "out of memory");
    bool only_args = false;
    for (int i = 0; i < argc; i++) {
        const char *word = argv[i];
        if (!only_args && strcmp(word, "--") == 0) {
            only_args = true;
        } else if (!only_args && word[0] == '-' && word[1] != '\0') {
            int rc = parse_option(c, argc, argv, &i, err);
            if (rc < 0)
                return rc;
        } else {
            c->args[c->arg_count++] = word;
        }
    }
    if (cli_flag(c, "help"))
        return 0;
    if (c->arg_count > c->command->args_max) {
        char quoted[96];
        const char *extra = c->args[c->command->args_max];
        err_quote(quoted, sizeof quoted, extra, strlen(extra));
        return err_set(err, ERR_USAGE, "`%s` is one argument too many", quoted);
    }
    if (c->arg_count < c->command->args_min)
        return err_set(err, ERR_USAGE, "missing argument: %s", c->command->args);
    return take_common(c, err);
}

const char *cli_value(const struct cli *c, const char *name)
{
    const char *last = NULL;
    for (uint32_t i = 0; i < c->value_count; i++)
        if (strcmp(c->values[i].option->name, name) == 0)
            last = c->values[i].text;
    return last;
}

const char *cli_value_nth(const struct cli *c, const char *name, uint32_t nth)
{
    for (uint32_t i = 0; i < c->value_count; i++)
        if (strcmp(c->values[i].option->name, name) == 0 && nth-- == 0)
            return c->values[i].text;
    return NULL;
}

/* In single quotes when a shell would read anything into it. */
static const char *shell_word(struct arena *a, const char *text)
{
    if (text[0] != '\0' && text[strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-")] == '\0')
        return text;
    char *out = arena_alloc(a, 4 * strlen(text) + 3), *p = out;
    if (out == NULL)
        return "";
    *p++ = '\'';
    for (; *text != '\0'; text++)
        if (*text == '\'')
            p = stpcpy(p, "'\\''");
        else
            *p++ = *text;
    strcpy(p, "'");
    return out;
}

const char *cli_retype(struct cli *c, const char *const *names, uint32_t count)
{
    const char *out = "";
    for (uint32_t i = 0; i < count && out != NULL; i++) {
        const char *text = cli_value(c, names[i]);
        if (text != NULL)
            out = arena_printf(&c->arena, "%s --%s %s", out, names[i], shell_word(&c->arena, text));
    }
    return out != NULL ? out : "";
}

bool cli_flag(const struct cli *c, const char *name)
{
    return cli_value(c, name) != NULL;
}

int cli_number(const struct cli *c, const char *name, uint64_t min, uint64_t max, uint64_t otherwise, uint64_t *out,
               struct err *err)
{
    const char *text = cli_value(c, name);
    if (text == NULL) {
        *out = otherwise;
        return 0;
    }
    char *end = NULL;
    errno = 0;
    unsigned long long v = text[0] >= '0' && text[0] <= '9' ? strtoull(text, &end, 10) : 0;
    if (end == NULL || *end != '\0' || errno != 0 || v < min || v > max) {
        char quoted[64];
        err_quote(quoted, sizeof quoted, text, strlen(text));
        return err_set(err, ERR_USAGE, "--%s `%s`: want a whole number from %llu to %llu", name, quoted,
                       (unsigned long long)min, (unsigned long long)max);
    }
    *out = v;
    return 0;
}

int cli_seconds(const struct cli *c, const char *name, double *out, struct err *err)
{
    const char *text = cli_value(c, name);
    *out = 0;
    if (text == NULL)
        return 0;
    char *end = NULL;
    double v = strtod(text, &end);
    if (text[0] == '\0' || *end != '\0' || !(v >= SECONDS_MIN && v <= SECONDS_MAX)) {
        char quoted[64];
        err_quote(quoted, sizeof quoted, text, strlen(text));
        return err_set(err, ERR_USAGE, "--%s `%s`: want seconds from %g to %g", name, quoted, SECONDS_MIN, SECONDS_MAX);
    }
    *out = v;
    return 0;
}
