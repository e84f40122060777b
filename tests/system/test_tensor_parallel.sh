#!/usr/bin/env bash
# parallel.tensor: N, through fsdprun: the losses, norms and gradients of PyTorch in fp64 at any split of four ranks; a run
# that goes on at another split; what its plan says; what cannot be is refused in words.
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

# test_fully_shard_training.py: TestFullyShardNDTraining
mode tensor 4 parallel.tensor=2
mode tensor-replicas 4 parallel.tensor=2 parallel.replicate=2 train.batch=2

# A checkpoint of one split is another's: over 2 x 2, then 3 ranks that shard, then 2 that split, against the same reference.
check "over 2 x 2 ranks, eight steps" train splits 4 parallel.tensor=2 train.steps=8 checkpoint.every=8
check "four more over three" train splits 3 train.steps=12 checkpoint.every=12
check "and the rest over two that split" train splits 2 parallel.tensor=2 checkpoint.every=20
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
