/*
 * A text in memory is what was printed, however long; nothing printed is an empty string.
 */
#include <criterion/criterion.h>
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
