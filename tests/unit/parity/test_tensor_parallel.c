/*
 * test_fully_shard_training.py, TestFullyShardNDTraining, and test_2d_composability.py: tensor parallelism over one dimension of
 * a mesh, sharding over the others, against PyTorch in one piece and in fp64.
 */
#include <criterion/criterion.h>

#include "tests/unit/parity/case.h"

#define N(ways) (sizeof(ways) / sizeof *(ways))

Test(parity_tensor, a_column_and_a_row_parallel_mlp, .timeout = 3000)
{
    static const struct way ways[] = {
        { .W = 2, .tensor = 2 },
        { .W = 4, .tensor = 2 },
        { .W = 4, .tensor = 4 },
        { .W = 6, .tensor = 2, .groups = ROOT_ONLY },
        { .W = 8, .tensor = 4, .reshard = FSDP_RESHARD_TRUE },
        { .W = 8, .tensor = 2, .replicate = 2 },
        { .W = 4, .tensor = 2, .columns = true },
    };

    case_expect("mlp", ways, N(ways));
}

Test(parity_tensor, a_transformer_of_split_heads_and_features, .timeout = 3000)
{
    static const struct way ways[] = {
        { .W = 2, .tensor = 2 },
        { .W = 4, .tensor = 2 },
        { .W = 4, .tensor = 4 },
        { .W = 8, .tensor = 2, .replicate = 2 },
        { .W = 8, .tensor = 4 },
        { .W = 6, .tensor = 2, .reshard = FSDP_RESHARD_FALSE },
        { .W = 8, .tensor = 2, .reshard_size = 2 },
        { .W = 4, .tensor = 2, .groups = BY_LINEAR },
        { .W = 4, .tensor = 2, .groups = IN_LISTS },
        { .W = 4, .tensor = 2, .recompute = FSDP_CHECKPOINT_FULL },
        { .W = 4, .tensor = 2, .recompute = FSDP_CHECKPOINT_SELECTIVE },
        { .W = 4, .tensor = 2, .n_micro = 3, .sync = FSDP_SYNC_EVERY },
        { .W = 4, .tensor = 2, .n_micro = 3, .calls = true },
        { .W = 4, .tensor = 2, .own_reduce_group = true, .overlap = FSDP_OVERLAP_ON },
    };

    case_expect("tensor", ways, N(ways));
}

/* Units of one tree on meshes of their own, over the same ranks. */
Test(parity_tensor, meshes_of_units, .timeout = 3000)
{
    static const struct way ways[] = {
        { .W = 4, .replicate = 2, .mixed_meshes = true },
        { .W = 4,
          .replicate = 2,
          .mixed_meshes = true,
          .reshard = FSDP_RESHARD_TRUE,
          .n_micro = 3,
          .sync = FSDP_SYNC_EVERY },
        { .W = 8, .replicate = 2, .tensor = 2, .mixed_meshes = true },
        { .W = 8, .replicate = 2, .reshard_size = 2, .mixed_meshes = true },
    };

    case_expect("tensor", ways, N(ways));
}
