/*
 * Gathers whole parameters on every rank; also gradients and optimizer state, which have the shape of
 * parameters.
 */
#ifndef ENGINE_GATHER_H
#define ENGINE_GATHER_H

#include "shard_runtime/engine/model.h"

/**
 * Memory to gather parameters in, one after another: in each place as much as the largest one needs. Begins
 * as zeros.
 */
struct gather_room {
    size_t size_bytes[N_PLACES];
    float *memory[N_PLACES];
};
/** Make the room large enough for parameter `index`; before gather_room_make(). */
void gather_room_need(struct gather_room *room, const struct fsdp_model *model, int index);
/** Allocate the room. It must be freed after a failure as well. */
enum fsdp_status gather_room_make(struct gather_room *room, struct fsdp_model *model, struct fsdp_err *err);
void gather_room_free(struct gather_room *room, struct fsdp_model *model);
/**
 * Gather the whole of parameter `index`, or of its gradient, into `out` in host memory. Collective over all
 * ranks that share the model. Only a broken group or device can make it fail.
 */
enum fsdp_status model_gather(struct fsdp_model *model, int index, enum fsdp_which which,
                              const struct gather_room *room, float *out, struct fsdp_err *err);
/**
 * Gathers values other than parameters that have the layout of the parameter's shard, padding included.
 * `shard` is in the memory that model_gather_place() names. Otherwise as model_gather().
 */
enum fsdp_status model_gather_rows(struct fsdp_model *model, int index, const float *shard,
                                   const struct gather_room *room, float *out, struct fsdp_err *err);
enum shard_place model_gather_place(const struct fsdp_model *model, int index);
/**
 * Take this rank's elements of a whole tensor with the shape of parameter `index`: into `own`, without
 * padding.
 */
void model_take_rows(const struct fsdp_model *model, int index, const float *whole, float *own);

#endif
