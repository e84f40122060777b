# Saved at four ranks, gone on with at any number: the same run. Same number: the same bits.
. tests/support/shell/harness.sh
. tests/support/shell/train.sh
tiny_job "$WORK/job.yaml"
job() {
  run_job "$WORK/$1.log" --nproc-per-node "$2" "$WORK/job.yaml" --set "run.name=$1" --set "train.steps=$3" "${@:4}"
}

job whole 4 20
check_eq "four ranks train 20 steps" 0 $?
job half 4 10
check_eq "four ranks train 10 steps" 0 $?
for W in 4 2 3 1; do
  cp -r "$WORK/runs/half" "$WORK/runs/on$W"
  job on$W $W 20
  check_eq "$W ranks go on from four ranks' step 10" 0 $?
  check_match "$W ranks: events name the step" '"event": *"resume".*"step": *10' "$(cat "$WORK/runs/on$W/events.jsonl")"
  check_match "$W ranks: and what coming so far took" \
    '"event": *"resume".*"context_ms": [0-9.]+, "collectives_ms": [0-9.]+, "load_ms": [0-9.]+[,}]' \
    "$(cat "$WORK/runs/on$W/events.jsonl")"
  check "$W ranks: losses and norms are the uninterrupted run's to 5e-6" \
    close_figures "$WORK/runs/whole" "$WORK/runs/on$W" 11 5e-6
done
check_eq "at the same number of ranks every figure is bit-identical" \
  "$(figures "$WORK/runs/whole")" "$(figures "$WORK/runs/on4")"
check_eq "and so are the final weights" "$(payloads "$WORK/runs/whole/checkpoints/step-00000020")" \
  "$(payloads "$WORK/runs/on4/checkpoints/step-00000020")"

check_match "another number of ranks with train.global_batch: one line says what it costs" \
  'saved by 4 ranks, going on with 3: equal to rounding, not to the bit' "$(cat "$WORK/on3.log")"
check_eq "and no line that the batch has changed" 0 "$(grep -c 'sequences of a step' "$WORK/on3.log")"

# Equal bits are promised where every rank has the machine that it had, not rank 0 alone. Here rank 1 computes
# with other instructions for one run.
if grep -q avx2 /proc/cpuinfo; then
  base_instructions "$WORK/mixed" 1
  mixed() { BIN=$WORK/mixed job "$@"; }
  mixed mixed 2 5
  check_eq "two ranks train, one with the base instructions" 0 $?
  mixed mixed 2 10
  check_eq "and go on so" 0 $?
  check_eq "which is the same for both" 0 "$(grep -c 'equal to rounding' "$WORK/mixed.log")"
  job mixed 2 15
  check_eq "then both go on with the same" 0 $?
  check_match "and one line says that rank 1 is another" \
    'rank 1: saved with cpu .*, 1 thread, going on with cpu .*, 1 thread: equal to rounding, not to the bit' "$(cat "$WORK/mixed.log")"
  check_eq "once" 1 "$(grep -c 'equal to rounding' "$WORK/mixed.log")"

  # The same from memory: the rank is killed, and comes back with other instructions.
  printf '#!/bin/sh\n[ "$RANK" != 1 ] || { mkdir "%s/once" 2> /dev/null || export FSDP_ISA=base; echo $$ > "%s/pid"; }\nexec "%s" "$@"\n' \
    "$WORK" "$WORK" "$BIN/fsdp-train" > "$WORK/mixed/fsdp-train"
  "$WORK/mixed/fsdprun" --nproc-per-node 2 "$WORK/job.yaml" --set run.name=turned --set train.steps=1000000 --set checkpoint.every=0 \
    --set checkpoint.snapshot_every=1 --max-restarts 1 --standby 0 > "$WORK/turned.log" 2>&1 < /dev/null & run=$!
  await_logged "$WORK/runs/turned" 0 3 $run
  kill -KILL "$(cat "$WORK/pid")"
  check "a rank comes back with other instructions and goes on from memory: one line says so" \
    wait_until 60 grep -q 'rank 1: saved with cpu .*: equal to rounding, not to the bit' "$WORK/turned.log"
  check_match "... from memory" '"event": *"resume".*"source": *"memory"' "$(cat "$WORK/runs/turned/events.jsonl")"
  kill -TERM $run; wait $run
else
  skip "a rank with other instructions" "this CPU has the base set only"
fi

# With train.batch alone, three ranks and two take different samples a step. That is said, not passed off as
# rounding.
batch() { job batch "$1" "$2" --set train.global_batch=null --set train.batch=4; }
batch 3 2
check_eq "three ranks of four sequences train" 0 $?
batch 2 4
check_eq "two ranks go on" 0 $?
check_match "and one line says what has changed, and what would keep it" \
  'saved by 3 ranks, going on with 2: the sequences of a step went from 12 to 8, because train.batch .*train.global_batch keeps' \
  "$(cat "$WORK/batch.log")"
check_eq "which is not called rounding" 0 "$(grep -c 'equal to rounding' "$WORK/batch.log")"
check_eq "nor is it: the losses differ" 1 "$(close_figures "$WORK/runs/whole" "$WORK/runs/batch" 4 1e-3 > /dev/null; echo $?)"

# Dropout is keyed by global sample and element: the same masks at any number of ranks, resumed or not.
for W in 1 3; do
  job dropout$W $W 10 --set model.dropout=0.2
  check_eq "$W ranks train with dropout" 0 $?
done
check "dropout is the same at 1 and 3 ranks" close_figures "$WORK/runs/dropout1" "$WORK/runs/dropout3" 1 5e-6
check_eq "and makes a difference" 1 "$(close_figures "$WORK/runs/dropout1" "$WORK/runs/half" 1 1e-4 > /dev/null; echo $?)"
job dropout2 2 5 --set model.dropout=0.2
job dropout2 3 10 --set model.dropout=0.2
check "and goes on after a change of ranks" close_figures "$WORK/runs/dropout1" "$WORK/runs/dropout2" 1 5e-6

# Slices of 1 / 4 do not fit other numbers of ranks. A run that goes on takes what fits; a job that begins is
# refused.
slices=(--set parallel.reshard_after_forward=4 --set 'parallel.groups=[{modules: layers.0, reshard_after_forward: 2}, {modules: layers.1}]')
job slices 4 10 "${slices[@]}"
check_eq "four ranks train with slices" 0 $?
for W in 3 2 1; do
  cp -r "$WORK/runs/slices" "$WORK/runs/slices$W"
  job slices$W $W 20 "${slices[@]}"
  check_eq "$W ranks go on with what fits of the slices" 0 $?
  check "$W ranks: and have the same figures" close_figures "$WORK/runs/whole" "$WORK/runs/slices$W" 11 5e-6
  check_eq "$W ranks: which one line says" 1 "$(grep -c "parallel.reshard_after_forward: .* do not divide the $W ranks" "$WORK/slices$W.log")"
done
check_status "one process without an agent goes on" 0 "$BIN/fsdp-train" "$WORK/runs/slices/job.json"
check_status "and text is written with it" 0 "$BIN/fsdp-train" --sample "$WORK/runs/slices" --tokens 4
job fresh 3 10 "${slices[@]}"
check_eq "three ranks that begin with slices of 1 / 4 are refused" 78 $?
check_match "in words" 'resharded to [24] ranks after forward, which do not divide 3' "$(cat "$WORK/fresh.log")"

# What must not be gone on with.
job on4 4 20
check_eq "a run that has its steps ends with 0" 0 $?
check_match "and says so" "is complete" "$(cat "$WORK/on4.log")"
check_eq "and starts nobody" 8 "$(grep -c '"event": *"spawn"' "$WORK/runs/on4/events.jsonl")"
check_eq "and logs no step again" 20 "$(figures "$WORK/runs/on4" | wc -l)"
before=$(payloads "$WORK/runs/half/checkpoints/step-00000010")
job half 4 20 --set model.dim=16
check_eq "another model's checkpoint is refused" 66 $?
check_match "with the first tensor that differs" 'tok_embeddings\.weight' "$(cat "$WORK/half.log")"
check_eq "nothing that was saved is lost" "$before" "$(payloads "$WORK/runs/half/checkpoints/step-00000010")"
