#include "agent/wire/fields.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/record/errors.h"
#include "shard_runtime/core/json.h"

/* The most bytes that a FIELD_BYTES may have. */
enum { MOST_BYTES = 64 };

static cJSON *encode_long(int64_t value)
{
    char digits[24];

    snprintf(digits, sizeof digits, "%lld", (long long)value);
    return cJSON_CreateString(digits);
}

static cJSON *encode_bytes(const unsigned char *bytes, size_t n_bytes)
{
    char hex[2 * MOST_BYTES + 1];

    for (size_t i = 0; i < n_bytes; i++)
        snprintf(hex + 2 * i, 3, "%02x", bytes[i]);
    return cJSON_CreateString(hex);
}

static cJSON *encode_tail(const struct errors_tail *tail)
{
    char text[sizeof tail->bytes] = "";
    size_t length = 0;

    for (int i = 0; i < tail->n_lines && length < sizeof text; i++)
        length +=
            (size_t)snprintf(text + length, sizeof text - length, "%s%s", i == 0 ? "" : "\n", tail->lines[i]);
    return cJSON_CreateString(text);
}

static cJSON *encode_field(const struct field *field, const void *base)
{
    const void *at = (const char *)base + field->offset;

    switch (field->kind) {
    case FIELD_TEXT:
        return cJSON_CreateString(at);
    case FIELD_INT:
        return cJSON_CreateNumber(*(const int *)at);
    case FIELD_WORD:
        return cJSON_CreateNumber(*(const uint32_t *)at);
    case FIELD_FLAG:
        return cJSON_CreateBool(*(const bool *)at);
    case FIELD_LONG:
        return encode_long(*(const int64_t *)at);
    case FIELD_BYTES:
        return encode_bytes(at, field->size);
    case FIELD_TAIL:
        return encode_tail(at);
    }
    return NULL;
}

char *fields_encode(const struct field *fields, size_t n_fields, const void *base)
{
    cJSON *object = cJSON_CreateObject();
    char *text = NULL;
    bool whole = object != NULL;

    /* cJSON refuses an item that is NULL, so a value without memory ends the loop as well. */
    for (size_t i = 0; i < n_fields && whole; i++)
        whole = cJSON_AddItemToObject(object, fields[i].key, encode_field(&fields[i], base));
    if (whole)
        text = cJSON_PrintUnformatted(object);
    cJSON_Delete(object);
    return text;
}

static bool decode_whole(const cJSON *item, int64_t low, int64_t high, int64_t *out)
{
    const double value = cJSON_IsNumber(item) ? item->valuedouble : NAN;

    if (!(value >= (double)low && value <= (double)high) || value != floor(value))
        return false;
    *out = (int64_t)value;
    return true;
}

static bool decode_long(const char *text, const struct field *field, int64_t *out)
{
    char *end;

    if (text[0] == '\0' || strlen(text) > 20 || strspn(text, "-0123456789") != strlen(text))
        return false;
    *out = strtoll(text, &end, 10);
    return *end == '\0' && *out >= field->low && *out <= field->high;
}

static bool decode_bytes(const char *text, unsigned char *out, size_t n_bytes)
{
    if (strlen(text) != 2 * n_bytes || strspn(text, "0123456789abcdef") != 2 * n_bytes)
        return false;
    for (size_t i = 0; i < n_bytes; i++) {
        const char pair[3] = { text[2 * i], text[2 * i + 1], '\0' };

        out[i] = (unsigned char)strtoul(pair, NULL, 16);
    }
    return true;
}

static bool decode_tail(const char *text, struct errors_tail *tail)
{
    if (strlen(text) >= sizeof tail->bytes)
        return false;
    errors_tail_take(tail, text, strlen(text), false);
    return true;
}

static bool decode_text(const char *text, const struct field *field, void *at)
{
    switch (field->kind) {
    case FIELD_TEXT:
        if (strlen(text) >= field->size)
            return false;
        memcpy(at, text, strlen(text) + 1);
        return true;
    case FIELD_LONG:
        return decode_long(text, field, at);
    case FIELD_BYTES:
        return decode_bytes(text, at, field->size);
    case FIELD_TAIL:
        return decode_tail(text, at);
    default:
        return false;
    }
}

/*
 * Stores one value. Returns false if it does not fit the field, or if `item` is NULL because the key is
 * missing.
 */
static bool decode_field(const cJSON *item, const struct field *field, void *base)
{
    void *at = (char *)base + field->offset;
    int64_t number;

    if (cJSON_IsString(item))
        return decode_text(item->valuestring, field, at);
    switch (field->kind) {
    case FIELD_INT:
        if (!decode_whole(item, field->low < INT32_MIN ? INT32_MIN : field->low,
                          field->high > INT32_MAX ? INT32_MAX : field->high, &number))
            return false;
        *(int *)at = (int)number;
        return true;
    case FIELD_WORD:
        if (!decode_whole(item, 0, UINT32_MAX, &number))
            return false;
        *(uint32_t *)at = (uint32_t)number;
        return true;
    case FIELD_FLAG:
        *(bool *)at = cJSON_IsTrue(item);
        return cJSON_IsBool(item);
    default:
        return false;
    }
}

static bool known(const struct field *fields, size_t n_fields, const char *key)
{
    for (size_t i = 0; i < n_fields; i++)
        if (strcmp(fields[i].key, key) == 0)
            return true;
    return false;
}

enum fsdp_status fields_decode(const struct field *fields, size_t n_fields, void *base, const void *text,
                               size_t n_bytes, struct fsdp_err *err)
{
    cJSON *object = json_parse_object(text, n_bytes);
    enum fsdp_status status = FSDP_OK;

    if (object == NULL || ((const char *)text)[n_bytes - 1] != '}') { /* the object must be the whole text */
        status = fsdp_fail(err, FSDP_ERR_FORMAT, "a message that is no JSON object");
        goto done;
    }
    /*
     * Together with the checks below, this also refuses a repeated key: either there are too many keys, or
     * another key is missing.
     */
    if ((size_t)cJSON_GetArraySize(object) > n_fields) {
        status = fsdp_fail(err, FSDP_ERR_FORMAT, "a message with more keys than it may have");
        goto done;
    }
    for (const cJSON *item = object->child; item != NULL; item = item->next) {
        if (!known(fields, n_fields, item->string)) {
            status = fsdp_fail(err, FSDP_ERR_FORMAT, "a message with the unknown key %.60s", item->string);
            goto done;
        }
    }
    for (size_t i = 0; i < n_fields; i++) {
        if (!decode_field(cJSON_GetObjectItemCaseSensitive(object, fields[i].key), &fields[i], base)) {
            status = fsdp_fail(err, FSDP_ERR_FORMAT, "a message whose %s is missing or unfit", fields[i].key);
            goto done;
        }
    }
done:
    cJSON_Delete(object);
    return status;
}
