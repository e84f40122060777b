#include "agent/wire/proto.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * One row a key: writer, reader and the refusal of unknown keys all walk the same rows. 64-bit numbers travel as
 * decimal strings, because JSON's numbers are doubles.
 */
enum kind { TEXT, INT, LONG, WORD, BYTES };

struct field {
    const char *key;
    enum kind kind;
    size_t offset, size;
};

#define FIELD(type, kind, key, member)                                                                       \
    {                                                                                                        \
        key, kind, offsetof(type, member), sizeof(((type *)0)->member)                                       \
    }
#define DETAIL_FIELDS(type)                                                                                  \
    FIELD(type, TEXT, "stderr", detail.stderr_tail), FIELD(type, TEXT, "message", detail.message),           \
        FIELD(type, TEXT, "traceback", detail.traceback),                                                    \
        FIELD(type, TEXT, "error_file", detail.error_file), FIELD(type, TEXT, "log", detail.log),            \
        FIELD(type, WORD, "shown", detail.shown), FIELD(type, LONG, "output_at", detail.output_at),          \
        FIELD(type, LONG, "raised_us", detail.raised_us)
#define N(rows) (sizeof(rows) / sizeof *(rows))

static const struct field join_fields[] = {
    FIELD(struct proto_join, TEXT, "version", version),    FIELD(struct proto_join, TEXT, "host", host),
    FIELD(struct proto_join, TEXT, "address", address),    FIELD(struct proto_join, TEXT, "role", role),
    FIELD(struct proto_join, INT, "node_rank", node_rank), FIELD(struct proto_join, INT, "order", order),
    FIELD(struct proto_join, INT, "min_nodes", min_nodes), FIELD(struct proto_join, INT, "n_nodes", n_nodes),
    FIELD(struct proto_join, INT, "n_workers", n_workers), FIELD(struct proto_join, LONG, "what", what),
};
static const struct field welcome_fields[] = {
    FIELD(struct proto_welcome, TEXT, "host", host),
    FIELD(struct proto_welcome, INT, "wait", wait),
};
static const struct field refused_fields[] = {
    FIELD(struct proto_refused, INT, "status", status),
    FIELD(struct proto_refused, TEXT, "words", words),
};
static const struct field start_fields[] = {
    FIELD(struct proto_start, INT, "restart_count", restart_count),
    FIELD(struct proto_start, INT, "world_size", world_size),
    FIELD(struct proto_start, INT, "first_rank", first_rank),
    FIELD(struct proto_start, INT, "n_nodes", n_nodes),
    FIELD(struct proto_start, INT, "node_rank", node_rank),
    FIELD(struct proto_start, INT, "role_rank", role_rank),
    FIELD(struct proto_start, INT, "role_world_size", role_world_size),
    FIELD(struct proto_start, TEXT, "master_address", master_address),
    FIELD(struct proto_start, TEXT, "node_address", node_address),
    FIELD(struct proto_start, INT, "master_port", master_port),
    FIELD(struct proto_start, INT, "first_attempt", first_attempt),
    FIELD(struct proto_start, LONG, "resume_step", resume_step),
    FIELD(struct proto_start, BYTES, "token", token),
};
static const struct field exited_fields[] = {
    FIELD(struct proto_exited, WORD, "kind", kind),
    FIELD(struct proto_exited, INT, "rank", rank),
    FIELD(struct proto_exited, INT, "local_rank", local_rank),
    FIELD(struct proto_exited, INT, "pid", pid),
    FIELD(struct proto_exited, INT, "code", code),
    FIELD(struct proto_exited, INT, "sent_signal", sent_signal),
    FIELD(struct proto_exited, WORD, "killed", killed),
    FIELD(struct proto_exited, LONG, "step", step),
    FIELD(struct proto_exited, INT, "phase", phase),
    FIELD(struct proto_exited, TEXT, "host", host),
    FIELD(struct proto_exited, TEXT, "words", words),
    FIELD(struct proto_exited, LONG, "age_ns", age_ns),
    FIELD(struct proto_exited, WORD, "oom_kill", oom_kill),
    DETAIL_FIELDS(struct proto_exited),
};

struct ranked_saved {
    int rank;
    struct fsdp_link_saved saved;
};
static const struct field saved_fields[] = {
    FIELD(struct ranked_saved, INT, "rank", rank),
    FIELD(struct ranked_saved, LONG, "step", saved.step),
    FIELD(struct ranked_saved, WORD, "status", saved.status),
    FIELD(struct ranked_saved, WORD, "keep", saved.keep),
    FIELD(struct ranked_saved, LONG, "size_bytes", saved.size_bytes),
    FIELD(struct ranked_saved, LONG, "checksum_low", saved.checksum[0]),
    FIELD(struct ranked_saved, LONG, "checksum_high", saved.checksum[1]),
    FIELD(struct ranked_saved, LONG, "loaded_step", saved.loaded_step),
    FIELD(struct ranked_saved, TEXT, "directory", saved.directory),
    FIELD(struct ranked_saved, TEXT, "temporary", saved.temporary),
    FIELD(struct ranked_saved, TEXT, "file", saved.file),
    FIELD(struct ranked_saved, TEXT, "words", saved.words),
};
static const struct field published_fields[] = {
    FIELD(struct fsdp_link_published, LONG, "step", step),
    FIELD(struct fsdp_link_published, WORD, "status", status),
    FIELD(struct fsdp_link_published, TEXT, "words", words),
};
static const struct field finish_fields[] = {
    FIELD(struct proto_finish, INT, "status", status),
    FIELD(struct proto_finish, TEXT, "words", words),
    FIELD(struct proto_finish, INT, "node", node),
    FIELD(struct proto_finish, INT, "code", code),
    DETAIL_FIELDS(struct proto_finish),
};

struct one_number {
    int64_t number;
};
static const struct field number_fields[] = { FIELD(struct one_number, LONG, "number", number) };

static const char *const names[PROTO_COUNT] = {
    [PROTO_JOIN] = "join",       [PROTO_REFUSED] = "refused",
    [PROTO_START] = "start",     [PROTO_PUT] = "put",
    [PROTO_EXITED] = "exited",   [PROTO_STOP] = "stop",
    [PROTO_STOPPED] = "stopped", [PROTO_EVENT] = "event",
    [PROTO_SAVED] = "saved",     [PROTO_PUBLISHED] = "published",
    [PROTO_NOTICE] = "notice",   [PROTO_ASK_STOP] = "ask_stop",
    [PROTO_FINISH] = "finish",   [PROTO_FORWARD] = "forward",
    [PROTO_WELCOME] = "welcome",
};

const char *proto_name(unsigned type)
{
    return type < PROTO_COUNT && names[type] != NULL ? names[type] : "unknown";
}

/* --- writing ----------------------------------------------------------------------------------------------------- */

static bool add_long(cJSON *object, const char *key, int64_t value)
{
    char digits[24];

    snprintf(digits, sizeof digits, "%lld", (long long)value);
    return cJSON_AddStringToObject(object, key, digits) != NULL;
}

static bool add_bytes(cJSON *object, const char *key, const unsigned char *bytes, size_t n_bytes)
{
    char hex[2 * 64 + 1];

    for (size_t i = 0; i < n_bytes; i++)
        snprintf(hex + 2 * i, 3, "%02x", bytes[i]);
    return cJSON_AddStringToObject(object, key, hex) != NULL;
}

static bool add_field(cJSON *object, const struct field *field, const void *base)
{
    const void *at = (const char *)base + field->offset;

    switch (field->kind) {
    case TEXT:
        return cJSON_AddStringToObject(object, field->key, at) != NULL;
    case INT:
        return cJSON_AddNumberToObject(object, field->key, *(const int *)at) != NULL;
    case WORD:
        return cJSON_AddNumberToObject(object, field->key, *(const uint32_t *)at) != NULL;
    case LONG:
        return add_long(object, field->key, *(const int64_t *)at);
    case BYTES:
        return add_bytes(object, field->key, at, field->size);
    }
    return false;
}

static char *write_object(const struct field *fields, size_t n_fields, const void *base)
{
    cJSON *object = cJSON_CreateObject();
    char *text = NULL;
    bool whole = object != NULL;

    for (size_t i = 0; i < n_fields && whole; i++)
        whole = add_field(object, &fields[i], base);
    if (whole)
        text = cJSON_PrintUnformatted(object);
    cJSON_Delete(object);
    return text;
}

/* --- reading ----------------------------------------------------------------------------------------------------- */

static bool read_whole(const cJSON *item, double low, double high, double *out)
{
    if (!cJSON_IsNumber(item) || item->valuedouble != floor(item->valuedouble) || item->valuedouble < low ||
        item->valuedouble > high)
        return false;
    *out = item->valuedouble;
    return true;
}

static bool read_long(const cJSON *item, int64_t *out)
{
    const char *text = cJSON_GetStringValue(item);
    char *end;

    if (text == NULL || text[0] == '\0' || strlen(text) > 20 || strspn(text, "-0123456789") != strlen(text))
        return false;
    *out = strtoll(text, &end, 10);
    return *end == '\0';
}

static bool read_bytes(const cJSON *item, unsigned char *out, size_t n_bytes)
{
    const char *text = cJSON_GetStringValue(item);

    if (text == NULL || strlen(text) != 2 * n_bytes || strspn(text, "0123456789abcdef") != 2 * n_bytes)
        return false;
    for (size_t i = 0; i < n_bytes; i++) {
        const char pair[3] = { text[2 * i], text[2 * i + 1], '\0' };

        out[i] = (unsigned char)strtoul(pair, NULL, 16);
    }
    return true;
}

static bool read_field(const cJSON *item, const struct field *field, void *base)
{
    void *at = (char *)base + field->offset;
    const char *text;
    double number;

    switch (field->kind) {
    case TEXT:
        text = cJSON_GetStringValue(item);
        if (text == NULL || strlen(text) >= field->size)
            return false;
        memcpy(at, text, strlen(text) + 1);
        return true;
    case INT:
        if (!read_whole(item, INT32_MIN, INT32_MAX, &number))
            return false;
        *(int *)at = (int)number;
        return true;
    case WORD:
        if (!read_whole(item, 0, UINT32_MAX, &number))
            return false;
        *(uint32_t *)at = (uint32_t)number;
        return true;
    case LONG:
        return read_long(item, at);
    case BYTES:
        return read_bytes(item, at, field->size);
    }
    return false;
}

static bool known(const struct field *fields, size_t n_fields, const char *key)
{
    for (size_t i = 0; i < n_fields; i++)
        if (strcmp(fields[i].key, key) == 0)
            return true;
    return false;
}

static enum fsdp_status read_object(const struct field *fields, size_t n_fields, void *base, const void *text,
                                    size_t n_bytes, struct fsdp_err *err)
{
    const char *end = NULL;
    cJSON *object = cJSON_ParseWithLengthOpts(text, n_bytes, &end, 0);
    enum fsdp_status status = FSDP_OK;

    if (!cJSON_IsObject(object) || end != (const char *)text + n_bytes) {
        status = fsdp_fail(err, FSDP_ERR_FORMAT, "a message that is no JSON object");
        goto done;
    }
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
        if (!read_field(cJSON_GetObjectItemCaseSensitive(object, fields[i].key), &fields[i], base)) {
            status = fsdp_fail(err, FSDP_ERR_FORMAT, "a message whose %s is missing or unfit", fields[i].key);
            goto done;
        }
    }
done:
    cJSON_Delete(object);
    return status;
}

#define DEFINE_MESSAGE(name, type)                                                                           \
    char *proto_write_##name(const struct type *message)                                                     \
    {                                                                                                        \
        return write_object(name##_fields, N(name##_fields), message);                                       \
    }                                                                                                        \
    enum fsdp_status proto_read_##name(struct type *message, const void *text, size_t n_bytes,               \
                                       struct fsdp_err *err)                                                 \
    {                                                                                                        \
        *message = (struct type){ 0 };                                                                       \
        return read_object(name##_fields, N(name##_fields), message, text, n_bytes, err);                    \
    }

DEFINE_MESSAGE(join, proto_join)
DEFINE_MESSAGE(refused, proto_refused)
DEFINE_MESSAGE(welcome, proto_welcome)
DEFINE_MESSAGE(start, proto_start)
DEFINE_MESSAGE(exited, proto_exited)
DEFINE_MESSAGE(published, fsdp_link_published)
DEFINE_MESSAGE(finish, proto_finish)

char *proto_write_saved(const struct fsdp_link_saved *saved, int rank)
{
    const struct ranked_saved ranked = { .rank = rank, .saved = *saved };

    return write_object(saved_fields, N(saved_fields), &ranked);
}

enum fsdp_status proto_read_saved(struct fsdp_link_saved *saved, int *rank, const void *text, size_t n_bytes,
                                  struct fsdp_err *err)
{
    struct ranked_saved ranked = { 0 };
    enum fsdp_status status = read_object(saved_fields, N(saved_fields), &ranked, text, n_bytes, err);

    *saved = ranked.saved;
    *rank = ranked.rank;
    return status;
}

char *proto_write_number(int64_t number)
{
    const struct one_number one = { number };

    return write_object(number_fields, N(number_fields), &one);
}

enum fsdp_status proto_read_number(int64_t *number, const void *text, size_t n_bytes, struct fsdp_err *err)
{
    struct one_number one = { 0 };
    enum fsdp_status status = read_object(number_fields, N(number_fields), &one, text, n_bytes, err);

    *number = one.number;
    return status;
}

enum fsdp_status proto_read_put(const char **key, const void **value, size_t *value_bytes,
                                const void *payload, size_t n_bytes, struct fsdp_err *err)
{
    const char *end = memchr(payload, '\0', n_bytes < FSDP_LINK_KEY_BYTES ? n_bytes : FSDP_LINK_KEY_BYTES);

    if (end == NULL || end == payload)
        return fsdp_fail(err, FSDP_ERR_FORMAT, "a put without a key");
    *key = payload;
    *value = end + 1;
    *value_bytes = n_bytes - (size_t)(end + 1 - (const char *)payload);
    if (*value_bytes > FSDP_LINK_VALUE_BYTES)
        return fsdp_fail(err, FSDP_ERR_FORMAT, "a put of %zu bytes", *value_bytes);
    return FSDP_OK;
}

char *proto_write_event(int rank, const char *json, size_t length, size_t *size_bytes)
{
    char *payload = malloc(16 + length);
    int head;

    if (payload == NULL)
        return NULL;
    head = snprintf(payload, 16, "%d ", rank);
    memcpy(payload + head, json, length);
    *size_bytes = (size_t)head + length;
    return payload;
}

enum fsdp_status proto_read_event(int *rank, const char **json, size_t *length, const void *payload,
                                  size_t n_bytes, struct fsdp_err *err)
{
    const char *text = payload;
    char digits[13] = { 0 }, *end;
    const char *space = memchr(text, ' ', n_bytes < sizeof digits ? n_bytes : sizeof digits - 1);

    if (space == NULL || space == text)
        return fsdp_fail(err, FSDP_ERR_FORMAT, "an event without its rank");
    memcpy(digits, text, (size_t)(space - text));
    *rank = (int)strtol(digits, &end, 10);
    if (*end != '\0' || *rank < -1)
        return fsdp_fail(err, FSDP_ERR_FORMAT, "an event of the rank %s", digits);
    *json = space + 1;
    *length = n_bytes - (size_t)(space + 1 - text);
    return FSDP_OK;
}
