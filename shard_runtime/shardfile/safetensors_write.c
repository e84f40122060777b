#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/files.h"
#include "shard_runtime/core/require.h"
#include "shard_runtime/core/utf8.h"
#include "shard_runtime/shardfile/chunk_sums.h"
#include "shard_runtime/shardfile/piece_writer.h"
#include "shard_runtime/shardfile/safetensors.h"
#include "shard_runtime/shardfile/xxh3.h"

enum { DIRECT_FROM_BYTES = 1 << 20 }; /* smaller files do not justify a second open */

/* The header */

static enum fsdp_status place(struct safetensors_tensor *tensor, uint64_t *at, struct fsdp_err *err)
{
    uint64_t bytes = tensor->dtype < FSDP_DTYPE_COUNT ? fsdp_dtype_size(tensor->dtype) : 0;

    if (tensor->name == NULL || tensor->name[0] == '\0' || strcmp(tensor->name, "__metadata__") == 0 ||
        bytes == 0 || tensor->n_dims > SAFETENSORS_MAX_DIMS)
        return fsdp_fail(err, FSDP_ERR_ARG, "a tensor without a proper name, dtype or number of dimensions");
    for (size_t d = 0; d < tensor->n_dims; d++)
        if (__builtin_mul_overflow(bytes, tensor->shape[d], &bytes))
            return fsdp_fail(err, FSDP_ERR_ARG, "the size of %.200s does not fit 64 bits", tensor->name);
    tensor->begin = *at;
    if (__builtin_add_overflow(*at, bytes, at) || *at > INT64_MAX / 2)
        return fsdp_fail(err, FSDP_ERR_ARG, "a file that does not fit 64 bits at %.200s", tensor->name);
    tensor->end = *at;
    return FSDP_OK;
}

static void add_dims(struct json_text *text, const uint64_t *dims, size_t n_dims, const char *separator)
{
    json_add(text, "[");
    for (size_t d = 0; d < n_dims; d++)
        json_add(text, "%s%llu", d == 0 ? "" : separator, (unsigned long long)dims[d]);
    json_add(text, "]");
}

/*
 * Writes DCP_SHARDING_INFO: JSON inside a JSON string. The spacing is that of PyTorch's writer, so equal
 * content gives equal bytes.
 */
static void add_sharding(struct json_text *text, const struct safetensors_tensor *tensors, size_t n_tensors)
{
    struct json_text inner = { 0 };

    json_add(&inner, "{");
    for (size_t i = 0; i < n_tensors; i++) {
        json_add(&inner, i == 0 ? "" : ", ");
        json_add_string(&inner, tensors[i].name);
        json_add(&inner, ": {\"saved_offsets\": ");
        add_dims(&inner, tensors[i].offsets, tensors[i].n_dims, ", ");
        if (tensors[i].has_global_shape) {
            json_add(&inner, ", \"global_shape\": ");
            add_dims(&inner, tensors[i].global_shape, tensors[i].n_dims, ", ");
        }
        json_add(&inner, "}");
    }
    json_add(&inner, "}");
    json_add(text, "\"DCP_SHARDING_INFO\":");
    if (inner.failed)
        text->failed = true;
    else
        json_add_string(text, inner.bytes);
    json_add(text, ",\"DCP_VERSION\":\"1.0\",");
    json_text_free(&inner);
}

static void put_length(char *to, uint64_t length)
{
    for (int i = 0; i < 8; i++)
        to[i] = (char)(length >> 8 * i & 0xff);
}

/* Refuses text that is not UTF-8, because json_add_string() would write other text instead. */
enum fsdp_status safetensors_build_header(struct safetensors_tensor *tensors, size_t n_tensors,
                                          const struct safetensors_metadata *metadata, size_t n_metadata,
                                          size_t alignment, struct json_text *out, uint64_t *size_bytes,
                                          struct fsdp_err *err)
{
    uint64_t at = 0;

    for (size_t i = 0; i < n_tensors; i++) {
        OK_OR_RETURN(place(&tensors[i], &at, err));
        if (tensors[i].has_offsets != tensors[0].has_offsets)
            return fsdp_fail(err, FSDP_ERR_ARG, "a file of shards and whole tensors mixed, at %.200s",
                             tensors[i].name);
        if (!utf8_is_valid(tensors[i].name))
            return fsdp_fail(err, FSDP_ERR_ARG, "the name of a tensor is not UTF-8: %.200s", tensors[i].name);
    }
    for (size_t i = 0; i < n_metadata; i++)
        if (!utf8_is_valid(metadata[i].key) || !utf8_is_valid(metadata[i].value))
            return fsdp_fail(err, FSDP_ERR_ARG, "metadata is not UTF-8: %.200s", metadata[i].key);
    json_add_bytes(out, "\0\0\0\0\0\0\0\0", 8);
    json_add(out, "{\"__metadata__\":{");
    if (n_tensors > 0 && tensors[0].has_offsets)
        add_sharding(out, tensors, n_tensors);
    json_add(out, "\"format\":\"pt\"");
    for (size_t i = 0; i < n_metadata; i++) {
        json_add(out, ",");
        json_add_string(out, metadata[i].key);
        json_add(out, ":");
        json_add_string(out, metadata[i].value);
    }
    json_add(out, "}");
    for (size_t i = 0; i < n_tensors; i++) {
        json_add(out, ",");
        json_add_string(out, tensors[i].name);
        json_add(out, ":{\"dtype\":\"%s\",\"shape\":", fsdp_dtype_safetensors_name(tensors[i].dtype));
        add_dims(out, tensors[i].shape, tensors[i].n_dims, ",");
        json_add(out, ",\"data_offsets\":[%llu,%llu]}", (unsigned long long)tensors[i].begin,
                 (unsigned long long)tensors[i].end);
    }
    json_add(out, "}");
    while (!out->failed && out->length % alignment != 0)
        json_add_bytes(out, " ", 1);
    if (out->failed)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "memory for the header of a safetensors file");
    if (out->length - 8 > SAFETENSORS_MAX_HEADER_BYTES)
        return fsdp_fail(err, FSDP_ERR_ARG, "a header of %zu bytes is more than readers take", out->length);
    put_length(out->bytes, out->length - 8);
    if (size_bytes != NULL)
        *size_bytes = out->length + at;
    return FSDP_OK;
}

/* The file */

struct writer {
    struct fsdp_io *io;
    const char *path;
    int fd, direct_fd; /* direct_fd is the same file with O_DIRECT; -1: it is not open */
};

/* Where the bytes after a file's header come from: from tensors, or from an open file that contains them. */
struct source {
    const struct safetensors_tensor *tensors;
    size_t n_tensors;
    uint64_t header_bytes;
    int image_fd;                /* the open file, or image; -1: the bytes come from `tensors` */
    uint64_t image_offset;       /* where in the image the copied file begins */
    _Atomic uint64_t *n_written; /* see struct piece_writer */
};

static int open_for_writing(struct writer *writer, int flags)
{
    return io_open(writer->io, writer->path, O_WRONLY | O_NOFOLLOW | flags, 0666);
}

/* Creates the file. First removes a file of that name, which an earlier attempt of the same save left. */
static enum fsdp_status create(struct writer *writer, bool try_direct, struct fsdp_err *err)
{
    writer->fd = open_for_writing(writer, O_CREAT | O_EXCL);
    if (writer->fd < 0 && errno == EEXIST && writer->io->unlink(writer->io, writer->path) == 0)
        writer->fd = open_for_writing(writer, O_CREAT | O_EXCL);
    if (writer->fd < 0)
        return file_fail(err, "create", writer->path);
    /* A file system without O_DIRECT reports EINVAL, here or at the first write. */
    if (try_direct)
        writer->direct_fd = open_for_writing(writer, O_DIRECT);
    return FSDP_OK;
}

static enum fsdp_status fetch(const struct safetensors_tensor *tensor, uint64_t at, unsigned char *to,
                              size_t n, struct fsdp_err *err)
{
    if (tensor->store != NULL)
        return tensor->store->read(tensor->store->user, tensor->in_store, at, to, n, err);
    memcpy(to, (const unsigned char *)tensor->data + at, n);
    return FSDP_OK;
}

/* Returns the first tensor that ends after `at`, the tensor with that byte of the data. */
static size_t find_tensor(const struct source *source, uint64_t at)
{
    size_t low = 0, high = source->n_tensors;

    while (low < high) {
        const size_t middle = low + (high - low) / 2;

        if (source->tensors[middle].end <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static enum fsdp_status read_source(void *user, uint64_t offset, void *bytes, size_t size_bytes,
                                    struct fsdp_err *err)
{
    const struct source *source = user;
    const uint64_t begin = offset - source->header_bytes, end = begin + size_bytes;

    if (source->image_fd >= 0)
        return io_read_all(&io_posix, source->image_fd, bytes, size_bytes, source->image_offset + offset,
                           "a snapshot", err);
    for (size_t i = find_tensor(source, begin); i < source->n_tensors && source->tensors[i].begin < end;
         i++) {
        const struct safetensors_tensor *tensor = &source->tensors[i];
        const uint64_t first = tensor->begin > begin ? tensor->begin : begin,
                       last = tensor->end < end ? tensor->end : end;

        if (first < last)
            OK_OR_RETURN(fetch(tensor, first - tensor->begin, (unsigned char *)bytes + (first - begin),
                               (size_t)(last - first), err));
    }
    return FSDP_OK;
}

/*
 * May several threads read the tensors? Not if one is in a store, because the store may belong to a device.
 */
static bool any_thread_reads(const struct source *source)
{
    for (size_t i = 0; i < source->n_tensors && source->image_fd < 0; i++)
        if (source->tensors[i].store != NULL)
            return false;
    return true;
}

static enum fsdp_status list_chunks(struct chunk_sums *sums, const struct source *source,
                                    struct fsdp_err *err)
{
    OK_OR_RETURN(chunk_sums_add(sums, source->header_bytes, err));
    for (size_t i = 0; i < source->n_tensors; i++)
        OK_OR_RETURN(chunk_sums_add(sums, source->tensors[i].end - source->tensors[i].begin, err));
    return FSDP_OK;
}

/*
 * Writes the header after all data, so that a file that a crash has left has no header. It goes through the
 * page cache, and the fsync() that follows writes it to the disk.
 */
static enum fsdp_status write_header(const struct writer *writer, const struct json_text *header,
                                     struct fsdp_err *err)
{
    return io_write_all(writer->io, writer->fd, header->bytes, header->length, 0, writer->path, err);
}

static enum fsdp_status write_contents(const struct writer *writer, struct source *source,
                                       const struct json_text *header, uint64_t size_bytes,
                                       XXH3_state_t *hash, struct chunk_sums *sums, struct fsdp_err *err)
{
    const struct piece_writer pieces = {
        .io = writer->io,
        .path = writer->path,
        .fd = writer->fd,
        .direct_fd = writer->direct_fd,
        .begin = header->length,
        .end = size_bytes,
        .read = read_source,
        .user = source,
        .any_thread = any_thread_reads(source),
        .hash = hash,
        .sums = sums,
        .n_written = source->n_written,
    };

    if (writer->io->allocate(writer->io, writer->fd, size_bytes) < 0 && errno != EOPNOTSUPP &&
        errno != ENOSYS && errno != EINTR)
        return fsdp_fail(err, FSDP_ERR_IO, "reserve %llu bytes for %s: %s", (unsigned long long)size_bytes,
                         writer->path, file_error_words(errno));
    if (sums != NULL) {
        OK_OR_RETURN(list_chunks(sums, source, err));
        chunk_sums_take(sums, 0, header->length, header->bytes);
    }
    xxh3_128_update(hash, header->bytes, header->length);
    OK_OR_RETURN(piece_writer_run(&pieces, NULL, err));
    OK_OR_RETURN(write_header(writer, header, err));
    if (writer->io->ftruncate(writer->io, writer->fd, size_bytes) < 0)
        return file_fail(err, "set the size of", writer->path);
    /*
     * Never retry fsync: after a failure the kernel marks the pages clean, so a second call would wrongly
     * succeed.
     */
    if (writer->io->fsync(writer->io, writer->fd) < 0)
        return file_fail(err, "sync", writer->path);
    return FSDP_OK;
}

static enum fsdp_status close_file(const struct writer *writer, int fd, enum fsdp_status status,
                                   struct fsdp_err *err)
{
    if (fd >= 0 && writer->io->close(writer->io, fd) < 0 && status == FSDP_OK)
        return file_fail(err, "close", writer->path);
    return status;
}

/*
 * Creates the file of `size_bytes` with that header. The tensors of `source` have their `begin` and `end`
 * set.
 */
static enum fsdp_status write_file(struct fsdp_io *io, const char *path, struct source *source,
                                   const struct json_text *header, uint64_t size_bytes, bool with_sums,
                                   struct safetensors_written *written, struct fsdp_err *err)
{
    struct writer writer = { .io = io, .path = path, .fd = -1, .direct_fd = -1 };
    XXH3_state_t *hash_state = XXH3_createState();
    struct chunk_sums *sums = NULL;
    enum fsdp_status status;
    XXH128_hash_t hash;
    bool created = false;

    if (hash_state == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "memory to write %s", path);
    XXH3_128bits_reset(hash_state);
    source->header_bytes = header->length;
    status = with_sums ? chunk_sums_create(&sums, err) : FSDP_OK;
    if (status == FSDP_OK)
        status =
            create(&writer, size_bytes >= DIRECT_FROM_BYTES && header->length % PIECE_BLOCK_BYTES == 0, err);
    created = status == FSDP_OK;
    if (status == FSDP_OK)
        status = write_contents(&writer, source, header, size_bytes, hash_state, sums, err);
    if (status == FSDP_OK && with_sums)
        status = chunk_sums_write(sums, io, path, err);
    if (status == FSDP_OK) {
        hash = XXH3_128bits_digest(hash_state);
        *written = (struct safetensors_written){ size_bytes, { hash.low64, hash.high64 } };
    }
    status = close_file(&writer, writer.direct_fd, status, err);
    status = close_file(&writer, writer.fd, status, err);
    if (status != FSDP_OK && created)
        io->unlink(io, path);
    XXH3_freeState(hash_state);
    chunk_sums_destroy(sums);
    return status;
}

enum fsdp_status safetensors_write(struct fsdp_io *io, const char *path, struct safetensors_tensor *tensors,
                                   size_t n_tensors, const struct safetensors_metadata *metadata,
                                   size_t n_metadata, size_t alignment, bool with_sums,
                                   struct safetensors_written *written, struct fsdp_err *err)
{
    struct source source = { .tensors = tensors, .n_tensors = n_tensors, .image_fd = -1 };
    struct json_text header = { 0 };
    uint64_t size_bytes = 0;
    enum fsdp_status status;

    *written = (struct safetensors_written){ 0 };
    status = safetensors_build_header(tensors, n_tensors, metadata, n_metadata, alignment, &header,
                                      &size_bytes, err);
    if (status == FSDP_OK)
        status = write_file(io, path, &source, &header, size_bytes, with_sums, written, err);
    json_text_free(&header);
    return status;
}

/* Reads the beginning of the image: 8 bytes with the length of the header, and the header. */
static enum fsdp_status read_header(int fd, uint64_t offset, uint64_t size_bytes, struct json_text *header,
                                    struct fsdp_err *err)
{
    unsigned char length[8];
    uint64_t n = 0;
    char *bytes;
    enum fsdp_status status;

    if (size_bytes < sizeof length)
        return fsdp_fail(err, FSDP_ERR_FORMAT, "a snapshot of %llu bytes", (unsigned long long)size_bytes);
    OK_OR_RETURN(io_read_all(&io_posix, fd, length, sizeof length, offset, "a snapshot", err));
    for (int i = 0; i < 8; i++)
        n |= (uint64_t)length[i] << 8 * i;
    if (n > SAFETENSORS_MAX_HEADER_BYTES || n > size_bytes - sizeof length)
        return fsdp_fail(err, FSDP_ERR_FORMAT, "a snapshot whose header does not fit it");
    bytes = malloc((size_t)n + sizeof length);
    if (bytes == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "memory for the header of a snapshot");
    status = io_read_all(&io_posix, fd, bytes, (size_t)n + sizeof length, offset, "a snapshot", err);
    if (status == FSDP_OK)
        json_add_bytes(header, bytes, (size_t)n + sizeof length);
    free(bytes);
    if (status == FSDP_OK && header->failed)
        status = fsdp_fail(err, FSDP_ERR_NOMEM, "memory for the header of a snapshot");
    return status;
}

/* Finds out from the header where each tensor of the image begins and ends. The caller frees `parsed`. */
static enum fsdp_status parse_image(const struct json_text *header, uint64_t size_bytes,
                                    struct safetensors_header *parsed, struct fsdp_err *err)
{
    const size_t length = header->length - 8;
    char *text = malloc(length + 1);
    enum fsdp_status status;

    if (text == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "memory for the header of a snapshot");
    memcpy(text, header->bytes + 8, length);
    status = safetensors_parse(parsed, text, length, size_bytes, err);
    if (status != FSDP_OK)
        fsdp_wrap(err, "a snapshot");
    return status;
}

enum fsdp_status safetensors_copy(struct fsdp_io *io, const char *path, int fd, uint64_t offset,
                                  uint64_t size_bytes, _Atomic uint64_t *n_written,
                                  struct safetensors_written *written, struct fsdp_err *err)
{
    struct source source = { .image_fd = fd, .image_offset = offset, .n_written = n_written };
    struct safetensors_header parsed = { 0 };
    struct json_text header = { 0 };
    enum fsdp_status status;

    *written = (struct safetensors_written){ 0 };
    status = read_header(fd, offset, size_bytes, &header, err);
    if (status == FSDP_OK)
        status = parse_image(&header, size_bytes, &parsed, err);
    source.tensors = parsed.tensors;
    source.n_tensors = parsed.n_tensors;
    if (status == FSDP_OK)
        status = write_file(io, path, &source, &header, size_bytes, true, written, err);
    safetensors_free(&parsed);
    json_text_free(&header);
    return status;
}
