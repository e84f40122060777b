#include "shard_runtime/ckpt/import.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "shard_runtime/ckpt/elements.h"
#include "shard_runtime/ckpt/tensor_stream.h"
#include "shard_runtime/core/alloc.h"
#include "shard_runtime/core/require.h"
#include "shard_runtime/shardfile/commit.h"
#include "shard_runtime/shardfile/safetensors.h"
#include "shard_runtime/shardfile/shard_marks.h"
#include "shard_runtime/shardfile/weights.h"

/* A tensor of the checkpoint. */
struct entry {
    char *name;
    const struct manifest_tensor *source; /* NULL: zeros */
    size_t n_dims;
    const uint64_t *shape;
    enum fsdp_dtype dtype;
    uint64_t first; /* number of the first element of the rows that are written now */
};

struct import {
    struct fsdp_io *io;
    const struct contents *source;
    const struct import_options *options;
    struct import_result *result;
    struct tensor_stream *stream;
    struct entry *entries;
    size_t n, room;
    size_t reading;      /* entry that the stream reads; SIZE_MAX: none */
    uint64_t next;       /* its next element */
    unsigned char *half; /* elements before their conversion */
    size_t half_bytes;
};

static bool is_real(enum fsdp_dtype dtype)
{
    return dtype == FSDP_F32 || dtype == FSDP_BF16 || dtype == FSDP_F16 || dtype == FSDP_F64;
}

static uint64_t count_elems(const uint64_t *shape, size_t n_dims)
{
    const struct box whole = box_whole(shape, n_dims);

    return box_elems(&whole);
}

/* Reads elements first .. first + n - 1 of the entry as they are in the source. */
static enum fsdp_status read_source(struct import *import, size_t index, uint64_t first, void *to, size_t n,
                                    struct fsdp_err *err)
{
    const struct entry *entry = &import->entries[index];
    const size_t size = fsdp_dtype_size(entry->source->dtype);

    if (import->reading != index || import->next != first) {
        import->reading = SIZE_MAX;
        OK_OR_RETURN(tensor_stream_begin(import->stream,
                                         (size_t)(entry->source - import->source->manifest.tensors), err));
        OK_OR_RETURN(tensor_stream_skip(import->stream, first * size, err));
    }
    OK_OR_RETURN(tensor_stream_read(import->stream, to, n * size, err));
    import->reading = index;
    import->next = first + n;
    return FSDP_OK;
}

/* Reads bytes of an entry for the writer. Entries are in such an order that no element is cut in two. */
static enum fsdp_status read_entry(void *user, size_t index, uint64_t offset, void *bytes, size_t size_bytes,
                                   struct fsdp_err *err)
{
    struct import *import = user;
    const struct entry *entry = &import->entries[index];
    const size_t size = fsdp_dtype_size(entry->dtype), n = size_bytes / size;
    const uint64_t first = entry->first + offset / size;
    size_t needed;

    if (entry->source == NULL) {
        memset(bytes, 0, size_bytes);
        return FSDP_OK;
    }
    if (entry->source->dtype == entry->dtype)
        return read_source(import, index, first, bytes, n, err);
    needed = n * fsdp_dtype_size(entry->source->dtype);
    if (needed > import->half_bytes) {
        free(import->half);
        import->half = malloc(needed);
        import->half_bytes = import->half == NULL ? 0 : needed;
        if (import->half == NULL)
            return fsdp_fail(err, FSDP_ERR_NOMEM, "%zu bytes to convert with", needed);
    }
    OK_OR_RETURN(read_source(import, index, first, import->half, n, err));
    elements_to_f32(bytes, import->half, entry->source->dtype, n);
    return FSDP_OK;
}

/* The entries */

static enum fsdp_status add_entry(struct import *import, const char *name,
                                  const struct manifest_tensor *source, const struct manifest_tensor *like,
                                  struct fsdp_err *err)
{
    struct entry *entry;

    if (!alloc_room(&import->entries, &import->room, import->n, sizeof *import->entries))
        return fsdp_fail(err, FSDP_ERR_NOMEM, "memory for %zu tensors", import->n + 1);
    entry = &import->entries[import->n];
    *entry = (struct entry){ .name = strdup(name),
                             .source = source,
                             .n_dims = like->n_dims,
                             .shape = like->shape,
                             .dtype = source == NULL || is_real(source->dtype) ? FSDP_F32 : source->dtype };
    if (entry->name == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "memory for the names of tensors");
    import->n++;
    import->result->bytes += count_elems(entry->shape, entry->n_dims) * fsdp_dtype_size(entry->dtype);
    return FSDP_OK;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const struct entry *)a)->name, ((const struct entry *)b)->name);
}

/*
 * Compares the sizes of elements: larger ones come first, so no block of the writer ends within an element.
 * Equal sizes are ordered by name.
 */
static int compare_sizes(const void *a, const void *b)
{
    const size_t one = fsdp_dtype_size(((const struct entry *)a)->dtype),
                 two = fsdp_dtype_size(((const struct entry *)b)->dtype);

    return one != two ? (one < two) - (one > two) : compare_names(a, b);
}

/* The largest count of steps that the source has for a parameter. */
static enum fsdp_status read_step(struct import *import, size_t t, struct fsdp_err *err)
{
    const struct manifest_tensor *tensor = &import->source->manifest.tensors[t];
    unsigned char bytes[8] = { 0 };
    double step;

    if (count_elems(tensor->shape, tensor->n_dims) != 1)
        return fsdp_fail(err, FSDP_ERR_FORMAT, "%.200s is not one number", tensor->name);
    OK_OR_RETURN(tensor_stream_begin(import->stream, t, err));
    OK_OR_RETURN(tensor_stream_read(import->stream, bytes, fsdp_dtype_size(tensor->dtype), err));
    import->reading = SIZE_MAX;
    step = element_read(bytes, tensor->dtype);
    if (!(step >= 0 && step < 0x1p53))
        return fsdp_fail(err, FSDP_ERR_FORMAT, "%.200s is no count of steps: %g", tensor->name, step);
    if ((uint64_t)step > import->result->optimizer_step)
        import->result->optimizer_step = (uint64_t)step;
    return FSDP_OK;
}

static enum fsdp_status take_tensor(struct import *import, size_t t, bool *has_steps, struct fsdp_err *err)
{
    const struct manifest_tensor *tensor = &import->source->manifest.tensors[t];
    char name[IMPORT_NAME_BYTES];
    const enum import_kind kind = import_name(&import->options->names, tensor->name, name);

    if (kind == IMPORT_OTHER) {
        import->result->n_passed_over++;
        return FSDP_OK;
    }
    if (tensor->dtype == WEIGHTS_UNKNOWN_DTYPE)
        return fsdp_fail(err, FSDP_ERR_UNSUPPORTED, "the type of %.200s is not one that is read",
                         tensor->name);
    if (kind == IMPORT_STEP) {
        *has_steps = true;
        return read_step(import, t, err);
    }
    if (kind == IMPORT_WEIGHT)
        import->result->n_weights++;
    else
        import->result->n_states++;
    return add_entry(import, name, tensor, tensor, err);
}

/*
 * Adds an entry of zeros for each optimizer state that the source lacks. The entries so far are sorted by
 * name.
 */
static enum fsdp_status add_states(struct import *import, struct fsdp_err *err)
{
    const size_t n = import->n;

    for (size_t i = 0; i < n; i++) {
        const struct entry *entry = &import->entries[i];

        if (strncmp(entry->name, "optimizer.", strlen("optimizer.")) == 0 || entry->dtype != FSDP_F32)
            continue;
        for (size_t k = 0; k < import->options->n_states; k++) {
            char name[IMPORT_NAME_BYTES + 64];
            const struct entry wanted = { .name = name };

            snprintf(name, sizeof name, "optimizer.%s.%s", import->options->states[k],
                     import->entries[i].name);
            if (bsearch(&wanted, import->entries, n, sizeof wanted, compare_names) != NULL)
                continue;
            import->result->n_zeroed++;
            OK_OR_RETURN(add_entry(import, name, NULL, import->entries[i].source, err));
        }
    }
    return FSDP_OK;
}

static enum fsdp_status find_entries(struct import *import, struct fsdp_err *err)
{
    bool has_steps = false;

    for (size_t t = 0; t < import->source->manifest.n_tensors; t++)
        OK_OR_RETURN(take_tensor(import, t, &has_steps, err));
    if (import->result->n_weights == 0)
        return fsdp_fail(err, FSDP_ERR_MISMATCH, "there are no weights in it");
    qsort(import->entries, import->n, sizeof *import->entries, compare_names);
    for (size_t i = 1; i < import->n; i++)
        if (strcmp(import->entries[i - 1].name, import->entries[i].name) == 0)
            return fsdp_fail(err, FSDP_ERR_MISMATCH, "two tensors are %.200s", import->entries[i].name);
    if (!has_steps && import->result->n_states > 0)
        import->result->optimizer_step = (uint64_t)import->options->step;
    OK_OR_RETURN(add_states(import, err));
    qsort(import->entries, import->n, sizeof *import->entries, compare_sizes);
    return FSDP_OK;
}

/* The files */

/* Describes the rows of the entry that `rank` has. Returns false if it has none. */
static bool cut(const struct import *import, struct entry *entry, uint32_t rank,
                struct safetensors_tensor *shard)
{
    const uint64_t W = import->options->ranks, rows = entry->n_dims == 0 ? 1 : entry->shape[0];
    const uint64_t each = rows / W + (rows % W != 0);
    const uint64_t begin = rank * each < rows ? rank * each : rows,
                   end = begin + each < rows ? begin + each : rows;

    if (begin == end && !(rows == 0 && rank == 0))
        return false;
    for (size_t d = 0; d < entry->n_dims; d++)
        shard->shape[d] = shard->global_shape[d] = entry->shape[d];
    if (entry->n_dims > 0) {
        shard->shape[0] = end - begin;
        shard->offsets[0] = begin;
    }
    shard->name = entry->name;
    shard->dtype = entry->dtype;
    shard->n_dims = entry->n_dims;
    shard->has_offsets = shard->has_global_shape = true;
    entry->first = rows == 0 ? 0 : begin * (count_elems(entry->shape, entry->n_dims) / rows);
    return true;
}

static enum fsdp_status write_rank(struct import *import, const char *folder, uint32_t rank,
                                   struct manifest_file *file, char name[MANIFEST_SHARD_NAME_BYTES],
                                   struct fsdp_err *err)
{
    const struct rows_store store = { .user = import, .read = read_entry };
    struct safetensors_tensor *shards = calloc(import->n + 1, sizeof *shards);
    struct safetensors_written written;
    struct shards_marks marks;
    char path[IO_PATH_BYTES];
    enum fsdp_status status;
    size_t n = 0;

    *file = (struct manifest_file){ 0 };
    if (shards == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "memory for %zu tensors", import->n);
    for (size_t i = 0; i < import->n; i++) {
        struct safetensors_tensor shard = { .store = &store, .in_store = i };

        if (cut(import, &import->entries[i], rank, &shard))
            shards[n++] = shard;
    }
    manifest_shard_name(rank, name);
    shards_mark(&marks,
                &(struct shards_save){ import->options->step, 0, (int)import->options->ranks, (int)rank });
    status = n == 0 ? FSDP_OK : io_join(path, folder, name, err);
    if (status == FSDP_OK && n > 0)
        status = safetensors_write(import->io, path, shards, n, marks.list, SHARDS_MARKS,
                                   SAFETENSORS_ALIGNMENT, true, &written, err);
    if (status == FSDP_OK && n > 0)
        *file = (struct manifest_file){ .name = name,
                                        .rank = rank,
                                        .size_bytes = written.size_bytes,
                                        .checksum = { written.checksum[0], written.checksum[1] } };
    free(shards);
    return status;
}

static enum fsdp_status make_head(const struct import *import, char **head, size_t *length,
                                  struct fsdp_err *err)
{
    struct manifest manifest = { .step = (uint64_t)import->options->step,
                                 .world_size = import->options->ranks,
                                 .seed = import->options->seed,
                                 .cursor = import->options->cursor,
                                 .optimizer_step = import->result->optimizer_step,
                                 .job = import->options->job,
                                 .tensors = calloc(import->n + 1, sizeof *manifest.tensors),
                                 .n_tensors = import->n };
    enum fsdp_status status;

    if (manifest.tensors == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "memory for %zu tensors", import->n);
    for (size_t i = 0; i < import->n; i++) {
        const struct entry *entry = &import->entries[i];

        manifest.tensors[i] =
            (struct manifest_tensor){ .name = entry->name, .dtype = entry->dtype, .n_dims = entry->n_dims };
        memcpy(manifest.tensors[i].shape, entry->shape, entry->n_dims * sizeof *entry->shape);
    }
    status = manifest_head_text(&manifest, head, length, err);
    free(manifest.tensors);
    return status;
}

static enum fsdp_status write_files(struct import *import, const char *directory, const char *temporary,
                                    const struct commit_fence *fence, struct fsdp_err *err)
{
    const uint32_t W = import->options->ranks;
    char(*names)[MANIFEST_SHARD_NAME_BYTES] = calloc(W, sizeof *names), *head = NULL;
    struct manifest_file *files = calloc(W, sizeof *files);
    char folder[IO_PATH_BYTES];
    enum fsdp_status status = io_join(folder, directory, temporary, err);
    size_t n_files = 0, length;

    if (status == FSDP_OK && (names == NULL || files == NULL))
        status = fsdp_fail(err, FSDP_ERR_NOMEM, "memory for %lu files", (unsigned long)W);
    for (uint32_t rank = 0; rank < W && status == FSDP_OK; rank++) {
        status = write_rank(import, folder, rank, &files[n_files], names[rank], err);
        n_files += files[n_files].name != NULL;
    }
    if (status == FSDP_OK)
        status = make_head(import, &head, &length, err);
    if (status == FSDP_OK)
        status = commit_publish(import->io, directory, temporary, fence, head, length, files, n_files, err);
    else
        (void)commit_abort(import->io, directory, temporary, NULL);
    free(head);
    free(files);
    free(names);
    return status;
}

static enum fsdp_status publish(struct import *import, const char *directory, struct fsdp_err *err)
{
    const struct commit_fence fence = { .step = import->options->step, .world_size = import->options->ranks };
    char temporary[COMMIT_NAME_BYTES], path[IO_PATH_BYTES];
    unsigned char random[16];
    struct io_stat there;

    OK_OR_RETURN(commit_step_path(directory, fence.step, path, err));
    if (import->io->stat(import->io, path, &there) == 0)
        return fsdp_fail(err, FSDP_ERR_CONFIG, "%s is there already", path);
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        return fsdp_fail(err, FSDP_ERR_IO, "getrandom: %s", strerror(errno));
    commit_temporary_name(&fence, random, sizeof random, temporary);
    OK_OR_RETURN(commit_begin(import->io, directory, temporary, err));
    return write_files(import, directory, temporary, &fence, err);
}

enum fsdp_status import_tensors(struct fsdp_io *io, const struct contents *source,
                                const char *source_directory, const char *directory,
                                const struct import_options *options, struct import_result *result,
                                struct fsdp_err *err)
{
    struct import import = {
        .io = io, .source = source, .options = options, .result = result, .reading = SIZE_MAX
    };
    enum fsdp_status status;

    *result = (struct import_result){ 0 };
    status = tensor_stream_create(&import.stream, io, source, source_directory, err);
    if (status == FSDP_OK)
        status = find_entries(&import, err);
    if (status == FSDP_OK)
        status = publish(&import, directory, err);
    tensor_stream_destroy(import.stream);
    for (size_t i = 0; i < import.n; i++)
        free(import.entries[i].name);
    free(import.entries);
    free(import.half);
    return status;
}
