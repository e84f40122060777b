# Hangs of a job on two nodes: the rank for which the others wait is named, whichever node it is on. A rank
# that waits for another node's rank is no hang while that rank goes on.
. tests/support/shell/harness.sh
. tests/support/shell/agents.sh
. tests/support/shell/train.sh
at_exit() { kill_agents; }
cd "$WORK" || exit 1
tiny_job job.yaml
limit=$((3 * $(pace)))
port=$(port_block)

# both NAME ARGS...: an agent for each of two nodes
both() {
  local name=$1 node; shift
  port=$((port + 1))
  for node in 0 1; do
    begin "$name-$node" timeout -k 5 600 "$BIN/fsdprun" --nnodes 2 --node-rank $node \
      --rdzv-endpoint 127.0.0.1:$port --insecure job.yaml --set run.name="$name" \
      --set launch.hang_timeout_s=$limit --max-restarts 0 "$@"
  done
}

# Rank 0, on one node, waits in a collective. Rank 1, on the other node, reads its checkpoint for longer than
# a rank may be silent. Each single read is shorter.
run_job saved.log job.yaml --set run.name=slow --set train.steps=5
check_eq "what is loaded is saved: 0" 0 $?
began=$(date +%s)
export STOP_AT=slow:1:0 SLOW_MS=$((500 * limit)) LD_PRELOAD=$TOY/stop_at
both slow --nproc-per-node 1 --set train.steps=10
unset STOP_AT SLOW_MS LD_PRELOAD
check_ends "a rank that waits for another node's slow rank is no hang" "0 0" slow-0 slow-1
slow=$(($(date +%s) - began))
check "it waited for longer than the timeout ($slow s)" test $slow -gt $((limit + 4))

# Rank 3 is stopped while all train. The ranks of the other node wait for it too.
both stop --nproc-per-node 2 --set train.steps=100000 --set checkpoint.every=0
run=$WORK/runs/stop
wait_until 60 has_logged "$run" 0 3 || not_ok "the job trains" "$(tail -n 5 stop-?.out)"
kill -STOP "$(pid_of "$run" 0 3)"
check_ends "a stopped rank ends the job on both nodes" "137 137" stop-0 stop-1
check_match "its phase, the collective and those who wait are in the last line" \
  "rank 3 \(.*\) made no progress in [a-z]+ of step [0-9]+, generation 0: no progress for $limit s.*; [123] ranks? waits? for it in [a-z_]+ #[0-9]+ of world" \
  "$(tail -n 1 stop-0.out)"
check_match "an event has the verdict" \
  '"event": *"hang".*"kind": *"stuck", *"rank": *3, *"phase": *"[a-z]+".*"waiters": *[123][,}]' "$(cat "$run/events.jsonl")"
check_match "the table in print has the ranks of both nodes" "^  (0-2|0-1|[012]) +[a-z].* S " "$(grep -A 10 'rank 3 made no progress for' stop-0.out)"
check_eq "... all of them, also in errors.json" "0 1 2 3" \
  "$(sed -n 's/.*"hang": *//p' "$run/errors.json" | grep -o '"ranks": *"[0-9,-]*"' |
  sed '1d; s/.*: *"//; s/"//; s/\([0-9]*\)-\([0-9]*\)/\1,\2/; s/0,2/0,1,2/' | tr ',' '\n' | sort -n | uniq | xargs)"
check_match "... and no node is missing" '"missing_nodes": *0' "$(cat "$run/errors.json")"
check_match "errors.json has the words" '"rank": *3,.*"message": *"no progress for '$limit' s.* of world' "$(cat "$run/errors.json")"
