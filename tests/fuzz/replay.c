/*
 * replay.c - run a fuzz entry point over its corpus, whole and mutated by a fixed seed: the part of fuzzing that every
 * test run does. usage: NAME_fuzz CORPUS_DIR
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

#define INPUT_MAX ((size_t)1 << 20)
#define MUTATIONS 400

static uint64_t state = 0x9e3779b97f4a7c15u;

static uint32_t random_below(size_t n)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return n == 0 ? 0 : (uint32_t)(state % n);
}

/* One change: a byte, a cut, a doubled piece, or a number that parsers trip over. */
static size_t mutate(uint8_t *b, size_t n)
{
    static const char *const awkward[] = { "-1", "4294967295", "18446744073709551616", "\n", "\0", "@@ -0,0 +1 @@", "<", "&#x0;", "]]>", "\xff\xfe" };
    const char *word = awkward[random_below(sizeof awkward / sizeof awkward[0])];
    size_t at = random_below(n), len = 1 + random_below(n - at < 64 ? n - at : 64);
    if (n == 0)
        return 0;
    switch (random_below(5)) {
    case 0: b[at] = (uint8_t)random_below(256); return n;
    case 1: return at;
    case 2: memmove(b + at, b + at + len - 1, n - at - len + 1); return n - len + 1;
    case 3:
        if (n + len > INPUT_MAX)
            return n;
        memmove(b + at + len, b + at, n - at);
        return n + len;
    default:
        len = strlen(word) + (*word == '\0');
        if (n + len > INPUT_MAX)
            return n;
        memmove(b + at + len, b + at, n - at);
        memcpy(b + at, word, len);
        return n + len;
    }
}

int main(int argc, char **argv)
{
    uint8_t *input = malloc(INPUT_MAX), *work = malloc(INPUT_MAX);
    DIR *d = argc == 2 ? opendir(argv[1]) : NULL;
    if (d == NULL || input == NULL || work == NULL) {
        fprintf(stderr, "usage: %s CORPUS_DIR (missing: %s)\n", argv[0], argc == 2 ? argv[1] : "");
        return 64;
    }
    unsigned long files = 0, runs = 0;
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", argv[1], e->d_name);
        FILE *f = e->d_name[0] != '.' ? fopen(path, "rb") : NULL;
        if (f == NULL)
            continue;
        size_t n = fread(input, 1, INPUT_MAX, f);
        fclose(f);
        files++;
        for (int k = 0; k <= MUTATIONS; k++, runs++) {
            memcpy(work, input, n);
            size_t m = n;
            for (int c = 0; k > 0 && c <= k % 4; c++)
                m = mutate(work, m);
            uint8_t *exact = malloc(m == 0 ? 1 : m);    /* no room behind: an overrun is seen */
            if (exact == NULL)
                return 71;
            memcpy(exact, work, m);
            LLVMFuzzerTestOneInput(exact, m);
            free(exact);
        }
    }
    closedir(d);
    free(input);
    free(work);
    printf("%s: %lu inputs from %lu files\n", argv[0], runs, files);
    return files > 0 ? 0 : 1;
}
