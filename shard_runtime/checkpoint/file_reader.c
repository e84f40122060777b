#include "shard_runtime/checkpoint/file_reader.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/alloc.h"
#include "shard_runtime/core/files.h"
#include "shard_runtime/core/require.h"
#include "shard_runtime/shardfile/piece_crew.h"

enum {
    GAP_BYTES = 64 << 10,        /* bytes that are read rather than skipped */
    DIRECT_FROM_BYTES = 1 << 20, /* smaller files do not justify a second open */
    /* threads of a reader with O_DIRECT; without the page cache, only these threads read ahead */
    DIRECT_THREADS = 8,
};

/* Bytes of the file that one thread reads at once. */
struct piece {
    uint64_t begin, end;
    size_t first; /* number of the first read that wants bytes of this piece, or of a later one */
};

struct reading {
    const struct file_reader *reader;
    int fd;
    int direct_fd;      /* descriptor of the same file with O_DIRECT; -1: not used */
    atomic_bool direct; /* O_DIRECT has not failed */
    struct piece *pieces;
    size_t n, room;
};

static uint64_t end_of(const struct reshard_read *read)
{
    return read->offset + read->size_bytes;
}

/* Cuts a range into pieces. */
static enum fsdp_status add_range(struct reading *reading, uint64_t begin, uint64_t end, struct fsdp_err *err)
{
    const struct file_reader *reader = reading->reader;
    size_t first = reading->n == 0 ? 0 : reading->pieces[reading->n - 1].first;

    for (uint64_t next; begin < end; begin = next) {
        next = end - begin < PIECE_BYTES ? end : begin + PIECE_BYTES;
        while (first < reader->n_reads && end_of(&reader->reads[first]) <= begin)
            first++;
        if (!alloc_room(&reading->pieces, &reading->room, reading->n, sizeof *reading->pieces))
            return fsdp_fail(err, FSDP_ERR_NOMEM, "memory to read %s", reader->path);
        reading->pieces[reading->n++] = (struct piece){ begin, next, first };
    }
    return FSDP_OK;
}

/* Lists the pieces: of all bytes if the file is verified, else of those that are wanted. */
static enum fsdp_status list_pieces(struct reading *reading, uint64_t size_bytes, struct fsdp_err *err)
{
    const struct file_reader *reader = reading->reader;

    if (reader->sum != NULL)
        return add_range(reading, 0, size_bytes, err);
    for (size_t i = 0, next; i < reader->n_reads; i = next) {
        uint64_t end = end_of(&reader->reads[i]);

        for (next = i + 1; next < reader->n_reads && reader->reads[next].offset <= end + GAP_BYTES; next++)
            if (end_of(&reader->reads[next]) > end)
                end = end_of(&reader->reads[next]);
        OK_OR_RETURN(add_range(reading, reader->reads[i].offset, end, err));
    }
    return FSDP_OK;
}

/* Returns where the piece belongs if that is one place in memory that nothing else shares; else NULL. */
static unsigned char *place_of(const struct file_reader *reader, const struct piece *piece)
{
    const struct reshard_read *read = &reader->reads[piece->first];

    if (piece->first == reader->n_reads || read->to == NULL || read->offset > piece->begin ||
        end_of(read) < piece->end || (piece->first + 1 < reader->n_reads && read[1].offset < piece->end))
        return NULL;
    return read->to + (piece->begin - read->offset);
}

/* Gives the bytes of a piece to those reads that go to memory, or to those that go to a store. */
static enum fsdp_status hand_out(const struct file_reader *reader, const struct piece *piece,
                                 const unsigned char *bytes, bool to_stores, struct fsdp_err *err)
{
    for (size_t i = piece->first; i < reader->n_reads && reader->reads[i].offset < piece->end; i++) {
        const struct reshard_read *read = &reader->reads[i];
        const uint64_t begin = read->offset > piece->begin ? read->offset : piece->begin;
        const uint64_t end = end_of(read) < piece->end ? end_of(read) : piece->end;
        const unsigned char *from = bytes + (begin - piece->begin);

        if (begin >= end || (read->store != NULL) != to_stores)
            continue;
        if (to_stores)
            OK_OR_RETURN(read->store->write(read->store->user, read->in_store,
                                            read->at + (begin - read->offset), from, (size_t)(end - begin),
                                            err));
        else
            memcpy(read->to + (begin - read->offset), from, (size_t)(end - begin));
    }
    return FSDP_OK;
}

/*
 * Reads the piece around the page cache, whole blocks. *bytes is its place, or NULL; if it is on no block, it
 * becomes the buffer. Returns false if the page cache has to serve.
 */
static bool read_direct(struct reading *reading, const struct piece *piece, unsigned char *buffer,
                        unsigned char **bytes, enum fsdp_status *status, struct fsdp_err *err)
{
    const struct file_reader *reader = reading->reader;
    const size_t size_bytes = (size_t)(piece->end - piece->begin);
    const size_t padding = (PIECE_BLOCK_BYTES - size_bytes % PIECE_BLOCK_BYTES) % PIECE_BLOCK_BYTES;
    const bool fits = *bytes != NULL && padding == 0 && (uintptr_t)*bytes % PIECE_BLOCK_BYTES == 0;
    unsigned char *to = fits ? *bytes : buffer;
    ssize_t n;

    do
        n = reader->io->pread(reader->io, reading->direct_fd, to, size_bytes + padding, piece->begin);
    while (n < 0 && errno == EINTR);
    if (n >= (ssize_t)size_bytes) {
        *bytes = to;
        return true;
    }
    if (n < 0 && errno != EINVAL) {
        *status = file_fail(err, "read", reader->path);
        return true;
    }
    atomic_store_explicit(&reading->direct, false, memory_order_relaxed);
    return false;
}

/* Reads the piece. *bytes is its place, or NULL; receives where the bytes are: there, or in the buffer. */
static enum fsdp_status read_piece(struct reading *reading, struct piece_crew *crew,
                                   const struct piece *piece, unsigned char *buffer, unsigned char **bytes,
                                   struct fsdp_err *err)
{
    const struct file_reader *reader = reading->reader;
    const size_t size_bytes = (size_t)(piece->end - piece->begin);
    enum fsdp_status status = FSDP_OK;

    if (atomic_load_explicit(&reading->direct, memory_order_relaxed) &&
        !reader->io->is_cached(reader->io, reading->fd, size_bytes, piece->begin)) {
        piece_crew_reach(crew, DIRECT_THREADS);
        if (read_direct(reading, piece, buffer, bytes, &status, err))
            return status;
    }
    if (*bytes == NULL)
        *bytes = buffer;
    return io_read_all(reader->io, reading->fd, *bytes, size_bytes, piece->begin, reader->path, err);
}

static enum fsdp_status do_piece(void *user, struct piece_crew *crew, uint64_t number, unsigned char *buffer,
                                 struct fsdp_err *err)
{
    struct reading *reading = user;
    const struct file_reader *reader = reading->reader;
    const struct piece *piece = &reading->pieces[number];
    unsigned char *place = place_of(reader, piece), *bytes = place;

    OK_OR_RETURN(read_piece(reading, crew, piece, buffer, &bytes, err));
    if (!piece_crew_await_turn(crew, number))
        return FSDP_OK;
    if (reader->sum != NULL)
        file_sum_take(reader->sum, bytes, (size_t)(piece->end - piece->begin), piece->begin);
    OK_OR_RETURN(hand_out(reader, piece, bytes, true, err)); /* a store takes one thread at a time */
    piece_crew_end_turn(crew);
    return bytes == place ? FSDP_OK : hand_out(reader, piece, bytes, false, err);
}

enum fsdp_status file_reader_run(const struct file_reader *reader, struct fsdp_err *err)
{
    struct reading reading = { .reader = reader, .direct_fd = -1 };
    struct fsdp_io *io = reader->io;
    struct piece_work work = {
        .io = io,
        .path = reader->path,
        .buffer_bytes = PIECE_BYTES,
        .threads_first = 1,
        .threads_most = reader->threads_most,
        .piece = do_piece,
        .user = &reading,
    };
    enum fsdp_status status;
    uint64_t size_bytes;

    OK_OR_RETURN(io_open_read(io, reader->path, &reading.fd, &size_bytes, err));
    if (reader->sum != NULL && io->is_cached != NULL && size_bytes >= DIRECT_FROM_BYTES &&
        !io_is_remote(reader->path))
        reading.direct_fd = io_open(io, reader->path, O_RDONLY | O_NOFOLLOW | O_DIRECT, 0);
    atomic_init(&reading.direct, reading.direct_fd >= 0);
    status = list_pieces(&reading, size_bytes, err);
    work.n_pieces = reading.n;
    if (status == FSDP_OK && reading.n > 0)
        status = piece_crew_run(&work, NULL, err);
    if (reading.direct_fd >= 0)
        io->close(io, reading.direct_fd);
    io->close(io, reading.fd);
    free(reading.pieces);
    return status;
}
