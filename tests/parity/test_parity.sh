#!/usr/bin/env bash
# fsdp-train under fsdprun against PyTorch in fp64 (tests/parity/README.md), and mutants that must not pass.
# Long
cd "$(dirname "$0")/../.." || exit 1
. tests/support/shell/harness.sh
. tests/support/shell/train.sh
. tests/support/shell/parity.sh
references=("$PARITY/reference")

# gradient_run SHAPE OPTIMIZER W
gradient_run() {
  local settings=("${first_gradient[@]}")
  [ "$2" = sgd ] && settings=(optimizer.weight_decay=0.0 "${first_gradient[@]:1}")
  train_case "$1.$2" "$1.$2.$3.gradient" "$3" "${settings[@]}"
}
state_of() { case $1 in adamw) echo optimizer.exp_avg. ;; sgd) echo optimizer.momentum_buffer. ;; esac; }

if [ -n "${FSDP_TEST_PYTHON:-}" ]; then
  if "$FSDP_TEST_PYTHON" "$PARITY/reference.py" --no-fsdp2 --out "$WORK/live" > "$WORK/live.log" 2>&1; then
    ok "PyTorch makes a live reference"
    references+=("$WORK/live")
  else
    not_ok "PyTorch makes a live reference" "$(tail -n 5 "$WORK/live.log")"
  fi
else
  skip "parity against PyTorch run live" "FSDP_TEST_PYTHON names no Python with PyTorch"
fi

for shape in plain short long gpt2 rms; do
  for optimizer in adamw sgd; do
    [ -e "$PARITY/reference/$shape.$optimizer.txt" ] || continue # rms: adamw alone
    for W in 1 2 3 4; do
      name=$shape.$optimizer.$W
      check "$name trains" train_case "$shape.$optimizer" "$name" "$W"
      check "$name runs one step for its gradient" gradient_run "$shape" "$optimizer" "$W"
      for reference in "${references[@]}"; do
        check "$name: losses and norms of $(basename "$reference")" \
          "$compare" steps "$reference/$shape.$optimizer.txt" "$WORK/$name/metrics.jsonl"
        check "$name: gradients of step 1 of $(basename "$reference")" \
          "$compare" gradients "$reference/$shape.gradients.txt" \
          "$WORK/$name.gradient/checkpoints/step-00000001" "$(state_of "$optimizer")"
      done
    done
  done
done

# The comparison itself: a reference agrees with itself, and not with one part in 100,000 more.
as_metrics() { awk -v f="$1" '$1 == "step" { printf "{\"step\": %d, \"loss\": %.15g, \"grad_norm\": %.15g}\n", $2, $3 * f, $4 }' \
  "$PARITY/reference/plain.adamw.txt"; }
as_metrics 1 > "$WORK/same.jsonl"
as_metrics 1.00001 > "$WORK/more.jsonl"
check_status "a reference agrees with itself" 0 "$compare" steps "$PARITY/reference/plain.adamw.txt" "$WORK/same.jsonl"
check_status "one part in 100,000 is seen" 1 "$compare" steps "$PARITY/reference/plain.adamw.txt" "$WORK/more.jsonl"

# Mutants: one wrong thing each, alone in a world of one. "none" shows that the build itself passes.
mutate() { # SHAPE MUTANT: runs the case and compares; 0 only where all of it agrees
  local name=mutant.$1.$2
  sed "s/\"name\": *\"[^\"]*\"/\"name\": \"$name\"/" "$WORK/$1.adamw.1/job.json" > "$WORK/$name.json"
  FSDP_TEST_MUTANT=$2 "$TOY/fsdp_train_mutant" "$WORK/$name.json" > "$WORK/$name.log" 2>&1 || { cat "$WORK/$name.log"; return 3; }
  "$compare" steps "$PARITY/reference/$1.adamw.txt" "$WORK/$name/metrics.jsonl"
}
check_status "the sound program passes as a world of one" 0 mutate plain none
check_status "and with gpt2" 0 mutate gpt2 none
for mutant in gelu-tanh norm-eps adam-eps gradient-twice; do
  check_status "mutant $mutant fails" 1 mutate plain "$mutant"
done
check_status "and with RMSNorm" 0 mutate rms none
check_status "mutant norm-eps fails with RMSNorm" 1 mutate rms norm-eps
check_status "mutant gelu-exact fails with gpt2" 1 mutate gpt2 gelu-exact
[ "$n_failed" -eq 0 ]
