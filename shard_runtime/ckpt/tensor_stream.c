#include "shard_runtime/ckpt/tensor_stream.h"

#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/require.h"

enum { MOST_OPEN = 16 };

/* A piece of the tensor that is read, and its next run: elements that are adjacent in file and tensor. */
struct piece {
    const struct contents_piece *piece;
    struct box_runs runs;
    struct box_run run; /* of no elements after the last one */
};

struct tensor_stream {
    struct fsdp_io *io;
    const struct contents *contents;
    const char *directory;
    struct {
        uint32_t file;
        int fd;        /* -1: the place is empty */
    } open[MOST_OPEN]; /* file number f is in place f % MOST_OPEN */
    struct piece *pieces;
    size_t n_pieces, room;
    size_t current; /* piece that had the last element */
    struct box whole;
    uint64_t at;       /* elements that were read so far: those of whole runs, and those of the current run */
    size_t elem_bytes; /* of the tensor's dtype */
    size_t within;     /* bytes that were read of element number `at`, if it was read in part */
};

enum fsdp_status tensor_stream_create(struct tensor_stream **out, struct fsdp_io *io,
                                      const struct contents *contents, const char *directory,
                                      struct fsdp_err *err)
{
    struct tensor_stream *stream = calloc(1, sizeof *stream);

    *out = NULL;
    if (stream == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "memory to read tensors");
    stream->io = io;
    stream->contents = contents;
    stream->directory = directory;
    for (int i = 0; i < MOST_OPEN; i++)
        stream->open[i].fd = -1;
    *out = stream;
    return FSDP_OK;
}

void tensor_stream_destroy(struct tensor_stream *stream)
{
    if (stream == NULL)
        return;
    for (int i = 0; i < MOST_OPEN; i++)
        if (stream->open[i].fd >= 0)
            stream->io->close(stream->io, stream->open[i].fd);
    free(stream->pieces);
    free(stream);
}

uint64_t tensor_stream_size(const struct contents *contents, size_t tensor)
{
    const struct manifest_tensor *of = &contents->manifest.tensors[tensor];
    const struct box whole = box_whole(of->shape, of->n_dims);

    return box_elems(&whole) * fsdp_dtype_size(of->dtype);
}

static void next_run(struct piece *piece)
{
    if (!box_runs_next(&piece->runs, &piece->run))
        piece->run.n_elems = 0;
}

enum fsdp_status tensor_stream_begin(struct tensor_stream *stream, size_t tensor, struct fsdp_err *err)
{
    const struct contents *contents = stream->contents;
    const struct manifest_tensor *of = &contents->manifest.tensors[tensor];
    const size_t first = contents->starts[tensor], n = contents->starts[tensor + 1] - first;

    if (n > stream->room) {
        struct piece *pieces = realloc(stream->pieces, n * sizeof *pieces);

        if (pieces == NULL)
            return fsdp_fail(err, FSDP_ERR_NOMEM, "memory for %zu pieces of %.200s", n, of->name);
        stream->pieces = pieces;
        stream->room = n;
    }
    stream->n_pieces = n;
    stream->whole = box_whole(of->shape, of->n_dims);
    stream->elem_bytes = fsdp_dtype_size(of->dtype);
    stream->at = stream->within = stream->current = 0;
    for (size_t i = 0; i < n; i++) {
        const struct contents_piece *piece = &contents->pieces[first + i];

        stream->pieces[i] =
            (struct piece){ .piece = piece, .runs = box_runs_of(&piece->box, &piece->box, &stream->whole) };
        if (box_elems(&piece->box) > 0)
            next_run(&stream->pieces[i]);
    }
    return FSDP_OK;
}

/* The piece whose next run begins at element `at`: usually the current one, or the one after it. */
static struct piece *find_piece(struct tensor_stream *stream)
{
    for (size_t k = 0; k < stream->n_pieces; k++) {
        const size_t i = (stream->current + k) % stream->n_pieces;
        struct piece *piece = &stream->pieces[i];

        if (piece->run.n_elems > 0 && stream->at >= piece->run.in_b &&
            stream->at < piece->run.in_b + piece->run.n_elems) {
            stream->current = i;
            return piece;
        }
    }
    return NULL;
}

static enum fsdp_status open_file(struct tensor_stream *stream, uint32_t file, char path[IO_PATH_BYTES],
                                  int *fd, struct fsdp_err *err)
{
    const uint32_t place = file % MOST_OPEN;

    if (stream->open[place].fd >= 0 && stream->open[place].file == file) {
        *fd = stream->open[place].fd;
        return io_join(path, stream->directory, stream->contents->manifest.files[file].name, err);
    }
    if (stream->open[place].fd >= 0)
        stream->io->close(stream->io, stream->open[place].fd);
    stream->open[place].fd = -1;
    OK_OR_RETURN(contents_open_file(stream->io, stream->contents, file, stream->directory, path, fd, err));
    stream->open[place].file = file;
    stream->open[place].fd = *fd;
    return FSDP_OK;
}

/* Moves on by `size_bytes` bytes. Reads them into `to`, unless it is NULL. */
static enum fsdp_status move(struct tensor_stream *stream, unsigned char *to, uint64_t size_bytes,
                             struct fsdp_err *err)
{
    while (size_bytes > 0) {
        struct piece *piece = find_piece(stream);
        char path[IO_PATH_BYTES];
        uint64_t done, left, n;
        int fd;

        if (piece == NULL)
            return fsdp_fail(err, FSDP_ERR_FORMAT, "a tensor has fewer elements than are read of it");
        done = (stream->at - piece->run.in_b) * stream->elem_bytes + stream->within;
        left = piece->run.n_elems * stream->elem_bytes - done;
        n = size_bytes < left ? size_bytes : left;
        if (to != NULL) {
            OK_OR_RETURN(open_file(stream, piece->piece->file, path, &fd, err));
            OK_OR_RETURN(io_read_all(stream->io, fd, to, (size_t)n,
                                     piece->piece->offset + piece->run.in_a * stream->elem_bytes + done, path,
                                     err));
            to += n;
        }
        size_bytes -= n;
        stream->at += (stream->within + n) / stream->elem_bytes;
        stream->within = (size_t)((stream->within + n) % stream->elem_bytes);
        if (n == left)
            next_run(piece);
    }
    return FSDP_OK;
}

enum fsdp_status tensor_stream_read(struct tensor_stream *stream, void *bytes, size_t size_bytes,
                                    struct fsdp_err *err)
{
    return move(stream, bytes, size_bytes, err);
}

enum fsdp_status tensor_stream_skip(struct tensor_stream *stream, uint64_t size_bytes, struct fsdp_err *err)
{
    return move(stream, NULL, size_bytes, err);
}
