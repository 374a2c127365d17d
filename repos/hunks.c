/*
 * hunks.c - a section's hunks onto a file's bytes.
 *
 * Lines are compared as they are, line ending included. A hunk is placed, in this order,
 *   at its stated line; elsewhere (the nearest place, recorded); without its outer context (only if
 *   there is exactly one such place, recorded); or not at all.
 * Before anything but the stated line is believed, the hunk's result is looked for: text that is
 * there already is never applied a second time.
 *
 * As in git, a hunk that states line 1 must match at the file's start and one without context at its
 * end must match at the file's end; that keeps duplicates apart. Where the stated line itself matches,
 * a hunk may lack that context, with a finding.
 *
 * The cost is bounded: comparisons are counted over the whole patch, so that a file of equal lines
 * and a hunk of the same cannot hold a worker.
 */
#include "repos/patch.h"
#include <stdlib.h>
#include <string.h>

#define FUZZ_MAX 2          /* outer context lines at each end that may differ; patch(1)'s limit */

enum place_how { PLACE_NONE, PLACE_STATED, PLACE_LINE_ONLY, PLACE_OFFSET, PLACE_UNANCHORED, PLACE_FUZZ };
struct place { enum place_how how; size_t pos; unsigned fuzz, lead, trail; };

struct file_lines { const struct line *l; size_t n; };

/* One reading of a hunk: its lines before and after. */
struct image {
    const struct line *old, *new;
    size_t old_n, new_n, lead, trail;   /* lead, trail: context lines at the ends */
    bool change;
};

struct work {
    struct placing *pl;
    const struct section *s;
    struct arena *a;
    struct patch_notes *notes;
    struct err *err;
    struct file_lines f;
    size_t cur;                         /* file lines used by earlier hunks */
    int64_t shift;                      /* how far the last hunk was from its stated line */
    const char *reason;
};

#define REFUSED (-1000)
#define REFUSE(w, ...) (patch_reason(&(w)->reason, (w)->a, (w)->err, __VA_ARGS__) < 0 ? (w)->err->code : REFUSED)

static int no_memory(struct work *w) { return err_set(w->err, ERR_LIMIT, "patch: does not fit the memory budget"); }

static bool same_line(struct line x, struct line y) { return x.n == y.n && memcmp(x.text, y.text, x.n) == 0; }

static bool blank_line(struct line l)
{
    for (size_t i = 0; i < l.n; i++)
        if (l.text[i] != ' ' && l.text[i] != '\t' && l.text[i] != '\r' && l.text[i] != '\n')
            return false;
    return true;
}

static bool all_blank(const struct line *l, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!blank_line(l[i]))
            return false;
    return true;
}

static bool matches(struct work *w, const struct line *l, size_t n, size_t pos)
{
    if (pos > w->f.n || n > w->f.n - pos)
        return false;
    for (size_t i = 0; i < n; i++) {
        uint64_t cost = 1 + l[i].n / 64;
        w->pl->work_left -= w->pl->work_left < cost ? w->pl->work_left : cost;
        if (w->pl->work_left == 0 || !same_line(l[i], w->f.l[pos + i]))
            return false;
    }
    return true;
}

static int image_of(struct work *w, struct image *out, const struct hunk *h, uint32_t count)
{
    struct line *old = arena_alloc(w->a, sizeof *old * (count + 1)), *new = arena_alloc(w->a, sizeof *new * (count + 1));
    if (old == NULL || new == NULL)
        return no_memory(w);
    struct image im = { .old = old, .new = new };
    for (uint32_t i = 0; i < count; i++) {
        const struct hunk_line *hl = &h->lines[i];
        if (hl->sign != '+')
            old[im.old_n++] = hl->l;
        if (hl->sign != '-')
            new[im.new_n++] = hl->l;
        if (hl->sign != ' ') {
            im.change = true;
            im.trail = 0;
        } else {
            im.lead += !im.change;
            im.trail++;
        }
    }
    *out = im;
    return 0;
}

/* Places of l[n] at or after the lines used up; *out_first is the first. Counts to 2. */
static unsigned count_places(struct work *w, const struct line *l, size_t n, size_t *out_first)
{
    unsigned found = 0;
    for (size_t pos = w->cur; found < 2 && n <= w->f.n && pos <= w->f.n - n; pos++)
        if (matches(w, l, n, pos) && ++found == 1)
            *out_first = pos;
    return found;
}

/* The nearest match to `from`; *tied when there is one as near on the other side. */
static bool nearest(struct work *w, const struct image *im, size_t from, size_t *out, bool *tied)
{
    if (im->old_n > w->f.n)
        return false;
    size_t last = w->f.n - im->old_n;
    *tied = false;
    for (size_t d = 1; d <= w->f.n; d++) {
        bool below = from + d <= last && matches(w, im->old, im->old_n, from + d);
        bool above = from >= w->cur + d && from - d <= last && matches(w, im->old, im->old_n, from - d);
        if (below || above) {
            *out = below ? from + d : from - d;
            *tied = below && above;
            return true;
        }
        if (from + d > last && from < w->cur + d)
            return false;
    }
    return false;
}

static size_t stated(const struct work *w, const struct hunk *h, const struct image *im)
{
    int64_t pos = (int64_t)h->old_start - (im->old_n > 0 || h->old_count > 0 ? 1 : 0) + w->shift;
    if (pos < (int64_t)w->cur)
        return w->cur;
    return (uint64_t)pos > w->f.n ? w->f.n : (size_t)pos;
}

static bool anchored(const struct work *w, const struct hunk *h, const struct image *im, size_t pos)
{
    return (h->old_start > 1 || pos == 0) && (im->trail > 0 || pos + im->old_n == w->f.n);
}

/* Where the hunk goes without dropping any of its lines. `already` tells of its result found in place. */
static struct place place_whole(struct work *w, const struct hunk *h, const struct image *im, size_t at, bool *already)
{
    *already = false;
    if (at >= w->cur && matches(w, im->old, im->old_n, at)) {
        if (anchored(w, h, im, at) || w->pl->index_agrees)
            return (struct place){ .how = PLACE_STATED, .pos = at };
        if (im->old_n > 0)
            return (struct place){ .how = PLACE_LINE_ONLY, .pos = at };
    }
    if (im->old_n == 0)
        return (struct place){ 0 };
    size_t after = h->new_start > 0 ? (size_t)h->new_start - 1 : 0;
    if (im->change && !all_blank(im->new, im->new_n) && (matches(w, im->new, im->new_n, at)
                                                         || matches(w, im->new, im->new_n, after))) {
        *already = true;
        return (struct place){ 0 };
    }
    size_t pos = 0;
    bool begins = h->old_start <= 1, ends = im->trail == 0, tied = false, found;
    if (begins || ends) {
        pos = begins ? 0 : w->f.n >= im->old_n ? w->f.n - im->old_n : 0;
        found = pos >= w->cur && matches(w, im->old, im->old_n, pos) && anchored(w, h, im, pos);
    } else {
        found = nearest(w, im, at, &pos, &tied) && !tied && (!all_blank(im->old, im->old_n)
                                                             || count_places(w, im->old, im->old_n, &pos) == 1);
    }
    if (found)
        return (struct place){ .how = PLACE_OFFSET, .pos = pos };
    if (!tied && count_places(w, im->old, im->old_n, &pos) == 1 && !all_blank(im->old, im->old_n))
        return (struct place){ .how = PLACE_UNANCHORED, .pos = pos };
    return (struct place){ 0 };
}

/* Without up to FUZZ_MAX outer context lines at each end, where that leaves exactly one place. */
static struct place place_fuzzy(struct work *w, const struct image *im)
{
    for (unsigned fuzz = 1; fuzz <= FUZZ_MAX; fuzz++) {
        size_t lead = im->lead < fuzz ? im->lead : fuzz, trail = im->trail < fuzz ? im->trail : fuzz, pos = 0;
        if (lead + trail >= im->old_n || (lead < fuzz && trail < fuzz))
            break;
        const struct line *l = im->old + lead;
        size_t n = im->old_n - lead - trail;
        if (all_blank(l, n))
            break;
        unsigned found = count_places(w, l, n, &pos);
        if (found == 1)
            return (struct place){ .how = PLACE_FUZZ, .pos = pos, .fuzz = fuzz, .lead = (unsigned)lead,
                                   .trail = (unsigned)trail };
        if (found > 1)
            break;
    }
    return (struct place){ 0 };
}

static bool same_but_for(struct line x, struct line y, const char *ignored)
{
    size_t i = 0, j = 0;
    for (;;) {
        while (i < x.n && strchr(ignored, x.text[i]) != NULL && x.text[i] != '\0')
            i++;
        while (j < y.n && strchr(ignored, y.text[j]) != NULL && y.text[j] != '\0')
            j++;
        if (i == x.n || j == y.n)
            return i == x.n && j == y.n;
        if (x.text[i++] != y.text[j++])
            return false;
    }
}

/* Why the hunk does not match at its stated line: the first line that differs. */
static int mismatch(struct work *w, const struct hunk *h, const struct image *im, size_t at)
{
    size_t i = 0;
    while (i < im->old_n && at + i < w->f.n && same_line(im->old[i], w->f.l[at + i]))
        i++;
    char want[80] = "", have[80] = "";
    if (im->old_n == 0)
        return REFUSE(w, "%s:%zu: hunk %u has no context and the file is not the one it was made from", w->pl->path, at + 1,
                      h->number);
    if (i == im->old_n)
        return REFUSE(w, "%s:%zu: hunk %u matches in more than one place", w->pl->path, at + 1, h->number);
    err_quote(want, sizeof want, im->old[i].text, im->old[i].n);
    if (at + i >= w->f.n)
        return REFUSE(w, "%s:%zu: hunk %u does not match: the file ends where \"%s\" is expected", w->pl->path, at + i + 1,
                      h->number, want);
    struct line f = w->f.l[at + i];
    err_quote(have, sizeof have, f.text, f.n);
    const char *hint = same_but_for(im->old[i], f, "\r") ? " (the line endings differ)"
        : same_but_for(im->old[i], f, "\n") ? " (the newline at the end of the file differs)"
        : same_but_for(im->old[i], f, " \t\r\n") ? " (only white space differs)" : "";
    return REFUSE(w, "%s:%zu: hunk %u does not match%s: expected \"%s\", the file has \"%s\"", w->pl->path, at + i + 1,
                  h->number, hint, want, have);
}

static int note_place(struct work *w, const struct hunk *h, const struct place *p, size_t at)
{
    const char *path = w->pl->path;
    size_t line = p->pos - p->lead + 1;
    switch (p->how) {
    case PLACE_NONE: case PLACE_STATED: return 0;
    case PLACE_LINE_ONLY:
        return patch_note(w->notes, w->a, w->err, "%s:%zu: hunk %u lacks context at an end; placed by its line number", path,
                          line, h->number);
    case PLACE_OFFSET:
        return patch_note(w->notes, w->a, w->err, "%s:%zu: hunk %u applied %zu line(s) %s its stated place", path, line,
                          h->number, p->pos > at ? p->pos - at : at - p->pos, p->pos > at ? "below" : "above");
    case PLACE_UNANCHORED:
        return patch_note(w->notes, w->a, w->err,
                          "%s:%zu: hunk %u applied at the only place that matches, not at the file's %s as it states",
                          path, line, h->number, h->old_start <= 1 ? "start" : "end");
    case PLACE_FUZZ:
        return patch_note(w->notes, w->a, w->err, "%s:%zu: hunk %u applied with fuzz %u at the only place that matches", path,
                          line, h->number, p->fuzz);
    }
    return 0;
}

/* A header that asks for more lines than are there: a miscount, or a patch that was cut off. */
static int check_counts(struct work *w, const struct hunk *h, const struct image *im, const struct place *p)
{
    if (h->at_end && (h->short_old > 0 || h->short_new > 0)) {
        /* Only blank context may have been trimmed from the text's end, and the file must have it. */
        size_t next = p->pos + im->old_n;
        bool trimmed = h->short_old == h->short_new && next <= w->f.n && h->short_old <= w->f.n - next
            && all_blank(w->f.l + next, (size_t)h->short_old);
        if (!trimmed)
            return REFUSE(w, "%s:%zu: hunk %u is cut off: its header counts -%llu +%llu lines, there are -%zu +%zu", w->pl->path,
                          p->pos + 1,
                          h->number, (unsigned long long)h->old_count, (unsigned long long)h->new_count, im->old_n, im->new_n);
    }
    return patch_note(w->notes, w->a, w->err, "%s:%zu: hunk %u: its header counts -%llu +%llu lines, it has -%zu +%zu",
                      w->pl->path, p->pos + 1,
                      h->number, (unsigned long long)h->old_count, (unsigned long long)h->new_count, im->old_n, im->new_n);
}

static int place_hunk(struct work *w, const struct hunk *h, struct image *im, struct place *out)
{
    bool already = false, more = h->count_all > h->count;
    struct place p = { 0 };
    size_t at = 0;
    int rc;
    if (more) {                         /* the header's counts are too small, or text follows that looks like a hunk */
        if ((rc = image_of(w, im, h, h->count_all)) < 0)
            return rc;
        at = stated(w, h, im);
        p = place_whole(w, h, im, at, &already);
    }
    bool took_more = p.how != PLACE_NONE;
    if (!took_more) {
        if ((rc = image_of(w, im, h, h->count)) < 0)
            return rc;
        at = stated(w, h, im);
        p = place_whole(w, h, im, at, &already);
    }
    if (already)
        return REFUSE(w, "%s:%zu: hunk %u looks already applied", w->pl->path, at + 1, h->number);
    size_t pos = 0;
    if (p.how == PLACE_NONE && im->change && im->old_n > 0) {
        if (im->new_n >= 3 && !all_blank(im->new, im->new_n) && count_places(w, im->new, im->new_n, &pos) > 0)
            return REFUSE(w, "%s:%zu: hunk %u looks already applied", w->pl->path, pos + 1, h->number);
        if (!h->counts_wrong && !more)
            p = place_fuzzy(w, im);
    }
    if (w->pl->work_left == 0)
        return REFUSE(w, "%s: hunk %u: looking for its place takes too long", w->pl->path, h->number);
    if (p.how == PLACE_NONE)
        return mismatch(w, h, im, at);
    if (more && !took_more && !h->more_after_blank)
        return REFUSE(w, "%s:%zu: hunk %u: line(s) after it do not fit its header's counts (line %u of the patch)", w->pl->path,
                      p.pos + 1, h->number, h->text_line);
    if (more && !took_more && (rc = patch_note(w->notes, w->a, w->err, "%s: text after hunk %u was taken for prose", w->pl->path,
                                               h->number)) < 0)
        return rc;
    if ((took_more || h->counts_wrong) && (rc = check_counts(w, h, im, &p)) < 0)
        return rc;
    w->shift += (int64_t)(p.pos - p.lead) - (int64_t)at;
    *out = p;
    return note_place(w, h, &p, at);
}

static int split(struct work *w, const char *bytes, size_t n)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += bytes[i] == '\n';
    count += n > 0 && bytes[n - 1] != '\n';
    struct line *l = arena_alloc(w->a, sizeof *l * (count + 1));
    if (l == NULL)
        return no_memory(w);
    for (size_t i = 0, at = 0; i < count; i++) {
        const char *nl = memchr(bytes + at, '\n', n - at);
        size_t len = nl != NULL ? (size_t)(nl - (bytes + at)) + 1 : n - at;
        l[i] = (struct line){ bytes + at, len };
        at += len;
    }
    w->f = (struct file_lines){ l, count };
    return 0;
}

static int put_all(struct work *w, void **out, size_t *out_n)
{
    size_t room = w->f.n, n = 0;
    for (uint32_t i = 0; i < w->s->hunk_count; i++)
        room += w->s->hunks[i].count_all;
    struct line *l = arena_alloc(w->a, sizeof *l * (room + 1));
    if (l == NULL)
        return no_memory(w);
    for (uint32_t i = 0; i < w->s->hunk_count; i++) {
        struct image im = { 0 };
        struct place p = { 0 };
        int rc = place_hunk(w, &w->s->hunks[i], &im, &p);
        if (rc < 0)
            return rc;
        while (w->cur < p.pos)
            l[n++] = w->f.l[w->cur++];
        for (size_t k = p.lead; k + p.trail < im.new_n; k++)
            l[n++] = im.new[k];
        w->cur += im.old_n - p.lead - p.trail;
    }
    while (w->cur < w->f.n)
        l[n++] = w->f.l[w->cur++];
    size_t size = 0;
    for (size_t i = 0; i < n; i++) {
        if (i + 1 < n && (l[i].n == 0 || l[i].text[l[i].n - 1] != '\n'))
            return REFUSE(w, "%s:%zu: a line without a newline would stand inside the file", w->pl->path, i + 1);
        size += l[i].n;
    }
    char *bytes = arena_alloc(w->a, size + 1);
    if (bytes == NULL)
        return no_memory(w);
    *out = bytes;
    *out_n = size;
    for (size_t i = 0; i < n; bytes += l[i++].n)
        memcpy(bytes, l[i].text, l[i].n);
    return 0;
}

int hunks_apply(void **out, size_t *out_n, const char **out_reason, struct placing *pl, const struct section *s,
                const void *bytes, size_t n, struct arena *a, struct patch_notes *notes, struct err *err)
{
    struct work w = { .pl = pl, .s = s, .a = a, .notes = notes, .err = err };
    *out_reason = NULL;
    int rc = split(&w, bytes, n);
    if (rc == 0)
        rc = put_all(&w, out, out_n);
    if (rc == REFUSED) {
        *out_reason = w.reason;
        rc = 0;
    }
    return rc;
}
