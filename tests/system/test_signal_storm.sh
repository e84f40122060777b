# Signals that arrive at any moment of the end, many of them, change nothing about how the run ends.
. tests/support/shell/harness.sh
cd "$WORK" || exit 1
ln -s "$TOY/toy" toy # by this name its processes are known
bad=""
for round in $(seq 40); do
  rm -f started
  "$BIN/fsdprun" --nproc-per-node 2 -- "$WORK/toy" touch=started wait=never > out 2>&1 < /dev/null &
  pid=$!
  wait_until 20 test -s started
  # To the guard and to the agent inside it, as a scheduler that signals every process of a job would.
  agent=$(pgrep -P "$pid")
  while kill -TERM "$pid" $agent 2> /dev/null; do :; done
  wait "$pid"; status=$?
  [ "$status" = 143 ] || bad="$bad round $round: $status ($(tail -n 1 out));"
done
check_eq "a storm of TERM ends with 143, forty times" "" "$bad"
check "and leaves nothing" wait_until 5 none_alive "$WORK/toy"
