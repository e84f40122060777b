/*
 * Loads a sharded state at any world size, and verifies it. Each rank reads the rows that it owns now, from
 * whichever files contain them, directly into their final memory.
 *
 * The ranks share the work of verification: each file is in the share of one rank (contents_reader()). That
 * rank reads the header, and computes the checksum over the bytes that it loads and those between them. So a
 * rank of as many as saved opens one file, and reads each of its bytes once.
 */
#ifndef CHECKPOINT_LOAD_H
#define CHECKPOINT_LOAD_H

#include <stdint.h>

#include <fsdp/status.h>

#include "shard_runtime/checkpoint/tensors.h"
#include "shard_runtime/shardfile/io.h"
#include "shard_runtime/shardfile/manifest.h"

enum checkpoint_load_flags {
    /*
     * the checkpoint may have more tensors than the caller asks for, as when weights are loaded without
     * optimizer
     */
    CHECKPOINT_SUBSET = 1,
};

/* Statistics of one checkpoint_load(). */
struct checkpoint_loaded {
    uint64_t size_bytes; /* bytes read into the tensors */
    size_t n_reads;
    double seconds;
};

/**
 * How the ranks of a world exchange data while they load. Every rank calls these functions in the same order.
 * `user` is passed to both.
 */
struct checkpoint_readers {
    /* Returns on every rank the status of the lowest rank whose `own` is not FSDP_OK, with its words. */
    enum fsdp_status (*agree)(void *user, enum fsdp_status own, struct fsdp_err *err);
    /*
     * Gives the words of all ranks to each: those of rank r begin at *all + r * *stride. The caller frees
     * *all. Every rank gets the same status.
     */
    enum fsdp_status (*gather)(void *user, const uint64_t *words, size_t n_words, uint64_t **all,
                               size_t *stride, struct fsdp_err *err);
    void *user;
};

/**
 * Fills `rows` of every tensor from `step_directory`. First it checks names, types, shapes and the coverage
 * of every row; until then it writes nothing. If something fails later, the rows are undefined.
 *
 *   io        NULL: io_anywhere
 *   W, rank   the current world size and rank, not those of the save
 *   tensors   (n_tensors) the tensors and rows that this rank wants
 *   flags     enum checkpoint_load_flags
 *   readers   the call is collective, and every rank gets the same status: FSDP_OK means that every byte of
 *             every file is verified. NULL: the ranks do not meet. Then this call reads the headers of all
 *             files, and verifies the checksums of its share
 *   manifest  NULL, or receives what was saved in addition to the tensors; the caller releases it with
 *             manifest_free()
 *   loaded    NULL, or receives the statistics
 *
 *   FSDP_ERR_MISMATCH   the checkpoint is undamaged, but belongs to another model: the message names the
 *                       first tensor that does not fit
 *   FSDP_ERR_NOT_FOUND  there is no such checkpoint
 *   FSDP_ERR_FORMAT     the checkpoint is damaged: the message names the file
 *   FSDP_ERR_IO, FSDP_ERR_NOMEM
 * FSDP_ERR_MISMATCH is also what ranks get that see different checkpoints.
 */
enum fsdp_status checkpoint_load(struct fsdp_io *io, const char *step_directory, int W, int rank,
                                 const struct checkpoint_tensor *tensors, size_t n_tensors, unsigned flags,
                                 const struct checkpoint_readers *readers, struct manifest *manifest,
                                 struct checkpoint_loaded *loaded, struct fsdp_err *err);

#endif
