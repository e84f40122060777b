#include "shard_runtime/shardfile/manifest.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "shard_runtime/core/json.h"
#include "shard_runtime/core/require.h"
#include "shard_runtime/shardfile/fingerprint.h"
#include "shard_runtime/shardfile/json_reader.h"

#define FORMAT_NAME "fsdp-checkpoint"

/* The last member and the end of the text: `"manifest_xxh3_128":"`, 32 digits, `"}` and a newline. */
#define SEAL_KEY "manifest_xxh3_128"
static const char seal_open[] = ",\n\"" SEAL_KEY "\":\"", seal_close[] = "\"}\n";
enum { SEAL_BYTES = sizeof seal_open - 1 + CHECKSUM_TEXT_BYTES - 1 + sizeof seal_close - 1 };

void manifest_shard_name(uint32_t rank, char out[MANIFEST_SHARD_NAME_BYTES])
{
    snprintf(out, MANIFEST_SHARD_NAME_BYTES, "shard-%05lu-model-00001-of-00001.safetensors",
             (unsigned long)rank + 1);
}

static void seal_digest(const char *text, size_t length, char out[CHECKSUM_TEXT_BYTES])
{
    const XXH128_hash_t hash = XXH3_128bits(text, length);

    checksum_text((const uint64_t[2]){ hash.low64, hash.high64 }, out);
}

/* The kinds of members in manifest.json. A head has neither FILES nor SEAL. */
enum kind { FORMAT, VERSION, NUMBER, RAW, TENSORS, FILES, SEAL };

/* Every member, in the order in which it is written. Only RAW members may be absent. */
static const struct member {
    const char *name;
    enum kind kind;
    /*
     * Offsets in struct manifest. `field` is that of a NUMBER's or RAW's value, `length` that of a RAW's
     * length.
     */
    size_t field, length;
} members[] = {
    { "format", FORMAT, 0, 0 },
    { "format_version", VERSION, 0, 0 },
    { "step", NUMBER, offsetof(struct manifest, step), 0 },
    { "world_size", NUMBER, offsetof(struct manifest, world_size), 0 },
    { "generation", NUMBER, offsetof(struct manifest, generation), 0 },
    { "seed", NUMBER, offsetof(struct manifest, seed), 0 },
    { "cursor", NUMBER, offsetof(struct manifest, cursor), 0 },
    { "optimizer_step", NUMBER, offsetof(struct manifest, optimizer_step), 0 },
    { "numerics", RAW, offsetof(struct manifest, numerics), offsetof(struct manifest, numerics_length) },
    { "job", RAW, offsetof(struct manifest, job), offsetof(struct manifest, job_length) },
    { "extra", RAW, offsetof(struct manifest, extra), offsetof(struct manifest, extra_length) },
    { "tensors", TENSORS, 0, 0 },
    { "files", FILES, 0, 0 },
    { SEAL_KEY, SEAL, 0, 0 },
};
enum { N_MEMBERS = sizeof members / sizeof *members };

/* Writing */

static bool add_raw(struct json_text *text, const char *key, const char *raw, size_t length)
{
    if (raw == NULL)
        return true;
    if (length == 0)
        length = strlen(raw);
    if (!json_is_object(raw, length))
        return false;
    json_add(text, ",\n\"%s\":", key);
    json_add_bytes(text, raw, length);
    return true;
}

static void add_tensors(struct json_text *text, const struct manifest *head)
{
    json_add(text, ",\n\"tensors\":[");
    for (size_t i = 0; i < head->n_tensors; i++) {
        const struct manifest_tensor *tensor = &head->tensors[i];

        json_add(text, "%s\n{\"name\":", i == 0 ? "" : ",");
        json_add_string(text, tensor->name);
        json_add(text, ",\"dtype\":\"%s\",\"shape\":[", fsdp_dtype_safetensors_name(tensor->dtype));
        for (size_t d = 0; d < tensor->n_dims; d++)
            json_add(text, "%s%llu", d == 0 ? "" : ",", (unsigned long long)tensor->shape[d]);
        json_add(text, "]}");
    }
    json_add(text, "]");
}

static enum fsdp_status take_text(struct json_text *built, char **text, size_t *length, struct fsdp_err *err)
{
    if (built->failed || built->length > MANIFEST_MAX_BYTES) {
        const bool failed = built->failed;

        json_text_free(built);
        return failed ? fsdp_fail(err, FSDP_ERR_NOMEM, "memory for a manifest")
                      : fsdp_fail(err, FSDP_ERR_ARG, "a manifest of more than %d bytes", MANIFEST_MAX_BYTES);
    }
    *text = built->bytes;
    *length = built->length;
    return FSDP_OK;
}

enum fsdp_status manifest_head_text(const struct manifest *head, char **text, size_t *length,
                                    struct fsdp_err *err)
{
    struct json_text built = { 0 };

    *text = NULL;
    *length = 0;
    json_add(&built, "{\"format\":\"" FORMAT_NAME "\",\n\"format_version\":%d", MANIFEST_FORMAT_VERSION);
    for (size_t i = 0; i < N_MEMBERS; i++) {
        const void *field = (const char *)head + members[i].field;
        const void *raw_length = (const char *)head + members[i].length;

        if (members[i].kind == NUMBER)
            json_add(&built, ",\n\"%s\":%" PRIu64, members[i].name, *(const uint64_t *)field);
        if (members[i].kind == RAW &&
            !add_raw(&built, members[i].name, *(const char *const *)field, *(const size_t *)raw_length)) {
            json_text_free(&built);
            return fsdp_fail(err, FSDP_ERR_ARG, "numerics, job and extra of a manifest are JSON objects");
        }
    }
    add_tensors(&built, head);
    json_add(&built, "}");
    return take_text(&built, text, length, err);
}

enum fsdp_status manifest_compose(const char *head, size_t head_length, const struct manifest_file *files,
                                  size_t n_files, char **text, size_t *length, struct fsdp_err *err)
{
    struct json_text built = { 0 };
    char digest[CHECKSUM_TEXT_BYTES];

    *text = NULL;
    *length = 0;
    while (head_length > 0 && strchr(" \t\r\n", head[head_length - 1]) != NULL)
        head_length--;
    if (!json_is_object(head, head_length))
        return fsdp_fail(err, FSDP_ERR_FORMAT, "the head of the manifest is no JSON object");
    json_add_bytes(&built, head, head_length - 1); /* all but its closing brace */
    json_add(&built, ",\n\"files\":[");
    for (size_t i = 0; i < n_files; i++) {
        checksum_text(files[i].checksum, digest);
        json_add(&built, "%s\n{\"name\":", i == 0 ? "" : ",");
        json_add_string(&built, files[i].name);
        json_add(&built, ",\"rank\":%lu,\"size_bytes\":%llu,\"xxh3_128\":\"%s\"}",
                 (unsigned long)files[i].rank, (unsigned long long)files[i].size_bytes, digest);
    }
    json_add(&built, "]");
    if (!built.failed) {
        seal_digest(built.bytes, built.length, digest);
        json_add(&built, "%s%s%s", seal_open, digest, seal_close);
    }
    return take_text(&built, text, length, err);
}

/* Reading */

static bool parse_tensor(struct json_reader *json, struct manifest_tensor *tensor)
{
    enum { NAME = 1, DTYPE = 2, SHAPE = 4 };
    unsigned seen = 0;
    const char *key;

    *tensor = (struct manifest_tensor){ 0 };
    json_enter_object(json);
    while ((key = json_next_member(json)) != NULL) {
        const unsigned bit = strcmp(key, "name") == 0    ? NAME
                             : strcmp(key, "dtype") == 0 ? DTYPE
                             : strcmp(key, "shape") == 0 ? SHAPE
                                                         : 0;
        const char *dtype;

        if (bit == 0 || (seen & bit) != 0)
            return json_refuse(json, "an unknown or doubled key of a tensor");
        seen |= bit;
        if (bit == NAME) {
            tensor->name = json_string(json);
            if (tensor->name != NULL && tensor->name[0] == '\0')
                return json_refuse(json, "a tensor without a name");
        } else if (bit == DTYPE) {
            dtype = json_string(json);
            if (dtype != NULL && (!fsdp_dtype_parse(dtype, &tensor->dtype) ||
                                  strcmp(fsdp_dtype_safetensors_name(tensor->dtype), dtype) != 0))
                return json_refuse(json, "an unknown dtype");
        } else {
            json_enter_array(json);
            while (json_next_element(json)) {
                if (tensor->n_dims == MANIFEST_MAX_DIMS)
                    return json_refuse(json, "a tensor of too many dimensions");
                if (!json_u64(json, &tensor->shape[tensor->n_dims++]))
                    return false;
            }
        }
    }
    if (json->problem == NULL && seen != (NAME | DTYPE | SHAPE))
        return json_refuse(json, "a tensor without name, dtype or shape");
    return json->problem == NULL;
}

static bool parse_file(struct json_reader *json, struct manifest_file *file)
{
    enum { NAME = 1, RANK = 2, SIZE = 4, SUM = 8 };
    unsigned seen = 0;
    const char *key;

    *file = (struct manifest_file){ 0 };
    json_enter_object(json);
    while ((key = json_next_member(json)) != NULL) {
        const unsigned bit = strcmp(key, "name") == 0         ? NAME
                             : strcmp(key, "rank") == 0       ? RANK
                             : strcmp(key, "size_bytes") == 0 ? SIZE
                             : strcmp(key, "xxh3_128") == 0   ? SUM
                                                              : 0;
        const char *words;
        uint64_t rank;

        if (bit == 0 || (seen & bit) != 0)
            return json_refuse(json, "an unknown or doubled key of a file");
        seen |= bit;
        if (bit == NAME) {
            file->name = json_string(json);
            if (file->name != NULL && !io_name_is_plain(file->name))
                return json_refuse(json, "a name that is no plain file name");
        } else if (bit == RANK) {
            if (json_u64(json, &rank)) {
                if (rank >= MANIFEST_MAX_WORLD)
                    return json_refuse(json, "a rank out of range");
                file->rank = (uint32_t)rank;
            }
        } else if (bit == SIZE) {
            json_u64(json, &file->size_bytes);
        } else {
            words = json_string(json);
            if (words != NULL && !checksum_parse(words, file->checksum))
                return json_refuse(json, "a checksum that is not 32 hexadecimal digits");
        }
    }
    if (json->problem == NULL && seen != (NAME | RANK | SIZE | SUM))
        return json_refuse(json, "a file without name, rank, size_bytes or xxh3_128");
    return json->problem == NULL;
}

static bool parse_tensors(struct json_reader *json, struct manifest *out)
{
    json_enter_array(json);
    while (json_next_element(json)) {
        if (!json_make_room(json, &out->tensors, out->n_tensors, sizeof *out->tensors))
            return false;
        if (!parse_tensor(json, &out->tensors[out->n_tensors]))
            return false;
        out->n_tensors++;
    }
    return json->problem == NULL;
}

static bool parse_files(struct json_reader *json, struct manifest *out)
{
    json_enter_array(json);
    while (json_next_element(json)) {
        if (!json_make_room(json, &out->files, out->n_files, sizeof *out->files))
            return false;
        if (!parse_file(json, &out->files[out->n_files]))
            return false;
        out->n_files++;
    }
    return json->problem == NULL;
}

static bool parse_format(struct json_reader *json)
{
    const char *words = json_string(json);

    return words != NULL &&
           (strcmp(words, FORMAT_NAME) == 0 || json_refuse(json, "format is not " FORMAT_NAME));
}

static bool parse_value(struct json_reader *json, const struct member *member, struct manifest *out,
                        uint64_t *version)
{
    void *field = (char *)out + member->field;

    switch (member->kind) {
    case FORMAT:
        return parse_format(json);
    case VERSION:
        return json_u64(json, version);
    case NUMBER:
        return json_u64(json, field);
    case RAW:
        return json_raw_object(json, field, (void *)((char *)out + member->length));
    case TENSORS:
        return parse_tensors(json, out);
    case FILES:
        return parse_files(json, out);
    case SEAL:
        return json_string(json) != NULL; /* verified before parsing began */
    }
    return false;
}

/*
 * Returns the index in members[] of the member called `name`, or N_MEMBERS if there is none. Unless `whole`,
 * only members of a head are found.
 */
static size_t find_member(const char *name, bool whole)
{
    size_t i = 0;

    while (i < N_MEMBERS && (strcmp(members[i].name, name) != 0 || (!whole && members[i].kind >= FILES)))
        i++;
    return i;
}

static int compare_tensor_names(const void *a, const void *b)
{
    return strcmp((*(const struct manifest_tensor *const *)a)->name,
                  (*(const struct manifest_tensor *const *)b)->name);
}

enum fsdp_status manifest_sort(const struct manifest *manifest, const struct manifest_tensor ***sorted,
                               struct fsdp_err *err)
{
    *sorted = malloc((manifest->n_tensors + 1) * sizeof(const struct manifest_tensor *));
    if (*sorted == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "memory for %zu names", manifest->n_tensors);
    for (size_t i = 0; i < manifest->n_tensors; i++)
        (*sorted)[i] = &manifest->tensors[i];
    qsort(*sorted, manifest->n_tensors, sizeof **sorted, compare_tensor_names);
    return FSDP_OK;
}

const struct manifest_tensor *manifest_find(const struct manifest_tensor *const *sorted, size_t n,
                                            const char *name)
{
    const struct manifest_tensor wanted = { .name = name }, *key = &wanted;
    const struct manifest_tensor *const *found =
        bsearch(&key, sorted, n, sizeof *sorted, compare_tensor_names);

    return found == NULL ? NULL : *found;
}

static enum fsdp_status refuse_doubled_tensors(const struct manifest *manifest, struct fsdp_err *err)
{
    const struct manifest_tensor **sorted;
    enum fsdp_status status = manifest_sort(manifest, &sorted, err);

    for (size_t i = 1; i < manifest->n_tensors && status == FSDP_OK; i++)
        if (strcmp(sorted[i - 1]->name, sorted[i]->name) == 0)
            status = fsdp_fail(err, FSDP_ERR_FORMAT, "tensor %s is listed twice", sorted[i]->name);
    free(sorted);
    return status;
}

static enum fsdp_status check_meaning(const struct manifest *manifest, struct fsdp_err *err)
{
    char name[MANIFEST_SHARD_NAME_BYTES];

    if (manifest->world_size < 1 || manifest->world_size > MANIFEST_MAX_WORLD)
        return fsdp_fail(err, FSDP_ERR_FORMAT, "a world of %llu ranks",
                         (unsigned long long)manifest->world_size);
    if (manifest->step > INT64_MAX || manifest->generation > UINT32_MAX)
        return fsdp_fail(err, FSDP_ERR_FORMAT, "step or generation out of range");
    for (size_t i = 0; i < manifest->n_files; i++) {
        const struct manifest_file *file = &manifest->files[i];

        manifest_shard_name(file->rank, name);
        if (strcmp(file->name, name) != 0)
            return fsdp_fail(err, FSDP_ERR_FORMAT, "the file of rank %lu is called \"%.80s\"",
                             (unsigned long)file->rank, file->name);
        if (file->rank >= manifest->world_size || (i > 0 && file->rank <= manifest->files[i - 1].rank))
            return fsdp_fail(err, FSDP_ERR_FORMAT, "file %s is out of order or of no rank", file->name);
    }
    return refuse_doubled_tensors(manifest, err);
}

static enum fsdp_status parse(struct manifest *out, const char *text, size_t length, bool whole,
                              struct fsdp_err *err)
{
    enum fsdp_status status = FSDP_OK;
    struct json_reader json;
    uint64_t version = 0;
    unsigned seen = 0;
    const char *name;

    *out = (struct manifest){ 0 };
    out->text = malloc(length + 1);
    if (out->text == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "%zu bytes for a manifest", length);
    memcpy(out->text, text, length);
    out->text[length] = '\0';
    json_read_init(&json, out->text, length);
    json_enter_object(&json);
    while ((name = json_next_member(&json)) != NULL) {
        const size_t i = find_member(name, whole);

        if (i == N_MEMBERS || (seen & 1u << i) != 0) {
            status = fsdp_fail(err, FSDP_ERR_FORMAT, "key \"%.64s\" is %s", name,
                               i == N_MEMBERS ? "unknown" : "there twice");
            break;
        }
        seen |= 1u << i;
        if (!parse_value(&json, &members[i], out, &version))
            break;
        if (members[i].kind == VERSION && version != MANIFEST_FORMAT_VERSION) {
            status =
                fsdp_fail(err, FSDP_ERR_UNSUPPORTED, "format version %llu; this program reads version %d",
                          (unsigned long long)version, MANIFEST_FORMAT_VERSION);
            break;
        }
    }
    if (status == FSDP_OK && !json_end(&json))
        status = fsdp_fail(err, FSDP_ERR_FORMAT, "byte %zu: %s", json.at, json.problem);
    for (size_t i = 0; i < N_MEMBERS && status == FSDP_OK; i++)
        if (members[i].kind != RAW && (whole || members[i].kind < FILES) && (seen & 1u << i) == 0)
            status = fsdp_fail(err, FSDP_ERR_FORMAT, "key \"%s\" is missing", members[i].name);
    if (status == FSDP_OK)
        status = check_meaning(out, err);
    if (status != FSDP_OK)
        manifest_free(out);
    return status;
}

enum fsdp_status manifest_parse_head(struct manifest *out, const char *text, size_t length,
                                     struct fsdp_err *err)
{
    const enum fsdp_status status = parse(out, text, length, false, err);

    if (status != FSDP_OK)
        fsdp_wrap(err, "the head of the manifest");
    return status;
}

/*
 * Returns true if the text ends in the seal that belongs to the bytes before it. A seal can be written in
 * only one way.
 */
static bool seal_holds(const char *text, size_t length)
{
    char seal[SEAL_BYTES + 1], digest[CHECKSUM_TEXT_BYTES];

    if (length < SEAL_BYTES)
        return false;
    seal_digest(text, length - SEAL_BYTES, digest);
    snprintf(seal, sizeof seal, "%s%s%s", seal_open, digest, seal_close);
    return memcmp(text + length - SEAL_BYTES, seal, SEAL_BYTES) == 0;
}

enum fsdp_status manifest_parse(struct manifest *out, const char *text, size_t length, struct fsdp_err *err)
{
    XXH128_hash_t hash;

    *out = (struct manifest){ 0 };
    if (!seal_holds(text, length))
        return fsdp_fail(err, FSDP_ERR_FORMAT, "the manifest's own checksum does not hold");
    OK_OR_RETURN(parse(out, text, length, true, err));
    hash = XXH3_128bits(text, length);
    out->checksum[0] = hash.low64;
    out->checksum[1] = hash.high64;
    return FSDP_OK;
}

enum fsdp_status manifest_read(struct fsdp_io *io, const char *step_directory, struct manifest *out,
                               struct fsdp_err *err)
{
    char path[IO_PATH_BYTES], *text = NULL;
    enum fsdp_status status;
    size_t length = 0;

    *out = (struct manifest){ 0 };
    OK_OR_RETURN(io_join(path, step_directory, MANIFEST_FILE, err));
    OK_OR_RETURN(io_read_file(io, path, MANIFEST_MAX_BYTES, &text, &length, err));
    status = manifest_parse(out, text, length, err);
    if (status != FSDP_OK)
        fsdp_wrap(err, "%s", path);
    free(text);
    return status;
}

void manifest_free(struct manifest *manifest)
{
    free(manifest->tensors);
    free(manifest->files);
    free(manifest->text);
    *manifest = (struct manifest){ 0 };
}
