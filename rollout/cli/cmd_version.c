/* cmd_version.c - `assay version`. */
#include "rollout/cli/cli.h"
#include "rollout/cli/print.h"

int cmd_version(struct cli *c, struct err *err)
{
    if (c->json)
        return print_json(stdout, json_pack("{s:s}", "version", ASSAY_VERSION), true, err);
    puts("assay " ASSAY_VERSION);
    return 0;
}
