/* cmd.h - the verbs of assay-learner. Each returns 0 or an error; data goes to stdout, talk to stderr. */
#pragma once
#include "base/err.h"

struct cmd { const char *name, *help; int (*run)(int argc, char **argv, struct err *err); };

MUST_CHECK int cmd_rl(int argc, char **argv, struct err *err);
MUST_CHECK int cmd_sft(int argc, char **argv, struct err *err);
