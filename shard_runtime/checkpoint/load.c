#include "shard_runtime/checkpoint/load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/checkpoint/file_reader.h"
#include "shard_runtime/checkpoint/reshard.h"
#include "shard_runtime/core/clock.h"
#include "shard_runtime/core/require.h"
#include "shard_runtime/shardfile/commit.h"
#include "shard_runtime/shardfile/io_anywhere.h"

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
 * Returns the name of the first tensor of the checkpoint that the caller does not want (its flag in `asked`
 * is false), or NULL.
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

/*
 * Does all `reads`, and verifies the files in the share of `rank`. The reads are sorted by file, so each file
 * is opened once.
 */
static enum fsdp_status read_all(struct fsdp_io *io, const char *step_directory,
                                 const struct contents *contents, int W, int rank,
                                 const struct reshard_read *reads, size_t n_reads, struct fsdp_err *err)
{
    const struct manifest *manifest = &contents->manifest;
    char path[IO_PATH_BYTES];
    struct file_sum *sum;
    enum fsdp_status status = file_sum_create(&sum, err);
    size_t at = 0;

    for (size_t file = 0; file < manifest->n_files && status == FSDP_OK; file++) {
        const bool verifies = contents_reader(manifest, file, (uint32_t)W) == (uint32_t)rank;
        struct file_reader reader = {
            .io = io, .path = path, .reads = reads + at, .sum = verifies ? sum : NULL
        };

        while (at < n_reads && reads[at].file == file)
            at++, reader.n_reads++;
        if (reader.n_reads == 0 && !verifies)
            continue;
        status = io_join(path, step_directory, manifest->files[file].name, err);
        file_sum_begin(sum);
        if (status == FSDP_OK)
            status = file_reader_run(&reader, err);
        if (status == FSDP_OK && verifies)
            status = file_sum_check(sum, &manifest->files[file], path, err);
    }
    file_sum_destroy(sum);
    return status;
}

static enum fsdp_status agree(const struct checkpoint_readers *readers, enum fsdp_status own,
                              struct fsdp_err *err)
{
    return readers == NULL ? own : readers->agree(readers->user, own, err);
}

/*
 * Adds "loading DIRECTORY" to this rank's own failure, and then does what agree() does: every rank gets the
 * failure of one rank. If it is another rank's, the message begins with that rank.
 */
static enum fsdp_status share_fate(const char *step_directory, const struct checkpoint_readers *readers,
                                   enum fsdp_status own, struct fsdp_err *err)
{
    if (own != FSDP_OK)
        fsdp_wrap(err, "loading %s", step_directory);
    return agree(readers, own, err);
}

/*
 * Lists the checkpoint's contents together. Each rank reads the headers of the files in its share, gives
 * their pieces to the other ranks, and receives theirs. The ranks agree on a status after each step that can
 * fail on one of them alone.
 */
static enum fsdp_status list_shared(struct fsdp_io *io, const char *step_directory, int W, int rank,
                                    const struct checkpoint_readers *readers, struct contents *contents,
                                    struct fsdp_err *err)
{
    uint64_t *words = NULL, *all = NULL;
    size_t n_words = 0, stride = 0;
    enum fsdp_status status =
        contents_read_share(io, step_directory, (uint32_t)rank, (uint32_t)W, contents, err);

    OK_OR_RETURN(share_fate(step_directory, readers, status, err));
    status = share_fate(step_directory, readers, contents_pack(contents, &words, &n_words, err), err);
    if (status == FSDP_OK)
        status = readers->gather(readers->user, words, n_words, &all, &stride, err);
    if (status == FSDP_OK) {
        status = contents_unpack(contents, all, stride, (uint32_t)W, err);
        if (status == FSDP_OK)
            status = contents_prove(contents, err);
        status = share_fate(step_directory, readers, status, err);
    }
    free(all);
    free(words);
    return status;
}

/* Lists the contents of all files. */
static enum fsdp_status list_contents(struct fsdp_io *io, const char *step_directory, int W, int rank,
                                      const struct checkpoint_readers *readers, struct contents *contents,
                                      struct fsdp_err *err)
{
    if (readers != NULL && W > 1)
        return list_shared(io, step_directory, W, rank, readers, contents, err);
    return share_fate(step_directory, readers, contents_read(io, step_directory, contents, err), err);
}

enum fsdp_status checkpoint_load(struct fsdp_io *io, const char *step_directory, int W, int rank,
                                 const struct checkpoint_tensor *tensors, size_t n_tensors, unsigned flags,
                                 const struct checkpoint_readers *readers, struct manifest *manifest,
                                 struct checkpoint_loaded *loaded, struct fsdp_err *err)
{
    struct contents contents = { 0 };
    struct reshard_want *wants = NULL;
    struct reshard_read *reads = NULL;
    const double began_s = clock_now_s();
    enum fsdp_status status;
    uint64_t size_bytes = 0;
    bool *asked = NULL;
    size_t n_reads = 0;

    io = io == NULL ? &io_anywhere : io;
    if (manifest != NULL)
        *manifest = (struct manifest){ 0 };
    status = list_contents(io, step_directory, W, rank, readers, &contents, err);
    if (status != FSDP_OK)
        goto done;
    wants = calloc(n_tensors + 1, sizeof *wants);
    asked = calloc(contents.manifest.n_tensors + 1, sizeof *asked);
    if (wants == NULL || asked == NULL)
        status = fsdp_fail(err, FSDP_ERR_NOMEM, "memory for %zu tensors", n_tensors);
    if (status == FSDP_OK)
        status = match(&contents, W, rank, tensors, n_tensors, flags, wants, asked, err);
    if (status == FSDP_OK)
        status = reshard_plan(&contents, wants, n_tensors, &reads, &n_reads, err);
    if (status == FSDP_OK)
        status = read_all(io, step_directory, &contents, W, rank, reads, n_reads, err);
    status = share_fate(step_directory, readers, status, err);
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
    free(reads);
    free(wants);
    free(asked);
    contents_free(&contents);
    return status;
}
