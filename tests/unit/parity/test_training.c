/*
 * test_fully_shard_training.py: each case against PyTorch without sharding in fp64, over worlds of 1 to 8
 * ranks and the ways of sharding. Same mathematics, so losses to 2e-6, norms and gradients to 5e-6.
 */
#include <criterion/criterion.h>

#include "tests/unit/parity/case.h"

/* Shapes that no world size divides, and at 8 ranks fewer rows than ranks. */
#define AT(w) WAY(.W = w), WAY(.W = w, .groups = ROOT_ONLY)
WaysTest(parity_training, uneven_linears_at_every_world_size, "linears-a linears-b linears-c", AT(1), AT(2),
         AT(3), AT(4), AT(5), AT(6), AT(7), AT(8));

WaysTest(parity_training, transformer_at_every_world_size, "transformer", { .W = 1 }, { .W = 2 }, { .W = 3 },
         { .W = 4 }, { .W = 5 }, { .W = 6 }, { .W = 7 }, { .W = 8 });

WaysTest(parity_training, rms_norm_at_every_world_size, "rms", { .W = 1 }, { .W = 2 }, { .W = 3 }, { .W = 4 },
         { .W = 5 }, { .W = 8 }, { .W = 4, .replicate = 2, .n_micro = 3, .sync = FSDP_SYNC_EVERY },
         { .W = 2, .recompute = FSDP_CHECKPOINT_FULL, .reshard = FSDP_RESHARD_TRUE },
         { .W = 3, .recompute = FSDP_CHECKPOINT_SELECTIVE });

WaysTest(parity_training, reshard_modes, "transformer", { .W = 2, .reshard = FSDP_RESHARD_TRUE },
         { .W = 3, .reshard = FSDP_RESHARD_FALSE }, { .W = 4, .reshard_size = 2 },
         { .W = 6, .reshard_size = 3 }, { .W = 4, .reshard_size = 4 }, { .W = 4, .reshard_size = 1 },
         { .W = 4, .keep_after_backward = true });

WaysTest(parity_training, groupings, "transformer", { .W = 3, .groups = ROOT_ONLY },
         { .W = 3, .groups = IN_LISTS }, { .W = 3, .groups = BY_LINEAR },
         { .W = 2, .groups = BY_LINEAR, .reshard = FSDP_RESHARD_TRUE });

WaysTest(parity_training, explicit_prefetch, "transformer", { .W = 2, .prefetch = 1 },
         { .W = 3, .prefetch = 2 }, { .W = 2, .prefetch = 2, .overlap = FSDP_OVERLAP_ON });

WaysTest(parity_training, gradient_accumulation, "transformer", { .W = 1, .n_micro = 3 },
         { .W = 2, .n_micro = 3, .sync = FSDP_SYNC_LAST },
         { .W = 2, .n_micro = 3, .sync = FSDP_SYNC_LAST, .calls = true },
         { .W = 2, .n_micro = 3, .sync = FSDP_SYNC_EVERY, .calls = true },
         WAY(.W = 3, .n_micro = 2, .reshard = FSDP_RESHARD_FALSE, .keep_after_backward = true, .calls = true),
         WAY(.W = 4, .n_micro = 3, .sync = FSDP_SYNC_EVERY, .replicate = 2, .defers_all_reduce = true,
             .calls = true),
         { .W = 2, .n_micro = 3, .sync = FSDP_SYNC_EVERY },
         { .W = 4, .n_micro = 3, .sync = FSDP_SYNC_EVERY, .reshard = FSDP_RESHARD_TRUE },
         WAY(.W = 3, .n_micro = 2, .sync = FSDP_SYNC_LAST, .reshard = FSDP_RESHARD_FALSE,
             .keep_after_backward = true),
         { .W = 4, .n_micro = 3, .sync = FSDP_SYNC_EVERY, .reshard_size = 2 },
         { .W = 4, .n_micro = 3, .sync = FSDP_SYNC_EVERY, .replicate = 2 },
         WAY(.W = 4, .n_micro = 3, .sync = FSDP_SYNC_EVERY, .replicate = 2, .defers_all_reduce = true),
         WAY(.W = 4, .n_micro = 3, .sync = FSDP_SYNC_LAST, .replicate = 2, .reshard = FSDP_RESHARD_FALSE));

WaysTest(parity_training, hybrid_sharding, "transformer linears-c:4", { .W = 4, .replicate = 2 },
         { .W = 4, .replicate = 4 }, { .W = 6, .replicate = 3, .reshard = FSDP_RESHARD_TRUE },
         { .W = 8, .replicate = 2, .reshard = FSDP_RESHARD_FALSE },
         { .W = 8, .replicate = 2, .reshard_size = 2 });

/* Sums in both reductions and one division by all ranks behind them. */
WaysTest(parity_training, forced_sums, "transformer", { .W = 2, .force_sum = true },
         { .W = 4, .replicate = 2, .force_sum = true },
         WAY(.W = 4, .replicate = 2, .n_micro = 3, .sync = FSDP_SYNC_EVERY, .defers_all_reduce = true,
             .force_sum = true));

WaysTest(parity_training, activation_checkpointing, "transformer tied:3",
         { .W = 2, .recompute = FSDP_CHECKPOINT_FULL }, { .W = 3, .recompute = FSDP_CHECKPOINT_SELECTIVE },
         { .W = 2, .recompute = FSDP_CHECKPOINT_FULL, .reshard = FSDP_RESHARD_TRUE, .n_micro = 2 },
         { .W = 3, .recompute = FSDP_CHECKPOINT_FULL, .groups = BY_LINEAR });

WaysTest(parity_training, tied_parameters, "tied", { .W = 1 }, { .W = 2 }, { .W = 5 },
         { .W = 4, .replicate = 2 }, { .W = 3, .n_micro = 2, .sync = FSDP_SYNC_EVERY });

WaysTest(parity_training, a_module_used_twice, "twice", { .W = 1 }, { .W = 2 },
         { .W = 3, .reshard = FSDP_RESHARD_FALSE }, { .W = 2, .n_micro = 3, .sync = FSDP_SYNC_EVERY },
         { .W = 4, .reshard_size = 2 });

/* Half of the ranks use what the others do not: zeros are reduced in its place. */
WaysTest(parity_training, parameters_that_some_ranks_do_not_use, "unused", { .W = 2 }, { .W = 4 },
         { .W = 2, .reshard = FSDP_RESHARD_FALSE }, { .W = 4, .replicate = 2 },
         { .W = 6, .overlap = FSDP_OVERLAP_ON });

/* Both sets of activations are there; one backward, of the sum of the losses. */
WaysTest(parity_training, two_forwards_before_a_backward,
         "transformer twice:4 tied:4 linears-a:4 biases:2 leading:2", { .W = 1, .n_micro = 2, .forwards = 2 },
         { TWO_FORWARDS }, { .W = 1, .n_micro = 2, .forwards = 2, .halves = true },
         { TWO_FORWARDS, .halves = true },
         { .W = 2, .n_micro = 3, .forwards = 3, .reshard = FSDP_RESHARD_TRUE, .halves = true },
         { .W = 3, .n_micro = 2, .forwards = 2, .reshard = FSDP_RESHARD_FALSE },
         { TWO_FORWARDS, .overlap = FSDP_OVERLAP_ON, .halves = true },
         { .W = 4, .n_micro = 2, .forwards = 2, .reshard_size = 2 },
         { .W = 4, .n_micro = 2, .forwards = 2, .replicate = 2 },
         { TWO_FORWARDS, .recompute = FSDP_CHECKPOINT_FULL },
         { .W = 2, .n_micro = 4, .forwards = 2, .sync = FSDP_SYNC_LAST },
         { .W = 2, .n_micro = 4, .forwards = 2, .sync = FSDP_SYNC_EVERY, .halves = true },
         { .W = 2, .n_micro = 4, .forwards = 2, .sync = FSDP_SYNC_LAST, .calls = true });

/* a.backward() and then b.backward(). */
WaysTest(parity_training, two_forwards_and_a_backward_of_each, "transformer twice:4 tied:4 linears-a:4",
         { .W = 1, .n_micro = 2, .forwards = 2, .backwards = FSDP_BACKWARD_OF_EACH }, { TWO_BACKWARDS },
         { .W = 1, .n_micro = 2, .forwards = 2, .backwards = FSDP_BACKWARD_OF_EACH, .halves = true },
         { TWO_BACKWARDS, .halves = true, .sync = FSDP_SYNC_EVERY },
         WAY(.W = 2, .n_micro = 3, .forwards = 3, .backwards = FSDP_BACKWARD_OF_EACH,
             .reshard = FSDP_RESHARD_TRUE, .sync = FSDP_SYNC_EVERY, .halves = true),
         WAY(.W = 3, .n_micro = 2, .forwards = 2, .backwards = FSDP_BACKWARD_OF_EACH,
             .reshard = FSDP_RESHARD_FALSE, .keep_after_backward = true),
         WAY(.W = 2, .n_micro = 4, .forwards = 2, .backwards = FSDP_BACKWARD_OF_EACH,
             .overlap = FSDP_OVERLAP_ON, .halves = true),
         WAY(.W = 4, .n_micro = 4, .forwards = 2, .backwards = FSDP_BACKWARD_OF_EACH, .replicate = 2,
             .sync = FSDP_SYNC_EVERY, .defers_all_reduce = true),
         WAY(.W = 4, .n_micro = 2, .forwards = 2, .backwards = FSDP_BACKWARD_OF_EACH, .reshard_size = 2),
         { TWO_BACKWARDS, .sync = FSDP_SYNC_EVERY, .recompute = FSDP_CHECKPOINT_SELECTIVE });

WaysTest(parity_training, other_dimensions, "transformer", { .W = 2, .columns = true },
         { .W = 4, .columns = true, .n_micro = 2 }, { .W = 4, .columns = true, .replicate = 2 });

WaysTest(parity_training, optimizer_groups, "groups", { .W = 1 }, { .W = 3 }, { .W = 4, .replicate = 2 });

/*
 * test_fully_shard_clip_grad_norm_.py: total norms of order 1, 2, 3 and infinity, over one and two dimensions
 * of a mesh. Over a dimension that splits linears too. A gradient counts once, whether it is split over the
 * tensor group or every rank of the group holds it.
 */
WaysTest(parity_clip_grad_norm, every_order_over_one_and_two_dimensions, "clip-1 transformer clip-3 clip-inf",
         { .W = 1 }, { .W = 2 }, { .W = 5 }, { .W = 4, .replicate = 2 });

#define SPLIT                                                                                                \
    WAY(.W = 2, .tensor = 2), WAY(.W = 4, .tensor = 2), WAY(.W = 4, .tensor = 4), WAY(.W = 6, .tensor = 2),  \
        WAY(.W = 8, .tensor = 2, .replicate = 2)
WaysTest(parity_clip_grad_norm, every_order_over_shards_and_split_linears,
         "mlp-clip-1 mlp mlp-clip-3 mlp-clip-inf", SPLIT);
WaysTest(parity_clip_grad_norm, every_order_over_shards_and_split_heads,
         "tensor-clip-1 tensor tensor-clip-3 tensor-clip-inf", SPLIT);

/*
 * TestFullyShardNDTraining and test_2d_composability.py: tensor parallelism over one dimension of a mesh and
 * sharding over the others, against PyTorch in one piece and in fp64.
 */
WaysTest(parity_tensor, a_column_and_a_row_parallel_mlp, "mlp", { .W = 2, .tensor = 2 },
         { .W = 4, .tensor = 2 }, { .W = 4, .tensor = 4 }, { .W = 6, .tensor = 2, .groups = ROOT_ONLY },
         { .W = 8, .tensor = 4, .reshard = FSDP_RESHARD_TRUE }, { .W = 8, .tensor = 2, .replicate = 2 },
         { .W = 4, .tensor = 2, .columns = true });

WaysTest(parity_tensor, a_transformer_of_split_heads_and_features, "tensor", { .W = 2, .tensor = 2 },
         { .W = 4, .tensor = 2 }, { .W = 4, .tensor = 4 }, { .W = 8, .tensor = 2, .replicate = 2 },
         { .W = 8, .tensor = 4 }, { .W = 6, .tensor = 2, .reshard = FSDP_RESHARD_FALSE },
         { .W = 8, .tensor = 2, .reshard_size = 2 }, { .W = 4, .tensor = 2, .groups = BY_LINEAR },
         { .W = 4, .tensor = 2, .groups = IN_LISTS },
         { .W = 4, .tensor = 2, .recompute = FSDP_CHECKPOINT_FULL },
         { .W = 4, .tensor = 2, .recompute = FSDP_CHECKPOINT_SELECTIVE },
         { .W = 4, .tensor = 2, .n_micro = 3, .sync = FSDP_SYNC_EVERY },
         { .W = 4, .tensor = 2, .n_micro = 3, .calls = true },
         { .W = 4, .tensor = 2, .own_reduce_group = true, .overlap = FSDP_OVERLAP_ON });

/* Units of one tree on meshes of their own, over the same ranks. */
WaysTest(parity_tensor, meshes_of_units, "tensor", { .W = 4, .replicate = 2, .mixed_meshes = true },
         WAY(.W = 4, .replicate = 2, .mixed_meshes = true, .reshard = FSDP_RESHARD_TRUE, .n_micro = 3,
             .sync = FSDP_SYNC_EVERY),
         { .W = 8, .replicate = 2, .tensor = 2, .mixed_meshes = true },
         { .W = 8, .replicate = 2, .reshard_size = 2, .mixed_meshes = true });
