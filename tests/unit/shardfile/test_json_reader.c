#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/shardfile/json_reader.h"

TestSuite(json_reader, .timeout = 300);

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

/* `texts` are parted by |. */
static void expect_each(bool taken, char *texts)
{
    for (char *text = strsep(&texts, "|"); text != NULL; text = strsep(&texts, "|"))
        cr_expect_eq(whole(text), taken, "%s", text);
}

Test(json_reader, every_kind_of_value_is_taken)
{
    char good[] = "{}|[]|[[],{}]|0|-0|-1.5e+10|1E9|0.25|true|false|null|\"\"|\"\\u00e9\\n\\\"\"| [ 1 , 2 ] |"
                  "{\"a\":{\"b\":[1,{\"c\":null}]},\"d\":2}|\t\r\n{}";

    expect_each(true, good);
}

Test(json_reader, what_is_not_json_is_refused)
{
    char bad[] = "| |{|}|[|]|[1,]|[,1]|[1 2]|{\"a\"}|{\"a\":}|{\"a\":1,}|{a:1}|{\"a\":1 \"b\":2}|{1:2}|[1}|"
                 "{\"a\":1]|01|-|1.|.5|1e|1e+|+1|0x1|tru|nul|NaN|Infinity|'a'|\"a|\"\\\"|\"\\u12\"|"
                 "\"\\ud800\"|\"\\ud800\\u0041\"|\"\\udc00\"|\"\\u0000\"|\"\x01\"|\"\x80\"|\"\xe0\x80\x80\"|"
                 "\"\xf8\x88\x80\x80\x80\"|{} {}|[] x|1 2|/* */ {}|[1]]";

    expect_each(false, bad);
}

Test(json_reader, depth_is_limited)
{
    char text[2 * (JSON_MAX_DEPTH + 1) + 1] = { 0 };

    memset(text, '[', JSON_MAX_DEPTH);
    memset(text + JSON_MAX_DEPTH, ']', JSON_MAX_DEPTH);
    cr_assert(whole(text));
    memset(text, '[', JSON_MAX_DEPTH + 1);
    memset(text + JSON_MAX_DEPTH + 1, ']', JSON_MAX_DEPTH + 1);
    cr_assert(!whole(text));
}

Test(json_reader, strings_are_unescaped_in_place)
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

Test(json_reader, cjson_takes_what_a_checkpoint_must_not_have)
{
    char seed[] = "18446744073709551615", bytes[] = "\"\xff\"", doubled[] = "{\"a\":1,\"a\":2}";
    struct json_reader json;
    uint64_t n = 0;
    cJSON *number = cJSON_Parse(seed), *text = cJSON_Parse(bytes), *object = cJSON_Parse(doubled);

    cr_assert(number->valuedouble == 0x1p64 && cJSON_IsString(text) && cJSON_GetArraySize(object) == 2);
    json_read_init(&json, seed, strlen(seed));
    cr_assert(json_u64(&json, &n) && n == UINT64_MAX && json_end(&json));
    cr_assert(!whole(bytes));
    json_read_init(&json, doubled, strlen(doubled));
    json_enter_object(&json);
    for (int i = 0; i < 2; i++)
        cr_assert(strcmp(json_next_member(&json), "a") == 0 && json_skip(&json));

    cJSON_Delete(number);
    cJSON_Delete(text);
    cJSON_Delete(object);
}

Test(json_reader, the_first_problem_sticks)
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
