#include "shard_runtime/shardfile/contents.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/alloc.h"
#include "shard_runtime/core/files.h"
#include "shard_runtime/core/require.h"
#include "shard_runtime/shardfile/safetensors.h"

/* Returns the size of dimension 0. A tensor without dimensions counts as one row. */
static uint64_t rows_of(const struct manifest_tensor *tensor)
{
    return tensor->n_dims == 0 ? 1 : tensor->shape[0];
}

/* Searches linearly. A caller looks up each of its tensors once, and reading their data takes far longer. */
int64_t contents_find(const struct contents *contents, const char *name)
{
    for (size_t i = 0; i < contents->manifest.n_tensors; i++)
        if (strcmp(contents->manifest.tensors[i].name, name) == 0)
            return (int64_t)i;
    return -1;
}

static enum fsdp_status check_sizes(const struct manifest *manifest, struct fsdp_err *err)
{
    for (size_t i = 0; i < manifest->n_tensors; i++) {
        const struct manifest_tensor *tensor = &manifest->tensors[i];
        const bool known = tensor->dtype < FSDP_DTYPE_COUNT; /* else count elements */
        uint64_t bytes = known ? fsdp_dtype_size(tensor->dtype) : 1;

        for (size_t d = 1; d < tensor->n_dims; d++)
            if (__builtin_mul_overflow(bytes, tensor->shape[d], &bytes))
                return fsdp_fail(err, FSDP_ERR_FORMAT, "the size of %.200s does not fit 64 bits",
                                 tensor->name);
        if (__builtin_mul_overflow(bytes, rows_of(tensor), &bytes) || bytes > INT64_MAX)
            return fsdp_fail(err, FSDP_ERR_FORMAT, "the size of %.200s does not fit 64 bits", tensor->name);
    }
    return FSDP_OK;
}

/* Checks that the metadata value of `key` is the number `value`. */
static enum fsdp_status check_mark(const struct safetensors_header *header, const char *key, uint64_t value,
                                   struct fsdp_err *err)
{
    const char *words = safetensors_metadata_get(header, key);
    char wanted[32];

    snprintf(wanted, sizeof wanted, "%llu", (unsigned long long)value);
    if (words == NULL || strcmp(words, wanted) != 0)
        return fsdp_fail(err, FSDP_ERR_FORMAT, "%s is %.40s, not %s: a file of another save", key,
                         words == NULL ? "missing" : words, wanted);
    return FSDP_OK;
}

static enum fsdp_status check_marks(const struct safetensors_header *header, const struct manifest *manifest,
                                    uint32_t rank, struct fsdp_err *err)
{
    OK_OR_RETURN(check_mark(header, CONTENTS_STEP_KEY, manifest->step, err));
    OK_OR_RETURN(check_mark(header, CONTENTS_GENERATION_KEY, manifest->generation, err));
    OK_OR_RETURN(check_mark(header, CONTENTS_WORLD_KEY, manifest->world_size, err));
    return check_mark(header, CONTENTS_RANK_KEY, rank, err);
}

/* Checks that a shard in a file has the dtype and global shape that the manifest gives for its tensor. */
static enum fsdp_status check_shard(const struct safetensors_tensor *shard,
                                    const struct manifest_tensor *tensor, struct fsdp_err *err)
{
    bool same = shard->dtype == tensor->dtype && shard->n_dims == tensor->n_dims && shard->has_offsets &&
                shard->has_global_shape;

    for (size_t d = 0; d < tensor->n_dims && same; d++)
        same = shard->global_shape[d] == tensor->shape[d];
    if (!same)
        return fsdp_fail(err, FSDP_ERR_FORMAT, "%.200s has another type or shape than the manifest says",
                         shard->name);
    return FSDP_OK;
}

static struct box box_of(const struct safetensors_tensor *shard)
{
    struct box box = box_whole(shard->shape, shard->n_dims);

    memcpy(box.offsets, shard->offsets, shard->n_dims * sizeof *box.offsets);
    return box;
}

static enum fsdp_status add_piece(struct contents *out, struct contents_piece piece, struct fsdp_err *err)
{
    if (!alloc_room(&out->pieces, &out->pieces_room, out->n_pieces, sizeof *out->pieces))
        return fsdp_fail(err, FSDP_ERR_NOMEM, "memory for %zu pieces of tensors", out->n_pieces + 1);
    out->pieces[out->n_pieces++] = piece;
    return FSDP_OK;
}

static enum fsdp_status add_header(struct contents *out, const struct manifest_tensor *const *sorted,
                                   uint32_t file, const struct safetensors_header *header,
                                   struct fsdp_err *err)
{
    OK_OR_RETURN(check_marks(header, &out->manifest, out->manifest.files[file].rank, err));
    for (size_t i = 0; i < header->n_tensors; i++) {
        const struct safetensors_tensor *shard = &header->tensors[i];
        const struct manifest_tensor *tensor = manifest_find(sorted, out->manifest.n_tensors, shard->name);

        if (tensor == NULL)
            return fsdp_fail(err, FSDP_ERR_FORMAT, "holds %.200s, which the manifest does not know",
                             shard->name);
        OK_OR_RETURN(check_shard(shard, tensor, err));
        OK_OR_RETURN(add_piece(out,
                               (struct contents_piece){ .tensor = (uint32_t)(tensor - out->manifest.tensors),
                                                        .file = file,
                                                        .box = box_of(shard),
                                                        .offset = header->data_start + shard->begin },
                               err));
    }
    return FSDP_OK;
}

static enum fsdp_status check_size(const char *path, uint64_t size_bytes, const struct manifest_file *listed,
                                   struct fsdp_err *err)
{
    return size_bytes == listed->size_bytes
               ? FSDP_OK
               : fsdp_fail(err, FSDP_ERR_FORMAT, "%s: %llu bytes; the manifest says %llu", path,
                           (unsigned long long)size_bytes, (unsigned long long)listed->size_bytes);
}

static enum fsdp_status add_file(struct fsdp_io *io, const char *step_directory, struct contents *out,
                                 const struct manifest_tensor *const *sorted, uint32_t file,
                                 struct fsdp_err *err)
{
    const struct manifest_file *listed = &out->manifest.files[file];
    struct safetensors_header header = { 0 };
    char path[IO_PATH_BYTES];
    enum fsdp_status status;

    OK_OR_RETURN(io_join(path, step_directory, listed->name, err));
    OK_OR_RETURN(safetensors_open(io, path, &header, NULL, err));
    status = check_size(path, header.size_bytes, listed, err);
    if (status == FSDP_OK) {
        status = add_header(out, sorted, file, &header, err);
        if (status != FSDP_OK)
            fsdp_wrap(err, "%s", path);
    }
    safetensors_free(&header);
    return status;
}

static int compare_pieces(const void *a, const void *b)
{
    const struct contents_piece *one = a, *two = b;

    if (one->tensor != two->tensor)
        return one->tensor < two->tensor ? -1 : 1;
    for (size_t d = 0; d < one->box.n_dims; d++) {
        if (one->box.offsets[d] != two->box.offsets[d])
            return one->box.offsets[d] < two->box.offsets[d] ? -1 : 1;
        if (one->box.sizes[d] != two->box.sizes[d])
            return one->box.sizes[d] < two->box.sizes[d] ? -1 : 1;
    }
    return 0;
}

/*
 * Proves that pieces of whole rows, sorted by their first row, follow one another from row 0 to the last row.
 */
static enum fsdp_status prove_rows(const struct manifest_tensor *tensor, const struct contents_piece *pieces,
                                   size_t n_pieces, struct fsdp_err *err)
{
    uint64_t row = 0;

    for (size_t i = 0; i < n_pieces; i++) {
        const uint64_t first = pieces[i].box.offsets[0];

        if (first != row)
            return fsdp_fail(err, FSDP_ERR_FORMAT, "%.200s: rows %llu and on are %s", tensor->name,
                             (unsigned long long)(first < row ? first : row),
                             first < row ? "there twice" : "in no file");
        /* cannot overflow: the header's reader checked that it is within the global shape */
        row += pieces[i].box.sizes[0];
    }
    if (row != rows_of(tensor))
        return fsdp_fail(err, FSDP_ERR_FORMAT, "%.200s: rows %llu to %llu are in no file", tensor->name,
                         (unsigned long long)row, (unsigned long long)rows_of(tensor) - 1);
    return FSDP_OK;
}

/*
 * Proves that the pieces make up the tensor: they are within it, no two overlap, and their element counts add
 * up to the tensor's.
 */
static enum fsdp_status prove_boxes(const struct manifest_tensor *tensor, const struct contents_piece *pieces,
                                    size_t n_pieces, struct fsdp_err *err)
{
    const struct box whole = box_whole(tensor->shape, tensor->n_dims);
    uint64_t n_elems = 0;
    struct box meet;

    for (size_t i = 0; i < n_pieces; i++) {
        n_elems += box_elems(&pieces[i].box);
        for (size_t j = i + 1; j < n_pieces; j++)
            if (box_meet(&pieces[i].box, &pieces[j].box, &meet))
                return fsdp_fail(err, FSDP_ERR_FORMAT, "%.200s: what begins at row %llu is there twice",
                                 tensor->name, (unsigned long long)meet.offsets[0]);
    }
    if (n_elems != box_elems(&whole))
        return fsdp_fail(err, FSDP_ERR_FORMAT, "%.200s: %llu of its %llu elements are in no file",
                         tensor->name, (unsigned long long)(box_elems(&whole) - n_elems),
                         (unsigned long long)box_elems(&whole));
    return FSDP_OK;
}

static bool are_rows(const struct manifest_tensor *tensor, const struct contents_piece *pieces,
                     size_t n_pieces)
{
    const struct box whole = box_whole(tensor->shape, tensor->n_dims);
    bool rows = true;

    for (size_t i = 0; i < n_pieces; i++)
        rows = rows && box_is_rows(&pieces[i].box, &whole);
    return rows;
}

enum fsdp_status contents_prove(struct contents *out, struct fsdp_err *err)
{
    size_t at = 0;

    OK_OR_RETURN(check_sizes(&out->manifest, err));
    out->starts = calloc(out->manifest.n_tensors + 1, sizeof *out->starts);
    if (out->starts == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "memory for %zu tensors", out->manifest.n_tensors);
    if (out->n_pieces > 1)
        qsort(out->pieces, out->n_pieces, sizeof *out->pieces, compare_pieces);
    for (size_t t = 0; t < out->manifest.n_tensors; t++) {
        const struct manifest_tensor *tensor = &out->manifest.tensors[t];
        /* without any piece there is no list, and no arithmetic with it */
        const struct contents_piece *pieces = out->n_pieces == 0 ? NULL : out->pieces + at;
        size_t n = 0;

        out->starts[t] = at;
        while (at + n < out->n_pieces && pieces[n].tensor == t)
            n++;
        OK_OR_RETURN(are_rows(tensor, pieces, n) ? prove_rows(tensor, pieces, n, err)
                                                 : prove_boxes(tensor, pieces, n, err));
        at += n;
    }
    out->starts[out->manifest.n_tensors] = at;
    return FSDP_OK;
}

/* Refuses a .safetensors file that the manifest does not list: PyTorch's reader reads every such file. */
static enum fsdp_status refuse_strays(struct fsdp_io *io, const char *step_directory,
                                      const struct manifest *manifest, struct fsdp_err *err)
{
    static const char ending[] = ".safetensors";
    enum fsdp_status status = FSDP_OK;
    struct io_names names;
    size_t file = 0;

    if (io->list(io, step_directory, &names) < 0)
        return fsdp_fail(err, FSDP_ERR_IO, "list %s", step_directory);
    for (size_t i = 0; i < names.n && status == FSDP_OK; i++) {
        const char *name = names.names[i];
        const size_t length = strlen(name);

        if (length < sizeof ending - 1 || strcmp(name + length - (sizeof ending - 1), ending) != 0)
            continue;
        /* A name contains the rank as five digits, so names in order are also ranks in order. */
        while (file < manifest->n_files && strcmp(manifest->files[file].name, name) < 0)
            file++;
        if (file == manifest->n_files || strcmp(manifest->files[file].name, name) != 0)
            status = fsdp_fail(err, FSDP_ERR_FORMAT, "%s: %s is there, but not in the manifest",
                               step_directory, name);
    }
    io_names_free(&names);
    return status;
}

static enum fsdp_status refuse_links(struct fsdp_io *io, const char *step_directory, struct fsdp_err *err)
{
    struct io_stat stat;

    if (io->stat(io, step_directory, &stat) < 0)
        return fsdp_fail(err, FSDP_ERR_NOT_FOUND, "%s is not there", step_directory);
    if (stat.kind != IO_DIRECTORY)
        return fsdp_fail(err, FSDP_ERR_FORMAT, "%s is no directory", step_directory);
    return FSDP_OK;
}

static enum fsdp_status check_file(struct fsdp_io *io, const char *step_directory,
                                   const struct manifest_file *listed, struct fsdp_err *err)
{
    char path[IO_PATH_BYTES];
    struct io_stat stat;

    OK_OR_RETURN(io_join(path, step_directory, listed->name, err));
    if (io->stat(io, path, &stat) < 0)
        return errno == ENOENT ? fsdp_fail(err, FSDP_ERR_NOT_FOUND, "%s is not there", path)
                               : file_fail(err, "stat", path);
    if (stat.kind != IO_FILE)
        return fsdp_fail(err, FSDP_ERR_FORMAT, "%s is no regular file", path);
    return check_size(path, stat.size_bytes, listed, err);
}

enum fsdp_status contents_read_sizes(struct fsdp_io *io, const char *step_directory, struct manifest *out,
                                     struct fsdp_err *err)
{
    enum fsdp_status status;

    *out = (struct manifest){ 0 };
    OK_OR_RETURN(refuse_links(io, step_directory, err));
    OK_OR_RETURN(manifest_read(io, step_directory, out, err));
    status = refuse_strays(io, step_directory, out, err);
    for (size_t file = 0; file < out->n_files && status == FSDP_OK; file++)
        status = check_file(io, step_directory, &out->files[file], err);
    if (status != FSDP_OK)
        manifest_free(out);
    return status;
}

uint32_t contents_reader(const struct manifest *manifest, size_t file, uint32_t n_readers)
{
    return (uint32_t)((uint64_t)manifest->files[file].rank * n_readers / manifest->world_size);
}

enum fsdp_status contents_read_share(struct fsdp_io *io, const char *step_directory, uint32_t reader,
                                     uint32_t n_readers, struct contents *out, struct fsdp_err *err)
{
    const struct manifest_tensor **sorted;
    enum fsdp_status status;

    *out = (struct contents){ 0 };
    OK_OR_RETURN(refuse_links(io, step_directory, err));
    OK_OR_RETURN(manifest_read(io, step_directory, &out->manifest, err));
    status = manifest_sort(&out->manifest, &sorted, err);
    for (uint32_t file = 0; file < out->manifest.n_files && status == FSDP_OK; file++)
        if (contents_reader(&out->manifest, file, n_readers) == reader)
            status = add_file(io, step_directory, out, sorted, file, err);
    if (status == FSDP_OK && reader == 0)
        status = refuse_strays(io, step_directory, &out->manifest, err);
    free(sorted);
    if (status != FSDP_OK)
        contents_free(out);
    return status;
}

enum fsdp_status contents_read(struct fsdp_io *io, const char *step_directory, struct contents *out,
                               struct fsdp_err *err)
{
    enum fsdp_status status;

    OK_OR_RETURN(contents_read_share(io, step_directory, 0, 1, out, err));
    status = contents_prove(out, err);
    if (status != FSDP_OK) {
        fsdp_wrap(err, "%s", step_directory);
        contents_free(out);
    }
    return status;
}

enum fsdp_status contents_open_file(struct fsdp_io *io, const struct contents *contents, uint32_t file,
                                    const char *directory, char path[IO_PATH_BYTES], int *fd,
                                    struct fsdp_err *err)
{
    enum fsdp_status status = io_join(path, directory, contents->manifest.files[file].name, err);
    struct io_stat stat;

    if (status != FSDP_OK)
        return status;
    return contents->follows_links ? io_open_named(io, path, fd, &stat, err)
                                   : io_open_read(io, path, fd, &stat.size_bytes, err);
}

void contents_free(struct contents *contents)
{
    manifest_free(&contents->manifest);
    free(contents->pieces);
    free(contents->starts);
    *contents = (struct contents){ 0 };
}
