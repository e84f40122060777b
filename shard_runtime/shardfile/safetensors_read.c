#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/checked.h"
#include "shard_runtime/core/require.h"
#include "shard_runtime/shardfile/json_reader.h"
#include "shard_runtime/shardfile/safetensors.h"

/* Every element type of the format with its size in bits. */
static const struct {
    const char *name;
    unsigned bits;
} dtypes[] = {
    { "BOOL", 8 }, { "F4", 4 },      { "F6_E2M3", 6 }, { "F6_E3M2", 6 },     { "U8", 8 },
    { "I8", 8 },   { "F8_E5M2", 8 }, { "F8_E4M3", 8 }, { "F8_E8M0", 8 },     { "I16", 16 },
    { "U16", 16 }, { "F16", 16 },    { "BF16", 16 },   { "F8_E4M3FNUZ", 8 }, { "F8_E5M2FNUZ", 8 },
    { "I32", 32 }, { "U32", 32 },    { "F32", 32 },    { "C64", 64 },        { "F64", 64 },
    { "I64", 64 }, { "U64", 64 },
};

static unsigned dtype_bits(const char *name)
{
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (strcmp(dtypes[i].name, name) == 0)
            return dtypes[i].bits;
    return 0;
}

/* Returns true if a tensor of this dtype and shape has exactly end - begin bytes. */
static bool size_fits(const struct safetensors_tensor *tensor)
{
    uint64_t bits = dtype_bits(tensor->dtype_name);

    for (size_t d = 0; d < tensor->n_dims; d++)
        if (__builtin_mul_overflow(bits, tensor->shape[d], &bits))
            return false;
    return bits % 8 == 0 && tensor->end >= tensor->begin && tensor->end - tensor->begin == bits / 8;
}

/* Reads a list of at most SAFETENSORS_MAX_DIMS whole numbers. */
static bool parse_dims(struct json_reader *json, uint64_t dims[SAFETENSORS_MAX_DIMS], size_t *n_dims)
{
    *n_dims = 0;
    json_enter_array(json);
    while (json_next_element(json)) {
        if (*n_dims == SAFETENSORS_MAX_DIMS)
            return json_refuse(json, "more than 8 dimensions");
        if (!json_u64(json, &dims[(*n_dims)++]))
            return false;
    }
    return json->problem == NULL;
}

static bool parse_entry(struct json_reader *json, struct safetensors_tensor *tensor)
{
    enum { DTYPE = 1, SHAPE = 2, OFFSETS = 4 };
    uint64_t offsets[SAFETENSORS_MAX_DIMS];
    unsigned seen = 0;
    const char *key;
    size_t n;

    json_enter_object(json);
    while ((key = json_next_member(json)) != NULL) {
        const unsigned bit = strcmp(key, "dtype") == 0          ? DTYPE
                             : strcmp(key, "shape") == 0        ? SHAPE
                             : strcmp(key, "data_offsets") == 0 ? OFFSETS
                                                                : 0;

        if (bit == 0 || (seen & bit) != 0)
            return json_refuse(json, "an unknown or doubled key of a tensor");
        seen |= bit;
        if (bit == DTYPE) {
            tensor->dtype_name = json_string(json);
            if (tensor->dtype_name == NULL || dtype_bits(tensor->dtype_name) == 0)
                return json_refuse(json, "an unknown dtype");
            tensor->dtype = FSDP_DTYPE_COUNT;
            for (int i = 0; i < FSDP_DTYPE_COUNT; i++)
                if (strcmp(fsdp_dtype_safetensors_name((enum fsdp_dtype)i), tensor->dtype_name) == 0)
                    tensor->dtype = (enum fsdp_dtype)i;
        } else if (bit == SHAPE) {
            if (!parse_dims(json, tensor->shape, &tensor->n_dims))
                return false;
        } else {
            if (!parse_dims(json, offsets, &n))
                return false;
            if (n != 2)
                return json_refuse(json, "data_offsets are two numbers");
            tensor->begin = offsets[0];
            tensor->end = offsets[1];
        }
    }
    if (json->problem != NULL)
        return false;
    if (seen != (DTYPE | SHAPE | OFFSETS))
        return json_refuse(json, "a tensor without dtype, shape or data_offsets");
    return size_fits(tensor) || json_refuse(json, "data_offsets that are not the size of the shape");
}

/*
 * Reads the "__metadata__" object. *sharding receives the value of DCP_SHARDING_INFO, which points into the
 * header's text, and *length its length. The caller parses that value later.
 */
static bool parse_metadata(struct json_reader *json, struct safetensors_header *out, char **sharding,
                           size_t *length)
{
    const char *key;
    json_enter_object(json);
    while ((key = json_next_member(json)) != NULL) {
        const char *value = json_string(json);

        if (value == NULL)
            return false;
        if (strcmp(key, "DCP_SHARDING_INFO") == 0) {
            if (*sharding != NULL)
                return json_refuse(json, "DCP_SHARDING_INFO is there twice");
            *sharding = out->text + (value - out->text);
            *length = strlen(value);
            continue;
        }
        if (!json_make_room(json, &out->metadata, out->n_metadata, sizeof *out->metadata))
            return false;
        out->metadata[out->n_metadata++] = (struct safetensors_metadata){ key, value };
    }
    return json->problem == NULL;
}

static bool parse_object(struct json_reader *json, struct safetensors_header *out, char **sharding,
                         size_t *length)
{
    bool metadata_seen = false;
    const char *name;
    json_enter_object(json);
    while ((name = json_next_member(json)) != NULL) {
        if (strcmp(name, "__metadata__") == 0) {
            if (metadata_seen)
                return json_refuse(json, "__metadata__ is there twice");
            metadata_seen = true;
            if (!parse_metadata(json, out, sharding, length))
                return false;
            continue;
        }
        if (!json_make_room(json, &out->tensors, out->n_tensors, sizeof *out->tensors))
            return false;
        out->tensors[out->n_tensors] = (struct safetensors_tensor){ .name = name };
        if (!parse_entry(json, &out->tensors[out->n_tensors]))
            return false;
        out->n_tensors++;
    }
    return json_end(json);
}

static int compare_places(const void *a, const void *b)
{
    const struct safetensors_tensor *one = a, *two = b;

    if (one->begin != two->begin)
        return one->begin < two->begin ? -1 : 1;
    if (one->end != two->end)
        return one->end < two->end ? -1 : 1;
    return strcmp(one->name, two->name);
}

static int compare_keys(const void *a, const void *b)
{
    const struct safetensors_metadata *one = a, *two = b;

    return strcmp(one->key, two->key);
}

/* Refuses duplicate keys. Sorts the keys to find them, because the format does not limit their number. */
static enum fsdp_status check_metadata(struct safetensors_header *header, struct fsdp_err *err)
{
    if (header->n_metadata > 1)
        qsort(header->metadata, header->n_metadata, sizeof *header->metadata, compare_keys);
    for (size_t i = 1; i < header->n_metadata; i++)
        if (strcmp(header->metadata[i - 1].key, header->metadata[i].key) == 0)
            return fsdp_fail(err, FSDP_ERR_FORMAT, "__metadata__ has the key \"%.200s\" twice",
                             header->metadata[i].key);
    return FSDP_OK;
}

static enum fsdp_status check_places(const struct safetensors_header *header, struct fsdp_err *err)
{
    uint64_t at = 0, size;

    for (size_t i = 0; i < header->n_tensors; i++) {
        const struct safetensors_tensor *tensor = &header->tensors[i];

        if (tensor->begin != at)
            return fsdp_fail(err, FSDP_ERR_FORMAT, "the data of %.200s starts at %llu, not at %llu",
                             tensor->name, (unsigned long long)tensor->begin, (unsigned long long)at);
        at = tensor->end;
    }
    if (__builtin_add_overflow(header->data_start, at, &size) || size != header->size_bytes)
        return fsdp_fail(err, FSDP_ERR_FORMAT,
                         "%llu bytes of header and %llu of tensors, but the file has %llu",
                         (unsigned long long)header->data_start, (unsigned long long)at,
                         (unsigned long long)header->size_bytes);
    return FSDP_OK;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp((*(struct safetensors_tensor *const *)a)->name,
                  (*(struct safetensors_tensor *const *)b)->name);
}

/* Reads {"saved_offsets": [...], "global_shape": [...]}. Skips other keys: a newer writer may add some. */
static bool parse_shard(struct json_reader *json, struct safetensors_tensor *tensor)
{
    const char *key;
    size_t n;

    json_enter_object(json);
    while ((key = json_next_member(json)) != NULL) {
        if (strcmp(key, "saved_offsets") == 0) {
            if (tensor->has_offsets)
                return json_refuse(json, "saved_offsets is there twice");
            if (!parse_dims(json, tensor->offsets, &n))
                return false;
            tensor->has_offsets = true;
        } else if (strcmp(key, "global_shape") == 0) {
            if (tensor->has_global_shape)
                return json_refuse(json, "global_shape is there twice");
            if (!parse_dims(json, tensor->global_shape, &n))
                return false;
            tensor->has_global_shape = true;
        } else {
            if (!json_skip(json))
                return false;
            continue;
        }
        if (n != tensor->n_dims)
            return json_refuse(json, "sharding information of other dimensions than the tensor");
    }
    if (json->problem == NULL && !tensor->has_offsets)
        return json_refuse(json, "a tensor without saved_offsets");
    for (size_t d = 0; d < tensor->n_dims && json->problem == NULL; d++) {
        uint64_t end;

        if (__builtin_add_overflow(tensor->offsets[d], tensor->shape[d], &end) ||
            (tensor->has_global_shape && end > tensor->global_shape[d]))
            json_refuse(json, "a shard that reaches out of its tensor");
    }
    return json->problem == NULL;
}

static enum fsdp_status parse_sharding(struct safetensors_tensor **sorted, size_t n_tensors, char *text,
                                       size_t length, struct fsdp_err *err)
{
    struct json_reader json;
    const char *name;

    json_read_init(&json, text, length);
    json_enter_object(&json);
    while ((name = json_next_member(&json)) != NULL) {
        const struct safetensors_tensor wanted = { .name = name }, *key = &wanted;
        struct safetensors_tensor *const *found =
            bsearch(&key, sorted, n_tensors, sizeof *sorted, compare_names);

        if (found == NULL)
            return fsdp_fail(err, FSDP_ERR_FORMAT,
                             "DCP_SHARDING_INFO names \"%.200s\", which is not in the file", name);
        if ((*found)->has_offsets)
            return fsdp_fail(err, FSDP_ERR_FORMAT, "DCP_SHARDING_INFO names %.200s twice", name);
        if (!parse_shard(&json, *found))
            break;
    }
    if (!json_end(&json))
        return fsdp_fail(err, FSDP_ERR_FORMAT, "DCP_SHARDING_INFO, byte %zu: %s", json.at, json.problem);
    for (size_t i = 0; i < n_tensors; i++)
        if (!sorted[i]->has_offsets)
            return fsdp_fail(err, FSDP_ERR_FORMAT, "%.200s is not in DCP_SHARDING_INFO", sorted[i]->name);
    return FSDP_OK;
}

/*
 * Sorts the tensors by name, then refuses duplicate names and matches the sharding information to its
 * tensors.
 */
static enum fsdp_status check_names(struct safetensors_header *header, char *sharding, size_t length,
                                    struct fsdp_err *err)
{
    struct safetensors_tensor **sorted =
        malloc((header->n_tensors + 1) * sizeof(struct safetensors_tensor *));
    enum fsdp_status status = FSDP_OK;

    if (sorted == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "memory for %zu names", header->n_tensors);
    for (size_t i = 0; i < header->n_tensors; i++)
        sorted[i] = &header->tensors[i];
    qsort(sorted, header->n_tensors, sizeof *sorted, compare_names);
    for (size_t i = 1; i < header->n_tensors && status == FSDP_OK; i++)
        if (strcmp(sorted[i - 1]->name, sorted[i]->name) == 0)
            status = fsdp_fail(err, FSDP_ERR_FORMAT, "%.200s is there twice", sorted[i]->name);
    if (status == FSDP_OK && sharding != NULL)
        status = parse_sharding(sorted, header->n_tensors, sharding, length, err);
    free(sorted);
    return status;
}

enum fsdp_status safetensors_parse(struct safetensors_header *out, char *text, size_t length,
                                   uint64_t size_bytes, struct fsdp_err *err)
{
    enum fsdp_status status = FSDP_OK;
    size_t sharding_length = 0, end = length;
    struct json_reader json;
    char *sharding = NULL;

    *out = (struct safetensors_header){ .text = text,
                                        .data_start = 8 + (uint64_t)length,
                                        .size_bytes = size_bytes };
    while (end > 0 && text[end - 1] == ' ')
        end--; /* padding consists of spaces at the end */
    json_read_init(&json, text, end);
    if (end == 0 || text[0] != '{' || text[end - 1] != '}')
        json_refuse(&json, "the header is no JSON object");
    if (json.problem != NULL || !parse_object(&json, out, &sharding, &sharding_length))
        status = fsdp_fail(err, FSDP_ERR_FORMAT, "header byte %zu: %s", json.at, json.problem);
    if (status == FSDP_OK)
        status = check_metadata(out, err);
    if (status == FSDP_OK && out->n_tensors > 1)
        qsort(out->tensors, out->n_tensors, sizeof *out->tensors, compare_places);
    if (status == FSDP_OK)
        status = check_places(out, err);
    if (status == FSDP_OK)
        status = check_names(out, sharding, sharding_length, err);
    if (status != FSDP_OK)
        safetensors_free(out);
    return status;
}

static enum fsdp_status read_header(struct fsdp_io *io, int fd, const char *path, uint64_t size_bytes,
                                    struct safetensors_header *out, struct fsdp_err *err)
{
    unsigned char prefix[8];
    enum fsdp_status status;
    uint64_t length = 0;
    char *text;

    if (size_bytes < sizeof prefix)
        return fsdp_fail(err, FSDP_ERR_FORMAT, "a file of %llu bytes", (unsigned long long)size_bytes);
    OK_OR_RETURN(io_read_all(io, fd, prefix, sizeof prefix, 0, path, err));
    for (size_t i = sizeof prefix; i-- > 0;)
        length = length << 8 | prefix[i];
    if (length == 0 || length > SAFETENSORS_MAX_HEADER_BYTES || length > size_bytes - sizeof prefix)
        return fsdp_fail(err, FSDP_ERR_FORMAT, "a header of %llu bytes in a file of %llu",
                         (unsigned long long)length, (unsigned long long)size_bytes);
    text = malloc((size_t)length);
    if (text == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "%llu bytes for the header", (unsigned long long)length);
    status = io_read_all(io, fd, text, (size_t)length, sizeof prefix, path, err);
    if (status != FSDP_OK) {
        free(text);
        return status;
    }
    return safetensors_parse(out, text, (size_t)length, size_bytes, err);
}

enum fsdp_status safetensors_read(struct fsdp_io *io, int fd, const char *path, uint64_t size_bytes,
                                  struct safetensors_header *out, struct fsdp_err *err)
{
    enum fsdp_status status;

    *out = (struct safetensors_header){ 0 };
    status = read_header(io, fd, path, size_bytes, out, err);
    if (status != FSDP_OK)
        fsdp_wrap(err, "%s", path);
    return status;
}

enum fsdp_status safetensors_open(struct fsdp_io *io, const char *path, struct safetensors_header *out,
                                  int *fd, struct fsdp_err *err)
{
    enum fsdp_status status;
    uint64_t size_bytes;
    int opened;

    *out = (struct safetensors_header){ 0 };
    if (fd != NULL)
        *fd = -1;
    OK_OR_RETURN(io_open_read(io, path, &opened, &size_bytes, err));
    status = safetensors_read(io, opened, path, size_bytes, out, err);
    if (status == FSDP_OK && fd != NULL)
        *fd = opened;
    else
        io->close(io, opened);
    return status;
}

const char *safetensors_metadata_get(const struct safetensors_header *header, const char *key)
{
    const struct safetensors_metadata wanted = { .key = key };
    const struct safetensors_metadata *found =
        header->n_metadata == 0
            ? NULL
            : bsearch(&wanted, header->metadata, header->n_metadata, sizeof *header->metadata, compare_keys);

    return found == NULL ? NULL : found->value;
}

void safetensors_free(struct safetensors_header *header)
{
    free(header->tensors);
    free(header->metadata);
    free(header->text);
    *header = (struct safetensors_header){ 0 };
}
