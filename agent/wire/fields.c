#include "agent/wire/fields.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/record/errors.h"
#include "shard_runtime/core/json.h"

enum {
    MOST_BYTES = 64,   /* of a FIELD_BYTES */
    FIRST_BYTES = 1024 /* enough for most messages, and a size for which malloc() keeps blocks ready */
};

/*
 * Appends a string in quotes. cJSON is used only for strings with characters that need an escape, which are
 * few.
 */
static void add_quoted(struct json_text *text, const char *string)
{
    size_t length = 0;

    while ((unsigned char)string[length] >= ' ' && string[length] != '"' && string[length] != '\\')
        length++;
    if (string[length] == '\0') {
        json_add_bytes(text, "\"", 1);
        json_add_bytes(text, string, length);
        json_add_bytes(text, "\"", 1);
    } else {
        cJSON *item = cJSON_CreateStringReference(string);
        char *quoted = item == NULL ? NULL : cJSON_PrintUnformatted(item);

        if (quoted == NULL)
            text->failed = true;
        else
            json_add_bytes(text, quoted, strlen(quoted));
        cJSON_free(quoted);
        cJSON_Delete(item);
    }
}

/* Appends decimal digits. vsnprintf() would take most of the time that a message costs. */
static void add_decimal(struct json_text *text, int64_t value)
{
    uint64_t rest = value < 0 ? -(uint64_t)value : (uint64_t)value;
    char digits[24];
    size_t first = sizeof digits;

    do {
        digits[--first] = (char)('0' + rest % 10);
        rest /= 10;
    } while (rest > 0);
    if (value < 0)
        digits[--first] = '-';
    json_add_bytes(text, digits + first, sizeof digits - first);
}

static void add_hex(struct json_text *text, const unsigned char *bytes, size_t n_bytes)
{
    static const char digits[] = "0123456789abcdef";
    char hex[2 * MOST_BYTES];

    for (size_t i = 0; i < n_bytes; i++) {
        hex[2 * i] = digits[bytes[i] >> 4];
        hex[2 * i + 1] = digits[bytes[i] & 15];
    }
    json_add_bytes(text, hex, 2 * n_bytes);
}

static void add_tail(struct json_text *text, const struct errors_tail *tail)
{
    char lines[sizeof tail->bytes] = "";
    size_t length = 0;

    for (int i = 0; i < tail->n_lines && length < sizeof lines; i++)
        length += (size_t)snprintf(lines + length, sizeof lines - length, "%s%s", i == 0 ? "" : "\n",
                                   tail->lines[i]);
    add_quoted(text, lines);
}

static void add_value(struct json_text *text, const struct field *field, const void *base)
{
    const void *at = (const char *)base + field->offset;
    const char *quote = field->kind == FIELD_LONG || field->kind == FIELD_BYTES ? "\"" : "";

    json_add_bytes(text, quote, strlen(quote));
    switch (field->kind) {
    case FIELD_TEXT:
        add_quoted(text, at);
        break;
    case FIELD_INT:
        add_decimal(text, *(const int *)at);
        break;
    case FIELD_WORD:
        add_decimal(text, *(const uint32_t *)at);
        break;
    case FIELD_FLAG:
        json_add(text, *(const bool *)at ? "true" : "false");
        break;
    case FIELD_LONG:
        add_decimal(text, *(const int64_t *)at);
        break;
    case FIELD_BYTES:
        add_hex(text, at, field->size);
        break;
    case FIELD_TAIL:
        add_tail(text, at);
        break;
    }
    json_add_bytes(text, quote, strlen(quote));
}

char *fields_encode(const struct field *fields, size_t n_fields, const void *base)
{
    struct json_text text = { .bytes = malloc(FIRST_BYTES) };

    text.capacity = text.bytes == NULL ? 0 : FIRST_BYTES;
    json_add_bytes(&text, "{", 1);
    for (size_t i = 0; i < n_fields; i++) {
        json_add_bytes(&text, ",", i > 0);
        add_quoted(&text, fields[i].key);
        json_add_bytes(&text, ":", 1);
        add_value(&text, &fields[i], base);
    }
    json_add_bytes(&text, "}", 1);
    if (text.failed)
        json_text_free(&text);
    return text.bytes;
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
     * Together with the checks below, this also refuses a repeated key: then there are too many keys, or
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
