# A job of ours on 1:2 nodes: it grows by a node after a save, with no step repeated; shrinks when the node is
# killed; and its losses are those of a run that nobody disturbed.
. tests/support/shell/harness.sh
. tests/support/shell/agents.sh
. tests/support/shell/train.sh
at_exit() { kill_agents; }
tiny_job "$WORK/job.yaml"
port=$(port_block)
cd "$WORK" || exit 1

start() { # NAME OPTIONS...
  local name=$1; shift
  begin "$name" timeout -k 5 2000 "$BIN/fsdprun" --nnodes 1:2 --rdzv-backend c10d \
    --rdzv-endpoint 127.0.0.1:$port --insecure --nproc-per-node 1 --rdzv-conf last_call_timeout=1 "$WORK/job.yaml" --set train.steps=100000 \
    --set checkpoint.every=100000 "$@"
}
RUN=$WORK/runs/tiny
start a
wait_until 90 has_logged "$RUN" 0 3 || not_ok "a job of 1:2 trains on one node" "$(cat a.out)"
start b
check "a second node is taken in" wait_until 90 has_logged "$RUN" 1 3
saved=$(grep '"event": *"checkpoint"' "$RUN/events.jsonl" | number step | tail -n 1)
check_eq "from the step that was saved for it" "$saved" "$(grep '"event": *"resume"' "$RUN/events.jsonl" | number step | head -n 1)"
check_eq "no step was done twice" "" "$(number step < "$RUN/metrics.jsonl" | sort | uniq -d)"
signal b KILL
check "it is killed, and the first goes on alone" wait_until 90 has_logged "$RUN" 2 3
signal a TERM
check_ends "until it is stopped, which is its status" 143 a
check_eq "three generations, and no restart was counted" "2 0" \
  "$(grep -c '"event": *"membership"' "$RUN/events.jsonl") $(grep -c '"event": *"restart"' "$RUN/events.jsonl")"

last=$(number step < "$RUN/metrics.jsonl" | sort -n | tail -n 1)
run_job calm.out --nproc-per-node 1 "$WORK/job.yaml" --set run.name=calm --set train.steps="$last" --set checkpoint.every=0
check_eq "a run on one node as far as that ($last steps)" 0 $?
check "the losses are the same, but for the order of sums" close_figures "$WORK/runs/calm" "$RUN" 1 1e-3
check_eq "and no line says that a step has changed" 0 "$(grep -c 'sequences of a step went' a.out)"
