# The run directory is removed, emptied or renamed while a run goes on.
. tests/support/shell/harness.sh
. tests/support/shell/train.sh
tiny_job "$WORK/job.yaml"
RUN=$WORK/runs/gone
# begin OPTIONS...: a job in the background, which has begun to train
begin() {
  rm -rf "$WORK/runs"
  timeout -k 5 300 "$BIN/fsdprun" "$WORK/job.yaml" --set run.name=gone "$@" > "$WORK/log" 2>&1 < /dev/null & job=$!
  wait_until 60 grep -qs '"step": *3,' "$RUN/metrics.jsonl" || not_ok "the job trains" "$(cat "$WORK/log")"
}
# ends WHAT: it ends with 74, and its last line names the directory
ends() {
  wait "$job"
  check_eq "$1: the job ends with 74" 74 $?
  check_match "$1: the last line names the directory" \
    "^fsdprun: the run directory $RUN is gone: it was removed or renamed while the job ran" "$(tail -n 1 "$WORK/log")"
  check_eq "$1: nothing is tried again" 0 "$(grep -c 'starting again' "$WORK/log")"
  check_eq "$1: no process is left" "" "$(pgrep -f -- "$WORK/job.yaml")"
}

begin --set train.steps=1000000 --set checkpoint.every=0
rm -rf "$RUN"
ends "removed, between saves"
begin --set train.steps=1000000 --set checkpoint.every=5
rm -rf "$RUN"
ends "removed, before a save"
begin --set train.steps=1000000 --set checkpoint.every=0
find "$RUN" -mindepth 1 -delete
ends "emptied"
begin --set train.steps=1000000 --set checkpoint.every=0
mv "$RUN" "$WORK/elsewhere"
ends "renamed"
check_match "what it had written is in the renamed one" '"step": *3,' "$(cat "$WORK/elsewhere/metrics.jsonl")"

begin --set train.steps=1000000 --set checkpoint.every=0
rank_1=$(sed -n 's/.*"event": *"spawn".*"rank": *1, *"pid": *\([0-9]*\).*/\1/p' "$RUN/events.jsonl")
rm -rf "$RUN"
kill -KILL "$rank_1"
wait "$job"
check_eq "removed, and a rank dies: the job ends with 74" 74 $?
check_match "and it does not train from the beginning again" "the run directory $RUN is gone" "$(tail -n 1 "$WORK/log")"
check_eq "not one step" 1 "$(grep -c 'step 1/' "$WORK/log")"

# A program may not need its directory: it goes on, and is told.
timeout -k 5 300 "$BIN/fsdprun" --run-dir "$WORK/program" --nproc-per-node 1 -- sh -c \
  'touch "$0/began"; until [ -e "$0/go" ]; do sleep 0.05; done; exit 3' "$WORK" > "$WORK/log" 2>&1 < /dev/null & job=$!
wait_until 60 test -e "$WORK/began"
rm -rf "$WORK/program"
check "a program without its directory is told" wait_until 60 grep -q "the run directory $WORK/program is gone" "$WORK/log"
: > "$WORK/go"
wait "$job"
check_eq "and goes on to its own end" 3 $?
