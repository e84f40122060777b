/*
 * The contents of a step directory: which box of which tensor is stored in which file. contents_read() proves
 * that the boxes cover each tensor exactly once. Verification needs that proof; loading needs the positions.
 * weights.h builds the same list for weight files that other programs wrote.
 */
#ifndef SHARDFILE_CONTENTS_H
#define SHARDFILE_CONTENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <fsdp/status.h>

#include "shard_runtime/shardfile/box.h"
#include "shard_runtime/shardfile/io.h"
#include "shard_runtime/shardfile/manifest.h"

/*
 * Keys in the safetensors metadata of each file of a checkpoint, in addition to those that PyTorch reads.
 * Readers use them to recognise a file that belongs to another save.
 */
#define CONTENTS_STEP_KEY       "fsdp_step"
#define CONTENTS_GENERATION_KEY "fsdp_generation"
#define CONTENTS_WORLD_KEY      "fsdp_world_size"
#define CONTENTS_RANK_KEY       "fsdp_rank"

/** A box of a tensor, stored contiguously in one file. */
struct contents_piece {
    uint32_t tensor; /* index in manifest.tensors */
    uint32_t file;   /* index in manifest.files */
    struct box box;
    uint64_t offset; /* byte offset of the box's first element from the start of the file */
};

struct contents {
    struct manifest manifest;
    struct contents_piece *pieces; /* sorted by tensor, then by offsets in the tensor */
    size_t n_pieces, pieces_room;
    size_t *starts; /* (n_tensors + 1): the pieces of tensor t are starts[t] .. starts[t + 1] - 1 */
    /*
     * True if the files may be symbolic links, because the user named them. The files of a checkpoint may
     * not.
     */
    bool follows_links;
};

/**
 * Reads the manifest and all file headers of `step_directory`, and proves coverage. Does not read tensor
 * data. On success the caller releases *out with contents_free().
 *   FSDP_ERR_NOT_FOUND, FSDP_ERR_FORMAT (the message names file and tensor), FSDP_ERR_IO, FSDP_ERR_NOMEM
 */
enum fsdp_status contents_read(struct fsdp_io *io, const char *step_directory, struct contents *out,
                               struct fsdp_err *err);

/**
 * Reads the manifest of `step_directory`, which the caller releases with manifest_free(). Checks that the
 * directory has the files that the manifest lists, with their sizes, and no other tensor file. Opens none of
 * them. Errors are those of contents_read().
 */
enum fsdp_status contents_read_sizes(struct fsdp_io *io, const char *step_directory, struct manifest *out,
                                     struct fsdp_err *err);

/*
 * Dividing the work of reading a checkpoint: each of `n_readers` processes opens only the files of its share.
 * It sends what it found to the others as 64-bit words. contents_prove() needs the pieces of all shares.
 */

/**
 * Returns which reader has file number `file` in its share. If there are as many readers as ranks that saved,
 * reader r has the file of rank r. Otherwise a reader has the files of ranks whose rows it most likely loads.
 */
uint32_t contents_reader(const struct manifest *manifest, size_t file, uint32_t n_readers);

/**
 * Reads the manifest and the headers of the files in the share of `reader`, like contents_read(), but proves
 * nothing. The pieces are not sorted.
 */
enum fsdp_status contents_read_share(struct fsdp_io *io, const char *step_directory, uint32_t reader,
                                     uint32_t n_readers, struct contents *out, struct fsdp_err *err);

/** Writes the manifest's checksum and all pieces as 64-bit words. The caller frees *words. */
enum fsdp_status contents_pack(const struct contents *contents, uint64_t **words, size_t *n_words,
                               struct fsdp_err *err);

/**
 * Replaces the pieces by those that all `n_readers` readers have packed. The words of reader r begin at words
 * + r * stride, and are at most `stride`.
 *   FSDP_ERR_MISMATCH  a reader has read another manifest
 *   FSDP_ERR_FORMAT    the words are not pieces of this checkpoint
 */
enum fsdp_status contents_unpack(struct contents *contents, const uint64_t *words, size_t stride,
                                 uint32_t n_readers, struct fsdp_err *err);

/** Returns the index of the tensor called `name` in the manifest, or -1. */
int64_t contents_find(const struct contents *contents, const char *name);

/**
 * Sorts the pieces, fills in `starts`, and proves that the pieces cover every tensor of out->manifest exactly
 * once. The caller must ensure that every piece is within its tensor, unless the tensor's size exceeds 64
 * bits.
 *   FSDP_ERR_FORMAT  the coverage is not exact, or a size exceeds 64 bits; the message names the tensor
 */
enum fsdp_status contents_prove(struct contents *out, struct fsdp_err *err);

/**
 * Opens file number `file` of the list for reading. `directory` is the directory that holds the listed files.
 * *fd receives the descriptor, which the caller closes; `path` receives the file's path.
 */
enum fsdp_status contents_open_file(struct fsdp_io *io, const struct contents *contents, uint32_t file,
                                    const char *directory, char path[IO_PATH_BYTES], int *fd,
                                    struct fsdp_err *err);

/** Releases the list and sets *contents to zero. */
void contents_free(struct contents *contents);

#endif
