/*
 * patch_git_test.c - random trees, random changes, git's own diff of them: what we make of it must be what
 * `git apply` makes of it, byte for byte and mode for mode. The seed is printed; SEED= repeats a run.
 */
#include "tests/repos/fixture.h"
#include <ftw.h>

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

static const char *at(const char *dir, const char *name)     /* two may be in use at once */
{
    static char path[2][4400];
    static int turn;
    snprintf(path[turn = !turn], sizeof path[0], "%s/%s", dir, name);
    return path[turn];
}

static mode_t mode_of(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0 ? st.st_mode : 0;
}

static void copy_file(const char *dir, const char *from, const char *to)
{
    size_t n = 0;
    char *bytes = slurp(dir, from, &n), path[4400];
    snprintf(path, sizeof path, "%s/%s", dir, to);
    make_parents(path);
    FILE *f = fopen(path, "wb");
    assert_true(bytes != NULL && f != NULL && fwrite(bytes, 1, n, f) == n);
    fclose(f);
    assert_int_equal(chmod(path, mode_of(at(dir, from)) & 0777), 0);
    free(bytes);
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
    (void)st, (void)kind;
    const char *name = path + ftw->base;
    if (strcmp(name, ".git") == 0)
        return 0;
    if (ftw->level > 0 && strstr(path, "/.git/") == NULL)
        assert_int_equal(remove(path), 0);
    return 0;
}

static void clear_dir(const char *dir)      /* all but .git */
{
    assert_int_equal(nftw(dir, remove_one, 16, FTW_PHYS | FTW_DEPTH), 0);
}

static void random_base(const char *dir, struct text texts[FILES], bool binary[FILES])
{
    for (int i = 0; i < FILES; i++) {
        texts[i].n = 0;
        binary[i] = rnd(8) == 0;
        if (rnd(4) == 0)
            continue;
        new_text(&texts[i]);
        write_text(dir, names[i], &texts[i], binary[i]);
        if (rnd(5) == 0)
            assert_int_equal(chmod(at(dir, names[i]), 0755), 0);
    }
    if (rnd(3) == 0)
        assert_int_equal(symlink("a.txt", at(dir, "link")), 0);
}

static void random_change(const char *dir, struct text texts[FILES], bool binary[FILES])
{
    char to[64];
    for (int i = 0; i < FILES; i++) {
        mode_t mode = mode_of(at(dir, names[i]));
        bool there = S_ISREG(mode);
        switch (rnd(9)) {
        case 0: case 1: case 2:
            change_text(&texts[i]);
            write_text(dir, names[i], &texts[i], binary[i]);
            if (there && rnd(3) != 0)
                assert_int_equal(chmod(at(dir, names[i]), mode & 0777), 0);
            break;
        case 3:
            unlink(at(dir, names[i]));
            break;
        case 4:
            if (there)
                assert_int_equal(chmod(at(dir, names[i]), mode & 0100 ? 0644 : 0755), 0);
            break;
        case 5: case 6: {
            bool move = rnd(2) == 0;
            if (!there)
                break;
            snprintf(to, sizeof to, move ? "moved/%d" : "copy-%d", i);
            copy_file(dir, names[i], to);
            if (move)
                unlink(at(dir, names[i]));
            if (rnd(2) == 0) {
                change_text(&texts[i]);
                write_text(dir, to, &texts[i], binary[i]);
            }
            break;
        }
        case 7:
            if (there && rnd(4) == 0) {     /* a file becomes a link, or a directory */
                unlink(at(dir, names[i]));
                if (rnd(2) == 0)
                    assert_int_equal(symlink("elsewhere", at(dir, names[i])), 0);
                else {
                    char in[100];
                    snprintf(in, sizeof in, "%s/in", names[i]);
                    write_text(dir, in, &texts[i], false);
                }
            }
            break;
        default:
            break;
        }
    }
    if (rnd(6) == 0 && S_ISREG(mode_of(at(dir, "a.txt"))) && S_ISREG(mode_of(at(dir, "src/b.py")))) {   /* two files change places */
        rename(at(dir, "a.txt"), at(dir, "tmp"));
        rename(at(dir, "src/b.py"), at(dir, "a.txt"));
        rename(at(dir, "tmp"), at(dir, "src/b.py"));
    }
    if (rnd(12) == 0 && S_ISREG(mode_of(at(dir, "src/deep/c")))) {                                      /* a directory becomes a file */
        unlink(at(dir, "src/deep/c"));
        if (rmdir(at(dir, "src/deep")) == 0)
            write_text(dir, "src/deep", &texts[2], false);
    }
    if (rnd(6) == 0) {
        unlink(at(dir, "link"));
        if (rnd(2) == 0)
            assert_int_equal(symlink("other", at(dir, "link")), 0);
    }
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
    int n = rounds != NULL ? atoi(rounds) : 304, applied = 0;
    struct fixture f;
    char dir[4200], cmd[2000];
    fixture_open(&f, "echo seed >.keep");
    snprintf(dir, sizeof dir, "%s/repos/r", f.top);
    for (int round = 0; round < n; round++) {
        rng = first + (uint64_t)round * 7919;
        rnd(2);
        struct text texts[FILES];
        bool binary[FILES];
        clear_dir(dir);
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
                fail_msg("seed %llu round %d style %u: %s; see %s/patch", (unsigned long long)first, round, style, f.m.reason, f.top);
            if (strncmp(want, f.m.tree, 40) != 0)
                fail_msg("seed %llu round %d style %u: another tree than git's\n%s", (unsigned long long)first, round, style, patch);
            if (f.m.findings.count > 0)
                fail_msg("seed %llu round %d style %u: a finding on an exact patch: %s\n%s", (unsigned long long)first, round, style, f.m.findings.items[0], patch);
            if (patch_n > 0) {
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
        arena_done(&f.a);
    }
    fixture_close(&f);
    print_message("%d rounds, %d patches equal to git apply, seed %llu\n", n, applied, (unsigned long long)first);
    assert_true(applied * 10 >= n * 9);
}

/*
 * The same patch on a file that has drifted: what applies without a finding must be what git makes of it, and what
 * git refuses is never applied silently. Where lines repeat, git may take another place than ours; ours says so.
 */
static void merge__is_never_bolder_than_git_in_silence(void **state)
{
    (void)state;
    const char *seed = getenv("SEED"), *rounds = getenv("ROUNDS");
    uint64_t first = seed != NULL ? strtoull(seed, NULL, 10) : 20261202;
    int n = rounds != NULL ? atoi(rounds) : 60, same = 0, refused = 0, told = 0;
    struct fixture f;
    char dir[4200];
    fixture_open(&f, "echo seed >.keep");
    snprintf(dir, sizeof dir, "%s/repos/r", f.top);
    for (int round = 0; round < n; round++) {
        rng = first + (uint64_t)round * 7919;
        rnd(2);
        struct text t = { 0 }, drifted = { 0 };
        new_text(&t);
        drifted = t;
        for (uint32_t i = 0; i < t.n; i++)
            assert_non_null(drifted.line[i] = strdup(t.line[i]));
        write_text(dir, "f", &t, false);
        change_text(&t);
        write_text(dir, "g", &t, false);
        change_text(&drifted);
        write_text(dir, "h", &drifted, false);
        if (sh(dir, "git diff --no-index -- f g >../../patch || true; sed -i -e '1,4s|/[fg]$|/f|' -e '1s|.*|diff --git a/f b/f|' ../../patch; rm g; mv h f; git add -A; "
                    "git commit -q --allow-empty -m d; git rev-parse HEAD >../../head; rm -f ../../git; if git apply ../../patch 2>/dev/null; then cp f ../../git; fi; git checkout -q .") != 0)
            fail_msg("round %d", round);
        fixture_import(&f);
        size_t patch_n = 0, git_n = 0, our_n = 0;
        char *patch = slurp(f.top, "patch", &patch_n), *git = slurp(f.top, "git", &git_n);
        fixture_merge(&f, patch, patch_n);
        char *ours = f.m.outcome == MERGE_FAILED ? NULL : slurp(f.top, "out/f", &our_n);
        if (ours == NULL)
            refused++;
        else if (git != NULL && git_n == our_n && memcmp(git, ours, git_n) == 0)
            same++;
        else if (f.m.findings.count > 0)
            told++;
        else if (patch_n > 0)
            fail_msg("seed %llu round %d: applied without a finding, git %s; see %s", (unsigned long long)first, round,
                     git == NULL ? "refuses" : "makes something else", f.top);
        free(patch);
        free(git);
        free(ours);
        drop_text(&t);
        drop_text(&drifted);
        arena_done(&f.a);
    }
    fixture_close(&f);
    print_message("%d rounds: %d as git, %d refused, %d with a finding\n", n, same, refused, told);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(merge__does_what_git_apply_does),
                                        cmocka_unit_test(merge__is_never_bolder_than_git_in_silence) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
