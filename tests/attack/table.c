/*
 * table.c - the same tricks against another launcher: `run ADAPTER`. An adapter is one line of shell that runs "$@" confined;
 * $ATTACK_DIR holds the program. Prints, per trick, what our jail let it get and what the other did.
 */
#include "tests/attack/harness.h"

struct verdict { bool held; char text[64]; };

static struct verdict judge(bool stuck, const char *text)
{
    struct verdict v = { .held = true, .text = "held" };
    const char *got = harness_first_got(text);
    if (got != NULL) {
        v.held = false;
        snprintf(v.text, sizeof v.text, "GOT %.*s", (int)strcspn(got, " \n"), got);
    } else if (stuck) {
        v.held = false;
        strcpy(v.text, "no end");
    }
    return v;
}

int main(int argc, char **argv)
{
    static struct harness h;
    static struct run_end r;
    char name[48], line[1024] = "";
    size_t ours_held = 0, other_held = 0, judged = 0;
    if (argc != 3) {
        fprintf(stderr, "usage: table NAME 'LAUNCHER ... -- \"$@\"'\n");
        return 64;
    }
    snprintf(line, sizeof line, "%s", argv[2]);
    line[strcspn(line, "\n")] = '\0';
    if (harness_open(&h) < 0)
        return 1;
    harness_jail(&h);
    printf("%-40s %-28s %s\n", "case", "ours", argv[1]);
    for (size_t i = 0; i < h.count; i++) {
        const struct attack *a = &h.rows[i];
        struct err why;
        harness_name(a, name);
        struct outcome o = harness_ours(&h, a, "attack", &why);
        struct verdict ours = judge(false, o.rc < 0 || o.output == NULL ? "" : o.output), other = { .text = "-" };
        ours_held += ours.held;
        if (a->image == NULL && a->tree == NULL) {                  /* a launcher that takes no image cannot be asked */
            harness_other(&h, a, "twin", line, &r);
            bool runs = strstr(r.text, "ok\n") != NULL && strstr(r.text, "not ok") == NULL;
            strcpy(other.text, "- (the honest twin fails)");
            if (runs) {
                harness_other(&h, a, "attack", line, &r);
                other = judge(r.stuck, r.text);
                other_held += other.held;
                judged++;
            }
        }
        printf("%-40s %-28s %s\n", name, ours.text, other.text);
        fflush(stdout);
        outcome_done(&o);
    }
    printf("held: ours %zu of %zu, %s %zu of %zu\n", ours_held, h.count, argv[1], other_held, judged);
    harness_close(&h);
    return ours_held != h.count;
}
