# A run whose store fails, with moto as the store: requests fail in turn, the server does not answer, and it is killed in
# the middle of a save and comes back empty. The run goes on, what is published is whole, and the next save succeeds.
# Nightly: store
# Long
. tests/support/shell/harness.sh
. tests/support/shell/train.sh
. tests/support/shell/moto.sh
start_moto || exit 1
tiny_job "$WORK/job.yaml"
job() { run_job "$WORK/$1.log" "$WORK/job.yaml" --set "run.name=$1" "${@:2}"; }
steps_in() { "$BIN/fsdprun" ckpt ls --json "$1" 2>&1 | tr '{' '\n' | number step | sort -n | tr '\n' ' '; }
far=s3://bucket/far
newest() { steps_in "$far" | tr ' ' '\n' | grep . | tail -n 1; }

job whole
for each in 3 5; do
  tell_moto fail $each
  job "each$each" --set "checkpoint.dir=s3://bucket/each$each" --set checkpoint.every=2 --set checkpoint.keep=0
  check_eq "one request of $each fails: the run does not" 0 $?
  tell_moto fail 0
  check_eq "... every save succeeded" "2 4 6 8 10 12 14 16 18 20 " "$(steps_in s3://bucket/each$each)"
  check "... all are sound" "$BIN/fsdprun" ckpt verify s3://bucket/each$each
  check_eq "... and every figure is that of a run with a disk" "$(figures "$WORK/runs/whole")" "$(figures "$WORK/runs/each$each")"
done

# From here on one run: all of it in one generation.
timeout -k 5 1200 "$BIN/fsdprun" "$WORK/job.yaml" --set run.name=far --set "checkpoint.dir=$far" --set train.steps=1000000 \
  --set checkpoint.every=40 --set checkpoint.keep=0 > "$WORK/far.log" 2>&1 < /dev/null & job=$!
events=$WORK/runs/far/events.jsonl
at_exit() { kill $job "$moto" 2> /dev/null; }
gone() { ! kill -0 "$1" 2> /dev/null; }
n_saved() { grep -c '"event": *"checkpoint"' "$events" 2> /dev/null; }
n_failed_saves() { grep -c '"event": *"checkpoint_failed"' "$events"; }
above() { [ "$("$2")" -gt "$1" ] || ! kill -0 $job 2> /dev/null; }
n_logged() { logged_lines "$WORK/runs/far" 0; }
saves_beyond() { wait_until 120 above "$1" n_saved && kill -0 $job; }
saves_again() { check "$1: the run goes on and saves" saves_beyond $(($(n_saved) + 1)); }
saves_again "at first"

# Not there from the Nth request of a save on, for longer than the six tries of a request: saves fail, each in a line.
failed=$(n_failed_saves)
tell_moto down 2
check "the server is gone: a save fails" wait_until 120 above "$failed" n_failed_saves
logged=$(n_logged)
check "... training goes on" wait_until 60 above "$logged" n_logged
check_match "... and one line says why" 'step [0-9]+ was not saved: .*s3://bucket/far/' "$(cat "$WORK/far.log")"
tell_moto up
saves_again "the server is back"

# For a moment only: requests are sent again.
rounds=(1 3 4 6 9); [ -z "${FSDP_NIGHTLY:-}" ] || rounds=({1..24})
failed=$(n_failed_saves)
for n in "${rounds[@]}"; do
  tell_moto down $n && tell_moto up
  saves_again "gone for a moment from request $n on"
done
check_eq "no save fails" "$failed" "$(n_failed_saves)"
check "all that was published is whole" "$BIN/fsdprun" ckpt verify "$far"

# Killed in its Nth request, and started again with nothing. So files may be lost after a rank has sent them, and before
# the checkpoint is published. What is saved from then on is whole.
for n in "${rounds[@]}"; do
  tell_moto die $n
  wait_until 120 gone "$moto" && wait "$moto" 2> /dev/null
  check_eq "killed in request $n" 137 $?
  start_moto "${AWS_ENDPOINT_URL##*:}" || exit 1
  saves_again "started again without objects, $n"
  check "... and what it saves is whole" "$BIN/fsdprun" ckpt verify "$far/step-$(printf %08d "$(newest)")"
done
kill -TERM $job; wait $job
check_eq "no rank was started a second time" 0 "$(grep -c '"event": *"spawn".*"generation": *[1-9]' "$events")"
newest=$(newest)
job next --set "checkpoint.dir=$far" --set "train.steps=$((newest + 1))"
check_eq "the next run goes on from the newest checkpoint" "0 1" "$? $(grep -c "\"event\": *\"resume\".*\"step\": *$newest," "$WORK/runs/next/events.jsonl")"
stop_moto
