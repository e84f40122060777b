#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/shardfile/json.h"

TestSuite(json, .timeout = 300);

/* Step over one value; true when the text is that value and nothing else. */
static bool whole(const char *text)
{
    char *copy = strdup(text);
    struct json_reader json;
    bool fine;

    json_read_init(&json, copy, strlen(copy));
    fine = json_skip(&json) && json_end(&json);
    free(copy);
    return fine;
}

Test(json, every_kind_of_value_is_taken)
{
    static const char *const good[] = { "{}",
                                        "[]",
                                        "[[],{}]",
                                        "0",
                                        "-0",
                                        "-1.5e+10",
                                        "1E9",
                                        "0.25",
                                        "true",
                                        "false",
                                        "null",
                                        "\"\"",
                                        "\"\\u00e9\\n\\\"\"",
                                        " [ 1 , 2 ] ",
                                        "{\"a\":{\"b\":[1,{\"c\":null}]},\"d\":2}",
                                        "\t\r\n{}" };

    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        cr_expect(whole(good[i]), "%s", good[i]);
}

Test(json, what_is_not_json_is_refused)
{
    static const char *const bad[] = { "",
                                       " ",
                                       "{",
                                       "}",
                                       "[",
                                       "]",
                                       "[1,]",
                                       "[,1]",
                                       "[1 2]",
                                       "{\"a\"}",
                                       "{\"a\":}",
                                       "{\"a\":1,}",
                                       "{a:1}",
                                       "{\"a\":1 \"b\":2}",
                                       "{1:2}",
                                       "[1}",
                                       "{\"a\":1]",
                                       "01",
                                       "-",
                                       "1.",
                                       ".5",
                                       "1e",
                                       "1e+",
                                       "+1",
                                       "0x1",
                                       "tru",
                                       "nul",
                                       "NaN",
                                       "Infinity",
                                       "'a'",
                                       "\"a",
                                       "\"\\\"",
                                       "\"\\u12\"",
                                       "\"\\ud800\"",
                                       "\"\\ud800\\u0041\"",
                                       "\"\\udc00\"",
                                       "\"\\u0000\"",
                                       "\"\x01\"",
                                       "\"\x80\"",
                                       "\"\xe0\x80\x80\"",
                                       "\"\xf8\x88\x80\x80\x80\"",
                                       "{} {}",
                                       "[] x",
                                       "1 2",
                                       "/* */ {}",
                                       "[1]]" };

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        cr_expect(!whole(bad[i]), "%s", bad[i]);
}

Test(json, depth_is_limited)
{
    char text[2 * (JSON_MAX_DEPTH + 1) + 1] = { 0 };

    memset(text, '[', JSON_MAX_DEPTH);
    memset(text + JSON_MAX_DEPTH, ']', JSON_MAX_DEPTH);
    cr_assert(whole(text));
    memset(text, '[', JSON_MAX_DEPTH + 1);
    memset(text + JSON_MAX_DEPTH + 1, ']', JSON_MAX_DEPTH + 1);
    cr_assert(!whole(text));
}

Test(json, strings_are_unescaped_in_place)
{
    char text[] = "{\"a\\tb\":\"\\u20ac\\ud83d\\ude00\\/\\b\\f\\r\",\"n\":18446744073709551615}";
    struct json_reader json;
    const char *key, *value;
    uint64_t n = 0;

    json_read_init(&json, text, strlen(text));
    json_enter_object(&json);
    key = json_next_member(&json);
    value = json_string(&json);
    cr_assert_str_eq(key, "a\tb");
    cr_assert_str_eq(value, "\xe2\x82\xac\xf0\x9f\x98\x80/\b\f\r");
    cr_assert_str_eq(json_next_member(&json), "n");
    cr_assert(json_u64(&json, &n) && n == UINT64_MAX);
    cr_assert_null(json_next_member(&json));
    cr_assert(json_end(&json));
}

Test(json, what_is_written_is_read_back)
{
    char every[256] = { 0 };
    struct json_text text = { 0 };
    struct json_reader json;

    for (int c = 1; c < 128; c++)
        every[c - 1] = (char)c;
    json_add_string(&text, every);
    json_read_init(&json, text.bytes, text.length);
    cr_assert_str_eq(json_string(&json), every);
    cr_assert(json_end(&json));
    json_text_free(&text);
}

Test(json, long_texts_grow)
{
    struct json_text text = { 0 };
    char word[1000];

    memset(word, 'x', sizeof word - 1);
    word[sizeof word - 1] = '\0';
    for (int i = 0; i < 100; i++)
        json_add(&text, "%s%d", word, i % 10);
    cr_assert(!text.failed && text.length == 100000 && strlen(text.bytes) == 100000);
    json_text_free(&text);
}

Test(json, the_first_problem_sticks)
{
    char text[] = "{\"a\":x,\"b\":1}";
    struct json_reader json;
    uint64_t n = 7;

    json_read_init(&json, text, strlen(text));
    json_enter_object(&json);
    cr_assert_not_null(json_next_member(&json));
    cr_assert(!json_u64(&json, &n) && n == 7);
    cr_assert_null(json_next_member(&json));
    cr_assert(!json_skip(&json) && !json_end(&json) && !json_next_element(&json));
    cr_assert(json.at == 5);
    cr_assert_not_null(strstr(json.problem, "whole number"));
}
