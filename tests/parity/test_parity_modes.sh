#!/usr/bin/env bash
# Every way of sharding trains the same model: held against PyTorch in fp64 (tests/parity/README.md), step by step, and
# the raw gradient of step 1. The cases of PyTorch's own suite are named beside each.
cd "$(dirname "$0")/../.." || exit 1
. tests/support/harness.sh
. tests/support/train.sh
PARITY=$SOURCE/tests/parity
compare=$TOY/parity_compare

# train NAME W SETTING...: a run of the plain case; its directory is $WORK/NAME.
train() {
  local name=$1 W=$2 setting args=(); shift 2
  while read -r setting; do args+=(--set "$setting"); done < <(sed -n 's/^set //p' "$PARITY/reference/plain.adamw.txt")
  for setting in "$@"; do args+=(--set "$setting"); done
  run_job "$WORK/$name.log" --nproc-per-node "$W" "$PARITY/parity.yaml" "${args[@]}" \
    --set "run.dir=$WORK" --set "run.name=$name" || { tail -n 5 "$WORK/$name.log"; return 1; }
}

# mode NAME W SETTING...
mode() {
  local name=$1 W=$2; shift 2
  check "$name trains" train "$name" "$W" "$@"
  check "$name: losses and norms" "$compare" steps "$PARITY/reference/plain.adamw.txt" "$WORK/$name/metrics.jsonl"
  check "$name runs one step for its gradient" train "$name.gradient" "$W" "$@" \
    "optimizer.betas=[0.0, 0.95]" train.steps=1 train.clip_norm=0.0 checkpoint.every=1
  check "$name: gradients of step 1" "$compare" gradients "$PARITY/reference/plain.gradients.txt" \
    "$WORK/$name.gradient/checkpoints/step-00000001" optimizer.exp_avg.
}

# test_fully_shard_training.py: TestFullyShardHSDPTraining, TestFullyShardGradientAccumulation
mode hsdp 4 parallel.replicate=2
mode hsdp-replicas-only 2 parallel.replicate=2
mode hsdp-accumulate-every 4 parallel.replicate=2 parallel.gradient_sync=every train.batch=1
mode hsdp-accumulate-all-reduce-last 4 parallel.replicate=2 parallel.gradient_sync=every parallel.all_reduce=last train.batch=1

# test_fully_shard_comm.py, test_fully_shard_training.py: reshard_after_forward int, True, False; module lists as groups
mode reshard-2 4 parallel.reshard_after_forward=2
mode reshard-true 3 parallel.reshard_after_forward=true
mode reshard-false 3 parallel.reshard_after_forward=false parallel.reshard_after_backward=false train.batch=2
mode groups 3 "parallel.groups=[{modules: layers.*.feed_forward}, {modules: layers.*, reshard_after_forward: false}, {modules: [tok_embeddings, norm, output]}]"
mode offload 2 parallel.offload=cpu

# A checkpoint of one mesh is another's: 10 steps over 2 x 2, the rest over 3 ranks, against the same reference.
check "over 2 x 2 ranks, ten steps" train meshes 4 parallel.replicate=2 train.steps=10 checkpoint.every=10
check "and the rest over three" train meshes 3 checkpoint.every=10
check "a run over two meshes: losses and norms" "$compare" steps "$PARITY/reference/plain.adamw.txt" "$WORK/meshes/metrics.jsonl"
[ "$n_failed" -eq 0 ]
