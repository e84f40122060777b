# A job over two nodes: the losses of one node with as many ranks, a killed worker, a node that is cut off and
# joins again, a save on signal from a member, a cut.
. tests/support/shell/harness.sh
. tests/support/shell/agents.sh
. tests/support/shell/netns.sh
. tests/support/shell/train.sh
at_exit() { netns_down; }
netns_up || { skip "training on two nodes" "needs root, ip and nft for network namespaces"; exit 0; }
head -c 32 /dev/urandom | base64 > "$WORK/secret"; chmod 600 "$WORK/secret"
tiny_job "$WORK/job.yaml"
port=$(port_block)

cd "$WORK" || exit 1
# start NODE NAME OPTIONS...
start() {
  local node=$1 name=$2
  shift 2
  begin "$name" on_node "$node" timeout -k 5 2000 "$BIN/fsdprun" --nnodes 2 --node-rank "$node" \
    --rdzv-endpoint 10.77.77.1:$port --secret-file secret job.yaml "$@"
}
both() { # NAME OPTIONS...: on both nodes
  local name=$1; shift
  port=$((port + 1))
  start 0 "$name-0" --set run.name="$name" "$@"
  start 1 "$name-1" --set run.name="$name" "$@"
}
# check_both TITLE WANT NAME: the statuses of NAME on both nodes, as soon as both have ended
check_both() { check_ends "$1" "$2" "$3-0" "$3-1"; }

# The same two ranks, on one node and on two: sums run in the order of the ranks either way.
run_job "$WORK/one.log" --nproc-per-node 2 "$WORK/job.yaml" --set run.name=one --set train.steps=40
check_eq "two ranks on one node end with 0" 0 $?
both two --nproc-per-node 1 --set train.steps=40
check_both "two nodes of one rank end with 0" "0 0" two
check_eq "to the bit the same figures" "$(figures "$WORK/runs/one")" "$(figures "$WORK/runs/two")"
last=checkpoints/step-00000040
check_eq "and the same weights" "$(payloads "$WORK/runs/one/$last")" "$(payloads "$WORK/runs/two/$last")"
check "each rank has its log" test -s "$WORK/runs/two/logs/g0/rank0/stdout.log" -a -e "$WORK/runs/two/logs/g0/rank1/stdout.log"

# Two ranks on each node: shared memory inside, TCP across. A worker of node 1 is killed on the way.
both calm --nproc-per-node 2 --set train.steps=60
check_both "two nodes of two ranks end with 0" "0 0" calm
both hit --nproc-per-node 2 --set train.steps=60
RUN=$WORK/runs/hit
wait_until 120 has_logged "$RUN" 0 6 && kill -KILL "$(pid_of "$RUN" 0 3)"
check_both "with a rank of node 1 killed they end with 0 all the same" "0 0" hit
check_eq "node 0 has the event of its end" 1 \
  "$(grep '"event": *"failure"' "$RUN/events.jsonl" | grep -cE '"rank": *3')"
check_eq "after one restart" 1 "$(grep -c '"event": *"restart"' "$RUN/events.jsonl")"
check_eq "every figure is the undisturbed run's" "$(figures "$WORK/runs/calm")" "$(figures "$RUN")"
last=checkpoints/step-00000060
check_eq "and the weights are" "$(payloads "$WORK/runs/calm/$last")" "$(payloads "$RUN/$last")"

# Node 1 is cut off for longer than the lease: its agent joins again, with the node rank that it had.
both back --nproc-per-node 2 --set train.steps=60
RUN=$WORK/runs/back
wait_until 120 has_logged "$RUN" 0 6
cut_link
check "a node is cut off: the other waits for it" wait_until 30 has back-0 "once there are 2 nodes"
heal_link
check_both "when the cut is mended, both train to the end" "0 0" back
check_eq "after one restart" 1 "$(grep -c '"event": *"restart"' "$RUN/events.jsonl")"
check_eq "every figure is the undisturbed run's" "$(figures "$WORK/runs/calm")" "$(figures "$RUN")"
check_eq "and the weights are" "$(payloads "$WORK/runs/calm/$last")" "$(payloads "$RUN/$last")"

# A scheduler signals node 1 alone: the job saves and stops on both, and goes on when it is run again.
both saved --nproc-per-node 1 --set train.steps=100000 --set checkpoint.every=100000 --save-on-signal
RUN=$WORK/runs/saved
wait_until 120 has_logged "$RUN" 0 4
signal saved-1 USR1
check_both "USR1 to node 1 saves and stops both with 77" "77 77" saved
check "a checkpoint is there" sh -c "ls $RUN/checkpoints/step-*/manifest.json"

# A firewall that lets only the rendezvous port through: the ranks cannot reach each other, and say so.
wall_up() { # VERDICT...
  on_node 0 nft -f - << RULES
table ip wall {
  chain in { type filter hook input priority 0; iifname != "lo" tcp dport != $((port + 1)) $*; }
}
RULES
}
# walled NAME TITLE WORDS VERDICT...: a job behind a firewall with that verdict; WORDS, a pattern, are said of
# the ranks.
walled() {
  local name=$1 title=$2 words=$3 node; shift 3
  wall_up "$@"
  both "$name" --max-restarts 0 --nproc-per-node 1
  ended "$name-0" "$name-1"
  on_node 0 nft delete table ip wall
  check_both "a firewall between the ranks that $title ends the job with 75 on both" "75 75" "$name"
  for node in 0 1; do
    check_match "... node $node names both ranks, address and port above its last line" \
      "fsdp-train: .*($words).*fsdprun: rank [01] .*exited with status 75 in open, generation 0; 1 other" \
      "$(tail -n 3 "$WORK/$name-$node.out" | tr '\n' ' ')"
  done
}
from="rank 1 cannot connect to rank 0 at 10\.77\.77\.1:[0-9]+"
unreached="$from within [0-9]+ s|rank 1, at 10\.77\.77\.2:[0-9]+, did not connect to rank 0, at 10\.77\.77\.1:[0-9]+, within [0-9]+ s"
walled wall drops "$unreached" drop
walled wall-reset "rejects with a reset" "$from: Connection refused; it is gone, of another job, or a firewall refuses connections" reject with tcp reset
walled wall-icmp "rejects by ICMP" \
  "$from: No route to host; it is gone, of another job, or a firewall refuses connections" reject with icmp \
  type admin-prohibited

# The link is cut while it trains, and no other node is waited for.
both cut --max-restarts 0 --nproc-per-node 1 --set train.steps=100000
wait_until 120 has_logged "$WORK/runs/cut" 0 3
cut_link
before=$(date +%s%N)
ended cut-0 cut-1
took=$((($(date +%s%N) - before) / 1000000))
heal_link
check_both "a cut link ends the job with 76 on both" "76 76" cut
check "within 10 s ($took ms)" in_good_time 10000 "$took"
for rank in 0 1; do
  check "worker $rank is not left" wait_until 5 sh -c "! kill -0 $(pid_of "$WORK/runs/cut" 0 $rank)"
done
