#include "shard_runtime/shardfile/weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/shardfile/safetensors.h"

static const char ending[] = ".safetensors";

static bool names_weights(const char *name)
{
    const size_t length = strlen(name);

    return length >= sizeof ending && strcmp(name + length - (sizeof ending - 1), ending) == 0;
}

/* The files of a list and what their headers say; a list owns no header, so all names are copied at the end. */
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

static enum fsdp_status add_file(struct fsdp_io *io, struct files *files, const char *directory,
                                 const char *name, struct fsdp_err *err)
{
    char path[IO_PATH_BYTES];
    enum fsdp_status status;

    files->names[files->n] = strdup(name);
    if (files->names[files->n] == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "memory for the names of files");
    files->headers[files->n++] = (struct safetensors_header){ 0 };
    status = io_join(path, directory, name, err);
    return status == FSDP_OK ? safetensors_open(io, path, &files->headers[files->n - 1], NULL, err) : status;
}

static enum fsdp_status open_files(struct fsdp_io *io, struct files *files, const char *directory,
                                   char *const *names, size_t n, struct fsdp_err *err)
{
    enum fsdp_status status = FSDP_OK;

    files->names = calloc(n + 1, sizeof *files->names);
    files->headers = calloc(n + 1, sizeof *files->headers);
    if (files->names == NULL || files->headers == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "memory for %zu files", n);
    for (size_t i = 0; i < n && status == FSDP_OK; i++)
        if (names_weights(names[i]))
            status = add_file(io, files, directory, names[i], err);
    if (status == FSDP_OK && files->n == 0)
        status = fsdp_fail(err, FSDP_ERR_NOT_FOUND, "there is no file *%s in %s", ending, directory);
    return status;
}

/* One block for all names of the list, which contents_free() releases as a manifest's text. */
static bool alloc_list(struct contents *out, const struct files *files, char **text)
{
    size_t n_tensors = 0, n_bytes = 1;

    for (size_t f = 0; f < files->n; f++) {
        n_tensors += files->headers[f].n_tensors;
        n_bytes += strlen(files->names[f]) + 1;
        for (size_t i = 0; i < files->headers[f].n_tensors; i++)
            n_bytes += strlen(files->headers[f].tensors[i].name) + 1;
    }
    out->manifest.tensors = calloc(n_tensors + 1, sizeof *out->manifest.tensors);
    out->manifest.files = calloc(files->n + 1, sizeof *out->manifest.files);
    out->manifest.text = malloc(n_bytes);
    out->pieces = calloc(n_tensors + 1, sizeof *out->pieces);
    out->starts = calloc(n_tensors + 1, sizeof *out->starts);
    *text = out->manifest.text;
    return out->manifest.tensors != NULL && out->manifest.files != NULL && out->manifest.text != NULL &&
           out->pieces != NULL && out->starts != NULL;
}

static const char *keep_name(char **text, const char *name)
{
    char *kept = *text;
    const size_t size = strlen(name) + 1;

    memcpy(kept, name, size);
    *text += size;
    return kept;
}

/* Whole tensors only: each is one piece, and stands in one file. */
static enum fsdp_status add_tensor(struct contents *out, uint32_t file,
                                   const struct safetensors_header *header,
                                   const struct safetensors_tensor *tensor, char **text, struct fsdp_err *err)
{
    const size_t t = out->manifest.n_tensors;
    struct manifest_tensor *listed = &out->manifest.tensors[t];

    if (contents_find(out, tensor->name) >= 0)
        return fsdp_fail(err, FSDP_ERR_FORMAT, "%.200s is in two files", tensor->name);
    if (tensor->has_offsets)
        return fsdp_fail(err, FSDP_ERR_FORMAT, "%.200s is a shard, and there is no manifest.json beside it",
                         tensor->name);
    if (tensor->n_dims > MANIFEST_MAX_DIMS)
        return fsdp_fail(err, FSDP_ERR_FORMAT, "%.200s has %zu dimensions", tensor->name, tensor->n_dims);
    *listed = (struct manifest_tensor){ .name = keep_name(text, tensor->name),
                                        .dtype = tensor->dtype,
                                        .n_dims = tensor->n_dims };
    memcpy(listed->shape, tensor->shape, tensor->n_dims * sizeof *listed->shape);
    out->pieces[t] = (struct contents_piece){ .tensor = (uint32_t)t,
                                              .file = file,
                                              .box = box_whole(listed->shape, listed->n_dims),
                                              .offset = header->data_start + tensor->begin };
    out->starts[t] = t;
    out->starts[t + 1] = t + 1;
    out->manifest.n_tensors = out->n_pieces = t + 1;
    return FSDP_OK;
}

static enum fsdp_status list_files(struct contents *out, const struct files *files, struct fsdp_err *err)
{
    enum fsdp_status status = FSDP_OK;
    char *text;

    if (!alloc_list(out, files, &text))
        return fsdp_fail(err, FSDP_ERR_NOMEM, "memory for the list of tensors");
    for (uint32_t f = 0; f < files->n && status == FSDP_OK; f++) {
        const struct safetensors_header *header = &files->headers[f];

        out->manifest.files[f] = (struct manifest_file){ .name = keep_name(&text, files->names[f]),
                                                         .size_bytes = header->size_bytes };
        out->manifest.n_files = f + 1;
        for (size_t i = 0; i < header->n_tensors && status == FSDP_OK; i++)
            status = add_tensor(out, f, header, &header->tensors[i], &text, err);
        if (status != FSDP_OK)
            fsdp_wrap(err, "%s", files->names[f]);
    }
    return status;
}

/* "a/b.safetensors" into its directory and its name; names[0] is to be freed. */
static enum fsdp_status split_path(const char *path, char directory[IO_PATH_BYTES], char *names[1],
                                   struct fsdp_err *err)
{
    const char *slash = strrchr(path, '/');
    const int n = slash == NULL ? 1 : slash == path ? 1 : (int)(slash - path);

    snprintf(directory, IO_PATH_BYTES, "%.*s", n, slash == NULL ? "." : path);
    names[0] = strdup(slash == NULL ? path : slash + 1);
    return names[0] != NULL ? FSDP_OK : fsdp_fail(err, FSDP_ERR_NOMEM, "memory for a name");
}

static bool has_manifest(struct fsdp_io *io, const char *directory)
{
    char path[IO_PATH_BYTES];
    struct io_stat stat;

    return io_join(path, directory, "manifest.json", NULL) == FSDP_OK && io->stat(io, path, &stat) == 0;
}

enum fsdp_status weights_list(struct fsdp_io *io, const char *path, struct contents *out, char *directory,
                              struct fsdp_err *err)
{
    struct io_names names = { 0 };
    struct files files = { 0 };
    char *single[1] = { NULL };
    enum fsdp_status status;
    struct io_stat stat;

    *out = (struct contents){ 0 };
    if (strlen(path) >= IO_PATH_BYTES)
        return fsdp_fail(err, FSDP_ERR_ARG, "the path of the weights is too long");
    if (io->stat(io, path, &stat) < 0)
        return fsdp_fail(err, FSDP_ERR_NOT_FOUND, "%s is not there", path);
    if (stat.kind == IO_DIRECTORY && has_manifest(io, path)) {
        snprintf(directory, IO_PATH_BYTES, "%s", path);
        return contents_read(io, path, out, err);
    }
    if (stat.kind == IO_DIRECTORY) {
        snprintf(directory, IO_PATH_BYTES, "%s", path);
        status = io->list(io, path, &names) < 0
                     ? fsdp_fail(err, FSDP_ERR_IO, "list %s", path)
                     : open_files(io, &files, directory, names.names, names.n, err);
    } else {
        status = names_weights(path) ? split_path(path, directory, single, err)
                                     : fsdp_fail(err, FSDP_ERR_FORMAT, "%s is no *%s file", path, ending);
        if (status == FSDP_OK)
            status = open_files(io, &files, directory, single, 1, err);
    }
    if (status == FSDP_OK)
        status = list_files(out, &files, err);
    if (status != FSDP_OK)
        contents_free(out);
    io_names_free(&names);
    files_free(&files);
    free(single[0]);
    return status;
}
