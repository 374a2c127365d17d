/* batch.c - see batch.h. */
#include "learner/batch.h"
#include "base/own.h"
#include <math.h>
#include <string.h>

struct header { uint64_t n_tokens, n_seqs, n_rows; };

static int check_sample(const struct sample *s, size_t index, uint32_t vocab, uint32_t context, struct err *err)
{
    if (s->n < 2 || s->n - 1 > context)
        return err_set(err, ERR_BAD_INPUT, "sample %zu: %zu tokens, want 2 to %u", index, s->n, context + 1);
    uint32_t count = s->choice_count == 0 ? vocab : s->choice_count, first = s->choice_count == 0 ? 0 : s->choice_first;
    if (first >= vocab || count > vocab - first)
        return err_set(err, ERR_BAD_INPUT, "sample %zu: choices %u + %u pass the vocabulary of %u", index, first, count, vocab);
    for (size_t i = 0; i < s->n; i++) {
        if (s->tokens[i] >= vocab)
            return err_set(err, ERR_BAD_INPUT, "sample %zu: token %u at %zu is outside the vocabulary of %u", index,
                s->tokens[i], i, vocab);
        if (s->mask[i] == 0)
            continue;
        if (i == 0 || s->tokens[i] < first || s->tokens[i] - first >= count)
            return err_set(err, ERR_BAD_INPUT, "sample %zu: token %u at %zu cannot have been chosen", index, s->tokens[i], i);
        if (!isfinite(s->logprobs[i]) || s->logprobs[i] > 0)
            return err_set(err, ERR_BAD_INPUT, "sample %zu: log-probability at %zu is not a finite number <= 0", index, i);
    }
    return 0;
}

static bool same_input(const struct sample *a, const struct sample *b)
{
    return a->n == b->n && memcmp(a->tokens, b->tokens, (a->n - 1) * sizeof *a->tokens) == 0;
}

int batch_pack(struct buf *out, const struct sample *s, size_t n, uint32_t vocab, uint32_t context, struct err *err)
{
    size_t tokens_max = 0;
    int rc;
    for (size_t i = 0; i < n; i++) {
        if ((rc = check_sample(&s[i], i, vocab, context, err)) < 0)
            return rc;
        tokens_max += s[i].n;
    }
    own_mem uint32_t *tokens = malloc((tokens_max + 1) * sizeof *tokens);
    own_mem uint32_t *starts = malloc((n + 1) * sizeof *starts), *row_starts = malloc((n + 1) * sizeof *row_starts);
    own_mem struct batch_row *rows = malloc((tokens_max + 1) * sizeof *rows);
    if (tokens == NULL || starts == NULL || row_starts == NULL || rows == NULL)
        return err_set(err, ERR_LIMIT, "batch: no memory for %zu tokens", tokens_max);

    struct header h = { 0 };
    const struct sample *before = NULL;
    for (size_t i = 0; i < n; i++) {
        if (!s[i].has_reward)
            continue;
        if (before == NULL || !same_input(before, &s[i])) {
            starts[h.n_seqs] = (uint32_t)h.n_tokens;
            row_starts[h.n_seqs++] = (uint32_t)h.n_rows;
            memcpy(tokens + h.n_tokens, s[i].tokens, (s[i].n - 1) * sizeof *tokens);
            h.n_tokens += s[i].n - 1;
        }
        before = &s[i];
        for (size_t j = 1; j < s[i].n; j++)
            if (s[i].mask[j] == 1)
                rows[h.n_rows++] = (struct batch_row){
                    .token = starts[h.n_seqs - 1] + (uint32_t)j - 1,
                    .pick = { s[i].tokens[j], s[i].choice_count == 0 ? 0 : s[i].choice_first,
                              s[i].choice_count == 0 ? vocab : s[i].choice_count },
                    .behaviour = s[i].logprobs[j], .advantage = s[i].advantage };
    }
    starts[h.n_seqs] = (uint32_t)h.n_tokens;
    row_starts[h.n_seqs] = (uint32_t)h.n_rows;
    buf_reset(out);                     /* rows first: they need the strictest alignment */
    if ((rc = buf_add(out, &h, sizeof h, err)) < 0 || (rc = buf_add(out, rows, h.n_rows * sizeof *rows, err)) < 0 ||
        (rc = buf_add(out, tokens, h.n_tokens * sizeof *tokens, err)) < 0 ||
        (rc = buf_add(out, starts, (h.n_seqs + 1) * sizeof *starts, err)) < 0)
        return rc;
    return buf_add(out, row_starts, (h.n_seqs + 1) * sizeof *row_starts, err);
}

int batch_view(struct batch *out, const struct buf *bytes, struct err *err)
{
    struct header h;
    if (bytes->len < sizeof h)
        return err_set(err, ERR_CORRUPT, "batch: %zu bytes are no batch", bytes->len);
    memcpy(&h, bytes->data, sizeof h);
    const uint64_t most = UINT32_MAX;
    if (h.n_tokens > most || h.n_seqs > most || h.n_rows > most ||
        bytes->len != sizeof h + h.n_rows * sizeof(struct batch_row) + (h.n_tokens + 2 * (h.n_seqs + 1)) * sizeof(uint32_t))
        return err_set(err, ERR_CORRUPT, "batch: the counts do not fit %zu bytes", bytes->len);
    const uint8_t *p = bytes->data + sizeof h;
    *out = (struct batch){ .n_tokens = h.n_tokens, .n_seqs = h.n_seqs, .n_rows = h.n_rows };
    out->rows = (const void *)p;
    p += h.n_rows * sizeof *out->rows;
    out->tokens = (const void *)p;
    out->starts = out->tokens + h.n_tokens;
    out->row_starts = out->starts + h.n_seqs + 1;
    return 0;
}
