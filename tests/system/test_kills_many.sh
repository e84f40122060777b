# Ranks, the process that writes checkpoints, and the agent are killed at random instants of jobs that copy after
# every step and save after every third: each job ends to the bit as if nobody had touched it, and leaves nothing.
# FSDP_TEST_KILLS=N kills (60; FSDP_NIGHTLY=1: 2,000); FSDP_TEST_SEED.
# Nightly: faults
. tests/support/shell/harness.sh
. tests/support/shell/train.sh
W=3
STEPS=200
KILLS=${FSDP_TEST_KILLS:-60}
[ -z "${FSDP_NIGHTLY:-}" ] || KILLS=${FSDP_TEST_KILLS:-2000}
seed=${FSDP_TEST_SEED:-$RANDOM}
RANDOM=$seed
echo "# FSDP_TEST_SEED=$seed" >&2
launcher=
at_exit() { [ -z "$launcher" ] || kill -KILL "$launcher" 2> /dev/null; }
tiny_job "$WORK/job.yaml"
settings=(--nproc-per-node $W --max-restarts 100000 "$WORK/job.yaml" --set train.steps=$STEPS --set checkpoint.every=3
  --set checkpoint.keep=2 --set checkpoint.snapshot_every=1)
last=$(printf 'checkpoints/step-%08d' $STEPS)
run_job "$WORK/calm.log" "${settings[@]}" --set run.name=calm
check_eq "the undisturbed run ends with 0" 0 $?
calm=$(figures "$WORK/runs/calm"; payloads "$WORK/runs/calm/$last")

RUN=$WORK/runs/hit
lines() { cat "$RUN/metrics.jsonl" 2> /dev/null | wc -l; }
begin() { "$BIN/fsdprun" "${settings[@]}" --set run.name=hit >> "$WORK/hit.log" 2>&1 < /dev/null & launcher=$!; }
over_or_logged() { ! kill -0 "$launcher" 2> /dev/null || [ "$(lines)" -ge "$1" ]; }
# victim_of KIND: its pid
victim_of() {
  local agent
  agent=$(pgrep -P "$launcher" | head -n 1)
  case $1 in
  agent) echo "$agent" ;;
  writer) [ -z "$agent" ] || pgrep -P "$agent" -x fsdp-disk ;;
  rank) [ -z "$agent" ] || pgrep -P "$agent" -x fsdp-train | shuf -n 1 --random-source=<(yes "$RANDOM") ;;
  esac
}

declare -A killed=([rank]=0 [writer]=0 [agent]=0)
total=0 rounds=0 wrong=
while [ $total -lt "$KILLS" ] && [ -z "$wrong" ]; do
  rm -rf "$RUN"; rounds=$((rounds + 1))
  begin
  while kill -0 "$launcher" 2> /dev/null && [ $total -lt "$KILLS" ]; do
    wait_until 120 over_or_logged $(($(lines) + RANDOM % 10 + 1)) || { wrong="round $rounds: no step for two minutes"; break; }
    read -rt "0.0$((RANDOM % 90 + 10))" <> <(:) # an instant that no step decides
    case $((RANDOM % 10)) in [0-6]) kind=rank ;; [78]) kind=writer ;; *) kind=agent ;; esac
    victim=$(victim_of $kind)
    [ -n "$victim" ] && kill -KILL "$victim" 2> /dev/null || continue
    killed[$kind]=$((killed[$kind] + 1)) total=$((total + 1))
    [ $kind = agent ] || continue
    wait "$launcher"
    begin # it goes on from the disk
  done
  [ -z "$wrong" ] || break
  wait "$launcher"; status=$?
  [ $status = 0 ] || wrong="round $rounds ended with $status: $(tail -n 2 "$WORK/hit.log")"
  [ "$calm" = "$(figures "$RUN"; payloads "$RUN/$last")" ] || wrong="$wrong; round $rounds: other figures or another state"
  left=$(find "$RUN/checkpoints" -mindepth 1 -name '.*' ! -name .lock; pgrep -f "[r]un.name=hit")
  [ -z "$left" ] || wrong="$wrong; round $rounds left $left"
done
launcher=
echo "# killed in $rounds runs: ${killed[rank]} ranks, ${killed[writer]} writers, ${killed[agent]} agents" >&2
check_eq "each run ends with 0, with the figures and the state of the undisturbed one, and leaves nothing" "" "$wrong"
check "so many were killed" test $total -ge "$KILLS"
check "of every kind" test "${killed[rank]}" -gt 0 -a "${killed[writer]}" -gt 0 -a "${killed[agent]}" -gt 0
exit $((n_failed > 0))
