# The agent that leads is killed, and its guard lives: it kills the ranks of the node, and writes into the record that
# none is left. So the next leader waits for no lease: with a directory as the arbiter, and with an etcd.
. tests/support/shell/harness.sh
. tests/support/shell/agents.sh
. tests/support/shell/etcd.sh
at_exit() { kill_agents; kill -KILL ${etcd_pid:-}; } 2> /dev/null
port=$(port_block)
cd "$WORK" || exit 1
head -c 32 /dev/urandom | base64 > secret; chmod 600 secret
long=$((10 * $(pace))) short=$((2 * $(pace))) # no wait for the long one is taken for a busy machine

ms() { echo $(($(date +%s%N) / 1000000)); }
# nodes NAME LEASE OPTIONS...: three agents of one run, NAME-1 to NAME-3. A rank adds a line to NAME.started.
nodes() {
  local name=$1 lease=$2 i
  shift 2
  port=$((port + 1))
  for i in 1 2 3; do
    begin "$name-$i" timeout -k 5 600 "$BIN/fsdprun" --nnodes 1:3 --rdzv-backend c10d \
      --rdzv-endpoint "127.0.0.1:$port" --rdzv-id "$name-$port" --local-addr "127.0.0.$i" --secret-file secret \
      --rdzv-conf "lease=$lease,last_call_timeout=60" "$@" -- "$TOY/toy" touch="$name.started" wait="$name.go"
    [ "$i" != 1 ] || wait_until 30 has "$name-1" "this node hosts"
  done
  wait_until 60 lines "$name.started" 3
}
# kill_leader NAME N: kills the agent that leads, not its guard, and waits for line N of NAME.started.
kill_leader() {
  local began
  began=$(ms)
  kill -KILL "$(inner_of "$1-1")"
  wait_until 120 lines "$1.started" "$2"
  took=$(($(ms) - began))
}
# proves NAME ARBITER: two of three nodes go on long before the lease of the third is over
proves() {
  kill_leader "$1" 5
  check "$2: the agent that leads is killed: the others run after $took ms" \
    in_good_time $((long * 500)) "$took"
  check_match "... because its guard has said so" "has said that no process of it is left" "$(cat "$1-2.out" "$1-3.out")"
  touch "$1.go"
  check_ends "... and end with 0; the guard ends as one whose agent was killed" "137 0 0" "$1-1" "$1-2" "$1-3"
}
nodes dir "$long" --run-dir "$WORK/dir"
proves dir directory

# A rank of the generation may run on a node that does not come: its lease is waited for.
nodes lost "$short" --run-dir "$WORK/lost"
power_off lost-3
kill_leader lost 4
check "a node is lost at the same time: the last one waits for its lease ($took ms)" [ "$took" -gt $((short * 1000)) ]
touch lost.go
check_ends "... and ends with 0" 0 lost-2

if command -v etcd > /dev/null && etcd_up 127.0.0.1 $((port + 2)); then
  export etcd=$((port + 2))
  port=$((port + 4))
  nodes etcd "$long" --log-dir /dev/null --arbiter "etcd://127.0.0.1:$etcd"
  proves etcd etcd
else
  skip "the same with an etcd" "$etcd_needs"
fi
