/* Which lines are kept a second time, whatever the pieces they come in. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/output/log_filter.h"

static char kept[1 << 18];
static size_t n_kept, last_whole;

static void keep(void *arg, const char *line, size_t length, size_t whole)
{
    memcpy(kept + n_kept, line, length);
    n_kept += length;
    kept[n_kept++] = '|';
    kept[n_kept] = '\0';
    last_whole = whole;
}

/* Feed `text` in pieces of `piece` bytes. */
static const char *filter(char *const *words, const char *text, size_t n, size_t piece)
{
    struct log_filter *filter = log_filter_create(words, keep, NULL);

    n_kept = 0;
    kept[0] = '\0';
    for (size_t at = 0; at < n; at += piece)
        log_filter_feed(filter, text + at, n - at < piece ? n - at : piece);
    log_filter_end(filter);
    log_filter_destroy(filter);
    return kept;
}

Test(log_filter, any_of_the_words_is_enough_in_whatever_pieces)
{
    static char *const words[] = { "apple", "range", NULL };
    static const char text[] =
        "an apple\na pear\n\norange and apple\napp\nle\n\rapple bar\rpear bar\r\nlast apple";

    for (size_t piece = 1; piece <= sizeof text; piece++)
        cr_assert_str_eq(filter(words, text, sizeof text - 1, piece),
                         "an apple|orange and apple|apple bar|last apple|", "in pieces of %zu: %s", piece,
                         kept);
}

Test(log_filter, an_empty_word_is_in_every_line)
{
    static char *const words[] = { "", NULL };

    cr_assert_str_eq(filter(words, "a\n\nb\n", 5, 2), "a||b|");
}

Test(log_filter, no_line_is_kept_twice_or_without_a_word)
{
    static char *const words[] = { "a", "b", NULL }, *const none[] = { NULL };

    cr_assert_str_eq(filter(words, "ab\nc\nba\n", 8, 8), "ab|ba|");
    cr_assert_str_eq(filter(none, "ab\nc\n", 5, 8), "");
}

Test(log_filter, bytes_of_any_kind_are_lines)
{
    static char *const words[] = { "x", NULL };
    static const char text[] = "\0x\0\n\xff\xfex\n\0\n";

    filter(words, text, sizeof text - 1, 3);
    cr_assert(n_kept == 8 && memcmp(kept, "\0x\0|\xff\xfex|", 8) == 0);
}

Test(log_filter, of_a_long_line_the_beginning_counts)
{
    static char *const words[] = { "needle", NULL };
    static char text[3 * LOG_FILTER_LINE_BYTES];

    for (size_t piece = 1000; piece <= sizeof text; piece += 20011) {
        memset(text, 'x', sizeof text);
        text[sizeof text - 1] = '\n';
        memcpy(text + LOG_FILTER_LINE_BYTES - 6, "needle", 6);
        filter(words, text, sizeof text, piece);
        cr_assert(n_kept == LOG_FILTER_LINE_BYTES + 1 && last_whole == sizeof text - 1, "pieces of %zu",
                  piece);
        memset(text + LOG_FILTER_LINE_BYTES - 6, 'x', 6);
        memcpy(text + LOG_FILTER_LINE_BYTES - 5, "needle", 6);
        filter(words, text, sizeof text, piece);
        cr_assert(n_kept == 0, "pieces of %zu", piece);
    }
}
