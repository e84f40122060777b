#include "shard_runtime/ckpt/export.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shard_runtime/ckpt/tensor_stream.h"
#include "shard_runtime/core/alloc.h"
#include "shard_runtime/core/files.h"
#include "shard_runtime/core/json.h"
#include "shard_runtime/core/require.h"
#include "shard_runtime/shardfile/safetensors.h"
#include "shard_runtime/shardfile/weights.h"

static const char ending[] = ".safetensors";
enum { NAME_BYTES = 64 };

struct export
{
    struct fsdp_io *io;
    const struct contents *contents;
    struct tensor_stream *stream;
    struct rows_store store;
    size_t *chosen; /* (n) the tensors that are written, by their number in the contents */
    char **names;   /* (n) under these names */
    uint32_t *file; /* (n) in which file, from 0 */
    size_t n, n_files;
    size_t begun; /* the tensor that the stream reads */
};

/* Reads bytes of a tensor for the writer, which reads each from its beginning to its end. */
static enum fsdp_status read_tensor(void *user, size_t index, uint64_t offset, void *bytes, size_t size_bytes,
                                    struct fsdp_err *err)
{
    struct export *export = user;

    if (offset == 0 || export->begun != index)
        OK_OR_RETURN(tensor_stream_begin(export->stream, index, err));
    export->begun = index;
    return tensor_stream_read(export->stream, bytes, size_bytes, err);
}

/* Chooses the tensors that are weights, and divides them among files. */
static enum fsdp_status choose(struct export *export, const struct export_options *options,
                               struct export_result *result, struct fsdp_err *err)
{
    const struct manifest *manifest = &export->contents->manifest;
    uint64_t in_file = 0;

    export->chosen = calloc(manifest->n_tensors + 1, sizeof *export->chosen);
    export->names = calloc(manifest->n_tensors + 1, sizeof *export->names);
    export->file = calloc(manifest->n_tensors + 1, sizeof *export->file);
    if (export->chosen == NULL || export->names == NULL || export->file == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "memory for %zu tensors", manifest->n_tensors);
    export->n_files = 1;
    for (size_t t = 0; t < manifest->n_tensors; t++) {
        const struct manifest_tensor *tensor = &manifest->tensors[t];
        const uint64_t size = tensor_stream_size(export->contents, t);
        const size_t n = export->n;

        if (strncmp(tensor->name, EXPORT_OPTIMIZER_PREFIX, sizeof EXPORT_OPTIMIZER_PREFIX - 1) == 0)
            continue;
        if (tensor->dtype == WEIGHTS_UNKNOWN_DTYPE)
            return fsdp_fail(err, FSDP_ERR_UNSUPPORTED, "the type of %.200s is not one that is written",
                             tensor->name);
        export->names[n] = alloc_printf("%s%s", options->prefix, tensor->name);
        if (export->names[n] == NULL)
            return fsdp_fail(err, FSDP_ERR_NOMEM, "memory for the names of tensors");
        if (in_file > 0 && in_file + size > options->most_bytes) {
            export->n_files++;
            in_file = 0;
        }
        in_file += size;
        result->bytes += size;
        export->chosen[n] = t;
        export->file[n] = (uint32_t)(export->n_files - 1);
        export->n++;
    }
    if (export->n == 0)
        return fsdp_fail(err, FSDP_ERR_FORMAT, "there are no weights in it");
    result->n_files = export->n_files;
    result->n_tensors = export->n;
    return FSDP_OK;
}

static void name_file(const struct export *export, size_t file, char out[NAME_BYTES])
{
    if (export->n_files == 1)
        snprintf(out, NAME_BYTES, "model%s", ending);
    else
        snprintf(out, NAME_BYTES, "model-%05zu-of-%05zu%s", file + 1, export->n_files, ending);
}

static enum fsdp_status write_weights(struct export *export, size_t file, const char *path,
                                      struct fsdp_err *err)
{
    struct safetensors_tensor *tensors = calloc(export->n + 1, sizeof *tensors);
    struct safetensors_written written;
    enum fsdp_status status;
    size_t n = 0;

    if (tensors == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "memory for %zu tensors", export->n);
    for (size_t i = 0; i < export->n; i++) {
        const struct manifest_tensor *tensor = &export->contents->manifest.tensors[export->chosen[i]];

        if (export->file[i] != file)
            continue;
        tensors[n] = (struct safetensors_tensor){ .name = export->names[i],
                                                  .dtype = tensor->dtype,
                                                  .n_dims = tensor->n_dims,
                                                  .store = &export->store,
                                                  .in_store = export->chosen[i] };
        memcpy(tensors[n++].shape, tensor->shape, tensor->n_dims * sizeof *tensor->shape);
    }
    status = safetensors_write(export->io, path, tensors, n, NULL, 0, 8, false, &written, err);
    free(tensors);
    return status;
}

static enum fsdp_status write_index(const struct export *export, const struct export_result *result,
                                    const char *path, struct fsdp_err *err)
{
    struct json_text text = { 0 };
    enum fsdp_status status;

    json_add(&text, "{\n  \"metadata\": {\n    \"total_size\": %" PRIu64 "\n  },\n  \"weight_map\": {",
             result->bytes);
    for (size_t i = 0; i < export->n; i++) {
        char name[NAME_BYTES];

        name_file(export, export->file[i], name);
        json_add(&text, "%s\n    ", i == 0 ? "" : ",");
        json_add_string(&text, export->names[i]);
        json_add(&text, ": \"%s\"", name);
    }
    json_add(&text, "\n  }\n}\n");
    status = text.failed ? fsdp_fail(err, FSDP_ERR_NOMEM, "memory for %s", path)
                         : io_write_file(export->io, path, text.bytes, text.length, err);
    json_text_free(&text);
    return status;
}

static enum fsdp_status write_directory(struct export *export, const struct export_options *options,
                                        const struct export_result *result, const char *folder,
                                        struct fsdp_err *err)
{
    char path[IO_PATH_BYTES], name[NAME_BYTES];

    if (export->io->mkdir(export->io, folder, 0777) < 0)
        return file_fail(err, "create", folder);
    for (size_t file = 0; file < export->n_files; file++) {
        name_file(export, file, name);
        OK_OR_RETURN(io_join(path, folder, name, err));
        OK_OR_RETURN(write_weights(export, file, path, err));
    }
    if (export->n_files > 1) {
        OK_OR_RETURN(io_join(path, folder, "model.safetensors.index.json", err));
        OK_OR_RETURN(write_index(export, result, path, err));
    }
    if (options->config != NULL) {
        OK_OR_RETURN(io_join(path, folder, "config.json", err));
        OK_OR_RETURN(io_write_file(export->io, path, options->config, strlen(options->config), err));
    }
    return io_sync_directory(export->io, folder, err);
}

/* Removes what a failure left: a file, or a directory of files. */
static void remove_partial(struct fsdp_io *io, const char *path)
{
    struct io_names names;
    char child[IO_PATH_BYTES];

    if (io->list(io, path, &names) == 0) {
        for (size_t i = 0; i < names.n; i++)
            if (io_join(child, path, names.names[i], NULL) == FSDP_OK)
                (void)io->unlink(io, child);
        io_names_free(&names);
        (void)io->rmdir(io, path);
    } else {
        (void)io->unlink(io, path);
    }
}

/*
 * Finds the directory of `out`, and a name for it while it is written: a hidden one, of this process alone.
 */
static enum fsdp_status find_places(const char *out, char above[IO_PATH_BYTES], char final[IO_PATH_BYTES],
                                    char partial[IO_PATH_BYTES], struct fsdp_err *err)
{
    size_t length = strlen(out), slash;
    char name[300];

    while (length > 1 && out[length - 1] == '/')
        length--;
    slash = length;
    while (slash > 0 && out[slash - 1] != '/')
        slash--;
    if (length >= IO_PATH_BYTES)
        return fsdp_fail(err, FSDP_ERR_ARG, "the path %.64s... is too long", out);
    snprintf(final, IO_PATH_BYTES, "%.*s", (int)length, out);
    snprintf(above, IO_PATH_BYTES, "%.*s",
             slash == 0   ? 1
             : slash == 1 ? 1
                          : (int)slash - 1,
             slash == 0 ? "." : out);
    if (snprintf(name, sizeof name, ".%s.%ld.partial", final + slash, (long)getpid()) >= (int)sizeof name)
        return fsdp_fail(err, FSDP_ERR_ARG, "the name %.64s... is too long", final + slash);
    return io_join(partial, above, name, err);
}

static bool is_file_name(const char *path)
{
    const size_t length = strlen(path), tail = sizeof ending - 1;

    return length > tail && strcmp(path + length - tail, ending) == 0;
}

enum fsdp_status export_tensors(struct fsdp_io *io, const struct contents *contents, const char *directory,
                                const char *out, const struct export_options *options,
                                struct export_result *result, struct fsdp_err *err)
{
    struct export_options whole = *options;
    struct export export = { .io = io, .contents = contents };
    char above[IO_PATH_BYTES], final[IO_PATH_BYTES], partial[IO_PATH_BYTES];
    struct io_stat there;
    enum fsdp_status status;
    bool one_file;

    *result = (struct export_result){ 0 };
    OK_OR_RETURN(find_places(out, above, final, partial, err));
    one_file = is_file_name(final);
    if (one_file)
        whole.most_bytes = UINT64_MAX;
    if (io->stat(io, final, &there) == 0)
        return fsdp_fail(err, FSDP_ERR_CONFIG, "%s is there already", final);
    export.store = (struct rows_store){ .user = &export, .read = read_tensor };
    status = tensor_stream_create(&export.stream, io, contents, directory, err);
    if (status == FSDP_OK)
        status = choose(&export, &whole, result, err);
    if (status == FSDP_OK) {
        status = one_file ? write_weights(&export, 0, partial, err)
                          : write_directory(&export, &whole, result, partial, err);
        if (status == FSDP_OK && io->rename(io, partial, final) < 0)
            status = file_fail(err, "name", final);
        if (status != FSDP_OK)
            remove_partial(io, partial);
        else
            status = io_sync_directory(io, above, err);
    }
    tensor_stream_destroy(export.stream);
    for (size_t i = 0; i < export.n && export.names != NULL; i++)
        free(export.names[i]);
    free(export.names);
    free(export.chosen);
    free(export.file);
    return status;
}
