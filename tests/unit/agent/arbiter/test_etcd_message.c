#include "agent/arbiter/etcd_message.h"

#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/arbiter/base64.h"

#define KEY    "a2V5"
#define HEADER "\"header\":{\"cluster_id\":\"13265334152374479642\",\"member_id\":\"1\",\"revision\":\"4\"}"
/* As etcd 3.4 answers. The value is "Zm9vYg==", four bytes. */
#define KVS                                                                                                  \
    "\"kvs\":[{\"key\":\"a2V5\",\"create_revision\":\"2\",\"mod_revision\":\"9007199254740993\","            \
    "\"version\":\"1\",\"value\":\"Zm9vYg==\",\"lease\":\"7699363202275188232\"}],\"count\":\"1\""
#define FOUND "{" HEADER ",\"responses\":[{\"response_range\":{\"header\":{\"revision\":\"2\"}," KVS "}}]}"

static struct json_text body;
static struct etcd_value value;
static struct fsdp_err err;

/* The answer in a block of its own size, so that a sanitizer sees whoever reads beyond it. NULL: refused. */
static cJSON *parse(const char *text, size_t length)
{
    char *copy = malloc(length + 1);
    uint64_t cluster;
    cJSON *answer;

    memcpy(copy, text, length);
    answer = etcd_message_parse(copy, length, &cluster);
    cr_assert(answer == NULL || cluster == UINT64_C(13265334152374479642));
    free(copy);
    return answer;
}

static enum fsdp_status take_range(const char *text)
{
    cJSON *answer = parse(text, strlen(text));
    const enum fsdp_status status = etcd_message_take_range(answer, KEY, &value, &err);

    cJSON_Delete(answer);
    return status;
}

static enum fsdp_status take_swap(const char *text, bool *swapped)
{
    cJSON *answer = parse(text, strlen(text));
    const enum fsdp_status status = etcd_message_take_swap(answer, KEY, swapped, &value, &err);

    cJSON_Delete(answer);
    return status;
}

Test(etcd_message, a_swap_compares_puts_and_else_reads)
{
    unsigned char bytes[LEADER_RECORD_BYTES] = "foob";
    char text[BASE64_TEXT_BYTES(LEADER_RECORD_BYTES)];
    cJSON *object;
    char *printed;
    char expected[2048];

    base64_encode(text, bytes, sizeof bytes);
    snprintf(expected, sizeof expected,
             "{\"compare\":[{\"target\":\"MOD\",\"result\":\"EQUAL\",\"key\":\"a2V5\",\"mod_revision\":"
             "\"9007199254740993\"}],\"success\":[{\"request_put\":{\"key\":\"a2V5\",\"value\":\"%s\","
             "\"lease\":\"7699363202275188232\"}}],\"failure\":[{\"request_range\":{\"key\":\"a2V5\"}}]}",
             text);

    etcd_message_swap(&body, KEY, INT64_C(9007199254740993), bytes, INT64_C(7699363202275188232));

    object = json_parse_object(body.bytes, body.length);
    printed = cJSON_PrintUnformatted(object);
    cr_assert(eq(str, printed, expected));
    cJSON_free(printed);
    cJSON_Delete(object);
    json_text_free(&body);
}

Test(etcd_message, a_range_names_the_key_and_a_grant_the_seconds)
{
    etcd_message_range(&body, KEY);
    cr_assert(eq(str, body.bytes, "{\"key\": \"a2V5\"}"));
    json_text_free(&body);
    etcd_message_grant(&body, 3600);
    cr_assert(eq(str, body.bytes, "{\"TTL\": \"3600\"}"));
    json_text_free(&body);
}

Test(etcd_message, a_value_comes_with_its_revision)
{
    cr_assert(eq(int, take_range("{" HEADER "," KVS "}\n"), FSDP_OK), "%s", err.message);

    cr_assert(value.revision == INT64_C(9007199254740993), "a double would not hold it");
    cr_assert(value.n_bytes == 4 && memcmp(value.bytes, "foob", 4) == 0);
}

Test(etcd_message, no_key_is_revision_0)
{
    cr_assert(eq(int, take_range("{" HEADER "}"), FSDP_OK));
    cr_assert(value.revision == 0 && value.n_bytes == 0);
    cr_assert(eq(int, take_range("{" HEADER ",\"kvs\":[]}"), FSDP_OK));
    cr_assert(value.revision == 0 && value.n_bytes == 0);
}

Test(etcd_message, a_value_that_is_no_record_is_there_and_has_no_bytes)
{
    static const char *const values[] = { "", ",\"value\":\"\"", ",\"value\":\"Zm9\"", ",\"value\":7" };
    char text[4096], longer[BASE64_TEXT_BYTES(LEADER_RECORD_BYTES + 1)];

    for (size_t i = 0; i <= sizeof values / sizeof *values; i++) {
        memset(longer, 'A', sizeof longer - 1);
        longer[sizeof longer - 1] = '\0';
        snprintf(text, sizeof text, "{" HEADER ",\"kvs\":[{\"key\":\"a2V5\",\"mod_revision\":\"7\"%s%s%s}]}",
                 i < sizeof values / sizeof *values ? values[i] : ",\"value\":\"",
                 i < sizeof values / sizeof *values ? "" : longer,
                 i < sizeof values / sizeof *values ? "" : "\"");

        cr_assert(eq(int, take_range(text), FSDP_OK), "%s", text);

        cr_assert(value.revision == 7 && value.n_bytes == 0, "%s", text);
    }
}

Test(etcd_message, a_swap_is_done_or_says_what_is_there)
{
    bool swapped;

    cr_assert(eq(int,
                 take_swap("{" HEADER ",\"succeeded\":true,\"responses\":[{\"response_put\":{\"header\":"
                           "{\"revision\":\"2\"}}}]}",
                           &swapped),
                 FSDP_OK));
    cr_assert(swapped);
    cr_assert(eq(int, take_swap(FOUND, &swapped), FSDP_OK));
    cr_assert(not(swapped));
    cr_assert(value.revision == INT64_C(9007199254740993) && value.n_bytes == 4);
    cr_assert(eq(int, take_swap("{" HEADER ",\"responses\":[{\"response_range\":{}}]}", &swapped), FSDP_OK));
    cr_assert(not(swapped));
    cr_assert(value.revision == 0);
}

Test(etcd_message, a_lease_has_a_number)
{
    const char *const good = "{" HEADER ",\"ID\":\"7699363202275188230\",\"TTL\":\"60\"}";
    const char *const bad = "{" HEADER ",\"ID\":\"9223372036854775808\"}";
    cJSON *answer = parse(good, strlen(good));
    int64_t lease;

    cr_assert(eq(int, etcd_message_take_grant(answer, &lease, &err), FSDP_OK));
    cr_assert(lease == INT64_C(7699363202275188230));
    cJSON_Delete(answer);
    answer = parse(bad, strlen(bad));
    cr_assert(eq(int, etcd_message_take_grant(answer, &lease, &err), FSDP_ERR_FORMAT));
    cJSON_Delete(answer);
}

Test(etcd_message, an_error_has_its_code_and_words)
{
    const char *const text = "{\"error\":\"etcdserver: requested lease not found\",\"message\":\"etcdserver: "
                             "requested lease not found\",\"code\":5}";
    const char *const rude = "{\"message\":\"a\\u001b[31m\\n\\u00e4\",\"code\":14}";
    char words[64];

    cr_assert(eq(int, etcd_message_error(text, strlen(text), words, sizeof words), ETCD_NO_LEASE));
    cr_assert(eq(str, words, "etcdserver: requested lease not found"));
    cr_assert(eq(int, etcd_message_error(rude, strlen(rude), words, sizeof words), 14));
    cr_assert(eq(str, words, "a?[31m???"), "nothing that a terminal acts on");
    cr_assert(eq(int, etcd_message_error("Not Found\n", 10, words, sizeof words), 0));
    cr_assert(eq(str, words, ""));
}

Test(etcd_message, an_answer_that_is_cut_is_none)
{
    for (size_t length = 0; length < strlen(FOUND); length++)
        cr_assert(parse(FOUND, length) == NULL, "%zu bytes", length);
}

ParameterizedTestParameters(etcd_message, what_is_no_answer_is_refused)
{
    static char texts[][200] = { "",
                                 "null",
                                 "[]",
                                 "{}",
                                 "\"\"",
                                 "Not Found",
                                 "<html>",
                                 "{" HEADER "} {}",
                                 "{\"header\":7}",
                                 "{\"header\":{\"cluster_id\":\"0\"}}",
                                 "{\"header\":{\"cluster_id\":7}}",
                                 "{\"header\":{\"cluster_id\":\"-7\"}}",
                                 "{\"header\":{\"cluster_id\":\"7x\"}}",
                                 "{\"header\":{\"cluster_id\":\"18446744073709551616\"}}",
                                 "{\"error\":\"etcdserver: request timed out\",\"message\":\"etcdserver: "
                                 "request timed out\",\"code\":14}" };

    return cr_make_param_array(char[200], texts, sizeof texts / sizeof *texts);
}

ParameterizedTest(char (*text)[200], etcd_message, what_is_no_answer_is_refused)
{
    cr_assert(parse(*text, strlen(*text)) == NULL, "%s", *text);
}

ParameterizedTestParameters(etcd_message, an_answer_to_something_else_is_refused)
{
    static char texts[][240] = {
        "{" HEADER ",\"kvs\":{}}",
        "{" HEADER ",\"kvs\":[7]}",
        "{" HEADER ",\"kvs\":[{\"key\":\"a2V5\"}]}",
        "{" HEADER ",\"kvs\":[{\"key\":\"a2V5\",\"mod_revision\":\"0\"}]}",
        "{" HEADER ",\"kvs\":[{\"key\":\"a2V5\",\"mod_revision\":\"9223372036854775808\"}]}",
        "{" HEADER ",\"kvs\":[{\"key\":\"b2V5\",\"mod_revision\":\"7\"}]}",
        "{" HEADER ",\"kvs\":[{\"mod_revision\":\"7\"}]}",
        "{" HEADER ",\"kvs\":[{\"key\":\"a2V5\",\"mod_revision\":\"7\"},"
        "{\"key\":\"a2V5\",\"mod_revision\":\"7\"}]}",
    };

    return cr_make_param_array(char[240], texts, sizeof texts / sizeof *texts);
}

ParameterizedTest(char (*text)[240], etcd_message, an_answer_to_something_else_is_refused)
{
    char within[512];
    bool swapped;

    cr_assert(eq(int, take_range(*text), FSDP_ERR_FORMAT), "%s", *text);
    cr_assert(ne(str, err.message, ""));
    snprintf(within, sizeof within, "{" HEADER ",\"responses\":[{\"response_range\":%s}]}", *text);
    cr_assert(eq(int, take_swap(within, &swapped), FSDP_ERR_FORMAT), "%s", within);
}

ParameterizedTestParameters(etcd_message, a_swap_without_its_response_is_refused)
{
    static char texts[][200] = {
        "{" HEADER "}",
        "{" HEADER ",\"succeeded\":true}",
        "{" HEADER ",\"succeeded\":true,\"responses\":[{\"response_range\":{}}]}",
        "{" HEADER ",\"succeeded\":true,\"responses\":[{\"response_put\":{}},{\"response_put\":{}}]}",
        "{" HEADER ",\"responses\":[{\"response_put\":{}}]}",
        "{" HEADER ",\"responses\":[]}",
        "{" HEADER ",\"responses\":7}",
        "{" HEADER ",\"succeeded\":\"true\",\"responses\":[{\"response_put\":{}}]}",
    };

    return cr_make_param_array(char[200], texts, sizeof texts / sizeof *texts);
}

ParameterizedTest(char (*text)[200], etcd_message, a_swap_without_its_response_is_refused)
{
    bool swapped;

    cr_assert(eq(int, take_swap(*text, &swapped), FSDP_ERR_FORMAT), "%s", *text);
}
