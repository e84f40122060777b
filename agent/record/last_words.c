#include "agent/record/last_words.h"

#include <string.h>

#include "agent/record/traceback.h"

void last_words_add(struct last_words *words, const char *bytes, size_t n)
{
    if (n > LAST_WORDS_BYTES) {
        words->n += n - LAST_WORDS_BYTES;
        bytes += n - LAST_WORDS_BYTES;
        n = LAST_WORDS_BYTES;
    }
    while (n > 0) {
        const size_t at = (size_t)(words->n % LAST_WORDS_BYTES);
        const size_t part = n < LAST_WORDS_BYTES - at ? n : LAST_WORDS_BYTES - at;

        memcpy(words->ring + at, bytes, part);
        words->n += part;
        bytes += part;
        n -= part;
    }
}

size_t last_words_copy(const struct last_words *words, char *out)
{
    const size_t at = (size_t)(words->n % LAST_WORDS_BYTES);

    if (words->n <= LAST_WORDS_BYTES) {
        memcpy(out, words->ring, (size_t)words->n);
        return (size_t)words->n;
    }
    memcpy(out, words->ring + at, LAST_WORDS_BYTES - at);
    memcpy(out + LAST_WORDS_BYTES - at, words->ring, at);
    return LAST_WORDS_BYTES;
}

void last_words_tell(struct errors_detail *detail, const char *bytes, size_t n, bool cut, bool uncaught)
{
    errors_tail_take(&detail->tail, bytes, n, cut);
    if (uncaught && detail->error_file[0] == '\0')
        traceback_take(bytes, n, detail->traceback, sizeof detail->traceback, detail->message,
                       sizeof detail->message);
}
