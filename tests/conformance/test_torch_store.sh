# PyTorch's own client of TCPStore against the agent's store: the same calls as on PyTorch's own server, the
# same answers.
source tests/support/shell/harness.sh
source tests/conformance/torch.sh

launched "$FSDPRUN" "$PROGRAMS/store_api.py"
check_eq "the program of calls ends with 0" 0 $? || why
for flow in set_get_check compare_set waits several_at_once queues barriers prefixes large_values worlds agent_store_is_forgiven; do
  check "as PyTorch's own server: $flow" grep -qx "passed: $flow" "$WORK/out"
done
for seed in 0 1 2 3 4 5 6 7; do
  check "as PyTorch's own server: 500 calls drawn by $seed" grep -qx "passed: random_calls $seed" "$WORK/out"
done

# Four ranks share one store, each by clients of its own; a restart begins with another.
launched "$FSDPRUN" --nproc-per-node 4 --max-restarts 1 "$PROGRAMS/store_ranks.py"
check_eq "four ranks and a restart" 0 $? || why
check_eq "every rank of both generations saw the others, and nothing older" 8 "$(grep -c '^passed: generation [01]' "$WORK/out")"
