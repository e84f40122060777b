#!/usr/bin/env bash
# Every way of sharding trains the same model: held against PyTorch in fp64 (tests/parity/README.md), step by
# step, and the raw gradient of step 1. Each names the cases of PyTorch's own suite.
cd "$(dirname "$0")/../.." || exit 1
. tests/support/shell/harness.sh
. tests/support/shell/train.sh
. tests/support/shell/parity.sh

# test_fully_shard_training.py: TestFullyShardHSDPTraining, TestFullyShardGradientAccumulation
mode plain hsdp 4 parallel.replicate=2
mode plain hsdp-replicas-only 2 parallel.replicate=2
mode plain hsdp-accumulate-every 4 parallel.replicate=2 parallel.gradient_sync=every train.batch=1
mode plain hsdp-accumulate-all-reduce-last 4 parallel.replicate=2 parallel.gradient_sync=every parallel.all_reduce=last train.batch=1

# test_fully_shard_comm.py, test_fully_shard_training.py: reshard_after_forward int, True, False; module lists
# as groups
mode plain reshard-2 4 parallel.reshard_after_forward=2
mode plain reshard-true 3 parallel.reshard_after_forward=true
mode plain reshard-false 3 parallel.reshard_after_forward=false parallel.reshard_after_backward=false train.batch=2
mode plain groups 3 "parallel.groups=[{modules: layers.*.feed_forward}, {modules: layers.*, reshard_after_forward: false}, {modules: [tok_embeddings, norm, output]}]"
mode plain offload 2 parallel.offload=cpu

# From 64 positions on attention stores no matrix of them: over copies, and with parameters gathered in two
# ways.
mode long hsdp-long 4 parallel.replicate=2
mode long reshard-2-long 4 parallel.reshard_after_forward=2 parallel.activation_checkpoint=full

# A checkpoint of one mesh is another's: 10 steps over 2 x 2, the rest over 3 ranks, against the same
# reference.
check "over 2 x 2 ranks, ten steps" train_case plain.adamw meshes 4 parallel.replicate=2 train.steps=10 checkpoint.every=10
check "and the rest over three" train_case plain.adamw meshes 3 checkpoint.every=10
check "a run over two meshes: losses and norms" "$compare" steps "$PARITY/reference/plain.adamw.txt" "$WORK/meshes/metrics.jsonl"
[ "$n_failed" -eq 0 ]
