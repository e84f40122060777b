/*
 * A text in memory is what was printed, however long; nothing printed is an empty string. Lines break between
 * words.
 */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/text.h"

static void print_lines(FILE *out, const void *subject)
{
    for (int i = 0; i < *(const int *)subject; i++)
        fprintf(out, "%6d\n", i);
}

Test(text, is_what_was_printed)
{
    for (int n = 0; n <= 100000; n = n * 10 + (n == 0)) {
        char *text = text_of(print_lines, &n);

        cr_assert_not_null(text);
        cr_expect_eq(strlen(text), 7 * (size_t)n);
        cr_expect(n == 0 || atoi(text + 7 * (size_t)(n - 1)) == n - 1);
        free(text);
    }
}

static char *wrapped(const char *words, int begin, int indent, int columns)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    text_wrap(out, words, begin, indent, columns);
    fclose(out);
    return text;
}

static char *filled(const char *words)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    text_fill(out, words);
    fclose(out);
    return text;
}

Test(text, no_line_is_longer_than_its_columns)
{
    for (int columns = 9; columns < 60; columns++) {
        char *text = wrapped("a line of some words, the longest of which has eight", 0, 2, columns);
        size_t n_words = 1;

        for (char *line = text; *line != '\0'; line += strcspn(line, "\n") + 1)
            cr_assert_leq((int)strcspn(line, "\n"), columns, "%s", text);
        for (char *at = text; *at != '\0'; at++)
            n_words += (*at == ' ' || *at == '\n') && at[1] != ' ' && at[1] != '\0';
        cr_assert(eq(sz, n_words, 11));
        free(text);
    }
}

Test(text, a_word_that_is_longer_than_a_line_stays_whole)
{
    char *text = wrapped("a /path/that/is/long and more", 0, 2, 10);

    cr_assert(eq(str, text, "a\n  /path/that/is/long\n  and more\n"));
    free(text);
    text = wrapped("/path/that/is/long", 0, 2, 10);
    cr_assert(eq(str, text, "/path/that/is/long\n"));
    free(text);
    text = wrapped("a b", 20, 2, 10);
    cr_assert(eq(str, text, "a\n  b\n"));
    free(text);
}

Test(text, our_messages_are_wrapped_and_lines_of_ranks_stay)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    text_wrap_messages(out, "\nfsdprun: one two\nTraceback (most recent call last)\nfsdp-agent: end", 13);
    fclose(out);
    cr_assert(eq(str, text,
                 (char *)"\nfsdprun: one\n  two\nTraceback (most recent call last)\nfsdp-agent:\n  end\n"));
    free(text);
}

Test(text, paragraphs_are_filled_and_what_is_indented_stays)
{
    char *text = filled("one\ntwo\n\n  three  four\n  five\nsix\nseven");

    cr_assert(eq(str, text, "one two\n\n  three  four\n  five\nsix seven\n"));
    free(text);
    text = filled("");
    cr_assert(eq(str, text, ""));
    free(text);
}
