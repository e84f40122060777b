#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/alloc.h"
#include "shard_runtime/core/json.h"
#include "shard_runtime/core/utf8.h"

/* Returns the length of `text` as a JSON string in `out`; 0: it did not fit. */
static size_t quote(char *out, size_t size, const char *text)
{
    struct json_text quoted = json_text_fixed(out, size);

    json_add_string(&quoted, text);
    return quoted.failed ? 0 : quoted.length;
}

Test(json, every_byte_pair_gives_valid_json)
{
    for (int a = 0; a < 256; a++)
        for (int b = 0; b < 256; b++) {
            const char text[3] = { (char)a, (char)b };
            char out[32];
            size_t n = quote(out, sizeof out, text);
            cJSON *parsed = cJSON_ParseWithLengthOpts(out, n + 1, NULL, 1);

            cr_assert(n > 0 && n == strlen(out));
            cr_assert(cJSON_IsString(parsed), "%02x %02x: %s", a, b, out);
            cr_assert(a >= 0x80 || b >= 0x80 || strcmp(parsed->valuestring, text) == 0);
            for (size_t at = 0; at < n; at += utf8_length(out + at, n - at))
                cr_assert(utf8_length(out + at, n - at) > 0, "%02x %02x is no UTF-8", a, b);
            cJSON_Delete(parsed);
        }
}

Test(json, escapes_are_the_short_ones)
{
    char out[64];

    quote(out, sizeof out, "a\"b\\c\n\t\x01\x7f");

    cr_assert_str_eq(out, "\"a\\\"b\\\\c\\n\\t\\u0001\\u007f\"");
}

Test(json, what_does_not_fit_is_refused_at_every_size)
{
    char out[32];

    for (size_t size = 0; size < 16; size++) {
        memset(out, 'x', sizeof out);
        size_t n = quote(out, size, "ab\ncd");

        cr_assert(n == (size >= 9 ? 8 : 0), "size %zu gave %zu", size, n);
        cr_assert(out[size] == 'x', "size %zu wrote past its end", size);
    }
}

Test(json, members_and_elements_are_separated)
{
    struct json_text text = { 0 };

    json_open(&text, NULL, '{');
    json_field(&text, "rank", "%d", -3);
    json_field_string(&text, "host", "a{");
    json_field_string(&text, "log", NULL);
    json_open(&text, "list", '[');
    for (int i = 0; i < 2; i++) {
        json_open(&text, NULL, '{');
        json_field_bool(&text, "last", i == 1);
        json_close(&text, '}');
    }
    json_close(&text, ']');
    json_field_real(&text, "loss", "%.2f", 0.5);
    json_field_real(&text, "norm", "%.2f", NAN);
    json_close(&text, '}');

    cr_assert_str_eq(text.bytes, "{\"rank\": -3, \"host\": \"a{\", \"log\": null, "
                                 "\"list\": [{\"last\": false}, {\"last\": true}], "
                                 "\"loss\": 0.50, \"norm\": null}");
    cr_assert(!text.failed && text.length == strlen(text.bytes));
    json_text_free(&text);
}

Test(json, a_text_that_could_not_grow_has_failed_for_good)
{
    struct json_text text = { 0 };
    char word[1000];

    memset(word, 'x', sizeof word - 1);
    word[sizeof word - 1] = '\0';
    for (int i = 0; i < 100; i++)
        json_add(&text, "%s%d", word, i % 10);
    cr_assert(!text.failed && text.length == 100000 && strlen(text.bytes) == 100000);

    alloc_fail_nth(1);
    for (int i = 0; i < 100; i++)
        json_add_string(&text, word);
    cr_assert(text.failed);
    json_add(&text, "more");
    cr_assert(text.failed);
    json_text_free(&text);
}

Test(json, an_object_is_parsed_only_if_nothing_else_follows)
{
    static const struct {
        const char *text;
        size_t length;
        bool taken;
    } cases[] = { { "{\"a\": 1}", 8, true }, { "{} \r\n\t", 6, true }, { "{}\0", 3, true },
                  { "{} x", 4, false },      { "{}{}", 4, false },     { "[]", 2, false },
                  { "1", 1, false },         { "{", 1, false },        { "", 0, false },
                  { "{}x", 2, true } };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cJSON *object = json_parse_object(cases[i].text, cases[i].length);

        cr_expect((object != NULL) == cases[i].taken, "%s", cases[i].text);
        cJSON_Delete(object);
    }
}
