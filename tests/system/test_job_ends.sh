# How a job ends: complete, refused, saved on notice; what it leaves in its run directory.
. tests/support/shell/harness.sh
. tests/support/shell/train.sh
tiny_job "$WORK/job.yaml"
run() { "$BIN/fsdprun" "$@" < /dev/null; }
newest() { ls "$WORK/runs/$1/checkpoints" | grep '^step-' | tail -n 1; }

check_status "a job runs to its end: 0" 0 run "$WORK/job.yaml" --set run.name=whole
events=$WORK/runs/whole/events.jsonl
check_eq "its events: checkpoints" 4 "$(grep -c '"event": *"checkpoint"' "$events")"
check_match "its last event is complete" '"event": *"complete"' "$(tail -n 1 "$events")"
check "job.json is there" test -s "$WORK/runs/whole/job.json"
check_status "by its name alone, on PATH, from another directory: 0" 0 env -C / PATH="$BIN:$PATH" \
  fsdprun "$WORK/job.yaml" --set run.name=named --set train.steps=1 < /dev/null
check_status "resume never refuses a directory with checkpoints: 78" 78 run "$WORK/job.yaml" --set \
  run.name=whole --set checkpoint.resume=never --set train.steps=30
check_match "one line says why" "^fsdprun: .*checkpoint of step 20, and checkpoint.resume is never" "$(tail -n 1 "$WORK/err")"
check "job.json is still the old one" grep -q '"steps": *20' "$WORK/runs/whole/job.json"

# Save on notice: finish the step, save, 77; run again to go on.
for signal in TERM USR1; do
  name=notice-$signal
  env --default-signal=INT,QUIT "$BIN/fsdprun" --save-on-signal "$WORK/job.yaml" --set run.name=$name --set \
    train.steps=100000 --set checkpoint.every=50000 > "$WORK/out" 2> "$WORK/err" < /dev/null &
  launcher=$!
  wait_until 60 has_logged "$WORK/runs/$name" 0 3
  kill "-$signal" "$launcher"; wait "$launcher"
  check_eq "SIG$signal with --save-on-signal: 77" 77 $?
  step=$(newest $name); step=$((10#${step#step-}))
  check_eq "SIG$signal: the step in hand was finished and saved" \
    "$(number step < "$WORK/runs/$name/metrics.jsonl" | tail -n 1)" "$step"
  check_eq "SIG$signal: no failure, no restart" 0 "$(grep -cE '"event": *"(failure|restart)"' "$WORK/runs/$name/events.jsonl")"
  check_status "SIG$signal: run again, it goes on" 0 run "$WORK/job.yaml" --set run.name=$name --set train.steps=$((step + 2))
  check_match "SIG$signal: from that step" "\"step\": *$step[,}]" "$(grep '"event": *"resume"' "$WORK/runs/$name/events.jsonl")"
done
env --default-signal=INT,QUIT "$BIN/fsdprun" "$WORK/job.yaml" --set run.name=plain --set train.steps=100000 > "$WORK/out" 2> "$WORK/err" < /dev/null &
launcher=$!
wait_until 60 has_logged "$WORK/runs/plain" 0 3
worker=$(pid_of "$WORK/runs/plain" 0 1)
# listening PID...: the addresses at which these processes listen for TCP
listening() {
  local pid socket
  for pid in "$@"; do
    for socket in $(ls -l "/proc/$pid/fd" 2> /dev/null | sed -n 's/.*socket:\[\([0-9]*\)\]$/\1/p'); do
      awk -v inode="$socket" '$4 == "0A" && $10 == inode { print $2 }' /proc/net/tcp /proc/net/tcp6 2> /dev/null
    done
  done
}
agent=$(tr -d ' ' < "/proc/$launcher/task/$launcher/children")
check_eq "a job on one node listens at no port" "" "$(listening "$launcher" "$agent" "$worker" "$(pid_of "$WORK/runs/plain" 0 0)")"
# A job's workers are the agent's to stop: what else signals them does nothing, unless it is KILL.
for signal in TERM INT HUP USR1 USR2; do kill "-$signal" "$worker"; done
logged=$(logged_lines "$WORK/runs/plain" 0)
check "TERM, INT, HUP, USR1 and USR2 of a worker do nothing" wait_until 60 has_logged "$WORK/runs/plain" 0 $((logged + 3))
check_eq "nor has anything failed" 0 "$(grep -cE '"event": *"(exit|failure|restart)"' "$WORK/runs/plain/events.jsonl")"
kill -KILL "$worker"
check "KILL ends it, and the world starts again" wait_until 60 has_logged "$WORK/runs/plain" 1 1
kill -TERM "$launcher"; wait "$launcher"
check_eq "TERM without it: 143" 143 $?
# Every process of the job at once, as a scheduler or systemd may signal them: it saves all the same.
for signal in TERM USR1; do
  "$BIN/fsdprun" --save-on-signal "$WORK/job.yaml" --set run.name=all-$signal --set train.steps=100000 --set \
    checkpoint.every=50000 > "$WORK/out" 2> "$WORK/err" < /dev/null &
  launcher=$!
  wait_until 60 has_logged "$WORK/runs/all-$signal" 0 3
  agent=$(tr -d ' ' < "/proc/$launcher/task/$launcher/children")
  kill "-$signal" "$launcher" "$agent" "$(pid_of "$WORK/runs/all-$signal" 0 0)" "$(pid_of "$WORK/runs/all-$signal" 0 1)"
  wait "$launcher"
  check_eq "SIG$signal of every process of a job: 77, and a checkpoint" "77 1" "$? $(ls "$WORK/runs/all-$signal/checkpoints" | grep -c '^step-')"
done
