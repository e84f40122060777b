#include "shard_runtime/core/spelling.h"

#include <stdio.h>
#include <string.h>

/*
 * Returns the edit distance of two names. Adding, omitting or changing a letter, and swapping two neighbours,
 * each count one.
 */
static size_t edit_distance(const char *a, const char *b)
{
    /* Optimal string alignment (Levenshtein with adjacent swaps). Only three rows of the table are kept. */
    size_t rows[3][SPELLING_MAX_BYTES + 1], n_a = strlen(a), n_b = strlen(b);
    size_t *before = rows[0], *last = rows[1], *now = rows[2];

    if (n_a > SPELLING_MAX_BYTES || n_b > SPELLING_MAX_BYTES)
        return n_a + n_b;
    for (size_t j = 0; j <= n_b; j++)
        last[j] = j;
    for (size_t i = 1; i <= n_a; i++) {
        size_t *recycled = before;

        now[0] = i;
        for (size_t j = 1; j <= n_b; j++) {
            size_t best = last[j - 1] + (a[i - 1] != b[j - 1]);

            if (last[j] + 1 < best)
                best = last[j] + 1;
            if (now[j - 1] + 1 < best)
                best = now[j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && before[j - 2] + 1 < best)
                best = before[j - 2] + 1;
            now[j] = best;
        }
        before = last;
        last = now;
        now = recycled;
    }
    return last[n_b];
}

bool spelling_is_close(const char *name, const char *known, size_t *best)
{
    size_t distance = edit_distance(name, known), limit = strlen(known) / 3;

    if (limit < 1)
        limit = 1;
    if (distance > limit || distance >= *best)
        return false;
    *best = distance;
    return true;
}

const char *spelling_hint(const char *near, char out[SPELLING_HINT_BYTES])
{
    out[0] = '\0';
    if (near != NULL)
        snprintf(out, SPELLING_HINT_BYTES, "; did you mean %s?", near);
    return out;
}
