# A loss that is no number is tried once more: the same at the same step is the job's own and ends it; a step
# that then passes is told as a fault of the hardware.
. tests/support/shell/harness.sh
. tests/support/shell/train.sh
tiny_job "$WORK/job.yaml"
count() { grep -c "\"event\": *\"$1\"" "$WORK/runs/$2/events.jsonl"; }

run_job "$WORK/own.log" "$WORK/job.yaml" --set run.name=own --set optimizer.lr=1e6
check_eq "a job that diverges at the same step again ends: 1" 1 $?
check_eq "after one restart of the three it may have" 1 "$(count restart own)"
check_match "it says so" \
  "^fsdprun: rank 0 \(.*\) exited with status 1 as training diverged in step 3, generation 1: it did so at this step in generation 0 too: the job is the cause, not the hardware" \
  "$(tail -n 1 "$WORK/own.log")"
check_eq "and names one step" "step 3" "$(grep -vE 'step [0-9]+/' "$WORK/own.log" | grep -oE 'step [0-9]+' | sort -u)"
check_eq "nothing is suspected" 0 "$(count suspect_hardware own)"

run_job "$WORK/calm.log" "$WORK/job.yaml" --set run.name=calm
mkdir "$WORK/bin" && cp "$BIN/fsdprun" "$WORK/bin/" && cp "$TOY/fsdp_train_mutant" "$WORK/bin/fsdp-train"
FSDP_TEST_MUTANT=once-nan "$WORK/bin/fsdprun" "$WORK/job.yaml" --set run.name=once > "$WORK/once.log" 2>&1 < /dev/null
check_eq "a fault that passes is trained past: 0" 0 $?
check_eq "after one restart" 1 "$(count restart once)"
check_match "the rank whose part of the loss was wrong is named, though all ranks stop" \
  "rank 1 \(.*\) exited with status 1 as training diverged in step 7, generation 0; .*starting again" \
  "$(cat "$WORK/once.log")"
check_match "one line says that its hardware is suspect" \
  "^fsdprun: step 7 diverged in generation 0 and passed in generation 1: the hardware of $(hostname), where rank 1 ran, may be faulty" \
  "$(grep 'may be faulty' "$WORK/once.log")"
check_eq "once" 1 "$(grep -c 'may be faulty' "$WORK/once.log")"
check_match "and an event" \
  '"event": *"suspect_hardware", *"generation": *1, *"step": *7, *"diverged_in": *0, *"rank": *1' \
  "$(cat "$WORK/runs/once/events.jsonl")"
check_eq "the figures are those of an undisturbed run" "$(figures "$WORK/runs/calm")" "$(figures "$WORK/runs/once")"

FSDP_TEST_MUTANT=nan-again "$WORK/bin/fsdprun" "$WORK/job.yaml" --set run.name=again --set checkpoint.every=0 > "$WORK/again.log" 2>&1 < /dev/null
check_eq "a step that has passed is the hardware's fault when it diverges again, though a rank died meanwhile: 0" 0 $?
check_eq "each time it passes this is said" "in generation 0 and passed in generation 1 in generation 2 and passed in generation 3" \
  "$(grep -o 'in generation . and passed in generation .' "$WORK/again.log" | tr '\n' ' ' | sed 's/ $//')"

# A gradient of one rank's: the loss is sound, and the element is in the shard of the other rank alone.
FSDP_TEST_MUTANT=once-nan-gradient "$WORK/bin/fsdprun" "$WORK/job.yaml" --set run.name=element > "$WORK/element.log" 2>&1 < /dev/null
check_eq "a gradient that is not finite is trained past: 0" 0 $?
check_match "all ranks end with its parameter's name" \
  "step 7: training diverged: the loss is [0-9.]*, its gradient's norm nan: the gradient of \"tok_embeddings.weight\" is not finite;" \
  "$(cat "$WORK/element.log")"
check_eq "its figures are those of an undisturbed run" "$(figures "$WORK/runs/calm")" "$(figures "$WORK/runs/element")"

# With the optimizer in backward groups are updated before the whole gradient is there.
early() {
  FSDP_TEST_MUTANT=$1 "$WORK/bin/fsdprun" "$WORK/job.yaml" --set run.name="$2" --set train.clip_norm=0 --set optimizer.in_backward=true > "$WORK/$2.log" 2>&1 < /dev/null
}
early none early-calm
early once-nan early-loss
check_eq "optimizer.in_backward: a loss that is not finite is trained past: 0" 0 $?
check_match "no group was updated with it" \
  "step 7: training diverged: the loss is nan, its gradient's norm nan: the loss is not finite: backward, which updates parameters, was not run;" \
  "$(cat "$WORK/early-loss.log")"
check_match "the rank whose part was wrong is named" \
  "rank 1 \(.*\) exited with status 1 as training diverged in step 7, generation 0" \
  "$(cat "$WORK/early-loss.log")"
check_eq "its figures are those of an undisturbed run of its kind" "$(figures "$WORK/runs/early-calm")" "$(figures "$WORK/runs/early-loss")"
early once-nan-gradient early-element
check_eq "optimizer.in_backward: a gradient that is not finite is trained past: 0" 0 $?
check_match "the groups updated before it are named" \
  "step 7: training diverged: the loss is [0-9.]*, its gradient's norm nan: .*the gradient of \"tok_embeddings.weight\" is not finite; updated in this step, and not undone: .*\"layers.1\", \"layers.0\"" \
  "$(cat "$WORK/early-element.log")"
check_eq "what they were updated to is in no checkpoint: the figures are those of an undisturbed run" \
  "$(figures "$WORK/runs/early-calm")" "$(figures "$WORK/runs/early-element")"

# A job that dies in the same way at the same step: the third time ends it, whatever restarts are left.
ASAN_OPTIONS=${ASAN_OPTIONS:-}:handle_segv=0 FSDP_TEST_MUTANT=crash "$WORK/bin/fsdprun" "$WORK/job.yaml" \
  --set run.name=crash --set checkpoint.every=0 --max-restarts 100 > "$WORK/crash.log" 2>&1 < /dev/null
check_eq "a job that crashes at the same step each time ends with that crash" 139 $?
check_eq "after two restarts of the hundred it may have" 2 "$(count restart crash)"
check_match "it says so" \
  "^fsdprun: rank 1 \(.*\) was killed by SIGSEGV in forward of step 6, generation 2: failed 3 times at step 6 in forward by SIGSEGV: the job is the cause" \
  "$(tail -n 1 "$WORK/crash.log")"
check_match "so does errors.json" '"message": *"failed 3 times at step 6 in forward by SIGSEGV: the job is the cause' "$(cat "$WORK/runs/crash/errors.json")"
