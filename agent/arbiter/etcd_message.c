#include "agent/arbiter/etcd_message.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/arbiter/base64.h"

/* Requests */

/* Add the fields of a range that consists of one key. */
static void add_range(struct json_text *text, const char *name, const char *key)
{
    json_open(text, name, '{');
    json_field_string(text, "key", key);
    json_close(text, '}');
}

void etcd_message_range(struct json_text *text, const char *key)
{
    add_range(text, NULL, key);
}

void etcd_message_swap(struct json_text *text, const char *key, int64_t revision, const unsigned char *bytes,
                       int64_t lease)
{
    char value[BASE64_TEXT_BYTES(LEADER_RECORD_BYTES)];

    base64_encode(value, bytes, LEADER_RECORD_BYTES);
    json_open(text, NULL, '{');
    json_open(text, "compare", '[');
    json_open(text, NULL, '{');
    json_field_string(text, "target", "MOD");
    json_field_string(text, "result", "EQUAL");
    json_field_string(text, "key", key);
    json_field(text, "mod_revision", "\"%" PRId64 "\"", revision);
    json_close(text, '}');
    json_close(text, ']');
    json_open(text, "success", '[');
    json_open(text, NULL, '{');
    json_open(text, "request_put", '{');
    json_field_string(text, "key", key);
    json_field_string(text, "value", value);
    json_field(text, "lease", "\"%" PRId64 "\"", lease);
    json_close(text, '}');
    json_close(text, '}');
    json_close(text, ']');
    json_open(text, "failure", '[');
    json_open(text, NULL, '{');
    add_range(text, "request_range", key);
    json_close(text, '}');
    json_close(text, ']');
    json_close(text, '}');
}

void etcd_message_grant(struct json_text *text, int64_t seconds)
{
    json_open(text, NULL, '{');
    json_field(text, "TTL", "\"%" PRId64 "\"", seconds);
    json_close(text, '}');
}

/* Answers */

static const cJSON *member(const cJSON *object, const char *name)
{
    return cJSON_GetObjectItemCaseSensitive(object, name);
}

/* Returns a JSON string that is a positive number in all its letters; else 0. */
static uint64_t number_in(const cJSON *object, const char *name, uint64_t most)
{
    const char *const text = cJSON_GetStringValue(member(object, name));
    unsigned long long number;

    if (text == NULL || *text == '\0' || text[strspn(text, "0123456789")] != '\0')
        return 0;
    errno = 0;
    number = strtoull(text, NULL, 10);
    return errno == 0 && number <= most ? number : 0;
}

cJSON *etcd_message_parse(const char *text, size_t length, uint64_t *cluster)
{
    cJSON *answer = json_parse_object(text, length);

    *cluster = number_in(member(answer, "header"), "cluster_id", UINT64_MAX);
    if (*cluster != 0)
        return answer;
    cJSON_Delete(answer);
    return NULL;
}

int etcd_message_error(const char *text, size_t length, char *words, size_t n_words)
{
    cJSON *answer = json_parse_object(text, length);
    const cJSON *const code = member(answer, "code");
    const char *const message = cJSON_GetStringValue(member(answer, "message"));
    int number = 0;

    *words = '\0';
    if (cJSON_IsNumber(code) && code->valuedouble >= 1 && code->valuedouble <= 100 && message != NULL) {
        number = code->valueint;
        snprintf(words, n_words, "%s", message);
        for (char *at = words; *at != '\0'; at++)
            if ((unsigned char)*at < ' ' || (unsigned char)*at >= 127)
                *at = '?'; /* it is printed for a person */
    }
    cJSON_Delete(answer);
    return number;
}

/* Reads a RangeResponse. etcd leaves out fields that are empty or zero. */
static bool take_value(const cJSON *range, const char *key, struct etcd_value *out)
{
    const cJSON *const found = member(range, "kvs"), *const only = cJSON_GetArrayItem(found, 0);
    const char *const name = cJSON_GetStringValue(member(only, "key"));
    const char *const value = cJSON_GetStringValue(member(only, "value"));

    *out = (struct etcd_value){ 0 };
    if (!cJSON_IsObject(range) || (found != NULL && !cJSON_IsArray(found)))
        return false;
    if (cJSON_GetArraySize(found) == 0)
        return true;
    out->revision = (int64_t)number_in(only, "mod_revision", INT64_MAX);
    if (value != NULL && !base64_decode(out->bytes, sizeof out->bytes, &out->n_bytes, value))
        out->n_bytes = 0;
    return cJSON_GetArraySize(found) == 1 && name != NULL && strcmp(name, key) == 0 && out->revision > 0;
}

static enum fsdp_status unexpected(struct fsdp_err *err, const char *request)
{
    return fsdp_fail(err, FSDP_ERR_FORMAT, "the answer to %s is not one of etcd's version 3", request);
}

enum fsdp_status etcd_message_take_range(const cJSON *answer, const char *key, struct etcd_value *out,
                                         struct fsdp_err *err)
{
    return take_value(answer, key, out) ? FSDP_OK : unexpected(err, ETCD_RANGE);
}

enum fsdp_status etcd_message_take_swap(const cJSON *answer, const char *key, bool *swapped,
                                        struct etcd_value *found, struct fsdp_err *err)
{
    const cJSON *const responses = member(answer, "responses"), *const only =
                                                                    cJSON_GetArrayItem(responses, 0);
    const cJSON *response;

    *swapped = cJSON_IsTrue(member(answer, "succeeded"));
    response = member(only, *swapped ? "response_put" : "response_range");
    *found = (struct etcd_value){ 0 };
    if (cJSON_GetArraySize(responses) != 1 || !cJSON_IsObject(response))
        return unexpected(err, ETCD_TXN);
    return *swapped || take_value(response, key, found) ? FSDP_OK : unexpected(err, ETCD_TXN);
}

enum fsdp_status etcd_message_take_grant(const cJSON *answer, int64_t *lease, struct fsdp_err *err)
{
    *lease = (int64_t)number_in(answer, "ID", INT64_MAX);
    return *lease > 0 ? FSDP_OK : unexpected(err, ETCD_GRANT);
}
