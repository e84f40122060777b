#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "shard_runtime/core/files.h"
#include "shard_runtime/core/require.h"
#include "shard_runtime/core/utf8.h"
#include "shard_runtime/shardfile/chunk_sums.h"
#include "shard_runtime/shardfile/safetensors.h"

enum {
    RING_BYTES = 4 << 20,        /* upper limit; a small file gets a smaller buffer */
    DIRECT_FROM_BYTES = 1 << 20, /* smaller files do not justify a second open */
    BLOCK_BYTES = 4096,          /* unit of O_DIRECT for memory, offset and length */
};

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
    int fd;
    bool direct;         /* fd has O_DIRECT: only whole blocks may be written */
    unsigned char *ring; /* buffer of ring_bytes: a whole number of blocks, block-aligned */
    size_t ring_bytes;
    size_t filled; /* bytes in the buffer */
    uint64_t at;   /* file offset of ring[0] */
    XXH3_state_t *hash;
    struct chunk_sums *sums; /* NULL: not wanted */
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
    if (try_direct) {
        const int fd = open_for_writing(writer, O_DIRECT);

        if (fd >= 0) {
            writer->io->close(writer->io, writer->fd);
            writer->fd = fd;
            writer->direct = true;
        }
    }
    return FSDP_OK;
}

static enum fsdp_status leave_direct(struct writer *writer, struct fsdp_err *err)
{
    const int fd = open_for_writing(writer, 0);

    if (fd < 0)
        return file_fail(err, "open", writer->path);
    writer->io->close(writer->io, writer->fd);
    writer->fd = fd;
    writer->direct = false;
    return FSDP_OK;
}

/*
 * Writes bytes to the file. Under O_DIRECT, `size_bytes` and `offset` must be whole blocks. After a short
 * write or EINVAL the function continues without O_DIRECT.
 */
static enum fsdp_status write_blocks(struct writer *writer, const void *bytes, size_t size_bytes,
                                     uint64_t offset, struct fsdp_err *err)
{
    if (writer->direct) {
        ssize_t n;

        do
            n = writer->io->pwrite(writer->io, writer->fd, bytes, size_bytes, offset);
        while (n < 0 && errno == EINTR);
        if (n == (ssize_t)size_bytes)
            return FSDP_OK;
        if (n < 0 && errno != EINVAL)
            return file_fail(err, "write", writer->path);
        OK_OR_RETURN(leave_direct(writer, err)); /* then writes the whole piece again */
    }
    return io_write_all(writer->io, writer->fd, bytes, size_bytes, offset, writer->path, err);
}

/*
 * Writes the buffer's contents to the file and empties it. Under O_DIRECT a partial last block is padded with
 * zeros; the final ftruncate() removes the padding.
 */
static enum fsdp_status flush(struct writer *writer, struct fsdp_err *err)
{
    size_t size_bytes = writer->filled;
    enum fsdp_status status;

    if (size_bytes == 0)
        return FSDP_OK;
    if (writer->direct && size_bytes % BLOCK_BYTES != 0) {
        const size_t padding = BLOCK_BYTES - size_bytes % BLOCK_BYTES;

        memset(writer->ring + size_bytes, 0, padding);
        size_bytes += padding;
    }
    status = write_blocks(writer, writer->ring, size_bytes, writer->at, err);
    writer->at += writer->filled;
    writer->filled = 0;
    return status;
}

static enum fsdp_status fetch(const struct safetensors_tensor *tensor, uint64_t at, unsigned char *to,
                              size_t n, struct fsdp_err *err)
{
    if (tensor->store != NULL)
        return tensor->store->read(tensor->store->user, tensor->in_store, at, to, n, err);
    memcpy(to, (const unsigned char *)tensor->data + at, n);
    return FSDP_OK;
}

/* Computes the checksums of the next bytes of the file. */
static enum fsdp_status sum_up(struct writer *writer, const void *bytes, size_t size_bytes,
                               struct fsdp_err *err)
{
    XXH3_128bits_update(writer->hash, bytes, size_bytes);
    return writer->sums == NULL ? FSDP_OK : chunk_sums_take(writer->sums, bytes, size_bytes, err);
}

static enum fsdp_status add(struct writer *writer, const struct safetensors_tensor *tensor,
                            struct fsdp_err *err)
{
    const uint64_t size_bytes = tensor->end - tensor->begin;

    for (uint64_t done = 0; done < size_bytes;) {
        const size_t room = writer->ring_bytes - writer->filled;
        const size_t n = size_bytes - done < room ? (size_t)(size_bytes - done) : room;

        OK_OR_RETURN(fetch(tensor, done, writer->ring + writer->filled, n, err));
        OK_OR_RETURN(sum_up(writer, writer->ring + writer->filled, n, err));
        writer->filled += n;
        done += n;
        if (writer->filled == writer->ring_bytes)
            OK_OR_RETURN(flush(writer, err));
    }
    return FSDP_OK;
}

/*
 * Writes the header, after all data. A header that is not padded to whole blocks shares its last block with
 * data. Only files outside a checkpoint have such headers; they are written without O_DIRECT.
 */
static enum fsdp_status write_header(struct writer *writer, const struct json_text *header,
                                     struct fsdp_err *err)
{
    for (size_t done = 0; done < header->length;) {
        const size_t left = header->length - done, n = left < writer->ring_bytes ? left : writer->ring_bytes;

        memcpy(writer->ring, header->bytes + done, n);
        OK_OR_RETURN(write_blocks(writer, writer->ring, n, done, err));
        done += n;
    }
    return FSDP_OK;
}

static enum fsdp_status write_contents(struct writer *writer, const struct safetensors_tensor *tensors,
                                       size_t n_tensors, const struct json_text *header, uint64_t size_bytes,
                                       struct fsdp_err *err)
{
    if (writer->io->allocate(writer->io, writer->fd, size_bytes) < 0 && errno != EOPNOTSUPP &&
        errno != ENOSYS && errno != EINTR)
        return fsdp_fail(err, FSDP_ERR_IO, "reserve %llu bytes for %s: %s", (unsigned long long)size_bytes,
                         writer->path, file_error_words(errno));
    OK_OR_RETURN(sum_up(writer, header->bytes, header->length, err));
    writer->at = header->length;
    for (size_t i = 0; i < n_tensors; i++) {
        if (writer->sums != NULL)
            OK_OR_RETURN(chunk_sums_cut(writer->sums, err));
        OK_OR_RETURN(add(writer, &tensors[i], err));
    }
    OK_OR_RETURN(flush(writer, err));
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

/* Creates the file of `size_bytes` with that header and those tensors, which have their places. */
static enum fsdp_status write_file(struct fsdp_io *io, const char *path,
                                   const struct safetensors_tensor *tensors, size_t n_tensors,
                                   const struct json_text *header, uint64_t size_bytes, bool with_sums,
                                   struct safetensors_written *written, struct fsdp_err *err)
{
    struct writer writer = { .io = io, .path = path, .fd = -1, .ring_bytes = BLOCK_BYTES };
    enum fsdp_status status;
    XXH128_hash_t hash;
    bool created = false;

    while (writer.ring_bytes < size_bytes && writer.ring_bytes < RING_BYTES)
        writer.ring_bytes *= 2;
    writer.ring = aligned_alloc(BLOCK_BYTES, writer.ring_bytes);
    writer.hash = XXH3_createState();
    if (writer.ring == NULL || writer.hash == NULL) {
        status = fsdp_fail(err, FSDP_ERR_NOMEM, "%zu bytes to write %s", writer.ring_bytes, path);
        goto done;
    }
    XXH3_128bits_reset(writer.hash);
    status = with_sums ? chunk_sums_create(&writer.sums, err) : FSDP_OK;
    if (status != FSDP_OK)
        goto done;
    status = create(&writer, size_bytes >= DIRECT_FROM_BYTES && header->length % BLOCK_BYTES == 0, err);
    if (status != FSDP_OK)
        goto done;
    created = true;
    status = write_contents(&writer, tensors, n_tensors, header, size_bytes, err);
    if (status == FSDP_OK && with_sums)
        status = chunk_sums_write(writer.sums, io, path, err);
    if (status != FSDP_OK)
        goto done;
    hash = XXH3_128bits_digest(writer.hash);
    *written = (struct safetensors_written){ size_bytes, { hash.low64, hash.high64 } };
done:
    if (writer.fd >= 0 && io->close(io, writer.fd) < 0 && status == FSDP_OK)
        status = file_fail(err, "close", path);
    if (status != FSDP_OK && created)
        io->unlink(io, path);
    XXH3_freeState(writer.hash);
    chunk_sums_destroy(writer.sums);
    free(writer.ring);
    return status;
}

enum fsdp_status safetensors_write(struct fsdp_io *io, const char *path, struct safetensors_tensor *tensors,
                                   size_t n_tensors, const struct safetensors_metadata *metadata,
                                   size_t n_metadata, size_t alignment, bool with_sums,
                                   struct safetensors_written *written, struct fsdp_err *err)
{
    struct json_text header = { 0 };
    uint64_t size_bytes = 0;
    enum fsdp_status status;

    *written = (struct safetensors_written){ 0 };
    status = safetensors_build_header(tensors, n_tensors, metadata, n_metadata, alignment, &header,
                                      &size_bytes, err);
    if (status == FSDP_OK)
        status = write_file(io, path, tensors, n_tensors, &header, size_bytes, with_sums, written, err);
    json_text_free(&header);
    return status;
}

/* A file's bytes that are in another file, from `offset` on. */
struct image {
    int fd;
    uint64_t offset;
};

/* `begin` is where a tensor begins: it is the tensor's number in the store. */
static enum fsdp_status read_image(void *user, size_t begin, uint64_t offset, void *bytes, size_t size_bytes,
                                   struct fsdp_err *err)
{
    const struct image *image = user;

    return io_read_all(&io_posix, image->fd, bytes, size_bytes, image->offset + begin + offset, "a snapshot",
                       err);
}

/* Reads the first bytes of the image: the length of the header, and the header. */
static enum fsdp_status read_header(struct image *image, uint64_t size_bytes, struct json_text *header,
                                    struct fsdp_err *err)
{
    unsigned char length[8];
    uint64_t n = 0;
    char *bytes;
    enum fsdp_status status;

    if (size_bytes < sizeof length)
        return fsdp_fail(err, FSDP_ERR_FORMAT, "a snapshot of %llu bytes", (unsigned long long)size_bytes);
    OK_OR_RETURN(read_image(image, 0, 0, length, sizeof length, err));
    for (int i = 0; i < 8; i++)
        n |= (uint64_t)length[i] << 8 * i;
    if (n > SAFETENSORS_MAX_HEADER_BYTES || n > size_bytes - sizeof length)
        return fsdp_fail(err, FSDP_ERR_FORMAT, "a snapshot whose header does not fit it");
    bytes = malloc((size_t)n + sizeof length);
    if (bytes == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "memory for the header of a snapshot");
    status = read_image(image, 0, 0, bytes, (size_t)n + sizeof length, err);
    if (status == FSDP_OK)
        json_add_bytes(header, bytes, (size_t)n + sizeof length);
    free(bytes);
    if (status == FSDP_OK && header->failed)
        status = fsdp_fail(err, FSDP_ERR_NOMEM, "memory for the header of a snapshot");
    return status;
}

/* Finds out where the tensors of the image begin and end. The caller frees `parsed`. */
static enum fsdp_status parse_image(const struct json_text *header, uint64_t size_bytes,
                                    const struct rows_store *store, struct safetensors_header *parsed,
                                    struct fsdp_err *err)
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
    for (size_t i = 0; i < parsed->n_tensors; i++) {
        parsed->tensors[i].store = store;
        parsed->tensors[i].in_store = (size_t)parsed->tensors[i].begin;
    }
    return status;
}

enum fsdp_status safetensors_copy(struct fsdp_io *io, const char *path, int fd, uint64_t offset,
                                  uint64_t size_bytes, struct safetensors_written *written,
                                  struct fsdp_err *err)
{
    struct image image = { fd, offset };
    const struct rows_store store = { .user = &image, .read = read_image };
    struct safetensors_header parsed = { 0 };
    struct json_text header = { 0 };
    enum fsdp_status status;

    *written = (struct safetensors_written){ 0 };
    status = read_header(&image, size_bytes, &header, err);
    if (status == FSDP_OK)
        status = parse_image(&header, size_bytes, &store, &parsed, err);
    if (status == FSDP_OK) {
        image.offset += header.length;
        status =
            write_file(io, path, parsed.tensors, parsed.n_tensors, &header, size_bytes, true, written, err);
    }
    safetensors_free(&parsed);
    json_text_free(&header);
    return status;
}
