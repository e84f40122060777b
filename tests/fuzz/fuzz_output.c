/*
 * What workers write and send, under libFuzzer: the same lines are found in whatever pieces they come. Every
 * text becomes valid JSON. An event of a worker is taken, or refused with words.
 */
#include <cjson/cJSON.h>

#include "agent/output/line_cut.h"
#include "agent/output/log_filter.h"
#include "agent/record/events.h"
#include "shard_runtime/core/json.h"
#include "shard_runtime/core/utf8.h"
#include "tests/fuzz/fuzz.h"

/*
 * Where the lines of the text end, found with the text in pieces of `piece` bytes; returns how many there
 * are.
 */
static size_t find_ends(const char *text, size_t n, size_t piece, size_t *ends)
{
    size_t searched = 0, seen = 0, n_ends = 0;

    while (seen < n) {
        size_t length, consumed, n_searched = 0;

        seen = n - seen < piece ? n : seen + piece;
        while (searched < seen &&
               line_end(text + searched, seen - searched, &length, &consumed, &n_searched)) {
            never(length >= consumed || consumed > seen - searched);
            searched += consumed;
            ends[n_ends++] = searched;
            n_searched = 0;
        }
        searched += n_searched;
    }
    return n_ends;
}

static void check_lines(const char *text, size_t n)
{
    size_t *whole = malloc((n + 1) * sizeof *whole), *pieces = malloc((n + 1) * sizeof *pieces);
    const size_t n_whole = find_ends(text, n, n + 1, whole);

    for (size_t piece = 1; piece < 9; piece++) {
        const size_t n_pieces = find_ends(text, n, piece, pieces);

        /* A run of carriage returns may be one end or several; every newline is one in both. */
        for (size_t i = 0, j = 0; i < n_whole; i++) {
            if (text[whole[i] - 1] != '\n')
                continue;
            while (j < n_pieces && pieces[j] < whole[i])
                j++;
            never(j == n_pieces || pieces[j] != whole[i]);
        }
    }
    never(utf8_cut(text, n) > n || (n > 3 && utf8_cut(text, n) < n - 3));
    free(whole);
    free(pieces);
}

struct kept {
    char *bytes;
    size_t n;
};

static void keep(void *arg, const char *line, size_t length, size_t whole)
{
    struct kept *kept = arg;

    never(length > whole || length > LOG_FILTER_LINE_BYTES);
    memcpy(kept->bytes + kept->n, line, length);
    kept->n += length;
    kept->bytes[kept->n++] = '\n';
}

/*
 * Lines that are kept a second time are the same whatever the pieces; runs of carriage returns may be one end
 * or more.
 */
static void check_filter(const char *text, size_t n)
{
    static char letter[] = "e", pair[] = "ab", *const words[] = { letter, pair, NULL };
    struct kept whole = { malloc(2 * n + 2), 0 }, pieces = { malloc(2 * n + 2), 0 };

    for (size_t piece = n + 1; piece > 0; piece = piece > 7 ? 7 : piece - 1) {
        struct kept *kept = piece > n ? &whole : &pieces;
        struct log_filter *filter = log_filter_create(words, keep, kept);

        kept->n = 0;
        for (size_t at = 0; at < n; at += piece)
            log_filter_feed(filter, text + at, n - at < piece ? n - at : piece);
        log_filter_end(filter);
        log_filter_destroy(filter);
        never(piece <= n && memchr(text, '\r', n) == NULL &&
              (kept->n != whole.n || memcmp(kept->bytes, whole.bytes, whole.n) != 0));
    }
    free(whole.bytes);
    free(pieces.bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    char *string = strndup(text, size), *clean;
    struct json_text quoted = { 0 };
    struct fsdp_err err = { 0 };
    size_t n_clean;
    cJSON *parsed;

    check_lines(text, size);
    check_filter(text, size);
    json_add_string(&quoted, string);
    parsed = cJSON_ParseWithLengthOpts(quoted.bytes, quoted.length + 1, NULL, 1);
    never(!cJSON_IsString(parsed));
    cJSON_Delete(parsed);
    json_text_free(&quoted);
    free(string);
    clean = utf8_clean_copy(text, size, &n_clean);
    for (size_t at = 0, step; at < n_clean; at += step)
        never((step = utf8_length(clean + at, n_clean - at)) == 0);
    free(clean);
    (void)taken(events_relay(NULL, 0, 1, text, size, &err), &err);
    return 0;
}
