#include "shard_runtime/shardfile/weights_index.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/shardfile/json_reader.h"

static bool add(struct json_reader *json, struct weights_index *out, const char *tensor, const char *file)
{
    if (file == NULL)
        return false;
    if (!io_name_is_plain(file))
        return json_refuse(json, "the name of a file in another directory, or none");
    if (!json_make_room(json, &out->entries, out->n_entries, sizeof *out->entries))
        return false;
    out->entries[out->n_entries++] = (struct weights_index_entry){ tensor, file };
    return true;
}

static bool parse_map(struct json_reader *json, struct weights_index *out)
{
    const char *tensor;

    json_enter_object(json);
    while ((tensor = json_next_member(json)) != NULL)
        if (!add(json, out, tensor, json_string(json)))
            return false;
    return json->problem == NULL;
}

static bool parse_object(struct json_reader *json, struct weights_index *out)
{
    bool seen = false;
    const char *key;

    json_enter_object(json);
    while ((key = json_next_member(json)) != NULL) {
        if (strcmp(key, "weight_map") != 0) {
            if (!json_skip(json))
                return false;
            continue;
        }
        if (seen)
            return json_refuse(json, "weight_map is there twice");
        seen = true;
        if (!parse_map(json, out))
            return false;
    }
    if (json->problem == NULL && !seen)
        return json_refuse(json, "there is no weight_map");
    return json_end(json);
}

static int compare_tensors(const void *a, const void *b)
{
    const struct weights_index_entry *one = a, *two = b;

    return strcmp(one->tensor, two->tensor);
}

/*
 * Parses `length` bytes of JSON: {"weight_map": {"<tensor>": "<file>", ...}, ...}. Ignores other members.
 * Takes ownership of `text` (allocated by malloc), even on failure. The message of FSDP_ERR_FORMAT names the
 * problem and its position.
 */
static enum fsdp_status parse(struct weights_index *out, char *text, size_t length, struct fsdp_err *err)
{
    enum fsdp_status status = FSDP_OK;
    struct json_reader json;

    *out = (struct weights_index){ .text = text };
    json_read_init(&json, text, length);
    if (!parse_object(&json, out))
        status = fsdp_fail(err, FSDP_ERR_FORMAT, "byte %zu: %s", json.at, json.problem);
    if (status == FSDP_OK && out->n_entries > 1)
        qsort(out->entries, out->n_entries, sizeof *out->entries, compare_tensors);
    for (size_t i = 1; i < out->n_entries && status == FSDP_OK; i++)
        if (strcmp(out->entries[i - 1].tensor, out->entries[i].tensor) == 0)
            status = fsdp_fail(err, FSDP_ERR_FORMAT, "weight_map has %.200s twice", out->entries[i].tensor);
    if (status != FSDP_OK)
        weights_index_free(out);
    return status;
}

enum fsdp_status weights_index_read(struct weights_index *out, struct fsdp_io *io, int fd,
                                    uint64_t size_bytes, const char *path, struct fsdp_err *err)
{
    const size_t length = (size_t)size_bytes;
    enum fsdp_status status;
    char *text;

    *out = (struct weights_index){ 0 };
    if (size_bytes > WEIGHTS_INDEX_MAX_BYTES)
        return fsdp_fail(err, FSDP_ERR_FORMAT, "an index of %llu bytes, more than %d",
                         (unsigned long long)size_bytes, WEIGHTS_INDEX_MAX_BYTES);
    text = malloc(length + 1);
    if (text == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "%zu bytes for the index", length);
    status = io_read_all(io, fd, text, length, 0, path, err);
    if (status == FSDP_OK)
        return parse(out, text, length, err);
    free(text);
    return status;
}

void weights_index_free(struct weights_index *index)
{
    free(index->entries);
    free(index->text);
    *index = (struct weights_index){ 0 };
}
