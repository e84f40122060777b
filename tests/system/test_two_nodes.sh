# Two nodes, each with its own network namespace: strangers, and a program that one of them lacks. What a cut
# means is held by tests/conformance/test_elastic_partition.sh.
. tests/support/shell/harness.sh
. tests/support/shell/agents.sh
. tests/support/shell/netns.sh
at_exit() { netns_down; }
netns_up || { skip "two nodes" "needs root, ip and nft for network namespaces"; exit 0; }

toy_agents
new_secret secret
new_secret other

# start NODE NAME OPTIONS... : fsdprun on a node in the background; output in NAME.out, exit status in NAME.rc
start() {
  local node=$1 name=$2; shift 2
  begin "$name" on_node "$node" timeout -k 5 900 "$RUN" --nnodes 2 --node-rank "$node" \
    --rdzv-endpoint 10.77.77.1:$port "$@"
}
next_port() { port=$((port + 1)); }

# A script that is not there on node 1 ends both nodes, though restarts are left.
if command -v python3 > /dev/null; then
  next_port
  mkdir here there && echo 'import time; time.sleep(1000)' > here/script.py
  (cd here && start 0 ../e0 --secret-file ../secret --max-restarts 3 script.py)
  (cd there && start 1 ../e1 --secret-file ../secret --max-restarts 3 script.py)
  check_ends "a script that is not there on node 1: the status of both" "127 127" e0 e1
  check_match "node 0 says so" "rank 1 .*cannot start script.py: No such file" "$(tail -n 1 e0.out)"
else
  skip "a script that is not there on node 1" "no python3"
fi

# Strangers while node 0 waits, with a wrong secret and with none; then the right node. Silence and garbage:
# test_idle_connections.sh.
next_port
start 0 d0 --secret-file secret -- "$TOYW" touch=d.started wait=d.go
wait_until 20 sh -c "ip netns exec $NETNS_TAG-0 ss -Hltn | grep -q :$port" || not_ok "node 0 listens" "$(cat d0.out)"
start 1 d-wrong --secret-file other -- "$TOYW" touch=d.started
check_ends "a wrong secret is refused" 75 d-wrong
check_match "and told so" "secret" "$(cat d-wrong.out)"
start 1 d-clear --insecure -- "$TOYW" touch=d.started
check "none of them started a worker" test ! -e d.started
check_eq "node 0 still waits" none "$(rcs d0)"
signal d-clear TERM
start 1 d1 --secret-file secret -- "$TOYW" touch=d.started wait=d.go
check "the world forms all the same" wait_until 30 sh -c '[ "$(wc -l < d.started)" = 2 ]'
touch d.go
check_ends "and ends well" "0 0" d0 d1
check_eq "the secret is in no output and no file of a run" "./secret" "$(grep -rlF -- "$(cat secret)" .)"

# Without a secret nothing starts.
check_status "more than one node without a secret is refused" 2 on_node 0 "$RUN" --nnodes 2 --node-rank 0 --rdzv-endpoint 10.77.77.1:$port -- "$TOYW"
check_match "with the remedy" "secret-file" "$(cat "$WORK/err")"
