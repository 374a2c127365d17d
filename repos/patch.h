/*
 * patch.h - a unified diff, as models write it, taken apart and put onto a tree.
 *
 * Two steps that share one arena. patch_parse() reads text into sections and hunks; it takes git's
 * extended format, plain diffs, and what is found around them (mail headers, prose, fences). It
 * decides nothing that depends on the tree. patch_apply() puts the sections onto a struct tree, in
 * order; the caller drops the tree when it fails, so that all or nothing costs nothing.
 *
 * What is foreign about a patch is answered with `reason` ("path:line: hunk 2 does not match"), never
 * with an error code: rc < 0 from these functions is our own failure.
 */
#pragma once
#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "repos/task.h"
#include "repos/tree.h"

#define PATCH_SIZE_MAX     ((size_t)64 << 20)
#define PATCH_SECTIONS_MAX 20000
#define PATCH_OUTPUT_MAX   ((size_t)256 << 20)  /* all files written by one patch together */

struct line { const char *text; size_t n; };    /* with its newline, where it has one */

struct hunk_line { char sign; struct line l; }; /* ' ', '-', '+' */
struct hunk {
    uint32_t number;                /* within its section, from 1 */
    uint32_t text_line;             /* in the patch text, from 1 */
    uint64_t old_start, old_count, new_start, new_count;    /* as the header says */
    const struct hunk_line *lines;
    uint32_t count;                 /* lines that the header's counts take */
    uint32_t count_all;             /* with what follows and could be more of this hunk; >= count */
    bool     more_after_blank;      /* lines[count..count_all) come after an empty line: perhaps prose */
    bool     counts_wrong;          /* the header asks for more lines than there are */
    uint64_t short_old, short_new;  /* by how many */
    bool     at_end;                /* nothing but blank lines follows in the text: perhaps cut off */
};

enum section_kind { SECTION_TEXT, SECTION_BINARY, SECTION_NO_DATA };
struct binary_data { bool there, delta; uint64_t size; const uint8_t *z; size_t z_len; };    /* z: zlib stream */
struct section {
    enum section_kind kind;
    uint32_t text_line;
    bool git;                       /* began with "diff --git" */
    /* Names as written, unquoted; NULL where absent. git_old/git_new: from the diff line, prefix still on. */
    const char *git_old, *git_new, *minus, *plus, *from, *to;
    bool minus_none, plus_none;     /* "/dev/null" */
    bool is_new, is_deleted, is_rename, is_copy;
    uint32_t old_mode, new_mode;    /* 0 where not said */
    const char *index_old, *index_new;      /* hex, perhaps short; "" */
    struct hunk *hunks;
    uint32_t hunk_count, hunk_cap;
    struct binary_data forward;
};

struct patch {
    struct section **sections;
    uint32_t count, cap;
};

struct patch_notes { struct str_list list; uint32_t cap; };     /* findings; grows in the arena */

/* *out_reason is NULL when the text is well-formed. bytes must outlive the arena. */
MUST_CHECK int patch_parse(struct patch *out, const char **out_reason, struct arena *a, const char *bytes, size_t n,
                           struct patch_notes *notes, struct err *err);
/* `t` changes; `base` is the same tree before the patch (renames and copies take their source from it). */
MUST_CHECK int patch_apply(struct tree *t, struct tree *base, const struct patch *p, const char **out_reason, struct arena *a,
                           struct patch_notes *notes, struct err *err);

/* binary.c: base85 and deltas. They return NULL on success or what is wrong. */
const char *binary_lines_add(struct buf *z, const char *line, size_t n, struct err *err);
const char *binary_inflate(void **out, size_t *out_n, const struct binary_data *d, struct arena *a);
const char *binary_delta(void **out, size_t *out_n, const uint8_t *delta, size_t delta_n, const uint8_t *src, size_t src_n,
                         size_t out_max, struct arena *a);

/* hunks.c: put a section's hunks onto a file's bytes. */
struct placing {
    const char *path;               /* quoted, for messages */
    bool        index_agrees;       /* the section's index line names this very content */
    uint64_t    work_left;          /* line comparisons; shared by the whole patch */
};
MUST_CHECK int hunks_apply(void **out, size_t *out_n, const char **out_reason, struct placing *pl, const struct section *s,
                           const void *bytes, size_t n, struct arena *a, struct patch_notes *notes, struct err *err);

MUST_CHECK int patch_note(struct patch_notes *notes, struct arena *a, struct err *err, const char *fmt, ...) PRINTF_LIKE(4, 5);
/* *out_reason = formatted text; 0, or ERR_LIMIT. */
MUST_CHECK int patch_reason(const char **out_reason, struct arena *a, struct err *err, const char *fmt, ...) PRINTF_LIKE(4, 5);
const char *patch_quote(struct arena *a, const char *path);     /* escaped for messages; never NULL */
