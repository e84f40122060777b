#include "shard_runtime/checkpoint/shards.h"

#include <stdio.h>
#include <string.h>

#include "shard_runtime/core/require.h"
#include "shard_runtime/shardfile/contents.h"

void shards_mark(struct shards_marks *marks, const struct shards_save *save)
{
    static const char *const keys[SHARDS_MARKS] = { CONTENTS_STEP_KEY, CONTENTS_GENERATION_KEY,
                                                    CONTENTS_WORLD_KEY, CONTENTS_RANK_KEY };
    const long long values[SHARDS_MARKS] = { save->step, save->generation, save->W, save->rank };

    for (int i = 0; i < SHARDS_MARKS; i++) {
        snprintf(marks->words[i], sizeof marks->words[i], "%lld", values[i]);
        marks->list[i] = (struct safetensors_metadata){ keys[i], marks->words[i] };
    }
}

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
