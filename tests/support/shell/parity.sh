# Sourced after harness.sh and train.sh by the scripts that hold a run against PyTorch in fp64
# (tests/parity/README.md).
PARITY=$SOURCE/tests/parity
compare=$TOY/parity_compare

# train_case CASE NAME W SETTING...: reference/CASE.txt's settings and these at W ranks; the run's directory
# is $WORK/NAME.
train_case() {
  local file=$PARITY/reference/$1.txt name=$2 W=$3 setting args=(); shift 3
  while read -r setting; do args+=(--set "$setting"); done < <(sed -n 's/^set //p' "$file")
  for setting in "$@"; do args+=(--set "$setting"); done
  run_job "$WORK/$name.log" --nproc-per-node "$W" "$PARITY/parity.yaml" "${args[@]}" \
    --set "run.dir=$WORK" --set "run.name=$name" || { tail -n 5 "$WORK/$name.log"; return 1; }
}

# The raw gradient of step 1 is what the optimizer's mean has seen after one step that forgets all before it.
first_gradient=("optimizer.betas=[0.0, 0.95]" train.steps=1 train.clip_norm=0.0 checkpoint.every=1)

# mode SHAPE NAME W SETTING...: the case with AdamW in another way, held to the same losses, norms and
# gradients.
mode() {
  local shape=$1 name=$2 W=$3; shift 3
  check "$name trains" train_case "$shape.adamw" "$name" "$W" "$@"
  check "$name: losses and norms" "$compare" steps "$PARITY/reference/$shape.adamw.txt" "$WORK/$name/metrics.jsonl"
  check "$name runs one step for its gradient" train_case "$shape.adamw" "$name.gradient" "$W" "$@" "${first_gradient[@]}"
  check "$name: gradients of step 1" "$compare" gradients "$PARITY/reference/$shape.gradients.txt" \
    "$WORK/$name.gradient/checkpoints/step-00000001" optimizer.exp_avg.
}

# bounded_mode SHAPE NAME W REDUCE SETTING...: the same in bfloat16, reduced in REDUCE: no worse than
# PyTorch's own is.
bounded_mode() {
  local shape=$1 name=$2 W=$3 reduce=$4; shift 4
  set -- parallel.param_dtype=bfloat16 "parallel.reduce_dtype=$reduce" "$@"
  check "$name trains" train_case "$shape.adamw" "$name" "$W" "$@"
  check "$name: losses" "$compare" bounded-losses "$PARITY/reference/$shape.adamw.txt" "$WORK/$name/metrics.jsonl" \
    "$PARITY/reference/$shape.bf16.txt" "$reduce"
  check "$name runs one step for its gradient" train_case "$shape.adamw" "$name.gradient" "$W" "$@" "${first_gradient[@]}"
  check "$name: gradients of step 1" "$compare" bounded "$PARITY/reference/$shape.gradients.txt" \
    "$WORK/$name.gradient/checkpoints/step-00000001" optimizer.exp_avg. "$PARITY/reference/$shape.bf16.txt" "$reduce"
}
