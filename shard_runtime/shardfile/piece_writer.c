#include "shard_runtime/shardfile/piece_writer.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#include "shard_runtime/core/files.h"
#include "shard_runtime/core/require.h"
#include "shard_runtime/shardfile/xxh3.h"

/* What all threads of one file use. */
struct writing {
    const struct piece_writer *writer;
    atomic_bool direct; /* false after a write with O_DIRECT has failed */
};

static enum fsdp_status write_bytes(struct writing *writing, unsigned char *bytes, uint64_t begin,
                                    uint64_t end, struct fsdp_err *err)
{
    const struct piece_writer *writer = writing->writer;
    const size_t size_bytes = (size_t)(end - begin);

    if (atomic_load_explicit(&writing->direct, memory_order_relaxed)) {
        /*
         * needed for the last piece only; no chunk goes beyond the end of that piece, so zeros may follow it
         */
        const size_t padding = (PIECE_BLOCK_BYTES - size_bytes % PIECE_BLOCK_BYTES) % PIECE_BLOCK_BYTES;
        ssize_t n;

        memset(bytes + size_bytes, 0, padding);
        do
            n = writer->io->pwrite(writer->io, writer->direct_fd, bytes, size_bytes + padding, begin);
        while (n < 0 && errno == EINTR);
        if (n == (ssize_t)(size_bytes + padding))
            return FSDP_OK;
        if (n < 0 && errno != EINVAL)
            return file_fail(err, "write", writer->path);
        /* O_DIRECT is refused: write the whole piece again without it */
        atomic_store_explicit(&writing->direct, false, memory_order_relaxed);
    }
    return io_write_all(writer->io, writer->fd, bytes, size_bytes, begin, writer->path, err);
}

static enum fsdp_status do_piece(void *user, struct piece_crew *crew, uint64_t number, unsigned char *bytes,
                                 struct fsdp_err *err)
{
    struct writing *writing = user;
    const struct piece_writer *writer = writing->writer;
    const uint64_t begin = writer->begin + number * PIECE_BYTES;
    const uint64_t end = writer->end - begin < PIECE_BYTES ? writer->end : begin + PIECE_BYTES;
    const uint64_t reach = writer->sums == NULL ? end : chunk_sums_reach(writer->sums, begin, end);

    OK_OR_RETURN(writer->read(writer->user, begin, bytes, (size_t)(reach - begin), err));
    if (writer->sums != NULL)
        chunk_sums_take(writer->sums, begin, end, bytes);
    if (!piece_crew_await_turn(crew, number))
        return FSDP_OK;
    xxh3_128_update(writer->hash, bytes, (size_t)(end - begin));
    piece_crew_end_turn(crew);
    OK_OR_RETURN(write_bytes(writing, bytes, begin, end, err));
    if (writer->n_written != NULL)
        atomic_fetch_add_explicit(writer->n_written, end - begin, memory_order_relaxed);
    return FSDP_OK;
}

enum fsdp_status piece_writer_run(const struct piece_writer *writer, int *n_threads, struct fsdp_err *err)
{
    const uint64_t size_bytes = writer->end - writer->begin;
    struct writing writing = { .writer = writer };
    const struct piece_work work = {
        .io = writer->io,
        .path = writer->path,
        .n_pieces = (size_bytes + PIECE_BYTES - 1) / PIECE_BYTES,
        .buffer_bytes = size_bytes < PIECE_BYTES ? (size_t)size_bytes : PIECE_BYTES + CHUNK_SUMS_BYTES,
        .one_thread = !writer->any_thread,
        .threads_first = 2, /* one thread writes while the other one computes */
        .threads_most = writer->threads_most,
        .piece = do_piece,
        .user = &writing,
    };

    atomic_init(&writing.direct, writer->direct_fd >= 0);
    return piece_crew_run(&work, n_threads, err);
}
