/* patch.c - patch text into sections and hunks; see patch.h. */
#include "repos/patch.h"
#include "base/buf.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINES_MAX     ((size_t)4 << 20)
#define SPLITS_MAX    256           /* spaces of a diff line that are tried as the one between its names */
#define HUNK_NUMBER_MAX UINT64_C(1000000000)
#define BINARY_SIZE_MAX ((uint64_t)64 << 20)

struct parser {
    struct arena *a;
    struct err *err;
    struct patch *p;
    struct patch_notes *notes;
    const struct line *lines;
    size_t count, i;
    struct section *current;        /* hunks belong to it; NULL before the first */
    struct hunk_line *body;         /* scratch for one hunk, malloc'd */
    size_t body_n, body_cap;
    const char *reason;
};

/* The parser's functions return 0, or a negative code: our failure, or REFUSED with p->reason set. */
#define REFUSED (-1000)

static int no_memory(struct parser *p) { return err_set(p->err, ERR_LIMIT, "patch: does not fit the memory budget"); }

#define REFUSE(p, ...) (patch_reason(&(p)->reason, (p)->a, (p)->err, __VA_ARGS__) < 0 ? (p)->err->code : REFUSED)

static size_t line_number(const struct parser *p) { return p->i + 1; }

/* A header line without its line ending. */
static struct line head(const struct parser *p, size_t i)
{
    if (i >= p->count)
        return (struct line){ "", 0 };
    struct line l = p->lines[i];
    if (l.n > 0 && l.text[l.n - 1] == '\n')
        l.n--;
    if (l.n > 0 && l.text[l.n - 1] == '\r')
        l.n--;
    return l;
}

static bool begins(struct line l, const char *with)
{
    size_t n = strlen(with);
    return l.n >= n && memcmp(l.text, with, n) == 0;
}

static bool take_number(struct line *l, uint64_t *out)
{
    uint64_t v = 0;
    size_t i = 0;
    for (; i < l->n && l->text[i] >= '0' && l->text[i] <= '9'; i++)
        if ((v = v * 10 + (uint64_t)(l->text[i] - '0')) > HUNK_NUMBER_MAX)
            return false;
    *l = (struct line){ l->text + i, l->n - i };
    *out = v;
    return i > 0;
}

static bool take_text(struct line *l, const char *text)
{
    if (!begins(*l, text))
        return false;
    size_t n = strlen(text);
    *l = (struct line){ l->text + n, l->n - n };
    return true;
}

static bool hunk_header(struct line l, struct hunk *out)
{
    *out = (struct hunk){ .old_count = 1, .new_count = 1 };
    return take_text(&l, "@@ -") && take_number(&l, &out->old_start) && (!take_text(&l, ",") || take_number(&l, &out->old_count))
        && take_text(&l, " +") && take_number(&l, &out->new_start) && (!take_text(&l, ",") || take_number(&l, &out->new_count))
        && take_text(&l, " @@");
}

/* "--- x", "+++ y" and a hunk: the head of a plain diff. */
static bool plain_head(const struct parser *p, size_t i)
{
    struct hunk h;
    return i + 2 < p->count && begins(head(p, i), "--- ") && begins(head(p, i + 1), "+++ ") && hunk_header(head(p, i + 2), &h);
}

/* --- names --- */

/* A C-quoted name at the start of *l; *l becomes what follows. NULL in *out: malformed. */
static int unquote(struct parser *p, const char **out, struct line *l)
{
    char *s = arena_alloc(p->a, l->n + 1);
    if (s == NULL)
        return no_memory(p);
    size_t n = 0, i = 1;
    *out = NULL;
    for (; i < l->n && l->text[i] != '"'; i++) {
        if (l->text[i] != '\\') {
            s[n++] = l->text[i];
            continue;
        }
        if (++i == l->n)
            return 0;
        static const char from[] = "abtnvfr\"\\", to[] = "\a\b\t\n\v\f\r\"\\";
        const char *k = strchr(from, l->text[i]);
        if (k != NULL && *k != '\0') {
            s[n++] = to[k - from];
        } else {
            if (i + 2 >= l->n || l->text[i] < '0' || l->text[i] > '3' || l->text[i + 1] < '0' || l->text[i + 1] > '7'
                || l->text[i + 2] < '0' || l->text[i + 2] > '7')
                return 0;
            s[n++] = (char)((l->text[i] - '0') * 64 + (l->text[i + 1] - '0') * 8 + (l->text[i + 2] - '0'));
            i += 2;
        }
    }
    if (i == l->n || memchr(s, '\0', n) != NULL)
        return 0;
    *l = (struct line){ l->text + i + 1, l->n - i - 1 };
    *out = s;
    return 0;
}

/* The name of a header line: quoted, or everything up to a tab (a time may follow it in plain diffs). */
static int take_name(struct parser *p, const char **out, struct line l, bool *out_none)
{
    if (l.n > 0 && l.text[0] == '"') {
        int rc = unquote(p, out, &l);
        if (rc < 0)
            return rc;
        if (*out == NULL || (l.n > 0 && l.text[0] != '\t'))
            return REFUSE(p, "line %zu: a quoted file name is malformed", line_number(p));
    } else {
        const char *tab = memchr(l.text, '\t', l.n);
        size_t n = tab != NULL ? (size_t)(tab - l.text) : l.n;
        if (memchr(l.text, '\0', n) != NULL)
            return REFUSE(p, "line %zu: a file name holds a NUL byte", line_number(p));
        /* diff -N marks a file that is not there by the epoch as its time */
        if (out_none != NULL && tab != NULL && (begins((struct line){ tab, l.n - n }, "\t1970-01-01 0")
                                                || begins((struct line){ tab, l.n - n }, "\t1969-12-31 ")))
            *out_none = true;
        if ((*out = arena_strndup(p->a, l.text, n)) == NULL)
            return no_memory(p);
    }
    if (out_none != NULL && strcmp(*out, "/dev/null") == 0)
        *out_none = true;
    if (**out == '\0')
        return REFUSE(p, "line %zu: a file name is empty", line_number(p));
    return 0;
}

static const char *after_slash(const char *s, size_t n)
{
    const char *slash = memchr(s, '/', n);
    return slash != NULL ? slash + 1 : NULL;
}

/* Are two names one file, as they stand or without their first directories? */
static bool same_file(const char *x, size_t nx, const char *y, size_t ny)
{
    if (nx == ny && memcmp(x, y, nx) == 0)
        return true;
    const char *sx = after_slash(x, nx), *sy = after_slash(y, ny);
    if (sx == NULL || sy == NULL)
        return false;
    size_t lx = nx - (size_t)(sx - x), ly = ny - (size_t)(sy - y);
    return lx > 0 && lx == ly && memcmp(sx, sy, lx) == 0;
}

/*
 * The two names of a "diff --git" line. Unquoted names may hold spaces: only a split after which both
 * name one file is believed; a rename has no such split and names its files in its own lines.
 */
static int git_names(struct parser *p, struct section *s, struct line l)
{
    int rc;
    if (l.n > 2 * (TREE_PATH_MAX + 16) || memchr(l.text, '\0', l.n) != NULL)
        return 0;
    if (l.n > 0 && l.text[0] == '"') {
        if ((rc = unquote(p, &s->git_old, &l)) < 0)
            return rc;
        if (s->git_old == NULL || !take_text(&l, " "))
            return REFUSE(p, "line %zu: a quoted file name is malformed", line_number(p));
        return take_name(p, &s->git_new, l, NULL);
    }
    for (size_t k = 1; k + 1 < l.n && l.text[l.n - 1] == '"'; k++)
        if (l.text[k] == ' ' && l.text[k + 1] == '"') {
            if ((s->git_old = arena_strndup(p->a, l.text, k)) == NULL)
                return no_memory(p);
            return take_name(p, &s->git_new, (struct line){ l.text + k + 1, l.n - k - 1 }, NULL);
        }
    size_t at = 0;
    if (l.n % 2 == 1 && l.text[l.n / 2] == ' ' && same_file(l.text, l.n / 2, l.text + l.n / 2 + 1, l.n / 2))
        at = l.n / 2;                   /* prefixes of one length, as git writes them */
    unsigned tried = 0;
    for (size_t k = 1; at == 0 && k + 1 < l.n && tried < SPLITS_MAX; k++)
        if (l.text[k] == ' ' && ++tried > 0 && same_file(l.text, k, l.text + k + 1, l.n - k - 1))
            at = k;
    if (at == 0)
        return 0;
    s->git_old = arena_strndup(p->a, l.text, at);
    s->git_new = arena_strndup(p->a, l.text + at + 1, l.n - at - 1);
    return s->git_old != NULL && s->git_new != NULL ? 0 : no_memory(p);
}

static int section_new(struct parser *p, struct section **out, bool git)
{
    struct patch *q = p->p;
    if (q->count == PATCH_SECTIONS_MAX)
        return REFUSE(p, "line %zu: more than %d files in one patch", line_number(p), PATCH_SECTIONS_MAX);
    if (q->count == q->cap) {
        uint32_t cap = q->cap != 0 ? q->cap * 2 : 8;
        struct section **more = arena_alloc(p->a, sizeof *more * cap);
        if (more == NULL)
            return no_memory(p);
        if (q->count > 0)
            memcpy(more, q->sections, sizeof *more * q->count);
        q->sections = more;
        q->cap = cap;
    }
    struct section *s = arena_alloc(p->a, sizeof *s);
    if (s == NULL)
        return no_memory(p);
    s->git = git;
    s->text_line = (uint32_t)line_number(p);
    s->index_old = s->index_new = "";
    q->sections[q->count++] = s;
    *out = p->current = s;
    return 0;
}

/* --- hunks --- */

static bool is_blank(struct line l)
{
    return l.n == 0 || (l.n == 1 && l.text[0] == '\n') || (l.n == 2 && l.text[0] == '\r' && l.text[1] == '\n');
}

/* What git format-patch ends a mail with. */
static bool is_signature(const struct parser *p, size_t i)
{
    struct line l = head(p, i);
    return l.n <= 3 && (begins(l, "-- ") || (l.n == 2 && begins(l, "--")));
}

static bool body_like(const struct parser *p, size_t i)
{
    if (i >= p->count)
        return false;
    struct line l = p->lines[i];
    return is_blank(l) || l.text[0] == ' ' || l.text[0] == '+' || l.text[0] == '-' || begins(l, "\\ ");
}

static int body_add(struct parser *p, char sign, struct line l)
{
    if (p->body_n == p->body_cap) {
        size_t cap = p->body_cap != 0 ? p->body_cap * 2 : 256;
        struct hunk_line *more = realloc(p->body, sizeof *more * cap);
        if (more == NULL)
            return no_memory(p);
        p->body = more;
        p->body_cap = cap;
    }
    p->body[p->body_n++] = (struct hunk_line){ sign, l };
    return 0;
}

/* Line i into the body: a missing newline is noted at the line before, an empty line is empty context. */
static int body_take(struct parser *p, size_t i)
{
    struct line l = p->lines[i];
    if (l.n > 0 && l.text[0] == '\\') {
        if (p->body_n > 0) {
            struct line *last = &p->body[p->body_n - 1].l;
            if (last->n > 0 && last->text[last->n - 1] == '\n')
                last->n--;
        }
        return 0;
    }
    if (is_blank(l))
        return body_add(p, ' ', l);
    return body_add(p, l.text[0], (struct line){ l.text + 1, l.n - 1 });
}

/* Lines from j that could be more of the hunk. The end of the run, or j when they hold no change. */
static int body_more(struct parser *p, size_t *j, bool counted, bool *out_change)
{
    size_t keep = p->body_n, end = *j;
    bool change = false;
    for (size_t k = *j; body_like(p, k) && !plain_head(p, k) && !is_signature(p, k); k++) {
        int rc = body_take(p, k);
        if (rc < 0)
            return rc;
        char c = is_blank(p->lines[k]) ? ' ' : p->lines[k].text[0];
        change = change || c == '+' || c == '-';
        if (!is_blank(p->lines[k])) {       /* empty lines at the end belong to the text around */
            keep = p->body_n;
            end = k + 1;
        }
    }
    p->body_n = keep;
    *out_change = change;
    if (change || !counted)
        *j = end;
    return 0;
}

static int parse_hunk(struct parser *p)
{
    struct section *s = p->current;
    struct hunk h;
    if (!hunk_header(head(p, p->i), &h))
        return REFUSE(p, "line %zu: a hunk header is malformed", line_number(p));
    h.number = s->hunk_count + 1;
    h.text_line = (uint32_t)line_number(p);
    p->body_n = 0;
    uint64_t old_left = h.old_count, new_left = h.new_count;
    size_t j = p->i + 1;
    int rc = 0;
    for (; (old_left > 0 || new_left > 0) && body_like(p, j); j++) {
        char c = is_blank(p->lines[j]) ? ' ' : p->lines[j].text[0];
        if ((c == ' ' && (old_left == 0 || new_left == 0)) || (c == '-' && old_left == 0) || (c == '+' && new_left == 0))
            break;
        /* Lines that look like the next file's head are body only if the counts end with them. */
        if (c == '-' && plain_head(p, j) && !(old_left == 1 && new_left == 1))
            break;
        if ((rc = body_take(p, j)) < 0)
            return rc;
        old_left -= c == ' ' || c == '-';
        new_left -= c == ' ' || c == '+';
    }
    bool counted = old_left == 0 && new_left == 0, change = false;
    if (counted && j < p->count && begins(p->lines[j], "\\ ") && (rc = body_take(p, j++)) < 0)
        return rc;
    size_t counted_n = p->body_n;
    h.more_after_blank = j < p->count && is_blank(p->lines[j]);
    if ((rc = body_more(p, &j, counted, &change)) < 0)
        return rc;
    if (!counted) {
        /* Empty lines at the end may be prose's; as context they would change nothing. */
        while (p->body_n > 0 && is_blank(p->body[p->body_n - 1].l) && p->body[p->body_n - 1].sign == ' ')
            p->body_n--;
        uint64_t have_old = 0, have_new = 0;
        for (size_t k = 0; k < p->body_n; k++) {
            have_old += p->body[k].sign != '+';
            have_new += p->body[k].sign != '-';
        }
        h.counts_wrong = true;
        h.short_old = h.old_count > have_old ? h.old_count - have_old : 0;
        h.short_new = h.new_count > have_new ? h.new_count - have_new : 0;
        size_t k = j;
        while (k < p->count && is_blank(p->lines[k]))
            k++;
        h.at_end = k == p->count;
        counted_n = p->body_n;
    } else if (!change) {
        p->body_n = counted_n;
    }
    if (counted_n == 0)
        return REFUSE(p, "line %zu: a hunk holds no lines", line_number(p));
    h.count = (uint32_t)counted_n;
    h.count_all = (uint32_t)p->body_n;
    struct hunk_line *lines = arena_alloc(p->a, sizeof *lines * p->body_n);
    if (lines == NULL)
        return no_memory(p);
    memcpy(lines, p->body, sizeof *lines * p->body_n);
    h.lines = lines;
    if (s->hunk_count == s->hunk_cap) {
        uint32_t cap = s->hunk_cap != 0 ? s->hunk_cap * 2 : 4;
        struct hunk *more = arena_alloc(p->a, sizeof *more * cap);
        if (more == NULL)
            return no_memory(p);
        if (s->hunk_count > 0)
            memcpy(more, s->hunks, sizeof *more * s->hunk_count);
        s->hunks = more;
        s->hunk_cap = cap;
    }
    s->hunks[s->hunk_count++] = h;
    p->i = j;
    return 0;
}

/* --- binary sections --- */

/* "literal N" or "delta N", encoded lines, an empty line. */
static int parse_binary_block(struct parser *p, struct binary_data *out)
{
    struct line l = head(p, p->i);
    out->delta = begins(l, "delta ");
    if ((!out->delta && !begins(l, "literal ")) || (take_text(&l, out->delta ? "delta " : "literal "),
                                                    !take_number(&l, &out->size)) || l.n > 0)
        return REFUSE(p, "line %zu: binary data begins with neither \"literal\" nor \"delta\"", line_number(p));
    if (out->size > BINARY_SIZE_MAX)
        return REFUSE(p, "line %zu: binary data of more than %u MiB", line_number(p), (unsigned)(BINARY_SIZE_MAX >> 20));
    struct buf z = { .max = PATCH_SIZE_MAX };
    int rc = 0;
    const char *wrong = NULL;
    for (p->i++; rc == 0 && wrong == NULL && p->i < p->count && head(p, p->i).n > 0; p->i++) {
        l = head(p, p->i);
        if ((wrong = binary_lines_add(&z, l.text, l.n, p->err)) != NULL)
            break;
    }
    if (wrong != NULL)
        rc = REFUSE(p, "line %zu: binary data: %s", line_number(p), wrong);
    else if ((out->z = (uint8_t *)arena_strndup(p->a, (const char *)z.data, z.len)) == NULL)
        rc = no_memory(p);
    out->z_len = z.len;
    out->there = true;
    buf_done(&z);
    if (rc == 0 && p->i < p->count)
        p->i++;                         /* the empty line */
    return rc;
}

static int parse_binary(struct parser *p, struct section *s)
{
    p->i++;
    int rc = parse_binary_block(p, &s->forward);
    if (rc < 0)
        return rc;
    s->kind = SECTION_BINARY;
    struct line l = head(p, p->i);
    struct binary_data reverse = { 0 }; /* the way back: checked for form, else not used */
    return begins(l, "literal ") || begins(l, "delta ") ? parse_binary_block(p, &reverse) : 0;
}

/* --- sections --- */

static int take_mode(struct parser *p, uint32_t *out, struct line l)
{
    uint32_t v = 0;
    for (size_t i = 0; i < l.n; i++) {
        if (l.text[i] < '0' || l.text[i] > '7' || i == 7)
            return REFUSE(p, "line %zu: a file mode is malformed", line_number(p));
        v = v * 8 + (uint32_t)(l.text[i] - '0');
    }
    *out = v;
    return l.n > 0 ? 0 : REFUSE(p, "line %zu: a file mode is missing", line_number(p));
}

/* "index a..b" or "index a..b 100644" */
static int take_index(struct parser *p, struct section *s, struct line l)
{
    size_t n[2];
    const char *hex[2];
    for (int k = 0; k < 2; k++) {
        hex[k] = l.text;
        n[k] = 0;
        while (n[k] < l.n && ((l.text[n[k]] >= '0' && l.text[n[k]] <= '9') || (l.text[n[k]] >= 'a' && l.text[n[k]] <= 'f')))
            n[k]++;
        l = (struct line){ l.text + n[k], l.n - n[k] };
        if (k == 0 && !take_text(&l, ".."))
            return 0;                   /* made-up ids are of no use, but no fault */
    }
    if (n[0] > 40 || n[1] > 40)
        return 0;
    s->index_old = arena_strndup(p->a, hex[0], n[0]);
    s->index_new = arena_strndup(p->a, hex[1], n[1]);
    if (s->index_old == NULL || s->index_new == NULL)
        return no_memory(p);
    if (take_text(&l, " ") && l.n > 0 && s->old_mode == 0 && s->new_mode == 0) {
        int rc = take_mode(p, &s->old_mode, l);
        s->new_mode = s->old_mode;
        return rc;
    }
    return 0;
}

static int take_minus_plus(struct parser *p, struct section *s)
{
    struct line l = head(p, p->i), m = head(p, p->i + 1);
    int rc = take_name(p, &s->minus, (struct line){ l.text + 4, l.n - 4 }, &s->minus_none);
    if (rc < 0)
        return rc;
    p->i++;
    if ((rc = take_name(p, &s->plus, (struct line){ m.text + 4, m.n - 4 }, &s->plus_none)) < 0)
        return rc;
    p->i++;
    return s->minus_none && s->plus_none ? REFUSE(p, "line %zu: both names are /dev/null", line_number(p) - 1) : 0;
}

static int parse_git(struct parser *p)
{
    struct section *s;
    struct line l = head(p, p->i);
    int rc = section_new(p, &s, true);
    if (rc < 0 || (rc = git_names(p, s, (struct line){ l.text + 11, l.n - 11 })) < 0)
        return rc;
    for (p->i++; p->i < p->count && rc == 0; ) {
        l = head(p, p->i);
        const size_t was = p->i;
        if (take_text(&l, "old mode "))
            rc = take_mode(p, &s->old_mode, l);
        else if (take_text(&l, "new mode "))
            rc = take_mode(p, &s->new_mode, l);
        else if (take_text(&l, "deleted file mode "))
            s->is_deleted = true, rc = take_mode(p, &s->old_mode, l);
        else if (take_text(&l, "new file mode "))
            s->is_new = true, rc = take_mode(p, &s->new_mode, l);
        else if (take_text(&l, "copy from "))
            s->is_copy = true, rc = take_name(p, &s->from, l, NULL);
        else if (take_text(&l, "copy to "))
            s->is_copy = true, rc = take_name(p, &s->to, l, NULL);
        else if (take_text(&l, "rename from ") || take_text(&l, "rename old "))
            s->is_rename = true, rc = take_name(p, &s->from, l, NULL);
        else if (take_text(&l, "rename to ") || take_text(&l, "rename new "))
            s->is_rename = true, rc = take_name(p, &s->to, l, NULL);
        else if (take_text(&l, "index "))
            rc = take_index(p, s, l);
        else if (begins(l, "similarity index ") || begins(l, "dissimilarity index "))
            rc = 0;
        else if (begins(l, "--- ") && begins(head(p, p->i + 1), "+++ "))
            return take_minus_plus(p, s);
        else if (begins(l, "GIT binary patch"))
            return parse_binary(p, s);
        else if (begins(l, "Binary files ") && l.n > 7 && memcmp(l.text + l.n - 7, " differ", 7) == 0) {
            s->kind = SECTION_NO_DATA;
            p->i++;
            return 0;
        } else
            return 0;
        if (p->i == was)
            p->i++;
    }
    return rc;
}

/* Lines of another diff that we would lose if we read on. */
static int parse_other(struct parser *p)
{
    struct line l = head(p, p->i);
    if (begins(l, "GIT binary patch"))
        return REFUSE(p, "line %zu: binary data without a file name", line_number(p));
    if (begins(l, "@@@ -"))
        return REFUSE(p, "line %zu: a combined diff (of a merge); send one against the base", line_number(p));
    if (begins(l, "@@ ") && p->current != NULL)
        return REFUSE(p, "line %zu: a hunk header is malformed", line_number(p));
    if (begins(l, "Binary files ") && l.n > 7 && memcmp(l.text + l.n - 7, " differ", 7) == 0) {
        char quoted[256];
        err_quote(quoted, sizeof quoted, l.text, l.n);
        int rc = patch_note(p->notes, p->a, p->err, "line %zu: dropped, it carries no data: %s", line_number(p), quoted);
        if (rc < 0)
            return rc;
    }
    p->i++;
    return 0;
}

static int parse_all(struct parser *p)
{
    struct hunk h;
    int rc = 0;
    while (rc == 0 && p->i < p->count) {
        struct line l = head(p, p->i);
        if (begins(l, "diff --git "))
            rc = parse_git(p);
        else if (plain_head(p, p->i)) {
            struct section *s;
            if ((rc = section_new(p, &s, false)) == 0)
                rc = take_minus_plus(p, s);
        } else if (hunk_header(l, &h)) {
            if (p->current == NULL)
                rc = REFUSE(p, "line %zu: a hunk without a file name before it", line_number(p));
            else if (p->current->kind != SECTION_TEXT)
                rc = REFUSE(p, "line %zu: a hunk behind a binary section", line_number(p));
            else
                rc = parse_hunk(p);
        } else
            rc = parse_other(p);
    }
    return rc;
}

static int split_lines(struct parser *p, const char *bytes, size_t n)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += bytes[i] == '\n';
    if (count > LINES_MAX)
        return REFUSE(p, "the patch has %zu lines, at most %zu", count, LINES_MAX);
    struct line *lines = arena_alloc(p->a, sizeof *lines * (count + 1));
    if (lines == NULL)
        return no_memory(p);
    size_t at = 0;
    for (size_t i = 0; i < count; i++) {
        size_t len = (size_t)((const char *)memchr(bytes + at, '\n', n - at) - (bytes + at)) + 1;
        lines[i] = (struct line){ bytes + at, len };
        at += len;
    }
    p->lines = lines;
    p->count = count;
    return 0;
}

int patch_parse(struct patch *out, const char **out_reason, struct arena *a, const char *bytes, size_t n,
                struct patch_notes *notes, struct err *err)
{
    *out = (struct patch){ 0 };
    *out_reason = NULL;
    struct parser p = { .a = a, .err = err, .p = out, .notes = notes };
    int rc = 0;
    if (n > PATCH_SIZE_MAX)
        rc = REFUSE(&p, "the patch has %zu bytes, at most %zu", n, PATCH_SIZE_MAX);
    if (rc == 0 && n > 0 && bytes[n - 1] != '\n') {     /* the one repair of intake: the last newline */
        char *copy = arena_alloc(a, n + 1);
        if (copy == NULL)
            return no_memory(&p);
        memcpy(copy, bytes, n);
        copy[n++] = '\n';
        bytes = copy;
    }
    if (rc == 0 && (rc = split_lines(&p, bytes, n)) == 0)
        rc = parse_all(&p);
    free(p.body);
    if (rc == 0 && out->count == 0)
        rc = REFUSE(&p, "the text holds no unified diff");
    if (rc == REFUSED) {
        *out_reason = p.reason;
        rc = 0;
    }
    return rc;
}
