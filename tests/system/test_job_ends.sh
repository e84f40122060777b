# How a job ends: complete, refused, saved on notice, hanging; what it leaves in its run directory.
cd "$(dirname "$0")/../.." || exit 1
. tests/support/harness.sh
. tests/support/train.sh
tiny_job "$WORK/job.yaml"
run() { "$BIN/fsdprun" "$@" < /dev/null; }
newest() { ls "$WORK/runs/$1/checkpoints" | grep '^step-' | tail -n 1; }

check_status "a job runs to its end: 0" 0 run "$WORK/job.yaml" --set run.name=whole
events=$WORK/runs/whole/events.jsonl
check_eq "its events: checkpoints" 4 "$(grep -c '"event": *"checkpoint"' "$events")"
check_match "its last event is complete" '"event": *"complete"' "$(tail -n 1 "$events")"
check "job.json is there" test -s "$WORK/runs/whole/job.json"
check_status "the same again: it has its steps, 0" 0 run "$WORK/job.yaml" --set run.name=whole
check_match "and says so" "is complete: it has its 20 steps" "$(cat "$WORK/err")"
check_eq "and starts nobody" 2 "$(grep -c '"event": *"spawn"' "$events")"
check_status "by its name alone, on PATH, from another directory: 0" 0 env -C / PATH="$BIN:$PATH" \
  fsdprun "$WORK/job.yaml" --set run.name=named --set train.steps=1 < /dev/null
check_status "resume never refuses a directory with checkpoints: 78" 78 run "$WORK/job.yaml" --set run.name=whole --set checkpoint.resume=never --set train.steps=30
check_match "one line says why" "^fsdprun: .*checkpoint of step 20, and checkpoint.resume is never" "$(tail -n 1 "$WORK/err")"
check "job.json is still the old one" grep -q '"steps": *20' "$WORK/runs/whole/job.json"

# Save on notice: finish the step, save, 77; run again to go on.
for signal in TERM USR1; do
  name=notice-$signal
  env --default-signal=INT,QUIT "$BIN/fsdprun" --save-on-signal "$WORK/job.yaml" --set run.name=$name --set train.steps=100000 --set checkpoint.every=50000 > "$WORK/out" 2> "$WORK/err" < /dev/null &
  launcher=$!
  wait_until 60 has_logged "$WORK/runs/$name" 0 3
  kill "-$signal" "$launcher"; wait "$launcher"
  check_eq "SIG$signal with --save-on-signal: 77" 77 $?
  step=$(newest $name); step=$((10#${step#step-}))
  [ "$step" -ge 3 ] && [ "$step" -lt 50000 ] && ok "SIG$signal: a checkpoint of the step it stopped at" || not_ok "SIG$signal: a checkpoint of the step it stopped at" "step $step" "$(tail -n 5 "$WORK/err")"
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
  "$BIN/fsdprun" --save-on-signal "$WORK/job.yaml" --set run.name=all-$signal --set train.steps=100000 --set checkpoint.every=50000 > "$WORK/out" 2> "$WORK/err" < /dev/null &
  launcher=$!
  wait_until 60 has_logged "$WORK/runs/all-$signal" 0 3
  agent=$(tr -d ' ' < "/proc/$launcher/task/$launcher/children")
  kill "-$signal" "$launcher" "$agent" "$(pid_of "$WORK/runs/all-$signal" 0 0)" "$(pid_of "$WORK/runs/all-$signal" 0 1)"
  wait "$launcher"
  check_eq "SIG$signal of every process of a job: 77, and a checkpoint" "77 1" "$? $(ls "$WORK/runs/all-$signal/checkpoints" | grep -c '^step-')"
done

# A rank that stands still is found, named, ended, and the world restarted.
"$BIN/fsdprun" --nproc-per-node 2 --max-restarts 1 "$WORK/job.yaml" --set run.name=hang --set launch.hang_timeout_s=$((5 * $(pace))) --set train.steps=2000 --set checkpoint.every=500 > "$WORK/out" 2> "$WORK/err" < /dev/null &
launcher=$!
wait_until 60 has_logged "$WORK/runs/hang" 0 3
kill -STOP "$(pid_of "$WORK/runs/hang" 0 1)"
restarted() { grep -q '"event": *"restart"' "$WORK/runs/hang/events.jsonl"; }
wait_until 60 restarted && ok "a rank that stands still: the world is restarted" || not_ok "a rank that stands still: the world is restarted" "$(tail -n 5 "$WORK/err")"
wait_until 30 grep -q 'starting again' "$WORK/err" # the console follows the events
check_match "it is named, with its step" "rank 1 .*hang|rank 1 .*no progress" "$(grep 'starting again' "$WORK/err")"
wait_until 60 has_logged "$WORK/runs/hang" 1 1
kill -TERM "$launcher"; wait "$launcher"
check_eq "and it can be stopped: 143" 143 $?

# What our own trainer has told is not tried again.
check_status "a data file that is not there: 66" 66 run "$WORK/job.yaml" --set run.name=nodata --set "data.path=$WORK/nothing"
check_eq "no restart" 0 "$(grep -c '"event": *"restart"' "$WORK/runs/nodata/events.jsonl" 2> /dev/null || :)"

# One live job in a directory.
"$BIN/fsdprun" "$WORK/job.yaml" --set run.name=held --set train.steps=100000 > "$WORK/out" 2> "$WORK/err" < /dev/null &
launcher=$!
wait_until 60 has_logged "$WORK/runs/held" 0 1
wait_until 60 test -s "$WORK/runs/held/job.json" # written beside the start of the workers
cp "$WORK/runs/held/job.json" "$WORK/before.json"
check_status "a second live job in one directory: 78" 78 run "$WORK/job.yaml" --set run.name=held --set train.steps=5
check "it changed nothing" cmp "$WORK/before.json" "$WORK/runs/held/job.json"
kill -KILL "$launcher"; wait "$launcher" 2> /dev/null
gone() { ! pgrep -f "$WORK/job.yaml --set run.name=held" > /dev/null; }
wait_until 10 gone
check_status "after a crash the lock is free" 0 run "$WORK/job.yaml" --set run.name=held --set train.steps=1 --set checkpoint.every=0
[ "$n_failed" -eq 0 ]
