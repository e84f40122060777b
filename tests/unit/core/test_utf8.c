#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/utf8.h"

/* `texts` are parted by |. */
static void expect_each(bool are_characters, char *texts)
{
    for (char *text = strsep(&texts, "|"); text != NULL; text = strsep(&texts, "|")) {
        const size_t length = strlen(text), want = are_characters ? length : 0;

        cr_expect(utf8_length(text, length) == want, "%s", text);
        cr_expect(utf8_prefix(text, length) == want, "prefix of %s", text);
    }
}

Test(utf8, is_judged_as_rfc_3629_says)
{
    char characters[] = "a|\xc2\x80|\xdf\xbf|\xe0\xa0\x80|\xed\x9f\xbf|\xee\x80\x80|\xf0\x90\x80\x80|"
                        "\xf4\x8f\xbf\xbf";
    char others[] = "\xc0\x80|\xc1\xbf|\xe0\x9f\xbf|\xed\xa0\x80|\xf0\x8f\xbf\xbf|\xf4\x90\x80\x80|"
                    "\xf5\x80\x80\x80|\x80|\xc3|\xe2\x82|\xc3(|\xff";

    expect_each(true, characters);
    expect_each(false, others);
    cr_assert(utf8_prefix("a\xc3\xa4\xff"
                          "b",
                          5) == 3);
}

Test(utf8, a_cut_never_splits_a_character)
{
    const char *text = "a\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80z"; /* 1, 2, 3, 4 and 1 bytes */
    const size_t ends[] = { 0, 1, 3, 6, 10, 11 };

    for (size_t n = 0; n <= strlen(text); n++) {
        size_t want = 0;

        for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
            if (ends[i] <= n)
                want = ends[i];

        cr_assert(utf8_cut(text, n) == want, "%zu bytes: %zu", n, utf8_cut(text, n));
    }
    cr_assert(utf8_cut("\x80\x80\x80\x80\x80", 5) == 5,
              "bytes that are not UTF-8 are cut where it was asked for");
}

Test(utf8, a_clean_copy_replaces_only_what_is_broken)
{
    size_t length;
    char *copy = utf8_clean_copy("a\xff\xc3\xa4\xc3", 5, &length);

    cr_assert_str_eq(copy, "a\xef\xbf\xbd\xc3\xa4\xef\xbf\xbd");
    cr_assert(length == 9);
    free(copy);
}

Test(utf8, a_character_takes_the_columns_of_a_terminal)
{
    static const struct {
        const char *character;
        int columns;
    } cases[] = { { "a", 1 },
                  { "\xc3\xa9", 1 },         /* e with acute */
                  { "\xcc\x81", 0 },         /* combining acute */
                  { "\xe2\x80\xa6", 1 },     /* ellipsis */
                  { "\xe6\x97\xa5", 2 },     /* a Han character */
                  { "\xea\xb0\x80", 2 },     /* Hangul */
                  { "\xef\xb8\x8f", 0 },     /* variation selector */
                  { "\xf0\x9f\x9a\x80", 2 }, /* a rocket */
                  { "\xf0\x9d\x94\xb8", 1 } };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        cr_expect(utf8_columns(cases[i].character, strlen(cases[i].character)) == cases[i].columns, "%zu", i);
}
