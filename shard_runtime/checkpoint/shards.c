#include "shard_runtime/checkpoint/shards.h"

#include <string.h>

#include "shard_runtime/core/require.h"

/*
 * Returns true if this rank writes nothing of the tensor, because its box has no rows or is otherwise empty.
 * Exception: if a dimension after the first is 0, the tensor has no elements, but ranks with rows of it still
 * write it. So the tensor is in the checkpoint.
 */
static bool has_nothing(const struct checkpoint_tensor *tensor, const struct box *box)
{
    bool nothing = false;

    for (size_t d = 0; d < tensor->n_dims; d++)
        nothing = nothing || (box->sizes[d] == 0 && (d == 0 || tensor->shape[d] > 0));
    return nothing;
}

enum fsdp_status shards_describe(const struct checkpoint_tensor *tensors, size_t n_tensors, int W, int rank,
                                 bool elsewhere, struct safetensors_tensor *shards, size_t *n_shards,
                                 struct fsdp_err *err)
{
    *n_shards = 0;
    for (size_t i = 0; i < n_tensors; i++) {
        const struct checkpoint_tensor *tensor = &tensors[i];
        struct safetensors_tensor *shard = &shards[*n_shards];
        struct box box;

        OK_OR_RETURN(checkpoint_tensor_box(tensor, W, rank, &box, err));
        if (has_nothing(tensor, &box) || tensor->saved_elsewhere != elsewhere)
            continue;
        *shard = (struct safetensors_tensor){ .name = tensor->name,
                                              .dtype = tensor->dtype,
                                              .n_dims = tensor->n_dims,
                                              .has_offsets = true,
                                              .has_global_shape = true,
                                              .data = tensor->rows,
                                              .store = tensor->store,
                                              .in_store = tensor->in_store };
        memcpy(shard->shape, box.sizes, sizeof shard->shape);
        memcpy(shard->offsets, box.offsets, sizeof shard->offsets);
        memcpy(shard->global_shape, tensor->shape, sizeof shard->global_shape);
        ++*n_shards;
    }
    return FSDP_OK;
}
