/*
 * options.h - one table drives the parsing, the bounds and the help of a verb's options.
 */
#pragma once
#include "base/err.h"
#include <stdint.h>

enum option_kind { OPTION_TEXT, OPTION_COUNT, OPTION_NUMBER, OPTION_FLAG, OPTION_FLAG_OFF };

struct option_row {
    const char *name;           /* "--steps"; "-o" for a short one */
    enum option_kind kind;
    void *to;                   /* const char **, uint64_t *, double *, bool *, bool * (set to false) */
    double low, high;           /* of numbers */
    const char *help;           /* one line: what, unit, default */
};

/* rows end at name NULL. argv[0] is the verb. An unknown option, a missing or wrong value is ERR_USAGE naming the token. */
MUST_CHECK int options_read(const struct option_row *rows, int argc, char **argv, struct err *err);
void options_help(const char *usage, const struct option_row *rows);   /* on stdout */
