# A job's checkpoints from outside: damaged ones are passed over aloud or refused, a full disk loses nothing,
# PyTorch reads them.
# Long
. tests/support/shell/harness.sh
. tests/support/shell/train.sh
tiny_job "$WORK/job.yaml"
job() { run_job "$WORK/$1.log" "$WORK/job.yaml" --set "run.name=$1" "${@:2}"; }
shard() { echo "shard-0000$1-model-00001-of-00001.safetensors"; }
# Without the file of the lock, in which each run writes who it is.
state_of() { (cd "$1" && find . -type f ! -name .lock -exec cksum {} + | sort); }
names_in() { (cd "$1" && ls -A); }

job whole --set train.steps=12
check_eq "12 steps without a fault" 0 $?
job half --set train.steps=10
check_eq "10 steps" 0 $?
check_eq "a checkpoint for every fifth step and nothing else but the lock" ".lock step-00000005 step-00000010" \
  "$(names_in "$WORK/runs/half/checkpoints" | tr '\n' ' ' | sed 's/ $//')"

# damage NAME: of step 10, in a copy
damage() {
  local newest=$1/checkpoints/step-00000010 older=$1/checkpoints/step-00000005
  case $2 in
  truncated) truncate -s -100 "$newest/$(shard 1)" ;;
  header) printf '\x01' | dd of="$newest/$(shard 2)" bs=1 seek=200 conv=notrunc status=none ;;
  flipped) # the last tensor of rank 1: sizes and headers are as they were
    local at=$(($(stat -c %s "$newest/$(shard 2)") - 2))
    printf "\\$(printf %o $(($(od -An -tu1 -j $at -N 1 "$newest/$(shard 2)") ^ 1)))" |
      dd of="$newest/$(shard 2)" bs=1 seek=$at conv=notrunc status=none ;;
  a-link) mv "$newest" "$1/elsewhere"; ln -s "$1/elsewhere" "$newest" ;;
  linked-file) mv "$newest/$(shard 1)" "$1/elsewhere"; ln -s "$1/elsewhere" "$newest/$(shard 1)" ;;
  esac
}
# Any other damage is seen too: the unit tests damage.
for kind in truncated header flipped a-link linked-file; do
  cp -r "$WORK/runs/half" "$WORK/runs/$kind"
  damage "$WORK/runs/$kind" "$kind"
  job "$kind" --set train.steps=12
  check_eq "$kind: the job goes on" 0 $?
  check_match "$kind: from the older one, and says why" 'event=checkpoint_skipped step=10 reason=' "$(cat "$WORK/$kind.log")"
  check_eq "$kind: without a restart" 0 "$(grep -c '"event": *"restart"' "$WORK/runs/$kind/events.jsonl")"
  check_match "$kind: resumed after step 5" '"event": *"resume".*"step": *5' "$(cat "$WORK/runs/$kind/events.jsonl")"
  check_eq "$kind: every figure is the faultless run's" "$(figures "$WORK/runs/whole")" "$(figures "$WORK/runs/$kind")"
done
check_eq "a link in place of a checkpoint is replaced, and what it pointed to is left alone" \
  "$(state_of "$WORK/runs/half/checkpoints/step-00000010")" "$(state_of "$WORK/runs/a-link/elsewhere")"

check_match "a flipped bit is found by the ranks that load it, and is an event of theirs" \
  '"event": *"checkpoint_skipped".*"rank": *0, *"step": *10, *"reason": *".*rank 1: .*shard-00002.*the file is damaged' \
  "$(cat "$WORK/runs/flipped/events.jsonl")"

# A rank dies while the damaged one is still the newest: each generation passes it over once, and the restart
# that is used up is the rank's.
cp -r "$WORK/runs/half" "$WORK/runs/again"
damage "$WORK/runs/again" flipped
events=$WORK/runs/again/events.jsonl
cp "$events" "$WORK/events.before"
timeout -k 5 600 "$BIN/fsdprun" "$WORK/job.yaml" --set run.name=again --set train.steps=1000000 --set checkpoint.every=0 \
  --set launch.max_restarts=1 > "$WORK/again.log" 2>&1 < /dev/null & job=$!
began() { [ "$(tail -n "+$(($(wc -l < "$WORK/events.before") + 1))" "$events" | grep -c '"event": *"first_step"')" -ge "$1" ]; }
wait_until 60 began 1 || not_ok "it trains" "$(tail -n 5 "$WORK/again.log")"
kill -KILL "$(tail -n "+$(($(wc -l < "$WORK/events.before") + 1))" "$events" | sed -n 's/.*"event": *"spawn".*"rank": *1, *"pid": *\([0-9]*\).*/\1/p')"
wait_until 60 began 2 || not_ok "it trains again" "$(tail -n 5 "$WORK/again.log")"
kill -TERM "$job"; wait "$job"
check_eq "a rank that dies costs the one restart there is, and damage none" "143 1" \
  "$? $(grep -c 'starting again' "$WORK/again.log")"
check_eq "each generation passes the damaged one over once" 2 "$(grep -c 'event=checkpoint_skipped step=10' "$WORK/again.log")"
check_match "the timeline counts from the one that was loaded" '"event": *"timeline".*"resume_step": *5,' "$(cat "$events")"

# The run has all its steps in a checkpoint that no rank will load.
cp -r "$WORK/runs/half" "$WORK/runs/last"
damage "$WORK/runs/last" flipped
job last --set train.steps=10
check_eq "a run whose last checkpoint is damaged is not complete: it trains its last steps again" 0 $?
check_match "from the older one, and says why" 'event=checkpoint_skipped step=10 reason=.*shard-00002.*damaged' "$(cat "$WORK/last.log")"
check_eq "to the same state" "$(payloads "$WORK/runs/half/checkpoints/step-00000010")" \
  "$(payloads "$WORK/runs/last/checkpoints/step-00000010")"

cp -r "$WORK/runs/half" "$WORK/runs/none"
damage "$WORK/runs/none" flipped
truncate -s 100 "$WORK/runs/none/checkpoints/step-00000005/manifest.json"
before=$(state_of "$WORK/runs/none/checkpoints")
job none --set train.steps=12
check_eq "with no usable checkpoint left the job does not begin anew" 66 $?
check_match "and says so in one line with the first file" 'none of the 2 checkpoints in .*shard-00002.*damaged' "$(cat "$WORK/none.log")"
check_eq "and touches nothing" "$before" "$(state_of "$WORK/runs/none/checkpoints")"

# A full disk: room for one checkpoint of 190 KB and a half, kept in a mount of its own.
full_disk() {
  unshare -rm bash -c '
    mkdir -p "$1" && mount -t tmpfs -o size=320k tmpfs "$1" || exit 99
    "$BIN/fsdprun" "$2" --set run.name=full --set run.dir="$WORK/runs" "${@:3}" > "$WORK/full.log" 2>&1 < /dev/null
    echo "status $?"; ls -A "$1"; du -k "$1" | tail -n 1' bash "$WORK/runs/full/checkpoints" "$WORK/job.yaml" "$@"
}
export BIN WORK
# Checkpoints on another disk, by a link; and what is exported, the optimizer's state and a resumed run with
# it.
mkdir -p "$WORK/runs/linked" "$WORK/disk"
ln -s "$WORK/disk" "$WORK/runs/linked/checkpoints"
job linked --set train.steps=10 && job linked --set train.steps=12 --set checkpoint.export=huggingface
check_eq "a run whose checkpoints are a link to another disk goes on from there" 0 $?
check_match "with what it finds there" 'resuming after step 10' "$(cat "$WORK/linked.log")"
check_eq "to the same figures" "$(figures "$WORK/runs/whole")" "$(figures "$WORK/runs/linked")"

if unshare -rm true 2> /dev/null; then
  out=$(full_disk --set train.steps=11 --set checkpoint.every=3 --set checkpoint.keep=1 --set launch.max_restarts=0)
  check_match "a disk that is full at the last step ends the job with 74" 'status 74' "$out"
  check_match "a disk that fills on the way is said and trained past" 'step 6 was not saved: .*No space left' "$(cat "$WORK/full.log")"
  check_eq "... by one line for each save" 1 "$(grep -c 'step 6[ :].*No space left' "$WORK/full.log")"
  check_match "what was saved before stands" 'step-00000003' "$out"
  check_eq "and nothing half-written is left" 0 "$(grep -c '^\.step\|^\.trash' <<< "$out")"
  check_eq "all steps were trained" 11 "$(figures "$WORK/runs/full" | wc -l)"
  # The whole run directory on a disk that is full from the start; the files are there, from a run of one
  # step.
  full_records() {
    unshare -rm bash -c '
      mkdir -p "$1" && mount -t tmpfs -o size=192k tmpfs "$1" || exit 99
      run() {
        "$BIN/fsdprun" "$2" --set run.name=records --set run.dir="$WORK/runs" --set checkpoint.every=0 "${@:3}" < /dev/null
      }
      run "$@" --set train.steps=1 > "$WORK/first.log" 2>&1 && head -c 1000000 /dev/zero > "$1/zero" 2> /dev/null
      run "$@" --set train.steps=60 > "$WORK/records.log" 2>&1; echo "status $?"
      "$BUILD/test/json_check" -l "$1/metrics.jsonl" && "$BUILD/test/json_check" -l "$1/events.jsonl" && echo "lines are whole"' \
      bash "$WORK/runs/records" "$WORK/job.yaml" 2>&1
  }
  out=$(full_records)
  check_match "a disk that takes no metrics and no events ends no training" 'status 0' "$out"
  check_eq "it is said once" 1 "$(grep -c 'writing metrics.jsonl: No space left on device; training goes on' "$WORK/records.log")"
  check_match "and counted" 'fsdp-train: [0-9]+ lines of metrics.jsonl were not written' "$(cat "$WORK/records.log")"
  check_match "all steps were trained, with the console to see it" 'step 60/60' "$(cat "$WORK/records.log")"
  check_match "no half line stays" 'lines are whole' "$out"
else
  skip "a full disk" "no user and mount namespaces here"
fi

if [ -n "${FSDP_TEST_PYTHON:-}" ]; then
  job wide --nproc-per-node 3 --set train.steps=1 --set checkpoint.every=1
  job cut --nproc-per-node 2 --set train.steps=1 --set checkpoint.every=1 \
    --set 'parallel.placement=[{parameters: ["*.w1.weight", "*.w2.weight", "*.wq.weight"], dim: 1}]'
  for step in half/checkpoints/step-00000010 wide/checkpoints/step-00000001 cut/checkpoints/step-00000001; do
    check_match "PyTorch reads what ranks saved: $step" '^[0-9]+ tensors, all equal$' \
      "$("$FSDP_TEST_PYTHON" tests/support/oracles/read_by_pytorch.py "$WORK/runs/$step" 2>&1 | tail -n 1)"
  done
else
  skip "PyTorch reads our checkpoints" "FSDP_TEST_PYTHON names no Python with PyTorch"
fi
