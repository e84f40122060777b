# A random rank is killed by SIGKILL at a random step, five times in one run: the run ends as if nobody had
# touched it, to the bit: final weights, optimizer state and every logged figure.
. tests/support/shell/harness.sh
. tests/support/shell/train.sh
W=3
STEPS=2000 # seconds: far longer than the script takes for five kills
KILLS=5
seed=${FSDP_TEST_SEED:-$RANDOM}
RANDOM=$seed
echo "# FSDP_TEST_SEED=$seed" >&2

tiny_job "$WORK/job.yaml"
settings=(--nproc-per-node $W --max-restarts $KILLS "$WORK/job.yaml" --set train.steps=$STEPS)
run_job "$WORK/calm.log" "${settings[@]}" --set run.name=calm
check_eq "the undisturbed run ends with 0" 0 $?

"$BIN/fsdprun" "${settings[@]}" --set run.name=hit > "$WORK/hit.log" 2>&1 < /dev/null &
launcher=$!
at_exit() { kill -KILL "$launcher" 2> /dev/null; }
RUN=$WORK/runs/hit
killed=0
for ((g = 0; g < KILLS; g++)); do
  lines=$((RANDOM % 8 + 1)) rank=$((RANDOM % W))
  await_logged "$RUN" $g $lines "$launcher" || break
  pid=$(pid_of "$RUN" $g $rank)
  kill -KILL "$pid" && killed=$((killed + 1))
  echo "# generation $g: rank $rank (pid $pid) after $lines logged steps" >&2
done
wait "$launcher"
check_eq "the run that lost five ranks ends with 0" 0 $?
check_eq "five ranks were killed" $KILLS $killed
check_eq "each kill made a new generation" $KILLS "$(grep -c '"event": *"restart"' "$RUN/events.jsonl")"
check_eq "every logged figure is the undisturbed run's" "$(figures "$WORK/runs/calm")" "$(figures "$RUN")"
check_eq "every step was logged" $STEPS "$(figures "$RUN" | wc -l)"
last=checkpoints/step-$(printf %08d $STEPS)
check_eq "final weights and optimizer state are bit-identical" "$(payloads "$WORK/runs/calm/$last")" "$(payloads "$RUN/$last")"
check_match "it says where it went on" '"event": *"resume"' "$(cat "$RUN/events.jsonl")"
