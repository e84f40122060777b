#include "shard_runtime/shardfile/weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/require.h"
#include "shard_runtime/shardfile/distcp.h"
#include "shard_runtime/shardfile/safetensors.h"
#include "shard_runtime/shardfile/weights_index.h"

static const char weights_ending[] = ".safetensors", index_ending[] = ".json";

/* Returns true if `name` ends in `ending` and has at least one byte before it. */
static bool ends_in(const char *name, const char *ending)
{
    const size_t length = strlen(name), tail = strlen(ending);

    return length > tail && strcmp(name + length - tail, ending) == 0;
}

/*
 * The files of a list and their headers. The finished list does not own the headers, so it gets copies of all
 * names.
 */
struct files {
    char **names;
    struct safetensors_header *headers;
    size_t n;
};

static void files_free(struct files *files)
{
    for (size_t i = 0; i < files->n; i++) {
        free(files->names[i]);
        safetensors_free(&files->headers[i]);
    }
    free(files->names);
    free(files->headers);
    *files = (struct files){ 0 };
}

static enum fsdp_status read_header(struct fsdp_io *io, const char *path, struct safetensors_header *out,
                                    struct fsdp_err *err)
{
    enum fsdp_status status;
    struct io_stat stat;
    int fd;

    OK_OR_RETURN(io_open_named(io, path, &fd, &stat, err));
    status = stat.kind == IO_FILE ? safetensors_read(io, fd, path, stat.size_bytes, out, err)
                                  : fsdp_fail(err, FSDP_ERR_FORMAT, "%s is not a regular file", path);
    io->close(io, fd);
    if (status == FSDP_OK && safetensors_metadata_get(out, CONTENTS_STEP_KEY) != NULL)
        return fsdp_fail(err, FSDP_ERR_FORMAT,
                         "%s is part of a checkpoint: give the directory of the checkpoint, with its %s",
                         path, MANIFEST_FILE);
    return status;
}

static enum fsdp_status add_file(struct fsdp_io *io, struct files *files, const char *directory,
                                 const char *name, struct fsdp_err *err)
{
    char path[IO_PATH_BYTES];

    files->names[files->n] = strdup(name);
    if (files->names[files->n] == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "memory for the names of files");
    files->headers[files->n++] = (struct safetensors_header){ 0 };
    OK_OR_RETURN(io_join(path, directory, name, err));
    return read_header(io, path, &files->headers[files->n - 1], err);
}

static enum fsdp_status open_files(struct fsdp_io *io, struct files *files, const char *directory,
                                   char *const *names, size_t n, struct fsdp_err *err)
{
    files->names = calloc(n + 1, sizeof *files->names);
    files->headers = calloc(n + 1, sizeof *files->headers);
    if (files->names == NULL || files->headers == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "memory for %zu files", n);
    for (size_t i = 0; i < n; i++)
        if (ends_in(names[i], weights_ending))
            OK_OR_RETURN(add_file(io, files, directory, names[i], err));
    if (files->n == 0)
        return fsdp_fail(err, FSDP_ERR_NOT_FOUND, "there is no file *%s in %s", weights_ending, directory);
    return FSDP_OK;
}

/* The list */

/* A tensor in a file, or one shard of it. */
struct part {
    const struct safetensors_tensor *tensor;
    uint32_t file;
};

static int compare_parts(const void *a, const void *b)
{
    const struct part *one = a, *two = b;
    const int order = strcmp(one->tensor->name, two->tensor->name);

    return order != 0 ? order : (one->file > two->file) - (one->file < two->file);
}

/*
 * Returns the parts of all files, sorted so that parts of one tensor are adjacent. The caller frees the
 * array. Returns NULL if there is no memory.
 */
static struct part *sort_parts(const struct files *files, size_t *n_parts)
{
    struct part *parts;
    size_t n = 0;

    for (size_t f = 0; f < files->n; f++)
        n += files->headers[f].n_tensors;
    parts = calloc(n + 1, sizeof *parts);
    *n_parts = n;
    n = 0;
    for (size_t f = 0; f < files->n && parts != NULL; f++)
        for (size_t i = 0; i < files->headers[f].n_tensors; i++)
            parts[n++] = (struct part){ &files->headers[f].tensors[i], (uint32_t)f };
    if (n > 1)
        qsort(parts, n, sizeof *parts, compare_parts);
    return parts;
}

/*
 * Allocates the list. All its names share one block, which contents_free() releases as the manifest's text.
 */
static bool alloc_list(struct contents *out, const struct files *files, size_t n_parts, char **text)
{
    size_t n_bytes = 1;

    for (size_t f = 0; f < files->n; f++) {
        n_bytes += strlen(files->names[f]) + 1;
        for (size_t i = 0; i < files->headers[f].n_tensors; i++)
            n_bytes += strlen(files->headers[f].tensors[i].name) + 1;
    }
    out->manifest.tensors = calloc(n_parts + 1, sizeof *out->manifest.tensors);
    out->manifest.files = calloc(files->n + 1, sizeof *out->manifest.files);
    out->manifest.text = malloc(n_bytes);
    out->pieces = calloc(n_parts + 1, sizeof *out->pieces);
    *text = out->manifest.text;
    return out->manifest.tensors != NULL && out->manifest.files != NULL && out->manifest.text != NULL &&
           out->pieces != NULL;
}

static const char *keep_name(char **text, const char *name)
{
    char *kept = *text;
    const size_t size = strlen(name) + 1;

    memcpy(kept, name, size);
    *text += size;
    return kept;
}

/*
 * Fills in dtype and shape of the tensor that consists of these parts. The shape is the global shape in the
 * files. Without one it is where the last parts end, as in PyTorch's reader.
 */
static enum fsdp_status join_parts(struct manifest_tensor *whole, const struct files *files,
                                   const struct part *parts, size_t n, struct fsdp_err *err)
{
    const struct safetensors_tensor *first = parts[0].tensor;

    _Static_assert((int)MANIFEST_MAX_DIMS == (int)SAFETENSORS_MAX_DIMS,
                   "every tensor of a file can be listed");
    whole->dtype = first->dtype;
    whole->n_dims = first->n_dims;
    for (size_t i = 0; i < n; i++) {
        const struct safetensors_tensor *part = parts[i].tensor;

        if (n > 1 && !part->has_offsets)
            return fsdp_fail(err, FSDP_ERR_FORMAT,
                             "%.200s is in two files, %s and %s: give the one that is meant, or the index",
                             first->name, files->names[parts[0].file],
                             files->names[parts[i == 0 ? 1 : i].file]);
        if (part->n_dims != first->n_dims || strcmp(part->dtype_name, first->dtype_name) != 0 ||
            part->has_global_shape != first->has_global_shape ||
            (part->has_global_shape &&
             memcmp(part->global_shape, first->global_shape, first->n_dims * sizeof *first->shape) != 0))
            return fsdp_fail(err, FSDP_ERR_FORMAT, "%.200s has another type or shape in %s than in %s",
                             first->name, files->names[parts[i].file], files->names[parts[0].file]);
        for (size_t d = 0; d < first->n_dims; d++) {
            const uint64_t end = (part->has_offsets ? part->offsets[d] : 0) + part->shape[d];

            if (end > whole->shape[d])
                whole->shape[d] = end;
        }
    }
    if (first->has_global_shape)
        memcpy(whole->shape, first->global_shape, first->n_dims * sizeof *whole->shape);
    return FSDP_OK;
}

/* Adds one tensor to the list, with its n parts as pieces. */
static enum fsdp_status add_tensor(struct contents *out, const struct files *files, const struct part *parts,
                                   size_t n, char **text, struct fsdp_err *err)
{
    const size_t t = out->manifest.n_tensors++;
    struct manifest_tensor *whole = &out->manifest.tensors[t];

    whole->name = keep_name(text, parts[0].tensor->name);
    for (size_t i = 0; i < n; i++) {
        const struct safetensors_tensor *part = parts[i].tensor;
        struct contents_piece *piece = &out->pieces[out->n_pieces++];

        *piece = (struct contents_piece){ .tensor = (uint32_t)t,
                                          .file = parts[i].file,
                                          .box = box_whole(part->shape, part->n_dims),
                                          .offset = files->headers[parts[i].file].data_start + part->begin };
        if (part->has_offsets)
            memcpy(piece->box.offsets, part->offsets, part->n_dims * sizeof *part->offsets);
    }
    return join_parts(whole, files, parts, n, err);
}

static enum fsdp_status list_files(struct contents *out, const struct files *files, struct fsdp_err *err)
{
    enum fsdp_status status = FSDP_OK;
    size_t n_parts;
    struct part *parts = sort_parts(files, &n_parts);
    char *text = NULL;

    out->follows_links = true;
    if (parts == NULL || !alloc_list(out, files, n_parts, &text)) {
        free(parts);
        return fsdp_fail(err, FSDP_ERR_NOMEM, "memory for the list of tensors");
    }
    for (size_t f = 0; f < files->n; f++)
        out->manifest.files[out->manifest.n_files++] =
            (struct manifest_file){ .name = keep_name(&text, files->names[f]),
                                    .size_bytes = files->headers[f].size_bytes };
    for (size_t at = 0, n; at < n_parts && status == FSDP_OK; at += n) {
        for (n = 1; at + n < n_parts; n++)
            if (strcmp(parts[at + n].tensor->name, parts[at].tensor->name) != 0)
                break;
        status = add_tensor(out, files, parts + at, n, &text, err);
    }
    free(parts);
    return status == FSDP_OK ? contents_prove(out, err) : status;
}

/* The kinds of path that a user may give */

/* Splits "a/b.safetensors" into its directory and its name. The returned name points into `path`. */
static char *split_path(char *path, char directory[IO_PATH_BYTES])
{
    char *slash = strrchr(path, '/');
    const int n = slash == NULL ? 1 : slash == path ? 1 : (int)(slash - path);

    snprintf(directory, IO_PATH_BYTES, "%.*s", n, slash == NULL ? "." : path);
    return slash == NULL ? path : slash + 1;
}

/* Checks that each tensor of the index is in the file that the index gives. */
static enum fsdp_status check_index(const struct weights_index *index, const struct files *files,
                                    struct fsdp_err *err)
{
    enum fsdp_status status = FSDP_OK;
    size_t n_parts;
    struct part *parts = sort_parts(files, &n_parts);

    if (parts == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "memory for the list of tensors");
    for (size_t i = 0; i < index->n_entries && status == FSDP_OK; i++) {
        const struct safetensors_tensor wanted = { .name = index->entries[i].tensor };
        struct part key = { .tensor = &wanted };
        const char *file = index->entries[i].file;
        char *const *name = bsearch(&file, files->names, files->n, sizeof *files->names, io_compare_names);

        key.file = (uint32_t)(name - files->names); /* found: all files of the index were opened */
        if (bsearch(&key, parts, n_parts, sizeof *parts, compare_parts) == NULL)
            status = fsdp_fail(err, FSDP_ERR_FORMAT, "%.200s is not in %s, where the index has it",
                               wanted.name, file);
    }
    free(parts);
    return status;
}

/* Opens the files that the index names, each once, sorted by name. The index is open as `fd`. */
static enum fsdp_status open_indexed(struct fsdp_io *io, int fd, uint64_t size_bytes, const char *path,
                                     const char *directory, struct files *files, struct fsdp_err *err)
{
    struct weights_index index;
    enum fsdp_status status = weights_index_read(&index, io, fd, size_bytes, path, err);
    char **names;
    size_t n = 0;

    if (status != FSDP_OK)
        return status;
    names = calloc(index.n_entries + 1, sizeof *names);
    if (names == NULL) {
        weights_index_free(&index);
        return fsdp_fail(err, FSDP_ERR_NOMEM, "memory for the names of files");
    }
    for (size_t i = 0; i < index.n_entries && status == FSDP_OK; i++) {
        if (!ends_in(index.entries[i].file, weights_ending))
            status = fsdp_fail(err, FSDP_ERR_FORMAT, "the index names %s, which is no *%s file",
                               index.entries[i].file, weights_ending);
        names[i] = (char *)(uintptr_t)index.entries[i].file;
    }
    if (status == FSDP_OK) {
        qsort(names, index.n_entries, sizeof *names, io_compare_names);
        for (size_t i = 0; i < index.n_entries; i++)
            if (n == 0 || strcmp(names[n - 1], names[i]) != 0)
                names[n++] = names[i];
        status = open_files(io, files, directory, names, n, err);
    }
    if (status == FSDP_OK)
        status = check_index(&index, files, err);
    free(names);
    weights_index_free(&index);
    return status;
}

static bool has_manifest(struct fsdp_io *io, const char *directory)
{
    char path[IO_PATH_BYTES];
    struct io_stat stat;

    return io_join(path, directory, MANIFEST_FILE, NULL) == FSDP_OK && io->stat(io, path, &stat) == 0;
}

/*
 * Reads a step directory. The path may be a link to one; then "/." is appended, because that names the
 * directory itself.
 */
static enum fsdp_status read_step(struct fsdp_io *io, const char *path, struct contents *out, char *directory,
                                  struct fsdp_err *err)
{
    struct io_stat stat;
    const bool link = io->stat(io, path, &stat) == 0 && stat.kind == IO_OTHER;

    if (snprintf(directory, IO_PATH_BYTES, "%s%s", path, link ? "/." : "") >= IO_PATH_BYTES)
        return fsdp_fail(err, FSDP_ERR_ARG, "the path of the weights is too long");
    return contents_read(io, directory, out, err);
}

static enum fsdp_status open_directory(struct fsdp_io *io, struct files *files, const char *directory,
                                       struct fsdp_err *err)
{
    struct io_names names = { 0 };
    enum fsdp_status status;

    status = io->list(io, directory, &names) < 0
                 ? fsdp_fail(err, FSDP_ERR_IO, "list %s", directory)
                 : open_files(io, files, directory, names.names, names.n, err);
    io_names_free(&names);
    return status;
}

enum fsdp_status weights_list(struct fsdp_io *io, const char *path, struct contents *out, char *directory,
                              struct fsdp_err *err)
{
    char own[IO_PATH_BYTES], *name;
    struct files files = { 0 };
    enum fsdp_status status;
    struct io_stat stat;
    int fd;

    *out = (struct contents){ 0 };
    if (snprintf(own, sizeof own, "%s", path) >= IO_PATH_BYTES)
        return fsdp_fail(err, FSDP_ERR_ARG, "the path of the weights is too long");
    status = io_open_named(io, path, &fd, &stat, err);
    if (status == FSDP_ERR_NOT_FOUND)
        return fsdp_fail(err, status,
                         io->stat(io, path, &stat) < 0 ? "%s is not there"
                                                       : "%s is a link to a file that is not there",
                         path);
    if (status != FSDP_OK)
        return status;
    if (stat.kind == IO_DIRECTORY) {
        io->close(io, fd);
        if (has_manifest(io, path))
            return read_step(io, path, out, directory, err);
        snprintf(directory, IO_PATH_BYTES, "%s", path);
        if (distcp_is(io, path))
            return distcp_list(io, path, out, err);
        status = open_directory(io, &files, directory, err);
    } else {
        name = split_path(own, directory);
        if (ends_in(name, weights_ending))
            status = open_files(io, &files, directory, &name, 1, err);
        else if (ends_in(name, index_ending))
            status = open_indexed(io, fd, stat.size_bytes, path, directory, &files, err);
        else
            status = fsdp_fail(err, FSDP_ERR_FORMAT, "%s is no *%s file", path, weights_ending);
        io->close(io, fd);
    }
    if (status == FSDP_OK)
        status = list_files(out, &files, err);
    if (status != FSDP_OK)
        contents_free(out);
    files_free(&files);
    return status;
}
