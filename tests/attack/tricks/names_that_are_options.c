#include "tests/attack/attack.h"

static int attack(void)
{
    static const char *const names[] = { "-rf", "--", "\n", "\033[31m", "\xff\xfe", "$(id)", "`id`", ";id", " ", "..." };
    char name[256];
    int made = 0;
    if (chdir("/assay/report") < 0 && chdir("/tmp") < 0)
        return 1;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        made += open(names[i], O_CREAT | O_WRONLY, 0644) >= 0;
    memset(name, 'x', 255);
    name[255] = '\0';
    made += open(name, O_CREAT | O_WRONLY, 0644) >= 0;
    for (int i = 0; i < 500; i++) {
        snprintf(name, sizeof name, "many-%d", i);
        open(name, O_CREAT | O_WRONLY, 0644);
    }
    printf("names refused to matter %d\n", made);
    return 0;
}

static int twin(void) { return says_ok(open("/assay/report/plain.xml", O_CREAT | O_WRONLY, 0644) >= 0); }

ATTACK(.tries = "report names that are options, escapes, 255 bytes, and five hundred of them", .attack = attack, .twin = twin,
       .not_bare = "there is nothing to get: names are data", .must = { "names refused to matter 11" });
