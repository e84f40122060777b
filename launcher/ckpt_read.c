/* The commands `fsdprun ckpt ls` and `show`. They read manifests and headers, but no tensors. */
#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "launcher/ckpt_impl.h"
#include "launcher/json_table.h"
#include "launcher/say.h"
#include "shard_runtime/ckpt/damage_find.h"
#include "shard_runtime/core/files.h"
#include "shard_runtime/shardfile/commit.h"
#include "shard_runtime/shardfile/io_anywhere.h"
#include "shard_runtime/shardfile/weights.h"

/* ls */

static void add_whole(cJSON *row, const char *key, uint64_t value)
{
    char digits[24];

    /* not a cJSON number: a double cannot hold every uint64_t */
    snprintf(digits, sizeof digits, "%" PRIu64, value);
    cJSON_AddRawToObject(row, key, digits);
}

/* Adds a number that is printed in a table, where it need not be exact. */
static void add_count(cJSON *row, const char *key, uint64_t value)
{
    cJSON_AddNumberToObject(row, key, (double)value);
}

/* Adds the time in seconds since the checkpoint or unfinished save at `path` was last written. */
static void add_age(cJSON *row, const char *path)
{
    struct stat stat_of;
    struct timespec now;

    if (stat(path, &stat_of) < 0 || clock_gettime(CLOCK_REALTIME, &now) < 0) {
        cJSON_AddNullToObject(row, "age_s");
        return;
    }
    cJSON_AddNumberToObject(
        row, "age_s",
        now.tv_sec > stat_of.st_mtim.tv_sec ? (double)(now.tv_sec - stat_of.st_mtim.tv_sec) : 0);
}

static uint64_t bytes_of(const struct manifest *manifest)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < manifest->n_files; i++)
        bytes += manifest->files[i].size_bytes;
    return bytes;
}

/*
 * Reads all bytes of the checkpoint at `path`. If it is damaged, `why` receives the first damage that was
 * found.
 */
static void read_all(const char *path, struct fsdp_err *why)
{
    struct damage_report report;

    if (damage_find(&io_anywhere, path, &report, why) == FSDP_OK && report.n > 0)
        fsdp_fail(why, FSDP_ERR_FORMAT, "%s: %.300s", report.list[0].file, report.list[0].reason);
    damage_report_free(&report);
}

static void add_checkpoint(cJSON *rows, const char *directory, const char *name, bool verify)
{
    struct commit_fence save;
    int64_t step = commit_parse_step(name);
    const bool finished = step >= 0;
    struct manifest manifest = { 0 };
    struct fsdp_err why = { 0 };
    char path[IO_PATH_BYTES];
    cJSON *row;

    if (!finished && !commit_parse_temporary(name, &save))
        return;
    if (io_join(path, directory, name, NULL) != FSDP_OK)
        return;
    row = cJSON_CreateObject();
    cJSON_AddNumberToObject(row, "step", (double)(finished ? step : save.step));
    add_age(row, path);
    if (finished && verify_step(&io_anywhere, path, VERIFY_SIZES, &manifest, &why) == FSDP_OK &&
        manifest.step != (uint64_t)step)
        fsdp_fail(&why, FSDP_ERR_FORMAT, "it holds step %" PRIu64, manifest.step);
    if (finished && why.status == FSDP_OK) {
        add_count(row, "bytes", bytes_of(&manifest));
        add_count(row, "world_size", manifest.world_size);
        if (verify)
            read_all(path, &why);
        cJSON_AddStringToObject(row, "state",
                                !verify                 ? "complete"
                                : why.status == FSDP_OK ? "verified"
                                                        : "damaged");
    } else {
        cJSON_AddNullToObject(row, "bytes");
        cJSON_AddNullToObject(row, "world_size");
        cJSON_AddStringToObject(row, "state", finished ? "broken" : "unfinished");
    }
    cJSON_AddStringToObject(row, "path", path);
    if (why.status != FSDP_OK)
        cJSON_AddStringToObject(row, "reason", why.message);
    else
        cJSON_AddNullToObject(row, "reason");
    cJSON_AddItemToArray(rows, row);
    manifest_free(&manifest);
}

int ckpt_ls(const struct ckpt_words *words, FILE *out, struct fsdp_err *err)
{
    static const struct json_column columns[] = {
        { "STEP", "step", JSON_COUNT },  { "AGE", "age_s", JSON_AGE },
        { "SIZE", "bytes", JSON_SIZE },  { "RANKS", "world_size", JSON_COUNT },
        { "STATE", "state", JSON_TEXT }, { "PATH", "path", JSON_PATH },
    };
    char directory[IO_PATH_BYTES];
    struct io_names names = { 0 };
    enum fsdp_status status = ckpt_find_directory(words->paths[0], directory, err);
    cJSON *rows;
    int ended;

    if (status == FSDP_OK && io_anywhere.list(&io_anywhere, directory, &names) < 0)
        status = file_fail(err, "list", directory);
    if (status != FSDP_OK)
        return ckpt_exit_status(status);
    rows = cJSON_CreateArray();
    /* by step; the newest is the last line, next to the shell's prompt */
    for (size_t i = 0; i < names.n; i++)
        add_checkpoint(rows, directory, names.names[i], ckpt_words_value(words, "verify") != NULL);
    io_names_free(&names);
    if (ckpt_words_value(words, "json") != NULL) {
        ended = json_print(rows, out);
    } else {
        const cJSON *row;

        json_table_print(columns, sizeof columns / sizeof *columns, rows, out);
        cJSON_ArrayForEach(row, rows)
        {
            const cJSON *reason = cJSON_GetObjectItemCaseSensitive(row, "reason");

            if (cJSON_IsString(reason))
                say(out, "step %.0f: %s", cJSON_GetObjectItemCaseSensitive(row, "step")->valuedouble,
                    reason->valuestring);
        }
        ended = json_written(out);
    }
    cJSON_Delete(rows);
    return ended;
}

/* show */

static cJSON *dims_of(const uint64_t *dims, size_t n)
{
    cJSON *list = cJSON_CreateArray();

    for (size_t d = 0; d < n; d++)
        cJSON_AddItemToArray(list, cJSON_CreateNumber((double)dims[d]));
    return list;
}

/* Writes the shape as text: "4096 x 512", or "scalar". */
static void shape_words(const struct manifest_tensor *tensor, char *out, size_t size)
{
    size_t used = 0;

    snprintf(out, size, "scalar");
    for (size_t d = 0; d < tensor->n_dims && used < size; d++)
        used +=
            (size_t)snprintf(out + used, size - used, "%s%" PRIu64, d == 0 ? "" : " x ", tensor->shape[d]);
}

static uint64_t tensor_bytes(const struct manifest_tensor *tensor)
{
    const struct box whole = box_whole(tensor->shape, tensor->n_dims);

    return box_elems(&whole) * fsdp_dtype_size(tensor->dtype);
}

static const char *dtype_words(const struct manifest_tensor *tensor)
{
    return tensor->dtype == WEIGHTS_UNKNOWN_DTYPE ? "unknown" : fsdp_dtype_safetensors_name(tensor->dtype);
}

static cJSON *tensor_row(const struct contents *contents, size_t t)
{
    const struct manifest_tensor *tensor = &contents->manifest.tensors[t];
    cJSON *row = cJSON_CreateObject(), *shards = cJSON_CreateArray();

    cJSON_AddStringToObject(row, "name", tensor->name);
    cJSON_AddStringToObject(row, "dtype", dtype_words(tensor));
    cJSON_AddItemToObject(row, "shape", dims_of(tensor->shape, tensor->n_dims));
    add_count(row, "bytes", tensor_bytes(tensor));
    for (size_t i = contents->starts[t]; i < contents->starts[t + 1]; i++) {
        const struct contents_piece *piece = &contents->pieces[i];
        cJSON *shard = cJSON_CreateObject();

        cJSON_AddStringToObject(shard, "file", contents->manifest.files[piece->file].name);
        cJSON_AddItemToObject(shard, "offsets", dims_of(piece->box.offsets, tensor->n_dims));
        cJSON_AddItemToObject(shard, "sizes", dims_of(piece->box.sizes, tensor->n_dims));
        add_count(shard, "begin", piece->offset);
        add_count(shard, "end", piece->offset + box_elems(&piece->box) * fsdp_dtype_size(tensor->dtype));
        cJSON_AddItemToArray(shards, shard);
    }
    cJSON_AddItemToObject(row, "shards", shards);
    return row;
}

static void add_raw(cJSON *all, const char *key, const char *raw, size_t length)
{
    char *text = raw == NULL ? NULL : strndup(raw, length);

    if (text == NULL)
        cJSON_AddNullToObject(all, key);
    else
        cJSON_AddRawToObject(all, key, text);
    free(text);
}

static cJSON *describe(const struct contents *contents, const char *directory)
{
    const struct manifest *manifest = &contents->manifest;
    /* false: weights of another program, which have no manifest */
    const bool is_ours = !contents->follows_links;
    cJSON *all = cJSON_CreateObject(), *files = cJSON_CreateArray(), *tensors = cJSON_CreateArray();

    cJSON_AddStringToObject(all, "path", directory);
    if (is_ours) {
        add_whole(all, "step", manifest->step);
        add_whole(all, "world_size", manifest->world_size);
        add_whole(all, "generation", manifest->generation);
        add_whole(all, "seed", manifest->seed);
        add_whole(all, "cursor", manifest->cursor);
        add_whole(all, "optimizer_step", manifest->optimizer_step);
        add_raw(all, "numerics", manifest->numerics, manifest->numerics_length);
        add_raw(all, "job", manifest->job, manifest->job_length);
        add_raw(all, "extra", manifest->extra, manifest->extra_length);
    }
    add_count(all, "bytes", bytes_of(manifest));
    for (size_t i = 0; i < manifest->n_files; i++) {
        cJSON *file = cJSON_CreateObject();

        cJSON_AddStringToObject(file, "name", manifest->files[i].name);
        add_count(file, "size_bytes", manifest->files[i].size_bytes);
        cJSON_AddItemToArray(files, file);
    }
    cJSON_AddItemToObject(all, "files", files);
    for (size_t t = 0; t < manifest->n_tensors; t++)
        cJSON_AddItemToArray(tensors, tensor_row(contents, t));
    cJSON_AddItemToObject(all, "tensors", tensors);
    return all;
}

static void print_state(const struct contents *contents, const char *directory, FILE *out)
{
    const struct manifest *manifest = &contents->manifest;
    static const struct json_column size = { "", "bytes", JSON_SIZE };
    char bytes[TABLE_CELL_BYTES];
    cJSON *row = cJSON_CreateObject();

    add_count(row, "bytes", bytes_of(manifest));
    json_cell(bytes, &size, row);
    cJSON_Delete(row);
    fprintf(out, "%-16s%s\n", "path", directory);
    if (!contents->follows_links)
        fprintf(out,
                "%-16s%" PRIu64 "\n%-16s%" PRIu64 "\n%-16s%" PRIu64 "\n%-16s%" PRIu64 "\n%-16s%" PRIu64
                "\n%-16s%" PRIu64 "\n",
                "step", manifest->step, "ranks", manifest->world_size, "generation", manifest->generation,
                "seed", manifest->seed, "cursor", manifest->cursor, "optimizer step",
                manifest->optimizer_step);
    fprintf(out, "%-16s%zu, %s\n%-16s%zu\n\n", "files", manifest->n_files, bytes, "tensors",
            manifest->n_tensors);
}

static void print_tensors(const struct contents *contents, FILE *out)
{
    static const struct json_column columns[] = {
        { "NAME", "name", JSON_PATH },      { "TYPE", "dtype", JSON_TEXT }, { "SHAPE", "shape", JSON_NAME },
        { "SHARDS", "shards", JSON_COUNT }, { "SIZE", "bytes", JSON_SIZE },
    };
    cJSON *rows = cJSON_CreateArray();

    for (size_t t = 0; t < contents->manifest.n_tensors; t++) {
        const struct manifest_tensor *tensor = &contents->manifest.tensors[t];
        char shape[256];
        cJSON *row = cJSON_CreateObject();

        shape_words(tensor, shape, sizeof shape);
        cJSON_AddStringToObject(row, "name", tensor->name);
        cJSON_AddStringToObject(row, "dtype", dtype_words(tensor));
        cJSON_AddStringToObject(row, "shape", shape);
        add_count(row, "shards", contents->starts[t + 1] - contents->starts[t]);
        add_count(row, "bytes", tensor_bytes(tensor));
        cJSON_AddItemToArray(rows, row);
    }
    json_table_print(columns, sizeof columns / sizeof *columns, rows, out);
    cJSON_Delete(rows);
}

int ckpt_show(const struct ckpt_words *words, FILE *out, struct fsdp_err *err)
{
    char directory[IO_PATH_BYTES];
    struct contents contents;
    enum fsdp_status status = ckpt_list(words->paths[0], &contents, directory, err);
    int ended;

    if (status != FSDP_OK)
        return ckpt_exit_status(status);
    if (ckpt_words_value(words, "json") != NULL) {
        cJSON *all = describe(&contents, directory);

        ended = json_print(all, out);
        cJSON_Delete(all);
    } else {
        print_state(&contents, directory, out);
        print_tensors(&contents, out);
        ended = json_written(out);
    }
    contents_free(&contents);
    return ended;
}
