#include <criterion/criterion.h>
#include <string.h>

#include "agent/output/line_cut.h"

/* What the console makes of `text`: its lines joined by '|', the unfinished rest behind '>'. */
static void lines_of(const char *text, size_t piece, char *out)
{
    const size_t n = strlen(text);
    size_t cursor = 0, searched = 0, seen = 0;

    out[0] = '\0';
    while (seen < n) { /* the text arrives in pieces */
        size_t length, consumed, n_searched = 0;

        seen = seen + piece < n ? seen + piece : n;
        while (searched < seen &&
               line_end(text + searched, seen - searched, &length, &consumed, &n_searched)) {
            strncat(out, text + cursor, searched + length - cursor);
            strcat(out, "|");
            cursor = searched = searched + consumed;
            n_searched = 0;
        }
        searched += n_searched;
    }
    strcat(out, ">");
    strcat(out, text + cursor);
}

static const struct {
    const char *text, *lines;
} cases[] = {
    { "", ">" },
    { "abc", ">abc" },
    { "abc\n", "abc|>" },
    { "\n\n", "||>" },
    { "a\nb\nc", "a|b|>c" },
    { "a\r\nb\r\n", "a\r|b\r|>" },
    { "10%\r20%\rdone\n", "10%|20%|done|>" },
    { "\r10%", "|>10%" },
    { "10%\r", ">10%\r" },
};

Test(line_cut, every_ending_is_found_whatever_the_pieces)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t piece = 1; piece < 20; piece++) {
            char got[128];

            lines_of(cases[i].text, piece, got);

            cr_assert_str_eq(got, cases[i].lines, "case %zu in pieces of %zu: %s", i, piece, got);
        }
}

Test(line_cut, carriage_returns_alone_never_stop_the_search)
{
    char bytes[64];
    size_t length, consumed, searched = 0;

    memset(bytes, '\r', sizeof bytes);

    cr_assert(!line_end(bytes, sizeof bytes, &length, &consumed, &searched));
    cr_assert(searched == sizeof bytes - 1);
}

/* What line_end() says, one line after another. */
static size_t ends_one_by_one(const char *text, size_t n, size_t ends[32], size_t *n_searched)
{
    size_t at = 0, count = 0, length, consumed;

    while (line_end(text + at, n - at, &length, &consumed, n_searched)) {
        at += consumed;
        ends[count++] = at - consumed + length;
        ends[count++] = at;
    }
    return count;
}

Test(line_cut, a_scan_finds_what_line_end_finds_in_every_text_of_seven_letters)
{
    static const char letters[] = { 'x', '\n', '\r' };

    for (int code = 0; code < 2187; code++) {
        size_t want[32], got[32], n_want, n_got = 0, searched = 0, length;
        struct line_scan scan;
        const char *line;
        char text[7];

        for (int i = 0, rest = code; i < 7; i++, rest /= 3)
            text[i] = letters[rest % 3];
        n_want = ends_one_by_one(text, sizeof text, want, &searched);
        line_scan_init(&scan, text, sizeof text);
        while (line_scan_next(&scan, &line, &length)) {
            got[n_got++] = (size_t)(line - text) + length;
            got[n_got++] = (size_t)(scan.at - text);
        }

        cr_assert(n_got == n_want && memcmp(got, want, n_got * sizeof *got) == 0, "text %d", code);
        cr_assert(scan.n_searched == searched, "text %d: %zu, not %zu", code, scan.n_searched, searched);
    }
}
