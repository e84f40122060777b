/*
 * A model state for the checkpoint suites. It has a few tensors of awkward shapes, cut over any number of
 * ranks. Every element is a function of (step, tensor, global index).
 */
#ifndef TESTS_CHECKPOINT_STATE_H
#define TESTS_CHECKPOINT_STATE_H

#include "shard_runtime/checkpoint/load.h"
#include "shard_runtime/checkpoint/save.h"

enum { STATE_TENSORS = 6 };

/** One rank's shards; `rows` are malloc'ed. */
struct state_shard {
    struct checkpoint_tensor tensors[STATE_TENSORS];
    int W, rank;
};

/**
 * `rows` of the first tensor: D. The others are fixed: fewer rows than ranks, one row, none, bf16, 3
 * dimensions.
 */
void state_init(struct state_shard *shard, uint64_t D, int W, int rank);
void state_free(struct state_shard *shard);
/** Give every element its value of `step`, or make all bytes 0xee. */
void state_fill(struct state_shard *shard, int64_t step);
void state_wipe(struct state_shard *shard);
/** True when every element has its value of `step`. */
bool state_is(const struct state_shard *shard, int64_t step);

/** What is saved with the tensors at `step`. */
struct checkpoint_state state_head(int64_t step);

/** A save whose parts are written and which is not published; `head` is to be freed. */
struct state_parts {
    char temporary[COMMIT_NAME_BYTES];
    struct commit_fence fence;
    struct checkpoint_part parts[16];
    struct manifest_file files[16];
    size_t n_files, head_length;
    char *head;
};
/** All W ranks write their parts. A failure leaves no part. */
enum fsdp_status state_write_parts(struct fsdp_io *io, const char *directory, int64_t step,
                                   uint32_t generation, uint64_t D, int W, struct state_parts *out,
                                   struct fsdp_err *err);
enum fsdp_status state_publish(struct fsdp_io *io, const char *directory, const struct state_parts *parts,
                               struct fsdp_err *err);
/** Both, as agents would have it done. */
enum fsdp_status state_save(struct fsdp_io *io, const char *directory, int64_t step, uint32_t generation,
                            uint64_t D, int W, struct fsdp_err *err);
/**
 * All W ranks load `step` and verify it, each its share: the first failure, or FSDP_ERR_FORMAT if a value is
 * wrong.
 */
enum fsdp_status state_load(struct fsdp_io *io, const char *directory, int64_t step, uint64_t D, int W,
                            struct fsdp_err *err);

#endif
