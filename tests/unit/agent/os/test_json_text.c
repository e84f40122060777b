#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "agent/os/json_text.h"

Test(json_text, every_byte_pair_gives_valid_json)
{
    for (int a = 0; a < 256; a++)
        for (int b = 0; b < 256; b++) {
            const char text[2] = { (char)a, (char)b };
            char out[32];
            size_t n = json_quote(out, sizeof out, text, 2);
            cJSON *parsed = cJSON_ParseWithLengthOpts(out, n + 1, NULL, 1);

            cr_assert(n > 0 && n == strlen(out));
            cr_assert(cJSON_IsString(parsed), "%02x %02x: %s", a, b, out);
            for (size_t at = 0; at < n; at += json_utf8_length(out + at, n - at))
                cr_assert(json_utf8_length(out + at, n - at) > 0, "%02x %02x is no UTF-8", a, b);
            cJSON_Delete(parsed);
        }
}

Test(json_text, utf8_is_judged_as_rfc_3629_says)
{
    static const struct {
        const char *bytes;
        size_t length;
    } cases[] = {
        { "a", 1 },
        { "\xc2\x80", 2 },
        { "\xdf\xbf", 2 },
        { "\xe0\xa0\x80", 3 },
        { "\xed\x9f\xbf", 3 },
        { "\xee\x80\x80", 3 },
        { "\xf0\x90\x80\x80", 4 },
        { "\xf4\x8f\xbf\xbf", 4 },
        { "\xc0\x80", 0 },
        { "\xc1\xbf", 0 },
        { "\xe0\x9f\xbf", 0 },
        { "\xed\xa0\x80", 0 },
        { "\xf0\x8f\xbf\xbf", 0 },
        { "\xf4\x90\x80\x80", 0 },
        { "\xf5\x80\x80\x80", 0 },
        { "\x80", 0 },
        { "\xc3", 0 },
        { "\xe2\x82", 0 },
        { "\xc3(", 0 },
        { "\xff", 0 },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        cr_assert(json_utf8_length(cases[i].bytes, strlen(cases[i].bytes)) == cases[i].length, "case %zu", i);
}

Test(json_text, escapes_are_the_short_ones)
{
    char out[64];

    json_quote(out, sizeof out, "a\"b\\c\n\t\x01\x7f", 9);

    cr_assert_str_eq(out, "\"a\\\"b\\\\c\\n\\t\\u0001\\u007f\"");
}

Test(json_text, what_does_not_fit_is_refused_at_every_size)
{
    char out[32];

    for (size_t size = 0; size < 16; size++) {
        memset(out, 'x', sizeof out);
        size_t n = json_quote(out, size, "ab\ncd", 5);

        cr_assert(n == (size >= 9 ? 8 : 0), "size %zu gave %zu", size, n);
        cr_assert(out[size] == 'x', "size %zu wrote past its end", size);
    }
}

Test(json_text, a_clean_copy_replaces_only_what_is_broken)
{
    size_t length;
    char *copy = json_clean_copy("a\xff\xc3\xa4\xc3", 5, &length);

    cr_assert_str_eq(copy, "a\xef\xbf\xbd\xc3\xa4\xef\xbf\xbd");
    cr_assert(length == 9);
    free(copy);
}
