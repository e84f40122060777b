#include "shard_runtime/shardfile/data_record.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/shardfile/json_reader.h"

void data_record_text(const struct data_record *record, char out[DATA_RECORD_BYTES])
{
    char checksum[CHECKSUM_TEXT_BYTES];

    checksum_text(record->bytes.checksum, checksum);
    snprintf(out, DATA_RECORD_BYTES,
             "{\"data\":{\"size_bytes\":%" PRIu64 ",\"xxh3_128\":\"%s\",\"order\":\"%s\",\"seq\":%" PRIu64
             "}}",
             record->bytes.size_bytes, checksum, record->order, record->seq);
}

static bool read_data(struct json_reader *json, struct data_record *out)
{
    enum { SIZE = 1, SUM = 2, ORDER = 4, SEQ = 8 };
    unsigned seen = 0;
    const char *key, *words;

    json_enter_object(json);
    while ((key = json_next_member(json)) != NULL) {
        if (strcmp(key, "size_bytes") == 0 && json_u64(json, &out->bytes.size_bytes)) {
            seen |= SIZE;
        } else if (strcmp(key, "seq") == 0 && json_u64(json, &out->seq)) {
            seen |= SEQ;
        } else if (strcmp(key, "xxh3_128") == 0 && (words = json_string(json)) != NULL) {
            seen |= checksum_parse(words, out->bytes.checksum) ? SUM : 0;
        } else if (strcmp(key, "order") == 0 && (words = json_string(json)) != NULL) {
            seen |= ORDER;
            snprintf(out->order, sizeof out->order, "%s", words);
        } else {
            (void)json_skip(json); /* key of a later version */
        }
    }
    if (seen != (SIZE | SUM | ORDER | SEQ))
        return json_refuse(json, "size_bytes, xxh3_128, order or seq is missing");
    return json->problem == NULL;
}

enum fsdp_status data_record_read(const struct manifest *manifest, struct data_record *out, bool *found,
                                  struct fsdp_err *err)
{
    enum fsdp_status status = FSDP_OK;
    struct json_reader json;
    const char *key;
    char *text;

    *out = (struct data_record){ 0 };
    *found = false;
    if (manifest->extra == NULL)
        return FSDP_OK;
    text = strndup(manifest->extra, manifest->extra_length);
    if (text == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for a manifest");
    json_read_init(&json, text, manifest->extra_length);
    json_enter_object(&json);
    while ((key = json_next_member(&json)) != NULL) {
        if (strcmp(key, "data") == 0)
            *found = read_data(&json, out);
        else
            (void)json_skip(&json);
    }
    if (!json_end(&json))
        status = fsdp_fail(err, FSDP_ERR_FORMAT, "what the manifest says about its data: %s", json.problem);
    free(text);
    return status;
}

bool data_record_differs(const struct data_record *was, const struct data_record *now, char *words,
                         size_t size)
{
    if (now->bytes.size_bytes != was->bytes.size_bytes)
        snprintf(words, size, "it has %" PRIu64 " bytes, and had %" PRIu64, now->bytes.size_bytes,
                 was->bytes.size_bytes);
    else if (!fingerprint_same(&now->bytes, &was->bytes))
        snprintf(words, size, "it has %" PRIu64 " bytes as before, but they differ", now->bytes.size_bytes);
    else if (strcmp(now->order, was->order) != 0)
        snprintf(words, size, "data.order was %s, and is %s", was->order, now->order);
    else if (now->seq != was->seq)
        snprintf(words, size, "model.seq was %" PRIu64 ", and is %" PRIu64, was->seq, now->seq);
    else
        return false;
    return true;
}
