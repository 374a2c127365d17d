/* notes.c - what is told about a patch: findings and the reason of a refusal, in the arena. */
#include "repos/patch.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define FINDINGS_MAX 100

int patch_note(struct patch_notes *notes, struct arena *a, struct err *err, const char *fmt, ...)
{
    if (notes->list.count == FINDINGS_MAX)
        return 0;                   /* a hundred findings say enough */
    if (notes->list.count == notes->cap) {
        uint32_t cap = notes->cap != 0 ? notes->cap * 2 : 8;
        const char **items = arena_alloc(a, sizeof *items * cap);
        if (items == NULL)
            return err_set(err, ERR_LIMIT, "patch: findings do not fit the memory budget");
        if (notes->list.count > 0)
            memcpy(items, notes->list.items, sizeof *items * notes->list.count);
        notes->list.items = items;
        notes->cap = cap;
    }
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    const char *kept = arena_strdup(a, text);
    if (kept == NULL)
        return err_set(err, ERR_LIMIT, "patch: findings do not fit the memory budget");
    notes->list.items[notes->list.count++] = kept;
    return 0;
}

int patch_reason(const char **out_reason, struct arena *a, struct err *err, const char *fmt, ...)
{
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    *out_reason = arena_strdup(a, text);
    return *out_reason != NULL ? 0 : err_set(err, ERR_LIMIT, "patch: reason does not fit the memory budget");
}

const char *patch_quote(struct arena *a, const char *path)
{
    char quoted[300];
    err_quote(quoted, sizeof quoted, path, strlen(path));
    const char *s = arena_strdup(a, quoted);
    return s != NULL ? s : "(a file)";
}
