# PyTorch programs over several agents, all on this host: the store of the one with the first seat serves the
# workers of all, and losses are those of one agent with as many workers.
# Nightly: torch
source tests/support/shell/harness.sh
source tests/conformance/torch.sh

port=$(port_block)
# world TITLE "WORKERS ..." PROGRAM ARGUMENTS...: an agent for each number; output of agent I in $WORK/out.I
world() {
  local title=$1 i=0 pids=() statuses= each numbers; read -ra numbers <<< "$2"; shift 2
  until port=$((port + 1)); ! ss -Hltn | grep -q ":$port "; do :; done
  for each in "${numbers[@]}"; do
    timeout -k 5 3000 "$FSDPRUN" --insecure --nnodes ${#numbers[@]} --rdzv-backend c10d --rdzv-id pytorch --rdzv-endpoint "127.0.0.1:$port" \
      --nproc-per-node "$each" "$@" > "$WORK/out.$i" 2> "$WORK/err.$i" < /dev/null &
    pids+=($!) i=$((i + 1))
  done
  for each in "${pids[@]}"; do wait "$each"; statuses="$statuses $?"; done
  check_eq "$title: they end with 0" "$(printf ' 0%.0s' "${numbers[@]}")" "$statuses" || tail -n 20 "$WORK"/out.? "$WORK"/err.? >&2
}
names=(world collectives barrier subgroups "own store")
world "equal agents" "2 2" "$PROGRAMS/collectives.py" "$(empty_dir marks)"
for name in "${names[@]}"; do check "equal agents: $name" grep -qx "passed: $name" "$WORK"/out.?; done
rm -f "$WORK"/out.? "$WORK"/err.?
world "unequal agents" "1 2" "$PROGRAMS/collectives.py" "$(empty_dir marks)"
for name in "${names[@]}"; do check "unequal agents: $name" grep -qx "passed: $name" "$WORK"/out.?; done

launched "$FSDPRUN" --nproc-per-node 2 "$PROGRAMS/train.py" "$(empty_dir checkpoints)"
check_eq "one agent trains on two ranks" 0 $? || why
grep '^loss: ' "$WORK/out" > "$WORK/losses"
rm -f "$WORK"/out.? "$WORK"/err.?
world "two agents" "1 1" "$PROGRAMS/train.py" "$(empty_dir checkpoints)"
check "two agents: the losses are one agent's, bit for bit" diff "$WORK/losses" <(cat "$WORK"/out.? | grep '^loss: ')
