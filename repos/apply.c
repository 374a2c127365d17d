/*
 * apply.c - sections of a patch onto a tree.
 *
 * First every section's names are decided, then the sections are carried out in order. As in git,
 * renames and copies take their source from the tree before the patch, so that two files can change
 * places, and a path may be made anew where the patch takes the old one away later.
 *
 * Names. "a/x" and "b/x" lose their first directory; so do git's other one-letter pairs. Names without
 * prefix are equal on both sides. Where a section alone could be read both ways (a plain diff with one
 * side /dev/null), the tree and the other sections decide, and if they cannot, the patch is refused.
 */
#include "repos/patch.h"
#include <stdlib.h>
#include <string.h>

/* ~2 ns each: half a second for one patch, far above any honest one. */
#define WORK_MAX UINT64_C(200000000)

#define MODE_TYPE 0170000u
#define TYPE_FILE 0100000u
#define TYPE_LINK 0120000u

#define REFUSED (-1000)
#define REFUSE(ap, ...) (patch_reason(&(ap)->reason, (ap)->a, (ap)->err, __VA_ARGS__) < 0 ? (ap)->err->code : REFUSED)

enum level { LEVEL_UNKNOWN, LEVEL_0, LEVEL_1 };

struct names { const char *old, *new; };        /* equal unless the section renames or copies */

struct applying {
    struct tree *t, *base;
    const struct patch *p;
    struct names *names;            /* one per section */
    uint32_t at;                    /* section being carried out */
    enum level level;               /* what the sections that can be read one way only agree on */
    const char **made;              /* paths that renames, copies and creations have written */
    uint32_t made_count;
    uint64_t work_left;
    size_t out_bytes;
    struct arena *a;
    struct patch_notes *notes;
    struct err *err;
    const char *reason;
};

static int no_memory(struct applying *ap) { return err_set(ap->err, ERR_LIMIT, "patch: does not fit the memory budget"); }

/* --- names --- */

static const char *bare(const char *s)
{
    while (s != NULL && s[0] == '.' && s[1] == '/')
        s += 2;
    return s;
}

static const char *stripped(const char *s)
{
    const char *slash = strchr(s, '/');
    return slash != NULL && slash[1] != '\0' ? slash + 1 : NULL;
}

static bool has_prefix(const char *s) { return (s[0] == 'a' || s[0] == 'b') && s[1] == '/' && s[2] != '\0'; }

/* "a/x" and "b/x", or one of git's mnemonic pairs (i/ w/, c/ i/, o/ w/, 1/ 2/). */
static bool prefix_pair(const char *x, const char *y)
{
    return x[0] != '\0' && y[0] != '\0' && x[1] == '/' && y[1] == '/' && x[0] != y[0] && x[2] != '\0'
        && strchr("abciow12", x[0]) != NULL && strchr("abciow12", y[0]) != NULL && strcmp(x + 2, y + 2) == 0;
}

static int exists(struct applying *ap, const char *path, bool *out)
{
    struct entry e = { 0 };
    *out = false;
    if (path == NULL || tree_path_fault(path, strlen(path)) != NULL)
        return 0;
    int rc = tree_look(ap->base, &e, path, ap->err);
    *out = e.kind != ENTRY_NONE;
    return rc;
}

/* One name on both sides, or on the only one there is. */
static int name_alone(struct applying *ap, const struct section *s, const char **out, const char *n, bool created)
{
    const char *cut = stripped(n);
    bool whole_there, cut_there;
    int rc;
    if ((rc = exists(ap, n, &whole_there)) < 0 || (rc = exists(ap, cut, &cut_there)) < 0)
        return rc;
    *out = n;
    if (!has_prefix(n)) {
        if (!created && !whole_there && cut_there)
            *out = cut;
        return 0;
    }
    if (created) {                          /* nothing there to ask: is there a directory called "a" or "b"? */
        char top[2] = { n[0], '\0' };
        if ((rc = exists(ap, top, &whole_there)) < 0)
            return rc;
        cut_there = !whole_there;
    }
    if (whole_there == cut_there && ap->level == LEVEL_UNKNOWN && whole_there)
        return REFUSE(ap, "%s: line %u: could be %s as well; send the patch with a/ and b/ prefixes", patch_quote(ap->a, n),
                      s->text_line, patch_quote(ap->a, cut));
    if (whole_there == cut_there)
        *out = ap->level == LEVEL_0 ? n : cut;
    else if (created && ap->level != LEVEL_UNKNOWN)
        *out = ap->level == LEVEL_0 ? n : cut;
    else if (created && whole_there)
        return REFUSE(ap, "%s: line %u: could be %s as well; send the patch with a/ and b/ prefixes", patch_quote(ap->a, n),
                      s->text_line, patch_quote(ap->a, cut));
    else
        *out = whole_there ? n : cut;
    return 0;
}

/* Two different names that are no prefix pair and no rename: "x.orig" and "x", "old/x" and "new/x". */
static int name_of_two(struct applying *ap, const struct section *s, const char **out, const char *x, const char *y)
{
    const char *sx = stripped(x), *sy = stripped(y);
    const char *const pairs[2][2] = { { x, y }, { sx, sy } };
    bool equal_cut = sx != NULL && sy != NULL && strcmp(sx, sy) == 0;
    for (int k = 0; k < 2; k++) {
        const char *const *pair = pairs[equal_cut ? 1 - k : k];
        bool there[2];
        int rc;
        if ((rc = exists(ap, pair[0], &there[0])) < 0 || (rc = exists(ap, pair[1], &there[1])) < 0)
            return rc;
        if (there[0] && there[1] && strcmp(pair[0], pair[1]) != 0)
            return REFUSE(ap, "%s: line %u: names two files and is no rename", patch_quote(ap->a, y), s->text_line);
        if (there[0] || there[1]) {
            *out = there[1] ? pair[1] : pair[0];
            return 0;
        }
    }
    *out = equal_cut || (has_prefix(y) && sy != NULL) ? sy : y;
    return 0;
}

static int check_path(struct applying *ap, const struct section *s, const char *path)
{
    const char *fault = path != NULL ? tree_path_fault(path, strlen(path)) : NULL;
    return fault == NULL ? 0 : REFUSE(ap, "%s: line %u: the path %s", patch_quote(ap->a, path), s->text_line, fault);
}

static int decide_names(struct applying *ap, const struct section *s, struct names *out)
{
    const char *git_old = bare(s->git_old), *git_new = bare(s->git_new);
    const char *raw[] = { bare(s->from), bare(s->to), s->minus_none ? NULL : bare(s->minus), s->plus_none ? NULL : bare(s->plus),
                          git_old, git_new };
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < sizeof raw / sizeof raw[0]; i++)
        rc = check_path(ap, s, raw[i]);
    if (rc < 0)
        return rc;
    if (s->is_rename || s->is_copy) {
        if (s->from == NULL || s->to == NULL)
            return REFUSE(ap, "line %u: a rename or copy without both its names", s->text_line);
        *out = (struct names){ bare(s->from), bare(s->to) };
        return 0;
    }
    const char *x = raw[2] != NULL ? raw[2] : s->minus == NULL ? git_old : NULL;
    const char *y = raw[3] != NULL ? raw[3] : s->plus == NULL ? git_new : NULL;
    if (x != NULL && y != NULL && git_old != NULL && git_new != NULL && prefix_pair(x, y) && prefix_pair(git_old, git_new)
        && strcmp(x + 2, git_old + 2) != 0)
        return REFUSE(ap, "%s: line %u: its diff line names %s", patch_quote(ap->a, x + 2), s->text_line,
                      patch_quote(ap->a, git_old + 2));
    const char *name = NULL;
    bool created = s->is_new || s->minus_none;
    if (git_old != NULL && git_new != NULL && (x == NULL || y == NULL)) {
        x = git_old;                    /* one side is /dev/null: the diff line still has both */
        y = git_new;
    }
    if (x == NULL && y == NULL)
        return REFUSE(ap, "line %u: a file's section without its name", s->text_line);
    if (x == NULL || y == NULL || strcmp(x, y) == 0)
        rc = name_alone(ap, s, &name, x != NULL ? x : y, created);
    else if (prefix_pair(x, y))
        name = x + 2;
    else
        rc = name_of_two(ap, s, &name, x, y);
    if (rc < 0)
        return rc;
    *out = (struct names){ name, name };
    return check_path(ap, s, name);
}

static void find_level(struct applying *ap)
{
    bool one = false, zero = false;
    for (uint32_t i = 0; i < ap->p->count; i++) {
        const struct section *s = ap->p->sections[i];
        const char *x = s->minus != NULL && !s->minus_none && !s->plus_none ? bare(s->minus) : bare(s->git_old);
        const char *y = s->plus != NULL && !s->minus_none && !s->plus_none ? bare(s->plus) : bare(s->git_new);
        if (x == NULL || y == NULL)
            continue;
        one = one || prefix_pair(x, y);
        zero = zero || (strcmp(x, y) == 0 && !has_prefix(x));
    }
    ap->level = one == zero ? LEVEL_UNKNOWN : one ? LEVEL_1 : LEVEL_0;
}

/* --- what the patch does to other paths --- */

static bool takes_away(const struct applying *ap, uint32_t i, const char *path)
{
    const struct section *s = ap->p->sections[i];
    return (s->is_deleted || s->plus_none || s->is_rename) && s->kind != SECTION_NO_DATA && strcmp(ap->names[i].old, path) == 0;
}

/* By this section (a rename out of the directory that it replaces) or a later one. */
static bool goes_later(const struct applying *ap, const char *path)
{
    for (uint32_t i = ap->at; i < ap->p->count; i++)
        if (takes_away(ap, i, path))
            return true;
    return false;
}

static bool was_made(const struct applying *ap, const char *path)
{
    for (uint32_t i = 0; i < ap->made_count; i++)
        if (strcmp(ap->made[i], path) == 0)
            return true;
    return false;
}

struct staying { struct applying *ap; bool stays; };

static int leaf_stays(const char *path, const struct entry *e, void *arg, struct err *err)
{
    (void)e, (void)err;
    struct staying *st = arg;
    st->stays = st->stays || !goes_later(st->ap, path);
    return 0;
}

/* --- carrying out --- */

static const char *kind_word(enum entry_kind k)
{
    switch (k) {
    case ENTRY_NONE: break;
    case ENTRY_FILE: return "a file";
    case ENTRY_LINK: return "a symbolic link";
    case ENTRY_DIR: return "a directory";
    case ENTRY_SUBMODULE: return "a submodule";
    }
    return "nothing";
}

static int check_mode(struct applying *ap, const struct section *s, uint32_t mode, const char *path)
{
    if (mode == 0 || (mode & MODE_TYPE) == TYPE_FILE || mode == TYPE_LINK)
        return 0;
    return REFUSE(ap, "%s: line %u: file mode %o (%s) is refused", patch_quote(ap->a, path), s->text_line, mode,
                  mode == 0160000 ? "a submodule pointer" : "no file and no link");
}

/* The entry that the section starts from must be a file, or a link that the section knows to be one. */
static int check_source(struct applying *ap, const struct section *s, const struct entry *e, const char *path)
{
    const char *q = patch_quote(ap->a, path);
    if (e->kind == ENTRY_NONE && e->blocked_by != NULL)
        return REFUSE(ap, "%s: line %u: %s is %s, nothing is written through it", q, s->text_line,
                      patch_quote(ap->a, e->blocked_by),
                      kind_word(e->blocked_kind));
    if (e->kind == ENTRY_NONE && (s->is_deleted || s->plus_none || s->is_rename))
        return REFUSE(ap, "%s: line %u: no such file; the patch looks already applied", q, s->text_line);
    if (e->kind == ENTRY_NONE)
        return REFUSE(ap, "%s: line %u: no such file", q, s->text_line);
    if (e->kind != ENTRY_FILE && e->kind != ENTRY_LINK)
        return REFUSE(ap, "%s: line %u: is %s", q, s->text_line, kind_word(e->kind));
    uint32_t type = s->old_mode != 0 ? s->old_mode & MODE_TYPE : TYPE_FILE;
    bool pure_move = (s->is_rename || s->is_copy) && s->hunk_count == 0 && s->kind == SECTION_TEXT && s->old_mode == 0;
    if (!pure_move && e->kind == ENTRY_LINK && type != TYPE_LINK)
        return REFUSE(ap, "%s: line %u: is a symbolic link, nothing is written through it", q, s->text_line);
    if (e->kind == ENTRY_FILE && type == TYPE_LINK)
        return REFUSE(ap, "%s: line %u: is no symbolic link", q, s->text_line);
    if (s->old_mode != 0 && s->new_mode != 0 && (s->old_mode & MODE_TYPE) != (s->new_mode & MODE_TYPE))
        return REFUSE(ap, "%s: line %u: a change between file and link needs a deletion and a creation", q, s->text_line);
    return 0;
}

static int entry_hex(struct applying *ap, char hex[GIT_OID_HEXSZ + 1], const struct entry *e)
{
    git_oid id = e->id;
    if (e->fresh && git_odb_hash(&id, e->bytes, e->size, GIT_OBJECT_BLOB) != 0)
        return git_err(ap->err, ERR_INTERNAL, "hash");
    git_oid_tostr(hex, GIT_OID_HEXSZ + 1, &id);
    return 0;
}

static bool id_agrees(const char *hex, const char *index)
{
    return strlen(index) >= 7 && strncmp(hex, index, strlen(index)) == 0;
}

static int bytes_hex(struct applying *ap, char hex[GIT_OID_HEXSZ + 1], const void *bytes, size_t n)
{
    struct entry e = { .fresh = true, .bytes = bytes, .size = n };
    return entry_hex(ap, hex, &e);
}

static int new_binary(struct applying *ap, const struct section *s, struct entry *e, const char *hex, const char *path)
{
    const char *q = patch_quote(ap->a, path);
    char got[GIT_OID_HEXSZ + 1];
    void *bytes = NULL, *data = NULL;
    size_t n = 0, data_n = 0;
    bool known = strlen(s->index_old) >= 7, agrees = hex != NULL && id_agrees(hex, s->index_old);
    if (hex != NULL && known && !agrees)
        return REFUSE(ap, "%s: line %u: %s", q, s->text_line, id_agrees(hex, s->index_new)
                      ? "the binary file looks already changed"
                      : "the binary data is for another version of the file");
    const char *wrong = binary_inflate(&data, &data_n, &s->forward, ap->a);
    if (wrong == NULL && s->forward.delta && !known)
        wrong = "a delta needs the index line";
    if (wrong == NULL && s->forward.delta)
        wrong = binary_delta(&bytes, &n, data, data_n, e->bytes, e->size, PATCH_OUTPUT_MAX, ap->a);
    else {
        bytes = data;
        n = data_n;
    }
    if (wrong != NULL)
        return REFUSE(ap, "%s: line %u: %s", q, s->text_line, wrong);
    int rc = bytes_hex(ap, got, bytes, n);
    if (rc < 0)
        return rc;
    bool to_nothing = strspn(s->index_new, "0") == strlen(s->index_new);
    if (strlen(s->index_new) >= 7 && !to_nothing && !id_agrees(got, s->index_new))
        return REFUSE(ap, "%s: line %u: the binary data does not give the file that the index line names", q, s->text_line);
    if (!known && (rc = patch_note(ap->notes, ap->a, ap->err, "%s: binary data without an index line, taken as it is", q)) < 0)
        return rc;
    e->bytes = bytes;
    e->size = n;
    return 0;
}

/* e becomes what the section makes of it; its bytes are read already (or it is empty and new). */
static int new_content(struct applying *ap, const struct section *s, struct entry *e, bool is_new, const char *path)
{
    char hex[GIT_OID_HEXSZ + 1];
    int rc = is_new ? 0 : entry_hex(ap, hex, e);
    if (rc < 0)
        return rc;
    if (s->kind == SECTION_BINARY)
        rc = new_binary(ap, s, e, is_new ? NULL : hex, path);
    else if (s->hunk_count > 0) {
        struct placing pl = { .path = patch_quote(ap->a, path), .index_agrees = !is_new && id_agrees(hex, s->index_old),
                              .work_left = ap->work_left };
        void *bytes = NULL;
        const char *reason = NULL;
        size_t n = 0;
        rc = hunks_apply(&bytes, &n, &reason, &pl, s, e->bytes, e->size, ap->a, ap->notes, ap->err);
        ap->work_left = pl.work_left;
        if (rc == 0 && reason != NULL) {
            ap->reason = reason;
            rc = REFUSED;
        }
        e->bytes = bytes;
        e->size = n;
    }
    return rc;
}

static int put(struct applying *ap, const struct section *s, const char *path, const struct entry *e)
{
    if (e->kind == ENTRY_LINK && (e->size == 0 || e->size > TREE_PATH_MAX || memchr(e->bytes, '\0', e->size) != NULL))
        return REFUSE(ap, "%s: line %u: a symbolic link with an unusable target", patch_quote(ap->a, path), s->text_line);
    if (e->size > PATCH_OUTPUT_MAX - ap->out_bytes)
        return REFUSE(ap, "%s: line %u: the patched files are larger than %zu MiB together", patch_quote(ap->a, path),
                      s->text_line, PATCH_OUTPUT_MAX >> 20);
    ap->out_bytes += e->size;
    return tree_put(ap->t, path, e->kind, e->kind == ENTRY_FILE && e->executable, e->bytes, e->size, ap->err);
}

/* May something new stand at path? Yes where nothing does, or where the patch takes away what does. */
static int check_target(struct applying *ap, const struct section *s, const char *path, const struct entry *result)
{
    struct entry e;
    int rc = tree_look(ap->t, &e, path, ap->err);
    if (rc < 0)
        return rc;
    const char *q = patch_quote(ap->a, path);
    if (e.kind == ENTRY_NONE && e.blocked_by != NULL && !goes_later(ap, e.blocked_by))
        return REFUSE(ap, "%s: line %u: %s is %s, nothing is written through it", q, s->text_line,
                      patch_quote(ap->a, e.blocked_by),
                      kind_word(e.blocked_kind));
    if (e.kind == ENTRY_NONE || ((e.kind == ENTRY_FILE || e.kind == ENTRY_LINK) && goes_later(ap, path)))
        return 0;
    if (e.kind == ENTRY_DIR) {
        struct staying st = { .ap = ap };
        if ((rc = tree_walk(ap->t, path, leaf_stays, &st, ap->err)) < 0)
            return rc;
        return st.stays ? REFUSE(ap, "%s: line %u: a directory is there", q, s->text_line) : 0;
    }
    if ((rc = tree_read(ap->t, &e, PATCH_OUTPUT_MAX, ap->err)) < 0)
        return rc;
    bool same = e.kind == result->kind && e.size == result->size && memcmp(e.bytes, result->bytes, e.size) == 0;
    return REFUSE(ap, "%s: line %u: the file is there already%s", q, s->text_line, same ? "; the patch looks already applied"
                  : "");
}

static int make(struct applying *ap, const struct section *s, const char *path)
{
    struct entry e = { .kind = (s->new_mode & MODE_TYPE) == TYPE_LINK ? ENTRY_LINK : ENTRY_FILE,
                       .executable = (s->new_mode & 0100) != 0,
                       .fresh = true, .bytes = "" };
    int rc = new_content(ap, s, &e, true, path);
    if (rc < 0)
        return rc;
    static const char empty_blob[] = "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391";
    if (s->kind == SECTION_TEXT && s->hunk_count == 0 && strlen(s->index_new) >= 7 && !id_agrees(empty_blob, s->index_new))
        return REFUSE(ap, "%s: line %u: a new file without its content; the patch looks cut off", patch_quote(ap->a, path),
                      s->text_line);
    if ((rc = check_target(ap, s, path, &e)) < 0 || (rc = put(ap, s, path, &e)) < 0)
        return rc;
    ap->made[ap->made_count++] = path;
    return 0;
}

static int take_away(struct applying *ap, const struct section *s, const char *path)
{
    struct entry e;
    int rc = tree_look(ap->t, &e, path, ap->err);
    if (rc < 0)
        return rc;
    bool displaced = false;             /* something new stands in its place or above it already */
    if (was_made(ap, e.blocked_by != NULL ? e.blocked_by : path)) {
        struct entry before;
        if ((rc = tree_look(ap->base, &before, path, ap->err)) < 0)
            return rc;
        displaced = before.kind != ENTRY_NONE;
        e = displaced ? before : e;
    }
    if ((rc = check_source(ap, s, &e, path)) < 0 || (rc = tree_read(ap->base, &e, PATCH_OUTPUT_MAX, ap->err)) < 0)
        return rc;
    size_t was = e.size;
    if (s->hunk_count == 0 && s->kind == SECTION_TEXT) {
        char hex[GIT_OID_HEXSZ + 1];
        if ((rc = entry_hex(ap, hex, &e)) < 0)
            return rc;
        if (was > 0 && !id_agrees(hex, s->index_old)
            && (rc = patch_note(ap->notes, ap->a, ap->err, "%s: deleted without its content in the patch",
                                patch_quote(ap->a, path))) < 0)
            return rc;
    } else {
        if ((rc = new_content(ap, s, &e, false, path)) < 0)
            return rc;
        if (e.size > 0)
            return REFUSE(ap, "%s: line %u: the deletion would leave %zu of %zu bytes", patch_quote(ap->a, path), s->text_line,
                          e.size, was);
    }
    return displaced ? 0 : tree_delete(ap->t, path, ap->err);
}

static int change(struct applying *ap, const struct section *s, const char *path)
{
    struct entry e;
    int rc = tree_look(ap->t, &e, path, ap->err);
    if (rc < 0 || (rc = check_source(ap, s, &e, path)) < 0)
        return rc;
    bool mode_changes = e.kind == ENTRY_FILE && s->new_mode != 0 && s->old_mode != s->new_mode;
    if (s->kind == SECTION_TEXT && s->hunk_count == 0 && !mode_changes)
        return patch_note(ap->notes, ap->a, ap->err, "%s: its section holds no change", patch_quote(ap->a, path));
    if ((rc = tree_read(ap->t, &e, PATCH_OUTPUT_MAX, ap->err)) < 0 || (rc = new_content(ap, s, &e, false, path)) < 0)
        return rc;
    if (mode_changes)
        e.executable = (s->new_mode & 0100) != 0;
    return put(ap, s, path, &e);
}

static int move(struct applying *ap, const struct section *s, const struct names *n)
{
    struct entry e;
    int rc = tree_look(ap->base, &e, n->old, ap->err);
    if (rc == 0 && e.kind == ENTRY_NONE)
        rc = tree_look(ap->t, &e, n->old, ap->err);     /* made earlier in this patch */
    struct tree *from = e.fresh ? ap->t : ap->base;
    if (rc < 0 || (rc = check_source(ap, s, &e, n->old)) < 0 || (rc = tree_read(from, &e, PATCH_OUTPUT_MAX, ap->err)) < 0)
        return rc;
    if ((rc = new_content(ap, s, &e, false, n->old)) < 0)
        return rc;
    if (e.kind == ENTRY_FILE && s->new_mode != 0 && s->new_mode != s->old_mode)
        e.executable = (s->new_mode & 0100) != 0;
    if (strcmp(n->old, n->new) != 0 && (rc = check_target(ap, s, n->new, &e)) < 0)
        return rc;
    /* The source goes first: it may be the new file's parent. What the patch has put in its place stays. */
    if (s->is_rename && !was_made(ap, n->old) && (rc = tree_delete(ap->t, n->old, ap->err)) < 0)
        return rc;
    if ((rc = put(ap, s, n->new, &e)) < 0)
        return rc;
    ap->made[ap->made_count++] = n->new;
    return 0;
}

static int carry_out(struct applying *ap, const struct section *s, const struct names *n)
{
    int rc;
    if ((rc = check_mode(ap, s, s->old_mode, n->old)) < 0 || (rc = check_mode(ap, s, s->new_mode, n->new)) < 0)
        return rc;
    if (s->kind == SECTION_NO_DATA)
        return patch_note(ap->notes, ap->a, ap->err, "%s: dropped, its binary section carries no data",
                          patch_quote(ap->a, n->new));
    if (s->is_rename || s->is_copy)
        return move(ap, s, n);
    bool there;
    if (s->is_new && (s->is_deleted || s->plus_none))
        return REFUSE(ap, "%s: line %u: made and deleted in one section", patch_quote(ap->a, n->new), s->text_line);
    if (s->is_new || s->minus_none)
        return make(ap, s, n->new);
    if (s->is_deleted || s->plus_none)
        return take_away(ap, s, n->old);
    /* A plain diff may make a file without saying so. */
    struct entry e;
    if ((rc = tree_look(ap->t, &e, n->new, ap->err)) < 0)
        return rc;
    there = e.kind != ENTRY_NONE || e.blocked_by != NULL;
    if (!there && s->kind == SECTION_TEXT && s->hunk_count == 1 && s->hunks[0].old_start == 0 && s->hunks[0].old_count == 0)
        return make(ap, s, n->new);
    return change(ap, s, n->new);
}

int patch_apply(struct tree *t, struct tree *base, const struct patch *p, const char **out_reason, struct arena *a,
                struct patch_notes *notes, struct err *err)
{
    struct applying ap = { .t = t, .base = base, .p = p, .work_left = WORK_MAX, .a = a, .notes = notes, .err = err };
    *out_reason = NULL;
    ap.names = arena_alloc(a, sizeof *ap.names * ((size_t)p->count + 1));
    ap.made = arena_alloc(a, sizeof *ap.made * ((size_t)p->count + 1));
    if (ap.names == NULL || ap.made == NULL)
        return no_memory(&ap);
    find_level(&ap);
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < p->count; i++)
        rc = decide_names(&ap, p->sections[i], &ap.names[i]);
    for (; rc == 0 && ap.at < p->count; ap.at++)
        rc = carry_out(&ap, p->sections[ap.at], &ap.names[ap.at]);
    if (rc == REFUSED) {
        *out_reason = ap.reason;
        rc = 0;
    }
    return rc;
}
