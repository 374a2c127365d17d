/*
 * table.c - the same tricks against another launcher: `run ADAPTER`. An adapter is one line of shell that runs "$@" confined;
 * $ATTACK_DIR holds the program. Prints, per trick, what our jail let it get in
 * either profile, beyond what the compatible one grants on purpose, and what the other did.
 */
#include "tests/attack/harness.h"

struct verdict { bool held; char text[64]; };

static struct verdict judge(bool stuck, const char *text, const char *granted)
{
    struct verdict v = { .held = true, .text = "held" };
    const char *got = harness_first_got(text, granted);
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
    size_t ours_held[SANDBOX_PROFILE_COUNT] = { 0 }, other_held = 0, judged = 0;
    if (argc != 3) {
        fprintf(stderr, "usage: table NAME 'LAUNCHER ... -- \"$@\"'\n");
        return 64;
    }
    snprintf(line, sizeof line, "%s", argv[2]);
    line[strcspn(line, "\n")] = '\0';
    if (harness_open(&h) < 0)
        return 1;
    harness_jail(&h);
    printf("%-40s %-20s %-20s %s\n", "case", "ours, strict", "ours, compatible", argv[1]);
    for (size_t i = 0; i < h.count; i++) {
        const struct attack *a = &h.rows[i];
        struct verdict ours[SANDBOX_PROFILE_COUNT], other = { .text = "-" };
        harness_name(a, name);
        for (h.profile = 0; h.profile < SANDBOX_PROFILE_COUNT; h.profile++) {
            struct err why;
            struct outcome o = harness_ours(&h, a, "attack", &why);
            ours[h.profile] = judge(false, o.rc < 0 || o.output == NULL ? "" : o.output,
                                    h.profile == SANDBOX_COMPATIBLE ? a->compatible.grants : "");
            ours_held[h.profile] += ours[h.profile].held;
            outcome_done(&o);
        }
        if (a->image == NULL && a->tree == NULL) {                  /* a launcher that takes no image cannot be asked */
            harness_other(&h, a, "twin", line, &r);
            bool runs = strstr(r.text, "ok\n") != NULL && strstr(r.text, "not ok") == NULL;
            strcpy(other.text, "- (the honest twin fails)");
            if (runs) {
                harness_other(&h, a, "attack", line, &r);
                other = judge(r.stuck, r.text, "");
                other_held += other.held;
                judged++;
            }
        }
        printf("%-40s %-20s %-20s %s\n", name, ours[SANDBOX_STRICT].text, ours[SANDBOX_COMPATIBLE].text, other.text);
        fflush(stdout);
    }
    printf("held: ours %zu and %zu of %zu, %s %zu of %zu\n", ours_held[SANDBOX_STRICT], ours_held[SANDBOX_COMPATIBLE], h.count, argv[1],
           other_held, judged);
    harness_close(&h);
    return ours_held[SANDBOX_STRICT] != h.count || ours_held[SANDBOX_COMPATIBLE] != h.count;
}
