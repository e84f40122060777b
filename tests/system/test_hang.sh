# A rank that makes no progress is found in every phase and every generation, within launch.hang_timeout_s, or a
# bound that was learned from the run.
. tests/support/shell/harness.sh
. tests/support/shell/train.sh
tiny_job "$WORK/job.yaml"
# Seconds without progress that are a hang. A machine that is slow now may take a few for what is no hang.
limit=$((5 * $(pace)))
export SLOW_MS=$((320 * limit))
# job NAME STOP_AT ARGS...: two ranks, one of which stops where it is told to
# (tests/support/fakes/preload/stop_at.c); the status in $rc
job() {
  local name=$1 stop_at=$2; shift 2
  STOP_AT=$stop_at LD_PRELOAD=$TOY/stop_at timeout -k 5 1200 "$BIN/fsdprun" "$WORK/job.yaml" --set run.name="$name" --set launch.hang_timeout_s=$limit --set train.steps=5 "$@" \
    > "$WORK/$name.out" 2>&1 < /dev/null
  echo $? > "$WORK/$name.rc"
}
# what errors.json says of the kernel's stack here
stack='"kernel":\["[A-Za-z0-9_.]+"'; grep -q . /proc/self/stack 2> /dev/null || stack='"kernel: needs root"'
# check_job NAME WORDS: it was ended, and says this last, and who waits
check_job() {
  check_eq "$1: 137" 137 "$(cat "$WORK/$1.rc")"
  check_match "$1: what the hung rank showed is in errors.json" \
    '"hang": \{"ranks":"[01]",.*"culprit":true,.*"state":"[A-Z]","wchan":"[a-z0-9_]+",.*"threads":\{"count":[1-9]' \
    "$(cat "$WORK/runs/$1/errors.json")"
  check_match "$1: ... with its stack in the kernel" "\"culprit\":true,.*$stack" "$(cat "$WORK/runs/$1/errors.json")"
  lines=$(awk '/^fsdprun: rank [01] made no progress for / { n = 1; next } n && /^  / { print ++n; next } { n = 0 }' "$WORK/$1.out" | sort -n | tail -n 1)
  check "$1: and printed, in at most 20 lines (${lines:-0})" test "${lines:-0}" -ge 3 -a "${lines:-0}" -le 20
  check_match "$1: the rank and its phase are named" "$2: no progress for $limit s(; 1 rank waits for it in [a-z_]+ #[0-9]+ of world)?; 1 other rank was stopped" "$(tail -n 1 "$WORK/$1.out")"
}
for name in load slow; do
  job $name "" # what the next ones load
  check_eq "$name, undisturbed: 0" 0 "$(cat "$WORK/$name.rc")"
done
# a run of any length, with the default limit of 600 s: its bounds are learned after 20 steps
{ timeout -k 5 550 "$BIN/fsdprun" "$WORK/job.yaml" --set run.name=learned --set train.steps=1000000 --set checkpoint.every=1000000 --max-restarts 0 > "$WORK/learned.out" 2>&1 < /dev/null
  echo $? > "$WORK/learned.rc"; } &
learns() { grep -q '"event": "hang_bounds".*"forward": [0-9.]*.*"collective": ' "$WORK/runs/learned/events.jsonl" 2> /dev/null; }
wait_until 300 learns
check "the bounds are told once they are learned" learns
kill -STOP "$(pid_of "$WORK/runs/learned" 0 1)"
job start start:1:0,start:0:1 --max-restarts 1 & # in two generations
job load load:1:0 --max-restarts 0 --set train.steps=10 &
job save save:0:0 --max-restarts 0 --set checkpoint.async=false &
began=$(date +%s)
{ job slow slow:1:0 --max-restarts 0 --set train.steps=10; date +%s > "$WORK/slow.ended"; } &
wait
check_job start "rank 0 \(.*\) made no progress in start, generation 1"
check_match "start: in the generation before, too" "rank 1 \(.*\) made no progress in start, generation 0: .*; starting again" "$(cat "$WORK/start.out")"
check_eq "a rank that stops later is found long before the limit: 137" 137 "$(cat "$WORK/learned.rc")"
check_match "by the bound that was learned" "rank 1 \(.*\) made no progress in .*: no progress for [0-9]{1,2} s" "$(tail -n 1 "$WORK/learned.out")"
check_job load "rank 1 \(.*\) made no progress in load, generation 0"
check_job save "rank 0 \(.*\) made no progress in save of step 5, generation 0"
check_eq "a load that takes longer and goes on is no hang: 0" 0 "$(cat "$WORK/slow.rc")"
slow=$(($(cat "$WORK/slow.ended") - began))
check "it did take longer ($slow s)" test "$slow" -gt $((limit + 1))
job end end:1:0 --max-restarts 0
check_eq "a rank that never ends: 137" 137 "$(cat "$WORK/end.rc")"
check_match "is named" "rank 1 \(.*\) made no progress in done of step 5, generation 0" "$(tail -n 1 "$WORK/end.out")"
