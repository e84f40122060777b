#!/usr/bin/env bash
# parallel.tensor: N, through fsdprun: the losses, norms and gradients of PyTorch in fp64 at any split of four ranks; a run
# that goes on at another split; what its plan says; what cannot be is refused in words.
cd "$(dirname "$0")/../.." || exit 1
. tests/support/harness.sh
. tests/support/train.sh
. tests/support/parity.sh

# test_fully_shard_training.py: TestFullyShardNDTraining
mode plain tensor 4 parallel.tensor=2
mode plain tensor-replicas 4 parallel.tensor=2 parallel.replicate=2 train.batch=2
# Heads of 70 positions, whose attention stores no matrix, on ranks of their own; and sharded beside.
mode long tensor-long 3 parallel.tensor=3
mode long tensor-sharded-long 6 parallel.tensor=3

# In bfloat16 the parts of a split product are rounded before they are added up: no farther from fp64 than PyTorch's unsplit
# training is allowed to be.
for reduce in float32 bfloat16; do
  bounded_mode plain "tensor-$reduce" 4 "$reduce" parallel.tensor=2
done
bounded_mode long tensor-long-float32 3 float32 parallel.tensor=3

# A checkpoint of one split is another's: over 2 x 2, then 3 ranks that shard, then 2 that split, against the same reference.
check "over 2 x 2 ranks, eight steps" train_case plain.adamw splits 4 parallel.tensor=2 train.steps=8 checkpoint.every=8
check "four more over three" train_case plain.adamw splits 3 train.steps=12 checkpoint.every=12
check "and the rest over two that split" train_case plain.adamw splits 2 parallel.tensor=2 checkpoint.every=20
check "a run over three splits: losses and norms" "$compare" steps "$PARITY/reference/plain.adamw.txt" "$WORK/splits/metrics.jsonl"

# planned VALUE SETTING...: of the plan's JSON.
planned() {
  local value=$1; shift
  local args=(); for setting in "$@"; do args+=(--set "$setting"); done
  "$BIN/fsdprun" plan --json --nproc-per-node 4 "$PARITY/parity.yaml" "${args[@]}" | tr ',{}' '\n' | sed -n "s/.*\"$value\": *\([0-9]*\).*/\1/p" | head -n 1
}
less() { [ "$1" -gt 0 ] && [ "$1" -lt "$2" ]; }
check "activations are planned to be less" less "$(planned activations parallel.tensor=2)" "$(planned activations)"
check "its all-reduces are counted" test "$(planned all_reduce parallel.tensor=2)" -gt 0

# refused WORDS SETTING...
refused() {
  local words=$1; shift
  local args=(); for setting in "$@"; do args+=(--set "$setting"); done
  "$BIN/fsdprun" --dry-run --nproc-per-node 4 "$PARITY/parity.yaml" "${args[@]}" > "$WORK/refused.log" 2>&1
  [ $? -eq 78 ] && grep -q "$words" "$WORK/refused.log" || { cat "$WORK/refused.log"; return 1; }
}
check "ranks that groups do not divide are refused" refused "groups of 3 do not divide 4 ranks" parallel.tensor=3
check "heads that they do not divide are refused" refused "4 ranks do not divide 2 heads" parallel.tensor=4 model.heads=2 model.dim=14
check "copies are of what is left" refused "4 copies of the model do not divide 2 ranks" parallel.tensor=2 parallel.replicate=4
check "dropout of split heads is refused" refused "needs model.dropout: 0" parallel.tensor=2 model.dropout=0.1
[ "$n_failed" -eq 0 ]
