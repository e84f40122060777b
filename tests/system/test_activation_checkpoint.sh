#!/usr/bin/env bash
# parallel.activation_checkpoint: the same figures to the bit, in less memory, as planned.
cd "$(dirname "$0")/../.." || exit 1
. tests/support/harness.sh
. tests/support/train.sh
tiny_job "$WORK/job.yaml"
sed -i 's/dim: 14/dim: 28, dropout: 0.2/; s/layers: 2/layers: 4/' "$WORK/job.yaml"
# What is cheap is kept here, so that every saving below is the wrappers'; parallel.recompute itself comes last.
job=("$WORK/job.yaml" --set train.steps=5 --set checkpoint.every=0 --set parallel.recompute=none)
activations() { "$BIN/fsdprun" plan --json "${job[@]}" "$@" | number activations; }
run_job "$WORK/none.log" "${job[@]}" --set run.name=none
before=$(activations)
for mode in full selective; do
  run_job "$WORK/$mode.log" "${job[@]}" --set run.name=$mode --set parallel.activation_checkpoint=$mode
  check_eq "$mode: every figure is that of a run without" "$(figures "$WORK/runs/none")" "$(figures "$WORK/runs/$mode")"
  check "$mode: fewer activations are kept" test "$(activations --set parallel.activation_checkpoint=$mode)" -lt "$before"
done
second=$(activations --set parallel.activation_checkpoint=full --set parallel.activation_checkpoint_every=2)
check "every second block: something between" test "$second" -lt "$before" -a \
  "$second" -gt "$(activations --set parallel.activation_checkpoint=full)"
run_job "$WORK/second.log" "${job[@]}" --set run.name=second --set parallel.activation_checkpoint=full --set parallel.activation_checkpoint_every=2
check_eq "every second block: the same figures" "$(figures "$WORK/runs/none")" "$(figures "$WORK/runs/second")"
run_job "$WORK/cheap.log" "${job[@]}" --set run.name=cheap --set parallel.recompute=cheap
check_eq "what is cheap made again: the same figures" "$(figures "$WORK/runs/none")" "$(figures "$WORK/runs/cheap")"
check "what is cheap made again: fewer activations are kept" test "$(activations --set parallel.recompute=cheap)" -lt "$before"
[ "$n_failed" -eq 0 ]
