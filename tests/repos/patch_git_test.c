/*
 * patch_git_test.c - random trees, random changes, git's own diff of them: what we make of it must be what
 * `git apply` makes of it, byte for byte and mode for mode. The seed is printed; SEED= repeats a run.
 */
#include "tests/repos/fixture.h"

#define FILES 9
static uint64_t rng;

static uint32_t rnd(uint32_t n)
{
    rng = rng * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(rng >> 33) % n;
}

/* Few different lines, so that contexts repeat; some are long, some blank, some look like diff syntax. */
static const char *const words[] = { "", "", "x = 1", "    return x", "}", "{", "def f(a):", "-- a/b", "++ b/c", "@@ -1 +1 @@", "\\ No newline",
                                     "diff --git a/x b/x", "a\tb", "caf\xc3\xa9", " ", "# end", "--- a/q", "+++ b/q" };
struct text { char *line[400]; uint32_t n; const char *eol; bool last_eol; };

static char *new_line(void)
{
    char *s = NULL;
    const char *w = words[rnd(sizeof words / sizeof words[0])];
    if (rnd(3) == 0)
        assert_true(asprintf(&s, "%s %u", w, rnd(30)) >= 0);
    else
        assert_non_null(s = strdup(w));
    return s;
}

static void new_text(struct text *t)
{
    t->n = rnd(3) == 0 ? rnd(4) : rnd(80);
    t->eol = rnd(5) == 0 ? "\r\n" : "\n";
    t->last_eol = rnd(5) != 0;
    for (uint32_t i = 0; i < t->n; i++)
        t->line[i] = new_line();
}

static void change_text(struct text *t)
{
    for (uint32_t k = 1 + rnd(4); k-- > 0; ) {
        uint32_t at = rnd(t->n + 1), what = rnd(3);
        if (what == 0 && t->n < 390) {
            memmove(t->line + at + 1, t->line + at, sizeof t->line[0] * (t->n - at));
            t->line[at] = new_line();
            t->n++;
        } else if (at < t->n && what == 1) {
            free(t->line[at]);
            memmove(t->line + at, t->line + at + 1, sizeof t->line[0] * (t->n - at - 1));
            t->n--;
        } else if (at < t->n) {
            free(t->line[at]);
            t->line[at] = new_line();
        }
    }
    if (rnd(8) == 0)
        t->last_eol = !t->last_eol;
    if (rnd(20) == 0)
        t->eol = t->eol[0] == '\n' ? "\r\n" : "\n";
}

static void write_text(const char *dir, const char *name, const struct text *t, bool binary)
{
    char path[4400];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    make_parents(path);
    unlink(path);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    if (binary)
        fputc(0, f);
    for (uint32_t i = 0; i < t->n; i++)
        fprintf(f, "%s%s", t->line[i], i + 1 < t->n || t->last_eol ? t->eol : "");
    fclose(f);
}

static void drop_text(struct text *t)
{
    for (uint32_t i = 0; i < t->n; i++)
        free(t->line[i]);
    t->n = 0;
}

static const char *const names[FILES] = { "a.txt", "src/b.py", "src/deep/c", "a b/d e.txt", "gr\xc3\xb6\xc3\x9f" "e", "tab\there", "b/a", "src/deep2/z.c", "quote\"d" };

static void random_base(const char *dir, struct text texts[FILES], bool binary[FILES])
{
    for (int i = 0; i < FILES; i++) {
        texts[i].n = 0;
        binary[i] = rnd(8) == 0;
        if (rnd(4) == 0)
            continue;
        new_text(&texts[i]);
        write_text(dir, names[i], &texts[i], binary[i]);
        char cmd[200];
        if (rnd(5) == 0) {
            snprintf(cmd, sizeof cmd, "chmod 755 '%s'", names[i]);
            assert_int_equal(sh(dir, cmd), 0);
        }
    }
    if (rnd(3) == 0)
        assert_int_equal(sh(dir, "ln -s a.txt link"), 0);
}

static void random_change(const char *dir, struct text texts[FILES], bool binary[FILES])
{
    char cmd[400];
    for (int i = 0; i < FILES; i++) {
        snprintf(cmd, sizeof cmd, "test -f '%s'", names[i]);
        bool there = sh(dir, cmd) == 0;
        switch (rnd(9)) {
        case 0: case 1: case 2:
            change_text(&texts[i]);
            write_text(dir, names[i], &texts[i], binary[i]);
            break;
        case 3:
            snprintf(cmd, sizeof cmd, "rm -f '%s'", names[i]);
            assert_int_equal(sh(dir, cmd), 0);
            break;
        case 4:
            snprintf(cmd, sizeof cmd, there ? "if test -x '%s'; then chmod 644 '%s'; else chmod 755 '%s'; fi" : "true", names[i], names[i], names[i]);
            assert_int_equal(sh(dir, cmd), 0);
            break;
        case 5:
            snprintf(cmd, sizeof cmd, there ? "mkdir -p moved; cp -p '%s' moved/%d; rm '%s'" : "true", names[i], i, names[i]);
            assert_int_equal(sh(dir, cmd), 0);
            if (there && rnd(2) == 0) {
                snprintf(cmd, sizeof cmd, "moved/%d", i);
                change_text(&texts[i]);
                write_text(dir, cmd, &texts[i], binary[i]);
            }
            break;
        case 6:
            snprintf(cmd, sizeof cmd, there ? "cp -p '%s' copy-%d" : "true", names[i], i);
            assert_int_equal(sh(dir, cmd), 0);
            break;
        case 7:
            if (rnd(4) == 0) {          /* a file becomes a link, or a directory */
                snprintf(cmd, sizeof cmd, there ? rnd(2) == 0 ? "rm '%s'; ln -s elsewhere '%s'" : "rm '%s'; mkdir '%s'; echo in >'%s'/in" : "true",
                         names[i], names[i], names[i]);
                assert_int_equal(sh(dir, cmd), 0);
            }
            break;
        default:
            break;
        }
    }
    if (rnd(6) == 0)                    /* two files change places; a directory becomes a file */
        assert_int_equal(sh(dir, "if test -f a.txt && test -f src/b.py; then mv a.txt tmp; mv src/b.py a.txt; mv tmp src/b.py; fi"), 0);
    if (rnd(12) == 0)
        assert_int_equal(sh(dir, "if test -d src/deep; then rm -r src/deep; echo file >src/deep; fi"), 0);
    if (rnd(6) == 0)
        assert_int_equal(sh(dir, "rm -f link; if test $((RANDOM % 2)) = 0; then ln -s other link; fi"), 0);
}

/* Options of git diff, and those git apply needs for them. */
static const struct { const char *diff, *apply; } styles[] = {
    { "--binary --full-index", "" }, { "--binary -M", "" }, { "--binary -M -C --find-copies-harder", "" }, { "--binary -U1", "" },
    { "--binary -U0", "--unidiff-zero" }, { "--binary --no-prefix", "-p0" }, { "--binary --no-renames --full-index -U8", "" },
    { "--binary -M10% -B", "" }, { "--binary --minimal --patience", "" },
};

static void merge__does_what_git_apply_does(void **state)
{
    (void)state;
    const char *seed = getenv("SEED"), *rounds = getenv("ROUNDS");
    uint64_t first = seed != NULL ? strtoull(seed, NULL, 10) : 20261201;
    int n = rounds != NULL ? atoi(rounds) : 320, applied = 0;
    for (int round = 0; round < n; round++) {
        rng = first + (uint64_t)round * 7919;
        rnd(2);
        struct fixture f;
        struct text texts[FILES];
        bool binary[FILES];
        fixture_open(&f, "echo seed >.keep");
        char dir[4200], cmd[2000];
        snprintf(dir, sizeof dir, "%s/repos/r", f.top);
        random_base(dir, texts, binary);
        assert_int_equal(sh(dir, "git add -A -f; git commit -q --allow-empty -m base; git rev-parse HEAD >../../head"), 0);
        fixture_import(&f);
        random_change(dir, texts, binary);
        uint32_t style = rnd(sizeof styles / sizeof styles[0]);
        /* the expected tree: git apply on the base in an index of its own */
        snprintf(cmd, sizeof cmd,
                 "git add -A -f; git write-tree >../../want; git diff --cached %s HEAD >../../patch; git reset -q --hard HEAD; git clean -qfdx; "
                 "if test -s ../../patch; then git apply --index --whitespace=nowarn %s ../../patch; fi; git write-tree >../../got", styles[style].diff, styles[style].apply);
        if (sh(dir, cmd) != 0) {        /* git's own diff and apply do not always agree (-B): nothing to compare with */
            fprintf(stderr, "round %d, style %u: git refuses its own diff\n", round, style);
        } else {
            char *want = slurp(f.top, "want", NULL), *got = slurp(f.top, "got", NULL);
            size_t patch_n = 0;
            char *patch = slurp(f.top, "patch", &patch_n);
            assert_string_equal(want, got);
            fixture_merge(&f, patch, patch_n);
            if (f.m.outcome == MERGE_FAILED)
                fail_msg("seed %llu round %d style %u: %s\n%s", (unsigned long long)first, round, style, f.m.reason, patch);
            if (strncmp(want, f.m.tree, 40) != 0)
                fail_msg("seed %llu round %d style %u: another tree than git's\n%s", (unsigned long long)first, round, style, patch);
            if (f.m.findings.count > 0)
                fail_msg("seed %llu round %d style %u: a finding on an exact patch: %s\n%s", (unsigned long long)first, round, style, f.m.findings.items[0], patch);
            if (patch_n > 0) {          /* applied twice: refused, or git takes it as well */
                applied++;
                assert_int_equal(f.m.outcome, MERGE_APPLIED);
            } else
                assert_int_equal(f.m.outcome, MERGE_EMPTY);
            free(want);
            free(got);
            free(patch);
        }
        for (int i = 0; i < FILES; i++)
            drop_text(&texts[i]);
        fixture_close(&f);
    }
    print_message("%d rounds, %d patches equal to git apply, seed %llu\n", n, applied, (unsigned long long)first);
    assert_true(applied * 10 >= n * 9);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(merge__does_what_git_apply_does) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
