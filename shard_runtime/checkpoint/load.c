#include "shard_runtime/checkpoint/load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/checkpoint/reshard.h"
#include "shard_runtime/core/clock.h"
#include "shard_runtime/core/require.h"
#include "shard_runtime/shardfile/commit.h"

enum { PIECE_BYTES = 1 << 20 };

/* Writes a shape and a type for a message, such as "(4, 3) float32", shortened if necessary. */
static void shape_words(enum fsdp_dtype dtype, const uint64_t *shape, size_t n_dims, char out[160])
{
    size_t at = 0;

    for (size_t d = 0; d < n_dims && at < 120; d++)
        at +=
            (size_t)snprintf(out + at, 160 - at, "%s%llu", d == 0 ? "(" : ", ", (unsigned long long)shape[d]);
    snprintf(out + at, 160 - at, "%s %s", n_dims == 0 ? "()" : ")", fsdp_dtype_name(dtype));
}

static enum fsdp_status check_tensor(const struct checkpoint_tensor *wanted,
                                     const struct manifest_tensor *saved, struct fsdp_err *err)
{
    char want_words[160], saved_words[160];

    if (wanted->dtype == saved->dtype && wanted->n_dims == saved->n_dims &&
        memcmp(wanted->shape, saved->shape, wanted->n_dims * sizeof *wanted->shape) == 0)
        return FSDP_OK;
    shape_words(wanted->dtype, wanted->shape, wanted->n_dims, want_words);
    shape_words(saved->dtype, saved->shape, saved->n_dims, saved_words);
    return fsdp_fail(err, FSDP_ERR_MISMATCH, "%.120s is %s here and %s in the checkpoint", wanted->name,
                     want_words, saved_words);
}

/*
 * Returns the name of the first saved tensor that no caller asked for (its flag in `asked` is false), or
 * NULL.
 */
static const char *first_unasked(const struct contents *contents, const bool *asked)
{
    for (size_t i = 0; i < contents->manifest.n_tensors; i++)
        if (!asked[i])
            return contents->manifest.tensors[i].name;
    return NULL;
}

/*
 * Finds each wanted tensor in the checkpoint.
 *   wants  (n_tensors) receives the box of each tensor that this rank wants
 *   asked  (one per tensor of the checkpoint) receives whether the tensor is wanted
 */
static enum fsdp_status match(const struct contents *contents, int W, int rank,
                              const struct checkpoint_tensor *tensors, size_t n_tensors, unsigned flags,
                              struct reshard_want *wants, bool *asked, struct fsdp_err *err)
{
    const char *unasked;

    for (size_t i = 0; i < n_tensors; i++) {
        struct box box;
        enum fsdp_status status = checkpoint_tensor_box(&tensors[i], W, rank, &box, err);
        const int64_t found = status == FSDP_OK ? contents_find(contents, tensors[i].name) : -1;

        if (status != FSDP_OK)
            return status;
        if (found < 0)
            return fsdp_fail(err, FSDP_ERR_MISMATCH, "%.200s is not in the checkpoint", tensors[i].name);
        OK_OR_RETURN(check_tensor(&tensors[i], &contents->manifest.tensors[found], err));
        asked[found] = true;
        wants[i] = (struct reshard_want){
            .tensor = (uint32_t)found,
            .box = box,
            .to = tensors[i].rows,
            .store = tensors[i].store,
            .in_store = tensors[i].in_store,
        };
    }
    unasked = (flags & CHECKPOINT_SUBSET) != 0 ? NULL : first_unasked(contents, asked);
    if (unasked != NULL)
        return fsdp_fail(err, FSDP_ERR_MISMATCH, "the checkpoint holds %.200s, which is not there here",
                         unasked);
    return FSDP_OK;
}

/* Reads into a tensor of a store, in pieces of at most PIECE_BYTES. `piece` is the buffer for one piece. */
static enum fsdp_status read_to_store(struct fsdp_io *io, int fd, const struct reshard_read *read,
                                      unsigned char *piece, const char *path, struct fsdp_err *err)
{
    for (uint64_t done = 0; done < read->size_bytes;) {
        const uint64_t left = read->size_bytes - done;
        const size_t n = left < PIECE_BYTES ? (size_t)left : PIECE_BYTES;

        OK_OR_RETURN(io_read_all(io, fd, piece, n, read->offset + done, path, err));
        OK_OR_RETURN(read->store->write(read->store->user, read->in_store, read->at + done, piece, n, err));
        done += n;
    }
    return FSDP_OK;
}

/* Allocates the buffer for reads that go to a store; *piece is NULL if there are none. */
static enum fsdp_status make_piece(const struct reshard_read *reads, size_t n_reads, unsigned char **piece,
                                   struct fsdp_err *err)
{
    *piece = NULL;
    for (size_t i = 0; i < n_reads && *piece == NULL; i++) {
        if (reads[i].store == NULL)
            continue;
        *piece = malloc(PIECE_BYTES);
        if (*piece == NULL)
            return fsdp_fail(err, FSDP_ERR_NOMEM, "%d bytes to read a checkpoint", PIECE_BYTES);
    }
    return FSDP_OK;
}

/* Does all `reads`. The reads are sorted by file, so each file is opened once. */
static enum fsdp_status read_all(struct fsdp_io *io, const char *step_directory,
                                 const struct contents *contents, const struct reshard_read *reads,
                                 size_t n_reads, struct fsdp_err *err)
{
    unsigned char *piece;
    enum fsdp_status status = make_piece(reads, n_reads, &piece, err);

    for (size_t i = 0; i < n_reads && status == FSDP_OK;) {
        const struct manifest_file *file = &contents->manifest.files[reads[i].file];
        const uint32_t index = reads[i].file;
        char path[IO_PATH_BYTES];
        uint64_t size_bytes;
        int fd;

        status = io_join(path, step_directory, file->name, err);
        if (status == FSDP_OK)
            status = io_open_read(io, path, &fd, &size_bytes, err);
        if (status != FSDP_OK)
            break;
        for (; i < n_reads && reads[i].file == index && status == FSDP_OK; i++)
            status = reads[i].store != NULL ? read_to_store(io, fd, &reads[i], piece, path, err)
                                            : io_read_all(io, fd, reads[i].to, (size_t)reads[i].size_bytes,
                                                          reads[i].offset, path, err);
        io->close(io, fd);
    }
    free(piece);
    return status;
}

enum fsdp_status checkpoint_load(struct fsdp_io *io, const char *step_directory, int W, int rank,
                                 const struct checkpoint_tensor *tensors, size_t n_tensors, unsigned flags,
                                 struct manifest *manifest, struct checkpoint_loaded *loaded,
                                 struct fsdp_err *err)
{
    struct contents contents = { 0 };
    struct reshard_want *wants = NULL;
    struct reshard_read *reads = NULL;
    const double began_s = clock_now_s();
    enum fsdp_status status;
    uint64_t size_bytes = 0;
    bool *asked = NULL;
    size_t n_reads = 0;

    io = io == NULL ? &io_posix : io;
    if (manifest != NULL)
        *manifest = (struct manifest){ 0 };
    status = contents_read(io, step_directory, &contents, err);
    if (status != FSDP_OK)
        goto done;
    wants = calloc(n_tensors + 1, sizeof *wants);
    asked = calloc(contents.manifest.n_tensors + 1, sizeof *asked);
    if (wants == NULL || asked == NULL) {
        status = fsdp_fail(err, FSDP_ERR_NOMEM, "memory for %zu tensors", n_tensors);
        goto done;
    }
    status = match(&contents, W, rank, tensors, n_tensors, flags, wants, asked, err);
    if (status == FSDP_OK)
        status = reshard_plan(&contents, wants, n_tensors, &reads, &n_reads, err);
    if (status == FSDP_OK)
        status = read_all(io, step_directory, &contents, reads, n_reads, err);
    if (status != FSDP_OK)
        goto done;
    for (size_t i = 0; i < n_reads; i++)
        size_bytes += reads[i].size_bytes;
    if (loaded != NULL)
        *loaded = (struct checkpoint_loaded){ size_bytes, n_reads, clock_now_s() - began_s };
    if (manifest != NULL) {
        *manifest = contents.manifest;
        contents.manifest = (struct manifest){ 0 };
    }
done:
    if (status != FSDP_OK)
        fsdp_wrap(err, "loading %s", step_directory);
    free(reads);
    free(wants);
    free(asked);
    contents_free(&contents);
    return status;
}
