# An FSDP2 program that saves by DCP every step loses a rank to SIGKILL at some point of step 5, and goes on
# by itself. This happens FSDP_TEST_RECOVERIES times (10); the losses are those of an undisturbed run. Each
# recovery is compared with how long the same program takes when it is started by hand: from nothing, and from
# that checkpoint, in turns.
# FSDP_TEST_RECOVERY_LOG keeps a line a run.
# Limit: 72000 s, for a hundred of them; ten take a minute where nothing else runs.
# Nightly: torch
# Alone
source tests/support/shell/harness.sh
source tests/conformance/torch.sh
n_runs=${FSDP_TEST_RECOVERIES:-10}
log=${FSDP_TEST_RECOVERY_LOG:-$WORK/recoveries}
times=$WORK/run/times
: > "$log"

# start STEPS PLACE RANK: launches it in $WORK/run; what happened when is in $times
start() {
  echo "start $(date +%s%N)" >> "$times"
  launched "$FSDPRUN" --nproc-per-node 2 --max-restarts 1 --log-dir "$WORK/logs" "$PROGRAMS/recover.py" "$WORK/run" "$@"
}
# between FROM TO N: seconds from the last FROM before the Nth TO to that TO
between() {
  awk -v from="$1" -v to="$2" -v n="$3" '$1 == from {t = $2} $1 == to && ++seen == n {printf "%.3f", ($2 - t) / 1e9}' "$times"
}
# Seconds from the kill until the last process of that generation was gone, as the agent saw it.
teardown() {
  awk '/"event": "exit", "generation": 0,/ {gone = substr($2, 1, length($2) - 1)} $1 == "killed" {killed = $2}
    END {printf "%.3f", gone - killed / 1e9}' "$WORK"/logs/*/events.jsonl "$times"
}
# A step done twice (its save was not complete) must have had the same loss twice.
losses() { sort -n -u "$WORK/run/losses"; }
column() {
  awk -v c="$1" '{for (i = 1; i < NF; i++) if ($i == c && $(i + 1) ~ /^[0-9.]+$/) print $(i + 1)}' "$log" | sort -n
}
median() { awk '{v[NR] = $1} END {printf "%.3f", (v[int((NR + 1) / 2)] + v[int((NR + 2) / 2)]) / 2}'; }
# By how much the median of a sample may exceed the median of another sample of the same thing, of the size
# and width read here. No more than one of 700 cases exceeds it. It is three standard errors, 1.2533 sigma
# sqrt(2 / n), with sigma = quartile distance / 1.349.
noise() {
  awk '{v[NR] = $1} END {wide = v[int((3 * NR + 3) / 4)] - v[int((NR + 3) / 4)]; printf "%.3f", 3 * 1.2533 * sqrt(2 / NR) * wide / 1.349}'
}

empty_dir run > /dev/null
start 8 never 0
check_eq "undisturbed, it trains to its end" 0 $? || why
losses > "$WORK/want"
check_eq "undisturbed, it does eight steps" 8 "$(wc -l < "$WORK/want")"
recovered=0
for ((i = 0; i < n_runs; i++)); do
  places=(forward backward save saved)
  place=${places[i % 4]} rank=$((i / 4 % 2))
  empty_dir run > /dev/null; empty_dir logs > /dev/null
  start 8 "$place" "$rank"
  status=$?
  gone=$(teardown)
  if [ "$status" = 0 ] && grep -q '^killed' "$times" && grep -q '^ended 1 from' "$times" && [ "$(losses)" = "$(cat "$WORK/want")" ]; then
    recovered=$((recovered + 1)) verdict=recovered
    # Ten are enough to compare with; a hundred would only take longer.
    if [ "$i" -lt 10 ]; then start 9 never 0 || not_ok "it can be started by hand on what it saved" "exit $?"; fi
  else
    verdict="LOST(exit $status)"
    cp "$WORK/err" "$log.$i"
    echo "# run $i, rank $rank killed at $place: exit $status"; tail -n 20 "$WORK/err" | sed 's/^/#   /'
  fi
  echo "$i $place $rank $verdict fresh $(between start step 1) recovery $(between killed step 2)" \
    "gap $(between killed began 2) teardown $gone by_hand $(between start step 3) -" >> "$log"
done
check_eq "it recovers every time" "$n_runs of $n_runs" "$recovered of $n_runs"
head -n 10 "$log" > "$WORK/pairs" # those with which a start by hand is compared
log=$WORK/pairs
for what in fresh recovery by_hand gap teardown; do declare "$what=$(column $what | median)"; done
noise=$(column by_hand | noise)
echo "# medians of $(wc -l < "$log") in turns: start to first step done $fresh s, started by hand on the checkpoint $by_hand s (noise $noise);" \
  "kill to next step done $recovery s (slowest $(column recovery | tail -n 1) s), of which $teardown s until the kernel has taken" \
  "down both ranks, $gap s until a new interpreter runs"
# The same work, but for one thing: the killed rank's memory is unmapped before anybody hears of its death,
# and the other's after it is told. They have to be gone: until then they hold ports, locks and a device's
# memory. Nothing else may cost time.
check "a recovery takes no longer than a start-up" awk -v a="$recovery" -v b="$by_hand" -v t="$teardown" -v n="$noise" \
  'BEGIN { exit !(a > 0 && b > 0 && t > 0 && a <= b + t + n) }'
