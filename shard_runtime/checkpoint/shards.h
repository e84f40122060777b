/*
 * This rank's shards of a state, as the tensors of a safetensors file: what a save writes to the disk or to
 * memory, in which order.
 */
#ifndef CHECKPOINT_SHARDS_H
#define CHECKPOINT_SHARDS_H

#include "shard_runtime/checkpoint/tensors.h"
#include "shard_runtime/shardfile/safetensors.h"
#include "shard_runtime/shardfile/shard_marks.h"

/**
 * Describes in `shards`, which has room for n_tensors, the shards that this rank has and writes; with
 * `elsewhere` those that it has and another rank writes. Skips tensors of which this rank has nothing.
 *   FSDP_ERR_ARG  as checkpoint_tensor_box()
 */
enum fsdp_status shards_describe(const struct checkpoint_tensor *tensors, size_t n_tensors, int W, int rank,
                                 bool elsewhere, struct safetensors_tensor *shards, size_t *n_shards,
                                 struct fsdp_err *err);

#endif
