/* options.c - see options.h. */
#include "learner/options.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int take(const struct option_row *o, const char *value, struct err *err)
{
    char quoted[64], *end;
    err_quote(quoted, sizeof quoted, value, strlen(value));
    errno = 0;
    if (o->kind == OPTION_TEXT) {
        if (value[0] == '\0')
            return err_set(err, ERR_USAGE, "%s: an empty value", o->name);
        *(const char **)o->to = value;
    } else if (o->kind == OPTION_COUNT) {
        unsigned long long v = strtoull(value, &end, 10);
        if (value[0] < '0' || value[0] > '9' || *end != '\0' || errno != 0 || (double)v < o->low || (double)v > o->high)
            return err_set(err, ERR_USAGE, "%s \"%s\": want a whole number from %.0f to %.0f", o->name, quoted, o->low, o->high);
        *(uint64_t *)o->to = v;
    } else {
        double v = strtod(value, &end);
        if (value[0] == '\0' || *end != '\0' || !isfinite(v) || v < o->low || v > o->high)
            return err_set(err, ERR_USAGE, "%s \"%s\": want a number from %g to %g", o->name, quoted, o->low, o->high);
        *(double *)o->to = v;
    }
    return 0;
}

int options_read(const struct option_row *rows, int argc, char **argv, struct err *err)
{
    for (int i = 1; i < argc; i++) {
        const char *arg = argv[i], *equals = strncmp(arg, "--", 2) == 0 ? strchr(arg, '=') : NULL;
        size_t n = equals == NULL ? strlen(arg) : (size_t)(equals - arg);
        const struct option_row *o = rows;
        while (o->name != NULL && (strlen(o->name) != n || memcmp(o->name, arg, n) != 0))
            o++;
        if (o->name == NULL) {
            char quoted[64];
            err_quote(quoted, sizeof quoted, arg, strlen(arg));
            return err_set(err, ERR_USAGE, "%s: unknown option \"%s\"; see assay-learner %s --help", argv[0], quoted, argv[0]);
        }
        if (o->kind == OPTION_FLAG || o->kind == OPTION_FLAG_OFF) {
            if (equals != NULL)
                return err_set(err, ERR_USAGE, "%s takes no value", o->name);
            *(bool *)o->to = o->kind == OPTION_FLAG;
            continue;
        }
        if (equals == NULL && i + 1 >= argc)
            return err_set(err, ERR_USAGE, "%s: a value is missing", o->name);
        int rc = take(o, equals != NULL ? equals + 1 : argv[++i], err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

void options_help(const char *usage, const struct option_row *rows)
{
    printf("usage: %s\n\n", usage);
    for (; rows->name != NULL; rows++)
        printf("  %-16s %s\n", rows->name, rows->help);
}
