#include "shard_runtime/comm/staging.h"

#include "shard_runtime/comm/comm_impl.h"

void staging_init(struct staging *staging, struct device *device, struct fsdp_comm *host)
{
    *staging = (struct staging){ .device = device, .host = host };
}

void staging_fini(struct staging *staging)
{
    if (staging->memory != NULL)
        staging->device->ops->free_host(staging->device, staging->memory, STAGING_BYTES);
    staging->memory = NULL;
}

static enum fsdp_status make_room(struct staging *staging, struct fsdp_err *err)
{
    void *memory;
    enum fsdp_status status;

    if (staging->memory != NULL)
        return FSDP_OK;
    status = staging->device->ops->alloc_host(staging->device, STAGING_BYTES, &memory, err);
    if (status == FSDP_OK)
        staging->memory = memory;
    return status;
}

/* Elements of a rank that one piece holds. */
static size_t piece_elems(size_t n_rows, size_t left, enum fsdp_dtype dtype)
{
    const size_t most = STAGING_BYTES / n_rows / fsdp_dtype_size(dtype);

    return left < most ? left : most;
}

static void copy(struct staging *staging, struct device_stream *stream, void *to, const void *from,
                 size_t size_bytes, enum device_copy kind)
{
    staging->device->ops->copy(stream, to, from, size_bytes, kind);
}

static enum fsdp_status wait(struct staging *staging, struct device_stream *stream, struct fsdp_err *err)
{
    return staging->device->ops->synchronize(stream, err);
}

/* The host group, about to make its next call. */
static struct fsdp_comm *next_call(struct staging *staging)
{
    staging->host->sequence++;
    return staging->host;
}

enum fsdp_status staging_all_gather(struct staging *staging, struct device_stream *stream, const void *send,
                                    void *recv, size_t n_elems, enum fsdp_dtype dtype, struct fsdp_err *err)
{
    const size_t W = (size_t)staging->host->size, rank = (size_t)staging->host->rank,
                 size = fsdp_dtype_size(dtype);
    enum fsdp_status status = make_room(staging, err);

    for (size_t done = 0, n; done < n_elems && status == FSDP_OK; done += n) {
        n = piece_elems(W, n_elems - done, dtype);
        copy(staging, stream, staging->memory + rank * n * size, (const char *)send + done * size, n * size,
             DEVICE_COPY_FROM);
        status = wait(staging, stream, err);
        if (status == FSDP_OK)
            status = next_call(staging)->ops->all_gather(staging->host, staging->memory + rank * n * size,
                                                         staging->memory, n, dtype, err);
        for (size_t r = 0; r < W && status == FSDP_OK; r++)
            copy(staging, stream, (char *)recv + (r * n_elems + done) * size, staging->memory + r * n * size,
                 n * size, DEVICE_COPY_TO);
        if (status == FSDP_OK)
            status = wait(staging, stream, err);
    }
    return status;
}

enum fsdp_status staging_reduce_scatter(struct staging *staging, struct device_stream *stream,
                                        const void *send, void *recv, size_t n_elems, enum fsdp_dtype dtype,
                                        enum fsdp_reduce_op op, struct fsdp_err *err)
{
    const size_t W = (size_t)staging->host->size, rank = (size_t)staging->host->rank,
                 size = fsdp_dtype_size(dtype);
    enum fsdp_status status = make_room(staging, err);

    for (size_t done = 0, n; done < n_elems && status == FSDP_OK; done += n) {
        n = piece_elems(W, n_elems - done, dtype);
        for (size_t r = 0; r < W; r++)
            copy(staging, stream, staging->memory + r * n * size,
                 (const char *)send + (r * n_elems + done) * size, n * size, DEVICE_COPY_FROM);
        status = wait(staging, stream, err);
        if (status == FSDP_OK)
            status = next_call(staging)->ops->reduce_scatter(
                staging->host, staging->memory, staging->memory + rank * n * size, n, dtype, op, err);
        if (status != FSDP_OK)
            break;
        copy(staging, stream, (char *)recv + done * size, staging->memory + rank * n * size, n * size,
             DEVICE_COPY_TO);
        status = wait(staging, stream, err);
    }
    return status;
}

enum fsdp_status staging_all_reduce(struct staging *staging, struct device_stream *stream, void *buffer,
                                    size_t n_elems, enum fsdp_dtype dtype, enum fsdp_reduce_op op,
                                    struct fsdp_err *err)
{
    const size_t size = fsdp_dtype_size(dtype);
    enum fsdp_status status = make_room(staging, err);

    for (size_t done = 0, n; done < n_elems && status == FSDP_OK; done += n) {
        char *piece = (char *)buffer + done * size;

        n = piece_elems(1, n_elems - done, dtype);
        copy(staging, stream, staging->memory, piece, n * size, DEVICE_COPY_FROM);
        status = wait(staging, stream, err);
        if (status == FSDP_OK)
            status = next_call(staging)->ops->all_reduce(staging->host, staging->memory, n, dtype, op, err);
        if (status != FSDP_OK)
            break;
        copy(staging, stream, piece, staging->memory, n * size, DEVICE_COPY_TO);
        status = wait(staging, stream, err);
    }
    return status;
}

enum fsdp_status staging_broadcast(struct staging *staging, struct device_stream *stream, void *buffer,
                                   size_t size_bytes, int root, struct fsdp_err *err)
{
    enum fsdp_status status = make_room(staging, err);

    for (size_t done = 0, n; done < size_bytes && status == FSDP_OK; done += n) {
        n = piece_elems(1, size_bytes - done, FSDP_U8);
        if (staging->host->rank == root)
            copy(staging, stream, staging->memory, (char *)buffer + done, n, DEVICE_COPY_FROM);
        status = wait(staging, stream, err);
        if (status == FSDP_OK)
            status = next_call(staging)->ops->broadcast(staging->host, staging->memory, n, root, err);
        if (status != FSDP_OK)
            break;
        if (staging->host->rank != root)
            copy(staging, stream, (char *)buffer + done, staging->memory, n, DEVICE_COPY_TO);
        status = wait(staging, stream, err);
    }
    return status;
}
