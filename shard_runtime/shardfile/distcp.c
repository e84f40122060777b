#include "shard_runtime/shardfile/distcp.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/alloc.h"
#include "shard_runtime/core/require.h"
#include "shard_runtime/shardfile/pickle.h"
#include "shard_runtime/shardfile/torch_zip.h"
#include "shard_runtime/shardfile/weights.h"

#define METADATA "torch.distributed.checkpoint.metadata "
#define STORAGE  "torch.distributed.checkpoint.filesystem "

static const char metadata_name[] = ".metadata";
enum { MOST_METADATA_BYTES = 256 << 20 };

/* Names of classes and functions that the metadata may contain. The names of element types come last. */
static const char *const names[] = {
    METADATA "Metadata",
    METADATA "TensorStorageMetadata",
    METADATA "MetadataIndex",
    STORAGE "_StorageInfo",
    "torch Size",
    METADATA "BytesStorageMetadata",
    METADATA "ChunkStorageMetadata",
    METADATA "TensorProperties",
    METADATA "StorageMeta",
    METADATA "_MEM_FORMAT_ENCODING",
    "torch.distributed._shard.sharded_tensor.metadata TensorProperties",
    "torch.distributed._shard.sharded_tensor.metadata MEM_FORMAT_ENCODING",
    "torch.serialization _get_layout",
    "collections OrderedDict",
    "pathlib PosixPath",
    "pathlib PurePosixPath",
    "pathlib._local PosixPath",
    "torch float32",
    "torch bfloat16",
    "torch float64",
    "torch int64",
    "torch int32",
    "torch uint8",
    "torch float16",
    "torch bool",
    "torch int8",
    "torch int16",
    "torch complex64",
    "torch complex128",
    "torch float8_e4m3fn",
    "torch float8_e5m2",
};
enum { N_NAMES = sizeof names / sizeof *names };
enum global { METADATA_CLASS, TENSOR_CLASS, INDEX_CLASS, INFO_CLASS, SIZE_CLASS, FIRST_TYPE = 17 };
/*
 * The element types, in the order of their names above. Tensors of the types after these can be listed but
 * not read.
 */
static const enum fsdp_dtype dtypes[] = {
    FSDP_F32, FSDP_BF16, FSDP_F64, FSDP_I64, FSDP_I32, FSDP_U8, FSDP_F16
};
enum { N_DTYPES = sizeof dtypes / sizeof *dtypes };

struct listing {
    struct fsdp_io *io;
    const char *directory;
    struct contents *out;
    size_t tensors_room, files_room;
    const struct manifest_tensor **sorted;
    int fd; /* descriptor of file number `open`; -1: none is open */
    size_t open;
    char path[IO_PATH_BYTES]; /* path of the open file */
};

static enum fsdp_status malformed(const char *what, struct fsdp_err *err)
{
    return fsdp_fail(err, FSDP_ERR_FORMAT, "%s: it has no proper %s", metadata_name, what);
}

/* Reads the numbers of a torch.Size((4, 5)). */
static bool read_size(const struct pickle_value *value, uint64_t dims[MANIFEST_MAX_DIMS], size_t *n)
{
    const struct pickle_value *tuple = pickle_item(pickle_arguments(value), 0);

    if (pickle_global(value) != SIZE_CLASS || tuple == NULL ||
        (tuple->kind != PICKLE_TUPLE && tuple->kind != PICKLE_LIST) || tuple->n > MANIFEST_MAX_DIMS)
        return false;
    *n = tuple->n;
    for (size_t d = 0; d < *n; d++)
        if (!pickle_count(pickle_item(tuple, d), &dims[d]))
            return false;
    return true;
}

static enum fsdp_status add_tensor(struct listing *listing, const char *name,
                                   const struct pickle_value *value, struct fsdp_err *err)
{
    struct manifest *manifest = &listing->out->manifest;
    const struct pickle_value *state = pickle_state(value);
    const int type = pickle_global(pickle_item(pickle_state(pickle_get(state, "properties")), 0));
    struct manifest_tensor *tensor;

    if (!alloc_room(&manifest->tensors, &listing->tensors_room, manifest->n_tensors, sizeof *tensor))
        return fsdp_fail(err, FSDP_ERR_NOMEM, "memory for %zu tensors", manifest->n_tensors + 1);
    tensor = &manifest->tensors[manifest->n_tensors];
    *tensor = (struct manifest_tensor){ .name = name, .dtype = WEIGHTS_UNKNOWN_DTYPE };
    if (type < FIRST_TYPE || !read_size(pickle_get(state, "size"), tensor->shape, &tensor->n_dims))
        return malformed("type or size of a tensor", err);
    if (type < FIRST_TYPE + N_DTYPES)
        tensor->dtype = dtypes[type - FIRST_TYPE];
    manifest->n_tensors++;
    return FSDP_OK;
}

static enum fsdp_status add_tensors(struct listing *listing, const struct pickle_value *state,
                                    struct fsdp_err *err)
{
    const struct pickle_value *all = pickle_get(state, "state_dict_metadata");

    if (all == NULL || all->kind != PICKLE_DICT)
        return malformed("state_dict_metadata", err);
    for (size_t i = 0; i + 1 < all->n; i += 2) {
        const char *name = pickle_text(all->items[i]);

        if (name == NULL || *name == '\0')
            return malformed("name of a tensor", err);
        if (pickle_global(all->items[i + 1]) == TENSOR_CLASS)
            OK_OR_RETURN(add_tensor(listing, name, all->items[i + 1], err));
    }
    OK_OR_RETURN(manifest_sort(&listing->out->manifest, &listing->sorted, err));
    for (size_t i = 1; i < listing->out->manifest.n_tensors; i++)
        if (strcmp(listing->sorted[i - 1]->name, listing->sorted[i]->name) == 0)
            return fsdp_fail(err, FSDP_ERR_FORMAT, "%s: %.200s is there twice", metadata_name,
                             listing->sorted[i]->name);
    return FSDP_OK;
}

/*
 * Returns in *file the number of the file called `name`, and adds the file if it is new. It compares with the
 * last file first, because that is the most likely one.
 */
static enum fsdp_status find_file(struct listing *listing, const char *name, size_t *file,
                                  struct fsdp_err *err)
{
    struct manifest *manifest = &listing->out->manifest;

    if (name == NULL || !io_name_is_plain(name))
        return malformed("name of a file in its directory", err);
    for (*file = manifest->n_files; *file > 0; (*file)--)
        if (strcmp(manifest->files[*file - 1].name, name) == 0) {
            (*file)--;
            return FSDP_OK;
        }
    if (!alloc_room(&manifest->files, &listing->files_room, manifest->n_files, sizeof *manifest->files))
        return fsdp_fail(err, FSDP_ERR_NOMEM, "memory for the names of files");
    *file = manifest->n_files++;
    manifest->files[*file] = (struct manifest_file){ .name = name };
    return FSDP_OK;
}

static enum fsdp_status open_file(struct listing *listing, size_t file, struct fsdp_err *err)
{
    struct manifest_file *listed = &listing->out->manifest.files[file];
    struct io_stat stat;

    if (listing->fd >= 0 && listing->open == file)
        return FSDP_OK;
    if (listing->fd >= 0)
        listing->io->close(listing->io, listing->fd);
    listing->fd = -1;
    OK_OR_RETURN(io_join(listing->path, listing->directory, listed->name, err));
    OK_OR_RETURN(io_open_named(listing->io, listing->path, &listing->fd, &stat, err));
    listing->open = file;
    listed->size_bytes = stat.size_bytes;
    return stat.kind == IO_FILE ? FSDP_OK
                                : fsdp_fail(err, FSDP_ERR_FORMAT, "%s is not a regular file", listing->path);
}

/* Adds a chunk of a tensor. The archive with the chunk is at `offset` in the file. */
static enum fsdp_status add_chunk(struct listing *listing, const struct manifest_tensor *tensor, size_t file,
                                  const uint64_t *offsets, size_t n_offsets, uint64_t offset, uint64_t length,
                                  struct fsdp_err *err)
{
    struct contents *out = listing->out;
    struct contents_piece piece = { .tensor = (uint32_t)(tensor - out->manifest.tensors),
                                    .file = (uint32_t)file };
    const struct box whole = box_whole(tensor->shape, tensor->n_dims);
    struct torch_tensor found;
    enum fsdp_status status;

    OK_OR_RETURN(open_file(listing, file, err));
    if (offset > out->manifest.files[file].size_bytes ||
        length > out->manifest.files[file].size_bytes - offset)
        return fsdp_fail(err, FSDP_ERR_FORMAT, "%s is too short for %.200s", listing->path, tensor->name);
    status = torch_zip_find(listing->io, listing->fd, listing->path, offset, length, &found, err);
    if (status != FSDP_OK) {
        fsdp_wrap(err, "%.200s", tensor->name);
        return status;
    }
    if (found.dtype != tensor->dtype || found.n_dims != tensor->n_dims ||
        (n_offsets != tensor->n_dims && n_offsets != 0))
        return fsdp_fail(err, FSDP_ERR_FORMAT, "%s: %.200s has another type or shape than its metadata says",
                         listing->path, tensor->name);
    piece.box = box_whole(found.shape, found.n_dims);
    piece.offset = found.offset;
    for (size_t d = 0; d < n_offsets; d++) {
        uint64_t end;

        piece.box.offsets[d] = offsets[d];
        if (__builtin_add_overflow(offsets[d], found.shape[d], &end) || end > tensor->shape[d])
            return fsdp_fail(err, FSDP_ERR_FORMAT, "%s: a part of %.200s reaches out of it", listing->path,
                             tensor->name);
    }
    if (!box_is_within(&piece.box, &whole))
        return fsdp_fail(err, FSDP_ERR_FORMAT, "%s: a part of %.200s reaches out of it", listing->path,
                         tensor->name);
    if (!alloc_room(&out->pieces, &out->pieces_room, out->n_pieces, sizeof *out->pieces))
        return fsdp_fail(err, FSDP_ERR_NOMEM, "memory for %zu pieces of tensors", out->n_pieces + 1);
    out->pieces[out->n_pieces++] = piece;
    return FSDP_OK;
}

/*
 * Adds a tensor of a type that is not read. It gets one piece for the whole tensor, so that it can be listed.
 * Its file is not opened.
 */
static enum fsdp_status add_unread(struct listing *listing, const struct manifest_tensor *tensor, size_t file,
                                   uint64_t offset, struct fsdp_err *err)
{
    struct contents *out = listing->out;
    const uint32_t number = (uint32_t)(tensor - out->manifest.tensors);

    for (size_t i = 0; i < out->n_pieces; i++)
        if (out->pieces[i].tensor == number)
            return FSDP_OK;
    if (!alloc_room(&out->pieces, &out->pieces_room, out->n_pieces, sizeof *out->pieces))
        return fsdp_fail(err, FSDP_ERR_NOMEM, "memory for %zu pieces of tensors", out->n_pieces + 1);
    out->pieces[out->n_pieces++] = (struct contents_piece){ .tensor = number,
                                                            .file = (uint32_t)file,
                                                            .box = box_whole(tensor->shape, tensor->n_dims),
                                                            .offset = offset };
    return FSDP_OK;
}

/* Adds one item of storage_data, which says where a chunk of a tensor is. */
static enum fsdp_status add_stored(struct listing *listing, const struct pickle_value *index,
                                   const struct pickle_value *info, struct fsdp_err *err)
{
    const struct pickle_value *key = pickle_state(index), *place = pickle_state(info),
                              *begin = pickle_get(key, "offset"),
                              *transforms = pickle_get(place, "transform_descriptors");
    const char *name = pickle_text(pickle_get(key, "fqn"));
    const struct manifest_tensor *tensor;
    uint64_t offsets[MANIFEST_MAX_DIMS], offset, length;
    size_t n_offsets = 0, file;

    if (pickle_global(index) != INDEX_CLASS || pickle_global(info) != INFO_CLASS || name == NULL ||
        !pickle_count(pickle_get(place, "offset"), &offset) ||
        !pickle_count(pickle_get(place, "length"), &length) ||
        (begin != NULL && begin->kind != PICKLE_NONE && !read_size(begin, offsets, &n_offsets)))
        return malformed("storage_data", err);
    tensor = manifest_find(listing->sorted, listing->out->manifest.n_tensors, name);
    if (tensor == NULL)
        return FSDP_OK; /* the item is not a tensor */
    if (transforms != NULL && transforms->kind != PICKLE_NONE && transforms->n > 0)
        return fsdp_fail(err, FSDP_ERR_UNSUPPORTED, "%.200s is stored transformed (compressed, perhaps)",
                         name);
    OK_OR_RETURN(find_file(listing, pickle_text(pickle_get(place, "relative_path")), &file, err));
    if (tensor->dtype == WEIGHTS_UNKNOWN_DTYPE)
        return add_unread(listing, tensor, file, offset, err);
    return add_chunk(listing, tensor, file, offsets, n_offsets, offset, length, err);
}

static enum fsdp_status list(struct listing *listing, const struct pickle_value *root, struct fsdp_err *err)
{
    const struct pickle_value *state = pickle_state(root), *stored = pickle_get(state, "storage_data");

    if (pickle_global(root) != METADATA_CLASS || stored == NULL || stored->kind != PICKLE_DICT)
        return malformed("storage_data", err);
    OK_OR_RETURN(add_tensors(listing, state, err));
    for (size_t i = 0; i + 1 < stored->n; i += 2)
        OK_OR_RETURN(add_stored(listing, stored->items[i], stored->items[i + 1], err));
    return contents_prove(listing->out, err);
}

/* Copies the list's names, which point into the pickle, to memory that the list owns. */
static enum fsdp_status keep_names(struct contents *out, struct fsdp_err *err)
{
    struct manifest *manifest = &out->manifest;
    size_t n_bytes = 1;
    char *to;

    for (size_t i = 0; i < manifest->n_tensors; i++)
        n_bytes += strlen(manifest->tensors[i].name) + 1;
    for (size_t i = 0; i < manifest->n_files; i++)
        n_bytes += strlen(manifest->files[i].name) + 1;
    to = manifest->text = malloc(n_bytes);
    if (to == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "memory for the names of tensors");
    for (size_t i = 0; i < manifest->n_tensors; i++, to += strlen(to) + 1)
        manifest->tensors[i].name = strcpy(to, manifest->tensors[i].name);
    for (size_t i = 0; i < manifest->n_files; i++, to += strlen(to) + 1)
        manifest->files[i].name = strcpy(to, manifest->files[i].name);
    return FSDP_OK;
}

bool distcp_is(struct fsdp_io *io, const char *directory)
{
    char path[IO_PATH_BYTES];
    struct io_stat stat;

    return io_join(path, directory, metadata_name, NULL) == FSDP_OK && io->stat(io, path, &stat) == 0;
}

enum fsdp_status distcp_list(struct fsdp_io *io, const char *directory, struct contents *out,
                             struct fsdp_err *err)
{
    struct listing listing = { .io = io, .directory = directory, .out = out, .fd = -1 };
    char path[IO_PATH_BYTES], *bytes = NULL;
    struct pickle pickle = { 0 };
    enum fsdp_status status;
    size_t length;

    *out = (struct contents){ .follows_links = true };
    OK_OR_RETURN(io_join(path, directory, metadata_name, err));
    OK_OR_RETURN(io_read_named(io, path, MOST_METADATA_BYTES, &bytes, &length, err));
    status = pickle_read(&pickle, bytes, length, names, N_NAMES, err);
    if (status == FSDP_OK)
        status = list(&listing, pickle.root, err);
    if (status == FSDP_OK)
        status = keep_names(out, err);
    if (status != FSDP_OK) {
        fsdp_wrap(err, "%s", directory);
        contents_free(out);
    }
    if (listing.fd >= 0)
        io->close(io, listing.fd);
    free(listing.sorted);
    pickle_free(&pickle);
    free(bytes);
    return status;
}
