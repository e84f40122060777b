# Two hosts in network namespaces, no node ranks: who has the endpoint's address hosts, whoever starts first;
# and what a cut between them means to a world that may be smaller, and to one that may not.
# Long
. tests/support/shell/harness.sh
. tests/support/shell/agents.sh
. tests/support/shell/netns.sh
at_exit() { netns_down; }
netns_up || { skip "partitions" "needs root, ip and nft for network namespaces"; exit 0; }

toy_agents

# start NODE NAME OPTIONS...
start() {
  local node=$1 name=$2; shift 2
  begin "$name" on_node "$node" timeout -k 5 1200 "$RUN" --rdzv-backend c10d \
    --rdzv-endpoint 10.77.77.1:$port --insecure "$@"
}
# The node that has the address hosts, though the other was there first.
start 1 a1 --nnodes 2 -- "$TOYW" env=GROUP_RANK
wait_until 20 sh -c "[ -n \"\$(ip netns pids $NETNS_TAG-1)\" ]"
start 0 a0 --nnodes 2 -- "$TOYW" env=GROUP_RANK
check_ends "two hosts without node ranks: both end with 0" "0 0" a0 a1
check "the one that has the endpoint's address hosts" has a0 "this node hosts, at 10.77.77.1:$port"
check "the other is a member" has a1 "hosts, at 10.77.77.1:$port; waiting for the world"
check_eq "and comes second" "GROUP_RANK=0 GROUP_RANK=1" "$(grep -h GROUP_RANK a0.out a1.out | tr '\n' ' ' | sed 's/ $//')"

# A cut without a word: the coordinator's side goes on alone; when it is whole again, the other node comes back
# by itself.
port=$((port + 1))
start 0 b0 --nnodes 1:2 -- "$TOYW" env=WORLD_SIZE touch=b.started wait=b.go
start 1 b1 --nnodes 1:2 -- "$TOYW" touch=b.started wait=b.go
wait_until 30 lines b.started 2 || not_ok "the world forms" "$(cat b0.out b1.out)"
began=$(date +%s%N)
cut_link
check "the other side of a cut goes on alone" wait_until 30 lines b.started 3
took=$((($(date +%s%N) - began) / 1000000))
check "within 10 s ($took ms)" in_good_time 10000 "$took"
heal_link
check "the node that was cut off comes back when the cut is mended" wait_until 30 lines b.started 5
touch b.go
check_ends "and both end with 0" "0 0" b0 b1
check_eq "in worlds of two, one and two" "2 1 2" "$(sed -n 's/^WORLD_SIZE=//p' b0.out | tr '\n' ' ' | sed 's/ $//')"

# A cable that is pulled, where both nodes are needed and no restart is allowed.
port=$((port + 1))
start 0 c0 --nnodes 2 -- "$TOYW" touch=c.started wait=c.never
start 1 c1 --nnodes 2 -- "$TOYW" touch=c.started wait=c.never
wait_until 30 lines c.started 2 || not_ok "the world forms" "$(cat c0.out c1.out)"
pull_cable 1
check_ends "a cable is pulled between two that need each other: 76 on both" "76 76" c0 c1
plug_cable 1
check "no worker is left on either" wait_until 5 none_alive "$TOYW touch=c.started"

# With a restart left the node may come back in time, and only once.
port=$((port + 1))
start 0 d0 --nnodes 2 --max-restarts 1 -- "$TOYW" touch=d.started wait=d.go
start 1 d1 --nnodes 2 --max-restarts 1 -- "$TOYW" touch=d.started wait=d.go
wait_until 30 lines d.started 2 || not_ok "the world forms" "$(cat d0.out d1.out)"
cut_link
check "a cut with a restart left: the host waits for a node" wait_until 20 has d0 "once there are 2 nodes"
heal_link
check "the node that was cut off comes back" wait_until 30 lines d.started 4
cut_link
check_ends "a second cut is one too many: 76 on both" "76 76" d0 d1
heal_link

# Two nodes are cut off for good. One of them waits for 3 s only, and the other is stopped by its user.
port=$((port + 1))
start 0 e0 --nnodes 1:3 -- "$TOYW" touch=e.started wait=e.go
start 1 e1 --nnodes 1:3 --rdzv-conf join_timeout=3 -- "$TOYW" touch=e.started wait=e.go
start 1 e2 --nnodes 1:3 -- "$TOYW" touch=e.started wait=e.go
wait_until 30 lines e.started 3 || not_ok "the world forms" "$(cat e0.out e1.out e2.out)"
cut_link
check_ends "a node that cannot join again by its join_timeout ends with 76" "76" e1
check "... and says why" has e1 "no answer from 10.77.77.1:$port for 3 s"
signal e2 TERM
check_ends "a node that waits to join again is stopped by a signal" "143" e2
touch e.go
check_ends "the host's side ends with 0" "0" e0
heal_link

# The job ends while a node is cut off: nobody listens any more.
port=$((port + 1))
start 0 f0 --nnodes 1:2 -- "$TOYW" touch=f.started wait=f.go
start 1 f1 --nnodes 1:2 -- "$TOYW" touch=f.started wait=f.go
wait_until 30 lines f.started 2 || not_ok "the world forms" "$(cat f0.out f1.out)"
cut_link
wait_until 30 lines f.started 3
touch f.go
check_ends "the job ends while a node is cut off" "0" f0
heal_link
check_ends "... and that node with 76, without a long wait" "76" f1
