# The world restarts: new generation, same ranks, a budget, and what is not worth another try.
source tests/support/shell/harness.sh
mark=fsdp-restart-$$
toy=$WORK/$mark
ln -s "$TOY/toy" "$toy"
at_exit() { pkill -KILL -f -- "$mark" 2>/dev/null; :; }
run() { "$FSDPRUN" "$@" < /dev/null; }

check_status "two failures, two restarts: 0" 0 run --nproc-per-node 3 --max-restarts 2 --log-dir \
  "$WORK/logs" -r 3 -- "$toy" "touch=$WORK/ranks" gen=0 "lines=3:$WORK/ranks" gen=1 "lines=6:$WORK/ranks" \
  before=2 rank=1 exit=3 before=2 hang
check_eq "every generation had every rank" "0 0 0 1 1 1 2 2 2" "$(awk '{print $1}' "$WORK/ranks" | sort -n | tr '\n' ' ' | sed 's/ $//')"
check_match "each restart is a line" "starting again \(1 of 2\)" "$(cat "$WORK/err")"
events=$(echo "$WORK"/logs/*/events.jsonl)
check_eq "events: restarts" 2 "$(grep -c '"event": *"restart"' "$events")"
check_eq "events: spawns of generation 2" 3 "$(grep '"event": *"spawn"' "$events" | grep -c '"generation": *2')"
check_eq "a log of each generation is kept" 3 "$(ls -d "$WORK"/logs/*/attempt_* | wc -l)"
check_status "the budget is spent: the last first cause" 3 run --nproc-per-node 2 --max-restarts 2 -- "$toy" rank=1 exit=3 hang
check_match "the last line is that of generation 2" "rank 1 .*generation 2" "$(tail -n 1 "$WORK/err")"
check_status "no restarts by default" 3 run -- "$toy" exit=3
check_eq "two lines: where there is more, and the cause" "2 fsdprun: more in fsdprun: rank 0 " \
  "$(wc -l < "$WORK/err") $(cut -c 1-16 "$WORK/err" | tr '\n' ' ' | sed 's/  */ /g')"
rm -f "$WORK/ranks"
check_status "what a generation left running is gone before the next begins" 0 run --nproc-per-node 2 \
  --max-restarts 1 -- "$toy" before=1 orphans=2 before=1 child before=1 rank=0 exit=1 before=1 hang \
  "say=$(printf x)"
check "and nothing is left at the end" none_alive "$mark"

# A rank that is killed from outside, in generation after generation.
"$FSDPRUN" --nproc-per-node 3 --max-restarts 4 -- "$toy" "touch=$WORK/ranks" gen=4 exit=0 hang > "$WORK/out" 2> "$WORK/err" < /dev/null &
guard=$!
n_lines() { [ "$(grep -c . "$WORK/ranks" 2>/dev/null)" -ge "$1" ]; }
for g in 1 2 3 4; do
  wait_until 30 n_lines $((g * 3)) || break
  kill -KILL "$(tail -n 3 "$WORK/ranks" | awk -v r=$((g % 3)) '$1 == r {print $2}')"
done
wait "$guard"
check_eq "four ranks killed, four restarts: 0" 0 $?
check_eq "five generations of three ranks" 15 "$(grep -c . "$WORK/ranks")"
