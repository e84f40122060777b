#include "agent/last_words.h"

#include <string.h>

enum { PREFIX_MOST = 64 };

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

/* --- Python's tracebacks ------------------------------------------------------------------------------------------ */

static const char header[] = "Traceback (most recent call last):";
enum { HEADER_BYTES = sizeof header - 1 };

struct line {
    const char *at;
    size_t n; /* without its newline, and without a carriage return before that */
};

/* The line at `at`; returns where the next one begins. */
static const char *line_at(const char *at, const char *end, struct line *line)
{
    const char *newline = memchr(at, '\n', (size_t)(end - at));

    line->at = at;
    line->n = (size_t)((newline != NULL ? newline : end) - at);
    if (line->n > 0 && at[line->n - 1] == '\r')
        line->n--;
    return newline != NULL ? newline + 1 : end;
}

static bool ends_with_header(const struct line *line)
{
    return line->n >= HEADER_BYTES && line->n <= HEADER_BYTES + PREFIX_MOST &&
           memcmp(line->at + line->n - HEADER_BYTES, header, HEADER_BYTES) == 0;
}

static bool has_prefix(const struct line *line, const char *prefix, size_t n)
{
    return line->n >= n && memcmp(line->at, prefix, n) == 0;
}

static bool holds(const struct line *line, const char *text)
{
    return memmem(line->at, line->n, text, strlen(text)) != NULL;
}

/*
 * The exception line of the traceback whose header is at `at`: the first that is not indented. The ones between are
 * indented; what else begins with an empty line is the next of a chain. NULL: there is none, it is no traceback.
 */
static const char *find_exception(const char *at, const char *end, const char *prefix, size_t n_prefix,
                                  struct line *exception)
{
    struct line line;
    const char *next = line_at(at, end, &line);
    bool any = false;

    while (next < end) {
        at = next;
        next = line_at(at, end, &line);
        if (!has_prefix(&line, prefix, n_prefix))
            return NULL;
        if (line.n > n_prefix && line.at[n_prefix] != ' ') {
            *exception = line;
            return any ? next : NULL;
        }
        any = true;
    }
    return NULL;
}

/* Does the traceback that ends at `at` have one before it as its cause? Then another header follows. */
static bool is_chained(const char *at, const char *header_at, const char *end)
{
    struct line line;

    while (at < header_at) {
        at = line_at(at, end, &line);
        if (holds(&line, "During handling of the above exception, another exception occurred:") ||
            holds(&line, "The above exception was the direct cause of the following exception:"))
            return true;
    }
    return false;
}

struct traceback {
    const char *begin, *end; /* from the first header of its chain */
    struct line exception;
    size_t n_prefix;
};

/* The newest in bytes[0..n) that is whole; where a chain is cut, what is left of it. */
static bool find_traceback(const char *bytes, size_t n, struct traceback *found)
{
    const char *end = bytes + n, *next;
    bool any = false;

    for (const char *at = bytes; at < end; at = next) {
        struct traceback this = { .begin = at };
        struct line line;

        next = line_at(at, end, &line);
        if (!ends_with_header(&line))
            continue;
        this.n_prefix = line.n - HEADER_BYTES;
        this.end = find_exception(at, end, at, this.n_prefix, &this.exception);
        if (this.end == NULL)
            continue;
        if (any && is_chained(found->end, at, end))
            this.begin = found->begin;
        *found = this;
        any = true;
        next = this.end;
    }
    return any;
}

/* What fits of it without its prefix, and at least its end: whole lines. */
static void copy_traceback(const struct traceback *found, char *out, size_t size)
{
    const char *prefix = found->exception.at, *from = found->begin;
    size_t length = 0;
    struct line line;

    for (const char *at = from; at < found->end;) { /* its size, and where it has to begin to fit */
        at = line_at(at, found->end, &line);
        length += (has_prefix(&line, prefix, found->n_prefix) ? line.n - found->n_prefix : line.n) + 1;
        while (length >= size) {
            from = line_at(from, found->end, &line);
            length -= (has_prefix(&line, prefix, found->n_prefix) ? line.n - found->n_prefix : line.n) + 1;
        }
    }
    length = 0;
    while (from < found->end) {
        size_t cut;

        from = line_at(from, found->end, &line);
        cut = has_prefix(&line, prefix, found->n_prefix) ? found->n_prefix : 0;
        memcpy(out + length, line.at + cut, line.n - cut);
        length += line.n - cut;
        out[length++] = '\n';
    }
    out[length] = '\0';
    for (size_t i = 0; i < length; i++) /* a text: a zero byte would end it here */
        if (out[i] == '\0')
            out[i] = ' ';
}

void last_words_tell(struct errors_detail *detail, const char *bytes, size_t n, bool cut, bool uncaught)
{
    struct traceback found = { 0 };

    errors_tail_take(&detail->tail, bytes, n, cut);
    if (!uncaught || detail->error_file[0] != '\0' || !find_traceback(bytes, n, &found))
        return;
    copy_traceback(&found, detail->traceback, sizeof detail->traceback);
    errors_copy_text(detail->message, sizeof detail->message, found.exception.at + found.n_prefix,
                     found.exception.n - found.n_prefix);
}
