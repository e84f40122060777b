#include "shard_runtime/comm/staging.h"

#include "shard_runtime/comm/comm_impl.h"
#include "shard_runtime/core/require.h"

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

    if (staging->memory != NULL)
        return FSDP_OK;
    OK_OR_RETURN(staging->device->ops->alloc_host(staging->device, STAGING_BYTES, &memory, err));
    staging->memory = memory;
    return FSDP_OK;
}

/*
 * A piece of a collective that is being moved. It has a row for each rank; data that is the same for all
 * ranks is row 0.
 */
struct piece {
    const struct comm_work *work;
    struct device_stream *stream;
    size_t n_rows, own; /* n_rows: rows of the piece; own: this rank's row, if the rows differ */
    size_t row_bytes;   /* of the piece */
    size_t done;        /* bytes of each whole row that are done */
};

/* Copies row `r` of the piece, down or up, between the device's buffer and the staging memory. */
static void copy_row(struct staging *staging, const struct piece *piece, size_t r, bool down)
{
    const struct comm_call *call = &piece->work->call;
    char *staged = staging->memory + r * piece->row_bytes;
    /* Only the larger buffer of a gather or scatter has all rows. */
    const bool has_rows = call->kind == (down ? COMM_REDUCE_SCATTER : COMM_ALL_GATHER);
    const size_t at = (has_rows ? r * (size_t)call->size_bytes : 0) + piece->done;

    if (down)
        staging->device->ops->copy(piece->stream, staged, (const char *)piece->work->send + at,
                                   piece->row_bytes, DEVICE_COPY_FROM);
    else
        staging->device->ops->copy(piece->stream, (char *)piece->work->recv + at, staged, piece->row_bytes,
                                   DEVICE_COPY_TO);
}

static enum fsdp_status run_on_host(struct staging *staging, const struct piece *piece, struct fsdp_err *err)
{
    char *own = staging->memory + piece->own * piece->row_bytes;
    struct comm_work work = *piece->work;

    work.call.sequence = ++staging->host->sequence;
    work.call.size_bytes = piece->row_bytes;
    work.send = work.call.kind == COMM_ALL_GATHER ? own : staging->memory;
    work.recv = work.call.kind == COMM_REDUCE_SCATTER ? own : staging->memory;
    return staging->host->ops->run(staging->host, &work, err);
}

static enum fsdp_status run_piece(struct staging *staging, const struct piece *piece, struct fsdp_err *err)
{
    const struct comm_call *call = &piece->work->call;
    const bool is_root = staging->host->rank == (int)call->root;

    for (size_t r = 0; r < piece->n_rows; r++)
        if (call->kind == COMM_ALL_GATHER ? r == piece->own : call->kind != COMM_BROADCAST || is_root)
            copy_row(staging, piece, r, true);
    OK_OR_RETURN(staging->device->ops->synchronize(piece->stream, err));
    OK_OR_RETURN(run_on_host(staging, piece, err));
    for (size_t r = 0; r < piece->n_rows; r++)
        if (call->kind == COMM_REDUCE_SCATTER ? r == piece->own : call->kind != COMM_BROADCAST || !is_root)
            copy_row(staging, piece, r, false);
    return staging->device->ops->synchronize(piece->stream, err);
}

enum fsdp_status staging_run(struct staging *staging, struct device_stream *stream,
                             const struct comm_work *work, struct fsdp_err *err)
{
    const struct comm_call *call = &work->call;
    const bool has_rows = call->kind == COMM_ALL_GATHER || call->kind == COMM_REDUCE_SCATTER;
    const size_t size = fsdp_dtype_size((enum fsdp_dtype)call->dtype);
    struct piece piece = { .work = work,
                           .stream = stream,
                           .n_rows = has_rows ? (size_t)staging->host->size : 1,
                           .own = has_rows ? (size_t)staging->host->rank : 0 };
    const size_t most = STAGING_BYTES / piece.n_rows / size * size;

    OK_OR_RETURN(make_room(staging, err));
    for (; piece.done < call->size_bytes; piece.done += piece.row_bytes) {
        const size_t left = (size_t)call->size_bytes - piece.done;

        piece.row_bytes = left < most ? left : most;
        OK_OR_RETURN(run_piece(staging, &piece, err));
    }
    return FSDP_OK;
}
