# The copy of the state into memory runs beside the next forward and backward, and ends before a shard changes.
# A slow copy: every write to a slot takes some milliseconds longer, so that it lasts longer than a step.
. tests/support/shell/harness.sh
. tests/support/shell/train.sh
at_exit() { [ -z "${long:-}" ] || kill -KILL "$long" 2> /dev/null; }
tiny_job "$WORK/job.yaml"
STEPS=4

# all_payloads RUN: of every checkpoint
all_payloads() { local step; for step in "$WORK/runs/$1"/checkpoints/step-*; do basename "$step"; payloads "$step"; done; }

# Files that take long to write: a run with one save, which goes on beside the others. A file has two writes at least.
SLOW_DISK=/shard- SLOW_MS=4000 LD_PRELOAD=$BUILD/test/slow_disk "$BIN/fsdprun" "$WORK/job.yaml" --nproc-per-node 2 \
  --set train.steps=2 --set checkpoint.every=99 --set run.name=long > "$WORK/long.log" 2>&1 < /dev/null & long=$!

for settings in "optimizer.in_backward=false" "optimizer.in_backward=true train.clip_norm=0 train.global_batch=4"; do
  options=("$WORK/job.yaml" --set train.steps=$STEPS --set checkpoint.every=1 --set checkpoint.keep=99)
  for setting in $settings; do options+=(--set "$setting"); done
  name=${settings%% *}
  run_job "$WORK/waits.log" "${options[@]}" --set run.name="waits-$name" --set checkpoint.async=false
  check_eq "$name: saves that training waits for" 0 $?
  SLOW_DISK=fsdp-snapshot SLOW_MS=2 LD_PRELOAD=$BUILD/test/slow_disk \
    run_job "$WORK/overlaps.log" "${options[@]}" --set run.name="overlaps-$name"
  check_eq "$name: saves whose copy is slower than a step" 0 $?
  check_eq "$name: every figure is the same" "$(figures "$WORK/runs/waits-$name")" "$(figures "$WORK/runs/overlaps-$name")"
  check_eq "$name: ... and every byte of every checkpoint" "$(all_payloads "waits-$name")" "$(all_payloads "overlaps-$name")"
  check_eq "$name: ... of $STEPS steps" $STEPS "$(all_payloads "overlaps-$name" | grep -c '^step-')"
done

# There is no memory for the snapshots of rank 1. It says so once, and training goes on.
SLOW_DISK=fsdp-snapshot SLOW_FULL=1 SLOW_RANK=1 LD_PRELOAD=$BUILD/test/slow_disk \
  run_job "$WORK/fails.log" "$WORK/job.yaml" --nproc-per-node 2 --set train.steps=6 --set checkpoint.every=0 \
  --set checkpoint.snapshot_every=1 --set run.name=fails
check_eq "a run in which the snapshots of rank 1 fail ends with 0" 0 $?
check_match "one line says it" 'rank 1: the snapshot of step 1 failed: .*No space left' "$(grep -a 'the snapshot of step' "$WORK/fails.log")"
check_eq "... once" 1 "$(grep -ac 'the snapshot of step' "$WORK/fails.log")"
check_match "an event says it" '"rank": *1.*"step": *1.*"reason": .*No space left' "$(grep -a '"snapshot_failed"' "$WORK/runs/fails/events.jsonl")"
check_eq "... once too" 1 "$(grep -ac '"snapshot_failed"' "$WORK/runs/fails/events.jsonl")"

# The same of a save to the disk: the coordinator's line is the only one.
SLOW_DISK=fsdp-snapshot SLOW_FULL=1 SLOW_RANK=0 LD_PRELOAD=$BUILD/test/slow_disk \
  run_job "$WORK/unsaved.log" "$WORK/job.yaml" --nproc-per-node 2 --set train.steps=5 --set checkpoint.every=2 \
  --set launch.max_restarts=0 --set run.name=unsaved
check_eq "a run whose last save fails ends with 74" 74 $?
check_match "a save that fails on the way is one line" '^fsdprun: step 2 was not saved: rank 0: .*No space left' \
  "$(grep -a 'step 2 was\|saving step 2' "$WORK/unsaved.log")"
check_eq "... and no other" "1 1" "$(grep -ac 'saving step 2\|step 2 was' "$WORK/unsaved.log") $(grep -ac 'saving step 4\|step 4 was' "$WORK/unsaved.log")"
check_eq "each failure is an event" "2 4 5" \
  "$(sed -n 's/.*"event": *"checkpoint_failed".*"step": *\([0-9]*\).*No space left.*/\1/p' "$WORK/runs/unsaved/events.jsonl" | xargs)"

wait $long
check_eq "a run whose files take long to write ends with 0" 0 $?
long=
check_match "it says how far they are" '"rank": *0, "step": *2, "files": *[12], "written_bytes": *[0-9]+, "bytes": *[1-9][0-9]+, "seconds": *[1-9][0-9]*\.' \
  "$(grep -a '"checkpoint_progress"' "$WORK/runs/long/events.jsonl" | head -n 1)"

if strace -f -o "$WORK/probe" true 2> /dev/null; then
  ASAN_OPTIONS=${ASAN_OPTIONS:-}:detect_leaks=0 strace -f -y -o "$WORK/trace" -e trace=pwrite64,execve \
    "$BIN/fsdprun" "$WORK/job.yaml" --nproc-per-node 1 --set train.steps=4 --set checkpoint.every=99 \
    --set checkpoint.snapshot_every=1 --set run.name=traced > "$WORK/traced.log" 2>&1 < /dev/null
  check_eq "a traced run ends with 0" 0 $?
  trainer=$(sed -n 's/^\([0-9]*\) .*execve("[^"]*fsdp-train".* = 0$/\1/p' "$WORK/trace" | head -n 1)
  writers=$(sed -n 's/^\([0-9]*\) .*pwrite64([0-9]*<[^>]*fsdp-snapshot.*/\1/p' "$WORK/trace" | sort -u)
  check_eq "one thread fills the slots" 1 "$(wc -w <<< "$writers")"
  check_match "... another one than that which trains" '^[0-9]+$' "$(grep -vx "${trainer:-none}" <<< "$writers")"
else
  skip "the thread that fills the slots" "strace is not there, or may not trace"
fi
exit $((n_failed > 0))
