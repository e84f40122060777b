# Snapshots in memory: ranks are killed at any moment and resume from memory, without a disk; the process that
# writes checkpoints is stopped and killed. Each run ends to the bit as if nobody had touched it.
# Long
# FSDP_NIGHTLY=1: more kills.
. tests/support/shell/harness.sh
. tests/support/shell/cgroup.sh
. tests/support/shell/train.sh
W=3
KILLS=8
[ -z "${FSDP_NIGHTLY:-}" ] || KILLS=200
STEPS=$((150 * KILLS)) # a step takes about a millisecond: far more than the script needs
seed=${FSDP_TEST_SEED:-$RANDOM}
RANDOM=$seed
echo "# FSDP_TEST_SEED=$seed" >&2
launcher=
at_exit() { [ -z "$launcher" ] || kill -KILL "$launcher" 2> /dev/null; cgroup_end; }
tiny_job "$WORK/job.yaml"

last_step() { printf 'checkpoints/step-%08d' "$1"; }
# same_end TITLE CALM RUN STEPS: the figures, the final state, and nothing beside the checkpoints
same_end() {
  check_eq "$1: every figure is the undisturbed run's" "$(figures "$WORK/runs/$2")" "$(figures "$WORK/runs/$3")"
  check_eq "... and the final state, to the bit" "$(payloads "$WORK/runs/$2/$(last_step "$4")")" "$(payloads "$WORK/runs/$3/$(last_step "$4")")"
  check_eq "... and nothing unfinished is left" "" "$(find "$WORK/runs/$3/checkpoints" -mindepth 1 -name '.*' ! -name .lock)"
}
resumes() { grep -a '"event": *"resume"' "$WORK/runs/$1/events.jsonl"; }

# Nothing is on the disk before the last step, so whatever a rank resumes from is in memory.
settings=(--nproc-per-node $W --max-restarts $KILLS "$WORK/job.yaml" --set train.steps=$STEPS --set checkpoint.every=99999
  --set checkpoint.snapshot_every=1)
run_job "$WORK/calm.log" "${settings[@]}" --set run.name=calm
check_eq "a run with a snapshot after every step ends with 0" 0 $?
"$BIN/fsdprun" "${settings[@]}" --set run.name=hit > "$WORK/hit.log" 2>&1 < /dev/null &
launcher=$!
killed=0
for ((g = 0; g < KILLS; g++)); do
  lines=$((RANDOM % 30 + 2)) rank=$((RANDOM % W))
  await_logged "$WORK/runs/hit" $g $lines "$launcher" || break
  kill -KILL "$(pid_of "$WORK/runs/hit" $g $rank)" && killed=$((killed + 1))
done
wait "$launcher"
check_eq "with $KILLS ranks killed at any moment it ends with 0" 0 $?
check_eq "so many were killed" $KILLS $killed
check_eq "every generation resumed from memory" $KILLS "$(resumes hit | grep -c '"source": *"memory"')"
check_eq "none lost more than the step it was in" "" \
  "$(sed -n 's/.*"event": *"timeline".*"lost_steps": *\([0-9]*\).*/\1/p' "$WORK/runs/hit/events.jsonl" | grep -v '^[01]$')"
same_end "killed ranks" calm hit $STEPS

# With a checkpoint on the disk, memory is newer, and no process reads the checkpoint again.
settings=(--nproc-per-node 2 "$WORK/job.yaml" --set checkpoint.every=5 --set checkpoint.snapshot_every=1)
run_job "$WORK/start.log" "${settings[@]}" --set train.steps=5 --set run.name=traced
check_eq "a run with one checkpoint" 0 $?
if strace -f -o "$WORK/probe" true 2> /dev/null; then
  ASAN_OPTIONS=${ASAN_OPTIONS:-}:detect_leaks=0 strace -f -o "$WORK/trace" -e trace=openat,openat2,read,pread64 "$BIN/fsdprun" "${settings[@]}" --set run.name=traced \
    --set train.steps=400 --set checkpoint.every=99999 > "$WORK/traced.log" 2>&1 < /dev/null &
  launcher=$!
  wait_until 120 has_logged "$WORK/runs/traced" 0 20 # of the run before: five
  pid=$(pid_of "$WORK/runs/traced" 0 1)
  kill -KILL "$pid"
  wait "$launcher"
  check_eq "a traced run that lost a rank ends with 0" 0 $?
  check_eq "it began with the disk, and resumed from memory" '"disk" "memory"' \
    "$(resumes traced | sed -n 's/.*"source": *\("[a-z]*"\).*/\1/p' | tr '\n' ' ' | sed 's/ $//')"
  after=$(grep -n '+++ killed by SIGKILL' "$WORK/trace" | head -n 1 | cut -d: -f1)
  check_match "the first generation read the checkpoint" 'openat.*shard-0000' "$(head -n "$after" "$WORK/trace")"
  # retention looks at it again, after the last save
  check_eq "after the death no process opened it, nor any other step" "" \
    "$(tail -n "+$after" "$WORK/trace" | sed '/"\.step-00000400/,$d' | grep -aE 'openat2?\(.*"step-')"
else
  skip "no disk is read between a death and the next step" "strace is not there, or may not trace"
fi

# The process that writes. It is stopped with a save in it; then it, or a rank, is killed.
settings=(--nproc-per-node 2 "$WORK/job.yaml" --set train.steps=400 --set checkpoint.every=20)
run_job "$WORK/plain.log" "${settings[@]}" --set run.name=plain
check_eq "a run with many checkpoints" 0 $?
writer_of() { # LAUNCHER: its pid, in $writer
  local agent
  agent=$(pgrep -P "$1" | head -n 1)
  writer=$(pgrep -P "$agent" -x fsdp-disk)
}
begin_stopped() { # NAME: a run whose writer is stopped before its second save
  "$BIN/fsdprun" "${settings[@]}" --set run.name="$1" > "$WORK/$1.log" 2>&1 < /dev/null &
  launcher=$!
  wait_until 120 writer_of "$launcher" && kill -STOP "$writer"
}
# A rank waits with a save on its way: all ranks are in the phase in which they wait for the agent.
waits() { has_logged "$WORK/runs/$1" 0 "$2" && [ "$(logged_lines "$WORK/runs/$1" 0)" = "$(sleep 0.3; logged_lines "$WORK/runs/$1" 0)" ]; }

begin_stopped dead
check_eq "there is a process that writes" 0 $?
check "a step does not wait for the disk, only the second save does" wait_until 120 waits dead 21
kill -KILL "$writer"
wait "$launcher"
check_eq "the run whose writer was killed goes on, and ends with 0" 0 $?
check_match "it says that a save failed, and why" 'was not saved: rank [01]: the process that writes checkpoints to the disk has died' "$(cat "$WORK/dead.log")"
check_eq "... once" 1 "$(grep -c 'that writes checkpoints to the disk has died' "$WORK/dead.log")"
check_match "the next ones are saved" '"event": *"checkpoint".*"step": *400' "$(cat "$WORK/runs/dead/events.jsonl")"
same_end "a killed writer" plain dead 400

begin_stopped rank
wait_until 120 waits rank 21
kill -KILL "$(pid_of "$WORK/runs/rank" 0 1)"
wait "$launcher"
check_eq "a run that lost a rank while its slot was written ends with 0" 0 $?
check_match "it resumed from memory" '"source": *"memory"' "$(resumes rank)"
same_end "a rank killed while its slot is written" plain rank 400

# Stopped by a signal while a save is on its way: 77, and the disk has the step.
settings+=(--save-on-signal)
begin_stopped notice
wait_until 120 has_logged "$WORK/runs/notice" 0 3
kill -TERM "$launcher"
kill -CONT "$writer"
wait "$launcher"
check_eq "a run that is asked to stop ends with 77" 77 $?
step=$(figures "$WORK/runs/notice" | tail -n 1 | cut -d' ' -f1)
check "the step after which it stopped is on the disk" test -e "$WORK/runs/notice/$(last_step "$step")/manifest.json"

# Without room for snapshots, saves wait for the disk. The run's memory is limited; what it needs itself fits.
settings=(--nproc-per-node 2 "$WORK/job.yaml" --set train.steps=2 --set train.global_batch=2 --set model.dim=384 --set model.layers=8)
if cgroup_new snapshots memory; then
  limit=$CGROUP/memory.max
  [ -e "$limit" ] || limit=$CGROUP/memory.limit_in_bytes
  echo 460M > "$limit"
  # the run needs about 300 MiB, and its snapshots 340 MiB more
  (echo $BASHPID > "$CGROUP/cgroup.procs"; exec "$BIN/fsdprun" "${settings[@]}" --set run.name=narrow) > "$WORK/narrow.log" 2>&1 < /dev/null
  check_eq "a run without room for snapshots ends with 0" 0 $?
  check_eq "one line says so" 1 "$(grep -c 'lacks .* MiB of memory for snapshots' "$WORK/narrow.log")"
  check "and it saves" test -e "$WORK/runs/narrow/$(last_step 2)/manifest.json"
else
  skip "a run without room for snapshots" "no control group of ours can limit memory here"
fi
